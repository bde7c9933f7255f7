"""The table of a message type that is defined anew: other columns as long as it has no file, against publishers and zombies."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from spark_queue.core.definitions import parsing
from spark_queue.errors import ConfigError, CoordinatorError, JournalError
from spark_queue.journal import delta, message_table
from spark_queue.journal.entry_parts import COORDINATOR_TXN
from spark_queue.journal.group_commit import GroupCommit, PendingPublish, PublishCall
from spark_queue.journal.publisher import open_head, publish
from tests.unit.journal.journal_on_disk import DEFINITIONS, Disk

ANEW = "id STRING, note STRING"


def begin_anew(disk: Disk, *, epoch: int = 1, columns: str = ANEW) -> None:
    message_table.create(disk.store, disk.journal_id, "order", columns, durable=False, unused_by=epoch)


def columns_of(disk: Disk) -> list[str]:
    names: list[str] = message_table.arrow_schema(DeltaTable(disk.store.messages_uri("order"))).names
    return names[:2]


def test_an_unused_type_without_files_gets_other_columns(disk: Disk) -> None:
    message_table.check(disk.store, disk.journal_id, "order", ANEW, is_unused=True)
    begin_anew(disk)
    assert columns_of(disk) == ["id", "note"]
    columns = {"order": {**DEFINITIONS["message_types"]["order"], "columns": ANEW}}
    disk.definitions = parsing.parse({**DEFINITIONS, "message_types": columns})
    begin_anew(disk)
    assert DeltaTable(disk.store.messages_uri("order")).version() == 1, "it fits, and this reign has said so"
    publish(disk.plan(), disk.journal_id, disk.definitions, pa.table({"id": ["a"], "note": ["b"]}))
    assert disk.stored().select(["id", "note"]).to_pylist() == [{"id": "a", "note": "b"}]


def test_a_message_that_was_published_keeps_the_columns(disk: Disk) -> None:
    """Also one that no coordinator has seen."""
    disk.publish([1])
    with pytest.raises(ConfigError, match="MESSAGE_TYPE_CHANGED"):
        message_table.check(disk.store, disk.journal_id, "order", ANEW, is_unused=True)
    with pytest.raises(ConfigError, match="MESSAGE_TYPE_CHANGED"):
        begin_anew(disk)
    assert (columns_of(disk), disk.ids()) == (["id", "item"], [1])


def test_a_type_that_is_in_use_keeps_its_columns_also_where_its_table_is_empty(disk: Disk) -> None:
    """Its messages may be retired, and known by records alone."""
    with pytest.raises(ConfigError, match="MESSAGE_TYPE_CHANGED"):
        message_table.check(disk.store, disk.journal_id, "order", ANEW, is_unused=False)
    with pytest.raises(ConfigError, match="MESSAGE_TYPE_CHANGED"):
        message_table.create(disk.store, disk.journal_id, "order", ANEW, durable=False)


def test_a_publish_that_wins_the_race_is_seen(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_columns = delta.replace_columns

    def published_meanwhile(*given: Any, **named: Any) -> bool:
        if not disk.tail_rows():
            disk.publish([1])
        return replace_columns(*given, **named)

    monkeypatch.setattr(delta, "replace_columns", published_meanwhile)
    with pytest.raises(ConfigError, match="MESSAGE_TYPE_CHANGED"):
        begin_anew(disk)
    assert (columns_of(disk), disk.ids()) == (["id", "item"], [1])


def test_a_publish_that_loses_the_race_finds_that_its_files_do_not_fit(disk: Disk) -> None:
    """It was staged, and its writer has kept the head of the log from an earlier publish."""
    group = GroupCommit(disk.store, disk.journal_id, "order", head=open_head(disk.store, disk.journal_id, "order"))
    calls = [PendingPublish(call=call(number), record=1, definitions=disk.definitions, message_type="order") for number in (1, 2)]
    begin_anew(disk)
    group.commit(calls)
    assert [type(each.outcome) for each in calls] == [JournalError, JournalError]
    assert disk.tail_rows() == 0


def test_a_reign_that_is_over_changes_nothing(disk: Disk) -> None:
    begin_anew(disk, epoch=2)
    with pytest.raises(CoordinatorError, match="COORDINATOR_DEPOSED"):
        begin_anew(disk, epoch=1, columns="id DOUBLE")
    table = DeltaTable(disk.store.messages_uri("order"))
    assert (columns_of(disk), table.transaction_version(COORDINATOR_TXN)) == (["id", "note"], 2)


def test_a_newer_reign_is_named_also_where_the_columns_fit(disk: Disk) -> None:
    """Otherwise an older one that wakes up would find nothing newer, and change them."""
    begin_anew(disk, columns="id BIGINT, item STRING", epoch=3)
    with pytest.raises(CoordinatorError, match="COORDINATOR_DEPOSED"):
        begin_anew(disk, epoch=2)
    assert columns_of(disk) == ["id", "item"]


def call(number: int) -> PublishCall:
    return PublishCall(data=[{"id": number}], topic="ORDERS")
