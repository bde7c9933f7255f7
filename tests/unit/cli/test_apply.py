"""``sparkq apply``: what it shows, what it refuses, and what it lets go only when asked to."""

from __future__ import annotations

import copy
from pathlib import Path

import pyarrow as pa
import pytest

from spark_queue import Journal
from spark_queue.core import commands
from spark_queue.core.definitions import parsing
from spark_queue.journal.open import open_journal
from spark_queue.journal.publisher import make_plan, publish
from tests.unit.cli.conftest import TOML
from tests.unit.cli.sparkq import Terminal
from tests.unit.dashboard.dashboard_world import DEFINITIONS, DashboardWorld


def test_apply_dry_run_shows_what_would_change_and_changes_nothing(sparkq: Terminal, journal: Journal, definitions: Path) -> None:
    definitions.write_text(
        definitions.read_text().replace(
            'underlying_topic = "LINES"', 'underlying_topic = "LINES"\nmax_deliveries = 4\n[queues.LINES]'
        )
    )
    answer = sparkq("apply", journal.path, definitions, "--dry-run")
    assert "change [queues.WORK] max_deliveries: 0 -> 4" in answer.out
    assert "add [queues.LINES]" in answer.out
    assert list(journal.definitions().queues) == ["WORK"]


def test_apply_of_the_same_definitions_says_so_and_needs_no_coordinator(
    sparkq: Terminal, journal: Journal, definitions: Path
) -> None:
    assert sparkq("apply", journal.path, definitions).out == "Nothing to change.\n"
    assert not (Path(journal.path) / "coordinator.json").exists()


def test_apply_lets_a_queue_go_only_when_it_is_named(sparkq: Terminal, journal: Journal, definitions: Path) -> None:
    """A misspelt name would forget what was acknowledged, and hand everything out again."""
    journal.publish([{"amount": 1}] * 3, topic="LINES")
    definitions.write_text(definitions.read_text().replace("[queues.WORK]", "[queues.WROK]"))
    answer = sparkq("apply", journal.path, definitions)
    assert answer.code == 1
    assert "[DEFINITION_IN_USE]" in answer.err
    assert "3 messages are in it" in answer.err
    assert "--remove WORK" in answer.err
    assert list(journal.definitions().queues) == ["WORK"]
    assert "--remove WORK" in sparkq("apply", journal.path, definitions, "--dry-run").err
    assert "remove [queues.WORK]" in sparkq("apply", journal.path, definitions, "--dry-run", "--remove", "WORK").out


def test_queries_that_run_are_named_beside_columns_that_they_began_without(tmp_path: Path) -> None:
    """They end at their next poll; a receiver takes the columns as they come."""
    world = DashboardWorld(tmp_path)
    changed = copy.deepcopy(DEFINITIONS)
    changed["message_types"]["order"]["columns"] += ", discount BIGINT"

    def warnings() -> list[str | None]:
        return [change.warning for change in world.journal.apply(changed, dry_run=True)]

    assert warnings() == [None]
    for queue in ("BILLING", "REFUNDS"):
        world.attach(queue, "east", 1)
    world.attach("REFUNDS", "mailer", 1, ack_mode="receive")
    world.commit()
    [told] = warnings()
    assert told is not None
    assert told.startswith("queries of 'BILLING', 'REFUNDS' that run now were loaded without 'discount', ")
    world.decide(commands.Unsubscribe(queue="REFUNDS", subscription="east"), 2)
    world.commit()
    [told] = warnings()
    assert told is not None
    assert told.startswith("queries of 'BILLING' that run now")
    # No other change of a message type takes anything from them.
    changed["message_types"]["order"] |= {"columns": DEFINITIONS["message_types"]["order"]["columns"], "rename": {"sum": "amount"}}
    assert warnings() == [None]


def test_apply_refuses_what_the_coordinator_would_refuse(sparkq: Terminal, journal: Journal, definitions: Path) -> None:
    definitions.write_text(definitions.read_text().replace("amount BIGINT", "amount DOUBLE"))
    answer = sparkq("apply", journal.path, definitions, "--dry-run")
    assert answer.code == 1
    assert "[MESSAGE_TYPE_CHANGED]" in answer.err


def test_a_dry_run_looks_at_the_table_that_a_message_type_left_behind(
    sparkq: Terminal, journal: Journal, definitions: Path
) -> None:
    """With a message in it: without one its columns would give way."""
    opened = open_journal(journal.store)
    opened.create_message_table("note", "id BIGINT")
    older = parsing.parse({"message_types": {"note": {"columns": "id BIGINT", "topics": ["NOTES"]}}})
    plan = make_plan(journal.store, older, message_type="note", topic="NOTES", expires_after_ms=None)
    publish(plan, opened.journal_id, older, pa.table({"id": [1]}))
    added = '[message_types.note]\ncolumns = "id {}"\ntopics = ["NOTES"]\n'
    told = {}
    for column in ("BIGINT", "DOUBLE"):
        definitions.write_text(TOML + added.format(column))
        told[column] = sparkq("apply", journal.path, definitions, "--dry-run")
    assert "add [message_types.note]" in told["BIGINT"].out
    assert "[MESSAGE_TYPE_CHANGED]" in told["DOUBLE"].err


@pytest.mark.parametrize("option", ["--reset", "--remove"])
def test_the_owner_of_the_store_resets_and_removes_nothing(
    sparkq: Terminal, journal: Journal, definitions: Path, option: str
) -> None:
    said = sparkq("apply", journal.path, definitions, "--as-store-owner", option, "WORK")
    told = " ".join(said.err.split())
    assert (said.code, "[BAD_VALUE]" in told, option in told, "left out with --as-store-owner" in told) == (1, True, True, True)
