"""The search for messages of a queue by state, bookmark or filter, in parts: the next one goes on where the last one ended."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyroaring import BitMap64

from spark_queue.clock import SystemClock
from spark_queue.core.bitmaps.ranges import oldest, to_bitmap
from spark_queue.core.message_files.message_type import MessageTypeState
from spark_queue.core.message_files.segment import TraitSource
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.lifecycle import State
from spark_queue.errors import JournalError
from spark_queue.journal.expressions import check_search
from spark_queue.journal.schema import ENVELOPE, stored_schema, user_schema
from spark_queue.journal.store import Store
from spark_queue.views.bodies import python_rows, read_bodies

Mask = NDArray[np.bool_]


def one_of(column: Any, values: Iterable[str]) -> Mask:
    """Return the mask of a column's rows that have one of some values."""
    mask: Mask = pc.is_in(column, value_set=pa.array([str(value) for value in values], pa.string())).to_numpy()
    return mask.copy()


#: The time for which a search may read message files, in milliseconds; it then returns the bookmark that it reached.
SEARCH_MS = 3_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPlan:
    """Findings about messages while the state could not change; reading files comes after."""

    message_type: MessageTypeState
    columns: str
    rows: BitMap64
    total: int


def choose(
    state: JournalState, queue: str, *, states: Iterable[State], bookmark: int | None, after: int, where: str | None
) -> SearchPlan:
    """Return the messages of a search; an expression that cannot be evaluated is refused."""
    ledger = state.ledger(queue)
    found = BitMap64.union(BitMap64(), *(ledger.rows[each] for each in states))
    total = len(found)
    if bookmark is not None:
        found = ledger.entered & BitMap64([bookmark]) if bookmark >= 0 else BitMap64()
    if where is not None:
        check_search(ledger.definition, where)
    found.remove_range(0, after)
    return SearchPlan(
        message_type=frozen(state.message_types[ledger.definition.message_type]),
        columns=ledger.definition.columns,
        rows=found,
        total=total,
    )


def frozen(message_type: MessageTypeState) -> MessageTypeState:
    """Return a copy of the places of messages, which no later fold changes."""
    made = copy.copy(message_type)
    made.segments = list(message_type.segments)
    return made


def search(traits: TraitSource, chosen: SearchPlan, where: str | None, *, limit: int) -> tuple[BitMap64, int | None, bool]:
    """Return the oldest matches, the bookmark to go on from if there may be more, and whether time was over."""
    if where is None:
        found = oldest(chosen.rows, limit)
        return found, found.max() + 1 if len(found) < len(chosen.rows) else None, False
    began_ms, found = SystemClock().monotonic_ms(), BitMap64()
    for segment in chosen.message_type.segments:
        part = chosen.rows & to_bitmap([(segment.first, segment.until)])
        if not part or segment.retired:
            continue
        found |= traits.matches([segment], where, part, columns=chosen.columns)
        if len(found) > limit:
            found = oldest(found, limit)
            return found, found.max() + 1, False
        if SystemClock().monotonic_ms() - began_ms > SEARCH_MS:
            return found, segment.until, True
    return found, None, False


def body_columns(columns: str) -> list[str]:
    """Return the names of a body's columns that are shown, in order."""
    return [*user_schema(columns).names, "topic", "publisher", "published_at"]


def read_values(
    store: Store, message_type: MessageTypeState, columns: str, bookmarks: BitMap64
) -> tuple[list[dict[str, Any]], str | None]:
    """Return the bodies of messages, or the trouble of reading them."""
    names = body_columns(columns)
    known = {field.name: field for field in [*stored_schema(columns), *ENVELOPE]}
    schema = pa.schema([known[name] for name in names])
    try:
        found = read_bodies(store, message_type, np.array(list(bookmarks), np.int64), schema)
    except JournalError as refusal:
        return [], str(refusal)
    return python_rows(found), None
