"""Which dead letters a queue has, wherever they are now: in it, or in its dead-letter queue (DESIGN 15.11)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from pyroaring import BitMap64

from spark_queue.core.message_files.segment import Letters
from spark_queue.core.records import COUNT_MAX
from spark_queue.core.state.dead_letter import DeadLetter
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.ledger import QueueLedger
from spark_queue.core.state.lifecycle import State
from spark_queue.errors import CallerError


def dead_letters(state: JournalState, queue: str, where: str | None) -> BitMap64:
    """Return the dead letters of a queue, or those that match a filter, wherever they are now."""
    ledger = state.ledger(queue)
    dead = ledger.rows[State.DEAD].copy()
    source = state.definitions.source_of(queue)
    if source is not None and not dead:
        reason = f"it is a dead-letter queue without dead letters of its own; it holds those of queue '{source}'."
        next_step = f"Redrive queue '{source}'."
        raise CallerError("UNSUPPORTED_WRITE", what=f"Redriving queue '{queue}'", reason=reason, next_step=next_step)
    return dead if where is None else state.matching(ledger, where, dead, letter_facts(ledger.dead_letters))


def letter_facts(letters: Iterable[DeadLetter]) -> Letters:
    """Return the facts of dead letters that a filter may ask for beside their messages."""
    return [(each.rows, each.reason, each.error) for each in letters]


def standing_letters(state: JournalState, queue: str) -> list[DeadLetter]:
    """Return the letters of `queue`: as a source, those it sent; as a dead-letter queue, those it holds or that died again there.

    A message that died before there was a dead-letter queue never comes into it: its letter is among those of the source alone.
    """
    ledger = state.ledger(queue)
    own, source = list(ledger.dead_letters), state.definitions.source_of(queue)
    if source is None:
        home = state.queues.get(ledger.definition.dead_letter_queue or "")
        # Of one that was settled there while this queue was set aside, only the next reign records that it is over.
        return own if home is None else _among(own, ledger.rows[State.DEAD] - home.rows[State.REMOVED])
    # One that another instance owns can be looked at.
    here = waiting_letters(ledger) | ledger.rows[State.LEASED] | ledger.rows[State.REMOTE]
    # While the source is set aside, their reasons are not known.
    told = state.queues[source].dead_letters if source in state.queues else ()
    return [*_among(told, here), *own]


def free_letters(state: JournalState, queue: str) -> BitMap64:
    """Return the dead letters of a queue that nobody has leased in its dead-letter queue, and that did not die again there.

    Those whose body is gone for good are nobody's to redrive.

    Letters in no dead-letter queue belong to the instance where they died; those that wait there are those that this instance owns.
    """
    ledger = state.ledger(queue)
    dead, home = ledger.rows[State.DEAD].copy(), ledger.definition.dead_letter_queue
    letters = None if home is None else state.ledger(home)
    if letters is not None:
        dead -= letters.entered - waiting_letters(letters)
    dead -= unlettered_elsewhere(ledger, letters) | ledger.dead_letters.lost
    return dead - ledger.ownership.of_life(dead, COUNT_MAX)


def unlettered_elsewhere(ledger: QueueLedger, letters: QueueLedger | None) -> BitMap64:
    """Return the messages that are in no dead-letter queue and that another instance owns: their letters are its business."""
    return ledger.ownership.remote if letters is None else ledger.ownership.remote - letters.entered


def waiting_letters(letters: QueueLedger) -> BitMap64:
    """Return the letters that wait in a dead-letter queue: nobody has them leased."""
    return BitMap64.union(*(letters.rows[state] for state in (State.AVAILABLE, State.DELAYED, State.INACTIVE)))


def _among(letters: Iterable[DeadLetter], rows: BitMap64) -> list[DeadLetter]:
    return [replace(letter, rows=letter.rows & rows) for letter in letters if letter.rows.intersect(rows)]
