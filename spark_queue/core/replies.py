"""The replies: what the core answers to the commands of `core.commands`."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
from pyroaring import BitMap64

from spark_queue.core.records import Ranges
from spark_queue.core.state.lease import Incarnation
from spark_queue.core.state.status import QueueStatus


class Reply(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Base of all replies."""


class Drawn(Reply, frozen=True, kw_only=True):
    """A new incarnation, and how long a lease of the queue lasts now: it wants to be renewed well within that."""

    incarnation: Incarnation
    lease_period_ms: int


class Granted(Reply, frozen=True, kw_only=True):
    """The lease that the subscription now has to work on, or the finished one when nothing is there."""

    lease: int
    messages: int
    leased_until_ms: int
    lease_period_ms: int
    #: The queue's figures, shown in Spark's progress; None when it was dropped, and until the coordinator adds them.
    status: QueueStatus | None = None
    #: Nothing is there now, but messages wait for other subscriptions that may not come for them: ask again.
    withheld: bool = False


class RowsOf(Reply, frozen=True, kw_only=True):
    """Head of the row ranges of a lease."""

    message_type: str
    lease: int
    leased_until_ms: int


class Renewed(Reply, frozen=True, kw_only=True):
    """The lease goes on, if it still was the planner's."""

    lease_period_ms: int


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """Which execution of a micro-batch speaks (P4): the incarnation and lease that were current when fn began."""

    incarnation: Incarnation
    #: 0 when the batch has no lease (the empty first batch).
    lease: int


class RunStarted(Reply, frozen=True, kw_only=True):
    """The run that the wrapper now speaks for."""

    run: Run
    ack_mode: str
    #: Whether its one message is a barrier.
    is_barrier: bool


class Settled(Reply, frozen=True, kw_only=True):
    """Counts of what a settlement did.

    `late` were acknowledged after another delivery began, `repeated` were settled before, `deferred` settle once active, and
    `skipped` matched a filter and were left alone: leased to another under strict leasing, or of an at-most-once queue. `behind`
    went back with a cancelled message of their order key that stands before them, whatever was said of them.
    """

    acknowledged: int = 0
    cancelled: int = 0
    expired: int = 0
    late: int = 0
    repeated: int = 0
    deferred: int = 0
    skipped: int = 0
    behind: int = 0


class Purged(Reply, frozen=True, kw_only=True):
    """Messages that a purge removed, and leased ones that it left."""

    purged: int
    leased: int


class DeadLetters(Reply, frozen=True, kw_only=True):
    """Bookmarks of the dead letters that are free to go; how many others are leased or settled."""

    ranges: Ranges
    skipped: int


class Redriven(Reply, frozen=True, kw_only=True):
    """Dead letters that went back to their queue; leased or settled ones were skipped."""

    requested: int
    redriven: int
    skipped: int


class Done(Reply, frozen=True, kw_only=True):
    """It is done and durable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasedRows:
    """What a `Rows` is answered with: the reply, and the rows of which the pieces beside it are cut."""

    reply: RowsOf
    rows: BitMap64
    #: Whether its one message is a barrier.
    is_barrier: bool


CoreReply = Drawn | Granted | RowsOf | Renewed | RunStarted | Settled | Purged | DeadLetters | Redriven | Done
