"""The hint: written by the living, believed by nobody who must be sure (DESIGN 6)."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pytest

from spark_queue.errors import JournalError
from spark_queue.journal.store import ADVERTISEMENT_KEY
from spark_queue.protocol.discovery import Advertisement, Advertiser, read_advertisement

OWN = Advertisement(journal="j", address="grpc://127.0.0.1:1", host="h", host_name="queue-a", epoch=3, pid=1, renewed_at_ms=0)


class Objects:
    """Objects in memory, which can fail."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.failing = False

    def read(self, key: str) -> bytes | None:
        self._fail()
        return self.objects.get(key)

    def write(self, key: str, data: bytes) -> None:
        self._fail()
        self.objects[key] = data

    def delete(self, keys: Iterable[str]) -> None:
        self._fail()
        for key in keys:
            self.objects.pop(key, None)

    def _fail(self) -> None:
        if self.failing:
            raise JournalError("STORE_FAILED", path="/j", doing="it", reason="no.", next_step="")


@pytest.fixture
def store() -> Objects:
    return Objects()


def beacon(store: Objects, deposed: list[Advertisement], *, hint: Advertisement = OWN, wall_ms: int = 77) -> Advertiser:
    return Advertiser(store, hint, wall_ms=lambda: wall_ms, deposed=deposed.append)


def test_a_beacon_writes_the_hint_with_its_time_and_takes_it_away_in_the_end(store: Objects) -> None:
    shining = beacon(store, [])
    shining.start()
    assert read_advertisement(store, "j") == msgspec.structs.replace(OWN, renewed_at_ms=77)
    shining.end()
    assert store.objects == {}


def test_a_beacon_never_writes_over_a_newer_reign_and_tells(store: Objects) -> None:
    newer = msgspec.structs.replace(OWN, epoch=4)
    store.write(ADVERTISEMENT_KEY, msgspec.json.encode(newer))
    deposed: list[Advertisement] = []
    shining = beacon(store, deposed)
    shining.start()
    shining.end()
    assert deposed == [newer]
    assert read_advertisement(store, "j") == newer


def test_a_beacon_writes_over_an_older_reign(store: Objects) -> None:
    store.write(ADVERTISEMENT_KEY, msgspec.json.encode(msgspec.structs.replace(OWN, epoch=2)))
    shining = beacon(store, [])
    shining.start()
    hint = read_advertisement(store, "j")
    shining.end()
    assert hint is not None
    assert hint.epoch == 3


def test_a_store_that_fails_costs_the_hint_only(store: Objects, caplog: pytest.LogCaptureFixture) -> None:
    store.failing = True
    shining = beacon(store, [])
    shining.start()
    shining.end()
    assert ["could not be renewed" in line or "could not be removed" in line for line in caplog.messages] == [True, True]


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b'{"journal": "j"}', msgspec.json.encode(msgspec.structs.replace(OWN, journal="other"))]
)
def test_a_torn_or_foreign_hint_says_nothing(store: Objects, data: bytes) -> None:
    store.write(ADVERTISEMENT_KEY, data)
    assert read_advertisement(store, "j") is None
