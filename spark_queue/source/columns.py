"""The columns that a read gives: the message type's own, then the journal's, then those that the reader appends."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from spark_queue.core.definitions.column_names import ColumnNames
from spark_queue.errors import CallerError
from spark_queue.journal.schema import ENVELOPE, ORIGIN, user_schema
from spark_queue.journal.sql_types import INSTANT

_BOOKMARK = pa.field("bookmark", pa.int64(), nullable=False)

#: Columns that only a lease gives.
_OF_LEASE = (
    pa.field("delivery_count", pa.int32(), nullable=False),
    pa.field("cancel_count", pa.int32(), nullable=False),
    pa.field("lease", pa.int64(), nullable=False),
    pa.field("leased_until", INSTANT, nullable=False),
    pa.field("is_barrier", pa.bool_(), nullable=False),
)


def read_columns(columns: str, *, leased: bool, of_instance: bool) -> pa.Schema:
    """Return the columns of a read of a message type, by a queue stream or without leases; `columns` is the type's DDL."""
    origin, of_lease = ORIGIN if of_instance else (), _OF_LEASE if leased else ()
    return pa.schema([*user_schema(columns), _BOOKMARK, *ENVELOPE, *origin, *of_lease])


def chosen(available: pa.Schema, names: tuple[str, ...] | None, *, where: str) -> pa.Schema:
    """Return the named columns, in that order and in their own spelling, or all of them."""
    if names is None:
        return available
    return pa.schema([available.field(column) for column in ColumnNames(available.names).resolve(names, where=where)])


def check_kept_up(loaded: str | None, columns: str, *, message_type: str) -> None:
    """Refuse to read on by the columns that a message type had when it was loaded, where it has others: rows would lack values.

    `loaded` is None where the reader has chosen columns, which it keeps.
    """
    if loaded is None or loaded == columns:
        return
    known = user_schema(loaded)
    others = [field.name for field in user_schema(columns) if field not in known]
    if others:
        raise CallerError("COLUMNS_APPENDED", message_type=message_type, columns=", ".join(f"'{name}'" for name in others))


def to_spark(schema: pa.Schema) -> StructType:
    """Return a schema as Spark's; times without a zone are wall-clock readings, as in the journal."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)
