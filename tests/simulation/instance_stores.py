"""The stores of simulated instances: what becomes durable is told, and others may see it late."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from spark_queue.journal.store import CONTROL
from tests.simulation.bucket import ENTRY, Bucket, SimulatedStore, StoreHook


class InstanceBucket(Bucket):
    """A bucket that tells in which moment a commit of the control log became durable."""

    def __init__(self, now_ms: Callable[[], int], path: str, note: Callable[[int, int], None]) -> None:
        super().__init__(now_ms)
        self.path = path
        self._note = note

    def create(self, key: str, data: bytes) -> bool:
        """Write an object if there is none of that name; of a commit's records, the first and the last are told."""
        versions = len(self.tables.get(CONTROL, ()))
        created = super().create(key, data)
        entry = ENTRY.fullmatch(key)
        if entry is not None and entry[1] == CONTROL and len(self.tables[CONTROL]) > versions:
            adds = [action["add"] for action in map(msgspec.json.decode, data.splitlines()) if "add" in action]
            stats = [msgspec.json.decode(add["stats"]) for add in adds if add["dataChange"]]
            if stats:
                self._note(min(each["minValues"]["record"] for each in stats), max(each["maxValues"]["record"] for each in stats))
        return created


class DistantStore(SimulatedStore):
    """A process's way to the bucket of another instance, by which the newest entry of a log may be seen late."""

    def __init__(self, bucket: Bucket, process: str, hook: StoreHook, *, comes_late: Callable[[], bool]) -> None:
        super().__init__(bucket, process, hook)
        object.__setattr__(self, "comes_late", comes_late)

    comes_late: Callable[[], bool]

    def read(self, key: str, *, most_bytes: int | None = None) -> bytes | None:
        """Return an object's bytes, or None when there is none, or none yet."""
        data, entry = super().read(key, most_bytes=most_bytes), ENTRY.fullmatch(key)
        is_newest = entry is not None and int(entry[2]) == len(self.bucket.tables.get(entry[1], ())) - 1
        return None if is_newest and self.comes_late() else data
