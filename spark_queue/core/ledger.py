"""The state of one queue, and how records change it: `fold` is the only way in (DESIGN 5)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from pyroaring import BitMap64

from spark_queue.core.counts import Counts
from spark_queue.core.dead_letter import DeadLetters
from spark_queue.core.definition import QueueDefinition
from spark_queue.core.expirations import Expirations
from spark_queue.core.lease import Incarnation, Lease, Subscription
from spark_queue.core.lifecycle import TRANSITIONS, Event, State
from spark_queue.core.ranges import to_bitmap
from spark_queue.core.records import DEAD_LETTER_REASONS, RUN_FAILED, Kind, Record, Removal, Return
from spark_queue.core.segment import EntryFacts
from spark_queue.errors import CoordinatorError


class QueueLedger:
    """One queue's messages, leases and subscriptions.

    Attributes
    ----------
    rows : dict of State to BitMap64
        Every entered bookmark stands in exactly one of them, so their sizes add up to that of `entered`.
    delayed : dict of int to BitMap64
        The delayed bookmarks by due time in milliseconds.
    expires : Expirations
        Bookmarks with an expiration of their own (R60).
    """

    def __init__(self, definition: QueueDefinition, *, start: int) -> None:
        self.definition = definition
        #: First bookmark of interest: the recovery point.
        self.start = start
        self.entered = BitMap64()
        self.rows: dict[State, BitMap64] = {state: BitMap64() for state in State}
        self.delayed: dict[int, BitMap64] = {}
        self.expires = Expirations()
        self.leases: dict[int, Lease] = {}
        self.subscriptions: dict[str, Subscription] = {}
        self.next_lease = 1
        self.delivered = Counts()
        self.cancelled = Counts()
        self.dead_letters = DeadLetters()
        #: Messages removed so far, by reason.
        self.removed_counts: Counter[str] = Counter()
        self.returned_counts: Counter[str] = Counter()
        self._folds: dict[str, Callable[[Record], None]] = {
            Kind.SUBSCRIBED: self._subscribed,
            Kind.UNSUBSCRIBED: self._unsubscribed,
            Kind.ATTACHED: self._attached,
            Kind.LEFT: self._left,
            Kind.GRANTED: self._granted,
            Kind.RESUMED: self._resumed,
            Kind.RENEWED: self._renewed,
            Kind.CLAIMED: self._claimed,
            Kind.OUTCOMES: self._outcomes,
            Kind.PROVEN: self._proven,
            Kind.RETURNED: self._returned,
            Kind.REMOVED: self._removed,
            Kind.DEAD_LETTERED: self._dead_lettered,
        }

    @property
    def depth(self) -> int:
        """Messages in the queue: entered and not removed."""
        return sum(len(self.rows[state]) for state in (State.AVAILABLE, State.LEASED, State.DELAYED))

    def open_lease(self, subscription: Subscription) -> Lease | None:
        """Give the subscription's unproven lease, if it has one."""
        lease = self.leases.get(subscription.lease)
        return None if lease is None or lease.proven else lease

    def backlog(self, subscription: str) -> int:
        """Messages provided to a subscription and not yet acknowledged (R23; for at-most-once R17)."""
        leases = [lease for lease in self.leases.values() if lease.subscription == subscription]
        if self.definition.at_most_once:
            return sum(len(lease.rows) for lease in leases if not lease.proven)
        return sum(len(lease.held) for lease in leases)

    def due(self, now_ms: int) -> BitMap64:
        """Delayed messages whose time has come."""
        return BitMap64.union(BitMap64(), *(rows for due_at_ms, rows in self.delayed.items() if due_at_ms <= now_ms))

    def enter(self, facts: EntryFacts) -> None:
        """Take new messages in."""
        self.entered |= facts.rows
        self.rows[State.AVAILABLE] |= facts.rows
        self.expires.add(facts.expires)

    def fold(self, record: Record) -> None:
        """Apply one record of this queue; a kind that is unknown here changes nothing."""
        apply = self._folds.get(record.kind)
        if apply is not None:
            apply(record)

    def _move(self, rows: BitMap64, event: Event) -> None:
        parts = [(state, rows & members) for state, members in self.rows.items()]
        moves = [(state, TRANSITIONS.get((state, event)), part) for state, part in parts if part]
        if sum(len(part) for _, _, part in moves) != len(rows) or any(target is None for _, target, _ in moves):
            found = ", ".join(f"{len(part)} {state}" for state, _, part in moves) or "none"
            raise CoordinatorError("INTERNAL", what=f"{event} of {len(rows)} messages of '{self.definition.name}' finds {found}")
        for state, target, part in moves:
            self._leave(state, part)
            self.rows[target] |= part  # type: ignore[index]  # None was refused above.

    def _leave(self, state: State, part: BitMap64) -> None:
        self.rows[state] -= part
        if state is State.LEASED:
            for lease in self.leases.values():
                if lease.held.intersect(part):
                    lease.held -= part
        elif state is State.DELAYED:
            for due_at_ms in [due for due, rows in self.delayed.items() if rows.intersect(part)]:
                self.delayed[due_at_ms] -= part
                if not self.delayed[due_at_ms]:
                    del self.delayed[due_at_ms]

    def _drop_claims(self, rows: BitMap64, *, but: int | None) -> None:
        for lease in self.leases.values():
            if lease.number != but and lease.claim.intersect(rows):
                lease.claim -= rows

    def _seen(self, record: Record) -> Subscription:
        subscription = self.subscriptions[str(record.subscription)]
        subscription.last_seen_at_ms = record.at_ms
        subscription.call = max(subscription.call, record.detail.get("call", 0))
        return subscription

    def _subscribed(self, record: Record) -> None:
        name, detail = str(record.subscription), record.detail
        if name not in self.subscriptions:
            self.subscriptions[name] = Subscription(
                name=name, ack_mode="", max_backlog=0, subscribed_at_ms=record.at_ms, last_seen_at_ms=record.at_ms
            )
        self.subscriptions[name].ack_mode = detail["ack_mode"]
        self.subscriptions[name].max_backlog = detail["max_backlog"]

    def _unsubscribed(self, record: Record) -> None:
        del self.subscriptions[str(record.subscription)]
        self._forget_leases(str(record.subscription))

    def _attached(self, record: Record) -> None:
        subscription = self.subscriptions[str(record.subscription)]
        subscription.incarnation = _incarnation(record)
        subscription.call = 0
        subscription.left = False
        subscription.run_until = record.detail.get("until")
        subscription.run_granted = BitMap64()
        self._seen(record)

    def _left(self, record: Record) -> None:
        self._seen(record).left = True

    def _granted(self, record: Record) -> None:
        rows, number = to_bitmap(record.ranges), int(record.lease or 0)
        self._move(rows, Event.GRANTED)
        subscription = self._seen(record)
        self._forget_leases(subscription.name)
        self._drop_claims(rows, but=None)
        self.leases[number] = Lease(
            number=number,
            subscription=subscription.name,
            rows=rows,
            held=rows.copy(),
            claim=rows.copy(),
            granted_at_ms=record.at_ms,
            begun_at_ms=record.at_ms,
            due_at_ms=int(record.due_at_ms or 0),
            incarnation=_incarnation(record),
            limit=record.detail["limit"],
        )
        subscription.lease = number
        self.next_lease = number + 1
        self.delivered.increment(rows)
        if subscription.run_until is not None:
            subscription.run_granted |= rows

    def _resumed(self, record: Record) -> None:
        rows, lease = to_bitmap(record.ranges), self.leases[int(record.lease or 0)]
        self._move(rows, Event.RESUMED)
        subscription = self._seen(record)
        if _incarnation(record) != lease.incarnation:
            # What the older incarnation said is dropped (P4).
            lease.staged.clear()
        lease.rows, lease.held, lease.claim = rows, rows.copy(), rows.copy()
        lease.due_at_ms = int(record.due_at_ms or 0)
        lease.incarnation = _incarnation(record)
        lease.begun_at_ms = record.at_ms
        lease.resumed = True
        lease.undelivered = False
        lease.failure = None
        lease.vanished_runs = record.detail["vanished_runs"]
        if record.detail["counted"]:
            self.delivered.increment(rows)
        if subscription.run_until is not None:
            subscription.run_granted |= rows

    def _renewed(self, record: Record) -> None:
        self.leases[int(record.lease or 0)].due_at_ms = int(record.due_at_ms or 0)
        self._seen(record)

    def _claimed(self, record: Record) -> None:
        self.leases[int(record.lease or 0)].claimed_by = _incarnation(record)
        self._seen(record)

    def _outcomes(self, record: Record) -> None:
        lease = self.leases[int(record.lease or 0)]
        if record.reason == RUN_FAILED:
            lease.failure = record.detail["error"]
        else:
            lease.stage((str(record.reason), record.due_at_ms, record.detail.get("error")), to_bitmap(record.ranges))

    def _proven(self, record: Record) -> None:
        subscription, lease = self._seen(record), self.leases[int(record.lease or 0)]
        lease.proven = True
        if self.definition.at_most_once:
            self.delivered.forget(lease.rows)
        lease.claim = BitMap64()
        lease.staged.clear()
        # A batch that read nothing, since its messages were given back, is no success.
        if subscription.isolation_limit is not None and lease.rows and lease.failure is None:
            doubled = subscription.isolation_limit * 2
            subscription.isolation_limit = doubled if doubled < lease.limit else None

    def _returned(self, record: Record) -> None:
        rows, lease = to_bitmap(record.ranges), self.leases.get(int(record.lease or 0))
        self._move(rows, Event.RETURNED if record.due_at_ms is None else Event.POSTPONED)
        if record.due_at_ms is not None:
            self.delayed[record.due_at_ms] = self.delayed.get(record.due_at_ms, BitMap64()) | rows
        if record.reason == Return.CANCELLED:
            self.cancelled.increment(rows)
        if record.reason == Return.ISOLATED or record.detail.get("undelivered"):
            self.delivered.decrement(rows)
        if record.detail.get("undelivered") and lease is not None:
            lease.undelivered = True
        if record.reason == Return.ISOLATED and lease is not None:
            self.subscriptions[lease.subscription].isolation_limit = record.detail["limit"]
        if lease is not None and record.reason in (Return.CANCELLED, Return.ISOLATED):
            lease.claim -= rows
        self.returned_counts[str(record.reason)] += len(rows)

    def _removed(self, record: Record) -> None:
        rows = to_bitmap(record.ranges)
        dead = record.reason in DEAD_LETTER_REASONS
        taken_back = BitMap64() if dead else self.rows[State.DEAD] & rows
        self._move(rows, Event.DEAD_LETTERED if dead else Event.REMOVED)
        # Only the end of a lease by max_deliveries may be taken back by that lease's late proof (P5).
        self._drop_claims(rows, but=record.lease if record.reason == Removal.MAX_DELIVERIES else None)
        if record.reason != Removal.DELIVERED:
            self.delivered.forget(rows)
            self.cancelled.forget(rows)
        if dead:
            self.dead_letters.add(record, rows)
        elif taken_back:
            self.removed_counts.subtract(self.dead_letters.take_back(taken_back))
        self.removed_counts[str(record.reason)] += len(rows)

    def _dead_lettered(self, record: Record) -> None:
        rows = to_bitmap(record.ranges)
        # What it still has, after its source was reset, stays as it is.
        self._move(rows & self.rows[State.REMOVED], Event.REENTERED)
        new = rows - self.entered
        self.enter(EntryFacts(rows=new, expires={}))

    def _forget_leases(self, subscription: str) -> None:
        for number in [lease.number for lease in self.leases.values() if lease.subscription == subscription and not lease.held]:
            del self.leases[number]

    def over_age(self, rows: BitMap64, *, now_ms: int, aged_until: int) -> BitMap64:
        """Give those of `rows` whose own expiration has passed, or that stand before `aged_until` and have none."""
        aged = BitMap64()
        aged.add_range(0, aged_until)
        return rows & (self.expires.overdue(now_ms) | (aged - self.expires.rows))

    def forget_expirations(self, *, now_ms: int) -> None:
        """Drop expirations that have passed and that no leased message waits for."""
        self.expires.forget(now_ms, kept=self.rows[State.LEASED])


def _incarnation(record: Record) -> Incarnation:
    epoch, number = record.detail["incarnation"]
    return (epoch, number)
