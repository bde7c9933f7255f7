"""What must hold of order keys in a queue's state (DESIGN 8)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from spark_queue.core.bitmaps.ranges import from_array
from spark_queue.core.state.ledger import QueueLedger


def of_order_keys(ledger: QueueLedger) -> Iterator[str]:
    """Yield what is broken in a queue: a key is held by one lease at most, and by what that lease has under way."""
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
