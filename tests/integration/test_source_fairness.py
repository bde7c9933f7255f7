"""Shares on real Spark: consumers of unequal speed and backlog, and what the model says each gets (R32 to R34, DESIGN 8)."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.integration.source_journal import MakeHome, Seen, SourceJournal, running, wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery


class Consumer:
    """A query that takes its time over every batch."""

    def __init__(self, home: SourceJournal, name: str, *, backlog: int, pause_s: float) -> None:
        self.backlog = backlog
        self.seen = Seen()
        self._home = home
        self._name = name
        self._pause_s = pause_s

    def start(self) -> StreamingQuery:
        options = {"subscription": self._name, "maxBacklog": self.backlog}
        return self._home.start(self._work, checkpoint=self._name, subscription=self._name, options=options)

    def _work(self, batch: DataFrame, batch_id: int) -> None:
        self.seen(batch, batch_id)
        if self.seen.batches[-1][1]:
            threading.Event().wait(self._pause_s)


def _has_polled(query: StreamingQuery) -> bool:
    return bool(query.recentProgress)


def _has_finished(home: SourceJournal, messages: int) -> bool:
    return home.figures() == (0, 0, messages)


@pytest.mark.drawn(1)
@pytest.mark.parametrize(
    ("model", "count", "rounds"),
    [
        ("proportional", 3, 2),
        ("round-robin", 2, 1),
        pytest.param("proportional", 8, 6, marks=pytest.mark.slow),
        pytest.param("round-robin", 8, 6, marks=pytest.mark.slow),
    ],
)
def test_consumers_get_their_shares(make_home: MakeHome, model: str, count: int, rounds: int) -> None:
    """Within a tenth of the model's shares, whoever is quick and whoever is slow."""
    # A machine that is busy may let a query poll late; the shares are what is looked at here.
    home = make_home(fairness=model, fairness_window="20s")
    consumers = [Consumer(home, f"s{number}", backlog=40 * (number + 1), pause_s=0.3 * (number % 3)) for number in range(count)]
    shares = [consumer.backlog // 2 if model == "proportional" else 30 for consumer in consumers]
    queries: list[StreamingQuery] = []
    with ExitStack() as stack:
        for consumer in consumers:
            # One after the other: Spark gives the Python of a planner few seconds to call back, and eight at once take longer.
            queries.append(stack.enter_context(running(consumer.start())))
            wait_until(partial(_has_polled, queries[-1]), queries[-1])
        for number in range(rounds):
            home.publish(number * sum(shares), sum(shares))
            wait_until(partial(_has_finished, home, (number + 1) * sum(shares)), queries[0])
    for consumer, share in zip(consumers, shares, strict=True):
        assert len(consumer.seen.ids) == pytest.approx(rounds * share, rel=0.1)


def test_a_busy_consumer_delays_nobody_beyond_the_window(make_home: MakeHome) -> None:
    """A run that takes what is there takes also what was the other's, once the window is over, and only then ends."""
    home = make_home(fairness="round-robin", fairness_window="5s")
    done, quick = threading.Event(), Seen()

    def work_for_long(batch: DataFrame, batch_id: int) -> None:
        if batch.count():
            done.wait()

    with running(home.start(work_for_long, checkpoint="slow", subscription="slow", options={"subscription": "slow"})) as query:
        wait_until(lambda: bool(query.recentProgress), query)
        home.publish(0, 1)
        wait_until(lambda: home.figures() == (0, 1, 0), query)
        home.publish(1, 40)
        try:
            home.run_on(quick, subscription="quick", options={"subscription": "quick"}, left=1)
        finally:
            done.set()
    assert sorted(quick.ids) == list(range(1, 41))
