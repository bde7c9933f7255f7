"""The life of one message of a queue, from its publish to its state now: `sparkq explain` (DESIGN 9, R120, R121).

It is found by the message's records and its row, with the reason for its state.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from spark_queue.clock import SystemClock
from spark_queue.core.bitmaps.ranges import BOOKMARK_LIMIT, count_rows, holds
from spark_queue.core.definitions import parsing
from spark_queue.core.message_files.message_type import MessageTypeState
from spark_queue.core.message_files.segment import Segment
from spark_queue.core.records import RUN_FAILED, RUN_STOPPED, About, DefinitionsApplied, Kind, Record, Returned
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.ledger import QueueLedger
from spark_queue.core.state.lifecycle import LEFT, State
from spark_queue.errors import CallerError, JournalError, SparkQueueError
from spark_queue.journal.entering import PreparedTraits
from spark_queue.journal.open import DeltaJournal
from spark_queue.journal.schema import ENVELOPE, stored_schema
from spark_queue.protocol.discovery import read_heard
from spark_queue.views.bodies import python_rows, read_bodies
from spark_queue.views.event_texts import event_text
from spark_queue.views.journal_view import PublishedBy, StateNow, count_on, cut, fold_until, times_of, whole_state
from spark_queue.views.one_message import MessageRows, MessageTraits, fold_alone, is_of_others
from spark_queue.views.why_waiting import waits, why_it_waits, why_never_taken

#: Fields of a history that have no line of their own before its events.
_SAID_ELSEWHERE = frozenset({"queue", "bookmark", "reason", "trouble", "committed_at", "events"})

#: The kinds of records that a proof brings with it.
_PROOF_MAKES = frozenset({Kind.REMOVED, Kind.DEAD_LETTERED, Kind.RETURNED, Kind.BARRIER_RECEIVED})


#: The kinds of events of each delivery that does not end a message's life.
_OF_DELIVERIES = frozenset({
    Kind.GRANTED, Kind.RESUMED, Kind.RENEWED, Kind.CLAIMED, Kind.LAPSED, Kind.OUTCOMES, Kind.PROVEN, Kind.RETURNED, Kind.PREPARED,
    Kind.FENCED, Kind.SINK_UNREADABLE, Kind.PAUSED, Kind.UNPAUSED, Kind.MOVED,
})  # fmt: skip

#: Deliveries in a row that are all shown.
DELIVERIES_TOLD = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageEvent:
    """One event in the life of a message."""

    at: datetime
    #: The kind of the event's record; published, taken, moved and reset are found out without one of their own.
    event: str
    #: Number of that record of the control log; None before there was one.
    record: int | None
    queue: str | None
    subscription: str | None = None
    lease: int | None = None
    #: The number of messages of the lease: one lease is one micro-batch.
    messages: int | None = None
    #: The number of the delivery, for a grant.
    delivery: int | None = None
    reason: str | None = None
    #: End of a lease, or when the message may be delivered again.
    due_at: datetime | None = None
    error: str | None = None
    #: The same in a sentence.
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatedDeliveries:
    """Events of deliveries in a row, between the first and the last of these."""

    events: tuple[MessageEvent, ...]
    #: How many deliveries there were with the first and the last, and when those began.
    deliveries: int
    first_at: datetime
    last_at: datetime

    @property
    def text(self) -> str:
        """The same in a sentence."""
        first, last = _shown(self.first_at), _shown(self.last_at)
        return f"delivered {self.deliveries:,} times, first at {first}, last at {last}; {len(self.events):,} events between"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageHistory:
    """The life of one message, as a queue saw it; the part in its dead-letter queue, or in that queue's source, included."""

    queue: str
    bookmark: int
    #: Where it is in the queue (docs/concepts/life-of-a-message.md); None when it never came into it.
    state: str | None = None
    message_type: str
    #: Why it never came into the queue, or why it waits there; None when it is leased, or has left.
    reason: str | None = None
    #: The trouble of a message file that is gone, which leaves something unknown; None when all is known.
    trouble: str | None
    #: The envelope as it was published; None where the body is gone.
    topic: str | None
    publisher: str | None
    sequence: int | None
    published_at: datetime | None
    expires_at: datetime | None
    #: Of an instance: where it was first published, its number there, and the instance that may deliver it.
    origin: str | None = None
    origin_bookmark: int | None = None
    owner: str | None = None
    #: The table of others that it was appended to (R141); None where it was published.
    table: str | None = None
    #: The Delta commit that published it, or appended it there, and when that was.
    version: int
    committed_at: datetime
    #: Where its row stands now.
    file: str
    row: int
    #: None until a coordinator has seen it.
    entered_at: datetime | None
    #: The subscription and the lease that it is in.
    subscription: str | None = None
    lease: int | None = None
    leased_until: datetime | None = None
    #: When a delayed message may be delivered again.
    due_at: datetime | None = None
    #: Deliveries and cancels that count; of a message that left the queue, as they were then.
    delivery_count: int = 0
    cancel_count: int = 0
    priority: int | None = None
    #: The value of the queue's `order_key` where that is a column, else its hash.
    order_key: str | None = None
    is_barrier: bool = False
    #: Oldest first.
    events: tuple[MessageEvent, ...]

    def __str__(self) -> str:
        """Return it as lines of text; of many deliveries in a row, the first and the last."""
        return self.as_text()

    def as_text(self, *, shows_all: bool = False) -> str:
        """Return it as lines of text; `shows_all` leaves out none of many deliveries in a row."""
        summary = [f"  {name:<14} {value}" for name, value in self._summary()]
        notes = [f"  {note}" for note in (self.reason, self.trouble) if note is not None]
        events = [
            f"  {'…':<24}  {event.text}" if isinstance(event, RepeatedDeliveries)
            else f"  {_shown(event.at)}  {self._place(event)}{event.text}"
            for event in (self._told() if shows_all else self.told())
        ]  # fmt: skip
        # Texts of others may have several lines, and must not look like a line of ours.
        return "\n".join(each.replace("\n", "\n      ") for each in (self._title(), *notes, *summary, "", *events))

    def _repr_html_(self) -> str:
        """Show it as two tables in a notebook."""
        summary = "".join(f"<tr><th>{name}</th><td>{html.escape(value)}</td></tr>" for name, value in self._summary())
        events = "".join(
            f"<tr><td>{_shown(event.at)}</td><td>{html.escape(event.queue or '')}</td><td>{html.escape(event.text)}</td></tr>"
            for event in self._told()
        )
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in (self.reason, self.trouble) if note is not None)
        head = "<tr><th>at</th><th>queue</th><th>what happened</th></tr>"
        return f"<h4>{html.escape(self._title())}</h4>{notes}<table>{summary}</table><table>{head}{events}</table>"

    def _summary(self) -> list[tuple[str, str]]:
        """Return the fields that have one line each, by name."""
        known = {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.name not in _SAID_ELSEWHERE}
        return [(name.replace("_", " "), _shown(value)) for name, value in known.items() if value is not None]

    def told(self) -> list[MessageEvent | RepeatedDeliveries]:
        """Return the events as they read best; of many deliveries in a row, the first and the last stand alone."""
        told: list[MessageEvent | RepeatedDeliveries] = []
        for is_alike, events in groupby(self._told(), lambda event: event.event in _OF_DELIVERIES):
            run = list(events)
            grants = [index for index, event in enumerate(run) if is_alike and event.event in (Kind.GRANTED, Kind.RESUMED)]
            if len(grants) <= DELIVERIES_TOLD:
                told += run
                continue
            second, last = grants[1], grants[-1]
            between = RepeatedDeliveries(
                events=tuple(run[second:last]), deliveries=len(grants), first_at=run[grants[0]].at, last_at=run[last].at
            )
            told += [*run[:second], between, *run[last:]]
        return told

    def _told(self) -> list[MessageEvent]:
        """Return the events as they read best: a proof is recorded after its own effects, in one commit, and shown before them."""
        told: list[MessageEvent] = []
        for event in self.events:
            index = len(told)
            while event.event == Kind.PROVEN and index and told[index - 1].event in _PROOF_MAKES and told[index - 1].at == event.at:
                index -= 1
            told.insert(index, event)
        return told

    def _title(self) -> str:
        return f"Message {self.bookmark} of queue '{self.queue}'"

    def _place(self, event: MessageEvent) -> str:
        return "" if event.queue in (None, self.queue) else f"[{event.queue}] "


def _shown(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


def explain(
    journal: DeltaJournal, queue: str, bookmark: int, as_of: datetime | int | None = None, *, state_now: StateNow | None = None
) -> MessageHistory:
    """Return the whole life of a message in a queue; starts nothing and changes nothing.

    Where other messages decide, `state_now` spares the fold of the whole log.
    """
    rows = journal.record_rows()
    count, now_ms = cut(times_of(rows), as_of=as_of, now_ms=SystemClock().wall_ms())
    applied = [each for each in rows.applied() if each.record < count]
    stored = applied[-1].body_as(DefinitionsApplied).definitions if applied else {}
    definitions = parsing.parse_recorded(stored, path=journal.path)
    message_type = definitions.queue(queue).message_type
    if not 0 <= bookmark < BOOKMARK_LIMIT:
        raise _unknown(queue, bookmark, "Bookmarks start at 0, and are numbers of 64 bits.")
    found = MessageRows(rows, message_type=message_type, bookmark=bookmark)
    queues = found.queues(queue)
    records = found.chosen(queues)
    life = _Life(journal, queues, bookmark, message_type)
    life.fold(records, sum(record.record < count for record in records), now_ms=now_ms, as_of=as_of)
    return life.history(now_ms=now_ms, as_of=as_of, state_now=state_now if as_of is None else None)


class _Life:
    """One message while the records about it are folded, and its events so far."""

    def __init__(self, journal: DeltaJournal, queues: list[str], bookmark: int, message_type: str) -> None:
        self._journal, self._bookmark, self._type = journal, bookmark, message_type
        #: The queue in question first, then those that it shares the message with as a dead letter.
        self._queues, self._queue = queues, queues[0]
        self._traits = MessageTraits(journal.traits, bookmark)
        self._prepared = PreparedTraits(self._traits)
        self._state = JournalState(self._prepared)
        self._events: list[MessageEvent] = []
        #: Whether the state of this one depends on other messages.
        self._depends = False
        #: Its counts when it left the queue, which forgets them then.
        self._last_counts = (0, 0)
        #: The trouble that keeps newer messages of its type out of the journal.
        self._stuck: SparkQueueError | None = None

    def fold(self, records: Sequence[Record], count: int, *, now_ms: int, as_of: datetime | int | None) -> None:
        self._heard = read_heard(self._journal.store, self._journal.journal_id) if as_of is None else {}
        of_time, only = not isinstance(as_of, int), BitMap64([self._bookmark])
        fold_until(self._state, records, count, now_ms=now_ms, looks_ahead=of_time, fold=self._step, of=only)
        if of_time and self._segment() is None:
            logs = self._journal if as_of is None else PublishedBy(self._journal, now_ms)
            self._stuck = count_on(logs, self._state, self._prepared, message_type=self._type, now_ms=now_ms).trouble

    def history(self, *, now_ms: int, as_of: datetime | int | None, state_now: StateNow | None) -> MessageHistory:
        segment = self._segment()
        if segment is None:
            until = max((each.until for each in self._message_type.segments), default=0)
            more = "" if self._stuck is None else f" No more enter: {self._stuck}"
            told = f"It has {until:,}.{more}" if as_of is None else "It may have entered later."
            raise _unknown(self._queue, self._bookmark, told)
        body, trouble = self._body()
        standing: Mapping[str, Any] = {}
        try:
            # Where others decide, the whole log is needed.
            depends = self._depends or waits(self._state.ledger(self._queue), self._bookmark)
            least = self._state.next_record
            with whole_state(self._journal, as_of, state_now, least) if depends else nullcontext(self._state) as state:
                standing = self._standing(state, body, now_ms=now_ms)
        except JournalError as refusal:
            trouble = trouble or str(refusal)
        origin = self._origin()
        published: Mapping[str, Any] = {
            name: body.get(name) for name in ("topic", "publisher", "sequence", "published_at", "expires_at")
        }
        return MessageHistory(
            queue=self._queue,
            bookmark=self._bookmark,
            message_type=self._type,
            trouble=trouble,
            table=None if segment.table is None else segment.table.table,
            version=segment.version,
            committed_at=_at(segment.published_at_ms),
            file=segment.path,
            row=_row(segment, self._bookmark),
            entered_at=_instant(segment.entered_at_ms) if any(each.event == Kind.ENTERED for each in self._events) else None,
            events=(*self._published(body, segment), *self._events),
            origin=None if origin is None else origin[0],
            origin_bookmark=None if origin is None else origin[1],
            **published,
            **standing,
        )

    @property
    def _message_type(self) -> MessageTypeState:
        return self._state.message_types.get(self._type, MessageTypeState())

    def _segment(self) -> Segment | None:
        segments = self._message_type.segments
        return next((each for each in segments if each.first <= self._bookmark < each.until), None)

    def _origin(self) -> tuple[str, int] | None:
        """Return the instance to which it was first published, and its bookmark there; None in a journal that is no instance."""
        names = self._message_type.origin_names(self._state.definitions.journal.instance, self._state.instances)
        found = [] if names is None else names.between(self._bookmark, self._bookmark + 1)
        return next(((name, there) for _, name, there in found), None)

    def _step(self, state: JournalState, record: Record) -> None:
        """Fold a record, and note its event for the message; an asker that waits asks again and again, which is noted once."""
        before = {name: (ledger, self._bookmark in ledger.entered) for name, ledger in state.queues.items()}
        segment = self._segment()
        left = record.kind == Kind.REMOVED and record.queue == self._queue and holds(record.ranges, self._bookmark)
        ledger = state.queues.get(self._queue)
        if left and not (ledger is not None and self._bookmark in ledger.rows[State.DEAD]):
            self._last_counts = self._counts(ledger)
        fold_alone(state, record, message_type=self._type, bookmark=self._bookmark)
        after = state.queues
        self._depends |= isinstance(record.body, Returned) and record.body.alone and record.queue == self._queue
        self._depends |= self._queue in after and bool(after[self._queue].definition.target_queue_depth)
        is_repeated = record.kind == Kind.TRANSFER_REQUESTED and bool(self._events) and self._events[-1].event == record.kind
        if self._tells(state, record) and not is_repeated:
            self._note(record, record.kind, event_text(record))
        now = self._segment()
        if record.kind == Kind.MOVED and segment is not None and now is not None and segment.path != now.path:
            made = "a merged file" if now.merged else "a copy of its file"
            self._note(record, record.kind, f"its row moved to row {_row(now, self._bookmark)} of {now.path}, {made}")
        if record.kind in (Kind.ENTERED, Kind.DECIDED, Kind.DEFINITIONS_APPLIED):
            for name in [name for name in self._queues if name in after]:
                self._note_queue(record, name, before.get(name), after[name])

    def _note_queue(self, record: Record, name: str, before: tuple[QueueLedger, bool] | None, ledger: QueueLedger) -> None:
        old, had = before or (ledger, False)
        if had and old is not ledger:
            self._note(record, "reset", f"queue '{name}' began anew at bookmark {ledger.start}", queue=name)
        if self._bookmark in ledger.entered and not (had and old is ledger):
            held = " and holds it as a barrier" if self._bookmark in ledger.barriers else ""
            self._note(record, "taken", f"queue '{name}' took it{held}", queue=name)

    def _counts(self, ledger: QueueLedger | None) -> tuple[int, int]:
        return (0, 0) if ledger is None else (ledger.delivered.of(self._bookmark), ledger.cancelled.of(self._bookmark))

    def _tells(self, state: JournalState, record: Record) -> bool:
        if is_of_others(state, record, message_type=self._type):
            return False
        if holds(record.ranges, self._bookmark):
            return record.queue is not None or record.message_type == self._type
        ledger = state.queues.get(str(record.queue))
        lease = None if ledger is None else ledger.leases.get(int(record.lease or 0))
        if lease is None or self._bookmark not in lease.rows:
            return False
        ended = record.kind == Kind.OUTCOMES and record.reason in (RUN_FAILED, RUN_STOPPED)
        # Returned messages are no longer its own; a barrier is never held, and an at-most-once batch gives up at once.
        is_held = self._bookmark in lease.leased or record.kind == Kind.PROVEN
        return ended or (record.body.about is About.LEASE and is_held)

    def _note(self, record: Record, event: str, text: str, *, queue: str | None = None) -> None:
        ledger = self._state.queues.get(str(record.queue))
        granted = record.kind in (Kind.GRANTED, Kind.RESUMED)
        made = MessageEvent(
            at=_at(record.at_ms),
            event=str(event),
            record=record.record,
            queue=record.queue or queue,
            subscription=record.subscription,
            lease=record.lease,
            messages=count_rows(record.ranges) if granted else None,
            delivery=ledger.delivered.of(self._bookmark) if granted and ledger is not None else None,
            reason=record.reason,
            due_at=_instant(record.due_at_ms),
            error=getattr(record.body, "error", None),
            text=text,
        )
        self._events.append(made)

    def _published(self, body: Mapping[str, Any], segment: Segment) -> Iterator[MessageEvent]:
        if segment.table is not None:
            followed = self._message_type.followed
            stood = followed is not None and segment.version == followed.stood_at
            how = "already in table '{}' at its version {}" if stood else "appended to table '{}' by its version {}"
            text = f"{how.format(segment.table.table, segment.version)}, in file {segment.path}"
            yield MessageEvent(at=_at(segment.published_at_ms), event="committed", record=None, queue=None, text=text)
            return
        origin = self._origin()
        is_pulled = bool(segment.origins) and origin is not None
        if body:
            there = f" at instance '{origin[0]}', where it is message {origin[1]:,}" if origin is not None and is_pulled else ""
            text = f"published to topic '{body['topic']}' by '{body['publisher']}' as number {body['sequence']:,}{there}"
            yield MessageEvent(at=body["published_at"], event="published", record=None, queue=None, text=text)
        how = "pulled from a peer, and committed here" if is_pulled else "committed"
        text = f"{how} as version {segment.version} of {self._type}"
        yield MessageEvent(at=_at(segment.published_at_ms), event="committed", record=None, queue=None, text=text)

    def _body(self) -> tuple[Mapping[str, Any], str | None]:
        """Return the published body, and the trouble if it cannot be read."""
        columns = self._state.definitions.message_type(self._type).columns
        # The value of a key is shown where it is a column.
        key = self._state.definitions.queue(self._queue).order_key
        fields = [*ENVELOPE, *(field for field in stored_schema(columns) if field.name == key and field not in ENVELOPE)]
        try:
            store, bookmarks = self._journal.store, np.array([self._bookmark])
            found = python_rows(read_bodies(store, self._message_type, bookmarks, pa.schema(fields)))
        except JournalError as refusal:
            return {}, str(refusal)
        return found[0], None

    def _standing(self, whole: JournalState, body: Mapping[str, Any], *, now_ms: int) -> Mapping[str, Any]:
        ledger, bookmark = whole.ledger(self._queue), self._bookmark
        if bookmark not in ledger.entered:
            definition, traits = self._traits.asked.get(self._queue, (ledger.definition, None))
            is_undecided = bookmark in whole.undecided(ledger)
            known: dict[str, Any] = {"topic": body.get("topic"), "start": ledger.start, "is_undecided": is_undecided}
            return {"reason": why_never_taken(definition, traits, bookmark, **known)}
        state = next(state for state, rows in ledger.rows.items() if bookmark in rows)
        due_at_ms = next((at_ms for at_ms, rows in ledger.delayed.items() if bookmark in rows), None)
        if state == State.DELAYED and due_at_ms is not None and due_at_ms <= now_ms:
            state, due_at_ms = State.AVAILABLE, None
        lease = next((lease for lease in ledger.leases.values() if bookmark in lease.leased), None)
        counts = self._last_counts if state in LEFT else self._counts(ledger)
        definition, traits = self._traits.asked.get(self._queue, (ledger.definition, None))
        key = None
        if traits is not None and len(traits.keys) and definition.order_key is not None:
            key = str(body.get(definition.order_key, f"{int(traits.keys[0]):016x}"))
        return {
            "owner": self._owner(ledger),
            "state": str(state),
            "subscription": None if lease is None else lease.subscription,
            "lease": None if lease is None else lease.number,
            "leased_until": None if lease is None else _at(lease.due_at_ms),
            "due_at": _instant(due_at_ms),
            "delivery_count": counts[0],
            "cancel_count": counts[1],
            "priority": int(traits.priorities[0]) if traits is not None and len(traits.priorities) else None,
            "order_key": key,
            "is_barrier": bookmark in ledger.barriers,
            "reason": why_it_waits(whole, self._queue, bookmark, now_ms=now_ms, heard=self._heard),
        }

    def _owner(self, ledger: QueueLedger) -> str | None:
        alone = BitMap64([self._bookmark]) - ledger.barriers - ledger.rows[State.REMOVED]
        return next((owner for _, owner, _ in ledger.ownership.by_owner(alone)), None) if ledger.is_replicated else None


def _unknown(queue: str, bookmark: int, next_step: str) -> CallerError:
    reason = "its message type does not have"
    return CallerError("UNKNOWN_BOOKMARK", queue=queue, count=1, bookmark=bookmark, reason=reason, next_step=next_step)


def _row(segment: Segment, bookmark: int) -> int:
    return segment.first_row + bookmark - segment.first


def _at(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1_000, UTC)


def _instant(at_ms: int | None) -> datetime | None:
    return None if at_ms is None else _at(at_ms)
