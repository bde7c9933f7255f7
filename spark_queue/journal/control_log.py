"""The control log: the history of queues, as a Delta table with one writer that the log itself fences (DESIGN 3.4, 4)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from spark_queue.core.bitmaps.ranges import count_rows
from spark_queue.core.log_tail import LogTail
from spark_queue.core.records import DefinitionsApplied, Kind, Record
from spark_queue.errors import CoordinatorError, SparkQueueError
from spark_queue.journal import control_checkpoint, entry_writing, snapshot
from spark_queue.journal.control_compaction import Merge
from spark_queue.journal.control_table import ControlTable
from spark_queue.journal.definitions_notice import announce
from spark_queue.journal.entry_parts import COORDINATOR_TXN, Mark, NewFile
from spark_queue.journal.log_entry import LogEntry
from spark_queue.journal.log_listing import LastCheckpoint
from spark_queue.journal.reader import open_control
from spark_queue.journal.record_blocks import RecordBlock, read_known, stage_records, stage_rows, to_records_of
from spark_queue.journal.record_table import SEPARATE_KINDS, Row, rows_to_table, to_row
from spark_queue.journal.store import CONTROL, Store, log_key

#: How many entering messages cost as much to fold as one record, where a queue selects by expressions.
MESSAGES_PER_RECORD = 50


#: Number of the first record that replaces definitions: a journal begins with two others.
_FIRST_REPLACING = 2

_WRITER = "coordinator"

#: About how many bytes of records an entry holds at most; more of them get a data file at once. Whoever opens the log reads each
#: entry since the last checkpoint.
HELD_BYTES = 256 * 1024
#: About how many a range takes.
_RANGE_BYTES = 20


class DeltaControlLog:
    """`ports.ControlLog` on the Delta table `control`; nothing is opened before the first call."""

    def __init__(self, store: Store) -> None:
        self._store = store
        #: The log as this reign knows it; None before `load`.
        self._table: ControlTable | None = None
        self._epoch = 0
        self._next_record = 0
        #: Records since the last snapshot, with what enters by them, and those of them that replace definitions.
        self._replayed = self._applied = 0
        #: Whether the outcome of a commit is unknown: then nothing may be written or answered any more.
        self._is_in_doubt = False
        #: Whether commits must survive power loss; the log says so itself, in `definitions_applied`.
        self.durable = False

    @property
    def table(self) -> ControlTable:
        """The log as it was loaded, with what was committed here; it changes with each commit."""
        if self._table is None:
            raise CoordinatorError("INTERNAL", what="the control log was used before it was loaded")
        return self._table

    @property
    def epoch(self) -> int:
        """The newest epoch known: of the loaded records, or the own one."""
        return self._epoch

    @property
    def version(self) -> int:
        """The version of the last commit that was loaded or made here."""
        return self.table.version

    def load(self) -> LogTail:
        """See `ports.ControlLog`; entries that a power loss tore are set aside first, and reported (`repair`)."""
        self._table = table = open_control(self._store)
        tail = snapshot.load(self._store, table.blocks)
        self._next_record = tail.next_record
        self._epoch = tail.records[-1].epoch if tail.records else 0 if tail.state is None else tail.state.epoch
        self.durable = tail.state is not None and tail.state.definitions.journal.durable
        self._heed(tail.records)
        if self.durable:
            # The last commit of a coordinator that died may not have reached the disk (PROTOCOL 6).
            self._store.sync([log_key(CONTROL, table.version)])
        self.forget_cost()
        self._note_cost(tail.records)
        # Whoever made that commit may have died before publishers could learn of it; a snapshot may hold its records by now.
        self._announce(_definitions_of(self._store, table.head))
        return tail

    def append(self, records: Sequence[Record], *, epoch: int) -> None:
        """See `ports.ControlLog`."""
        if records[0].record != self._next_record:
            raise CoordinatorError("INTERNAL", what=f"record {records[0].record} would follow record {self._next_record - 1}")
        if epoch < self._epoch:
            raise self._deposed(epoch, f"the log carries epoch {self._epoch}")
        was_durable = self.durable
        self._heed(records)
        if self.durable and not was_durable:
            # A durable commit builds on earlier ones that were not, by whomever.
            self._store.sync_all()
        if records[0].kind == Kind.EPOCH_CLAIMED:
            # Every election asks again: the store may have been moved to one that overwrites (DESIGN 4, power loss).
            self._store.check_put_if_absent()
        rows, held_since = [to_row(record) for record in records], self.table.held_since
        if _are_held(rows):
            mark = Mark(writer=_WRITER, records=rows, held_since=self.version + 1 if held_since is None else held_since)
            self._commit([], epoch=epoch, at_ms=records[-1].at_ms, mark=mark)
        else:
            files = stage_records(self._store, records)
            self._commit(files, epoch=epoch, at_ms=records[-1].at_ms, mark=Mark(writer=_WRITER, held_since=held_since))
        self._epoch, self._next_record = epoch, records[-1].record + 1
        self._note_cost(records)
        self._announce(records)

    def replay_cost(self, files: int) -> int:
        """Return the cost of folding the log since the last snapshot, in records, where there are this many message files.

        Other definitions may let messages of each of these into a queue, or rank them anew.
        """
        return self._replayed + self._applied * files

    def forget_cost(self) -> None:
        """Count anew: a snapshot is about to be taken."""
        self._replayed = self._applied = 0

    def _note_cost(self, records: Sequence[Record]) -> None:
        entered = sum(count_rows(record.ranges) for record in records if record.kind == Kind.ENTERED)
        self._replayed += len(records) + entered // MESSAGES_PER_RECORD
        self._applied += sum(record.kind == Kind.DEFINITIONS_APPLIED for record in records)

    def flush(self, merge: Merge | None = None, *, epoch: int, at_ms: int) -> None:
        """Commit data files of all records that entries hold, and a merge of others, between two commits of records.

        After it a reader of the table finds every record, and a checkpoint may be made. The plan of a merge holds as long as the
        reign that made it: nobody else takes files out of the table. Where the outcome is unknown, every later call ends in
        COORDINATOR_DEPOSED.
        """
        held = [block for block in self.table.blocks if not block.is_file]
        files = [
            stage_rows(self._store, RecordBlock.new(block.first, block.last, block.kinds), rows_to_table(block.rows), at_ms=at_ms)
            for block in held
        ]
        merged, removed = ([], []) if merge is None else (merge.files, merge.removed)
        if files or merged:
            self._commit([*files, *merged], epoch=epoch, at_ms=at_ms, mark=Mark(writer=_WRITER), removed=removed)
        else:
            # Whoever makes a checkpoint now must still reign, too.
            self.check(epoch=epoch)

    def _commit(self, files: Sequence[NewFile], *, epoch: int, at_ms: int, mark: Mark, removed: Sequence[str] = ()) -> None:
        """Commit at the head, in the order that outlives a power loss, and check that it holds."""
        base = self.version
        self._refuse_in_doubt(epoch)
        if self._store.is_local:
            # Somebody may have deleted the journal and made another one there, whose log must not get the records of this one.
            self._check_standing(base, epoch=epoch)
        if self.durable and files:
            self._store.sync(f"{CONTROL}/{file.path}" for file in files)
        self._is_in_doubt = True
        with self._store.failures("committing records"):
            created = entry_writing.create_entry(
                self._store, CONTROL, base + 1, files, mark=mark, epoch=epoch, at_ms=at_ms, removed=removed
            )
        if created is None:
            raise self._deposed(epoch, f"version {base + 1} was committed by another")
        if self.durable:
            self._store.sync([log_key(CONTROL, base + 1)])
        self._is_in_doubt = False
        # Then nobody else has ever had the version after it; a reign that was claimed since has folded this commit.
        self._check_standing(base, epoch=epoch)
        self.table.apply(created)

    def check(self, *, epoch: int) -> None:
        """See `ports.ControlLog`; the process must end where the log cannot be read (STORE_FAILED), too."""
        self._refuse_in_doubt(epoch)
        if self._epoch > epoch:
            raise self._deposed(epoch, f"the log carries epoch {self._epoch}")
        if self._store.read(log_key(CONTROL, self.version + 1)) is not None:
            raise self._deposed(epoch, f"the log goes on after version {self.version}, so another process has written")
        # A claim that is not to be found may have been written and cleaned away since; but entries go oldest first, so then the own
        # one is gone too. It is looked for last.
        self._check_standing(self.version, epoch=epoch)

    def checkpoint(self, table: LogEntry) -> LastCheckpoint:
        """Write a checkpoint of what the log said right after a flush; another thread may go on appending meanwhile."""
        return control_checkpoint.write(self._store, table, durable=self.durable)

    def look(self, *, epoch: int) -> ControlTable:
        """Read the log anew, and refuse one of a newer reign; another thread may go on appending meanwhile."""
        table = open_control(self._store)
        found = table.transactions.get(COORDINATOR_TXN, 0)
        if found != epoch:
            raise self._deposed(epoch, f"the log carries epoch {found}")
        return table

    def _announce(self, records: Iterable[Record]) -> None:
        """Name new definitions in each message log, so that no publisher commits there any more by those before (PROTOCOL 3).

        Only after their own commit: a publisher that heard of them sooner would find the old ones. The first ones replace none.
        """
        for record in records:
            if isinstance(record.body, DefinitionsApplied) and record.record >= _FIRST_REPLACING:
                announce(self._store, record, durable=self.durable)

    def _heed(self, records: Iterable[Record]) -> None:
        for record in records:
            if isinstance(record.body, DefinitionsApplied):
                journal = record.body.definitions.get("journal", {})
                self.durable = journal.get("durability") == "fsync"

    def _check_standing(self, known: int, *, epoch: int) -> None:
        """Look whether the own commit, or the one before it, still stands, by its token: who slept may have found its name free."""
        standing = self._store.read(log_key(CONTROL, known))
        if standing is None:
            # Nobody else's doing where all of it is away, such as a volume that is not mounted.
            self._store.require_log("looking whether its reign holds")
        head = self.table.head
        if standing is None or head is None or head.token.encode() not in standing:
            raise self._deposed(epoch, f"version {known} was cleaned away, or is another's, so another process has written")

    def _refuse_in_doubt(self, epoch: int) -> None:
        if self._is_in_doubt:
            raise self._deposed(epoch, f"the outcome of its commit after version {self.version} is unknown")

    def _deposed(self, epoch: int, reason: str) -> SparkQueueError:
        return CoordinatorError("COORDINATOR_DEPOSED", epoch=epoch, path=self._store.path, reason=reason)


def _are_held(rows: Sequence[Row]) -> bool:
    """Return whether an entry holds records itself: few bytes, and none that statistics of files must find."""
    if any(row.kind in SEPARATE_KINDS for row in rows):
        return False
    return sum(len(row.detail) + _RANGE_BYTES * len(row.ranges) for row in rows) <= HELD_BYTES


def _definitions_of(store: Store, head: LogEntry | None) -> list[Record]:
    """Return the definitions that a commit brought: they stand in files of their own."""
    added = [] if head is None else [RecordBlock.of_add(add) for add in head.adds if add.get("dataChange")]
    blocks = [block for block in added if block.holds_only(Kind.DEFINITIONS_APPLIED)]
    return [record for block in blocks for record in to_records_of(store, read_known(store, block))]
