"""The data files of the control log: their listing, their rows, and how records come out of them and go in (DESIGN 4)."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from numpy.typing import NDArray

from spark_queue.core.records import Kind, Record
from spark_queue.errors import JournalError
from spark_queue.journal import delta
from spark_queue.journal.record_table import CONTROL_SCHEMA, SEPARATE_KINDS, DetailError, NewerDetailError, to_records, to_table
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
class ControlFile:
    """One data file of the control log, as its statistics describe it; in the order of records."""

    #: Numbers of its first and last record.
    first: int
    last: int
    #: Relative to the table.
    path: str
    #: Lowest and highest kind.
    kinds: tuple[str, str]

    @classmethod
    def of_add(cls, add: Mapping[str, Any]) -> ControlFile:
        """Return the file of an `add` action, as an entry of the log has it; a missing part raises as it comes."""
        statistics = msgspec.json.decode(add["stats"])
        low, high = statistics["minValues"], statistics["maxValues"]
        return cls(low["record"], high["record"], add["path"], (low["kind"], high["kind"]))

    @classmethod
    def new(cls, first: int, last: int, kinds: Iterable[str]) -> ControlFile:
        """Return a file that is yet to be written, of records of these kinds."""
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

    def holds_only(self, kind: str) -> bool:
        """Return whether all of its records are of a kind."""
        return self.kinds == (kind, kind)

    @property
    def is_separate(self) -> bool:
        """Whether it must stay as it is, so that statistics alone find its records."""
        return any(self.holds_only(kind) for kind in SEPARATE_KINDS)


def listing(store: Store, table: DeltaTable) -> list[ControlFile]:
    """Return the files of an open control log, in the order of their records."""
    # Not by `pa.table`, which loads pandas to ask whether it is given a data frame: that takes longer than all that follows.
    actions = pa.RecordBatchReader.from_stream(table.get_add_actions(flatten=True)).read_all()
    names = ("min.record", "max.record", "path", "min.kind", "max.kind")
    columns: list[list[Any]] = [actions.column(name).to_pylist() for name in names]
    files = []
    for first, last, path, *kinds in zip(*columns, strict=True):
        if None in (first, last, *kinds):
            raise delta.damaged(store, f"control/{path} has no statistics", "It was not written by spark_queue.")
        files.append(ControlFile(first, last, path, (kinds[0], kinds[1])))
    return sorted(files)


def read_records(store: Store, files: Sequence[ControlFile], *, first: int = 0, until: int | None = None) -> list[Record]:
    """Return every record of a listing from number `first` to before `until`, checked for gaps (DESIGN 4, power loss)."""
    count = None if until is None else max(0, until - first)
    wanted = [file for file in files if until is None or file.first < until]
    return to_records_of(store, read_rows(store, wanted, first=first).slice(0, count))


def read_rows(store: Store, files: Sequence[ControlFile], *, first: int = 0, schema: pa.Schema = CONTROL_SCHEMA) -> pa.Table:
    """Return the rows of every record of a listing from number `first` on, checked for gaps; making records of them costs more."""
    wanted = [file for file in files if file.last >= first]
    with ThreadPoolExecutor(_READERS) as readers:
        tables = list(readers.map(lambda file: read_known(store, file.path, first=first, schema=schema), wanted))
    rows = pa.concat_tables([pa.Table.from_batches([], schema), *tables]).combine_chunks()
    _check_rows(store, rows, first)
    return rows


def read_known(store: Store, path: str, *, first: int = 0, schema: pa.Schema = CONTROL_SCHEMA) -> pa.Table:
    """Read the columns that this software knows of a file, only records from number `first` on.

    Columns that a newer version appended mean nothing here; one that is missing is damage.
    """
    return read_file(store, path, columns=schema.names, first=first).cast(schema)


class ControlRows:
    """The rows of a control log: some columns of all of them, and the whole of a few. Millions of whole ones take gigabytes.

    Attributes
    ----------
    count : int
        How many there are.
    """

    def __init__(self, store: Store, files: Sequence[ControlFile]) -> None:
        self._store, self._files = store, files
        self.count = files[-1].last + 1 if files else 0

    def columns(self, *names: str, first: int = 0) -> pa.Table:
        """Return some columns of all records from number `first` on."""
        schema = pa.schema([CONTROL_SCHEMA.field(name) for name in ("record", "epoch", *names)])
        return read_rows(self._store, self._files, first=first, schema=schema).select(list(names))

    def where(self, test: Callable[[pa.Table], NDArray[np.bool_]], *names: str) -> NDArray[np.int64]:
        """Return the numbers of the records that pass a test of some columns, file by file."""
        schema = pa.schema([CONTROL_SCHEMA.field(name) for name in names])

        def found(file: ControlFile) -> NDArray[np.int64]:
            rows = read_known(self._store, file.path, schema=schema)
            return file.first + np.flatnonzero(test(rows.combine_chunks()))

        with ThreadPoolExecutor(_READERS) as readers:
            return np.concatenate([np.empty(0, np.int64), *readers.map(found, self._files)])

    def applied(self) -> list[Record]:
        """Return all `definitions_applied` records, oldest first: they stand in files of their own."""
        paths = [file.path for file in self._files if file.holds_only(Kind.DEFINITIONS_APPLIED)]
        return [record for path in paths for record in to_records_of(self._store, read_known(self._store, path))]

    def records(self, numbers: NDArray[np.int64]) -> list[Record]:
        """Return the records of some numbers, which ascend."""
        return [record for part in self.parts(numbers) for record in part]

    def parts(self, numbers: NDArray[np.int64]) -> Iterator[list[Record]]:
        """Yield the same file by file: many of them need not be in memory at once."""
        return (to_records_of(self._store, rows) for rows in self.tables(numbers))

    def tables(self, numbers: NDArray[np.int64], *names: str) -> Iterator[pa.Table]:
        """Yield the rows of some numbers, which ascend, or some columns of them, file by file."""
        schema = pa.schema([CONTROL_SCHEMA.field(name) for name in names or CONTROL_SCHEMA.names])
        for file in self._files:
            low, high = np.searchsorted(numbers, [file.first, file.last + 1])
            if low < high:
                first = int(numbers[low])
                rows = read_known(self._store, file.path, first=first, schema=schema)
                yield rows.take(numbers[low:high] - first)


def read_file(store: Store, path: str, *, columns: list[str] | None = None, first: int = 0) -> pa.Table:
    """Read a file from record `first` on: the named columns, or all of them, also such as a newer version appended."""
    data = store.read(f"{CONTROL}/{path}")
    if data is None:
        raise delta.damaged(store, f"control/{path} is missing", "The log names it.")
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        absent = sorted(set(CONTROL_SCHEMA.names) - set(file.schema_arrow.names))
        if absent:
            raise ValueError(f"it has no column {absent[0]}")
        # A file holds records without a gap, so the place of one is known without looking.
        groups, skipped = _groups_since(file, first - int(path[:20]))
        # The files are small and many, and read at once already: threads for the columns of each cost more than they bring.
        return file.read_row_groups(groups, columns=columns, use_threads=False).slice(skipped)
    except (pa.ArrowException, OSError, ValueError) as reason:
        raise delta.damaged(store, f"control/{path} cannot be read", store.reason(reason)) from None


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
        raise delta.damaged(store, f"{wrong.record} cannot be read", store.reason(wrong)) from None


def _check_rows(store: Store, rows: pa.Table, first: int) -> None:
    numbers, epochs = (np.from_dlpack(rows.column(name).combine_chunks()) for name in ("record", "epoch"))
    odd = np.flatnonzero(numbers != np.arange(first, first + len(numbers)))
    if len(odd):
        number = first + int(odd[0])
        reason = f"The control log continues with record {numbers[odd[0]]}."
        # For delta-rs an empty entry is a commit without files (tried).
        raise next(iter(delta.damaged_files(store, CONTROL)), delta.damaged(store, f"record {number} is missing", reason))
    back = np.flatnonzero(np.diff(epochs) < 0)
    if len(back):
        before, epoch = epochs[back[0] : back[0] + 2]
        what = f"record {first + int(back[0]) + 1} has epoch {epoch} after {before}"
        raise delta.damaged(store, what, "Epochs never go back.")


def stage_records(store: Store, records: Sequence[Record]) -> list[delta.NewFile]:
    """Write records to data files that no commit names yet; kinds of `SEPARATE_KINDS` go to files of their own."""
    groups: list[list[Record]] = []
    for record in records:
        alone = record.kind in SEPARATE_KINDS
        if alone or not groups or groups[-1][-1].kind in SEPARATE_KINDS:
            groups.append([])
        groups[-1].append(record)
    staged = [(group, ControlFile.new(group[0].record, group[-1].record, (each.kind for each in group))) for group in groups]
    return [stage_rows(store, file, to_table(group), at_ms=group[-1].at_ms) for group, file in staged]


def stage_rows(store: Store, file: ControlFile, rows: pa.Table, *, at_ms: int, data_change: bool = True) -> delta.NewFile:
    """Write the rows of a file's records, which no commit names yet."""
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, row_group_size=_ROW_GROUP_RECORDS, **(_OF_A_COMMIT if rows.num_rows <= _COMMIT_RECORDS else {}))
    data = sink.getvalue().to_pybytes()
    with store.writer(f"{CONTROL}/{file.path}") as written:
        written.write(data)
    return delta.NewFile(path=file.path, size_bytes=len(data), modified_ms=at_ms, stats=file.stats(), data_change=data_change)
