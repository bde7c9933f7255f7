"""Power loss in the middle of one commit (DESIGN 4): every state that the disk may come back in, and what becomes of it.

A commit is a data file, which its directory names, and a log entry, which another directory names. A file that its directory
does not name is absent; one that was named before its bytes reached the disk is empty or torn. Which of these states there can
be, and when, follows from the order in which files are forced to the disk.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import pytest

from spark_queue.errors import JournalError
from spark_queue.journal.control_log import DeltaControlLog
from spark_queue.journal.entry_parts import Mark
from spark_queue.journal.folder import of_type
from spark_queue.journal.message_table import create
from spark_queue.journal.message_work import MessageTableWork
from spark_queue.journal.opening import opened
from spark_queue.journal.publisher import open_name, publish
from spark_queue.journal.store import CONTROL, messages_key
from spark_queue.ports import entered
from tests.unit.journal.journal_on_disk import Disk, claim, left, orders

ORDER = messages_key("order")

#: What a file may come back as. A log entry that was cut at the end of a line still reads as JSON.
DATA_STATES = ("absent", "empty", "torn", "whole")
LOG_STATES = ("absent", "empty", "torn", "torn at a line's end", "whole")

#: What becomes of the commit: it is there, it never was (a torn entry is set aside and reported), or reading is refused by name.
THERE, NEVER_WAS, DAMAGED = "there", "never was", "damaged"


def outcome(data: str, log: str) -> str:
    if log != "whole":
        return NEVER_WAS
    return THERE if data == "whole" else DAMAGED


@dataclass
class Commit:
    """One commit of a journal that syncs, which stands before it; `run` makes it."""

    disk: Disk
    folder: Path
    entry: Path
    run: Callable[[], object]

    @property
    def data(self) -> Path:
        """Its data file: the newest."""
        return max(self.folder.glob("*.parquet"), key=lambda path: path.stat().st_mtime_ns)


def control_commit(path: Path) -> Commit:
    disk, control, number = durable_reign(path)
    entry = disk.log_path(CONTROL, control.version + 1)
    return Commit(disk, Path(disk.store.uri(CONTROL)), entry, lambda: control.append([left(number)], epoch=1))


def flush_commit(path: Path) -> Commit:
    disk, control, number = durable_reign(path)
    control.append([left(number)], epoch=1)
    entry = disk.log_path(CONTROL, control.version + 1)
    return Commit(disk, Path(disk.store.uri(CONTROL)), entry, lambda: control.flush(epoch=1, at_ms=0))


def durable_reign(path: Path) -> tuple[Disk, DeltaControlLog, int]:
    disk = Disk(path / "journal", journal={"durability": "fsync"})
    control = DeltaControlLog(disk.store)
    return disk, control, claim(control)


def publisher_commit(path: Path) -> Commit:
    disk = Disk(path / "journal", journal={"durability": "fsync"})
    disk.publish([1])
    return Commit(disk, Path(disk.store.messages_uri("order")), disk.log_path(ORDER, 2), lambda: disk.publish([2]))


def spoil(path: Path, state: str) -> None:
    data = path.read_bytes()
    match state:
        case "absent":
            path.unlink()
        case "empty":
            path.write_bytes(b"")
        case "torn":
            path.write_bytes(data[: len(data) // 2])
        case "torn at a line's end":
            path.write_bytes(data[: data.index(b"\n") + 1])


def is_reported(entry: Path, log: str, told: str) -> bool:
    """Return whether what was set aside is what the power loss left, and was told of; nothing else may be set aside."""
    aside = Path(f"{entry}.torn")
    if log in ("absent", "whole"):
        return not aside.exists() and "torn" not in told
    return aside.exists() and "torn by a power loss" in told


@pytest.mark.parametrize("log", LOG_STATES)
def test_control_commit(tmp_path: Path, log: str, caplog: pytest.LogCaptureFixture) -> None:
    """The entry holds the records: both are there, or neither is."""
    commit = control_commit(tmp_path)
    before = len(commit.disk.open().control.load().records)
    commit.run()
    spoil(commit.entry, log)
    there = before + (log == "whole")
    goes_on_from(commit, there, log, caplog)


@pytest.mark.parametrize(("data", "log"), list(product(DATA_STATES, LOG_STATES)))
def test_flush(tmp_path: Path, data: str, log: str, caplog: pytest.LogCaptureFixture) -> None:
    """A flush that did not come to its end takes nothing away: entries hold the records as before."""
    commit = flush_commit(tmp_path)
    there = len(commit.disk.open().control.load().records)
    commit.run()
    spoil(commit.data, data)
    spoil(commit.entry, log)
    if outcome(data, log) == DAMAGED:
        with pytest.raises(JournalError, match="JOURNAL_DAMAGED"):
            DeltaControlLog(commit.disk.store).load()
        return
    goes_on_from(commit, there, log, caplog)


def goes_on_from(commit: Commit, there: int, log: str, caplog: pytest.LogCaptureFixture) -> None:
    again = DeltaControlLog(commit.disk.store)
    assert [record.record for record in again.load().records] == list(range(there))
    assert is_reported(commit.entry, log, caplog.text)
    # And the next reign goes on from there.
    assert claim(DeltaControlLog(commit.disk.store), 2) == there + 1
    assert len(commit.disk.open().control.load().records) == there + 1


@pytest.mark.parametrize("by", ["coordinator", "publisher"])
@pytest.mark.parametrize(("data", "log"), list(product(DATA_STATES, LOG_STATES)))
def test_publisher_commit(tmp_path: Path, data: str, log: str, by: str, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever comes first repairs the log: the next publisher, or the next coordinator before anything enters."""
    commit = publisher_commit(tmp_path)
    disk = commit.disk
    (before,) = disk.open().messages("order").tail(0)
    commit.run()
    spoil(commit.data, data)
    spoil(commit.entry, log)
    if by == "coordinator":
        disk.open().messages("order").recover(version=before.version, token=before.token)
    disk.publish([3])
    assert is_reported(commit.entry, log, caplog.text)
    entries = list(disk.open().messages("order").tail(before.version))
    files = [entered("order", entry, added, first=0, at_ms=0, since_ms=0) for entry in entries for added in entry.added]
    if outcome(data, log) == DAMAGED:
        # The log is whole and keeps its order; whoever reads the file is told its name.
        code = "MISSING" if data == "absent" else "CORRUPT"
        with (
            pytest.raises(JournalError, match=f"MESSAGE_FILE_{code}.*{files[0].path}"),
            opened(of_type(disk.store, files[0].message_type), files[0].path) as file,
        ):
            list(file.iter_batches())
        return
    assert len(files) == 1 + (outcome(data, log) == THERE)
    assert disk.ids() == ([1, 2, 3] if outcome(data, log) == THERE else [1, 3])


@dataclass(frozen=True)
class Synced:
    """What is forced to the disk, and whether the log entry was there when that began."""

    path: Path
    is_committed: bool


def possible(commit: Commit, synced: list[Synced], *, is_committed: bool) -> Iterator[tuple[str, str]]:
    """Yield the states of data file and log entry that a power loss may leave after these calls."""
    paths = [each.path for each in synced]
    is_data_safe = {commit.data, commit.folder} <= set(paths)
    is_log_safe = {commit.entry, commit.entry.parent} <= set(paths)
    for data, log in product(DATA_STATES, LOG_STATES):
        if (data == "whole" or not is_data_safe) and (log == "whole" or not is_log_safe) and (is_committed or log == "absent"):
            yield data, log


@pytest.mark.parametrize("make", [flush_commit, publisher_commit])
def test_order_of_syncs_leaves_no_damage_and_loses_nothing_that_was_acknowledged(
    make: Callable[[Path], Commit], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data file, its directory, then the log entry, its directory: a power loss in between leaves the old or the new."""
    commit, synced, fsync = make(tmp_path), list[Synced](), os.fsync

    def spy(handle: int) -> None:
        synced.append(Synced(Path(f"/proc/self/fd/{handle}").readlink(), commit.entry.exists()))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", spy)
    commit.run()
    base = commit.entry.with_name(f"{int(commit.entry.stem) - 1:020}.json")
    assert [(each.path, each.is_committed) for each in synced if each.path not in (base, base.parent) or each.is_committed][:4] == [
        (commit.data, False),
        (commit.folder, False),
        (commit.entry, True),
        (commit.entry.parent, True),
    ]
    outcomes = set[str]()
    for count in range(len(synced) + 1):
        # The entry appears before the call that first sees it.
        is_committed = count == len(synced) or synced[count].is_committed
        outcomes = {outcome(*state) for state in possible(commit, synced[:count], is_committed=is_committed)}
        assert DAMAGED not in outcomes
    assert outcomes == {THERE}


def _columns_are_appended(disk: Disk) -> None:
    create(disk.store, disk.journal_id, "order", "id BIGINT, item STRING, price DOUBLE", durable=True)


def _work_begins(disk: Disk) -> None:
    MessageTableWork(disk.store, disk.journal_id, "order", epoch=1, now_ms=0, is_durable=lambda: True)


def _work_commits(disk: Disk) -> None:
    work = MessageTableWork(disk.store, disk.journal_id, "order", epoch=1, now_ms=0, is_durable=lambda: True)
    # What another commits after the work began is built upon, too, and this one dies before it has synced anything.
    publish(replace(disk.plan(), durable=False), disk.journal_id, disk.definitions, orders([2]))
    assert work.commit(Mark(writer="coordinator"), removed=())


@pytest.mark.parametrize(
    ("table", "commit"),
    [
        (ORDER, lambda disk: disk.publish([2])),
        (ORDER, lambda disk: open_name(disk.store, disk.journal_id, ["order"], "p", durable=True)),
        (ORDER, _columns_are_appended),
        (ORDER, _work_begins),
        (ORDER, _work_commits),
        (CONTROL, lambda disk: claim(DeltaControlLog(disk.store), 2)),
    ],
)
def test_entry_that_another_left_is_on_the_disk_before_one_follows_it(
    table: str, commit: Callable[[Disk], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its writer may not have come to it: torn below a whole entry it would be damage, and all after it out of reach."""
    disk = Disk(tmp_path / "journal", journal={"durability": "fsync"})
    disk.publish([1])
    claim(DeltaControlLog(disk.store))
    synced, fsync = list[tuple[Path, bool]](), os.fsync

    def spy(handle: int) -> None:
        path = Path(f"/proc/self/fd/{handle}").readlink()
        is_entry = path.suffix == ".json"
        synced.append((path, is_entry and path.with_name(f"{int(path.stem) + 1:020}.json").exists()))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", spy)
    commit(disk)
    newest = max(disk.log_path(table, 0).parent.glob("*.json"))
    assert (newest.with_name(f"{int(newest.stem) - 1:020}.json"), False) in synced
