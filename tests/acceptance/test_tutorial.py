"""The tutorial is done as it is written: its files, commands and programs, page after page, in one new directory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_queue import Journal
from tests.docs import pages

#: How long each of the tutorial's Spark programs may take where the machine has other work, and how many there are.
SPARK_S = 300
SPARK_STARTS = 3


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """Yield an empty directory; a coordinator of its journal ends with the test."""
    yield tmp_path
    subprocess.run([sys.executable, "-m", "spark_queue.cli", "stop", str(tmp_path / "shop")], check=True, stdout=subprocess.DEVNULL)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(SPARK_S * SPARK_STARTS)
def test_tutorial_leads_from_nothing_to_three_queues(place: Path) -> None:
    (place / "queues.toml").write_text(pages.example("tutorial_queues"), encoding="utf-8")
    assert "kettle" in _done("tutorial_publish", place)
    _write("worker.py", "tutorial_worker", place)
    assert _done("tutorial_work", place).startswith("pack 2 kettle\npack 1 lamp\n2 acknowledged")
    assert "Published 0 messages, 2 were there already" in _done("tutorial_repeat", place)

    assert "Published 3 messages" in _done("tutorial_noon", place)
    assert _run("tutorial_consume", place, "east").endswith("4 acknowledged, 1 dead letters, 0 left\n")
    assert "\n|            6|\n" in _run("tutorial_look", place)

    _follow(place)

    letters = _done("tutorial_letters", place)
    assert letters.count("no quantity") >= 2

    _book_everything(place)
    _done("tutorial_redrive", place)
    _done("tutorial_more", place)
    # One run does what the pages do in two: it books what was redriven and what is new.
    assert _rerun(place, "west").endswith("1005 acknowledged, 0 dead letters, 0 left\n")
    assert "published to topic 'ORDERS'" in _done("tutorial_asking", place)

    with (place / "queues.toml").open("a", encoding="utf-8") as definitions:
        definitions.write(pages.example("tutorial_large"))
    _done("tutorial_apply", place)
    assert Journal(str(place / "shop")).queue("LARGE_FIRST").status().available == 100


def test_pages_without_spark_take_an_existing_table_through_a_worker(place: Path) -> None:
    (place / "queues.toml").write_text(pages.example("tutorial_queues"), encoding="utf-8")
    _done("tutorial_publish", place)
    _write("worker.py", "tutorial_worker", place)
    _done("tutorial_work", place)
    _follow(place)
    statuses = {name: Journal(str(place / "shop")).queue(name).status() for name in ("WORK", "RETURNS")}
    assert {name: (status.acknowledged, status.queue_depth) for name, status in statuses.items()} == {
        "WORK": (2, 0),
        "RETURNS": (4, 0),
    }


def _follow(place: Path) -> None:
    """Do what page 3 says: what the table has, and what is appended to it, goes through the worker."""
    _write("till.py", "tutorial_till", place)
    _done("tutorial_follow", place)
    with (place / "worker.py").open("a", encoding="utf-8") as functions:
        functions.write(f"\n\n{pages.example('tutorial_inspect')}")
    assert _done("tutorial_returns", place).startswith("inspect clock too loud\ninspect lamp too dark\n" * 2 + "4 acknowledged")


def _write(name: str, example: str, place: Path) -> None:
    (place / name).write_text(pages.example(example), encoding="utf-8")


def _done(name: str, place: Path) -> str:
    done = pages.run_commands(name, folder=place)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _run(name: str, place: Path, *arguments: str) -> str:
    done = pages.run_example(name, *arguments, folder=place)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _book_everything(place: Path) -> None:
    """Change the program as page 4 says: put its function in the place of the one that is there."""
    (changed,) = (block for block in pages.blocks("python") if block.startswith("def book") and "return batch.select" in block)
    before, _, rest = pages.example("tutorial_consume").partition("def book")
    _, _, after = rest.partition("\n\n\n")
    (place / "consume.py").write_text(f"{before}{changed}\n\n{after}", encoding="utf-8")


def _rerun(place: Path, subscription: str) -> str:
    done = pages.run_file("consume.py", subscription, folder=place)
    assert done.returncode == 0, done.stderr
    return done.stdout
