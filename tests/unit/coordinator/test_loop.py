"""The loop over a journal in memory: what is answered when, what shares a commit, and what ends a reign (DESIGN 6, 3.3 to 3.5)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from spark_queue.coordinator import entering, wire
from spark_queue.coordinator.connection import Verdict
from spark_queue.coordinator.election import Candidate, Reign, Surroundings, elect
from spark_queue.coordinator.inbox import Call, Inbox
from spark_queue.coordinator.loop import POLLED_TAIL_MS, ROUND_MS, Loop, ReignEndedError
from spark_queue.coordinator.recovery import recover
from spark_queue.core import parsing
from spark_queue.core.records import Kind, Record
from spark_queue.core.segment import Segment
from spark_queue.errors import CoordinatorError, JournalError
from spark_queue.testing.fake_clock import FakeClock
from spark_queue.testing.memory_journal import MemoryJournal, MemoryStorage
from spark_queue.testing.scenario.facts import Published

DEFINITIONS: dict[str, Any] = {
    "message_types": {"json": {"topics": ["ORDERS"]}},
    "queues": {"WORK": {"underlying_topic": "ORDERS", "lease_period": "10s"}},
}
PERIOD_MS = 10_000


class NoHints:
    """A store without a hint."""

    def read(self, key: str) -> bytes | None:
        return None


class World:
    """A stored journal, a clock, and the reign that serves."""

    def __init__(self, definitions: dict[str, Any] | None = None, *, ends_idle: bool = True) -> None:
        self.clock = FakeClock()
        self.storage = MemoryStorage(parsing.parse(definitions or DEFINITIONS), at_ms=self.clock.wall_ms())
        self.journal_id = self.storage.journal_id
        self.loop, self.journal = self.reign(ends_idle=ends_idle)
        self.requests = 0

    def reign(self, *, ends_idle: bool = True) -> tuple[Loop, MemoryJournal]:
        """Begin the next reign, whatever the last one does."""
        journal = MemoryJournal(self.storage)
        candidate = Candidate(journal_id=self.journal_id, path=journal.path, host="h", address="grpc://127.0.0.1:1", pid=1)
        around = Surroundings(hints=NoHints(), ping=lambda *_: Verdict.GONE, clock=self.clock, pause=lambda _: None)  # type: ignore[arg-type]
        outcome = elect(journal.control, candidate, around)
        assert isinstance(outcome, Reign)
        return recover(outcome, journal, Inbox(), ends_idle=ends_idle), journal

    def publish(self, messages: int) -> None:
        self.storage.publish("json", [Published(topic="ORDERS")] * messages)

    def call(self, request: Callable[..., Any], *, abandoned: bool = False, **fields: Any) -> Call:
        """Make a call; it is served when it is given to a step."""
        self.requests += 1
        return Call(request(journal=self.journal_id, request=f"r{self.requests}", **fields), lambda: abandoned)

    def ask(self, request: Callable[..., Any], **fields: Any) -> Any:
        """Serve one call in a group of its own, and give its reply."""
        call = self.call(request, **fields)
        self.loop.step([call])
        return call.reply

    def records(self) -> list[Record]:
        return [record for commit in self.storage.commits for record in commit.records]

    def kinds(self, since: int = 0) -> list[str]:
        return [record.kind for record in self.records()[since:]]


class Planner:
    """One planner start of a subscription."""

    def __init__(self, world: World, subscription: str = "s") -> None:
        self.world = world
        self.common: dict[str, Any] = {"queue": "WORK", "subscription": subscription}
        self.incarnation = world.ask(wire.DrawIncarnation, **self.common).incarnation
        self.calls = 0
        self.lease = 0
        assert world.ask(wire.Attach, ack_mode="auto", max_backlog=100, **self.planner()) == wire.Done()

    def planner(self) -> dict[str, Any]:
        self.calls += 1
        return {"incarnation": self.incarnation, "call": self.calls, **self.common}

    def next_call(self, *, limit: int = 10, wait_ms: int = 0, abandoned: bool = False) -> Call:
        return self.world.call(wire.Next, abandoned=abandoned, finished=self.lease, limit=limit, wait_ms=wait_ms, **self.planner())

    def next(self, **options: Any) -> wire.Granted:
        call = self.next_call(**options)
        self.world.loop.step([call])
        assert isinstance(call.reply, wire.Granted), call.reply
        self.lease = call.reply.lease
        return call.reply

    def leave_call(self) -> Call:
        return self.world.call(wire.Leave, incarnation=self.incarnation, call=0, **self.common)


def answered(call: Call) -> bool:
    return call.reply is not None


@pytest.fixture
def world() -> World:
    return World()


def test_nobody_hears_of_a_grant_before_it_is_committed(world: World) -> None:
    world.publish(3)
    call = Planner(world).next_call()
    heard: list[object] = []
    world.storage.hook = lambda step, moment: heard.append((step, moment, call.reply))
    world.loop.step([call])
    assert ("control.append", "before", None) in heard
    assert ("control.append", "after", None) in heard
    assert isinstance(call.reply, wire.Granted)


def test_all_commands_of_a_group_share_one_commit(world: World) -> None:
    planners = [Planner(world, f"s{number}") for number in range(5)]
    world.publish(50)
    before = len(world.storage.commits)
    calls = [planner.next_call(limit=10) for planner in planners]
    world.loop.step(calls)
    assert [call.reply.messages for call in calls if isinstance(call.reply, wire.Granted)] == [10] * 5
    assert len(world.storage.commits) == before + 1


def test_finishing_one_lease_and_granting_the_next_are_one_commit(world: World) -> None:
    planner = Planner(world)
    world.publish(4)
    planner.next(limit=2)
    before, records = len(world.storage.commits), len(world.records())
    assert planner.next(limit=2).messages == 2
    assert len(world.storage.commits) == before + 1
    assert world.kinds(records) == [Kind.REMOVED, Kind.PROVEN, Kind.GRANTED]


def test_an_answer_without_a_commit_is_given_after_a_check_only(world: World) -> None:
    """P7: nothing there, row ranges and refusals too, are answered after the reign was looked at."""
    steps: list[str] = []
    planner = Planner(world)
    world.storage.hook = lambda step, moment: steps.append(f"{step} {moment}")
    planner.next()
    assert steps.count("control.check after") == 1
    steps.clear()
    assert isinstance(world.ask(wire.DrawIncarnation, queue="NONE", subscription="s"), wire.Failed)
    assert "control.check after" in steps
    steps.clear()
    world.loop.step([])
    assert steps == []


@pytest.mark.parametrize("kind", ["a grant", "nothing there", "a refusal"])
def test_a_deposed_reign_answers_nothing(world: World, kind: str) -> None:
    planner = Planner(world)
    if kind == "a grant":
        world.publish(5)
    call = world.call(wire.DrawIncarnation, queue="NONE", subscription="s") if kind == "a refusal" else planner.next_call()
    world.reign()
    before = world.records()
    with pytest.raises(CoordinatorError, match="COORDINATOR_DEPOSED"):
        world.loop.step([call])
    assert call.reply is None
    assert world.records() == before


def test_a_commit_whose_outcome_is_unknown_ends_the_reign_without_an_answer(world: World) -> None:
    planner = Planner(world)
    world.publish(5)
    call = planner.next_call()

    def lose_reply(step: str, moment: str) -> None:
        if (step, moment) == ("control.append", "after"):
            raise OSError("the connection was cut")

    world.storage.hook = lose_reply
    with pytest.raises(JournalError, match="STORE_FAILED"):
        world.loop.step([call])
    assert not answered(call)
    world.storage.hook = lambda *_: None
    world.loop, _ = world.reign()
    world.loop.step([call])
    # The commit had landed: the repeat gets that lease, and nothing is granted twice.
    assert isinstance(call.reply, wire.Granted)
    assert (call.reply.lease, world.kinds().count(Kind.GRANTED)) == (1, 1)


def test_a_long_poll_waits_and_is_served_by_a_nudge(world: World) -> None:
    planner = Planner(world)
    poll = planner.next_call(wait_ms=1_000)
    world.loop.step([poll])
    assert not answered(poll)
    world.publish(2)
    nudge = world.call(wire.Nudge, message_type="json")
    world.loop.step([nudge])
    assert isinstance(poll.reply, wire.Granted)
    assert (poll.reply.messages, nudge.reply) == (2, wire.Done())


def test_a_long_poll_finds_messages_that_nobody_nudged_for(world: World) -> None:
    poll = Planner(world).next_call(wait_ms=1_000)
    world.loop.step([poll])
    world.publish(2)
    assert 0 < world.loop.wait_ms() <= POLLED_TAIL_MS
    world.clock.advance(world.loop.wait_ms())
    world.loop.step([])
    assert isinstance(poll.reply, wire.Granted)
    assert poll.reply.messages == 2


@pytest.mark.parametrize(("asked_ms", "waited_ms"), [(300, 300), (60_000, wire.LONG_POLL_LIMIT_MS)])
def test_a_long_poll_ends_with_its_wait_and_at_the_limit(world: World, asked_ms: int, waited_ms: int) -> None:
    poll = Planner(world).next_call(wait_ms=asked_ms)
    world.loop.step([poll])
    began_ms = world.clock.monotonic_ms()
    while not answered(poll):
        assert world.loop.wait_ms() > 0
        world.clock.advance(world.loop.wait_ms())
        world.loop.step([])
    assert world.clock.monotonic_ms() - began_ms == waited_ms
    assert isinstance(poll.reply, wire.Granted)
    assert (poll.reply.lease, poll.reply.messages) == (0, 0)


def test_waiting_polls_are_served_together(world: World) -> None:
    polls = [Planner(world, f"s{number}").next_call(limit=3, wait_ms=1_000) for number in range(4)]
    world.loop.step(polls)
    world.publish(12)
    before = len(world.storage.commits)
    world.loop.step([world.call(wire.Nudge, message_type="json")])
    assert [poll.reply.messages for poll in polls if isinstance(poll.reply, wire.Granted)] == [3, 3, 3, 3]
    assert len(world.storage.commits) == before + 1


def test_a_poll_whose_caller_hung_up_is_granted_nothing(world: World) -> None:
    poll = Planner(world).next_call(wait_ms=1_000, abandoned=True)
    world.loop.step([poll])
    world.publish(2)
    world.loop.step([world.call(wire.Nudge, message_type="json")])
    assert not answered(poll)
    assert Kind.GRANTED not in world.kinds()


def test_a_planner_that_leaves_is_granted_nothing_any_more(world: World) -> None:
    planner = Planner(world)
    poll = planner.next_call(wait_ms=1_000)
    world.loop.step([poll])
    world.publish(2)
    world.loop.step([planner.leave_call(), world.call(wire.Nudge, message_type="json")])
    assert isinstance(poll.reply, wire.Granted)
    assert poll.reply.messages == 0
    assert Kind.GRANTED not in world.kinds()


def test_a_poll_of_a_superseded_planner_is_told_so(world: World) -> None:
    poll = Planner(world).next_call(wait_ms=1_000)
    world.loop.step([poll])
    Planner(world)
    assert isinstance(poll.reply, wire.Failed)
    assert poll.reply.code == "SUBSCRIPTION_TAKEN"


def test_a_lease_ends_by_itself_and_goes_to_a_waiting_poll(world: World) -> None:
    world.publish(5)
    Planner(world, "first").next()
    world.clock.advance(PERIOD_MS - 500)
    poll = Planner(world, "second").next_call(wait_ms=1_000)
    world.loop.step([poll])
    while not answered(poll):
        world.clock.advance(world.loop.wait_ms())
        world.loop.step([])
    assert isinstance(poll.reply, wire.Granted)
    assert poll.reply.messages == 5
    returned = next(record for record in world.records() if record.kind == Kind.RETURNED)
    granted = world.records()[-1]
    assert (returned.reason, granted.kind, granted.at_ms) == ("lease_expired", Kind.GRANTED, returned.at_ms)


def test_a_renewal_that_waited_is_heard_before_the_lease_ends(world: World) -> None:
    world.publish(5)
    planner = Planner(world)
    planner.next()
    world.clock.advance(PERIOD_MS + 50)
    renew = world.call(wire.Renew, lease=1, incarnation=planner.incarnation, call=0, **planner.common)
    world.loop.step([renew])
    assert renew.reply == wire.Done()
    assert Kind.RETURNED not in world.kinds()


def test_a_delayed_message_wakes_a_waiting_poll_when_it_falls_due(world: World) -> None:
    world.publish(1)
    planner = Planner(world)
    planner.next()
    outcome = wire.OutcomeRows(outcome="cancel", ranges=((0, 1),), retry_after_ms=450)
    run = world.ask(wire.StartRun, **planner.common).run
    assert world.ask(wire.EndRun, run=run, outcomes=(outcome,), **planner.common) == wire.Done()
    poll = planner.next_call(wait_ms=1_000)
    world.loop.step([poll])
    began_ms = world.clock.monotonic_ms()
    while not answered(poll):
        world.clock.advance(world.loop.wait_ms())
        world.loop.step([])
    assert isinstance(poll.reply, wire.Granted)
    assert poll.reply.messages == 1
    assert world.clock.monotonic_ms() - began_ms <= 450 + POLLED_TAIL_MS


def test_what_fell_due_and_cannot_be_granted_does_not_keep_the_loop_spinning(world: World) -> None:
    world.publish(1)
    planner = Planner(world)
    planner.next()
    run = world.ask(wire.StartRun, **planner.common).run
    outcome = wire.OutcomeRows(outcome="cancel", ranges=((0, 1),), retry_after_ms=10)
    world.ask(wire.EndRun, run=run, outcomes=(outcome,), **planner.common)
    world.ask(wire.Prove, run=run, **planner.common)
    world.clock.advance(ROUND_MS)
    world.loop.step([])
    assert world.loop.wait_ms() > 0


def test_a_new_reign_gives_living_holders_time_and_commits_it_first(world: World) -> None:
    world.publish(5)
    planner = Planner(world)
    planner.next()
    world.clock.advance(PERIOD_MS * 3)
    before = len(world.records())
    world.loop, _ = world.reign()
    assert world.kinds(before) == [Kind.EPOCH_CLAIMED, Kind.RENEWED]
    renewed = world.records()[-1]
    assert renewed.due_at_ms is not None
    assert renewed.due_at_ms - renewed.at_ms == pytest.approx(PERIOD_MS / 3, abs=1)
    assert world.ask(wire.Renew, lease=1, incarnation=planner.incarnation, call=0, **planner.common) == wire.Done()


def test_a_fault_in_a_command_is_told_to_its_caller_and_ends_the_reign(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    planner = Planner(world)
    bystander, culprit = planner.next_call(), world.call(wire.DrawIncarnation, **planner.common)
    monkeypatch.setattr(world.loop._engine, "draw_incarnation", lambda: 1 / 0)
    with pytest.raises(ReignEndedError, match="INTERNAL.*DrawIncarnation raised ZeroDivisionError"):
        world.loop.step([bystander, culprit])
    assert isinstance(culprit.reply, wire.Failed)
    assert (culprit.reply.code, bystander.reply) == ("INTERNAL", None)


def test_a_command_that_breaks_half_way_is_told_why_and_ends_the_reign(world: World) -> None:
    """A table that cannot be made: its definition was folded, so memory is ahead of a log that will never follow."""

    def fail(step: str, moment: str) -> None:
        if (step, moment) == ("messages.create", "before"):
            raise OSError("the disk is full")

    world.storage.hook = fail
    before = world.records()
    definitions = {
        **DEFINITIONS,
        "message_types": {**DEFINITIONS["message_types"], "line": {"columns": "id BIGINT", "topics": ["L"]}},
    }
    apply = world.call(wire.Apply, definitions=definitions)
    with pytest.raises(ReignEndedError, match="the disk is full"):
        world.loop.step([apply])
    assert isinstance(apply.reply, wire.Failed)
    assert apply.reply.code == "STORE_FAILED"
    assert world.records() == before


def test_a_refused_command_changes_nothing_and_the_reign_goes_on(world: World) -> None:
    before = world.records()
    reply = world.ask(wire.Apply, definitions={"queues": {"X": {"message_type": "json", "no_such_key": 1}}})
    assert isinstance(reply, wire.Failed)
    assert reply.code == "UNKNOWN_KEY"
    assert world.records() == before
    Planner(world)


def test_a_commit_enters_as_a_whole_or_not_at_all(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A message file that cannot be read: its commit waits, with a name, and enters when the file is back (DESIGN 3.4)."""
    world.publish(2)
    world.publish(3)
    entries = world.storage.entries["json"]
    both = entries.pop()
    first = entries.pop()
    world.storage.entries["json"].append(type(first)(version=first.version, token=first.token, added=(*first.added, *both.added)))
    planner = Planner(world)
    source = world.storage.facts
    real = source.facts

    def missing(segment: Segment, queues: Any) -> Any:
        if segment.path == both.added[0].path:
            raise JournalError("MESSAGE_FILE_MISSING", file=segment.path, path="memory", reason="it is gone.")
        return real(segment, queues)

    monkeypatch.setattr(source, "facts", missing)
    call = planner.next_call()
    with caplog.at_level(logging.ERROR):
        world.loop.step([call])
        world.loop.step([world.call(wire.Nudge, message_type="json")])
    assert isinstance(call.reply, wire.Failed)
    assert call.reply.code == "MESSAGE_FILE_MISSING"
    assert Kind.ENTERED not in world.kinds()
    assert len([line for line in caplog.messages if "MESSAGE_FILE_MISSING" in line]) == 1
    monkeypatch.setattr(source, "facts", real)
    assert planner.next().messages == 5


def test_trouble_in_a_log_is_told_only_when_nothing_else_is_there(world: World) -> None:
    world.publish(3)
    planner = Planner(world)
    planner.next(limit=1)

    def fail(step: str, _moment: str) -> None:
        if step.startswith("messages.tail"):
            raise OSError("the listing failed")

    world.storage.hook = fail
    assert planner.next(limit=2).messages == 2
    call = planner.next_call()
    world.loop.step([call])
    assert isinstance(call.reply, wire.Failed)
    assert call.reply.code == "STORE_FAILED"


def test_a_long_backlog_enters_in_portions(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entering, "GROUP_VERSIONS", 4)
    for _ in range(10):
        world.publish(1)
    planner = Planner(world)
    assert planner.next(limit=100).messages <= 4
    assert world.loop.wait_ms() == 0
    while world.loop.wait_ms() == 0:
        world.loop.step([])
    assert planner.next(limit=100).queue_depth.depth >= 6


def test_an_available_now_run_takes_in_what_was_published_before_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entering, "GROUP_VERSIONS", 2)
    planner = Planner(world)
    for _ in range(7):
        world.publish(1)
    world.ask(wire.Attach, ack_mode="auto", max_backlog=100, available_now=True, **planner.planner())
    world.publish(1)
    assert planner.next(limit=100).messages == 7
    assert planner.next(limit=100).messages == 0


def test_an_idle_loop_is_over_and_a_called_one_is_not(world: World) -> None:
    idle_ms = parsing.parse(DEFINITIONS).journal.coordinator_idle_ms
    world.clock.advance(idle_ms - 1)
    assert not world.loop.is_over()
    Planner(world)
    world.clock.advance(idle_ms - 1)
    assert not world.loop.is_over()
    world.clock.advance(1)
    assert world.loop.is_over()


def test_a_served_loop_is_over_when_told_only() -> None:
    world = World(ends_idle=False)
    world.clock.advance(10 * parsing.parse(DEFINITIONS).journal.coordinator_idle_ms)
    assert not world.loop.is_over()
    assert world.ask(wire.Stop) == wire.Done()
    assert world.loop.is_over()


def test_logs_that_cannot_be_shortened_are_slow_and_not_wrong(world: World, caplog: pytest.LogCaptureFixture) -> None:
    def fail(step: str, moment: str) -> None:
        if (step, moment) == ("upkeep", "before"):
            raise OSError("no space")

    world.storage.hook = fail
    with caplog.at_level(logging.WARNING):
        Planner(world)
    assert any("could not be shortened" in line for line in caplog.messages)


@pytest.mark.parametrize("first", [True, False])
def test_a_repeat_of_a_call_is_answered_as_the_first(world: World, first: bool) -> None:
    """A reply was lost: within the reign, and after its end (DESIGN 6)."""
    world.publish(5)
    planner = Planner(world)
    call = planner.next_call(limit=2)
    world.loop.step([call])
    if not first:
        world.loop, _ = world.reign()
    repeat = Call(call.request, lambda: False)
    world.loop.step([repeat])
    assert isinstance(call.reply, wire.Granted)
    assert isinstance(repeat.reply, wire.Granted)
    assert (repeat.reply.lease, repeat.reply.messages) == (call.reply.lease, call.reply.messages)
    assert world.kinds().count(Kind.GRANTED) == 1
