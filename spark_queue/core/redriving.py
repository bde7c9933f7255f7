"""Where dead letters go: back to their queue, or away for good when their time is over (DESIGN 15.11)."""

from __future__ import annotations

from pyroaring import BitMap64

from spark_queue.core.fold import JournalState
from spark_queue.core.ledger import QueueLedger
from spark_queue.core.lifecycle import State
from spark_queue.core.records import Kind, Removal
from spark_queue.core.removal import remove
from spark_queue.core.turn import Turn
from spark_queue.errors import CallerError


def dead_letters(state: JournalState, queue: str, where: str | None) -> BitMap64:
    """Give the dead letters of a queue, or those that match a filter, wherever they are now.

    Raises
    ------
    CallerError
        UNSUPPORTED_WRITE for a dead-letter queue without dead letters of its own: those that wait in it are its source's.
    """
    ledger = state.ledger(queue)
    dead = ledger.rows[State.DEAD].copy()
    source = _source_of(state, queue)
    if source is not None and not dead:
        name = source.definition.name
        reason = f"it is a dead-letter queue without dead letters of its own; what waits in it are those of queue '{name}'."
        next_step = f"Redrive queue '{name}'."
        raise CallerError("UNSUPPORTED_WRITE", what=f"Redriving queue '{queue}'", reason=reason, next_step=next_step)
    return dead if where is None else state.matching(ledger, where, dead)


def standing_letters(state: JournalState, queue: str) -> tuple[QueueLedger, BitMap64]:
    """Give a queue's dead letters that are not settled yet, and the ledger that knows why they died.

    Asked of a dead-letter queue, those of its source that came to it: what died before there was one never does.
    """
    ledger = state.ledger(queue)
    source = _source_of(state, queue) or ledger
    dead, home = source.rows[State.DEAD].copy(), source.definition.dead_letter_queue
    if home is not None:
        letters = state.ledger(home)
        dead -= letters.rows[State.REMOVED]
        if source is not ledger:
            dead &= letters.entered
    return source, dead


def free_letters(state: JournalState, queue: str) -> BitMap64:
    """Give the dead letters of a queue that nobody has leased or settled in its dead-letter queue."""
    ledger = state.ledger(queue)
    dead, home = ledger.rows[State.DEAD].copy(), ledger.definition.dead_letter_queue
    if home is not None:
        letters = state.ledger(home)
        dead -= letters.entered - _waiting(letters)
    return dead


def redrive(turn: Turn, rows: BitMap64) -> int:
    """Give dead letters back to their queue, with the same bookmarks and as if never delivered; gives how many.

    What is leased or settled in the dead-letter queue stays, and so does what is no dead letter.
    """
    letters = turn.dead_letters
    free = rows & free_letters(turn.state, turn.ledger.definition.name)
    if free:
        if letters is not None and free.intersect(letters.entered):
            turn.emit(Kind.REDRIVEN, free & letters.entered, queue=letters.definition.name)
        turn.emit(Kind.REDRIVEN, free)
    return len(free)


def purge_old(turn: Turn) -> None:
    """Remove the dead letters that are older than `dead_letter_retention`; what is leased waits for the end of its lease."""
    ledger, retention_ms = turn.ledger, turn.ledger.definition.dead_letter_retention_ms
    if retention_ms is None or ledger.dead_letters.oldest_ms is None:
        return
    if ledger.dead_letters.oldest_ms > turn.now_ms - retention_ms:
        return
    old, letters = ledger.dead_letters.before(turn.now_ms - retention_ms), turn.dead_letters
    if letters is not None:
        old -= letters.rows[State.LEASED]
        waiting = old & _waiting(letters)
        if waiting:
            turn.emit(Kind.REMOVED, waiting, queue=letters.definition.name, reason=Removal.PURGED)
    remove(turn, old, Removal.PURGED)


def _source_of(state: JournalState, queue: str) -> QueueLedger | None:
    """Give the queue whose dead letters come to this one; there is one at most."""
    return next((each for each in state.queues.values() if each.definition.dead_letter_queue == queue), None)


def _waiting(letters: QueueLedger) -> BitMap64:
    return BitMap64.union(*(letters.rows[state] for state in (State.AVAILABLE, State.DELAYED, State.INACTIVE)))
