"""Tables by their names in a catalog: an active Spark session tells where they lie, once."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark_queue import Journal
from spark_queue.errors import ConfigError
from tests.integration.source_journal import end_coordinator
from tests.source_tree import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.delta


@pytest.fixture
def orders(spark: SparkSession, tmp_path: Path) -> Iterator[str]:
    """Give the name of a table in the catalog of the session."""
    for name in ("followed_orders", "booked_orders"):
        spark.sql(f"CREATE TABLE default.{name} (id BIGINT, item STRING) USING delta LOCATION '{tmp_path / name}'")
    yield "default.followed_orders"
    for name in ("followed_orders", "booked_orders"):
        spark.sql(f"DROP TABLE default.{name}")


def definitions(table: str) -> dict[str, Any]:
    return {"message_types": {"orders": {"table": table}}, "queues": {"SHIP": {"underlying_topic": "orders"}}}


def test_a_table_is_followed_and_appended_to_by_its_name(spark: SparkSession, tmp_path: Path, orders: str) -> None:
    """Stored is the location, so whoever reads on needs no catalog."""
    journal = Journal.create(str(tmp_path / "journal"), definitions(orders))
    try:
        spark.sql(f"INSERT INTO {orders} VALUES (1, 'kettle'), (2, 'lamp')")
        status = journal.queue("SHIP").status()
        assert (status.table, status.available) == (str(tmp_path / "followed_orders"), 2)
        stream = spark.readStream.format("sparkqueue").option("queue", "SHIP").option("subscription", "s").load(journal.path)
        booking = journal.queue("SHIP").into(
            "spark_catalog.default.booked_orders", lambda batch, _: batch.select("id", "item"), subscription="s"
        )
        writer = stream.writeStream.foreachBatch(booking).option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()
        assert {row["id"] for row in spark.table("default.booked_orders").collect()} == {1, 2}
    finally:
        end_coordinator(journal)


def test_what_a_name_means_is_settled_once(spark: SparkSession, tmp_path: Path, orders: str) -> None:
    """Later definitions with that name need no session, also where the catalog has another table of the name by then."""
    journal = Journal.create(str(tmp_path / "journal"), definitions(orders))
    file = tmp_path / "queues.json"
    file.write_text(json.dumps(definitions(orders)), encoding="utf-8")
    program = (
        "import json, sys; from spark_queue import Journal; "
        "print(Journal(sys.argv[1]).apply(json.load(open(sys.argv[2])), dry_run=True), 'pyspark' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, journal.path, str(file)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["[]", "False"]
    spark.sql(f"DROP TABLE {orders}")
    spark.sql(f"CREATE TABLE {orders} (id BIGINT) USING delta LOCATION '{tmp_path / 'another'}'")
    assert journal.apply(definitions(orders), dry_run=True) == []


def test_a_name_that_the_catalog_does_not_know_is_refused_with_its_reason(spark: SparkSession, tmp_path: Path) -> None:
    spark.sql("SELECT 1").collect()
    with pytest.raises(ConfigError, match=r"TABLE_NAME_UNKNOWN.*the active Spark session says:.*NOT_FOUND"):
        Journal.create(str(tmp_path / "journal"), definitions("default.nobody_made_this"))
    assert not (tmp_path / "journal").exists()
