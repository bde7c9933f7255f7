"""Random definitions of queues, and what they mean to the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from tests.model.bodies import QUESTIONS

#: What a queue may ask of a message's body; None where the rule is not set.
Question = Callable[[dict[str, Any]], Any] | None


@dataclass(kw_only=True)
class Rules:
    """The keys of one queue."""

    at_most_once: bool = False
    lease_ms: int = 10_000
    renewal_ms: int = 3_600_000
    max_backlog: int = 0
    max_per_subscription: int = 0
    expiration_ms: int | None = None
    max_deliveries: int = 0
    max_cancels: int = 0
    backoff: tuple[int, int, int] | None = None
    strict: bool = False
    filter: Question = None
    priority: Question = None
    key: Question = None
    #: Most messages of one key in a lease; 0 for no limit.
    run: int = 0
    barrier: Question = None
    depth: int = 0
    deferral_ms: int = 86_400_000
    #: A bookmark, a time ("at", ms), "now" or "epoch".
    start: Any = "epoch"
    letters: str | None = None
    letters_kept_ms: int | None = None

    def delay_ms(self, times: int, otherwise: int = 0) -> int:
        """Return the delay of a cancel after so many, or of a probe (DESIGN 8)."""
        first, longest, factor = self.backoff or (otherwise, otherwise, 1)
        return min(longest, int(first * factor**times))

    def lone_delay_ms(self, times: int) -> int:
        """Return how long a message waits that fails alone, after so many times before (DESIGN 15.12)."""
        first, longest, factor = self.backoff or (1_000, 300_000, 2)
        return min(longest, int(first * factor**times))


#: The least target depth that users may set is more than a program that can be read publishes.
DEPTHS = (2, 4)

_BACKOFFS = {"2s": (2_000, 2_000, 1), "1s..5s x2": (1_000, 5_000, 2)}

_COMMON: dict[str, st.SearchStrategy[Any]] = {
    "lease_period": st.sampled_from(["10s", "10s", "5s"]),
    "lease_renewal_limit": st.sampled_from([None, "12s"]),
    "max_backlog": st.sampled_from([0, 0, 5]),
    "max_per_subscription_backlog": st.sampled_from([0, 0, 3]),
    "max_deliveries": st.sampled_from([0, 1, 2]),
    "max_cancels": st.sampled_from([0, 1]),
    "fairness": st.sampled_from(["fast", "proportional", "round-robin"]),
    "retry_backoff": st.sampled_from([None, None, *_BACKOFFS]),
    "leasing": st.sampled_from(["sublet", "sublet", "strict"]),
}

#: The keys of a dead-letter queue, and their names. With a target depth it would matter in which order letters come that die at
#: once: the core records together those that were delivered and cancelled as often, and no rule asks for that.
LETTERS = _COMMON
LETTER_QUEUES = ("D", "E")

#: The keys of a queue of messages; of those in `order` at most one is set, and the others are as the names say.
MESSAGES = {
    **_COMMON,
    "semantics": st.sampled_from(["at-least-once", "at-least-once", "at-least-once", "at-most-once"]),
    "expiration": st.sampled_from([None, None, "25s", "12s"]),
    "filter": st.sampled_from([None, None, "size > 1"]),
    "order": st.sampled_from([
        None, ("priority", "size"), ("priority", "3 - size"), ("order_key", "colour"), ("order_key", "size of colour"),
        *(("target_queue_depth", depth) for depth in DEPTHS),
    ]),
    "order_key_run": st.sampled_from([None, None, 1, 2]),
    "barrier": st.sampled_from([None, None, "colour = 'black'", "size = 0"]),
    "deferred_ack_expiration": st.sampled_from([None, "8s"]),
    "recovery_point": st.sampled_from(["epoch", "epoch", "now", 3, "1970-01-01T00:00:20+00:00"]),
    "dead_letter_queue": st.sampled_from([None, "D", "D", "E"]),
    "dead_letter_retention": st.sampled_from([None, None, "20s"]),
}  # fmt: skip

_MS = {"5s": 5_000, "8s": 8_000, "10s": 10_000, "12s": 12_000, "20s": 20_000, "25s": 25_000}

_STARTS: dict[Any, Any] = {"1970-01-01T00:00:20+00:00": ("at", 20_000)}


def table_of(name: str, drawn: Mapping[str, Any]) -> dict[str, Any]:
    """Return the table that a user would write, without the keys that exclude one another."""
    if name in LETTER_QUEUES:
        return {"message_type": "json", "fairness_window": "1ms", **{key: each for key, each in drawn.items() if each is not None}}
    left_out = {"order"}
    if drawn["semantics"] == "at-most-once":
        left_out |= {"fairness", "dead_letter_queue", "dead_letter_retention"}
    if drawn["order"] is not None and drawn["order"][0] == "target_queue_depth":
        left_out |= {"barrier"}
    table = {key: each for key, each in drawn.items() if each is not None and key not in left_out}
    # Whoever polled before is out of the window when the next one comes, so nothing is kept for others.
    table |= {"underlying_topic": "T", "fairness_window": "1ms"}
    return table | (dict([drawn["order"]]) if drawn["order"] is not None else {})


def tables_of(drawn: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the tables of all queues; a dead-letter queue has one source, and is there while it has one."""
    tables = {name: table_of(name, keys) for name, keys in drawn.items()}
    used: set[str] = set()
    for table in tables.values():
        if table.get("dead_letter_queue") in used:
            del table["dead_letter_queue"]
        used |= {table["dead_letter_queue"]} if "dead_letter_queue" in table else set()
    return {name: table for name, table in tables.items() if name not in LETTER_QUEUES or name in used}


def rules_of(table: Mapping[str, Any]) -> Rules:
    """Return what a table means."""

    def asked(key: str) -> Any:
        return QUESTIONS[table[key]] if key in table else None

    def milliseconds(key: str, otherwise: Any = None) -> Any:
        return _MS[table[key]] if key in table else otherwise

    start = table.get("recovery_point", "epoch")
    return Rules(
        at_most_once=table.get("semantics") == "at-most-once",
        lease_ms=milliseconds("lease_period"),
        renewal_ms=milliseconds("lease_renewal_limit", 3_600_000),
        max_backlog=table["max_backlog"],
        max_per_subscription=table["max_per_subscription_backlog"],
        expiration_ms=milliseconds("expiration"),
        max_deliveries=table["max_deliveries"],
        max_cancels=table["max_cancels"],
        backoff=_BACKOFFS[table["retry_backoff"]] if "retry_backoff" in table else None,
        strict=table["leasing"] == "strict",
        filter=asked("filter"),
        priority=asked("priority"),
        key=asked("order_key"),
        run=table.get("order_key_run", 0),
        barrier=asked("barrier"),
        depth=table.get("target_queue_depth", 0),
        deferral_ms=milliseconds("deferred_ack_expiration", 86_400_000),
        start=_STARTS.get(start, start),
        letters=table.get("dead_letter_queue"),
        letters_kept_ms=milliseconds("dead_letter_retention"),
    )
