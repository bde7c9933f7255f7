"""What tests of the source share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark_queue import Journal
from tests.integration.source_journal import MakeHome, SourceJournal, definitions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def make_home(spark: SparkSession, tmp_path: Path) -> Iterator[MakeHome]:
    """Make journals with one queue and streams over it; their coordinators end with the test."""
    made: list[SourceJournal] = []

    def make(name: str = "journal", **queue: Any) -> SourceJournal:
        journal = Journal.create(str(tmp_path / name), definitions(**queue))
        made.append(SourceJournal(journal, tmp_path / f"{name}-home", spark))
        return made[-1]

    yield make
    for each in made:
        each.close()
