"""Everything that is broken in a journal, by the product's invariants and by the second model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from spark_queue.core.records import Record
from spark_queue.core.state.journal_state import JournalState
from spark_queue.ports import MessageLogEntry
from spark_queue.verification import of_log
from spark_queue.verification.of_state import of_state
from tests.second_model.barrier_order import BarrierOrder
from tests.second_model.lives import MessageLives


def problems(state: JournalState, records: Sequence[Record], logs: Mapping[str, Iterable[MessageLogEntry]]) -> list[str]:
    """Return what is broken in a journal: its state, its control log, and both against the message logs."""
    broken = [*of_records(records), *of_state(state)]
    for message_type, entries in logs.items():
        broken += of_log.of_message_log(records, message_type, entries)
    return broken


def of_records(records: Sequence[Record]) -> list[str]:
    """Return the faults of a control log, and what contradicts the lives of its messages or the order of its barriers."""
    broken = of_log.of_records(records)
    lives, barriers = MessageLives(), BarrierOrder()
    for record in records:
        found = [*lives.follow(record), *barriers.follow(record)]
        broken += [f"record {record.record} ({record.kind}): {text}" for text in found]
    return broken
