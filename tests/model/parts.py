"""What the model of a queue is made of: its keys, messages, leases and subscriptions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

#: What a queue may ask of a message's body; None where the rule is not set.
Question = Callable[[dict[str, Any]], Any] | None

IN_QUEUE = ("available", "leased", "delayed")
WAITING = ("available", "delayed", "inactive")
DEAD_REASONS = ("max_deliveries", "max_cancels", "forced_expire")


@dataclass(kw_only=True)
class Rules:
    """The keys of one queue."""

    at_most_once: bool = False
    lease_ms: int = 10_000
    max_backlog: int = 0
    max_per_subscription: int = 0
    expiration_ms: int | None = None
    max_deliveries: int = 0
    max_cancels: int = 0
    backoff: tuple[int, int, int] | None = None
    strict: bool = False
    filter: Question = None
    priority: Question = None
    key: Question = None
    barrier: Question = None
    depth: int = 0
    deferral_ms: int = 86_400_000
    #: A bookmark, a time ("at", ms), "now" or "epoch".
    start: Any = "epoch"
    letters: str | None = None
    letters_kept_ms: int | None = None

    def delay_ms(self, times: int, otherwise: int = 0) -> int:
        """Give the delay of a cancel after so many, or of a probe (DESIGN 8)."""
        first, longest, factor = self.backoff or (otherwise, otherwise, 1)
        return min(longest, int(first * factor**times))


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
    due: int = 0
    deferred: int | None = None
    #: Why and when it left.
    reason: str = ""
    left_at: int = 0


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
    proven: bool = False
    held: set[int] = field(default_factory=set)
    claim: set[int] = field(default_factory=set)
    said: dict[int, tuple[str, int | None]] = field(default_factory=dict)
    #: How its runs went: whether one asked for the rows, whether it failed, and goes back, and how many vanished.
    asked: bool = False
    failed: bool = False
    gives_back: bool = False
    vanished: int = 0
    undelivered: bool = False
    #: Whether it is certain that nobody took it over since it was granted, and whether fn is running on it (P6).
    sure: bool = True
    running: bool = False
    #: At most once: whether its period ended before the proof, and whose run it is.
    lapsed: bool = False
    claimed_by: object = None


@dataclass
class Subscription:
    """A consumer by name."""

    backlog: int = 0
    explicit: bool = False
    filter: Question = None
    planner: object = None
    leases: list[Lease] = field(default_factory=list)
    barriers: list[int] = field(default_factory=list)
    barrier_deliveries: int = 0
    #: Most messages of the next batch while a failing one is taken apart.
    piece: int | None = None
    #: Trigger.AvailableNow: where its run ends, and what it was given.
    until: int | None = None
    given: set[int] = field(default_factory=set)

    @property
    def open(self) -> Lease | None:
        """The lease that is not proven."""
        return next((lease for lease in self.leases if not lease.proven), None)

    def may_take(self, bookmark: int) -> bool:
        """Tell whether its run gets a message that is there for it."""
        return self.until is None or (bookmark < self.until and bookmark not in self.given)
