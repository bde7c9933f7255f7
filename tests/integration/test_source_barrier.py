"""Barriers on real Spark: a micro-batch of their own, between what was before and what is behind, once for each (R67 to R73)."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.source_journal import MakeHome, running, wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BARRIER = {"barrier": "item = 'close'"}


@dataclass
class Heard:
    """What a batch function was given, batch by batch: ids, and whether they are barriers."""

    batches: list[list[tuple[int, bool, int]]] = field(default_factory=list)

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        self.batches.append(
            sorted(
                (row["id"], row["is_barrier"], row["delivery_count"])
                for row in batch.select("id", "is_barrier", "delivery_count").collect()
            )
        )

    @property
    def ids(self) -> list[int]:
        return [number for batch in self.batches for number, _, _ in batch]


def failing_first(heard: Heard) -> Callable[[DataFrame, int], None]:
    """Return a batch function that raises on the first batch that it hears."""

    def fn(batch: DataFrame, batch_id: int) -> None:
        heard(batch, batch_id)
        if len(heard.batches) == 1:
            raise RuntimeError("the ledger is locked")

    return fn


def close_of_day(number: int) -> list[dict[str, Any]]:
    return [{"id": number, "item": "close"}]


def test_a_barrier_is_a_micro_batch_of_its_own_for_each_stream(make_home: MakeHome) -> None:
    """R68 to R72: nothing behind it is delivered before it, and both streams get it alone, whatever room they have."""
    home = make_home(**BARRIER)
    home.publish(0, 10)
    home.journal.publish(close_of_day(100), topic="ORDERS")
    home.publish(10, 5)
    one, other = Heard(), Heard()
    options = {"maxBacklog": 4}
    with (
        running(home.start(one, options=options)) as first,
        running(home.start(other, options={**options, "subscription": "t"}, subscription="t", checkpoint="t")) as second,
    ):
        wait_until(lambda: home.figures() == (0, 0, 15), first)
        wait_until(lambda: len(home.history("barrier_received")) == 2, second)
    assert sorted(set(one.ids + other.ids)) == [*range(15), 100]
    for heard in (one, other):
        place = heard.batches.index([(100, True, 1)])
        assert all(number < 10 for batch in heard.batches[:place] for number, _, _ in batch)
        assert all(10 <= number < 15 for batch in heard.batches[place + 1 :] for number, _, _ in batch)
        assert heard.ids.count(100) == 1
    (released,) = home.history("barrier_released")
    assert json.loads(released["detail"])["subscriptions"] == ["s", "t"]
    status = home.journal.queue("WORK").status()
    assert (status.queue_depth, status.held, status.barriers_released) == (0, 0, 1)


def test_a_barrier_whose_batch_failed_runs_again_and_is_received_once(make_home: MakeHome) -> None:
    """P2, P3: the proof of its batch counts, and nothing behind it comes before."""
    home = make_home(**BARRIER)
    home.journal.publish(close_of_day(100), topic="ORDERS")
    home.publish(0, 3)
    heard = Heard()
    fail_first = failing_first(heard)

    with pytest.raises(Exception, match="the ledger is locked"):
        home.run(fail_first)
    assert home.history("barrier_received") == []
    home.run_on(fail_first)
    assert heard.batches == [[(100, True, 1)], [(100, True, 2)], [(0, False, 1), (1, False, 1), (2, False, 1)]]
    (received,) = home.history("barrier_received")
    assert (received["subscription"], received["reason"]) == ("s", None)
    home.run(heard)
    assert len(home.history("barrier_received")) == 1


def test_a_held_barrier_is_shown_in_its_state(make_home: MakeHome) -> None:
    home = make_home(**BARRIER)
    home.publish(0, 1)
    home.journal.publish(close_of_day(100), topic="ORDERS")
    view = home.journal.view("messages", queue="WORK").select(["id", "state", "is_barrier"]).to_pylist()
    assert view == [
        {"id": 0, "state": "available", "is_barrier": False},
        {"id": 100, "state": "held", "is_barrier": True},
    ]


def test_a_function_of_their_own_gets_the_barriers_also_after_a_crash(make_home: MakeHome) -> None:
    """R71, P2: fn is never given one, and a batch that runs again is known for what it is before it is read."""
    home = make_home(**BARRIER)
    home.publish(0, 3)
    home.journal.publish(close_of_day(100), topic="ORDERS")
    home.publish(3, 2)
    lines, closes = Heard(), Heard()
    fail_first = failing_first(closes)

    def unread(_batch: DataFrame, batch_id: int) -> None:
        closes.batches.append([(-1, True, batch_id)])

    with pytest.raises(Exception, match="the ledger is locked"):
        home.run_on(lines, on_barrier=fail_first)
    home.run_on(lines, on_barrier=fail_first)
    assert closes.batches == [[(100, True, 1)], [(100, True, 2)]]
    home.journal.publish(close_of_day(101), topic="ORDERS")
    home.run_on(lines, on_barrier=unread)
    assert len(closes.batches) == 3
    assert len(home.history("barrier_received")) == 2
    assert [[number for number, _, _ in batch] for batch in lines.batches] == [[0, 1, 2], [3, 4]]
