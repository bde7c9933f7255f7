"""An object store in memory, each of whose calls is a step at which anything may happen, and a process's way to it."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pyarrow as pa

from spark_queue.journal.entry_parts import COORDINATOR_TXN
from spark_queue.journal.store import CONTROL, MESSAGES, Store, StoredObject, TooLargeError

#: Called with a step's name and "before" or "after"; may raise OSError, or end the process.
StoreHook = Callable[[str, str], None]

#: The place of a simulated journal; the scheme keeps the product away from the disk.
PATH = "sim://journal"

#: The key of a log entry: its table and its version.
ENTRY = re.compile(r"(.+)/_delta_log/(\d{20})\.json")


class LateCreateError(OSError):
    """Raised before a log entry is created: the caller hears of a failure, and the entry arrives later, if it still can."""


@dataclass(frozen=True, slots=True)
class TableState:
    """What a Delta reader finds in a table at one version."""

    version: int
    #: What the table is, as Delta's log has it.
    metadata: dict[str, Any] = field(default_factory=dict)
    protocol: dict[str, Any] = field(default_factory=dict)
    #: Add actions by path.
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    transactions: dict[str, int] = field(default_factory=dict)

    def after(self, entry: bytes) -> TableState:
        """Return the table after one more entry."""
        metadata, protocol = self.metadata, self.protocol
        files, transactions = dict(self.files), dict(self.transactions)
        for action in map(msgspec.json.decode, entry.splitlines()):
            if "add" in action:
                files[action["add"]["path"]] = action["add"]
            elif "remove" in action:
                files.pop(action["remove"]["path"], None)
            elif "txn" in action:
                transactions[action["txn"]["appId"]] = action["txn"]["version"]
            else:
                metadata, protocol = action.get("metaData", metadata), action.get("protocol", protocol)
        return TableState(self.version + 1, metadata, protocol, files, transactions)


class Bucket:
    """What stays when processes end: objects, and what the logs among them amount to."""

    #: Where its journal is.
    path = PATH

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.now_ms = now_ms
        #: Bytes and time of the last write.
        self.objects: dict[str, tuple[bytes, int]] = {}
        #: Entries on their way, oldest first.
        self.late: list[tuple[str, bytes]] = []
        #: Each version of each table, oldest first; an entry at a name that cleaning has freed is in none.
        self.tables: dict[str, list[TableState]] = {}
        #: The entries that made them, whether they still stand there or not, and every message file that ever was.
        self.entries: dict[str, list[bytes]] = {}
        self.files: dict[str, bytes] = {}

    @property
    def epoch(self) -> int:
        """The epoch of the control log's head."""
        return self.tables[CONTROL][-1].transactions.get(COORDINATOR_TXN, 0)

    def put(self, key: str, data: bytes) -> None:
        """Write an object."""
        self.objects[key] = (data, self.now_ms())
        if key.endswith(".parquet") and key.startswith(f"{MESSAGES}/"):
            self.files[key] = data

    def create(self, key: str, data: bytes) -> bool:
        """Write an object if there is none of that name; an entry that follows a table's head is its new head."""
        if key in self.objects:
            return False
        self.put(key, data)
        entry = ENTRY.fullmatch(key)
        if entry is not None:
            states = self.tables.setdefault(entry[1], [])
            if int(entry[2]) == len(states):
                states.append((states[-1] if states else TableState(-1)).after(data))
                self.entries.setdefault(entry[1], []).append(data)
        return True

    def remove(self, key: str) -> None:
        """Delete an object, if there is one."""
        self.objects.pop(key, None)

    def sync(self, key: str) -> None:
        """Do nothing, as object stores do."""

    def sync_all(self) -> None:
        """Do nothing, as object stores do."""

    def land(self) -> None:
        """Let an entry arrive that was on its way."""
        self.create(*self.late.pop(0))

    def is_readable(self, table: str) -> bool:
        """Return whether a reader who comes now finds what it needs: a checkpoint, or the beginning, and every entry since."""
        for version in reversed(range(len(self.tables[table]))):
            if self._checkpoint(table, version) in self.objects:
                return True
            if f"{table}/_delta_log/{version:020d}.json" not in self.objects:
                return False
        return True

    def checkpoint(self, table: str, version: int, size: int) -> None:
        """Write a checkpoint and the hint at it."""
        self.put(self._checkpoint(table, version), b"")
        self.put(f"{table}/_delta_log/_last_checkpoint", msgspec.json.encode({"version": version, "size": size}))

    def _checkpoint(self, table: str, version: int) -> str:
        return f"{table}/_delta_log/{version:020d}.checkpoint.parquet"


class SimulatedStore(Store):
    """A process's way to a bucket.

    Parameters
    ----------
    process : str
        Names it in the storage options, by which tables find the way.
    """

    def __init__(self, bucket: Bucket, process: str, hook: StoreHook) -> None:
        super().__init__(bucket.path, {"process": process})
        object.__setattr__(self, "bucket", bucket)
        object.__setattr__(self, "hook", hook)

    bucket: Bucket
    hook: StoreHook

    @contextmanager
    def step(self, doing: str) -> Iterator[None]:
        """Take one step, whose failures are the store's."""
        with self.failures(doing):
            self.hook(doing, "before")
            yield
            self.hook(doing, "after")

    def read(self, key: str, *, most_bytes: int | None = None) -> bytes | None:
        with self.step(f"reading {key}"):
            found = self.bucket.objects.get(key)
        if found is not None and most_bytes is not None and len(found[0]) > most_bytes:
            raise TooLargeError(key)
        return None if found is None else found[0]

    def has(self, key: str) -> bool:
        with self.step(f"looking for {key}"):
            return key in self.bucket.objects

    def write(self, key: str, data: bytes) -> None:
        with self.step(f"writing {key}"):
            self.bucket.put(key, data)

    def create(self, key: str, data: bytes) -> bool:
        with self.failures(f"creating {key}"):
            try:
                self.hook(f"creating {key}", "before")
            except LateCreateError:
                self.bucket.late.append((key, data))
                raise
            created = self.bucket.create(key, data)
            self.hook(f"creating {key}", "after")
        return created

    def folders(self, prefix: str) -> Sequence[str]:
        with self.step(f"listing {prefix}"):
            inside = (key[len(prefix) + 1 :] for key in self.bucket.objects if key.startswith(f"{prefix}/"))
            return sorted({f"{prefix}/{key.partition('/')[0]}" for key in inside if "/" in key})

    def list(self, prefix: str, *, after: str | None = None) -> list[StoredObject]:
        folder = f"{prefix}/" if prefix else ""
        with self.step(f"listing {prefix}"):
            found = sorted(key for key in self.bucket.objects if key.startswith(folder) and (after is None or key > after))
            written = [(key, *self.bucket.objects[key]) for key in found]
            return [StoredObject(key=key, size_bytes=len(data), modified_ms=at_ms) for key, data, at_ms in written]

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            with self.step(f"deleting {key}"):
                self.bucket.remove(key)

    def sync(self, keys: Iterable[str], *, ancestors: bool = False) -> None:
        for key in keys:
            with self.step(f"syncing {key}"):
                self.bucket.sync(key)

    def sync_all(self) -> None:
        with self.step("syncing the journal"):
            self.bucket.sync_all()

    def open(self, key: str) -> Any:
        self.hook(f"opening {key}", "before")
        if key not in self.bucket.objects:
            raise FileNotFoundError(key)
        return pa.BufferReader(self.bucket.objects[key][0])

    @contextmanager
    def writer(self, key: str) -> Iterator[io.RawIOBase]:
        sink = _Sink()
        yield sink
        self.write(key, sink.getvalue())


class _Sink(io.BytesIO, io.RawIOBase):
    """Bytes on their way to an object."""
