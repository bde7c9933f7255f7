"""What README shows is run as it stands: the first example as a program, the outcomes against a queue of their own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark_queue import Journal
from tests import readme

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DEFINITIONS = {
    "message_types": {"order": {"columns": "item STRING, quantity BIGINT", "topics": ["ORDERS"]}},
    "queues": {"WORK": {"underlying_topic": "ORDERS"}},
}


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Path]:
    """Give the place of a journal whose coordinator, if one starts, ends with the test."""
    yield tmp_path / "shop"
    subprocess.run([sys.executable, "-m", "spark_queue.cli", "stop", str(tmp_path / "shop")], check=True, stdout=subprocess.DEVNULL)


@pytest.mark.spark
def test_first_example_prints_what_it_consumed_and_acknowledged(shop: Path) -> None:
    done = readme.run_example("first", folder=shop.parent)
    assert done.returncode == 0, done.stderr
    assert "|       0|kettle|       2|             1|\n|       1|  lamp|       1|             1|\n" in done.stdout
    assert done.stdout.endswith("2 acknowledged\n")
    assert "ERROR" not in done.stderr


def test_example_of_outcomes_settles_each_row_as_it_says(shop: Path, spark: SparkSession) -> None:
    journal = Journal.create(str(shop), DEFINITIONS)
    journal.publish([{"item": f"item {number}", "quantity": number % 3} for number in range(9)], topic="ORDERS")
    orders = spark.readStream.format("sparkqueue").option("queue", "WORK").option("subscription", "east").load(str(shop))
    inserted: list[int] = []
    names: dict[str, Any] = {"journal": journal, "orders": orders, "insert": _collect_into(inserted)}
    exec(readme.example("outcomes"), names)
    writer = names["writer"].option("checkpointLocation", str(shop.parent / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    status = journal.queue("WORK").status()
    assert (sorted(inserted), status.acknowledged, status.delayed, status.dead_letters) == ([1, 2, 4, 5, 7, 8], 6, 3, 0)


def _collect_into(bookmarks: list[int]) -> Callable[[DataFrame], None]:
    def insert(rows: DataFrame) -> None:
        bookmarks.extend(row["bookmark"] for row in rows.collect())

    return insert
