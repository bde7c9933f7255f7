"""What the farm publishes, and to what queue: plain orders, or orders under every rule of a queue at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

LINE, CLOSE, NOISE = "line", "close", "noise"

#: One message in this many is settled `expire`, and one is first cancelled, so that outcomes are under test too.
EXPIRE_EVERY, CANCEL_EVERY = 97, 89


@dataclass(frozen=True, kw_only=True)
class Load:
    """A queue's definition, and its messages by number, which is their bookmark, too."""

    body: Callable[[int], Mapping[str, Any]]
    queues: Mapping[str, Mapping[str, Any]]

    def definitions(self) -> dict[str, Any]:
        """Return the journal's definitions."""
        queues = {name: dict(keys) for name, keys in self.queues.items()}
        return {"journal": {"coordinator_idle": "5s"}, "message_types": {"json": {"topics": ["ORDERS"]}}, "queues": queues}

    def definitions_of_instance(self, name: str, paths: Mapping[str, str]) -> dict[str, Any]:
        """Return the definitions of one of several instances, whose journals are at `paths`, by name."""
        pulled = {"topics": ["ORDERS"], "queues": list(self.queues), "pull_interval": "200ms"}
        peers = {other: {"journal": path, **pulled} for other, path in paths.items() if other != name}
        instance = {"journal": {"instance": name}, "peers": peers, "replication": {"unreachable_after": "15s"}}
        return self.definitions() | instance


def _ordered(number: int) -> dict[str, Any]:
    """Return an order of one of many customers; every tenth message is none, and every so often the books are closed."""
    kind = CLOSE if number % 1_500 == 1_499 else NOISE if number % 10 == 3 else LINE
    # Few of them are busy: each of their batches is a run.
    customer = number * 7919 % (997 if number % 3 else 5)
    return {"order": number, "customer": f"c{customer}", "kind": kind}


_WORK = {"underlying_topic": "ORDERS", "lease_period": "6s"}

PLAIN = Load(body=lambda number: {"order": number, "kind": LINE}, queues={"WORK": _WORK})

#: A filter, barriers, order per key, delayed retries and a dead-letter queue.
FEATURES = Load(
    body=_ordered,
    queues={
        "WORK": {
            **_WORK,
            "filter": "get_json_object(value, '$.kind') <> 'noise'",
            "barrier": "get_json_object(value, '$.kind') = 'close'",
            "order_key": "get_json_object(value, '$.customer')",
            "retry_backoff": "200ms..2s x2",
            "dead_letter_queue": "FAILED",
        },
        "FAILED": {"message_type": "json"},
    },
)


@dataclass(slots=True)
class Order:
    """Which message may be granted when, of one load: of a key the oldest ones, and nothing behind a held barrier (R69)."""

    load: Load
    published: int
    #: Bookmarks that were granted, or barriers that were released, too early.
    violations: list[int] = field(default_factory=list)
    kinds: list[str] = field(init=False)
    _before: dict[int, int] = field(init=False)
    _gone: set[int] = field(default_factory=set)
    _oldest: int = 0

    def __post_init__(self) -> None:
        bodies = [self.load.body(number) for number in range(self.published)]
        self.kinds = [body["kind"] for body in bodies]
        keys: dict[str, list[int]] = {}
        for number, body in enumerate(bodies):
            if body["kind"] == LINE and "customer" in body:
                keys.setdefault(body["customer"], []).append(number)
        self._before = {later: earlier for rows in keys.values() for earlier, later in pairwise(rows)}

    def granted(self, rows: list[int]) -> None:
        """Note that lines were granted, or resumed, in one lease."""
        barrier = next((row for row in range(self._front(), self.published) if self.kinds[row] == CLOSE), self.published)
        together = set(rows)
        self.violations += [row for row in rows if row > barrier or not self._comes(row, together)]

    def released(self, rows: list[int]) -> None:
        """Note that barriers were released."""
        self.violations += [row for row in rows if row > self._front()]
        self._gone.update(rows)

    def removed(self, rows: list[int]) -> None:
        """Note that lines left the queue."""
        self._gone.update(rows)

    def _comes(self, row: int, together: set[int]) -> bool:
        return row not in self._before or self._before[row] in self._gone or self._before[row] in together

    def _front(self) -> int:
        """Return the oldest message that is in the queue."""
        while self._oldest < self.published and (self._oldest in self._gone or self.kinds[self._oldest] == NOISE):
            self._oldest += 1
        return self._oldest
