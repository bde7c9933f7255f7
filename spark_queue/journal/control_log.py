"""The control log: what happened to queues, as a Delta table with one writer that the log itself fences (DESIGN 3.4, 4)."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from spark_queue.core.records import Kind, Record
from spark_queue.errors import CoordinatorError, JournalError, SparkQueueError
from spark_queue.journal import delta, log_entry
from spark_queue.journal.layout import CONTROL, Store, log_key
from spark_queue.journal.record_table import CONTROL_SCHEMA, SEPARATE_KINDS, NewerDetailError, stats, to_records, to_table
from spark_queue.journal.recovery import open_repaired

#: Readers at once of the control log's files: they wait for the store, not for a processor.
_READERS = 8


class DeltaControlLog:
    """`ports.ControlLog` on the Delta table `control`.

    Parameters
    ----------
    store : Store
        The journal's place; nothing is opened before the first call.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        #: The head as this reign knows it; None before `load`.
        self._version: int | None = None
        #: The newest epoch known: of what was loaded, or the own one.
        self._epoch = 0
        self._next_record = 0
        #: Whether commits must survive power loss; the log says so itself, in `definitions_applied`.
        self.durable = False

    @property
    def version(self) -> int:
        """The version of the last commit that was loaded or made here."""
        if self._version is None:
            raise CoordinatorError("INTERNAL", what="the control log was used before it was loaded")
        return self._version

    def load(self) -> Sequence[Record]:
        """Refresh and give every record in order, and take the head as the place to append at.

        What a power loss tore is set aside first, and reported (`recovery`).

        Raises
        ------
        JournalError
            NOT_A_JOURNAL, JOURNAL_DAMAGED when records are not dense or epochs go back, PROTOCOL_NEWER, STORE_FAILED.
        """
        table = _open(self._store)
        records = read_records(self._store, table)
        self._version, self._next_record = int(table.version()), len(records)
        self._epoch = records[-1].epoch if records else 0
        self._heed(records)
        return records

    def append(self, records: Sequence[Record], *, epoch: int) -> None:
        """Commit numbered records by one swap at the head, carrying `epoch`, and check that it holds.

        Raises
        ------
        CoordinatorError
            COORDINATOR_DEPOSED when the swap is refused or the check fails: the process must end.
        JournalError
            STORE_FAILED when the outcome is unknown: the process must end.
        """
        base = self.version
        if records[0].record != self._next_record:
            raise CoordinatorError("INTERNAL", what=f"record {records[0].record} would follow record {self._next_record - 1}")
        if epoch < self._epoch:
            raise self._deposed(epoch, f"the log carries epoch {self._epoch}")
        self._heed(records)
        if records[0].kind == Kind.EPOCH_CLAIMED:
            # Every election asks again: the store may have been moved to one that overwrites (DESIGN 4, power loss).
            self._store.check_put_if_absent()
        files = stage_records(self._store, records)
        if self.durable:
            self._store.sync(f"{CONTROL}/{file.path}" for file in files)
        self._swap(base + 1, files, epoch=epoch, at_ms=records[-1].at_ms)
        if self.durable:
            self._store.sync([log_key(CONTROL, base + 1)])
        self._check(base + 1, known=base, epoch=epoch)
        self._version, self._epoch, self._next_record = base + 1, epoch, records[-1].record + 1

    def check(self, *, epoch: int) -> None:
        """Look whether the head is still the own last commit and the epoch the own one (P7).

        Raises
        ------
        CoordinatorError
            COORDINATOR_DEPOSED when it is not.
        JournalError
            STORE_FAILED when the log cannot be read: the process must end.
        """
        self._check(self.version, known=self.version, epoch=epoch)

    def checkpoint(self, *, epoch: int) -> int:
        """Write a checkpoint at the head, and give its version; another thread may go on appending meanwhile.

        Raises
        ------
        CoordinatorError
            COORDINATOR_DEPOSED when another has written: the process must end.
        JournalError
            STORE_FAILED.
        """
        table = _open(self._store)
        found = table.transaction_version(delta.COORDINATOR_TXN) or 0
        if found != epoch:
            raise self._deposed(epoch, f"the log carries epoch {found}")
        delta.checkpoint(self._store, CONTROL, table, durable=self.durable)
        return int(table.version())

    def _heed(self, records: Iterable[Record]) -> None:
        for record in records:
            if record.kind == Kind.DEFINITIONS_APPLIED:
                journal = record.detail["definitions"].get("journal", {})
                self.durable = journal.get("durability") == "fsync"

    def _swap(self, version: int, files: Sequence[delta.NewFile], *, epoch: int, at_ms: int) -> None:
        mark = delta.Mark(writer="coordinator")
        transactions = [(delta.COORDINATOR_TXN, epoch)]
        with self._store.failures("committing records"):
            created = log_entry.create_entry(
                self._store, CONTROL, version, files, mark=mark, transactions=transactions, at_ms=at_ms
            )
        if not created:
            raise self._deposed(epoch, f"version {version} was committed by another")

    def _check(self, head: int, *, known: int, epoch: int) -> None:
        """Look whether the log ends with the own commit `head`, of which `known` is an earlier one or itself (DESIGN 3.4).

        Whoever claims a reign writes the version after the one that stood there. If that is not to be found, it may have been
        written and cleaned away since; but entries go oldest first, so then `known` is gone too. It is looked for last.
        """
        if self._epoch > epoch:
            raise self._deposed(epoch, f"the log carries epoch {self._epoch}")
        if self._store.read(log_key(CONTROL, head + 1)) is not None:
            raise self._deposed(epoch, f"the log goes on after version {head}, so another has written")
        if self._store.read(log_key(CONTROL, known)) is None:
            raise self._deposed(epoch, f"version {known} was cleaned away, so another has written")

    def _deposed(self, epoch: int, reason: str) -> SparkQueueError:
        return CoordinatorError("COORDINATOR_DEPOSED", epoch=epoch, path=self._store.path, reason=reason)


def read_log(store: Store) -> Sequence[Record]:
    """Give every record in order, for those who only look.

    Raises
    ------
    JournalError
        NOT_A_JOURNAL, JOURNAL_DAMAGED, PROTOCOL_NEWER or STORE_FAILED.
    """
    return read_records(store, _open(store))


def read_setup(store: Store) -> Sequence[Record]:
    """Give the `journal_created` record and the newest `definitions_applied` without reading the rest.

    Raises
    ------
    JournalError
        NOT_A_JOURNAL, JOURNAL_DAMAGED, PROTOCOL_NEWER or STORE_FAILED.
    """
    listing = _listing(store, _open(store))
    kinds = {kind: [path for path, low, high in listing if low == high == kind] for kind in SEPARATE_KINDS}
    if not all(kinds.values()):
        raise delta.damaged(store, "its control log names no journal", "The file with its first records is not listed.")
    paths = [kinds[Kind.JOURNAL_CREATED][0], kinds[Kind.DEFINITIONS_APPLIED][-1]]
    created, applied = (_to_records(store, _read_file(store, path))[-1] for path in paths)
    return created, applied


def read_records(store: Store, table: DeltaTable) -> list[Record]:
    """Give every record of an open control log, checked for gaps (DESIGN 4, power loss).

    Raises
    ------
    JournalError
        JOURNAL_DAMAGED, PROTOCOL_NEWER or STORE_FAILED.
    """
    paths = [path for path, _, _ in _listing(store, table)]
    with ThreadPoolExecutor(_READERS) as readers:
        files = list(readers.map(lambda path: _read_file(store, path), paths))
    records = _to_records(store, pa.concat_tables(files))
    _check_records(store, records)
    return records


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
    return [_stage_file(store, group) for group in groups]


def _stage_file(store: Store, records: Sequence[Record]) -> delta.NewFile:
    sink = pa.BufferOutputStream()
    pq.write_table(to_table(records), sink)
    data = sink.getvalue().to_pybytes()
    path = f"{records[0].record:020d}-{uuid.uuid4().hex}.parquet"
    store.write(f"{CONTROL}/{path}", data)
    return delta.NewFile(path=path, size_bytes=len(data), modified_ms=records[-1].at_ms, stats=stats(records))


def _open(store: Store) -> DeltaTable:
    table = open_repaired(store, CONTROL)
    if table is None:
        raise JournalError("NOT_A_JOURNAL", path=store.path, reason="it has no control log.")
    return table


def _listing(store: Store, table: DeltaTable) -> list[tuple[str, str, str]]:
    """Give path, lowest and highest kind of each file, in the order of their records.

    Raises
    ------
    JournalError
        JOURNAL_DAMAGED when a file has no statistics: only a stranger writes such.
    """
    actions = pa.table(table.get_add_actions(flatten=True))
    columns: list[list[Any]] = [actions.column(name).to_pylist() for name in ("min.record", "path", "min.kind", "max.kind")]
    for first, path, *kinds in zip(*columns, strict=True):
        if first is None or None in kinds:
            raise delta.damaged(store, f"control/{path} has no statistics", "It was not written by spark_queue.")
    return [entry[1:] for entry in sorted(zip(*columns, strict=True))]


def _read_file(store: Store, path: str) -> pa.Table:
    data = store.read(f"{CONTROL}/{path}")
    if data is None:
        raise delta.damaged(store, f"control/{path} is missing", "The log names it.")
    try:
        # Columns that a newer version appended mean nothing here; one that is missing is damage. The files are small and many,
        # and read at once already: threads for the columns of each cost more than they bring.
        return pq.ParquetFile(pa.BufferReader(data)).read(columns=CONTROL_SCHEMA.names, use_threads=False).cast(CONTROL_SCHEMA)
    except (pa.ArrowException, OSError, ValueError) as reason:
        raise delta.damaged(store, f"control/{path} cannot be read", store.reason(reason)) from None


def _to_records(store: Store, rows: pa.Table) -> list[Record]:
    try:
        return list(to_records(rows.combine_chunks()))
    except NewerDetailError as newer:
        raise JournalError("PROTOCOL_NEWER", path=store.path, what=str(newer)) from None
    except (msgspec.DecodeError, KeyError) as reason:
        raise delta.damaged(store, "a record's detail cannot be read", store.reason(reason)) from None


def _check_records(store: Store, records: Sequence[Record]) -> None:
    epoch = 0
    for number, record in enumerate(records):
        if record.record != number:
            raise delta.damaged(store, f"record {number} is missing", f"The control log goes on with record {record.record}.")
        if record.epoch < epoch:
            raise delta.damaged(store, f"record {number} has epoch {record.epoch} after {epoch}", "Epochs never go back.")
        epoch = record.epoch
