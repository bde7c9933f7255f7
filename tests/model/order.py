"""Order per key, message by message: what may be leased together, and what goes back together (DESIGN 8)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.model.model import Queue
    from tests.model.parts import Lease, Message

ACTIVE = ("available", "leased", "delayed")


def is_alike(queue: Queue, one: Message, other: Message) -> bool:
    """Return whether two messages have the same key."""
    key = queue.rules.key
    return key is not None and key(one.body) is not None and key(one.body) == key(other.body) and not one.is_barrier


def with_runs(queue: Queue, heads: Iterable[Message], free: Iterable[Message]) -> list[Message]:
    """Return the oldest of their keys, and what of the others follows them without a gap, up to the longest run."""
    together = {each.bookmark: each for each in heads}
    for message in free:
        run = [each for each in together.values() if is_alike(queue, each, message)]
        if run and len(run) != queue.rules.run and not queue.is_blocked(message, beside=together):
            together[message.bookmark] = message
    return list(together.values())


def behind(queue: Queue, cancelled: Iterable[Message], among: Iterable[Message]) -> list[Message]:
    """Return what stands behind a cancelled message of its key, which goes back with it; one that a cancel ends holds up nobody."""
    among = [each for each in among if each.state in ACTIVE]
    staying = [each for each in cancelled if each.state in ACTIVE and not (each in among and _ends_by_cancel(queue, each))]
    return [each for each in among if any(is_alike(queue, old, each) and old.bookmark < each.bookmark for old in staying)]


def behind_said(queue: Queue, lease: Lease, among: Iterable[Message]) -> list[Message]:
    """Return what stands behind what the batch of a lease cancelled."""
    cancelled = [queue.messages[bookmark] for bookmark, (outcome, _) in lease.said.items() if outcome == "cancel"]
    return behind(queue, cancelled, among)


def go_back(queue: Queue, message: Message, *, claimed: bool = False) -> None:
    """Return a message behind a cancelled one, unless it is too old: whatever was said of it, and nothing is counted."""
    if queue.is_old(message):
        queue.remove(message, "time_limit")
        return
    message.deliveries -= 1
    message.state = "available" if message.state == "leased" else message.state
    queue.let_go(message, claimed=claimed)


def _ends_by_cancel(queue: Queue, message: Message) -> bool:
    rules = queue.rules
    is_spent = rules.max_deliveries and message.deliveries >= rules.max_deliveries
    return bool(is_spent) or queue.is_old(message) or bool(rules.max_cancels and message.cancels >= rules.max_cancels)
