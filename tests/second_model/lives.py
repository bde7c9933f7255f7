"""A second, simpler model of a control log: the lives of messages by its records alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from pyroaring import BitMap64

from spark_queue.core.bitmaps.ranges import to_bitmap
from spark_queue.core.records import (
    DEAD_LETTER_REASONS,
    DeadLettered,
    DefinitionsApplied,
    Granted,
    Kind,
    OfAttempt,
    Record,
    Removal,
    Replicated,
    Resumed,
)
from spark_queue.core.state.ownership import Stage


@dataclass(slots=True)
class _Life:
    """The messages of a queue, by its records so far."""

    leased: BitMap64 = field(default_factory=BitMap64)
    removed: BitMap64 = field(default_factory=BitMap64)
    dead: BitMap64 = field(default_factory=BitMap64)
    #: Those of the dead letters of which the body is gone.
    lost: BitMap64 = field(default_factory=BitMap64)
    last_lease: int = 0
    proven: set[int] = field(default_factory=set)
    #: Messages that may stand in a sink, with their attempt, by subscription; and the newest number of each.
    in_doubt: dict[str, tuple[int, BitMap64]] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)
    #: Messages that stand in a sink.
    landed: BitMap64 = field(default_factory=BitMap64)


class MessageLives:
    """The second model: it knows no rule of delivery, only that a life has one end, and that an end is an end."""

    def __init__(self) -> None:
        self._epoch = 0
        self._until: dict[str, int] = {}
        self._lives: dict[str, _Life] = {}

    def follow(self, record: Record) -> Iterator[str]:
        """Follow the next record, and yield its contradictions."""
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
        for name in record.body_as(DefinitionsApplied).resets:
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
                source = record.body_as(DeadLettered).source
                strangers = rows - self._lives[source].dead
                if strangers:
                    yield f"{len(strangers)} message(s), first {strangers.min()}, that '{source}' still has"
                life.removed -= rows
            case Kind.REDRIVEN:
                yield from _ended_before(rows - (life.dead - life.lost), life.removed | life.lost)
                life.dead, life.removed = life.dead - rows, life.removed | (rows - life.dead)
            case Kind.REPLICATED:
                _elsewhere(Stage(record.body_as(Replicated).stage), life, rows)
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
        # A dead letter may end once more: taken back by a late proof, purged, or lost. Nothing else ends twice.
        ended = life.lost if record.reason == Removal.LOST else life.dead
        yield from _ended_before(rows, life.removed | ended if dead else life.removed)
        life.leased -= rows
        if dead:
            life.dead |= rows
        else:
            life.dead -= rows
            life.removed |= rows
        life.lost = life.lost | rows if record.reason == Removal.LOST else life.lost - rows


#: Kinds that no record may have for messages while nobody knows whether they stand in a sink (R123).
_MOVING = frozenset({Kind.GRANTED, Kind.RETURNED, Kind.REMOVED, Kind.REDRIVEN, Kind.DEFERRED})


def _of_sinks(record: Record, life: _Life, rows: BitMap64) -> Iterator[str]:
    name, number = str(record.subscription), record.body.attempt if isinstance(record.body, OfAttempt) else 0
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
    return BitMap64() if isinstance(record.body, Granted | Resumed) and record.body.barrier else rows


def _ended_before(rows: BitMap64, ended: BitMap64) -> Iterator[str]:
    again = rows & ended
    if again:
        yield f"{len(again)} message(s), first {again.min()}, had already left the queue"


def _elsewhere(stage: Stage, life: _Life, rows: BitMap64) -> None:
    """Apply the change that another instance made to messages: it may have ended them, or given them another life."""
    life.leased, life.dead, life.removed = life.leased - rows, life.dead - rows, life.removed - rows
    # Another instance ends messages that it claims, even if they are in a sink here (R111).
    life.in_doubt = {name: (attempt, doubted - rows) for name, (attempt, doubted) in life.in_doubt.items()}
    if stage == Stage.DEAD:
        life.dead |= rows
    elif stage == Stage.GONE:
        life.removed |= rows
