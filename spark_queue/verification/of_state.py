"""Invariants of a folded state: messages, targets of depth (R79 to R84), barriers (R68 to R73) and order keys (DESIGN 8).

Each function gives the faults as sentences; none is a sound state. Simulations, the kill farm and `sparkq verify` look for them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from pyroaring import BitMap64

from spark_queue.core.bitmaps.ranges import from_array
from spark_queue.core.message_files.message_type import MessageTypeState
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.ledger import QueueLedger
from spark_queue.core.state.lifecycle import ACTIVE, IN_QUEUE, State


def of_state(state: JournalState) -> list[str]:
    """Return the faults of a folded state: nothing lost, nothing in two places, leases within their grants."""
    broken: list[str] = []
    for name, message_type in state.message_types.items():
        broken += [f"message type '{name}': {text}" for text in _of_segments(message_type)]
    for name, ledger in state.queues.items():
        broken += [f"queue '{name}': {text}" for text in of_ledger(ledger)]
        until = state.message_types[ledger.definition.message_type].entered_until
        if ledger.entered and ledger.entered.max() >= until:
            broken.append(f"queue '{name}': message {ledger.entered.max()} is in it, but only {until} messages have entered")
    return broken


def of_ledger(ledger: QueueLedger) -> list[str]:
    """Return the faults of one queue."""
    parts = (_conservation, _active_part, _leases, _subscriptions, _filters, _order_keys, _barriers, _failing)
    return [text for part in parts for text in part(ledger)]


def _of_segments(message_type: MessageTypeState) -> Iterator[str]:
    until, version = 0, -1
    for segment in message_type.segments:
        if segment.first != until:
            yield f"file {segment.path} begins at bookmark {segment.first}, but {until} is next"
        # A table that is made anew and followed on counts its versions anew (R148).
        if segment.version < version and message_type.followed is None:
            yield f"version {segment.version} entered after version {version}"
        until, version = segment.until, segment.version
    for earlier, later in pairwise(message_type.segments):
        if earlier.path == later.path and later.first_row != earlier.first_row + earlier.row_count:
            yield f"messages {later.first} to {later.until} stand at row {later.first_row} of {later.path}, in which others stand"
    if until != message_type.entered_until:
        yield f"{message_type.entered_until} messages count as entered, but its files hold {until}"


def _conservation(ledger: QueueLedger) -> Iterator[str]:
    total = sum(len(rows) for rows in ledger.rows.values())
    together = BitMap64.union(*ledger.rows.values())
    if together != ledger.entered:
        yield f"{len(together ^ ledger.entered)} message(s) entered and are in no state, or the other way round"
    if total != len(together):
        yield f"{total - len(together)} message(s) are in two states at once"
    if ledger.entered and ledger.entered.min() < ledger.start:
        yield f"message {ledger.entered.min()} stands before the recovery point {ledger.start}"
    parts = {State.DELAYED: list(ledger.delayed.values()), State.DEAD: [letter.rows for letter in ledger.dead_letters]}
    for state, bitmaps in parts.items():
        if BitMap64.union(BitMap64(), *bitmaps) != ledger.rows[state] or sum(map(len, bitmaps)) != len(ledger.rows[state]):
            yield f"the {state} messages do not match their list of moments or reasons"


def _leases(ledger: QueueLedger) -> Iterator[str]:
    held = [lease.leased for lease in ledger.leases.values()]
    if BitMap64.union(BitMap64(), *held) != ledger.rows[State.LEASED] or sum(map(len, held)) != len(ledger.rows[State.LEASED]):
        yield "the leased messages are not exactly what the leases hold, each once"
    for lease in ledger.leases.values():
        if lease.number >= ledger.next_lease:
            yield f"lease {lease.number} is not below the next number {ledger.next_lease}"
        if not lease.leased.issubset(lease.rows) or not lease.recoverable.issubset(lease.rows):
            yield f"lease {lease.number} holds or claims messages that it does not cover"
        if lease.proven and lease.recoverable:
            yield f"lease {lease.number} is proven and still claims {len(lease.recoverable)} message(s)"
        if not lease.proven and not ledger.definition.at_most_once and not lease.leased.issubset(lease.recoverable):
            yield f"lease {lease.number} holds messages that it does not claim"


def _subscriptions(ledger: QueueLedger) -> Iterator[str]:
    for name, subscription in ledger.subscriptions.items():
        if subscription.receives:
            continue
        unproven = [
            lease.number for lease in ledger.leases.values() if lease.subscription == name and not lease.proven and lease.leased
        ]
        if len(unproven) > 1 or any(number != subscription.lease for number in unproven):
            yield f"subscription '{name}' has unproven leases {unproven} beside its newest, {subscription.lease}"
    for lease in ledger.leases.values():
        if lease.subscription not in ledger.subscriptions:
            yield f"lease {lease.number} belongs to subscription '{lease.subscription}', which is gone"


def _filters(ledger: QueueLedger) -> Iterator[str]:
    for text, matching in ledger.selection.matches.items():
        if not matching.issubset(ledger.entered):
            yield f"messages match the filter {text!r} that never entered"


def _failing(ledger: QueueLedger) -> Iterator[str]:
    in_queue = BitMap64.union(*(ledger.rows[state] for state in IN_QUEUE))
    known = [each.failed | BitMap64(each.suspects) for each in ledger.subscriptions.values()]
    if not BitMap64.union(ledger.lone_failures.at_least(1, ledger.entered), *known).issubset(in_queue):
        yield "messages that left the queue still count as failed"


def _active_part(ledger: QueueLedger) -> Iterator[str]:
    """Yield faults: the active part is full as long as anything waits, and messages that come up acknowledged are gone."""
    inactive, target = ledger.rows[State.INACTIVE], ledger.definition.target_queue_depth
    if inactive and sum(len(ledger.rows[state]) for state in ACTIVE) < max(target, 1):
        yield f"{len(inactive)} message(s) are inactive, and the active part is not full"
    deferred = BitMap64.union(BitMap64(), *ledger.deferred.values())
    if not deferred.issubset(inactive) or sum(map(len, ledger.deferred.values())) != len(deferred):
        yield "messages whose acknowledgement is deferred are not inactive, or are deferred twice"
    if ledger.reached:
        yield f"{len(ledger.reached)} message(s) were acknowledged before, came up, and are still there"


def _barriers(ledger: QueueLedger) -> Iterator[str]:
    """Yield faults: a held barrier waits for something, nothing behind it is leased, a released one is gone."""
    held = ledger.rows[State.HELD]
    if not held.issubset(ledger.barriers):
        yield f"message {(held - ledger.barriers).min()} is held and no barrier"
    for rows in (ledger.rows[State.LEASED], ledger.delivered.at_least(1, ledger.rows[State.DELAYED])):
        if held and rows and rows.max() > held.min():
            yield f"message {rows.max()} was granted behind barrier {held.min()}, which is held"
    waiting = [rows.min() for state in (*ACTIVE, State.INACTIVE, State.REMOTE) if (rows := ledger.rows[state])]
    if held and ledger.subscriptions and not ledger.paused and min(waiting, default=held.max()) >= held.min():
        yield f"barrier {held.min()} is held, though nothing stands before it and somebody subscribes"
    gone = ledger.barriers & ledger.rows[State.REMOVED]
    for name, subscription in ledger.subscriptions.items():
        if not subscription.barriers.issubset(gone):
            yield f"subscription '{name}' waits for a barrier that was not released"


def _order_keys(ledger: QueueLedger) -> Iterator[str]:
    """Yield faults: a key is held by one lease at most, and by messages that this lease has under way."""
    order_keys = ledger.selection.order_keys
    under_way = [order_keys.keys_of(ledger.outstanding(lease)) for lease in ledger.leases.values()]
    if sum(len(rows) for rows, _ in under_way) != len(order_keys.under_lease) or any(
        not from_array(rows).issubset(order_keys.under_lease) for rows, _ in under_way
    ):
        yield "the messages that hold their order keys are not exactly those that are under way"
    holders = Counter(key for _, keys in under_way for key in set(keys.tolist()))
    shared = [key for key, leases in holders.items() if leases > 1]
    if shared:
        yield f"{len(shared)} order key(s), first {shared[0]:016x}, are held by two leases at once"
