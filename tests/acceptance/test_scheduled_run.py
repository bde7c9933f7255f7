"""The program of the page on Airflow, run as a scheduler runs it: by its exit code alone one knows what became of the messages."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_queue import Journal
from tests.docs import pages

#: How long a run may take where the machine has other work, and how many there are.
SPARK_S = 300
SPARK_STARTS = 2

DEFINITIONS = {
    "message_types": {"order": {"columns": "item STRING, quantity BIGINT", "topics": ["ORDERS"]}},
    "queues": {"WORK": {"underlying_topic": "ORDERS"}},
}


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    """Give a journal whose coordinator ends with the test."""
    yield Journal.create(str(tmp_path / "shop"), DEFINITIONS)
    subprocess.run([sys.executable, "-m", "spark_queue.cli", "stop", str(tmp_path / "shop")], check=True, stdout=subprocess.DEVNULL)


def run(journal: Journal) -> tuple[int, str, int, int]:
    """Run the program; returns its exit code, its last line, and how many messages are acknowledged by now, and left."""
    folder = Path(journal.path).parent
    done = pages.run_example("drain", journal.path, str(folder / "checkpoint"), folder=folder)
    assert done.returncode in (0, 3), done.stderr
    status = journal.queue("WORK").status()
    return done.returncode, done.stdout.splitlines()[-1], status.acknowledged, status.queue_depth


def prove(journal: Journal) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "spark_queue.cli", "prove", journal.path, str(Path(journal.path).parent / "checkpoint")]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(SPARK_S * SPARK_STARTS)
def test_a_run_ends_with_0_when_all_is_done_and_with_3_when_something_is_left(journal: Journal) -> None:
    assert prove(journal).returncode == 4
    journal.publish([{"item": "lamp", "quantity": 1}] * 3, topic="ORDERS")
    assert run(journal) == (0, "Queue 'WORK': all is well.", 3, 0)
    proven = prove(journal)
    assert (proven.returncode, "it was proven before" in proven.stdout) == (0, True)
    journal.publish([{"item": "lamp", "quantity": 1}, {"item": "none", "quantity": 0}], topic="ORDERS")
    assert run(journal) == (3, "Left in the queue: 1.", 4, 1)
