"""Making and opening journals."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema

from spark_queue.core.definitions import parsing
from spark_queue.core.records import Kind
from spark_queue.errors import ConfigError, JournalError
from spark_queue.journal import creation, delta
from spark_queue.journal.creation import create_journal
from spark_queue.journal.open import open_journal
from spark_queue.journal.reader import open_reader
from spark_queue.journal.store import CONTROL, Store, messages_key
from spark_queue.ports import JournalPort
from tests.fake_clock import FakeClock
from tests.records import detail_of, record_of
from tests.unit.journal.journal_on_disk import Disk, claim


def test_created_journal_has_its_tables_and_its_first_records(tmp_path: Path) -> None:
    definitions = parsing.parse({"message_types": {"order": {"columns": "id BIGINT", "topics": ["ORDERS"]}}})
    store = Store(str(tmp_path / "new" / "journal"))
    journal_id = create_journal(store, definitions, clock=FakeClock(5_000))
    journal: JournalPort = open_journal(store)
    created, applied = journal.control.load().records
    assert (created.kind, applied.kind, created.at_ms, created.epoch) == (Kind.JOURNAL_CREATED, Kind.DEFINITIONS_APPLIED, 5_000, 0)
    assert detail_of(created) == {"journal": journal_id, "format": 1}
    for message_type in ("json", "binary", "order"):
        assert DeltaTable(store.messages_uri(message_type)).version() == 0
    assert open_journal(store).definitions().message_types["order"].columns == "id BIGINT"


def test_journal_without_definitions_has_the_built_in_types(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "journal"))
    journal_id = create_journal(store)
    journal = open_journal(store)
    assert journal.journal_id == journal_id
    assert set(journal.definitions().message_types) == {"json", "binary"}


def test_a_directory_that_is_made_for_a_journal_is_its_users_alone(tmp_path: Path) -> None:
    """One that is there already says itself who shares it."""
    path, shared = tmp_path / "above" / "journal", tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o2750)
    for each in (path, shared):
        create_journal(Store(str(each)))
    modes = [stat.S_IMODE(each.stat().st_mode) for each in (path, shared)]
    assert modes == [0o700, 0o2750]
    assert stat.S_IMODE(path.parent.stat().st_mode) == stat.S_IMODE((shared / "control").stat().st_mode) & ~0o2000


@pytest.mark.parametrize("name", ["a%20b", "a%2Fb", "a\\b", "a\nb"])
def test_a_path_that_delta_would_read_otherwise_is_refused(tmp_path: Path, name: str) -> None:
    """delta-rs takes a path for a URL, and finds another directory."""
    with pytest.raises(ConfigError, match="BAD_VALUE.*path"):
        Disk(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["50%", "grün & süß", "#1?", "%zz"])
def test_a_journal_may_have_any_other_name(tmp_path: Path, name: str) -> None:
    beside = Disk(tmp_path / "a b")
    disk = Disk(tmp_path / name)
    disk.publish([1, 2])
    assert (disk.ids(), beside.ids()) == ([1, 2], [])
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted(["a b", name])
    assert claim(open_journal(disk.store).control) == 3


def test_second_creation_is_refused(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "journal")
    with pytest.raises(JournalError, match="JOURNAL_EXISTS"):
        create_journal(disk.store, disk.definitions)
    assert disk.open().journal_id == disk.journal_id


def test_creation_that_was_cut_short_is_finished_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(str(tmp_path / "journal"))
    create_table = delta.create_table

    def die_before_the_control_log(store: Store, key: str, **named: Any) -> bool:
        if key == CONTROL:
            raise KeyboardInterrupt
        return create_table(store, key, **named)

    monkeypatch.setattr(delta, "create_table", die_before_the_control_log)
    with pytest.raises(KeyboardInterrupt):
        create_journal(store)
    with pytest.raises(JournalError, match="NOT_A_JOURNAL"):
        open_journal(store)
    monkeypatch.undo()
    journal_id = create_journal(store)
    assert open_journal(store).journal_id == journal_id
    open_journal(store).create_message_table("json", "value STRING")


def test_two_creations_at_once_have_one_winner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(str(tmp_path / "journal"))
    settle = creation._settle_id
    winner: list[str] = []

    def be_overtaken(store: Store) -> str:
        found = settle(store)
        monkeypatch.setattr(creation, "_settle_id", settle)
        winner.append(create_journal(store))
        return found

    monkeypatch.setattr(creation, "_settle_id", be_overtaken)
    with pytest.raises(JournalError, match="JOURNAL_EXISTS"):
        create_journal(store)
    assert open_journal(store).journal_id == winner[0]
    assert len(open_journal(store).control.load().records) == 2


def test_remains_of_another_journal_are_not_taken_over(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "journal")
    journal = disk.open()
    DeltaTable(disk.store.messages_uri("json")).alter.set_table_description("used")
    for file in (Path(disk.store.path) / CONTROL).rglob("*.json"):
        file.unlink()
    assert journal.journal_id == disk.journal_id
    with pytest.raises(JournalError, match="JOURNAL_EXISTS"):
        create_journal(disk.store)


@pytest.mark.parametrize(
    ("columns", "code"), [("bookmark BIGINT", "RESERVED_COLUMN"), ("id WHATEVER", "BAD_VALUE"), ("id INT, ID INT", "BAD_VALUE")]
)
def test_creation_with_bad_columns_makes_nothing(tmp_path: Path, columns: str, code: str) -> None:
    definitions = parsing.parse({"message_types": {"order": {"columns": columns, "topics": ["O"]}}})
    with pytest.raises(ConfigError, match=code):
        create_journal(Store(str(tmp_path / "journal")), definitions)
    assert not (tmp_path / "journal").exists()


@pytest.mark.parametrize("inside", ["nothing", "a file", "an empty directory"])
def test_place_without_a_journal_is_refused_and_left_as_it_is(tmp_path: Path, inside: str) -> None:
    place = tmp_path / "place"
    if inside == "a file":
        place.write_text("hello")
    elif inside == "an empty directory":
        place.mkdir()
    with pytest.raises(JournalError, match="NOT_A_JOURNAL|STORE_FAILED") as refused:
        open_journal(Store(str(place)))
    assert refused.value.facts["path"] == str(place)
    assert place.exists() == (inside != "nothing")


def test_newer_format_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(str(tmp_path / "journal"))
    monkeypatch.setattr("spark_queue.core.creation.FORMAT", 2)
    create_journal(store)
    monkeypatch.undo()
    with pytest.raises(JournalError, match=r"PROTOCOL_NEWER.*format 2 \(known: 1\)"):
        open_journal(store)


def test_definitions_of_newer_software_are_told_by_whoever_reads_them(tmp_path: Path) -> None:
    """Its journal is not wrong: who looks at it is told to upgrade, as a coordinator is before it claims anything."""
    store = Store(str(tmp_path / "journal"))
    create_journal(store)
    control = open_journal(store).control
    stored = {"queues": {"WORK": {"underlying_topic": "T", "of_tomorrow": 3}}, "message_types": {"json": {"topics": ["T"]}}}
    newer = record_of(
        kind=Kind.DEFINITIONS_APPLIED, record=len(control.load().records), detail={"definitions": stored, "resets": {"WORK": 0}}
    )
    control.append([newer], epoch=0)
    with pytest.raises(JournalError, match=r"PROTOCOL_NEWER.*Unknown key 'of_tomorrow'.*Upgrade"):
        open_reader(store).definitions()
    with pytest.raises(JournalError, match=r"PROTOCOL_NEWER.*Unknown key 'of_tomorrow'.*Upgrade"):
        control.load().fold(open_journal(store).traits)


def test_replaced_journal_is_told_from_the_one_that_was_opened(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "journal")
    journal = disk.open()
    Path(disk.store.path).rename(tmp_path / "old")
    Disk(tmp_path / "journal")
    with pytest.raises(JournalError, match=rf"JOURNAL_MISMATCH.*{disk.journal_id}"):
        journal.definitions()
    with pytest.raises(JournalError, match="JOURNAL_MISMATCH"):
        disk.publish([1])


def test_columns_are_appended_while_old_files_read_null(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "journal")
    disk.publish([1])
    disk.open().create_message_table("order", "id BIGINT, item STRING, note STRING")
    disk.definitions = parsing.parse(
        {"message_types": {"order": {"columns": "id BIGINT, item STRING, note STRING", "topics": ["ORDERS"]}}}
    )
    disk.publish([2])
    assert {row["id"]: row["note"] for row in disk.stored().to_pylist()} == {1: None, 2: None}
    assert [len(entry.added) for entry in disk.open().messages("order").tail(0)] == [1, 0, 1]


def test_publisher_with_older_columns_still_publishes(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "journal")
    disk.open().create_message_table("order", "id BIGINT, item STRING, note STRING")
    assert disk.publish([1]).rows == 1
    assert disk.stored().to_pylist()[0]["note"] is None


def test_other_changes_of_a_table_are_refused(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "journal")
    for columns in ("id INT, item STRING", "id BIGINT, item STRING, n INT NOT NULL"):
        with pytest.raises(ConfigError, match="MESSAGE_TYPE_CHANGED"):
            disk.open().create_message_table("order", columns)
    assert DeltaTable(disk.store.messages_uri("order")).version() == 0


def test_unreadable_delta_feature_is_named(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "journal")
    claim(disk.open().control)
    entry = disk.log_path(CONTROL, 0)
    features = '"readerFeatures":["fromTheFuture"],"writerFeatures":["fromTheFuture"]'
    newer = f'{{"protocol":{{"minReaderVersion":3,"minWriterVersion":7,{features}}}}}'
    lines = [newer if '"protocol"' in line and "commitInfo" not in line else line for line in entry.read_text().splitlines()]
    entry.write_text("\n".join(lines) + "\n")
    with pytest.raises(JournalError, match=r"PROTOCOL_NEWER|JOURNAL_DAMAGED.*[fF]eature"):
        disk.open()


def test_messages_of_an_unknown_type_have_no_log(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "journal")
    assert list(disk.open().messages("nowhere").tail(-1)) == []
    assert not (Path(disk.store.path) / messages_key("nowhere")).exists()


def test_durable_creation_syncs_its_new_directories_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr("spark_queue.journal.store.force", synced.append)
    disk = Disk(tmp_path / "journal", journal={"durability": "fsync"})
    root = disk.store.path
    assert {
        f"{root}/control/_delta_log",
        f"{root}/control",
        f"{root}/messages/order",
        f"{root}/messages",
        root,
        str(tmp_path),
    } <= set(synced)
    assert str(tmp_path.parent) not in synced
    synced.clear()
    journal = disk.open()
    journal.control.load()
    journal.create_message_table("order", "id BIGINT, item STRING, note STRING")
    log = f"{root}/messages/order/_delta_log"
    entries = [str(disk.log_path("messages/order", version)) for version in (0, 1)]
    assert [path for path in synced if path.startswith(log)] == [entries[0], log, entries[1], log]
    synced.clear()
    journal.create_message_table("late", "id BIGINT")
    assert synced[:2] == [str(disk.log_path("messages/late", 0)), f"{root}/messages/late/_delta_log"]
    assert {f"{root}/messages/late", f"{root}/messages"} <= set(synced)


def test_message_type_of_default_durability_syncs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Disk(tmp_path / "journal").open()
    journal.control.load()
    monkeypatch.setattr("spark_queue.journal.store.force", lambda path: pytest.fail(f"synced {path}"))
    journal.create_message_table("late", "id BIGINT")


def test_appending_columns_is_decided_again_after_a_lost_race(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "journal")
    stale = DeltaTable(disk.store.messages_uri("order"))
    disk.publish([1])
    note = Schema.from_arrow(pa.schema([pa.field("note", pa.string())]))
    assert not delta.add_columns(disk.store, messages_key("order"), stale, note, version=1, writer="coordinator")
    disk.open().create_message_table("order", "id BIGINT, item STRING, note STRING")
    assert DeltaTable(disk.store.messages_uri("order")).version() == 2
