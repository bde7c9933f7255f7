"""What is told of peers is what `sparkq peers status` says of them (R119)."""

from __future__ import annotations

from pathlib import Path

from spark_queue.metrics import exposition
from spark_queue.metrics.figures import figures_of, peer_figures
from spark_queue.metrics.prometheus import render
from spark_queue.metrics.samples import Observation, collect
from spark_queue.protocol import wire
from tests.fake_clock import FakeClock
from tests.scenario.instances import Consumer, exchange, two_instances
from tests.unit.cli.test_peers import site
from tests.unit.metrics.exposed import value
from tests.unit.replication.sites import Site, definitions, three_sites

#: By what is said in a status.
METRICS = {
    "owned": "owned_messages", "remote": "remote_messages", "requested": "requested_messages",
    "transferred_in": "transferred_in_messages_total", "transferred_out": "transferred_out_messages_total",
}  # fmt: skip


def test_figures_of_peers_equal_their_status(tmp_path: Path) -> None:
    """R119: owned, remote and transferred, by queue and by peer."""
    sites = three_sites(tmp_path, FakeClock())
    here, there = sites["tokyo"], sites["virginia"]
    assert here.pull("virginia", there.path) is None
    for each in (here, there):
        text, status = exposition([each.journal]), each.journal.queue("WORK").status()
        for figure in ("owned", "remote", "transferred_in", "transferred_out"):
            assert value(text, f"sparkqueue_{METRICS[figure]}", queue="WORK") == getattr(status, figure)
        for peer in each.journal.peer_status():
            for figure in ("remote", "requested", "transferred_in", "transferred_out"):
                assert value(text, f"sparkqueue_peer_{METRICS[figure]}", peer=peer.peer) == getattr(peer, figure)
            assert value(text, "sparkqueue_peer_disagreements", peer=peer.peer) == len(peer.disagreements)
            # Its definitions name a place where nothing is, and nobody runs who could tell.
            others = [
                value(text, f"sparkqueue_peer_{name}", peer=peer.peer) for name in ("readable", "behind_records", "reachable")
            ]
            assert others == [0, None, None]
    came = value(exposition([here.journal]), "sparkqueue_peer_transferred_in_messages_total", peer="virginia")
    assert (came or 0) > 0


def test_lag_is_that_of_the_status(tmp_path: Path) -> None:
    journal = site(tmp_path, "frankfurt", "virginia")
    site(tmp_path, "virginia", "frankfurt")
    [status] = journal.peer_status()
    text = exposition([journal])
    assert value(text, "sparkqueue_peer_readable", peer="virginia") == 1
    assert value(text, "sparkqueue_peer_behind_records", peer="virginia") == status.records_behind == 2
    assert (value(text, "sparkqueue_peer_behind_seconds", peer="virginia") or -1) >= (status.seconds_behind or 0)


def test_what_only_a_coordinator_knows_is_told_by_it(tmp_path: Path) -> None:
    here = Site(tmp_path / "frankfurt", FakeClock(), definitions("frankfurt"))
    quiet = wire.PeerTold(silent_ms=31_000, rows_copied=7, bytes_copied=900, trouble="[PEER_REFUSED] …")
    heard = wire.PeerTold(silent_ms=200, rows_copied=0, bytes_copied=0, trouble=None)
    told = {"virginia": quiet, "tokyo": heard}
    found = figures_of(here.state, lambda queue: here.journal.queue(queue).status(), now_ms=0, told=told)
    text = render(collect([Observation(journal="j", observed_at_ms=0, figures=found)]))
    figures = {
        name: [value(text, f"sparkqueue_peer_{name}", peer=peer) for peer in ("virginia", "tokyo")]
        for name in ("reachable", "silent_seconds", "trouble", "copied_messages_total", "copied_bytes_total")
    }
    assert figures == {
        "reachable": [0, 1], "silent_seconds": [31, 0.2], "trouble": [1, 0], "copied_messages_total": [7, 0],
        "copied_bytes_total": [900, 0],
    }  # fmt: skip


def test_a_peer_was_asked_for_as_many_as_are_wanted() -> None:
    """A request names all that waited, and says how many of them are wanted (DESIGN 17.5)."""
    clock = FakeClock()
    here, there = two_instances(clock)
    there.publish(3)
    exchange(here, there)
    consumer = Consumer(here)
    assert consumer.take(limit=1) == []
    clock.advance(20_000)
    assert consumer.take(limit=1) == []
    assert peer_figures(here.world.state, "virginia", now_ms=clock.wall_ms()).requested == 1
