"""What the model is made of: messages, leases and subscriptions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.model.definitions import Question

#: Silent ends of receivers from which on a message is granted alone.
MARKS = 2


@dataclass
class Message:
    """One message in one queue."""

    bookmark: int
    body: dict[str, Any]
    entered_at: int
    expires_at: int | None
    state: str = "available"
    is_barrier: bool = False
    deliveries: int = 0
    cancels: int = 0
    #: How often it failed alone; it is tried only alone then.
    lone: int = 0
    #: How often a receiver ended without a word while it had it.
    marks: int = 0
    due: int = 0
    #: With a delay from its publish: its end, until it is delayed by it.
    not_before: int | None = None
    deferred: int | None = None
    #: Why and when it left.
    reason: str = ""
    left_at: int = 0

    @property
    def kills(self) -> bool:
        """Whether receivers may have died of it (R138)."""
        return self.marks >= MARKS


@dataclass
class Lease:
    """What a subscription was given; still holds; may still settle, since nobody else took it (P5); and what its batch said."""

    number: int
    rows: set[int]
    due: int
    begun_at: int
    limit: int
    planner: object
    barrier: bool = False
    #: Whether it is part of a batch that failed.
    piece: bool = False
    proven: bool = False
    held: set[int] = field(default_factory=set)
    claim: set[int] = field(default_factory=set)
    said: dict[int, tuple[str, int | None]] = field(default_factory=dict)
    #: How its runs went: whether one asked for the rows, whether it failed, and goes back, and how many vanished.
    asked: bool = False
    failed: bool = False
    gives_back: bool = False
    #: Whether it was stopped, or left once fn had returned, in the planner start that is named: it is held against nothing.
    stopped: bool = False
    returned_in: object = None
    vanished: int = 0
    undelivered: bool = False
    #: Whether it is certain that nobody took it over since it was granted, and whether fn is running on it (P6).
    sure: bool = True
    running: bool = False
    #: At most once: whether its period ended before the proof, and whose run it is.
    lapsed: bool = False
    handed_to: object = None
    #: Whether nobody knows if its batch stands in a sink, and whether it is known to.
    in_doubt: bool = False
    landed: bool = False
    #: What its planner start was given, and a later call of the same did not get (R124).
    lost: set[int] = field(default_factory=set)
    #: Of a receiver: whether a renewal has named it.
    confirmed: bool = False


@dataclass
class Subscription:
    """A consumer by name."""

    backlog: int = 0
    explicit: bool = False
    #: Whether a receiver consumes by it, whether it ends with that one, and when that one was heard last.
    receives: bool = False
    ends: bool = False
    heard_at: int = 0
    left: bool = False
    filter: Question = None
    planner: object = None
    leases: list[Lease] = field(default_factory=list)
    barriers: list[int] = field(default_factory=list)
    barrier_deliveries: int = 0
    #: What is left of its failed batch; most messages of a batch that is no piece of it; whether it tried a lone one last.
    failed: set[int] = field(default_factory=set)
    most: int | None = None
    tried_lone: bool = False
    #: Whether its newest lease is a message that receivers may have died of.
    tried_marked: bool = False
    #: What its receiver works on still, beyond the limit of the lease, and is not given again.
    overrun: set[int] = field(default_factory=set)
    #: Messages that failed alone, with what was counted before; and the next try and the tries of an alarm.
    suspects: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    alarm: tuple[int, int] | None = None
    #: Trigger.AvailableNow: where its run ends, and what it was given.
    until: int | None = None
    given: set[int] = field(default_factory=set)

    @property
    def open(self) -> Lease | None:
        """The lease that is not proven."""
        return next((lease for lease in self.leases if not lease.proven), None)

    def tries_apart(self, allowed: list[Message], suspicious: list[Message]) -> list[Message]:
        """Return what it tries by itself: one that tells who is to blame, one that failed alone, or half of what failed."""
        allowed = [each for each in allowed if each.bookmark not in self.suspects] or allowed
        others, lone = [each for each in allowed if not each.lone], [each for each in allowed if each.lone]
        if self.alarm is not None:
            return (others or lone)[-1:]
        if others and (len(self.fresh) > 1 or (self.fresh and self.failed)):
            return others[-1:]
        if lone and not (others and self.tried_lone):
            return [min(lone, key=lambda each: (each.due, each.bookmark))]
        return suspicious[: max(1, len(suspicious) // 2)]

    @property
    def fresh(self) -> set[int]:
        """Those of its suspects that had never failed alone before."""
        return {bookmark for bookmark, (_, _, lone) in self.suspects.items() if not lone}

    def may_take(self, bookmark: int) -> bool:
        """Return whether its run gets a message that is there for it."""
        return self.until is None or (bookmark < self.until and bookmark not in self.given)
