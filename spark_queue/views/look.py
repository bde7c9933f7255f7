"""Looking at a journal from outside its coordinator: fold the control log, then count on from the message logs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime

from spark_queue.clock import SystemClock
from spark_queue.coordinator.entering import Entrance, PreparedFacts
from spark_queue.core.engine import Engine
from spark_queue.core.segment import Segment
from spark_queue.journal.layout import Store, log_key, messages_key
from spark_queue.journal.open import DeltaJournal
from spark_queue.views.moment import Moment, moment_of


def look(journal: DeltaJournal, as_of: datetime | int | None = None) -> Moment:
    """Give the journal at a moment; starts nothing and changes nothing.

    Looking at now, what was published and has not entered yet counts as entered, by the coordinator's own rule: whether one
    happens to run makes no difference (DESIGN 15.15).

    Parameters
    ----------
    journal
        An open journal.
    as_of
        An aware time or a record number; None for now.

    Raises
    ------
    CallerError
        RECORD_UNKNOWN or TIMESTAMP_AMBIGUOUS.
    """
    facts = PreparedFacts(journal.facts)
    moment = moment_of(journal.records(), facts, as_of=as_of, now_ms=SystemClock().wall_ms())
    if as_of is None:
        entrance = Entrance(journal, Engine(moment.state), facts)
        for name, message_type in moment.state.message_types.items():
            known, version = len(message_type.segments), message_type.version
            while entrance.admit(name, now_ms=moment.now_ms):
                continue
            if len(message_type.segments) > known:
                committed = _commit_times_ms(journal.store, name, version)
                message_type.segments[known:] = _dated(message_type.segments, known, committed, moment.now_ms)
    return moment


def _commit_times_ms(store: Store, message_type: str, after_version: int) -> dict[str, int]:
    """Give the store's time of each log entry after a version, by key."""
    table = messages_key(message_type)
    return {entry.key: entry.modified_ms for entry in store.list(f"{table}/_delta_log", after=log_key(table, after_version))}


def _dated(segments: list[Segment], known: int, committed: Mapping[str, int], now_ms: int) -> Iterator[Segment]:
    """Let messages that no coordinator has entered yet be as old as their commits, so that an alert on age notices them."""
    at_ms = segments[known - 1].entered_at_ms if known else 0
    for segment in segments[known:]:
        key = log_key(messages_key(segment.message_type), segment.version)
        # Ages ascend in the log, whatever the store's clock does.
        at_ms = max(at_ms, min(now_ms, committed.get(key, now_ms)))
        yield replace(segment, entered_at_ms=at_ms)
