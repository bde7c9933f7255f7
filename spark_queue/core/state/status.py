"""Figures of a queue (R119), as far as one instance has them; everything that shows them asks here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from spark_queue.core.message_files.followed_table import FollowedTable, TablePlace
from spark_queue.core.records import Removal, Return
from spark_queue.core.replies import QueueStatus
from spark_queue.core.state.age import oldest_ms
from spark_queue.core.state.alarm import LONE_FAILURES_LIMIT, Alarm
from spark_queue.core.state.in_doubt import attempt_of, in_doubt
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.lease import Lease
from spark_queue.core.state.ledger import QueueLedger
from spark_queue.core.state.letters import standing_letters
from spark_queue.core.state.lifecycle import OWNED_HERE, State
from spark_queue.core.state.needed import DueFile, due_files
from spark_queue.errors import JournalError, counted


def queue_status(
    state: JournalState, queue: str, *, now_ms: int, troubles: Mapping[str, str] | None = None, damage: str | None = None,
    place: TablePlace | None = None,
) -> QueueStatus:  # fmt: skip
    """Return a queue's figures; `place` is that of its message type in the table that it follows.

    Their cost follows open leases and bitmaps, not messages: every poll of a stream asks for them.
    """
    ledger = state.ledger(queue)
    told = "; ".join(dict.fromkeys(each.error for each in alarms(state, ledger).values() if each.since_ms <= now_ms))
    # Into a queue for dead letters alone nothing enters from a log.
    trouble = (troubles or {}).get(ledger.definition.message_type) if ledger.definition.underlying_topic is not None else None
    message_type = state.message_types[ledger.definition.message_type]
    due = len(ledger.due(now_ms))
    granted = [lease.granted_at_ms for lease in ledger.leases.values() if ledger.outstanding(lease)]
    longest = min(_running(ledger, now_ms), key=lambda lease: lease.begun_at_ms, default=None)
    prepared = [attempt_of(lease).prepared_at_ms for lease in in_doubt(ledger)]
    removed = ledger.removed_counts
    acknowledged = removed[Removal.ACKNOWLEDGED] + removed[Removal.DELIVERED]
    return QueueStatus(
        queue=queue,
        message_type=ledger.definition.message_type,
        semantics=ledger.definition.semantics,
        paused=_is_paused(ledger),
        alarm=" ".join(dict.fromkeys(filter(None, [told, trouble, damage, _not_ended(ledger, now_ms)]))) or None,
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
        receivers=sum(each.receives for each in ledger.subscriptions.values()),
        outcomes_too_late=ledger.outcomes_too_late,
        seconds_behind=_age_s(oldest_ms(state, ledger, (ledger.rows[kind] for kind in OWNED_HERE)), now_ms),
        age_of_oldest_lease=_age_s(min(granted, default=None), now_ms),
        foreign_files=message_type.foreign_files,
        longest_batch_seconds=None if longest is None else _age_s(longest.begun_at_ms, now_ms),
        longest_batch_subscription=None if longest is None else longest.subscription,
        attempts_in_doubt=len(prepared),
        age_of_oldest_attempt=_age_s(min(prepared, default=None), now_ms),
        **_of_instances(state, ledger, now_ms),
        **_of_table(message_type.followed, place),
    )


def _of_table(known: FollowedTable | None, place: TablePlace | None) -> dict[str, Any]:
    """Return where a message type stands in the table that it follows, and what was passed over there (R141, R146, R147)."""
    if known is None:
        return {}
    found = known.figures(place)
    return {
        "table": found.table,
        "table_version": found.version,
        "table_versions_behind": found.behind,
        "table_changes": found.changes,
        "table_rows_passed": found.rows_passed,
        "table_set_aside": found.trouble is not None,
    }


def _of_instances(state: JournalState, ledger: QueueLedger, now_ms: int) -> dict[str, Any]:
    """Return the owners of the messages of a replicated queue, and the transfers by which they came here (R119)."""
    if not ledger.is_replicated:
        return {"owned": ledger.depth}
    ownership, remote = ledger.ownership, ledger.rows[State.REMOTE]
    asked = (each.since_ms for each in ownership.requests.values() if each.rows.intersect(remote))
    return {
        "owned": ledger.depth,
        "remote": len(remote),
        "age_of_oldest_remote": _age_s(oldest_ms(state, ledger, [remote]), now_ms),
        "age_of_oldest_request": _age_s(min(asked, default=None), now_ms),
        "transferred_in": ownership.came_from.total(),
        "transferred_out": ownership.given_to.total(),
        "proxied_transfer": ownership.claimed,
        "proxied_transfer_allowed": bool(ownership.claims_from),
    }


def urgency(*, alarm: str | None, paused: bool | None, dead_letters: int | None, depth: int | None) -> int:
    """Return the sort key by which queues that need a look come first: alarms, then pauses and letters, then work."""
    if alarm:
        return 0
    if paused or dead_letters:
        return 1
    return 2 if depth else 3


#: How long after its end a lease counts as one that nobody ends, in milliseconds: a coordinator does it at once.
NOT_ENDED_MS = 30_000


def _not_ended(ledger: QueueLedger, now_ms: int) -> str | None:
    """Return the alarm about leases that ran out and stand all the same: no coordinator runs, and no consumer starts one."""
    found = [
        lease
        for lease in ledger.leases.values()
        if lease.due_at_ms + NOT_ENDED_MS <= now_ms and ledger.outstanding(lease) and not lease.is_in_doubt
    ]
    if not found:
        return None
    whose = ", ".join(dict.fromkeys(f"'{lease.subscription}'" for lease in found))
    count = sum(len(ledger.outstanding(lease)) for lease in found)
    return (
        f"{count:,} message(s) are in leases that ran out, and no coordinator runs to end them: the consumer of subscription "
        f"{whose} hangs or is gone. They come back once a coordinator runs: start a consumer, or `sparkq serve`."
    )


def _running(ledger: QueueLedger, now_ms: int) -> Iterator[Lease]:
    """Yield the leases whose batch is not known to be over: not proven, and not at their end."""
    for lease in ledger.leases.values():
        is_over = lease.proven or lease.due_at_ms <= now_ms
        if not is_over and (lease.is_barrier or ledger.outstanding(lease)):
            yield lease


def alarms(state: JournalState, ledger: QueueLedger) -> dict[str, Alarm]:
    """Return the alarms of a queue, by their subject: a subscription, messages, or a peer's definitions.

    An alarm may begin later: unless something happens before.
    """
    found = {f"subscription '{each.name}'": each.alarm for each in ledger.subscriptions.values() if each.alarm is not None}
    stuck = ledger.lone_failures.at_least(LONE_FAILURES_LIMIT + 1, ledger.entered)
    if stuck and ledger.stuck is not None:
        text = f"{len(stuck):,} message(s) failed alone more than {LONE_FAILURES_LIMIT} times, first bookmark {stuck.min()}. "
        found["messages that fail alone"] = replace(ledger.stuck, error=f"{counted(text)}The last error: {ledger.stuck.error}")
    if ledger.clash is not None and not ledger.clashing.issubset(ledger.rows[State.REMOVED]):
        found["numbers that a publisher used twice"] = ledger.clash
    undecided = state.undecided(ledger)
    if undecided:
        since_ms = state.message_types[ledger.definition.message_type].segment_of(undecided.min()).entered_at_ms
        text = (
            f"{len(undecided):,} message(s) of other instances are in no queue yet, first bookmark {undecided.min()}: the instance "
            "that published them lacks the queue, or has set it aside. Define it there, or name an `initial_owner` that pulls from "
            "there"
        )
        found["messages that are undecided"] = Alarm(error=counted(text), since_ms=since_ms)
    found |= table_alarms(state, ledger)
    name, returning = ledger.definition.name, state.returning
    if returning is not None and returning.holds(name) and state.definitions.is_replicated(name):
        text = str(JournalError("RETURNING")).removesuffix(".")
        found["the return of this instance"] = Alarm(error=text, since_ms=returning.since_ms)
    return found | _of_sinks(ledger) | _of_peers(state, ledger.definition.name)


def table_alarms(state: JournalState, ledger: QueueLedger) -> dict[str, Alarm]:
    """Return the alarms about messages of a followed table whose file is gone, or may be soon (R155, R157)."""
    found, message_type = dict[str, Alarm](), ledger.definition.message_type
    if state.message_types[message_type].followed is None:
        # Each poll of a stream asks.
        return found
    facts: dict[str, object] = {"message_type": message_type, "queue": ledger.definition.name}
    lost = [letter for letter in ledger.dead_letters if letter.reason == Removal.LOST]
    if lost:
        rows = sum(len(letter.rows) for letter in lost)
        error = counted(str(JournalError("TABLE_ROWS_LOST", count=rows, what=str(lost[0].error), **facts)))
        found["messages that are lost"] = Alarm(error=error.removesuffix("."), since_ms=lost[0].removed_at_ms)
    standing = ledger.entered - ledger.rows[State.REMOVED]
    files = [(due, count) for due in due_files(state, message_type, among=standing) if (count := len(due.needed & standing))]
    if files:
        first = min((due for due, _ in files), key=lambda due: due.overdue_at_ms)
        rows, when = sum(count for _, count in files), _moment(first)
        error = counted(str(JournalError("TABLE_FILES_DUE", count=rows, files=len(files), when=when, **facts)))
        found["files that VACUUM may take"] = Alarm(error=error.removesuffix("."), since_ms=first.overdue_at_ms)
    return found


def _moment(file: DueFile) -> str:
    """Return when VACUUM may take a file, as people read it; its table's log may have named any time."""
    try:
        return f"from {datetime.fromtimestamp(file.taken_at_ms / 1_000, UTC).isoformat(timespec='seconds')} on"
    except (ValueError, OverflowError, OSError):
        return "at any time"


def _of_sinks(ledger: QueueLedger) -> dict[str, Alarm]:
    """Return an alarm for each attempt about which nobody could decide, or nobody decides (R125)."""
    found = {}
    for lease in in_doubt(ledger):
        attempt = attempt_of(lease)
        facts = {
            "attempt": attempt.number, "subscription": lease.subscription, "queue": ledger.definition.name, "table": attempt.table
        }  # fmt: skip
        if attempt.error is not None:
            code, since_ms = "SINK_UNFENCED" if attempt.is_read else "SINK_UNREADABLE", attempt.prepared_at_ms
            facts["reason"] = attempt.error
        else:
            # A lease period is the time that its stream, which may be on its way, has to come back.
            code, since_ms = "SINK_STILL_IN_DOUBT", lease.due_at_ms + ledger.definition.lease_period_ms
        text = str(JournalError(code, **facts)).removesuffix(".")
        found[f"the sink of subscription '{lease.subscription}'"] = Alarm(error=text, since_ms=since_ms)
    return found


def _of_peers(state: JournalState, queue: str) -> dict[str, Alarm]:
    """Return an alarm for each peer that is not pulled, and each rule that its definition of a queue breaks (R113; DESIGN 17.7)."""
    pulled = (name for name, peer in state.definitions.peers.items() if queue in peer.queues)
    found = {f"peer '{name}'": state.peer_troubles[name] for name in pulled if name in state.peer_troubles}
    for peer, disagreements in state.disagreements.items():
        mine = [each for each in disagreements if each.queue == queue]
        for rule in dict.fromkeys(each.rule for each in mine):
            broken = [each for each in mine if each.rule == rule]
            text = f"its definition and that of peer '{peer}' break {rule}: {' '.join(each.reason for each in broken)}"
            found[f"{rule} and peer '{peer}'"] = Alarm(error=text.removesuffix("."), since_ms=max(each.since_ms for each in broken))
    return found


def _is_paused(ledger: QueueLedger) -> bool:
    stopped = [each.is_stopped for each in ledger.subscriptions.values()]
    return ledger.paused or (bool(stopped) and all(stopped))


def _age_s(since_ms: int | None, now_ms: int) -> float | None:
    return None if since_ms is None else max(0, now_ms - since_ms) / 1_000
