"""The records of the control log: what happened to queues, as values.

Kinds, columns and details are stored for ever; `journal/PROTOCOL.md` is their specification. A record is made by a command,
committed, and only then believed; state is always the fold of records. Times are milliseconds here (the log stores
microseconds, which hold them exactly).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from spark_queue.errors import JournalError

#: Half-open ranges of bookmarks, ascending and disjoint, as they travel.
Ranges = tuple[tuple[int, int], ...]

#: What a batch said of some rows before its proof: outcome, due time of a retry in milliseconds, error text.
Staged = tuple[str, int | None, str | None]

#: `(epoch, n)`: which start of a planner speaks; pairs compare in order (DESIGN 15.6).
Incarnation = tuple[int, int]

#: Version of what is stored; a journal that says a higher one is refused.
FORMAT = 1

#: The version written into every ``detail``.
DETAIL_VERSION = 1


class Kind(StrEnum):
    """The kind of event that a record reports."""

    JOURNAL_CREATED = "journal_created"
    EPOCH_CLAIMED = "epoch_claimed"
    DEFINITIONS_APPLIED = "definitions_applied"
    ENTERED = "entered"
    MOVED = "moved"
    RETIRED = "retired"
    FOREIGN = "foreign"
    REPEATED = "repeated"
    SUBSCRIBED = "subscribed"
    UNSUBSCRIBED = "unsubscribed"
    ATTACHED = "attached"
    LEFT = "left"
    GRANTED = "granted"
    RESUMED = "resumed"
    RENEWED = "renewed"
    CLAIMED = "claimed"
    LAPSED = "lapsed"
    OUTCOMES = "outcomes"
    PROVEN = "proven"
    RETURNED = "returned"
    REMOVED = "removed"
    DEAD_LETTERED = "dead_lettered"
    DEFERRED = "deferred"
    REDRIVEN = "redriven"
    PAUSED = "paused"
    UNPAUSED = "unpaused"
    BARRIER_RELEASED = "barrier_released"
    BARRIER_RECEIVED = "barrier_received"
    EXPRESSION_FAILED = "expression_failed"
    BARRIERS_DECIDED = "barriers_decided"
    DECIDED = "decided"
    PULLED = "pulled"
    NAMED = "named"
    REPLICATED = "replicated"
    TRANSFERRED = "transferred"
    TRANSFER_REQUESTED = "transfer_requested"
    NOT_IN_QUEUE = "not_in_queue"
    PROXIED_TRANSFER = "proxied_transfer"
    CLAIM_CONFIRMED = "claim_confirmed"
    RETURNING = "returning"
    PEER_CHANGED = "peer_changed"
    RESTORED = "restored"
    SET_ASIDE = "set_aside"
    REVIVED = "revived"
    PREPARED = "prepared"
    LANDED = "landed"
    FENCED = "fenced"
    SINK_UNREADABLE = "sink_unreadable"


#: Kinds that software without replication must refuse: it would own every message (PROTOCOL 10).
REPLICATION_KINDS = frozenset({
    Kind.DECIDED, Kind.PULLED, Kind.NAMED, Kind.REPLICATED, Kind.TRANSFERRED, Kind.TRANSFER_REQUESTED, Kind.NOT_IN_QUEUE,
    Kind.PROXIED_TRANSFER, Kind.CLAIM_CONFIRMED, Kind.PEER_CHANGED, Kind.RESTORED,
    Kind.RETURNING,
})  # fmt: skip

#: Kinds that software without sinks must refuse: it would let leases lapse whose messages stand in a sink (DESIGN 19).
SINK_KINDS = frozenset({Kind.PREPARED, Kind.LANDED, Kind.FENCED})

#: Kinds whose detail says that nobody may skip them.
CRITICAL_KINDS = REPLICATION_KINDS | SINK_KINDS

#: By kind, what of a detail older software may not pass over: it says a version later. That is where messages were pulled from, and
#: which queues go on that had been left.
OF_NEXT_VERSION: Mapping[str, str] = {Kind.ENTERED: "origin", Kind.DEFINITIONS_APPLIED: "goes_on"}


class Outcome(StrEnum):
    """A consumer's verdict on a message (R39)."""

    ACKNOWLEDGE = "acknowledge"
    CANCEL = "cancel"
    EXPIRE = "expire"


class Removal(StrEnum):
    """Why a message left its queue: the reason of a delete marker."""

    ACKNOWLEDGED = "acknowledged"
    DELIVERED = "delivered"
    TIME_LIMIT = "time_limit"
    FORCED_EXPIRE = "forced_expire"
    MAX_DELIVERIES = "max_deliveries"
    MAX_CANCELS = "max_cancels"
    PURGED = "purged"


#: Why a subscription is done with a barrier that it did not receive: its principal may not see it any more.
HIDDEN = "hidden"

#: Reasons that make a dead letter; time_limit and purged do not (R13).
DEAD_LETTER_REASONS = frozenset({Removal.MAX_DELIVERIES, Removal.MAX_CANCELS, Removal.FORCED_EXPIRE})


class Return(StrEnum):
    """Why a leased message went back to its queue."""

    LEASE_EXPIRED = "lease_expired"
    DISCONNECTED = "disconnected"
    CANCELLED = "cancelled"
    ISOLATED = "isolated"
    UNSUBSCRIBED = "unsubscribed"
    #: An older message of its key in the same lease was cancelled; nothing is counted.
    ORDER_KEY = "order_key"


class PauseReason(StrEnum):
    """Why a queue grants nothing, or little: until somebody unpauses it, or until a message succeeds again."""

    USER = "user"
    ALARM = "alarm"


class UnpauseReason(StrEnum):
    """The end of a pause: by hand every pause ends, by a lone message's success only the alarm's."""

    USER = "user"
    PROBE = "probe"


class PeerChange(StrEnum):
    """A statement about a peer, mostly an operator's: the reason of a ``peer_changed`` record."""

    #: Messages that it lost before they were pulled are done without.
    SKIPPED = "skipped"
    #: Its journal is another one now, and is read from its beginning.
    RESET = "reset"
    #: It is gone for good.
    FORGOTTEN = "forgotten"
    #: It owns all that this instance owned.
    DRAINED = "drained"
    #: Something keeps it from being pulled, or no more; this instance says so itself.
    TROUBLE = "trouble"


#: The reason of a ``transferred`` record by which an instance takes what its owner cannot give (R109).
CLAIMED = "claimed"

#: The reason of a ``transferred`` record by which what was claimed and never granted goes back to its owner, who lives.
RETURNED_CLAIM = "claim_returned"

#: The reason of an ``outcomes`` record without ranges: fn raised, and ``detail.error`` says what.
RUN_FAILED = "failed"

#: The reason of an ``outcomes`` record without ranges: the run ended without having failed, and, as far as is known, Spark did not
#: commit its batch. That says nothing about the messages.
RUN_STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One row of the control log."""

    #: A `Kind`, or the text of a kind that this version does not know.
    kind: str
    #: Dense number from 0; -1 until it is appended.
    record: int = -1
    #: The reign that wrote it; 0 for the journal's creation.
    epoch: int = 0
    #: The coordinator's time of the commit, in milliseconds since 1970 UTC.
    at_ms: int = 0
    message_type: str | None = None
    queue: str | None = None
    subscription: str | None = None
    #: Number of the lease, one counter per queue, from 1.
    lease: int | None = None
    #: The bookmarks it speaks of, as half-open ranges, ascending and disjoint.
    ranges: Sequence[tuple[int, int]] = ()
    reason: str | None = None
    #: End of a lease, or the moment a delayed message becomes available, in milliseconds since 1970 UTC.
    due_at_ms: int | None = None
    #: Further facts, without the version, which storage adds.
    detail: Mapping[str, Any] = field(default_factory=dict)


#: Makes, numbers, folds and collects one record.
Emit = Callable[..., None]


#: The kinds that are known here.
KINDS = frozenset(Kind)


def refuse_unknown(record: Record, *, path: str) -> None:
    """Refuse a record that cannot be skipped and is of no kind that is known here."""
    if record.kind not in KINDS and record.detail.get("critical"):
        raise JournalError("PROTOCOL_NEWER", path=path, what=f"records of kind {record.kind[:50]!r}")
