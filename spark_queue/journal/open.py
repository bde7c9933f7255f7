"""Opening a journal with all that a coordinator has; `reader` is the smaller one of publishers."""

from __future__ import annotations

from collections.abc import Sequence

from pyroaring import BitMap64

from spark_queue.core.definitions.definition import MessageTypeDefinition
from spark_queue.core.log_tail import LogTail
from spark_queue.core.message_files.followed_table import FollowedTable
from spark_queue.core.message_files.relocation import FileFinding
from spark_queue.core.message_files.segment import Segment, TraitSource
from spark_queue.core.records import Followed
from spark_queue.core.state.journal_state import JournalState
from spark_queue.journal import message_table, snapshot, table_copies, table_look
from spark_queue.journal.control_log import DeltaControlLog
from spark_queue.journal.folder import of_table
from spark_queue.journal.followed_log import FollowedLog
from spark_queue.journal.message_log import DeltaMessageLog
from spark_queue.journal.message_upkeep import MessageLimits
from spark_queue.journal.reader import JournalReader, list_blocks, open_reader
from spark_queue.journal.store import Store
from spark_queue.journal.traits import FileTraits
from spark_queue.journal.upkeep import Upkeep
from spark_queue.ports import ControlLog, MessageLog, PulledFiles


class DeltaJournal(JournalReader):
    """`ports.JournalPort` on Delta, for a coordinator and other folds of the log; made by `open_journal`.

    `limits` say when a coordinator works on message tables, where it is not to be as usual.
    """

    control: ControlLog
    traits: TraitSource

    def __init__(self, store: Store, journal_id: str, *, limits: MessageLimits | None = None) -> None:
        super().__init__(store, journal_id)
        self._control = DeltaControlLog(store)
        self.control = self._control
        self.traits = FileTraits(store)
        self._logs: dict[str, DeltaMessageLog] = {}
        self._followed: dict[str, FollowedLog] = {}
        self._upkeep = Upkeep(store, journal_id, self._control, limits or MessageLimits())

    def tail(self) -> LogTail:
        """Return the log tail of the control log, from the newest usable snapshot on."""
        return snapshot.load(self.store, list_blocks(self.store))

    def messages(self, message_type: str, followed: FollowedTable | None = None) -> MessageLog:
        """Return the log of a message type: its own, or that of the table which it follows."""
        if followed is None:
            return self._own_messages(message_type)
        log = self._followed.get(message_type)
        if log is None or log.known is not followed:
            folder = of_table(self.store, followed.columns.table)
            log = self._followed[message_type] = FollowedLog(folder, message_type, followed)
        return log

    def _own_messages(self, message_type: str) -> DeltaMessageLog:
        if message_type not in self._logs:
            self._logs[message_type] = DeltaMessageLog(self.store, message_type, lambda: self._control.durable)
        return self._logs[message_type]

    def check_message_table(self, message_type: str, columns: str, *, is_unused: bool = False) -> None:
        """See `message_table.check`."""
        message_table.check(self.store, self.journal_id, message_type, columns, is_unused=is_unused)

    def create_message_table(self, message_type: str, columns: str, *, is_unused: bool = False) -> None:
        """See `message_table.create`."""
        unused_by = self._control.epoch if is_unused else None
        durable = self._control.durable
        message_table.create(self.store, self.journal_id, message_type, columns, durable=durable, unused_by=unused_by)

    def look_at_table(
        self, message_type: MessageTypeDefinition, known: FollowedTable | None, before: MessageTypeDefinition | None
    ) -> Followed | None:
        """See `table_look.look`."""
        return table_look.look(self.store, message_type, known, before)

    def look_further(self, message_type: MessageTypeDefinition, known: FollowedTable, version: int | None) -> Followed:
        """See `table_look.look_further`."""
        return table_look.look_further(self.store, message_type, known, version)

    def absent_files(self, segments: Sequence[Segment]) -> Sequence[Segment]:
        """See `table_copies.absent_files`."""
        return table_copies.absent_files(self.store, segments)

    def append_pulled(self, files: PulledFiles, *, after_version: int, at_ms: int) -> bool:
        """Commit files of pulled messages right after a version; returns whether that was the head."""
        return self._own_messages(files.message_type).append(files, after_version=after_version, at_ms=at_ms)

    def look_for_files(self, queue: str, rows: BitMap64) -> None:
        """See `ports.JournalPort`."""
        self._upkeep.look_for_files(queue, rows)

    def upkeep(self, *, epoch: int, state: JournalState, now_ms: int) -> Sequence[FileFinding]:
        """See `Upkeep.run`; `state` is committed, and read in this call only."""
        return self._upkeep.run(epoch=epoch, state=state, now_ms=now_ms)


def open_journal(store: Store, *, limits: MessageLimits | None = None) -> DeltaJournal:
    """Open a journal: reads its id and definitions, and nothing else; `limits` as `DeltaJournal` has them."""
    return DeltaJournal(store, open_reader(store).journal_id, limits=limits)
