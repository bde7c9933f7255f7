"""A bucket that is a directory of a disk: after a power loss, what was not forced to the disk may be gone or torn."""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from spark_queue.journal.damage import is_whole_checkpoint
from tests.simulation.bucket import ENTRY, Bucket, TableState

#: Bytes and time of the last write.
Written = tuple[bytes, int]


@dataclass(slots=True)
class _Loose:
    """An object of which the disk need not hold what readers see."""

    #: What it held before; None for nothing.
    before: Written | None
    #: Whether the bytes, and the name in its directory, were forced to the disk.
    is_forced: bool = False
    is_named: bool = False


class Disk(Bucket):
    """What stays when processes end, and what stays when the power does."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        super().__init__(now_ms)
        self._loose: dict[str, _Loose] = {}
        #: Log entries that were cleaned away once: what stands there now is none of the log.
        self._cleaned: set[str] = set()
        #: Tables that have an entry which cannot be read, or lack one before their last.
        self._damaged: set[str] = set()

    def put(self, key: str, data: bytes) -> None:
        """Write an object; an entry that is written again changes its table."""
        self._loosen(key)
        is_again = key in self.objects
        super().put(key, data)
        entry = ENTRY.fullmatch(key)
        if is_again and entry is not None:
            self._read_again(entry[1])

    def remove(self, key: str) -> None:
        """Delete an object, which may be back after a power loss."""
        if key in self.objects:
            self._loosen(key)
            self._cleaned.add(key)
            super().remove(key)

    def sync(self, key: str) -> None:
        """Force an object and the names in its directory to the disk."""
        if key not in self.objects:
            raise FileNotFoundError(key)
        if key in self._loose:
            self._loose[key].is_forced = True
        folder = key.rpartition("/")[0]
        for name, loose in list(self._loose.items()):
            if name.rpartition("/")[0] == folder:
                loose.is_named = True
                if loose.is_forced or name not in self.objects:
                    del self._loose[name]

    def sync_all(self) -> None:
        """Force everything to the disk."""
        self._loose.clear()

    def lose_power(self, chance: random.Random) -> None:
        """Let the disk come back with what it holds for sure, and with some of the rest."""
        self.late.clear()
        for key, loose in sorted(self._loose.items()):
            found = chance.choice(list(self._outcomes(key, loose)))
            if found is None:
                self.objects.pop(key, None)
            else:
                self.objects[key] = found
        self._loose.clear()
        for table in self.tables:
            self._read_again(table)

    def is_readable(self, table: str) -> bool:
        """Return whether a reader who comes now finds what it needs; a torn checkpoint, or a hint at a lost one, is refused."""
        folder, head = f"{table}/_delta_log", len(self.tables[table]) - 1
        checkpoints = sorted(key for key in self.objects if key.startswith(folder) and key.endswith(".checkpoint.parquet"))
        newest = checkpoints[-1] if checkpoints else ""
        if table in self._damaged or (newest and not is_whole_checkpoint(self.objects[newest][0])):
            return False
        hinted = _version(self.objects.get(f"{folder}/_last_checkpoint"))
        if hinted is not None and self._checkpoint(table, hinted) not in self.objects:
            return False
        return newest <= self._checkpoint(table, head) and super().is_readable(table)

    def checkpoint(self, table: str, version: int, size: int) -> None:
        """Write a checkpoint that can be told from a torn one."""
        super().checkpoint(table, version, size)
        self.put(self._checkpoint(table, version), CHECKPOINT)

    def _loosen(self, key: str) -> None:
        loose = self._loose.setdefault(key, _Loose(self.objects.get(key)))
        loose.is_forced = loose.is_named = False

    def _outcomes(self, key: str, loose: _Loose) -> Iterable[Written | None]:
        """Yield what the disk may hold of an object."""
        found = self.objects.get(key)
        if found is None or not loose.is_named:
            yield loose.before
        yield found
        if found is not None and not loose.is_forced:
            data, at_ms = found
            yield from ((b"", at_ms), (data[: len(data) // 2], at_ms), (data[: data.find(b"\n") + 1], at_ms), found)

    def _read_again(self, table: str) -> None:
        """Find out what a table's log amounts to by what stands there."""
        entries, states = list[bytes](), list[TableState]()
        keys = [f"{table}/_delta_log/{version:020d}.json" for version in range(len(self.entries[table]))]
        for key, was in zip(keys, self.entries[table], strict=True):
            if key not in self.objects and key not in self._cleaned:
                break
            entries.append(was if key in self._cleaned else self.objects[key][0])
        self._damaged.discard(table)
        if any(key in self.objects for key in keys[len(entries) :]):
            self._damaged.add(table)
        try:
            for entry in entries:
                states.append((states[-1] if states else TableState(-1)).after(entry))
        except msgspec.DecodeError:
            self._damaged.add(table)
        self.entries[table], self.tables[table] = entries, states


def _written() -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"metaData": ["whole"]}), sink)
    return sink.getvalue()


#: What a whole checkpoint holds.
CHECKPOINT = _written()


def _version(hint: Written | None) -> int | None:
    try:
        return None if hint is None else int(msgspec.json.decode(hint[0])["version"])
    except msgspec.DecodeError:
        return None
