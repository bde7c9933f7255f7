"""``sparkq status`` tells what somebody should look at (DESIGN 15.12)."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from spark_queue import Journal
from tests.unit.cli.sparkq import Terminal

DEFINITIONS = {"message_types": {"json": {"topics": ["T"]}}, "queues": {"WORK": {"underlying_topic": "T"}}}


def test_status_exits_with_2_where_there_is_an_alarm(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    sparkq = Terminal(monkeypatch=monkeypatch, capsys=capsys)
    journal = Journal.create(str(tmp_path / "journal"), DEFINITIONS)
    calm = journal.view("status")
    assert sparkq("status", journal.path).code == 0
    alarmed = calm.set_column(calm.schema.get_field_index("alarm"), "alarm", pa.array(["the sink is down"]))
    monkeypatch.setattr(Journal, "view", lambda *_args, **_fields: alarmed)
    said = sparkq("status", journal.path)
    assert said.code == 2
    assert "ALARM: queue 'WORK': the sink is down" in said.out
    assert sparkq("status", journal.path, "--json").code == 2
