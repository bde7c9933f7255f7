"""A check of a queue, for jobs that end and have to report on it: findings that somebody should look at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spark_queue.core.replies import AttemptTold
from spark_queue.core.state.in_doubt import attempt_summary, in_doubt
from spark_queue.core.state.lease import Lease
from spark_queue.core.state.ledger import QueueLedger
from spark_queue.core.state.letter_kinds import LetterChoice, LetterKind, letter_kinds
from spark_queue.core.state.letters import standing_letters
from spark_queue.views.journal_view import JournalView, queue_status


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueCheck:
    """Findings about one queue that a job fails for."""

    #: The place of its journal.
    journal: str
    queue: str
    #: Dead letters that stand and died since the moment that was asked for, by reason and error, the latest kind first.
    dead_letters: Sequence[LetterKind]
    #: As `status` says it; None when all is well.
    alarm: str | None
    #: Batches of which nobody knows whether they stand in their sink, and whose consumer is gone.
    in_doubt: Sequence[AttemptTold]
    #: Messages in the queue.
    queue_depth: int
    #: Whether messages in the queue are something to look at, too.
    wants_empty: bool = False

    @property
    def findings(self) -> list[str]:
        """The findings, a sentence each, with the next step; empty when all is well."""
        found = [
            f"Dead letters: {len(kind.rows):,} ({kind.reason}{'' if kind.error is None else f': {kind.error}'})."
            for kind in self.dead_letters
        ]
        if self.alarm is not None:
            found.append(f"Alarm: {self.alarm}")
        found += [
            f"In doubt: attempt {each.attempt} of subscription '{each.subscription}' at '{each.table}'. "
            f"Start the job again, or run `sparkq decide {self.journal} {self.queue}`."
            for each in self.in_doubt
        ]
        if self.wants_empty and self.queue_depth:
            found.append(f"Left in the queue: {self.queue_depth:,}.")
        return found

    @property
    def exit_code(self) -> int:
        """The exit code of a job: 0 when all is well, 3 when somebody should look."""
        return 3 if self.findings else 0

    def __str__(self) -> str:
        return "\n".join(self.findings) or f"Queue '{self.queue}': all is well."


def check_queue(view: JournalView, queue: str, *, choice: LetterChoice, wants_empty: bool) -> QueueCheck:
    """Return the findings about a queue at one moment."""
    status, ledger = queue_status(view, queue), view.state.queues.get(queue)
    # Nothing else is known of a queue that is set aside, and that is an alarm.
    letters = () if ledger is None else choice.of(standing_letters(view.state, queue))
    gone = () if ledger is None else (each for each in in_doubt(ledger) if _is_gone(ledger, each, view.now_ms))
    return QueueCheck(
        journal=view.journal.store.path,
        queue=queue,
        dead_letters=letter_kinds(letters),
        alarm=status.alarm,
        in_doubt=tuple(map(attempt_summary, gone)),
        queue_depth=status.queue_depth,
        wants_empty=wants_empty,
    )


def _is_gone(ledger: QueueLedger, lease: Lease, now_ms: int) -> bool:
    """Return whether the consumer of a batch is gone: a batch that is being appended is in doubt, too."""
    return ledger.subscriptions[lease.subscription].left or lease.due_at_ms <= now_ms
