"""The store of a simulated world: log entries go and leave their names free, and snapshots let a start skip the log's beginning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from spark_queue.core.log_tail import LogTail
from spark_queue.core.message_files.relocation import FileFinding
from spark_queue.core.state.journal_state import JournalState
from spark_queue.journal.state_codec import decode, encode
from tests.memory_journal import MemoryControlLog, MemoryJournal, MemoryStorage


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A state as it is stored, and the number of the record after it."""

    next_record: int
    state: bytes


class CleanedStorage(MemoryStorage):
    """A store whose oldest log entries are gone, so that a writer who slept too long finds their names free."""

    cleaned_until = -1
    #: Records after which the next snapshot is due; None for never.
    snapshot_records: int | None = None
    snapshot: Snapshot | None = None

    def swap(self, version: int, commit: Any) -> bool:
        """Write a commit; at a cleaned version it succeeds, and nobody will ever read it."""
        return version <= self.cleaned_until or super().swap(version, commit)


class SnapshotControlLog(MemoryControlLog):
    """Gives the newest snapshot and what came after it, as the real control log does."""

    def __init__(self, storage: CleanedStorage) -> None:
        super().__init__(storage)
        self._snapshots = storage

    def load(self) -> LogTail:
        """Refresh and give a state and every record since."""
        tail, snapshot = super().load(), self._snapshots.snapshot
        if snapshot is None:
            return tail
        return LogTail(tail.records[snapshot.next_record :], decode(snapshot.state))


class SimulatedJournal(MemoryJournal):
    """`ports.Journal` of one process over such a store."""

    def __init__(self, storage: CleanedStorage) -> None:
        super().__init__(storage)
        self._storage = storage
        self.control = SnapshotControlLog(storage)

    def upkeep(self, *, epoch: int, state: JournalState, now_ms: int) -> Sequence[FileFinding]:
        """Take a snapshot where one is due; whoever was overtaken meanwhile still knows the log's beginning only."""
        found = super().upkeep(epoch=epoch, state=state, now_ms=now_ms)
        every, last = self._storage.snapshot_records, self._storage.snapshot
        if every is not None and not state.troubles and state.next_record >= every + (0 if last is None else last.next_record):
            self._storage.snapshot = Snapshot(state.next_record, encode(state))
        return found
