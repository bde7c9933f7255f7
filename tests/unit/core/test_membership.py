"""What a message is, its origin says once: definitions change site by site, and each message ends everywhere alike (R129)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from spark_queue.core import commands, folds
from spark_queue.core.bitmaps.ranges import to_bitmap
from spark_queue.core.deciding.instances.replicating import Pulled
from spark_queue.core.records import Kind
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.lifecycle import State
from spark_queue.verification.state_digest import digest
from tests.fake_clock import FakeClock
from tests.scenario.instances import QUEUES, Consumer, Instance, exchange
from tests.scenario.traits import PublishedMessage

F, V, T = "frankfurt", "virginia", "tokyo"


def altered(**keys: Any) -> dict[str, dict[str, Any]]:
    """Return the queues with other keys of the one with messages; a dead-letter queue has the same owner."""
    shared = keys.keys() & {"ownership", "initial_owner", "group_local_domain"}
    return {"WORK": {**QUEUES["WORK"], **keys}, "FAILED": {**QUEUES["FAILED"], **{key: keys[key] for key in shared}}}


def owned_by(name: str) -> dict[str, dict[str, Any]]:
    return altered(ownership="group_local", initial_owner=name, group_local_domain="eu")


def ordered_by(name: str) -> dict[str, dict[str, Any]]:
    """Return the queues with an order of keys, and an owner."""
    queues = owned_by(name)
    return {**queues, "WORK": {**queues["WORK"], "order_key": "kind"}}


def publish(instance: Instance, *kinds: str) -> None:
    """Publish messages of some kinds, which filters ask for, in one file."""
    instance.world.publish("json", [PublishedMessage(topic="T", attributes={"kind": kind}) for kind in kinds])
    instance.world.commit()


def found(instance: Instance, state: State) -> set[tuple[str, int]]:
    """Return the messages in a state, by their origin."""
    return instance.ids(instance.world.state.queues["WORK"].rows[state])


def published(instance: Instance, *rows: int) -> set[tuple[str, int]]:
    """Return messages by the names that they have since they were published at an instance."""
    return {(instance.world.journal_id, row) for row in rows}


def consume(*instances: Instance) -> None:
    """Let everybody take all that is theirs, and finish it."""
    for each in instances:
        consumer = Consumer(each)
        while consumer.take():
            continue
    exchange(*instances)


def check_ended(*instances: Instance) -> None:
    """Check that every instance has the same messages, all of them over, and that its log says so."""
    for each in instances:
        rows = each.world.state.queues["WORK"].rows
        assert {state: len(members) for state, members in rows.items() if members and state is not State.REMOVED} == {}
        assert found(each, State.REMOVED) == found(instances[0], State.REMOVED)
        assert digest(each.world.folded()) == digest(each.world.state)


@pytest.mark.parametrize("told_first", [F, V])
def test_the_first_owner_changes_site_by_site(clock: FakeClock, told_first: str) -> None:
    """R102, R115: what is published meanwhile belongs to whom the site named where it was published, at both."""
    frankfurt, virginia = (Instance(name, [other], clock, queues=owned_by(F)) for name, other in ((F, V), (V, F)))
    first, second = (frankfurt, virginia) if told_first == F else (virginia, frankfurt)
    first.define(owned_by(V))
    for each in (first, second):
        each.publish(1)
    exchange(first, second)
    second.define(owned_by(V))
    exchange(first, second)
    assert found(virginia, State.AVAILABLE) == found(frankfurt, State.REMOTE) == published(first, 0)
    assert found(frankfurt, State.AVAILABLE) == found(virginia, State.REMOTE) == published(second, 0)
    consume(first, second)
    check_ended(first, second)


def test_two_owners_have_each_others_messages_of_a_key_behind_barriers(clock: FakeClock) -> None:
    """R105: each barrier waits for a message that the other instance could only deliver after its own one."""
    pair = frankfurt, virginia = [Instance(name, [other], clock) for name, other in ((F, V), (V, F))]
    for each, other in (pair, (virginia, frankfurt)):
        for owner, kinds in ((other.name, "ab"), (each.name, "a")):
            queues = ordered_by(owner)
            each.define({**queues, "WORK": {**queues["WORK"], "barrier": "kind = 'b'"}})
            publish(each, *kinds)
    exchange(*pair)
    consumers = [Consumer(each) for each in pair]
    for _ in range(20):
        for consumer in consumers:
            consumer.take(limit=1)
        exchange(*pair)
        clock.advance(2_000)
    check_ended(*pair)
    given = [record for record in frankfurt.world.committed if record.kind == Kind.TRANSFERRED]
    assert given == [], "the one of the lesser name has what both had"


@pytest.mark.parametrize("at", [F, V])
def test_a_barrier_that_is_defined_site_by_site_is_one_everywhere_or_nowhere(pair: tuple[Instance, Instance], at: str) -> None:
    """R67: so nobody waits for one that the other site does not know."""
    altered_there = next(each for each in pair if each.name == at)
    altered_there.define(altered(barrier="kind = 'b'"))
    for each in pair:
        publish(each, "a", "b")
    exchange(*pair)
    for each in pair:
        assert found(each, State.HELD) == published(altered_there, 1)
    consume(*pair)
    for each in pair:
        assert each.rows("held") == each.rows("available") == each.rows("remote") == []


def test_retention_keeps_nothing_that_came_after_a_queue_was_left(clock: FakeClock) -> None:
    """Nobody says of it whether it is in the queue."""
    frankfurt = Instance(F, [V], clock, journal={"retention": "60s"})
    frankfurt.define(QUEUES)
    frankfurt.define({}, pulled=[])
    for _ in range(2):
        frankfurt.publish(1)
        clock.advance(10 * 60_000)
    frankfurt.world.engine.liveness.pulled_here = {V: frankfurt.world.state.next_record}
    frankfurt.tick()
    assert frankfurt.world.state.message_types["json"].retired_rows > 0


def test_a_queue_that_a_later_fold_sets_aside_before_it_is_left_stays_so(pair: tuple[Instance, Instance]) -> None:
    frankfurt, _ = pair
    frankfurt.publish(1)
    frankfurt.define({}, pulled=[])
    frankfurt.define(QUEUES)
    state = JournalState(frankfurt.world.traits)
    for record in frankfurt.world.committed:
        folds.fold(state, record)
        if record.kind == Kind.ENTERED:
            state.note_fault("WORK", ValueError("what its file held"))
    assert state.troubles.keys() == {"WORK"}


def test_retention_keeps_what_waits_in_a_queue_that_was_left(clock: FakeClock) -> None:
    frankfurt = Instance(F, [V], clock, journal={"retention": "60s"})
    frankfurt.publish(1)
    frankfurt.define({}, pulled=[])
    clock.advance(10 * 60_000)
    frankfurt.world.engine.liveness.pulled_here = {V: frankfurt.world.state.next_record}
    frankfurt.tick()
    frankfurt.define(QUEUES)
    assert frankfurt.rows("available") == [0]
    assert frankfurt.world.state.message_types["json"].retired_rows == 0


def test_retention_keeps_what_nobody_has_said_to_be_in_no_queue(clock: FakeClock) -> None:
    """Who says so later finds it; of another topic nobody waits for anything."""
    journal = {"retention": "60s"}
    pair = frankfurt, virginia = [Instance(F, [V], clock, journal=journal), Instance(V, [F], clock, journal=journal)]
    frankfurt.define({}, pulled=[])
    frankfurt.publish(1)
    exchange(*pair)
    clock.advance(10 * 60_000)
    virginia.tick()
    assert virginia.world.state.message_types["json"].retired_rows == 0
    frankfurt.define(QUEUES)
    exchange(*pair)
    consume(*pair)
    check_ended(*pair)
    clock.advance(10 * 60_000)
    virginia.world.engine.liveness.pulled_here = {F: virginia.world.state.next_record}
    virginia.tick()
    assert virginia.world.state.message_types["json"].retired_rows == 1


@pytest.mark.parametrize("order", [(F, V), (V, F)])
def test_a_message_that_was_published_to_two_belongs_to_the_greater_first_owner(clock: FakeClock, order: Iterable[str]) -> None:
    """Also where both say that somebody else is the first, and where one says that it is not in the queue."""
    of_all = {name: Instance(name, [other for other in (F, V, T) if other != name], clock) for name in (F, V, T)}
    of_all[F].define(altered(filter="body = 'b'"))
    of_all[V].define(owned_by(T))
    for name in order:
        of_all[name].publish_as("app", [1], body="a")
        of_all[name].publish_as("app", [2], body="b")
    exchange(*of_all.values())
    first, second = published(of_all[F], 0, 1), published(of_all[V], 0, 1)
    for each in of_all.values():
        rows = each.world.state.queues["WORK"].entered
        assert rows == to_bitmap([(0, 2)])
        assert {each.value("WORK", row).owner for row in rows} == {T}, (first, second)
    consume(*of_all.values())


def test_a_restored_journal_says_what_its_messages_are_that_came_back_without_its_word(clock: FakeClock) -> None:
    """R129: a peer had copied them and not heard yet whether they are in the queue, and nobody else will say it."""
    frankfurt = Instance(F, [V], clock)
    own = frankfurt.world.journal_id
    frankfurt.decide(commands.Restored(origin="uuid-again", after=0))
    frankfurt.world.publish("json", [PublishedMessage(topic="T")], origins=[(0, 1, own, 0)], instances={own: F})
    frankfurt.world.commit()
    assert frankfurt.rows("available") == []
    frankfurt.world.engine.pull(Pulled(peer=V, journal=f"uuid-of-{V}", record=9, digest=""), now_ms=clock.wall_ms())
    frankfurt.world.commit()
    assert frankfurt.rows("available") == [0]
    assert digest(frankfurt.world.folded()) == digest(frankfurt.world.state)
