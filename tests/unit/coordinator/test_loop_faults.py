"""A fault stays with its queue: what raises where nobody expects it sets one queue aside, and the others are served (R122)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest
from pyroaring import BitMap64

from spark_queue.coordinator.inbox import Call
from spark_queue.coordinator.loop import ROUND_MS, ReignEndedError
from spark_queue.core import commands, engine, folds, replies
from spark_queue.core.deciding import handlers, timers
from spark_queue.core.deciding.instances import naming, replicating, transfers
from spark_queue.core.deciding.instances.replicating import News, Pulled
from spark_queue.core.deciding.unit_of_work import UnitOfWork
from spark_queue.core.records import Body, Decided, Kind, Paused, Record
from spark_queue.core.retention import Retention
from spark_queue.core.state import findings
from spark_queue.core.state.faults import FaultError
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.ledger import QueueLedger
from spark_queue.core.state.lifecycle import State
from spark_queue.core.state.ownership import MessageValue, Stage
from spark_queue.core.state.status import queue_status
from spark_queue.errors import CoordinatorError, JournalError
from spark_queue.metrics import figures
from spark_queue.metrics.figures import Observe
from spark_queue.protocol import wire
from spark_queue.replication.exchange import ApplyPulled
from tests.records import detail_of, value_told
from tests.unit.coordinator.loop_world import DEFINITIONS, Planner, World

QUEUES: dict[str, Any] = {"WORK": {"underlying_topic": "ORDERS"}, "OTHER": {"underlying_topic": "ORDERS"}}
TWO: dict[str, Any] = DEFINITIONS | {"queues": QUEUES}
SHARED: dict[str, Any] = TWO | {
    "journal": {"instance": "frankfurt"},
    "peers": {"virginia": {"journal": "/virginia", "topics": ["ORDERS"], "queues": ["WORK", "OTHER"]}},
}


@pytest.fixture(name="two")
def two_queues() -> World:
    world = World(TWO)
    world.publish(3)
    world.ask(wire.Nudge, message_type="json")
    return world


def raising_of(queue: str, function: Callable[..., Any], *, after: bool = False) -> Callable[..., Any]:
    """Let a function raise that works on one queue, before it does anything or after."""

    def call(*values: Any, **named: Any) -> Any:
        about = [getattr(getattr(each, "ledger", each), "definition", None) for each in values]
        names = [getattr(each, "queue", None) for each in values] + [None if each is None else each.name for each in about]
        if queue in names and not after:
            raise ZeroDivisionError("a bug")
        found = function(*values, **named)
        if queue in names:
            raise ZeroDivisionError("a bug")
        return found

    return call


def handler(monkeypatch: pytest.MonkeyPatch, command: type[commands.Command], *, after: bool) -> None:
    known = handlers.HANDLERS[command]
    monkeypatch.setitem(
        cast(Any, handlers.HANDLERS), command, replace(known, handler=raising_of("WORK", cast(Any, known.handler), after=after))
    )


def set_aside(world: World) -> dict[str, str]:
    return {name: trouble.code for name, trouble in world.loop._engine.state.troubles.items()}


def code_of(reply: object) -> str:
    assert isinstance(reply, wire.Failed), reply
    return reply.code


def test_a_command_that_raises_before_it_records_is_refused_and_nothing_else(two: World, monkeypatch: pytest.MonkeyPatch) -> None:
    work, other = Planner(two), Planner(two, queue="OTHER")
    handler(monkeypatch, commands.Next, after=False)
    records, calls = len(two.records()), [work.next_call(), other.next_call()]
    two.loop.step(calls)
    assert code_of(calls[0].reply) == "INTERNAL"
    assert isinstance(calls[1].reply, replies.Granted)
    assert two.kinds(records) == [Kind.GRANTED]
    monkeypatch.undo()
    assert work.next().messages == 3


def test_a_command_that_raises_after_it_recorded_sets_its_queue_aside(two: World, monkeypatch: pytest.MonkeyPatch) -> None:
    work, other = Planner(two), Planner(two, queue="OTHER")
    handler(monkeypatch, commands.Next, after=True)
    records, calls = len(two.records()), [other.next_call(), work.next_call()]
    two.loop.step(calls)
    assert isinstance(calls[0].reply, replies.Granted)
    assert calls[0].reply.messages == 3
    assert code_of(calls[1].reply) == "QUEUE_SET_ASIDE"
    made = two.records()[records:]
    assert [(each.kind, each.queue) for each in made if each.kind in (Kind.SET_ASIDE, Kind.GRANTED)] == [
        (Kind.SET_ASIDE, "WORK"), (Kind.GRANTED, "OTHER"),
    ]  # fmt: skip
    assert "ZeroDivisionError: a bug" in detail_of(made[0])["error"]


def test_a_queue_that_is_set_aside_loses_nothing_and_is_revived_whole(two: World, monkeypatch: pytest.MonkeyPatch) -> None:
    work = Planner(two)
    assert work.next(limit=1).messages == 1
    handler(monkeypatch, commands.Pause, after=True)
    assert code_of(two.ask(commands.Pause, queue="WORK")) == "QUEUE_SET_ASIDE"
    monkeypatch.undo()
    two.publish(2)
    two.loop.step([])
    two.loop, _ = two.reign()
    assert set_aside(two) == {"WORK": "QUEUE_SET_ASIDE"}, "the next start finds it in the log"
    assert two.ask(commands.Revive, queue="WORK") == replies.Done()
    ledger = two.loop._engine.state.queues["WORK"]
    assert (len(ledger.entered), [len(each.leased) for each in ledger.leases.values()], ledger.paused) == (5, [1], False)
    two.loop, _ = two.reign()
    assert set_aside(two) == {}
    assert work.next(limit=10).messages == 4


@pytest.mark.parametrize("body", [Paused(error=cast(Any, object())), Decided(owner="no/name")], ids=["stored", "read again"])
def test_a_record_that_cannot_be_stored_or_read_is_the_fault_of_its_command(
    two: World, monkeypatch: pytest.MonkeyPatch, body: Body
) -> None:
    """Found at the commit it would end the reign, and each that is asked the same again."""

    def odd(work: UnitOfWork, _: commands.Pause) -> replies.Done:
        work.emit(body)
        return replies.Done()

    monkeypatch.setitem(cast(Any, handlers.HANDLERS), commands.Pause, handlers.Handling(odd))
    assert code_of(two.ask(commands.Pause, queue="WORK")) == "INTERNAL"
    assert set_aside(two) == {}
    assert Planner(two).next().messages == 3


def test_a_fold_that_raises_at_a_start_sets_its_queue_aside(two: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a later version may do, which folds otherwise: the others are served, and the log says so."""
    Planner(two).next()
    monkeypatch.setitem(folds._FOLDS, Kind.GRANTED, raising_of("WORK", folds._FOLDS[Kind.GRANTED]))
    two.loop, _ = two.reign()
    assert set_aside(two) == {"WORK": "QUEUE_SET_ASIDE"}
    assert [each.queue for each in two.records() if each.kind == Kind.SET_ASIDE] == ["WORK"]
    assert Planner(two, queue="OTHER").next().messages == 3
    assert code_of(two.ask(commands.Revive, queue="WORK")) == "QUEUE_SET_ASIDE", "the fault comes again"
    monkeypatch.undo()
    assert two.ask(commands.Revive, queue="WORK") == replies.Done()


def told_by_log(world: World) -> dict[str, str]:
    """Return what everybody else says of queues that are set aside: who folds the log, and at whose fold nothing raises."""
    state = JournalState(world.journal.traits)
    folds.fold_all(state, world.records())
    return {name: str(trouble) for name, trouble in state.set_aside_queues().items()}


def told_to_callers(world: World) -> dict[str, str]:
    """Return what callers are answered."""
    queues = world.loop._engine.state.definitions.queues
    replies_of = {name: world.ask(commands.FindDeadLetters, queue=name) for name in queues}
    refusals = {name: reply for name, reply in replies_of.items() if isinstance(reply, wire.Failed)}
    return {name: str(JournalError(reply.code, **reply.facts)) for name, reply in refusals.items()}


@pytest.mark.parametrize("times", [1, 2])
def test_a_fault_that_was_revived_hides_no_later_one(two: World, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """R122: at each place of the log where a fold may raise, the log says what callers are told."""
    Planner(two).next()
    for _ in range(times):
        two.loop._engine.set_aside("WORK", "an earlier bug", now_ms=two.clock.wall_ms())
        assert two.ask(commands.Revive, queue="WORK") == replies.Done()
    two.ask(commands.Pause, queue="WORK")
    for kind in (Kind.SUBSCRIBED, Kind.GRANTED, Kind.PAUSED):
        with monkeypatch.context() as broken:
            broken.setitem(folds._FOLDS, kind, raising_of("WORK", folds._FOLDS[kind]))
            two.loop, _ = two.reign()
            assert told_to_callers(two) == told_by_log(two)
            assert "ZeroDivisionError: a bug" in told_to_callers(two)["WORK"]
        two.loop, _ = two.reign()
        assert two.ask(commands.Revive, queue="WORK") == replies.Done()
        assert (told_to_callers(two), told_by_log(two)) == ({}, {})


def test_a_fault_at_records_of_a_queue_that_was_dropped_counts_when_it_is_put_back(
    two: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R122: nobody who folds without the fault takes the new queue for a healthy one, and it is recorded once."""
    two.ask(commands.Pause, queue="WORK")
    two.ask(commands.Apply, definitions={**TWO, "queues": {"OTHER": QUEUES["OTHER"]}})
    monkeypatch.setitem(folds._FOLDS, Kind.PAUSED, raising_of("WORK", folds._FOLDS[Kind.PAUSED]))
    for _ in range(2):
        two.loop, _ = two.reign()
        assert (two.loop._engine.state.set_aside_queues(), told_by_log(two)) == ({}, {}), "there is no such queue"
    assert [each.queue for each in two.records() if each.kind == Kind.SET_ASIDE] == ["WORK"]
    two.publish(1)
    two.nudge("json")
    put_back = {**TWO, "queues": {**QUEUES, "WORK": {**QUEUES["WORK"], "recovery_point": "now"}}}
    assert two.ask(commands.Apply, definitions=put_back) == replies.Done()
    assert told_to_callers(two) == told_by_log(two) != {}
    two.publish(2)
    two.nudge("json")
    monkeypatch.undo()
    assert two.ask(commands.Revive, queue="WORK") == replies.Done()
    assert (told_to_callers(two), told_by_log(two)) == ({}, {})
    assert len(two.loop._engine.state.queues["WORK"].entered) == 2, "it began where its definition says"


@pytest.mark.parametrize("name", ["tick", "expire", "take_over", "next_due_ms"])
def test_a_timer_that_raises_sets_its_queue_aside(two: World, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(timers, name, raising_of("WORK", getattr(timers, name)))
    if name == "take_over":
        two.loop, _ = two.reign()
    two.clock.advance(ROUND_MS)
    two.loop.step([])
    assert set_aside(two) == {"WORK": "QUEUE_SET_ASIDE"}
    assert [each.queue for each in two.records() if each.kind == Kind.SET_ASIDE] == ["WORK"]
    assert Planner(two, queue="OTHER").next().messages == 3


def test_how_long_to_wait_for_calls_may_raise_too(two: World, monkeypatch: pytest.MonkeyPatch) -> None:
    two.loop._engine._agenda.note(["WORK"])
    monkeypatch.setattr(timers, "next_due_ms", raising_of("WORK", timers.next_due_ms))
    two.loop._inbox.submit(Call(wire.Stop(journal=two.journal_id, request="r"), lambda: False))
    two.loop.run()
    assert set_aside(two) == {"WORK": "QUEUE_SET_ASIDE"}


def test_an_alarm_that_cannot_be_told_sets_its_queue_aside(two: World, monkeypatch: pytest.MonkeyPatch) -> None:

    monkeypatch.setattr("spark_queue.coordinator.alarm_bell.alarms", raising_of("WORK", findings.alarms))
    other = Planner(two, queue="OTHER")
    two.ask(commands.Pause, queue="WORK")
    assert other.next().messages == 3
    assert set_aside(two) == {"WORK": "QUEUE_SET_ASIDE"}


def test_figures_that_cannot_be_told_keep_nobody_from_messages(two: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def untold(state: JournalState, queue: str, **told: Any) -> replies.QueueStatus:
        if queue == "WORK":
            raise ZeroDivisionError("a bug")
        return queue_status(state, queue, **told)

    monkeypatch.setattr("spark_queue.coordinator.commands.queue_status", untold)
    granted = Planner(two).next()
    assert (granted.messages, granted.status) == (3, None)
    assert told(two) == (["OTHER"], ["WORK"])


def told(world: World) -> tuple[list[str], list[str]]:
    """Return the queues of which metrics tell, and those of which they do not."""
    call = Call(Observe(looks_at="WORK"), lambda: False)
    world.loop.step([call])
    assert call.figures is not None
    return [each.queue for each in call.figures.statuses], list(call.figures.set_aside)


def test_metrics_tell_of_others_where_one_queue_or_peer_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(SHARED)
    monkeypatch.setattr(figures, "_subscriptions", lambda _, queue: 1 // 0 if queue == "WORK" else [])
    assert told(world) == (["OTHER"], ["WORK"])
    for name in ("spark_queue.metrics.figures.peer_figures", "spark_queue.coordinator.commands.needed_files"):
        monkeypatch.undo()
        monkeypatch.setattr(name, lambda *_, **__: 1 // 0)
        assert told(world) == (["WORK", "OTHER"], [])


@pytest.mark.parametrize("fold", [True, False])
def test_news_of_a_peer_that_raise_set_their_queue_aside_and_keep_no_other_from_its_own(
    monkeypatch: pytest.MonkeyPatch, fold: bool
) -> None:
    """DESIGN 17.3: a replicated queue that is set aside holds up nobody."""
    world = World(SHARED)
    world.publish(3)
    world.ask(wire.Nudge, message_type="json")
    if fold:
        monkeypatch.setitem(cast(Any, folds._FOLDS), Kind.REPLICATED, raising_of("WORK", folds._FOLDS[Kind.REPLICATED]))
    else:
        monkeypatch.setattr(replicating, "note_ends", raising_of("WORK", transfers.note_ends))
    gone = MessageValue(stage=Stage.GONE)
    rows = {world.journal_id: BitMap64([0])}
    news = [News(queue=name, message_type="json", rows=rows, replicated=value_told(gone), reason="acknowledged") for name in QUEUES]
    for number in (7, 8):
        pulled = Pulled(peer="virginia", journal="uuid", record=number, digest="of it", news=news)
        # Pullers begin anew by definitions that were read again.
        world.loop.step([Call(ApplyPulled(pulled=pulled, definitions=world.loop._engine.state.definitions), lambda: False)])
    state = world.loop._engine.state
    assert (set_aside(world), list(state.queues["OTHER"].rows[State.REMOVED])) == ({"WORK": "QUEUE_SET_ASIDE"}, [0])
    assert (state.pulled["virginia"].record, state.pulled["virginia"].missed) == (8, frozenset({"WORK"}))


def test_a_queue_that_is_back_and_raises_at_what_it_missed_is_set_aside_again(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(SHARED)
    world.loop._engine.set_aside("WORK", "a bug", now_ms=world.clock.wall_ms())
    world.loop.step([])
    pulled = Pulled(peer="virginia", journal="uuid", record=7, digest="of 7")
    world.loop.step([Call(ApplyPulled(pulled=pulled, definitions=world.loop._engine.state.definitions), lambda: False)])
    assert world.loop._engine.state.pulled["virginia"].missed == {"WORK"}
    monkeypatch.setattr(replicating, "take_known_names", raising_of("WORK", naming.take_known_names))
    other = Planner(world, queue="OTHER")
    assert code_of(world.ask(commands.Revive, queue="WORK")) == "QUEUE_SET_ASIDE"
    world.publish(1)
    assert (other.next().messages, set_aside(world)) == (1, {"WORK": "QUEUE_SET_ASIDE"})


def test_a_queue_that_is_new_and_raises_is_refused_with_its_definitions(two: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are dropped with all else that was not committed, so that the queue cannot be set aside."""
    types = {**TWO["message_types"], "order": {"columns": "id BIGINT", "topics": ["THERE"]}}
    more = {**TWO, "message_types": types, "queues": {**QUEUES, "NEW": {"underlying_topic": "ORDERS", "recovery_point": "now"}}}
    other = Planner(two, queue="OTHER")
    create = type(two.journal).create_message_table

    def published_meanwhile(journal: Any, *values: Any, **named: Any) -> None:
        two.publish(2)
        create(journal, *values, **named)

    monkeypatch.setattr(type(two.journal), "create_message_table", published_meanwhile)
    monkeypatch.setattr(QueueLedger, "enter", raising_of("NEW", QueueLedger.enter))
    first = two.call(commands.Apply, definitions=TWO)
    calls = [first, two.call(commands.Apply, definitions=more), two.call(wire.Nudge, message_type="json"), other.next_call()]
    two.loop.step(calls)
    assert (first.reply, code_of(calls[1].reply), set_aside(two)) == (replies.Done(), "INTERNAL", {})
    assert isinstance(calls[3].reply, replies.Granted)
    assert calls[3].reply.messages > 0


def test_definitions_that_raise_are_refused_and_change_nothing(two: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(state: JournalState) -> None:
        # The log was written by software without it.
        if state.raises_faults:
            raise ZeroDivisionError("a bug")

    monkeypatch.setattr("spark_queue.core.folds.definitions.replicate", broken)
    other = Planner(two, queue="OTHER")
    before, calls = len(two.records()), [two.call(commands.Apply, definitions=TWO), other.next_call()]
    two.loop.step(calls)
    assert code_of(calls[0].reply) == "INTERNAL"
    assert isinstance(calls[1].reply, replies.Granted)
    assert (Kind.DEFINITIONS_APPLIED in two.kinds(before), set_aside(two)) == (False, {})


def test_two_faults_of_one_group_leave_nobody_without_an_answer(two: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(state: JournalState) -> None:
        if state.raises_faults:
            raise ZeroDivisionError("a bug")

    work, other = Planner(two), Planner(two, queue="OTHER")
    monkeypatch.setattr("spark_queue.core.folds.definitions.replicate", broken)
    handler(monkeypatch, commands.Next, after=True)
    calls = [two.call(commands.Apply, definitions=TWO), work.next_call(), other.next_call()]
    two.loop.step(calls)
    assert [getattr(call.reply, "code", "") for call in calls] == ["INTERNAL", "QUEUE_SET_ASIDE", ""]
    assert isinstance(calls[2].reply, replies.Granted)


def test_what_raises_half_way_of_entering_keeps_its_type_out(two: World, monkeypatch: pytest.MonkeyPatch) -> None:
    Planner(two)
    two.publish(1)
    entry = two.storage.entries["json"].pop()
    two.storage.entries["json"].append(replace(entry, foreign_paths=("stranger.parquet",)))
    monkeypatch.setattr(engine.Engine, "note", raising_after_enter(engine.Engine.note))
    two.loop.step([two.call(wire.Nudge, message_type="json")])
    assert "raised" in str(two.loop._entrance.trouble["json"])
    assert set_aside(two) == {}
    assert len(two.loop._engine.state.queues["WORK"].entered) == 3, "of that commit nothing entered"


def raising_after_enter(note: Callable[..., None]) -> Callable[..., None]:
    def call(self: engine.Engine, made: Any, *, now_ms: int) -> None:
        kept: list[Record] = list(made)
        if any(each.kind == Kind.FOREIGN for each in kept):
            raise ZeroDivisionError("a bug")
        note(self, kept, now_ms=now_ms)

    return call


def test_what_is_nobodys_ends_the_reign(two: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as what looks for messages to let go, after the round has recorded something."""

    def broken(*_: object, **__: object) -> list[Record]:
        raise FaultError(None, ZeroDivisionError("a bug"))

    monkeypatch.setattr(Retention, "due", broken)
    two.clock.advance(ROUND_MS)
    with pytest.raises(ReignEndedError, match="a bug"):
        two.loop.step([])


def test_other_queues_may_be_altered_meanwhile(two: World, monkeypatch: pytest.MonkeyPatch) -> None:
    two.ask(commands.Purge, queue="WORK", where=None)
    handler(monkeypatch, commands.Pause, after=True)
    two.ask(commands.Pause, queue="WORK")
    monkeypatch.undo()
    altered = {**TWO, "queues": {**QUEUES, "OTHER": {**QUEUES["OTHER"], "max_backlog": 7}, "THIRD": {"underlying_topic": "ORDERS"}}}
    assert two.ask(commands.Apply, definitions=altered) == replies.Done()
    for refused in (
        {**altered, "queues": {**altered["queues"], "WORK": {**QUEUES["WORK"], "max_backlog": 7}}},
        {**altered, "queues": {"OTHER": altered["queues"]["OTHER"]}},
    ):
        assert code_of(two.ask(commands.Apply, definitions=refused)) == "QUEUE_SET_ASIDE"
    assert code_of(two.ask(commands.Apply, definitions=altered, reset=("WORK",))) == "QUEUE_SET_ASIDE"
    assert two.ask(commands.Revive, queue="WORK") == replies.Done()
    assert len(two.loop._engine.state.queues["WORK"].rows[State.REMOVED]) == 3, "it did not begin anew"


def test_a_queue_does_not_begin_to_be_replicated_while_it_is_set_aside() -> None:
    """R129: of the messages that are in it nobody would ever say whose they are."""
    alone = {**SHARED, "peers": {"virginia": {"journal": "/virginia", "topics": ["ORDERS"], "queues": ["OTHER"]}}}
    world = World(alone)
    world.loop._engine.set_aside("WORK", "a bug", now_ms=world.clock.wall_ms())
    assert code_of(world.ask(commands.Apply, definitions=SHARED)) == "QUEUE_SET_ASIDE"
    assert world.ask(commands.Revive, queue="WORK") == replies.Done()
    assert world.ask(commands.Apply, definitions=SHARED) == replies.Done()


def test_only_what_is_set_aside_can_be_revived(two: World) -> None:
    with pytest.raises(Exception, match=r"UNSUPPORTED_WRITE.*not set aside"):
        wire.raise_failed(two.ask(commands.Revive, queue="WORK"))
    assert code_of(two.ask(commands.Revive, queue="WROK")) == "UNKNOWN_QUEUE"
    two.loop._engine.state.note_fault("WORK", ZeroDivisionError("a bug"))
    two.loop._engine.state.troubles["WORK"] = JournalError(
        "MESSAGE_FILE_MISSING", file="f", path="p", reason="it is gone.", next_step=""
    )
    assert code_of(two.ask(commands.Revive, queue="WORK")) == "MESSAGE_FILE_MISSING"


def test_a_deposed_reign_that_folds_again_answers_nothing(two: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """P7: what raised may be what an overtaken reign does not know; its callers ask the next one."""
    work, other = Planner(two), Planner(two, queue="OTHER")
    calls = [other.next_call(), work.next_call()]
    handler(monkeypatch, commands.Next, after=True)
    two.reign()
    before = two.records()
    with pytest.raises(CoordinatorError, match="COORDINATOR_DEPOSED"):
        two.loop.step(calls)
    assert ([call.reply for call in calls], two.records()) == ([None, None], before)


def test_no_place_in_the_order_is_given_twice(two: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """P1: a planner that was drawn before the log was folded again is older than one after."""
    first = two.ask(commands.DrawIncarnation, queue="OTHER", subscription="s").incarnation
    handler(monkeypatch, commands.Pause, after=True)
    two.ask(commands.Pause, queue="WORK")
    assert two.ask(commands.DrawIncarnation, queue="OTHER", subscription="s").incarnation > first


def test_what_entered_before_a_fault_of_the_same_group_enters_again(two: World, monkeypatch: pytest.MonkeyPatch) -> None:
    work, other = Planner(two), Planner(two, queue="OTHER")
    assert (other.next().messages, work.next().messages) == (3, 3)
    work.next()
    two.publish(2)
    known: Any = handlers.HANDLERS[commands.Next]
    granting = known.handler

    def raises_after_a_grant(unit: UnitOfWork, command: commands.Next) -> object:
        found = granting(unit, command)
        if found is not None and command.queue == "WORK":
            raise ZeroDivisionError("a bug")
        return found

    monkeypatch.setitem(cast(Any, handlers.HANDLERS), commands.Next, replace(known, handler=raises_after_a_grant))
    poll = work.next_call(wait_ms=1_000)
    two.loop.step([poll, two.call(wire.Nudge, message_type="json")])
    assert code_of(poll.reply) == "QUEUE_SET_ASIDE"
    assert other.next().messages == 2


def test_a_fold_that_raises_leaves_no_record(two: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """No start would meet it again."""
    work = Planner(two)
    monkeypatch.setitem(folds._FOLDS, Kind.GRANTED, raising_of("WORK", folds._FOLDS[Kind.GRANTED]))
    before, call = len(two.records()), work.next_call()
    two.loop.step([call])
    assert code_of(call.reply) == "QUEUE_SET_ASIDE"
    assert two.kinds(before) == [Kind.SET_ASIDE]


def test_letters_of_a_queue_whose_home_is_set_aside_are_there_when_it_is_back() -> None:
    """And while nobody can tell which of them somebody has there, none is taken back, purged or redriven."""
    work = {"underlying_topic": "ORDERS", "dead_letter_queue": "FAILED", "max_deliveries": 1}
    queues = {"WORK": work, "FAILED": {"message_type": "json"}}
    world = World(TWO | {"queues": queues})
    world.publish(3)
    world.clock.advance(ROUND_MS)
    world.loop.step([])
    outcome = commands.OutcomeRows(outcome="expire", ranges=((0, 1),))
    world.ask(commands.Settle, queue="WORK", outcomes=(outcome,))
    world.loop._engine.set_aside("FAILED", "a bug", now_ms=world.clock.wall_ms())
    planner = Planner(world)
    world.ask(commands.Rows, lease=planner.next().lease, **planner.planner())
    world.clock.advance(60_000)
    world.loop.step([])
    state = world.loop._engine.state
    assert len(state.queues["WORK"].rows[State.DEAD]) == 3
    assert queue_status(state, "WORK", now_ms=0).dead_letters == 3
    found = world.ask(commands.FindDeadLetters, queue="WORK")
    assert code_of(found) == "QUEUE_SET_ASIDE"
    planner.next()
    assert len(world.loop._engine.state.queues["WORK"].rows[State.DEAD]) == 3, "the late proof takes none back"
    assert world.ask(commands.Revive, queue="FAILED") == replies.Done()
    assert len(world.loop._engine.state.queues["FAILED"].rows[State.AVAILABLE]) == 3
    assert queue_status(world.loop._engine.state, "FAILED", now_ms=0).dead_letters == 3


def test_letters_are_served_while_their_source_is_set_aside() -> None:
    queues = {"WORK": {"underlying_topic": "ORDERS", "dead_letter_queue": "FAILED"}, "FAILED": {"message_type": "json"}}
    world = World(TWO | {"queues": queues})
    world.publish(3)
    world.clock.advance(ROUND_MS)
    world.loop.step([])
    outcome = commands.OutcomeRows(outcome="expire", ranges=((0, 3),))
    world.ask(commands.Settle, queue="WORK", outcomes=(outcome,))
    world.loop._engine.set_aside("WORK", "a bug", now_ms=world.clock.wall_ms())
    letters = Planner(world, queue="FAILED")
    assert letters.next(limit=2).messages == 2
    letters.next(limit=0)
    assert queue_status(world.loop._engine.state, "FAILED", now_ms=0).queue_depth == 1
    assert world.ask(commands.Revive, queue="WORK") == replies.Done()
    assert list(world.loop._engine.state.queues["WORK"].rows[State.DEAD]) == [2], "what was settled there is over here, too"
