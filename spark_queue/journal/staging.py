"""Staging: writing message files that no commit names yet; runs wherever the rows are, also on executors (DESIGN 4).

A staged file is invisible until `publisher.commit_staged` names it; one that never is, is a leftover.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import IO, Any, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_queue.journal.fingerprint import ColumnSum, ColumnSums
from spark_queue.journal.parquet_bounds import bounded_columns
from spark_queue.journal.store import Store, messages_key
from spark_queue.journal.stored_rows import RowShape, Sequences

#: Rows of a row group, which a reader hands on at a time. It decodes whole groups, so a small lease reads little beyond its own.
ROW_GROUP_ROWS = 32_768

#: Large bodies make smaller row groups, so that a reader never holds much more than this at once, in bytes.
ROW_GROUP_BYTES = 128 * 1024 * 1024

#: Bytes of rows that are fewer than those of a row group, and so all that a file gets.
SMALL_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class StagingPlan:
    """Instructions for staging; picklable, and the same for every file of a commit."""

    store: Store
    message_type: str
    #: How rows become stored rows.
    shape: RowShape
    #: Whether files must reach the disk before they are committed.
    durable: bool
    #: How long after the commit its messages are delivered at the earliest; None for at once (R128).
    deliver_after_ms: int | None = None
    #: Whether a repeat of a write is known by its rows, so that their columns are summed up.
    sums_columns: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedFile:
    """A message file that waits for its commit, with the statistics that its `add` action will carry."""

    #: Relative to the message table.
    path: str
    row_count: int
    size_bytes: int
    #: Of its rows in memory.
    memory_bytes: int
    #: When staging began, in milliseconds since 1970 UTC, by the stager's clock.
    staged_at_ms: int
    #: Every topic in it.
    topics: tuple[str, ...]
    #: Sequence of the first and last row.
    first_sequence: int
    last_sequence: int
    expires_null_count: int
    #: Range of the others, in microseconds since 1970 UTC.
    expires_min_us: int | None = None
    expires_max_us: int | None = None
    #: Its columns, where the plan says so.
    columns: Mapping[str, ColumnSum] = field(default_factory=dict)

    def stats(self) -> dict[str, object]:
        """Return Delta's statistics (DESIGN 15.17)."""
        low: dict[str, object] = {"topic": min(self.topics)}
        high: dict[str, object] = {"topic": max(self.topics)}
        if self.expires_min_us is not None and self.expires_max_us is not None:
            # Delta keeps milliseconds: the range is widened to them, never narrowed, but for the last one that a text can hold.
            low["expires_at"] = _instant_text(self.expires_min_us // 1_000)
            high["expires_at"] = _instant_text(min(-(-self.expires_max_us // 1_000), _LAST_MS))
        nulls = {"topic": 0, "expires_at": self.expires_null_count}
        return {"numRecords": self.row_count, "minValues": low, "maxValues": high, "nullCount": nulls}


def stage_file(
    plan: StagingPlan, rows: Iterable[pa.RecordBatch], *, now_ms: int, sequences: Sequences | None = None
) -> StagedFile | None:
    """Write rows to one uniquely named message file; give None when there are no rows.

    Without `sequences` the file's rows number themselves, under a publisher of their own (R99).
    """
    stored = stored_tables(plan, rows, sequences=sequences or Sequences(publisher=own_publisher(), first=1), now_ms=now_ms)
    if not plan.sums_columns:
        return write_file(plan, stored, now_ms=now_ms)
    sums = ColumnSums(now_ms)
    file = write_file(plan, sums.watch(stored), now_ms=now_ms)
    return None if file is None else replace(file, columns=sums.columns)


def own_publisher() -> str:
    """Return the publisher of a file whose rows number themselves (R99)."""
    return f"~{uuid.uuid4().hex}"


def stored_tables(plan: StagingPlan, rows: Iterable[pa.RecordBatch], *, sequences: Sequences, now_ms: int) -> Iterator[pa.Table]:
    """Yield rows as they are stored."""
    first_row = 0
    for batch in rows:
        if batch.num_rows:
            yield plan.shape.apply(batch, sequences=sequences, now_ms=now_ms, first_row=first_row)
        first_row += batch.num_rows


def write_file(plan: StagingPlan, stored: Iterator[pa.Table], *, now_ms: int) -> StagedFile | None:
    """Write stored rows to one uniquely named message file, with their statistics; returns None when there are no rows."""
    first = next(stored, None)
    if first is None:
        return None
    key = f"{messages_key(plan.message_type)}/{uuid.uuid4().hex}.parquet"
    file = write_rows(plan.store, key, chain([first], stored), first.schema, now_ms=now_ms)
    if plan.durable:
        plan.store.sync([key])
    return file


def write_rows(
    store: Store, key: str, rows: Iterable[pa.Table], schema: pa.Schema, *, now_ms: int, metadata: Mapping[str, str] | None = None
) -> StagedFile:
    """Write stored rows, of which there are some, to a message file that may describe itself in `metadata`."""
    topics, memory_bytes = set[str](), 0
    groups = _grouped(rows)
    first, first_bytes = next(groups)
    # Parquet is written in dozens of pieces: of a few rows, which are all there are, they are put together first.
    small = pa.BufferOutputStream() if first_bytes <= SMALL_BYTES else None
    with store.writer(key) as sink:
        target = cast(IO[bytes], sink) if small is None else small
        with pq.ParquetWriter(target, schema, write_statistics=list(bounded_columns(schema))) as writer:
            for table, table_bytes in chain([(first, first_bytes)], groups):
                found: list[Any] = table.column("topic").unique().to_pylist()
                topics.update(found)
                writer.write_table(table, row_group_size=_row_group_rows(table.num_rows, table_bytes))
                memory_bytes += table_bytes
            if metadata:
                writer.add_key_value_metadata(dict(metadata))
        if small is not None:
            sink.write(small.getvalue())
        size_bytes = sink.tell()
    # Not by way of a `metadata_collector`, which hides the error of a write.
    file: pq.FileMetaData = cast(Any, writer).writer.metadata
    sequences, expires = (_statistics(file, name) for name in ("sequence", "expires_at"))
    return StagedFile(
        path=key.rpartition("/")[2],
        row_count=file.num_rows,
        size_bytes=size_bytes,
        memory_bytes=memory_bytes,
        staged_at_ms=now_ms,
        topics=tuple(sorted(topics)),
        first_sequence=min(each.min_raw for each in sequences),
        last_sequence=max(each.max_raw for each in sequences),
        expires_null_count=sum(each.null_count for each in expires),
        expires_min_us=min((each.min_raw for each in expires if each.has_min_max), default=None),
        expires_max_us=max((each.max_raw for each in expires if each.has_min_max), default=None),
    )


def _statistics(file: pq.FileMetaData, column: str) -> list[Any]:
    """Return the statistics of each row group for a column."""
    index = [file.schema.column(number).path for number in range(file.num_columns)].index(column)
    return [file.row_group(number).column(index).statistics for number in range(file.num_row_groups)]


def read_staged(plan: StagingPlan, file: StagedFile, *, after_sequence: int | None) -> Iterator[pa.Table]:
    """Yield the stored rows of a staged file again, those after a sequence only if one is given."""
    with plan.store.failures(f"reading staged file {file.path}"):
        parquet = pq.ParquetFile(plan.store.open(f"{messages_key(plan.message_type)}/{file.path}"))
        for batch in parquet.iter_batches():
            table = pa.Table.from_batches([batch], schema=parquet.schema_arrow)
            if after_sequence is not None:
                table = table.filter(pc.field("sequence") > after_sequence)
            if table.num_rows:
                yield table


def _grouped(tables: Iterable[pa.Table]) -> Iterator[tuple[pa.Table, int]]:
    """Join small tables, since each one written becomes a row group of its own; yields their bytes beside them."""
    pending: list[pa.Table] = []
    row_count = size_bytes = 0
    for table in tables:
        pending.append(table)
        row_count, size_bytes = row_count + table.num_rows, size_bytes + table.nbytes
        if row_count >= ROW_GROUP_ROWS or size_bytes >= ROW_GROUP_BYTES:
            yield pa.concat_tables(pending), size_bytes
            pending, row_count, size_bytes = [], 0, 0
    if pending:
        yield pa.concat_tables(pending), size_bytes


def _row_group_rows(row_count: int, size_bytes: int) -> int:
    """Return the rows of a row group for rows of this size."""
    row_bytes = max(1, size_bytes // row_count)
    return max(1, min(ROW_GROUP_ROWS, ROW_GROUP_BYTES // row_bytes))


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MS = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)


def _instant_text(time_ms: int) -> str:
    return (_EPOCH + timedelta(milliseconds=time_ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
