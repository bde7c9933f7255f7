"""Whose messages may come through a peer: by the name of the instance, or of its group (R114; DESIGN 17.2, 17.3)."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_queue.core.state.lifecycle import State
from tests.fake_clock import FakeClock
from tests.sites_on_disk import Site, exchange
from tests.unit.replication.test_changed_definitions import define_pulled


@pytest.mark.parametrize(
    ("passthrough", "comes"), [("asia", True), ("tokyo", True), ("^as.*", True), ("eu", False), ("osaka", False)]
)
def test_messages_come_through_a_peer_by_the_name_of_their_instance_or_of_its_group(
    tmp_path: Path, passthrough: str, *, comes: bool
) -> None:
    """Also where nobody between reads the definitions of that instance."""
    clock = FakeClock()
    tokyo = Site(tmp_path, "tokyo", [], clock, journal={"group": "asia"})
    chain = [Site(tmp_path, name, [peer], clock) for name, peer in (("osaka", "tokyo"), ("virginia", "osaka"))]
    frankfurt = Site(tmp_path, "frankfurt", ["virginia"], clock)
    define_pulled(frankfurt, "virginia", passthrough=[passthrough])
    tokyo.publish("a")
    chain[1].publish("b")
    for each in chain:
        # What is told of a group is read from the log by whoever comes next.
        exchange(*chain)
        each.begin()
    exchange(frankfurt)
    assert sorted(frankfurt.values().values()) == (["a", "b"] if comes else ["b"])


def test_who_stands_between_passes_on_what_messages_are_for_a_queue_that_it_does_not_share(tmp_path: Path) -> None:
    """R129: the ends of the chain know of each other by it alone."""
    clock = FakeClock()
    tokyo, osaka, virginia = chain = [
        Site(tmp_path, name, peers, clock)
        for name, peers in (("tokyo", ["osaka"]), ("osaka", ["tokyo", "virginia"]), ("virginia", ["osaka"]))
    ]
    for peer in ("tokyo", "virginia"):
        define_pulled(osaka, peer, queues=[])
    for each in (tokyo, virginia):
        define_pulled(each, "osaka", passthrough=["^.*"])
    tokyo.publish("a")
    exchange(*chain)
    assert virginia.in_state(State.REMOTE) == ["a"]
