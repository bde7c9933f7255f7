"""The views whose rows are messages: those in the queue, and its dead letters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyroaring import BitMap64

from spark_queue.core.bitmaps.ranges import from_array, oldest, to_array
from spark_queue.core.deciding.barrier import before_held
from spark_queue.core.message_files.message_type import MessageTypeState
from spark_queue.core.message_files.origins import OriginNames
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.ledger import QueueLedger
from spark_queue.core.state.letters import standing_letters
from spark_queue.core.state.lifecycle import ACTIVE, State
from spark_queue.journal.schema import ENVELOPE, ORIGIN, shown_names, user_schema
from spark_queue.journal.sql_types import INSTANT
from spark_queue.views.bodies import Bookmarks, read_bodies
from spark_queue.views.journal_view import JournalView


def make_schema(**types: pa.DataType) -> pa.Schema:
    """Make a schema of names and types."""
    return pa.schema(list(types.items()))


#: The queue's columns of each message, after the columns that are stored with it.
_PLACE = make_schema(
    state=pa.string(),
    subscription=pa.string(),
    lease=pa.int64(),
    leased_until=INSTANT,
    due_at=INSTANT,
    delivery_count=pa.int32(),
    cancel_count=pa.int32(),
    priority=pa.decimal128(20, 0),
    is_barrier=pa.bool_(),
)
#: The further columns of an instance.
_OWNER = make_schema(owner=pa.string())
_DEATH = make_schema(reason=pa.string(), error=pa.string(), removed_at=INSTANT)


def message_schema(view: str, columns_ddl: str, *, of_instance: bool) -> pa.Schema:
    """Return the columns of a view for a message type: its own, the bookmark, the journal's, the queue's, the view's."""
    _, of_view = MESSAGE_VIEWS[view]
    origin, owner = (ORIGIN, _OWNER) if of_instance else ((), ())
    shown = names_in_views(columns_ddl, of_instance=of_instance)
    own = [field.with_name(shown[field.name]) for field in user_schema(columns_ddl)]
    return pa.schema([*own, pa.field("bookmark", pa.int64()), *ENVELOPE, *origin, *_PLACE, *owner, *of_view])


def names_in_views(columns_ddl: str, *, of_instance: bool) -> Mapping[str, str]:
    """Return the names in views of a message type's columns: the same in all views, so those of any view are avoided."""
    return shown_names(columns_ddl, (*_PLACE.names, *(_OWNER.names if of_instance else ()), *_DEATH.names))


def read_messages(
    view: JournalView, name: str, queue: str, *, columns: Sequence[str] | None, limit: int | None, next_first: bool = False
) -> pa.Table:
    """Return one of `MESSAGE_VIEWS`: the queue's columns of messages, joined with the stored ones."""
    find, _ = MESSAGE_VIEWS[name]
    known = _next(view, queue, limit) if next_first else find(view, queue, limit)
    type_name = view.state.ledger(queue).definition.message_type
    message_type, instance = view.state.message_types[type_name], view.state.definitions.journal.instance
    _put_origins(known, message_type.origin_names(instance, view.state.instances))
    own = view.state.definitions.message_type(type_name).columns
    whole = message_schema(name, own, of_instance=instance is not None)
    schema = whole if columns is None else pa.schema([whole.field(column) for column in columns])
    # The stored name of each column of the view.
    stored = {shown: column for column, shown in names_in_views(own, of_instance=instance is not None).items()}
    stored |= {name: name for name in ENVELOPE.names}
    bodies = pa.schema([field.with_name(stored[field.name]) for field in schema if field.name in stored])
    found = _bodies(view, queue, message_type, known.bookmarks, bodies) if len(bodies) else None
    made = [
        found.column(stored[field.name]) if found is not None and field.name in stored else known.column(field) for field in schema
    ]
    table = pa.table(made, schema=schema)
    return table.take(_turns(view.state.ledger(queue), known.bookmarks)) if next_first else table


def _bodies(view: JournalView, queue: str, known: MessageTypeState, bookmarks: Bookmarks, schema: pa.Schema) -> pa.Table:
    """Return the stored columns of messages, NULL for letters that have no body any more (R155)."""
    lost = view.state.ledger(queue).dead_letters.lost
    if not lost:
        return read_bodies(view.journal.store, known, bookmarks, schema)
    standing = to_array(from_array(bookmarks) - lost)
    places = np.searchsorted(standing, bookmarks)
    is_gone = np.isin(bookmarks, standing, invert=True)
    found = read_bodies(view.journal.store, known, standing, schema)
    chosen: Any = pa.array(places, mask=is_gone)
    return found.take(chosen)


def _turns(ledger: QueueLedger, bookmarks: Bookmarks) -> NDArray[np.int64]:
    """Return the places of messages in the order in which they are granted (R66)."""
    levels = ledger.selection.priorities.levels(from_array(bookmarks))
    return np.searchsorted(bookmarks, np.concatenate([to_array(level) for level in levels]))


def _messages(view: JournalView, queue: str, limit: int | None) -> _Columns:
    """Find the messages in a queue, oldest first; those that left it are in its history, inactive ones are not shown (R80)."""
    states = _states(view, queue)
    return _told(view, queue, states, _limited(BitMap64.union(*states.values()), limit))


def _next(view: JournalView, queue: str, limit: int | None) -> _Columns:
    """Find the messages that a subscription without a filter may be given now, and of them those that come first (R66, R69)."""
    ledger, states = view.state.ledger(queue), _states(view, queue)
    free = ledger.selection.heads(before_held(ledger, states[State.AVAILABLE]))
    return _told(view, queue, states, ledger.selection.first(free, len(free) if limit is None else limit))


def _states(view: JournalView, queue: str) -> dict[State, BitMap64]:
    """Return a queue's messages by their state at the moment of the view: due ones wait no more."""
    ledger = view.state.ledger(queue)
    states = {state: ledger.rows[state] for state in (*ACTIVE, State.HELD, State.REMOTE)}
    due = ledger.due(view.now_ms)
    if due:
        states[State.AVAILABLE], states[State.DELAYED] = states[State.AVAILABLE] | due, states[State.DELAYED] - due
    return states


def _told(view: JournalView, queue: str, states: Mapping[State, BitMap64], rows: BitMap64) -> _Columns:
    """Return a queue's columns of some messages in it."""
    ledger = view.state.ledger(queue)
    bookmarks = to_array(rows)
    columns = _Columns(bookmarks)
    for state, members in states.items():
        columns.put("state", members & rows, str(state))
    columns.put("is_barrier", rows & ledger.barriers, value=True)
    columns.put("is_barrier", rows - ledger.barriers, value=False)
    for due_at_ms, members in ledger.delayed.items():
        if due_at_ms > view.now_ms:
            columns.put("due_at", members & rows, due_at_ms * 1_000)
    for lease in ledger.leases.values():
        held = lease.leased & rows
        columns.put("subscription", held, lease.subscription)
        columns.put("lease", held, lease.number)
        columns.put("leased_until", held, lease.due_at_ms * 1_000)
    _put_owners(columns, ledger, rows - ledger.barriers)
    columns.put_each("priority", *ledger.selection.priorities.of(rows))
    for name, counts in (("delivery_count", ledger.delivered), ("cancel_count", ledger.cancelled)):
        for count, members in counts.split(rows):
            columns.put(name, members, count)
    return columns


def _dead_letters(view: JournalView, queue: str, limit: int | None) -> _Columns:
    """Find a queue's dead letters, oldest first; those that its dead-letter queue has settled are gone."""
    letters = standing_letters(view.state, queue)
    rows = _limited(BitMap64.union(BitMap64(), *(letter.rows for letter in letters)), limit)
    columns = _Columns(to_array(rows))
    columns.put("state", rows, str(State.DEAD))
    # A barrier never becomes a dead letter.
    columns.put("is_barrier", rows, value=False)
    _put_owners_of_letters(columns, view.state, queue, rows)
    for letter in letters:
        members = letter.rows & rows
        values = {
            "delivery_count": letter.deliveries,
            "cancel_count": letter.cancels,
            "reason": str(letter.reason),
            "error": letter.error,
            "removed_at": letter.removed_at_ms * 1_000,
        }
        for name, value in values.items():
            columns.put(name, members, value)
    return columns


def _put_owners(columns: _Columns, ledger: QueueLedger, rows: BitMap64) -> None:
    """Fill in the owners of a queue's messages; a queue that is not replicated knows none."""
    if ledger.is_replicated:
        for _, owner, members in ledger.ownership.by_owner(rows):
            columns.put("owner", members, owner)


def _put_owners_of_letters(columns: _Columns, state: JournalState, queue: str, rows: BitMap64) -> None:
    """Fill in the owners of dead letters, which may redrive and settle them: those of the dead-letter queue if there is one."""
    ledger = state.ledger(queue)
    home = ledger.definition.dead_letter_queue
    letters = ledger if home is None else state.ledger(home)
    _put_owners(columns, letters, rows & letters.entered)
    _put_owners(columns, ledger, rows - letters.entered)


def _put_origins(columns: _Columns, names: OriginNames | None) -> None:
    """Fill in the origins of messages, a stretch at a time."""
    bookmarks = columns.bookmarks
    if names is None or not len(bookmarks):
        return
    found = names.between(int(bookmarks[0]), int(bookmarks[-1]) + 1)
    at: Any = np.searchsorted(np.array([first for first, _, _ in found]), bookmarks, side="right") - 1
    columns.put_whole("origin", pa.array([name for _, name, _ in found]).take(pa.array(at)))
    shifts = np.array([there - first for first, _, there in found])
    columns.put_whole("origin_bookmark", pa.array(bookmarks + shifts[at]))


#: The views whose rows are messages: the function that finds them, and the columns that only this view has.
MESSAGE_VIEWS: Mapping[str, tuple[Callable[[JournalView, str, int | None], _Columns], pa.Schema]] = {
    "messages": (_messages, make_schema()),
    "dead_letters": (_dead_letters, _DEATH),
}


class _Columns:
    """Columns of one value for each bookmark, filled part by part; a value that is never filled in is NULL."""

    def __init__(self, bookmarks: Bookmarks) -> None:
        self.bookmarks = bookmarks
        #: The index of each row's value; 0 is NULL.
        self._codes: dict[str, NDArray[np.int32]] = {}
        self._values: dict[str, list[Any]] = {}
        #: Columns with a value for each row.
        self._whole: dict[str, Any] = {}

    def put(self, name: str, rows: BitMap64, value: Any) -> None:
        """Give `rows`, all of them among the bookmarks, a value in a column."""
        if not rows:
            return
        codes = self._codes.setdefault(name, np.zeros(len(self.bookmarks), dtype=np.int32))
        values = self._values.setdefault(name, [None])
        if len(rows) == len(codes):
            codes[:] = len(values)
        else:
            codes[np.searchsorted(self.bookmarks, to_array(rows))] = len(values)
        values.append(value)

    def put_each(self, name: str, bookmarks: Bookmarks, values: NDArray[np.uint64]) -> None:
        """Give some bookmarks, ascending and all of them here, a value each."""
        positions = np.full(len(self.bookmarks), -1)
        positions[np.searchsorted(self.bookmarks, bookmarks)] = np.arange(len(bookmarks))
        self.put_whole(name, pa.array(values).take(pa.array(positions, mask=positions < 0)))

    def put_whole(self, name: str, values: Any) -> None:
        """Give each bookmark its value: an Arrow array."""
        self._whole[name] = values

    def column(self, field: pa.Field[Any]) -> Any:
        """Return a column of the table."""
        if field.name == "bookmark":
            return pa.array(self.bookmarks)
        if field.name in self._whole:
            return self._whole[field.name].cast(field.type)
        if field.name not in self._codes:
            return pa.nulls(len(self.bookmarks), field.type)
        return pa.array(self._values[field.name], field.type).take(pa.array(self._codes[field.name]))


def _limited(rows: BitMap64, limit: int | None) -> BitMap64:
    return rows if limit is None else oldest(rows, limit)
