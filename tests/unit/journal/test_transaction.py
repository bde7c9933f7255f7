"""How names and epochs are drawn: a number goes to one process only, whatever others commit meanwhile (DESIGN 3.4, 15.4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import pytest
from deltalake import DeltaTable

from spark_queue.errors import JournalError
from spark_queue.journal import delta, transaction
from spark_queue.journal.delta_head import DeltaHead
from spark_queue.journal.store import messages_key
from spark_queue.journal.upkeep import clean
from tests.unit.journal.journal_on_disk import Disk

ORDER = messages_key("order")


def draw(disk: Disk, version: Callable[[int], int | None]) -> int:
    head = DeltaHead(disk.store, ORDER, DeltaTable(disk.store.messages_uri("order")))
    return transaction.commit_transaction(disk.store, ORDER, head, name="n:x", version=version, writer="w", at_ms=1, durable=False)


def after_a_rival(disk: Disk, races: int) -> Callable[[int], int]:
    """Let another process draw just before the own commit, some times."""
    left = [races]

    def version(found: int) -> int:
        if left[0]:
            left[0] -= 1
            draw(disk, lambda newest: newest + 1)
        return found + 1

    return version


def test_two_that_want_the_same_number_at_once_get_different_ones(disk: Disk) -> None:
    assert draw(disk, lambda found: found + 1) == 1
    assert draw(disk, after_a_rival(disk, 1)) == 3


def test_a_number_that_was_drawn_where_nobody_looks_is_drawn_anew(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """R98: another has drawn it meanwhile, and both would go on."""
    put = DeltaHead.put

    def sleep(*given: Any, **named: Any) -> bool:
        monkeypatch.setattr(DeltaHead, "put", put)
        draw(disk, lambda found: found + 1)
        table = DeltaTable(disk.store.messages_uri("order"))
        table.create_checkpoint()
        clean(disk.store, ORDER, below=int(table.version()), before_ms=2**60)
        disk.log_path(ORDER, int(table.version())).unlink()
        return put(*given, **named)

    monkeypatch.setattr(DeltaHead, "put", sleep)
    assert draw(disk, lambda found: found + 1) == 2


def test_nothing_is_committed_where_the_number_is_not_wanted(disk: Disk) -> None:
    draw(disk, lambda _: 7)
    before = DeltaTable(disk.store.messages_uri("order")).version()
    assert draw(disk, lambda _: None) == 7
    assert DeltaTable(disk.store.messages_uri("order")).version() == before


def test_who_always_loses_is_told_so(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction, "_TRANSACTION_ATTEMPTS", 2)
    monkeypatch.setattr(delta, "back_off", lambda attempt: None)
    with pytest.raises(JournalError, match="PUBLISH_CONTENDED"):
        draw(disk, after_a_rival(disk, 2))


def test_failing_store_is_told_as_such(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: Any, **_fields: Any) -> NoReturn:
        raise OSError("the disk is full")

    monkeypatch.setattr("spark_queue.journal.store.put_file", fail)
    with pytest.raises(JournalError, match="STORE_FAILED.*the disk is full"):
        draw(disk, lambda found: found + 1)


def test_a_number_that_is_found_is_on_the_disk_before_it_is_told(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever drew it may have been killed before it was."""
    assert draw(disk, lambda found: found + 1) == 1
    head = DeltaHead(disk.store, ORDER, DeltaTable(disk.store.messages_uri("order")))
    synced: list[str] = []
    monkeypatch.setattr("spark_queue.journal.store.force", synced.append)
    found = transaction.commit_transaction(
        disk.store, ORDER, head, name="n:x", version=lambda _: None, writer="w", at_ms=1, durable=True
    )
    assert (found, synced[0]) == (1, str(disk.log_path(ORDER, head.version)))
