"""What is due on message tables, and doing it: merging small files, letting retired ones go, deleting what nothing names.

The state belongs to the coordinator's loop, so `due` reads it there and gives jobs that know all they need; the upkeep's
thread runs them one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from spark_queue.core.message_files.message_type import KEPT_MS
from spark_queue.core.message_files.segment import Segment
from spark_queue.core.state.journal_state import JournalState
from spark_queue.journal.layout import Store
from spark_queue.journal.leftovers import delete_unnamed
from spark_queue.journal.message_compaction import MergeLimits, merge
from spark_queue.journal.message_log import Durability
from spark_queue.journal.message_work import MessageTableWork
from spark_queue.journal.retention import drop_retired


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
    """Knows what was done to message tables in this reign.

    Parameters
    ----------
    store : Store
        The journal's place.
    journal_id : str
        Its id.
    durability : Durability
        The control log.
    limits : MessageLimits
        When there is something to do.
    """

    def __init__(self, store: Store, journal_id: str, durability: Durability, limits: MessageLimits) -> None:
        self._store = store
        self._journal_id = journal_id
        self._durability = durability
        self._limits = limits
        #: By message type: segments when nothing was left to merge, retired messages whose files are gone, time of the last search.
        self._merged_segments: dict[str, int] = {}
        self._dropped_rows: dict[str, int] = {}
        self._searched_at_ms: dict[str, int] = {}

    def open(self, message_type: str, *, epoch: int, now_ms: int) -> MessageTableWork:
        """Open a table for work; the first time in a reign this claims it."""
        return MessageTableWork(
            self._store, self._journal_id, message_type, epoch=epoch, now_ms=now_ms, durability=self._durability
        )

    def due(self, state: JournalState, *, now_ms: int) -> dict[str, list[Job]]:
        """Return what is due, by message type."""
        jobs = {name: list(self._due(state, name, now_ms)) for name in state.message_types}
        return {name: of_type for name, of_type in jobs.items() if of_type}

    def _due(self, state: JournalState, name: str, now_ms: int) -> Iterator[Job]:
        known = state.message_types[name]
        if known.retired_rows > self._dropped_rows.get(name, 0):
            yield partial(self._drop, tuple(known.segments))
        if len(known.segments) >= self._merged_segments.get(name, 0) + self._limits.merging.files_min:
            yield partial(self._merge, tuple(known.segments))
        if now_ms >= self._searched_at_ms.get(name, now_ms) + self._limits.search_ms:
            self._searched_at_ms[name] = now_ms
            if _oldest_reader_ms(state, name, now_ms) >= now_ms - self._limits.kept_ms:
                # What a merge of this very moment replaces is not in the log yet: segments still name it.
                yield partial(
                    self._delete, {segment.path for segment in known.segments if not segment.retired}, dict(known.replaced)
                )
        self._searched_at_ms.setdefault(name, now_ms)

    def _merge(self, segments: Sequence[Segment], work: MessageTableWork) -> None:
        if not merge(work, segments, self._limits.merging):
            self._merged_segments[work.message_type] = len(segments)

    def _drop(self, segments: Sequence[Segment], work: MessageTableWork) -> None:
        retired = [segment for segment in segments if segment.retired]
        # What was retired while it was merged with others stays with them, until the whole file may go.
        drop_retired(work, {segment.path for segment in retired} - {segment.path for segment in segments if not segment.retired})
        self._dropped_rows[work.message_type] = sum(segment.rows for segment in retired)

    def _delete(self, named: set[str], replaced: dict[str, int], work: MessageTableWork) -> None:
        delete_unnamed(work, named, replaced, kept_ms=self._limits.kept_ms)


def _oldest_reader_ms(state: JournalState, message_type: str, now_ms: int) -> int:
    """Return when the oldest lease was granted whose rows may still be read where they stood then."""
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
