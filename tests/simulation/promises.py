"""What a world's log and checkpoints must show, whatever died: judged from the records, not from the core's state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Protocol

from pyroaring import BitMap64

from spark_queue.core.records import DEAD_LETTER_REASONS, HIDDEN, Kind, Outcome, Record, Removal, Return
from spark_queue.core.state.lifecycle import State
from tests.records import detail_of
from tests.simulation.checkpoint import Checkpoint
from tests.simulation.coordinator import QUEUE


class Consumer(Protocol):
    """One driver process after another on one checkpoint."""

    name: str
    checkpoint: Checkpoint
    #: What the last run of each lease's batch said of single rows.
    said: dict[int, dict[int, Outcome]]


class World(Protocol):
    """What is judged: a log, and who consumed."""

    @property
    def log(self) -> Sequence[Record]:
        """The committed records."""
        ...

    @property
    def by_hand(self) -> AbstractSet[str]:
        """Ids of what an operator asked for."""
        ...

    @property
    def consumers(self) -> Sequence[Consumer]:
        """Everybody with a checkpoint."""
        ...

    def is_barrier(self, bookmark: int) -> bool:
        """Return which messages were published as barriers."""
        ...


def committed_rows(world: World) -> BitMap64:
    """Return what stood in a batch that Spark committed, as a stateful query would have counted it."""
    contents = (rows for each in world.consumers for rows in each.checkpoint.contents[: each.checkpoint.committed])
    return BitMap64.union(BitMap64(), *contents)


def rows_of(record: Record) -> Iterator[int]:
    """Yield the bookmarks that a record speaks of."""
    for first, until in record.ranges:
        yield from range(first, until)


def removals_from_another_lease(world: World) -> list[tuple[int, int]]:
    """Return (record, bookmark) of every removal in the name of one lease while another lease held the message (P5).

    A dead letter whose body is lost later is a lost one from then on, in nobody's name (R155).
    """
    holder: dict[int, int | None] = {}
    letters: set[int] = set()
    wrong = []
    for record in world.log:
        if record.queue != QUEUE:
            continue
        for row in rows_of(record):
            if record.kind in (Kind.GRANTED, Kind.RESUMED):
                holder[row] = record.lease
                letters.discard(row)
            elif record.kind == Kind.RETURNED:
                holder[row] = None
            elif record.kind == Kind.REMOVED:
                is_own = holder.get(row) in (None, record.lease) or (record.reason == Removal.LOST and row in letters)
                if not is_own and not is_by_hand(world, record):
                    wrong.append((record.record, row))
                if record.reason in DEAD_LETTER_REASONS:
                    letters.add(row)
    return wrong


def granted_past_age(world: World, expiration_ms: int) -> list[tuple[int, int]]:
    """Return (record, bookmark) of every grant of a message that was past its age by the time of that record (R50 to R52)."""
    begun_ms: dict[int, int] = {}
    wrong = []
    for record in world.log:
        if record.kind == Kind.ENTERED and record.message_type == getattr(world, "other_type", None):
            # Its bookmarks are other messages.
            continue
        if record.kind == Kind.ENTERED or (record.kind == Kind.REDRIVEN and record.queue == QUEUE):
            begun_ms |= dict.fromkeys(rows_of(record), record.at_ms)
        elif record.kind == Kind.GRANTED and record.queue == QUEUE and not detail_of(record).get("barrier"):
            wrong += [(record.record, row) for row in rows_of(record) if begun_ms[row] + expiration_ms <= record.at_ms]
    return wrong


def is_by_hand(world: World, record: Record) -> bool:
    """Return whether an operator asked for what a record says."""
    return asked_by(record) in world.by_hand


def asked_by(record: Record) -> str:
    """Return the request of which a record is the answer; those of principals stand behind their names."""
    return str(detail_of(record).get("request")).rpartition("/")[2]


def committed_after_disconnect(world: World) -> list[tuple[int, int]]:
    """Return (lease, bookmark) where a leave gave a message back although its batch was committed with it (P6)."""
    last: dict[tuple[int, int], str] = {}
    for record in world.log:
        if record.queue == QUEUE and record.kind in (Kind.GRANTED, Kind.RESUMED, Kind.RETURNED):
            for row in rows_of(record):
                last[int(record.lease or 0), row] = str(record.reason or record.kind)
    committed = {
        (lease, row)
        for driver in world.consumers
        for lease, rows in zip(driver.checkpoint.ends, driver.checkpoint.contents[: driver.checkpoint.committed], strict=False)
        for row in rows
    }
    return [key for key in committed if last.get(key) == Return.DISCONNECTED]


def expired_by_an_older_run(world: World) -> list[tuple[int, int]]:
    """Return (lease, bookmark) that a proof expired although the run that Spark committed did not say so (P4)."""
    said = {lease: rows for driver in world.consumers for lease, rows in driver.said.items()}
    wrong = []
    pending: list[tuple[int, int]] = []
    for record in world.log:
        if record.kind == Kind.PROVEN:
            # What an ended lease expired may stand right before another's proof.
            of_lease = [row for lease, row in pending if lease == record.lease]
            number = int(record.lease or 0)
            wrong += [(number, row) for row in of_lease if said.get(number, {}).get(row) != Outcome.EXPIRE]
        if record.kind in (Kind.REMOVED, Kind.DEAD_LETTERED, Kind.RETURNED):
            forced = record.queue == QUEUE and record.reason == Removal.FORCED_EXPIRE and not is_by_hand(world, record)
            pending += [(int(record.lease or 0), row) for row in rows_of(record)] if forced else []
        else:
            pending = []
    return wrong


def letters_not_ended_once(world: World, letters: str) -> list[tuple[int, int]]:
    """Return (record, bookmark) of whatever a message cannot do where it is, if it ends once and is in one queue only.

    It leaves its queue as a dead letter and comes back by a redrive, each from the other's state, until it is removed for good.
    In the dead-letter queue it enters and leaves in turn.
    """
    at: dict[tuple[str, int], State] = {}
    wrong = []
    for record in world.log:
        queue = str(record.queue)
        for row in rows_of(record) if queue in (QUEUE, letters) else ():
            allowed, after = _step(record, in_letters=queue == letters)
            found = at.get((queue, row), State.REMOVED if queue == letters else State.AVAILABLE)
            elsewhere = at.get((letters if queue == QUEUE else QUEUE, row))
            if found not in allowed or (record.kind == Kind.GRANTED and elsewhere == State.AVAILABLE):
                wrong.append((record.record, row))
            at[queue, row] = after or found
    return wrong


def _step(record: Record, *, in_letters: bool) -> tuple[tuple[State, ...], State | None]:
    """Return where messages may be that a record speaks of, and where they are after it."""
    match record.kind:
        case Kind.GRANTED | Kind.RESUMED:
            return (State.AVAILABLE,), None
        case Kind.REMOVED if record.reason in DEAD_LETTER_REASONS:
            return (State.AVAILABLE,), State.DEAD
        case Kind.REMOVED:
            return (State.AVAILABLE, State.DEAD), State.REMOVED
        case Kind.DEAD_LETTERED:
            return (State.REMOVED,), State.AVAILABLE
        case Kind.REDRIVEN:
            return ((State.AVAILABLE,), State.REMOVED) if in_letters else ((State.DEAD,), State.AVAILABLE)
        case _:
            return tuple(State), None


def removals_by_a_lease_from_before_a_redrive(world: World) -> list[tuple[int, int]]:
    """Return (record, bookmark) of every removal by a lease that has not held the message since it was redriven (P5)."""
    holders: dict[int, set[int | None]] = {}
    wrong = []
    for record in world.log:
        for row in rows_of(record) if record.queue == QUEUE else ():
            if record.kind == Kind.REDRIVEN:
                holders[row] = {None}
            elif record.kind in (Kind.GRANTED, Kind.RESUMED) and row in holders:
                holders[row].add(record.lease)
            elif record.kind == Kind.REMOVED and record.lease not in holders.get(row, {record.lease}):
                wrong.append((record.record, row))
    return wrong


def barriers_not_received_once(world: World) -> list[tuple[str, int]]:
    """Return (subscription, bookmark) of every barrier that stood in another number of committed batches than promised (R70).

    One for each subscription that its release names, and whose principal sees it to the end, none for another; and alone in its
    batch.
    """
    hidden = {
        (record.subscription, row)
        for record in world.log
        if record.queue == QUEUE and record.kind == Kind.BARRIER_RECEIVED and record.reason == HIDDEN
        for row in rows_of(record)
    }
    promised = {
        (name, row)
        for record in world.log
        if record.queue == QUEUE and record.kind == Kind.BARRIER_RELEASED
        for name in detail_of(record)["subscriptions"]
        for row in rows_of(record)
    }
    batches = [
        (driver.name, rows) for driver in world.consumers for rows in driver.checkpoint.contents[: driver.checkpoint.committed]
    ]
    received = [(name, row) for name, rows in batches for row in rows if world.is_barrier(row)]
    wrong = [each for each in promised - hidden if received.count(each) != 1]
    wrong += [each for each in received if each not in promised]
    return wrong + [(name, rows.min()) for name, rows in batches if len(rows) > 1 and any(map(world.is_barrier, rows))]


def granted_out_of_order(world: World) -> list[tuple[int, int]]:
    """Return record and bookmark of each message that was granted before a barrier it stands behind, or after one it stands before.

    R68, R69; dead letters that came back would be the exception, and nobody redrives here.
    """
    released = max_granted = -1
    wrong = []
    for record in world.log:
        if record.queue != QUEUE:
            continue
        rows = list(rows_of(record))
        if record.kind == Kind.BARRIER_RELEASED:
            wrong += [(record.record, row) for row in rows if row < max_granted]
            released = max(released, *rows)
        elif record.kind == Kind.GRANTED and not detail_of(record).get("barrier"):
            wrong += [(record.record, row) for row in rows if row < released]
            max_granted = max(max_granted, *rows)
    return wrong
