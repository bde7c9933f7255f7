"""The threads beside the loop: who lives, and who is pulled (REPLICATION 1, 3, 6)."""

from __future__ import annotations

from pathlib import Path

from spark_queue.journal.layout import BEACON_KEY, Store
from spark_queue.replication.beacon import BeaconThread, read_beacon
from tests.fake_clock import FakeClock


def renewed(store: Store, clock: FakeClock) -> int:
    """Return the number of the first beacon of a reign."""
    told: list[BeaconThread] = []

    def seen() -> dict[str, int]:
        told[0].end()
        return {}

    told.append(BeaconThread(store, "frankfurt", seen, clock))
    told[0].start()
    told[0].join()
    beacon = read_beacon(store)
    assert beacon is not None
    return beacon.number


def test_a_beacon_rises_also_where_the_last_one_was_lost(tmp_path: Path) -> None:
    store, clock = Store(str(tmp_path)), FakeClock()
    first = renewed(store, clock)
    second = renewed(store, clock)
    clock.advance(5_000)
    store.delete([BEACON_KEY])
    assert first < second < renewed(store, clock)
