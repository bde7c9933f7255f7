"""The state of one queue; records change it through `folds`, and nothing else does (DESIGN 5).

The active part of a queue with a target depth: messages beyond it wait, inactive (R79 to R84).
"""

from __future__ import annotations

from collections import Counter

from pyroaring import BitMap64

from spark_queue.core.bitmaps.expirations import Expirations
from spark_queue.core.bitmaps.numbers import Counts
from spark_queue.core.bitmaps.ranges import below, oldest
from spark_queue.core.definitions.definition import QueueDefinition
from spark_queue.core.message_files.segment import EntryTraits, TraitRequest
from spark_queue.core.state.alarm import Alarm, Suspect
from spark_queue.core.state.attempt import AttemptNumbers
from spark_queue.core.state.dead_letter import DeadLetterIndex
from spark_queue.core.state.lease import Lease
from spark_queue.core.state.lifecycle import ACTIVE, LEFT, OWNED_HERE, TRANSITIONS, Event, State
from spark_queue.core.state.ownership import Ownership
from spark_queue.core.state.selection import Selection
from spark_queue.core.state.subscription import Subscription
from spark_queue.errors import CoordinatorError

#: Where a message is for which others of its key do not wait here. Two owners would wait for each other for ever: which of their
#: messages is older each instance sees in an order of its own.
_ELSEWHERE = LEFT | {State.REMOTE}


#: Silent ends of receivers after which a message is granted alone: whatever kills its process takes no other with it (R138).
MARKS_LIMIT = 2


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
    begun : Expirations
        Bookmarks by the time from which their age counts, where it began anew (see `age`): redriven messages, and letters in a
        dead-letter queue.
    """

    def __init__(self, definition: QueueDefinition, *, start: int) -> None:
        self.definition = definition
        #: First bookmark of interest: the recovery point.
        self.start = start
        self.entered = BitMap64()
        #: Messages of which no record says yet whether they are barriers: they entered while the queue was set aside (R75).
        self.unsaid = BitMap64()
        #: While a log is folded: messages that it retires further on. Their file is gone, so they are known by records only.
        self.retired = BitMap64()
        self.rows: dict[State, BitMap64] = {state: BitMap64() for state in State}
        self.delayed: dict[int, BitMap64] = {}
        #: Messages that are not active, or not owned here, by the time until which they are delayed once they are (R128).
        self.not_before: dict[int, BitMap64] = {}
        #: Acknowledged before they became active: inactive bookmarks by the time until which that is remembered (R83).
        self.deferred: dict[int, BitMap64] = {}
        #: Those of them whose turn has come; they are removed in the same commit.
        self.reached = BitMap64()
        self.expires = Expirations()
        self.begun = Expirations()
        self.leases: dict[int, Lease] = {}
        self.subscriptions: dict[str, Subscription] = {}
        self.next_lease = 1
        #: By name of a subscription, whichever had it.
        self.attempts: dict[str, AttemptNumbers] = {}
        self.delivered = Counts()
        self.cancelled = Counts()
        #: How often messages failed alone; one that did is tried only alone from then on.
        self.lone_failures = Counts()
        #: How often a receiver ended without a word while it had them; from `MARKS_LIMIT` on one is granted only alone (R138).
        self.marks = Counts()
        #: The last error of a message that failed alone too often.
        self.stuck: Alarm | None = None
        #: Messages with a number that another message of their publisher has, and the alarm about them.
        self.clashing = BitMap64()
        self.clash: Alarm | None = None
        self.dead_letters = DeadLetterIndex()
        #: Since when nothing is granted until somebody says so; None where that is not so.
        self.paused_since_ms: int | None = None
        self.selection = Selection()
        #: Messages on which an expression failed, from the record that brought them until the one that counts them.
        self.failing = BitMap64()
        #: How many such messages were counted.
        self.failed_expressions = 0
        #: Every barrier that ever entered, also those that were released.
        self.barriers = BitMap64()
        #: How often a subscription counted as having received a barrier on which it only failed (DESIGN 8).
        self.barriers_given_up = 0
        #: How many outcomes of receivers came too late (R133).
        self.outcomes_too_late = 0
        #: Messages removed so far, by reason.
        self.removed_counts: Counter[str] = Counter()
        self.returned_counts: Counter[str] = Counter()
        self.ownership = Ownership()

    @property
    def is_replicated(self) -> bool:
        """Whether other instances know of its messages; they still do where it is pulled from nobody any more."""
        return self.ownership.instance != ""

    @property
    def paused(self) -> bool:
        """Whether nothing is granted until somebody says so."""
        return self.paused_since_ms is not None

    @property
    def depth(self) -> int:
        """Messages in the queue: entered and not removed, and owned here."""
        return sum(len(self.rows[state]) for state in OWNED_HERE)

    @property
    def standing(self) -> BitMap64:
        """All messages that are in the queue, may come back to it, or are in an at-most-once lease, where they hold their key."""
        return BitMap64.union(self.entered - self.rows[State.REMOVED], *map(self.outstanding, self.leases.values()))

    def open_lease(self, subscription: Subscription) -> Lease | None:
        """Return the subscription's unproven lease, if it has one."""
        lease = self.leases.get(subscription.lease)
        return None if lease is None or lease.proven else lease

    def outstanding(self, lease: Lease) -> BitMap64:
        """Return the rows of a lease that are neither acknowledged nor expired; at most once all that it was granted (R17, R31)."""
        if self.definition.at_most_once and not (lease.is_barrier or lease.proven or lease.lapsed):
            return lease.rows
        return lease.leased

    def backlogs(self) -> Counter[str]:
        """Count the messages provided to each subscription and not yet acknowledged (R23)."""
        backlogs: Counter[str] = Counter()
        for lease in self.leases.values():
            backlogs[lease.subscription] += len(self.outstanding(lease))
        return backlogs

    def due(self, now_ms: int) -> BitMap64:
        """Delayed messages that are past their time."""
        return BitMap64.union(BitMap64(), *(rows for due_at_ms, rows in self.delayed.items() if due_at_ms <= now_ms))

    def not_due(self, now_ms: int) -> BitMap64:
        """Messages that are to be delayed once they are owned here, and still would be."""
        return BitMap64.union(BitMap64(), *(rows for due_at_ms, rows in self.not_before.items() if due_at_ms > now_ms))

    def forget_delays(self, rows: BitMap64) -> None:
        """Let rows be active at once when they come back: their life is over."""
        _take_out(self.not_before, rows)

    def defer(self, rows: BitMap64, until_ms: int) -> None:
        """Remember that inactive rows were acknowledged (R83)."""
        _take_out(self.deferred, rows)
        _put_in(self.deferred, rows, until_ms)

    def deferred_after(self, now_ms: int) -> BitMap64:
        """Inactive messages whose acknowledgement is still remembered."""
        return BitMap64.union(BitMap64(), *(rows for until_ms, rows in self.deferred.items() if until_ms > now_ms))

    def trait_request(self, *, barriers: bool = True) -> TraitRequest:
        """Return the request for traits of entering messages; without their barriers, where a record has them."""
        return TraitRequest(queue=self.definition, filters=frozenset(self.selection.matches), barriers=barriers)

    def enter(self, traits: EntryTraits) -> None:
        """Enter new messages."""
        held = traits.barriers
        self.entered |= traits.rows
        # With a target depth they wait until the end of the record that brings them, when there may be room.
        self.rows[State.INACTIVE if self.definition.target_queue_depth else State.AVAILABLE] |= traits.rows - held
        self.rows[State.HELD] |= held
        self.barriers |= held
        # A barrier does not expire, even if its publisher said so: dropping it silently would break the order of those behind it.
        self.expires.add({at_ms: rows - traits.barriers for at_ms, rows in traits.expires.items()})
        self.selection.add(traits.without_keys_of_barriers())
        self.failing |= traits.failed

    def delay(self, rows: BitMap64, due_at_ms: int) -> None:
        """Keep new messages back that were published with a delay: at once, or from when they are active and owned here."""
        _put_in(self.not_before, rows, due_at_ms)
        self._delay_new()

    def postpone(self, rows: BitMap64, due_at_ms: int) -> None:
        """Let rows wait until a time."""
        if rows:
            self.move(rows, Event.POSTPONED)
            _put_in(self.delayed, rows, due_at_ms)

    def _delay_new(self) -> None:
        """Let messages published with a delay wait for its end, once they are available; barriers are never delayed."""
        for due_at_ms, part in list(self.not_before.items()):
            self.postpone(part & self.rows[State.AVAILABLE], due_at_ms)
        _take_out(self.not_before, BitMap64.union(self.rows[State.DELAYED], self.rows[State.REMOVED]))

    def move(self, rows: BitMap64, event: Event) -> None:
        """Change the state of rows as `TRANSITIONS` says; a pair that is not in it changes nothing and raises."""
        if self.retired:
            self._recall((rows & self.retired) - self.entered, event)
        moves, missing = list[tuple[State, State | None, BitMap64]](), len(rows)
        for state, members in self.rows.items():
            # Most moves find all of their rows in the first state or two.
            if missing and (part := rows & members):
                moves.append((state, TRANSITIONS.get((state, event)), part))
                missing -= len(part)
        if missing or any(target is None for _, target, _ in moves):
            found = ", ".join(f"{len(part)} {state}" for state, _, part in moves) or "none"
            raise CoordinatorError("INTERNAL", what=f"{event} of {len(rows)} messages of '{self.definition.name}' finds {found}")
        for state, target, part in moves:
            self._leave(state, part)
            if target in LEFT:
                self._forget_failures(part)
                self.forget_delays(part)
            self.rows[target] |= part  # type: ignore[index]  # None was refused above.
            self._keep_order(state, target, part)
        if self.not_before and event in (Event.ACTIVATED, Event.OWNED):
            self._delay_new()

    def give(self, rows: BitMap64, *, term: int, owner: str) -> None:
        """Let an instance own rows that are in the queue; those open in a lease stay with it until its end."""
        self.ownership.own(rows, term=term, owner=owner)
        if owner == self.ownership.instance:
            self.take_in(rows)
        else:
            self.take_away(rows)

    def take_in(self, rows: BitMap64) -> None:
        """Let those of `rows` be deliverable here that this instance owns and that are remote still."""
        # They wait for their turn as new ones do; those with room become active at the end of the record. The oldest
        # of a key must not wait behind those that wait for it, nor must redriven ones.
        has_turns = self.definition.target_queue_depth and self.definition.order_key is None
        self.move(rows & self.rows[State.REMOTE], Event.LINED_UP if has_turns else Event.OWNED)

    def take_away(self, rows: BitMap64) -> None:
        """Let those of `rows` be remote that another instance owns and no lease holds."""
        foreign = rows & self.ownership.remote
        if not foreign:
            return
        free = (self.rows[state] for state in (State.AVAILABLE, State.DELAYED, State.INACTIVE))
        taken = foreign & BitMap64.union(*free)
        # It may come back before its time; messages cancelled with a delay are free for their new owner.
        new = taken - self.delivered.at_least(1, taken) if self.delayed else BitMap64()
        for due_at_ms, part in self.delayed.items():
            _put_in(self.not_before, part & new, due_at_ms)
        self.move(taken, Event.DISOWNED)
        # It may come back after another has delivered it: no late proof of here is about that.
        self.drop_recoverable(taken, but=None)

    def _recall(self, rows: BitMap64, event: Event) -> None:
        """Let rows enter that were in the queue, as a record about them shows (records win over traits, DESIGN 4)."""
        self.entered |= rows
        self.rows[next(state for state in State if (state, event) in TRANSITIONS)] |= rows

    def _leave(self, state: State, part: BitMap64) -> None:
        self.rows[state] -= part
        if state is State.LEASED:
            for lease in self.leases.values():
                if lease.leased.intersect(part):
                    lease.leased -= part
        elif state is State.DELAYED:
            _take_out(self.delayed, part)
        elif state is State.INACTIVE:
            _take_out(self.deferred, part)
            self.reached -= part

    def _keep_order(self, state: State, target: State | None, part: BitMap64) -> None:
        """Let leases hold keys, the next message of a key come up when one leaves, and step back when one returns."""
        order_keys = self.selection.order_keys
        if target is State.LEASED:
            order_keys.hold(part)
        elif target not in _ELSEWHERE:
            order_keys.come_back(part) if state in _ELSEWHERE else order_keys.release(part)
        elif state not in _ELSEWHERE and not (self.definition.at_most_once and state is State.LEASED):
            # An at-most-once queue removes as it grants; the message holds its key until the proof, or the end of its lease.
            order_keys.leave(part)
        if self.selection.is_mostly_gone(len(self.entered) - len(self.rows[State.REMOVED])):
            self.selection.keep(self.standing)

    def _forget_failures(self, part: BitMap64) -> None:
        self.lone_failures.forget(part)
        self.marks.forget(part)
        for subscription in self.subscriptions.values():
            if subscription.suspects:
                subscription.suspects = {row: known for row, known in subscription.suspects.items() if row not in part}
            if subscription.failed:
                subscription.failed -= part

    def acquit(self, row: int, known: Suspect) -> None:
        """Undo the counts of a suspect's failures."""
        rows = BitMap64([row])
        self.delivered.set(rows, known.deliveries)
        self.cancelled.set(rows, known.cancels)
        self.lone_failures.set(rows, known.lone_failures)

    def drop_recoverable(self, rows: BitMap64, *, but: int | None) -> None:
        """Remove rows from those that every lease but one may still resume or settle (P2)."""
        for lease in self.leases.values():
            if lease.number != but and lease.recoverable.intersect(rows):
                lease.recoverable -= rows

    def receives(self, subscription: str) -> bool:
        """Return whether a subscription is a receiver's; one that has ended is nobody's."""
        known = self.subscriptions.get(subscription)
        return known is not None and known.receives

    def leases_of(self, subscription: str) -> list[Lease]:
        """Return the leases of a subscription, which may end while they are gone through."""
        return [lease for lease in self.leases.values() if lease.subscription == subscription]

    def leases_in_hand(self, subscription: Subscription, *, newest: int) -> list[Lease]:
        """Return the leases that the present start of a receiver has in hand, up to the newest that it knows of."""
        return [
            lease
            for lease in self.leases_of(subscription.name)
            if lease.incarnation == subscription.incarnation and lease.number <= newest and self.is_open(lease)
        ]

    def is_open(self, lease: Lease) -> bool:
        """Return whether its consumer has a lease in hand: it holds messages, or its batch, or its barrier, is not proven."""
        receives = not lease.is_barrier and self.receives(lease.subscription)
        return bool(self.outstanding(lease)) or not (lease.proven or receives)

    def forget_leases(self, subscription: str) -> None:
        """Forget the leases of a subscription that hold nothing, and under which nothing may come late any more (R133)."""
        receives = self.receives(subscription)
        for lease in self.leases_of(subscription):
            may_come_late = receives and (lease.recoverable or self.outstanding(lease))
            if not (lease.leased or lease.is_in_doubt or may_come_late):
                del self.leases[lease.number]

    def forget_ended_leases(self) -> None:
        """Forget the leases that receivers had: by other semantics their messages would count as theirs again."""
        for lease in [each for each in self.leases.values() if self.receives(each.subscription) and not self.is_open(each)]:
            del self.leases[lease.number]

    def dying(self, rows: BitMap64) -> BitMap64:
        """Return those of `rows` of which so many receivers died that they are granted alone (R138)."""
        return self.marks.at_least(MARKS_LIMIT, rows)

    def forget_batches(self) -> None:
        """Forget the barriers that were released and not received, and which messages failed: the queue begins anew."""
        for subscription in self.subscriptions.values():
            subscription.barriers, subscription.barrier_deliveries = BitMap64(), 0
            subscription.failed, subscription.suspects = BitMap64(), {}

    def forget_letters(self) -> None:
        """Forget the letters of a dead-letter queue that are over: those of another source may have the same bookmarks."""
        if not (self.depth or self.rows[State.DEAD] or self.rows[State.REMOTE]):
            self.entered, self.rows[State.REMOVED] = BitMap64(), BitMap64()
            self.removed_counts.clear()

    def overdue(self, now_ms: int) -> BitMap64:
        """Return the bookmarks whose own expiration has passed, or that were redriven longer ago than the queue's."""
        expiration_ms = self.definition.expiration_ms
        aged = BitMap64() if expiration_ms is None else self.begun.overdue(now_ms - expiration_ms)
        return self.expires.overdue(now_ms) | aged

    def over_age(self, rows: BitMap64, *, now_ms: int, aged_until: int) -> BitMap64:
        """Return those of `rows` that are overdue, or that stand before `aged_until` and have no time of their own."""
        aged = BitMap64()
        aged.add_range(0, aged_until)
        return rows & (self.overdue(now_ms) | (aged - self.expires.rows - self.begun.rows))

    def forget_gone(self, at_ms: int) -> None:
        """Forget the times of messages that have left the queue: those that come again are given a new one."""
        self.expires.forget_gone(at_ms, gone=[self.rows[State.REMOVED]])
        self.begun.forget_gone(-1, gone=[self.rows[each] for each in LEFT])

    def forget_expirations(self, *, now_ms: int) -> None:
        """Drop expirations that have passed and that no leased message waits for, nor one that may yet come to this instance."""
        kept = self.rows[State.LEASED] | self.rows[State.REMOTE]
        self.expires.forget(now_ms, kept=kept)
        if self.definition.expiration_ms is not None:
            self.begun.forget(now_ms - self.definition.expiration_ms, kept=kept)


def _put_in(by_time: dict[int, BitMap64], part: BitMap64, at_ms: int) -> None:
    if part:
        by_time[at_ms] = by_time.get(at_ms, BitMap64()) | part


def _take_out(by_time: dict[int, BitMap64], part: BitMap64) -> None:
    for at_ms in [at_ms for at_ms, rows in by_time.items() if rows.intersect(part)]:
        by_time[at_ms] -= part
        if not by_time[at_ms]:
            del by_time[at_ms]


def fill(ledger: QueueLedger, now_ms: int) -> None:
    """Activate the oldest inactive messages up to the target; those acknowledged before are passed over (R81, R83)."""
    inactive = ledger.rows[State.INACTIVE]
    target = ledger.definition.target_queue_depth
    room = target - _active(ledger) if target and inactive else len(inactive)
    if room <= 0:
        return
    deferred = ledger.deferred_after(now_ms)
    waiting = inactive - deferred
    chosen = oldest(waiting, room)
    ledger.reached |= deferred if len(waiting) < room else below(deferred, chosen.max())
    ledger.move(chosen, Event.ACTIVATED)


def reach(ledger: QueueLedger, rows: BitMap64, now_ms: int) -> None:
    """Activate waiting messages up to the last inactive one of `rows`, beyond the target where it must be (R84).

    From then on `fill` activates nothing until there is room again.
    """
    beyond = rows & ledger.rows[State.INACTIVE]
    if beyond:
        passed = below(ledger.rows[State.INACTIVE], beyond.max() + 1)
        deferred = (passed & ledger.deferred_after(now_ms)) - rows
        ledger.reached |= deferred
        ledger.move(passed - deferred, Event.ACTIVATED)


def shrink(ledger: QueueLedger) -> None:
    """Let the youngest available messages beyond a new target wait; those that a lease may still resume or settle stay active."""
    target = ledger.definition.target_queue_depth
    excess = _active(ledger) - target if target else 0
    free = ledger.rows[State.AVAILABLE] - BitMap64.union(BitMap64(), *(lease.recoverable for lease in ledger.leases.values()))
    ledger.move(free - oldest(free, max(0, len(free) - excess)), Event.DEACTIVATED)


def _active(ledger: QueueLedger) -> int:
    return sum(len(ledger.rows[state]) for state in ACTIVE)
