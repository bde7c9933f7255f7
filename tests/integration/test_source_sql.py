"""The source from SQL alone: a temporary view reads it; a table of the catalog is made, and Spark cannot read it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_queue import Journal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFINITIONS = {
    "message_types": {"line": {"columns": "item STRING", "topics": ["LINES"]}},
    "queues": {"WORK": {"underlying_topic": "LINES"}},
}


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    made = Journal.create(str(tmp_path / "shop"), DEFINITIONS)
    made.publish([{"item": "pear"}], topic="LINES")
    return made


@pytest.mark.since_4_2
def test_a_temporary_view_reads_a_view_of_the_journal_when_it_is_made(spark: SparkSession, journal: Journal) -> None:
    options = f"path '{journal.path}', queue 'WORK', view 'messages'"
    made = f"CREATE OR REPLACE TEMPORARY VIEW waiting USING sparkqueue OPTIONS ({options})"
    spark.sql(made)
    assert [tuple(row) for row in spark.sql("SELECT item, bookmark FROM waiting").collect()] == [("pear", 0)]
    journal.publish([{"item": "plum"}], topic="LINES")
    # Spark keeps the partitions of a source of Python's for as long as its plan.
    assert spark.sql("SELECT item FROM waiting WHERE bookmark > 0").collect() == []
    spark.sql(made)
    assert spark.sql("SELECT item FROM waiting WHERE bookmark > 0").first() == ("plum",)
    spark.catalog.dropTempView("waiting")


def test_a_table_of_the_catalog_is_made_and_cannot_be_read(spark: SparkSession, journal: Journal) -> None:
    options = f"queue 'WORK', view 'messages', journal '{journal.path}'"
    spark.sql(f"CREATE TABLE waiting_table USING sparkqueue OPTIONS ({options})")
    try:
        with pytest.raises(Exception, match="not a valid Spark SQL Data Source|Failed to initialize Python data source reader"):
            spark.sql("SELECT * FROM waiting_table").collect()
    finally:
        spark.sql("DROP TABLE IF EXISTS waiting_table")
