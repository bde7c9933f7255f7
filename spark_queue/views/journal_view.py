"""The journal at one moment: the fold of its control log up to there.

Whether what waits in a queue can be read: a queue without expressions reads no message file before a consumer does.
Looking at a journal from outside its coordinator: fold the control log, then count on from the message logs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache, partial
from itertools import takewhile
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap64

from spark_queue.clock import SystemClock
from spark_queue.core.bitmaps.ranges import to_array
from spark_queue.core.engine import Engine
from spark_queue.core.message_files.message_type import MessageTypeState
from spark_queue.core.message_files.segment import Segment, TraitSource
from spark_queue.core.records import Kind, Record
from spark_queue.core.replies import QueueStatus
from spark_queue.core.state import status
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.ledger import QueueLedger
from spark_queue.core.state.lifecycle import IN_QUEUE
from spark_queue.errors import MESSAGE_FILE_CODES, CallerError, ConfigError, JournalError, SparkQueueError
from spark_queue.journal import snapshot
from spark_queue.journal.entering import MessageLogs, PreparedTraits, Sequencer
from spark_queue.journal.layout import Store
from spark_queue.journal.message_file import corrupt, decoding
from spark_queue.journal.open import DeltaJournal
from spark_queue.journal.reader import list_files
from spark_queue.journal.schema import stored_schema
from spark_queue.ports import MessageLog, MessageLogEntry
from spark_queue.settings.types import in_utc, to_ms, to_text
from spark_queue.views.message_search import read_bodies
from spark_queue.views.waiting import TraitsWithoutKeys

#: Most files that are opened for one look; `sparkq verify` reads them all.
FILES_LIMIT = 100

#: How many of them at once: an object store takes a while for each.
_THREADS = 16


def find_damage(store: Store, state: JournalState, queue: str) -> str | None:
    """Return what is wrong with the first message file that a queue's consumers need next, None when nothing is.

    The files of the oldest messages are opened, which finds what is missing or cut off; what a batch failed on is read, which
    finds any damage.

    Raises
    ------
    JournalError
        STORE_FAILED, which says nothing about the files.
    """
    ledger = state.ledger(queue)
    message_type = state.message_types[ledger.definition.message_type]
    waiting = BitMap64.union(*(ledger.rows[each] for each in IN_QUEUE))
    try:
        with ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(partial(_check, store), _next_files(message_type, waiting.copy())))
        read_bodies(store, message_type, to_array(waiting & _failed(ledger)), stored_schema(ledger.definition.columns))
    except JournalError as trouble:
        if trouble.code in MESSAGE_FILE_CODES:
            return str(trouble)
        raise
    return None


def _next_files(message_type: MessageTypeState, waiting: BitMap64) -> list[Segment]:
    """Return the last segment in each of the files of the oldest messages."""
    found: dict[str, Segment] = {}
    while waiting and len(found) < FILES_LIMIT:
        segment = message_type.segment_of(waiting.min())
        waiting.remove_range(0, segment.until)
        if not segment.retired:
            found[segment.path] = segment
    return list(found.values())


def _check(store: Store, segment: Segment) -> None:
    with decoding(store, segment) as file:
        rows, until = file.metadata.num_rows, segment.first_row + segment.row_count
    if rows < until or (rows != until and not segment.merged):
        raise corrupt(store, segment, f"it has {rows} rows instead of {until}.")


def _failed(ledger: QueueLedger) -> BitMap64:
    alone = ledger.lone_failures.at_least(1, ledger.entered)
    return BitMap64.union(alone, *(lease.rows for lease in ledger.leases.values() if lease.failure is not None))


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
    entrance = Sequencer(logs, Engine(state), traits)
    while entrance.admit(message_type, now_ms=now_ms):
        continue
    return entrance.trouble.get(message_type)


@dataclass(frozen=True, slots=True, kw_only=True)
class PointInTime:
    """A journal's state and the time that it is looked at, in milliseconds since 1970 UTC."""

    state: JournalState
    now_ms: int
    #: The records that made the state, oldest first.
    records: Sequence[Record]
    #: What keeps messages of a type from entering any further, by its name; known only of a look at the message logs.
    troubles: Mapping[str, str] = field(default_factory=dict)
    #: Where message files are looked at for damage; None for a look at the log alone, and at a past moment.
    files: Store | None = None
    #: Gives the same for who only counts, of queues too that are set aside since a file with their order keys is not whole.
    counted: Callable[[], PointInTime] | None = None


def point_in_time(
    records: Sequence[Record],
    traits: TraitSource,
    *,
    as_of: datetime | int | None,
    now_ms: int,
    looks_ahead: bool = False,
    store: Store | None = None,
) -> PointInTime:
    """Fold the control log up to a moment.

    Parameters
    ----------
    records
        The whole control log.
    traits
        Computes what queues must know of entering messages.
    as_of
        An aware time: everything recorded at it or before; a record number: up to and with it; None: everything.
    now_ms
        The time by which delays and ages are judged when `as_of` is None.
    looks_ahead
        Whether messages that were published by then and entered later count as entered (see `state_at`).
    store
        Where snapshots of the state are, to fold only what came after; None to fold every record.

    Raises
    ------
    CallerError
        RECORD_UNKNOWN when the journal did not exist yet, or has no such record; TIMESTAMP_AMBIGUOUS.
    """
    times_ms = np.fromiter((record.at_ms for record in records), np.int64, len(records))
    count, now_ms = cut(times_ms, as_of=as_of, now_ms=now_ms)
    state = _start(records, count, traits, store)
    known = state.next_record
    fold_until(state, records[known:], count - known, now_ms=now_ms, looks_ahead=looks_ahead)
    return PointInTime(state=state, now_ms=now_ms, records=records[:count])


def _start(records: Sequence[Record], count: int, traits: TraitSource, store: Store | None) -> JournalState:
    """Return the state of the newest snapshot within the first `count` records, or one that has folded nothing."""
    state = None if store is None else snapshot.shorten(store, records[:count]).state
    # What was retired since is in the snapshot, but in no view.
    if state is None or any(record.kind == Kind.RETIRED for record in records[state.next_record :]):
        return JournalState(traits)
    state.traits = traits
    return state


def fold_until(
    state: JournalState,
    records: Sequence[Record],
    count: int,
    *,
    now_ms: int,
    looks_ahead: bool,
    fold: Callable[[JournalState, Record], None] = JournalState.fold,
    of: BitMap64 | None = None,
) -> None:
    """Fold the first `count` records, knowing from the others where messages stand today, and what had been published by then."""
    state.foresee(records, of=of)
    for record in records[:count]:
        fold(state, record)
    # Types of which something was published after that moment: what follows it in their logs was, too.
    ended: set[str] = set()
    for record in records[count:]:
        message_type = state.message_types.get(str(record.message_type))
        if message_type is None:
            continue
        if record.kind in (Kind.MOVED, Kind.RETIRED):
            message_type.fold(record)
        elif record.kind == Kind.ENTERED and looks_ahead:
            # Older software did not say when it was published.
            at_ms = record.detail.get("published", record.at_ms)
            if at_ms > now_ms:
                ended.add(str(record.message_type))
            elif record.message_type not in ended:
                fold(state, replace(record, at_ms=at_ms))
    state.foresee(())


def cut(times_ms: NDArray[np.int64], *, as_of: datetime | int | None, now_ms: int) -> tuple[int, int]:
    """Return how many records, given by their times, lie before a moment or at it, and the moment's time.

    Raises
    ------
    CallerError
        RECORD_UNKNOWN, TIMESTAMP_AMBIGUOUS.
    ConfigError
        BAD_VALUE for a time that has not come yet: nobody knows what will have happened by then.
    """
    last = len(times_ms) - 1
    if as_of is None:
        return last + 1, now_ms
    if isinstance(as_of, int):
        if not 0 <= as_of <= last:
            reason = "not in the control log"
            raise CallerError("RECORD_UNKNOWN", what="Record", value=as_of, reason=reason, first=0, last=last)
        return as_of + 1, int(times_ms[as_of])
    moment_ms = to_ms(in_utc(as_of, value=as_of.isoformat(), where="as_of"))
    # The coordinator's clock may be ahead of this one.
    newest_ms = max(now_ms, int(times_ms[-1]))
    if moment_ms > newest_ms:
        expected = f"{to_text(newest_ms, 'milliseconds')} at the latest, which is the newest moment"
        raise ConfigError("BAD_VALUE", key="as_of", where="the call", value=as_of.isoformat(), expected=expected)
    # Records carry whole milliseconds in ascending order.
    count = int(np.searchsorted(times_ms, moment_ms, side="right"))
    if count == 0:
        first, latest = (to_text(int(times_ms[index]), "milliseconds") for index in (0, -1))
        reason = "before the journal was created"
        raise CallerError("RECORD_UNKNOWN", what="Time", value=as_of.isoformat(), reason=reason, first=first, last=latest)
    return count, moment_ms


def queue_status(point: PointInTime, queue: str) -> QueueStatus:
    """Return a queue's figures at a moment; see `core.status`.

    What keeps messages from entering it is an alarm, too, and so is a message file that its consumers cannot read. A queue that
    is set aside has its figures as far as they can be told.
    """
    try:
        found = status.queue_status(point.state, queue, now_ms=point.now_ms)
    except JournalError as set_aside:
        if set_aside.code not in MESSAGE_FILE_CODES or point.counted is None:
            raise
        found = queue_status(point.counted(), queue)
        return replace(found, alarm=" ".join(dict.fromkeys(filter(None, [str(set_aside), found.alarm]))))
    trouble = damage = None
    # Into a queue for dead letters alone nothing enters from a log.
    if point.state.definitions.queue(queue).underlying_topic is not None:
        trouble = point.troubles.get(found.message_type)
    if point.files is not None:
        damage = find_damage(point.files, point.state, queue)
    alarms = [alarm for alarm in (found.alarm, trouble, damage) if alarm is not None]
    return replace(found, alarm=" ".join(dict.fromkeys(alarms)) or None)
