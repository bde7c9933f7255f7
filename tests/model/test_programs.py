"""Random programs against the model: after every step the queue and the model hold the same messages in the same states.

Hypothesis draws and shrinks them; a program that once failed stays below as a test of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test
from pyroaring import BitMap64

from spark_queue.core import keys
from spark_queue.core.engine import Engine
from spark_queue.core.fold import JournalState
from spark_queue.core.lifecycle import State
from spark_queue.core.records import Kind, Outcome, Record
from spark_queue.core.runs import OutcomeOf
from spark_queue.core.segment import Segment
from spark_queue.testing.state_digest import digest
from tests.model.bodies import QUESTIONS, Body, Files
from tests.model.drawing import OPTIONAL, bodies, make

#: How many programs; unless asked for more, the same ones each time.
PROGRAMS = int(os.environ.get("MODEL_PROGRAMS", "0"))

NAMES = ("s1", "s2", "s3")


class Program(RuleBasedStateMachine):
    """One queue, as the product has it and as the model has it."""

    @initialize(drawn=st.fixed_dictionaries(OPTIONAL))
    def define(self, drawn: dict[str, Any]) -> None:
        """Define the queue."""
        self.now = 1_000
        self.files = Files()
        self.log: list[Record] = [Record(kind=Kind.JOURNAL_CREATED, record=0, detail={"journal": "J", "format": 1})]
        self.incarnations: dict[str, tuple[int, int]] = {}
        self.calls: dict[str, int] = {}
        self.newest: dict[str, int] = {}
        self.epoch = 0
        self.table, self.model = make(drawn, self.now)
        self._recover()
        self._apply()

    @rule(expiration=st.sampled_from([None, "8s", "25s", "40s"]))
    def alter(self, expiration: str | None) -> None:
        """Give the queue another expiration."""
        self.table = {key: value for key, value in self.table.items() if key != "expiration"}
        if expiration is not None:
            self.table["expiration"] = expiration
        self.model.rules.expiration_ms = None if expiration is None else keys.parse_duration_ms(expiration)
        self._apply()
        self.model.expire()

    @rule(new=st.lists(bodies, min_size=1, max_size=4))
    def publish(self, new: list[Body]) -> None:
        """Publish a file of messages, which enter at once."""
        first = len(self.files.bodies)
        for body in new:
            self.files.bodies.append({**body, "expires_at": None if body["expires_ms"] is None else self.now + body["expires_ms"]})
        own = [body["expires_at"] for body in self.files.bodies[first:] if body["expires_at"] is not None]
        segment = Segment(
            message_type="json", first=first, until=first + len(new), path=f"{first}", version=first, token="t",
            entered_at_ms=self.now, topic_min="T", topic_max="T", expires_null_count=len(new) - len(own),
            expires_min_ms=min(own, default=None), expires_max_ms=max(own, default=None),
        )  # fmt: skip
        self._do(lambda: self.engine.enter([segment], now_ms=self.now))
        for bookmark, body in enumerate(self.files.bodies[first:], first):
            self.model.enter(bookmark, body, body["expires_at"])

    @rule(
        name=st.sampled_from(NAMES),
        backlog=st.integers(0, 6),
        explicit=st.booleans(),
        text=st.sampled_from([None, "colour = 'red'"]),
    )
    def subscribe(self, name: str, backlog: int, explicit: bool, text: str | None) -> None:  # As it is drawn.
        """Begin a subscription, or start its planner anew with other wishes."""
        if self.model.subscriptions.get(name) and self.model.open_lease(name):
            return
        self._attach(name, mode="explicit" if explicit else "auto", backlog=backlog, text=text)
        wanted = None if text is None else QUESTIONS[text]
        self.model.subscribe(name, backlog=backlog, explicit=explicit, wanted=wanted)

    @precondition(lambda self: self.model.subscriptions)
    @rule(data=st.data(), limit=st.integers(1, 5), reads=st.booleans())
    def next(self, data: st.DataObject, limit: int, reads: bool) -> None:  # As it is drawn.
        """Prove what was given, and ask for more; its planner may die before it reads."""
        name = self._some(data)
        # Whoever polled before is out of the window, so nothing is kept for others.
        self.now += 2
        self._do(lambda: self.engine.tick(now_ms=self.now))
        self.model.tick(self.now)
        lease = self._planner("next", name, finished=self.newest.get(name, 0), limit=limit)
        wanted = self.model.next(name, limit)
        assert (lease is None) == (wanted is None), (lease, wanted)
        if lease is None or wanted is None:
            return
        assert (lease.number, set(lease.rows)) == (wanted.number, wanted.rows)
        self.newest[name] = lease.number
        if reads or not self.model.rules.at_most_once:
            _, rows = self._planner("rows", name, lease=lease.number)
            assert set(rows) == wanted.rows
            wanted.read = True

    @precondition(lambda self: self.model.rules.at_most_once and self._busy())
    @rule(data=st.data())
    def come_back(self, data: st.DataObject) -> None:
        """Start a planner of an at-most-once subscription anew, in the middle of its batch."""
        name = data.draw(st.sampled_from(self._busy()))
        known, lease = self.engine.state.queues["Q"].subscriptions[name], self.model.open_lease(name)
        if lease is None or lease.barrier:
            return
        self._attach(name, mode=known.ack_mode, backlog=known.max_backlog, text=known.filter)
        _, rows = self._planner("rows", name, lease=lease.number)
        assert set(rows) == self.model.read_late(lease)

    @precondition(lambda self: self._busy())
    @rule(data=st.data(), outcome=st.sampled_from(["acknowledge", "cancel", "expire"]), delay_ms=st.sampled_from([None, 7_000]))
    def say(self, data: st.DataObject, outcome: str, delay_ms: int | None) -> None:
        """Let fn end, with an outcome for some rows."""
        name = data.draw(st.sampled_from(self._busy()))
        lease = self.model.open_lease(name)
        assert lease is not None
        rows = set() if lease.barrier or not lease.rows else data.draw(st.sets(st.sampled_from(sorted(lease.rows))))
        due = self.now + delay_ms if delay_ms is not None and outcome == "cancel" else None
        incarnation, number, _ = self.engine.start_run(queue="Q", subscription=name, now_ms=self.now)
        outcomes = [OutcomeOf(outcome=Outcome(outcome), rows=BitMap64(rows), due_at_ms=due)] if rows else []
        self._do(
            lambda: self.engine.end_run(
                queue="Q", subscription=name, incarnation=incarnation, lease=number, outcomes=outcomes, now_ms=self.now
            )
        )
        self.model.say(lease, rows, outcome, due)

    @precondition(lambda self: self.files.bodies)
    @rule(data=st.data(), outcome=st.sampled_from(["acknowledge", "expire"]))
    def settle_by_hand(self, data: st.DataObject, outcome: str) -> None:
        """Settle some messages by their bookmarks."""
        known = [
            each.bookmark for each in self.model.messages.values() if each.state in ("available", "leased", "delayed", "inactive")
        ]
        if not known or self.model.rules.at_most_once:
            return
        rows = data.draw(st.sets(st.sampled_from(known), min_size=1))
        if outcome == "expire":
            rows = {row for row in rows if self.model.messages[row].state != "inactive"}
        outcomes = [OutcomeOf(outcome=Outcome(outcome), rows=BitMap64(rows))]
        self._do(lambda: self.engine.settle(queue="Q", outcomes=outcomes, now_ms=self.now))
        self.model.settle_by_hand(rows, outcome)

    @rule(passed_ms=st.sampled_from([1_000, 6_000, 11_000, 30_000]))
    def tick(self, passed_ms: int) -> None:
        """Let time pass."""
        self.now += passed_ms
        self._do(lambda: self.engine.tick(now_ms=self.now))
        self.model.tick(self.now)

    @rule(pause=st.booleans())
    def pause(self, pause: bool) -> None:  # As it is drawn.
        """Pause the queue, or let it go on."""
        (
            self._do(lambda: self.engine.pause(queue="Q", now_ms=self.now))
            if pause
            else self._do(lambda: self.engine.unpause(queue="Q", now_ms=self.now))
        )
        self.model.paused = pause
        self.model.settle_down()

    @rule()
    def purge(self) -> None:
        """Remove what is not leased."""
        self._do(lambda: self.engine.purge(queue="Q", now_ms=self.now))
        self.model.purge()

    @rule()
    def redrive(self) -> None:
        """Let all dead letters come again."""
        self._do(lambda: self.engine.redrive(queue="Q", rows=self.engine.state.queues["Q"].rows[State.DEAD], now_ms=self.now))
        self.model.redrive()

    @precondition(lambda self: self.model.subscriptions)
    @rule(data=st.data())
    def unsubscribe(self, data: st.DataObject) -> None:
        """End a subscription."""
        name = self._some(data)
        self._do(lambda: self.engine.unsubscribe(queue="Q", subscription=name, now_ms=self.now))
        self.model.unsubscribe(name)
        self.newest.pop(name, None)

    @rule()
    def crash(self) -> None:
        """Let the coordinator die; the next one folds the log, and gives every lease time to be renewed (15.2)."""
        before = digest(self.engine.state)
        self.engine.state.epoch = -1
        state = JournalState(self.files)
        state.fold_all(self.log)
        after = digest(state)
        assert {**before, "epoch": 0} == {**after, "epoch": 0}
        self._recover()
        for lease in self.model.leases():
            if lease.held or lease.pending:
                lease.due = max(lease.due, self.now + self.model.rules.lease_ms // 3)

    @invariant()
    def both_hold_the_same(self) -> None:
        """Compare every message."""
        if not hasattr(self, "engine") or "Q" not in self.engine.state.queues:
            return
        ledger = self.engine.state.queues["Q"]
        found = {state.value: set(ledger.rows[state]) for state in State}
        wanted: dict[str, set[int]] = {state: set() for state in found}
        for message in self.model.messages.values():
            wanted[message.state].add(message.bookmark)
        assert found == wanted
        for message in self.model.messages.values():
            if message.state in ("available", "leased", "delayed"):
                assert ledger.delivered.of(message.bookmark) == message.deliveries, message
                assert ledger.cancelled.of(message.bookmark) == message.cancels, message

    def _recover(self) -> None:
        state = JournalState(self.files)
        state.fold_all(self.log)
        self.engine = Engine(state)
        self.epoch += 1
        self.engine.claim(epoch=self.epoch, host="h", address="a", pid=1, now_ms=self.now)
        self.engine.take_over(now_ms=self.now)
        self.log += self.engine.take()

    def _do(self, command: Callable[[], Any]) -> Any:
        answer = command()
        self.log += self.engine.take()
        return answer

    def _apply(self) -> None:
        definitions = {"message_types": {"json": {"topics": ["T"]}}, "queues": {"Q": self.table}}
        self._do(lambda: self.engine.apply(definitions=definitions, reset=(), now_ms=self.now))

    def _attach(self, name: str, *, mode: str, backlog: int, text: str | None) -> None:
        self.incarnations[name] = self.engine.draw_incarnation()
        self.calls[name] = 1
        self._do(
            lambda: self.engine.attach(
                queue="Q", subscription=name, incarnation=self.incarnations[name], call=1, ack_mode=mode, max_backlog=backlog,
                filter_sql=text, now_ms=self.now,
            )
        )  # fmt: skip

    def _planner(self, method: str, name: str, **arguments: Any) -> Any:
        self.calls[name] += 1
        common = {"queue": "Q", "subscription": name, "incarnation": self.incarnations[name], "call": self.calls[name]}
        return self._do(lambda: getattr(self.engine, method)(**common, now_ms=self.now, **arguments))

    def _some(self, data: st.DataObject) -> str:
        return str(data.draw(st.sampled_from(sorted(self.model.subscriptions))))

    def _busy(self) -> list[str]:
        return [name for name in sorted(self.model.subscriptions) if self.model.open_lease(name)]


def test_random_programs_leave_the_queue_as_the_model_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """R4 to R6, R13 to R17, R22 to R24, R36 to R41, R47 to R56, R60, R65 to R73, R77 to R83, R118: message by message."""
    # The least depth that users may set is more than a program that can be read publishes.
    monkeypatch.setattr(keys, "_DEPTH_MIN", 1)
    run_state_machine_as_test(
        Program,
        settings=settings(
            max_examples=PROGRAMS or 150,
            derandomize=not PROGRAMS,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            print_blob=True,
        ),
    )
