"""Protocols of tables that are made or altered name every feature in use, also those that an older one implied."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, Schema
from deltalake.schema import Field, PrimitiveType

from spark_queue.journal.creation import create_journal
from spark_queue.journal.open import open_journal
from spark_queue.journal.store import Store
from spark_queue.journal.table_features import unnamed_features, used_features
from spark_queue.sinks.table import SinkTable

ID = {"name": "id", "type": "long"}
WALL_CLOCK = {"name": "n", "type": "timestamp_ntz"}


def features(path: str) -> list[str]:
    """Return what the protocol of a table names, which must be all that it uses."""
    table = DeltaTable(path)
    assert unnamed_features(table) == []
    return sorted(table.protocol().writer_features or ())


@pytest.mark.parametrize(
    ("nullable", "properties", "named"),
    [
        (True, {}, []),
        (False, {}, []),
        (False, {"delta.appendOnly": "true"}, []),
        (False, {"delta.enableChangeDataFeed": "true"}, ["changeDataFeed", "checkConstraints", "generatedColumns"]),
    ],
)
def test_a_wall_clock_column_that_is_added_leaves_what_was_implied(
    tmp_path: Path, *, nullable: bool, properties: dict[str, str | None], named: list[str]
) -> None:
    path = str(tmp_path / "t")
    DeltaTable.create(path, Schema([Field("id", PrimitiveType("long"), nullable=nullable)]), configuration=properties)
    before = DeltaTable(path).metadata()
    SinkTable(path, {}).plan([ID, WALL_CLOCK], merges_schema=True)
    assert features(path) == sorted({*named, "appendOnly", "invariants", "timestampNtz"})
    after = DeltaTable(path).metadata()
    assert (after.id, after.created_time, after.configuration) == (before.id, before.created_time, before.configuration)


def test_columns_that_need_nothing_leave_the_protocol_as_it_is(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    DeltaTable.create(path, Schema([Field("id", PrimitiveType("long"))]))
    sink = SinkTable(path, {})
    sink.plan([ID, {"name": "more", "type": "string"}], merges_schema=True)
    assert features(path) == []
    assert '"protocol"' not in (tmp_path / "t/_delta_log/00000000000000000001.json").read_text()
    table = sink.check()
    assert table is not None
    assert DeltaTable(path).schema().to_json() == table.schema().to_json()


def test_what_a_protocol_fails_to_name_is_added_with_the_next_columns(tmp_path: Path) -> None:
    """As delta-rs itself leaves a table with a wall-clock column and one that may not be NULL."""
    path = str(tmp_path / "t")
    DeltaTable.create(
        path, Schema([Field("id", PrimitiveType("long"), nullable=False), Field("n", PrimitiveType("timestamp_ntz"))])
    )
    assert unnamed_features(DeltaTable(path)) == ["invariants"]
    SinkTable(path, {}).plan([ID, WALL_CLOCK, {"name": "more", "type": "string"}], merges_schema=True)
    assert features(path) == ["invariants", "timestampNtz"]


@pytest.mark.parametrize("kind", ["TIMESTAMP_NTZ", "ARRAY<TIMESTAMP_NTZ>", "MAP<STRING, STRUCT<a: TIMESTAMP_NTZ>>"])
def test_message_tables_that_are_made_or_appended_to(tmp_path: Path, kind: str) -> None:
    store = Store(str(tmp_path / "journal"))
    create_journal(store)
    journal = open_journal(store)
    journal.create_message_table("made", f"n {kind}")
    journal.create_message_table("late", "id BIGINT")
    assert features(store.messages_uri("late")) == []
    journal.create_message_table("late", f"id BIGINT, n {kind}")
    for name in ("made", "late"):
        assert features(store.messages_uri(name)) == ["appendOnly", "invariants", "timestampNtz"]
        assert DeltaTable(store.messages_uri(name)).protocol().reader_features == ["timestampNtz"]


@pytest.mark.parametrize(
    ("column", "properties", "used"),
    [
        ({"type": "long", "metadata": {"delta.generationExpression": "1"}}, {}, {"generatedColumns"}),
        ({"type": "long", "metadata": {"delta.identity.start": 1}}, {}, {"identityColumns"}),
        ({"type": "long", "metadata": {"delta.invariants": "{}"}}, {}, {"invariants"}),
        ({"type": "long"}, {"delta.constraints.c": "id > 0"}, {"checkConstraints"}),
        ({"type": "long"}, {"delta.columnMapping.mode": "name"}, {"columnMapping"}),
        ({"type": "long"}, {"delta.columnMapping.mode": "none", "delta.appendOnly": "false"}, set()),
        ({"type": {"type": "struct", "fields": [{"name": "a", "type": "long", "nullable": False}]}}, {}, {"invariants"}),
    ],
)
def test_what_columns_and_properties_use(column: dict[str, Any], properties: dict[str, str], used: set[str]) -> None:
    assert used_features([{"name": "c", "nullable": True, **column}], properties) == used
