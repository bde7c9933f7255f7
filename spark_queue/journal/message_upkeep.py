"""Upkeep of message tables: merging small files, letting retired ones go, deleting files that nothing names.

The state belongs to the coordinator's loop, so `due` reads it there and gives jobs that know all they need; the upkeep's
thread runs them one after the other.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from spark_queue.core.message_files.message_type import KEPT_MS
from spark_queue.core.message_files.segment import Segment
from spark_queue.core.state.journal_state import JournalState
from spark_queue.journal.entry_parts import Mark
from spark_queue.journal.message_compaction import MergeLimits, merge
from spark_queue.journal.message_work import MessageTableWork
from spark_queue.journal.store import Store, StoredObject, messages_key

_LOG = logging.getLogger(__name__)


#: Only files named as our own writers name them are ever deleted.
_OUR_NAME = re.compile(r"[0-9a-f]{32}\.parquet")

#: Most files that one commit removes.
_COMMIT_FILES = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageLimits:
    """When message tables are worked on; tests give smaller ones."""

    merging: MergeLimits = field(default_factory=MergeLimits)
    #: How often the store is searched for files that nothing names, and how long those stay, in milliseconds.
    search_ms: int = 3600 * 1000
    kept_ms: int = KEPT_MS


#: A piece of work on one message table.
Job = Callable[[MessageTableWork], None]


class MessageUpkeep:
    """Knows the work on message tables in this reign; `limits` say when there is something to do."""

    def __init__(self, limits: MessageLimits) -> None:
        self._limits = limits
        #: By message type: segments when nothing was left to merge, retired messages whose files are gone, time of the last search.
        self._merged_segments: dict[str, int] = {}
        self._dropped_rows: dict[str, int] = {}
        self._searched_at_ms: dict[str, int] = {}

    def due(self, state: JournalState, name: str, *, now_ms: int) -> Iterator[Job]:
        """Yield the jobs that are due on a message type's table."""
        known = state.message_types[name]
        if known.retired_rows > self._dropped_rows.get(name, 0):
            yield partial(self._drop, tuple(known.segments))
        if len(known.segments) >= self._merged_segments.get(name, 0) + self._limits.merging.files_due:
            yield partial(self._merge, tuple(known.segments))
        if now_ms >= self._searched_at_ms.get(name, now_ms) + self._limits.search_ms:
            self._searched_at_ms[name] = now_ms
            if may_delete(state, name, now_ms=now_ms, kept_ms=self._limits.kept_ms):
                # Files that a merge replaces at this very moment are not in the log yet: segments still name them.
                yield partial(
                    self._delete, {segment.path for segment in known.segments if not segment.retired}, dict(known.replaced)
                )
        self._searched_at_ms.setdefault(name, now_ms)

    def _merge(self, segments: Sequence[Segment], work: MessageTableWork) -> None:
        if not merge(work, segments, self._limits.merging):
            self._merged_segments[work.message_type] = len(segments)

    def _drop(self, segments: Sequence[Segment], work: MessageTableWork) -> None:
        """Let the files of retired messages go, since the control log has said so; the store keeps them for a day."""
        retired = [segment for segment in segments if segment.retired]
        # Messages retired after a merge with others stay with them, until the whole file may go.
        paths = {segment.path for segment in retired} - {segment.path for segment in segments if not segment.retired}
        standing = sorted(work.sizes().keys() & paths)
        for start in range(0, len(standing), _COMMIT_FILES):
            part = standing[start : start + _COMMIT_FILES]
            work.commit(Mark(writer="coordinator", retired=part), removed=part)
            _LOG.info("%d files of message type '%s' are over their retention and left the table.", len(part), work.message_type)
        self._dropped_rows[work.message_type] = sum(segment.row_count for segment in retired)

    def _delete(self, named: Collection[str], replaced: Mapping[str, int], work: MessageTableWork) -> None:
        """Delete files that nothing has named for `kept_ms`: never committed, merged into others, or retired (DESIGN 4).

        `replaced` are the files that left the table, and when. Files stay as long after they were written, too: a publisher
        commits or stages anew within an hour.
        """
        # First the store, then the table: a file that is committed in between stands in the table.
        old = unnamed_since(work.store, work.message_type, named, replaced, now_ms=work.now_ms, kept_ms=self._limits.kept_ms)
        work.refresh()
        standing = work.sizes().keys()
        gone = [key for key in old if key.removeprefix(f"{work.key}/") not in standing]
        work.store.delete(gone)
        if gone:
            _LOG.info("Deleted %d message files of type '%s' that nothing names.", len(gone), work.message_type)


def unnamed_files(store: Store, message_type: str, standing: Collection[str]) -> list[StoredObject]:
    """Return the message files in the store that are not among those of the table."""
    folder = f"{messages_key(message_type)}/"
    found = [(entry, entry.key.removeprefix(folder)) for entry in store.list(folder.rstrip("/"))]
    return [entry for entry, name in found if _OUR_NAME.fullmatch(name) and name not in standing]


def unnamed_since(
    store: Store, message_type: str, named: Collection[str], replaced: Mapping[str, int], *, now_ms: int, kept_ms: int
) -> list[str]:
    """Return the keys of files that nothing has named for `kept_ms`; `replaced` are those that messages have left, and when."""
    candidates = unnamed_files(store, message_type, named)
    if not candidates:
        # The store's clock is asked by a file that is written, listed and deleted.
        return []
    # By the store's own clock too, since a host with a wrong clock must not delete files that others have just made.
    before_ms, folder = min(now_ms, store.time_ms()) - kept_ms, f"{messages_key(message_type)}/"
    old = [entry.key for entry in candidates if entry.modified_ms < before_ms]
    return [key for key in old if replaced.get(key.removeprefix(folder), before_ms - 1) < before_ms]


def may_delete(state: JournalState, message_type: str, *, now_ms: int, kept_ms: int) -> bool:
    """Return whether nobody reads messages where they stood more than `kept_ms` ago."""
    return _oldest_reader_ms(state, message_type, now_ms) >= now_ms - kept_ms


def _oldest_reader_ms(state: JournalState, message_type: str, now_ms: int) -> int:
    """Return the time of the oldest grant of rows that may still be read where they stood then."""
    ledgers = [ledger for ledger in state.queues.values() if ledger.definition.message_type == message_type]
    return min(
        (
            lease.granted_at_ms
            for ledger in ledgers
            for lease in ledger.leases.values()
            # Rows of an at-most-once lease left the queue when they were granted.
            if lease.leased or (ledger.definition.at_most_once and not lease.proven)
        ),
        default=now_ms,
    )
