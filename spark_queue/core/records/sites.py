"""Records of what several instances share (PROTOCOL 10)."""

from __future__ import annotations

from typing import Annotated

import msgspec

from spark_queue.core.records.endings import Valued
from spark_queue.core.records.record import About, Body
from spark_queue.core.records.vocabulary import NUMBER_MAX, Count, ErrorText, Id, Kind, Name, Number, NumberRanges, Text


class Decided(Body, frozen=True, kw_only=True):
    """An origin's word, once, on the membership of messages in a replicated queue (R129)."""

    kind = Kind.DECIDED
    critical = True

    #: Their first owner, where they are in the queue; None where they are not, or are barriers.
    owner: Name | None = None
    barrier: bool = False


class Pulled(Body, frozen=True, kw_only=True):
    """A peer's log is taken over up to a record."""

    kind = Kind.PULLED
    critical = silent = True

    #: The name of its instance, and the UUID of its journal.
    peer: Name
    journal: Id
    #: Number and SHA-256 of the last record that was taken over; -1 and empty to read it again.
    number: Annotated[int, msgspec.Meta(ge=-1, lt=NUMBER_MAX)]
    digest: Text
    #: UUID of the peer's origin, where its journal was restored from a backup.
    origin_uuid: Id = ""
    #: Number of messages that the peer had let go.
    lost: int = 0
    #: The last record of the peer of which that is no gap, where it changed.
    gaps_after: int | None = None
    #: Rule, queue and reason of each disagreement, where they changed.
    disagreements: tuple[tuple[str, str, str], ...] | None = None
    #: Replicated queues that were set aside when it was written: nothing was taken over for them.
    missed: tuple[str, ...] = ()


class Replicated(Valued, frozen=True, kw_only=True):
    """The value of messages by the word of a peer: greater than what was known."""

    kind = Kind.REPLICATED
    critical = shows_membership = True

    peer: str
    deliveries: Count | None = None
    cancels: Count | None = None
    #: Of a letter.
    source: Name | None = None
    error: ErrorText | None = None
    settled_in: Name | None = None


class Transferred(Valued, frozen=True, kw_only=True):
    """Messages belong to another instance from now on, or are claimed for this one."""

    kind = Kind.TRANSFERRED
    critical = shows_membership = True

    deliveries: Count = 0
    cancels: Count = 0
    #: Whether they stay remote until the claim is confirmed or goes back (R110).
    awaits_look: bool = False


class TransferRequested(Body, frozen=True, kw_only=True):
    """Messages are asked of their owner."""

    kind = Kind.TRANSFER_REQUESTED
    critical = True

    requester: Name
    owner: Name
    #: The most of them that are wanted.
    limit: Annotated[int, msgspec.Meta(ge=1, lt=NUMBER_MAX)]
    #: Instances that passed it on.
    passed: Annotated[tuple[Name, ...], msgspec.Meta(max_length=100)] = ()
    #: The earliest of them.
    life: Count = 0


class NotInQueue(Body, frozen=True, kw_only=True):
    """Messages that were asked for and never were in the queue."""

    kind = Kind.NOT_IN_QUEUE
    critical = True

    #: Their bookmarks at their origins, by UUID.
    origins: dict[Id, NumberRanges]
    life: Count = 0


class ProxiedTransfer(Body, frozen=True, kw_only=True):
    """Messages may be claimed whose owner cannot be reached, or no more (R108)."""

    kind = Kind.PROXIED_TRANSFER
    critical = True

    on: bool
    #: None to end it for all.
    owner: str | None = None


class ClaimConfirmed(Body, frozen=True):
    """Claimed messages may be granted (R110)."""

    kind = Kind.CLAIM_CONFIRMED
    critical = silent = True


class Returning(Body, frozen=True, kw_only=True):
    """An instance was away: it grants nothing of its own before it has heard from its peers, or has heard them (R130)."""

    kind = Kind.RETURNING
    about = About.JOURNAL
    critical = silent = True

    on: bool
    #: Whether the instance is new.
    joins: bool = False
    #: Peers that are not waited for, by an operator's word, and the only queues that wait.
    excused_peers: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()


class PeerChanged(Body, frozen=True, kw_only=True):
    """A statement about a peer; the reason tells which."""

    kind = Kind.PEER_CHANGED
    critical = True

    peer: str
    #: The trouble that keeps it from being pulled; empty once nothing does.
    error: str | None = None


class Restored(Body, frozen=True, kw_only=True):
    """The journal was restored from a backup: what enters from now on has another origin."""

    kind = Kind.RESTORED
    critical = True

    origin_uuid: Id
    #: The first bookmark of it, by message type; types that come later are all of it.
    since: Annotated[dict[Name, Number], msgspec.Meta(max_length=1_000)]
