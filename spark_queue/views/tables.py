"""The views by name, as Arrow tables (DESIGN 15.13)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

import numpy as np
import pyarrow as pa

from spark_queue.core.bitmaps.ranges import count_rows
from spark_queue.core.definitions.column_names import ColumnNames
from spark_queue.core.definitions.definition import Definitions
from spark_queue.core.records import Fenced, Followed, Kind, Landed, Passed, Prepared
from spark_queue.core.replies import QueueStatus
from spark_queue.core.state.faults import untold
from spark_queue.errors import ConfigError, JournalError, nearest
from spark_queue.journal.record_table import CONTROL_SCHEMA
from spark_queue.journal.sql_types import INSTANT
from spark_queue.protocol.discovery import seen_at_ms
from spark_queue.settings.types import VIEWS, VIEWS_OF_ALL_QUEUES
from spark_queue.views.journal_view import JournalView, queue_status
from spark_queue.views.message_search import Mask, one_of
from spark_queue.views.messages import MESSAGE_VIEWS, make_schema, message_schema, read_messages

_LEASES = make_schema(
    subscription=pa.string(),
    lease=pa.int64(),
    messages=pa.int64(),
    granted_at=INSTANT,
    leased_until=INSTANT,
    proven=pa.bool_(),
)
_SUBSCRIPTIONS = make_schema(
    subscription=pa.string(),
    filter=pa.string(),
    max_backlog=pa.int64(),
    backlog=pa.int64(),
    last_seen_at=INSTANT,
    incarnation=pa.list_(pa.int64()),
    ack_mode=pa.string(),
)
_SINK_COMMITS = make_schema(
    queue=pa.string(),
    subscription=pa.string(),
    attempt=pa.int64(),
    lease=pa.int64(),
    sink=pa.string(),
    state=pa.string(),
    messages=pa.int64(),
    version=pa.int64(),
    prepared_at=INSTANT,
    decided_at=INSTANT,
)
_TABLE_CHANGES = make_schema(
    message_type=pa.string(),
    table=pa.string(),
    version=pa.int64(),
    last_version=pa.int64(),
    kind=pa.string(),
    operation=pa.string(),
    rows=pa.int64(),
    recorded_at=INSTANT,
    record=pa.int64(),
)
_ARROW_TYPES = {
    "bool": pa.bool_(),
    "str": pa.string(),
    "str | None": pa.string(),
    "int": pa.int64(),
    "int | None": pa.int64(),
    "float | None": pa.float64(),
}
_UNTYPED = [f"{entry.name}: {entry.type}" for entry in fields(QueueStatus) if str(entry.type) not in _ARROW_TYPES]
assert not _UNTYPED, f"_ARROW_TYPES has no type for {_UNTYPED}"
_STATUS = pa.schema([pa.field(entry.name, _ARROW_TYPES[str(entry.type)]) for entry in fields(QueueStatus)])

#: The kind of versions of a followed table that somebody skipped.
_SKIPPED = "skipped"

_Row = dict[str, Any]


def view_schema(name: str, definitions: Definitions, queue: str | None) -> pa.Schema:
    """Return a view's columns without reading anything; those of message views depend on the queue's message type."""
    if name not in VIEWS:
        expected = f"one of {', '.join(VIEWS)}.{nearest(name, VIEWS)}"
        raise ConfigError("BAD_VALUE", key="view", where="a view", value=name, expected=expected)
    if queue is None and name not in VIEWS_OF_ALL_QUEUES:
        raise ConfigError("MISSING_OPTION", option="queue", where=f"view '{name}'", reason="it needs a queue.")
    if name in MESSAGE_VIEWS:
        message_type, of_instance = definitions.queue(str(queue)).message_type, definitions.journal.instance is not None
        return message_schema(name, definitions.message_type(message_type).columns, of_instance=of_instance)
    return _SCHEMAS[name]


def _in_other_view(column: str, definitions: Definitions, queue: str | None) -> str:
    """Return the sentence that names a view which has a column, or an empty text."""
    if queue is None:
        return ""
    # First where messages are: to a dead-letter queue its letters are messages, and their reasons are those of the queue they left.
    of = {"dead_letters": definitions.source_of(queue) or queue, **{view: queue for view in VIEWS if view != "dead_letters"}}
    found = (view for view in of if ColumnNames(view_schema(view, definitions, of[view]).names).find(column) is not None)
    return next((f" View '{view}' of queue '{of[view]}' has it." for view in found), "")


def read_view(
    view: JournalView,
    name: str,
    queue: str | None,
    *,
    columns: Sequence[str] | None = None,
    limit: int | None = None,
    next_first: bool = False,
) -> pa.Table:
    """Return a view; `limit` keeps the oldest messages, or the latest records and attempts.

    Of view messages, `next_first` keeps those alone that may be granted, in that order.
    """
    known = view_schema(name, view.state.definitions, queue).names
    if queue is not None:
        view.state.definitions.queue(queue)
    if columns is not None:
        names, definitions = ColumnNames(known), view.state.definitions
        columns = names.resolve(
            columns,
            where=f"view '{name}'",
            nearest=lambda column: _in_other_view(column, definitions, queue) or names.nearest(column),
        )
    if next_first and name != "messages":
        raise ConfigError(
            "BAD_VALUE", key="next_first", where=f"view '{name}'", value=True, expected="left out: only view messages has it"
        )
    if name in MESSAGE_VIEWS:
        return read_messages(view, name, str(queue), columns=columns, limit=limit, next_first=next_first)
    if name == "history":
        table = _history(view, queue, limit)
    else:
        table = pa.Table.from_pylist(_FOLDED[name](view, queue)[:limit], schema=_SCHEMAS[name])
    return table if columns is None else table.select(list(columns))


def with_pandas_types(table: pa.Table) -> pa.Table:
    """Let `to_pandas` keep whole numbers where some are missing: as floats, its choice, those above 2^53 would change."""
    missing = [field for field, column in zip(table.schema, table.columns, strict=True) if column.null_count]
    columns = [
        {
            "name": field.name,
            "field_name": field.name,
            "pandas_type": str(field.type),
            "numpy_type": str(field.type).replace("int", "Int").replace("u", "U"),
            "metadata": None,
        }
        for field in missing
        if pa.types.is_integer(field.type)
    ]
    said = {"index_columns": [], "column_indexes": [], "columns": columns, "pandas_version": ""}
    return table.replace_schema_metadata({"pandas": json.dumps(said)}) if columns else table


def _leases(view: JournalView, queue: str | None) -> list[_Row]:
    ledger = view.state.ledger(str(queue))
    return [
        {
            "subscription": lease.subscription,
            "lease": lease.number,
            "messages": len(ledger.outstanding(lease)),
            "granted_at": lease.granted_at_ms * 1_000,
            "leased_until": lease.due_at_ms * 1_000,
            "proven": lease.proven,
        }
        for lease in ledger.leases.values()
        if ledger.is_open(lease)
    ]


def _subscriptions(view: JournalView, queue: str | None) -> list[_Row]:
    ledger = view.state.ledger(str(queue))
    backlogs = ledger.backlogs()
    heard = view.heard()
    return [
        {
            "subscription": name,
            "filter": subscription.filter,
            "max_backlog": subscription.max_backlog,
            "backlog": backlogs[name],
            "last_seen_at": 1_000
            * seen_at_ms(subscription.last_seen_at_ms, heard, queue=str(queue), subscription=name, now_ms=view.now_ms),
            "incarnation": list(subscription.incarnation),
            "ack_mode": subscription.ack_mode,
        }
        for name, subscription in ledger.subscriptions.items()
    ]


def _status(view: JournalView, queue: str | None) -> list[_Row]:
    if queue is not None:
        return [asdict(queue_status(view, queue))]
    state = view.state
    return [_told(view, name) for name in (*state.queues, *state.set_aside_queues())]


def _told(view: JournalView, name: str) -> _Row:
    """Return the status of a queue; one whose messages cannot be counted has no figures, and still a row among the others."""
    try:
        return asdict(queue_status(view, name))
    except JournalError as trouble:
        alarm = str(trouble)
    except Exception as fault:  # noqa: BLE001  # The other queues are shown all the same.
        alarm = untold(fault)
    return {"queue": name, "message_type": view.state.definitions.queue(name).message_type, "alarm": alarm}


def _history(view: JournalView, queue: str | None, limit: int | None) -> pa.Table:
    rows = view.journal.record_rows()
    numbers = np.arange(rows.count)
    if queue is not None:
        numbers = rows.where(lambda table: one_of(table.column("queue"), [queue]), "queue")
    numbers = numbers[: np.searchsorted(numbers, view.state.next_record)]
    return pa.concat_tables([CONTROL_SCHEMA.empty_table(), *rows.tables(numbers if limit is None else numbers[-limit:])])


def _sink_commits(view: JournalView, queue: str | None) -> list[_Row]:
    """Return the attempts to append to sinks, the newest first."""
    rows = view.journal.record_rows()

    def is_meant(table: pa.Table) -> Mask:
        mask = one_of(table.column("kind"), [Kind.PREPARED, Kind.LANDED, Kind.FENCED])
        return mask if queue is None else mask & one_of(table.column("queue"), [queue])

    numbers = rows.where(is_meant, "kind", "queue")
    found: dict[tuple[Any, ...], _Row] = {}
    for record in rows.records(numbers[: np.searchsorted(numbers, view.state.next_record)]):
        body = record.body
        assert isinstance(body, Prepared | Landed | Fenced), "these were asked for"
        key = {"queue": record.queue, "subscription": record.subscription, "attempt": body.attempt}
        row = found.setdefault(tuple(key.values()), {**key, "lease": record.lease})
        if isinstance(body, Prepared):
            row |= {"sink": body.table, "state": "in doubt", "prepared_at": record.at_ms * 1_000}
        else:
            landed = isinstance(body, Landed)
            row |= {
                "sink": body.table, "state": str(record.kind), "messages": count_rows(record.ranges) if landed else 0,
                "version": body.version if isinstance(body, Landed) else None, "decided_at": record.at_ms * 1_000,
            }  # fmt: skip
    return list(reversed(found.values()))


def _table_changes(view: JournalView, queue: str | None) -> list[_Row]:
    """Return the commits of followed tables that were passed over or skipped, the newest first (R145, R146, R148).

    One that the control log does not have yet counts already, as it does in figures; it has no number, and no time.
    """
    meant = None if queue is None else [view.state.definitions.queue(queue).message_type]
    rows = view.journal.record_rows()
    recorded_until = view.ahead[0].record if view.ahead else view.state.next_record

    def is_meant(table: pa.Table) -> Mask:
        mask = one_of(table.column("kind"), [Kind.FOLLOWED, Kind.PASSED])
        return mask if meant is None else mask & one_of(table.column("message_type"), meant)

    numbers = rows.where(is_meant, "kind", "message_type")
    tables, found = dict[str | None, str](), list[_Row]()
    ahead = [each for each in view.ahead if each.kind == Kind.PASSED and (meant is None or each.message_type in meant)]
    for record in [*rows.records(numbers[: np.searchsorted(numbers, recorded_until)]), *ahead]:
        body, is_recorded = record.body, record.record < recorded_until
        if isinstance(body, Followed):
            tables[record.message_type] = body.table
            if body.skipped is None:
                continue
            row: _Row = {"version": body.skipped[0], "last_version": body.skipped[1], "kind": _SKIPPED}
        else:
            assert isinstance(body, Passed), "these were asked for"
            row = {"version": body.version, "last_version": body.version, "kind": body.what}
            row |= {"operation": body.operation, "rows": body.rows}
        told = {"message_type": record.message_type, "table": tables[record.message_type]}
        row |= {"recorded_at": record.at_ms * 1_000, "record": record.record} if is_recorded else {}
        found.append({**told, **row})
    return found[::-1]


_SCHEMAS = {
    "leases": _LEASES, "subscriptions": _SUBSCRIPTIONS, "history": CONTROL_SCHEMA, "sink_commits": _SINK_COMMITS,
    "table_changes": _TABLE_CHANGES, "status": _STATUS,
}  # fmt: skip
_FOLDED: Mapping[str, Callable[[JournalView, str | None], list[_Row]]] = {
    "leases": _leases,
    "sink_commits": _sink_commits,
    "table_changes": _table_changes,
    "subscriptions": _subscriptions,
    "status": _status,
}
