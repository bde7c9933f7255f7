"""What the acceptance tests share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from spark_queue import Journal
from tests.integration.source_journal import end_coordinator
from tests.unit.dashboard.finding import left_out, told

#: Makes a journal of some definitions; its coordinator ends with the test.
MakeJournal = Callable[..., Journal]


@pytest.fixture
def make_journal(tmp_path: Path) -> Iterator[MakeJournal]:
    """Make journals whose coordinators end with the test."""
    made: list[Journal] = []

    def make(definitions: dict[str, Any], path: Path | None = None) -> Journal:
        made.append(Journal.create(str(path or tmp_path / f"journal{len(made)}"), definitions))
        return made[-1]

    yield make
    for journal in made:
        end_coordinator(journal)


collect_ignore = left_out()


def pytest_report_header() -> str | None:
    """Say which tests are not collected."""
    return told() if collect_ignore else None
