"""Real `spark-submit`: jobs that are ended in the middle of a batch, as deployments end them, and one without jars (R42, P3)."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_queue import Journal
from spark_queue.session import directory, spark_home, worker_python
from tests import waiting
from tests.integration.source_journal import definitions, end_coordinator, orders
from tests.source_tree import ROOT

pytestmark = pytest.mark.spark

#: A start on a busy machine; reached only when something hangs.
LONG_S = 200

JOB = """
import sys, time
from pathlib import Path

from pyspark.sql import SparkSession

from spark_queue import Journal, configure_spark

journal, home, ends_itself = Journal(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] == "True"


def wait(batches):
    for each in batches:
        (home / "began").touch()
        time.sleep(300)
        yield each


def book(batch, batch_id):
    batch.select("id").mapInPandas(wait, "id BIGINT").count()


spark = configure_spark(SparkSession.builder).getOrCreate()
stream = spark.readStream.format("sparkqueue").option("queue", "WORK").option("subscription", "s").load(journal.path)
writer = stream.writeStream.foreachBatch(journal.queue("WORK").foreach_batch(book, subscription="s"))
query = writer.option("checkpointLocation", str(home / "checkpoint")).start()
if ends_itself:
    while not (home / "began").exists():
        time.sleep(0.1)
    spark.stop()
query.awaitTermination()
"""

#: How a checkout submits its jobs: with Delta's jars, where Spark needs them.
SETTINGS = ("--properties-file", "conf/spark-defaults.conf")


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    made = Journal.create(str(tmp_path / "journal"), definitions(lease_period="10s"))
    made.publish(orders(0, 1), topic="ORDERS")
    yield made
    end_coordinator(made)


def submitted(journal: Journal, home: Path, *settings: str, ends_itself: bool = False) -> subprocess.Popen[bytes]:
    """Submit a job whose one batch never ends by itself."""
    job = home / "job.py"
    job.write_text(JOB)
    command = [spark_home() / "bin" / "spark-submit", *settings, "--master", "local[2]", job, journal.path, home, ends_itself]
    with (home / "log").open("wb") as log:
        around = os.environ | worker_python()
        return subprocess.Popen(list(map(str, command)), env=around, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)


def in_its_batch(journal: Journal, home: Path, *, ends_itself: bool = False) -> subprocess.Popen[bytes]:
    """Submit the job; return once the task of its batch runs."""
    process = submitted(journal, home, *SETTINGS, ends_itself=ends_itself)
    waiting.wait_until((home / "began").exists, (home / "log").read_text, deadline_s=LONG_S)
    return process


#: How often the message counts as delivered, and the reasons in records of ends of runs: of a run that was stopped, and of one that
#: nobody heard the end of.
STOPPED: tuple[int, list[str]] = (0, ["stopped"])
VANISHED: tuple[int, list[str]] = (1, [])


def what_came_back(journal: Journal) -> tuple[int, list[str]]:
    """Return how often the message counts as delivered once it is available again, and the reasons in records of ends of runs."""

    def told() -> tuple[str, int, list[str]]:
        (row,) = journal.view("messages", queue="WORK").to_pylist()
        reasons = [each["reason"] for each in journal.view("history").to_pylist() if each["kind"] == "outcomes"]
        return row["state"], row["delivery_count"], reasons

    waiting.wait_until(lambda: told()[0] == "available", lambda: str(told()), deadline_s=LONG_S)
    return told()[1:]


def test_a_job_that_stops_its_spark_holds_nothing_against_its_messages(journal: Journal, tmp_path: Path) -> None:
    in_its_batch(journal, tmp_path, ends_itself=True).wait(LONG_S)
    assert what_came_back(journal) == STOPPED


def test_a_job_that_is_told_to_end_fails_none_of_its_messages(journal: Journal, tmp_path: Path) -> None:
    """The signal ends Java, which may be gone before the driver's Python hears that its batch was stopped."""
    process = in_its_batch(journal, tmp_path)
    process.send_signal(signal.SIGTERM)
    process.wait(LONG_S)
    assert what_came_back(journal) in (STOPPED, VANISHED)


def test_of_a_job_that_is_killed_nobody_knows_why(journal: Journal, tmp_path: Path) -> None:
    process = in_its_batch(journal, tmp_path)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(LONG_S)
    assert what_came_back(journal) == VANISHED


@pytest.mark.delta
def test_a_job_that_lacks_the_jars_is_refused_before_it_reads(journal: Journal, tmp_path: Path) -> None:
    """Its Java runs before the program does, so the builder's settings come too late."""
    process = submitted(journal, tmp_path)
    assert process.wait(LONG_S) != 0
    said = (tmp_path / "log").read_text()
    assert "[DELTA_JARS_MISSING] Spark needs Delta's jars, and they are missing: spark-submit had started Java" in said
    assert f"--jars '{directory()}/*.jar'" in said
    assert "granted" not in journal.view("history")["kind"].to_pylist()
