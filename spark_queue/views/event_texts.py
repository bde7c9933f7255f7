"""The sentence about one message that each record makes (DESIGN 9, `explain`)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import singledispatch

from spark_queue.core import records
from spark_queue.core.bitmaps.ranges import count_rows
from spark_queue.core.records import (
    CLAIMED,
    DEAD_LETTER_REASONS,
    HIDDEN,
    RETURNED_CLAIM,
    RUN_FAILED,
    RUN_STOPPED,
    Kind,
    PauseReason,
    Record,
    Removal,
    TooLate,
    UnpauseReason,
)
from spark_queue.core.state.ownership import Stage, value_of
from spark_queue.errors import counted
from spark_queue.settings.timestamps import to_text

_REMOVALS: Mapping[str, str] = {
    Removal.ACKNOWLEDGED: "acknowledged: it left the queue",
    Removal.DELIVERED: "removed on delivery (at most once)",
    Removal.TIME_LIMIT: "expired: its time was over before it was settled",
    Removal.PURGED: "purged",
    Removal.FORCED_EXPIRE: "became a dead letter: expired by its consumer, or by hand",
    Removal.MAX_DELIVERIES: "became a dead letter: too many deliveries",
    Removal.MAX_CANCELS: "became a dead letter: too many cancels",
    Removal.LOST: "became a dead letter without a body: VACUUM took its file before anybody had copied it",
}


def event_text(record: Record) -> str:
    """Return the event of a record, as people read it; a kind that is unknown here gives its name."""
    told = _text(record.body, record)
    by, error = record.body.by, getattr(record.body, "error", None)
    if by:
        told = f"{told} by {by.get('principal') or by['user']} ({by['host']})"
    return told if error is None else f"{told}: {error}"


@singledispatch
def _text(_body: records.Body, record: Record) -> str:
    return record.kind


@_text.register
def _(body: records.Entered, record: Record) -> str:
    later = f", not delivered before {to_text(record.due_at_ms)}" if record.due_at_ms else ""
    whose = record.message_type if body.partition is None else f"the table of {record.message_type}"
    return f"entered the journal from version {body.version} of {whose}, file {body.path}{later}"


@_text.register
def _(body: records.Followed, record: Record) -> str:
    behind = "with the files of" if body.beginning else "behind"
    skipped = "" if body.skipped is None else f"; versions {body.skipped[0]} to {body.skipped[1]} are skipped"
    return f"{record.message_type} follows table '{body.table}' {behind} version {body.version}{skipped}"


@_text.register
def _(body: records.Passed, record: Record) -> str:
    left_out = f", and {body.rows:,} row(s) at most did not enter" if body.rows else ""
    return counted(f"version {body.version} of the table of {record.message_type} passed: {body.operation}, {body.what}{left_out}")


@_text.register
def _(body: records.Stopped, record: Record) -> str:
    return f"{record.message_type} was set aside before version {body.version} of its table"


@_text.register
def _(body: records.Granted, record: Record) -> str:
    if body.barrier:
        return f"given to '{record.subscription}' as a barrier, a batch of its own (lease {record.lease})"
    return f"leased to '{record.subscription}' until {to_text(record.due_at_ms)}, {_batch(record)}"


@_text.register
def _(_body: records.Resumed, record: Record) -> str:
    return f"'{record.subscription}' came back and resumed its batch until {to_text(record.due_at_ms)}, {_batch(record)}"


def _batch(record: Record) -> str:
    return counted(f"in lease {record.lease} of {count_rows(record.ranges):,} message(s)")


@_text.register
def _(body: records.Renewed, record: Record) -> str:
    who = "a coordinator that started or woke kept" if record.reason == "takeover" else f"'{record.subscription}' renewed"
    what = f"lease {record.lease}" if body.newest is None else f"what it has in hand, up to lease {body.newest},"
    return f"{who} {what} until {to_text(record.due_at_ms)}"


def _attempt(body: records.OfAttempt, record: Record) -> str:
    return f"attempt {body.attempt} of '{record.subscription}'"


def _forced(body: records.Landed | records.Fenced) -> str:
    return ", by force (its sink could not be read)" if body.forced else ""


@_text.register
def _(body: records.Landed, record: Record) -> str:
    version = "" if body.version is None else f", version {body.version}"
    return f"landed in '{body.table}'{version}, by {_attempt(body, record)}{_forced(body)}"


@_text.register
def _(body: records.Prepared, record: Record) -> str:
    return f"{_attempt(body, record)} to append its batch to '{body.table}' was prepared"


@_text.register
def _(body: records.Fenced, record: Record) -> str:
    return f"{_attempt(body, record)} was fenced{_forced(body)}: it is not in '{body.table}'"


@_text.register
def _(body: records.Outcomes, record: Record) -> str:
    if body.final:
        return f"'{record.subscription}' is done with it (lease {record.lease})"
    if record.reason == RUN_FAILED:
        what = "a run without messages" if record.lease is None else f"the batch of lease {record.lease}"
        return f"{what} failed"
    if record.reason == RUN_STOPPED:
        return f"the run of lease {record.lease} ended before Spark had committed it; that counts against no message"
    if record.lease is None:
        return "a run without messages succeeded"
    later = f", not before {to_text(record.due_at_ms)}" if record.due_at_ms else ""
    return f"'{record.subscription}' said {record.reason}{later}; that counts when Spark has committed the batch"


_TOO_LATE: Mapping[str, str] = {
    TooLate.LEASED: "it was leased again",
    TooLate.RETURNED: "it was back in the queue",
    TooLate.BEHIND: "an older message of its key was cancelled",
    TooLate.DEAD_LETTER: "it was a dead letter",
    TooLate.REMOVED: "it had left the queue",
    TooLate.REMOTE: "another instance owned it",
}


@_text.register
def _(body: records.Refused, record: Record) -> str:
    holder = "" if body.holder is None else f" to '{body.holder}'"
    return f"'{record.subscription}' said {body.outcome} too late: {_TOO_LATE[str(record.reason)]}{holder} (lease {record.lease})"


@_text.register
def _(body: records.Returned, record: Record) -> str:
    later = f", available again from {to_text(record.due_at_ms)}" if record.due_at_ms else ""
    alone = ", it failed alone" if body.alone else ""
    alone += ", its receiver ended without a word" if body.marked else ""
    return f"returned to the queue ({record.reason}{alone}){later}"


@_text.register
def _(body: records.Removed, record: Record) -> str:
    if body.settled_in is not None:
        return f"no longer a dead letter: {record.reason} in dead-letter queue '{body.settled_in}'"
    told = _REMOVALS.get(str(record.reason), f"left the queue ({record.reason})")
    return f"{told} ({_counts(body)})" if record.reason in DEAD_LETTER_REASONS else told


@_text.register
def _(body: records.DeadLettered, record: Record) -> str:
    return f"came to dead-letter queue '{record.queue}' from '{body.source}' ({record.reason}, {_counts(body)})"


def _counts(body: records.Removed | records.DeadLettered) -> str:
    return f"deliveries: {body.deliveries}, cancels: {body.cancels}"


@_text.register
def _(body: records.BarrierReceived, record: Record) -> str:
    if record.reason is None:
        return f"'{record.subscription}' received the barrier"
    if record.reason == Removal.LOST:
        return f"'{record.subscription}' never received the barrier: VACUUM took its file before anybody had copied it"
    if record.reason == HIDDEN:
        return f"the principal of '{record.subscription}' may no longer see the barrier"
    return counted(f"'{record.subscription}' gave the barrier up, delivered {body.deliveries:,} time(s)")


@_text.register
def _(body: records.Named, _record: Record) -> str:
    instances = ", ".join(f"'{name}'" for name in sorted(set(body.instances.values())))
    return f"its publisher also published it to another instance ({instances}): one message with several names"


@_text.register
def _(body: records.Replicated, record: Record) -> str:
    value, peer = value_of(body), body.peer
    life = f", in life {value.life}" if value.life else ""
    if value.stage == Stage.PRESENT and record.reason == Kind.REDRIVEN:
        told = f"redriven: it belongs to instance '{value.owner}'"
    elif value.stage == Stage.PRESENT and record.reason == Kind.DEAD_LETTERED:
        told = f"came to dead-letter queue '{record.queue}' of instance '{value.owner}'"
    elif value.stage == Stage.PRESENT:
        told = f"it belongs to instance '{value.owner}' from now on, in term {value.term}"
    else:
        told = _REMOVALS.get(str(record.reason), f"left the queue ({record.reason})")
        told += f"; instance '{value.owner}' owns the dead letter" if value.stage == Stage.DEAD else ""
    return f"instance '{peer}' reported: {told}{life}"


@_text.register
def _(body: records.Decided, record: Record) -> str:
    owner, what = body.owner, "is a barrier of it" if body.barrier else "is not in it"
    return f"queue '{record.queue}': its origin decided that it {what if owner is None else f'is in it, and first of {owner!r}'}"


@_text.register
def _(body: records.BarriersDecided, record: Record) -> str:
    what = "a barrier of it" if body.barrier else "no barrier of it"
    return f"queue '{record.queue}' was revived after it had been set aside: it is {what}"


@_text.register
def _(body: records.Transferred, record: Record) -> str:
    owner, term = body.owner, body.term
    if record.reason == CLAIMED:
        waits = "; it is granted once the owner shows no sign of life" if body.awaits_look else ""
        return f"claimed by this instance, '{owner}', since its owner could not be reached (term {term}){waits}"
    if record.reason == RETURNED_CLAIM:
        return f"given back to instance '{owner}', which is alive, or may have been meanwhile (term {term})"
    return f"transferred to instance '{owner}', by a request or a drain (term {term})"


@_text.register
def _(body: records.Returning, _record: Record) -> str:
    if body.excused_peers:
        return f"this instance, which returned, was told to wait no longer for {', '.join(map(repr, body.excused_peers))}"
    return "this instance was away, and waited for its peers" if body.on else "this instance had heard from its peers"


@_text.register
def _(body: records.TransferRequested, _record: Record) -> str:
    return f"instance '{body.requester}' asked its owner, instance '{body.owner}', for it or for other messages"


@_text.register
def _(_body: records.Paused, record: Record) -> str:
    if record.reason == PauseReason.ALARM:
        return f"an alarm paused '{record.subscription}', which tries one message at a time"
    return "paused"


@_text.register
def _(_body: records.Unpaused, record: Record) -> str:
    if record.reason == UnpauseReason.PROBE:
        return f"a message succeeded, which ended the alarm of '{record.subscription}'"
    return "unpaused"


@_text.register
def _(_body: records.Retired, _record: Record) -> str:
    return "retired: no queue needed it, and its body left the journal"


@_text.register
def _(_body: records.Claimed, record: Record) -> str:
    return f"its rows were handed to '{record.subscription}'"


@_text.register
def _(_body: records.Lapsed, record: Record) -> str:
    return f"lease {record.lease} ran out: it no longer counts in the backlog of '{record.subscription}'"


@_text.register
def _(body: records.SinkUnreadable, record: Record) -> str:
    return f"it is unknown whether {_attempt(body, record)} landed"


@_text.register
def _(_body: records.Proven, record: Record) -> str:
    return f"Spark committed the batch of lease {record.lease}"


@_text.register
def _(_body: records.Deferred, record: Record) -> str:
    return f"acknowledged before it was active; that counts until {to_text(record.due_at_ms)}"


@_text.register
def _(body: records.BarrierReleased, _record: Record) -> str:
    return f"barrier released to {', '.join(body.subscriptions)}"


@_text.register
def _(_body: records.ClaimConfirmed, _record: Record) -> str:
    return "its owner showed no sign of life: claimed messages may be granted"


@_text.register
def _(_body: records.SetAside, record: Record) -> str:
    return f"queue '{record.queue}' was set aside"


@_text.register
def _(_body: records.Revived, record: Record) -> str:
    return f"queue '{record.queue}' was revived"


@_text.register
def _(_body: records.Redriven, record: Record) -> str:
    return f"redriven: in queue '{record.queue}' its life as a dead letter is over"
