"""What is asked of delta-rs and of stores beside commits: checkpoints, options, times, and entries that others name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from spark_queue.core.definitions import parsing
from spark_queue.errors import ConfigError, JournalError
from spark_queue.journal import delta, message_table
from spark_queue.journal.expressions import check_expressions
from spark_queue.journal.log_entry import parse_entry
from spark_queue.journal.log_listing import versions_after
from spark_queue.journal.store import CONTROL, Store, split_options
from tests.unit.journal.journal_on_disk import Disk


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path / "journal")


def test_checkpoint_that_was_not_written_is_told(disk: Disk) -> None:
    """Entries before a checkpoint are deleted: one that is only believed in would lose the log."""

    class Table:
        def create_checkpoint(self) -> None:
            raise DeltaError("the disk is full")

        def version(self) -> int:
            return 7

    table: Any = Table()
    with pytest.raises(JournalError, match="STORE_FAILED.*the disk is full"):
        delta.checkpoint(disk.store, CONTROL, table, durable=False)


def test_a_log_of_which_arrow_refuses_something_is_damaged(disk: Disk) -> None:
    """No log is known that makes delta-rs 1.6.6 say so."""

    class Table:
        def update_incremental(self) -> None:
            raise ValueError("all columns must have the same length")

        def load_as_version(self, version: int) -> None:
            self.update_incremental()

        def version(self) -> int:
            return 7

    table: Any = Table()
    with pytest.raises(JournalError, match="JOURNAL_DAMAGED.*on from version 7.*the same length"):
        delta.refresh(disk.store, CONTROL, table)


@pytest.mark.parametrize("durable", [True, False])
def test_a_durable_checkpoint_is_on_the_disk_before_what_it_replaces_may_go(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, *, durable: bool
) -> None:
    """DESIGN 4, power loss."""
    synced: list[str] = []
    monkeypatch.setattr("spark_queue.journal.store.force", synced.append)
    delta.checkpoint(disk.store, CONTROL, DeltaTable(disk.store.uri(CONTROL)), durable=durable)
    folder = disk.log_path(CONTROL, 0).parent
    written = [str(path) for path in sorted(folder.glob("*checkpoint*"))]
    assert len(written) == 2
    assert {*written, str(folder)} <= set(synced) if durable else synced == []


def test_checkpoint_that_was_written_while_the_journal_was_away_is_taken_away_again(disk: Disk) -> None:
    """Alone in a folder made anew it would pass for the table."""

    class Table:
        def version(self) -> int:
            return int(real.version())

        def create_checkpoint(self) -> None:
            disk.be_away_during(real.create_checkpoint, CONTROL)

    table: Any = Table()
    real = DeltaTable(disk.store.uri(CONTROL))
    with pytest.raises(JournalError, match="STORE_FAILED.*The log disappeared"):
        delta.checkpoint(disk.store, CONTROL, table, durable=False)
    assert delta.open_table(disk.store, CONTROL) is None


def test_no_table_is_made_below_a_journal_that_is_away(disk: Disk) -> None:
    """delta-rs would make the journal's directory with it."""
    place = Path(disk.store.path)
    place.rename(place.with_name("away"))
    with pytest.raises(JournalError, match="STORE_FAILED.*creating messages/new.*control log is not there"):
        message_table.create(disk.store, disk.journal_id, "new", "id BIGINT", durable=False)
    assert not place.exists()


def test_compacted_log_files_of_others_are_no_entries(disk: Disk) -> None:
    folder = disk.log_path(CONTROL, 0).parent
    known = versions_after(disk.store, CONTROL, -1)
    for name in ("00000000000000000000.00000000000000000007.compacted.json", "7.json", "_staged.json"):
        (folder / name).write_text("{}")
    assert versions_after(disk.store, CONTROL, -1) == known


def test_commit_info_may_stand_anywhere_in_an_entry() -> None:
    entry = parse_entry(3, b'{"add":{"path":"a"}}\n{"commitInfo":{"sparkqueue":{"v":1,"token":"t"}}}\n')
    assert (entry.token, [add["path"] for add in entry.adds]) == ("t", ["a"])


def test_asking_a_store_for_its_time_leaves_nothing_behind(disk: Disk) -> None:
    before = sorted(Path(disk.store.path).iterdir())
    (first, second) = (disk.store.time_ms() for _ in range(2))
    assert first <= second
    assert sorted(Path(disk.store.path).iterdir()) == before


def test_options_go_where_obstore_takes_them() -> None:
    options = {"aws_region": "r", "aws_allow_http": "true", "timeout": "5s", "max_retries": "3", "aws_s3_locking_provider": "x"}
    assert split_options(options) == {"config": {"aws_region": "r"}, "client_options": {"allow_http": "true", "timeout": "5s"}}


@pytest.mark.parametrize("path", ["dbfs:/shop", "hdfs:/shop", "s3:/bucket/shop"])
def test_a_path_that_spark_alone_understands_is_no_directory(path: str) -> None:
    with pytest.raises(ConfigError, match=rf"BAD_VALUE.*s3://bucket/shop.*'\./{path}'"):
        Store(path)
    assert Store(f"./{path}").path == str(Path(path).absolute())


@pytest.mark.parametrize("path", ["default.booked", "main.sales.booked", "`my-cat`.`s`.`t`", "shop.v2", "queues.toml"])
def test_a_name_with_dots_and_no_slash_is_a_table_s_and_no_directory(path: str) -> None:
    with pytest.raises(ConfigError, match=r"BAD_VALUE.*a directory with a slash.*DESCRIBE DETAIL") as refused:
        Store(path)
    assert f"the directory of this name is './{path}'" in str(refused.value)
    assert Store(f"./{path}").path == str(Path(path).absolute())
    for below in (f"tables/{path}", f"/tables/{path}", f"s3://bucket/{path}"):
        assert Store(below).path.endswith(f"/{path}")


def test_a_table_by_its_path_as_spark_writes_it_is_no_directory() -> None:
    with pytest.raises(ConfigError, match=r"BAD_VALUE.*DESCRIBE DETAIL shows\)"):
        Store("delta.`/tables/booked`")


@pytest.mark.parametrize("path", [".", "..", ".shop", "shop", "../shop", "shop."])
def test_paths_without_a_name_of_a_catalog_are_directories(path: str) -> None:
    assert Store(path).path == os.path.abspath(path)  # noqa: PTH100 - links stay as they are.


def test_options_that_are_not_given_are_left_to_the_environment() -> None:
    """To give the client no options, rather than none, keeps it from reading variables such as AWS_ALLOW_HTTP (tried)."""
    assert split_options({"aws_region": "r", "max_retries": "3"}) == {"config": {"aws_region": "r"}}


def test_refused_expression_names_its_key_and_queue() -> None:
    queues = {"Q": {"underlying_topic": "T", "priority": "length("}}
    definitions = parsing.parse({"message_types": {"json": {"topics": ["T"]}}, "queues": queues})
    with pytest.raises(ConfigError, match=r"EXPRESSION_INVALID.*priority of \[queues\.Q\]"):
        check_expressions(definitions)


def test_a_table_that_may_not_be_looked_at_is_not_taken_for_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The words are delta-rs's; root, who may run the tests, is never refused."""

    def refuse(*_: Any, **__: Any) -> None:
        text = (
            'Local path "/j/control" does not exist or you don\'t have access!\nError: Os { code: 13, kind: PermissionDenied, … }'
        )
        raise TableNotFoundError(text)

    monkeypatch.setattr(delta, "DeltaTable", refuse)
    with pytest.raises(JournalError, match=r"STORE_FAILED.*opening control: Permission denied"):
        delta.open_table(Store(str(tmp_path)), "control")
