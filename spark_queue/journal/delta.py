"""All use of delta-rs: opening a table, bringing a handle to its head, and checkpoints; making and widening a table.

delta-rs commits nothing: an entry of ours is one put-if-absent of bytes of our own (`entry_writing`), with a commitInfo that says
who wrote it (DESIGN 15.9). How delta-rs behaves is measured, not assumed; `tests/unit/journal` keeps the proofs.
"""

from __future__ import annotations

import json
import random
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, TypeVar

import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError, DeltaProtocolError, TableNotFoundError

from spark_queue.clock import SystemClock
from spark_queue.errors import JournalError
from spark_queue.journal.damage import damaged, damaged_files, gap
from spark_queue.journal.entry_parts import Mark, NewFile
from spark_queue.journal.log_listing import (
    checkpoint_key,
    hint_key,
    missing_version,
    versions_after,
)
from spark_queue.journal.store import Store, log_key
from spark_queue.journal.table_features import columns_of, protocol

_Found = TypeVar("_Found")

#: Longest pause between attempts, in seconds, and the first.
_BACK_OFF_S = 0.5
_FIRST_BACK_OFF_S = 0.002

#: Stands before the journal's id in the Delta description of each of its tables.
OWNER = "spark_queue journal "

TABLE_PROPERTIES = {"delta.enableExpiredLogCleanup": "false", "delta.logRetentionDuration": "interval 36500 days"}

#: How Delta's metadata name the form of a table's files.
_FORMAT = {"provider": "parquet", "options": {}}

#: Of message tables: the columns of which files have bounds in the log. Otherwise delta-rs's datasets take those that are
#: missing for bounds of nothing, and find no row by another column (tried).
MESSAGE_PROPERTIES = {"delta.dataSkippingStatsColumns": "topic,expires_at"}

#: Of the control log: every commit's file is merged into others soon, and a checkpoint names each that left within this time.
CONTROL_PROPERTIES = {"delta.deletedFileRetentionDuration": "interval 1 hours"}


#: Errors of delta-rs for a log that it cannot make out: a ValueError is how it gives a refusal of Arrow.
REFUSALS = (DeltaError, ValueError)


def open_table(store: Store, key: str, *, version: int | None = None) -> DeltaTable | None:
    """Open the table in folder `key` at its head or at a version; None when there is no table."""

    def opened(version: int | None) -> DeltaTable:
        return DeltaTable(store.uri(key), version=version, storage_options=dict(store.storage_options))

    try:
        with store.failures(f"opening {key}"):
            return opened(version) if version is not None else _settled(store, key, partial(opened, None), opened)
    except TableNotFoundError as missing:
        # So delta-rs says, too, of a table that it may not look at.
        if "PermissionDenied" in str(missing):
            facts = {"doing": f"opening {key}", "reason": "Permission denied.", "next_step": "Check its owner and mode."}
            raise JournalError("STORE_FAILED", path=store.path, **facts) from None
        return None
    except DeltaProtocolError as reason:
        raise JournalError("PROTOCOL_NEWER", path=store.path, what=f"Delta features of {key} ({store.reason(reason)})") from None
    except REFUSALS as reason:
        raise _unreadable(store, key, f"the Delta log of {key} cannot be opened", reason) from None


def refresh(store: Store, key: str, table: DeltaTable) -> None:
    """Bring a handle to the head."""
    try:
        with store.failures(f"reading the log of {key}"):
            _settled(store, key, table.update_incremental, table.load_as_version)
    except REFUSALS as reason:
        what = f"the Delta log of {key} cannot be read on from version {table.version()}"
        raise _unreadable(store, key, what, reason) from None


def _settled(store: Store, key: str, look: Callable[[], _Found], look_at: Callable[[int], _Found]) -> _Found:
    """Look at a log's head; where that shows a gap, look at the newest version that stands by then.

    Listing a directory lasts a while: an entry that is written meanwhile may be left out of it, and the next one be in it. With
    a commit each millisecond nine of ten listings of 3,000 entries were such, 62 of them in a row. Entries from before a
    listing began are never left out, so those still missing up to that version are missing in the log.
    """
    try:
        return look()
    except (TableNotFoundError, DeltaProtocolError):
        raise
    except REFUSALS:
        newest = versions_after(store, key, -1)[-1:]
        if not newest:
            raise
        return look_at(newest[0])


def back_off(attempt: int) -> None:
    """Pause before another attempt at a contended table: at random, and longer each time."""
    ceiling_s = min(_BACK_OFF_S, _FIRST_BACK_OFF_S * 2**attempt)
    time.sleep(random.uniform(0, ceiling_s))  # noqa: S311 - jitter, not a secret


def create_table(
    store: Store,
    key: str,
    *,
    schema: pa.Schema,
    journal_id: str,
    files: Sequence[NewFile] = (),
    properties: Mapping[str, str] | None = None,
) -> bool:
    """Create the table in folder `key` of a journal, with files, in one commit; returns whether it was this call that did.

    `properties` are those that it has beside `TABLE_PROPERTIES`.
    """
    store.require_log(f"creating {key}")
    if open_table(store, key) is not None:
        return False
    store.make_folder(f"{key}/_delta_log")
    given = {**TABLE_PROPERTIES, **(properties or {})}
    of = OWNER + journal_id
    return begin_table(store, key, Schema.from_arrow(schema), writer="creator", of=of, properties=given, files=files)


def begin_table(
    store: Store,
    key: str,
    schema: Schema,
    *,
    writer: str,
    of: str | None = None,
    properties: Mapping[str, str] = MappingProxyType({}),
    partition_by: Sequence[str] = (),
    files: Sequence[NewFile] = (),
) -> bool:
    """Write the first entry of a table in a folder that has none; returns whether there was none by then, either.

    `of` is the table's description.
    """
    mark = Mark(writer=writer)
    metadata = {
        "id": str(uuid.UUID(mark.token)), "name": None, "description": of, "format": _FORMAT, "schemaString": schema.to_json(),
        "partitionColumns": list(partition_by), "createdTime": SystemClock().wall_ms(), "configuration": dict(properties),
    }  # fmt: skip
    actions = [{"protocol": protocol(columns_of(schema), properties)}, {"metaData": metadata}]
    actions += [{"add": file.entry()} for file in files]
    return _put(store, log_key(key, 0), "CREATE TABLE", actions, mark)


def add_columns(store: Store, key: str, table: DeltaTable, added: Schema, *, version: int, writer: str) -> bool:
    """Commit further columns of a table as `version`, which follows the handle's; returns whether it was free."""
    columns = [*columns_of(table.schema()), *columns_of(added)]
    return _put_columns(store, key, table, columns, operation="ADD COLUMNS", version=version, writer=writer)


def replace_columns(
    store: Store, key: str, table: DeltaTable, columns: Schema, *, version: int, writer: str, transactions: Mapping[str, int]
) -> bool:
    """Commit other columns of a table without files as `version`, with transactions; returns whether the version was free."""
    return _put_columns(
        store,
        key,
        table,
        columns_of(columns),
        operation="REPLACE COLUMNS",
        version=version,
        writer=writer,
        transactions=transactions,
    )


def _put_columns(
    store: Store, key: str, table: DeltaTable, columns: Sequence[Mapping[str, Any]], *, operation: str, version: int, writer: str,
    transactions: Mapping[str, int] = MappingProxyType({}),
) -> bool:  # fmt: skip
    """Commit the columns that a table has from now on as `version`, which follows the handle's; returns whether it was free."""
    found = table.metadata()
    metadata = {
        "id": str(found.id), "name": found.name, "description": found.description, "format": _FORMAT,
        "schemaString": json.dumps({"type": "struct", "fields": columns}), "partitionColumns": list(found.partition_columns),
        "createdTime": found.created_time, "configuration": dict(found.configuration),
    }  # fmt: skip
    before, properties = table.protocol(), found.configuration
    raised = protocol(columns, properties, before)
    # One that says nothing new would fail every commit of Spark at the same time.
    actions = [{"protocol": raised}] if raised != protocol((), {}, before) else []
    actions += [{"metaData": metadata}, *({"txn": {"appId": name, "version": number}} for name, number in transactions.items())]
    return _put(store, log_key(key, version), operation, actions, Mark(writer=writer))


def _put(store: Store, entry: str, operation: str, actions: Sequence[Mapping[str, Any]], mark: Mark) -> bool:
    """Write a log entry that defines a table, where there is none; returns whether there was none."""
    info = {
        "timestamp": SystemClock().wall_ms(), "operation": operation, "operationParameters": {}, "engineInfo": "spark_queue",
        **mark.commit_info(len(actions)),
    }  # fmt: skip
    lines = (json.dumps(action, separators=(",", ":")) + "\n" for action in ({"commitInfo": info}, *actions))
    return store.create(entry, "".join(lines).encode())


def checkpoint(store: Store, key: str, table: DeltaTable, *, durable: bool) -> None:
    """Write a checkpoint at the handle's version; a durable one reaches the disk before anything that it replaces may go.

    The entry of that version reaches it before: a checkpoint of a version that the log does not have stands in its place.
    """
    version = int(table.version())
    entry, written = log_key(key, version), [checkpoint_key(key, version), hint_key(key)]
    if durable:
        store.sync([entry])
    with store.failures(f"writing a checkpoint of {key}"):
        try:
            table.create_checkpoint()
        except REFUSALS as reason:
            raise OSError(str(reason)) from None
        if store.is_local and store.read(entry) is None:
            # delta-rs makes a folder anew that is away just then: a table that begins there would pass for the real one.
            store.delete(written)
            raise OSError("The log disappeared while it was written")
    if durable:
        store.sync(written)


def _unreadable(store: Store, key: str, what: str, reason: Exception) -> JournalError:
    """Make the error of a log that delta-rs refuses: of a gap it speaks at length, and not of the file that is missing."""
    missing = missing_version(store, key)
    if missing is not None:
        return gap(store, key, missing)
    # Nor does it name the file that it cannot make out.
    found = damaged_files(store, key)
    return found[0] if found else damaged(store, what, store.reason(reason))
