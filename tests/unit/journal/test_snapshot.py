"""Snapshots: a start from one is a start from the log, only sooner; a bad one costs time only (DESIGN 4)."""

from __future__ import annotations

import importlib.metadata
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from spark_queue.core import folds
from spark_queue.core.log_tail import LogTail
from spark_queue.core.records import Kind, Record
from spark_queue.core.state.journal_state import JournalState
from spark_queue.journal import snapshot, upkeep
from spark_queue.journal.control_log import DeltaControlLog
from spark_queue.journal.reader import list_blocks, open_control
from spark_queue.journal.snapshot import Header
from spark_queue.journal.store import SNAPSHOTS
from spark_queue.verification.state_digest import digest
from tests.records import detail_of, record_of
from tests.unit.journal import control_on_disk
from tests.unit.journal.journal_on_disk import Disk, claim


def filled(disk: Disk, commits: int = 6) -> tuple[DeltaControlLog, int]:
    return control_on_disk.filled(disk, commits, subscribed)


def subscribed(number: int) -> Record:
    detail = {"ack_mode": "auto", "max_backlog": 9, "filter": None}
    return record_of(
        kind=Kind.SUBSCRIBED, record=number, epoch=1, at_ms=number, queue="WORK", subscription=f"s{number}", detail=detail
    )


def take(disk: Disk) -> None:
    snapshot.capture(disk.store, open_control(disk.store).blocks, disk.open().traits)


def snapshots(disk: Disk) -> list[Path]:
    return sorted((Path(disk.store.path) / SNAPSHOTS).glob("*"))


def loaded(disk: Disk) -> LogTail:
    return DeltaControlLog(disk.store).load()


def state_of(disk: Disk, tail: LogTail) -> JournalState:
    state = tail.state or JournalState(disk.open().traits)
    state.traits = disk.open().traits
    folds.fold_all(state, tail.records)
    return state


def check(disk: Disk, *, uses: int | None) -> None:
    """A start gives what the whole log gives, and begins after record `uses`."""
    tail, whole = loaded(disk), disk.open().records()
    assert (tail.state.next_record - 1 if tail.state else None) == uses
    assert list(tail.records) == list(whole[0 if uses is None else uses + 1 :])
    assert (tail.journal_id, tail.next_record, tail.last_at_ms) == (disk.journal_id, len(whole), max(r.at_ms for r in whole))
    claims = [record for record in whole if record.kind == Kind.EPOCH_CLAIMED]
    assert tail.claim is not None
    assert (tail.claim.epoch, detail_of(tail.claim)) == (claims[-1].epoch, detail_of(claims[-1]))
    full = JournalState(disk.open().traits)
    folds.fold_all(full, whole)
    assert digest(state_of(disk, tail)) == digest(full)


def test_start_reads_only_what_came_after_the_snapshot(disk: Disk) -> None:
    """R86, R87, R89: the state is kept beside the log, and used where it fits; the log is replayed from there on."""
    disk.publish([1, 2])
    control, record = filled(disk)
    take(disk)
    check(disk, uses=record - 1)
    control.append([subscribed(record)], epoch=1)
    control.append([subscribed(record + 1)], epoch=1)
    check(disk, uses=record - 1)


def test_reign_goes_on_from_a_snapshot(disk: Disk) -> None:
    _, record = filled(disk)
    take(disk)
    again = DeltaControlLog(disk.store)
    again.load()
    claimed = record_of(kind=Kind.EPOCH_CLAIMED, record=record, epoch=2, at_ms=record, detail={"host": "h"})
    again.append([claimed], epoch=2)
    assert [each.record for each in disk.open().records()] == list(range(record + 1))
    assert again.durable is False


def test_durability_is_known_from_a_snapshot(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "journal", journal={"durability": "fsync"})
    filled(disk)
    take(disk)
    control = DeltaControlLog(disk.store)
    assert control.load().state is not None
    assert control.durable


def test_two_snapshots_are_kept_and_the_older_serves_when_the_newer_is_damaged(disk: Disk) -> None:
    """R87: and the log alone, when neither can be used."""
    control, record = filled(disk)
    for _ in range(4):
        control.append([subscribed(record)], epoch=1)
        record += 1
        take(disk)
    assert [path.name for path in snapshots(disk)] == [f"{number:020d}.snapshot" for number in (record - 2, record - 1)]
    snapshots(disk)[-1].write_bytes(b"")
    check(disk, uses=record - 2)
    snapshots(disk)[0].unlink()
    check(disk, uses=None)


def test_the_first_snapshot_of_each_stretch_stays_for_past_moments(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "STRETCH_RECORDS", 8)
    control, record = filled(disk)
    while record < 30:
        control.append([subscribed(record)], epoch=1)
        record += 1
        take(disk)
    assert [int(path.stem) for path in snapshots(disk)] == [9, 16, 24, 28, 29]
    whole = disk.open().records()
    for until, uses in ((31, 29), (20, 16), (17, 16), (16, 9), (9, None)):
        tail = snapshot.load(disk.store, list_blocks(disk.store), until=min(until, len(whole)))
        assert (tail.state.next_record - 1 if tail.state else None) == uses
        assert list(tail.records) == list(whole[0 if uses is None else uses + 1 : until])
    # In a longer log the stretches are longer, and a few stay whatever its length.
    monkeypatch.setattr(snapshot, "PAST_KEPT", 2)
    control.append([subscribed(record)], epoch=1)
    take(disk)
    assert [int(path.stem) for path in snapshots(disk)] == [16, 29, 30]


def test_those_of_records_beyond_the_end_of_the_log_count_for_nothing(disk: Disk) -> None:
    """They stay behind where an older copy of the log was put back; the own ones are kept as ever."""
    control, record = filled(disk)
    for _ in range(3):
        control.append([subscribed(record)], epoch=1)
        take(disk)
        record += 1
    beyond = [snapshots(disk)[-1].with_name(f"{number:020d}.snapshot") for number in (900, 901)]
    for path in beyond:
        path.write_bytes(b"of another log")
    control.append([subscribed(record)], epoch=1)
    take(disk)
    assert [int(path.stem) for path in snapshots(disk)] == [record - 1, record, 900, 901]


def test_another_version_of_a_library_is_other_software(monkeypatch: pytest.MonkeyPatch) -> None:
    before = snapshot.software.__wrapped__()
    versions = importlib.metadata.version
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.0" if name == "duckdb" else versions(name))
    assert snapshot.software.__wrapped__() != before


def test_a_file_that_moved_or_lies_deeper_is_other_software(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Classes are stored by their module, so a snapshot of before a move would not be found again."""
    (tmp_path / "deep" / "er").mkdir(parents=True)
    monkeypatch.setattr("importlib.resources.files", lambda _: tmp_path)
    told = {snapshot.software.__wrapped__()}
    file = tmp_path / "fold.py"
    for change in (
        lambda: file.write_text("one = 1"),
        lambda: file.rename(tmp_path / "deep" / "fold.py"),
        lambda: (tmp_path / "deep" / "fold.py").rename(tmp_path / "deep" / "er" / "fold.py"),
        lambda: (tmp_path / "deep" / "er" / "fold.py").write_text("one = 2"),
    ):
        change()
        assert snapshot.software.__wrapped__() not in told
        told.add(snapshot.software.__wrapped__())


def test_nothing_new_makes_no_snapshot(disk: Disk) -> None:
    _, record = filled(disk)
    take(disk)
    written = snapshots(disk)[0].stat().st_mtime_ns
    take(disk)
    assert snapshots(disk)[0].stat().st_mtime_ns == written
    check(disk, uses=record - 1)


def test_bytes_damaged_at_random_cost_time_only(disk: Disk, caplog: pytest.LogCaptureFixture) -> None:
    _, record = filled(disk, 3)
    take(disk)
    (path,) = snapshots(disk)
    whole = path.read_bytes()
    rng = random.Random(11)
    for _ in range(60):
        data = bytearray(whole)
        if rng.random() < 0.3:
            del data[rng.randrange(len(data)) :]
        else:
            at = rng.randrange(len(data))
            data[at] ^= 1 << rng.randrange(8)
        path.write_bytes(bytes(data))
        check(disk, uses=None)
    assert "is not used" in caplog.text
    path.write_bytes(whole)
    check(disk, uses=record - 1)


def changed(path: Path, **fields: object) -> None:
    head, _, body = path.read_bytes().partition(b"\n")
    header = msgspec.structs.replace(msgspec.json.decode(head, type=Header), **fields)
    path.write_bytes(msgspec.json.encode(header) + b"\n" + body)


@pytest.mark.parametrize(
    "fields",
    [{"format": 2}, {"journal": "another"}, {"software": "another"}, {"record": 3}, {"last": "another"}, {"checksum": "0"}],
)
def test_snapshot_of_something_else_is_not_used(disk: Disk, fields: dict[str, object]) -> None:
    """R87: another format, journal, software (its code folds otherwise), record or log: the log is read from its beginning."""
    filled(disk)
    take(disk)
    changed(snapshots(disk)[0], **fields)
    check(disk, uses=None)


def test_snapshot_from_beyond_the_end_of_the_log_is_not_used(disk: Disk) -> None:
    """The log was put back to an older copy, and goes on otherwise."""
    control, record = filled(disk)
    control.append([subscribed(record)], epoch=1)
    take(disk)
    disk.log_path("control", control.version).unlink()
    check(disk, uses=None)
    again = DeltaControlLog(disk.store)
    again.load()
    again.append([replace(subscribed(record), subscription="other")], epoch=1)
    check(disk, uses=None)


def of_queue(kind: Kind, number: int) -> Record:
    return record_of(kind=kind, record=number, epoch=1, at_ms=number, queue="WORK", detail={"error": "a bug"})


def test_a_queue_that_is_set_aside_is_missing_in_snapshots_until_it_is_back(disk: Disk) -> None:
    """R122: starts stay short meanwhile, and the queue is folded from the newest snapshot that has it."""
    disk.publish([1, 2])
    control, record = filled(disk)
    take(disk)
    whole, number = record - 1, record
    control.append([of_queue(Kind.SET_ASIDE, number)], epoch=1)
    for _ in range(3):
        number += 1
        control.append([subscribed(number)], epoch=1)
        take(disk)
        check(disk, uses=number)
    control.append([of_queue(Kind.REVIVED, number + 1)], epoch=1)
    check(disk, uses=whole)
    take(disk)
    assert [path.name for path in snapshots(disk)] == [f"{each:020d}.snapshot" for each in (whole, number + 1)]
    check(disk, uses=number + 1)


def test_the_first_snapshots_of_a_journal_may_lack_a_queue(disk: Disk) -> None:
    """R122: two of them are kept, as of whole ones."""
    control, number = filled(disk)
    control.append([of_queue(Kind.SET_ASIDE, number)], epoch=1)
    for each in (1, 2, 3):
        control.append([subscribed(number + each)], epoch=1)
        take(disk)
        check(disk, uses=number + each)
    assert [path.name for path in snapshots(disk)] == [f"{number + each:020d}.partial" for each in (2, 3)]


def test_what_raises_only_as_a_snapshot_is_taken_makes_none(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """No record says so, and none would say that the queue is back."""
    filled(disk)
    fold_all = folds.fold_all

    def fold_and_fail(state: JournalState, records: Any) -> None:
        fold_all(state, records)
        assert state.note_fault("WORK", ZeroDivisionError())

    monkeypatch.setattr(folds, "fold_all", fold_and_fail)
    take(disk)
    assert snapshots(disk) == []


def test_what_raises_as_a_snapshot_is_taken_makes_none_whatever_was_revived_before(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R122: nothing would tell that the queue is back."""
    disk.publish([1, 2])
    control, number = filled(disk)
    control.append([of_queue(Kind.SET_ASIDE, number), of_queue(Kind.REVIVED, number + 1)], epoch=1)
    with monkeypatch.context() as broken:
        broken.setattr(folds, "fold_into", lambda *_: 1 // 0)
        take(disk)
    assert snapshots(disk) == []
    take(disk)
    check(disk, uses=number + 1)


def test_upkeep_takes_a_snapshot_when_folding_would_cost_enough(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "SNAPSHOT_RECORDS", 5)
    journal = disk.open()
    record = claim(journal.control)
    journal.upkeep(epoch=1, state=JournalState(journal.traits), now_ms=0)
    journal._upkeep.finish()
    assert snapshots(disk) == []
    for _ in range(2):
        for number in range(record, record + 5):
            journal.control.append([subscribed(number)], epoch=1)
        record += 5
        journal.upkeep(epoch=1, state=JournalState(journal.traits), now_ms=0)
        journal._upkeep.finish()
        check(disk, uses=record - 1)
    journal.control.append([subscribed(record)], epoch=1)
    journal.upkeep(epoch=1, state=JournalState(journal.traits), now_ms=0)
    journal._upkeep.finish()
    check(disk, uses=record - 1)


def test_state_that_cannot_be_stored_is_told_and_harms_nobody(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(upkeep, "SNAPSHOT_RECORDS", 1)
    monkeypatch.setattr(snapshot, "encode", lambda _: _refuse())
    journal = disk.open()
    claim(journal.control)
    journal.upkeep(epoch=1, state=JournalState(journal.traits), now_ms=0)
    journal._upkeep.finish()
    assert "No snapshot was written" in caplog.text
    check(disk, uses=None)


def _refuse() -> bytes:
    raise TypeError("a spark_queue.core.of_tomorrow.Thing cannot be stored")
