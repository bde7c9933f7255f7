"""The head of a log that a writer keeps: what others commit is read on, and a put behind a head that is gone is no commit."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from deltalake import DeltaTable

from spark_queue.errors import JournalError
from spark_queue.journal.delta_head import DeltaHead
from spark_queue.journal.entry_parts import Mark
from spark_queue.journal.store import messages_key
from spark_queue.journal.upkeep import clean
from tests.unit.journal.journal_on_disk import Disk

ORDER = messages_key("order")


def head_of(disk: Disk) -> DeltaHead:
    return DeltaHead(disk.store, ORDER, DeltaTable(disk.store.messages_uri("order")))


def put(head: DeltaHead, transactions: Mapping[str, int]) -> bool:
    return head.put([], mark=Mark(writer="w"), transactions=transactions, at_ms=1)


def commit(disk: Disk, transactions: Mapping[str, int]) -> None:
    head = head_of(disk)
    assert put(head, transactions)
    assert head.follow_own()


def clean_below_head(disk: Disk) -> None:
    """Leave a checkpoint and the newest entry."""
    table = DeltaTable(disk.store.messages_uri("order"))
    table.create_checkpoint()
    clean(disk.store, ORDER, below=int(table.version()), before_ms=2**60)


def test_commits_of_others_are_read_on_with_their_transactions(disk: Disk) -> None:
    head = head_of(disk)
    assert head.transaction_version("n:x") is None
    for number in (1, 2):
        commit(disk, {"n:x": number})
    assert head.transaction_version("n:x") is None, "it was not looked for"
    assert head.read_on()
    assert (head.version, head.transaction_version("n:x")) == (2, 2)


def test_a_version_that_another_has_taken_is_refused_until_it_is_read(disk: Disk) -> None:
    head = head_of(disk)
    commit(disk, {"n:x": 1})
    assert not put(head, {"n:x": 7})
    assert head.read_on()
    assert put(head, {"n:x": 8})
    assert head.follow_own()
    assert (head.version, head.transaction_version("n:x")) == (2, 8)
    assert DeltaTable(disk.store.messages_uri("order")).transaction_version("n:x") == 8


def test_a_put_behind_a_head_that_was_cleaned_away_is_no_commit(disk: Disk) -> None:
    head = head_of(disk)
    for number in (1, 2, 3):
        commit(disk, {"n:x": number})
    clean_below_head(disk)
    assert put(head, {"n:x": 9}), "its version is free again"
    assert not head.follow_own()
    assert not head.read_on()
    assert head_of(disk).transaction_version("n:x") == 3


def test_an_old_handle_knows_an_id_that_it_is_asked_for_late(disk: Disk) -> None:
    """What it would read for that is cleaned away by then."""
    commit(disk, {"n:early": 5})
    head = head_of(disk)
    for number in (1, 2, 3):
        commit(disk, {"n:x": number})
        assert head.read_on()
    clean_below_head(disk)
    assert head.transaction_version("n:early") == 5


def test_a_table_of_other_columns_is_to_be_opened_anew(disk: Disk) -> None:
    head = head_of(disk)
    disk.open().create_message_table("order", "id BIGINT, item STRING, more STRING")
    assert not head.read_on()


@pytest.mark.parametrize("torn", [b"", b'{"commitInfo":{'])
def test_a_torn_entry_is_to_be_repaired_before_anything_follows_it(disk: Disk, torn: bytes) -> None:
    head = head_of(disk)
    disk.log_path(ORDER, 1).write_bytes(torn)
    assert not head.read_on()


def test_a_log_that_cannot_be_read_gives_no_number(disk: Disk) -> None:
    head = head_of(disk)
    commit(disk, {"n:x": 1})
    head.read_on()
    disk.log_path(ORDER, 0).unlink()
    with pytest.raises(JournalError, match="STORE_FAILED.*File not found"):
        head.transaction_version("n:y")
