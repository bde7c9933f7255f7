"""Queues over a Delta table that others write, from the front door: what is appended is a message, and all else passes or stops."""

from __future__ import annotations

import contextlib
import json
import pickle
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from spark_queue import Journal, Queue
from spark_queue.errors import CallerError, ConfigError, JournalError
from spark_queue.journal.folder import of_table
from spark_queue.journal.schema import stored_schema
from spark_queue.source.partitions import MessageReader
from spark_queue.source.planning import cut
from spark_queue.source.topic_log import TopicLog
from tests.integration.coordinator_world import DEADLINE_S
from tests.integration.source_journal import end_coordinator
from tests.unit.cli.sparkq import Terminal
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("own_user")


def rows(first: int, count: int) -> pa.Table:
    """Return order lines with the ids first, first + 1, …"""
    ids = list(range(first, first + count))
    return pa.table(
        {"id": pa.array(ids, pa.int64()), "item": [f"item {each}" for each in ids], "country": ["NL", "DE"][:1] * count}
    )


class Followed:
    """A table, and a journal with a queue over it."""

    def __init__(self, home: Path, **keys: Any) -> None:
        self.table = str(home / "orders")
        self.path = str(home / "journal")
        self.keys = keys
        self.journal: Journal | None = None

    def append(self, first: int, count: int, **options: Any) -> None:
        write_deltalake(self.table, rows(first, count), mode="append", **options)

    def definitions(self, **queue: Any) -> dict[str, Any]:
        keys = {"table": self.table, **self.keys}
        return {"message_types": {"orders": keys}, "queues": {"SHIP": {"underlying_topic": "orders", **queue}}}

    def create(self, **queue: Any) -> Journal:
        self.journal = Journal.create(self.path, self.definitions(**queue))
        return self.journal

    @property
    def queue(self) -> Queue:
        assert self.journal is not None, "it was made before"
        return self.journal.queue("SHIP")

    def receive(self, found: list[dict[str, Any]] | None = None) -> list[dict[str, Any]]:
        """Take everything that is there, and acknowledge it."""
        found = [] if found is None else found
        with self.queue.receive(until_empty=True) as messages:
            for message in messages:
                found.append({**message.value(), "bookmark": message.bookmark, "topic": message.topic})
                message.acknowledge().result(DEADLINE_S)
        return found

    def ids(self) -> list[int]:
        return [row["id"] for row in self.receive()]

    def ids_before(self, code: str) -> list[int]:
        """Return what comes before the refusal of what follows, which a receiver hears once it has settled all of that."""
        found: list[dict[str, Any]] = []
        with pytest.raises(JournalError, match=code):
            self.receive(found)
        assert code in str(self.queue.status().alarm)
        return [row["id"] for row in found]


@pytest.fixture
def followed(tmp_path: Path) -> Iterator[Followed]:
    """Give a table with three rows that nobody follows yet."""
    made = Followed(tmp_path)
    made.append(0, 3)
    yield made
    if made.journal is not None:
        end_coordinator(made.journal)


def test_rows_that_are_appended_are_messages_and_a_compaction_passes(followed: Followed) -> None:
    """R141, R144, R145."""
    followed.create()
    followed.append(10, 2)
    followed.append(12, 1)
    assert followed.receive() == [
        {"id": number, "item": f"item {number}", "country": "NL", "bookmark": place, "topic": "orders"}
        for place, number in enumerate([10, 11, 12])
    ]
    DeltaTable(followed.table).optimize.compact()
    followed.append(20, 2)
    assert followed.ids() == [20, 21]
    assert followed.queue.status().acknowledged == 5


def test_a_delete_stops_the_type_before_it(followed: Followed) -> None:
    """R146, R147."""
    followed.create()
    followed.append(10, 2)
    DeltaTable(followed.table).delete("id = 1")
    followed.append(20, 2)
    assert followed.ids_before("TABLE_CHANGED") == [10, 11]
    assert followed.ids_before("TABLE_CHANGED") == []


def test_what_is_in_hand_is_settled_before_a_receiver_hears_that_nothing_more_comes(followed: Followed) -> None:
    journal = followed.create()
    followed.append(10, 3)
    with contextlib.suppress(JournalError), followed.queue.receive() as messages:
        held = [messages.get(), messages.get()]
        DeltaTable(followed.table).delete("id = 1")
        wait_until(lambda: any(row["kind"] == "stopped" for row in journal.view("history").to_pylist()))
        held.append(messages.get())
        for message in held:
            assert message is not None
            message.acknowledge().result(DEADLINE_S)
        with pytest.raises(JournalError, match="TABLE_CHANGED"):
            messages.get()
    assert followed.queue.status().acknowledged == 3


def test_a_type_that_stopped_goes_on_where_somebody_says_so(
    followed: Followed, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """R148: versions that have entered cannot be named, and what is skipped is recorded."""
    journal = followed.create()
    followed.append(10, 2)
    DeltaTable(followed.table).delete("id = 1")
    followed.append(20, 2)
    assert followed.ids_before("TABLE_CHANGED") == [10, 11]
    for version in (0, 1, 9):
        with pytest.raises(ConfigError, match="BAD_VALUE.*a version from 2 to 4"):
            journal.follow("orders", version=version)
    journal.follow("orders", version=2)
    assert followed.ids_before("TABLE_CHANGED") == [], "the change itself was named"
    sparkq = Terminal(monkeypatch=monkeypatch, capsys=capsys)
    assert "[BAD_VALUE]" in sparkq("follow", followed.path, "orders", "--from", "later").err
    assert "goes on with version 3" in sparkq("follow", followed.path, "orders", "--from", "3").out
    followed.append(30, 1)
    assert followed.ids() == [20, 21, 30]
    with pytest.raises(CallerError, match="UNSUPPORTED_WRITE.*not set aside"):
        journal.follow("orders")
    told = [row["detail"] for row in journal.view("history").to_pylist() if row["kind"] == "followed"]
    assert '"skipped":[2,2]' in told[-1]


def test_a_type_goes_on_of_which_only_status_knows_that_it_is_set_aside(
    followed: Followed, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """R148: nobody polled since the table changed, so the coordinator has not read that; the step that status names works."""
    followed.create()
    followed.append(10, 2)
    assert followed.ids() == [10, 11]
    DeltaTable(followed.table).delete("id = 1")
    followed.append(20, 2)
    sparkq = Terminal(monkeypatch=monkeypatch, capsys=capsys)
    assert f"run `sparkq follow {followed.path} orders --from 3`" in str(followed.queue.status().alarm)
    assert "goes on with version 3" in sparkq("follow", followed.path, "orders", "--from", "3").out
    assert followed.ids() == [20, 21]


def test_a_delete_passes_where_the_type_says_so(followed: Followed) -> None:
    followed.keys["on_change"] = "keep"
    followed.create()
    followed.append(10, 2)
    DeltaTable(followed.table).delete("id = 10")
    followed.append(20, 2)
    assert followed.ids() == [10, 11, 20, 21]
    assert followed.queue.status().alarm is None


def test_what_the_table_has_enters_first_from_its_beginning(followed: Followed) -> None:
    """R143."""
    followed.keys["from"] = "beginning"
    followed.append(5, 2)
    followed.create(filter="id <> 1")
    followed.append(10, 1)
    assert followed.ids() == [0, 2, 5, 6, 10]


def test_nothing_is_published_to_it_or_written_into_it(followed: Followed) -> None:
    """R149."""
    journal = followed.create()
    before = int(DeltaTable(followed.table).version())
    with pytest.raises(ConfigError, match="TOPIC_FOLLOWED"):
        journal.publish([{"id": 1}], topic="orders")
    with pytest.raises(ConfigError, match="TOPIC_FOLLOWED"):
        journal.publish([{"id": 1}], topic="SHIP")
    with pytest.raises(ConfigError, match="SINK_IS_SOURCE"):
        journal.queue("SHIP").into(followed.table, subscription="s")
    assert followed.ids() == []
    assert int(DeltaTable(followed.table).version()) == before


def test_a_table_that_was_made_anew_is_another_one(followed: Followed, tmp_path: Path) -> None:
    followed.create()
    followed.append(10, 1)
    assert followed.ids() == [10]
    Path(followed.table).rename(tmp_path / "old")
    for number in range(3):
        followed.append(number, 1)
    assert followed.ids_before("TABLE_REPLACED") == []


def test_partitions_are_read_by_the_log_and_columns_by_choice(followed: Followed, tmp_path: Path) -> None:
    """R142, R150: partition values stand in no file, and a message has the columns that were asked for, under their new names."""
    followed.table = str(tmp_path / "parted")
    followed.keys = {"columns": "number DECIMAL(25,0), country STRING", "rename": {"id": "number"}}
    followed.append(0, 1, partition_by=["country"])
    followed.create(filter="country = 'NL' AND number > 11")
    followed.append(10, 3)
    followed.append(20, 1)
    found = followed.receive()
    assert [(row["number"], row["country"]) for row in found] == [(12, "NL"), (20, "NL")]
    assert all("item" not in row for row in found)


def test_a_column_that_the_table_gains_comes_with_the_next_apply(followed: Followed) -> None:
    """R142, R145."""
    journal = followed.create()
    wider = rows(10, 1).append_column("price", pa.array([7], pa.int64()))
    write_deltalake(followed.table, wider, mode="append", schema_mode="merge")
    assert [sorted(row) for row in followed.receive()] == [["bookmark", "country", "id", "item", "topic"]]
    assert [change.key for change in journal.apply(followed.definitions())] == ["columns"]
    assert journal.apply(followed.definitions()) == []
    write_deltalake(followed.table, wider, mode="append")
    followed.append(11, 1, schema_mode="merge")
    assert [(row["id"], row["price"]) for row in followed.receive()] == [(10, 7), (11, None)]


def test_what_the_table_has_still_enters_first_where_a_column_comes_before_that(followed: Followed) -> None:
    """R142, R143: a type that is set aside at its first files neither forgets them nor goes on without a word."""
    followed.keys |= {"from": "beginning", "columns": "id BIGINT"}
    journal = followed.create()
    shutil.rmtree(followed.table)
    followed.append(7, 1)
    assert followed.ids_before("TABLE_REPLACED") == []
    followed.keys["columns"] += ", item STRING"
    assert [change.key for change in journal.apply(followed.definitions())] == ["columns"]
    assert followed.ids_before("TABLE_REPLACED") == []


def by_time(followed: Followed, number: int, moment: datetime) -> None:
    """Append a row to a table that is partitioned by its moments, as delta-rs does: without a zone."""
    at = pa.array([moment], pa.timestamp("us", "UTC"))
    write_deltalake(followed.table, rows(number, 1).append_column("at", at), mode="append", partition_by=["at"])


@pytest.mark.parametrize("start", ["now", "beginning", 0])
def test_moments_without_a_zone_are_refused_at_once_and_read_as_texts(followed: Followed, start: str | int) -> None:
    """R150: nobody can tell which moment is meant, so the step that is told has the text of the log itself."""
    followed.table += "_by_time"
    by_time(followed, 0, datetime(2026, 1, 1, tzinfo=UTC))
    followed.keys["from"] = start
    with pytest.raises(JournalError, match=r"TABLE_UNSUPPORTED.*'2026-01-01 00:00:00.*no time zone.*as STRING in `columns`"):
        followed.create()
    followed.keys["columns"] = "id BIGINT, at STRING, item STRING"
    followed.create(filter="at < '2026-01-03'")
    by_time(followed, 1, datetime(2026, 1, 2, 3, 4, 5, 600_000, tzinfo=UTC))
    by_time(followed, 2, datetime(2026, 1, 3, tzinfo=UTC))
    earlier = [] if start == "now" else [(0, "2026-01-01 00:00:00.000000")]
    assert [(row["id"], row["at"]) for row in followed.receive()] == [*earlier, (1, "2026-01-02 03:04:05.600000")]


def test_a_moment_without_a_zone_that_comes_later_has_a_way_on(followed: Followed) -> None:
    """R147, R150: the step of its refusal lets everything enter, and nothing is skipped."""
    followed.table += "_by_time"
    by_time(followed, 0, datetime(2026, 1, 1, tzinfo=UTC))
    # As Spark writes it.
    entry = Path(followed.table, "_delta_log", f"{0:020d}.json")
    written, zoned = '"at":"2026-01-01 00:00:00.000000"', '"at":"2026-01-01T00:00:00.000000Z"'
    assert written in entry.read_text(encoding="utf-8")
    entry.write_text(entry.read_text(encoding="utf-8").replace(written, zoned), encoding="utf-8")
    followed.keys |= {"from": "beginning", "columns": "id BIGINT, at TIMESTAMP"}
    journal = followed.create()
    by_time(followed, 1, datetime(2026, 1, 2, tzinfo=UTC))
    by_time(followed, 2, datetime(2026, 1, 3, tzinfo=UTC))
    found: list[dict[str, Any]] = []
    with pytest.raises(JournalError, match="TABLE_UNSUPPORTED.*as STRING in `columns`"):
        followed.receive(found)
    assert [(row["id"], row["at"]) for row in found] == [(0, datetime(2026, 1, 1, tzinfo=UTC))]
    followed.keys["columns"] = "id BIGINT, at STRING"
    journal.apply(followed.definitions())
    assert [(row["id"], row["at"]) for row in followed.receive()] == [
        (1, "2026-01-02 00:00:00.000000"), (2, "2026-01-03 00:00:00.000000"),
    ]  # fmt: skip


def test_a_column_of_moments_is_taken_in_where_its_values_have_a_zone_only(followed: Followed) -> None:
    """R150: also by an apply that comes later."""
    followed.table += "_by_time"
    by_time(followed, 0, datetime(2026, 1, 1, tzinfo=UTC))
    followed.keys["columns"] = "id BIGINT"
    journal = followed.create()
    followed.keys["columns"] = "id BIGINT, at TIMESTAMP"
    with pytest.raises(JournalError, match="TABLE_UNSUPPORTED.*no time zone"):
        journal.apply(followed.definitions())
    followed.keys["columns"] = "id BIGINT, at STRING"
    journal.apply(followed.definitions())
    by_time(followed, 1, datetime(2026, 1, 2, tzinfo=UTC))
    assert [(row["id"], row["at"]) for row in followed.receive()] == [(1, "2026-01-02 00:00:00.000000")]


def test_what_was_passed_over_before_anything_entered_is_counted_after_a_column_came(followed: Followed) -> None:
    """R146."""
    followed.keys |= {"on_change": "keep", "columns": "id BIGINT"}
    journal = followed.create()
    DeltaTable(followed.table).delete("id = 1")
    assert followed.ids() == []
    assert followed.queue.status().table_changes == 1
    followed.keys["columns"] += ", item STRING"
    journal.apply(followed.definitions())
    assert followed.queue.status().table_changes == 1
    followed.append(10, 1)
    assert [(row["id"], row["item"]) for row in followed.receive()] == [(10, "item 10")]


def test_its_topic_is_read_as_executors_do_before_anybody_entered_it(followed: Followed) -> None:
    """R141: by the same rule as the coordinator's, with the envelope that no file has."""
    followed.keys["on_change"] = "keep"
    journal = followed.create()
    followed.append(10, 2)
    DeltaTable(followed.table).delete("id = 10")
    followed.append(20, 1)
    log = TopicLog(journal.store, journal.journal_id(), "orders", "orders")
    columns = journal.definitions().message_types["orders"].columns
    reader = MessageReader(
        store=journal.store, message_type="orders", schema=stored_schema(columns), topic="orders",
        table=of_table(journal.store, followed.table),
    )  # fmt: skip
    found = []
    for partition in cut(log.pieces(0, log.until), min_partitions=2):
        sent = pickle.loads(pickle.dumps((reader, partition)))
        found += [row for batch in sent[0].read(sent[1]) for row in batch.to_pylist()]
    assert [(row["id"], row["sequence"], row["topic"], row["expires_at"]) for row in found] == [
        (10, 0, "orders", None), (11, 1, "orders", None), (20, 2, "orders", None),
    ]  # fmt: skip
    assert {row["publisher"] for row in found} == {str(DeltaTable(followed.table).metadata().id)}


def test_what_nobody_needs_is_let_go_before_vacuum_takes_it(followed: Followed) -> None:
    """R151: a start does not look for its file, although the queue's filter would have to read it."""
    followed.keys |= {"on_change": "keep", "relocate_after": "0s"}
    journal = followed.create(filter="id > 10")
    followed.append(10, 2)
    followed.append(20, 1)
    assert followed.ids() == [11, 20]
    DeltaTable(followed.table).optimize.compact()
    followed.append(30, 1)
    # The first round of a reign looks for what is over.
    for _ in range(2):
        end_coordinator(journal)
        assert followed.ids() in ([30], [])
    kinds = [(row["kind"], row["message_type"]) for row in journal.view("history").to_pylist()]
    assert ("retired", "orders") in kinds
    end_coordinator(journal)
    DeltaTable(followed.table).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    followed.append(40, 1)
    assert followed.ids() == [40]
    assert followed.queue.status().alarm is None


def test_looks_from_outside_show_its_messages(
    followed: Followed, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also those that nobody has entered yet, and `sparkq verify` finds nothing wrong."""
    journal = followed.create()
    followed.append(10, 2)
    shown = journal.view("messages", queue="SHIP").to_pylist()
    assert [(row["id"], row["bookmark"], row["state"]) for row in shown] == [
        (10, 0, "available"), (11, 1, "available"),
    ]  # fmt: skip
    assert followed.ids() == [10, 11]
    sparkq = Terminal(monkeypatch=monkeypatch, capsys=capsys)
    assert sparkq("verify", followed.path).code == 0
    assert "[JOURNAL" not in sparkq("doctor", followed.path).out
    Path(followed.table, "_delta_log", f"{1:020d}.json").write_text('{"commitInfo":{}}\n', encoding="utf-8")
    assert "TABLE_REPLACED" in sparkq("verify", followed.path).out


@pytest.mark.parametrize(
    ("keys", "error", "what"),
    [
        ({"columns": "id INT"}, ConfigError, "TABLE_COLUMNS_DIFFER.*BIGINT"),
        ({"columns": "id BIGINT, price INT"}, ConfigError, "TABLE_COLUMNS_DIFFER.*'price'"),
        ({"columns": "id BIGINT NOT NULL"}, ConfigError, "TABLE_COLUMNS_DIFFER.*NOT NULL"),
        ({"from": 99}, ConfigError, "BAD_VALUE.*newest"),
        ({"topics": ["a", "b"]}, ConfigError, "BAD_VALUE.*one name"),
        ({"table": "/nowhere/at/all"}, JournalError, "TABLE_UNSUPPORTED.*no Delta table"),
    ],
)
def test_what_cannot_be_followed_is_refused_before_anything_is_made(
    followed: Followed, keys: dict[str, Any], error: type[Exception], what: str
) -> None:
    followed.keys |= keys
    with pytest.raises(error, match=what):
        followed.create()
    assert not Path(followed.path).exists()


@pytest.mark.parametrize("feature", ["catalogManaged", "oneOfTomorrow"])
@pytest.mark.parametrize("is_checkpointed", [False, True])
def test_a_table_whose_readers_have_to_know_what_is_unknown_here_is_refused_by_that_name(
    followed: Followed, feature: str, *, is_checkpointed: bool
) -> None:
    """At its definition, whatever delta-rs says of it: for a table of a catalog that reads like damage."""
    log = Path(followed.table, "_delta_log")
    versions = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [feature], "writerFeatures": [feature]}
    if is_checkpointed:
        DeltaTable(followed.table).create_checkpoint()
        checkpoint = log / f"{0:020d}.checkpoint.parquet"
        actions = pq.read_table(checkpoint).to_pylist()
        changed = [{**each, "protocol": each["protocol"] and versions} for each in actions]
        kinds = pa.schema([
            (name, pa.array([versions]).type if name == "protocol" else kind)
            for name, kind in zip(pq.read_schema(checkpoint).names, pq.read_schema(checkpoint).types, strict=True)
        ])  # fmt: skip
        pq.write_table(pa.Table.from_pylist(changed, schema=kinds), checkpoint)
        (log / f"{0:020d}.json").unlink()
    else:
        (log / f"{1:020d}.json").write_text(f"{json.dumps({'protocol': versions})}\n", encoding="utf-8")
    with pytest.raises(JournalError, match=f"TABLE_UNSUPPORTED.*its readers have to know {feature}"):
        followed.create()


def test_a_table_whose_log_cannot_be_made_out_is_no_damage_of_the_journal(followed: Followed) -> None:
    Path(followed.table, "_delta_log", f"{0:020d}.json").write_text("[", encoding="utf-8")
    with pytest.raises(JournalError, match="TABLE_UNSUPPORTED.*its log cannot be opened"):
        followed.create()
    assert not Path(followed.path).exists()


def test_a_directory_is_that_of_whoever_applies_wherever_the_coordinator_works(
    followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Path(followed.table).parent
    monkeypatch.chdir(home)
    definitions = followed.definitions()
    relative = {**definitions, "message_types": {"orders": {"table": "./orders", "from": "beginning"}}}
    # A coordinator is started, and makes the type.
    journal = followed.journal = Journal.create(followed.path)
    journal.apply(relative)
    assert journal.definitions().message_types["orders"].table == followed.table
    monkeypatch.chdir("/")
    assert followed.ids() == [0, 1, 2]
