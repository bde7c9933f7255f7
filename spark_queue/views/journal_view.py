"""The journal at one moment: the fold of its control log up to there.

The check whether waiting messages can be read: a queue without expressions reads no message file before a consumer does.
Looking at a journal from outside its coordinator: fold the control log, then count on from the message logs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache, partial
from itertools import takewhile
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyroaring import BitMap64

from spark_queue.clock import SystemClock
from spark_queue.core import folds
from spark_queue.core.bitmaps.ranges import RangeArray, to_array
from spark_queue.core.engine import Engine
from spark_queue.core.log_tail import LogTail
from spark_queue.core.message_files.followed_table import FollowedTable, TablePlace
from spark_queue.core.message_files.message_type import MessageTypeState
from spark_queue.core.message_files.segment import Segment, TraitSource
from spark_queue.core.records import DefinitionsApplied, Entered, Granted, Kind, Record, kinds_with
from spark_queue.core.replies import QueueStatus
from spark_queue.core.state import findings, status
from spark_queue.core.state.findings import QueueFinding
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.ledger import QueueLedger
from spark_queue.core.state.lifecycle import IN_QUEUE
from spark_queue.core.state.log_history import LogHistory
from spark_queue.errors import MESSAGE_FILE_CODES, CallerError, ConfigError, JournalError, SparkQueueError, with_journal
from spark_queue.journal import snapshot
from spark_queue.journal.entering import MessageLogs, PreparedTraits, Sequencer
from spark_queue.journal.folder import of_segment
from spark_queue.journal.open import DeltaJournal
from spark_queue.journal.opening import opened
from spark_queue.journal.read_ahead import read_together
from spark_queue.journal.reader import list_blocks
from spark_queue.journal.record_blocks import ControlRows, read_records
from spark_queue.journal.schema import stored_schema
from spark_queue.journal.store import Store, log_key, messages_key
from spark_queue.journal.table_look import head_of
from spark_queue.ports import MessageLog, MessageLogEntry
from spark_queue.protocol.discovery import Heard, read_heard
from spark_queue.settings.timestamps import in_utc, to_ms, to_text
from spark_queue.views.bodies import Bookmarks, read_bodies
from spark_queue.views.message_search import frozen, one_of
from spark_queue.views.without_keys import TraitsWithoutKeys

#: Most files that are opened for one look; `sparkq verify` reads them all.
FILES_LIMIT = 100

#: How many of them at once: an object store takes a while for each.
_THREADS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class NeededFiles:
    """The message files that a queue's consumers need next; another thread may look at them."""

    segments: Sequence[Segment]
    #: The messages that a batch failed on, their message type, and its columns.
    failed: Bookmarks
    message_type: MessageTypeState
    columns: str


def needed_files(state: JournalState, queue: str) -> NeededFiles:
    """Return the files of a queue's oldest messages."""
    ledger = state.ledger(queue)
    message_type = state.message_types[ledger.definition.message_type]
    waiting = BitMap64.union(*(ledger.rows[each] for each in IN_QUEUE))
    failed = to_array(waiting & _failed(ledger))
    return NeededFiles(
        segments=_next_files(message_type, waiting.copy()), failed=failed, columns=ledger.definition.columns,
        message_type=frozen(message_type) if len(failed) else message_type,
    )  # fmt: skip


def find_damage(store: Store, needed: NeededFiles) -> str | None:
    """Return the damage of the first damaged one of some message files, None without any; a failure of the store is raised.

    The files are opened, which finds a missing one or a part; messages that a batch failed on are read, which finds any damage.
    """
    try:
        list(read_together(partial(_check, store), needed.segments, at_once=_THREADS))
        if len(needed.failed):
            read_bodies(store, needed.message_type, needed.failed, stored_schema(needed.columns))
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
    folder = of_segment(store, segment)
    with opened(folder, segment.path) as file:
        rows, until = file.metadata.num_rows, segment.first_row + segment.row_count
    if rows < until or (rows != until and not segment.merged):
        raise folder.corrupt(segment.path, f"it has {rows} rows instead of {until}.")


def _failed(ledger: QueueLedger) -> BitMap64:
    alone = ledger.lone_failures.at_least(1, ledger.entered)
    return BitMap64.union(alone, *(lease.rows for lease in ledger.leases.values() if lease.failure is not None))


#: Gives the state of a whole journal as it is now, which does not change meanwhile.
StateNow: TypeAlias = "Callable[[], AbstractContextManager[JournalState]]"


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalView:
    """A journal at one moment: the object of every look.

    A view of `state_at` is as it was when it was made; one of a `JournalFollower` may be used inside its `look` only.
    """

    journal: DeltaJournal
    state: JournalState
    #: The time by which it is judged, in milliseconds since 1970 UTC.
    now_ms: int
    #: The trouble that keeps messages of a type from entering any further, by its name.
    troubles: Mapping[str, str] = field(default_factory=dict)
    #: Returns the damage of the message files that a queue's consumers need next; a past moment has no such check.
    damage: Callable[[str], str | None] = lambda _: None
    #: The last calls of planners, by the coordinator; a past moment has none.
    heard: Callable[[], Heard] = dict
    #: The facts of the log that no state keeps.
    log_history: Callable[[], LogHistory] = LogHistory
    #: What the control log does not have yet of what was published by then, as a coordinator would record it.
    ahead: Sequence[Record] = ()
    #: Returns how far the table was read that a message type follows; None where it follows none, and of a past moment.
    place: Callable[[str], TablePlace | None] = lambda _: None
    #: Returns the same view for counting, with queues that are set aside since a file with their order keys is not whole.
    counted: Callable[[], JournalView] | None = None

    def at(self, as_of: datetime | int | None) -> JournalView:
        """Return the journal at another moment; see `state_at`."""
        return state_at(self.journal, as_of)


def state_at(journal: DeltaJournal, as_of: datetime | int | None = None) -> JournalView:
    """Return the journal at a moment; starts nothing and changes nothing.

    It is folded from the newest snapshot before the moment, so its cost follows the records since. One rule holds for now and for a
    past time: messages published by then count as entered, by the coordinator's own rule, whether one happened to run or not
    (DESIGN 15.15). Their `entered` record has the time, or the message log's entry where there is none yet. A record number
    means the control log alone.
    """
    make = partial(_now, journal) if as_of is None else partial(_past, journal, as_of)
    return replace(make(journal.traits), counted=cache(partial(make, TraitsWithoutKeys(journal.traits))))


def _now(journal: DeltaJournal, source: TraitSource) -> JournalView:
    tail, traits = journal.tail(), PreparedTraits(source)
    state = tail.fold(traits)
    # The coordinator's clock may be ahead of this one.
    now_ms = max(SystemClock().wall_ms(), state.last_at_ms)
    counted = _count_all(journal, state, traits, state.message_types, now_ms=now_ms)
    return JournalView(
        journal=journal, state=state, now_ms=now_ms, log_history=cache(tail.fold_history),
        troubles=_troubles(counted),
        ahead=_ahead(counted),
        place=cache(partial(_place, journal.store, state, counted)),
        damage=lambda queue: find_damage(journal.store, needed_files(state, queue)),
        heard=cache(lambda: read_heard(journal.store, state.journal_id)),
    )  # fmt: skip


def _count_all(
    logs: MessageLogs, state: JournalState, traits: PreparedTraits, names: Iterable[str], *, now_ms: int
) -> Mapping[str, Counted]:
    """Let messages enter that the control log does not have yet; returns how far that came, by message type."""
    return {name: count_on(logs, state, traits, message_type=name, now_ms=now_ms) for name in list(names)}


def _troubles(counted: Mapping[str, Counted]) -> Mapping[str, str]:
    """Return the trouble that keeps others out, by message type."""
    return {name: str(found.trouble) for name, found in counted.items() if found.trouble is not None}


def _ahead(counted: Mapping[str, Counted]) -> Sequence[Record]:
    return [record for found in counted.values() for record in found.records]


def _place(own: Store, state: JournalState, counted: Mapping[str, Counted], message_type: str) -> TablePlace | None:
    found, known = counted[message_type], state.message_types[message_type].followed
    return table_place(known, found.version, is_stuck=found.trouble is not None, head=partial(find_head, own))


def table_place(
    known: FollowedTable | None, version: int, *, is_stuck: bool, head: Callable[[str, int], int | None]
) -> TablePlace | None:
    """Return how far a table was read of whose log `version` was the last that was looked at; None for no table.

    Who reads a log comes to its head, unless something keeps it out: then `is_stuck`, or it is set aside and `head` is asked.
    """
    if known is None:
        return None
    if known.stopped is not None:
        return TablePlace(known.read_until, head(known.columns.table, known.read_until))
    read_until = max(known.read_until, version)
    return TablePlace(read_until, None if is_stuck else read_until)


def find_head(own: Store, table: str, version: int) -> int | None:
    """Return the newest version of a table of which one was read; None where its store fails."""
    try:
        return head_of(own, table, version)
    except SparkQueueError:
        return None


_SHOW_MEMBERSHIP = kinds_with(lambda body: body.shows_membership)

#: Kinds of the records after a moment that move its messages to their place of today.
_LATER = kinds_with(lambda body: body.reads_on) | {Kind.RETIRED, Kind.REVIVED, Kind.DEFINITIONS_APPLIED}


def _past(journal: DeltaJournal, as_of: datetime | int, source: TraitSource) -> JournalView:
    blocks, traits = list_blocks(journal.store), PreparedTraits(source)
    rows = ControlRows(journal.store, blocks)
    count, now_ms = cut(times_of(rows), as_of=as_of, now_ms=SystemClock().wall_ms())
    tail = snapshot.load(journal.store, blocks, until=count)
    known = tail.next_record - len(tail.records)
    columns = rows.columns("kind", "queue", "ranges", first=known)
    retired = one_of(columns.column("kind"), [Kind.RETIRED]).any()
    if tail.state is not None and retired:
        # Messages retired since are in the snapshot, but in no view.
        tail, known = LogTail(read_records(journal.store, blocks, until=count)), 0
        columns = rows.columns("kind", "queue", "ranges")
    later = columns.slice(len(tail.records))
    records = [*tail.records, *_later(rows, later, first=count)]
    of_time = not isinstance(as_of, int)
    state = tail.state or JournalState(traits)
    state.traits = traits
    fold_until(state, records, len(tail.records), now_ms=now_ms, looks_ahead=of_time)
    counted: Mapping[str, Counted] = {}
    if of_time:
        read_further = {record.message_type for record in records[len(tail.records) :] if record.body.reads_on}
        logs, behind = PublishedBy(journal, now_ms), state.message_types.keys() - read_further
        counted = _count_all(logs, state, traits, behind, now_ms=now_ms)
    return JournalView(
        journal=journal, state=state, now_ms=now_ms, troubles=_troubles(counted), ahead=_ahead(counted),
        log_history=tail.fold_history,
    )  # fmt: skip


def times_of(rows: ControlRows) -> NDArray[np.int64]:
    """Return the times of all records, in milliseconds."""
    times: NDArray[np.int64] = rows.columns("at").column("at").cast(pa.int64()).to_numpy() // 1_000
    return times


def _later(rows: ControlRows, columns: pa.Table, *, first: int) -> list[Record]:
    """Return the records from number `first` on that are about the messages before a moment.

    One record stands for all of those that only show the messages of a queue, since to read each of millions would take longer than
    the rest; where messages may be barriers, each is read.
    """
    kinds, applied = columns.column("kind"), rows.applied()
    queues = [each.body_as(DefinitionsApplied).definitions.get("queues", {}) for each in applied]
    with_barriers = {name for each in queues for name, keys in each.items() if "barrier" in keys}
    tells = one_of(kinds, _SHOW_MEMBERSHIP)
    alike = tells & ~one_of(columns.column("queue"), with_barriers)
    read = rows.records(first + np.flatnonzero(one_of(kinds, _LATER) | (tells & ~alike)))
    found: list[Record] = []
    start = first
    # Queues may begin anew with definitions.
    for end in [*(each.record for each in applied if each.record >= first), first + columns.num_rows]:
        part = columns.slice(start - first, end - start).filter(pa.array(alike[start - first : end - first]))
        found += [*together(part), *(each for each in read if start <= each.record <= end)]
        start = end + 1
    return found


def together(rows: pa.Table) -> Iterator[Record]:
    """Yield one record for each queue that names the messages of all its rows."""
    lists: Any = rows.column("ranges").combine_chunks()
    queues = rows.column("queue").combine_chunks().dictionary_encode()
    edges = lists.flatten()
    firsts, untils = edges.field("first").to_numpy(), edges.field("until").to_numpy()
    if not len(firsts):
        return
    # Each queue's bookmarks are shifted behind those of the one before, so that one sort serves all.
    width = int(untils.max()) + 1
    lengths = lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    shifts = np.repeat(queues.indices.to_numpy(), lengths).astype(np.int64) * width
    order = np.argsort(firsts + shifts)
    firsts, reached = (firsts + shifts)[order], np.maximum.accumulate((untils + shifts)[order])
    begins = np.flatnonzero(np.concatenate([[True], firsts[1:] > reached[:-1]]))
    lows, highs = firsts[begins], reached[np.append(begins[1:], len(firsts)) - 1]
    for code, name in enumerate(queues.dictionary.to_pylist()):
        mine = lows // width == code
        pairs = np.stack([lows[mine], highs[mine]], axis=1) - code * width
        body = Granted(incarnation=(0, 0), call=0, limit=0)
        yield Record(body=body, queue=name, ranges=RangeArray(pairs.reshape(-1)))


@contextmanager
def whole_state(
    journal: DeltaJournal, as_of: datetime | int | None, state_now: StateNow | None, least: int
) -> Iterator[JournalState]:
    """Yield the state of a journal at a moment, folded only where no follower of the log has it.

    A follower may be a little behind: its state must have the first `least` records.
    """
    with nullcontext() if state_now is None else state_now() as known:
        if known is not None and known.next_record >= least:
            yield known
            return
    yield state_at(journal, as_of).state


class PublishedBy:
    """The message logs of a journal as they were at a past time."""

    def __init__(self, journal: DeltaJournal, now_ms: int) -> None:
        self.path = journal.path
        self._journal, self._now_ms = journal, now_ms

    def messages(self, message_type: str, followed: FollowedTable | None = None) -> _TailUntil:
        """Return the log of a message type, or of the table which it follows."""

        def is_past(entry: MessageLogEntry) -> bool:
            return entry.committed_at_ms is None or entry.committed_at_ms <= self._now_ms

        return _TailUntil(self._journal.messages(message_type, followed), is_past)


class _TailUntil:
    """A message log up to the first entry that fails a condition."""

    def __init__(self, log: MessageLog, holds: Callable[[MessageLogEntry], bool]) -> None:
        self._log, self._holds = log, holds
        self.recover, self.silent_ms = log.recover, log.silent_ms

    def tail(self, after_version: int, *, finds_gaps: bool = True) -> Iterator[MessageLogEntry]:
        return takewhile(self._holds, self._log.tail(after_version, finds_gaps=finds_gaps))


@dataclass(frozen=True, slots=True)
class Counted:
    """How far the log of a message type was read: the trouble that keeps what follows out, the last version, and the records."""

    trouble: SparkQueueError | None
    version: int
    records: Sequence[Record]


def count_on(logs: MessageLogs, state: JournalState, traits: PreparedTraits, *, message_type: str, now_ms: int) -> Counted:
    """Let messages of a log enter that the control log does not have yet; returns how far that came."""
    engine = Engine(state)
    entrance = Sequencer(logs, engine, traits)
    while entrance.admit(message_type, now_ms=now_ms):
        continue
    version = entrance.read_until.get(message_type, -1)
    return Counted(entrance.trouble.get(message_type), version, engine.drain_records())


def repeated_entries(view: JournalView) -> list[JournalError]:
    """Return the warnings about entries of message logs that bring files once more, as long as they stand there."""
    store, found = view.journal.store, list[JournalError]()
    for name, known in view.state.message_types.items():
        for version, repeated in known.repeated.items():
            standing = store.read(log_key(messages_key(name), version)) or b""
            if repeated.token.encode() in standing:
                facts = {"message_type": name, "version": version, "files": len(repeated.paths)}
                found.append(JournalError("JOURNAL_ENTRY_REPEATED", **facts))
    return found


def state_of(records: Sequence[Record], traits: TraitSource, *, until: int | None = None) -> JournalState:
    """Return the state after all records of a log, or after the first `until` of them."""
    state = JournalState(traits)
    fold_until(state, records, len(records) if until is None else until, now_ms=0, looks_ahead=False)
    return state


def fold_until(
    state: JournalState,
    records: Sequence[Record],
    count: int,
    *,
    now_ms: int,
    looks_ahead: bool,
    fold: Callable[[JournalState, Record], None] | None = None,
    of: BitMap64 | None = None,
) -> None:
    """Fold the first `count` records; the others give the places of messages today, and the messages published by then."""
    apply = folds.fold if fold is None else fold
    state.foresee(records, of=of)
    for record in records[:count]:
        apply(state, record)
    # Types with a publish after that moment: the entries behind it in their logs are later, too.
    ended: set[str] = set()
    for record in records[count:]:
        message_type = state.message_types.get(str(record.message_type))
        if message_type is None:
            continue
        if record.kind in (Kind.MOVED, Kind.RETIRED):
            message_type.fold(record)
        elif record.kind == Kind.ENTERED and looks_ahead:
            at_ms = record.body_as(Entered).published
            if at_ms > now_ms:
                ended.add(str(record.message_type))
            elif record.message_type not in ended:
                apply(state, replace(record, at_ms=at_ms))
        elif record.kind == Kind.DECIDED and looks_ahead and record.ranges[-1][1] <= message_type.entered_until:
            # Behind the record's messages, which were published by then.
            apply(state, record)
    state.foresee(())


def cut(times_ms: NDArray[np.int64], *, as_of: datetime | int | None, now_ms: int) -> tuple[int, int]:
    """Return the number of records, given by their times, before a moment or at it, and its time, which must have come."""
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


def queue_status(view: JournalView, queue: str) -> QueueStatus:
    """Return a queue's figures by a view; see `core.status`.

    Trouble that keeps messages from entering it is an alarm, too, and so is a message file that its consumers cannot read. A queue
    that is set aside has its figures as far as they are known.
    """
    try:
        view.state.ledger(queue)
    except JournalError as set_aside:
        if set_aside.code not in MESSAGE_FILE_CODES or view.counted is None:
            raise
        found = queue_status(view.counted(), queue)
        told = with_journal(str(set_aside), view.journal.store.path)
        return replace(found, alarm=" ".join(dict.fromkeys(filter(None, [told, found.alarm]))))
    place = view.place(view.state.definitions.queue(queue).message_type)
    found = status.queue_status(
        view.state, queue, now_ms=view.now_ms, troubles=view.troubles, damage=view.damage(queue), place=place
    )
    return found if found.alarm is None else replace(found, alarm=with_journal(found.alarm, view.journal.store.path))


def queue_findings(view: JournalView, queue: str, *, is_served: bool = True) -> list[QueueFinding]:
    """Return the findings about a queue by a view; see `core.state.findings`."""
    if queue in view.state.troubles:
        return [findings.of_set_aside(view.state, queue)]
    return findings.queue_findings(
        view.state, queue, now_ms=view.now_ms, trouble=view.troubles.get(view.state.definitions.queue(queue).message_type),
        damage=view.damage(queue), history=view.log_history().queues.get(queue), is_served=is_served,
    )  # fmt: skip
