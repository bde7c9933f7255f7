"""The Delta table of a message type: making it, widening it, and knowing its journal."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, Schema

from spark_queue.errors import CoordinatorError, JournalError
from spark_queue.journal import delta
from spark_queue.journal.entry_parts import COORDINATOR_TXN
from spark_queue.journal.repair import open_repaired
from spark_queue.journal.schema import Field, appended_columns, check_columns, of_others, stored_schema
from spark_queue.journal.store import Store, log_key, messages_key

#: Changes of a table's columns race with publishers; each lost race is retried on the new head.
_ATTEMPTS = 20


def open_messages(store: Store, journal_id: str, message_type: str) -> DeltaTable:
    """Open the table of a message type that the definitions have at its head."""
    key = messages_key(message_type)
    table = open_repaired(store, key)
    if table is None:
        next_step = "If the store is being moved or mounted, try again once it is back; a table that was deleted is in a backup."
        facts = {"doing": f"opening {key}", "reason": "its table is not there.", "next_step": next_step}
        raise JournalError("STORE_FAILED", path=store.path, **facts)
    found = owner(table)
    if found != journal_id:
        raise JournalError("JOURNAL_MISMATCH", expected=journal_id, path=store.path, found=found or "unknown")
    return table


def owner(table: DeltaTable) -> str:
    """Return the id of the journal that a message table belongs to; empty when it says none."""
    return str(table.metadata().description or "").removeprefix(delta.OWNER)


def check(store: Store, journal_id: str, message_type: str, columns: str, *, is_unused: bool) -> None:
    """Refuse columns that the table of a message type cannot have; changes nothing.

    A type that `is_unused` may have any, unless its table has files.
    """
    check_columns(message_type, columns)
    if open_repaired(store, messages_key(message_type)) is None:
        return
    if not is_unused or _has_files(open_messages(store, journal_id, message_type)):
        lacks(store, journal_id, message_type, columns)


def lacks(store: Store, journal_id: str, message_type: str, columns: str) -> list[str]:
    """Return the declared columns that a table does not have; raises MESSAGE_TYPE_CHANGED where it has one of another type."""
    there = arrow_schema(open_messages(store, journal_id, message_type))
    return [field.name for field in appended_columns(message_type, there, stored_schema(columns))]


def create(store: Store, journal_id: str, message_type: str, columns: str, *, durable: bool, unused_by: int | None = None) -> None:
    """Make the table of a message type, or append nullable columns to it; do nothing when it already fits.

    `columns` are the user's, as Spark DDL. A durable change reaches the disk. `unused_by` is the epoch of the reign that knows the
    type as unused: then a table without files gets these columns instead of those that it has.
    """
    check_columns(message_type, columns)
    declared = stored_schema(columns)
    key = messages_key(message_type)
    if delta.create_table(store, key, schema=declared, journal_id=journal_id, properties=delta.MESSAGE_PROPERTIES):
        if durable:
            store.sync([log_key(key, 0)], ancestors=True)
        return
    opened = partial(open_messages, store, journal_id, message_type)
    if unused_by is not None:
        _begin_anew(store, key, opened, declared, epoch=unused_by, durable=durable)
    _append_lacking(store, key, opened, lambda there: appended_columns(message_type, there, declared), durable=durable)


def _begin_anew(
    store: Store, key: str, opened: Callable[[], DeltaTable], declared: pa.Schema, *, epoch: int, durable: bool
) -> None:
    """Give a table without files the declared columns by a swap at its head, which names the epoch; one with files stays.

    A publish that commits first is seen, since its files are there when the head is read anew; one that commits later reads this
    entry before, and finds that its files do not fit. A reign that is over finds the epoch of the newer one (DESIGN 4).
    """
    for _ in range(_ATTEMPTS):
        table = opened()
        found = table.transaction_version(COORDINATOR_TXN) or 0
        if found > epoch:
            raise CoordinatorError("COORDINATOR_DEPOSED", epoch=epoch, path=store.path, reason=f"{key} carries epoch {found}")
        if _has_files(table) or (found == epoch and arrow_schema(table) == declared):
            return
        version, columns = int(table.version()), Schema.from_arrow(declared)
        if durable:
            store.sync([log_key(key, version)], ancestors=True)
        transactions = {COORDINATOR_TXN: epoch}
        delta.replace_columns(store, key, table, columns, version=version + 1, writer="coordinator", transactions=transactions)
    raise JournalError("PUBLISH_CONTENDED", path=store.uri(key), attempts=_ATTEMPTS)


def _has_files(table: DeltaTable) -> bool:
    return pa.table(table.get_add_actions()).num_rows > 0


def widen(store: Store, message_type: str, peer: str, fields: list[Field], *, durable: bool) -> pa.Schema:
    """Append columns that a peer has to a message type's table, unless it has them; returns its columns then."""
    key = messages_key(message_type)

    def opened() -> DeltaTable:
        table = open_repaired(store, key)
        assert table is not None, "the message type is defined"
        return table

    return _append_lacking(
        store, key, opened, lambda there: of_others(message_type, peer, pa.schema(fields), there), durable=durable
    )


def _append_lacking(
    store: Store, key: str, opened: Callable[[], DeltaTable], lacking: Callable[[pa.Schema], list[Field]], *, durable: bool
) -> pa.Schema:
    """Append the columns that a table lacks until it lacks none; returns its columns then. A durable change reaches the disk."""
    for _ in range(_ATTEMPTS):
        table = opened()
        there = arrow_schema(table)
        appended = lacking(there)
        if durable:
            # The process that made the table, or appended to it, may have died before it was on the disk.
            store.sync([log_key(key, int(table.version()))], ancestors=True)
        if not appended:
            return there
        version, added = int(table.version()) + 1, Schema.from_arrow(pa.schema(appended))
        if delta.add_columns(store, key, table, added, version=version, writer="coordinator"):
            if durable:
                store.sync([log_key(key, version)])
            delta.refresh(store, key, table)
            return arrow_schema(table)
    raise JournalError("PUBLISH_CONTENDED", path=store.uri(key), attempts=_ATTEMPTS)


def arrow_schema(table: DeltaTable) -> pa.Schema:
    """Return a table's columns."""
    exported: Any = table.schema()
    return pa.schema(exported)
