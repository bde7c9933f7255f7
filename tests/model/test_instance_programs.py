"""Random programs of two and three instances against their model: after every step both say the same of every message.

Hypothesis draws and shrinks them.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from spark_queue.core import commands
from spark_queue.core.bitmaps.ranges import to_bitmap
from spark_queue.core.records import Kind, ProxiedTransfer, Record
from spark_queue.core.state.lifecycle import State
from tests.fake_clock import FakeClock
from tests.model import instances as model
from tests.model.instances import Id, News, Value
from tests.model.sides import Sides
from tests.model.test_programs import CHUNKS, PHASES, programs_of
from tests.records import detail_of
from tests.scenario.instances import Consumer

#: Longest time after which a message is asked for that is there, and how long a request stays open.
PATIENCE_MS, OPEN_MS = 10_000, 5_000

#: Records of a pull by which the model says something: that messages came, at once, or what each of them is.
SAID_BY_PULLS = frozenset({Kind.ENTERED, Kind.REPLICATED, Kind.TRANSFERRED})

#: Chunks that found something: a letter that was over counted as one more word of the model's.
KEPT_CHUNKS = (6_344_725,)

instances = st.integers(0, 2)


class InstanceProgram(RuleBasedStateMachine):
    """What happens to a queue of two or three instances."""

    @initialize(names=st.sampled_from([["a", "b"], ["a", "b", "c"]]), chain=st.booleans())
    def begin(self, names: list[str], chain: bool) -> None:
        """Make the instances; in a chain the two ends do not know each other."""
        self.clock = FakeClock()
        pairs = [(one, other) for one in names for other in names if one != other and not (chain and {one, other} == {"a", "c"})]
        self.sides = [Sides(name, [other for one, other in pairs if one == name], self.clock) for name in names]
        self.pairs = pairs
        for number in range(len(names)):
            self.publish(number, 3)
        self.exchange()

    def side(self, number: int) -> Sides:
        """Return one of the instances."""
        return self.sides[number % len(self.sides)]

    @rule(at=instances, count=st.integers(1, 3))
    def publish(self, at: int, count: int) -> None:
        """Publish messages somewhere."""
        self.side(at).core.publish(count)
        self.side(at).model.publish(count)

    @rule(at=instances, limit=st.integers(1, 4))
    def take(self, at: int, limit: int) -> None:
        """Finish a batch, and ask for the next."""
        side = self.side(at)
        side.consumer = side.consumer or Consumer(side.core)
        taken = side.ids(side.consumer.take(limit))
        assert taken == side.model.take(limit, self.clock.wall_ms())
        side.note_what_came()
        self._look(side, limit, must_ask=not taken)

    def _look(self, side: Sides, limit: int, *, must_ask: bool) -> None:
        """Judge what was asked of owners, which may be sooner or later, and let the model say it, too (R104)."""
        now, requests = self.clock.wall_ms(), self._requests(side)
        remote = side.model.having("remote")
        assert sum(detail_of(record)["limit"] for record in requests) <= max(limit, len(requests)), (
            "all together for no more than its room"
        )
        for record in requests:
            owner, ids = detail_of(record)["owner"], side.ids(to_bitmap(record.ranges))
            theirs = [each for each in remote if side.model.messages[each].value.owner == owner]
            assert 0 < detail_of(record)["limit"] <= min(limit, len(ids))
            assert {*ids} <= {*theirs}
            life, lives = detail_of(record).get("life", 0), {each: side.model.messages[each].value.life for each in theirs}
            assert life <= min(lives[each] for each in ids), "what was never there is gone in no later life than it is in"
            left_out = [each for each in theirs if each not in ids and not self._is_new(side, each, now)]
            assert all(lives[each] < life for each in left_out), "all are named that have waited, or all of a later life"
            assert not left_out or self._stand(side, owner), "they were named in vain"
            assert not self._is_open(side, owner, now), "one request is open for each owner"
            side.asked[owner] = (now, {(each, side.model.messages[each].value.life) for each in ids})
            assert detail_of(record)["requester"] == side.name
        for each in remote if must_ask and not requests else ():
            is_asked = self._is_open(side, side.model.messages[each].value.owner, now)
            assert is_asked or self._is_new(side, each, now), "what has been here for long is asked for"

    def _is_new(self, side: Sides, each: Id, now: int) -> bool:
        """Return whether a message may not have waited for long enough to be asked for."""
        return now < side.came_at.get((each, side.model.messages[each].value.life), now) + PATIENCE_MS

    def _requests(self, side: Sides) -> list[Record]:
        """Return the requests that an instance has made, or passed on, since the last look; the model makes them, too."""
        records = side.core.world.committed[side.looked :]
        side.looked += len(records)
        requests: list[Record] = []
        said_since = 0
        for record in reversed(records):
            ids = side.ids(to_bitmap(record.ranges))
            if record.kind == Kind.TRANSFER_REQUESTED:
                # Where it stands counts: who reads it may own something only by what is said behind it.
                asked = {name: detail_of(record)[name] for name in ("requester", "limit")}
                side.model.log.insert(len(side.model.log) - said_since, News("request", ids, **asked))
                said_since += 1
                requests.insert(0, record)
            elif record.kind in SAID_BY_PULLS and not (record.queue == "FAILED" and detail_of(record).get("stage") == model.GONE):
                # That a letter is over follows from its message, of which the model speaks alone.
                said_since += 1 if record.kind == Kind.ENTERED else len(ids)
        return requests

    def _is_open(self, side: Sides, owner: str, now: int) -> bool:
        asked_at, _ = side.asked.get(owner, (now - OPEN_MS, set()))
        return now < asked_at + OPEN_MS and self._stand(side, owner)

    def _stand(self, side: Sides, owner: str) -> bool:
        """Return whether something still stands elsewhere that an owner was asked for last."""
        _, named = side.asked.get(owner, (0, set()))
        return any(side.model.state(each) == "remote" for each, _ in named)

    @rule(number=st.integers(0, 5))
    def pull(self, number: int) -> None:
        """Let one instance hear another."""
        self._pull(*self.pairs[number % len(self.pairs)])

    @rule(at=instances)
    def hear(self, at: int) -> None:
        """Let one instance hear all that it can."""
        for one, other in self.pairs:
            if one == self.side(at).name:
                self._pull(one, other)

    @rule()
    def exchange(self) -> None:
        """Let everybody hear everybody."""
        for one, other in self.pairs:
            self._pull(one, other)

    @rule(at=instances, limit=st.integers(1, 4))
    def relieve(self, at: int, limit: int) -> None:
        """Let a consumer wait until it is given what others have, if they give it."""
        for _ in range(3):
            self.take(at, limit)
            self.wait(11_000)
            self.exchange()

    def _pull(self, one: str, other: str) -> None:
        sides = {each.name: each for each in self.sides}
        sides[one].core.pull(sides[other].core)
        sides[one].model.pull(sides[other].model, self.clock.wall_ms())
        sides[one].note_what_came()
        self._requests(sides[one])
        for each, known in sides[one].model.messages.items():
            sides[one].came_at.setdefault((each, known.value.life), self.clock.wall_ms())

    @rule(elapsed_ms=st.sampled_from([300, 1_500, 1_500, 5_300, 61_000]))
    def wait(self, elapsed_ms: int) -> None:
        """Let time pass."""
        self.clock.advance(elapsed_ms)
        for side in self.sides:
            side.core.tick()
            side.model.tick(self.clock.wall_ms())

    @rule(at=instances, data=st.data(), outcome=st.sampled_from(["expire", "expire", "acknowledge"]))
    def settle(self, at: int, data: st.DataObject, outcome: str) -> None:
        """Give up something leased, or end something that waits, by hand."""
        side = self.side(at)
        known = side.model.having("leased" if outcome == "expire" else "available")
        if known:
            self._settle(side, data.draw(st.sampled_from(known)), outcome)

    def _settle(self, side: Sides, each: Id, outcome: str) -> None:
        row = side.row(each)
        said = commands.OutcomeRows(outcome=outcome, ranges=((row, row + 1),))
        side.core.decide(commands.Settle(queue="WORK", outcomes=(said,)))
        getattr(side.model, outcome)(each)

    @rule(at=instances)
    def redrive(self, at: int) -> None:
        """Give back all dead letters that are owned."""
        side = self.side(at)
        found = side.core.decide(commands.FindDeadLetters(queue="WORK"))
        if found.ranges:
            side.core.decide(commands.Redrive(queue="WORK", ranges=found.ranges))
        assert sorted(side.ids(to_bitmap(found.ranges))) == sorted(side.model.redrive())

    @rule(at=instances, on=st.booleans())
    def allow_claims(self, at: int, on: bool) -> None:
        """Allow proxied transfer, or forbid it (R108)."""
        world = self.side(at).core.world
        # The ends of a chain, which hear of each other later, are named all the same.
        others = [each.name for each in self.sides if each is not self.side(at)]
        for owner in others if on else [None]:
            world.engine._emit(world.now_ms)(ProxiedTransfer(on=on, owner=owner), queue="WORK")
        world.commit()
        self.side(at).model.claims = on

    @rule(at=instances, of=instances)
    def lose(self, at: int, of: int) -> None:
        """Let an instance find another lost, or hear of it again."""
        if self.side(at) is not self.side(of):
            self.side(at).model.lost ^= {self.side(of).name}

    @rule(at=instances, limit=st.integers(1, 4))
    def take_from_the_lost(self, at: int, limit: int) -> None:
        """Let an instance find all others lost, and take what they own (R109)."""
        self.allow_claims(at, on=True)
        self.side(at).model.lost |= {each.name for each in self.sides} - {self.side(at).name}
        self.take(at, limit)

    @rule(at=instances, limit=st.integers(1, 4))
    def give_up(self, at: int, limit: int) -> None:
        """Let a batch be given up by hand, or by its time, as often as makes dead letters; perhaps somebody gives them back."""
        self.take(at, limit)
        for each in self.side(at).model.having("leased")[:1]:
            self._settle(self.side(at), each, "expire")
        self.wait(61_000)

    @rule(at=instances)
    def crash(self, at: int) -> None:
        """Let the next coordinator go on."""
        self.side(at).core.crash()
        self.side(at).reach()
        self.side(at).model.crash(self.clock.wall_ms())

    @invariant()
    def both_say_the_same(self) -> None:
        """Compare all that is said of every message, and of every dead letter."""
        for side in getattr(self, "sides", ()):
            told = {each: (known.value, side.model.state(each)) for each, known in side.model.messages.items()}
            assert _values(side) == told, side.name
            letters = {each: known.letter for each, known in side.model.messages.items() if known.letter is not None}
            assert _letters(side) == letters, f"letters of {side.name}"
            counted = side.core.world.state.queues["WORK"].delivered
            for each, known in side.model.messages.items():
                if known.value.stage == model.PRESENT:
                    assert counted.of(side.row(each)) == known.deliveries, f"deliveries of {each} at {side.name}"


def _values(side: Sides) -> dict[Id, tuple[Value, str]]:
    ledger = side.core.world.state.queues["WORK"]
    states = {row: state.value for state, rows in ledger.rows.items() for row in rows}
    return {each: (_value(side, "WORK", row), states[row]) for row in ledger.entered for each in side.ids([row])}


def _letters(side: Sides) -> dict[Id, Value]:
    ledger = side.core.world.state.queues["FAILED"]
    standing = ledger.entered - ledger.rows[State.REMOVED]
    return {each: _value(side, "FAILED", row) for row in standing for each in side.ids([row])}


def _value(side: Sides, queue: str, row: int) -> Value:
    value = side.core.value(queue, row)
    return Value(value.life, int(value.stage), value.term, value.owner)


# Shrinking what fails may take five minutes.
@pytest.mark.timeout(900)
@pytest.mark.parametrize("chunk", dict.fromkeys([*KEPT_CHUNKS, *CHUNKS]))
def test_random_programs_leave_all_instances_as_the_model_says(chunk: int) -> None:
    """R101 to R105, R107 to R111: owner, term, life and stage of every message on every instance, after every step."""
    run_state_machine_as_test(
        seed(chunk)(type("InstanceProgram", (InstanceProgram,), {})),
        settings=settings(
            max_examples=programs_of(chunk),
            database=None,
            stateful_step_count=50,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            print_blob=True,
            phases=PHASES,
            report_multiple_bugs=False,
        ),
    )
