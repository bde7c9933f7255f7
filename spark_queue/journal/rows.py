"""What callers hand over, as an Arrow table: pandas, Arrow, dicts, plain bodies and JSON lines (DESIGN 9).

Columns go by name. Values keep their own types here; `stored_rows` casts them to the message type's and refuses losses.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import pyarrow as pa

from spark_queue.core.definition import Definitions
from spark_queue.errors import CallerError, nearest
from spark_queue.journal.casting import object_loss
from spark_queue.journal.schema import INSTANT, user_schema
from spark_queue.journal.stored_rows import Column, sentence

#: The message type whose one column holds JSON text.
_JSON = "json"

#: The one column of the message types json and binary.
_BODY = "value"

#: Columns that rows may bring beside the message type's own.
_BESIDE: Mapping[str, pa.DataType] = {"topic": pa.string(), "expires_at": INSTANT}


def to_arrow(data: Any, definitions: Definitions, *, topic: str | None = None) -> tuple[str, pa.Table]:
    """Give the message type that rows belong to, and the rows as a table.

    Parameters
    ----------
    data : pyarrow.Table, pandas.DataFrame, anything with `__arrow_c_stream__`, or an iterable
        An iterable holds dicts, by column name. For message type ``json`` it may also hold texts, each one a body, and
        dicts that are bodies themselves; for ``binary`` it may hold bytes. A dict is a row, not a body, if ``value`` is a
        text, a dict or a list and its other keys are ``topic`` and ``expires_at`` at most.
    definitions : Definitions
        What holds now.
    topic : str or None
        Topic of every row; None looks at the rows' own.

    Raises
    ------
    CallerError
        TOPIC_MISSING, UNKNOWN_COLUMN, COLUMN_TYPE_MISMATCH, ROWS_UNREADABLE.
    ConfigError
        UNKNOWN_TOPIC, TOPIC_AMBIGUOUS.
    """
    if hasattr(data, "__arrow_c_stream__") and not _is_pandas(data):
        table = pa.table(data)
        message_type = _home(definitions, topic, _first_topic(table), table.num_rows)
        # Also without rows, which may be missing because a row was taken for their header.
        _check_names(table.column_names, definitions, message_type)
        return message_type, table
    if _is_pandas(data):
        first = data["topic"].iloc[0] if "topic" in data.columns and len(data) else None
        message_type = _home(definitions, topic, first, len(data))
        values = {str(name): data[name] for name in data.columns}
        return message_type, _from_columns(values, definitions, message_type)
    rows = _listed(data)
    first = rows[0].get("topic") if rows and isinstance(rows[0], Mapping) else None
    message_type = _home(definitions, topic, first, len(rows))
    rows = [_row(row, message_type, number) for number, row in enumerate(rows)]
    names = dict.fromkeys(name for row in rows for name in row)
    return message_type, _from_columns({name: [row.get(name) for row in rows] for name in names}, definitions, message_type)


def from_json_lines(
    lines: Iterable[str | bytes], definitions: Definitions, *, topic: str | None = None, first_line: int = 1
) -> tuple[str, pa.Table]:
    """Give the message type and the rows of JSON lines; blank lines are skipped.

    A line is a body for message type ``json``, as it stands, and an object of columns for any other. `first_line` is the
    number of the first one, for errors.

    Raises
    ------
    CallerError
        TOPIC_MISSING, UNKNOWN_COLUMN, COLUMN_TYPE_MISMATCH, and ROWS_UNREADABLE with the number of a line that is no JSON.
    ConfigError
        UNKNOWN_TOPIC, TOPIC_AMBIGUOUS.
    """
    texts = [(number, line) for number, line in enumerate(lines, start=first_line) if line.strip()]
    values = [_decoded(line, number) for number, line in texts]
    if topic is not None and definitions.route(topic)[1].name == _JSON:
        bodies = [line.decode() if isinstance(line, bytes) else line for _, line in texts]
        return to_arrow([body.strip() for body in bodies], definitions, topic=topic)
    return to_arrow(values, definitions, topic=topic)


def _home(definitions: Definitions, topic: str | None, first: Any, rows: int) -> str:
    """Give the message type of a publish; the topics of further rows are checked when they are staged."""
    topic = topic if topic is not None else first
    if not isinstance(topic, str):
        raise CallerError("TOPIC_MISSING", rows=rows)
    return definitions.route(topic)[1].name


def _first_topic(table: pa.Table) -> Any:
    return table.column("topic")[0].as_py() if "topic" in table.column_names and table.num_rows else None


def _is_pandas(data: Any) -> bool:
    return type(data).__module__.partition(".")[0] == "pandas" and hasattr(data, "columns")


def _listed(data: Any) -> list[Any]:
    if isinstance(data, str | bytes | Mapping) or not isinstance(data, Iterable):
        kinds = "a pyarrow Table, a pandas DataFrame, or a list of dicts"
        raise CallerError("ROWS_UNREADABLE", what=f"a {type(data).__name__}", expected=kinds)
    return list(data)


def _row(row: Any, message_type: str, number: int) -> Mapping[str, Any]:
    if message_type == _JSON:
        return _json_row(row, number)
    if isinstance(row, bytes) and message_type == "binary":
        return {_BODY: row}
    if not isinstance(row, Mapping):
        raise CallerError("ROWS_UNREADABLE", what=f"row {number}, a {type(row).__name__}", expected="a dict by column name")
    return row


def _json_row(row: Any, number: int) -> Mapping[str, Any]:
    if isinstance(row, str):
        return {_BODY: row}
    if not isinstance(row, Mapping):
        raise CallerError("ROWS_UNREADABLE", what=f"row {number}, a {type(row).__name__}", expected="a JSON text or a dict")
    is_row = isinstance(row.get(_BODY), str | Mapping | list) and set(row) <= {_BODY, *_BESIDE}
    if not is_row:
        return {_BODY: _dumped(row, number)}
    body = row[_BODY]
    return {**row, _BODY: body if isinstance(body, str) else _dumped(body, number)}


def _dumped(body: Any, number: int) -> str:
    try:
        return json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_json_value)
    except (TypeError, ValueError) as reason:
        raise CallerError("ROWS_UNREADABLE", what=f"row {number}", expected=f"a dict that JSON can hold ({reason})") from None


def _json_value(value: Any) -> Any:
    # Times and decimals as text: what msgspec writes is what readers of JSON expect.
    return msgspec.to_builtins(value)


def _decoded(line: str | bytes, number: int) -> Any:
    try:
        return json.loads(line)
    except ValueError as reason:
        raise CallerError("ROWS_UNREADABLE", what=f"line {number}", expected=f"JSON ({reason})") from None


def _check_names(names: Iterable[str], definitions: Definitions, message_type: str) -> None:
    known = [*user_schema(definitions.message_type(message_type).columns).names, *_BESIDE]
    for name in names:
        if name not in known:
            where = f"message type '{message_type}'"
            raise CallerError("UNKNOWN_COLUMN", where=where, column=name, nearest=nearest(name, known), columns=", ".join(known))


def _from_columns(values: Mapping[str, Any], definitions: Definitions, message_type: str) -> pa.Table:
    _check_names(values, definitions, message_type)
    schema = user_schema(definitions.message_type(message_type).columns)
    where = f"message type '{message_type}'"
    columns: dict[str, Column] = {}
    for name, column in values.items():
        wanted = schema.field(name).type if name in schema.names else _BESIDE[name]
        columns[name] = _array(column, name, wanted, where)
    return pa.table(columns)


def _array(values: Any, name: str, wanted: pa.DataType, where: str) -> Column:
    """Make a column of Python or pandas values: by their own type, or by the wanted one where theirs says too little."""
    attempts = (wanted,) if pa.types.is_nested(wanted) else (None, wanted)
    reason: Exception | None = None
    # Columns of pandas and numpy with a type of their own are cast by it; objects lose what pyarrow does not look at.
    if getattr(values, "dtype", None) in (None, "object") and (pa.types.is_nested(wanted) or pa.types.is_timestamp(wanted)):
        loss = next((found for value in values if (found := object_loss(value, wanted))), None)
        if loss is not None:
            facts = {"column": name, "where": where, "found": "of such values", "expected": str(wanted)}
            raise CallerError("COLUMN_TYPE_MISMATCH", **facts, reason=loss)
    for kind in attempts:
        try:
            return pa.array(values, type=kind, from_pandas=True)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as failure:
            reason = failure
    facts = {"column": name, "where": where, "found": "of mixed or unknown values", "expected": str(wanted)}
    raise CallerError("COLUMN_TYPE_MISMATCH", **facts, reason=sentence(reason or TypeError("unknown values")))
