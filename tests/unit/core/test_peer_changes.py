"""An instance that leaves hands its messages over, and what one that is gone owned is claimed (DESIGN 17.6, 17.8)."""

from __future__ import annotations

import pytest
from pyroaring import BitMap64

from spark_queue.core import commands
from spark_queue.core.deciding.instances.replicating import Pulled
from spark_queue.core.definitions.definition import Disagreement, Rule
from spark_queue.errors import ConfigError, JournalError
from tests.fake_clock import FakeClock
from tests.scenario.instances import QUEUES, Consumer, Instance, exchange, two_instances

LOST_MS = 31_000


def test_who_leaves_hands_over_what_is_free_and_then_what_was_leased(frankfurt: Instance, virginia: Instance) -> None:
    frankfurt.publish(4)
    consumer = Consumer(frankfurt)
    assert consumer.take(limit=2) == [0, 1]
    frankfurt.settle("expire", 1)
    exchange(frankfurt, virginia)
    done = frankfurt.decide(commands.DrainTo(peer="virginia"))
    assert (done.transferred, done.left, done.record) == (3, {"WORK": 1}, -1)
    assert (frankfurt.rows("leased"), frankfurt.rows("remote"), frankfurt.rows("remote", "FAILED")) == ([0], [2, 3], [1])
    consumer.take()
    done = frankfurt.decide(commands.DrainTo(peer="virginia"))
    assert (done.transferred, done.left, done.is_pulled) == (0, {}, False)
    frankfurt.world.engine.liveness.pulled_here = {"virginia": done.record - 1}
    assert not frankfurt.decide(commands.DrainTo(peer="virginia", record=done.record)).is_pulled
    frankfurt.world.engine.liveness.pulled_here = {"virginia": done.record}
    before = frankfurt.world.state.next_record
    assert frankfurt.decide(commands.DrainTo(peer="virginia", record=done.record)).is_pulled
    assert frankfurt.world.state.next_record == before, "asking leaves nothing in the log"
    exchange(frankfurt, virginia)
    assert (virginia.rows("available"), virginia.rows("available", "FAILED")) == ([2, 3], [1])


def test_what_comes_after_a_drain_is_handed_over_too(frankfurt: Instance, virginia: Instance) -> None:
    done = frankfurt.decide(commands.DrainTo(peer="virginia"))
    frankfurt.publish(1)
    early = frankfurt.decide(commands.DrainTo(peer="virginia", record=done.record))
    assert (early.transferred, early.left, early.stuck) == (0, {"WORK": 1}, {}), "virginia does not have it yet"
    exchange(frankfurt, virginia)
    again = frankfurt.decide(commands.DrainTo(peer="virginia", record=done.record))
    assert (again.transferred, again.record, again.is_pulled) == (1, frankfurt.world.state.next_record - 1, False)


def test_messages_of_an_order_key_wait_until_nothing_is_leased(clock: FakeClock) -> None:
    keyed = QUEUES["WORK"] | {"order_key": "topic", "ownership": "group_local", "initial_owner": "frankfurt"}
    frankfurt, virginia = two_instances(clock, queues=QUEUES | {"WORK": keyed})
    frankfurt.publish(3)
    Consumer(frankfurt).take(limit=1)
    exchange(frankfurt, virginia)
    done = frankfurt.decide(commands.DrainTo(peer="virginia"))
    assert (done.transferred, done.left) == (0, {"WORK": 3})
    frankfurt.decide(commands.Unsubscribe(queue="WORK", subscription="s"))
    frankfurt.publish(1)
    done = frankfurt.decide(commands.DrainTo(peer="virginia"))
    assert (done.transferred, done.left) == (0, {"WORK": 4}), "one is not there yet"
    exchange(frankfurt, virginia)
    assert frankfurt.decide(commands.DrainTo(peer="virginia")).transferred == 4


def test_what_never_comes_to_a_peer_is_not_handed_over(clock: FakeClock) -> None:
    frankfurt, virginia = Instance("frankfurt", ["virginia", "tokyo"], clock), Instance("virginia", ["frankfurt"], clock)
    tokyo = Instance("tokyo", ["frankfurt"], clock)
    virginia.publish(2)
    frankfurt.publish(1)
    exchange(frankfurt, virginia, tokyo)
    virginia.decide(commands.DrainTo(peer="frankfurt"))
    exchange(frankfurt, virginia, tokyo)
    frankfurt.world.engine.liveness.there = lambda *_: None
    asked = frankfurt.decide(commands.DrainTo(peer="tokyo"))
    assert (asked.transferred, asked.left, asked.stuck) == (0, {"WORK": 3}, {}), "nothing is known of it yet"
    frankfurt.world.engine.liveness.there = lambda *_: {"uuid-of-frankfurt": BitMap64([0])}
    done = frankfurt.decide(commands.DrainTo(peer="tokyo"))
    assert (done.transferred, done.left) == (1, {"WORK": 2})
    assert done.stuck["WORK"].startswith("2 of them did not reach it")
    assert len(frankfurt.rows("available")) == 2


def test_nothing_is_handed_over_that_is_not_taken_over_there(frankfurt: Instance, virginia: Instance) -> None:
    frankfurt.publish(2)
    exchange(frankfurt, virginia)
    for rule, is_hindering in ((Rule.SAME_DEFINITION, True), (Rule.BOTH_WAYS, True), (Rule.SAME_MEMBERS, False)):
        differs = [Disagreement(rule, "WORK", "semantics is not the same.")]
        last = frankfurt.world.state.pulled["virginia"].record
        pulled = Pulled(peer="virginia", journal=virginia.world.journal_id, record=last, digest="", disagreements=differs)
        frankfurt.world.engine.pull(pulled, now_ms=frankfurt.world.now_ms)
        done = frankfurt.decide(commands.DrainTo(peer="virginia"))
        assert (done.left, done.stuck) == (({"WORK": 2}, {"WORK": "semantics is not the same."}) if is_hindering else ({}, {}))


def test_what_was_acknowledged_before_its_turn_is_not_handed_over(clock: FakeClock) -> None:
    """R83: beyond the target depth an acknowledgement waits for the message's turn, which never comes here any more."""
    queues = QUEUES | {"WORK": QUEUES["WORK"] | {"target_queue_depth": 1_000}}
    frankfurt, virginia = two_instances(clock, queues=queues)
    frankfurt.publish(1_003)
    exchange(frankfurt, virginia)
    frankfurt.settle("acknowledge", 1_002)
    assert 1_002 in frankfurt.rows("inactive")
    assert frankfurt.decide(commands.DrainTo(peer="virginia")).transferred == 1_002
    exchange(frankfurt, virginia)
    assert frankfurt.rows("removed") == virginia.rows("removed") == [1_002]
    assert virginia.value("WORK", 0).owner == "virginia"


def test_what_an_instance_owned_that_is_gone_is_claimed(frankfurt: Instance, virginia: Instance, clock: FakeClock) -> None:
    virginia.publish(3)
    exchange(frankfurt, virginia)
    waiting = Consumer(frankfurt)
    clock.advance(2_000)
    waiting.take()
    assert "virginia" in frankfurt.ownership().requests
    frankfurt.world.engine.liveness.hear({"virginia": 7}, now_ms=clock.wall_ms(), looked_ms=clock.wall_ms())
    clock.advance(LOST_MS - 2_000)
    with pytest.raises(JournalError, match=r"PEER_LIVES.*29 s ago.*drain"):
        frankfurt.decide(commands.ForgetPeer(peer="virginia"))
    clock.advance(2_000)
    done = frankfurt.decide(commands.ForgetPeer(peer="virginia"))
    assert (done.claimed, done.left) == (3, {})
    assert (frankfurt.rows("available"), frankfurt.ownership().requests) == ([0, 1, 2], {})
    assert frankfurt.world.state.peer_changes.forgotten == {"virginia"}
    frankfurt.crash()
    exchange(frankfurt, virginia)
    assert frankfurt.world.state.peer_changes.forgotten == set(), "it was not gone after all"
    assert virginia.rows("remote") == [0, 1, 2]


def test_what_may_be_delivered_once_only_stays_with_who_is_gone(clock: FakeClock) -> None:
    frankfurt, virginia = two_instances(clock, queues={"ONCE": {"underlying_topic": "T", "semantics": "at-most-once"}})
    virginia.publish(2)
    exchange(frankfurt, virginia)
    done = frankfurt.decide(commands.ForgetPeer(peer="virginia"))
    assert (done.claimed, done.left) == (0, {"ONCE": 2})
    frankfurt.define({"ONCE": {"underlying_topic": "T"}})
    assert frankfurt.decide(commands.ForgetPeer(peer="virginia")).claimed == 2


def test_nobody_is_forgotten_while_a_shared_queue_is_set_aside(clock: FakeClock) -> None:
    """R122: what that one owns of the queue would be claimed by nobody, ever."""
    frankfurt, virginia = two_instances(clock)
    virginia.publish(2)
    exchange(frankfurt, virginia)
    frankfurt.world.engine.set_aside("WORK", "a bug", now_ms=clock.wall_ms())
    with pytest.raises(JournalError, match=r"QUEUE_SET_ASIDE.*WORK"):
        frankfurt.decide(commands.ForgetPeer(peer="virginia"))
    assert frankfurt.world.state.peer_changes.forgotten == set()
    frankfurt.decide(commands.Revive(queue="WORK"))
    frankfurt.crash()
    exchange(frankfurt, virginia)
    clock.advance(LOST_MS)
    assert frankfurt.decide(commands.ForgetPeer(peer="virginia")).claimed == 2


def test_a_first_owner_is_not_forgotten(clock: FakeClock) -> None:
    """R129: what is published would be given to it still."""
    queues = {name: {**queue, "ownership": "group_local", "initial_owner": "virginia"} for name, queue in QUEUES.items()}
    frankfurt = Instance("frankfurt", ["virginia"], clock, queues=queues)
    with pytest.raises(ConfigError, match=r"DEFINITION_IN_USE.*initial_owner of queue 'WORK'"):
        frankfurt.decide(commands.ForgetPeer(peer="virginia"))


@pytest.mark.parametrize("command", [commands.DrainTo, commands.ForgetPeer, commands.ResetPeer, commands.SkipLost])
def test_only_a_peer_is_changed(frankfurt: Instance, command: type[commands.PeerCommand]) -> None:
    with pytest.raises(ConfigError, match=r"UNKNOWN_PEER.*virginia"):
        frankfurt.decide(command(peer="virgina"))  # type: ignore[arg-type]  # Each of them is one.


def test_what_broke_rules_with_a_peer_goes_with_it(frankfurt: Instance, virginia: Instance) -> None:
    broken = [Disagreement(Rule.SAME_DEFINITION, "WORK", "filter is None here, and 'x' there.")]
    pulled = Pulled(peer="virginia", journal=virginia.world.journal_id, record=0, digest="", disagreements=broken)
    frankfurt.world.engine.pull(pulled, now_ms=frankfurt.world.now_ms)
    frankfurt.decide(commands.ResetPeer(peer="virginia"))
    assert frankfurt.world.state.disagreements["virginia"], "it is told until the journal that is there now was read"
    frankfurt.decide(commands.Apply(definitions={**frankfurt.world.state.definitions.stored, "peers": {}}))
    assert frankfurt.world.state.disagreements == {}


def test_what_a_peer_let_go_before_it_is_read_again_is_no_gap(frankfurt: Instance, virginia: Instance) -> None:
    """It was told when it was read for the first time, or may not have been asked for then."""
    for record in (7, -1):
        pulled = Pulled(peer="virginia", journal=virginia.world.journal_id, record=record, digest="")
        frankfurt.world.engine.pull(pulled, now_ms=frankfurt.world.now_ms)
    assert frankfurt.world.state.pulled["virginia"].gaps_after == 7
