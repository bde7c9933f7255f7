"""The reasons why a message is not granted: it never came into the queue, or it waits there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pyroaring import BitMap64

from spark_queue.core.bitmaps.ranges import from_array
from spark_queue.core.deciding.shares import left_within, room_within
from spark_queue.core.definitions.definition import Definitions, QueueDefinition
from spark_queue.core.message_files.segment import EntryTraits
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.ledger import QueueLedger
from spark_queue.core.state.lifecycle import IN_QUEUE, State
from spark_queue.core.state.subscription import Subscription
from spark_queue.errors import JournalError, counted
from spark_queue.protocol.discovery import Heard, seen_at_ms
from spark_queue.settings.timestamps import to_text


def waits(ledger: QueueLedger, bookmark: int) -> bool:
    """Return whether a message is in a queue, and not leased here."""
    return any(bookmark in ledger.rows[each] for each in (State.AVAILABLE, State.DELAYED, State.INACTIVE, State.HELD, State.REMOTE))


def why_never_taken(
    definition: QueueDefinition, traits: EntryTraits | None, bookmark: int, *, topic: str | None, start: int, is_undecided: bool
) -> str:
    """Return the reason why a message never came into a queue, which has bookmarks from `start` on.

    `definition` is that of the moment when the message could have entered; `traits` and `topic` are None where its file is gone;
    `is_undecided`: no instance has decided whether it is in the queue (R129).
    """
    name = f"queue '{definition.name}'"
    if is_undecided:
        return (
            f"It is not in {name}, since it is undecided whether it belongs there: the instance that published it lacks the queue, "
            "or has set it aside. Define it there, or name an `initial_owner` that pulls from there."
        )
    if definition.underlying_topic is None:
        return f"It never entered {name}: messages enter it only as dead letters, and this one never became one."
    if bookmark < start:
        return f"It never entered {name}, which begins at bookmark {start} (recovery_point, or a reset)."
    if topic is not None and not definition.takes(topic):
        takes = f"takes underlying_topic = '{definition.underlying_topic}'"
        return f"It never entered {name}, which {takes}; its topic is '{topic}'."
    if traits is not None and definition.filter is not None:
        failed = "fails on it" if traits.failed else "does not match it"
        return f"It never entered {name}, whose filter {failed}: {definition.filter}"
    return f"It never entered {name}: no record mentions it, and its body has left the journal."


def why_it_waits(state: JournalState, queue: str, bookmark: int, *, now_ms: int, heard: Heard) -> str | None:
    """Return the reason why a message is not leased, and a way to change that; None where it does not wait in the queue."""
    ledger = state.ledger(queue)
    if not waits(ledger, bookmark):
        return None
    if bookmark in ledger.rows[State.REMOTE]:
        claimed_from = next((owner for owner, rows in ledger.ownership.claims.items() if bookmark in rows), None)
        if claimed_from is not None:
            return (
                f"It was claimed from instance '{claimed_from}', and is granted once another look at that instance shows no sign "
                "of life."
            )
        owner = next(owner for _, owner, _ in ledger.ownership.by_owner(BitMap64([bookmark])))
        lost = "If that instance is lost, `sparkq proxied-transfer` lets this one take it over."
        return f"Only its owner, instance '{owner}', delivers it: ask there why it waits. {lost}"
    if ledger.is_replicated and state.returning is not None and state.returning.holds(queue):
        return f"It waits: {JournalError('RETURNING')}"
    return next(_reasons(state, queue, bookmark, now_ms, heard), None)


def _reasons(state: JournalState, queue: str, bookmark: int, now_ms: int, heard: Heard) -> Iterator[str]:
    """Yield the reasons that keep it, the most telling first."""
    ledger = state.ledger(queue)
    if ledger.paused:
        yield f"It waits: queue '{queue}' is paused, and grants nothing until `sparkq unpause`."
    due_ms = next((at_ms for at_ms, rows in ledger.delayed.items() if bookmark in rows), now_ms)
    if due_ms > now_ms:
        # What is cancelled alone counts no delivery.
        is_new = due_ms == state.message_types[ledger.definition.message_type].segment_of(bookmark).due_at_ms
        how = "published with a delay (deliver_after)" if is_new else "cancelled with a delay (retry_after or retry_backoff)"
        yield f"It waits until {to_text(due_ms)}: it was {how}."
    if bookmark in ledger.rows[State.HELD]:
        yield f"It waits: it is a barrier, which is given out when all before it are settled{_unsettled(ledger, bookmark)}."
    if bookmark in ledger.rows[State.INACTIVE]:
        yield "It waits: the queue holds as many active messages as its target_queue_depth says; others come first."
    held = ledger.rows[State.HELD]
    if held and held.min() < bookmark:
        barrier = held.min()
        yield f"It waits behind barrier {barrier}, which is given out when all before it are settled{_unsettled(ledger, barrier)}."
    yield from _reasons_of_consumers(state.definitions, ledger, bookmark, now_ms, heard)


def _reasons_of_consumers(definitions: Definitions, ledger: QueueLedger, bookmark: int, now_ms: int, heard: Heard) -> Iterator[str]:
    queue, only = ledger.definition.name, BitMap64([bookmark])
    known = [each for each in ledger.subscriptions.values() if not each.left]
    readers = [each for each in known if definitions.may_consume(each.principal, ledger.definition)]
    matching = [each for each in readers if all(bookmark in ledger.selection.matching(only, text) for text in each.filters)]
    if not known:
        yield f"It waits: queue '{queue}' has no consumer now. A stream or a receiver that starts would get it."
    elif not readers:
        yield f"It waits: its consumers no longer have the right to read queue '{queue}': {_who(known)}.{_of_letters(ledger)}"
    elif not matching:
        told = "; ".join(f"'{each.name}': {' AND '.join(each.filters)}" for each in readers)
        yield f"It waits: no subscription's filter matches it. {told}"
    if matching and all(each.is_stopped for each in matching):
        told = "; ".join(f"'{each.name}': {each.alarm.error}" for each in matching if each.alarm is not None)
        yield f"It waits: after an alarm its consumers try one message at a time. {told}"
    if ledger.dying(only) and matching and all(each.receives for each in matching):
        marks = ledger.marks.of(bookmark)
        yield (
            f"It waits: {marks} receivers ended without a word while they had it, so it is given out alone, to one that has "
            "nothing else in hand."
        )
    if matching and all(each.barriers and each.barriers.min() < bookmark for each in matching):
        barrier = min(each.barriers.min() for each in matching)
        yield f"It waits behind barrier {barrier}, which each consumer is given first."
    if bookmark not in ledger.selection.heads(only):
        yield f"It waits behind message {_ahead_of(ledger, bookmark)}."
    if matching:
        yield _turn(ledger, matching, bookmark, now_ms, heard)


def _who(subscriptions: Iterable[Subscription]) -> str:
    owners = ((each.name, "no principal" if each.principal is None else f"principal '{each.principal}'") for each in subscriptions)
    return ", ".join(f"'{name}' ({owner})" for name, owner in owners)


def _of_letters(ledger: QueueLedger) -> str:
    """Return the note that a right with a filter is void in a dead-letter queue, where no filter is evaluated."""
    return " A right with a filter does not count in a dead-letter queue." if ledger.definition.underlying_topic is None else ""


def _unsettled(ledger: QueueLedger, barrier: int) -> str:
    """Return the messages that a barrier waits for, as a text."""
    waiting = BitMap64.union(*(ledger.rows[each] for each in IN_QUEUE))
    waiting.remove_range(barrier, waiting.max() + 1)
    return f": {len(waiting):,} are not, and the oldest is message {waiting.min()}" if waiting else ""


def _ahead_of(ledger: QueueLedger, bookmark: int) -> str:
    """Return the message for which another one of its key waits, as a text: a leased one, or else the oldest."""
    keys = ledger.selection.order_keys
    standing = BitMap64.union(keys.under_lease, *(ledger.rows[each] for each in IN_QUEUE))
    own, (bookmarks, hashes) = keys.keys_of(BitMap64([bookmark]))[1], keys.keys_of(standing)
    of_key = from_array(bookmarks[hashes == own[0]])
    held = of_key & keys.under_lease
    first = (held or of_key).min()
    where = next((f"is {state}" for state in IN_QUEUE if first in ledger.rows[state]), "is not proven")
    where = next((f"'{lease.subscription}' has in hand" for lease in ledger.leases.values() if held and first in lease.rows), where)
    return f"{first} of its order_key, which {where}"


def _turn(ledger: QueueLedger, matching: list[Subscription], bookmark: int, now_ms: int, heard: Heard) -> str:
    backlogs = ledger.backlogs()
    if left_within(ledger, backlogs) <= 0:
        return counted(
            f"It waits: consumers have {backlogs.total():,} message(s) of the queue in hand, as many as its max_backlog allows."
        )
    full = [each for each in matching if room_within(ledger, each, backlogs) <= 0]
    if len(full) == len(matching):
        told = ", ".join(f"'{each.name}' has {backlogs[each.name]:,} in hand" for each in full)
        return f"It waits: each consumer has as many messages in hand as it may: {told}. They get more as they settle some."
    older = ledger.rows[State.AVAILABLE].rank(bookmark) - (bookmark in ledger.rows[State.AVAILABLE])
    queue, seen = ledger.definition.name, []
    for each in matching:
        seen_ms = seen_at_ms(each.last_seen_at_ms, heard, queue=queue, subscription=each.name, now_ms=now_ms)
        seen.append(f"'{each.name}' {max(0, now_ms - seen_ms) // 1_000:,} s ago")
    alone = (
        ""
        if heard
        else (" That is by the log alone: polls that find nothing leave no record, and no coordinator runs that knows of them.")
    )
    told = f"{older:,} of the messages that may be given out are older"
    return f"It waits for its turn: {told}. Consumers that may take it were last heard: {', '.join(seen)}.{alone}"
