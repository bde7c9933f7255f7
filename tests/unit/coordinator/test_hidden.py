"""What a filter of a principal hides from it: neither leased, nor settled, nor counted, nor named in errors (R12, R47, R48)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from spark_queue.coordinator.inbox import Call
from spark_queue.core import commands, replies
from spark_queue.core.definitions.keys import CHANGE, READ
from spark_queue.core.message_files.segment import EntryTraits, Segment, TraitRequest
from spark_queue.errors import JournalError
from spark_queue.protocol import wire
from tests.scenario.traits import PublishedMessage
from tests.unit.coordinator.loop_world import PERIOD_MS, Planner, World
from tests.unit.coordinator.test_rights import ADMIN, code_of, entry, principal

#: Messages 0 to 9 have ids 0 to 9; `few` sees those above 5, by two entries of which each hides something.
HALF = {"admin": ADMIN, "all": principal(entry(READ, CHANGE), token="all")}


def few(text: str = "id > 5") -> dict[str, Any]:
    return {**HALF, "few": principal(entry(READ, CHANGE, queues="^W.*", filter=text), entry(READ), token="few")}


def definitions(principals: dict[str, Any], **queue: Any) -> dict[str, Any]:
    return {
        "message_types": {"orders": {"columns": "id BIGINT", "topics": ["ORDERS"]}},
        "queues": {"WORK": {"underlying_topic": "ORDERS", "message_type": "orders", "lease_period": "10s", **queue}},
        "principals": principals,
    }


def publish(world: World, count: int = 10) -> None:
    messages = [PublishedMessage(topic="ORDERS", attributes={"id": number}) for number in range(count)]
    world.storage.publish("orders", messages)
    world.clock.advance(1_000)
    world.loop.step([])


def make(**queue: Any) -> World:
    world = World(definitions(few(), **queue))
    publish(world)
    world.act_as("few")
    return world


def rows_of(world: World, planner: Planner) -> list[int]:
    lease = world.loop._engine.state.queues["WORK"].open_lease(world.loop._engine.state.queues["WORK"].subscriptions["s"])
    return [] if lease is None else list(lease.rows)


@pytest.mark.parametrize("semantics", ["at-least-once", "at-most-once"])
def test_a_filter_of_the_principal_is_always_anded(semantics: str) -> None:
    """R47, R48: a message goes to a subscription that is entitled to it, and to no other."""
    world = make(semantics=semantics)
    planner = Planner(world)
    granted = planner.next(limit=100)
    assert granted.messages == 4
    assert rows_of(world, planner) == [6, 7, 8, 9]
    assert granted.status is None, "the figures of the queue count what is hidden"
    world.act_as("all")
    everything = Planner(world, "other").next(limit=100)
    assert everything.messages == 6
    assert everything.status is not None


def test_both_filters_hold_for_what_enters_later() -> None:
    world = make()
    asked = {"queue": "WORK", "subscription": "s"}
    incarnation = world.ask(commands.DrawIncarnation, **asked).incarnation
    wishes = {"ack_mode": "auto", "max_backlog": 100, "filter": "id < 8"}
    assert world.ask(commands.Attach, **asked, incarnation=incarnation, call=1, **wishes) == replies.Done()
    publish(world)
    reply = world.ask(commands.Next, **asked, incarnation=incarnation, call=2, finished=0, limit=100)
    assert reply.messages == 4
    state = world.loop._engine.state.queues["WORK"]
    assert list(state.leases[reply.lease].rows) == [6, 7, 16, 17]


def test_what_is_hidden_is_settled_by_nobody_who_cannot_see_it() -> None:
    """R12: as if it were not there: what is named is unknown, what is matched is left out, and nothing counts it."""
    world = make()

    def settle(first: int, until: int) -> Any:
        said = commands.OutcomeRows(outcome="acknowledge", ranges=((first, until),))
        return world.ask(commands.Settle, queue="WORK", outcomes=(said,))

    hidden, absent = settle(4, 8), settle(7, 12)
    assert (code_of(hidden), hidden.facts["count"], hidden.facts["bookmark"]) == ("UNKNOWN_BOOKMARK", 2, 4)
    assert {**hidden.facts, "count": 2, "bookmark": 10} == absent.facts, "told apart from what was never there"
    assert settle(6, 7) == replies.Settled(acknowledged=1)
    where = {"queue": "WORK", "where": "id > 2"}
    assert world.ask(commands.SettleWhere, **where, outcome="acknowledge") == replies.Settled(acknowledged=3)
    assert world.ask(commands.Purge, queue="WORK") == replies.Purged(purged=0, leased=0)
    world.act_as("all")
    assert world.ask(commands.Purge, queue="WORK") == replies.Purged(purged=6, leased=0)


def test_a_receiver_is_told_nothing_of_what_is_hidden_but_that_it_has_it_not() -> None:
    """R12, R133: nobody learns who has a hidden message, or where it is."""
    world = make()
    world.act_as("all")
    assert Planner(world, "other").next(limit=8).messages == 8
    world.act_as("few")
    asked = {"queue": "WORK", "subscription": "s"}
    incarnation = world.ask(commands.DrawIncarnation, **asked).incarnation
    wishes = {"ack_mode": "receive", "max_backlog": 100}
    assert world.ask(commands.Attach, **asked, incarnation=incarnation, call=1, **wishes) == replies.Done()
    granted = world.ask(commands.Next, **asked, incarnation=incarnation, call=2, finished=0, limit=100)
    assert (granted.messages, granted.status) == (2, None)
    said = commands.OutcomeRows(outcome="acknowledge", ranges=((4, 9),), lease=granted.lease)
    reply = world.ask(commands.SettleHeld, **asked, outcomes=(said,))
    assert [(each.ranges, each.reason, each.holder) for each in reply.refused] == [
        (((6, 8),), "leased", "other"), (((4, 6),), "removed", None)
    ]  # fmt: skip


def test_a_purge_counts_no_leased_message_that_is_hidden_also_when_it_is_asked_again() -> None:
    world = make()
    world.act_as("all")
    assert Planner(world, "other").next(limit=8).messages == 8
    world.act_as("few")
    call = world.call(commands.Purge, queue="WORK")
    world.loop.step([call])
    assert call.reply == replies.Purged(purged=2, leased=2)
    again = world.call(commands.Purge, queue="WORK")
    again.request = call.request
    world.loop.step([again])
    assert again.reply == replies.Purged(purged=2, leased=2)


def test_hidden_dead_letters_are_neither_found_nor_redriven() -> None:
    world = make()
    world.act_as("all")
    assert world.ask(commands.SettleWhere, queue="WORK", where="id >= 0", outcome="expire").expired == 10
    world.act_as("few")
    assert world.ask(commands.FindDeadLetters, queue="WORK") == replies.DeadLetters(ranges=((6, 10),), skipped=0)
    redriven = world.ask(commands.Redrive, queue="WORK", ranges=((0, 10),))
    assert redriven == replies.Redriven(requested=10, redriven=4, skipped=6)


def test_a_redrive_that_is_asked_again_says_nothing_of_what_is_hidden() -> None:
    """R12: the id of a request that was done, with other bookmarks, must not tell which of these are dead letters."""
    world = make()
    world.act_as("all")
    world.ask(commands.SettleWhere, queue="WORK", where="id > 2", outcome="expire")
    world.act_as("few")

    def redrive(first: int, until: int) -> Any:
        request = commands.Redrive(journal=world.journal_id, request="the same", queue="WORK", ranges=((first, until),))
        call = Call(request, lambda: False, world.who)
        world.loop.step([call])
        return call.reply

    assert redrive(6, 8) == redrive(6, 8) == replies.Redriven(requested=2, redriven=2, skipped=0)
    assert redrive(2, 3) == redrive(3, 4) == redrive(90, 91) == replies.Redriven(requested=1, redriven=0, skipped=1)


def test_what_came_back_and_is_hidden_by_now_is_not_taken_up_again() -> None:
    """R12: its lease was over, so a restart of the stream leases to it only what its principal sees now."""
    world = make()
    assert Planner(world).next(limit=100).messages == 4
    world.clock.advance(2 * PERIOD_MS)
    world.loop.step([])
    world.act_as("admin")
    assert world.ask(commands.Apply, definitions=definitions(few("id > 7"))) == replies.Done()
    world.act_as("few")
    planner = Planner(world)
    assert isinstance(world.ask(commands.Rows, **planner.planner(), lease=1), replies.RowsOf)
    assert rows_of(world, planner) == [8, 9]


def test_new_definitions_hide_at_once_what_is_not_leased_yet() -> None:
    world = make()
    planner = Planner(world)
    assert planner.next(limit=1).messages == 1
    world.act_as("admin")
    assert world.ask(commands.Apply, definitions=definitions(few("id > 7"))) == replies.Done()
    world.act_as("few")
    assert planner.next(limit=100).messages == 2
    assert rows_of(world, planner) == [8, 9]
    # The next reign folds the same from the log.
    folded, _ = world.reign()
    known = folded._engine.state.queues["WORK"].subscriptions["s"]
    assert (known.principal, known.entitlement) == ("few", ("id > 7",))


def test_what_new_definitions_hide_stays_hidden_of_a_queue_that_was_set_aside_meanwhile() -> None:
    """R12, R122: its subscriptions hear of rights that were changed meanwhile when it is back, before anything else."""
    world = make()
    planner = Planner(world)
    assert planner.next(limit=1).messages == 1
    world.loop._engine.set_aside("WORK", "a bug", now_ms=world.clock.wall_ms())
    world.act_as("admin")
    assert world.ask(commands.Apply, definitions=definitions(few("id > 7"))) == replies.Done()
    assert world.ask(commands.Revive, queue="WORK") == replies.Done()
    world.act_as("few")
    assert planner.next(limit=100).messages == 2
    assert rows_of(world, planner) == [8, 9]


def test_a_subscription_of_before_gives_its_next_reader_nothing_hidden() -> None:
    """What it held goes back to the queue, and only what its new principal may see comes again."""
    world = World({key: value for key, value in definitions({}).items() if key != "principals"})
    publish(world)
    world.act_as(None)
    assert Planner(world).next(limit=100).messages == 10
    assert world.ask(commands.Apply, definitions=definitions(few())) == replies.Done()
    world.act_as("few")
    planner = Planner(world)
    planner.lease = 1
    rows = world.ask(commands.Rows, **planner.planner(), lease=1)
    assert isinstance(rows, replies.RowsOf)
    assert planner.next(limit=100).messages == 4
    assert rows_of(world, planner) == [6, 7, 8, 9]


def test_a_hidden_barrier_goes_to_those_who_may_see_it() -> None:
    """R71: a barrier is every subscription's, as far as its filters take it."""
    world = World(definitions(few(), barrier="id = 3"))
    world.act_as("few")
    hidden = Planner(world)
    world.act_as("all")
    seeing = Planner(world, "other")
    publish(world)
    assert seeing.next(limit=100).messages == 3
    assert seeing.next(limit=100).messages == 1
    world.act_as("few")
    assert not world.loop._engine.state.queues["WORK"].subscriptions["s"].barriers
    assert hidden.next(limit=100).messages == 4


def test_a_released_barrier_that_is_hidden_by_now_is_not_given_any_more() -> None:
    """R12, R71: nobody leased it yet, and what is behind it goes on."""
    world = World(definitions({**HALF, "few": principal(entry(READ), token="few")}, barrier="id = 3"))
    world.act_as("few")
    planner = Planner(world)
    publish(world)
    world.act_as("all")
    assert world.ask(commands.Purge, queue="WORK", where="id < 3") == replies.Purged(purged=3, leased=0)
    assert list(world.loop._engine.state.queues["WORK"].subscriptions["s"].barriers) == [3]
    world.act_as("admin")
    assert world.ask(commands.Apply, definitions=definitions(few(), barrier="id = 3")) == replies.Done()
    world.act_as("few")
    assert planner.next(limit=100).messages == 4
    assert rows_of(world, planner) == [6, 7, 8, 9]


@pytest.mark.parametrize("before", ["few", None], ids=["renamed", "named for the first time"])
def test_a_barrier_waits_for_whoever_attaches_next_where_its_reader_has_no_right(before: str | None) -> None:
    """R70: a subscription is current, also while its principal is called otherwise or has no right any more."""
    first = {**HALF, "few": principal(entry(READ), token="few")} if before else {}
    renamed = {**HALF, "renamed": principal(entry(READ), token="renamed")}
    world = World({key: value for key, value in definitions(first, barrier="id = 0").items() if value})
    world.act_as(before)
    assert Planner(world).next(limit=100).messages == 0
    world.act_as("admin" if before else None)
    assert world.ask(commands.Apply, definitions=definitions(renamed, barrier="id = 0")) == replies.Done()
    publish(world, 2)
    world.act_as("all")
    # Before that it looks at the log.
    assert world.ask(commands.Purge, queue="WORK", where="id > 7") == replies.Purged(purged=0, leased=0)
    assert list(world.loop._engine.state.queues["WORK"].subscriptions["s"].barriers) == [0]
    world.act_as("renamed")
    planner = Planner(world)
    assert planner.next(limit=100).messages == 1
    assert rows_of(world, planner) == [0]


def test_a_filter_that_cannot_be_is_refused_when_it_is_applied(world: World) -> None:
    reply = world.ask(commands.Apply, definitions=definitions(few("nothing > 1")))
    assert isinstance(reply, wire.Failed)
    assert reply.code == "EXPRESSION_INVALID"
    assert "[principals.few]" in str(reply.facts)


def test_a_filtered_reader_gets_no_dead_letter_queue() -> None:
    """No filter is evaluated there, so nothing of it could be hidden."""
    reader = principal(entry(READ, queues="^.*", filter="id > 5"), token="few")
    wanted = definitions({**HALF, "few": reader}, dead_letter_queue="DEAD")
    wanted["queues"]["DEAD"] = {"message_type": "orders"}
    world = World(wanted)
    world.act_as("few")
    asked = {"queue": "DEAD", "subscription": "s"}
    assert code_of(world.ask(commands.DrawIncarnation, **asked)) == "ACCESS_DENIED"


def test_a_reader_without_its_right_is_given_nothing_by_fairness() -> None:
    """R47: who lost the right counts no longer; others get all of it within the window."""
    world = make()
    Planner(world).next(limit=1)
    world.act_as("admin")
    world.ask(commands.Apply, definitions=definitions(HALF))
    world.act_as("all")
    world.clock.advance(2 * PERIOD_MS)
    world.loop.step([])
    assert Planner(world, "other").next(limit=100).messages == 10


def test_whoever_gets_a_filter_is_given_nothing_of_a_dead_letter_queue_any_more() -> None:
    """R12: no filter is evaluated there, so nothing of it could be hidden; its messages go on to die."""
    letters = {"FAILED": {"message_type": "orders"}}

    def defined(principals: dict[str, Any]) -> dict[str, Any]:
        found = definitions(principals, dead_letter_queue="FAILED")
        return found | {"queues": found["queues"] | letters}

    world = World(defined({"admin": ADMIN, "all": principal(entry(READ, CHANGE, queues="^.*"), token="all")}))
    publish(world)
    world.act_as("all")
    reader, planner = Planner(world, "reader", queue="FAILED"), Planner(world)
    world.act_as("admin")
    filtered = {"admin": ADMIN, "all": principal(entry(READ, CHANGE, queues="^.*", filter="id > 5"), token="all")}
    assert world.ask(commands.Apply, definitions=defined(filtered)) == replies.Done()
    world.who = None
    outcome = commands.OutcomeRows(outcome="expire", ranges=((0, 10),))
    assert not isinstance(world.ask(commands.Settle, queue="WORK", outcomes=(outcome,)), wire.Failed)
    assert len(world.loop._engine.state.queues["FAILED"].entered) == 10
    world.act_as("all")
    call = reader.next_call()
    world.loop.step([call])
    assert code_of(call.reply) == "ACCESS_DENIED"
    assert planner.next().messages == 0
    assert world.loop._engine.state.troubles == {}


def test_a_queue_of_another_type_is_not_begun_with_filters_that_its_messages_do_not_know() -> None:
    def defined(topic: str) -> dict[str, Any]:
        types = {"orders": {"columns": "id BIGINT", "topics": ["ORDERS"]}, "names": {"columns": "name STRING", "topics": ["NAMES"]}}
        return {"message_types": types, "queues": {"WORK": {"underlying_topic": topic}}}

    world = World(defined("ORDERS"))
    asked: dict[str, Any] = {"queue": "WORK", "subscription": "s"}
    incarnation = world.ask(commands.DrawIncarnation, **asked).incarnation
    world.ask(commands.Attach, incarnation=incarnation, call=1, ack_mode="auto", max_backlog=9, filter="id < 3", **asked)
    refused = world.ask(commands.Apply, definitions=defined("NAMES"), reset=("WORK",))
    assert isinstance(refused, wire.Failed)
    assert (refused.code, "subscription 's' of queue 'WORK'" in refused.facts["what"]) == ("EXPRESSION_INVALID", True)
    world.ask(commands.Unsubscribe, **asked)
    assert world.ask(commands.Apply, definitions=defined("NAMES"), reset=("WORK",)) == replies.Done()
    world.storage.publish("names", [PublishedMessage(topic="NAMES", attributes={"name": 1})])
    world.ask(wire.Nudge, message_type="names")
    assert len(world.loop._engine.state.queues["WORK"].entered) == 1


def test_a_queue_that_begins_anew_with_another_type_asks_no_filter_that_its_principal_had_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Messages of the new type lack the columns of the old filter, and those in the log enter before anybody subscribes anew."""

    def defined(topic: str, filter_text: str) -> dict[str, Any]:
        types = {"orders": {"columns": "id BIGINT", "topics": ["ORDERS"]}, "names": {"columns": "name BIGINT", "topics": ["NAMES"]}}
        queue = {"underlying_topic": topic, "recovery_point": "epoch"}
        one = principal(entry(READ, queues="WORK", filter=filter_text), token="one")
        return {"message_types": types, "queues": {"WORK": queue}, "principals": {"admin": ADMIN, "one": one}}

    world = World(defined("ORDERS", "id > 5"))
    world.storage.publish("names", [PublishedMessage(topic="NAMES", attributes={"name": 1})])
    world.ask(wire.Nudge, message_type="names")
    world.act_as("one")
    Planner(world)
    traits, asked = world.loop._engine.state.traits, set[str]()
    read = traits.traits

    def reading(segment: Segment, requests: Iterable[TraitRequest]) -> Mapping[str, EntryTraits]:
        requested = list(requests)
        asked.update(text for each in requested for text in each.filters)
        return read(segment, requested)

    monkeypatch.setattr(traits, "traits", reading)
    world.act_as("admin")
    assert world.ask(commands.Apply, definitions=defined("NAMES", "name > 0"), reset=("WORK",)) == replies.Done()
    assert len(world.loop._engine.state.queues["WORK"].entered) == 1
    assert "id > 5" not in asked


def test_a_subscription_of_another_goes_on_where_a_new_owner_cannot_be_told_what_it_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the new one may see is found out before the old one ends: a file may be gone."""
    world = World(definitions({}))
    publish(world)
    Planner(world).next()
    world.ask(commands.Apply, definitions=definitions(few()))
    world.act_as("few")
    drawn = world.ask(commands.DrawIncarnation, queue="WORK", subscription="s")
    state, before = world.loop._engine.state, world.records()

    def matches(*_: Any, **__: Any) -> Any:
        raise JournalError("MESSAGE_FILE_MISSING", path="p", file="f", reason="it is gone.", next_step="")

    monkeypatch.setattr(state.traits, "matches", matches)
    planner = {"queue": "WORK", "subscription": "s", "incarnation": drawn.incarnation, "call": 1}
    reply = world.ask(commands.Attach, ack_mode="auto", max_backlog=100, **planner)
    assert code_of(reply) == "MESSAGE_FILE_MISSING"
    assert world.records() == before


def test_a_request_of_another_principal_is_no_repeat() -> None:
    """R12: the answer to a repeat counts what was done, whoever did it."""
    world = make()
    purge = commands.Purge(journal=world.journal_id, request="the same", queue="WORK", where="id < 6")
    for name, purged in (("all", 6), ("all", 6), ("few", 0)):
        world.act_as(name)
        call = Call(purge, lambda: False, world.who)
        world.loop.step([call])
        assert isinstance(call.reply, replies.Purged)
        assert call.reply.purged == purged, name
