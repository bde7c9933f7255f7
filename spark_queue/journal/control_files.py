"""The data files of the control log: which there are, what they hold, and how records come out of them and go in (DESIGN 4).

Records as rows of the control log (DESIGN 4): one Arrow schema, one way there and one way back.
Merging the control log's small files (DESIGN 4): one file for many commits, so that a start reads few of them.
"""

from __future__ import annotations

import re
import uuid
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from numpy.typing import NDArray

from spark_queue.core.bitmaps.ranges import RangeArray
from spark_queue.core.records import CRITICAL_KINDS, DETAIL_VERSION, OF_NEXT_VERSION, Kind, Record
from spark_queue.errors import JournalError
from spark_queue.journal import delta
from spark_queue.journal.schema import INSTANT, schema_of
from spark_queue.journal.store import CONTROL, Store

_RANGE = pa.struct([pa.field("first", pa.int64(), nullable=False), pa.field("until", pa.int64(), nullable=False)])

CONTROL_SCHEMA = schema_of(
    pa.field("record", pa.int64(), nullable=False),
    pa.field("epoch", pa.int64(), nullable=False),
    pa.field("at", INSTANT, nullable=False),
    pa.field("kind", pa.string(), nullable=False),
    pa.field("message_type", pa.string()),
    pa.field("queue", pa.string()),
    pa.field("subscription", pa.string()),
    pa.field("lease", pa.int64()),
    pa.field("ranges", pa.list_(pa.field("element", _RANGE))),
    pa.field("reason", pa.string()),
    pa.field("due_at", INSTANT),
    pa.field("detail", pa.string(), nullable=False),
)

#: Columns that a record has under the same name, as they are.
_PLAIN = ("record", "epoch", "kind", "message_type", "queue", "subscription", "lease", "reason")
_plain_of = attrgetter(*_PLAIN)

#: All columns but the ranges.
_FLAT = pa.struct([CONTROL_SCHEMA.field(name) for name in (*_PLAIN, "at", "due_at", "detail")])

#: Kinds whose records stand in files of their own, so that statistics alone find them.
SEPARATE_KINDS = frozenset({Kind.JOURNAL_CREATED, Kind.DEFINITIONS_APPLIED})

_MICROSECONDS = 1_000


class NewerDetailError(Exception):
    """A record's detail has a version that this software does not know; the control log names it to the caller."""

    def __init__(self, kind: str, record: int) -> None:
        super().__init__(f"record {record} of kind {str(kind)[:50]!r}")


def to_table(records: Sequence[Record]) -> pa.Table:
    """Make the rows of records."""
    rows = [(*_plain_of(record), _instant(record.at_ms), _instant(record.due_at_ms), _detail(record)) for record in records]
    # As one column of structs: Arrow takes as long for that as for each column alone, and every commit waits for it.
    structs: Any = pa.array(rows, _FLAT)
    columns = dict(zip(_FLAT.names, structs.flatten(), strict=True))
    columns["ranges"] = _ranges([record.ranges for record in records])
    return pa.Table.from_arrays([columns[name] for name in CONTROL_SCHEMA.names], schema=CONTROL_SCHEMA)


def _instant(time_ms: int | None) -> int | None:
    return None if time_ms is None else time_ms * _MICROSECONDS


def _detail(record: Record) -> str:
    # Older software must refuse what it would go wrong without.
    version = DETAIL_VERSION + (OF_NEXT_VERSION.get(record.kind) in record.detail)
    critical = {"critical": True} if record.kind in CRITICAL_KINDS else {}
    return msgspec.json.encode({"v": version, **critical, **record.detail}).decode()


def to_records(table: pa.Table) -> Iterator[Record]:
    """Read the records of rows, in the rows' order."""
    for batch in table.to_batches():
        yield from _batch_records(batch)


def _ranges(lists: Sequence[Sequence[tuple[int, int]]]) -> pa.Array[Any]:
    edges = np.concatenate([_edges(ranges) for ranges in lists]) if lists else np.empty(0, dtype=np.int64)
    offsets = np.cumsum([0, *(len(ranges) for ranges in lists)], dtype=np.int32)
    pairs = pa.StructArray.from_arrays([pa.array(edges[0::2]), pa.array(edges[1::2])], fields=list(_RANGE))
    kind: Any = CONTROL_SCHEMA.field("ranges").type
    found: pa.Array[Any] = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pairs, type=kind)
    return found


def _batch_records(batch: pa.RecordBatch) -> Iterator[Record]:
    columns: dict[str, Any] = {name: batch.column(name) for name in CONTROL_SCHEMA.names}
    at, due_at = (columns[name].cast(pa.int64()).to_pylist() for name in ("at", "due_at"))
    ranges = _range_arrays(columns["ranges"])
    details = columns["detail"].to_pylist()
    plain = [columns[name].to_pylist() for name in _PLAIN]
    # Not by name: a start reads a hundred thousand of them.
    for i, (record, epoch, kind, message_type, queue, subscription, lease, reason) in enumerate(zip(*plain, strict=True)):
        detail = msgspec.json.decode(details[i])
        if detail.pop("v") > DETAIL_VERSION + (kind in OF_NEXT_VERSION):
            raise NewerDetailError(kind, record)
        if kind in CRITICAL_KINDS:
            detail.pop("critical")
        yield Record(
            kind=kind,
            record=record,
            epoch=epoch,
            at_ms=at[i] // _MICROSECONDS,
            message_type=message_type,
            queue=queue,
            subscription=subscription,
            lease=lease,
            ranges=ranges[i],
            reason=reason,
            due_at_ms=None if due_at[i] is None else due_at[i] // _MICROSECONDS,
            detail=detail,
        )


def _edges(ranges: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
    return ranges.edges if isinstance(ranges, RangeArray) else np.array(ranges, dtype=np.int64).reshape(-1)


def _range_arrays(lists: Any) -> list[RangeArray]:
    flat = lists.flatten()
    edges = np.empty(2 * len(flat), dtype=np.int64)
    edges[::2], edges[1::2] = np.from_dlpack(flat.field("first")), np.from_dlpack(flat.field("until"))
    lengths = lists.value_lengths()
    lengths = np.from_dlpack(lengths.fill_null(0) if lengths.null_count else lengths)
    ends = 2 * np.cumsum(lengths)
    return [RangeArray(edges[end - 2 * length : end]) for end, length in zip(ends.tolist(), lengths.tolist(), strict=True)]


#: Readers at once of the control log's files: they wait for the store, not for a processor.
_READERS = 8

#: Rows of one row group: what is read at least of a large file of which only the end is wanted.
_ROW_GROUP_RECORDS = 8_192

#: How a file is written that holds so few records that compressing and describing them takes longer than it saves.
_COMMIT_RECORDS = 64
_OF_A_COMMIT: Mapping[str, Any] = {
    "compression": "none", "use_dictionary": False, "write_statistics": False, "store_schema": False
}  # fmt: skip


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

    @classmethod
    def new(cls, first: int, last: int, kinds: Iterable[str]) -> ControlFile:
        """Return a file that is yet to be written, of records of these kinds."""
        ordered = sorted(kinds)
        return cls(first, last, f"{first:020d}-{uuid.uuid4().hex}.parquet", (ordered[0], ordered[-1]))

    def stats(self) -> dict[str, Any]:
        """Return Delta's statistics of it: what finding one's way among files needs."""
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
    """Return the rows of every record of a listing from number `first` on, checked for gaps; making records of them costs more.

    Parameters
    ----------
    schema
        The columns to read, among them `record` and `epoch`.
    """
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

    Parameters
    ----------
    store : Store
        The journal's place.
    files : Sequence of ControlFile
        The log's.

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
    except (msgspec.DecodeError, KeyError) as reason:
        raise delta.damaged(store, "a record's detail cannot be read", store.reason(reason)) from None


def _check_rows(store: Store, rows: pa.Table, first: int) -> None:
    numbers, epochs = (np.from_dlpack(rows.column(name).combine_chunks()) for name in ("record", "epoch"))
    odd = np.flatnonzero(numbers != np.arange(first, first + len(numbers)))
    if len(odd):
        number = first + int(odd[0])
        reason = f"The control log goes on with record {numbers[odd[0]]}."
        # delta-rs takes an empty entry for a commit without files (tried).
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
    return [_stage_rows(store, file, to_table(group), at_ms=group[-1].at_ms) for group, file in staged]


def _stage_rows(store: Store, file: ControlFile, rows: pa.Table, *, at_ms: int, data_change: bool = True) -> delta.NewFile:
    """Write the rows of a file's records, which no commit names yet."""
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, row_group_size=_ROW_GROUP_RECORDS, **(_OF_A_COMMIT if rows.num_rows <= _COMMIT_RECORDS else {}))
    data = sink.getvalue().to_pybytes()
    with store.writer(f"{CONTROL}/{file.path}") as written:
        written.write(data)
    return delta.NewFile(path=file.path, size_bytes=len(data), modified_ms=at_ms, stats=file.stats(), data_change=data_change)


#: Records at which a file is large enough: reading it once more to merge it would save nothing.
FULL_FILE_RECORDS = 100_000

#: How long what nothing names any more stays, in milliseconds: whoever opened the table before may still be reading it.
LEFTOVERS_KEPT_MS = 24 * 3600 * 1000

#: A staged plan that is older than this is dropped, in milliseconds: a host that slept in between would begin the time
#: that replaced files stay too early.
PLAN_VALID_MS = 3600 * 1000

_DATA_FILE = re.compile(r"control/(\d{20})-[0-9a-f]{32}\.parquet")


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """Staged files, and the paths of those whose records they hold together."""

    files: Sequence[delta.NewFile]
    removed: Sequence[str]
    #: Of the reign that made the plan.
    epoch: int
    at_ms: int


def plan(files: Sequence[ControlFile]) -> list[Sequence[ControlFile]]:
    """Return the neighbours to merge, each group into one file.

    In each stretch the newest files are merged, as far back as a file holds no more records than all newer ones together.
    What is left shrinks at least by half from file to file, so there are few; and each merge at least doubles the file that
    a record stands in, so a record is written again only as often as the log doubles.
    """
    groups: list[Sequence[ControlFile]] = []
    for stretch in _stretches(files):
        newer = np.cumsum([0, *(file.records for file in reversed(stretch))])[-2::-1]
        first = next((at for at, file in enumerate(stretch) if file.records <= newer[at]), None)
        if first is not None:
            groups.append(stretch[first:])
    return groups


def _stretches(files: Sequence[ControlFile]) -> list[list[ControlFile]]:
    """Cut the files where one must stay alone, and where a stretch is as long as a file may become."""
    stretches: list[list[ControlFile]] = [[]]
    records = 0
    for file in files:
        if file.is_separate or records >= FULL_FILE_RECORDS:
            stretches.append([])
            records = 0
        if not file.is_separate:
            stretches[-1].append(file)
            records += file.records
    return stretches


def stage(store: Store, files: Sequence[ControlFile], *, epoch: int, at_ms: int) -> Merge | None:
    """Write the files that a listing should have instead, and give the plan; None when it is well as it is."""
    groups = plan(files)
    if not groups:
        return None
    staged = [_stage_rows(store, _united(group), _merged(store, group), at_ms=at_ms, data_change=False) for group in groups]
    return Merge(files=staged, removed=[file.path for group in groups for file in group], epoch=epoch, at_ms=at_ms)


def _united(group: Sequence[ControlFile]) -> ControlFile:
    return ControlFile.new(group[0].first, group[-1].last, (kind for file in group for kind in file.kinds))


def _merged(store: Store, group: Sequence[ControlFile]) -> pa.Table:
    # Whole, with columns that are unknown here: those of a newer version must survive a merge by an older one.
    rows = pa.concat_tables([read_file(store, file.path) for file in group], promote_options="default")
    if not np.array_equal(rows.column("record").to_numpy(), np.arange(group[0].first, group[-1].last + 1)):
        raise delta.damaged(store, f"records are missing in control/{group[0].path} to {group[-1].path}", "They are not dense.")
    return rows


def data_files(store: Store) -> dict[str, int]:
    """Return the keys of the data files in the store, and when each was written by the store's own time, in milliseconds."""
    return {entry.key: entry.modified_ms for entry in store.list(CONTROL) if _DATA_FILE.fullmatch(entry.key)}


def leftovers(found: Mapping[str, int], files: Sequence[ControlFile]) -> list[str]:
    """Return the keys of data files that may go: no listing names them, and they and what holds their records stood long enough.

    Replaced files, merged files that were never committed, and records of a reign that ended in the middle of a commit all
    are such. Times are the store's own, so no other clock matters.

    Parameters
    ----------
    found : Mapping[str, int]
        The `data_files` of the store, looked up before `files`: whatever is committed in between is named. What is committed
        later was written within `PLAN_VALID_MS`, so its age keeps it, however long the caller sleeps.
    files : Sequence[ControlFile]
        The log's, of a reign that holds.
    """
    if not found:
        return []
    settled_ms = max(found.values()) - LEFTOVERS_KEPT_MS
    named = {f"{CONTROL}/{file.path}" for file in files}
    settled = [file for file in files if found.get(f"{CONTROL}/{file.path}", settled_ms) < settled_ms]
    old = [key for key, written_ms in found.items() if written_ms < settled_ms and key not in named]
    return [key for key in old if _holds(settled, int(key[len(CONTROL) + 1 :][:20]))]


def _holds(files: Sequence[ControlFile], record: int) -> bool:
    at = bisect_right(files, record, key=lambda file: file.first) - 1
    return at >= 0 and record <= files[at].last
