"""The journal at one moment: the fold of its control log up to there."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from spark_queue.core.fold import JournalState
from spark_queue.core.records import Kind, Record
from spark_queue.core.segment import FactSource
from spark_queue.errors import CallerError
from spark_queue.settings import to_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A journal's state and the time that it is looked at, in milliseconds since 1970 UTC."""

    state: JournalState
    now_ms: int
    #: The records that made the state, oldest first.
    records: Sequence[Record]


def moment_of(records: Sequence[Record], facts: FactSource, *, as_of: datetime | int | None, now_ms: int) -> Moment:
    """Fold the control log up to a moment.

    Parameters
    ----------
    records
        The whole control log.
    facts
        Computes what queues must know of entering messages.
    as_of
        An aware time: everything recorded at it or before; a record number: up to and with it; None: everything.
    now_ms
        The time by which delays and ages are judged when `as_of` is None.

    Raises
    ------
    CallerError
        RECORD_UNKNOWN when the journal did not exist yet, or has no such record; TIMESTAMP_AMBIGUOUS.
    """
    whole = records
    if isinstance(as_of, int):
        if not 0 <= as_of < len(records):
            reason = "not in the control log"
            raise CallerError("RECORD_UNKNOWN", what="Record", value=as_of, reason=reason, first=0, last=len(records) - 1)
        records, now_ms = records[: as_of + 1], records[as_of].at_ms
    elif as_of is not None:
        now_ms = _to_ms(as_of)
        # Records carry whole milliseconds in ascending order.
        count = bisect_right(records, now_ms, key=lambda record: record.at_ms)
        if count == 0:
            first, last = (_to_text(records[index].at_ms) for index in (0, -1))
            reason = "before the journal was created"
            raise CallerError("RECORD_UNKNOWN", what="Time", value=as_of.isoformat(), reason=reason, first=first, last=last)
        records = records[:count]
    state = JournalState(facts)
    state.foresee(whole)
    for record in records:
        state.fold(record)
    state.foresee(())
    for record in whole[len(records) :]:
        # Where the messages of that moment stand today.
        if record.kind in (Kind.MOVED, Kind.RETIRED) and record.message_type in state.message_types:
            state.message_types[str(record.message_type)].fold(record)
    return Moment(state=state, now_ms=now_ms, records=records)


def _to_ms(moment: datetime) -> int:
    if moment.tzinfo is None:
        utc, local = moment.replace(tzinfo=UTC), moment.astimezone()
        raise CallerError(
            "TIMESTAMP_AMBIGUOUS", value=moment.isoformat(), where="as_of", utc=utc.isoformat(), local=local.isoformat()
        )
    return to_ms(moment)


def _to_text(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
