"""``sparkq peek``, ``explain`` and ``verify`` tell what is there, and what they leave out (DESIGN 9)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from deltalake import DeltaTable

from spark_queue import Journal
from spark_queue.errors import JournalError
from spark_queue.journal.store import messages_key
from spark_queue.journal.upkeep import clean
from tests.unit.cli.sparkq import Terminal
from tests.unit.dashboard.dashboard_world import DashboardWorld
from tests.unit.journal.journal_on_disk import Disk
from tests.unit.journal.reign import Reign

DEFINITIONS = {
    "message_types": {"line": {"columns": "item STRING, amount BIGINT", "topics": ["LINES"]}},
    "queues": {"WORK": {"underlying_topic": "LINES"}},
}


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal.create(str(tmp_path / "journal"), DEFINITIONS)


def test_peek_says_how_many_columns_it_hides(sparkq: Terminal, journal: Journal) -> None:
    journal.publish([{"item": "pear", "amount": 1}], topic="LINES")
    hidden = (
        len(journal.view("messages", queue="WORK").column_names)
        - len([value for value in journal.view("messages", queue="WORK").to_pylist()[0].values() if value])
        - 1
    )
    assert f"\n{hidden} empty column{'s' if hidden > 1 else ''}" in sparkq("peek", journal.path, "WORK").out
    assert "hidden" not in sparkq("peek", journal.path, "WORK", "--columns", "item").out


def test_peek_of_thousands_of_columns_shows_those_that_find_room(sparkq: Terminal, tmp_path: Path) -> None:
    names = [f"c{number}" for number in range(1_000)]
    types = {"wide": {"columns": ", ".join(f"{name} INT" for name in names), "topics": ["WIDE"]}}
    journal = Journal.create(str(tmp_path / "wide"), {"message_types": types, "queues": {"WIDE": {}}})
    journal.publish([dict.fromkeys(names, 7)], topic="WIDE")
    told = sparkq("peek", journal.path, "WIDE").out
    head = next(line for line in told.splitlines() if "bookmark" in line)
    assert " c0 " in head
    assert " state " in head
    assert re.search(r"columns? finds? no room here; --json shows all\.", told)
    assert len(sparkq("peek", journal.path, "WIDE", "--json").json[0]) > 1_000
    # No lines are drawn where nobody looks.
    assert sparkq("peek", journal.path, "WIDE", "--columns", "C999,BOOKMARK").out == "c999  bookmark  \n7     0         \n"


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ("amuont", "[UNKNOWN_COLUMN] There is no column 'amuont' in view 'messages'. Did you mean 'amount'?"),
        ("item,Item", "[COLUMN_TWICE]"),
    ],
)
def test_peek_names_a_column_that_it_cannot_show(sparkq: Terminal, journal: Journal, columns: str, text: str) -> None:
    assert text in sparkq("peek", journal.path, "WORK", "--columns", columns).err


def test_explain_tells_one_message_as_text_and_as_json(sparkq: Terminal, journal: Journal) -> None:
    journal.publish([{"item": "pear", "amount": 1}, {"item": "fig", "amount": 2}], topic="LINES")
    told = sparkq("explain", journal.path, "WORK", 1).out
    assert told.startswith("Message 1 of queue 'WORK'\n  It waits: nobody consumes queue 'WORK' now.")
    assert "  state          available\n" in told
    assert "published to topic 'LINES'" in told
    found = sparkq("explain", journal.path, "WORK", 1, "--json").json
    assert (found["state"], found["sequence"], [event["event"] for event in found["events"]]) == (
        "available", 2, ["published", "committed"],
    )  # fmt: skip
    assert "[UNKNOWN_BOOKMARK]" in sparkq("explain", journal.path, "WORK", 2).err


def test_verify_counts_messages_as_status_does(sparkq: Terminal, journal: Journal) -> None:
    journal.publish([{"item": "pear"}] * 3, topic="LINES")
    assert sparkq("status", journal.path, "WORK", "--json").json[0]["entered"] == 3
    assert " 3 messages, " in sparkq("verify", journal.path).out


def test_verify_takes_a_commit_that_landed_where_nobody_looks_for_no_gap(sparkq: Terminal, tmp_path: Path) -> None:
    """A publisher that slept for days found its version free again, and then published at the head."""
    disk = Disk(tmp_path / "journal")
    reign = Reign(disk, epoch=1)
    for number in range(4):
        disk.publish([number])
    reign.enter()
    DeltaTable(disk.store.messages_uri("order")).create_checkpoint()
    stray = disk.log_path(messages_key("order"), 1)
    entry = stray.read_bytes()
    clean(disk.store, messages_key("order"), below=3, before_ms=2**60)
    stray.write_bytes(entry)
    assert sparkq("verify", disk.store.path, "--json").json["problems"] == []
    disk.publish([4])
    disk.publish([5])
    disk.log_path(messages_key("order"), 5).rename(tmp_path / "gone")
    assert "[LOG_GAP]" in sparkq("verify", disk.store.path, "--json").json["problems"][0]


def test_verify_names_a_gap_that_only_publishers_meet(sparkq: Terminal, tmp_path: Path) -> None:
    """What has entered is read no more, but Delta opens no table with a gap."""
    disk = Disk(tmp_path / "journal")
    reign = Reign(disk, epoch=1)
    for number in range(3):
        disk.publish([number])
    reign.enter()
    disk.log_path(messages_key("order"), 2).unlink()
    (problem,) = sparkq("verify", disk.store.path, "--json").json["problems"]
    assert f"[LOG_GAP] The log of '{disk.store.messages_uri('order')}' lacks version 2: " in problem
    with pytest.raises(JournalError, match=r"LOG_GAP.*'_delta_log/00000000000000000002\.json' is gone"):
        disk.publish([3])


def test_what_keeps_messages_out_of_their_queue_is_named(sparkq: Terminal, journal: Journal) -> None:
    """A queue with a filter needs the bodies to know what enters it; nothing of a file that is gone is in any list of files."""
    stored = dict(journal.definitions().stored)
    stored["queues"] = {**stored["queues"], "LARGE": {"underlying_topic": "LINES", "filter": "amount > 3"}}
    Journal.create(f"{journal.path}-filtered", stored)
    filtered = Journal(f"{journal.path}-filtered")
    filtered.publish([{"amount": 5}], topic="LINES")
    (file,) = (Path(filtered.path) / "messages" / "line").glob("*.parquet")
    file.unlink()
    answer = sparkq("verify", filtered.path, "--json")
    assert (answer.code, [file.name in problem for problem in answer.json["problems"]]) == (1, [True])
    refused = sparkq("explain", filtered.path, "LARGE", 0)
    assert f"It has 0. No more enter: [MESSAGE_FILE_MISSING] Message file '{file.name}'" in refused.err


def test_a_message_is_found_by_what_it_says_also_when_it_is_done(sparkq: Terminal, tmp_path: Path) -> None:
    world = DashboardWorld(tmp_path)
    for minute in (1, 2):
        world.publish(10, minute)
    world.attach("BILLING", "east", 3)
    world.work("BILLING", 12, 4)
    world.work("BILLING", 4, 5)
    world.expire("BILLING", range(19, 20), "boom", 6)
    world.commit()
    path = world.journal.path
    found = sparkq("peek", path, "BILLING", "--where", "amount IN (3, 7)", "--json").json
    told = [(row["bookmark"], row["amount"], row["state"], row["subscription"]) for row in found]
    assert told == [(3, 3, "removed", None), (7, 7, "removed", None), (13, 3, "leased", "east"), (17, 7, "available", None)]
    two = sparkq("peek", path, "BILLING", "--where", "amount = 3", "-n", 1, "--columns", "state,amount")
    assert "removed" in two.out
    assert "leased" not in two.out
    assert f"sparkq explain {path} BILLING BOOKMARK" in two.out
    assert "No message that came into 'BILLING' matches." in sparkq("peek", path, "BILLING", "--where", "amount = 70").out
    assert "[BAD_VALUE]" in sparkq("peek", path, "BILLING", "--where", "amount = 3", "--view", "leases").err
    assert "[EXPRESSION_INVALID]" in sparkq("peek", path, "BILLING_FAILED", "--where", "error = 'boom'").err
