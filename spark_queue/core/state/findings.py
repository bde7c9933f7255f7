"""Findings about a queue: everything that somebody should look at, since when, and the command that mends it (R119).

Whoever shows one asks here: the figure `alarm`, the coordinator's log, `sparkq verify`, and the page.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from spark_queue.core.bitmaps.ranges import oldest
from spark_queue.core.records import Removal
from spark_queue.core.state.age import oldest_ms
from spark_queue.core.state.alarm import LONE_FAILURES_LIMIT
from spark_queue.core.state.in_doubt import attempt_of, in_doubt
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.lease import Lease
from spark_queue.core.state.ledger import QueueLedger
from spark_queue.core.state.letter_kinds import LetterChoice, letter_kinds
from spark_queue.core.state.letters import standing_letters
from spark_queue.core.state.lifecycle import State
from spark_queue.core.state.log_history import Histogram, QueueHistory
from spark_queue.core.state.needed import DueFile, due_files
from spark_queue.core.state.sparkq_command import SparkqCommand
from spark_queue.errors import MESSAGE_FILE_CODES, JournalError, counted


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFinding:
    """Something about a queue, or about all queues of a journal, that somebody should look at."""

    text: str
    #: Since when it is so, in milliseconds; 0 where no record tells.
    since_ms: int
    command: SparkqCommand
    #: Whether it makes an alarm of the queue.
    is_alarm: bool = True
    #: Whether it has paused a subscription, which tries one message at a time.
    pauses: bool = False


def joined(findings: Iterable[QueueFinding]) -> str | None:
    """Return the alarms among findings as one text; None without any."""
    texts = dict.fromkeys(each.text for each in findings if each.is_alarm)
    return "; ".join(texts).replace(".; ", ". ") or None


def alarms(state: JournalState, ledger: QueueLedger) -> dict[str, QueueFinding]:
    """Return the alarms of a queue that the log tells, by their subject: a subscription, messages, or a peer's definitions.

    An alarm may begin later: unless something happens before.
    """
    name, found = ledger.definition.name, dict[str, QueueFinding]()
    for each in ledger.subscriptions.values():
        if each.alarm is not None:
            found[f"subscription '{each.name}'"] = QueueFinding(
                text=each.alarm.error,
                since_ms=each.alarm.since_ms,
                command=SparkqCommand("unpause", (name,)),
                pauses=each.is_stopped,
            )
    stuck = ledger.lone_failures.at_least(LONE_FAILURES_LIMIT + 1, ledger.entered)
    if stuck and ledger.stuck is not None:
        text = f"{len(stuck):,} message(s) failed alone more than {LONE_FAILURES_LIMIT} times, first bookmark {stuck.min()}. "
        found["messages that fail alone"] = QueueFinding(
            text=f"{counted(text)}The last error: {ledger.stuck.error}", since_ms=ledger.stuck.since_ms,
            command=_explain(name, stuck.min()),
        )  # fmt: skip
    clashing = ledger.clashing - ledger.rows[State.REMOVED]
    if ledger.clash is not None and clashing:
        found["numbers that a publisher used twice"] = QueueFinding(
            text=ledger.clash.error, since_ms=ledger.clash.since_ms, command=_explain(name, clashing.min())
        )
    undecided = state.undecided(ledger)
    if undecided:
        since_ms = state.message_types[ledger.definition.message_type].segment_of(undecided.min()).entered_at_ms
        text = (
            f"{len(undecided):,} message(s) of other instances are in no queue yet, first bookmark {undecided.min()}: the instance "
            "that published them lacks the queue, or has set it aside. Define it there, or name an `initial_owner` that pulls from "
            "there"
        )
        found["messages that are undecided"] = QueueFinding(
            text=counted(text), since_ms=since_ms, command=SparkqCommand("peers check")
        )
    found |= table_alarms(state, ledger)
    returning = state.returning
    if returning is not None and returning.holds(name) and state.definitions.is_replicated(name):
        text = str(JournalError("RETURNING")).removesuffix(".")
        found["the return of this instance"] = QueueFinding(
            text=text, since_ms=returning.since_ms, command=SparkqCommand("peers status")
        )  # fmt: skip
    return found | _of_sinks(ledger) | _of_peers(state, name)


def table_alarms(state: JournalState, ledger: QueueLedger) -> dict[str, QueueFinding]:
    """Return the alarms about messages of a followed table whose file is gone, or may be soon (R155, R157)."""
    found, message_type = dict[str, QueueFinding](), ledger.definition.message_type
    if state.message_types[message_type].followed is None:
        # Each poll of a stream asks.
        return found
    facts: dict[str, object] = {"message_type": message_type, "queue": ledger.definition.name}
    lost = [letter for letter in ledger.dead_letters if letter.reason == Removal.LOST]
    if lost:
        rows = sum(len(letter.rows) for letter in lost)
        error = counted(str(JournalError("TABLE_ROWS_LOST", count=rows, what=str(lost[0].error), **facts)))
        found["messages that are lost"] = QueueFinding(
            text=error.removesuffix("."), since_ms=lost[0].removed_at_ms,
            command=SparkqCommand("follow", (message_type,), ("--forget-lost",)),
        )  # fmt: skip
    standing = ledger.entered - ledger.rows[State.REMOVED]
    files = [(due, count) for due in due_files(state, message_type, among=standing) if (count := len(due.needed & standing))]
    if files:
        first = min((due for due, _ in files), key=lambda due: due.overdue_at_ms)
        rows, when = sum(count for _, count in files), vacuum_time(first)
        error = counted(str(JournalError("TABLE_FILES_DUE", count=rows, files=len(files), when=when, **facts)))
        found["files that VACUUM may take"] = QueueFinding(
            text=error.removesuffix("."), since_ms=first.overdue_at_ms, command=SparkqCommand("follow", (), ("--catch-up",))
        )
    return found


def vacuum_time(file: DueFile) -> str:
    """Return when VACUUM may take a file, as people read it; its table's log may have named any time."""
    try:
        return f"from {_utc(file.taken_at_ms)} on"
    except (ValueError, OverflowError, OSError):
        return "at any time"


def _of_sinks(ledger: QueueLedger) -> dict[str, QueueFinding]:
    """Return an alarm for each attempt about which nobody could decide, or nobody decides (R125)."""
    found, queue = {}, ledger.definition.name
    for lease in in_doubt(ledger):
        attempt = attempt_of(lease)
        facts = {"attempt": attempt.number, "subscription": lease.subscription, "queue": queue, "table": attempt.table}
        if attempt.error is not None:
            code, since_ms = "SINK_UNFENCED" if attempt.is_read else "SINK_UNREADABLE", attempt.prepared_at_ms
            facts["reason"] = attempt.error
        else:
            # A lease period is the time that its stream, which may be on its way, has to come back.
            code, since_ms = "SINK_STILL_IN_DOUBT", lease.due_at_ms + ledger.definition.lease_period_ms
        text = str(JournalError(code, **facts)).removesuffix(".")
        found[f"the sink of subscription '{lease.subscription}'"] = QueueFinding(
            text=text, since_ms=since_ms, command=_decide(queue, lease)
        )  # fmt: skip
    return found


def _of_peers(state: JournalState, queue: str) -> dict[str, QueueFinding]:
    """Return an alarm for each peer that is not pulled, and each rule that its definition of a queue breaks (R113; DESIGN 17.7)."""
    found = dict[str, QueueFinding]()
    for name, peer in state.definitions.peers.items():
        if queue in peer.queues and name in state.peer_troubles:
            trouble = state.peer_troubles[name]
            command = SparkqCommand("peers status")
            found[f"peer '{name}'"] = QueueFinding(text=trouble.error, since_ms=trouble.since_ms, command=command)
    for peer_name, disagreements in state.disagreements.items():
        mine = [each for each in disagreements if each.queue == queue]
        for rule in dict.fromkeys(each.rule for each in mine):
            broken = [each for each in mine if each.rule == rule]
            text = f"its definition and that of peer '{peer_name}' break {rule}: {' '.join(each.reason for each in broken)}"
            found[f"{rule} and peer '{peer_name}'"] = QueueFinding(
                text=text.removesuffix("."), since_ms=max(each.since_ms for each in broken), command=SparkqCommand("peers check")
            )
    return found


#: How long after its end a lease counts as one that nobody ends, in milliseconds: a coordinator does it at once.
NOT_ENDED_MS = 30_000


def standing_alarms(
    state: JournalState, ledger: QueueLedger, *, now_ms: int, trouble: str | None, damage: str | None
) -> list[QueueFinding]:
    """Return the alarms of a queue that hold now.

    `trouble` keeps messages of its message type from entering, and `damage` is that of the message files that are needed next.
    """
    found = [each for each in alarms(state, ledger).values() if each.since_ms <= now_ms]
    # Into a queue for dead letters alone nothing enters from a log.
    if trouble is not None and ledger.definition.underlying_topic is not None:
        found.append(_of_log(state, ledger.definition.message_type, trouble))
    if damage is not None:
        found.append(QueueFinding(text=damage, since_ms=0, command=SparkqCommand("verify")))
    return [*found, *_not_ended(ledger, now_ms)]


def _of_log(state: JournalState, message_type: str, trouble: str) -> QueueFinding:
    """Return the alarm about a message type of which nothing more enters."""
    followed = state.message_types[message_type].followed
    if followed is None or followed.stopped is None:
        return QueueFinding(text=trouble, since_ms=0, command=SparkqCommand("verify"))
    command = SparkqCommand("follow", (message_type,), (f"--from={followed.stopped.version + 1}",))
    return QueueFinding(text=trouble, since_ms=followed.stopped.since, command=command)


def of_set_aside(state: JournalState, queue: str) -> QueueFinding:
    """Return the alarm about a queue that is set aside."""
    trouble = state.troubles[queue]
    # That of a file says nothing of the queue, and ends by itself once the file is back.
    is_of_file = trouble.code in MESSAGE_FILE_CODES
    text = f"Queue '{queue}' is set aside: {trouble}" if is_of_file else str(trouble)
    command = SparkqCommand("verify") if is_of_file else SparkqCommand("revive", (queue,))
    return QueueFinding(text=text, since_ms=state.set_aside_ms.get(queue, 0), command=command)


def _not_ended(ledger: QueueLedger, now_ms: int) -> Iterator[QueueFinding]:
    """Yield the alarm about leases that ran out and stand all the same: no coordinator runs, and no consumer starts one."""
    found = [
        lease
        for lease in ledger.leases.values()
        if lease.due_at_ms + NOT_ENDED_MS <= now_ms and ledger.outstanding(lease) and not lease.is_in_doubt
    ]
    if not found:
        return
    whose = ", ".join(dict.fromkeys(f"'{lease.subscription}'" for lease in found))
    count = sum(len(ledger.outstanding(lease)) for lease in found)
    text = (
        f"{count:,} message(s) are in leases that ran out, and no coordinator runs to end them: the consumer of subscription "
        f"{whose} hangs or is gone. They come back once a coordinator runs: start a consumer, or `sparkq serve`."
    )
    yield QueueFinding(text=counted(text), since_ms=min(lease.due_at_ms for lease in found), command=SparkqCommand("serve"))


def running(ledger: QueueLedger, now_ms: int) -> Iterator[Lease]:
    """Yield the leases whose batch is not known to be over: not proven, and not at their end."""
    for lease in ledger.leases.values():
        is_over = lease.proven or lease.due_at_ms <= now_ms
        if not is_over and (lease.is_barrier or ledger.outstanding(lease)):
            yield lease


#: The running time from which on a batch may count as slow, in seconds; and how often as long as is usual it must have run.
SLOW_S, SLOW_FACTOR = 300.0, 2

#: The share of batches whose running time is usual, and the number of them without which nothing is.
_USUAL_SHARE, _USUAL_LEAST = 0.99, 20


def slow_after_s(durations: Histogram | None) -> float:
    """Return the running time from which on a batch is slow, in seconds, by how long batches of its subscription took before."""
    if durations is None or sum(durations.counts) < _USUAL_LEAST:
        return SLOW_S
    wanted, ended = _USUAL_SHARE * sum(durations.counts), 0
    for bound, count in zip(durations.bounds, durations.counts, strict=False):
        ended += count
        if ended >= wanted:
            return max(SLOW_S, SLOW_FACTOR * bound)
    return SLOW_FACTOR * durations.bounds[-1]


#: The age up to which a dead letter came lately, in milliseconds.
LATELY_MS = 86_400_000

#: How long a message may wait for a consumer until somebody should look, in milliseconds.
WAIT_MS = 900_000


def queue_findings(
    state: JournalState,
    queue: str,
    *,
    now_ms: int,
    trouble: str | None = None,
    damage: str | None = None,
    history: QueueHistory | None = None,
    is_served: bool = True,
) -> list[QueueFinding]:
    """Return the findings about a queue: its alarms, and warnings about its consumers, a pause, dead letters and waiting messages.

    `history` tells how long batches took before. Without a coordinator (`is_served`) messages wait in any case.
    """
    ledger = state.ledger(queue)
    found = standing_alarms(state, ledger, now_ms=now_ms, trouble=trouble, damage=damage)
    found += _slow_batches(ledger, now_ms, history)
    if ledger.paused_since_ms is not None:
        text = f"Somebody paused queue '{queue}': it grants nothing. Its log shows who it was."
        found.append(_warning(text, ledger.paused_since_ms, SparkqCommand("unpause", (queue,))))
    # Whatever else is wrong is the reason why they wait.
    found += () if found or not is_served else _waiting(state, ledger, now_ms)
    return [*found, *_late_letters(state, ledger, now_ms)]


def _slow_batches(ledger: QueueLedger, now_ms: int, history: QueueHistory | None) -> Iterator[QueueFinding]:
    """Yield a warning for each subscription whose oldest batch runs for longer than is usual, or is begun again and again."""
    oldest_of: dict[str, Lease] = {}
    for lease in sorted(running(ledger, now_ms), key=lambda lease: lease.granted_at_ms):
        oldest_of.setdefault(lease.subscription, lease)
    queue = ledger.definition.name
    for name, lease in oldest_of.items():
        durations = None if history is None else history.lease_duration.get(name)
        runs_long = now_ms - lease.begun_at_ms > slow_after_s(durations) * 1_000
        is_renewed = now_ms - lease.granted_at_ms > ledger.definition.lease_renewal_limit_ms
        if not (runs_long or is_renewed):
            continue
        rows = ledger.outstanding(lease) or lease.rows
        what = "has had" if ledger.receives(name) else "runs a batch of"
        how = "for longer than is usual" if runs_long else "which is begun again and again, and never ends"
        text = (
            f"Consumer '{name}' {what} {len(rows):,} message(s), first bookmark {rows.min()}, {how}. End its process: what it "
            "has comes back when its lease ends."
        )
        if lease.is_in_doubt:
            command = _decide(queue, lease)
        else:
            text += " If the process cannot be reached, end the subscription."
            command = SparkqCommand("unsubscribe", (queue, name))
        yield _warning(counted(text), lease.begun_at_ms if runs_long else lease.granted_at_ms, command)


def _waiting(state: JournalState, ledger: QueueLedger, now_ms: int) -> Iterator[QueueFinding]:
    """Yield the warning about messages that wait for a consumer for too long."""
    queue, has_consumer = ledger.definition.name, any(not each.left for each in ledger.subscriptions.values())
    if ledger.definition.underlying_topic is None and not has_consumer:
        # Dead letters wait for people.
        return
    rows = ledger.rows[State.AVAILABLE]
    since_ms = oldest_ms(state, ledger, [rows])
    if since_ms is None or since_ms + WAIT_MS > now_ms:
        return
    why = "its consumers do not keep up" if has_consumer else "no consumer runs: start one"
    text = f"{len(rows):,} message(s) wait in queue '{queue}', the oldest for more than {WAIT_MS // 60_000} min: {why}."
    yield _warning(counted(text), since_ms, _explain(queue, oldest(rows, 1).min()))


def _late_letters(state: JournalState, ledger: QueueLedger, now_ms: int) -> Iterator[QueueFinding]:
    """Yield the warning about dead letters that came lately and that somebody can redrive."""
    queue, since_ms = ledger.definition.name, now_ms - LATELY_MS
    if not any(each.removed_at_ms >= since_ms for each in ledger.dead_letters):
        return
    # In a dead-letter queue only those are its own that died again there.
    own = ledger.dead_letters if state.definitions.source_of(queue) is not None else standing_letters(state, queue)
    kinds = letter_kinds(each for each in LetterChoice(since_ms=since_ms).of(own) if each.reason != Removal.LOST)
    if not kinds:
        return
    first_ms, count = min(each.first_ms for each in kinds), sum(len(each.rows) for each in kinds)
    which = f"The last of {len(kinds):,} kinds of errors:" if kinds[1:] else "The error:"
    text = counted(f"{count:,} message(s) became dead letters, the last at {_utc(kinds[0].last_ms)}. {which}")
    command = SparkqCommand("redrive", (queue,), (f"--since={_utc(first_ms)}",))
    yield _warning(f"{text} {kinds[0].error or 'none was given'}", first_ms, command)


def _warning(text: str, since_ms: int, command: SparkqCommand) -> QueueFinding:
    return QueueFinding(text=text, since_ms=since_ms, command=command, is_alarm=False)


def _explain(queue: str, bookmark: int) -> SparkqCommand:
    return SparkqCommand("explain", (queue, f"{bookmark}"))


def _decide(queue: str, lease: Lease) -> SparkqCommand:
    return SparkqCommand("decide", (queue,), (f"--subscription={lease.subscription}",))


def _utc(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1_000, UTC).isoformat(timespec="seconds")
