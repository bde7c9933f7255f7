"""Staging: writing message files that no commit names yet; runs wherever the rows are, also on executors (DESIGN 4).

A staged file is invisible until `publisher.commit_staged` names it; one that never is, is a leftover.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from typing import IO, Any, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_queue.errors import CallerError
from spark_queue.journal.layout import Store, messages_key
from spark_queue.journal.stored_rows import RowShape, Sequences

#: Rows of a row group: what a reader hands on at a time. It decodes whole groups, so a small lease reads little beyond its own.
ROW_GROUP_ROWS = 32_768

#: Large bodies make smaller row groups, so that a reader never holds much more than this at once, in bytes.
ROW_GROUP_BYTES = 128 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class StagingPlan:
    """What staging needs to know; picklable, and the same for every file of a commit."""

    store: Store
    message_type: str
    #: How rows become stored rows.
    shape: RowShape
    #: Whether files must reach the disk before they are committed.
    durable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedFile:
    """A message file that waits for its commit, with the statistics that its `add` action will carry."""

    #: Relative to the message table.
    path: str
    rows: int
    size_bytes: int
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

    def stats(self) -> dict[str, object]:
        """Return Delta's statistics (DESIGN 15.17)."""
        # Delta keeps milliseconds: the range is widened to them, never narrowed.
        return statistics(
            rows=self.rows,
            topic_min=min(self.topics),
            topic_max=max(self.topics),
            expires_null_count=self.expires_null_count,
            expires_min_ms=None if self.expires_min_us is None else self.expires_min_us // 1_000,
            expires_max_ms=None if self.expires_max_us is None else -(-self.expires_max_us // 1_000),
        )


def statistics(
    *, rows: int, topic_min: str, topic_max: str, expires_null_count: int, expires_min_ms: int | None, expires_max_ms: int | None
) -> dict[str, object]:
    """Return Delta's statistics of a message file (DESIGN 15.17)."""
    low: dict[str, object] = {"topic": topic_min}
    high: dict[str, object] = {"topic": topic_max}
    if expires_min_ms is not None and expires_max_ms is not None:
        low["expires_at"] = _instant_text(expires_min_ms)
        high["expires_at"] = _instant_text(expires_max_ms)
    return {"numRecords": rows, "minValues": low, "maxValues": high, "nullCount": {"topic": 0, "expires_at": expires_null_count}}


def stage_file(
    plan: StagingPlan, rows: Iterable[pa.RecordBatch], *, now_ms: int, sequences: Sequences | None = None
) -> StagedFile | None:
    """Write rows to one uniquely named message file; give None when there are no rows.

    Parameters
    ----------
    plan : StagingPlan
        Where and how.
    rows : Iterable[pa.RecordBatch]
        In publish order; columns by name.
    now_ms : int
        Becomes ``published_at``, in milliseconds since 1970 UTC.
    sequences : Sequences or None
        How rows are numbered; None numbers this file by itself, under a publisher of its own (R99).

    Raises
    ------
    CallerError
        What `RowShape.apply` refuses.
    JournalError
        STORE_FAILED.
    """
    sequences = sequences or Sequences(publisher=f"~{uuid.uuid4().hex}", first=1)
    return write_file(plan, _stored(plan, rows, sequences, now_ms), now_ms=now_ms)


def _stored(plan: StagingPlan, rows: Iterable[pa.RecordBatch], sequences: Sequences, now_ms: int) -> Iterator[pa.Table]:
    first_row = 0
    for batch in rows:
        if batch.num_rows:
            yield plan.shape.apply(batch, sequences=sequences, now_ms=now_ms, first_row=first_row)
        first_row += batch.num_rows


def write_file(plan: StagingPlan, stored: Iterator[pa.Table], *, now_ms: int, is_one_publisher: bool = True) -> StagedFile | None:
    """Write stored rows to one uniquely named message file, and take their statistics; give None when there are no rows.

    Parameters
    ----------
    is_one_publisher : bool
        Whether the sequences of the rows must ascend.

    Raises
    ------
    CallerError
        Whatever making the rows raises; SEQUENCE_NOT_ASCENDING.
    JournalError
        STORE_FAILED.
    """
    groups = grouped(stored)
    first = next(groups, None)
    if first is None:
        return None
    path = f"{uuid.uuid4().hex}.parquet"
    key = f"{messages_key(plan.message_type)}/{path}"
    tally = _Tally(is_one_publisher=is_one_publisher)
    with plan.store.writer(key) as sink:
        with pq.ParquetWriter(cast(IO[bytes], sink), first.schema) as writer:
            for table in chain([first], groups):
                tally.add(table)
                writer.write_table(table, row_group_size=row_group_rows(table))
        size_bytes = sink.tell()
    if plan.durable:
        plan.store.sync([key])
    return tally.staged(path, size_bytes=size_bytes, staged_at_ms=now_ms)


def read_staged(plan: StagingPlan, file: StagedFile, *, after_sequence: int | None) -> Iterator[pa.Table]:
    """Yield the stored rows of a staged file again, those after a sequence only if one is given.

    Raises
    ------
    JournalError
        STORE_FAILED.
    """
    with plan.store.failures(f"reading staged file {file.path}"):
        parquet = pq.ParquetFile(plan.store.open(f"{messages_key(plan.message_type)}/{file.path}"))
        for batch in parquet.iter_batches():
            table = pa.Table.from_batches([batch], schema=parquet.schema_arrow)
            if after_sequence is not None:
                table = table.filter(pc.field("sequence") > after_sequence)
            if table.num_rows:
                yield table


@dataclass(slots=True, kw_only=True)
class _Tally:
    """Statistics of a file as it is written."""

    is_one_publisher: bool
    rows: int = 0
    topics: set[str] = field(default_factory=set)
    first_sequence: int = 0
    last_sequence: int = 0
    expires_null_count: int = 0
    expires: list[int] = field(default_factory=list)

    def add(self, table: pa.Table) -> None:
        sequence = table.column("sequence")
        first, last = sequence[0].as_py(), sequence[-1].as_py()
        if self.is_one_publisher and self.rows and first <= self.last_sequence:
            publisher = table.column("publisher")[0].as_py()
            raise CallerError("SEQUENCE_NOT_ASCENDING", publisher=publisher, sequence=first, previous=self.last_sequence)
        self.first_sequence = self.first_sequence if self.rows else first
        self.last_sequence = last
        self.rows += table.num_rows
        topics: list[Any] = table.column("topic").unique().to_pylist()
        self.topics.update(topics)
        expires = table.column("expires_at").cast(pa.int64())
        self.expires_null_count += expires.null_count
        if expires.null_count < len(expires):
            ends: Any = pc.min_max(expires).as_py()
            self.expires += ends.values()

    def staged(self, path: str, *, size_bytes: int, staged_at_ms: int) -> StagedFile:
        return StagedFile(
            path=path,
            rows=self.rows,
            size_bytes=size_bytes,
            staged_at_ms=staged_at_ms,
            topics=tuple(sorted(self.topics)),
            first_sequence=self.first_sequence,
            last_sequence=self.last_sequence,
            expires_null_count=self.expires_null_count,
            expires_min_us=min(self.expires, default=None),
            expires_max_us=max(self.expires, default=None),
        )


def topics_of(files: Iterable[StagedFile]) -> set[str]:
    """Return every topic of some staged files."""
    return {topic for file in files for topic in file.topics}


def grouped(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Join small tables: each one written becomes a row group of its own."""
    pending: list[pa.Table] = []
    for table in tables:
        pending.append(table)
        if sum(part.num_rows for part in pending) >= ROW_GROUP_ROWS or sum(part.nbytes for part in pending) >= ROW_GROUP_BYTES:
            yield pa.concat_tables(pending)
            pending = []
    if pending:
        yield pa.concat_tables(pending)


def row_group_rows(table: pa.Table) -> int:
    """Return the rows of a row group for rows of this size."""
    row_bytes = max(1, table.nbytes // table.num_rows)
    return max(1, min(ROW_GROUP_ROWS, ROW_GROUP_BYTES // row_bytes))


def _instant_text(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
