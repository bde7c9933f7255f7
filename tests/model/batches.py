"""How batches end, message by message: proven, expired, left, begun anew, or failed and taken apart (P1 to P6, DESIGN 8, 15.12)."""

from __future__ import annotations

from collections.abc import Iterable

from tests.model import order
from tests.model.model import IN_QUEUE, Queue
from tests.model.parts import Lease, Message, Subscription

#: Others that must be there, so that a message that fails alone is only suspected; and suspects that make an alarm.
SUSPECTS = 3

#: Runs in a row that vanish without a word until that counts as a failure.
VANISHED = 3


def say(lease: Lease, rows: Iterable[int], outcome: str, due: int | None) -> None:
    """Note what a batch says of its rows, until its proof."""
    lease.said.update(dict.fromkeys(rows, (outcome, due)))


def prove(queue: Queue, name: str) -> None:
    """End the open lease of a subscription, since Spark has committed its batch."""
    subscription = queue.subscriptions[name]
    lease = subscription.open
    assert lease is not None
    settle_all(queue, subscription, lease, rest=None if subscription.explicit else "acknowledge")
    if lease.rows and not lease.failed and not lease.gives_back:
        succeed(queue, subscription)
        subscription.failed = subscription.failed - lease.rows
        if subscription.most is not None and len(lease.rows) > 1 and not lease.piece:
            subscription.most = subscription.most * 2 if subscription.most * 2 < lease.limit else None
    lease.proven, lease.claim, lease.said = True, set(), {}


def settle_all(queue: Queue, subscription: Subscription, lease: Lease, *, rest: str | None) -> None:
    """Let take effect what a batch said; `rest` becomes of what it said nothing of."""
    if lease.barrier:
        spent = queue.rules.max_deliveries and subscription.barrier_deliveries >= queue.rules.max_deliveries
        if not lease.gives_back or (spent and not lease.stopped):
            receive(subscription, lease)
        return
    if queue.rules.at_most_once:
        return
    messages = [queue.messages[bookmark] for bookmark in sorted(lease.claim)]
    if lease.gives_back and lease.stopped:
        _give_back_undelivered(queue, lease)
        return
    if lease.gives_back:
        _take_apart(queue, subscription, lease, [each for each in messages if each.state in IN_QUEUE])
        return
    for message in _but_behind(queue, lease, messages):
        outcome, due = lease.said.get(message.bookmark, (rest, None))
        # A dead letter that the lease's own end made is taken back by an acknowledgement, and by nothing else (P5).
        if outcome is not None and (message.state in IN_QUEUE or (outcome == "acknowledge" and take_back(queue, message))):
            queue.settle(message, outcome, due)


def end(queue: Queue, name: str, lease: Lease, *, undelivered: bool = False) -> None:
    """Give back what a lease holds; an acknowledgement that was not proven is none, the other outcomes hold."""
    if lease.landed:
        settle_all(queue, queue.subscriptions[name], lease, rest="acknowledge")
        return
    for message in _but_behind(queue, lease, [queue.messages[bookmark] for bookmark in sorted(lease.held)]):
        outcome, due = lease.said.get(message.bookmark, ("acknowledge", None))
        if outcome != "acknowledge":
            queue.settle(message, outcome, due)
    held = [queue.messages[bookmark] for bookmark in sorted(lease.held)]
    if not held:
        return
    subscription, undelivered = queue.subscriptions[name], undelivered or lease.stopped
    if lease.failed or (subscription.alarm is not None and len(lease.rows) == 1 and not undelivered):
        _take_apart(queue, subscription, lease, held, claimed=not lease.failed)
    else:
        for message in held:
            lease.undelivered = lease.undelivered or undelivered
            queue.give_back(message, None, undelivered=undelivered)


def _give_back_undelivered(queue: Queue, lease: Lease) -> None:
    for bookmark in sorted(lease.held):
        lease.undelivered = True
        queue.give_back(queue.messages[bookmark], None, undelivered=True)


def prepare(queue: Queue, name: str, left_out: dict[int, tuple[str, int | None]]) -> bool:
    """Let a batch be on its way to a sink, without some of its messages; returns whether it may be (R124)."""
    subscription = queue.subscriptions[name]
    lease = subscription.open
    assert lease is not None
    if queue.rules.at_most_once or subscription.explicit or lease.barrier or not lease.rows:
        return False
    rows = _resumable(queue, subscription, lease)
    if lease.planner is not subscription.planner or lease.lost or set(rows) != lease.rows:
        return False
    cancelled = [queue.messages[bookmark] for bookmark, (outcome, _) in left_out.items() if outcome == "cancel"]
    staying = [queue.messages[bookmark] for bookmark in lease.rows if left_out.get(bookmark, ("acknowledge",))[0] == "acknowledge"]
    behind = [each for each in staying for old in cancelled if order.is_alike(queue, old, each) and old.bookmark < each.bookmark]
    if behind:
        return False
    if lease.held != lease.rows:
        _resume(queue, subscription, lease, rows, counted=False)
    lease.in_doubt = True
    return True


def decide(lease: Lease, left_out: dict[int, tuple[str, int | None]], *, landed: bool) -> None:
    """Let it be known whether a batch stands in its sink (R126, R127)."""
    lease.in_doubt, lease.landed = False, landed
    if landed:
        lease.said, lease.failed, lease.gives_back = dict(left_out), False, False
        lease.stopped = False


def _but_behind(queue: Queue, lease: Lease, messages: list[Message]) -> list[Message]:
    """Give back what stands behind messages that a batch cancelled, and give the others."""
    behind = order.behind_said(queue, lease, messages)
    for message in behind:
        order.go_back(queue, message)
    return [each for each in messages if each not in behind]


def read(queue: Queue, name: str, number: int, *, again: bool) -> set[int]:
    """Return the rows of a batch to a planner; `again` when it asked before, in this reign."""
    subscription = queue.subscriptions[name]
    lease = subscription.open
    if lease is None or lease.number != number:
        return set()
    if queue.rules.at_most_once and not lease.barrier:
        if lease.handed_to is None and not (lease.lapsed and queue.rules.key is not None):
            lease.handed_to = subscription.planner
            if lease.lapsed:
                lease.lapsed, lease.begun_at, lease.due = False, queue.now, queue.now + queue.rules.lease_ms
        return lease.rows if lease.handed_to is subscription.planner else set()
    if lease.planner is not subscription.planner or not (again or lease.barrier or lease.held == lease.rows):
        _begin_anew(queue, subscription, lease)
    lease.asked = True
    return lease.rows


def leave(queue: Queue, name: str) -> None:
    """Let a planner end: its batch returns at once where Spark cannot have committed it (P6)."""
    subscription = queue.subscriptions[name]
    lease = subscription.open
    if lease is not None and lease.planner is subscription.planner and lease.sure and (lease.running or not lease.asked):
        end(queue, name, lease, undelivered=not lease.asked)
    elif lease is not None and lease.returned_in is subscription.planner and not lease.failed:
        lease.stopped = True


def answer_again(queue: Queue, name: str) -> None:
    """Give the open lease to a planner that does not know it: it moves to a newer one, and counts nothing (P3)."""
    subscription = queue.subscriptions[name]
    lease = subscription.open
    assert lease is not None
    if lease.planner is not subscription.planner and (lease.barrier or not queue.rules.at_most_once):
        _resume(queue, subscription, lease, _resumable(queue, subscription, lease), counted=False)


def _resumable(queue: Queue, subscription: Subscription, lease: Lease) -> list[int]:
    """Return what is still held, and what came back and is neither gone nor held up by its key (P2)."""
    if lease.barrier:
        return sorted(lease.rows & set(subscription.barriers))
    back = {bookmark for bookmark in lease.claim - lease.held if _is_there(queue, queue.messages[bookmark])}
    rows = set(lease.held)
    for bookmark in sorted(back):
        rows |= set() if queue.is_blocked(queue.messages[bookmark], beside=rows) else {bookmark}
    return sorted(rows)


def _is_there(queue: Queue, message: Message) -> bool:
    """Return whether a message that came back may be read again: not before somebody who cancelled it by hand wants that."""
    return message.state in IN_QUEUE and not (message.state == "delayed" and message.due > queue.now)


def _begin_anew(queue: Queue, subscription: Subscription, lease: Lease) -> None:
    """Run a batch again: whole, half of it, or none where its one message is to blame."""
    rows, maximum = _resumable(queue, subscription, lease), queue.rules.max_deliveries
    lone = lease.asked and not lease.stopped and len(lease.rows) == len(rows) == 1
    lease.vanished = lease.vanished + (not lease.stopped) if lease.asked and not lease.failed else 0
    failed = lease.failed or lease.vanished >= VANISHED
    if len(rows) > 1 and failed:
        half = (len(rows) + 1) // 2
        _isolate(queue, subscription, lease, [queue.messages[each] for each in rows[half:]])
        rows, lease.vanished = rows[:half], 0
    if lone and lease.barrier:
        if maximum and subscription.barrier_deliveries >= maximum:
            receive(subscription, lease)
            rows = []
    elif lone and (failed or subscription.alarm is not None):
        _take_apart(queue, subscription, lease, [queue.messages[rows.pop()]])
    elif lone and maximum and queue.messages[rows[0]].deliveries >= maximum:
        message = queue.messages[rows.pop()]
        queue.remove(message, "max_deliveries")
    _resume(queue, subscription, lease, rows, counted=lone and bool(rows))


def _resume(queue: Queue, subscription: Subscription, lease: Lease, rows: list[int], *, counted: bool) -> None:
    counted = counted or lease.undelivered
    if lease.planner is not subscription.planner:
        lease.said, lease.lost = {}, set()
    else:
        lease.lost |= lease.rows - set(rows)
    lease.rows, lease.held, lease.claim = set(rows), set(), set()
    lease.piece = not lease.barrier and bool(lease.rows & subscription.failed)
    lease.due, lease.begun_at, lease.planner = queue.now + queue.rules.lease_ms, queue.now, subscription.planner
    lease.failed = lease.gives_back = lease.undelivered = lease.sure = lease.running = lease.stopped = False
    if subscription.until is not None:
        subscription.given |= lease.rows
    if lease.barrier:
        subscription.barrier_deliveries += counted
        return
    for bookmark in rows:
        message = queue.messages[bookmark]
        message.deliveries += counted - 1
        queue.take(message, lease)


def receive(subscription: Subscription, lease: Lease) -> None:
    if lease.rows & set(subscription.barriers):
        subscription.barriers = [each for each in subscription.barriers if each not in lease.rows]
        subscription.barrier_deliveries = 0


def take_back(queue: Queue, message: Message) -> bool:
    """Take a dead letter back, if nobody has taken it in the dead-letter queue."""
    letter = None if queue.letters is None else queue.letters.messages.get(message.bookmark)
    if message.state != "dead" or (letter is not None and letter.state not in ("available", "inactive")):
        return False
    if letter is not None and queue.letters is not None:
        queue.letters.remove(letter, "acknowledged")
    return True


def _take_apart(queue: Queue, subscription: Subscription, lease: Lease, messages: list[Message], *, claimed: bool = False) -> None:
    """Give a failed batch back: several messages are innocent, a lone one is tried alone from now on."""
    if messages and len(lease.rows) > 1:
        _isolate(queue, subscription, lease, messages)
    elif messages:
        told, cancelled = lease.failed, lease.gives_back
        fail_alone(queue, subscription, messages[0], beside=lease.rows, is_told=told, is_cancelled=cancelled, claimed=claimed)


def _isolate(queue: Queue, subscription: Subscription, lease: Lease, messages: list[Message]) -> None:
    """Give messages of a failing batch back; all of it is looked through, piece by piece."""
    for message in messages:
        if queue.is_old(message):
            queue.remove(message, "time_limit")
    messages = [message for message in messages if message.state != "removed"]
    if not messages:
        return
    subscription.failed = {message.bookmark for message in messages} | lease.claim
    if not lease.piece:
        known = subscription.most
        subscription.most = lease.limit if known is None else max(2, min(known, len(lease.rows)) // 2)
    for message in messages:
        message.state, message.deliveries, message.due = "available", message.deliveries - 1, 0
        queue.let_go(message)


def fail_alone(
    queue: Queue,
    subscription: Subscription,
    message: Message,
    *,
    beside: set[int],
    is_told: bool,
    is_cancelled: bool,
    claimed: bool,
) -> None:
    """Set a message aside that failed alone, and tell whether it is held against it at once, later, or against the sink."""
    if queue.is_old(message):
        queue.remove(message, "time_limit")
        return
    due, before = queue.now + queue.rules.lone_delay_ms(message.lone), (message.deliveries, message.cancels, message.lone)
    if _is_suspect(queue, subscription, beside, is_told=is_told):
        subscription.suspects.setdefault(message.bookmark, (max(0, before[0] - 1), *before[1:]))
        message.state, message.due = "delayed", due
        message.cancels += is_cancelled
        message.marks = 0 if is_cancelled else message.marks
        queue.let_go(message, claimed=claimed)
    elif is_cancelled:
        queue.settle(message, "cancel", due)
    else:
        queue.give_back(message, due)
        queue.let_go(message, claimed=message.state == "dead")
    if message.state != "delayed":
        return
    message.lone += 1
    if message.bookmark in subscription.failed:
        subscription.failed = set()
    acquitted = [message.bookmark] if subscription.alarm is not None else []
    if subscription.alarm is None and len(subscription.fresh) >= SUSPECTS:
        # Who takes only what is there tries another one at once.
        wait_ms = queue.rules.delay_ms(0, 30_000) if subscription.until is None else 0
        subscription.alarm, acquitted = (queue.now + wait_ms, 0), list(subscription.suspects)
        subscription.failed, subscription.most = set(), None
    for bookmark in acquitted:
        known = queue.messages[bookmark]
        known.deliveries, known.cancels, known.lone = subscription.suspects[bookmark]


def _is_suspect(queue: Queue, subscription: Subscription, beside: set[int], *, is_told: bool) -> bool:
    """Return whether it may be the sink's fault that a lone message failed: others wait that can tell."""
    others = {each.bookmark for each in queue.allowed(subscription) if not each.lone} | subscription.fresh
    return subscription.alarm is not None or (is_told and len(others - beside) >= SUSPECTS)


def succeed(queue: Queue, subscription: Subscription) -> None:
    """Hold their failures against the suspects, unless it was the sink."""
    limits, suspects = queue.rules, [] if subscription.alarm is not None else list(subscription.suspects)
    for message in [queue.messages[bookmark] for bookmark in suspects]:
        if message.state in ("available", "delayed"):
            if limits.max_deliveries and message.deliveries >= limits.max_deliveries:
                queue.remove(message, "max_deliveries")
            elif limits.max_cancels and message.cancels > limits.max_cancels:
                queue.remove(message, "max_cancels")
    subscription.suspects, subscription.alarm = {}, None


def renew(queue: Queue, lease: Lease) -> None:
    """Extend a lease by one period, up to its limit."""
    if queue.outstanding(lease):
        limit = lease.begun_at + max(queue.rules.renewal_ms, queue.rules.lease_ms)
        lease.due = max(lease.due, min(queue.now + queue.rules.lease_ms, limit))
