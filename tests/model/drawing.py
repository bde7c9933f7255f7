"""What the random programs draw: messages, and the keys of their queue."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.model.bodies import QUESTIONS
from tests.model.model import Queue
from tests.model.parts import Rules

bodies = st.fixed_dictionaries({
    "size": st.sampled_from([None, 0, 1, 2, 3]),
    "colour": st.sampled_from([None, "red", "red", "blue", "black"]),
    "expires_ms": st.sampled_from([None, None, None, 15_000]),
})  # fmt: skip

OPTIONAL: dict[str, st.SearchStrategy[Any]] = {
    "semantics": st.sampled_from(["at-least-once", "at-least-once", "at-most-once"]),
    "max_backlog": st.sampled_from([0, 5]),
    "max_per_subscription_backlog": st.sampled_from([0, 3]),
    "expiration": st.sampled_from([None, None, "25s"]),
    "max_deliveries": st.sampled_from([0, 1, 2]),
    "max_cancels": st.sampled_from([0, 1]),
    "fairness": st.just("fast"),
    "filter": st.sampled_from([None, "size > 1"]),
    "order": st.sampled_from([None, "priority", "order_key", "target_queue_depth"]),
    "barrier": st.sampled_from([None, "colour = 'black'"]),
}


def make(drawn: dict[str, Any], now: int) -> tuple[dict[str, Any], Queue]:
    """Give a queue's table of keys, and the model of it."""
    order = drawn["order"]
    rules = Rules(
        at_most_once=drawn["semantics"] == "at-most-once",
        max_backlog=drawn["max_backlog"],
        max_per_subscription=drawn["max_per_subscription_backlog"],
        expiration_ms=None if drawn["expiration"] is None else 25_000,
        max_deliveries=drawn["max_deliveries"],
        max_cancels=drawn["max_cancels"],
        filter=None if drawn["filter"] is None else QUESTIONS[drawn["filter"]],
        priority=QUESTIONS["size"] if order == "priority" else None,
        key=QUESTIONS["colour"] if order == "order_key" else None,
        depth=3 if order == "target_queue_depth" else 0,
    )
    table = {name: value for name, value in drawn.items() if name not in ("order", "barrier") and value is not None}
    if rules.at_most_once:
        del table["fairness"]
        table["fairness_window"] = "1ms"
    table |= {"underlying_topic": "T", "lease_period": "10s"}
    table |= {"priority": "size"} if order == "priority" else {"order_key": "colour"} if order == "order_key" else {}
    if rules.depth:
        table["target_queue_depth"] = rules.depth
    if drawn["barrier"] is not None and order != "target_queue_depth":
        table["barrier"], rules.barrier = drawn["barrier"], QUESTIONS[drawn["barrier"]]
    return table, Queue(rules, now)
