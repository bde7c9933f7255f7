"""The journal at one moment: the fold of its control log up to there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap64

from spark_queue.core.message_files.segment import TraitSource
from spark_queue.core.records import Kind, Record
from spark_queue.core.replies import QueueStatus
from spark_queue.core.state import status
from spark_queue.core.state.journal_state import JournalState
from spark_queue.errors import MESSAGE_FILE_CODES, CallerError, ConfigError, JournalError
from spark_queue.journal import snapshot
from spark_queue.journal.layout import Store
from spark_queue.settings.timestamps import in_utc, to_ms, to_text
from spark_queue.views.damage import find_damage


@dataclass(frozen=True, slots=True, kw_only=True)
class PointInTime:
    """A journal's state and the time that it is looked at, in milliseconds since 1970 UTC."""

    state: JournalState
    now_ms: int
    #: The records that made the state, oldest first.
    records: Sequence[Record]
    #: What keeps messages of a type from entering any further, by its name; known only of a look at the message logs.
    troubles: Mapping[str, str] = field(default_factory=dict)
    #: Where message files are looked at for damage; None for a look at the log alone, and at a past moment.
    files: Store | None = None
    #: Gives the same for who only counts, of queues too that are set aside since a file with their order keys is not whole.
    counted: Callable[[], PointInTime] | None = None


def point_in_time(
    records: Sequence[Record],
    traits: TraitSource,
    *,
    as_of: datetime | int | None,
    now_ms: int,
    looks_ahead: bool = False,
    store: Store | None = None,
) -> PointInTime:
    """Fold the control log up to a moment.

    Parameters
    ----------
    records
        The whole control log.
    traits
        Computes what queues must know of entering messages.
    as_of
        An aware time: everything recorded at it or before; a record number: up to and with it; None: everything.
    now_ms
        The time by which delays and ages are judged when `as_of` is None.
    looks_ahead
        Whether messages that were published by then and entered later count as entered (see `state_at`).
    store
        Where snapshots of the state are, to fold only what came after; None to fold every record.

    Raises
    ------
    CallerError
        RECORD_UNKNOWN when the journal did not exist yet, or has no such record; TIMESTAMP_AMBIGUOUS.
    """
    times_ms = np.fromiter((record.at_ms for record in records), np.int64, len(records))
    count, now_ms = cut(times_ms, as_of=as_of, now_ms=now_ms)
    state = _start(records, count, traits, store)
    known = state.next_record
    fold_until(state, records[known:], count - known, now_ms=now_ms, looks_ahead=looks_ahead)
    return PointInTime(state=state, now_ms=now_ms, records=records[:count])


def _start(records: Sequence[Record], count: int, traits: TraitSource, store: Store | None) -> JournalState:
    """Return the state of the newest snapshot within the first `count` records, or one that has folded nothing."""
    state = None if store is None else snapshot.shorten(store, records[:count]).state
    # What was retired since is in the snapshot, but in no view.
    if state is None or any(record.kind == Kind.RETIRED for record in records[state.next_record :]):
        return JournalState(traits)
    state.traits = traits
    return state


def fold_until(
    state: JournalState,
    records: Sequence[Record],
    count: int,
    *,
    now_ms: int,
    looks_ahead: bool,
    fold: Callable[[JournalState, Record], None] = JournalState.fold,
    of: BitMap64 | None = None,
) -> None:
    """Fold the first `count` records, knowing from the others where messages stand today, and what had been published by then."""
    state.foresee(records, of=of)
    for record in records[:count]:
        fold(state, record)
    # Types of which something was published after that moment: what follows it in their logs was, too.
    ended: set[str] = set()
    for record in records[count:]:
        message_type = state.message_types.get(str(record.message_type))
        if message_type is None:
            continue
        if record.kind in (Kind.MOVED, Kind.RETIRED):
            message_type.fold(record)
        elif record.kind == Kind.ENTERED and looks_ahead:
            # Older software did not say when it was published.
            at_ms = record.detail.get("published", record.at_ms)
            if at_ms > now_ms:
                ended.add(str(record.message_type))
            elif record.message_type not in ended:
                fold(state, replace(record, at_ms=at_ms))
    state.foresee(())


def cut(times_ms: NDArray[np.int64], *, as_of: datetime | int | None, now_ms: int) -> tuple[int, int]:
    """Return how many records, given by their times, lie before a moment or at it, and the moment's time.

    Raises
    ------
    CallerError
        RECORD_UNKNOWN, TIMESTAMP_AMBIGUOUS.
    ConfigError
        BAD_VALUE for a time that has not come yet: nobody knows what will have happened by then.
    """
    last = len(times_ms) - 1
    if as_of is None:
        return last + 1, now_ms
    if isinstance(as_of, int):
        if not 0 <= as_of <= last:
            reason = "not in the control log"
            raise CallerError("RECORD_UNKNOWN", what="Record", value=as_of, reason=reason, first=0, last=last)
        return as_of + 1, int(times_ms[as_of])
    moment_ms = to_ms(in_utc(as_of, value=as_of.isoformat(), where="as_of"))
    # The coordinator's clock may be ahead of this one.
    newest_ms = max(now_ms, int(times_ms[-1]))
    if moment_ms > newest_ms:
        expected = f"{to_text(newest_ms, 'milliseconds')} at the latest, which is the newest moment"
        raise ConfigError("BAD_VALUE", key="as_of", where="the call", value=as_of.isoformat(), expected=expected)
    # Records carry whole milliseconds in ascending order.
    count = int(np.searchsorted(times_ms, moment_ms, side="right"))
    if count == 0:
        first, latest = (to_text(int(times_ms[index]), "milliseconds") for index in (0, -1))
        reason = "before the journal was created"
        raise CallerError("RECORD_UNKNOWN", what="Time", value=as_of.isoformat(), reason=reason, first=first, last=latest)
    return count, moment_ms


def queue_status(point: PointInTime, queue: str) -> QueueStatus:
    """Return a queue's figures at a moment; see `core.status`.

    What keeps messages from entering it is an alarm, too, and so is a message file that its consumers cannot read. A queue that
    is set aside has its figures as far as they can be told.
    """
    try:
        found = status.queue_status(point.state, queue, now_ms=point.now_ms)
    except JournalError as set_aside:
        if set_aside.code not in MESSAGE_FILE_CODES or point.counted is None:
            raise
        found = queue_status(point.counted(), queue)
        return replace(found, alarm=" ".join(dict.fromkeys(filter(None, [str(set_aside), found.alarm]))))
    trouble = damage = None
    # Into a queue for dead letters alone nothing enters from a log.
    if point.state.definitions.queue(queue).underlying_topic is not None:
        trouble = point.troubles.get(found.message_type)
    if point.files is not None:
        damage = find_damage(point.files, point.state, queue)
    alarms = [alarm for alarm in (found.alarm, trouble, damage) if alarm is not None]
    return replace(found, alarm=" ".join(dict.fromkeys(alarms)) or None)
