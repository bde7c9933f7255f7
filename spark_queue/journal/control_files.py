"""The data files of the control log: which there are, what they hold, and how records come out of them and go in (DESIGN 4)."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from spark_queue.core.records import Record
from spark_queue.errors import JournalError
from spark_queue.journal import delta
from spark_queue.journal.layout import CONTROL, Store
from spark_queue.journal.record_table import CONTROL_SCHEMA, SEPARATE_KINDS, NewerDetailError, stats, to_records, to_table

#: Readers at once of the control log's files: they wait for the store, not for a processor.
_READERS = 8

#: Rows of one row group: what is read at least of a large file of which only the end is wanted.
_ROW_GROUP_RECORDS = 8_192


@dataclass(frozen=True, slots=True, order=True)
class ControlFile:
    """One data file of the control log, as its statistics tell it; in the order of records."""

    #: Numbers of its first and last record.
    first: int
    last: int
    #: Relative to the table.
    path: str
    #: Lowest and highest kind.
    kinds: tuple[str, str]

    @classmethod
    def of_add(cls, add: Mapping[str, Any]) -> ControlFile:
        """Return the file of an `add` action, as an entry of the log has it; what it lacks raises as it comes."""
        statistics = msgspec.json.decode(add["stats"])
        low, high = statistics["minValues"], statistics["maxValues"]
        return cls(low["record"], high["record"], add["path"], (low["kind"], high["kind"]))

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
    """Return the files of an open control log, in the order of their records.

    Raises
    ------
    JournalError
        JOURNAL_DAMAGED when a file has no statistics: only a stranger writes such.
    """
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


def read_records(store: Store, files: Sequence[ControlFile], *, first: int = 0) -> list[Record]:
    """Return every record of a listing from number `first` on, checked for gaps (DESIGN 4, power loss).

    Raises
    ------
    JournalError
        JOURNAL_DAMAGED, PROTOCOL_NEWER or STORE_FAILED.
    """
    return to_records_of(store, read_rows(store, files, first=first))


def read_rows(store: Store, files: Sequence[ControlFile], *, first: int = 0) -> pa.Table:
    """Return the rows of every record of a listing from number `first` on, checked for gaps; making records of them costs more.

    Raises
    ------
    JournalError
        JOURNAL_DAMAGED or STORE_FAILED.
    """
    wanted = [file for file in files if file.last >= first]
    with ThreadPoolExecutor(_READERS) as readers:
        tables = list(readers.map(lambda file: read_known(store, file.path, first=first), wanted))
    rows = pa.concat_tables([pa.Table.from_batches([], CONTROL_SCHEMA), *tables]).combine_chunks()
    _check_rows(store, rows, first)
    return rows


def read_known(store: Store, path: str, *, first: int = 0) -> pa.Table:
    """Read the columns that this software knows of a file, only records from number `first` on.

    Columns that a newer version appended mean nothing here; one that is missing is damage.

    Raises
    ------
    JournalError
        JOURNAL_DAMAGED or STORE_FAILED.
    """
    return read_file(store, path, columns=CONTROL_SCHEMA.names, first=first).cast(CONTROL_SCHEMA)


def read_file(store: Store, path: str, *, columns: list[str] | None = None, first: int = 0) -> pa.Table:
    """Read a file from record `first` on: the named columns, or all of them, also such as a newer version appended.

    Raises
    ------
    JournalError
        JOURNAL_DAMAGED or STORE_FAILED.
    """
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
    """Read the records of rows.

    Raises
    ------
    JournalError
        JOURNAL_DAMAGED or PROTOCOL_NEWER.
    """
    try:
        return list(to_records(rows.combine_chunks()))
    except NewerDetailError as newer:
        raise JournalError("PROTOCOL_NEWER", path=store.path, what=str(newer)) from None
    except (msgspec.DecodeError, KeyError) as reason:
        raise delta.damaged(store, "a record's detail cannot be read", store.reason(reason)) from None


def _check_rows(store: Store, rows: pa.Table, first: int) -> None:
    numbers, epochs = (np.from_dlpack(rows.column(name).combine_chunks()) for name in ("record", "epoch"))
    odd = np.flatnonzero(numbers != np.arange(first, first + len(numbers)))
    if len(odd):
        number = first + int(odd[0])
        raise delta.damaged(store, f"record {number} is missing", f"The control log goes on with record {numbers[odd[0]]}.")
    back = np.flatnonzero(np.diff(epochs) < 0)
    if len(back):
        before, epoch = epochs[back[0] : back[0] + 2]
        what = f"record {first + int(back[0]) + 1} has epoch {epoch} after {before}"
        raise delta.damaged(store, what, "Epochs never go back.")


def stage_records(store: Store, records: Sequence[Record]) -> list[delta.NewFile]:
    """Write records to data files that no commit names yet; kinds of `SEPARATE_KINDS` go to files of their own.

    Raises
    ------
    JournalError
        STORE_FAILED.
    """
    groups: list[list[Record]] = []
    for record in records:
        alone = record.kind in SEPARATE_KINDS
        if alone or not groups or groups[-1][-1].kind in SEPARATE_KINDS:
            groups.append([])
        groups[-1].append(record)
    return [stage_rows(store, to_table(group), at_ms=group[-1].at_ms) for group in groups]


def stage_rows(store: Store, rows: pa.Table, *, at_ms: int, data_change: bool = True) -> delta.NewFile:
    """Write rows, which are in the order of their records, to one data file that no commit names yet.

    Raises
    ------
    JournalError
        STORE_FAILED.
    """
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, row_group_size=_ROW_GROUP_RECORDS)
    data = sink.getvalue().to_pybytes()
    found = stats(rows)
    path = f"{found['minValues']['record']:020d}-{uuid.uuid4().hex}.parquet"
    store.write(f"{CONTROL}/{path}", data)
    return delta.NewFile(path=path, size_bytes=len(data), modified_ms=at_ms, stats=found, data_change=data_change)
