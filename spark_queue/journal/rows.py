"""Callers' rows as an Arrow table: pandas, Arrow, dicts, plain bodies and JSON lines (DESIGN 9).

Columns get the names that the message type declares. Values of Python are cast here, one by one as `python_values` says; columns
with a type of their own keep it until `stored_rows` casts them.
"""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any, TypedDict

import msgspec
import pyarrow as pa

from spark_queue.core.definitions.column_names import ColumnNames
from spark_queue.core.definitions.definition import Definitions
from spark_queue.errors import CallerError, ConfigError
from spark_queue.journal.casting import cast
from spark_queue.journal.conversion import Column, LossError, TypeKind, kind_of, sentence
from spark_queue.journal.json_bodies import decoded, line_text
from spark_queue.journal.python_values import to_column
from spark_queue.journal.schema import user_schema
from spark_queue.journal.sql_types import INSTANT
from spark_queue.journal.stored_rows import JSON_TYPE, mismatch, topic_missing

#: The one column of the message types json and binary.
_BODY = "value"

#: Columns that rows may bring beside the message type's own.
_BESIDE: Mapping[str, pa.DataType] = {"topic": pa.string(), "expires_at": INSTANT}


class _Times(TypedDict):
    """Readings of times that do not say them themselves: a zone and a unit that the caller gives."""

    timezone: str | None
    epoch: str | None


_NOTHING_SAID: _Times = {"timezone": None, "epoch": None}


def to_arrow(
    data: Any, definitions: Definitions, *, topic: str | None = None, timezone: str | None = None, epoch: str | None = None
) -> tuple[str, pa.Table]:
    """Return the message type that rows belong to, and the rows as a table.

    An iterable holds dicts, by column name. For message type ``json`` it may hold texts instead, each one a body, or dicts that
    are bodies themselves, and for ``binary`` bytes. A dict is a row, not a body, if it has a key ``value`` and none but ``topic``
    and ``expires_at`` beside it; all of an iterable are one or the other. Without `topic` the rows say their own.
    """
    times: _Times = {"timezone": timezone, "epoch": epoch}
    if _is_pandas(data):
        return _from_pandas(data, definitions, topic, times)
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        return _from_arrow(_table(data), definitions, topic, times)
    rows = _listed(data)
    first = rows[0] if rows and isinstance(rows[0], Mapping) else {}
    target = _Target(definitions, topic, first.get(ColumnNames(map(str, first)).find("topic")), len(rows), times)
    if target.message_type == JSON_TYPE:
        rows = _json_rows(rows)
    elif target.message_type == "binary":
        rows = [{_BODY: row} if isinstance(row, bytes) else row for row in rows]
    return target.message_type, target.from_rows(rows)


def kept(data: Any) -> Any:
    """Return rows that can be read more than once: those of a stream of Arrow's, or of what is no sequence, are read now."""
    if _is_pandas(data) or isinstance(data, Sequence | Mapping):
        return data
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        return _table(data)
    return list(data) if isinstance(data, Iterable) else data


def from_json_lines(
    lines: Iterable[str | bytes],
    definitions: Definitions,
    *,
    topic: str | None = None,
    timezone: str | None = None,
    epoch: str | None = None,
    source: str = "the file",
    first_line: int = 1,
    dropped: Collection[str] = (),
) -> tuple[str, pa.Table]:
    """Return the message type and the rows of JSON lines; blank lines are skipped.

    A line is a body for message type ``json``, as it stands, and an object of columns for any other, of which some are
    `dropped`. `source` and `first_line`, the number of the first one, are for errors.
    """
    places = ((f"{source}, line {number:,}", line) for number, line in enumerate(lines, start=first_line) if line.strip())
    texts = [(place, line_text(line, place)) for place, line in places]
    if topic is not None and definitions.route(topic)[1].name == JSON_TYPE:
        if dropped:
            reason = "each line is a body of message type json as it stands, so no column can be left out."
            raise ConfigError("CONTRADICTORY_SETTINGS", where="the arguments", reason=reason, keys="--drop-column")
        return to_arrow([text.strip() for _, text in texts], definitions, topic=topic)
    left_out = ColumnNames(dropped)
    rows = [{name: value for name, value in decoded(text, place).items() if left_out.find(name) is None} for place, text in texts]
    return to_arrow(rows, definitions, topic=topic, timezone=timezone, epoch=epoch)


class _Target:
    """The message type that rows go to."""

    def __init__(self, definitions: Definitions, topic: str | None, first: Any, row_count: int, times: _Times) -> None:
        self.message_type = message_type = message_type_of(definitions, topic, first, row_count)
        self.where = f"message type '{message_type}'"
        self._fields = {field.name: field for field in user_schema(definitions.message_type(message_type).columns)}
        self._fields |= {name: pa.field(name, kind) for name, kind in _BESIDE.items()}
        self._names = ColumnNames(self._fields, dict(definitions.message_type(message_type).rename))
        self._times = times
        if topic is None and self._names.find("topic") != "topic":
            raise topic_missing(row_count, self._names, where=self.where)

    def declared(self, names: Iterable[str]) -> list[str]:
        """Return the declared name of each column."""
        return self._names.resolve(names, where=self.where)

    def _declared_in(self, names: Sequence[Any], rows: Sequence[Mapping[Any, Any]], *, first: int = 0) -> list[str]:
        """Return the declared names of columns of some dicts; a refusal names the row, which is the first that has all of them."""
        try:
            return self.declared(map(str, names))
        except CallerError as refusal:
            row = next(number for number, each in enumerate(rows, start=first) if all(name in each for name in names))
            told = CallerError(refusal.code, **refusal.facts, row=row)
            told.add_note(f"Row {row} has it.")
            raise told from None

    def from_rows(self, rows: Sequence[Mapping[Any, Any]]) -> pa.Table:
        """Make a table of dicts by column name."""
        for number, row in enumerate(rows):
            if not isinstance(row, Mapping):
                raise _unreadable(number, f", of type {type(row).__name__},", "a dict by column name")
        spellings: dict[str, list[Any]] = {}
        for name in dict.fromkeys(name for row in rows for name in row):
            [column] = self._declared_in([name], rows)
            spellings.setdefault(column, []).append(name)
        values = {column: self._values(rows, names) for column, names in spellings.items()}
        columns = {name: partial(to_column, column, **self._times) for name, column in values.items()}
        return self.table(columns, len(rows))

    def _values(self, rows: Sequence[Mapping[Any, Any]], names: list[Any]) -> list[Any]:
        """Return a column of dicts, which may spell its name in different ways, though not one dict in two."""
        if len(names) == 1:
            return [row.get(names[0]) for row in rows]
        for number, row in enumerate(rows):
            self._declared_in([name for name in names if name in row], [row], first=number)
        return [next((row[name] for name in names if name in row), None) for row in rows]

    def table(self, columns: Mapping[str, Callable[[pa.DataType], Column]], row_count: int) -> pa.Table:
        """Make a table of columns by declared name, each made for its declared type."""
        made: dict[str, Column] = {}
        for name, make in columns.items():
            try:
                made[name] = make(self._fields[name].type)
            except LossError as lost:
                raise mismatch(self._fields[name], lost, where=self.where) from None
        # A table without columns would forget how many rows it has.
        made = made or {name: pa.nulls(row_count, field.type) for name, field in list(self._fields.items())[:1]}
        return pa.table(made)


def _table(data: Any) -> pa.Table:
    """Read Arrow's own, of which only data with columns are rows."""
    try:
        return pa.table(data)
    except (pa.ArrowException, ValueError) as reason:
        facts = {"what": f"A {type(data).__name__}", "expected": f"a table or structs ({sentence(reason).rstrip('.')})"}
        raise CallerError("ROWS_UNREADABLE", **facts, next_step="") from None


def _from_arrow(table: pa.Table, definitions: Definitions, topic: str | None, times: _Times) -> tuple[str, pa.Table]:
    own = ColumnNames(table.column_names).find("topic")
    first = table.column(table.column_names.index(own))[0].as_py() if own is not None and table.num_rows else None
    target = _Target(definitions, topic, first, table.num_rows, times)
    # Also without rows, which may be missing because a row was read as their header.
    names = target.declared(table.column_names)
    # Topics are looked at before anything is staged, which gives all other columns their declared types.
    has_texts = own is None or topic is not None or _is_text(table.field(table.column_names.index(own)).type)
    if names and times == _NOTHING_SAID and has_texts:
        return target.message_type, table.rename_columns(names)
    whole: list[Any] = [column.combine_chunks() for column in table.columns]
    columns = {name: partial(cast, column, **times) for name, column in zip(names, whole, strict=True)}
    return target.message_type, target.table(columns, table.num_rows)


def _from_pandas(frame: Any, definitions: Definitions, topic: str | None, times: _Times) -> tuple[str, pa.Table]:
    parts = [(str(name), frame.iloc[:, number]) for number, name in enumerate(frame.columns)]
    levels = enumerate(frame.index.names if any(name is not None for name in frame.index.names) else ())
    indexed = [(str(name), frame.index.get_level_values(number).to_series()) for number, name in levels]
    names = [name for name, _ in (*indexed, *parts)]
    own = ColumnNames(names).find("topic")
    topics = dict((*indexed, *parts))[own] if own is not None and len(frame) else None
    first = None if topics is None or topics.isna().iloc[0] else topics.iloc[0]
    target = _Target(definitions, topic, first, len(frame), times)
    try:
        declared = target.declared(names)
    except CallerError as refusal:
        if indexed:
            told = ", ".join(name for name, _ in indexed)
            refusal.add_note(
                f"The frame's index has names ({told}), so it is published, too; reset_index(drop=True) leaves it out."
            )
        raise
    columns: dict[str, Callable[[pa.DataType], Column]] = {}
    for name, (_, series) in zip(declared, (*indexed, *parts), strict=True):
        as_json = name == _BODY and target.message_type == JSON_TYPE
        columns[name] = partial(_of_series, series, times=times, as_json=as_json)
    return target.message_type, target.table(columns, len(frame))


def _of_series(series: Any, wanted: pa.DataType, *, times: _Times, as_json: bool) -> Column:
    """Make a column of pandas; values that pandas calls missing are NULL, and in its columns of numbers these are every NaN."""
    if as_json or series.dtype == object:
        values = [None if absent else value for value, absent in zip(series.tolist(), _missing(series), strict=True)]
        if as_json:
            values = [_json_text(value, row) for row, value in enumerate(values)]
        return to_column(values, wanted, **times)
    try:
        column: Any = pa.array(series, from_pandas=True)
    except (pa.ArrowException, ValueError, TypeError) as reason:
        raise LossError(0, str(series.dtype), sentence(reason)) from None
    return cast(column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column, wanted, **times)


def _missing(series: Any) -> list[bool]:
    """Return where pandas says that a value is missing; it compares values for that, and a signalling NaN refuses to be."""
    try:
        absent: list[bool] = series.isna().tolist()
    except InvalidOperation:
        row = next(row for row, value in enumerate(series) if isinstance(value, Decimal) and value.is_snan())
        raise LossError(row, "Decimal", "sNaN is neither a number nor what pandas calls missing.") from None
    return absent


def message_type_of(definitions: Definitions, topic: str | None, first: Any = None, row_count: int = 0) -> str:
    """Return the message type of a publish to a topic, or else to that of its first row; others are looked at when it is staged."""
    topic = topic if topic is not None else first
    # NaN marks a missing value for some.
    if topic is None or (isinstance(topic, float) and math.isnan(topic)):
        raise CallerError("TOPIC_MISSING", rows=row_count)
    if not isinstance(topic, str):
        lost = LossError(0, type(topic).__name__, "a topic is a text.")
        raise mismatch(pa.field("topic", pa.string()), lost, where="the data to publish")
    return definitions.route(topic)[1].name


def _is_text(kind: pa.DataType) -> bool:
    return kind_of(kind.value_type if pa.types.is_dictionary(kind) else kind) is TypeKind.TEXT


def _is_pandas(data: Any) -> bool:
    # Also of a class of somebody's own: as a table of Arrow its objects would be guessed at.
    bases = (base.__module__.partition(".")[0] for base in type(data).__mro__)
    return "pandas" in bases and hasattr(data, "columns")


def _listed(data: Any) -> list[Any]:
    if isinstance(data, str | bytes | Mapping) or not isinstance(data, Iterable):
        kinds = "a pyarrow Table, a pandas DataFrame, or a list of dicts"
        raise CallerError("ROWS_UNREADABLE", what=f"One value of type {type(data).__name__}", expected=kinds, next_step="")
    return list(data)


def _unreadable(row: int, what: str, expected: str) -> CallerError:
    return CallerError("ROWS_UNREADABLE", what=f"Row {row}{what}", expected=expected, next_step="", row=row)


def _json_rows(rows: list[Any]) -> list[Mapping[str, Any]]:
    """Return the rows of message type json: all of a call have one form, or a body might pass for a row."""
    forms = [_json_form(row, number) for number, row in enumerate(rows)]
    other = next((number for number, form in enumerate(forms) if form != forms[0]), None)
    if other is not None:
        expected = "of the form of the rows before it: texts, dicts that are bodies, or dicts that hold the body as 'value'"
        raise _unreadable(other, f", which is {forms[other]} behind {forms[0]},", expected)
    if forms and forms[0] != _AS_ROW:
        return [{_BODY: _json_text(row, number)} for number, row in enumerate(rows)]
    return [
        {name: _json_text(value, number) if str(name).lower() == _BODY else value for name, value in row.items()}
        for number, row in enumerate(rows)
    ]


_AS_TEXT, _AS_BODY, _AS_ROW = "a text", "a dict that is a body", "a dict with 'value'"


def _json_form(row: Any, number: int) -> str:
    if isinstance(row, str):
        return _AS_TEXT
    if not isinstance(row, Mapping):
        raise _unreadable(number, f", of type {type(row).__name__},", "a JSON text or a dict")
    names = {str(name).lower() for name in row}
    return _AS_ROW if _BODY in names and names <= {_BODY, *_BESIDE} else _AS_BODY


def _json_text(body: Any, number: int) -> str | None:
    """Return a body as JSON text; a text is one already, and None is none."""
    if body is None or isinstance(body, str):
        return body
    try:
        return json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_json_value)
    except (TypeError, ValueError, RecursionError) as reason:
        raise _unreadable(
            number, f", which JSON cannot hold ({str(reason).rstrip('.')}),", "a body of texts, numbers, lists and dicts"
        ) from None


def _json_value(value: Any) -> Any:
    # Times and decimals as text: msgspec writes them as readers of JSON expect, but it drops seconds of an offset.
    if isinstance(value, dt.datetime | dt.time) and (value.utcoffset() or dt.timedelta()) % dt.timedelta(minutes=1):
        raise ValueError(f"offset {value.utcoffset()} is not of whole minutes")
    return msgspec.to_builtins(value)
