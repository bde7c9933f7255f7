"""What is forced to the disk before anybody relies on it, where another wrote it and need not have lived to do so (PROTOCOL 6)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from spark_queue.core.records import Kind
from spark_queue.errors import JournalError
from spark_queue.journal.control_log import DeltaControlLog
from spark_queue.journal.entry_parts import Mark, NewFile
from spark_queue.journal.message_table import create
from spark_queue.journal.message_work import MessageTableWork
from spark_queue.journal.publisher import Identity, Published, open_name, publish
from spark_queue.journal.store import CONTROL, messages_key
from tests.records import record_of
from tests.unit.journal.journal_on_disk import DEFINITIONS, Disk, checkpoint, claim, left, orders

ORDER = messages_key("order")


def watch(monkeypatch: pytest.MonkeyPatch, file: Path) -> set[tuple[str, bool]]:
    """Note what is forced to the disk, and whether a file stood there by then."""
    forced = set[tuple[str, bool]]()
    monkeypatch.setattr("spark_queue.journal.store.force", lambda path: forced.add((path, file.exists())))
    return forced


def test_a_repeat_is_confirmed_only_when_what_it_repeats_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R95: whoever committed first may have died before it had synced its entry."""
    disk, identity = Disk(tmp_path / "journal", journal={"durability": "fsync"}), Identity(publisher="p")
    first = replace(disk.plan(), durable=False)
    publish(first, disk.journal_id, disk.definitions, orders([1]), identity=identity, first_sequence=1)
    head = disk.log_path(ORDER, 1)
    synced = watch(monkeypatch, head)
    again = disk.publish([1], identity=identity, first_sequence=1)
    assert again == Published(rows=0, duplicates=1, persisted_sequence=1)
    assert {(str(head), True), (str(head.parent), True)} <= synced


def test_a_table_that_stands_already_is_relied_on_only_when_it_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reign that made it may have ended before it had synced it, and the definitions that name it come next."""
    disk = Disk(tmp_path / "journal")
    create(disk.store, disk.journal_id, "other", "id BIGINT", durable=False)
    entry = disk.log_path(messages_key("other"), 0)
    synced = watch(monkeypatch, entry)
    create(disk.store, disk.journal_id, "other", "id BIGINT", durable=True)
    assert {(str(path), True) for path in (entry, *entry.parents[:5])} <= synced


def test_an_entry_is_on_the_disk_before_a_checkpoint_of_its_version_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Upkeep may see a commit before its own writer has synced it; a checkpoint alone would be a head without a commit."""
    disk = Disk(tmp_path / "journal", journal={"durability": "fsync"})
    control = DeltaControlLog(disk.store)
    control.append([left(claim(control))], epoch=1)
    control.flush(epoch=1, at_ms=0)
    head = disk.log_path(CONTROL, control.version)
    synced = watch(monkeypatch, head.with_suffix(".checkpoint.parquet"))
    checkpoint(control, durable=True)
    assert {(str(head), False), (str(head.parent), False)} <= synced


@pytest.mark.parametrize("durable", [True, False])
def test_a_durable_checkpoint_of_the_control_log_is_on_the_disk_before_what_it_replaces_may_go(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, *, durable: bool
) -> None:
    control, synced = DeltaControlLog(disk.store), list[str]()
    claim(control)
    control.flush(epoch=1, at_ms=0)
    monkeypatch.setattr("spark_queue.journal.store.force", synced.append)
    checkpoint(control, durable=durable)
    folder = disk.log_path(CONTROL, 0).parent
    written = [str(path) for path in sorted(folder.glob("*checkpoint*"))]
    assert len(written) == 2
    assert {*written, str(folder)} <= set(synced) if durable else synced == []


def test_what_a_merge_wrote_is_on_the_disk_before_it_replaces_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where commits had not to survive a power loss when it began: `apply` does not wait for upkeep."""
    disk, durable = Disk(tmp_path / "journal"), list[bool]()
    work = MessageTableWork(disk.store, disk.journal_id, "order", epoch=1, now_ms=0, is_durable=lambda: bool(durable))
    merged = NewFile(path="merged.parquet", size_bytes=1, modified_ms=0, stats={"numRecords": 0}, data_change=False)
    disk.store.write(f"{ORDER}/merged.parquet", b"m")
    entry = disk.log_path(ORDER, 2)
    durable.append(True)
    synced = watch(monkeypatch, entry)
    assert work.commit(Mark(writer="coordinator"), removed=(), added=[merged])
    assert synced >= {(f"{disk.store.uri(ORDER)}/merged.parquet", False), (disk.store.uri(ORDER), False), (str(entry), True)}


def test_a_number_is_on_the_disk_before_it_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PROTOCOL 6: before success; a power loss must not let it be drawn again."""
    disk = Disk(tmp_path / "journal", journal={"durability": "fsync"})
    entry = disk.log_path(ORDER, 1)
    synced = watch(monkeypatch, entry)
    open_name(disk.store, disk.journal_id, ["order"], "p", durable=True)
    assert {(str(entry), True), (str(entry.parent), True)} <= synced


def test_a_publish_whose_last_sync_fails_is_told_as_unknown_and_not_synced_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stands, and may be gone after a power loss; a second sync may succeed without the bytes."""
    disk, tried = Disk(tmp_path / "journal", journal={"durability": "fsync"}), list[str]()
    entry = str(disk.log_path(ORDER, 1))

    def force(path: str) -> None:
        tried.append(path)
        if path == entry:
            raise OSError("Input/output error")

    monkeypatch.setattr("spark_queue.journal.store.force", force)
    with pytest.raises(JournalError, match=r"STORE_FAILED.*Input/output error\. .*It is unknown whether the commit arrived"):
        disk.publish([1])
    assert tried.count(entry) == 1
    assert disk.ids() == [1]


def test_everything_is_on_the_disk_before_the_log_says_that_it_survives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was committed before `durability` became fsync is built upon: torn, it would be damage or be lost."""
    disk = Disk(tmp_path / "journal")
    control = DeltaControlLog(disk.store)
    number = claim(control)
    disk.publish([1])
    create(disk.store, disk.journal_id, "order", "id BIGINT, item STRING, price DOUBLE", durable=False)
    standing = {path for path in (tmp_path / "journal").rglob("*") if path.suffix in (".json", ".parquet") or path.is_dir()}
    synced = watch(monkeypatch, disk.log_path(CONTROL, control.version + 1))
    definitions = {**DEFINITIONS, "journal": {"durability": "fsync"}}
    applied = record_of(
        kind=Kind.DEFINITIONS_APPLIED, record=number, epoch=1, at_ms=number, detail={"definitions": definitions, "resets": {}}
    )
    control.append([applied], epoch=1)
    assert {Path(path) for path, is_committed in synced if not is_committed} >= standing | {tmp_path, tmp_path / "journal"}
    synced.clear()
    control.append([replace(applied, record=number + 1)], epoch=1)
    assert disk.store.uri(ORDER) not in {path for path, _ in synced}, "once is enough"
