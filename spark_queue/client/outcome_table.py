"""Reading the outcomes that a batch function returns: a table of exceptions, checked before anything is settled."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_queue.core.commands import OutcomeRows
from spark_queue.core.definitions.column_names import ColumnNames
from spark_queue.core.definitions.keys import DURATION_LIMIT_MS, parse_duration_ms
from spark_queue.core.records import Outcome, Ranges
from spark_queue.errors import CallerError, nearest
from spark_queue.journal.sql_types import sql_type, with_sql_type

_REQUIRED = ("bookmark", "outcome")
OPTIONAL = ("retry_after", "error")
COLUMNS = (*_REQUIRED, *OPTIONAL)

#: Those whose names a column of a message type may have, too.
OF_MESSAGES_TOO = frozenset({"outcome", *OPTIONAL})

#: A column of any type; pyarrow's stubs say more than can be known of a user's table.
_Column = Any


def outcome_columns(queue: str, found: Iterable[str], batch: Iterable[str]) -> dict[str, str]:
    """Return the columns to evaluate of a batch function's table, each with its name here.

    Columns of the batch may come along unused; any other is a slip of the pen, and refused.
    """
    found, known = list(found), ColumnNames(batch)
    columns = named_columns(queue, found, COLUMNS)
    for name in _REQUIRED:
        if name not in columns.values():
            raise invalid(queue, f"the returned table has no column '{name}'.", f"It has: {', '.join(found)}.")
    for name in found:
        if name not in columns and known.find(name) is None:
            next_step = f"Columns: {', '.join(COLUMNS)}."
            raise invalid(queue, f"column '{name}' has no meaning here.{nearest(name, COLUMNS)}", next_step)
    refuse_unclear(queue, found, columns, known)
    return columns


def refuse_unclear(queue: str, found: Collection[str], columns: Mapping[str, str], own: ColumnNames) -> None:
    """Refuse a column that may hold the message's value, not an outcome: only a table of outcomes and nothing else is clear."""
    unclear = next((name for name, column in columns.items() if column in OF_MESSAGES_TOO and own.find(name) is not None), None)
    if unclear is not None and len(found) > len(columns):
        reason = f"column '{unclear}' is also a column of the messages, so it may hold their values."
        raise invalid(queue, reason, f"Select the columns of outcomes and no others: {', '.join(COLUMNS)}.")


def named_columns(queue: str, found: Iterable[str], wanted: Iterable[str]) -> dict[str, str]:
    """Return those of some columns that mean wanted ones, each with the column that it means."""
    names = ColumnNames(wanted)
    columns: dict[str, str] = {}
    for name in found:
        column = names.find(name)
        if column is None:
            continue
        if column in columns.values() or name in columns:
            raise invalid(queue, f"the table has column '{column}' twice; names are case-insensitive.", "Keep one of them.")
        columns[name] = column
    return columns


def evaluated(queue: str, rows: Any, columns: Mapping[str, str]) -> pa.Table:
    """Return columns of a DataFrame, of Spark or pandas, or of an Arrow table, under their names here."""
    if hasattr(rows, "toArrow"):
        table = rows.select(*columns).toArrow()
    elif isinstance(rows, pa.Table | pa.RecordBatch):
        table = (pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows).select(list(columns))
    else:
        table = _from_pandas(queue, rows, columns)
    named: pa.Table = table.rename_columns(list(columns.values()))
    return named


def read_outcomes(queue: str, table: pa.Table) -> tuple[OutcomeRows, ...]:
    """Read a table of outcomes; equal rows count once. `retry_after` is a duration, a text such as "5m", or a number of seconds."""
    columns: dict[str, _Column] = {
        "bookmark": cast_column(queue, table, "bookmark", pa.int64()),
        "outcome": cast_column(queue, table, "outcome", pa.string()),
        "retry_after_ms": _retry_after_ms(queue, table),
        "error": cast_column(queue, table, "error", pa.string()) if "error" in table.column_names else _nulls(table, pa.string()),
    }
    said = pa.table(columns)
    _check_values(queue, said)
    distinct = said.group_by(said.column_names).aggregate([])
    _check_once(queue, distinct.column("bookmark").to_numpy())
    grouped = distinct.group_by(["outcome", "retry_after_ms", "error"]).aggregate([("bookmark", "list")])
    return tuple(
        OutcomeRows(
            outcome=row["outcome"].as_py(),
            ranges=_to_ranges(row["bookmark_list"].values.to_numpy()),
            retry_after_ms=row["retry_after_ms"].as_py(),
            error=row["error"].as_py(),
        )
        for row in _rows(grouped)
    )


def _from_pandas(queue: str, frame: Any, columns: Collection[str]) -> pa.Table:
    """Return columns of a pandas frame as Arrow; missing values of pandas (NaN, NaT, NA, None) are NULL."""
    try:
        chosen = frame.loc[:, [str(name) in columns for name in frame.columns]]
        return pa.Table.from_pandas(chosen, preserve_index=False)
    except (pa.ArrowException, AttributeError, TypeError, ValueError, OverflowError) as reason:
        raise invalid(queue, f"the pandas DataFrame cannot be read: {reason}.", "Give each column one type.") from None


def _rows(table: pa.Table) -> Iterable[dict[str, Any]]:
    return ({name: table.column(name)[row] for name in table.column_names} for row in range(table.num_rows))


def cast_column(queue: str, table: pa.Table, name: str, kind: pa.DataType) -> Any:
    """Return a column of a user's table as another type."""
    try:
        return table.column(name).cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as reason:
        given = table.column(name).type
        text = f"column '{name}' is {sql_type(given)}, which does not convert to {sql_type(kind)}: {with_sql_type(str(reason))}."
        raise invalid(queue, text, "Cast it.") from reason


def _nulls(table: pa.Table, kind: Any) -> _Column:
    return pa.chunked_array([pa.nulls(table.num_rows, kind)])


def _retry_after_ms(queue: str, table: pa.Table) -> _Column:
    if "retry_after" not in table.column_names:
        return _nulls(table, pa.int64())
    given = table.column("retry_after")
    if pa.types.is_dictionary(given.type):
        given = given.cast(given.type.value_type)
    if pa.types.is_string(given.type) or pa.types.is_large_string(given.type):
        return _parsed_ms(queue, given.to_pylist())
    if pa.types.is_boolean(given.type):
        raise invalid(queue, "column 'retry_after' is bool.", "Give a duration, or a number of seconds.")
    if pa.types.is_duration(given.type):
        # A finer unit is cut off, and a coarser one may be too long.
        is_safe = given.type.unit == "s"
        try:
            return given.cast(pa.duration("ms"), safe=is_safe).cast(pa.int64())
        except pa.ArrowInvalid as reason:
            raise invalid(queue, f"retry_after is too long: {reason}.", "Give the time from now.") from None
    seconds = cast_column(queue, table, "retry_after", pa.float64())
    try:
        return pc.round(pc.multiply(seconds, 1_000.0)).cast(pa.int64())
    except pa.ArrowInvalid as reason:
        raise invalid(queue, f"retry_after is no number of seconds: {reason}.", "Give the time from now.") from None


def _parsed_ms(queue: str, texts: list[str | None]) -> _Column:
    """Parse durations in the form of a definition file's keys; each text is parsed once."""
    known: dict[str | None, int | None] = {None: None}
    for text in set(texts) - {None}:
        try:
            known[text] = parse_duration_ms(text)
        except ValueError as wanted:
            reason = f"retry_after is {text!r}, but it must be {wanted}, or a number of seconds."
            raise invalid(queue, reason, "Correct it.") from None
    return pa.chunked_array([pa.array([known[text] for text in texts], pa.int64())])


def _check_values(queue: str, said: pa.Table) -> None:
    for name in _REQUIRED:
        if said.column(name).null_count:
            raise invalid(queue, f"column '{name}' has {said.column(name).null_count} NULL(s).", "Leave those rows out.")
    for outcome in map(str, pc.unique(said.column("outcome")).to_pylist()):
        if outcome not in list(Outcome):
            next_step = f"Outcomes: {', '.join(Outcome)}."
            raise invalid(queue, f"'{outcome}' is no outcome.{nearest(outcome, list(Outcome))}", next_step)
    delayed = said.filter(pc.is_valid(said.column("retry_after_ms")))
    if pc.any(pc.not_equal(delayed.column("outcome"), pa.scalar(str(Outcome.CANCEL)))).as_py():
        raise invalid(queue, "retry_after has a meaning with 'cancel' only.", "Make it NULL for other outcomes.")
    if pc.any(pc.less(delayed.column("retry_after_ms"), pa.scalar(0))).as_py():
        raise invalid(queue, "retry_after is negative.", "Give the time from now.")
    if pc.any(pc.greater(delayed.column("retry_after_ms"), pa.scalar(DURATION_LIMIT_MS))).as_py():
        raise invalid(queue, "retry_after is longer than a century.", "Give the time from now.")


def _check_once(queue: str, bookmarks: NDArray[Any]) -> None:
    values, counts = np.unique(bookmarks, return_counts=True)
    if len(values) < len(bookmarks):
        twice = int(values[counts > 1][0])
        raise invalid(queue, f"bookmark {twice} has two outcomes.", "Name each row once.")


def _to_ranges(bookmarks: NDArray[Any]) -> Ranges:
    ascending = np.sort(bookmarks)
    edges = np.flatnonzero(np.diff(ascending) != 1) + 1
    firsts = ascending[np.concatenate([[0], edges])]
    untils = ascending[np.concatenate([edges, [len(ascending)]]) - 1] + 1
    return tuple(zip(firsts.tolist(), untils.tolist(), strict=True))


def invalid(queue: str, reason: str, next_step: str) -> CallerError:
    """Return the refusal OUTCOME_INVALID."""
    return CallerError("OUTCOME_INVALID", queue=queue, reason=reason, next_step=next_step)
