"""`beacon.json`: that the coordinator of an instance lives. A hint, never authority (DESIGN 17.6)."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import Counter
from collections.abc import Callable, Collection

import msgspec

from spark_queue.core.deciding.instances.liveness import GAP_MS
from spark_queue.core.definitions.keys import BEACON_PERIOD_MS
from spark_queue.core.records import Name, Number
from spark_queue.errors import SparkQueueError
from spark_queue.journal.store import Store, TooLargeError
from spark_queue.ports import Clock
from spark_queue.replication.peer_files import check_place

_LOG = logging.getLogger(__name__)

#: Where it lies in a journal.
BEACON_KEY = "beacon.json"

#: How often a beacon is renewed, and looked at, in seconds.
RENEWAL_S = BEACON_PERIOD_MS / 1_000

#: A beacon that is larger than this is none, in bytes.
_SIZE_MAX = 100_000

#: Most instances that the own beacon tells of; names have up to 249 bytes.
_SEEN_MAX = 300


class Beacon(msgspec.Struct, frozen=True, kw_only=True):
    """That an instance lives, and the newest numbers that it has seen of others."""

    instance: Name
    #: Rises with each renewal, whoever reigns.
    number: Number
    seen: dict[Name, Number] = {}


def read_beacon(store: Store) -> Beacon | None:
    """Return the beacon of the instance in a store; None where there is none that can be read."""
    with contextlib.suppress(SparkQueueError, TooLargeError, msgspec.DecodeError, RecursionError):
        check_place(store, store.path, BEACON_KEY)
        data = store.read(BEACON_KEY, most_bytes=_SIZE_MAX)
        if data is not None:
            return msgspec.json.decode(data, type=Beacon)
    return None


class Hearing:
    """Signs of life of instances: by their own beacons, and by those of peers that have seen them.

    Whoever writes to a peer's journal may claim to have seen anything. So a number rises above what the same peer said before, and
    is news only where it is above what the instance says itself: nobody can make another one seem silent.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: The newest number of each instance, by the peer that tells it.
        self._said: dict[tuple[str, str], int] = {}
        #: What may be told of each instance, and how often its number rose.
        self._newest: dict[str, int] = {}
        self._rises: Counter[str] = Counter()
        #: The newest number of this instance that each peer says to have seen.
        self._seen_own: dict[str, int] = {}
        #: Peers of which it was told that they speak of instances that nobody knows.
        self._with_strangers: set[str] = set()

    def hear(self, beacon: Beacon, *, own: str, own_number: int | None, known: Collection[str]) -> str | None:
        """Take what a peer's beacon says of itself and of others that are known; returns what in it cannot be.

        Known are the instances that anything else tells of; the own number is None before the first.
        """
        strangers = set(beacon.seen).difference(known, (own, beacon.instance))
        others = {name: number for name, number in beacon.seen.items() if name not in {*strangers, own, beacon.instance}}
        with self._lock:
            for instance, number in {**others, beacon.instance: beacon.number}.items():
                self._note(beacon.instance, instance, number)
        if strangers and beacon.instance not in self._with_strangers:
            # At the far end of a chain may be one that has nothing to say yet.
            _LOG.warning("Peer '%s' has seen instance '%s', which is unknown otherwise.", beacon.instance, min(strangers))
            self._with_strangers.add(beacon.instance)
        claimed = beacon.seen.get(own, 0)
        self._seen_own[beacon.instance] = claimed
        if own_number is None or claimed <= own_number:
            return None
        return f"it has seen number {claimed} of this instance, which is at {own_number}."

    def _note(self, peer: str, instance: str, number: int) -> None:
        before, of_itself = self._said.get((peer, instance), -1), self._said.get((instance, instance), -1)
        self._said[peer, instance] = max(number, before)
        if number > before and (peer == instance or number > of_itself):
            self._newest[instance] = number
            self._rises[instance] += 1

    def rises(self) -> dict[str, int]:
        """Return how often the beacon of each instance rose that was heard of, by name."""
        with self._lock:
            return dict(self._rises)

    def seen_own(self) -> dict[str, int]:
        """Return the number of this instance that each peer said last to have seen, by its name."""
        return dict(self._seen_own)

    def newest(self) -> dict[str, int]:
        """Return the newest numbers, for the own beacon: of peers first, and of no more instances than it has room for."""
        with self._lock:
            by_nearness = sorted(self._newest.items(), key=lambda each: (each[0], each[0]) not in self._said)
            return dict(by_nearness[:_SEEN_MAX])


class BeaconThread(threading.Thread):
    """Renews the beacon of an instance until it is told to end.

    Each gap of two of its periods or more joins `gaps`, in milliseconds; None where nobody knows how long it was.
    """

    def __init__(
        self, store: Store, instance: str, seen: Callable[[], dict[str, int]], clock: Clock, gaps: list[int | None]
    ) -> None:
        super().__init__(name="beacon", daemon=True)
        self._store = store
        self._instance = instance
        self._seen = seen
        self._clock = clock
        self._told_to_end = threading.Event()
        #: The newest number that somebody may have seen; None before the first.
        self.number: int | None = None
        self._gaps = gaps
        #: How long it had not been written before the first time, in milliseconds; None where nobody knows.
        self._first_gap_ms: int | None = None
        #: When it began to be written the last time that it was, by both clocks.
        self._written_ms: tuple[int, int] | None = None

    def age_ms(self) -> int | None:
        """Return how long ago it was written, also by the clock that goes on while this host sleeps; None before the first time."""
        written_ms = self._written_ms
        return None if written_ms is None else max(now - then for now, then in zip(self._now_ms(), written_ms, strict=True))

    def _now_ms(self) -> tuple[int, int]:
        return self._clock.monotonic_ms(), self._clock.wall_ms()

    def end(self) -> None:
        """Let it end."""
        self._told_to_end.set()

    def run(self) -> None:
        """Renew, wait, and renew again."""
        while not self._told_to_end.is_set():
            self.renew()
            self._told_to_end.wait(RENEWAL_S)

    def renew(self) -> None:
        """Write it with a number above all earlier ones; peers find the instance silent while that fails, and so it is."""
        if self.number is None:
            known = read_beacon(self._store)
            self.number = 0 if known is None else known.number
            # Numbers are seconds, unless a clock was put back.
            self._first_gap_ms = None if known is None else abs(self._clock.wall_ms() - 1_000 * self.number)
        # As seconds it is above them also where the last beacon was lost, or could not be read just now.
        self.number = max(self.number + 1, self._clock.wall_ms() // 1_000)
        beacon, began_ms = Beacon(instance=self._instance, number=self.number, seen=self._seen()), self._now_ms()
        with contextlib.suppress(SparkQueueError):
            self._store.write(BEACON_KEY, msgspec.json.encode(beacon))
            gap_ms = self._first_gap_ms if self._written_ms is None else self.age_ms()
            if gap_ms is None or gap_ms >= GAP_MS:
                self._gaps.append(gap_ms)
            # Whoever sees that it is written sees how long it was not.
            self._written_ms = began_ms
