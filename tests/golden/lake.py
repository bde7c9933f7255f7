"""A Delta table as somebody else writes it, at times that are given: with partitions, and with a deletion vector in a file."""

from __future__ import annotations

import json
import uuid
import zlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

_SCHEMA = {
    "type": "struct",
    "fields": [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in (("id", "long"), ("item", "string"), ("country", "string"))
    ],
}  # fmt: skip
_FEATURES = {
    "minReaderVersion": 3,
    "minWriterVersion": 7,
    "readerFeatures": ["deletionVectors"],
    "writerFeatures": ["deletionVectors"],
}

#: The name of the file of vectors, and the form in which a log has it.
_VECTORS, _VECTORS_NAME = "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin", "ab^-aqEH.-t@S}K{vb[*k^"


class LakeTable:
    """Table of sales (id, item, country), partitioned by country."""

    def __init__(self, path: Path, *, now_ms: int) -> None:
        self.path = path
        (path / "_delta_log").mkdir(parents=True)
        self._version = -1
        self.define(now_ms=now_ms)

    def define(self, *, now_ms: int, id_: uuid.UUID | None = None) -> None:
        """Define the table, or define it anew under another id."""
        metadata = {
            "id": str(id_ or uuid.uuid4()), "format": {"provider": "parquet", "options": {}}, "schemaString": json.dumps(_SCHEMA),
            "partitionColumns": ["country"], "configuration": {}, "createdTime": now_ms,
        }  # fmt: skip
        self._commit("CREATE TABLE", [{"protocol": _FEATURES}, {"metaData": metadata}], now_ms=now_ms)

    def append(self, *ids: int, now_ms: int, deleted: tuple[int, ...] = ()) -> str:
        """Append a file, of which some rows are deleted already; returns its path."""
        path = self._write(ids)
        add = self._add(path, len(ids), data_change=True, now_ms=now_ms)
        if deleted:
            add["deletionVector"] = self._vector(deleted)
        self._commit("WRITE", [{"add": add}], now_ms=now_ms)
        return path

    def compact(self, path: str, *ids: int, now_ms: int) -> str:
        """Replace a file by another with the same rows; returns its path."""
        compacted = self._write(ids)
        add = self._add(compacted, len(ids), data_change=False, now_ms=now_ms)
        self._commit("OPTIMIZE", [{"remove": _remove(path, data_change=False, now_ms=now_ms)}, {"add": add}], now_ms=now_ms)
        return compacted

    def rewrite(self, path: str, *ids: int, now_ms: int) -> str:
        """Replace a file by another with other rows; returns its path."""
        changed = self._write(ids)
        add = self._add(changed, len(ids), data_change=True, now_ms=now_ms)
        self._commit("UPDATE", [{"remove": _remove(path, data_change=True, now_ms=now_ms)}, {"add": add}], now_ms=now_ms)
        return changed

    def vacuum(self, path: str) -> None:
        """Delete a file that the table has removed."""
        (self.path / path).unlink()

    def _write(self, ids: tuple[int, ...]) -> str:
        path = f"country=NL/part-{uuid.uuid4().hex}.parquet"
        place = self.path / path
        place.parent.mkdir(exist_ok=True)
        pq.write_table(pa.table({"id": pa.array(ids, pa.int64()), "item": [f"item {each}" for each in ids]}), place)
        return path

    def _add(self, path: str, rows: int, *, data_change: bool, now_ms: int) -> dict[str, Any]:
        return {
            "path": path, "partitionValues": {"country": "NL"}, "size": (self.path / path).stat().st_size,
            "modificationTime": now_ms, "dataChange": data_change, "stats": json.dumps({"numRecords": rows}),
        }  # fmt: skip

    def _vector(self, rows: tuple[int, ...]) -> dict[str, Any]:
        data = (1681511377).to_bytes(4, "little") + BitMap64(rows).serialize()
        place = self.path / _VECTORS
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(b"\x01" + len(data).to_bytes(4, "big") + data + zlib.crc32(data).to_bytes(4, "big"))
        return {
            "storageType": "u", "pathOrInlineDv": _VECTORS_NAME, "sizeInBytes": len(data), "cardinality": len(rows), "offset": 1,
        }  # fmt: skip

    def _commit(self, operation: str, actions: list[dict[str, Any]], *, now_ms: int) -> None:
        self._version += 1
        info = {"commitInfo": {"timestamp": now_ms, "operation": operation, "operationParameters": {}}}
        entry = self.path / "_delta_log" / f"{self._version:020d}.json"
        entry.write_text("".join(json.dumps(each) + "\n" for each in (info, *actions)), encoding="utf-8")


def _remove(path: str, *, data_change: bool, now_ms: int) -> dict[str, Any]:
    return {
        "path": path, "deletionTimestamp": now_ms, "dataChange": data_change, "extendedFileMetadata": True,
        "partitionValues": {"country": "NL"}, "size": 1,
    }  # fmt: skip
