"""``sparkq verify`` and ``doctor`` about snapshots: a useless one costs time only, one that lies is a problem (DESIGN 4)."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_queue import Journal
from spark_queue.cli import doctor
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.log_history import LogHistory
from spark_queue.journal import snapshot
from spark_queue.journal.open import open_journal
from spark_queue.journal.reader import list_files
from tests.unit.cli.sparkq import Terminal


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal.create(
        str(tmp_path / "journal"),
        {"message_types": {"json": {"topics": ["EVENTS"]}}, "queues": {"WORK": {"underlying_topic": "EVENTS"}}},
    )


def test_verify_warns_of_a_snapshot_that_cannot_be_used_and_refuses_one_that_lies(sparkq: Terminal, journal: Journal) -> None:
    opened = open_journal(journal.store)
    snapshot.take(journal.store, list_files(journal.store), opened.traits)
    assert sparkq("verify", journal.path, "--json").json == {
        "journal": opened.journal_id, "records": 2, "problems": [], "warnings": [],
    }  # fmt: skip
    assert doctor._control_log(journal).found == "2 records in 2 files; a start reads 0 of them"
    (file,) = (Path(journal.path) / "snapshots").glob("*.snapshot")
    file.write_bytes(file.read_bytes()[:-1])
    finding = doctor._control_log(journal)
    assert (finding.result, finding.found.partition("a start ")[2]) == (
        "warning",
        "reads 2 of them, since none of 1 snapshots can be used",
    )
    answer = sparkq("verify", journal.path, "--json")
    assert (answer.code, answer.json["problems"]) == (0, [])
    assert f"{file.name} is not used: it is damaged" in answer.json["warnings"][0]
    assert "Nothing is lost" in sparkq("verify", journal.path).out
    state = JournalState(opened.traits)
    records = opened.records()
    state.fold_all(records)
    state.queues["WORK"].next_lease = 9
    snapshot.write(journal.store, state, LogHistory(), records[-1])
    answer = sparkq("verify", journal.path, "--json")
    assert (answer.code, answer.json["warnings"]) == (1, [])
    assert f"{file.name} gives other queues than the log" in answer.json["problems"][0]
