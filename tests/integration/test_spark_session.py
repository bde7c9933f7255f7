"""The session that tests and notebooks get, and the file that spark-submit reads, set Spark up alike (DESIGN 9)."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_queue import configure_spark
from tests.source_tree import ROOT


def submitted_settings() -> dict[str, str]:
    """Read conf/spark-defaults.conf as java.util.Properties does, as far as the file goes."""
    text = (ROOT / "conf" / "spark-defaults.conf").read_text(encoding="utf-8")
    joined = "".join(part if number == 0 else part.lstrip() for number, part in enumerate(text.split("\\\n")))
    lines = [line.split(maxsplit=1) for line in joined.splitlines() if line and not line.startswith("#")]
    return {key: value.strip() for key, value in lines}


def test_session_settings_are_those_of_the_submitted_jobs() -> None:
    builder = configure_spark(SparkSession.Builder())
    settings = dict(builder._options)
    assert settings.items() <= submitted_settings().items()


@pytest.mark.parametrize("key", ["spark.jars.packages", "spark.jars.excludes"])
def test_packages_are_written_without_blanks_and_versions_stand_once(key: str) -> None:
    entries = submitted_settings()[key].split(",")
    assert entries == [entry.strip() for entry in entries]
    assert len(entries) == len(set(entries))


def test_session_writes_delta_and_reads_it_back(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    spark.range(3).write.format("delta").save(path)
    assert [row.id for row in spark.read.format("delta").load(path).orderBy("id").collect()] == [0, 1, 2]
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
