"""The verbs that change a queue: what they ask of the coordinator, and how they tell what it answered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spark_queue import Journal
from spark_queue.coordinator import wire
from tests.unit.cli.sparkq import Terminal


class Asked:
    """Stands for a coordinator: notes what is asked, and answers as it was told."""

    def __init__(self) -> None:
        self.requests: list[wire.AnyRequest] = []
        self.reply: wire.AnyReply = wire.Done()

    def __call__(self, _store: object, journal_id: str, request: Any, *, address: str | None = None, **fields: Any) -> Any:
        self.address = address
        self.requests.append(request(journal=journal_id, request="r", **fields))
        return self.reply


@pytest.fixture
def sparkq(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(monkeypatch=monkeypatch, capsys=capsys)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    asked = Asked()
    monkeypatch.setattr("spark_queue.queue.ask", asked)
    return asked


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    definitions = {"message_types": {"json": {"topics": ["T"]}}, "queues": {"WORK": {"underlying_topic": "T"}}}
    return Journal.create(str(tmp_path / "journal"), definitions)


@pytest.mark.parametrize(("verb", "request_type", "paused"), [("pause", wire.Pause, True), ("unpause", wire.Unpause, False)])
def test_pause_and_unpause_ask_for_it_and_say_so(
    sparkq: Terminal, asked: Asked, journal: Journal, *, verb: str, request_type: type, paused: bool
) -> None:
    assert sparkq(verb, journal.path, "WORK", "--json").json == {"queue": "WORK", "paused": paused}
    said = sparkq(verb, journal.path, "WORK", "--coordinator", "host:1").out
    assert said.startswith("Queue 'WORK' is paused" if paused else "Queue 'WORK' grants again")
    assert [type(request) for request in asked.requests] == [request_type] * 2
    assert {getattr(request, "queue", None) for request in asked.requests} == {"WORK"}
    assert asked.address == "host:1"
