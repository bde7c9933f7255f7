"""The control log on disk: what it stores, and what it says when it is not what it should be (DESIGN 3.4, 4)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from spark_queue.core.records import Kind
from spark_queue.errors import CoordinatorError, JournalError
from spark_queue.journal import entry_writing, reader, record_blocks
from spark_queue.journal.control_log import DeltaControlLog
from spark_queue.journal.entry_parts import Mark, NewFile
from spark_queue.journal.log_entry import LogEntry
from spark_queue.journal.record_blocks import RecordBlock
from spark_queue.journal.record_table import CONTROL_SCHEMA
from spark_queue.journal.store import CONTROL, Store
from tests.records import record_of
from tests.unit.journal.journal_on_disk import Disk, checkpoint, claim, left


def data_file(disk: Disk, record: int) -> Path:
    (found,) = (Path(disk.store.path) / CONTROL).glob(f"{record:020d}-*.parquet")
    return found


def flushed(disk: Disk) -> int:
    """Let a reign begin and end, and its record stand in a data file; returns the number of the next record."""
    control = DeltaControlLog(disk.store)
    number = claim(control)
    control.flush(epoch=1, at_ms=0)
    return number


def test_append_is_one_entry_that_holds_the_records(disk: Disk) -> None:
    """PROTOCOL 5: one put for a commit, with the columns of the table, times in milliseconds and NULLs left out."""
    control = DeltaControlLog(disk.store)
    number = claim(control)
    files = sorted((Path(disk.store.path) / CONTROL).glob("*.parquet"))
    control.append([left(number), left(number + 1)], epoch=1)
    info, *actions = [json.loads(line) for line in disk.log_path(CONTROL, 2).read_text().splitlines()]
    assert info["commitInfo"]["isBlindAppend"] is True
    mark = info["commitInfo"]["sparkqueue"]
    assert (mark["v"], mark["writer"], mark["actions"]) == (1, "coordinator", 1)
    about = {"epoch": 1, "kind": "left", "queue": "WORK", "subscription": "s", "detail": '{"v":1,"incarnation":[1,1]}'}
    assert mark["records"] == [{"record": each, "at": each, **about} for each in (number, number + 1)]
    assert [(action["txn"]["appId"], action["txn"]["version"]) for action in actions] == [("c:coordinator", 1)]
    assert sorted((Path(disk.store.path) / CONTROL).glob("*.parquet")) == files
    assert [record.record for record in DeltaControlLog(disk.store).load().records] == list(range(number + 2))


def test_every_field_of_a_record_comes_out_of_an_entry_as_it_went_in(disk: Disk) -> None:
    control = DeltaControlLog(disk.store)
    full = record_of(
        kind=Kind.GRANTED, record=claim(control), epoch=1, at_ms=5, message_type="order", queue="WORK", subscription="s", lease=3,
        ranges=((0, 4), (6, 8)), reason="\u2028", due_at_ms=9, detail={"incarnation": [1, 2], "request": "q"},
    )  # fmt: skip
    control.append([full], epoch=1)
    assert DeltaControlLog(disk.store).load().records[-1] == full


def test_records_of_many_bytes_get_a_data_file_at_once(disk: Disk) -> None:
    """Whoever opens the log reads each entry since the last checkpoint."""
    control = DeltaControlLog(disk.store)
    number = claim(control)
    ranges = tuple((2 * each, 2 * each + 1) for each in range(20_000))
    control.append([replace(left(number), ranges=ranges)], epoch=1)
    assert data_file(disk, number).stat().st_size > 20_000
    assert disk.log_path(CONTROL, control.version).stat().st_size < 1_000
    control.append([left(number + 1)], epoch=1)
    assert [record.record for record in DeltaControlLog(disk.store).load().records] == list(range(number + 2))


def test_flush_is_one_delta_commit_after_which_a_plain_delta_reader_has_every_record(disk: Disk) -> None:
    """DESIGN 15.9: our commits say so. A stream of the table sees each record once, as rows that are new."""
    control = DeltaControlLog(disk.store)
    number = claim(control)
    control.append([left(number), left(number + 1)], epoch=1)
    control.append([left(number + 2)], epoch=1)
    assert sorted(DeltaTable(disk.store.uri(CONTROL)).to_pyarrow_table().column("record").to_numpy()) == [0, 1]
    control.flush(epoch=1, at_ms=7)
    lines = [json.loads(line) for line in disk.log_path(CONTROL, 4).read_text().splitlines()]
    info = lines[0]["commitInfo"]
    assert info["isBlindAppend"] is True
    assert (info["sparkqueue"]["v"], info["sparkqueue"]["writer"], info["sparkqueue"]["actions"]) == (1, "coordinator", 2)
    assert lines[1]["add"]["dataChange"] is True
    assert {key: lines[2]["txn"][key] for key in ("appId", "version")} == {"appId": "c:coordinator", "version": 1}
    table = DeltaTable(disk.store.uri(CONTROL)).to_pyarrow_table()
    assert sorted(table.column("record").to_numpy()) == list(range(number + 3))
    assert disk.open().records() == DeltaControlLog(disk.store).load().records
    control.flush(epoch=1, at_ms=8)
    assert control.version == 4, "there is nothing to write"


def test_definitions_stand_in_files_of_their_own_in_the_same_commit(disk: Disk) -> None:
    """So that they are found by statistics alone, however long the log."""
    control = DeltaControlLog(disk.store)
    number = claim(control)
    stored = {**disk.definitions.stored, "journal": {"coordinator_idle": "30d"}}
    applied = record_of(kind=Kind.DEFINITIONS_APPLIED, record=number + 1, epoch=1, detail={"definitions": stored, "resets": {}})
    control.append([left(number), applied, left(number + 2)], epoch=1)
    assert control.version == 2
    assert len(list((Path(disk.store.path) / CONTROL).glob("*.parquet"))) == 5
    read: list[str] = []
    original = record_blocks.read_known

    def read_file(store: object, block: RecordBlock) -> object:
        read.append(block.path)
        return original(disk.store, block)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "read_known", read_file)
        assert disk.open().definitions().journal.coordinator_idle_ms == 30 * 86_400_000
    assert {path[:20] for path in read} == {f"{0:020d}", f"{number + 1:020d}"}
    assert [record.record for record in DeltaControlLog(disk.store).load().records] == list(range(number + 3))


def test_append_refuses_records_that_do_not_follow(disk: Disk) -> None:
    control = DeltaControlLog(disk.store)
    number = claim(control)
    with pytest.raises(CoordinatorError, match="INTERNAL"):
        control.append([left(number + 1)], epoch=1)


def test_append_needs_load_first(disk: Disk) -> None:
    with pytest.raises(CoordinatorError, match="INTERNAL"):
        DeltaControlLog(disk.store).append([left(0)], epoch=1)


def test_append_says_store_failed_when_the_commit_fails_and_nobody_else_wrote(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    control = DeltaControlLog(disk.store)
    number = claim(control)

    def fail(*_: object, **__: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(entry_writing, "create_entry", fail)
    with pytest.raises(JournalError, match=r"STORE_FAILED.*No space left"):
        control.append([left(number)], epoch=1)
    assert len(DeltaControlLog(disk.store).load().records) == number


def test_append_whose_reply_is_lost_says_store_failed_and_the_records_are_there(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The outcome is unknown to this reign, which ends; the next one finds the records (DESIGN 3.5)."""
    control = DeltaControlLog(disk.store)
    number = claim(control)
    create_entry = entry_writing.create_entry

    def lose_the_reply(*given: object, **named: object) -> None:
        create_entry(*given, **named)  # type: ignore[arg-type]  # passed on as they came
        raise OSError("connection reset")

    monkeypatch.setattr(entry_writing, "create_entry", lose_the_reply)
    with pytest.raises(JournalError, match="STORE_FAILED"):
        control.append([left(number)], epoch=1)
    assert len(DeltaControlLog(disk.store).load().records) == number + 1


def test_append_whose_reply_is_lost_and_that_is_put_again_by_the_stores_client_stands_and_deposes_nobody(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """object_store puts again where a connection breaks, and hears that the key is there: it is its own."""
    control = DeltaControlLog(disk.store)
    number, create = claim(control), Store.create
    monkeypatch.setattr(Store, "create", lambda store, key, data: create(store, key, data) and create(store, key, data))
    control.append([left(number)], epoch=1)
    control.append([left(number + 1)], epoch=1)
    assert [record.record for record in DeltaControlLog(disk.store).load().records] == list(range(number + 2))
    monkeypatch.undo()
    claim(DeltaControlLog(disk.store), 2)
    with pytest.raises(CoordinatorError, match=r"COORDINATOR_DEPOSED.*was committed by another"):
        control.append([left(number + 2)], epoch=1)


@pytest.mark.parametrize("kept_from", range(1, 9))
def test_paused_reign_is_deposed_however_far_the_log_was_cleaned_meanwhile(disk: Disk, kept_from: int) -> None:
    """A commit on a version that was cleaned away succeeds and is invisible (tried): only the check after it tells (DESIGN 3.4)."""
    old = DeltaControlLog(disk.store)
    number = claim(old)
    new = DeltaControlLog(disk.store)
    record = claim(new, 2)
    for _ in range(6):
        new.append([left(record, 2)], epoch=2)
        record += 1
    checkpoint(new, epoch=2)
    assert new.version == 9
    for version in range(kept_from):
        disk.log_path(CONTROL, version).unlink()
    with pytest.raises(CoordinatorError, match="COORDINATOR_DEPOSED"):
        old.append([left(number)], epoch=1)
    with pytest.raises(CoordinatorError, match="COORDINATOR_DEPOSED"):
        old.check(epoch=1)
    new.check(epoch=2)
    new.append([left(record, 2)], epoch=2)
    assert len(DeltaControlLog(disk.store).load().records) == record + 1


def test_a_journal_that_is_away_is_no_other_coordinators_doing(disk: Disk, tmp_path: Path) -> None:
    control, place = DeltaControlLog(disk.store), Path(disk.store.path)
    claim(control)
    place.rename(tmp_path / "away")
    with pytest.raises(JournalError, match="STORE_FAILED.*control log is not there"):
        control.check(epoch=1)
    (tmp_path / "away").rename(place)
    control.check(epoch=1)


@pytest.mark.parametrize("commits", [0, 1, 2, 5])
def test_a_journal_that_was_made_anew_gets_nothing_of_the_one_before(tmp_path: Path, commits: int) -> None:
    """Whoever tries things out deletes a journal while its coordinator still lives, and makes it again at the same place."""
    old, number = DeltaControlLog(Disk(tmp_path / "journal").store), 0
    for number in range(claim(old), 6):
        old.append([left(number)], epoch=1)
    shutil.rmtree(tmp_path / "journal")
    disk = Disk(tmp_path / "journal")
    new, record = DeltaControlLog(disk.store), 0
    for record in range(claim(new), 3 + commits):
        new.append([left(record)], epoch=1)
    before = sorted(disk.log_path(CONTROL, 0).parent.iterdir())
    with pytest.raises(CoordinatorError, match="COORDINATOR_DEPOSED"):
        old.append([left(number + 1)], epoch=1)
    assert sorted(disk.log_path(CONTROL, 0).parent.iterdir()) == before
    new.append([left(max(record + 1, 3))], epoch=1)


def test_two_paused_reigns_do_not_make_each_other_believe(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The older one's commit lands at the cleaned version of the other's last one, which is then looked for (DESIGN 3.4)."""
    create = entry_writing.create_entry
    oldest, old, new = (DeltaControlLog(disk.store) for _ in range(3))
    number = claim(oldest)
    record = claim(old, 2)
    assert claim(new, 3) == record + 1
    new.append([left(record + 1, 3)], epoch=3)
    checkpoint(new, epoch=3)

    def asleep(*given: Any, **named: Any) -> LogEntry | None:
        for version in range(new.version):
            disk.log_path(CONTROL, version).unlink()
        return create(*given, **named)

    monkeypatch.setattr(entry_writing, "create_entry", asleep)
    with pytest.raises(CoordinatorError, match="COORDINATOR_DEPOSED"):
        oldest.append([left(number)], epoch=1)
    assert disk.log_path(CONTROL, old.version).exists()
    with pytest.raises(CoordinatorError, match="COORDINATOR_DEPOSED"):
        old.check(epoch=2)


def test_reign_that_reads_on_after_a_newer_claim_is_refused(disk: Disk) -> None:
    """A swap alone does not fence: whoever refreshes stands on the newer claim (tried)."""
    control = DeltaControlLog(disk.store)
    claim(control)
    record = claim(DeltaControlLog(disk.store), 2)
    assert len(control.load().records) == record
    with pytest.raises(CoordinatorError, match="COORDINATOR_DEPOSED"):
        control.append([left(record)], epoch=1)
    with pytest.raises(CoordinatorError, match="COORDINATOR_DEPOSED"):
        control.check(epoch=1)
    assert len(DeltaControlLog(disk.store).load().records) == record


def test_a_reign_that_was_claimed_right_after_a_commit_has_it(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was committed is told, and nothing after it."""
    control = DeltaControlLog(disk.store)
    number = claim(control)
    create_entry = entry_writing.create_entry

    def swap_and_be_overtaken(*given: object, **named: object) -> LogEntry | None:
        created = create_entry(*given, **named)  # type: ignore[arg-type]  # passed on as they came
        monkeypatch.setattr(entry_writing, "create_entry", create_entry)
        claim(DeltaControlLog(disk.store), 2)
        return created

    monkeypatch.setattr(entry_writing, "create_entry", swap_and_be_overtaken)
    control.append([left(number)], epoch=1)
    assert [record.record for record in DeltaControlLog(disk.store).load().records][-2:] == [number, number + 1]
    with pytest.raises(CoordinatorError, match="COORDINATOR_DEPOSED"):
        control.check(epoch=1)
    with pytest.raises(CoordinatorError, match="COORDINATOR_DEPOSED"):
        control.append([left(number + 1)], epoch=1)


def commit_unasked(disk: Disk, files: Sequence[NewFile]) -> None:
    """Commit files at the head of the control log, whatever they hold."""
    version = int(DeltaTable(disk.store.uri(CONTROL)).version()) + 1
    assert entry_writing.create_entry(disk.store, CONTROL, version, files, mark=Mark(writer="x"), epoch=None, at_ms=0)


def test_load_names_a_missing_record(disk: Disk) -> None:
    control = DeltaControlLog(disk.store)
    number = claim(control)
    commit_unasked(disk, record_blocks.stage_records(disk.store, [left(number + 1)]))
    with pytest.raises(JournalError, match=rf"JOURNAL_DAMAGED.*record {number} is missing"):
        DeltaControlLog(disk.store).load()


def test_load_names_an_epoch_that_goes_back(disk: Disk) -> None:
    control = DeltaControlLog(disk.store)
    number = claim(control, 3)
    commit_unasked(disk, record_blocks.stage_records(disk.store, [left(number, 2)]))
    with pytest.raises(JournalError, match=rf"JOURNAL_DAMAGED.*record {number} has epoch 2 after 3"):
        DeltaControlLog(disk.store).load()


@pytest.mark.parametrize("damage", [b"", b"PAR1 no parquet at all PAR1"])
def test_load_names_a_record_file_that_cannot_be_read(disk: Disk, damage: bytes) -> None:
    number = flushed(disk)
    data_file(disk, number - 1).write_bytes(damage)
    with pytest.raises(JournalError, match=rf"JOURNAL_DAMAGED.*control/{number - 1:020d}-.*cannot be read"):
        DeltaControlLog(disk.store).load()


def test_load_names_a_record_file_that_is_missing(disk: Disk) -> None:
    number = flushed(disk)
    data_file(disk, number - 1).unlink()
    with pytest.raises(JournalError, match=r"JOURNAL_DAMAGED.*is missing"):
        DeltaControlLog(disk.store).load()


def test_load_refuses_details_of_a_newer_version(disk: Disk) -> None:
    number = flushed(disk)
    file = data_file(disk, number - 1)
    table = pq.read_table(file)
    newer = table.set_column(table.schema.get_field_index("detail"), CONTROL_SCHEMA.field("detail"), pa.array(['{"v":2}']))
    pq.write_table(newer, file)
    with pytest.raises(JournalError, match=rf"PROTOCOL_NEWER.*record {number - 1} of kind 'epoch_claimed'"):
        DeltaControlLog(disk.store).load()


def test_load_after_a_checkpoint_gives_the_same_records(disk: Disk) -> None:
    control = DeltaControlLog(disk.store)
    number = claim(control)
    control.append([left(number)], epoch=1)
    checkpoint(control)
    control.append([left(number + 1)], epoch=1)
    control.check(epoch=1)
    assert [record.record for record in DeltaControlLog(disk.store).load().records] == list(range(number + 2))


def test_durable_commit_reaches_the_disk_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN 4, power loss: log entry and its directory before success; a data file and its directory before the entry."""
    disk = Disk(tmp_path / "journal", journal={"durability": "fsync"})
    control = DeltaControlLog(disk.store)
    number = claim(control)
    synced: list[str] = []
    monkeypatch.setattr("spark_queue.journal.store.force", synced.append)
    control.append([left(number)], epoch=1)
    root = f"{disk.store.path}/{CONTROL}"
    assert synced == [str(disk.log_path(CONTROL, control.version)), f"{root}/_delta_log"]
    synced.clear()
    control.flush(epoch=1, at_ms=0)
    entry = str(disk.log_path(CONTROL, control.version))
    assert synced == [str(data_file(disk, number - 1)), root, entry, f"{root}/_delta_log"]


def test_commit_of_default_durability_syncs_nothing(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    control = DeltaControlLog(disk.store)
    number = claim(control)
    monkeypatch.setattr("spark_queue.journal.store.force", lambda path: pytest.fail(f"synced {path}"))
    control.append([left(number)], epoch=1)


def test_every_claim_probes_the_store(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN 4: `create` and every election."""
    number = claim(DeltaControlLog(disk.store))

    def overwrite(store: Store, key: str, data: bytes) -> bool:
        store.write(key, data)
        return True

    monkeypatch.setattr(Store, "create", overwrite)
    with pytest.raises(JournalError, match="STORE_UNSAFE"):
        claim(DeltaControlLog(disk.store), 2)
    assert len(DeltaControlLog(disk.store).load().records) == number


def test_file_of_a_stranger_in_the_control_log_is_named(disk: Disk) -> None:
    (file,) = record_blocks.stage_records(disk.store, [left(2)])
    stranger = NewFile(path=file.path, size_bytes=file.size_bytes, modified_ms=0, stats={"numRecords": 1})
    commit_unasked(disk, [stranger])
    with pytest.raises(JournalError, match=r"JOURNAL_DAMAGED.*has no statistics"):
        DeltaControlLog(disk.store).load()


def test_nothing_is_committed_after_a_commit_whose_outcome_is_unknown(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN 3.5: the reply was lost, so whatever the log holds now, this reign is over."""
    control = DeltaControlLog(disk.store)
    number = claim(control)

    def lose(*_arguments: object, **_options: object) -> bool:
        raise OSError("the connection was cut")

    with monkeypatch.context() as patch:
        patch.setattr(entry_writing, "create_entry", lose)
        with pytest.raises(JournalError, match="STORE_FAILED"):
            control.append([left(number)], epoch=1)
    with pytest.raises(CoordinatorError, match="COORDINATOR_DEPOSED"):
        control.append([left(number)], epoch=1)
    with pytest.raises(CoordinatorError, match="COORDINATOR_DEPOSED"):
        control.check(epoch=1)
