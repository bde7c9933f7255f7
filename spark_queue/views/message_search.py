"""The search for messages of a queue by state, bookmark or filter, in parts: the next one goes on where the last one ended.

Reading the bodies of chosen messages from message files, without Spark.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyarrow import types
from pyroaring import BitMap64

from spark_queue.clock import SystemClock
from spark_queue.core.bitmaps.ranges import oldest, to_bitmap
from spark_queue.core.message_files.message_type import MessageTypeState
from spark_queue.core.message_files.segment import Segment, TraitSource, stretches
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.ledger import QueueLedger
from spark_queue.core.state.lifecycle import State
from spark_queue.errors import JournalError
from spark_queue.journal.conversion import far_time
from spark_queue.journal.message_file import corrupt, decoding
from spark_queue.journal.schema import ENVELOPE, stored_schema, user_schema
from spark_queue.journal.store import Store
from spark_queue.journal.traits import check_search

Bookmarks = NDArray[np.int64]
Mask = NDArray[np.bool_]

_WITHOUT_BODIES = "Look at a later moment, or choose columns that the queue knows, such as bookmark and state."


def one_of(column: Any, values: Iterable[str]) -> Mask:
    """Return which rows of a column have one of some values."""
    mask: Mask = pc.is_in(column, value_set=pa.array([str(value) for value in values], pa.string())).to_numpy()
    return mask.copy()


def read_bodies(store: Store, message_type: MessageTypeState, bookmarks: Bookmarks, schema: pa.Schema) -> pa.Table:
    """Return columns of messages, in the order of their bookmarks.

    Parameters
    ----------
    store
        The journal's place.
    message_type
        Where its messages lie.
    bookmarks
        Ascending; all of them entered.
    schema
        The columns to read; one that a file does not have yet is NULL.

    Raises
    ------
    JournalError
        MESSAGE_FILE_MISSING, MESSAGE_FILE_CORRUPT, MESSAGES_RETIRED, STORE_FAILED.
    """
    pieces = [schema.empty_table()]
    overlapping = _overlapping(message_type.segments, bookmarks)
    for segment in overlapping:
        if segment.retired:
            start, end = int(bookmarks[np.searchsorted(bookmarks, segment.first)]), int(bookmarks[-1]) + 1
            raise message_type.retired_error(segment, start=start, end=end, next_step=_WITHOUT_BODIES)
    for segment in stretches(overlapping):
        low, high = np.searchsorted(bookmarks, [segment.first, segment.until])
        pieces.append(_read_rows(store, segment, bookmarks[low:high] - segment.first + segment.first_row, schema))
    return pa.concat_tables(pieces)


def python_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Return rows for people: a time of a year that Python does not have is its text, so that one value hides no others."""
    try:
        return table.to_pylist()
    except (ValueError, OverflowError):
        columns = [[_python_value(value) for value in table.column(name)] for name in table.column_names]
    return [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


def _python_value(value: Any) -> Any:
    try:
        return value.as_py()
    except (ValueError, OverflowError):
        kind = value.type
    if types.is_struct(kind):
        return {name: _python_value(part) for name, part in value.items()}
    if types.is_map(kind):
        return [(_python_value(pair["key"]), _python_value(pair["value"])) for pair in value.values]
    if types.is_list(kind):
        return [_python_value(part) for part in value.values]
    return far_time(value) if types.is_temporal(kind) else value.as_buffer().to_pybytes().decode(errors="replace")


def _overlapping(segments: list[Segment], bookmarks: Bookmarks) -> list[Segment]:
    if not len(segments) or not len(bookmarks):
        return []
    firsts = np.fromiter((segment.first for segment in segments), np.int64, len(segments))
    used = np.unique(np.searchsorted(firsts, bookmarks, side="right") - 1)
    return [segments[index] for index in used]


def _read_rows(store: Store, segment: Segment, rows: Bookmarks, schema: pa.Schema) -> pa.Table:
    wanted = set(schema.names)
    with decoding(store, segment) as file:
        held = file.metadata.num_rows
        pieces = list(_chosen_rows(file, rows, [name for name in file.schema_arrow.names if name in wanted]))
    if rows[-1] >= held:
        raise corrupt(store, segment, f"it has {held} rows instead of at least {rows[-1] + 1}.")
    found = pa.concat_tables(pieces)
    there = set(found.column_names)
    columns = [_column(found, field) if field.name in there else pa.nulls(found.num_rows, field.type) for field in schema]
    return pa.table(columns, schema=schema)


def _chosen_rows(file: pq.ParquetFile, rows: Bookmarks, names: list[str]) -> Iterator[pa.Table]:
    """Read the row groups that hold the rows, and no others."""
    start = 0
    for number in range(file.metadata.num_row_groups):
        count = file.metadata.row_group(number).num_rows
        low, high = np.searchsorted(rows, [start, start + count])
        if low < high:
            group = file.read_row_group(number, columns=names)
            yield group if high - low == count else group.take(rows[low:high] - start)
        start += count


def _column(found: pa.Table, field: pa.Field[Any]) -> Any:
    column = found.column(field.name)
    return column if column.type == field.type else column.cast(field.type)


#: How long a search may read message files, in milliseconds; it then tells how far it came.
SEARCH_MS = 3_000


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageRow:
    """One message."""

    bookmark: int
    state: str
    subscription: str | None
    lease: int | None
    due_ms: int | None
    deliveries: int
    cancels: int
    is_barrier: bool
    #: The instance that may deliver it, of a replicated queue.
    owner: str | None = None


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
    """Return the messages in question.

    Raises
    ------
    ConfigError
        EXPRESSION_INVALID or EXPRESSION_UNSUPPORTED.
    """
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
    """Return where messages stand as it is now, whatever is folded later."""
    made = copy.copy(message_type)
    made.segments = list(message_type.segments)
    return made


def search(traits: TraitSource, chosen: SearchPlan, where: str | None, *, limit: int) -> tuple[BitMap64, int | None, bool]:
    """Return the oldest that match, the bookmark to go on from if there may be more, and whether time was over."""
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


def message_rows(ledger: QueueLedger, bookmarks: BitMap64, now_ms: int) -> list[MessageRow]:
    """Return what a queue knows of some messages."""
    due, known = ledger.due(now_ms), bookmarks - ledger.barriers - ledger.rows[State.REMOVED]
    parts = [] if ledger.ownership is None else ledger.ownership.by_owner(known)
    owners = {row: owner for _, owner, rows in parts for row in rows}
    return [_row(ledger, bookmark, due, owners.get(bookmark)) for bookmark in bookmarks]


def _row(ledger: QueueLedger, bookmark: int, due: BitMap64, owner: str | None) -> MessageRow:
    state = next((state for state, rows in ledger.rows.items() if bookmark in rows), None)
    lease = next((lease for lease in ledger.leases.values() if bookmark in lease.leased), None)
    due_ms = next((at_ms for at_ms, rows in ledger.delayed.items() if bookmark in rows), None)
    if state == State.DELAYED and bookmark in due:
        state, due_ms = State.AVAILABLE, None
    return MessageRow(
        bookmark=bookmark,
        state="not in it" if state is None else str(state),
        subscription=None if lease is None else lease.subscription,
        lease=None if lease is None else lease.number,
        due_ms=lease.due_at_ms if lease is not None else due_ms,
        deliveries=ledger.delivered.of(bookmark),
        cancels=ledger.cancelled.of(bookmark),
        is_barrier=bookmark in ledger.barriers,
        owner=owner,
    )


def body_columns(columns: str) -> list[str]:
    """Return the names of what is shown of a body, in order."""
    return [*user_schema(columns).names, "topic", "publisher", "published_at"]


def read_values(
    store: Store, message_type: MessageTypeState, columns: str, bookmarks: BitMap64
) -> tuple[list[dict[str, Any]], str | None]:
    """Return the bodies of messages, or why they cannot be read."""
    names = body_columns(columns)
    known = {field.name: field for field in [*stored_schema(columns), *ENVELOPE]}
    schema = pa.schema([known[name] for name in names])
    try:
        found = read_bodies(store, message_type, np.array(list(bookmarks), np.int64), schema)
    except JournalError as refusal:
        return [], str(refusal)
    return python_rows(found), None
