"""Files that a followed table has removed: let go, copied into the journal, or lost, before and after VACUUM (R151 to R155)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from spark_queue.client.previews import preview
from spark_queue.core import commands
from spark_queue.core.records import Kind, Moved
from spark_queue.core.state.lifecycle import State
from spark_queue.errors import JournalError
from spark_queue.journal import table_copies
from spark_queue.journal.message_file import MessageFiles
from spark_queue.journal.schema import ENVELOPE
from spark_queue.journal.store import Store
from spark_queue.journal.table_upkeep import RETRY_MS
from spark_queue.source.topic_log import TopicLog
from spark_queue.verification.state_digest import digest
from tests.table_on_disk import DAY_MS, TableWorld


@pytest.fixture
def world(tmp_path: Path) -> TableWorld:
    """Give a table of which two files with five messages have entered, and a queue whose filter has to read them."""
    return entered(TableWorld(tmp_path, filter="id <> 12"))


def entered(made: TableWorld) -> TableWorld:
    """Append two files, and let them enter."""
    made.append(10, 3)
    made.append(20, 2)
    assert made.enter() is None
    return made


def kept(world: TableWorld) -> list[Any]:
    """Return the messages of each copy, by the records."""
    return sorted(file.kept for record in world.records(Kind.MOVED) for file in record.body_as(Moved).files)


def copy_unrecorded(world: TableWorld) -> None:
    """Rewrite all files, and let those that were removed be copied, before anybody records that."""
    world.optimize()
    world.enter()
    world.now_ms += 3 * DAY_MS
    world.journal.upkeep(epoch=world.epoch, state=world.state, now_ms=world.now_ms)
    world.journal._upkeep.finish()


def assert_folds_alike(world: TableWorld) -> None:
    """Look whether the log alone gives the state of the reign, also when it is folded at the next start."""
    now, anew = digest(world.state), world.folded_anew()
    assert anew["queues"] == now["queues"]
    assert anew["message_types"] == now["message_types"]
    world.begin()
    assert not world.state.troubles


def test_needed_messages_are_copied_after_a_third_of_the_retention(world: TableWorld) -> None:
    """R152: they keep bookmark and place, VACUUM takes nothing from them, and nobody looks for the file any more."""
    world.optimize()
    world.enter()
    world.wait(days=2.2)
    assert not kept(world)
    world.wait(days=0.2)
    assert kept(world) == [((0, 2),), ((3, 5),)]
    world.vacuum()
    assert world.ids(world.rows(State.AVAILABLE)) == [10, 11, 20, 21]
    lease = world.take()
    assert lease is not None
    assert list(lease.rows) == [0, 1, 3, 4]
    assert_folds_alike(world)
    assert world.ids(world.rows(State.LEASED)) == [10, 11, 20, 21]


def test_a_copy_is_recorded_also_before_the_first_version_of_a_table_made_anew_is_read(world: TableWorld) -> None:
    """R148, R152: all of its versions are to enter, so none has left a record; its files are those from before."""
    shutil.rmtree(Path(world.table, "_delta_log"))
    world.append(30, 1)
    trouble = world.enter()
    assert trouble is not None
    assert trouble.code == "TABLE_REPLACED"
    world.decide(commands.Follow, message_type="orders", first=0)
    world.wait(ms=1)
    assert kept(world) == [((0, 2),), ((3, 5),)]
    assert (world.known.version, world.known.token) == (-1, "")
    assert_folds_alike(world)
    assert world.enter() is None
    assert world.ids(world.rows(State.AVAILABLE)) == [10, 11, 20, 21, 30]


def test_a_copy_has_the_rows_of_its_file_and_values_of_needed_ones_alone(tmp_path: Path) -> None:
    """R152: our names of columns, partition columns and the envelope; places stay."""
    keys = {"columns": "number DECIMAL(25,0), country STRING", "rename": {"id": "number"}}
    world = entered(TableWorld(tmp_path, type_keys=keys, partition_by=["country"], filter="number <> 12"))
    done = world.take(1)
    assert done is not None
    world.prove(done)
    world.optimize()
    world.enter()
    world.wait(days=3)
    assert kept(world) == [((1, 2),), ((3, 5),)]
    segment = world.segment(0)
    assert (segment.table, segment.first_row, segment.merged, list(segment.present)) == (None, 0, False, [1])
    copy = pq.read_table(world.store.uri(f"messages/orders/{segment.path}"))
    assert copy.column("number").to_pylist() == [None, 11, None]
    assert copy.column("country").to_pylist() == [None, "NL", None]
    assert copy.column("sequence").to_pylist() == [0, 1, 2]
    assert copy.column("publisher").to_pylist() == [str(DeltaTable(world.table).metadata().id)] * 3
    assert set(copy.column_names) == {"number", "country", *ENVELOPE.names}
    world.vacuum()
    assert_folds_alike(world)


def test_what_is_let_go_is_known_by_records_alone(world: TableWorld) -> None:
    """R152: a later queue misses what no queue needed when the copy was made, and hears so where it asks for it."""
    done = world.take(1)
    assert done is not None
    world.prove(done)
    world.optimize()
    world.enter()
    world.wait(days=3)
    world.vacuum()
    world.apply(LATER={"underlying_topic": "orders", "recovery_point": "epoch"})
    assert world.rows(State.AVAILABLE, "LATER") == [1, 3, 4]
    with pytest.raises(JournalError, match=r"MESSAGES_RETIRED.*Messages 0 to 0 .* kept after them is 1"):
        world.ids([0, 1])
    log = TopicLog(world.store, world.state.journal_id, "orders", "orders", fail_on_data_loss=False)
    assert log.pieces(0, 5).select(["bookmark", "rows"]).to_pylist() == [
        {"bookmark": 1, "rows": 1},
        {"bookmark": 3, "rows": 2},
    ]
    with pytest.raises(JournalError, match="MESSAGES_RETIRED"):
        TopicLog(world.store, world.state.journal_id, "orders", "orders").pieces(0, 5)
    assert_folds_alike(world)


def test_a_filter_is_tried_on_messages_wherever_they_stand(world: TableWorld) -> None:
    """R152: before anybody copied them, and after that without those that are let go."""
    asked = preview(world.journal.traits, reversed(world.known.segments), world.queue.definition)
    assert (asked.messages, asked.matched) == (5, 4)
    done = world.take(1)
    assert done is not None
    world.prove(done)
    world.optimize()
    world.enter()
    world.wait(days=3)
    asked = preview(world.journal.traits, reversed(world.known.segments), world.queue.definition)
    assert (asked.messages, asked.matched) == (3, 3)


def test_a_file_that_the_table_has_again_is_not_copied(world: TableWorld) -> None:
    """R151: adding its path ends the clock."""
    world.optimize()
    world.enter()
    world.wait(days=1)
    DeltaTable(world.table).restore(2)
    world.enter()
    world.wait(days=3)
    assert not world.records(Kind.MOVED, Kind.RETIRED)


def test_a_copy_of_a_file_that_the_table_has_again_meanwhile_is_not_taken(world: TableWorld) -> None:
    """R151, R152."""
    copy_unrecorded(world)
    DeltaTable(world.table).restore(2)
    world.enter()
    found = world.journal.upkeep(epoch=world.epoch, state=world.state, now_ms=world.now_ms)
    assert len(found) == 2
    world.engine.take_files(found, now_ms=world.now_ms)
    assert all(segment.table is not None for segment in world.known.segments)


def test_a_change_of_the_retention_moves_the_time(world: TableWorld) -> None:
    """R151: by what the table says at the time."""
    world.optimize()
    DeltaTable(world.table).alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 30 days"})
    world.enter()
    world.wait(days=9)
    assert not kept(world)
    world.wait(days=2)
    assert len(kept(world)) == 2


def test_relocate_after_says_when(tmp_path: Path) -> None:
    """R152: `0s` is for tables whose files go at once (VACUUM RETAIN 0)."""
    world = entered(TableWorld(tmp_path, type_keys={"relocate_after": "0s"}, filter="id <> 12"))
    world.optimize()
    world.enter()
    world.wait(ms=1_000)
    world.vacuum()
    assert len(kept(world)) == 2
    assert world.ids(world.rows(State.AVAILABLE)) == [10, 11, 20, 21]


def test_a_lease_keeps_the_places_that_it_was_told(world: TableWorld) -> None:
    """R152: its batch fails once the file is gone, and the next run is told the new place."""
    lease = world.take()
    assert lease is not None
    told = world.segment(0)
    world.optimize()
    world.enter()
    world.wait(days=3)
    world.vacuum()
    with pytest.raises(JournalError, match="MESSAGE_FILE_MISSING"):
        MessageFiles(world.store).read(told, None)
    assert MessageFiles(world.store).read(world.segment(0), ["id"]).column("id").to_pylist() == [10, 11, None]
    assert world.rows(State.AVAILABLE) == [0, 1, 3, 4], "the lease is over"


def test_a_copy_that_lacks_what_a_queue_needs_by_now_is_not_taken(world: TableWorld) -> None:
    """R152: only what all queues need is left behind; a queue may begin while the copy is made."""
    copy_unrecorded(world)
    world.apply(LATER={"underlying_topic": "orders", "recovery_point": "epoch"})
    found = world.journal.upkeep(epoch=world.epoch, state=world.state, now_ms=world.now_ms)
    assert len(found) == 2
    world.engine.take_files(found, now_ms=world.now_ms)
    world.commit()
    assert kept(world) == [((3, 5),)]
    world.wait(ms=RETRY_MS)
    assert kept(world) == [((0, 3),), ((3, 5),)]
    world.vacuum()
    assert world.ids(world.rows(State.AVAILABLE, "LATER")) == [10, 11, 12, 20, 21]
    assert_folds_alike(world)


def test_a_kill_between_copy_and_record_loses_nothing(world: TableWorld) -> None:
    """R152: the next reign copies anew, and what nothing names goes a day later."""
    copy_unrecorded(world)
    copies = Path(world.store.uri("messages/orders"))
    left = set(copies.iterdir())
    world.begin()
    assert world.segment(0).table is not None
    world.wait(ms=1)
    assert len(kept(world)) == 2
    assert len(set(copies.iterdir())) == 4
    for path in left:
        os.utime(path, (0, 0))
    world.wait(days=0.1)
    world.wait(days=0.1)
    assert set(copies.iterdir()).isdisjoint(left)
    assert world.ids(world.rows(State.AVAILABLE)) == [10, 11, 20, 21]
    world.vacuum()
    assert_folds_alike(world)


def test_a_copy_goes_once_nobody_needs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R152: as a file of the journal over its `retention`."""
    monkeypatch.setattr(Store, "time_ms", lambda _: 2**50)
    world = TableWorld(tmp_path, type_keys={"relocate_after": "0s"})
    world.apply(journal={"retention": "1d"})
    entered(world)
    world.optimize()
    world.enter()
    world.wait(ms=1_000)
    copies = Path(world.store.uri("messages/orders"))
    assert len(list(copies.iterdir())) == 2
    lease = world.take()
    assert lease is not None
    world.prove(lease)
    world.wait(days=1.1)
    assert all(segment.retired for segment in world.known.segments)
    for path in copies.iterdir():
        os.utime(path, (0, 0))
    for _ in range(2):
        world.wait(days=1.1)
    assert not list(copies.iterdir())
    assert_folds_alike(world)


def test_many_pieces_of_a_file_are_copied_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record names so many ranges and no more."""
    monkeypatch.setattr(table_copies, "RANGES_MAX", 2)
    world = TableWorld(tmp_path, filter="id % 2 = 0")
    world.append(0, 9)
    world.enter()
    world.delete("id = 0")
    world.enter()
    world.wait(days=3)
    assert kept(world) == [((0, 9),)]


def test_of_a_type_that_is_set_aside_every_file_counts_as_removed(tmp_path: Path) -> None:
    """R153: from the time of the commit before which it stopped; a type whose log is another one, at once."""
    world = entered(TableWorld(tmp_path, type_keys={"on_change": "stop"}, filter="id <> 12"))
    world.delete("id = 10")
    trouble = world.enter()
    assert trouble is not None
    assert trouble.code == "TABLE_CHANGED"
    world.wait(days=2.2)
    assert not kept(world)
    world.wait(days=0.2)
    assert kept(world) == [((0, 2),), ((3, 5),)]
    assert_folds_alike(world)


def test_where_nobody_knows_since_when_files_may_go_they_are_copied_at_once(world: TableWorld) -> None:
    """R153: another entry stands where one was read."""
    Path(world.table, "_delta_log", f"{2:020d}.json").write_text('{"commitInfo":{}}', encoding="utf-8")
    trouble = world.enter()
    assert trouble is not None
    assert trouble.code == "TABLE_REPLACED"
    world.wait(ms=1)
    assert kept(world) == [((0, 2),), ((3, 5),)]


def test_of_a_table_made_anew_what_is_needed_is_lost(world: TableWorld) -> None:
    """R153, R155: nobody knows since when its files may go, so they are looked for at once."""
    world.drop()
    world.append(0, 3)
    for number in range(3):
        world.append(100 + number, 1)
    trouble = world.enter()
    assert trouble is not None
    assert trouble.code == "TABLE_REPLACED"
    world.wait(ms=1)
    assert world.rows(State.DEAD) == [0, 1, 3, 4]
    assert all(segment.retired for segment in world.known.segments)
    assert_folds_alike(world)
    assert world.rows(State.DEAD) == [0, 1, 3, 4]
