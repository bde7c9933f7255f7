"""One state follows each log: what is new is read, and what is bad breaks nothing else."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from spark_queue import Journal
from spark_queue.core.state import status
from spark_queue.following.follower import JournalFollower, LogReader
from spark_queue.journal import record_blocks
from spark_queue.journal.store import Store
from spark_queue.views import queue_status
from tests.source_tree import ROOT
from tests.unit.dashboard.asking import asker_of
from tests.unit.dashboard.dashboard_world import DashboardWorld

#: Reads what the figures of the first page are made of.
_READING = """
import sys
from spark_queue.following.follower import LogReader
from spark_queue.journal.store import Store
from spark_queue.journal.open import open_journal
store = Store(sys.argv[1])
open_journal(store)
print(len(LogReader(store).open().records), "pandas" in sys.modules)
"""


def depth_of(follower: JournalFollower, queue: str = "BILLING") -> int:
    with follower.look() as look:
        assert look is not None
        return status.queue_status(look.state, queue, now_ms=look.now_ms).queue_depth


def test_a_page_that_cannot_be_drawn_yet_is_loaded_again(tmp_path: Path) -> None:
    world = DashboardWorld(tmp_path)
    world.commit()
    follower = JournalFollower("shop", world.journal.store)
    visitor, again = asker_of([follower], allows_changes=True), '<meta http-equiv="refresh"'
    early = visitor.get("/j/shop/queues/BILLING")
    assert (early.status, "for the first time" in early.text, early.text.count(again)) == (503, True, 1)
    # A form is not sent twice, and what does not exist does not appear.
    sent = visitor.change("/j/shop/queues/BILLING/changes", {"verb": "purge", "of": "letters"})
    assert (sent.status, again in sent.text) == (503, False)
    assert again not in visitor.get("/j/none").text
    follower.refresh()
    assert visitor.get("/j/shop/queues/BILLING").status == 200


def test_new_records_are_folded_and_old_ones_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = DashboardWorld(tmp_path)
    world.publish(10, 1)
    world.commit()
    follower = JournalFollower("shop", world.journal.store)
    follower.refresh()
    read: list[int] = []

    def read_rows(store: Store, files: Any, *, first: int = 0) -> Any:
        rows = record_blocks.read_rows(store, files, first=first)
        read.append(rows.num_rows)
        return rows

    monkeypatch.setattr("spark_queue.following.follower.read_rows", read_rows)
    before = follower.revision
    follower.refresh()
    assert (read, follower.revision) == ([], before)
    world.publish(5, 2)
    world.expire("BILLING", range(3), "broken", 3)
    world.commit()
    follower.refresh()
    assert depth_of(follower) == 12
    # One entered, three messages removed here and dead-lettered there.
    assert sum(read) == 3
    assert follower.revision > before


def test_records_that_come_again_as_files_are_not_read_again(tmp_path: Path) -> None:
    """Entries hold them until a flush; it may bring records of before and of after this reader's look."""
    world = DashboardWorld(tmp_path)
    world.publish(10, 1)
    world.commit()
    log = LogReader(world.journal.store)
    read = [record.record for record in log.open().records]
    for number in range(3):
        world.expire("BILLING", range(3 * number, 3 * number + 3), "broken", 2 + number)
        world.commit()
        if number != 1:
            world._control.flush(epoch=1, at_ms=world.at(9))
        if number:
            rows = log.new_rows()
            assert rows is not None
            read += [record.record for record in record_blocks.to_records_of(world.journal.store, rows)]
    world._control.flush(epoch=1, at_ms=world.at(9))
    assert log.new_rows() is None
    assert read == [record.record for record in world.opened.records()]


def test_what_was_published_counts_although_no_coordinator_runs(tmp_path: Path) -> None:
    world = DashboardWorld(tmp_path)
    world.publish(10, 1)
    world.commit()
    follower = JournalFollower("shop", world.journal.store)
    follower.refresh()
    for total in (14, 18):
        world.journal.publish([{"item": "lamp", "amount": 1}] * 4, topic="ORDERS")
        follower.refresh()
        assert depth_of(follower) == total
    # A coordinator enters them: they are not counted twice.
    world._entrance.admit("order", now_ms=world.at(170))
    world.commit()
    follower.refresh()
    assert depth_of(follower) == 18


def test_a_journal_that_vanishes_is_told_of_and_found_again(tmp_path: Path) -> None:
    world = DashboardWorld(tmp_path)
    world.publish(10, 1)
    world.commit()
    follower = JournalFollower("shop", world.journal.store)
    follower.refresh()
    shutil.move(world.journal.path, tmp_path / "away")
    for _ in range(2):
        follower.refresh()
        assert follower.trouble is not None
    # What was read is still shown.
    assert depth_of(follower) == 10
    shutil.move(tmp_path / "away", world.journal.path)
    follower.refresh()
    assert follower.trouble is None
    assert depth_of(follower) == 10


def test_a_journal_that_was_made_anew_is_read_anew(tmp_path: Path) -> None:
    world = DashboardWorld(tmp_path)
    world.publish(10, 1)
    world.commit()
    follower = JournalFollower("shop", world.journal.store)
    follower.refresh()
    shutil.rmtree(world.journal.path)
    Journal.create(
        world.journal.path, {"message_types": {"json": {"topics": ["T"]}}, "queues": {"OTHER": {"underlying_topic": "T"}}}
    )
    follower.refresh()
    follower.refresh()
    with follower.look() as look:
        assert look is not None
        assert list(look.state.queues) == ["OTHER"]


def test_a_store_that_does_not_answer_is_told_of_while_it_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = DashboardWorld(tmp_path)
    world.publish(10, 1)
    world.commit()
    follower = JournalFollower("shop", world.journal.store)
    follower.refresh()
    told = list[str | None]()

    def silent(_: LogReader) -> None:
        told.append(follower.trouble)
        monkeypatch.setattr("spark_queue.following.follower.SILENT_MS", -1)
        told.append(follower.trouble)
        monkeypatch.undo()

    monkeypatch.setattr(LogReader, "new_rows", silent)
    follower.refresh()
    assert told == [None, "Its store has not answered for 0 s. It is asked again and again."]
    assert (follower.trouble, depth_of(follower)) == (None, 10)


def test_a_path_without_a_journal_has_a_trouble_and_no_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    follower = JournalFollower("nothing", Store(str(tmp_path / "nothing")))
    follower.refresh()
    assert "NOT_A_JOURNAL" in str(follower.trouble)
    with follower.look() as look:
        assert look is None


def test_damage_that_no_error_names_is_told_of_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = DashboardWorld(tmp_path)
    world.commit()

    def broken(_: Store) -> None:
        raise RuntimeError("something odd")

    monkeypatch.setattr("spark_queue.following.follower.open_journal", broken)
    follower = JournalFollower("shop", world.journal.store)
    follower.refresh()
    assert follower.trouble == "It cannot be read: RuntimeError: something odd"


def test_a_message_file_that_is_gone_is_an_alarm_of_its_queue(tmp_path: Path) -> None:
    world = DashboardWorld(tmp_path)
    world.publish(10, 1)
    world.commit()
    follower = JournalFollower("shop", world.journal.store)
    follower.refresh()
    for file in Path(world.journal.path).glob("messages/order/*.parquet"):
        file.unlink()
    for _ in follower._found.state.queues if follower._found else ():
        follower._next_files_ms = 0
        follower.refresh()
    with follower.look() as look:
        assert look is not None
        assert "MESSAGE_FILE_MISSING" in str(queue_status(look, "BILLING").alarm)
        assert queue_status(look, "REFUNDS").alarm is None


def test_reading_a_log_loads_no_pandas_which_would_take_longer_than_the_reading(tmp_path: Path) -> None:
    world = DashboardWorld(tmp_path)
    world.publish(10, 1)
    world.commit()
    done = subprocess.run(
        [sys.executable, "-c", _READING, world.journal.store.path], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout == "4 False\n"
