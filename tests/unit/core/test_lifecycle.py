from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from pyroaring import BitMap64

from spark_queue.core.bitmaps.ranges import to_bitmap
from spark_queue.core.definitions.parsing import parse
from spark_queue.core.folds import fold_into
from spark_queue.core.message_files.segment import EntryTraits
from spark_queue.core.records import Kind, Record
from spark_queue.core.state.ledger import QueueLedger
from spark_queue.core.state.lifecycle import TRANSITIONS, Event, State
from spark_queue.errors import CoordinatorError
from spark_queue.verification.state_digest import of_ledger
from tests.records import record_of

ROWS = ((0, 3),)
DUE_MS = 5_000


def record(kind: Kind, **fields: Any) -> Record:
    detail = {"incarnation": [1, 1], "call": 2, "limit": 9, "counted": False, "vanished_runs": 0, "deliveries": 1, "cancels": 0}
    given: dict[str, Any] = {"detail": detail, "ranges": ROWS, **fields}
    return record_of(kind=kind, queue="Q", subscription="s", **given)


#: What makes each event happen to messages 0 to 2.
EVENTS = {
    Event.GRANTED: record(Kind.GRANTED, lease=2, due_at_ms=9_000),
    Event.RESUMED: record(Kind.RESUMED, lease=1, due_at_ms=9_000),
    Event.RETURNED: record(Kind.RETURNED, lease=1, reason="lease_expired"),
    Event.POSTPONED: record(Kind.RETURNED, lease=1, reason="cancelled", due_at_ms=DUE_MS),
    Event.REMOVED: record(Kind.REMOVED, lease=1, reason="acknowledged"),
    Event.DEAD_LETTERED: record(Kind.REMOVED, lease=1, reason="forced_expire"),
    Event.RELEASED: record(Kind.BARRIER_RELEASED, detail={"subscriptions": ["s"]}),
    Event.REENTERED: record(Kind.DEAD_LETTERED, reason="forced_expire"),
}


def happen(ledger: QueueLedger, event: Event) -> None:
    """Let an event happen to messages 0 to 2; what no record says of single messages follows from the target depth."""
    if event in EVENTS:
        fold_into(ledger, EVENTS[event])
    else:
        ledger.move(to_bitmap(ROWS), event)


def ledger_with(state: State) -> QueueLedger:
    """Give a ledger that knows messages 0 to 9, of which 0 to 2 are in `state` and the others available."""
    queue = parse({"message_types": {"json": {"topics": ["T"]}}, "queues": {"Q": {"underlying_topic": "T"}}}).queues["Q"]
    ledger = QueueLedger(queue, start=0)
    held = to_bitmap(ROWS) if state is State.HELD else BitMap64()
    ledger.enter(EntryTraits(rows=to_bitmap([(0, 10)]), barriers=held))
    fold_into(ledger, record(Kind.SUBSCRIBED, detail={"ack_mode": "auto", "max_backlog": 100, "filter": None}))
    fold_into(ledger, record(Kind.ATTACHED))
    fold_into(ledger, record(Kind.GRANTED, lease=1, due_at_ms=9_000, ranges=((3, 6),) if held else ROWS))
    path = {
        State.LEASED: (),
        State.HELD: (),
        State.AVAILABLE: (Event.RETURNED,),
        State.DELAYED: (Event.POSTPONED,),
        State.INACTIVE: (Event.RETURNED, Event.DEACTIVATED),
        State.DEAD: (Event.DEAD_LETTERED,),
        State.REMOVED: (Event.REMOVED,),
        State.REMOTE: (Event.RETURNED, Event.DISOWNED),
    }
    for event in path[state]:
        happen(ledger, event)
    assert ledger.rows[state] >= to_bitmap(ROWS)
    return ledger


@pytest.mark.parametrize(("state", "event"), list(product(State, Event)))
def test_an_event_moves_a_message_as_the_table_says_or_raises_and_changes_nothing(state: State, event: Event) -> None:
    # In a dead-letter queue what it still has stays as it is; that no message re-enters is shown below.
    if event is Event.REENTERED and state is not State.REMOVED:
        assert (state, event) not in TRANSITIONS
        return
    ledger = ledger_with(state)
    before = of_ledger(ledger)
    target = TRANSITIONS.get((state, event))
    if target is None:
        with pytest.raises(CoordinatorError, match=f"{event} of 3 messages of 'Q' finds 3 {state}"):
            happen(ledger, event)
        assert of_ledger(ledger) == before
        return
    happen(ledger, event)
    assert ledger.rows[target] >= to_bitmap(ROWS)
    assert sum(len(rows) for rows in ledger.rows.values()) == 10


@pytest.mark.parametrize("event", [event for event in EVENTS if event is not Event.REENTERED])
def test_an_event_raises_and_changes_nothing_when_a_message_never_entered(event: Event) -> None:
    ledger = ledger_with(State.AVAILABLE)
    before = of_ledger(ledger)
    with pytest.raises(CoordinatorError, match="finds"):
        fold_into(ledger, replace(EVENTS[event], ranges=((8, 12),)))
    assert of_ledger(ledger) == before


@pytest.mark.parametrize("state", [state for state in State if state is not State.REMOVED])
def test_a_dead_letter_that_its_queue_still_has_stays_as_it_is(state: State) -> None:
    ledger = ledger_with(state)
    before = of_ledger(ledger)
    fold_into(ledger, EVENTS[Event.REENTERED])
    assert of_ledger(ledger) == before


def test_every_state_is_reached_and_left_by_some_event() -> None:
    # A barrier is held from when it enters.
    assert set(TRANSITIONS.values()) == set(State) - {State.HELD}
    assert {state for state, _ in TRANSITIONS} == set(State)
    assert {event for _, event in TRANSITIONS} == set(Event)
