"""The results begin with the headlines, and each figure stands once, under the question that it answers."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

from tests.benchmarks import report
from tests.benchmarks.catalogue import BENCHMARKS
from tests.benchmarks.figure import Figure
from tests.benchmarks.questions import HEADLINES, QUESTIONS, question_of


@pytest.fixture
def results(tmp_path: Path) -> Path:
    path = tmp_path / "RESULTS.md"
    path.write_text(report.RESULTS.read_text())
    return path


def lines_of(path: Path, row: str) -> list[str]:
    return [line for line in path.read_text().splitlines() if f"| {row} |" in line]


def test_the_results_are_as_they_would_be_written_and_have_all_headlines(results: Path) -> None:
    known = report.known_rows(results.read_text())
    assert set(HEADLINES) <= known.keys()
    report.store([], command="", path=results)
    assert report.known_rows(results.read_text()) == known
    asked = [line.removeprefix("## ") for line in results.read_text().splitlines() if line.removeprefix("## ") in QUESTIONS]
    assert asked == list(QUESTIONS)
    assert [question_of(row) for row in known] == sorted((question_of(row) for row in known), key=asked.index)


def test_each_row_tells_the_command_that_measures_it_again() -> None:
    rows = report.known_rows(report.RESULTS.read_text())
    told = {row: re.search(r"`python -m tests\.benchmarks --only (\S+) --runs [1-9]\d*` \|$", line) for row, line in rows.items()}
    assert {row for row, command in told.items() if command is None or command[1] not in BENCHMARKS} == set()


def test_a_row_that_is_measured_again_takes_the_place_of_the_older_one_and_of_its_headline(results: Path) -> None:
    figure = Figure(row="sink-10000", what="batches", value=9.5, unit="x", budget=3, at_least=True, note="1 runs")
    report.store([figure], command="make bench", path=results)
    assert lines_of(results, "sink-10000") == [
        "| batches | 9.5 x | ≥ 3 x | holds | sink-10000 |",
        "| sink-10000 | batches | 9.5 x | ≥ 3 x | holds | 1 runs; `make bench` |",
    ]


def test_a_new_row_stands_under_its_question(results: Path) -> None:
    report.store([Figure(row="receive-new", what="new", value=1, unit="s")], command="c", path=results)
    text = results.read_text()
    places = [text.index(f"## {question}") for question in QUESTIONS]
    asked = list(QUESTIONS).index(question_of("receive-new"))
    assert places[asked] < text.index("| receive-new |") < places[asked + 1]
    assert all(one < other for one, other in pairwise(places))


def test_a_row_of_no_question_is_refused() -> None:
    with pytest.raises(LookupError, match="row other answers no question"):
        question_of("other")
