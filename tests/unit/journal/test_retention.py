"""Retention and leftovers on disk: first the control log, then the table, a day later the store (DESIGN 4)."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from spark_queue.core import commands, folds
from spark_queue.core.message_files.message_type import KEPT_MS
from spark_queue.core.records import Kind
from spark_queue.core.state.journal_state import JournalState
from spark_queue.errors import JournalError
from spark_queue.journal import message_upkeep
from spark_queue.journal.log_entry import read_entry
from spark_queue.journal.message_upkeep import MessageLimits
from spark_queue.journal.publisher import publish
from spark_queue.journal.staging import stage_file
from spark_queue.journal.store import Store, messages_key
from spark_queue.settings.parsers import Position
from spark_queue.source.topic_log import TopicLog
from spark_queue.verification.state_digest import digest
from spark_queue.views.journal_view import state_at
from spark_queue.views.tables import read_view
from tests.deciding import leased, started
from tests.unit.journal.journal_on_disk import Disk, orders
from tests.unit.journal.reign import NO_MERGING, NOW_MS, SMALL, Reign, bodies, publish_some

ORDER = messages_key("order")
HOUR_MS = 3600 * 1000

LIMITS = MessageLimits(merging=NO_MERGING)


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path / "journal", journal={"retention": "1h"})


def paths(disk: Disk) -> set[str]:
    """Return the message files in the store."""
    return {path.name for path in Path(disk.store.messages_uri("order")).glob("*.parquet")}


def age(disk: Disk, age_ms: int) -> None:
    """Let all message files be of an age."""
    for name in paths(disk):
        written_s = (NOW_MS - age_ms) / 1000
        os.utime(Path(disk.store.messages_uri("order")) / name, (written_s, written_s))


def retired(disk: Disk) -> Reign:
    """Return a reign in which the first two of four files were consumed, and are over their retention."""
    for number in range(4):
        disk.publish([number * 2, number * 2 + 1], topic="ORDERS")
    reign = Reign(disk, epoch=1, limits=LIMITS)
    reign.enter()
    reign.consume(5)
    reign.tick(NOW_MS + 2 * HOUR_MS)
    return reign


def test_files_leave_the_table_after_the_control_log_said_so(disk: Disk) -> None:
    reign = retired(disk)
    (record,) = [record for record in disk.open().records() if record.kind == Kind.RETIRED]
    assert record.ranges == ((0, 4),)
    assert disk.ids() == list(range(8)), "nothing left the table before that record"
    reign.upkeep()
    assert disk.ids() == [4, 5, 6, 7]
    version = int(DeltaTable(disk.store.messages_uri("order")).version())
    entry = read_entry(disk.store, ORDER, version)
    assert entry is not None
    assert (entry.mark["retired"], entry.transactions) == (sorted(entry.mark["retired"]), {"c:coordinator": 1})
    assert '"isBlindAppend":false' in disk.log_path(ORDER, version).read_text().replace(": ", ":"), "it takes files away"
    assert [remove["dataChange"] for remove in entry.removes] == [True, True]
    assert len(paths(disk)) == 4, "who planned to read them reads on"
    disk.publish([8], topic="ORDERS")
    reign.enter()
    reign.upkeep()
    assert reign.segments[-1].first == 8


def test_a_crash_before_the_table_is_changed_is_made_good_by_the_next_reign(disk: Disk) -> None:
    retired(disk)
    second = Reign(disk, epoch=2, limits=LIMITS)
    second.upkeep()
    assert disk.ids() == [4, 5, 6, 7]
    second.enter()
    assert second.state.message_types["order"].kept_from == 4


def test_recovery_needs_no_file_of_a_retired_message(disk: Disk) -> None:
    for number in range(2):
        rows = pa.table({"id": [number * 2, number * 2 + 1], "topic": ["ORDERS", "QUOTES"]})
        publish(disk.plan(None), disk.journal_id, disk.definitions, rows)
    reign = Reign(disk, epoch=1, limits=LIMITS)
    reign.enter()
    reign.consume(2)
    reign.tick(NOW_MS + 2 * HOUR_MS)
    for name in paths(disk):
        (Path(disk.store.messages_uri("order")) / name).unlink()
    again = JournalState(disk.open().traits)
    folds.fold_all(again, disk.open().records())
    assert not again.troubles
    assert digest(again) == digest(reign.state)


def test_a_merged_file_is_retired_whole(disk: Disk) -> None:
    publish_some(disk, 4)
    reign = Reign(disk, epoch=1)
    reign.enter()
    reign.upkeep()
    reign.enter()
    reign.consume(5)
    reign.tick(NOW_MS + 2 * HOUR_MS)
    assert not any(segment.retired for segment in reign.segments), "the sixth message of the queue is in it"
    assert [row["id"] for row in bodies(reign, disk)] == list(range(12))


def test_topic_reads_name_the_first_kept_bookmark_or_begin_there(disk: Disk, caplog: pytest.LogCaptureFixture) -> None:
    reign = retired(disk)
    reign.upkeep()

    def read(start: int, *, fail: bool) -> list[int]:
        log = TopicLog(disk.store, disk.journal_id, "order", "ORDERS", fail_on_data_loss=fail)
        return [int(piece) for piece in log.pieces(start, log.until).column("bookmark").to_pylist()]  # type: ignore[arg-type] # No NULLs.

    with pytest.raises(JournalError, match=r"MESSAGES_RETIRED.*Messages 1 to 3 .*kept after them is 4"):
        read(1, fail=True)
    assert read(1, fail=False) == [4, 6]
    assert "MESSAGES_RETIRED" in caplog.text
    assert read(4, fail=True) == [4, 6]
    log = TopicLog(disk.store, disk.journal_id, "order", "ORDERS")
    assert log.bookmark(Position(kind="earliest")) == 4
    assert TopicLog(disk.store, disk.journal_id, "order", "QUOTES").pieces(0, 8).num_rows == 0


def test_a_topic_log_that_is_open_follows_merged_and_retired_files(disk: Disk) -> None:
    publish_some(disk, 5)
    reign = Reign(disk, epoch=1)
    reign.enter()
    log = TopicLog(disk.store, disk.journal_id, "order", "ORDERS")
    reign.upkeep()
    log.refresh()
    (path,) = {piece["path"] for piece in log.pieces(0, 15).to_pylist()}
    assert [(piece["first_row"], piece["rows"], piece["bookmark"]) for piece in log.pieces(1, 11).to_pylist()] == [
        (1, 2, 1),
        (9, 2, 9),
    ]
    reign.enter()
    assert path == reign.segments[0].path
    reign.consume(100)
    reign.tick(NOW_MS + 2 * HOUR_MS)
    reign.upkeep()
    log.refresh()
    with pytest.raises(JournalError, match="MESSAGES_RETIRED"):
        log.pieces(0, 15)


def test_views_of_the_past_say_that_a_body_is_gone(disk: Disk) -> None:
    reign = retired(disk)
    granted = next(record.record for record in disk.open().records() if record.kind == Kind.GRANTED)
    reign.upkeep()
    past = state_at(disk.open(), as_of=granted)
    with pytest.raises(JournalError, match=r"MESSAGES_RETIRED.*Messages 0 to 3"):
        read_view(past, "messages", "WORK")
    known = read_view(past, "messages", "WORK", columns=["bookmark", "state"])
    assert known.to_pylist() == [{"bookmark": number, "state": "leased" if number < 5 else "available"} for number in range(8)]


def test_views_of_the_past_read_merged_files_where_they_stand_today(disk: Disk) -> None:
    publish_some(disk, 5)
    reign = Reign(disk, epoch=1)
    reign.enter()
    before = len(disk.open().records()) - 1
    reign.upkeep()
    old = {segment.path for segment in reign.segments}
    reign.enter()
    for path in old:
        (Path(disk.store.messages_uri("order")) / path).unlink()
    seen = read_view(state_at(disk.open(), as_of=before), "messages", "WORK", columns=["bookmark", "id"])
    assert seen.column("id").to_pylist() == seen.column("bookmark").to_pylist() != []


def search(reign: Reign, *, later_ms: int = 0) -> None:
    """Let an hour pass, and search the store for files that nothing names."""
    reign.upkeep(NOW_MS + later_ms)
    reign.upkeep(NOW_MS + later_ms + HOUR_MS)


def test_what_nothing_names_is_deleted_after_a_day(disk: Disk) -> None:
    publish_some(disk, 3)
    staged = stage_file(disk.plan(), orders([99]).to_batches(), now_ms=NOW_MS)
    folder = Path(disk.store.messages_uri("order"))
    (folder / "notes.parquet").write_bytes(b"somebody's")
    (folder / "sub").mkdir()
    (folder / "sub" / f"{uuid.uuid4().hex}.parquet").write_bytes(b"somebody's")
    assert staged is not None
    reign = Reign(disk, epoch=1, limits=LIMITS)
    reign.enter()
    named = {segment.path for segment in reign.segments}
    age(disk, KEPT_MS - 2 * HOUR_MS)
    search(reign)
    assert paths(disk) == {*named, staged.path, "notes.parquet"}
    age(disk, KEPT_MS + 1000)
    search(reign, later_ms=HOUR_MS)
    assert paths(disk) == {*named, "notes.parquet"}
    assert len(list((folder / "sub").iterdir())) == 1


@pytest.fixture
def store_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the store's clock be no earlier than the coordinator's."""
    monkeypatch.setattr(Store, "time_ms", lambda _store: 2**50)


@pytest.mark.usefixtures("store_in_time")
def test_replaced_files_stay_a_day_from_then_on(disk: Disk) -> None:
    publish_some(disk, 5)
    limits = MessageLimits(merging=SMALL)
    reign = Reign(disk, epoch=1, limits=limits)
    reign.enter()
    old = {segment.path for segment in reign.segments}
    age(disk, 30 * KEPT_MS)
    search(reign)
    assert old <= paths(disk), "merged in this very round"
    reign.enter()
    search(reign, later_ms=KEPT_MS - 3 * HOUR_MS)
    assert old <= paths(disk)
    search(reign, later_ms=KEPT_MS + HOUR_MS)
    assert not old & paths(disk)
    assert [row["id"] for row in bodies(reign, disk)] == list(range(15))


@pytest.mark.usefixtures("store_in_time")
def test_files_that_an_open_lease_may_name_stay(disk: Disk) -> None:
    publish_some(disk, 5)
    reign = Reign(disk, epoch=1)
    reign.enter()
    planner = started(reign.engine, "WORK", "s", max_backlog=9, now_ms=NOW_MS)
    lease = leased(reign.engine, commands.Next(**planner, call=2, finished=0, limit=9), now_ms=NOW_MS)
    assert lease is not None
    reign.commit()
    old = {segment.path for segment in reign.segments}
    reign.upkeep()
    reign.enter()
    age(disk, 30 * KEPT_MS)
    search(reign, later_ms=2 * KEPT_MS)
    assert old <= paths(disk)
    reign.engine.decide(commands.Next(**planner, call=3, finished=lease.number, limit=0), now_ms=NOW_MS)
    reign.commit()
    search(reign, later_ms=3 * KEPT_MS)
    assert not old & paths(disk)


def test_a_host_whose_clock_is_ahead_deletes_nothing_young(disk: Disk) -> None:
    publish_some(disk, 1)
    staged = stage_file(disk.plan(), orders([99]).to_batches(), now_ms=NOW_MS)
    assert staged is not None
    reign = Reign(disk, epoch=1, limits=LIMITS)
    reign.enter()
    search(reign, later_ms=100 * KEPT_MS)
    assert staged.path in paths(disk)


def test_a_file_that_is_committed_meanwhile_stays(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    publish_some(disk, 1)
    reign = Reign(disk, epoch=1, limits=LIMITS)
    reign.enter()
    find = message_upkeep.unnamed_files

    def late(*given: object) -> object:
        if "order" in given:
            disk.publish([7])
            age(disk, 2 * KEPT_MS)
        return find(*given)  # type: ignore[arg-type] # Passed on.

    monkeypatch.setattr(message_upkeep, "unnamed_files", late)
    search(reign)
    assert disk.ids() == [0, 1, 2, 7]


def test_without_retention_nothing_goes(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "journal")
    publish_some(disk, 3)
    reign = Reign(disk, epoch=1, limits=LIMITS)
    reign.enter()
    reign.consume(100)
    reign.tick(NOW_MS + 1000 * HOUR_MS)
    assert not any(segment.retired for segment in reign.segments)
