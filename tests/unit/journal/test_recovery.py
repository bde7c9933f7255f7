"""Power loss (DESIGN 4): a torn head is set aside by whoever finds it; anything else is damage."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from spark_queue.errors import JournalError
from spark_queue.journal import delta
from spark_queue.journal.control_log import DeltaControlLog
from spark_queue.journal.repair import open_repaired, repair_head
from spark_queue.journal.store import CONTROL, Store, messages_key
from tests.unit.journal.journal_on_disk import Disk, checkpoint, claim, left

TORN = [b"", b'{"commitInfo":{"timestamp":1', b"\0" * 300]


@pytest.mark.parametrize("content", TORN)
def test_torn_head_of_the_control_log_is_set_aside_and_reported(
    disk: Disk, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    control = DeltaControlLog(disk.store)
    number = claim(control)
    control.append([left(number)], epoch=1)
    head = disk.log_path(CONTROL, control.version)
    head.write_bytes(content)
    assert len(disk.open().control.load().records) == number
    assert Path(f"{head}.torn").read_bytes() == content
    assert "torn by a power loss" in caplog.text
    assert claim(DeltaControlLog(disk.store), 2) == number + 1


@pytest.mark.parametrize("content", TORN)
def test_publisher_repairs_a_torn_head_before_it_writes_over_it(disk: Disk, content: bytes) -> None:
    """A zero-length entry opens silently (tried); publishing past it would bury it for ever."""
    disk.publish([1])
    disk.publish([2])
    disk.log_path(messages_key("order"), 2).write_bytes(content)
    disk.publish([3])
    assert disk.ids() == [1, 3]
    assert disk.tail_rows() == 2


def test_two_torn_entries_are_damage_and_stay_as_they_are(disk: Disk) -> None:
    control = DeltaControlLog(disk.store)
    number = claim(control)
    control.append([left(number)], epoch=1)
    for version in (control.version - 1, control.version):
        disk.log_path(CONTROL, version).write_bytes(b'{"comm')
    with pytest.raises(JournalError, match="JOURNAL_DAMAGED"):
        disk.open()
    assert disk.log_path(CONTROL, control.version).read_bytes() == b'{"comm'


@pytest.mark.parametrize("opened", [lambda disk: disk.open(), lambda disk: disk.open().control.load()], ids=["open", "load"])
def test_two_entries_that_were_cut_at_the_end_of_a_line_are_damage(disk: Disk, opened: Callable[[Disk], object]) -> None:
    """Delta opens such a log without a word (tried), as if both commits had had no actions."""
    control = DeltaControlLog(disk.store)
    number = claim(control)
    control.append([left(number)], epoch=1)
    heads = [disk.log_path(CONTROL, version) for version in (control.version - 1, control.version)]
    cut = [head.read_bytes().splitlines(keepends=True)[0] for head in heads]
    for head, content in zip(heads, cut, strict=True):
        head.write_bytes(content)
    with pytest.raises(JournalError, match=rf"JOURNAL_DAMAGED.*control/_delta_log/{control.version:020d}.json is not whole"):
        opened(disk)
    assert [head.read_bytes() for head in heads] == cut


def test_nobody_publishes_past_two_empty_entries(disk: Disk) -> None:
    """It would bury them: what it answered for could never be read."""
    for number in range(3):
        disk.publish([number])
    for version in (2, 3):
        disk.log_path(messages_key("order"), version).write_bytes(b"")
    with pytest.raises(JournalError, match=rf"JOURNAL_DAMAGED.*messages/order/_delta_log/{3:020d}.json is not whole"):
        disk.publish([3])
    assert not disk.log_path(messages_key("order"), 4).exists()


@pytest.mark.parametrize("content", [b'{"commitInfo":5}', b'{"txn":{"appId":"a","version":%d}}' % 2**70], ids=["info", "txn"])
def test_head_of_the_control_log_that_is_no_commit_is_damage_and_stays(disk: Disk, content: bytes) -> None:
    """Delta opens such a log (tried); no power loss made it, so nothing is set aside."""
    control = DeltaControlLog(disk.store)
    claim(control)
    head = disk.log_path(CONTROL, control.version + 1)
    head.write_bytes(content)
    with pytest.raises(
        JournalError, match=rf"JOURNAL_DAMAGED.*control/_delta_log/{control.version + 1:020d}.json has content that no commit"
    ):
        DeltaControlLog(disk.store).load()
    assert head.read_bytes() == content


def test_torn_entry_in_the_middle_of_the_control_log_is_damage(disk: Disk) -> None:
    control = DeltaControlLog(disk.store)
    number = claim(control)
    control.append([left(number)], epoch=1)
    disk.log_path(CONTROL, control.version - 1).write_bytes(b"")
    with pytest.raises(JournalError, match=r"JOURNAL_DAMAGED.*00000000000000000001\.json is not whole"):
        disk.open().control.load()


@pytest.mark.parametrize("back", [1, 2])
def test_missing_entry_of_the_control_log_is_a_gap_that_is_named(disk: Disk, back: int) -> None:
    """Also the first one: in our words, not in those of delta-rs."""
    control = DeltaControlLog(disk.store)
    number = claim(control)
    control.append([left(number)], epoch=1)
    disk.log_path(CONTROL, control.version - back).unlink()
    missing = control.version - back
    with pytest.raises(JournalError) as refused:
        disk.open()
    said = (
        f"[LOG_GAP] The log of '{disk.store.uri(CONTROL)}' lacks version {missing}: '_delta_log/{missing:020}.json' is gone, though"
    )
    assert str(refused.value).startswith(said)
    assert "ernel" not in str(refused.value)


def test_gap_at_the_head_of_a_log_that_somebody_writes_to_is_none(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry that is written while a log is listed may be left out, and the next one be there, in one listing after the other."""

    def listed(uri: str, *, version: int | None, **options: Any) -> DeltaTable:
        if version is None:
            raise DeltaError("Expected contiguous commit files, but found gap")
        return DeltaTable(uri, version=version, **options)

    monkeypatch.setattr(delta, "DeltaTable", listed)
    number = claim(DeltaControlLog(disk.store))
    assert len(disk.open().control.load().records) == number


def test_gap_while_a_handle_is_brought_to_the_head_is_none(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    def listed(_table: DeltaTable) -> None:
        raise DeltaError("Expected contiguous commit files, but found gap")

    table, control = DeltaTable(disk.store.uri(CONTROL)), DeltaControlLog(disk.store)
    claim(control)
    monkeypatch.setattr(DeltaTable, "update_incremental", listed)
    delta.refresh(disk.store, CONTROL, table)
    assert table.version() == control.version


def test_repairing_twice_changes_nothing_more(disk: Disk) -> None:
    """Two processes may find the same torn entry; the version is never free meanwhile, so no commit is lost."""
    disk.publish([1])
    disk.publish([2])
    head = disk.log_path(messages_key("order"), 2)
    head.write_bytes(b"")
    assert repair_head(disk.store, messages_key("order"))
    repaired = head.read_bytes()
    assert not repair_head(disk.store, messages_key("order"))
    assert head.read_bytes() == repaired


def test_who_finds_a_torn_head_that_another_repairs_meanwhile_opens_the_log(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a power loss all who use a journal come at once."""
    disk.publish([1])
    disk.publish([2])
    disk.log_path(messages_key("order"), 2).write_bytes(b"{")
    open_table = delta.open_table

    def repaired_behind(store: Store, key: str) -> DeltaTable | None:
        try:
            return open_table(store, key)
        except JournalError:
            assert repair_head(store, key)
            raise

    monkeypatch.setattr(delta, "open_table", repaired_behind)
    table = open_repaired(disk.store, messages_key("order"))
    assert table is not None
    assert table.version() == 2


def test_torn_checkpoint_is_set_aside_when_the_log_still_has_everything(disk: Disk) -> None:
    control = DeltaControlLog(disk.store)
    number = claim(control)
    control.append([left(number)], epoch=1)
    checkpoint(control)
    control.append([left(number + 1)], epoch=1)
    (written,) = disk.log_path(CONTROL, 0).parent.glob("*.checkpoint.parquet")
    written.write_bytes(b"")
    assert len(disk.open().control.load().records) == number + 2
    assert Path(f"{written}.torn").exists()


def test_hint_at_a_checkpoint_that_is_not_there_is_forgotten(disk: Disk) -> None:
    """Delta refuses such a log (tried); both are synced, but only after both were written."""
    control = DeltaControlLog(disk.store)
    number = claim(control)
    checkpoint(control, durable=True)
    (written,) = disk.log_path(CONTROL, 0).parent.glob("*.checkpoint.parquet")
    written.unlink()
    assert len(disk.open().control.load().records) == number


@pytest.mark.parametrize("version", [1, 2, 9, 10**15])
def test_a_wrong_hint_at_a_checkpoint_costs_a_listing_only(disk: Disk, version: int) -> None:
    control = DeltaControlLog(disk.store)
    number = claim(control)
    checkpoint(control)
    control.append([left(number)], epoch=1)
    (disk.log_path(CONTROL, 0).parent / "_last_checkpoint").write_text(f'{{"version":{version},"size":5}}')
    assert len(DeltaControlLog(disk.store).load().records) == number + 1


@pytest.mark.parametrize("repaired", [False, True])
def test_a_checkpoint_of_others_hides_no_record_that_entries_alone_hold(disk: Disk, *, repaired: bool) -> None:
    """Whoever runs `create_checkpoint` on the table knows nothing of them."""
    control = DeltaControlLog(disk.store)
    number = claim(control)
    control.flush(epoch=1, at_ms=0)
    for _ in range(3):
        control.append([left(number)], epoch=1)
        number += 1
    if repaired:
        disk.log_path(CONTROL, control.version + 1).write_bytes(b"{")
        assert repair_head(disk.store, CONTROL)
    DeltaTable(disk.store.uri(CONTROL)).create_checkpoint()
    assert [record.record for record in DeltaControlLog(disk.store).load().records] == list(range(number))
    again = DeltaControlLog(disk.store)
    assert claim(again, 2) == number + 1
    checkpoint(again, epoch=2)
    assert [record.record for record in DeltaControlLog(disk.store).load().records] == list(range(number + 1))
    assert DeltaTable(disk.store.uri(CONTROL)).to_pyarrow_table().num_rows == number + 1


def test_checkpoint_and_head_that_were_torn_at_once_are_both_set_aside(disk: Disk) -> None:
    """Checkpoints are written beside commits."""
    control = DeltaControlLog(disk.store)
    number = claim(control)
    checkpoint(control, durable=True)
    control.append([left(number)], epoch=1)
    (written,) = disk.log_path(CONTROL, 0).parent.glob("*.checkpoint.parquet")
    written.write_bytes(b"")
    head = disk.log_path(CONTROL, control.version)
    head.write_bytes(b"{")
    assert len(disk.open().control.load().records) == number
    assert Path(f"{written}.torn").exists()
    assert Path(f"{head}.torn").exists()


def test_torn_checkpoint_needs_the_log_since_the_one_before_it_only(disk: Disk) -> None:
    control = DeltaControlLog(disk.store)
    number = claim(control)
    control.append([left(number)], epoch=1)
    checkpoint(control)
    cleaned = range(control.version)
    control.append([left(number + 1)], epoch=1)
    checkpoint(control)
    control.append([left(number + 2)], epoch=1)
    for version in cleaned:
        disk.log_path(CONTROL, version).unlink()
    _, written = sorted(disk.log_path(CONTROL, 0).parent.glob("*.checkpoint.parquet"))
    written.write_bytes(b"")
    assert len(disk.open().control.load().records) == number + 3
    assert Path(f"{written}.torn").exists()


@pytest.mark.parametrize("missing", [0, 3], ids=["its oldest", "its own"])
def test_torn_checkpoint_without_the_entries_behind_it_is_damage(disk: Disk, missing: int) -> None:
    control = DeltaControlLog(disk.store)
    number = claim(control)
    control.append([left(number)], epoch=1)
    checkpoint(control)
    control.append([left(number + 1)], epoch=1)
    written = disk.log_path(CONTROL, 3).with_suffix(".checkpoint.parquet")
    written.write_bytes(b"")
    disk.log_path(CONTROL, missing).unlink()
    with pytest.raises(JournalError, match="JOURNAL_DAMAGED"):
        disk.open()
    assert written.read_bytes() == b""


def test_torn_checkpoint_of_a_commit_that_was_lost_goes_when_its_version_is_written_again(disk: Disk) -> None:
    control = DeltaControlLog(disk.store)
    number = claim(control)
    control.append([left(number)], epoch=1)
    checkpoint(control)
    written = disk.log_path(CONTROL, 3).with_suffix(".checkpoint.parquet")
    written.write_bytes(b"")
    disk.log_path(CONTROL, 3).unlink()
    # It wrote files of records that entries hold, too.
    assert claim(DeltaControlLog(disk.store), 2) == number + 2
    assert len(disk.open().control.load().records) == number + 2
    assert Path(f"{written}.torn").exists()


def test_whole_checkpoint_stays_where_something_else_is_damaged(disk: Disk) -> None:
    control = DeltaControlLog(disk.store)
    number = claim(control)
    checkpoint(control)
    for _ in range(2):
        control.append([left(number)], epoch=1)
        number += 1
    (written,) = disk.log_path(CONTROL, 0).parent.glob("*.checkpoint.parquet")
    disk.log_path(CONTROL, control.version - 1).write_bytes(b"{torn")
    with pytest.raises(JournalError, match="JOURNAL_DAMAGED"):
        disk.open().control.load()
    assert [path.name for path in written.parent.glob("*checkpoint.parquet*")] == [written.name]


def test_repaired_log_is_read_by_delta(disk: Disk, tmp_path: Path) -> None:
    disk.publish([1])
    disk.publish([2])
    disk.log_path(messages_key("order"), 2).write_bytes(b"")
    repair_head(disk.store, messages_key("order"))
    copy = tmp_path / "copy"
    shutil.copytree(disk.store.messages_uri("order"), copy)
    assert DeltaTable(str(copy)).to_pyarrow_table().column("id").to_pylist() == [1]
