"""The sentence about one message that each record makes (DESIGN 9, `explain`).

Rates and time spans for people: on the page, and by the command line.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

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
}


def event_text(record: Record) -> str:
    """Return the event of a record, as people read it; a kind that is unknown here gives its name."""
    text = _TEXTS.get(record.kind)
    told = str(record.kind) if text is None else text(record)
    by, error = record.body.by, getattr(record.body, "error", None)
    if by:
        told = f"{told} by {by.get('principal') or by['user']} ({by['host']})"
    return told if error is None else f"{told}: {error}"


def _entered(record: Record) -> str:
    body, later = record.told(records.Entered), f", not delivered before {to_text(record.due_at_ms)}" if record.due_at_ms else ""
    return f"entered the journal from version {body.version} of {record.message_type}, file {body.path}{later}"


def _granted(record: Record) -> str:
    if record.told(records.Granted).barrier:
        return f"given to '{record.subscription}' as a barrier, a batch of its own (lease {record.lease})"
    return f"leased to '{record.subscription}' until {to_text(record.due_at_ms)}, {_batch(record)}"


def _resumed(record: Record) -> str:
    return f"'{record.subscription}' came back and resumed its batch until {to_text(record.due_at_ms)}, {_batch(record)}"


def _batch(record: Record) -> str:
    return counted(f"in lease {record.lease} of {count_rows(record.ranges):,} message(s)")


def _renewed(record: Record) -> str:
    who = "a coordinator that started or woke kept" if record.reason == "takeover" else f"'{record.subscription}' renewed"
    return f"{who} lease {record.lease} until {to_text(record.due_at_ms)}"


def _attempt(record: Record) -> str:
    return f"attempt {record.told(records.OfAttempt).attempt} of '{record.subscription}'"


def _forced(record: Record) -> str:
    is_forced = isinstance(record.body, records.Landed | records.Fenced) and record.body.forced
    return ", by force (its sink could not be read)" if is_forced else ""


def _landed(record: Record) -> str:
    body = record.told(records.Landed)
    version = "" if body.version is None else f", version {body.version}"
    return f"landed in '{body.table}'{version}, by {_attempt(record)}{_forced(record)}"


def _prepared(record: Record) -> str:
    return f"{_attempt(record)} to append its batch to '{record.told(records.Prepared).table}' was prepared"


def _fenced(record: Record) -> str:
    return f"{_attempt(record)} was fenced{_forced(record)}: it is not in '{record.told(records.Fenced).table}'"


def _outcomes(record: Record) -> str:
    if record.reason == RUN_FAILED:
        what = "a run without messages" if record.lease is None else f"the batch of lease {record.lease}"
        return f"{what} failed"
    if record.reason == RUN_STOPPED:
        return f"the run of lease {record.lease} ended before Spark had committed it; that counts against no message"
    if record.lease is None:
        return "a run without messages succeeded"
    later = f", not before {to_text(record.due_at_ms)}" if record.due_at_ms else ""
    return f"'{record.subscription}' said {record.reason}{later}; that counts when Spark has committed the batch"


def _returned(record: Record) -> str:
    later = f", available again from {to_text(record.due_at_ms)}" if record.due_at_ms else ""
    alone = ", it failed alone" if record.told(records.Returned).alone else ""
    return f"returned to the queue ({record.reason}{alone}){later}"


def _removed(record: Record) -> str:
    body = record.told(records.Removed)
    if body.settled_in is not None:
        return f"no longer a dead letter: {record.reason} in dead-letter queue '{body.settled_in}'"
    told = _REMOVALS.get(str(record.reason), f"left the queue ({record.reason})")
    return f"{told} ({_counts(body)})" if record.reason in DEAD_LETTER_REASONS else told


def _dead_lettered(record: Record) -> str:
    body = record.told(records.DeadLettered)
    return f"came to dead-letter queue '{record.queue}' from '{body.source}' ({record.reason}, {_counts(body)})"


def _counts(body: records.Removed | records.DeadLettered) -> str:
    return f"{body.deliveries} deliveries, {body.cancels} cancels"


def _received(record: Record) -> str:
    if record.reason is None:
        return f"'{record.subscription}' received the barrier"
    if record.reason == HIDDEN:
        return f"the principal of '{record.subscription}' may no longer see the barrier"
    return f"'{record.subscription}' gave the barrier up after {record.told(records.BarrierReceived).deliveries} deliveries"


def _named(record: Record) -> str:
    instances = ", ".join(f"'{name}'" for name in sorted(set(record.told(records.Named).instances.values())))
    return f"its publisher also published it to another instance ({instances}): one message with several names"


def _replicated(record: Record) -> str:
    value, peer = value_of(record.told(records.Replicated)), record.told(records.Replicated).peer
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


def _decided(record: Record) -> str:
    body = record.told(records.Decided)
    owner, what = body.owner, "is a barrier of it" if body.barrier else "is not in it"
    return f"queue '{record.queue}': its origin decided that it {what if owner is None else f'is in it, and first of {owner!r}'}"


def _barriers_decided(record: Record) -> str:
    what = "a barrier of it" if record.told(records.BarriersDecided).barrier else "no barrier of it"
    return f"queue '{record.queue}'was revived after it had been set aside: it is {what}"


def _transferred(record: Record) -> str:
    body = record.told(records.Transferred)
    owner, term = body.owner, body.term
    if record.reason == CLAIMED:
        waits = "; it is granted once the owner shows no sign of life" if body.awaits_look else ""
        return f"claimed by this instance, '{owner}', since its owner could not be reached (term {term}){waits}"
    if record.reason == RETURNED_CLAIM:
        return f"given back to instance '{owner}', which is alive, or may have been meanwhile (term {term})"
    return f"transferred to instance '{owner}', by a request or a drain (term {term})"


def _returning(record: Record) -> str:
    body = record.told(records.Returning)
    if body.without:
        return f"this instance, which returned, was told to wait no longer for {', '.join(map(repr, body.without))}"
    return "this instance was away, and waited for its peers" if body.on else "this instance had heard from its peers"


def _requested(record: Record) -> str:
    body = record.told(records.TransferRequested)
    return f"instance '{body.requester}' asked its owner, instance '{body.owner}', for it or for other messages"


def _paused(record: Record) -> str:
    if record.reason == PauseReason.ALARM:
        return f"an alarm paused '{record.subscription}', which tries one message at a time"
    return "paused"


def _unpaused(record: Record) -> str:
    if record.reason == UnpauseReason.PROBE:
        return f"a message succeeded, which ended the alarm of '{record.subscription}'"
    return "unpaused"


_TEXTS: Mapping[str, Callable[[Record], str]] = {
    Kind.ENTERED: _entered,
    Kind.RETIRED: lambda _: "retired: no queue needed it, and its body left the journal",
    Kind.GRANTED: _granted,
    Kind.RESUMED: _resumed,
    Kind.RENEWED: _renewed,
    Kind.CLAIMED: lambda record: f"its rows were handed to '{record.subscription}'",
    Kind.LAPSED: lambda record: f"lease {record.lease} ran out: it no longer counts in the backlog of '{record.subscription}'",
    Kind.PREPARED: _prepared,
    Kind.LANDED: _landed,
    Kind.FENCED: _fenced,
    Kind.SINK_UNREADABLE: lambda record: f"it is unknown whether {_attempt(record)} landed",
    Kind.OUTCOMES: _outcomes,
    Kind.PROVEN: lambda record: f"Spark committed the batch of lease {record.lease}",
    Kind.RETURNED: _returned,
    Kind.REMOVED: _removed,
    Kind.DEAD_LETTERED: _dead_lettered,
    Kind.DEFERRED: lambda record: f"acknowledged before it was active; that counts until {to_text(record.due_at_ms)}",
    Kind.BARRIER_RELEASED: lambda record: f"barrier released to {', '.join(record.told(records.BarrierReleased).subscriptions)}",
    Kind.BARRIER_RECEIVED: _received,
    Kind.BARRIERS_DECIDED: _barriers_decided,
    Kind.DECIDED: _decided,
    Kind.NAMED: _named,
    Kind.REPLICATED: _replicated,
    Kind.TRANSFERRED: _transferred,
    Kind.CLAIM_CONFIRMED: lambda _: "its owner showed no sign of life: claimed messages may be granted",
    Kind.TRANSFER_REQUESTED: _requested,
    Kind.RETURNING: _returning,
    Kind.SET_ASIDE: lambda record: f"queue '{record.queue}' was set aside",
    Kind.REVIVED: lambda record: f"queue '{record.queue}' was revived",
    Kind.PAUSED: _paused,
    Kind.UNPAUSED: _unpaused,
    Kind.REDRIVEN: lambda record: f"redriven: in queue '{record.queue}' its life as a dead letter is over",
}


#: Nothing to say.
NONE = "–"

_STEPS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def rate(per_second: float | None) -> str:
    """Return a rate: messages each second, or each minute where it is slow."""
    if per_second is None or math.isnan(per_second):
        return NONE
    if per_second == 0:
        return "0"
    if per_second >= 100:
        return f"{per_second:,.0f}/s"
    if per_second >= 1:
        return f"{per_second:,.1f}/s"
    return f"{per_second * 60:,.2g}/min" if per_second * 60 >= 0.1 else f"{per_second * 3600:,.2g}/h"


def duration(seconds: float | None) -> str:
    """Return a time span in its two largest units."""
    if seconds is None or math.isnan(seconds):
        return NONE
    if abs(seconds) < 10:
        return f"{seconds:.1f} s"
    sign, left = ("−" if seconds < 0 else ""), abs(round(seconds))
    for index, (length, unit) in enumerate(_STEPS):
        if left >= length:
            told = f"{sign}{left // length} {unit}"
            if index + 1 < len(_STEPS):
                smaller, name = _STEPS[index + 1]
                told += f" {left % length // smaller} {name}"
            return told
    return "0 s"
