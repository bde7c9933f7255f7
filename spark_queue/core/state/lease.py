"""Leases and subscriptions: who works on what, until when. Changed only by `ledger` as it folds records.

Which requests took effect lately, since a caller asks again whose reply was lost (DESIGN 6).
What a queue's expressions say of its messages, and thus who may be given which, and in what order (R49, R66, DESIGN 8).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pyroaring import BitMap64

from spark_queue.core.bitmaps.order_key import OrderKeys
from spark_queue.core.bitmaps.priority import Priorities
from spark_queue.core.bitmaps.ranges import count_rows
from spark_queue.core.message_files.segment import EntryTraits
from spark_queue.core.records import Incarnation, Kind, Record, Staged
from spark_queue.core.state.alarm import Alarm, Suspect
from spark_queue.core.state.attempt import Attempt

#: How long a request is known at least, in milliseconds: its caller asks again for a minute at most.
_KEPT_MS = 120_000

#: So many of the newest are known however long ago they were: the next coordinator's clock may be far ahead.
_KEPT = 4_096

#: What a settlement or a purge records of the messages that it changes.
_SETTLING_KINDS = frozenset({Kind.OUTCOMES, Kind.RETURNED, Kind.REMOVED})


class DoneRequests:
    """How many messages each request settled, staged, returned or removed.

    Planners' calls are among them, and a busy journal has thousands in a second: so they are forgotten in two halves, by time.
    """

    def __init__(self) -> None:
        self._newest: dict[str, int] = {}
        self._newest_since_ms = 0
        self._earlier: dict[str, int] = {}

    def __contains__(self, request: str) -> bool:
        return request in self._newest or request in self._earlier

    def messages_of(self, request: str) -> int:
        """Return how many messages a request changed."""
        return self._newest.get(request, 0) + self._earlier.get(request, 0)

    def note(self, record: Record) -> None:
        """Note the request that a record was made for, if it was made for one."""
        request = record.detail.get("request")
        if request is None:
            return
        if len(self._newest) >= _KEPT and record.at_ms >= self._newest_since_ms + _KEPT_MS:
            self._earlier, self._newest, self._newest_since_ms = self._newest, {}, record.at_ms
        messages = count_rows(record.ranges) if record.kind in _SETTLING_KINDS else 0
        self._newest[request] = self._newest.get(request, 0) + messages


@dataclass(slots=True, kw_only=True)
class Lease:
    """The latest grant of a subscription, or an older one that still holds rows (explicit mode).

    Always ``leased ⊆ recoverable ⊆ rows`` until the proof, after which nothing is recoverable.
    """

    number: int
    subscription: str
    #: What the micro-batch reads: as granted, or as the last resume recorded it (P2).
    rows: BitMap64
    #: Still leased.
    leased: BitMap64
    #: Held, or come back and taken by nobody else: what a resume or a late proof may still cover (P2, P5).
    recoverable: BitMap64
    granted_at_ms: int
    #: When it was granted or last resumed; the renewal limit counts from it.
    begun_at_ms: int
    due_at_ms: int
    #: The planner start that it was granted to, or that took it over.
    incarnation: Incarnation
    #: Most messages the grant had asked for.
    limit: int
    #: Whether it is a piece of its subscription's failed batch.
    searches: bool = False
    #: Whether its one message is a barrier, which no lease holds: it is the subscription's until the proof (R71).
    is_barrier: bool = False
    proven: bool = False
    #: Whether it was taken over or resumed since it was granted (P6).
    resumed: bool = False
    #: Whether what came back from it was never asked for, and thus is not counted as delivered.
    undelivered: bool = False
    #: At-most-once: the planner start that was given the rows.
    handed_to: Incarnation | None = None
    #: At-most-once: whether its period ended before its proof, so that it counts in no backlog and keeps no key (R31).
    lapsed: bool = False
    #: What its batch said so far, not yet in effect; each row stands under one key.
    staged: dict[Staged, BitMap64] = field(default_factory=dict)
    #: What fn raised in the last run, if it reported so.
    failure: str | None = None
    #: Whether its last run ended without having failed, and uncommitted as far as is known: that says nothing about its messages.
    stopped: bool = False
    #: Whether its failed or stopped batch goes back with the proof, since Spark takes it for done (`on_error="cancel"`).
    gives_back: bool = False
    #: Runs in a row that ended without any report.
    vanished_runs: int = 0
    #: What its batch is to be in a sink, or is there by now.
    attempt: Attempt | None = None
    #: The newest attempt of its batch that was fenced: the run that prepared it is over.
    fenced: Attempt | None = None
    #: What a resume left out though the same planner start had it before: its run may have read it (R124).
    lost: BitMap64 = field(default_factory=BitMap64)

    @property
    def is_in_doubt(self) -> bool:
        """Whether nobody knows if its batch stands in the sink: nothing may become of its messages (R123)."""
        return self.attempt is not None and not self.attempt.landed

    @property
    def has_landed(self) -> bool:
        """Whether its batch stands in the sink: whatever its end is, its messages are settled as prepared (R126)."""
        return self.attempt is not None and self.attempt.landed

    @property
    def is_fenced(self) -> bool:
        """Whether the run that reads it now was fenced: whatever Spark commits, its messages stand in no sink (R127)."""
        return self.fenced is not None and self.fenced.incarnation == self.incarnation

    @property
    def succeeded(self) -> bool:
        """Whether its batch read something, and nothing failed on it."""
        return bool(self.rows) and self.failure is None and not self.gives_back

    def stage(self, key: Staged, rows: BitMap64) -> None:
        """Note an outcome of rows; what was said of them earlier is replaced."""
        for other in list(self.staged):
            self.staged[other] -= rows
            if not self.staged[other]:
                del self.staged[other]
        self.staged[key] = self.staged[key] | rows if key in self.staged else rows.copy()


@dataclass(slots=True, kw_only=True)
class Subscription:
    """A named consumer's standing request on a queue."""

    name: str
    ack_mode: str
    max_backlog: int
    subscribed_at_ms: int
    #: It is given only what matches; None for everything (R49).
    filter: str | None = None
    #: Who it belongs to (R12); None where there were no principals.
    principal: str | None = None
    #: The filters of its principal: it is given only what matches these, too.
    entitlement: tuple[str, ...] = ()
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
    #: What is left of its failed batch: at least one of these messages fails, and a piece of them is tried next (DESIGN 8).
    failed: BitMap64 = field(default_factory=BitMap64)
    #: Most messages of a batch that is no such piece, since several in a row failed; None for as many as there are.
    isolation_limit: int | None = None
    #: Whether its newest lease is a message that had failed alone before.
    tried_lone: bool = False
    #: Messages that failed alone since its last success.
    suspects: dict[int, Suspect] = field(default_factory=dict)
    #: What somebody should look at until its next success.
    alarm: Alarm | None = None
    #: Runs in a row that failed and had no messages.
    idle_failures: int = 0
    #: Trigger.AvailableNow: bookmarks at or above it are not granted under this incarnation; None otherwise.
    run_until: int | None = None
    #: Trigger.AvailableNow: what this incarnation was granted already.
    run_granted: BitMap64 = field(default_factory=BitMap64)
    #: Released barriers that it has not received yet; the oldest is its next micro-batch (R70).
    barriers: BitMap64 = field(default_factory=BitMap64)
    #: How often the oldest of them was delivered to it.
    barrier_deliveries: int = 0

    @property
    def filters(self) -> tuple[str, ...]:
        """All filters that what it is given must match."""
        return self.entitlement if self.filter is None else (self.filter, *self.entitlement)

    @property
    def is_stopped(self) -> bool:
        """Whether its sink is to blame: one lone message at a time is tried until one succeeds (DESIGN 15.12)."""
        return self.alarm is not None and self.alarm.probe_at_ms is not None

    @property
    def fresh_suspects(self) -> int:
        """How many different messages failed alone for the first time since its last success."""
        return sum(not each.lone_failures for each in self.suspects.values())


#: Messages that may have left the queue before their traits are forgotten, whatever is still there.
_GONE_MAX = 1 << 16


class Selection:
    """Traits of the messages in a queue; what leaves it is forgotten once it is the larger part.

    Attributes
    ----------
    matches : dict of str to BitMap64
        What matches the filters of the queue's subscriptions, by filter.
    """

    def __init__(self) -> None:
        self.matches: dict[str, BitMap64] = {}
        self.priorities = Priorities()
        self.order_keys = OrderKeys()

    def add(self, traits: EntryTraits) -> None:
        """Take the traits of new messages in."""
        for text, rows in self.matches.items():
            rows |= traits.matches[text]
        self.priorities.add(traits.ranked, traits.priorities)
        # What others decide late about messages of theirs comes late.
        self.order_keys = self.order_keys.joined(traits.keyed, traits.keys)

    def matching(self, rows: BitMap64, text: str | None) -> BitMap64:
        """Return those of `rows` that match a filter; None for everything."""
        return rows if text is None else rows & self.matches[text]

    def heads(self, rows: BitMap64) -> BitMap64:
        """Return those of `rows` that no older or held message of their key holds up.

        Order wins over filters: a key whose oldest message does not match waits until somebody else has taken that one.
        """
        return rows - self.order_keys.behind if self.order_keys.behind else rows

    def first(self, rows: BitMap64, count: int) -> BitMap64:
        """Return the `count` of `rows` that come first (R47, R66)."""
        return self.priorities.first(rows, count)

    def is_mostly_gone(self, standing: int) -> bool:
        """Return whether most of what is known is of messages that are gone, given how many are not."""
        known = (len(self.priorities.ranked), len(self.order_keys), *map(len, self.matches.values()))
        return max(known) > 2 * standing + _GONE_MAX

    def keep(self, rows: BitMap64) -> None:
        """Forget everything but `rows`."""
        self.priorities.keep(rows)
        self.order_keys = self.order_keys.kept(rows)
        for members in self.matches.values():
            members &= rows
