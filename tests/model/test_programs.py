"""Random programs against the model: after every step the queues and the model hold the same messages in the same states.

Hypothesis draws and shrinks them; a program that once failed stays below as a test of its own.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test
from pyroaring import BitMap64

from spark_queue.core import commands
from spark_queue.core.bitmaps.ranges import to_ranges
from spark_queue.core.definitions import keys
from spark_queue.errors import SparkQueueError
from tests.model import journal
from tests.model.bodies import QUESTIONS, Body
from tests.model.consumers import Consumers
from tests.model.definitions import LETTER_QUEUES, LETTERS, MESSAGES
from tests.model.machine import bodies
from tests.model.receivers import Receivers
from tests.seed_window import window

#: How many programs; which ones, the window says.
PROGRAMS = int(os.environ.get("MODEL_PROGRAMS", "1000"))

#: Without shrinking (``MODEL_SHRINK=0``) a failure is told at once, as long as it happened to be.
PHASES = [phase for phase in Phase if phase is not Phase.shrink or os.environ.get("MODEL_SHRINK", "1") != "0"]

#: Programs of one test: few enough to spread over processes.
CHUNK = 125

#: Programs of a chunk that is kept: as few as show what it is kept for, where the fault is put back.
KEPT = 10

#: Each is the seed of its programs.
CHUNKS = window(-(-PROGRAMS // CHUNK))

#: Programs that show a fault that was there once: a barrier that was given up, and its batch run again.
KEPT_CHUNKS = (22,)

#: The same, of programs with receivers.
KEPT_WITH_RECEIVERS: tuple[int, ...] = ()


class Program(Consumers):
    """What operators do, beside."""

    @rule(data=st.data(), what=st.sampled_from(["alter", "alter", "alter", "drop", "reset", "exchange"]))
    def define_anew(self, data: st.DataObject, what: str) -> None:
        """Change definitions with messages in flight.

        Keys of a queue, which may be made; queue R goes; a queue begins anew; queues exchange their dead-letter queues, or get
        another one.
        """
        queue = data.draw(st.sampled_from("QQQRDE" if what == "alter" else "QR"))
        if what == "reset" and queue in self.model.queues:
            self.apply(self.drawn, (queue,))
        elif what == "drop":
            self.apply({name: drawn for name, drawn in self.drawn.items() if name != "R"}, ())
        elif what == "exchange":
            other = {None: None, "D": "E", "E": "D"}
            exchanged = {
                name: keys | {"dead_letter_queue": other[keys["dead_letter_queue"]]} if "dead_letter_queue" in keys else keys
                for name, keys in self.drawn.items()
            }
            self.apply(exchanged, ())
        elif what == "alter":
            known, every = self.drawn.get(queue, {}), LETTERS if queue in LETTER_QUEUES else MESSAGES
            some = data.draw(st.sets(st.sampled_from(sorted(every)), min_size=1, max_size=4)) if known else set(every)
            drawn = {key: data.draw(every[key]) for key in sorted(some)}
            self.apply({**self.drawn, queue: {**known, **drawn}}, ())

    @rule(
        queue=st.sampled_from("QQQR"),
        files=st.lists(st.lists(bodies, min_size=1, max_size=3), min_size=1, max_size=2),
        delay_ms=st.sampled_from([None, None, 8_000]),
        crashes=st.booleans(),
        from_snapshot=st.booleans(),
    )
    def set_aside(self, queue: str, files: list[list[Body]], *, delay_ms: int | None, crashes: bool, from_snapshot: bool) -> None:
        """Set a queue aside, publish, and revive it: it has what came meanwhile as if it had stood (R75, R122)."""
        if queue in self.model.queues:
            self.do(lambda: self.engine.set_aside(queue, "a bug", now_ms=self.now))
            for new in files:
                self.publish(new, delay_ms)
                if crashes:
                    self.begin_reign(self._folded(from_snapshot=from_snapshot))
            self.decide(commands.Revive(queue=queue))
            self.begin_reign(self._folded(from_snapshot=from_snapshot))
            self.do(lambda: self.engine.expire(now_ms=self.now))

    @rule(
        data=st.data(),
        queue=st.sampled_from("QQQRDE"),
        what=st.sampled_from(["settle", "settle_where", "pause", "redrive", "redrive"]),
    )
    def operate(self, data: st.DataObject, queue: str, what: str) -> None:
        """Do something by hand."""
        if queue in self.model.queues:
            getattr(self, what)(data, queue)
            self.model.settle_down()

    def settle(self, data: st.DataObject, queue: str) -> None:
        """Settle some messages by their bookmarks, whatever state they are in."""
        outcome = data.draw(st.sampled_from(["acknowledge", "cancel", "expire"]))
        known = self._messages(queue, *([] if outcome == "acknowledge" else ["leased", "available"]))
        if not known:
            return
        rows = data.draw(st.sets(st.sampled_from(known), min_size=1, max_size=3))
        wait_ms, due = self._due(data, outcome)
        said = commands.OutcomeRows(outcome=outcome, ranges=tuple(to_ranges(BitMap64(rows))), retry_after_ms=wait_ms)
        try:
            self.decide(commands.Settle(queue=queue, outcomes=(said,)))
            is_allowed = True
        except SparkQueueError:
            is_allowed = False
        assert journal.settle_by_hand(self.model.queues[queue], rows, outcome, due) == is_allowed

    def settle_where(self, data: st.DataObject, queue: str) -> None:
        """Settle or purge what matches."""
        where = data.draw(st.sampled_from(["size > 1", "colour = 'red'"]))
        outcome = data.draw(st.sampled_from(["acknowledge", "cancel", "expire", "purge", "purge all"]))
        if outcome.startswith("purge"):
            some = where if outcome == "purge" else None
            self.decide(commands.Purge(queue=queue, where=some))
            journal.purge(self.model.queues[queue], QUESTIONS.get(some or ""))
        else:
            wait_ms, due = self._due(data, outcome)
            self.decide(commands.SettleWhere(queue=queue, where=where, outcome=outcome, retry_after_ms=wait_ms))
            journal.settle_where(self.model.queues[queue], QUESTIONS[where], outcome, due)

    def pause(self, data: st.DataObject, queue: str) -> None:
        """Pause the queue, or let it go on."""
        known, pause = self.model.queues[queue], data.draw(st.sampled_from([False, False, True]))
        self.decide(commands.Pause(queue=queue) if pause else commands.Unpause(queue=queue))
        if not pause and (known.paused or any(each.alarm is not None for each in known.subscriptions.values())):
            for subscription in known.subscriptions.values():
                subscription.suspects, subscription.alarm = {}, None
        known.paused = pause

    def redrive(self, data: st.DataObject, queue: str) -> None:
        """Let dead letters come again."""
        known = self._messages(queue, "dead")
        if known:
            rows = data.draw(st.sets(st.sampled_from(known), min_size=1))
            self.decide(commands.Redrive(queue=queue, ranges=tuple(to_ranges(BitMap64(rows)))))
            journal.redrive(self.model.queues[queue], rows)

    def _due(self, data: st.DataObject, outcome: str) -> tuple[int | None, int | None]:
        """Draw how long cancelled messages wait, and until when; None for both where nobody says."""
        return (7_000, self.now + 7_000) if outcome == "cancel" and data.draw(st.booleans()) else (None, None)

    def _messages(self, queue: str, *states: str) -> list[int]:
        known = self.model.queues[queue].messages.values() if queue in self.model.queues else ()
        return sorted(
            each.bookmark for each in known if each.bookmark not in self.model.retired and (not states or each.state in states)
        )


class ProgramWithReceivers(Receivers, Program):
    """What consumers without Spark do, beside queries and operators."""


# Shrinking what fails may take five minutes.
@pytest.mark.timeout(900)
@pytest.mark.parametrize("chunk", dict.fromkeys([*KEPT_CHUNKS, *CHUNKS]))
def test_random_programs_leave_the_queue_as_the_model_says(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    """R4 to R6, R13 to R17, R22 to R24, R36 to R41, R47 to R56, R60, R65 to R73, R77 to R83, R90, R118, R123 to R127."""
    run_chunk(Program, monkeypatch, chunk)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("chunk", dict.fromkeys([*KEPT_WITH_RECEIVERS, *CHUNKS]))
def test_random_programs_with_receivers_leave_the_queue_as_the_model_says(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    """R131 to R140, beside what the rules say of queries."""
    run_chunk(ProgramWithReceivers, monkeypatch, chunk)


def programs_of(chunk: int) -> int:
    """Return how many programs a test runs of a chunk."""
    return min(CHUNK, PROGRAMS - CHUNKS.index(chunk) * CHUNK) if chunk in CHUNKS else KEPT


def run_chunk(program: type[Program], monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    """Run the programs of one seed."""
    # The least depth that users may set is more than a program that can be read publishes.
    monkeypatch.setattr(keys, "_DEPTH_MIN", 1)
    run_state_machine_as_test(
        seed(chunk)(type("Program", (program,), {})),
        settings=settings(
            max_examples=programs_of(chunk),
            database=None,
            stateful_step_count=60,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            print_blob=True,
            phases=PHASES,
            report_multiple_bugs=False,
        ),
    )
