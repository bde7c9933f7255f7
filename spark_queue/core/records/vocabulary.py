"""Words of the control log: kinds of records, outcomes, reasons, and the forms in which values travel.

They are stored for ever; `journal/PROTOCOL.md` is their specification.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec

from spark_queue.core.definitions.keys import NAME_PATTERN

#: Half-open ranges of bookmarks, ascending and disjoint, as they travel.
Ranges = tuple[tuple[int, int], ...]

#: `(epoch, n)`: which start of a planner speaks; pairs compare in order (DESIGN 15.6).
Incarnation = tuple[int, int]

#: Bookmarks, versions and numbers of records are below this: sums of two of them are 64-bit integers still.
NUMBER_MAX = 2**53

#: The last life and the last term: with what is added to them they fit 32 bits still. A message that a peer says to be in them is
#: transferred, or redriven, no more: others would refuse the log that says one of a later term.
COUNT_MAX = 10**9

#: Longest name of a publisher, in bytes; in records, in characters.
PUBLISHER_MAX = 1_000

# The log of a peer is the word of a stranger: what a body holds is checked as it is read, in any journal.
#: The name of an instance, a queue, a topic, a group or a message type.
Name = Annotated[str, msgspec.Meta(pattern=rf"\A(?!\.{{1,2}}\Z){NAME_PATTERN.pattern}\Z")]
#: The UUID of a journal, or of an origin.
Id = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9._-]{1,64}\Z")]
#: A token, a digest or a path; ours have 32 to 64 characters.
Text = Annotated[str, msgspec.Meta(max_length=200)]
#: The path of a file in a table, decoded, and the address of a table.
TablePath = Annotated[str, msgspec.Meta(max_length=4_096)]
#: An error; ours have up to 4,000 characters.
ErrorText = Annotated[str, msgspec.Meta(max_length=16_000)]
PublisherName = Annotated[str, msgspec.Meta(max_length=PUBLISHER_MAX)]
Number = Annotated[int, msgspec.Meta(ge=0, lt=NUMBER_MAX)]
#: Lives, terms, and counts of deliveries.
Count = Annotated[int, msgspec.Meta(ge=0, le=COUNT_MAX)]
#: A time in milliseconds.
Instant = Annotated[int, msgspec.Meta(gt=-NUMBER_MAX, lt=NUMBER_MAX)]
#: Half-open ranges of bookmarks, as a body holds them.
NumberRanges = tuple[tuple[Number, Number], ...]


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
    REFUSED = "refused"
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
    FOLLOWED = "followed"
    PASSED = "passed"
    STOPPED = "stopped"


class AckMode(StrEnum):
    """How a subscription settles its messages."""

    #: A micro-batch that Spark has committed is acknowledged.
    AUTO = "auto"
    #: Messages of a micro-batch are settled by hand.
    EXPLICIT = "explicit"
    #: A receiver settles each message by a call, without Spark (R131).
    RECEIVE = "receive"


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
    #: Its file left the followed table, and the store does not have it any more (R155).
    LOST = "lost"


#: Why a subscription is done with a barrier that it did not receive: its principal may not see it any more.
HIDDEN = "hidden"

#: Reasons that make a dead letter; time_limit and purged do not (R13).
DEAD_LETTER_REASONS = frozenset({Removal.MAX_DELIVERIES, Removal.MAX_CANCELS, Removal.FORCED_EXPIRE, Removal.LOST})


class Return(StrEnum):
    """Why a leased message went back to its queue."""

    LEASE_EXPIRED = "lease_expired"
    DISCONNECTED = "disconnected"
    CANCELLED = "cancelled"
    ISOLATED = "isolated"
    UNSUBSCRIBED = "unsubscribed"
    #: An older message of its key in the same lease was cancelled; nothing is counted.
    ORDER_KEY = "order_key"


class TooLate(StrEnum):
    """Why a receiver's outcome of a message was refused (R133): what has become of it since."""

    #: Another subscription has it, or the same one by a newer lease.
    LEASED = "leased"
    #: It went back, and waits for its next delivery.
    RETURNED = "returned"
    #: An older message of its key was cancelled.
    BEHIND = "behind"
    DEAD_LETTER = "dead_letter"
    REMOVED = "removed"
    #: Another instance owns it.
    REMOTE = "remote"


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
