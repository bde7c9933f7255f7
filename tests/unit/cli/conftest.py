"""A terminal, definitions in a file, and a journal that they made."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_queue import Journal
from tests.unit.cli.sparkq import Terminal

TOML = """
[message_types.line]
columns = "item STRING, amount BIGINT, at TIMESTAMP"
topics = ["LINES"]
[message_types.json]
topics = ["EVENTS"]
[queues.WORK]
underlying_topic = "LINES"
"""


@pytest.fixture
def sparkq(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(monkeypatch=monkeypatch, capsys=capsys)


@pytest.fixture
def definitions(tmp_path: Path) -> Path:
    path = tmp_path / "queues.toml"
    path.write_text(TOML)
    return path


@pytest.fixture
def journal(tmp_path: Path, definitions: Path) -> Journal:
    return Journal.create(str(tmp_path / "journal"), definitions)
