"""Filters, priorities and order keys on real Spark: who is given what, and in which order (R49, R65, R66, DESIGN 8)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.source_journal import MakeHome, running, wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass
class Batches:
    """Ids by batch, in the order in which they came."""

    batches: list[list[int]] = field(default_factory=list)

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        self.batches.append(sorted(row["id"] for row in batch.select("id").collect()))

    @property
    def ids(self) -> list[int]:
        return [number for batch in self.batches for number in batch]


def test_r49_r66_two_streams_with_filters_get_what_they_match_by_priority(make_home: MakeHome) -> None:
    """Ids 0 to 39: those below 30 enter, and are ranked by their last digit; each stream takes those of one parity."""
    home = make_home(filter="id < 30", priority="id % 10")
    home.publish(0, 40)
    even, odd = Batches(), Batches()
    options: dict[str, Any] = {"maxBacklog": 3}
    with (
        running(home.start(even, options={**options, "filter": "id % 2 = 0"})) as first,
        running(
            home.start(odd, options={**options, "filter": "id % 2 = 1", "subscription": "t"}, subscription="t", checkpoint="t")
        ) as second,
    ):
        wait_until(lambda: home.figures() == (0, 0, 30), first)
        assert second.exception() is None
    for heard, parity in ((even, 0), (odd, 1)):
        assert sorted(heard.ids) == [number for number in range(30) if number % 2 == parity]
        assert all(len(batch) <= 3 for batch in heard.batches)
        digits = [number % 10 for batch in heard.batches for number in sorted(batch, key=lambda number: -(number % 10))]
        assert digits == sorted(digits, reverse=True)
    assert {row["subscription"]: row["filter"] for row in home.journal.view("subscriptions", queue="WORK").to_pylist()} == {
        "s": "id % 2 = 0",
        "t": "id % 2 = 1",
    }


@pytest.mark.parametrize(
    ("text", "code", "reason"),
    [("idd = 1", "EXPRESSION_INVALID", "Did you mean 'id'"), ("rand() > 0.5", "EXPRESSION_UNSUPPORTED", "not deterministic")],
)
def test_a_bad_filter_of_a_stream_is_refused_by_name_when_it_starts(make_home: MakeHome, text: str, code: str, reason: str) -> None:
    home = make_home()
    home.publish(0, 1)
    with pytest.raises(Exception, match=code) as refused:
        home.run(Batches(), options={"filter": text})
    assert reason in str(refused.value)
    assert "filter of subscription 's'" in str(refused.value)
    assert home.figures() == (1, 0, 0)


def test_an_order_key_keeps_its_messages_apart_and_in_order(make_home: MakeHome) -> None:
    """DESIGN 8: five keys, eight messages of each, in a shuffled order of keys; two streams share them."""
    home = make_home(order_key="id % 5", order_key_run=1)
    home.publish(0, 40)
    one, other = Batches(), Batches()
    with (
        running(home.start(one)) as first,
        running(home.start(other, options={"subscription": "t"}, subscription="t", checkpoint="t")) as second,
    ):
        wait_until(lambda: home.figures() == (0, 0, 40), first)
        assert second.exception() is None
    assert sorted(one.ids + other.ids) == list(range(40))
    for batch in one.batches + other.batches:
        assert len({number % 5 for number in batch}) == len(batch)
    # Leases of one key follow each other, whoever has them: the older is acknowledged before the younger is granted.
    granted = [first for row in home.history("granted") for span in row["ranges"] for first in range(span["first"], span["until"])]
    for key in range(5):
        assert [number for number in granted if number % 5 == key] == list(range(key, 40, 5))


def test_a_function_sees_the_messages_of_a_key_in_order_and_in_one_partition(make_home: MakeHome) -> None:
    """DESIGN 8: seven keys in one lease, which three tasks share, whatever columns are read."""
    from pyspark.sql import functions as f

    home = make_home(order_key="id % 7")
    home.publish(0, 100)
    home.publish(100, 100)
    batches: list[list[list[int]]] = []

    def fn(batch: DataFrame, batch_id: int) -> None:
        found: dict[int, list[int]] = {}
        for number, row in batch.select(f.spark_partition_id(), "id").collect():
            found.setdefault(number, []).append(row)
        batches.append(list(found.values()))

    home.run_on(fn, options={"minPartitions": 3, "columns": "id", "maxBacklog": 150})
    assert [sum(map(len, batch)) for batch in batches] == [150, 50]
    for batch in batches:
        assert len(batch) == 3
        assert all(part == sorted(part) for part in batch)
        homes = [{number % 7 for number in part} for part in batch]
        assert sum(map(len, homes)) == len(set().union(*homes)) == 7
    assert sorted(number for batch in batches for part in batch for number in part) == list(range(200))


def test_what_stands_behind_a_cancelled_message_of_its_key_comes_again_in_order(make_home: MakeHome) -> None:
    """DESIGN 8: five keys; the first of each is cancelled once, and everything else of the first batch is thus said in vain."""
    home = make_home(order_key="id % 5")
    home.publish(0, 40)
    heard = Batches()

    def fn(batch: DataFrame, batch_id: int) -> DataFrame:
        heard(batch, batch_id)
        return batch.where("id < 5 AND cancel_count = 0").selectExpr("bookmark", "'cancel' AS outcome")

    with running(home.start(fn)) as query:
        wait_until(lambda: home.figures() == (0, 0, 40), query)
    assert heard.batches == [list(range(40)), list(range(40))]
    assert {row["reason"] for row in home.history("returned")} == {"cancelled", "order_key"}
