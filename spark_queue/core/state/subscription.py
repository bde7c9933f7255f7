"""A subscription: a named consumer of a queue, with its filter, its backlog and its newest lease. Changed only by `ledger`."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyroaring import BitMap64

from spark_queue.core.records import AckMode, Incarnation, Subscribed
from spark_queue.core.state.alarm import Alarm, Suspect


@dataclass(slots=True, kw_only=True)
class Subscription:
    """A named consumer's standing request on a queue."""

    name: str
    ack_mode: str
    max_backlog: int
    subscribed_at_ms: int
    #: It is given only matching messages; None for all (R49).
    filter: str | None = None
    #: Its principal (R12); None where there were no principals.
    principal: str | None = None
    #: The filters of its principal: it is given only messages that match these, too.
    entitlement: tuple[str, ...] = ()
    #: Whether it ends with its receiver (R140).
    ends: bool = False
    #: The planner start that owns it; (0, 0) before the first.
    incarnation: Incarnation = (0, 0)
    #: Number of the newest call of that incarnation that left a record (P1).
    call: int = 0
    #: Number of the newest lease; 0 before the first.
    lease: int = 0
    #: Time of its last record, in milliseconds.
    last_seen_at_ms: int = 0
    #: Whether its planner said goodbye.
    left: bool = False
    #: The rest of its failed batch: at least one of these messages fails, and a piece of them is tried next (DESIGN 8).
    failed: BitMap64 = field(default_factory=BitMap64)
    #: Most messages of a batch that is no such piece, since several in a row failed; None for as many as there are.
    isolation_limit: int | None = None
    #: Whether its newest lease is a message that had failed alone before.
    tried_lone: bool = False
    #: Whether its newest lease is a message that receivers died of.
    tried_marked: bool = False
    #: Messages that failed alone since its last success.
    suspects: dict[int, Suspect] = field(default_factory=dict)
    #: Its alarm, until its next success.
    alarm: Alarm | None = None
    #: Runs in a row that failed and had no messages.
    idle_failures: int = 0
    #: Trigger.AvailableNow: bookmarks at or above it are not granted under this incarnation; None otherwise.
    run_until: int | None = None
    #: Trigger.AvailableNow: the messages that this incarnation was granted already.
    run_granted: BitMap64 = field(default_factory=BitMap64)
    #: Released barriers that it has not received yet; the oldest is its next micro-batch (R70).
    barriers: BitMap64 = field(default_factory=BitMap64)
    #: How often the oldest of them was delivered to it.
    barrier_deliveries: int = 0

    @property
    def asked(self) -> Subscribed:
        """Everything that it asks for, as the record says that began or changed it."""
        return Subscribed(
            ack_mode=self.ack_mode,
            max_backlog=self.max_backlog,
            filter=self.filter,
            principal=self.principal,
            entitlement=self.entitlement,
            ends=self.ends,
        )

    @property
    def receives(self) -> bool:
        """Whether a receiver consumes by it: it may have many leases at once, and none of them is proven (R131)."""
        return self.ack_mode == AckMode.RECEIVE

    @property
    def filters(self) -> tuple[str, ...]:
        """All filters that its messages must match."""
        return self.entitlement if self.filter is None else (self.filter, *self.entitlement)

    @property
    def is_stopped(self) -> bool:
        """Whether its sink is to blame: one lone message at a time is tried until one succeeds (DESIGN 15.12)."""
        return self.alarm is not None and self.alarm.probe_at_ms is not None

    @property
    def fresh_suspects(self) -> int:
        """How many different messages failed alone for the first time since its last success."""
        return sum(not each.lone_failures for each in self.suspects.values())
