"""From a caller's rows to stored rows: columns by name, cast without loss, and the envelope after them (DESIGN 15.3).

Runs on executors too, so it imports pyarrow and nothing heavier.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_queue.core.definitions.column_names import ColumnNames
from spark_queue.errors import CallerError
from spark_queue.journal.casting import cast
from spark_queue.journal.conversion import Column, LossError, first_row
from spark_queue.journal.json_bodies import check_bodies
from spark_queue.journal.schema import declared_as

#: Largest value of one column of one message, in bytes: Spark and Arrow pass whole values around.
MESSAGE_LIMIT_BYTES = 512 * 1024 * 1024

#: The message type whose one column holds JSON text.
JSON_TYPE = "json"

_INSTANT = pa.timestamp("us", tz="UTC")
_MICROSECONDS = 1_000


class Sequences:
    """The numbers that one publisher's rows get, in order.

    Without `first`, the number of the first row, they come from `column`.
    """

    def __init__(self, *, publisher: str, first: int | None = None, column: str | None = None) -> None:
        self.publisher = publisher
        self._next = first
        self._column = column
        #: The last number so far.
        self._last: NDArray[np.int64] = np.empty(0, dtype=np.int64)

    def take(self, rows: pa.RecordBatch, names: ColumnNames | None = None) -> Column:
        """Return the numbers of the next rows; `names` are those by which callers know the columns, if not their own."""
        if self._next is not None:
            first, self._next = self._next, self._next + rows.num_rows
            return pa.array(np.arange(first, self._next, dtype=np.int64))
        column = (names or ColumnNames(rows.schema.names)).find(str(self._column))
        if column not in rows.schema.names:
            raise self._missing(f"the column '{self._column}', which the rows do not have.")
        numbers = cast_column(rows.column(column), pa.field(str(column), pa.int64()), where="the rows")
        if numbers.null_count:
            raise self._missing(f"'{column}' is NULL in {numbers.null_count} row(s).")
        self._check_ascending(numbers.to_numpy())
        return numbers

    def _check_ascending(self, numbers: Any) -> None:
        told = np.concatenate([self._last, numbers])
        late = np.flatnonzero(told[1:] <= told[:-1])
        if len(late):
            previous, sequence = (int(number) for number in told[late[0] : late[0] + 2])
            raise CallerError("SEQUENCE_NOT_ASCENDING", publisher=self.publisher, sequence=sequence, previous=previous)
        self._last = told[-1:]

    def _missing(self, reason: str) -> CallerError:
        return CallerError("SEQUENCE_MISSING", publisher=self.publisher, what="a sequence column", reason=reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowShape:
    """How rows of one publish become rows of a message type; picklable."""

    message_type: str
    #: The stored schema (`schema.stored_schema`).
    schema: pa.Schema
    #: Topic of every row; None for the rows' own column.
    topic: str | None
    #: Queue name -> topic that a publish to it goes to, where they differ (R62).
    publish_targets: Mapping[str, str] = field(default_factory=dict)
    #: Life of every message, in milliseconds; None for the rows' own `expires_at` column, or none.
    expires_after_ms: int | None = None
    #: `MessageTypeDefinition.rename`.
    rename: tuple[tuple[str, str], ...] = ()

    def apply(self, rows: pa.RecordBatch, *, sequences: Sequences, now_ms: int, first_row: int = 0) -> pa.Table:
        """Make stored rows; `first_row` is the number of the first one, for errors."""
        names = self._names
        rows = rows.rename_columns(names.resolve(rows.schema.names, where=self._where))
        envelope = {
            "topic": self._topics(rows),
            "publisher": _repeat(sequences.publisher, pa.string(), rows),
            "sequence": sequences.take(rows, names),
            "published_at": _repeat(now_ms * _MICROSECONDS, _INSTANT, rows),
            "expires_at": self._expires(rows, now_ms),
        }
        given = set(rows.schema.names)
        columns = [
            envelope[field.name]
            if field.name in envelope
            else self._column(
                rows.column(field.name) if field.name in given else pa.nulls(rows.num_rows, field.type), field, first_row
            )
            for field in self.schema
        ]
        table = pa.Table.from_arrays(columns, schema=self.schema)
        if self.message_type == JSON_TYPE:
            check_bodies(columns[0], first_row)
        _check_sizes(table)
        return table

    def declared(self, names: list[str]) -> list[str]:
        """Return the declared name of each column."""
        return self._names.resolve(names, where=self._where)

    @property
    def _names(self) -> ColumnNames:
        known = [name for name in self.schema.names if name not in ("publisher", "sequence", "published_at")]
        return ColumnNames(known, dict(self.rename))

    @property
    def _where(self) -> str:
        return f"message type '{self.message_type}'"

    def _column(self, column: Column, wanted: pa.Field[Any], row: int) -> Column:
        column = cast_column(column, wanted, where=self._where, row=row)
        if column.null_count and not wanted.nullable:
            absent = LossError(first_row(column.is_null()) or 0, "NULL", "there is no value to store.")
            raise mismatch(wanted, absent, where=self._where, row=row)
        return column

    def _topics(self, rows: pa.RecordBatch) -> Column:
        if self.topic is not None:
            return _repeat(self.publish_targets.get(self.topic, self.topic), pa.string(), rows)
        if "topic" not in rows.schema.names:
            raise topic_missing(rows.num_rows, self._names, where=self._where)
        topics = cast_column(rows.column("topic"), self.schema.field("topic"), where=self._where)
        if topics.null_count:
            raise CallerError("TOPIC_MISSING", rows=topics.null_count)
        if not self.publish_targets:
            return topics
        encoded: Any = topics.dictionary_encode()
        known: list[Any] = encoded.dictionary.to_pylist()
        targets = [self.publish_targets.get(topic, topic) for topic in known]
        return pa.array(targets, pa.string()).take(encoded.indices)

    def _expires(self, rows: pa.RecordBatch, now_ms: int) -> Column:
        if self.expires_after_ms is not None:
            return _repeat((now_ms + self.expires_after_ms) * _MICROSECONDS, _INSTANT, rows)
        if "expires_at" in rows.schema.names:
            return cast_column(rows.column("expires_at"), self.schema.field("expires_at"), where=self._where)
        return pa.nulls(rows.num_rows, _INSTANT)


def cast_column(column: Column, wanted: pa.Field[Any], *, where: str, row: int = 0) -> Column:
    """Cast a column without loss; `row` is the number of its first row, for errors."""
    try:
        return cast(column, wanted.type)
    except LossError as lost:
        raise mismatch(wanted, lost, where=where, row=row) from None


def mismatch(wanted: pa.Field[Any], lost: LossError, *, where: str, row: int = 0) -> CallerError:
    """Return the refusal of a value; `row` is the number of the first row that was looked at."""
    facts = {"column": wanted.name, "where": where, "found": lost.found, "expected": declared_as(wanted), "reason": lost.reason}
    return CallerError("COLUMN_TYPE_MISMATCH", **facts, row=row + lost.row)


def topic_missing(rows: int, names: ColumnNames, *, where: str) -> CallerError:
    """Return the refusal of rows without a topic, which says so if their own column `topic` means another one."""
    refusal, meant = CallerError("TOPIC_MISSING", rows=rows), names.find("topic")
    if meant not in (None, "topic"):
        refusal.add_note(f"`rename` of {where} makes column 'topic' column '{meant}', so only the publish call can name the topic.")
    return refusal


def _repeat(value: Any, kind: pa.DataType, rows: pa.RecordBatch) -> Column:
    constant: Any = pa.scalar(value, kind)
    column: Column = pa.repeat(constant, rows.num_rows)
    return column


def _check_sizes(table: pa.Table) -> None:
    if table.nbytes <= MESSAGE_LIMIT_BYTES:
        return
    for column in table.columns:
        if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
            size = pc.max(pc.binary_length(column)).as_py() or 0
            if size > MESSAGE_LIMIT_BYTES:
                next_step = "Store the body elsewhere and publish its address."
                raise CallerError("MESSAGE_TOO_LARGE", size=size, limit=MESSAGE_LIMIT_BYTES, next_step=next_step)
