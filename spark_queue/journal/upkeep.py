"""Keeping the Delta logs short (DESIGN 4, 15.10): checkpoints, and the deletion of entries that nobody needs any more.

Only a coordinator does this, beside its commits: reading a log for a checkpoint needs a tenth of a second and more, for which no
caller should wait. delta-rs's own clean-up is never called: it cannot be given entries to keep.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

from pyroaring import BitMap64

from spark_queue import allocator
from spark_queue.core.message_files.relocation import FileFinding
from spark_queue.core.state.journal_state import JournalState
from spark_queue.errors import CoordinatorError, JournalError, SparkQueueError
from spark_queue.journal import control_compaction, delta, snapshot
from spark_queue.journal.control_compaction import Merge
from spark_queue.journal.control_log import DeltaControlLog
from spark_queue.journal.damage import damaged
from spark_queue.journal.log_entry import LogEntry
from spark_queue.journal.log_listing import LastCheckpoint, is_checkpoint, is_entry, last_checkpoint, version_of
from spark_queue.journal.message_upkeep import Job, MessageLimits, MessageUpkeep
from spark_queue.journal.message_work import MessageTableWork
from spark_queue.journal.record_blocks import RecordBlock
from spark_queue.journal.store import CONTROL, Store, messages_key
from spark_queue.journal.table_upkeep import TableJob, TableUpkeep
from spark_queue.journal.traits import FileTraits

_log = logging.getLogger(__name__)

#: Commits after which a checkpoint is due: opening a log costs more with every entry since the last one.
CONTROL_CHECKPOINT_COMMITS = 100
MESSAGES_CHECKPOINT_COMMITS = 100

#: How long records stand in entries alone, in milliseconds: readers of the table that are not ours find those in files.
FLUSH_MS = 10_000

#: How long a checkpoint tells of control files that left the table, in milliseconds (PROTOCOL 1).
REMOVED_KEPT_MS = 3600 * 1000

#: Actions of the last checkpoint for which the next waits one more commit: a checkpoint costs more with every file that the table
#: has or lately had, and commits must not pay more for it the more of them there were.
CHECKPOINT_ACTIONS_PER_COMMIT = 50

#: Entries of the control log that stay before its newest checkpoint, and how long any stays, in milliseconds: a reader or
#: a paused coordinator that still stands there can go on, or fails by name.
CONTROL_KEPT_COMMITS = 200
CONTROL_KEPT_MS = 10 * 60 * 1000

#: How often a reign looks for leftovers of the control log, in milliseconds: there may be as many as commits in a day.
SWEEP_MS = 3600 * 1000

#: A snapshot is due when folding the log after the last one would cost as much as this many records.
SNAPSHOT_RECORDS = 20_000

#: How long an entry of a message table stays after it was entered, in milliseconds: a paused publisher finds its commit.
MESSAGES_KEPT_MS = 24 * 3600 * 1000


class Upkeep:
    """Upkeep of the logs, in a thread of its own; one piece of work at a time."""

    def __init__(self, store: Store, journal_id: str, control: DeltaControlLog, limits: MessageLimits) -> None:
        self._store = store
        self._control = control
        self._journal_id = journal_id
        self._messages = MessageUpkeep(limits)
        self._tables = TableUpkeep(limits)
        #: What the work has found of files of followed tables, until the loop takes it.
        self._found: list[FileFinding] = []
        #: The newest checkpoint, by table.
        self._checkpoints: dict[str, LastCheckpoint] = {}
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="upkeep")
        self._work: Future[None] | None = None
        #: The merge planned for the control log, to be committed between two commits of records.
        self._merge: Merge | None = None
        #: When entries were first seen to hold records alone, by the clock of the host; None while none do.
        self._held_since_ms: int | None = None
        self._swept_at_ms: int | None = None

    def run(self, *, epoch: int, state: JournalState, now_ms: int) -> Sequence[FileFinding]:
        """Commit the plans of the last work, and begin work that is due, unless some is under way.

        The error of the last work is raised here. The state is read before this returns: the thread gets the parts that it needs.
        Returns what the work before has found of files of followed tables, which nobody has recorded yet.
        """
        if self._work is not None and not self._work.done():
            return ()
        found, self._found = self._found, []
        if found:
            # What is due depends on what becomes of it.
            return found
        self.finish()
        keeps_control = self._is_due(CONTROL, self._control.version, CONTROL_CHECKPOINT_COMMITS)
        if keeps_control or self._is_flush_due(now_ms):
            self._flush(epoch=epoch, now_ms=now_ms)
        due = list(self._due(state, keeps_control=keeps_control, epoch=epoch, now_ms=now_ms))
        if due:
            self._work = self._worker.submit(self._do, due=due)
        return ()

    def look_for_files(self, queue: str, rows: BitMap64) -> None:
        """Look soon for the files of messages of a followed table."""
        self._tables.look_for_files(queue, rows)

    def _flush(self, *, epoch: int, now_ms: int) -> None:
        """Commit files of the records that entries hold, and the merge that was planned last."""
        merge, self._merge = self._merge, None
        if merge is not None and now_ms - merge.at_ms >= control_compaction.PLAN_VALID_MS:
            merge = None
        self._control.flush(merge, epoch=epoch, at_ms=now_ms)
        self._held_since_ms = None

    def _is_flush_due(self, now_ms: int) -> bool:
        """Return whether entries have held records alone for long enough; a clock that was put back counts anew."""
        if not self._control.table.held:
            self._held_since_ms = None
            return False
        if self._held_since_ms is None or now_ms < self._held_since_ms:
            self._held_since_ms = now_ms
        return now_ms >= self._held_since_ms + FLUSH_MS

    def finish(self) -> None:
        """Wait for work under way; its plans for the control log wait for `run`."""
        work, self._work = self._work, None
        if work is not None:
            work.result()

    def _due(self, state: JournalState, *, keeps_control: bool, epoch: int, now_ms: int) -> Iterator[Callable[[], None]]:
        """Yield the jobs that are due, in their order; `keeps_control` says whether those of the control log are, after a flush."""
        for message_type, known in state.message_types.items():
            if known.followed is not None:
                # The table is its writers', and only what stands in the journal is ours.
                for job in self._tables.due(state, message_type, now_ms=now_ms):
                    yield partial(self._work_on_table, job, epoch=epoch)
                continue
            jobs = list(self._messages.due(state, message_type, now_ms=now_ms))
            # Later versions that left no record do not count: the next reign must find them all again.
            if self._is_due(messages_key(message_type), known.version, MESSAGES_CHECKPOINT_COMMITS):
                jobs.insert(0, partial(self._keep_messages, known.version))
            if jobs:
                yield partial(self._work_on, message_type, jobs, epoch=epoch, now_ms=now_ms)
        table = self._control.table
        if keeps_control:
            # A checkpoint has files of all records only right after they were written.
            table.forget_removed(before_ms=now_ms - REMOVED_KEPT_MS)
            yield partial(self._keep_control, table.as_entry(), table.blocks, epoch=epoch, now_ms=now_ms)
        files = sum(len(known.segments) for known in state.message_types.values())
        if self._control.replay_cost(files) >= SNAPSHOT_RECORDS:
            self._control.forget_cost()
            yield partial(self._take_snapshot, table.blocks)

    def _do(self, *, due: Sequence[Callable[[], None]]) -> None:
        """Do all of it: a fault of the log or the files of one table must not keep those of others long."""
        troubles: list[JournalError] = []
        for each in due:
            try:
                each()
            except CoordinatorError:
                raise
            except JournalError as trouble:
                troubles.append(trouble)
            except Exception as fault:  # noqa: BLE001 - writers of messages chose the content of their files
                troubles.append(damaged(self._store, "a log could not be kept short", f"{type(fault).__name__}: {fault}"))
        allocator.return_free_memory()
        for further in troubles[1:]:
            _log.warning("The logs could not be shortened: %s", further)
        if troubles:
            raise troubles[0]

    def _take_snapshot(self, blocks: Sequence[RecordBlock]) -> None:
        try:
            snapshot.capture(self._store, blocks, FileTraits(self._store))
        except (SparkQueueError, TypeError) as trouble:
            # The log alone is enough; the next start is slower.
            _log.warning("No snapshot was written of '%s': %s", self._store.path, trouble)

    def _is_due(self, table: str, version: int, commits: int) -> bool:
        if version < commits:
            return False
        if table not in self._checkpoints:
            self._checkpoints[table] = last_checkpoint(self._store, table)
        last = self._checkpoints[table]
        return version - last.version >= max(commits, last.actions // CHECKPOINT_ACTIONS_PER_COMMIT)

    def _keep_control(self, table: LogEntry, blocks: Sequence[RecordBlock], *, epoch: int, now_ms: int) -> None:
        self._checkpoints[CONTROL] = self._control.checkpoint(table)
        clean(self._store, CONTROL, below=table.version - CONTROL_KEPT_COMMITS, before_ms=now_ms - CONTROL_KEPT_MS)
        if self._swept_at_ms is None or now_ms - self._swept_at_ms >= SWEEP_MS:
            # First the store, then the log, which also shows whether the reign still holds: this may have lasted long.
            found = control_compaction.data_files(self._store)
            self._store.delete(control_compaction.leftovers(found, self._control.look(epoch=epoch).blocks))
            self._swept_at_ms = now_ms
        self._merge = control_compaction.stage(self._store, blocks, at_ms=now_ms)

    def _work_on(self, message_type: str, jobs: Sequence[Job], *, epoch: int, now_ms: int) -> None:
        try:
            # The first time in a reign this claims the table.
            work = MessageTableWork(
                self._store, self._journal_id, message_type, epoch=epoch, now_ms=now_ms, is_durable=lambda: self._control.durable
            )
            for job in jobs:
                job(work)
        except CoordinatorError as lost:
            if self._is_over(epoch):
                raise
            # A newer reign claims the control log first: otherwise a writer of messages of this type has made it up.
            what = f"the log of message type '{message_type}' names a reign that the control log does not know"
            raise damaged(self._store, what, lost.reason) from None

    def _work_on_table(self, job: TableJob, *, epoch: int) -> None:
        # Another reign may have copied the same files, and recorded that.
        self._control.look(epoch=epoch)
        for each in job.run(self._store, is_durable=self._control.durable):
            self._found.append(each)

    def _is_over(self, epoch: int) -> bool:
        try:
            self._control.look(epoch=epoch)
        except CoordinatorError:
            return True
        return False

    def _keep_messages(self, version: int, work: MessageTableWork) -> None:
        # At the last entered version, not at the head: versions that have not entered must stay readable commit by commit.
        table = delta.open_table(self._store, work.key, version=version)
        if table is None:
            raise damaged(self._store, f"{work.key} is missing", "The journal's definitions name it.")
        delta.checkpoint(self._store, work.key, table, durable=self._control.durable)
        self._checkpoints[work.key] = last_checkpoint(self._store, work.key)
        clean(self._store, work.key, below=version, before_ms=work.now_ms - MESSAGES_KEPT_MS)


def clean(store: Store, table: str, *, below: int, before_ms: int) -> None:
    """Delete the oldest entries of a log, up to the first that must stay, and the checkpoints that only they needed.

    Entries stay from version `below` on, and those written at `before_ms` or later.
    """
    objects = store.list(f"{table}/_delta_log")
    entries = [entry for entry in objects if is_entry(entry.key)]
    checkpoints = [entry.key for entry in objects if is_checkpoint(entry.key)]
    gone: list[str] = []
    for entry in entries:
        if version_of(entry.key) >= below or entry.modified_ms >= before_ms:
            break
        gone.append(entry.key)
    # A checkpoint serves every version from its own on, so the newest one at or below the first kept entry must stay.
    first_kept = version_of(entries[len(gone)].key) if len(gone) < len(entries) else below
    serving = [key for key in checkpoints if version_of(key) <= first_kept]
    # Oldest first: that an entry is there proves that no later one has gone, which the control log's check rests on.
    store.delete([*gone, *serving[:-1]])
