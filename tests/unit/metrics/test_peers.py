"""What is told of peers is what `sparkq peers status` says of them (R119)."""

from __future__ import annotations

from pathlib import Path

from spark_queue import Journal
from spark_queue.metrics import exposition
from spark_queue.metrics.figures import figures_of, peer_figures
from spark_queue.metrics.prometheus import render
from spark_queue.metrics.samples import Observation, collect
from spark_queue.protocol import wire
from tests.fake_clock import FakeClock
from tests.instances import Consumer, Instance, exchange
from tests.unit.metrics.exposed import value
from tests.unit.replication.sites import Site, definitions, three_sites


def test_figures_of_peers_equal_their_status(tmp_path: Path) -> None:
    """R119: owned, remote and transferred, by queue and by peer."""
    sites = three_sites(tmp_path, FakeClock())
    here, there = sites["tokyo"], sites["virginia"]
    assert here.pull("virginia", there.path) is None
    for site in (here, there):
        journal = Journal(str(site.path))
        text = exposition([journal])
        status = journal.queue("WORK").status()
        for metric, figure in (
            ("owned_messages", status.owned), ("remote_messages", status.remote),
            ("transferred_in_messages_total", status.transferred_in), ("transferred_out_messages_total", status.transferred_out),
        ):  # fmt: skip
            assert value(text, f"sparkqueue_{metric}", queue="WORK") == figure
        for peer in journal.peer_status():
            told = {
                name: value(text, f"sparkqueue_peer_{metric}", peer=peer.peer)
                for name, metric in (
                    ("remote", "remote_messages"), ("requested", "requested_messages"),
                    ("transferred_in", "transferred_in_messages_total"), ("transferred_out", "transferred_out_messages_total"),
                )
            }  # fmt: skip
            assert told == {name: getattr(peer, name) for name in told}
            assert value(text, "sparkqueue_peer_disagreements", peer=peer.peer) == len(peer.disagreements)
            # Its definitions name a place where nothing is.
            assert value(text, "sparkqueue_peer_readable", peer=peer.peer) == 0
            assert value(text, "sparkqueue_peer_behind_records", peer=peer.peer) is None
            # Nobody runs who could tell.
            assert value(text, "sparkqueue_peer_reachable", peer=peer.peer) is None
    came = value(exposition([Journal(str(here.path))]), "sparkqueue_peer_transferred_in_messages_total", peer="virginia")
    assert (came or 0) > 0


def test_lag_is_that_of_the_status(tmp_path: Path) -> None:
    for name, other in (("frankfurt", "virginia"), ("virginia", "frankfurt")):
        peer = {"journal": str(tmp_path / other), "topics": ["T"], "queues": ["WORK"]}
        message_types, queues = {"json": {"topics": ["T"]}}, {"WORK": {"underlying_topic": "T"}}
        definitions = {"journal": {"instance": name}, "peers": {other: peer}, "message_types": message_types, "queues": queues}
        Journal.create(str(tmp_path / name), definitions)
    journal = Journal(str(tmp_path / "frankfurt"))
    [status] = journal.peer_status()
    text = exposition([journal])
    assert value(text, "sparkqueue_peer_readable", peer="virginia") == 1
    assert value(text, "sparkqueue_peer_behind_records", peer="virginia") == status.records_behind == 2
    assert (value(text, "sparkqueue_peer_behind_seconds", peer="virginia") or -1) >= (status.seconds_behind or 0)


def test_what_only_a_coordinator_knows_is_told_by_it(tmp_path: Path) -> None:
    site = Site(tmp_path / "frankfurt", FakeClock(), definitions("frankfurt"))
    quiet = wire.PeerTold(silent_ms=31_000, rows_copied=7, bytes_copied=900, trouble="[PEER_REFUSED] …")
    heard = wire.PeerTold(silent_ms=200, rows_copied=0, bytes_copied=0, trouble=None)
    told = {"virginia": quiet, "tokyo": heard}
    found = figures_of(site.state, lambda queue: Journal(str(site.path)).queue(queue).status(), now_ms=0, told=told)
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
    here, there = Instance("frankfurt", ["virginia"], clock), Instance("virginia", ["frankfurt"], clock)
    there.publish(3)
    exchange(here, there)
    consumer = Consumer(here)
    assert consumer.take(limit=1) == []
    clock.advance(20_000)
    assert consumer.take(limit=1) == []
    assert peer_figures(here.world.state, "virginia", now_ms=clock.wall_ms()).requested == 1
