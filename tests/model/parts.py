"""What the model of a queue is made of: its keys, messages, leases and subscriptions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

#: What a queue may ask of a message's body; None where the rule is not set.
Question = Callable[[dict[str, Any]], Any] | None


@dataclass
class Rules:
    """The keys of one queue."""

    at_most_once: bool = False
    lease_ms: int = 10_000
    max_backlog: int = 0
    max_per_subscription: int = 0
    expiration_ms: int | None = None
    max_deliveries: int = 0
    max_cancels: int = 0
    filter: Question = None
    priority: Question = None
    key: Question = None
    barrier: Question = None
    depth: int = 0
    deferral_ms: int = 86_400_000


@dataclass
class Message:
    """One message in one queue."""

    bookmark: int
    body: dict[str, Any]
    entered_at: int
    expires_at: int | None
    state: str = "available"
    deliveries: int = 0
    cancels: int = 0
    due: int = 0
    deferred: int | None = None


@dataclass
class Lease:
    """What a subscription was given; still holds; may still settle, since nobody else took it (P5); and what its batch said.

    At most once it holds nothing, is `pending` until its proof or its end, and is `read` by one planner start.
    """

    number: int
    rows: set[int]
    due: int
    barrier: bool = False
    proven: bool = False
    pending: bool = False
    read: bool = False
    held: set[int] = field(default_factory=set)
    claim: set[int] = field(default_factory=set)
    said: dict[int, tuple[str, int | None]] = field(default_factory=dict)


@dataclass
class Subscription:
    """A consumer by name."""

    backlog: int
    explicit: bool = False
    filter: Question = None
    leases: list[Lease] = field(default_factory=list)
    barriers: list[int] = field(default_factory=list)
