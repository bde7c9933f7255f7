"""How a queue is doing: the figures of R119, as far as one instance has them; whoever shows them asks here."""

from __future__ import annotations

import html
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

from spark_queue.core.records import Removal, Return
from spark_queue.core.state.age import oldest_ms
from spark_queue.core.state.alarm import LONE_FAILURES_LIMIT, Alarm
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.lease import Lease
from spark_queue.core.state.ledger import QueueLedger
from spark_queue.core.state.letters import standing_letters
from spark_queue.core.state.lifecycle import IN_QUEUE, State


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStatus:
    """One queue's figures at one moment."""

    queue: str
    message_type: str
    semantics: str
    #: Whether nothing is granted until somebody unpauses the queue, or the alarm of every subscription has stopped it.
    paused: bool
    #: What somebody should look at, such as a subscription on whose sink every message fails; None when all is well.
    alarm: str | None
    #: Messages in the queue: available, leased, delayed, held or inactive.
    queue_depth: int
    available: int
    #: Messages given to subscriptions and not yet acknowledged, or lost again (R17, R23).
    backlog: int
    delayed: int
    #: Barriers that wait until nothing stands before them (R68), and those that were released to the subscriptions.
    held: int
    barriers_released: int
    #: Messages beyond the target depth (R79), and how many of them are acknowledged already (R83).
    inactive_message_count: int
    deferred_ack_count: int
    dead_letters: int
    #: Messages on which an expression failed as they came: they matched nothing, rank lowest, or are no barrier.
    failed_expressions: int
    #: Messages that ever entered, and what became of those that left.
    entered: int
    acknowledged: int
    expired: int
    #: Messages whose lease ran out: they came back, or, at most once, fill no backlog any more.
    expired_leases: int
    #: Most messages leased at once; 0 for no limit (R31).
    max_backlog: int
    #: Most messages that are active at once; 0 for no limit (R79).
    target_queue_depth: int
    subscriptions: int
    #: Age of the oldest message in the queue, in seconds, which a redrive, or the way into a dead-letter queue, begins anew; None
    #: when it is empty.
    seconds_behind: float | None
    #: Age of the oldest lease whose messages count in the backlog, in seconds; None without one.
    age_of_oldest_lease: float | None
    #: Message files that strangers appended to the type's table: no messages of the journal (JOURNAL_FOREIGN_APPEND).
    foreign_files: int
    #: How long the batch that runs for the longest has been running, in seconds, since its rows were granted or last taken up
    #: again, and which subscription's it is: one that hangs may well renew its lease. None when no batch runs.
    longest_batch_seconds: float | None = None
    longest_batch_subscription: str | None = None

    def _repr_html_(self) -> str:
        """Show it as a table in a notebook."""
        rows = (
            f"<tr><th>{entry.name.replace('_', ' ')}</th><td>{_shown(getattr(self, entry.name))}</td></tr>"
            for entry in fields(self)
        )
        return f"<table>{''.join(rows)}</table>"


def queue_status(state: JournalState, queue: str, *, now_ms: int) -> QueueStatus:
    """Give a queue's figures.

    Its cost follows open leases and bitmaps, not messages: every poll of a stream asks for them.

    Raises
    ------
    ConfigError
        UNKNOWN_QUEUE, naming the nearest.
    JournalError
        MESSAGE_FILE_MISSING, MESSAGE_FILE_CORRUPT when it cannot be told which messages are in the queue.
    """
    ledger = state.ledger(queue)
    message_type = state.message_types[ledger.definition.message_type]
    due = len(ledger.due(now_ms))
    granted = [lease.granted_at_ms for lease in ledger.leases.values() if ledger.outstanding(lease)]
    longest = min(_running(ledger, now_ms), key=lambda lease: lease.begun_at_ms, default=None)
    removed = ledger.removed_counts
    acknowledged = removed[Removal.ACKNOWLEDGED] + removed[Removal.DELIVERED]
    return QueueStatus(
        queue=queue,
        message_type=ledger.definition.message_type,
        semantics=ledger.definition.semantics,
        paused=_is_paused(ledger),
        # What speaks of all subscriptions, in a log of older software, is said once.
        alarm="; ".join(dict.fromkeys(each.error for each in alarms(ledger).values())) or None,
        queue_depth=ledger.depth,
        available=len(ledger.rows[State.AVAILABLE]) + due,
        backlog=ledger.backlogs().total(),
        delayed=len(ledger.rows[State.DELAYED]) - due,
        held=len(ledger.rows[State.HELD]),
        barriers_released=len(ledger.barriers & ledger.rows[State.REMOVED]),
        inactive_message_count=len(ledger.rows[State.INACTIVE]),
        deferred_ack_count=len(ledger.deferred_after(now_ms)),
        dead_letters=sum(len(letter.rows) for letter in standing_letters(state, queue)),
        failed_expressions=ledger.failed_expressions,
        entered=len(ledger.entered),
        acknowledged=acknowledged,
        expired=sum(removed.values()) - acknowledged,
        expired_leases=ledger.returned_counts[Return.LEASE_EXPIRED],
        max_backlog=ledger.definition.max_backlog,
        target_queue_depth=ledger.definition.target_queue_depth,
        subscriptions=len(ledger.subscriptions),
        seconds_behind=_age_s(oldest_ms(state, ledger, (ledger.rows[kind] for kind in IN_QUEUE)), now_ms),
        age_of_oldest_lease=_age_s(min(granted, default=None), now_ms),
        foreign_files=message_type.foreign_files,
        longest_batch_seconds=None if longest is None else _age_s(longest.begun_at_ms, now_ms),
        longest_batch_subscription=None if longest is None else longest.subscription,
    )


def _running(ledger: QueueLedger, now_ms: int) -> Iterator[Lease]:
    """Give the leases whose batch is not known to be over: not proven, and not at their end."""
    for lease in ledger.leases.values():
        is_over = lease.proven or lease.due_at_ms <= now_ms
        if not is_over and (lease.is_barrier or ledger.outstanding(lease)):
            yield lease


def alarms(ledger: QueueLedger) -> dict[str, Alarm]:
    """Give what somebody should look at, by subscription; under no name the messages that failed alone too often."""
    found = {each.name: each.alarm for each in ledger.subscriptions.values() if each.alarm is not None}
    stuck = ledger.lone_failures.at_least(LONE_FAILURES_LIMIT + 1, ledger.entered)
    if stuck and ledger.stuck is not None:
        text = f"{len(stuck):,} message(s) failed alone more than {LONE_FAILURES_LIMIT} times, first bookmark {stuck.min()}. "
        found[""] = replace(ledger.stuck, error=f"{text}The last error: {ledger.stuck.error}")
    return found


def _is_paused(ledger: QueueLedger) -> bool:
    stopped = [each.is_stopped for each in ledger.subscriptions.values()]
    return ledger.paused or (bool(stopped) and all(stopped))


def _age_s(since_ms: int | None, now_ms: int) -> float | None:
    return None if since_ms is None else max(0, now_ms - since_ms) / 1_000


def _shown(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int | float) else html.escape(str(value))
