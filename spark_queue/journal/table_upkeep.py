"""Upkeep of message types that follow a table: copies of its files before VACUUM takes them, and looks for taken ones (DESIGN 20).

Nothing of the table is ever changed. As with the journal's own message tables, `due` reads the state in the coordinator's loop, and
the jobs know all they need.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pyroaring import BitMap64

from spark_queue.core.message_files.relocation import FileFinding
from spark_queue.core.message_files.segment import Segment
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.lifecycle import State
from spark_queue.core.state.needed import due_files
from spark_queue.journal.message_upkeep import MessageLimits, may_delete, unnamed_since
from spark_queue.journal.store import Store
from spark_queue.journal.table_copies import NeededFile, copy_files, missing_files

_LOG = logging.getLogger(__name__)

#: Most files that one piece of work copies: what it has done is recorded only then.
ROUND_FILES = 64

#: How often a file that could not be copied is tried again, in milliseconds.
RETRY_MS = 60_000

#: How often it is asked whether files are still there whose time to be copied has not come, in milliseconds; and how often about
#: those of consumers that failed or left.
LOOK_MS, LOOK_SOON_MS = 10 * 60_000, 10_000


class TableJob(Protocol):
    """A piece of work on the files of one table."""

    def run(self, store: Store, *, is_durable: bool) -> Iterable[FileFinding]:
        """Do it for the journal in `store`, whose commits must survive power loss or need not, and yield what is to be recorded."""
        ...


class TableUpkeep:
    """Knows the work on files of followed tables in this reign."""

    def __init__(self, limits: MessageLimits) -> None:
        self._limits = limits
        #: When each file was tried last, by message type and first bookmark; when all were looked for, and leftovers.
        self._tried_at_ms: dict[tuple[str, int], int] = {}
        self._looked_at_ms: dict[str, int] = {}
        self._searched_at_ms: dict[str, int] = {}
        #: By queue the messages of consumers that failed or left; and when, by message type, files were looked for that soon.
        self._unread: dict[str, BitMap64] = {}
        self._looked_soon_at_ms: dict[str, int] = {}

    def look_for_files(self, queue: str, rows: BitMap64) -> None:
        """Look soon for the files of messages of a queue, once nobody has them in hand: a lease keeps what is lost (R155)."""
        self._unread[queue] = self._unread.get(queue, BitMap64()) | rows

    def due(self, state: JournalState, name: str, *, now_ms: int) -> Iterator[TableJob]:
        """Yield the jobs that are due for a message type that follows a table."""
        due = (file for file in due_files(state, name, now_ms=now_ms) if file.needed)
        to_copy = [file for file in due if self._may_try(name, file.segment, now_ms)]
        if to_copy:
            # First those that VACUUM may take first.
            to_copy.sort(key=lambda file: file.taken_at_ms)
            part = [NeededFile(segment=file.segment, needed=file.needed) for file in to_copy[:ROUND_FILES]]
            tried = {key: at_ms for key, at_ms in self._tried_at_ms.items() if _is_recent(at_ms, now_ms)}
            self._tried_at_ms = tried | {(name, file.segment.first): now_ms for file in part}
            yield _Copying(files=part, columns=state.definitions.message_types[name].columns, now_ms=now_ms)
        if now_ms >= self._looked_at_ms.get(name, now_ms - LOOK_MS) + LOOK_MS:
            # The others are looked for as they are copied.
            waiting = [file.segment for file in due_files(state, name) if file.needed and file.relocated_at_ms > now_ms]
            if waiting:
                self._looked_at_ms[name] = now_ms
                yield _Looking(segments=waiting)
        if now_ms >= self._looked_soon_at_ms.get(name, now_ms - LOOK_SOON_MS) + LOOK_SOON_MS:
            unread = self._take_unread(state, name)
            missed = [file.segment for file in due_files(state, name, among=unread) if file.needed] if unread else []
            if missed:
                self._looked_soon_at_ms[name] = now_ms
                yield _Looking(segments=missed)
        if now_ms >= self._searched_at_ms.setdefault(name, now_ms) + self._limits.search_ms:
            self._searched_at_ms[name] = now_ms
            known = state.message_types[name]
            if may_delete(state, name, now_ms=now_ms, kept_ms=self._limits.kept_ms):
                named = {segment.path for segment in known.segments if segment.table is None and not segment.retired}
                yield _Sweeping(
                    message_type=name, named=named, replaced=dict(known.replaced), now_ms=now_ms, kept_ms=self._limits.kept_ms
                )

    def _take_unread(self, state: JournalState, name: str) -> BitMap64:
        """Return the messages of a type that consumers may not have been able to read and that nobody has in hand any more."""
        taken = BitMap64()
        for queue in [each for each in self._unread if each not in state.queues]:
            del self._unread[queue]
        for queue in [each for each in self._unread if state.queues[each].definition.message_type == name]:
            rows, leased = self._unread.pop(queue), state.queues[queue].rows[State.LEASED]
            taken |= rows - leased
            if rows.intersect(leased):
                self._unread[queue] = rows & leased
        return taken

    def _may_try(self, name: str, segment: Segment, now_ms: int) -> bool:
        tried_at_ms = self._tried_at_ms.get((name, segment.first))
        return tried_at_ms is None or not _is_recent(tried_at_ms, now_ms)


def _is_recent(tried_at_ms: int, now_ms: int) -> bool:
    """Return whether a file that was tried then is not tried again yet; a clock may have been set back."""
    return tried_at_ms <= now_ms < tried_at_ms + RETRY_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class _Copying:
    files: Sequence[NeededFile]
    #: The message type's own columns.
    columns: str
    now_ms: int

    def run(self, store: Store, *, is_durable: bool) -> Iterable[FileFinding]:
        return copy_files(store, self.files, self.columns, now_ms=self.now_ms, is_durable=is_durable)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Looking:
    segments: Sequence[Segment]

    def run(self, store: Store, *, is_durable: bool) -> Iterable[FileFinding]:
        del is_durable
        return missing_files(store, self.segments)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sweeping:
    """Deletes copies that nothing has named for `kept_ms`: never recorded, or let go since."""

    message_type: str
    #: The copies that messages stand in, and those that they have left, and when.
    named: Collection[str]
    replaced: Mapping[str, int]
    now_ms: int
    kept_ms: int

    def run(self, store: Store, *, is_durable: bool) -> Iterable[FileFinding]:
        del is_durable
        gone = unnamed_since(store, self.message_type, self.named, self.replaced, now_ms=self.now_ms, kept_ms=self.kept_ms)
        store.delete(gone)
        if gone:
            _LOG.info("Deleted %d copies of files of message type '%s' that nothing names.", len(gone), self.message_type)
        return ()
