"""``sparkq peek``, ``explain`` and ``verify`` tell what is there, and what they leave out (DESIGN 9)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from deltalake import DeltaTable, TableFeatures
from deltalake.schema import Field, PrimitiveType

from spark_queue import Journal
from spark_queue.cli import doctor
from spark_queue.errors import ConfigError, JournalError
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


@pytest.mark.parametrize("asked", [[], ["--where", "amount = 0"]], ids=["oldest", "by a filter"])
def test_peek_hides_no_column_of_the_body_that_has_values(sparkq: Terminal, journal: Journal, asked: list[str]) -> None:
    journal.publish([{"item": "", "amount": 0}], topic="LINES")
    head = sparkq("peek", journal.path, "WORK", *asked).out.splitlines()[0]
    assert {"item", "amount"} <= set(head.split())
    assert "delivery_count" not in head


def test_columns_that_are_called_as_facts_of_the_queue_are_shown_beside_them(sparkq: Terminal, tmp_path: Path) -> None:
    names = "state, reason, error, priority, subscription, due_at, removed_at, owner, outcome, retry_after".split(", ")
    types = {"order": {"columns": ", ".join(f"{name} STRING" for name in names), "topics": ["ORDERS"]}}
    journal = Journal.create(str(tmp_path / "orders"), {"message_types": types, "queues": {"ORDERS": {"filter": "state = 's'"}}})
    journal.publish([{name: name[0] for name in names}], topic="ORDERS")
    (row,) = journal.view("messages", queue="ORDERS").to_pylist()
    facts = {"state", "reason", "error", "priority", "subscription", "due_at", "removed_at"}
    for name in names:
        assert row[f"message_{name}" if name in facts else name] == name[0]
    assert (row["state"], row["priority"], "reason" in row) == ("available", None, False)
    for words in (("--where", "state = 's' AND error = 'e'"), ()):
        answer = sparkq("peek", journal.path, "ORDERS", "--columns", "bookmark,state,message_state", "--json", *words)
        assert answer.json == [{"bookmark": 0, "state": "available", "message_state": "s"}]
    view = journal.view("dead_letters", queue="ORDERS")
    assert len(set(view.column_names)) == len(view.column_names)


def test_peek_of_thousands_of_columns_shows_those_that_find_room(sparkq: Terminal, tmp_path: Path) -> None:
    names = [f"c{number}" for number in range(1_000)]
    types = {"wide": {"columns": ", ".join(f"{name} INT" for name in names), "topics": ["WIDE"]}}
    journal = Journal.create(str(tmp_path / "wide"), {"message_types": types, "queues": {"WIDE": {}}})
    journal.publish([dict.fromkeys(names, 7)], topic="WIDE")
    told = sparkq("peek", journal.path, "WIDE").out
    head = next(line for line in told.splitlines() if "bookmark" in line)
    assert " c0 " in head
    assert " state " in head
    assert re.search(r"columns? (is|are) hidden for lack of room; --json shows all\.", told)
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


def test_peek_names_the_view_that_has_a_column(sparkq: Terminal, tmp_path: Path) -> None:
    """Of a dead letter the reason stands with the queue that it left, also where somebody looks into the queue that it went to."""
    queues = {"WORK": {"underlying_topic": "EVENTS", "dead_letter_queue": "FAILED"}, "FAILED": {"message_type": "json"}}
    definitions = {"message_types": {"json": {"topics": ["EVENTS"]}}, "queues": queues}
    path = Journal.create(str(tmp_path / "letters"), definitions).path
    for queue, column, says in (
        ("FAILED", "reason", "View 'dead_letters' of queue 'WORK' has it."),
        ("WORK", "Error", "View 'dead_letters' of queue 'WORK' has it."),
        ("WORK", "queue_depth", "View 'status' of queue 'WORK' has it."),
        ("WORK", "valeu", "Did you mean 'value'?"),
    ):
        assert f"in view 'messages'. {says} Columns:" in sparkq("peek", path, queue, "--columns", column).err


def test_explain_tells_one_message_as_text_and_as_json(sparkq: Terminal, journal: Journal) -> None:
    journal.publish([{"item": "pear", "amount": 1}, {"item": "fig", "amount": 2}], topic="LINES")
    told = sparkq("explain", journal.path, "WORK", 1).out
    assert told.startswith("Message 1 of queue 'WORK'\n  It waits: queue 'WORK' has no consumer now.")
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


def test_verify_and_doctor_name_a_gap_that_only_publishers_meet(sparkq: Terminal, tmp_path: Path) -> None:
    """What has entered is read no more, but Delta opens no table with a gap."""
    disk = Disk(tmp_path / "journal")
    reign = Reign(disk, epoch=1)
    for number in range(3):
        disk.publish([number])
    reign.enter()
    disk.log_path(messages_key("order"), 2).unlink()
    (problem,) = sparkq("verify", disk.store.path, "--json").json["problems"]
    told = f"[LOG_GAP] The log of '{disk.store.messages_uri('order')}' lacks version 2: "
    assert told in problem
    with pytest.raises(JournalError) as refused:
        doctor._files(Journal(disk.store.path))
    assert told in str(refused.value), "sparkq doctor says so, too"
    with pytest.raises(JournalError, match=r"LOG_GAP.*'_delta_log/00000000000000000002\.json' is gone"):
        disk.publish([3])


def test_verify_names_what_a_table_uses_and_its_protocol_does_not(sparkq: Terminal, tmp_path: Path) -> None:
    """As delta-rs leaves a table to which somebody adds such a column by hand."""
    disk = Disk(tmp_path / "journal")
    table = DeltaTable(disk.store.messages_uri("order"))
    table.alter.add_columns([Field("n", PrimitiveType("timestamp_ntz"))])
    (problem,) = sparkq("verify", disk.store.path, "--json").json["problems"]
    assert "'order': its table uses invariants, which its Delta protocol does not list" in problem
    table.alter.add_feature(TableFeatures.Invariants)
    assert sparkq("verify", disk.store.path, "--json").json["problems"] == []


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
    assert "No message that entered 'BILLING' matches." in sparkq("peek", path, "BILLING", "--where", "amount = 70").out
    assert "[BAD_VALUE]" in sparkq("peek", path, "BILLING", "--where", "amount = 3", "--view", "leases").err
    assert "[EXPRESSION_INVALID]" in sparkq("peek", path, "BILLING_FAILED", "--where", "error = 'boom'").err


def test_peek_shows_columns_in_the_order_that_was_asked_for(sparkq: Terminal, journal: Journal) -> None:
    journal.publish([{"item": "pear", "amount": 1}], topic="LINES")
    for view, columns in (("messages", "state,amount,bookmark,item"), ("subscriptions", "filter,subscription")):
        found = journal.view(view, queue="WORK", columns=columns.split(","))
        assert found.column_names == columns.split(",")
    told = sparkq("peek", journal.path, "WORK", "--columns", "state,amount,bookmark,item").out
    assert told.splitlines()[0].split() == ["state", "amount", "bookmark", "item"]
    rows = sparkq("peek", journal.path, "WORK", "--columns", "state,amount,bookmark", "--where", "amount = 1", "--json").json
    assert list(rows[0]) == ["state", "amount", "bookmark"]


def test_peek_shows_who_is_next_by_priority(sparkq: Terminal, tmp_path: Path) -> None:
    """R66, R69: what waits for its time or behind a barrier is not next, and within a priority the oldest is."""
    lines = {"columns": "item STRING, amount BIGINT", "topics": ["LINES"]}
    queues = {
        "DEAR": {"underlying_topic": "LINES", "priority": "amount"},
        "HELD": {"underlying_topic": "LINES", "barrier": "amount = 9"},
    }
    journal = Journal.create(str(tmp_path / "journal"), {"message_types": {"line": lines}, "queues": queues})
    journal.publish([{"item": "x", "amount": amount} for amount in (2, 7, None, 9, 7, 2)], topic="LINES")

    def next_of(queue: str, *more: object) -> list[int]:
        return [row["bookmark"] for row in sparkq("peek", journal.path, queue, "--next", "--json", *more).json]

    assert next_of("DEAR") == [3, 1, 4, 0, 5, 2]
    assert next_of("DEAR", "-n", 3) == [3, 1, 4]
    assert next_of("HELD") == [0, 1, 2]
    journal.publish([{"item": "soon", "amount": 8}], topic="LINES")
    assert next_of("DEAR")[:3] == [3, 6, 1]
    for more in (("--where", "amount = 7"), ("--view", "leases")):
        assert "[BAD_VALUE] '--next'" in sparkq("peek", journal.path, "DEAR", "--next", *more).err
    with pytest.raises(ConfigError, match="next_first"):
        journal.view("leases", queue="DEAR", next_first=True)
    none = sparkq("peek", Journal.create(str(tmp_path / "empty"), DEFINITIONS).path, "WORK", "--next").out
    assert none == "Queue 'WORK' has no message that may be granted now.\n"


def test_values_are_shown_as_they_can_be_typed(sparkq: Terminal, tmp_path: Path) -> None:
    """A number in a filter has no thousands apart, a rounded one finds nothing, and no value is written as Python writes it."""
    columns = "n BIGINT, price DOUBLE, flag BOOLEAN, tags ARRAY<STRING>, part STRUCT<a: INT, b: BOOLEAN>, counts MAP<STRING, INT>"
    types = {"line": {"columns": columns, "topics": ["LINES"]}}
    journal = Journal.create(str(tmp_path / "typed"), {"message_types": types, "queues": {"WORK": {"underlying_topic": "LINES"}}})
    body = {"n": 1_234_567, "price": 0.1234567, "flag": True, "tags": ["a", None], "part": {"a": 1, "b": False}, "counts": {"x": 1}}
    journal.publish([body, body | {"price": float("nan")}], topic="LINES")
    told = sparkq("peek", journal.path, "WORK", "--columns", "bookmark,n,price,flag,tags,part,counts").out.splitlines()
    assert re.split(r" {2,}", told[1].strip()) == [
        "0", "1234567", "0.1234567", "true", '["a", null]', '{"a": 1, "b": false}', '{"x": 1}',
    ]  # fmt: skip
    assert " NaN " in told[2]
    for text, count in (("n = 1234567", 2), ("price = 0.1234567", 1), ("flag = true", 2)):
        assert len(sparkq("peek", journal.path, "WORK", "--where", text, "--json").json) == count
