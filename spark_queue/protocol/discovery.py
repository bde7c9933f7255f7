"""Where a coordinator was last seen: `coordinator.json`, written and read. It never decides."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Protocol, TypeAlias

import msgspec

from spark_queue.errors import SparkQueueError
from spark_queue.journal.store import ADVERTISEMENT_KEY, Store

_LOG = logging.getLogger(__name__)

#: When planners called last, by queue and subscription, in milliseconds since 1970 UTC.
Heard: TypeAlias = Mapping[str, Mapping[str, int]]

#: How often a living coordinator renews it, in seconds.
RENEWAL_S = 5.0


class AdvertisementStore(Protocol):
    """The object operations that the advertisement needs; `spark_queue.journal.store.Store` has them."""

    def read(self, key: str) -> bytes | None:
        """Return an object, or None."""
        ...

    def write(self, key: str, data: bytes) -> None:
        """Replace an object."""
        ...

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects."""
        ...


class Advertisement(msgspec.Struct, frozen=True, kw_only=True):
    """A coordinator's claim to serve the journal: where, and when it last said so."""

    journal: str
    address: str
    #: The identity of the host; see `spark_queue.protocol.host`.
    host: str
    #: The name that people use.
    host_name: str
    epoch: int
    pid: int
    #: The coordinator's wall clock, in milliseconds since 1970 UTC.
    renewed_at_ms: int
    #: When each planner called last, by queue and subscription: one that finds nothing leaves no record. In milliseconds, too.
    heard: Heard = {}


def seen_at_ms(recorded_ms: int, heard: Heard, *, queue: str, subscription: str, now_ms: int) -> int:
    """Return when a subscription was last heard of: by a record, or by the word of its coordinator."""
    return max(recorded_ms, min(now_ms, heard.get(queue, {}).get(subscription, 0)))


def read_heard(store: AdvertisementStore, journal_id: str) -> Heard:
    """Return when planners called last, as the journal's coordinator says; empty where none says so."""
    advertisement = read_advertisement(store, journal_id)
    return {} if advertisement is None else advertisement.heard


def read_advertisement(store: AdvertisementStore, journal_id: str) -> Advertisement | None:
    """Return the journal's advertisement; None when there is none, or none that can be read."""
    data = store.read(ADVERTISEMENT_KEY)
    if data is None:
        return None
    try:
        advertisement = msgspec.json.decode(data, type=Advertisement)
    except msgspec.DecodeError:
        # A torn or foreign file says nothing, and an advertisement never decides anything.
        return None
    return advertisement if advertisement.journal == journal_id else None


def is_own_word(store: Store, address: str) -> bool:
    """Return whether this user wrote that the coordinator is at an address: on object stores that is not known."""
    if not store.is_local:
        return False
    try:
        # Owner and content are read from one open file, since the path may lead to another one at any time.
        with Path(store.uri(ADVERTISEMENT_KEY)).open("rb") as file:
            written = msgspec.json.decode(file.read(), type=Advertisement)
            return os.fstat(file.fileno()).st_uid == os.getuid() and written.address == address
    except (OSError, msgspec.DecodeError):
        return False


class Advertiser:
    """Keeps a reign's advertisement fresh from a thread of its own, so that a long commit does not look like death.

    `deposed` is called with the newer advertisement when another reign has begun.
    """

    def __init__(
        self,
        store: AdvertisementStore,
        advertisement: Advertisement,
        *,
        wall_ms: Callable[[], int],
        deposed: Callable[[Advertisement], None],
    ) -> None:
        self._store = store
        self._own = advertisement
        self._wall_ms = wall_ms
        self._deposed = deposed
        self._heard: Callable[[], Heard] = dict
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew_until_ended, name="advertiser", daemon=True)

    def know(self, heard: Callable[[], Heard]) -> None:
        """Advertise the last calls of planners from now on; `heard` is called from another thread."""
        self._heard = heard

    def start(self) -> None:
        """Write the advertisement, and renew it from now on."""
        self._renew()
        self._thread.start()

    def end(self) -> None:
        """Stop renewing, and remove the advertisement, so that the next starter need not knock at a closed door."""
        self._ended.set()
        self._thread.join()
        try:
            advertisement = read_advertisement(self._store, self._own.journal)
            if advertisement is not None and advertisement.epoch == self._own.epoch:
                self._store.delete([ADVERTISEMENT_KEY])
        except SparkQueueError as trouble:
            _LOG.warning("The advertisement could not be removed: %s", trouble)

    def _renew_until_ended(self) -> None:
        while not self._ended.wait(RENEWAL_S):
            self._renew()

    def _renew(self) -> None:
        try:
            newer = read_advertisement(self._store, self._own.journal)
            if newer is not None and newer.epoch > self._own.epoch:
                self._deposed(newer)
                return
            renewed = msgspec.structs.replace(self._own, renewed_at_ms=self._wall_ms(), heard=self._heard())
            self._store.write(ADVERTISEMENT_KEY, msgspec.json.encode(renewed))
        except SparkQueueError as trouble:
            # Callers find the address in the control log too: an advertisement that cannot be written costs them time, not truth.
            _LOG.warning("The advertisement could not be renewed: %s", trouble)
