"""Records win over facts: a repaired translator, or another engine, may see other values; the log still folds (DESIGN 4)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyroaring import BitMap64

from spark_queue.core import folds
from spark_queue.core.bitmaps.ranges import to_bitmap
from spark_queue.core.records import Kind
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.lifecycle import State
from spark_queue.verification.of_state import of_state
from tests.records import detail_of
from tests.scenario import Scenario, run_scenario
from tests.scenario.traits import PublishedMessage

QUEUE = '[message_types.json]\n  topics = ["T"]\n  [queues.Q]\n  underlying_topic = "T"\n'

#: The queue comes after its messages.
LATER = 'define\n  [message_types.json]\n  topics = ["T"]\npublish T {messages}\ndefine\n  ' + QUEUE + "  barrier = 'x > 5'\n"

START = """
define
  [message_types.json]
  topics = ["T"]
  [queues.Q]
  underlying_topic = "T"
  {key}
publish T 0 x=1, T 1 x=4
"""

TAKEN = START + "planner p1 Q/s1\nnext p1 limit=2 -> lease 1: 0..1\n"


def seen_otherwise(scenario: Scenario, *values: int) -> JournalState:
    """Fold the committed log where the messages' attribute x is seen with other values."""
    traits = scenario.world.traits
    messages = [PublishedMessage(topic="T", attributes={"x": value}) for value in values]
    [segment] = scenario.world.state.message_types["json"].segments
    traits.remove(segment.path)
    traits.add(segment.path, messages)
    state = JournalState(traits)
    folds.fold_all(state, scenario.world.committed)
    assert of_state(state) == []
    return state


@pytest.mark.parametrize("key", ["x < 5", "x > 0 and x < 5"])
def test_what_was_granted_is_leased_whatever_the_queue_filter_says_by_now(key: str) -> None:
    scenario = run_scenario(TAKEN.format(key=f'filter = "{key}"'))
    ledger = seen_otherwise(scenario, 1, 7).queues["Q"]
    assert ledger.leases[1].leased == to_bitmap([(0, 2)])
    assert ledger.rows[State.AVAILABLE] == to_bitmap([])


def test_a_recalled_message_keeps_its_key_its_priority_and_what_matches_it() -> None:
    """It is in the queue as it was, so what comes after knows all of it."""
    keyed = run_scenario(START.format(key='filter = "x < 5"\n  order_key = "x"') + "planner p1 Q/s1\nnext p1 -> lease 1: 0..1\n")
    ledger = seen_otherwise(keyed, 7, 8).queues["Q"]
    assert ledger.selection.order_keys.keys_of(to_bitmap([(0, 2)]))[0].tolist() == [0, 1]
    ranked = run_scenario(TAKEN.format(key='filter = "x < 5"\n  priority = "x"'))
    ledger = seen_otherwise(ranked, 1, 7).queues["Q"]
    assert [each.tolist() for each in ledger.selection.priorities.of(to_bitmap([(0, 2)]))] == [[0, 1], [1, 7]]


def purge(scenario: Scenario) -> None:
    scenario.run("purge Q -> purged 2 leased 0")


def expire(scenario: Scenario) -> None:
    scenario.run("settle Q expire 0..1 -> expired 2\nredrive Q -> redriven 2")


def let_go(scenario: Scenario) -> None:
    scenario.run("planner p1 Q/s1\nnext p1 -> lease 1: 0..1\nrows p1\ntick 61s\nstate Q available 0..1")


@pytest.mark.parametrize("act", [purge, expire, let_go])
def test_a_log_folds_whatever_was_done_to_what_no_longer_matches(act: Callable[[Scenario], None]) -> None:
    scenario = run_scenario(START.format(key='filter = "x < 5"'))
    act(scenario)
    known, found = scenario.world.state.queues["Q"], seen_otherwise(scenario, 1, 7).queues["Q"]
    assert found.rows == known.rows


def test_what_nobody_spoke_of_is_as_its_facts_say() -> None:
    scenario = run_scenario(START.format(key='filter = "x < 5"') + "planner p1 Q/s1\nnext p1 limit=1 -> lease 1: 0\n")
    assert seen_otherwise(scenario, 1, 7).queues["Q"].entered == to_bitmap([(0, 1)])


def test_a_reset_queue_is_not_what_it_was_before() -> None:
    """What records said of it until then is over; its messages come again, as they are seen by now."""
    scenario = run_scenario(TAKEN.format(key='filter = "x < 5"') + "tick 61s\nunsubscribe Q/s1\n")
    scenario.run(f"define reset=Q\n  {QUEUE}  filter = 'x < 5'\n")
    assert seen_otherwise(scenario, 1, 7).queues["Q"].rows[State.AVAILABLE] == to_bitmap([(0, 1)])


@pytest.mark.parametrize("values", [(1, 7), (7, 1)], ids=["one more", "one less"])
def test_barriers_of_the_past_are_recorded_when_a_queue_begins(values: tuple[int, int]) -> None:
    """R75: decided once, also for messages that were there before the queue, or before its reset."""
    scenario = run_scenario(LATER.format(messages="0..1 x=1, T 2 x=7"))
    scenario.run(f"define reset=Q\n  {QUEUE}  barrier = 'x > 5'\nplanner p1 Q/s1\nnext p1 -> lease 1: 0..1\n")
    applied = [record for record in scenario.world.committed if record.kind == Kind.DEFINITIONS_APPLIED]
    assert [detail_of(record).get("barriers") for record in applied[1:]] == [{"Q": [[2, 3]]}] * 2
    ledger = seen_otherwise(scenario, values[0], values[1], 1).queues["Q"]
    assert (ledger.rows[State.LEASED], ledger.rows[State.HELD]) == (to_bitmap([(0, 2)]), to_bitmap([(2, 3)]))


@pytest.mark.parametrize("values", [(1, 7), (1, 1), (7, 7)], ids=["another", "none", "one more"])
def test_barriers_of_what_came_while_the_queue_was_set_aside_are_recorded_when_it_is_back(values: tuple[int, int]) -> None:
    """R75, R122: decided once, whatever the expression says of them later."""
    scenario = run_scenario(LATER.format(messages="0 x=1"))
    scenario.run("set_aside Q\npublish T 1 x=7, T 2 x=1\ncrash\nrevive Q\nstate Q available 0 2 held 1\ncrash\n")
    told = [record for record in scenario.world.committed if record.kind == Kind.BARRIERS_DECIDED]
    assert [(to_bitmap(record.ranges), detail_of(record)) for record in told] == [
        (BitMap64([1]), {"barrier": True}),
        (BitMap64([2]), {}),
    ]
    traits, segment = scenario.world.traits, scenario.world.state.message_types["json"].segments[1]
    traits.remove(segment.path)
    traits.add(segment.path, [PublishedMessage(topic="T", attributes={"x": value}) for value in values])
    ledger = scenario.world.folded().queues["Q"]
    assert (ledger.rows[State.AVAILABLE], ledger.rows[State.HELD]) == (BitMap64([0, 2]), BitMap64([1]))
