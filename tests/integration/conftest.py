"""What tests of the source, and of the coordinator, share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark_queue import Journal
from tests.integration.coordinator_world import MakeWorld, World
from tests.integration.other_stores import OTHERS
from tests.integration.sites import MakeSite, peer, site
from tests.integration.source_journal import MakeHome, SourceJournal, definitions
from tests.unit.cli.sparkq import Terminal

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


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    """Run verbs in this process, where the coordinator is the process that a test is about."""
    return Terminal(monkeypatch=monkeypatch, capsys=capsys)


@pytest.fixture
def own_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let coordinators be those of a user of the test's own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))


@pytest.fixture
def make_world(tmp_path: Path, own_user: None) -> Iterator[MakeWorld]:
    """Make journals, whose coordinators end with the test."""
    made: list[World] = []

    def make(**options: Any) -> World:
        made.append(World(tmp_path / f"journal{len(made)}", **options))
        return made[-1]

    yield make
    for each in made:
        each.end()


@pytest.fixture
def make_site(tmp_path: Path, own_user: None) -> Iterator[MakeSite]:
    """Make journals of instances, whose coordinators end with the test."""
    made: list[World] = []

    def make(name: str, *peers: str, **keys: Any) -> World:
        made.append(site(str(tmp_path / name), name, {each: peer(str(tmp_path / each), **keys) for each in peers}))
        return made[-1]

    yield make
    for each in made:
        each.end()


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    """Make one journal, whose coordinators end with the test."""
    return make_world()


collect_ignore = [] if OTHERS else ["test_other_stores.py"]


def pytest_report_header() -> str | None:
    """Say which tests are not collected."""
    return "without test_other_stores.py: neither Azurite nor fake-gcs-server is at hand (make stores)" if collect_ignore else None
