"""The first records of a journal."""

from __future__ import annotations

from collections.abc import Iterable

from spark_queue.core import folds
from spark_queue.core.commands import Apply
from spark_queue.core.definitions.definition import Definitions
from spark_queue.core.engine import Engine
from spark_queue.core.message_files.segment import TraitSource
from spark_queue.core.records import FORMAT, JournalCreated, Record
from spark_queue.core.state.journal_state import JournalState


def first_records(
    journal_id: str, definitions: Definitions, traits: TraitSource, followed: Iterable[Record] = (), *, now_ms: int
) -> list[Record]:
    """Return the records that create a journal: what it is, what it holds, and the tables that are `followed`."""
    created = Record(body=JournalCreated(journal=journal_id, format=FORMAT), record=0, at_ms=now_ms)
    state = JournalState(traits)
    folds.fold(state, created)
    engine = Engine(state)
    engine.decide(Apply(definitions=dict(definitions.stored)), now_ms=now_ms, looks=tuple(followed))
    return [created, *engine.drain_records()]
