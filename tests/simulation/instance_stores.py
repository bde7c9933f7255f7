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
        #: The entries of the control log that were looked at, and the last record among them; a backup brings others.
        self._looked_at: tuple[list[bytes], int, int] = ([], 0, -1)

    def create(self, key: str, data: bytes) -> bool:
        """Write an object if there is none of that name; of a commit's records, the first and the last are told."""
        versions = len(self.tables.get(CONTROL, ()))
        created = super().create(key, data)
        entries = self.entries.get(CONTROL, [])
        is_commit = len(entries) > versions
        count, last = self._looked_at[1:] if self._looked_at[0] is entries else (0, -1)
        for at, entry in enumerate(entries[count:], count):
            before, last = last, max([last, *_records_of(entry)])
            # A flush brings records again.
            if is_commit and last > before and at == len(entries) - 1:
                self._note(before + 1, last)
        self._looked_at = entries, len(entries), last
        return created


def _records_of(entry: bytes) -> list[int]:
    """Return the numbers of records that an entry holds, or the last ones of files that it adds."""
    actions = [msgspec.json.decode(line) for line in entry.splitlines()]
    held = [
        row["record"]
        for action in actions
        if "commitInfo" in action
        for row in action["commitInfo"]["sparkqueue"].get("records", ())
    ]
    return held + [msgspec.json.decode(action["add"]["stats"])["maxValues"]["record"] for action in actions if "add" in action]


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
