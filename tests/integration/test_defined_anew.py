"""A message type without messages goes, and is defined anew with other columns, while publishers have it open."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_queue import Journal
from spark_queue.core.definitions import parsing
from spark_queue.core.definitions.definition import Definitions
from spark_queue.errors import CallerError, ConfigError, JournalError
from spark_queue.journal import message_table
from spark_queue.journal.publisher import make_plan, publish
from spark_queue.journal.staging import StagingPlan
from tests.integration.coordinator_world import TOPIC, World


def file(world: World, columns: str | None) -> dict[str, Any]:
    """Return definitions with a type of these columns and its queue, or without both."""
    more = {} if columns is None else {"line": {"columns": columns, "topics": ["LINES"]}}
    queues = {} if columns is None else {"LINES": {"underlying_topic": "LINES"}}
    return {
        **world.definitions, "message_types": {**world.definitions["message_types"], **more},
        "queues": {**world.definitions["queues"], **queues},
    }  # fmt: skip


def with_plan(world: World) -> tuple[Journal, Definitions, StagingPlan]:
    """Define the type, and plan a publish by that."""
    journal = Journal(world.store.path)
    journal.apply(file(world, "id STRING, count BIGINT"))
    older = parsing.parse(file(world, "id STRING, count BIGINT"))
    return journal, older, make_plan(world.store, older, message_type="line", topic="LINES", expires_after_ms=None)


def test_a_first_typo_does_not_cost_the_name(make_world: Callable[..., World]) -> None:
    """A publisher that has the older definitions goes by those that hold."""
    world = make_world()
    journal = Journal(world.store.path)
    journal.apply(file(world, "id STRING, count BIGINT"))
    with pytest.raises(ConfigError, match=r"MESSAGE_TYPE_CHANGED.*may begin anew.*--remove"):
        journal.apply(file(world, "id STRING, count DOUBLE"))
    with journal.publisher("open") as early:
        journal.apply(file(world, None), remove=["LINES"])
        tried = journal.apply(file(world, "id STRING, count DOUBLE"), dry_run=True)
        assert [str(change) for change in tried] == ["add [message_types.line]", "add [queues.LINES]"]
        journal.apply(file(world, "id STRING, count DOUBLE"))
        early.publish([{"id": "a", "count": 1}], topic="LINES")
    assert messages(journal) == [{"id": "a", "count": 1}]
    # From here on it has a message.
    with pytest.raises(ConfigError, match="DEFINITION_IN_USE.*1 message"):
        journal.apply(file(world, None), remove=["LINES"])


def test_a_message_that_no_coordinator_has_seen_keeps_the_columns(make_world: Callable[..., World]) -> None:
    """Its publisher told nobody, and the type goes before the log is looked at: what was published stays, and is found again."""
    world = make_world()
    journal, older, plan = with_plan(world)
    journal.apply(file(world, None), remove=["LINES"])
    publish(plan, world.journal_id, older, pa.table({"id": ["a"], "count": [1]}))
    with pytest.raises(ConfigError, match="MESSAGE_TYPE_CHANGED"):
        journal.apply(file(world, "id STRING, count DOUBLE"))
    journal.apply(file(world, "id STRING, count BIGINT"))
    assert messages(journal) == [{"id": "a", "count": 1}]


def test_a_publish_that_was_planned_by_the_older_definitions_is_refused_by_name(make_world: Callable[..., World]) -> None:
    """A write of Spark commits by its plan, whatever holds by then; the table is whole."""
    world = make_world()
    journal, older, plan = with_plan(world)
    journal.apply(file(world, None), remove=["LINES"])
    journal.apply(file(world, "id STRING, count DOUBLE"))
    with pytest.raises(CallerError, match=r"MESSAGE_TYPE_RENEWED.*'line' was dropped, or defined anew.*Nothing was published"):
        publish(plan, world.journal_id, older, pa.table({"id": ["a"], "count": [1]}))
    assert messages(journal) == []
    journal.apply(file(world, None), remove=["LINES"])
    message_table.create(world.store, world.journal_id, "line", "id STRING, count STRING", durable=False, unused_by=99)
    # So it stands before the definitions do, and for good where the coordinator dies in between.
    with pytest.raises(CallerError, match="MESSAGE_TYPE_RENEWED"):
        publish(plan, world.journal_id, older, pa.table({"id": ["a"], "count": [1]}))


def test_a_table_that_somebody_has_partitioned_is_damaged_whatever_the_definitions_say(make_world: Callable[..., World]) -> None:
    world = make_world()
    held = parsing.parse(world.definitions)
    log = Path(world.store.path) / "messages" / "json" / "_delta_log"
    newest = sorted(log.glob("*.json"))
    first = [json.loads(line) for line in newest[0].read_text().splitlines()]
    metadata = next(each["metaData"] for each in first if "metaData" in each) | {"partitionColumns": ["topic"]}
    altered = [{"metaData": metadata}, {"commitInfo": {"timestamp": 1, "operation": "SET"}}]
    (log / f"{int(newest[-1].stem) + 1:020}.json").write_text("".join(f"{json.dumps(each)}\n" for each in altered))
    plan = make_plan(world.store, held, message_type="json", topic=TOPIC, expires_after_ms=None)
    with pytest.raises(JournalError, match=r"JOURNAL_DAMAGED.*partitioned by topic"):
        publish(plan, world.journal_id, held, pa.table({"value": ["1"]}))


def messages(journal: Journal) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = journal.view("messages", queue="LINES").select(["id", "count"]).to_pylist()
    return found
