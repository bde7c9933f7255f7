"""Where dead letters go: back to their queue, or away for good when their time is over (DESIGN 15.11)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from pyroaring import BitMap64

from spark_queue.core.dead_letter import DeadLetter
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
    source = state.definitions.source_of(queue)
    if source is not None and not dead:
        reason = f"it is a dead-letter queue without dead letters of its own; what waits in it are those of queue '{source}'."
        next_step = f"Redrive queue '{source}'."
        raise CallerError("UNSUPPORTED_WRITE", what=f"Redriving queue '{queue}'", reason=reason, next_step=next_step)
    return dead if where is None else state.matching(ledger, where, dead)


def standing_letters(state: JournalState, queue: str) -> list[DeadLetter]:
    """Give a queue's dead letters, with why they died.

    Asked of a dead-letter queue, those of its source that are in it, and those that died again there: what died before there was
    one never comes. Asked of the source, also those.
    """
    ledger = state.ledger(queue)
    own, source = list(ledger.dead_letters), state.definitions.source_of(queue)
    if source is None:
        home = ledger.definition.dead_letter_queue
        # Logs of before do not say of a letter that was settled there that it is over.
        return own if home is None else _among(own, ledger.rows[State.DEAD] - state.ledger(home).rows[State.REMOVED])
    return [*_among(state.ledger(source).dead_letters, _waiting(ledger) | ledger.rows[State.LEASED]), *own]


def _among(letters: Iterable[DeadLetter], rows: BitMap64) -> list[DeadLetter]:
    return [replace(letter, rows=letter.rows & rows) for letter in letters if letter.rows.intersect(rows)]


def free_letters(state: JournalState, queue: str) -> BitMap64:
    """Give the dead letters of a queue that nobody has leased in its dead-letter queue, and that did not die again there."""
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
    remove(turn, old, Removal.PURGED)
    there = BitMap64() if letters is None else old & (_waiting(letters) | letters.rows[State.DEAD])
    if letters is not None and there:
        turn.emit(Kind.REMOVED, there, queue=letters.definition.name, reason=Removal.PURGED)


def end_settled(turn: Turn) -> None:
    """Let letters end that were settled in the dead-letter queue when logs did not say so of their source (DESIGN 15.11)."""
    letters = turn.dead_letters
    settled = BitMap64() if letters is None else turn.ledger.rows[State.DEAD] & letters.rows[State.REMOVED]
    if letters is not None and settled:
        turn.emit(Kind.REMOVED, settled, reason=Removal.ACKNOWLEDGED, detail={"settled_in": letters.definition.name})


def _waiting(letters: QueueLedger) -> BitMap64:
    return BitMap64.union(*(letters.rows[state] for state in (State.AVAILABLE, State.DELAYED, State.INACTIVE)))
