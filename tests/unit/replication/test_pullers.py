"""The threads beside the loop: who lives, and who is pulled (DESIGN 17.1, 17.3, 17.6)."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from spark_queue.core.definitions import parsing
from spark_queue.core.definitions.definition import Definitions
from spark_queue.journal.layout import Store
from spark_queue.replication import puller
from spark_queue.replication.beacon import BEACON_KEY, BeaconThread, read_beacon
from spark_queue.replication.exchange import Look, Pull, PullState
from spark_queue.replication.pullers import Pullers
from tests.fake_clock import FakeClock


def definitions(path: Path) -> Definitions:
    peers = {"virginia": {"journal": str(path), "topics": ["T"], "pull_interval": "1ms"}}
    return parsing.parse({"journal": {"instance": "frankfurt"}, "peers": peers, "message_types": {"json": {"topics": ["T"]}}})


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


@pytest.mark.parametrize(
    "text",
    [b"{", b"[" * 50_000, b"x" * 1_000_000, b'{"instance": "../x", "number": 1}', b'{"instance": "virginia", "number": 1e30}',
     b'{"instance": "virginia", "number": 1, "seen": {"tokyo": 99999999999999999999}}', b'{"instance": "virginia", "number": -1}'],
)  # fmt: skip
def test_a_beacon_that_nobody_of_ours_writes_is_none(tmp_path: Path, text: bytes) -> None:
    store = Store(str(tmp_path))
    store.write(BEACON_KEY, text)
    assert read_beacon(store) is None


def test_a_puller_goes_on_after_whatever_went_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = threading.Semaphore(0)

    class Broken:
        def __init__(self, *_: object, **__: object) -> None:
            made.release()

        def step(self) -> bool:
            raise KeyError("virginia")

    def ask(request: Look | Pull) -> PullState | bool:
        raise AssertionError(f"nothing is asked: {request}")

    monkeypatch.setattr(puller, "Puller", Broken)
    running = Pullers(Store(str(tmp_path)), ask, FakeClock())
    running.keep(definitions(tmp_path / "virginia"))
    try:
        assert made.acquire(timeout=10)
        assert made.acquire(timeout=10), "it is made anew"
    finally:
        running.keep(parsing.parse({}))
