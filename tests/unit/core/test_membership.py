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
from spark_queue.core.state.status import alarms
from spark_queue.errors import ConfigError
from spark_queue.verification.state_digest import digest
from tests.fake_clock import FakeClock
from tests.scenario.instances import QUEUES, Consumer, Instance, ask, exchange
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


def test_a_queue_with_order_keys_begins_where_messages_have_several_first_owners(clock: FakeClock) -> None:
    """R129: each owner gives its own of one key in their order; what is told of one owner's messages stands between the other's."""
    frankfurt, virginia = (Instance(name, [other], clock, queues=ordered_by(F)) for name, other in ((F, V), (V, F)))
    virginia.define({}, pulled=[])
    for owner in (V, F, V, F, V, V):
        frankfurt.define(ordered_by(owner))
        publish(frankfurt, "a")
    exchange(frankfurt, virginia)
    virginia.define(ordered_by(V))
    exchange(frankfurt, virginia)
    consumers = {F: Consumer(frankfurt), V: Consumer(virginia)}
    assert [consumers[name].take(limit=1) for name in (V, F, V, F, V, V)] == [[0], [1], [2], [3], [4], [5]]
    consume(frankfurt, virginia)


def test_two_owners_do_not_wait_for_each_others_messages_of_one_key(clock: FakeClock) -> None:
    """R129: each has the other's message before its own, since bookmarks differ."""
    frankfurt, virginia = (Instance(name, [other], clock, queues=ordered_by(other)) for name, other in ((F, V), (V, F)))
    for each in (frankfurt, virginia):
        publish(each, "a")
    exchange(frankfurt, virginia)
    assert frankfurt.rows("available") == virginia.rows("available") == [1]
    consume(frankfurt, virginia)
    check_ended(frankfurt, virginia)


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


def test_a_first_owner_of_whom_nobody_hears_here_is_the_origin(clock: FakeClock) -> None:
    frankfurt, virginia = (Instance(name, [other], clock, queues=owned_by(T)) for name, other in ((F, V), (V, F)))
    frankfurt.publish(1)
    exchange(frankfurt, virginia)
    assert found(frankfurt, State.AVAILABLE) == found(virginia, State.REMOTE) == published(frankfurt, 0)


def test_a_filter_says_what_enters_from_its_own_site(pair: tuple[Instance, Instance]) -> None:
    frankfurt, virginia = pair
    virginia.define(altered(filter="kind = 'a'"))
    for each in pair:
        publish(each, "a", "b")
    exchange(*pair)
    everything = published(frankfurt, 0, 1) | published(virginia, 0)
    assert all(found(each, State.AVAILABLE) | found(each, State.REMOTE) == everything for each in pair)
    consume(*pair)
    check_ended(*pair)


def test_a_filter_that_is_altered_in_a_chain_strands_nothing(clock: FakeClock) -> None:
    """What the middle would not take of its own it passes on, with all that becomes of it."""
    chain = frankfurt, virginia, tokyo = [Instance(F, [V], clock), Instance(V, [F, T], clock), Instance(T, [V], clock)]
    virginia.define(altered(filter="kind = 'a'"))
    publish(frankfurt, "a", "b")
    exchange(*chain)
    assert found(tokyo, State.REMOTE) == found(virginia, State.REMOTE) == published(frankfurt, 0, 1)
    virginia.define(QUEUES)
    exchange(*chain)
    consume(*chain)
    check_ended(*chain)


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


def test_a_queue_that_begins_here_has_what_its_origin_said(clock: FakeClock) -> None:
    """A site without the queue keeps what is said, and passes it on; one that has it later takes it over as it stands."""
    chain = frankfurt, virginia, tokyo = [Instance(F, [V], clock), Instance(V, [F, T], clock), Instance(T, [V], clock)]
    virginia.define({}, pulled=[])
    frankfurt.define(altered(filter="kind = 'a'"))
    publish(frankfurt, "a", "b")
    exchange(*chain)
    assert found(tokyo, State.REMOTE) == published(frankfurt, 0)
    virginia.define(QUEUES)
    exchange(*chain)
    assert found(virginia, State.REMOTE) == published(frankfurt, 0)
    consume(*chain)
    check_ended(*chain)


def test_a_queue_that_is_put_back_goes_on_from_what_was_known_of_it(pair: tuple[Instance, Instance]) -> None:
    """R130: what ended here before it was left, and what was given away, nobody else may have heard."""
    frankfurt, _ = pair
    frankfurt.publish(4)
    exchange(*pair)
    ended = (
        commands.OutcomeRows(outcome=outcome, ranges=((row, row + 1),)) for row, outcome in enumerate(("acknowledge", "expire"))
    )
    frankfurt.decide(commands.Settle(queue="WORK", outcomes=tuple(ended)))
    ask(frankfurt, {"uuid-of-frankfurt": [2]})
    frankfurt.define({}, pulled=[])
    publish(frankfurt, "a", "b")
    frankfurt.define(altered(filter="kind = 'a'"))
    assert {state: frankfurt.rows(state) for state in ("removed", "dead", "remote", "available")} == {
        "removed": [0], "dead": [1], "remote": [2], "available": [3, 4],
    }  # fmt: skip
    assert frankfurt.rows("available", "FAILED") == [1]
    assert digest(frankfurt.world.folded()) == digest(frankfurt.world.state)
    frankfurt.decide(commands.Redrive(queue="WORK", ranges=((1, 2),)))
    exchange(*pair)
    consume(*pair)
    check_ended(*pair)


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


def test_a_queue_is_put_back_before_any_peer_is_named_for_it(pair: tuple[Instance, Instance]) -> None:
    frankfurt, _ = pair
    frankfurt.publish(2)
    frankfurt.decide(commands.Settle(queue="WORK", outcomes=(commands.OutcomeRows(outcome="acknowledge", ranges=((0, 1),)),)))
    frankfurt.define({}, pulled=[])
    frankfurt.define(QUEUES, pulled=[])
    frankfurt.define(QUEUES)
    assert (frankfurt.rows("removed"), frankfurt.rows("available")) == ([0], [1])


def test_letters_are_put_back_without_their_source(pair: tuple[Instance, Instance]) -> None:
    """They begin anew: nobody could settle what a queue holds that is not defined."""
    frankfurt, _ = pair
    frankfurt.publish(1)
    frankfurt.decide(commands.Settle(queue="WORK", outcomes=(commands.OutcomeRows(outcome="expire", ranges=((0, 1),)),)))
    alone = {key: value for key, value in QUEUES["WORK"].items() if key != "dead_letter_queue"}
    frankfurt.define({"WORK": alone}, pulled=["WORK"])
    frankfurt.define(QUEUES)
    assert frankfurt.rows("dead") == [0]


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


def test_a_queue_that_was_left_is_not_reset_when_it_is_put_back(pair: tuple[Instance, Instance]) -> None:
    frankfurt, _ = pair
    frankfurt.define({}, pulled=[])
    definitions: dict[str, Any] = {**frankfurt.world.state.definitions.stored, "queues": QUEUES}
    pulled = {name: {**peer, "queues": list(QUEUES)} for name, peer in definitions["peers"].items()}
    with pytest.raises(ConfigError, match=r"DEFINITION_IN_USE.*'WORK'.*other instances keep what they know of its messages"):
        frankfurt.decide(commands.Apply(definitions={**definitions, "peers": pulled}, reset=("WORK",)))


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


def test_of_messages_of_before_its_queue_an_origin_says_the_same(clock: FakeClock) -> None:
    pair = frankfurt, virginia = [Instance(F, [V], clock), Instance(V, [F], clock)]
    frankfurt.define({}, pulled=[])
    publish(frankfurt, "a", "b")
    exchange(*pair)
    assert found(virginia, State.REMOTE) == set(), "nobody has said what they are"
    told = alarms(virginia.world.state, virginia.world.state.queues["WORK"])["messages that are undecided"]
    assert told.error.startswith("2 messages of other instances are in no queue yet, first bookmark 0")
    frankfurt.define(altered(filter="kind = 'b'"))
    exchange(*pair)
    assert found(frankfurt, State.AVAILABLE) == found(virginia, State.REMOTE) == published(frankfurt, 1)
    assert alarms(virginia.world.state, virginia.world.state.queues["WORK"]) == {}
    consume(*pair)
    check_ended(*pair)


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


def test_a_queue_that_is_replicated_from_now_on_says_what_stands_in_it(clock: FakeClock) -> None:
    """What was over by then never comes elsewhere."""
    pair = frankfurt, virginia = [Instance(F, [V], clock, pulled=[]), Instance(V, [F], clock)]
    frankfurt.publish(2)
    consumer = Consumer(frankfurt)
    assert consumer.take(limit=1) == [0]
    consumer.take(limit=1)
    frankfurt.define(QUEUES)
    exchange(*pair)
    assert found(virginia, State.REMOTE) == published(frankfurt, 1)
    consume(*pair)
    assert found(virginia, State.REMOVED) == published(frankfurt, 1)


def test_the_first_owner_decides_for_an_origin_that_does_not_have_the_queue(clock: FakeClock) -> None:
    of_all = frankfurt, virginia, tokyo = [
        Instance(name, [other for other in (F, V, T) if other != name], clock, queues=owned_by(F)) for name in (F, V, T)
    ]
    virginia.define({}, pulled=[])
    virginia.publish(1)
    exchange(*of_all)
    assert found(frankfurt, State.AVAILABLE) == found(tokyo, State.REMOTE) == published(virginia, 0)


def test_an_origin_that_has_the_queue_later_takes_over_what_was_said_for_it(clock: FakeClock) -> None:
    pair = frankfurt, virginia = [Instance(name, [other], clock, queues=owned_by(F)) for name, other in ((F, V), (V, F))]
    virginia.define({}, pulled=[])
    virginia.publish(1)
    exchange(*pair)
    virginia.define(altered(filter="body = 'nothing'"))
    exchange(*pair)
    assert found(frankfurt, State.AVAILABLE) == found(virginia, State.REMOTE) == published(virginia, 0)
    consume(*pair)
    check_ended(*pair)


def test_a_message_that_was_published_to_both_ends_of_a_chain_is_the_same_at_all(clock: FakeClock) -> None:
    """Names go no further than who compares: what one end says, the other hears by its own name."""
    chain = frankfurt, _, tokyo = [Instance(F, [V], clock), Instance(V, [F, T], clock), Instance(T, [V], clock)]
    frankfurt.define(altered(filter="body = 'nothing'"))
    for each in (frankfurt, tokyo):
        each.publish_as("app", [1])
    exchange(*chain)
    assert {each.value("WORK", row).owner for each in chain for row in each.world.state.queues["WORK"].entered} == {T}
    assert all(len(each.world.state.queues["WORK"].entered) == 1 for each in chain)
    consume(*chain)


def test_what_is_said_twice_is_recorded_once(pair: tuple[Instance, Instance]) -> None:
    frankfurt, virginia = pair
    frankfurt.publish(2)
    exchange(*pair)
    before = virginia.count(Kind.DECIDED)
    virginia.read_again(F)
    virginia.pull(frankfurt)
    assert virginia.count(Kind.DECIDED) == before == 1


def test_a_queue_that_was_set_aside_says_later_what_came_meanwhile(pair: tuple[Instance, Instance]) -> None:
    """R122."""
    frankfurt, virginia = pair
    frankfurt.world.engine.set_aside("WORK", "a bug", now_ms=frankfurt.world.now_ms)
    frankfurt.publish(1)
    exchange(*pair)
    assert virginia.rows("remote") == []
    frankfurt.decide(commands.Revive(queue="WORK"))
    frankfurt.crash()
    exchange(*pair)
    assert found(frankfurt, State.AVAILABLE) == found(virginia, State.REMOTE) == published(frankfurt, 0)


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
