"""Folds of records about one queue: leases, attempts, messages, dead letters, barriers, pauses, subscriptions, expressions."""

from __future__ import annotations

from pyroaring import BitMap64

from spark_queue.core.bitmaps.ranges import to_bitmap
from spark_queue.core.definitions.keys import Backoff
from spark_queue.core.message_files.segment import EntryTraits
from spark_queue.core.records import (
    DEAD_LETTER_REASONS,
    RUN_FAILED,
    RUN_STOPPED,
    Incarnation,
    PauseReason,
    Record,
    Removal,
    Return,
    UnpauseReason,
)
from spark_queue.core.state.alarm import IDLE_FAILURES_LIMIT, LONE_FAILURES_LIMIT, PROBE_BACKOFF, Alarm, Suspect
from spark_queue.core.state.attempt import AttemptNumbers, attempt_of, begun
from spark_queue.core.state.lease import Lease, Subscription
from spark_queue.core.state.ledger import QueueLedger
from spark_queue.core.state.lifecycle import Event, State


def barriers_decided(ledger: QueueLedger, record: Record) -> None:
    """Note that a record says of messages whether they are barriers; who folds the log knew it as they entered."""
    ledger.unsaid -= to_bitmap(record.ranges)


def released(ledger: QueueLedger, record: Record) -> None:
    """Take barriers out of the queue and give them to the subscriptions that the record names (R70, R71)."""
    rows = to_bitmap(record.ranges)
    ledger.move(rows, Event.RELEASED)
    # Also those whose files are retired since, of which this record tells alone.
    ledger.barriers |= rows
    for name in record.detail["subscriptions"]:
        ledger.subscriptions[name].barriers |= rows


def received(ledger: QueueLedger, record: Record) -> None:
    """Note that a subscription is done with its barrier, or gave up on it."""
    subscription = seen(ledger, record)
    rows = to_bitmap(record.ranges)
    if rows & subscription.barriers[:1]:
        subscription.barrier_deliveries = 0
    subscription.barriers -= rows
    if record.reason == Removal.MAX_DELIVERIES:
        ledger.barriers_given_up += 1
        reason = record.detail.get("error", "its runs vanished")
        error = f"subscription '{subscription.name}' gave up barrier {rows.min()}: {reason}"
        # It pauses nothing, and one that does says more.
        subscription.alarm = subscription.alarm or Alarm(error=error, since_ms=record.at_ms)


def returned(ledger: QueueLedger, record: Record) -> None:
    """Give rows back to the queue."""
    rows, lease = to_bitmap(record.ranges), ledger.leases.get(int(record.lease or 0))
    undelivered, alone = record.detail.get("undelivered", False), record.detail.get("alone", False)
    if record.due_at_ms is None:
        ledger.move(rows, Event.RETURNED)
    else:
        ledger.postpone(rows, record.due_at_ms)
    if alone:
        _failed_alone(ledger, ledger.subscriptions[str(record.subscription)], record, rows.min())
    elif record.reason == Return.CANCELLED:
        ledger.cancelled.increment(rows)
    if undelivered or record.reason == Return.ORDER_KEY or (record.reason == Return.ISOLATED and not alone):
        ledger.delivered.decrement(rows)
    ledger.take_away(rows)
    if lease is not None:
        lease.undelivered = lease.undelivered or undelivered
        subscription = ledger.subscriptions[lease.subscription]
        if record.reason == Return.ISOLATED and not alone:
            # The rest of the lease is a piece of the batch, too; a dead letter is recoverable by a late proof alone.
            subscription.failed = rows | (lease.recoverable - ledger.rows[State.DEAD])
        if "limit" in record.detail:
            # Older software made it 1 for a lone message.
            subscription.isolation_limit = max(2, record.detail["limit"])
        if record.reason in (Return.CANCELLED, Return.ISOLATED, Return.ORDER_KEY) or (alone and lease.failure is not None):
            lease.recoverable -= rows
    ledger.returned_counts[str(record.reason)] += len(rows)


def _failed_alone(ledger: QueueLedger, subscription: Subscription, record: Record, row: int) -> None:
    """Note a message that failed alone, and, of a suspect, what was counted before this delivery."""
    counted = (ledger.cancelled.of(row), ledger.lone_failures.of(row))
    before = Suspect(deliveries=max(0, ledger.delivered.of(row) - 1), cancels=counted[0], lone_failures=counted[1])
    ledger.lone_failures.increment(BitMap64([row]))
    if record.reason == Return.CANCELLED:
        ledger.cancelled.increment(BitMap64([row]))
    if not record.detail.get("counts"):
        subscription.suspects.setdefault(row, before).error = record.detail.get("error")
    if subscription.is_stopped:
        ledger.acquit(row, subscription.suspects[row])
    if row in subscription.failed:
        # It is the one that was searched for.
        subscription.failed = BitMap64()
    stuck = ledger.lone_failures.at_least(LONE_FAILURES_LIMIT + 1, ledger.entered)
    if row in stuck:
        since_ms = record.at_ms if ledger.stuck is None or len(stuck) == 1 else ledger.stuck.since_ms
        ledger.stuck = Alarm(error=record.detail.get("error", "its runs vanished"), since_ms=since_ms)


def removed(ledger: QueueLedger, record: Record) -> None:
    """Take rows out of the queue: the delete marker."""
    rows = to_bitmap(record.ranges)
    dead = record.reason in DEAD_LETTER_REASONS
    taken_back = BitMap64() if dead else ledger.rows[State.DEAD] & rows
    ledger.move(rows, Event.DEAD_LETTERED if dead else Event.REMOVED)
    ledger.forget_gone(record.at_ms)
    # Only the end of a lease by max_deliveries may be taken back by that lease's late proof (P5).
    ledger.drop_recoverable(rows, but=record.lease if record.reason == Removal.MAX_DELIVERIES else None)
    if record.reason != Removal.DELIVERED:
        ledger.delivered.forget(rows)
        ledger.cancelled.forget(rows)
    if dead:
        ledger.dead_letters.add(record, rows)
    elif ledger.ownership is not None:
        ledger.ownership.disown(rows)
    counts = ledger.dead_letters.take_back(taken_back) if taken_back else {}
    if "settled_in" not in record.detail:
        # A message settled elsewhere left this queue as a dead letter.
        ledger.removed_counts.subtract(counts)
        ledger.removed_counts[str(record.reason)] += len(rows)


def deferred(ledger: QueueLedger, record: Record) -> None:
    """Remember an acknowledgement of what is not active yet."""
    ledger.defer(to_bitmap(record.ranges) & ledger.rows[State.INACTIVE], int(record.due_at_ms or 0))


def dead_lettered(ledger: QueueLedger, record: Record) -> None:
    """Let the dead letters of the source queue in, by reference."""
    rows = to_bitmap(record.ranges)
    # Letters that it still has after its source was reset stay as they are.
    again, new = rows & ledger.rows[State.REMOVED], rows - ledger.entered
    ledger.move(again, Event.REENTERED)
    ledger.enter(EntryTraits(rows=new, expires={}))
    if ledger.ownership is not None:
        ledger.ownership.begin_life(rows, record.detail.get("life", 0))
        ledger.ownership.disown(rows)
    # Its age here counts from now.
    ledger.begun.replace(again | new, record.at_ms)


def redriven(ledger: QueueLedger, record: Record) -> None:
    """Let dead letters back into their queue as if they were new; in the dead-letter queue they are gone."""
    rows = to_bitmap(record.ranges)
    letters = rows & ledger.rows[State.DEAD]
    ledger.move(rows, Event.REDRIVEN)
    ledger.drop_recoverable(rows, but=None)
    ledger.delivered.forget(rows)
    ledger.cancelled.forget(rows)
    ledger.removed_counts.subtract(ledger.dead_letters.take_back(letters))
    # Its age counts from now: by its old one it would be gone at once.
    ledger.expires.replace(letters, None)
    ledger.forget_gone(record.at_ms)
    ledger.begun.replace(letters, record.at_ms)
    if ledger.ownership is not None:
        ledger.ownership.disown(rows)
        ledger.ownership.begin_life(letters, record.detail.get("life", 0))
        if letters and ledger.definition.initial_owner is not None:
            ledger.give(letters, term=0, owner=ledger.definition.initial_owner)


def granted(ledger: QueueLedger, record: Record) -> None:
    """Lease rows to a subscription."""
    rows, number = to_bitmap(record.ranges), int(record.lease or 0)
    is_barrier = record.detail.get("barrier", False)
    held = BitMap64() if is_barrier else rows
    ledger.move(held, Event.GRANTED)
    subscription = seen(ledger, record)
    subscription.barrier_deliveries += is_barrier
    ledger.forget_leases(subscription.name)
    ledger.drop_recoverable(held, but=None)
    ledger.leases[number] = Lease(
        number=number,
        subscription=subscription.name,
        rows=rows,
        leased=held.copy(),
        recoverable=held.copy(),
        granted_at_ms=record.at_ms,
        begun_at_ms=record.at_ms,
        due_at_ms=int(record.due_at_ms or 0),
        incarnation=incarnation_of(record),
        limit=record.detail["limit"],
        searches=held.intersect(subscription.failed),
        is_barrier=is_barrier,
    )
    subscription.lease = number
    subscription.tried_lone = bool(ledger.lone_failures.at_least(1, held))
    ledger.next_lease = number + 1
    ledger.delivered.increment(held)
    if subscription.run_until is not None:
        subscription.run_granted |= rows
    alarm = subscription.alarm
    if alarm is not None and alarm.probe_at_ms is not None:
        alarm.probes += 1
        alarm.probe_at_ms = record.at_ms + probe_backoff(ledger).delay_ms(alarm.probes)


def resumed(ledger: QueueLedger, record: Record) -> None:
    """Let a lease be what its resume recorded, from now on (P2)."""
    rows, lease = to_bitmap(record.ranges), ledger.leases[int(record.lease or 0)]
    held = BitMap64() if lease.is_barrier else rows
    ledger.move(held, Event.RESUMED)
    subscription = seen(ledger, record)
    if incarnation_of(record) != lease.incarnation:
        # Words of the older incarnation are dropped (P4).
        lease.staged.clear()
        lease.lost = BitMap64()
    else:
        lease.lost |= lease.rows - rows
    lease.rows, lease.leased, lease.recoverable = rows, held.copy(), held.copy()
    lease.searches = held.intersect(subscription.failed)
    lease.due_at_ms = int(record.due_at_ms or 0)
    lease.incarnation = incarnation_of(record)
    lease.begun_at_ms = record.at_ms
    lease.resumed = True
    lease.undelivered = False
    lease.failure = None
    lease.stopped = lease.gives_back = False
    lease.vanished_runs = record.detail["vanished_runs"]
    if record.detail["counted"]:
        ledger.delivered.increment(held)
        subscription.barrier_deliveries += lease.is_barrier
    if subscription.run_until is not None:
        subscription.run_granted |= rows


def renewed(ledger: QueueLedger, record: Record) -> None:
    """Extend a lease."""
    ledger.leases[int(record.lease or 0)].due_at_ms = int(record.due_at_ms or 0)
    seen(ledger, record)


def prepared(ledger: QueueLedger, record: Record) -> None:
    """Let a lease be in doubt: its batch may come to stand in a sink from now on."""
    lease = ledger.leases[int(record.lease or 0)]
    lease.attempt = begun(record, lease.incarnation)
    numbers = ledger.attempts.setdefault(lease.subscription, AttemptNumbers())
    numbers.last = lease.attempt.number
    seen(ledger, record)


def landed(ledger: QueueLedger, record: Record) -> None:
    """Let the batch of a lease stand in its sink: from now on what was prepared is what becomes of its messages."""
    lease = ledger.leases[int(record.lease or 0)]
    attempt = attempt_of(lease)
    attempt.landed, attempt.error = True, None
    lease.staged, lease.failure, lease.gives_back = {said: rows.copy() for said, rows in attempt.exceptions.items()}, None, False
    lease.stopped = False


def fenced(ledger: QueueLedger, record: Record) -> None:
    """Let a lease be an ordinary one again: its batch stands in no sink and never will."""
    lease = ledger.leases[int(record.lease or 0)]
    attempt = attempt_of(lease)
    ledger.attempts[lease.subscription].fenced.add(attempt.number)
    lease.fenced, lease.attempt = attempt, None


def sink_unreadable(ledger: QueueLedger, record: Record) -> None:
    """Note why nobody could decide about an attempt."""
    attempt = attempt_of(ledger.leases[int(record.lease or 0)])
    attempt.error, attempt.is_read = record.detail["error"], record.detail.get("read", False)


def claimed(ledger: QueueLedger, record: Record) -> None:
    """Give an at-most-once lease to one planner start; one that had lapsed begins anew."""
    lease = ledger.leases[int(record.lease or 0)]
    lease.handed_to = incarnation_of(record)
    if record.due_at_ms is not None:
        lease.lapsed, lease.begun_at_ms, lease.due_at_ms = False, record.at_ms, record.due_at_ms
    seen(ledger, record)


def lapsed(ledger: QueueLedger, record: Record) -> None:
    """Let an at-most-once lease keep no backlog and no keys any more; its messages stay gone (R16, R31)."""
    rows = to_bitmap(record.ranges)
    ledger.leases[int(record.lease or 0)].lapsed = True
    ledger.selection.order_keys.leave(rows)
    ledger.returned_counts[Return.LEASE_EXPIRED] += len(rows)


def outcomes(ledger: QueueLedger, record: Record) -> None:
    """Stage what a batch said, or note that it failed, or that its run was stopped."""
    if record.lease is None:
        _ran_idle(seen(ledger, record), record)
        return
    lease = ledger.leases[int(record.lease)]
    if record.reason == RUN_FAILED:
        lease.failure, lease.stopped = record.detail["error"], False
        lease.gives_back = record.detail.get("cancel", False)
    elif record.reason == RUN_STOPPED:
        lease.failure, lease.stopped = None, True
        lease.gives_back = record.detail.get("cancel", False)
    else:
        lease.stage((str(record.reason), record.due_at_ms, record.detail.get("error")), to_bitmap(record.ranges))


def _ran_idle(subscription: Subscription, record: Record) -> None:
    """Note how a run ended that had no messages: several in a row that failed are an alarm, which pauses nothing."""
    if record.reason == RUN_FAILED:
        subscription.idle_failures += 1
        if subscription.idle_failures >= IDLE_FAILURES_LIMIT and subscription.alarm is None:
            error = (
                f"subscription '{subscription.name}': {subscription.idle_failures} runs failed one after the other that had no "
                f"messages. The last error: {record.detail['error']}"
            )
            subscription.alarm = Alarm(error=error, since_ms=record.at_ms)
        return
    if subscription.idle_failures >= IDLE_FAILURES_LIMIT and not subscription.is_stopped:
        subscription.alarm = None
    subscription.idle_failures = 0


def proven(ledger: QueueLedger, record: Record) -> None:
    """End a lease whose batch Spark has committed."""
    subscription, lease = seen(ledger, record), ledger.leases[int(record.lease or 0)]
    lease.proven = True
    if ledger.definition.at_most_once:
        ledger.delivered.forget(lease.rows)
        ledger.selection.order_keys.leave(lease.rows)
    lease.recoverable = BitMap64()
    lease.staged.clear()
    # A batch that read nothing, since its messages were given back, is no success.
    if lease.succeeded:
        subscription.suspects.clear()
        subscription.alarm, subscription.idle_failures = None, 0
        # One message alone, and a piece of a failed batch, say nothing about how large a batch may be.
        if subscription.isolation_limit is not None and len(lease.rows) > 1 and not lease.searches:
            doubled = subscription.isolation_limit * 2
            subscription.isolation_limit = doubled if doubled < lease.limit else None
        subscription.failed -= lease.rows


def paused(ledger: QueueLedger, record: Record) -> None:
    """Let a queue grant nothing from now on; in an alarm, a subscription a lone message at a time.

    An alarm of older software names no subscription and speaks of all.
    """
    if record.reason == PauseReason.USER:
        ledger.paused = True
        return
    probe_at_ms = record.at_ms + probe_backoff(ledger).delay_ms(0)
    for name in ledger.subscriptions if record.subscription is None else (record.subscription,):
        subscription = ledger.subscriptions[name]
        subscription.alarm = Alarm(error=record.detail["error"], since_ms=record.at_ms, probe_at_ms=probe_at_ms)
        subscription.failed, subscription.isolation_limit = BitMap64(), None
        for row, known in subscription.suspects.items():
            ledger.acquit(row, known)


def unpaused(ledger: QueueLedger, record: Record) -> None:
    """End its pauses, or only the alarm: that of a subscription, or, in a log of older software, all."""
    if record.reason == UnpauseReason.USER:
        ledger.paused = False
    for name in ledger.subscriptions if record.subscription is None else (record.subscription,):
        ledger.subscriptions[name].suspects.clear()
        ledger.subscriptions[name].alarm, ledger.subscriptions[name].idle_failures = None, 0


def probe_backoff(ledger: QueueLedger) -> Backoff:
    """Return how long to wait from one lone message to the next during an alarm."""
    return ledger.definition.retry_backoff or PROBE_BACKOFF


def seen(ledger: QueueLedger, record: Record) -> Subscription:
    """Note that a subscription was heard of, and give it."""
    subscription = ledger.subscriptions[str(record.subscription)]
    subscription.last_seen_at_ms = record.at_ms
    subscription.call = max(subscription.call, record.detail.get("call", 0))
    return subscription


def subscribed(ledger: QueueLedger, record: Record) -> None:
    """Begin a subscription, or replace what it asks for (R118)."""
    name, detail = str(record.subscription), record.detail
    if name not in ledger.subscriptions:
        ledger.subscriptions[name] = Subscription(
            name=name, ack_mode="", max_backlog=0, subscribed_at_ms=record.at_ms, last_seen_at_ms=record.at_ms
        )
    ledger.subscriptions[name].ack_mode = detail["ack_mode"]
    ledger.subscriptions[name].max_backlog = detail["max_backlog"]
    ledger.subscriptions[name].filter = detail["filter"]
    ledger.subscriptions[name].principal = detail.get("principal")
    ledger.subscriptions[name].entitlement = tuple(detail.get("entitlement", ()))
    _drop_matches(ledger)


def unsubscribed(ledger: QueueLedger, record: Record) -> None:
    """End a subscription."""
    name = str(record.subscription)
    if ledger.definition.at_most_once:
        for lease in [lease for lease in ledger.leases.values() if lease.subscription == name]:
            ledger.selection.order_keys.leave(lease.rows)
    del ledger.subscriptions[name]
    ledger.forget_leases(name)
    _drop_matches(ledger)


def attached(ledger: QueueLedger, record: Record) -> None:
    """Make a planner start its owner (P1)."""
    subscription = ledger.subscriptions[str(record.subscription)]
    subscription.incarnation = incarnation_of(record)
    subscription.call = 0
    subscription.left = False
    subscription.run_until = record.detail.get("until")
    subscription.run_granted = BitMap64()
    seen(ledger, record)


def left(ledger: QueueLedger, record: Record) -> None:
    """Note that its planner said goodbye."""
    seen(ledger, record).left = True


def _drop_matches(ledger: QueueLedger) -> None:
    """Forget what matches filters that no subscription has any more."""
    wanted = {text for subscription in ledger.subscriptions.values() for text in subscription.filters}
    for text in ledger.selection.matches.keys() - wanted:
        del ledger.selection.matches[text]


def incarnation_of(record: Record) -> Incarnation:
    """Return the planner start that a record names."""
    epoch, number = record.detail["incarnation"]
    return (epoch, number)


def failed(ledger: QueueLedger, record: Record) -> None:
    """Count messages on which an expression failed, as they were found when it was recorded."""
    ledger.failed_expressions += record.detail["messages"]
    ledger.failing.clear()
