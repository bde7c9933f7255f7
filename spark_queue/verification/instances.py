"""Two instances of replicated queues against each other: who has heard of a value knows it, or a greater one (DESIGN 17.4).

A second, simpler model of a control log: what its records alone say of the lives of messages.
A journal's state as plain values: two states are the same exactly when their digests are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from pyroaring import BitMap64

from spark_queue.core.bitmaps.expirations import Expirations
from spark_queue.core.bitmaps.numbers import Counts
from spark_queue.core.bitmaps.ranges import to_bitmap, to_ranges
from spark_queue.core.message_files.message_type import MessageTypeState
from spark_queue.core.records import DEAD_LETTER_REASONS, Kind, Record, Removal
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.ledger import QueueLedger
from spark_queue.core.state.lifecycle import IN_QUEUE, State
from spark_queue.core.state.ownership import MessageValue, Ownership, Stage


@dataclass(slots=True)
class _Life:
    """The messages of a queue, as its records have told so far."""

    leased: BitMap64 = field(default_factory=BitMap64)
    removed: BitMap64 = field(default_factory=BitMap64)
    dead: BitMap64 = field(default_factory=BitMap64)
    last_lease: int = 0
    proven: set[int] = field(default_factory=set)
    #: What may stand in a sink, and which attempt it is, by subscription; and the newest number of each.
    in_doubt: dict[str, tuple[int, BitMap64]] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)
    #: What stands in a sink.
    landed: BitMap64 = field(default_factory=BitMap64)


class MessageLives:
    """The second model: it knows no rule of delivery, only that a life has one end, and that an end is an end."""

    def __init__(self) -> None:
        self._epoch = 0
        self._until: dict[str, int] = {}
        self._lives: dict[str, _Life] = {}

    def follow(self, record: Record) -> Iterator[str]:
        """Take the next record and give what it contradicts."""
        if record.kind == Kind.EPOCH_CLAIMED:
            if record.epoch <= self._epoch:
                yield f"epoch {record.epoch} is claimed after epoch {self._epoch}"
            self._epoch = record.epoch
        elif record.kind == Kind.ENTERED:
            yield from self._entered(record)
        elif record.kind == Kind.DEFINITIONS_APPLIED:
            self._applied(record)
        elif record.queue is not None:
            yield from self._of_queue(record, self._lives.setdefault(record.queue, _Life()), to_bitmap(record.ranges))

    def _entered(self, record: Record) -> Iterator[str]:
        ((first, until),) = record.ranges
        expected = self._until.get(str(record.message_type), 0)
        if first != expected:
            yield f"bookmarks begin at {first}, but {expected} is next"
        self._until[str(record.message_type)] = until

    def _applied(self, record: Record) -> None:
        for name in record.detail["resets"]:
            # Lease numbers are never reused, whatever becomes of the queue.
            life = self._lives.get(name, _Life())
            self._lives[name] = _Life(last_lease=life.last_lease, proven=life.proven, attempts=life.attempts)

    def _of_queue(self, record: Record, life: _Life, rows: BitMap64) -> Iterator[str]:
        if rows and rows.max() >= max(self._until.values(), default=0):
            yield f"message {rows.max()} never entered"
        yield from _of_sinks(record, life, rows)
        match record.kind:
            case Kind.GRANTED:
                yield from self._granted(record, life, rows)
            case Kind.RESUMED:
                yield from _ended_before(rows, life.removed | life.dead)
                life.leased |= _leased_by(record, rows)
            case Kind.RETURNED:
                yield from _ended_before(rows, life.removed | life.dead)
                life.leased -= rows
            case Kind.REMOVED:
                yield from self._removed(record, life, rows)
            case Kind.DEAD_LETTERED:
                strangers = rows - self._lives[record.detail["source"]].dead
                if strangers:
                    yield f"{len(strangers)} message(s), first {strangers.min()}, that '{record.detail['source']}' still has"
                life.removed -= rows
            case Kind.REDRIVEN:
                yield from _ended_before(rows - life.dead, life.removed)
                life.dead, life.removed = life.dead - rows, life.removed | (rows - life.dead)
            case Kind.REPLICATED:
                _elsewhere(Stage(record.detail["stage"]), life, rows)
            case Kind.PROVEN:
                if record.lease in life.proven or (record.lease or 0) > life.last_lease:
                    yield f"lease {record.lease} was proven before, or never granted"
                life.proven.add(record.lease or 0)

    def _granted(self, record: Record, life: _Life, rows: BitMap64) -> Iterator[str]:
        if record.lease != life.last_lease + 1:
            yield f"lease {record.lease} follows lease {life.last_lease}"
        yield from _ended_before(rows, life.removed | life.dead)
        if rows.intersect(life.leased):
            yield f"message {(rows & life.leased).min()} is granted while it is leased"
        life.last_lease = record.lease or 0
        life.leased |= _leased_by(record, rows)

    def _removed(self, record: Record, life: _Life, rows: BitMap64) -> Iterator[str]:
        dead = record.reason in DEAD_LETTER_REASONS
        # A dead letter may end once more: taken back by a late proof, or purged. Nothing else ends twice.
        yield from _ended_before(rows, life.removed | life.dead if dead else life.removed)
        life.leased -= rows
        if dead:
            life.dead |= rows
        else:
            life.dead -= rows
            life.removed |= rows


#: What no record may do to messages while nobody knows whether they stand in a sink (R123).
_MOVING = frozenset({Kind.GRANTED, Kind.RETURNED, Kind.REMOVED, Kind.REDRIVEN, Kind.DEFERRED})


def _of_sinks(record: Record, life: _Life, rows: BitMap64) -> Iterator[str]:
    name, number = str(record.subscription), int(record.detail.get("attempt", 0))
    if record.kind in _MOVING:
        for subscription, (attempt, doubted) in life.in_doubt.items():
            if rows.intersect(doubted):
                yield f"message {(rows & doubted).min()} is in doubt, by attempt {attempt} of '{subscription}'"
        if rows.intersect(life.landed) and record.reason != Removal.ACKNOWLEDGED:
            yield f"message {(rows & life.landed).min()} stands in a sink, and may only be acknowledged"
    elif record.kind == Kind.UNSUBSCRIBED and name in life.in_doubt:
        yield f"attempt {life.in_doubt[name][0]} of '{name}' is in doubt"
    elif record.kind == Kind.PREPARED:
        if name in life.in_doubt or number <= life.attempts.get(name, 0):
            yield f"attempt {number} of '{name}' begins before an earlier one is over, or has its number"
        life.in_doubt[name], life.attempts[name] = (number, rows), number
    elif record.kind in (Kind.LANDED, Kind.FENCED):
        known, doubted = life.in_doubt.pop(name, (0, BitMap64()))
        if number != known or not rows.issubset(doubted):
            yield f"attempt {number} of '{name}' is not in doubt, or not with these messages"
        life.landed |= rows if record.kind == Kind.LANDED else BitMap64()


def _leased_by(record: Record, rows: BitMap64) -> BitMap64:
    """Return what a grant or resume leases: a barrier is given to many, and leased to nobody."""
    return BitMap64() if record.detail.get("barrier") else rows


def _ended_before(rows: BitMap64, ended: BitMap64) -> Iterator[str]:
    again = rows & ended
    if again:
        yield f"{len(again)} message(s), first {again.min()}, had already left the queue"


def _elsewhere(stage: Stage, life: _Life, rows: BitMap64) -> None:
    """Take over what another instance did with messages: it may have ended them, or given them another life."""
    life.leased, life.dead, life.removed = life.leased - rows, life.dead - rows, life.removed - rows
    # Another instance ends what it claims, whatever sinks here know of it (R111).
    life.in_doubt = {name: (attempt, doubted - rows) for name, (attempt, doubted) in life.in_doubt.items()}
    if stage == Stage.DEAD:
        life.dead |= rows
    elif stage == Stage.GONE:
        life.removed |= rows


def digest(state: JournalState) -> dict[str, Any]:
    """Return everything that a state knows, in values that share nothing with it."""
    return {
        "journal": state.journal_id,
        "epoch": state.epoch,
        "next_record": state.next_record,
        "last_at_ms": state.last_at_ms,
        "pulled": dict(state.pulled),
        "peer_changes": _copied(state.peer_changes),
        "returning": state.returning,
        "instances": dict(state.instances),
        "disagreements": repr(state.disagreements),
        "peer_troubles": dict(state.peer_troubles),
        "definitions": repr(state.definitions),
        "message_types": {
            name: {key: _copied(value) for key, value in vars(message_type).items()}
            for name, message_type in state.message_types.items()
        },
        "queues": {name: of_ledger(ledger) for name, ledger in state.queues.items()},
        "left": {name: of_ledger(ledger) for name, ledger in state.left.items()},
    }


def of_ledger(ledger: QueueLedger) -> dict[str, Any]:
    """Return everything that one queue's ledger knows."""
    return {
        "definition": ledger.definition,
        "start": ledger.start,
        "entered": to_ranges(ledger.entered),
        "rows": {state: to_ranges(rows) for state, rows in ledger.rows.items()},
        "delayed": {due_at_ms: to_ranges(rows) for due_at_ms, rows in ledger.delayed.items()},
        "deferred": {until_ms: to_ranges(rows) for until_ms, rows in ledger.deferred.items()},
        "reached": to_ranges(ledger.reached),
        "expires": _times(ledger, ledger.expires),
        "begun": _times(ledger, ledger.begun),
        "leases": {number: _plain(lease) for number, lease in ledger.leases.items()},
        "subscriptions": {name: _plain(subscription) for name, subscription in ledger.subscriptions.items()},
        "next_lease": ledger.next_lease,
        "attempts": _copied(ledger.attempts),
        "failed_expressions": ledger.failed_expressions,
        "barriers": to_ranges(ledger.barriers),
        "barriers_given_up": ledger.barriers_given_up,
        "delivered": _counts(ledger.delivered, ledger.entered),
        "cancelled": _counts(ledger.cancelled, ledger.entered),
        "selection": _selection(ledger),
        "lone_failures": _counts(ledger.lone_failures, ledger.entered),
        "stuck": _copied(ledger.stuck),
        "dead_letters": [_plain(letter) for letter in ledger.dead_letters],
        "paused": ledger.paused,
        "ownership": _copied(ledger.ownership),
        "removed_counts": {reason: count for reason, count in ledger.removed_counts.items() if count},
        "returned_counts": dict(ledger.returned_counts),
    }


def _times(ledger: QueueLedger, times: Expirations) -> dict[int, Any]:
    """Return the times of what is in the queue; the others are forgotten when time passes, not when a record says so."""
    in_queue = BitMap64.union(*(ledger.rows[state] for state in IN_QUEUE))
    return {at_ms: to_ranges(rows & in_queue) for at_ms, rows in times.items() if rows.intersect(in_queue)}


def _selection(ledger: QueueLedger) -> dict[str, Any]:
    """Return the traits of what is in the queue or may come back; the others are forgotten some time or other."""
    selection, standing = ledger.selection, ledger.standing
    return {
        "matches": {text: to_ranges(rows & standing) for text, rows in selection.matches.items()},
        "priorities": [each.tolist() for each in selection.priorities.of(standing)],
        "order_keys": [each.tolist() for each in selection.order_keys.keys_of(standing)],
        "behind": to_ranges(selection.order_keys.behind),
    }


def _counts(counts: Counts, rows: BitMap64) -> dict[int, Any]:
    return {count: to_ranges(part) for count, part in counts.split(rows) if count}


def _plain(value: Any) -> dict[str, Any]:
    return {field.name: _copied(getattr(value, field.name)) for field in fields(value)}


def _copied(value: Any) -> Any:
    if isinstance(value, BitMap64):
        return to_ranges(value)
    if isinstance(value, dict):
        return {key: _copied(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_copied(entry) for entry in value]
    if is_dataclass(value):
        return _plain(value)
    return value


#: Messages that are named of those that differ.
_EXAMPLES = 3


def of_origins(state: JournalState) -> Iterator[str]:
    """Yield what is broken in where pulled messages were first published: each is here once, and none of them is of here."""
    for name, message_type in state.message_types.items():
        origins = message_type.origins
        for origin, pulled in origins.pulled.items():
            instance = state.instances.get(origin, origin)
            # A journal that was restored gets back what it had lost.
            if origin == state.journal_id and not origins.renewed:
                yield f"message type '{name}': {len(pulled)} message(s) count as pulled that were first published here"
            elif len(pulled) + origins.name_count(origin) != len(origins.held[origin]):
                yield f"message type '{name}': messages of instance '{instance}' are here more than once"


def of_what_was_pulled(
    hearer: JournalState, speaker: JournalState, queues: tuple[str, ...], *, passes: Callable[[str, str], bool], who: str, whom: str
) -> Iterator[str]:
    """Yield what a hearer does not know of what it has pulled from a speaker.

    Parameters
    ----------
    hearer : JournalState
        As it stands.
    speaker : JournalState
        As it stood when the hearer had pulled the last of it.
    queues : tuple of str
        What the hearer pulls.
    passes : callable
        Returns whether messages of an instance, which is in a group, may come this way.
    who, whom : str
        How the hearer and the speaker are called.
    """
    for queue in queues:
        here, there = hearer.queues.get(queue), speaker.queues.get(queue)
        # What a side has set aside, or does not replicate, says nothing.
        if here is None or there is None or here.ownership is None or there.ownership is None:
            continue
        message_type = here.definition.message_type
        if message_type != there.definition.message_type:
            # It is another queue there, and its news wait.
            continue
        names = _Names(hearer, speaker, message_type)
        for value, rows in _values(there, there.ownership):
            known, unknown = names.of_hearer(rows, passes)
            if unknown and value.stage != Stage.GONE:
                examples = _examples(speaker, message_type, unknown)
                yield f"queue '{queue}': {who} does not have {len(unknown)} message(s) of {whom}, such as {examples}"
            less = _less(hearer, here, here.ownership, known, value)
            if less:
                text = f"{who} does not know that {len(less)} message(s) are {_told(value)}, as {whom} says"
                yield f"queue '{queue}': {text}: such as {_examples(hearer, message_type, less)}"


class _Names:
    """The bookmarks of one instance at another."""

    def __init__(self, hearer: JournalState, speaker: JournalState, message_type: str) -> None:
        self._hearer, self._speaker = hearer, speaker
        self._here: MessageTypeState = hearer.message_types[message_type]
        self._there: MessageTypeState = speaker.message_types[message_type]

    def of_hearer(self, rows: BitMap64, passes: Callable[[str, str], bool]) -> tuple[BitMap64, BitMap64]:
        """Return bookmarks of the speaker as the hearer's; and those, of the speaker, that the hearer should have and has not."""
        known, told, unknown = BitMap64(), BitMap64(), BitMap64()
        for origin, there in self._there.origins.of(rows, own=self._speaker.journal_id):
            origins, own = self._here.origins, self._hearer.journal_id
            published = origins.published_here(origin, there, own=own, until=self._here.entered_until)
            missing = there - published - origins.held.get(origin, BitMap64())
            known |= published | origins.here(origin, there)
            told |= self._of_speaker(origin, there - missing, rows)
            instance = self._instance_of(origin)
            group = self._there.origins.groups.get(instance, instance)
            if instance in (_name(self._hearer), _name(self._speaker)) or passes(instance, group):
                unknown |= self._of_speaker(origin, missing, rows)
        # One name that is known is enough.
        return known, unknown - told

    def _of_speaker(self, origin: str, there: BitMap64, rows: BitMap64) -> BitMap64:
        """Return those of the speaker's messages that have one of some names."""
        origins, until = self._there.origins, self._there.entered_until
        published = origins.published_here(origin, there, own=self._speaker.journal_id, until=until)
        return rows & (published | origins.here(origin, there))

    def _instance_of(self, origin: str) -> str:
        """Return where the messages of an origin were published, a journal that was restored since included."""
        return _name(self._speaker) if origin == self._speaker.journal_id else self._speaker.instances.get(origin, "")


def _name(state: JournalState) -> str:
    return str(state.definitions.journal.instance)


def _examples(state: JournalState, message_type: str, rows: BitMap64) -> str:
    """Name some messages by where they were first published, as everybody knows them."""
    own = state.definitions.journal.instance
    found = [
        f"{own if origin == state.journal_id else state.instances[origin]}:{bookmark}"
        for origin, there in state.message_types[message_type].origins.of(BitMap64(list(rows[:_EXAMPLES])), own=state.journal_id)
        for bookmark in there
    ]
    return ", ".join(found)


def _values(ledger: QueueLedger, ownership: Ownership) -> Iterator[tuple[MessageValue, BitMap64]]:
    """Yield what an instance says of its messages; of barriers nobody says anything."""
    for life, members in ownership.by_life(ledger.entered - ledger.barriers):
        gone, dead = members & ledger.rows[State.REMOVED], members & ledger.rows[State.DEAD]
        if gone:
            yield MessageValue(life, Stage.GONE), gone
        for stage, rows in ((Stage.DEAD, dead), (Stage.PRESENT, members - gone - dead)):
            for term, owner, part in ownership.by_owner(rows):
                yield MessageValue(life, stage, term, owner), part


def _less(state: JournalState, ledger: QueueLedger, ownership: Ownership, rows: BitMap64, value: MessageValue) -> BitMap64:
    """Return of which messages less is known than a value."""
    source = state.definitions.source_of(ledger.definition.name)
    missing = BitMap64()
    if source is not None and value.stage != Stage.GONE:
        # A letter exists while its message is dead in that life.
        dead, of_source = state.queues[source].rows[State.DEAD], state.queues[source].ownership
        rows = BitMap64() if of_source is None else of_source.of_life(dead & rows, value.life)
        missing = rows - ledger.entered
    # What retention let go is in no state any more.
    return missing | ownership.lesser(ledger.rows, (rows & ledger.entered) - ledger.barriers, value)


def _told(value: MessageValue) -> str:
    life = f" in life {value.life}" if value.life else ""
    if value.stage == Stage.GONE:
        return f"gone{life}"
    where = "dead letters" if value.stage == Stage.DEAD else "in the queue"
    return f"{where}{life}, owned by '{value.owner}' in term {value.term}"
