"""What travels between callers and the coordinator: versioned, size-limited msgspec structs; never pickle.

Every request names its journal and carries a request id; repeated after a lost reply, it gets the same answer.

A call is one Flight action `ACTION` whose body is an encoded request. Its first result is an encoded reply; further results,
if any, are consecutive pieces of one Arrow IPC stream.
"""

from __future__ import annotations

from typing import Any

import msgspec

from spark_queue.core.records import Ranges
from spark_queue.core.state.lease import Incarnation
from spark_queue.protocol.wire_replies import (
    AnyReply,
    DeadLetters,
    Done,
    Drawn,
    Failed,
    Granted,
    Pong,
    Purged,
    Redriven,
    Renewed,
    Reply,
    RowsOf,
    Run,
    RunStarted,
    Settled,
)

__all__ = [
    "AnyReply",
    "DeadLetters",
    "Done",
    "Drawn",
    "Failed",
    "Granted",
    "Pong",
    "Purged",
    "Redriven",
    "Renewed",
    "Reply",
    "RowsOf",
    "Run",
    "RunStarted",
    "Settled",
]

#: Type of the one Flight action that carries every call.
ACTION = "sparkqueue.call"

WIRE_VERSION = 1

#: Largest encoded request or reply, in bytes.
FRAME_LIMIT_BYTES = 64 * 1024 * 1024

#: Longest wait inside one call (DESIGN 6), in milliseconds.
LONG_POLL_LIMIT_MS = 1_000


class Request(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Base of all requests."""

    journal: str
    request: str
    version: int = WIRE_VERSION


class SubscriptionRequest(Request, frozen=True, kw_only=True):
    """Base of what a subscription asks."""

    queue: str
    subscription: str


class PlannerRequest(SubscriptionRequest, frozen=True, kw_only=True):
    """Base of what a planner asks: it names its incarnation and numbers its calls from 1 (P1)."""

    incarnation: Incarnation
    call: int


class OutcomeRows(msgspec.Struct, frozen=True, kw_only=True):
    """One outcome for some bookmarks."""

    outcome: str
    ranges: Ranges
    #: With cancel: how long to wait before the next delivery.
    retry_after_ms: int | None = None
    error: str | None = None


class Ping(Request, frozen=True, kw_only=True):
    """Is somebody there? Answered with `Pong`."""


class DrawIncarnation(SubscriptionRequest, frozen=True, kw_only=True):
    """A planner's first call; changes nothing. Answered with `Drawn`."""


class Attach(PlannerRequest, frozen=True, kw_only=True):
    """The planner takes the subscription; the newest incarnation wins (P1). Answered with `Done`."""

    ack_mode: str
    max_backlog: int
    filter: str | None = None
    #: Fix the end of the queue now, and grant each message at most once under this incarnation (Trigger.AvailableNow).
    available_now: bool = False


class Next(PlannerRequest, frozen=True, kw_only=True):
    """Prove lease `finished` and grant the next one. Answered with `Granted` (lease equal to `finished` when nothing is there)."""

    finished: int
    limit: int
    wait_ms: int = 0


class Rows(PlannerRequest, frozen=True, kw_only=True):
    """The rows of a lease, resuming it under a newer incarnation (P2, P3). Answered with `RowsOf` and the pieces as Arrow."""

    lease: int


class Renew(PlannerRequest, frozen=True, kw_only=True):
    """Extend a lease by one period. Answered with `Renewed`; `call` is 0, since renewals come from a thread of their own."""

    lease: int


class Leave(PlannerRequest, frozen=True, kw_only=True):
    """The planner ends (P6). Answered with `Done`; `call` is 0."""


class StartRun(SubscriptionRequest, frozen=True, kw_only=True):
    """fn is about to run (P4, P6). Answered with `RunStarted`."""


class EndRun(SubscriptionRequest, frozen=True, kw_only=True):
    """fn returned or raised; stages outcomes (P4, P5, P6). Answered with `Done`."""

    run: Run
    outcomes: tuple[OutcomeRows, ...] = ()
    #: What fn raised; None when it returned.
    error: str | None = None
    #: With an error: Spark goes on, and the whole batch is cancelled (`on_error="cancel"`).
    cancel: bool = False
    #: Settle now instead of staging (`ack_early`).
    settle: bool = False


class Prove(SubscriptionRequest, frozen=True, kw_only=True):
    """Spark committed the batch of the run's lease (the listener's report). Answered with `Done`."""

    run: Run


class HandOutcome(OutcomeRows, frozen=True, kw_only=True):
    """One outcome that somebody gives by hand."""

    #: The lease under which the caller received the rows; None for somebody who holds no lease.
    lease: int | None = None


class Settle(Request, frozen=True, kw_only=True):
    """Outcomes given by hand, in effect all or none (R36 to R39, DESIGN 15.1). Answered with `Settled`."""

    queue: str
    outcomes: tuple[HandOutcome, ...]


class SettleWhere(Request, frozen=True, kw_only=True):
    """One outcome for every message that matches a filter (R37). Answered with `Settled`."""

    queue: str
    where: str
    outcome: str
    #: With cancel: how long the messages wait; None as the queue says.
    retry_after_ms: int | None = None
    #: With cancel and expire: why, as a dead letter keeps it.
    error: str | None = None


class Purge(Request, frozen=True, kw_only=True):
    """Remove what is not leased, or what of it matches a filter. Answered with `Purged`."""

    queue: str
    where: str | None = None


class FindDeadLetters(Request, frozen=True, kw_only=True):
    """Name the dead letters of a queue, or those that match a filter. Answered with `DeadLetters`; changes nothing."""

    queue: str
    where: str | None = None


class Redrive(Request, frozen=True, kw_only=True):
    """Give dead letters back to their queue. Answered with `Redriven`."""

    queue: str
    ranges: Ranges


class Apply(Request, frozen=True, kw_only=True):
    """Replace the whole set of definitions. Answered with `Done`."""

    definitions: dict[str, Any]
    #: Queues whose recovery point is taken again.
    reset: tuple[str, ...] = ()


class Unsubscribe(SubscriptionRequest, frozen=True, kw_only=True):
    """End a subscription; its leases return. Answered with `Done`."""


class Pause(Request, frozen=True, kw_only=True):
    """Grant nothing from now on. Answered with `Done`."""

    queue: str


class Unpause(Request, frozen=True, kw_only=True):
    """Grant again. Answered with `Done`."""

    queue: str


class Nudge(Request, frozen=True, kw_only=True):
    """Messages were published. Answered with `Done`."""

    message_type: str


class Stop(Request, frozen=True, kw_only=True):
    """End the coordinator in good order. Answered with `Done`."""


AnyRequest = (
    Ping | DrawIncarnation | Attach | Next | Rows | Renew | Leave | StartRun | EndRun | Prove | Settle | SettleWhere
    | Purge | FindDeadLetters | Redrive | Apply | Unsubscribe | Pause | Unpause | Nudge | Stop
)  # fmt: skip
