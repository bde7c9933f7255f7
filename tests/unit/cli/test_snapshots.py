"""``sparkq verify`` and ``doctor`` about snapshots: a useless one costs time only, one that lies is a problem (DESIGN 4)."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from spark_queue import Journal
from spark_queue.cli import doctor
from spark_queue.core import folds
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.log_history import LogHistory
from spark_queue.errors import JournalError
from spark_queue.journal import snapshot
from spark_queue.journal.open import open_journal
from spark_queue.journal.reader import list_blocks
from spark_queue.journal.schema import schema_of
from tests.unit.cli.sparkq import Terminal


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal.create(
        str(tmp_path / "journal"),
        {"message_types": {"json": {"topics": ["EVENTS"]}}, "queues": {"WORK": {"underlying_topic": "EVENTS"}}},
    )


def test_verify_warns_of_a_snapshot_that_cannot_be_used_and_refuses_one_that_lies(sparkq: Terminal, journal: Journal) -> None:
    opened = open_journal(journal.store)
    snapshot.capture(journal.store, list_blocks(journal.store), opened.traits)
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
    folds.fold_all(state, records)
    state.queues["WORK"].next_lease = 9
    snapshot.write(journal.store, state, LogHistory(), records[-1])
    answer = sparkq("verify", journal.path, "--json")
    assert (answer.code, answer.json["warnings"]) == (1, [])
    assert f"{file.name} has other queues than the log" in answer.json["problems"][0]


def test_a_table_that_somebody_altered_is_told_and_stops_no_other(sparkq: Terminal, tmp_path: Path) -> None:
    """PROTOCOL 2: whose table it is, and which columns it has."""
    types = {name: {"columns": "id BIGINT, item STRING", "topics": [name.upper()]} for name in ("order", "sale", "empty")}
    journal = Journal.create(str(tmp_path / "journal"), {"message_types": types, "queues": {}})
    journal.publish([{"id": 1, "item": "x"}], topic="ORDER")
    table = DeltaTable(journal.store.messages_uri("order"))
    owner = str(table.metadata().description)
    table.alter.set_table_description("mine now")
    (problem,) = sparkq("verify", journal.path, "--json").json["problems"]
    assert problem.startswith("[JOURNAL_MISMATCH]")
    table.alter.set_table_description(owner)
    rows = pa.table(
        {"topic": ["ORDER"], "id": [2]},
        schema=schema_of(pa.field("topic", pa.string(), nullable=False), pa.field("id", pa.int64())),
    )
    write_deltalake(table.table_uri, rows, mode="overwrite", partition_by=["topic"], schema_mode="overwrite")
    for _ in range(2):
        with pytest.raises(JournalError):
            journal.publish([{"id": 2}], topic="ORDER")
    assert any("JOURNAL_REWRITTEN" in each for each in sparkq("verify", journal.path, "--json").json["problems"])
    found = doctor._queues(journal)
    assert (found.result, found.found) == ("failed", "stopped message types: order")
    journal.publish([{"id": 1}], topic="SALE")
    del types["empty"]
    journal.apply({"message_types": types, "queues": {}})
    sparkq("stop", journal.path)
    assert len(sparkq("verify", journal.path, "--json").json["problems"]) == 2, "of the one that somebody altered"
    with journal.publisher("p") as publisher:
        assert publisher.publish([{"id": 2}], topic="SALE").rows == 1
        with pytest.raises(JournalError):
            publisher.publish([{"id": 2}], topic="ORDER")
