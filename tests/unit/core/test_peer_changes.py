"""An instance that leaves hands its messages over, and what one that is gone owned is claimed (DESIGN 17.6, 17.8)."""

from __future__ import annotations

import pytest
from pyroaring import BitMap64

from spark_queue.core import commands
from spark_queue.core.deciding.instances.replicating import Pulled
from spark_queue.core.definitions.definition import Disagreement, Rule
from spark_queue.errors import ConfigError
from tests.fake_clock import FakeClock
from tests.scenario.instances import Consumer, Instance, exchange

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
