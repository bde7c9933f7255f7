"""Checkpoints of the control log, written from what is known of it: delta-rs would read every entry again (DESIGN 4)."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from spark_queue.journal.log_entry import LogEntry
from spark_queue.journal.log_listing import LastCheckpoint, checkpoint_key, hint_key
from spark_queue.journal.store import CONTROL, Store, log_key

#: What bytes that are no checkpoint raise as they are read.
FAULTS = (pa.ArrowException, OSError, LookupError, TypeError, ValueError)

_TEXTS = pa.map_(pa.string(), pa.string())
_ADD = {
    "path": pa.string(), "partitionValues": _TEXTS, "size": pa.int64(), "modificationTime": pa.int64(), "dataChange": pa.bool_(),
    "stats": pa.string(),
}  # fmt: skip
_REMOVE = {"path": pa.string(), "deletionTimestamp": pa.int64(), "dataChange": pa.bool_()}
_METADATA = {
    "id": pa.string(), "name": pa.string(), "description": pa.string(),
    "format": pa.struct([("provider", pa.string()), ("options", _TEXTS)]), "schemaString": pa.string(),
    "partitionColumns": pa.list_(pa.string()), "configuration": _TEXTS, "createdTime": pa.int64(),
}  # fmt: skip
_ACTIONS: Mapping[str, Mapping[str, Any]] = {
    "txn": {"appId": pa.string(), "version": pa.int64()}, "add": _ADD, "remove": _REMOVE, "metaData": _METADATA,
    "protocol": {"minReaderVersion": pa.int32(), "minWriterVersion": pa.int32()},
}  # fmt: skip
#: Delta's: one action a row.
_SCHEMA = pa.schema([(name, pa.struct(list(fields.items()))) for name, fields in _ACTIONS.items()])


def write(store: Store, table: LogEntry, *, durable: bool) -> LastCheckpoint:
    """Write a checkpoint of what the actions of a table amount to; a durable one reaches the disk before anything may go for it.

    The entry of that version reaches it before: a checkpoint of a version that the log does not have stands in its place.
    """
    entry = log_key(CONTROL, table.version)
    actions = list(_actions(table))
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(actions, _SCHEMA), sink)
    found = LastCheckpoint(version=table.version, actions=len(actions))
    if durable:
        store.sync([entry])
    written = {checkpoint_key(CONTROL, table.version): sink.getvalue(), hint_key(CONTROL): msgspec.json.encode(found)}
    for key, data in written.items():
        store.write(key, data)
    if durable:
        store.sync(written)
    return found


def _actions(table: LogEntry) -> Iterator[dict[str, Any]]:
    yield {"protocol": table.protocol}
    yield {"metaData": {**(table.metadata or {}), "format": {"provider": "parquet", "options": {}}}}
    yield from ({"txn": {"appId": name, "version": version}} for name, version in table.transactions.items())
    yield from ({"add": add} for add in table.adds)
    yield from ({"remove": remove} for remove in table.removes)


def read(data: bytes, *, version: int) -> LogEntry:
    """Read what a checkpoint says of a table, as the one entry that would make it; anything else raises one of `FAULTS`."""
    # Not by `pq.read_table`, which loads pyarrow's datasets, and pandas where it is installed.
    rows = pq.ParquetFile(pa.BufferReader(data)).read(columns=list(_ACTIONS), use_threads=False).to_pylist()
    of = {kind: [_known(row[kind], fields) for row in rows if row.get(kind) is not None] for kind, fields in _ACTIONS.items()}
    (metadata,), (protocol,) = of["metaData"], of["protocol"]
    return LogEntry(
        version=version, commit_info={}, adds=of["add"], removes=of["remove"], metadata=metadata, protocol=protocol,
        transactions={txn["appId"]: txn["version"] for txn in of["txn"]},
    )  # fmt: skip


def _known(action: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an action that are known here: other software writes some more, and leaves out what it may."""
    return {name: _value(action.get(name), kind) for name, kind in fields.items()}


def _value(value: Any, kind: Any) -> Any:
    """Return a value with dicts for maps, which pyarrow gives as pairs; its argument for dicts is too new for some clusters."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        return dict(value)
    return {part.name: _value(value.get(part.name), part.type) for part in kind} if pa.types.is_struct(kind) else value
