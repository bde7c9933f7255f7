"""`sparkq backup`: a copy of a journal in use is whole, of one moment; one that ends half-way is none, or of an earlier moment."""

from __future__ import annotations

import itertools
import random
import shutil
from collections.abc import Callable
from copy import copy as shallow_copy
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from spark_queue.client import backup
from spark_queue.client.backup import back_up
from spark_queue.core.commands import Apply
from spark_queue.core.records import Record
from spark_queue.errors import JournalError
from spark_queue.journal import upkeep
from spark_queue.journal.log_entry import DEFINITIONS_TXN
from spark_queue.journal.reader import open_reader
from spark_queue.journal.store import CONTROL_LOG, Store
from tests.unit.cli.sparkq import Terminal
from tests.unit.journal.journal_on_disk import DEFINITIONS, Disk
from tests.unit.journal.reign import NOW_MS, Reign, publish_some


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Disk, Reign]:
    """Make a journal with checkpoints, snapshots and merged files, whose old entries are gone."""
    for name, value in {
        "CONTROL_CHECKPOINT_COMMITS": 4, "CONTROL_KEPT_COMMITS": 2, "CONTROL_KEPT_MS": 0, "MESSAGES_CHECKPOINT_COMMITS": 3,
        "SNAPSHOT_RECORDS": 10,
    }.items():  # fmt: skip
        monkeypatch.setattr(upkeep, name, value)
    monkeypatch.setattr(backup, "_COPIERS", 1)
    disk = Disk(tmp_path / "shop")
    reign = Reign(disk, epoch=1)
    for number in range(4):
        _go_on(disk, reign, number)
    # The last upkeep has merged files, too.
    reign.enter()
    return disk, reign


def _go_on(disk: Disk, reign: Reign, number: int) -> None:
    publish_some(disk, 2, first=2 * number)
    reign.enter()
    reign.consume(2)
    reign.upkeep()


def _before_each(monkeypatch: pytest.MonkeyPatch, do: Callable[[Any], None], *names: str) -> None:
    """Let something happen before each use of a store by the backup, which is not busy with that itself."""
    busy = [False]

    def watched(real: Callable[..., Any]) -> Callable[..., Any]:
        def use(store: Store, *args: Any, **options: Any) -> Any:
            if not busy[0]:
                busy[0] = True
                do((store, *args))
                busy[0] = False
            return real(store, *args, **options)

        return use

    for name in names:
        monkeypatch.setattr(Store, name, watched(getattr(Store, name)))


def _records(store: Store) -> list[Record]:
    return list(open_reader(store).records())


@pytest.mark.drawn(2)
@pytest.mark.parametrize("seed", range(6))
def test_a_copy_of_a_journal_in_use_is_whole(
    shop: tuple[Disk, Reign], sparkq: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    (disk, reign), chance, numbers = shop, random.Random(seed), itertools.count(4)

    def work(_: object) -> None:
        if chance.random() < 0.1:
            _go_on(disk, reign, next(numbers))

    with monkeypatch.context() as patched:
        _before_each(patched, work, "copy", "list", "read")
        answer = sparkq("backup", disk.store.path, str(tmp_path / "copy"), "--json")
    assert answer.code == 0, answer.err
    copied = _records(Store(str(tmp_path / "copy")))
    assert copied == _records(disk.store)[: len(copied)]
    assert answer.json["records"] == len(copied)
    assert sparkq("verify", str(tmp_path / "copy"), "--json").json["problems"] == []
    assert (tmp_path / "copy").stat().st_mode & 0o777 == 0o700
    # The copy goes on by itself, also from its records alone.
    shutil.rmtree(tmp_path / "copy" / "snapshots", ignore_errors=True)
    again = shallow_copy(disk)
    again.store = Store(str(tmp_path / "copy"))
    _go_on(again, Reign(again, epoch=9), 900)
    assert sparkq("verify", str(tmp_path / "copy"), "--json").json["problems"] == []


def test_what_ends_half_way_is_no_journal_or_one_of_an_earlier_moment(
    shop: tuple[Disk, Reign], sparkq: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, reign = shop
    # Entries come after the newest checkpoint.
    publish_some(disk, 2, first=100)
    reign.enter()
    reign.consume(2)
    whole, journals, copy = _records(disk.store), 0, disk.store
    for last in itertools.count():
        copy, count = Store(str(tmp_path / f"copy{last}")), itertools.count()

        def end(_: object, count: Any = count, last: int = last) -> None:
            if next(count) == last:
                raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            _before_each(patched, end, "copy", "create")
            try:
                back_up(disk.store, copy)
                break
            except KeyboardInterrupt:
                pass
        try:
            found = _records(copy)
        except JournalError:
            continue
        assert found == whole[: len(found)]
        assert sparkq("verify", copy.path, "--json").json["problems"] == []
        journals += 1
    assert 0 < journals < last
    assert _records(copy) == whole


def test_a_copy_has_the_messages_that_entered_right_before_its_records_were_read(
    shop: tuple[Disk, Reign], sparkq: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (disk, reign), numbers = shop, itertools.count(4)

    def enter(asked: tuple[Store, str]) -> None:
        if asked[1] == CONTROL_LOG:
            _go_on(disk, reign, next(numbers))

    with monkeypatch.context() as patched:
        _before_each(patched, enter, "list")
        back_up(disk.store, Store(str(tmp_path / "copy")))
    assert next(numbers) > 6
    assert sparkq("verify", str(tmp_path / "copy"), "--json").json["problems"] == []


def test_a_copy_has_the_definitions_that_its_message_logs_name(
    shop: tuple[Disk, Reign], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise new ones of the copy may get a number that its logs seem to know, and no publisher would be told of them."""
    (disk, reign), periods = shop, iter(["7s", "8s"])

    def apply(asked: tuple[Store, str]) -> None:
        if asked[1] == "messages/order/_delta_log" and (period := next(periods, None)) is not None:
            queue = {**DEFINITIONS["queues"]["WORK"], "lease_period": period}
            reign.engine.decide(Apply(definitions={**DEFINITIONS, "queues": {"WORK": queue}}), now_ms=NOW_MS)
            reign.commit()

    copy = Store(str(tmp_path / "copy"))
    with monkeypatch.context() as patched:
        _before_each(patched, apply, "list")
        back_up(disk.store, copy)
    assert next(periods, None) is None
    named = DeltaTable(copy.messages_uri("order")).transaction_version(DEFINITIONS_TXN)
    assert named == open_reader(copy).numbered_definitions()[0]


def test_a_file_that_goes_before_it_is_copied_is_told(
    shop: tuple[Disk, Reign], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, reign = shop
    needed = f"messages/order/{reign.segments[-1].path}"

    def lose(asked: tuple[Store, str]) -> None:
        if asked[1] == needed:
            disk.store.delete([needed])

    _before_each(monkeypatch, lose, "copy")
    with pytest.raises(JournalError, match=rf"BACKUP_OVERTAKEN.*{needed}"):
        back_up(disk.store, Store(str(tmp_path / "copy")))


def test_a_file_that_is_gone_before_the_backup_begins_is_told(shop: tuple[Disk, Reign], sparkq: Terminal, tmp_path: Path) -> None:
    """A listing does not have it."""
    disk, reign = shop
    needed = f"messages/order/{reign.segments[-1].path}"
    disk.store.delete([needed])
    answer = sparkq("backup", disk.store.path, str(tmp_path / "copy"))
    assert answer.code == 1
    assert "BACKUP_OVERTAKEN" in answer.err
    assert needed in answer.err


def test_a_backup_needs_an_empty_place_of_its_own(shop: tuple[Disk, Reign], sparkq: Terminal, tmp_path: Path) -> None:
    path = shop[0].store.path
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "mine").touch()
    (tmp_path / "file").touch()
    for destination, code in (
        (tmp_path / "taken", "BACKUP_TARGET_TAKEN"), (tmp_path / "file", "BACKUP_TARGET_TAKEN"), (Path(path) / "in", "BAD_VALUE"),
        (Path(path) / "version" / "in", "BAD_VALUE"), (tmp_path / "file" / "in", "STORE_FAILED"),
    ):  # fmt: skip
        assert code in sparkq("backup", path, str(destination)).err
    assert [each.name for each in (tmp_path / "taken").iterdir()] == ["mine"]
    assert "NOT_A_JOURNAL" in sparkq("backup", str(tmp_path / "nothing"), str(tmp_path / "copy")).err
    assert not (tmp_path / "copy").exists()
