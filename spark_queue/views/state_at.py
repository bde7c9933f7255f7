"""Looking at a journal from outside its coordinator: fold the control log, then count on from the message logs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from datetime import datetime
from functools import cache, partial
from itertools import takewhile
from typing import TypeAlias

from spark_queue.clock import SystemClock
from spark_queue.core.engine import Engine
from spark_queue.core.message_files.segment import TraitSource
from spark_queue.core.records import Kind
from spark_queue.core.state.journal_state import JournalState
from spark_queue.errors import SparkQueueError
from spark_queue.journal import snapshot
from spark_queue.journal.entering import Entrance, MessageLogs, PreparedTraits
from spark_queue.journal.open import DeltaJournal
from spark_queue.journal.reader import list_files
from spark_queue.ports import MessageLog, MessageLogEntry
from spark_queue.views.point_in_time import PointInTime, point_in_time
from spark_queue.views.without_keys import TraitsWithoutKeys

#: Kinds that say up to which version a message log was read.
_READING = (Kind.ENTERED, Kind.FOREIGN, Kind.MOVED)

#: Gives the state of a whole journal as it is now, which does not change meanwhile.
StateNow: TypeAlias = "Callable[[], AbstractContextManager[JournalState]]"


def state_at(journal: DeltaJournal, as_of: datetime | int | None = None) -> PointInTime:
    """Return the journal at a moment; starts nothing and changes nothing.

    One rule holds for now and for a past time: what was published by then counts as entered, by the coordinator's own rule,
    whether one happened to run or not (DESIGN 15.15). When that was its `entered` record tells, or the message log's entry where
    there is none yet. A record number means the control log alone.

    Parameters
    ----------
    journal
        An open journal.
    as_of
        An aware time or a record number; None for now.

    Raises
    ------
    CallerError
        RECORD_UNKNOWN or TIMESTAMP_AMBIGUOUS.
    ConfigError
        BAD_VALUE for a time that has not come yet.
    """
    without_keys = cache(partial(_look, journal, as_of, TraitsWithoutKeys(journal.traits)))
    return replace(_look(journal, as_of, journal.traits), counted=without_keys)


def _look(journal: DeltaJournal, as_of: datetime | int | None, source: TraitSource) -> PointInTime:
    traits, records = PreparedTraits(source), journal.records()
    of_record = isinstance(as_of, int)
    now_ms = SystemClock().wall_ms()
    point = point_in_time(records, traits, as_of=as_of, now_ms=now_ms, looks_ahead=not of_record, store=journal.store)
    troubles: dict[str, str] = {}
    if not of_record:
        logs = journal if as_of is None else PublishedBy(journal, point.now_ms)
        read_further = {record.message_type for record in records[len(point.records) :] if record.kind in _READING}
        for name in point.state.message_types.keys() - read_further:
            trouble = count_on(logs, point.state, traits, message_type=name, now_ms=point.now_ms)
            if trouble is not None:
                troubles[name] = str(trouble)
    return replace(point, troubles=troubles, files=journal.store if as_of is None else None)


@contextmanager
def whole_state(
    journal: DeltaJournal, as_of: datetime | int | None, state_now: StateNow | None, least: int
) -> Iterator[JournalState]:
    """Yield the state of a journal at a moment, folded only where nobody gives it who follows the log.

    Parameters
    ----------
    state_now
        Gives it to who asks for now.
    least
        Records that must be in it: who follows a log may be a little behind.
    """
    with nullcontext() if state_now is None else state_now() as known:
        if known is not None and known.next_record >= least:
            yield known
            return
    yield _newest(journal) if as_of is None else state_at(journal, as_of).state


def _newest(journal: DeltaJournal) -> JournalState:
    """Return the state of a journal now, as who starts a coordinator finds it: reads only what follows the newest snapshot."""
    past, traits = snapshot.load(journal.store, list_files(journal.store)), PreparedTraits(journal.traits)
    state, now_ms = past.fold(traits), SystemClock().wall_ms()
    for name in state.message_types:
        count_on(journal, state, traits, message_type=name, now_ms=now_ms)
    return state


class PublishedBy:
    """The message logs of a journal as they were at a past time.

    Parameters
    ----------
    journal : DeltaJournal
        The journal.
    now_ms : int
        The time, in milliseconds since 1970 UTC.
    """

    def __init__(self, journal: DeltaJournal, now_ms: int) -> None:
        self.path = journal.path
        self._journal, self._now_ms = journal, now_ms

    def messages(self, message_type: str) -> _TailUntil:
        """Return the log of a message type."""

        def is_past(entry: MessageLogEntry) -> bool:
            return entry.committed_at_ms is None or entry.committed_at_ms <= self._now_ms

        return _TailUntil(self._journal.messages(message_type), is_past)


class _TailUntil:
    """A message log up to the first entry of which something does not hold."""

    def __init__(self, log: MessageLog, holds: Callable[[MessageLogEntry], bool]) -> None:
        self._log, self._holds = log, holds
        self.recover = log.recover

    def tail(self, after_version: int, *, finds_gaps: bool = True) -> Iterator[MessageLogEntry]:
        return takewhile(self._holds, self._log.tail(after_version, finds_gaps=finds_gaps))


def count_on(
    logs: MessageLogs, state: JournalState, traits: PreparedTraits, *, message_type: str, now_ms: int
) -> SparkQueueError | None:
    """Let enter what is in a message log and not in the control log yet; returns what keeps the rest out."""
    entrance = Entrance(logs, Engine(state), traits)
    while entrance.admit(message_type, now_ms=now_ms):
        continue
    return entrance.trouble.get(message_type)
