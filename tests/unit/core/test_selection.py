"""Which messages a grant takes, against a model that looks at one message after the other (R49, R66, DESIGN 8)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from pyroaring import BitMap64

from spark_queue.core import commands
from spark_queue.core.state import selection
from spark_queue.core.state.lifecycle import LEFT, TRANSITIONS, Event, State
from tests.deciding import leased, started
from tests.scenario import Scenario, run_scenario
from tests.scenario.attributes import matches

FILTERS = (None, "price > 3", "region = EU")
MESSAGES = st.lists(
    st.tuples(st.one_of(st.none(), st.integers(0, 6)), st.sampled_from(["EU", "US"]), st.sampled_from([None, "a", "b", "c"])),
    max_size=8,
)
#: What may happen between two grants: to whom, and how many messages at most.
STEPS = st.one_of(
    st.tuples(st.just("publish"), MESSAGES),
    st.tuples(st.just("next"), st.tuples(st.integers(0, 2), st.integers(1, 6))),
    st.tuples(st.just("cancel"), st.tuples(st.integers(0, 2), st.sampled_from(["", " after=30s"]))),
    st.tuples(st.just("expire"), st.integers(0, 40)),
    st.tuples(st.just("acknowledge"), st.integers(0, 40)),
    st.tuples(st.just("filter"), st.tuples(st.integers(0, 2), st.sampled_from(FILTERS))),
    st.tuples(st.just("tick"), st.integers(1, 70)),
    st.tuples(st.just("crash"), st.just(None)),
)


def test_what_is_gone_is_forgotten_and_what_a_filter_keeps_out_stays_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """R49: once most of what matched has left the queue."""
    monkeypatch.setattr(selection, "_GONE_MAX", 0)
    scenario = run_scenario(
        """
define
  [message_types.json]
  topics = ["T"]
  [queues.Q]
  underlying_topic = "T"
publish T 0..6 price=9, T 7..8 price=1
planner p Q/s backlog=9 filter="price > 5"
settle Q acknowledge 0..5
"""
    )
    assert scenario.world.engine.state.ledger("Q").selection.matches == {"price > 5": BitMap64([6])}
    scenario.run("next p -> lease 1: 6\nnext p -> nothing\npublish T 9 price=9\nnext p -> lease 2: 9")


@dataclass
class Model:
    """A scenario under way, and what was published in it."""

    key: str
    #: Most messages of a key in a lease; 0 for no limit.
    longest: int = 0
    scenario: Scenario = field(default_factory=Scenario)
    messages: list[dict[str, int | str]] = field(default_factory=list)
    filters: list[str | None] = field(default_factory=lambda: list(FILTERS))

    def run(self, text: str) -> None:
        self.scenario.run(text)

    def expected(self, number: int, limit: int) -> list[int]:
        """Return what the next grant must take, message by message."""
        ledger = self.scenario.world.state.ledger("Q")
        now_ms = self.scenario.world.now_ms
        waiting = set(ledger.rows[State.AVAILABLE]) | {
            row for due_ms, rows in ledger.delayed.items() if due_ms <= now_ms for row in rows
        }
        leased = set(ledger.rows[State.LEASED])
        in_queue = {*waiting, *leased, *ledger.rows[State.DELAYED]}
        chosen: list[int] = []
        for row in sorted(waiting):
            mine = self.messages[row]
            key = mine.get("account")
            same = {other for other in in_queue if self.messages[other].get("account") == key}
            ahead = {other for other in same if other < row}
            is_too_far = bool(self.longest) and len(ahead) >= self.longest
            if self.key == "order_key" and key is not None and (same & leased or not ahead.issubset(chosen) or is_too_far):
                continue
            if matches(self.filters[number], mine):
                chosen.append(row)
        if self.key == "priority":
            chosen.sort(key=lambda row: (-int(self.messages[row].get("price", -1)), row))
        else:
            chosen.sort()
        return sorted(chosen[:limit])


@pytest.mark.drawn(2)
@pytest.mark.parametrize(
    ("key", "longest"), [("priority", 0), ("order_key", 0), ("order_key", 1), ("order_key", 2), ("neither", 0)]
)
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(STEPS, min_size=4, max_size=14))
def test_a_grant_takes_what_a_look_at_each_message_would(key: str, longest: int, steps: list[tuple[str, Any]]) -> None:
    model = Model(key, longest)
    order = f'  order_key = "account"\n  order_key_run = {longest}\n'
    line = {"priority": '  priority = "price"\n', "order_key": order, "neither": ""}[key]
    # One subscription's part is not to wait for the others here.
    line += '  fairness = "fast"\n'
    model.run(f'define\n  [message_types.json]\n  topics = ["T"]\n  [queues.Q]\n  underlying_topic = "T"\n{line}')
    for number in range(3):
        model.run(_planner(model, number))
    for step, what in steps:
        _STEPS[step](model, what)


def test_an_older_message_that_comes_back_waits_for_the_younger_one_that_is_leased_and_is_not_overtaken_by_its_resume(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(TRANSITIONS, (State.DEAD, Event.RETURNED), State.AVAILABLE)
    model = Model("order_key")
    model.run('define\n  [message_types.json]\n  topics = ["T"]\n  [queues.Q]\n  underlying_topic = "T"\n  order_key = "account"')
    model.run("publish T 0..1 account=a\nsettle Q expire 0\nplanner p Q/s\nnext p -> lease 1: 1\nrows p -> 1\nplanner other Q/t")
    world = model.scenario.world
    ledger = world.state.ledger("Q")
    other, renewed = (world.planners[name] for name in ("other", "p"))
    ledger.move(BitMap64([0]), Event.RETURNED)
    asked = commands.Next(queue="Q", subscription="t", incarnation=other.incarnation, call=2, finished=0, limit=9)
    assert world.decide(asked) is None
    world.engine.tick(now_ms=world.now_ms + 61_000)
    assert list(ledger.rows[State.AVAILABLE]) == [0, 1]
    again = started(world.engine, "Q", "s", max_backlog=renewed.max_backlog, now_ms=world.now_ms)
    assert list(world.decide(commands.Rows(**again, call=2, lease=1)).rows) == []
    lease = leased(world.engine, replace(asked, call=3), now_ms=world.now_ms)
    assert lease is not None
    assert list(lease.rows) == [0, 1]


def _publish(model: Model, given: Any) -> None:
    for price, region, account in given:
        values = {"price": price, "region": region, "account": account}
        attributes = {name: value for name, value in values.items() if value is not None}
        words = " ".join(f"{name}={value}" for name, value in attributes.items())
        model.run(f"publish T {len(model.messages)} {words}")
        model.messages.append(attributes)


def _next(model: Model, given: Any) -> None:
    number, limit = given
    # Its last lease is proven first, so that what it held is gone when the model looks.
    world = model.scenario.world
    held = world.state.ledger("Q").open_lease(world.state.ledger("Q").subscriptions[f"s{number}"])
    if held is not None:
        model.run(f"start p{number}\nprove p{number}")
    wanted = model.expected(number, limit)
    newest = world.state.ledger("Q").next_lease
    model.run(f"next p{number} limit={limit}" if wanted else f"next p{number} limit={limit} -> nothing")
    if wanted:
        assert list(world.state.ledger("Q").leases[newest].rows) == wanted


def _cancel(model: Model, given: Any) -> None:
    number, after = given
    ledger = model.scenario.world.state.ledger("Q")
    lease = ledger.open_lease(ledger.subscriptions[f"s{number}"])
    if lease is not None and lease.leased:
        rows = " ".join(str(row) for row in lease.leased)
        model.run(f"start p{number}\nend p{number} cancel {rows}{after}\nprove p{number}")


def _settled_by_hand(outcome: str) -> Callable[[Model, Any], None]:
    def settle(model: Model, given: Any) -> None:
        if given >= len(model.messages):
            return
        # What is gone can be acknowledged once more, and nothing else.
        ledger = model.scenario.world.state.ledger("Q")
        is_gone = any(given in ledger.rows[state] for state in LEFT)
        refusal = " -> LEASE_SETTLED" if is_gone and outcome == "expire" else ""
        model.run(f"settle Q {outcome} {given}{refusal}")

    return settle


def _filter(model: Model, given: Any) -> None:
    number, text = given
    model.filters[number] = text
    model.run(_planner(model, number))


def _planner(model: Model, number: int) -> str:
    text = model.filters[number]
    return f"planner p{number} Q/s{number}" + ("" if text is None else f' filter="{text}"')


_STEPS: dict[str, Callable[[Model, Any], None]] = {
    "publish": _publish,
    "next": _next,
    "cancel": _cancel,
    "expire": _settled_by_hand("expire"),
    "acknowledge": _settled_by_hand("acknowledge"),
    "filter": _filter,
    "tick": lambda model, given: model.run(f"tick {given}s"),
    "crash": lambda model, given: model.run("crash"),
}
