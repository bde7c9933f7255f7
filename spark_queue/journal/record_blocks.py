"""The blocks in which the control log holds records: data files, and entries that hold them themselves (DESIGN 4)."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from spark_queue.core.records import Kind, Record
from spark_queue.errors import JournalError
from spark_queue.journal.damage import damaged
from spark_queue.journal.entry_parts import NewFile
from spark_queue.journal.read_ahead import read_together
from spark_queue.journal.record_table import (
    CONTROL_SCHEMA,
    SEPARATE_KINDS,
    DetailError,
    NewerDetailError,
    Row,
    rows_to_table,
    to_records,
    to_table,
)
from spark_queue.journal.store import CONTROL, Store

#: Readers at once of the control log's files: they wait for the store, not for a processor.
_READERS = 8

#: Rows of one row group: the least that is read of a large file of which only the end is wanted.
_ROW_GROUP_RECORDS = 8_192

#: How a file is written that holds so few records that compressing and describing them takes longer than it saves.
_COMMIT_RECORDS = 64
_OF_A_COMMIT: Mapping[str, Any] = {
    "compression": "none", "use_dictionary": False, "write_statistics": False, "store_schema": False
}  # fmt: skip


@dataclass(frozen=True, slots=True, order=True)
class RecordBlock:
    """Records without a gap that stand in one place; in the order of records."""

    #: Numbers of its first and last record.
    first: int
    last: int
    #: Of a data file, relative to the table; empty where entries hold them.
    path: str
    #: Lowest and highest kind.
    kinds: tuple[str, str]
    #: The rows that entries hold; none of a data file.
    rows: Sequence[Row] = field(default=(), compare=False, repr=False)

    @classmethod
    def of_add(cls, add: Mapping[str, Any]) -> RecordBlock:
        """Return the block of an `add` action, as an entry of the log has it; a missing part raises as it comes."""
        statistics = msgspec.json.decode(add["stats"])
        low, high = statistics["minValues"], statistics["maxValues"]
        return cls(low["record"], high["record"], add["path"], (low["kind"], high["kind"]))

    @classmethod
    def of_rows(cls, rows: Sequence[Row]) -> RecordBlock:
        """Return the block of rows that entries hold, of which there is one at least."""
        kinds = [row.kind for row in rows]
        return cls(rows[0].record, rows[-1].record, "", (min(kinds), max(kinds)), rows)

    @classmethod
    def new(cls, first: int, last: int, kinds: Iterable[str]) -> RecordBlock:
        """Return the block of a data file that is yet to be written, of records of these kinds."""
        ordered = sorted(kinds)
        return cls(first, last, f"{first:020d}-{uuid.uuid4().hex}.parquet", (ordered[0], ordered[-1]))

    def stats(self) -> dict[str, Any]:
        """Return Delta's statistics of it, as needed to find one's way among files."""
        (low, high), none = self.kinds, {"record": 0, "kind": 0}
        ends = {"minValues": {"record": self.first, "kind": low}, "maxValues": {"record": self.last, "kind": high}}
        return {"numRecords": self.records, **ends, "nullCount": none}

    @property
    def records(self) -> int:
        """How many it holds."""
        return self.last - self.first + 1

    @property
    def is_file(self) -> bool:
        """Whether it is a data file."""
        return bool(self.path)

    @property
    def name(self) -> str:
        """Its name in errors."""
        return f"control/{self.path}" if self.is_file else f"records {self.first} to {self.last} in entries of the control log"

    def holds_only(self, kind: str) -> bool:
        """Return whether all of its records are of a kind."""
        return self.kinds == (kind, kind)

    @property
    def is_separate(self) -> bool:
        """Whether it must stay as it is, so that statistics alone find its records."""
        return any(self.holds_only(kind) for kind in SEPARATE_KINDS)


def read_records(store: Store, blocks: Sequence[RecordBlock], *, first: int = 0, until: int | None = None) -> list[Record]:
    """Return every record of blocks from number `first` to before `until`, checked for gaps (DESIGN 4, power loss)."""
    count = None if until is None else max(0, until - first)
    wanted = [block for block in blocks if until is None or block.first < until]
    return to_records_of(store, read_rows(store, wanted, first=first).slice(0, count))


def read_rows(store: Store, blocks: Sequence[RecordBlock], *, first: int = 0, schema: pa.Schema = CONTROL_SCHEMA) -> pa.Table:
    """Return the rows of every record of blocks from number `first` on, checked for gaps; making records of them costs more."""
    wanted = [block for block in blocks if block.last >= first]
    tables = read_together(lambda block: read_known(store, block, first=first, schema=schema), wanted, at_once=_READERS)
    rows = pa.concat_tables([pa.Table.from_batches([], schema), *tables]).combine_chunks()
    _check_rows(store, rows, first)
    return rows


def read_known(store: Store, block: RecordBlock, *, first: int = 0, schema: pa.Schema = CONTROL_SCHEMA) -> pa.Table:
    """Read the columns that this software knows of a block, only records from number `first` on.

    Columns that a newer version appended to a file mean nothing here; one that is missing is damage.
    """
    rows = read_block(store, block, columns=schema.names, first=first)
    # A cast that changes nothing would load `pyarrow.compute`, which costs a receiver more than its own modules.
    return rows if rows.schema == schema else rows.cast(schema)


class ControlRows:
    """The rows of a control log: some columns of all of them, and the whole of a few. Millions of whole ones take gigabytes.

    Attributes
    ----------
    count : int
        How many there are.
    """

    def __init__(self, store: Store, blocks: Sequence[RecordBlock]) -> None:
        self._store, self._blocks = store, blocks
        self.count = blocks[-1].last + 1 if blocks else 0

    def columns(self, *names: str, first: int = 0) -> pa.Table:
        """Return some columns of all records from number `first` on."""
        schema = pa.schema([CONTROL_SCHEMA.field(name) for name in ("record", "epoch", *names)])
        return read_rows(self._store, self._blocks, first=first, schema=schema).select(list(names))

    def where(self, test: Callable[[pa.Table], NDArray[np.bool_]], *names: str) -> NDArray[np.int64]:
        """Return the numbers of the records that pass a test of some columns, block by block."""
        schema = pa.schema([CONTROL_SCHEMA.field(name) for name in names])

        def found(block: RecordBlock) -> NDArray[np.int64]:
            rows = read_known(self._store, block, schema=schema)
            return block.first + np.flatnonzero(test(rows.combine_chunks()))

        return np.concatenate([np.empty(0, np.int64), *read_together(found, self._blocks, at_once=_READERS)])

    def applied(self) -> list[Record]:
        """Return all `definitions_applied` records, oldest first: they stand in files of their own."""
        blocks = [block for block in self._blocks if block.holds_only(Kind.DEFINITIONS_APPLIED)]
        return [record for block in blocks for record in to_records_of(self._store, read_known(self._store, block))]

    def records(self, numbers: NDArray[np.int64]) -> list[Record]:
        """Return the records of some numbers, which ascend."""
        return [record for part in self.parts(numbers) for record in part]

    def parts(self, numbers: NDArray[np.int64]) -> Iterator[list[Record]]:
        """Yield the same block by block: many of them need not be in memory at once."""
        return (to_records_of(self._store, rows) for rows in self.tables(numbers))

    def tables(self, numbers: NDArray[np.int64], *names: str) -> Iterator[pa.Table]:
        """Yield the rows of some numbers, which ascend, or some columns of them, block by block."""
        schema = pa.schema([CONTROL_SCHEMA.field(name) for name in names or CONTROL_SCHEMA.names])
        for block in self._blocks:
            low, high = np.searchsorted(numbers, [block.first, block.last + 1])
            if low < high:
                first = int(numbers[low])
                rows = read_known(self._store, block, first=first, schema=schema)
                yield rows.take(numbers[low:high] - first)


def read_block(store: Store, block: RecordBlock, *, columns: list[str] | None = None, first: int = 0) -> pa.Table:
    """Read a block from record `first` on: the named columns, or all of them, also such as a newer version appended to a file."""
    if not block.is_file:
        held = rows_to_table(block.rows[max(0, first - block.first) :])
        return held if columns is None else held.select(columns)
    data = store.read(f"{CONTROL}/{block.path}")
    if data is None:
        raise damaged(store, f"{block.name} is missing", "The log names it.")
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        absent = sorted(set(CONTROL_SCHEMA.names) - set(file.schema_arrow.names))
        if absent:
            raise ValueError(f"it has no column {absent[0]}")
        # A file holds records without a gap, so the place of one is known without looking.
        groups, skipped = _groups_since(file, first - block.first)
        # The files are small and many, and read at once already: threads for the columns of each cost more than they bring.
        return file.read_row_groups(groups, columns=columns, use_threads=False).slice(skipped)
    except (pa.ArrowException, OSError, ValueError) as reason:
        raise damaged(store, f"{block.name} cannot be read", store.reason(reason)) from None


def _groups_since(file: pq.ParquetFile, row: int) -> tuple[list[int], int]:
    """Return the row groups that hold rows from `row` on, and how many rows of the first of them come before it."""
    groups, start = list(range(file.num_row_groups)), max(0, row)
    while groups and start >= (rows := file.metadata.row_group(groups[0]).num_rows):
        groups, start = groups[1:], start - rows
    return groups, start


def to_records_of(store: Store, rows: pa.Table) -> list[Record]:
    """Read the records of rows."""
    try:
        return list(to_records(rows.combine_chunks()))
    except NewerDetailError as newer:
        raise JournalError("PROTOCOL_NEWER", path=store.path, what=str(newer)) from None
    except DetailError as wrong:
        raise damaged(store, f"{wrong.record} cannot be read", store.reason(wrong)) from None


def _check_rows(store: Store, rows: pa.Table, first: int) -> None:
    numbers, epochs = (np.from_dlpack(rows.column(name).combine_chunks()) for name in ("record", "epoch"))
    odd = np.flatnonzero(numbers != np.arange(first, first + len(numbers)))
    if len(odd):
        number = first + int(odd[0])
        raise damaged(store, f"record {number} is missing", f"The control log continues with record {numbers[odd[0]]}.")
    back = np.flatnonzero(np.diff(epochs) < 0)
    if len(back):
        before, epoch = epochs[back[0] : back[0] + 2]
        what = f"record {first + int(back[0]) + 1} has epoch {epoch} after {before}"
        raise damaged(store, what, "Epochs never go back.")


def stage_records(store: Store, records: Sequence[Record]) -> list[NewFile]:
    """Write records to data files that no commit names yet; kinds of `SEPARATE_KINDS` go to files of their own."""
    groups: list[list[Record]] = []
    for record in records:
        alone = record.kind in SEPARATE_KINDS
        if alone or not groups or groups[-1][-1].kind in SEPARATE_KINDS:
            groups.append([])
        groups[-1].append(record)
    staged = [(group, RecordBlock.new(group[0].record, group[-1].record, (each.kind for each in group))) for group in groups]
    return [stage_rows(store, block, to_table(group), at_ms=group[-1].at_ms) for group, block in staged]


def stage_rows(store: Store, block: RecordBlock, rows: pa.Table, *, at_ms: int, data_change: bool = True) -> NewFile:
    """Write the rows of a file's records, which no commit names yet."""
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, row_group_size=_ROW_GROUP_RECORDS, **(_OF_A_COMMIT if rows.num_rows <= _COMMIT_RECORDS else {}))
    data = sink.getvalue().to_pybytes()
    with store.writer(f"{CONTROL}/{block.path}") as written:
        written.write(data)
    return NewFile(path=block.path, size_bytes=len(data), modified_ms=at_ms, stats=block.stats(), data_change=data_change)
