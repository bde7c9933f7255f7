"""`beacon.json`: that the coordinator of an instance lives. A hint, never authority (DESIGN 17.1, 17.6)."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

import msgspec

from spark_queue.errors import SparkQueueError
from spark_queue.journal.layout import Store, TooLargeError
from spark_queue.ports import Clock
from spark_queue.replication.record_forms import Name, Number

#: Where it lies in a journal.
BEACON_KEY = "beacon.json"

#: How often a coordinator of an instance renews its beacon, and how often it looks at those of its peers, in seconds.
RENEWAL_S = 5.0

#: A beacon that is larger than this is none, in bytes.
_SIZE_MAX = 100_000


class Beacon(msgspec.Struct, frozen=True, kw_only=True):
    """That an instance lives, and the newest numbers that it has seen of others."""

    instance: Name
    #: Rises with each renewal, whoever reigns.
    number: Number
    seen: dict[Name, Number] = {}


def read_beacon(store: Store) -> Beacon | None:
    """Return the beacon of the instance in a store; None where there is none that can be read."""
    with contextlib.suppress(SparkQueueError, TooLargeError, msgspec.DecodeError, RecursionError):
        data = store.read(BEACON_KEY, most_bytes=_SIZE_MAX)
        if data is not None:
            return msgspec.json.decode(data, type=Beacon)
    return None


class BeaconThread(threading.Thread):
    """Renews the beacon of an instance until it is told to end.

    Parameters
    ----------
    seen : callable
        Returns the newest numbers of other instances.
    """

    def __init__(self, store: Store, instance: str, seen: Callable[[], dict[str, int]], clock: Clock) -> None:
        super().__init__(name="beacon", daemon=True)
        self._store = store
        self._instance = instance
        self._seen = seen
        self._clock = clock
        self._told_to_end = threading.Event()

    def end(self) -> None:
        """Let it end."""
        self._told_to_end.set()

    def run(self) -> None:
        """Renew, wait, and renew again."""
        known = read_beacon(self._store)
        number = 0 if known is None else known.number
        while not self._told_to_end.is_set():
            # As seconds it is above all earlier numbers, also where the last beacon was lost, or could not be read just now.
            number = max(number + 1, self._clock.wall_ms() // 1_000)
            beacon = Beacon(instance=self._instance, number=number, seen=self._seen())
            # Peers find the instance silent while its store cannot be written, and so it is.
            with contextlib.suppress(SparkQueueError):
                self._store.write(BEACON_KEY, msgspec.json.encode(beacon))
            self._told_to_end.wait(RENEWAL_S)
