"""Dead letters: which there are, and giving them back to their queue."""

from __future__ import annotations

from dataclasses import replace

from pyroaring import BitMap64

from spark_queue.core import records
from spark_queue.core.bitmaps.ranges import to_bitmap, to_ranges
from spark_queue.core.commands import FindDeadLetters, Redrive
from spark_queue.core.deciding.instances.claims import claim, claimable
from spark_queue.core.deciding.outcomes import check_ranges
from spark_queue.core.deciding.removal import remove
from spark_queue.core.deciding.unit_of_work import UnitOfWork
from spark_queue.core.records import Removal
from spark_queue.core.replies import DeadLetters, Redriven
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.letters import dead_letters, free_letters, unlettered_elsewhere, waiting_letters
from spark_queue.core.state.lifecycle import State


def find_dead_letters(work: UnitOfWork, command: FindDeadLetters) -> DeadLetters:
    """Name the dead letters that are free to go; changes nothing."""
    rows = work.visible_to_caller(dead_letters(work.state, command.queue, command.where))
    free = rows & (free_letters(work.state, command.queue) | _lost_letters(work))
    return DeadLetters(ranges=tuple(to_ranges(free)), skipped=len(rows) - len(free))


def _lost_letters(work: UnitOfWork) -> BitMap64:
    """Return the letters of owners that cannot be reached, which a redrive claims."""
    letters = work.dead_letters
    return BitMap64() if letters is None else claimable(replace(work, ledger=letters))


def redrive(work: UnitOfWork, command: Redrive) -> Redriven:
    """Give dead letters back to their queue, with the same bookmarks and as if never delivered.

    Letters that are leased or settled in the dead-letter queue stay, and so do messages that are no dead letters.
    """
    letters = work.dead_letters
    there = work if letters is None else replace(work, ledger=letters)
    lost = _lost_letters(work)
    # A file that has to be read to hide messages may be gone, so that is found out before anything is recorded.
    named = work.visible_to_caller(_named(work.state, command) & (work.ledger.rows[State.DEAD] | lost))
    claim(there, named & lost)
    free = named & free_letters(work.state, command.queue)
    if free:
        if letters is not None and free.intersect(letters.entered):
            work.emit(records.Redriven(), free & letters.entered, queue=letters.definition.name)
        work.emit(records.Redriven(), free)
    return _redriven(command, len(free))


def redriven_before(state: JournalState, command: Redrive) -> Redriven:
    """Answer a redrive that took effect before, and whose reply was lost."""
    left = _named(state, command) & state.ledger(command.queue).rows[State.DEAD]
    return _redriven(command, _messages(command) - len(left))


def redriven_of_seen(work: UnitOfWork, command: Redrive) -> Redriven:
    """Answer the same to somebody from whom messages are hidden: those count as skipped, wherever they are (R12)."""
    seen = work.visible_to_caller(_named(work.state, command) & work.ledger.entered)
    return _redriven(command, len(seen - work.ledger.rows[State.DEAD]))


def _named(state: JournalState, command: Redrive) -> BitMap64:
    """Return the bookmarks that are named, and that there are: a bitmap of an absurd range would fill the memory."""
    check_ranges(command.queue, command.ranges)
    entered_until = state.message_types[state.ledger(command.queue).definition.message_type].entered_until
    return to_bitmap([(first, min(until, entered_until)) for first, until in command.ranges if first < entered_until])


def _messages(command: Redrive) -> int:
    return sum(until - first for first, until in command.ranges)


def _redriven(command: Redrive, redriven: int) -> Redriven:
    requested = _messages(command)
    return Redriven(requested=requested, redriven=redriven, skipped=requested - redriven)


def purge_old(work: UnitOfWork) -> None:
    """Remove the dead letters that are older than `dead_letter_retention`; a leased one waits for the end of its lease."""
    ledger, retention_ms = work.ledger, work.ledger.definition.dead_letter_retention_ms
    if retention_ms is None or ledger.dead_letters.oldest_ms is None:
        return
    if ledger.dead_letters.oldest_ms > work.now_ms - retention_ms or work.are_letters_unknown:
        return
    old, letters = ledger.dead_letters.before(work.now_ms - retention_ms), work.dead_letters
    # Each instance removes its own; what was lost stays until somebody has taken note of it (R155).
    old -= unlettered_elsewhere(ledger, letters) | ledger.dead_letters.lost
    if letters is not None:
        old -= letters.rows[State.LEASED] | letters.rows[State.REMOTE]
    remove(work, old, Removal.PURGED)
    there = BitMap64() if letters is None else old & (waiting_letters(letters) | letters.rows[State.DEAD])
    if letters is not None and there:
        work.emit(records.Removed(), there, queue=letters.definition.name, reason=Removal.PURGED)


def end_settled(work: UnitOfWork) -> None:
    """Let letters end that were settled in the dead-letter queue while their source was set aside (R122, DESIGN 15.11)."""
    letters = work.dead_letters
    settled = BitMap64() if letters is None else work.ledger.rows[State.DEAD] & letters.rows[State.REMOVED]
    if letters is not None and settled:
        work.emit(records.Removed(settled_in=letters.definition.name), settled, reason=Removal.ACKNOWLEDGED)
