"""From the arguments of `Queue.settle` to outcomes by lease."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from spark_queue.client.outcome_table import (
    OF_MESSAGES_TOO,
    cast_column,
    evaluated,
    invalid,
    named_columns,
    read_outcomes,
    refuse_unclear,
)
from spark_queue.core.commands import OutcomeRows
from spark_queue.core.definitions.column_names import ColumnNames
from spark_queue.core.records import Outcome
from spark_queue.errors import check_text, nearest
from spark_queue.journal.schema import shown_names

_OUTCOME_COLUMNS = ("bookmark", "outcome", "retry_after", "error", "lease")

#: From this likeness on, a name counts as a misspelt one of these columns; further ones may come along with the rows.
_MISSPELT = 0.8


def check_error(queue: str, outcomes: Iterable[str | None], error: str | None) -> None:
    """Refuse an error that is no text, or that would go unseen with an acknowledgement."""
    if error is not None:
        check_text(error, key="error", where="settle")
    if error is not None and Outcome.ACKNOWLEDGE in outcomes:
        raise invalid(queue, "an error has a meaning with 'cancel' and 'expire' only.", "Leave it out.")


def to_outcomes(
    queue: str,
    rows: Any,
    outcome: str,
    retry_after_ms: int | None = None,
    error: str | None = None,
    *,
    columns: Callable[[], str] = str,
) -> Iterator[OutcomeRows]:
    """Yield the outcomes of rows, for each lease that they name; the other arguments count where they have no such column.

    `columns` gives those of the message type, in Spark DDL; it is called only where rows may have some of them.
    """
    table = _to_table(queue, rows, functools.cache(columns))
    if "error" not in table.column_names:
        given = pc.unique(table.column("outcome")).to_pylist() if "outcome" in table.column_names else [outcome]
        check_error(queue, given, error)
    defaults: dict[str, Any] = {
        "outcome": pa.scalar(outcome),
        "retry_after": pa.scalar(retry_after_ms, pa.duration("ms")),
        "error": pa.scalar(error, pa.string()),
        "lease": pa.scalar(None, pa.int64()),
    }
    for name in [name for name in defaults if name not in table.column_names]:
        table = table.append_column(name, pa.repeat(defaults[name], table.num_rows))
    # pandas makes floats of a column in which some rows have no lease.
    leases = cast_column(queue, table, "lease", pa.int64())
    for lease in pc.unique(leases).to_pylist():
        chosen = pc.is_null(leases) if lease is None else pc.equal(leases, lease)
        for each in read_outcomes(queue, table.filter(chosen)):
            yield msgspec.structs.replace(each, lease=lease)


def _to_table(queue: str, rows: Any, own: Callable[[], str]) -> pa.Table:
    if not hasattr(rows, "columns"):
        return _from_values(queue, rows, own)
    names = rows.schema.names if isinstance(rows, pa.Table | pa.RecordBatch) else map(str, rows.columns)
    return evaluated(queue, rows, _named(queue, list(names), own))


def _named(queue: str, names: list[str], own: Callable[[], str]) -> dict[str, str]:
    """Refuse a misspelt column, and one of messages: rows would be settled otherwise than meant."""
    columns = named_columns(queue, names, _OUTCOME_COLUMNS)
    if len(names) > len(columns) and not OF_MESSAGES_TOO.isdisjoint(columns.values()):
        # Rows of a view have columns of messages by names that are no others'.
        shown = shown_names(own(), tuple(OF_MESSAGES_TOO)) if own() else {}
        refuse_unclear(queue, names, columns, ColumnNames([name for name, beside in shown.items() if beside not in names]))
    absent = [name for name in _OUTCOME_COLUMNS if name not in columns.values()]
    for name in names:
        meant = "" if name in columns else nearest(name, absent, likeness=_MISSPELT)
        if meant:
            raise invalid(queue, f"the rows have a column '{name}'.{meant}", "Rename the column, or leave it out.")
    if "bookmark" in absent:
        raise invalid(queue, "the rows have no column 'bookmark'.", "Keep it in the rows.")
    return columns


def _from_values(queue: str, rows: Iterable[Any], own: Callable[[], str]) -> pa.Table:
    try:
        values = list(rows)
        if all(isinstance(value, int) for value in values):
            return pa.table({"bookmark": pa.array(values, pa.int64())})
        # Each dict by itself, since they may spell a name in different ways.
        named = [{column: value[name] for name, column in _named(queue, list(value), own).items()} for value in values]
        # By itself pyarrow takes the first row's columns, and drops the others of further rows.
        names = dict.fromkeys(name for value in named for name in value)
        return pa.table({name: [value.get(name) for value in named] for name in names})
    except (pa.ArrowException, TypeError, AttributeError, OverflowError, UnicodeError) as reason:
        next_step = "Give a DataFrame, an Arrow table, dicts with 'bookmark', or bookmarks."
        raise invalid(queue, f"the rows cannot be read: {reason}.", next_step) from None
