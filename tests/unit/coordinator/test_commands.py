"""What requests become before the core hears of them, and what is answered to those that come again."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from spark_queue.coordinator.inbox import Call
from spark_queue.core import commands, replies
from spark_queue.core.definitions import parsing
from spark_queue.errors import ConfigError, JournalError
from spark_queue.protocol import wire
from tests.scenario.traits import PublishedMessage
from tests.unit.coordinator.loop_world import DEFINITIONS, Planner, World

LETTERS: dict[str, Any] = {
    "message_types": DEFINITIONS["message_types"],
    "queues": {
        "WORK": {**DEFINITIONS["queues"]["WORK"], "dead_letter_queue": "FAILED"},
        "FAILED": {"message_type": "json"},
    },
}


def again(world: World, call: Call) -> Any:
    """Ask the same once more, as a caller does whose reply was lost."""
    repeated = Call(call.request, lambda: False)
    world.loop.step([repeated])
    return repeated.reply


@pytest.mark.parametrize("bad", [(-1, 2), (2, 2), (3, 1)])
def test_outcome_of_what_is_no_range_of_bookmarks_is_refused(world: World, bad: tuple[int, int]) -> None:
    world.publish(4)
    Planner(world).next()
    before = world.records()
    outcome = commands.OutcomeRows(outcome="acknowledge", ranges=((0, 1), bad))
    reply = world.ask(commands.Settle, queue="WORK", outcomes=(outcome,))
    assert isinstance(reply, wire.Failed)
    assert reply.code == "OUTCOME_INVALID"
    assert f"[{bad[0]}, {bad[1]}) is no range" in str(reply.facts)
    assert world.records() == before


def test_redrive_of_absurd_ranges_neither_ends_the_reign_nor_fills_its_memory(world: World) -> None:
    """What is no range is refused; what there is not is skipped, as what is no dead letter."""
    world.publish(4)
    Planner(world).next()
    reply = world.ask(commands.Redrive, queue="WORK", ranges=((-1, 2),))
    assert isinstance(reply, wire.Failed)
    assert reply.code == "OUTCOME_INVALID"
    expire = commands.OutcomeRows(outcome="expire", ranges=((0, 1),))
    world.ask(commands.Settle, queue="WORK", outcomes=(expire,))
    told = world.ask(commands.Redrive, queue="WORK", ranges=((0, 2**62),))
    assert told == replies.Redriven(requested=2**62, redriven=1, skipped=2**62 - 1)


def test_redrive_whose_reply_was_lost_tells_again_what_it_did() -> None:
    """Letters that were skipped, since a subscription of the dead-letter queue holds them, still are letters."""
    world = World(LETTERS)
    world.publish(8)
    Planner(world).next()
    expire = commands.OutcomeRows(outcome="expire", ranges=((2, 8),))
    assert isinstance(world.ask(commands.Settle, queue="WORK", outcomes=(expire,)), replies.Settled)
    assert Planner(world, queue="FAILED").next(limit=2).messages == 2
    redrive = world.call(commands.Redrive, queue="WORK", ranges=((3, 7),))
    world.loop.step([redrive])
    told = replies.Redriven(requested=4, redriven=3, skipped=1)
    assert redrive.reply == told
    assert again(world, redrive) == told


def test_redrive_of_a_dead_letter_queue_names_the_queue_to_call_it_on() -> None:
    """Only what died in the dead-letter queue itself is its own to give back."""
    world = World(LETTERS)
    world.publish(2)
    Planner(world).next()
    expire = commands.OutcomeRows(outcome="expire", ranges=((0, 2),))
    world.ask(commands.Settle, queue="WORK", outcomes=(expire,))
    refused = world.ask(commands.FindDeadLetters, queue="FAILED")
    assert isinstance(refused, wire.Failed)
    assert refused.code == "UNSUPPORTED_WRITE"
    assert "Redrive queue 'WORK'." in str(refused.facts)
    world.ask(commands.Settle, queue="FAILED", outcomes=(expire,))
    assert world.ask(commands.FindDeadLetters, queue="FAILED") == replies.DeadLetters(ranges=((0, 2),), skipped=0)
    redrive = world.call(commands.Redrive, queue="FAILED", ranges=((0, 2),))
    world.loop.step([redrive])
    assert redrive.reply == again(world, redrive) == replies.Redriven(requested=2, redriven=2, skipped=0)


def test_a_repeat_with_an_absurd_range_does_not_end_the_reign(world: World) -> None:
    world.publish(2)
    Planner(world).next()
    one = commands.OutcomeRows(outcome="acknowledge", ranges=((0, 1),))
    settle = world.call(commands.Settle, queue="WORK", outcomes=(one,))
    world.loop.step([settle])
    assert isinstance(settle.request, commands.Settle)
    settle.request = msgspec.structs.replace(settle.request, outcomes=(msgspec.structs.replace(one, ranges=((0, 2**63),)),))
    assert again(world, settle) == replies.Settled(repeated=2**63)


def test_new_definitions_whose_reply_was_lost_make_no_table_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside a table of which something is wrong, and which they leave as it is."""
    made: list[str] = []

    def create(name: str, _columns: str, *, is_unused: bool) -> None:
        assert not is_unused
        made.append(name)
        if name == "json":
            raise JournalError("JOURNAL_MISMATCH", expected="one", path="/journal", found="another")

    monkeypatch.setattr(world.journal, "create_message_table", create)
    apply = world.call(commands.Apply, definitions=LETTERS)
    world.loop.step([apply])
    assert again(world, apply) == replies.Done()
    assert sorted(made) == ["binary", "json"]


def test_settlement_whose_reply_was_lost_counts_its_messages_as_repeated(world: World) -> None:
    world.publish(8)
    Planner(world).next()
    outcomes = (
        commands.OutcomeRows(outcome="acknowledge", ranges=((1, 3),)),
        commands.OutcomeRows(outcome="expire", ranges=((4, 5), (6, 8))),
    )
    settle = world.call(commands.Settle, queue="WORK", outcomes=outcomes)
    world.loop.step([settle])
    assert settle.reply == replies.Settled(acknowledged=2, expired=3)
    assert again(world, settle) == replies.Settled(repeated=5)


def pieces_of(call: Call) -> list[dict[str, Any]] | None:
    return None if call.pieces is None else call.pieces.to_pylist()


def test_the_rows_of_a_lease_come_with_it_as_they_are_told_to_who_asks(world: World) -> None:
    """P1: so that a stream need not ask; a lease that is given again has them, too."""
    world.publish(3)
    planner = Planner(world)
    granted, given_again = planner.next_call(limit=2), planner.next_call()
    for call in (granted, given_again):
        world.loop.step([call])
    asked = world.call(commands.Rows, lease=1, **planner.planner())
    world.loop.step([asked])
    assert [piece["rows"] for piece in pieces_of(asked) or ()] == [2]
    assert pieces_of(granted) == pieces_of(given_again) == pieces_of(asked)


def test_rows_that_have_to_be_asked_for_do_not_come_with_their_lease() -> None:
    """R16, P2: who asks first gets those of an at-most-once queue; and a lease of which something went back is resumed."""
    queues = {"WORK": {**DEFINITIONS["queues"]["WORK"], "semantics": "at-most-once"}}
    once, world = World({**DEFINITIONS, "queues": queues}), World()
    given = []
    for each in (once, world):
        each.publish(3)
        planner = Planner(each)
        for _ in range(2):
            call = planner.next_call()
            each.loop.step([call])
            assert isinstance(call.reply, replies.Granted)
            given.append(call.pieces is not None)
            each.ask(commands.Settle, queue="WORK", outcomes=(commands.OutcomeRows(outcome="cancel", ranges=((0, 1),)),))
    assert given == [False, False, True, False]


def test_rows_of_a_barrier_say_how_often_its_subscription_was_given_it() -> None:
    """DESIGN 8: the counts of a barrier are those of each subscription."""
    world = World({**DEFINITIONS, "queues": {"WORK": {**DEFINITIONS["queues"]["WORK"], "barrier": "kind = close"}}})
    planner = Planner(world)
    world.storage.publish(
        "json", [PublishedMessage(topic="ORDERS", attributes={"kind": "close"}), PublishedMessage(topic="ORDERS")]
    )
    assert planner.next().messages == 1
    counts = []
    for _ in range(3):
        rows = world.call(commands.Rows, lease=1, **planner.planner())
        world.loop.step([rows])
        assert rows.pieces is not None, rows.reply
        counts += rows.pieces.column("delivery_count").to_pylist()
        assert rows.pieces.column("is_barrier").to_pylist() == [True]
        planner = Planner(world)
    assert counts == [1, 2, 3]


def test_a_run_is_told_whether_its_batch_is_a_barrier() -> None:
    """R71: so nobody has to ask the rows, which would be a Spark job."""
    world = World({**DEFINITIONS, "queues": {"WORK": {**DEFINITIONS["queues"]["WORK"], "barrier": "kind = close"}}})
    planner = Planner(world)
    world.storage.publish(
        "json", [PublishedMessage(topic="ORDERS"), PublishedMessage(topic="ORDERS", attributes={"kind": "close"})]
    )
    told = [world.ask(commands.StartRun, **planner.common)]
    for lease in (1, 2):
        assert planner.next().lease == lease
        told.append(world.ask(commands.StartRun, **planner.common))
        world.ask(commands.EndRun, run=told[-1].run, **planner.common)
    assert [(each.run.lease, each.is_barrier) for each in told] == [(0, False), (1, False), (2, True)]


def test_a_subscription_with_a_wrong_filter_is_refused_and_nothing_begins(world: World) -> None:
    planner = Planner(world)
    before = world.records()
    reply = world.ask(commands.Attach, ack_mode="auto", max_backlog=1, filter="amount > ", **planner.planner())
    assert isinstance(reply, wire.Failed)
    assert (reply.code, reply.facts["what"]) == ("EXPRESSION_INVALID", "filter of subscription 's'")
    assert world.records() == before


def test_a_subscription_that_is_given_up_is_gone(world: World) -> None:
    planner = Planner(world)
    assert world.ask(commands.Unsubscribe, **planner.common) == replies.Done()
    assert world.loop._engine.state.ledger("WORK").subscriptions == {}


def test_every_table_is_checked_before_the_first_is_changed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Definitions are taken as a whole or not at all: of refused ones no column stays behind."""
    made: list[str] = []

    def check(name: str, _columns: str, *, is_unused: bool) -> None:
        assert is_unused
        if name == "z":
            raise ConfigError("MESSAGE_TYPE_CHANGED", message_type=name, reason="it holds others")

    monkeypatch.setattr(world.journal, "create_message_table", lambda name, *_, **__: made.append(name))
    monkeypatch.setattr(world.journal, "check_message_table", check)
    types = {name: {"columns": "id BIGINT", "topics": [name.upper()]} for name in ("a", "z")}
    reply = world.ask(commands.Apply, definitions={**DEFINITIONS, "message_types": {**DEFINITIONS["message_types"], **types}})
    assert isinstance(reply, wire.Failed)
    assert (reply.code, made) == ("MESSAGE_TYPE_CHANGED", [])
    assert world.loop.engine.state.definitions == parsing.parse(DEFINITIONS)
