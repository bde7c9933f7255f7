"""The control log: the history of queues, as a Delta table with one writer that the log itself fences (DESIGN 3.4, 4)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from deltalake import DeltaTable

from spark_queue.core.bitmaps.ranges import count_rows
from spark_queue.core.log_tail import LogTail
from spark_queue.core.records import DefinitionsApplied, Kind, Record
from spark_queue.errors import CoordinatorError, SparkQueueError
from spark_queue.journal import delta, entry_writing, log_entry, snapshot
from spark_queue.journal.control_compaction import Merge
from spark_queue.journal.control_files import ControlFile, listing, read_known, stage_records, to_records_of
from spark_queue.journal.definitions_notice import announce
from spark_queue.journal.reader import open_control
from spark_queue.journal.store import CONTROL, Store, log_key

#: How many entering messages cost as much to fold as one record, where a queue selects by expressions.
MESSAGES_PER_RECORD = 50


#: Number of the first record that replaces definitions: a journal begins with two others.
_FIRST_REPLACING = 2


class DeltaControlLog:
    """`ports.ControlLog` on the Delta table `control`; nothing is opened before the first call."""

    def __init__(self, store: Store) -> None:
        self._store = store
        #: The head as this reign knows it; None before `load`.
        self._version: int | None = None
        #: The token of that commit.
        self._token = ""
        #: The newest epoch known: of the loaded records, or the own one.
        self._epoch = 0
        self._next_record = 0
        #: Cost of folding the log since the last snapshot, in records.
        self.replay_cost = 0
        #: Whether the outcome of a commit is unknown: then nothing may be written or answered any more.
        self._is_in_doubt = False
        #: Whether commits must survive power loss; the log says so itself, in `definitions_applied`.
        self.durable = False

    @property
    def version(self) -> int:
        """The version of the last commit that was loaded or made here."""
        if self._version is None:
            raise CoordinatorError("INTERNAL", what="the control log was used before it was loaded")
        return self._version

    def load(self) -> LogTail:
        """See `ports.ControlLog`; entries that a power loss tore are set aside first, and reported (`recovery`)."""
        table = open_control(self._store)
        tail = snapshot.load(self._store, listing(self._store, table))
        self._version, self._next_record = int(table.version()), tail.next_record
        try:
            head = log_entry.read_entry(self._store, CONTROL, self._version)
        except log_entry.OddEntryError as reason:
            # delta-rs opens a table whose commitInfo it cannot make out (tried).
            what = f"{log_key(CONTROL, self._version)} has content that no commit of records has"
            raise delta.damaged(self._store, what, self._store.reason(reason)) from None
        self._token = "" if head is None else head.token
        self._epoch = tail.records[-1].epoch if tail.records else 0 if tail.state is None else tail.state.epoch
        self.durable = tail.state is not None and tail.state.definitions.journal.durable
        self._heed(tail.records)
        if self.durable:
            # The last commit of a coordinator that died may not have reached the disk (PROTOCOL 6).
            self._store.sync([log_key(CONTROL, self._version)])
        self.replay_cost = _replay_cost(tail.records)
        # Whoever made that commit may have died before publishers could learn of it; a snapshot may hold its records by now.
        self._announce(_definitions_of(self._store, head))
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
        files = stage_records(self._store, records)
        self._commit(files, epoch=epoch, at_ms=records[-1].at_ms)
        self._epoch, self._next_record = epoch, records[-1].record + 1
        self.replay_cost += _replay_cost(records)
        self._announce(records)

    def replace(self, merge: Merge) -> None:
        """Commit a merge of data files as `append` does records; called between two commits of them.

        The plan holds as long as the reign that made it: nobody else takes files out of the table. Where the outcome is
        unknown, every later call ends in COORDINATOR_DEPOSED.
        """
        self._commit(merge.files, epoch=merge.epoch, at_ms=merge.at_ms, removed=merge.removed)

    def _commit(self, files: Sequence[delta.NewFile], *, epoch: int, at_ms: int, removed: Sequence[str] = ()) -> None:
        """Commit at the head, in the order that outlives a power loss, and check that it holds."""
        base = self.version
        self._refuse_in_doubt(epoch)
        if self._store.is_local:
            # Somebody may have deleted the journal and made another one there, whose log must not get the records of this one.
            self._check_standing(base, epoch=epoch)
        if self.durable:
            self._store.sync(f"{CONTROL}/{file.path}" for file in files)
        self._is_in_doubt = True
        mark = delta.Mark(writer="coordinator")
        with self._store.failures("committing records"):
            created = entry_writing.create_entry(
                self._store, CONTROL, base + 1, files, mark=mark, epoch=epoch, at_ms=at_ms, removed=removed
            )
        if not created:
            raise self._deposed(epoch, f"version {base + 1} was committed by another")
        if self.durable:
            self._store.sync([log_key(CONTROL, base + 1)])
        self._is_in_doubt = False
        # Then nobody else has ever had the version after it; a reign that was claimed since has folded this commit.
        self._check_standing(base, epoch=epoch)
        self._version, self._token = base + 1, mark.token

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

    def open_own(self, *, epoch: int) -> DeltaTable:
        """Open the table at its head for upkeep; another thread may go on appending meanwhile."""
        table = open_control(self._store)
        found = table.transaction_version(delta.COORDINATOR_TXN) or 0
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
        if standing is None or self._token.encode() not in standing:
            raise self._deposed(epoch, f"version {known} was cleaned away, or is another's, so another process has written")

    def _refuse_in_doubt(self, epoch: int) -> None:
        if self._is_in_doubt:
            raise self._deposed(epoch, f"the outcome of its commit after version {self._version} is unknown")

    def _deposed(self, epoch: int, reason: str) -> SparkQueueError:
        return CoordinatorError("COORDINATOR_DEPOSED", epoch=epoch, path=self._store.path, reason=reason)


def _definitions_of(store: Store, head: log_entry.LogEntry | None) -> list[Record]:
    """Return the definitions that a commit brought: they stand in files of their own."""
    added = [] if head is None else [ControlFile.of_add(add) for add in head.adds if add.get("dataChange")]
    paths = [file.path for file in added if file.holds_only(Kind.DEFINITIONS_APPLIED)]
    return [record for path in paths for record in to_records_of(store, read_known(store, path))]


def _replay_cost(records: Sequence[Record]) -> int:
    entered = sum(count_rows(record.ranges) for record in records if record.kind == Kind.ENTERED)
    return len(records) + entered // MESSAGES_PER_RECORD
