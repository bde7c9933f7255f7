"""A Delta table in a bucket, and whoever writes it: they append, compact, delete, restore and vacuum, and make it anew.

Entries are written here as Spark and delta-rs write them, so that names, times and order come from a world's seed.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from spark_queue.journal.store import log_key
from tests.simulation.bucket import Bucket

#: Where the table is in its bucket.
TABLE = "orders"

#: How long it keeps a removed file, in milliseconds.
RETENTION_MS = 9 * 3_600_000

_SCHEMA = {
    "type": "struct",
    "fields": [{"name": name, "type": "long", "nullable": True, "metadata": {}} for name in ("n", "b")],
}


class WrittenTable:
    """One table, and all that it ever held.

    Attributes
    ----------
    contents : Mapping of str to list of int
        The ids of the rows of each file that ever was, by path; an id is appended once.
    appended : list of list of int
        The ids that each commit appended since the table is followed, oldest first; since it was made anew in `appended_anew`.
    removed : Mapping of str to int
        The files that it has no more and that VACUUM has not deleted yet, and when each was removed, in milliseconds.
    excused : set of int
        The ids of rows whose files went before anybody was to have copied them.
    """

    def __init__(self, bucket: Bucket, draw: random.Random, *, counts_all: bool) -> None:
        self._bucket, self._random = bucket, draw
        #: Whether each file has statistics: without them its rows are counted in it, so it must stand until it was read.
        self._counts_all = counts_all
        self.contents: dict[str, list[int]] = {}
        self.appended: list[list[int]] = []
        self.appended_anew: list[list[int]] = []
        self.removed: dict[str, int] = {}
        self.excused: set[int] = set()
        self.is_anew = False
        self._ids = 0
        self._make()
        # Those that it had before it was followed never enter.
        self.append()
        self.appended.clear()

    def append(self) -> None:
        """Append some files."""
        added = [self._written(self._new_ids()) for _ in range(self._random.randint(1, 3))]
        (self.appended_anew if self.is_anew else self.appended).append([each for path in added for each in self.contents[path]])
        self._commit("WRITE", [self._add(path) for path in added])

    def optimize(self) -> None:
        """Merge some files into one, whose rows are old."""
        paths = self._some(2)
        if len(paths) > 1:
            merged = self._written([each for path in paths for each in self.contents[path]])
            self._commit("OPTIMIZE", [self._add(merged, data_change=False)], paths, data_change=False)

    def delete(self) -> None:
        """Delete a row, which rewrites its file without it; or all rows of one."""
        for path in self._some(1):
            left = self.contents[path][1:]
            self._commit("DELETE", [self._add(self._written(left))] if left else [], [path])

    def restore(self) -> None:
        """Put back a file that was removed and still stands, without the files that it became."""
        standing = [path for path in self.removed if f"{TABLE}/{path}" in self._bucket.objects]
        if standing:
            path = self._random.choice(standing)
            rows = set(self.contents[path])
            self._commit("RESTORE", [self._add(path)], [each for each in self._files if rows & set(self.contents[each])])

    def kept_until(self, now_ms: int) -> list[str]:
        """Return the files that VACUUM may take by then."""
        return [path for path, at_ms in self.removed.items() if at_ms + RETENTION_MS <= now_ms]

    def vacuum(self, paths: Iterable[str], *, is_excuse: bool) -> None:
        """Delete removed files; with `is_excuse` before they were to be copied."""
        for path in [path for path in paths if path in self.removed]:
            del self.removed[path]
            self._bucket.remove(f"{TABLE}/{path}")
            self.excused.update(self.contents[path] if is_excuse else ())

    def make_anew(self) -> None:
        """Drop it, and make another one in its place, with as many commits.

        A log that ends before what was read of it may be one whose store is away, so nothing comes of it until it has grown.
        """
        commits = len(self._bucket.tables[TABLE])
        for key in [key for key in self._bucket.objects if key.startswith(f"{TABLE}/")]:
            self._bucket.remove(key)
        del self._bucket.tables[TABLE], self._bucket.entries[TABLE]
        self.excused.update(each for ids in self.contents.values() for each in ids)
        self.removed.clear()
        self.is_anew = True
        self._make()
        while len(self._bucket.tables[TABLE]) < commits:
            self.append()

    @property
    def _files(self) -> dict[str, dict[str, Any]]:
        return self._bucket.tables[TABLE][-1].files

    def _make(self) -> None:
        keeps = {"delta.deletedFileRetentionDuration": f"interval {RETENTION_MS // 3_600_000} hours"}
        metadata: dict[str, Any] = {
            "id": f"{self._random.getrandbits(64):x}", "name": None, "description": None, "partitionColumns": [], "createdTime": 0,
            "format": {"provider": "parquet", "options": {}}, "schemaString": msgspec.json.encode(_SCHEMA).decode(),
            "configuration": keeps,
        }  # fmt: skip
        protocol = {"minReaderVersion": 1, "minWriterVersion": 2}
        self._write([{"protocol": protocol}, {"metaData": metadata}], "CREATE TABLE")

    def _new_ids(self) -> list[int]:
        count = self._random.randint(1, 4)
        self._ids += count
        return list(range(self._ids - count, self._ids))

    def _some(self, least: int) -> list[str]:
        paths = sorted(self._files)
        return self._random.sample(paths, min(len(paths), self._random.randint(least, 2 * least)))

    def _written(self, ids: list[int]) -> str:
        path = f"part-{self._random.getrandbits(64):016x}.parquet"
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"n": pa.array(ids, pa.int64()), "b": pa.array([0] * len(ids), pa.int64())}), sink)
        self._bucket.put(f"{TABLE}/{path}", sink.getvalue().to_pybytes())
        self.contents[path] = ids
        return path

    def _add(self, path: str, *, data_change: bool = True) -> dict[str, Any]:
        data, at_ms = self._bucket.objects[f"{TABLE}/{path}"]
        # Not every writer counts.
        counted = (
            {"stats": f'{{"numRecords":{len(self.contents[path])}}}'} if self._counts_all or self._random.random() < 0.8 else {}
        )
        return {
            "path": path, "partitionValues": {}, "size": len(data), "modificationTime": at_ms, "dataChange": data_change, **counted
        }  # fmt: skip

    def _commit(self, operation: str, adds: list[dict[str, Any]], removes: Iterable[str] = (), *, data_change: bool = True) -> None:
        now_ms = self._bucket.now_ms()
        gone = [{"path": path, "deletionTimestamp": now_ms, "dataChange": data_change} for path in removes]
        self._write([*({"add": add} for add in adds), *({"remove": each} for each in gone)], operation)
        self.removed |= {str(each["path"]): now_ms for each in gone}
        for add in adds:
            self.removed.pop(str(add["path"]), None)

    def _write(self, actions: list[dict[str, Any]], operation: str) -> None:
        info = {"commitInfo": {"timestamp": self._bucket.now_ms(), "operation": operation}}
        version = len(self._bucket.tables.get(TABLE, ()))
        created = self._bucket.create(log_key(TABLE, version), b"\n".join(map(msgspec.json.encode, [info, *actions])))
        assert created, "they write one after the other"
