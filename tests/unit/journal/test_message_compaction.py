"""Merging message files: bookmarks keep their bodies, whoever reads, and whatever happens between the two commits (DESIGN 4)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from spark_queue.core import folds
from spark_queue.core.message_files.segment import Segment
from spark_queue.core.records import Kind
from spark_queue.core.state.journal_state import JournalState
from spark_queue.errors import ConfigError, CoordinatorError, JournalError
from spark_queue.journal import delta, message_compaction
from spark_queue.journal.log_entry import read_entry
from spark_queue.journal.message_table import lacks
from spark_queue.journal.message_work import MessageTableWork
from spark_queue.journal.publisher import publish
from spark_queue.journal.sql_types import INSTANT
from spark_queue.journal.store import messages_key
from spark_queue.verification.state_digest import digest
from tests.records import detail_of
from tests.unit.journal.journal_on_disk import Disk
from tests.unit.journal.reign import NOW_MS, SMALL, Reign, bodies, publish_some

ORDER = messages_key("order")


def test_merged_files_hold_every_message_once_under_its_bookmark(disk: Disk) -> None:
    publish_some(disk, 10)
    reign = Reign(disk, epoch=1)
    reign.enter()
    before = bodies(reign, disk)
    reign.upkeep()
    assert disk.ids() == list(range(30)), "any Delta reader sees each row once"
    assert len(DeltaTable(disk.store.messages_uri("order")).file_uris()) == 1
    assert bodies(reign, disk) == before, "what is not recorded yet is read where it stood"
    reign.enter()
    assert {segment.path for segment in reign.segments} == {reign.segments[0].path}
    assert [(segment.first, segment.first_row) for segment in reign.segments] == [(number * 3, number * 3) for number in range(10)]
    assert bodies(reign, disk) == before
    publish_some(disk, 1, first=10)
    reign.enter()
    assert [row["id"] for row in bodies(reign, disk)] == list(range(33))


def test_the_mapping_stands_in_the_record_the_commit_and_the_file(disk: Disk) -> None:
    publish_some(disk, 4)
    reign = Reign(disk, epoch=1)
    reign.enter()
    paths = [segment.path for segment in reign.segments]
    reign.upkeep()
    reign.enter()
    (moved,) = [record for record in disk.open().records() if record.kind == Kind.MOVED]
    wanted = {"path": reign.segments[0].path, "from": [[path, 0, 3, number * 3] for number, path in enumerate(paths)]}
    assert detail_of(moved)["files"] == [wanted]
    entry = read_entry(disk.store, ORDER, detail_of(moved)["version"])
    assert entry is not None
    assert (entry.mark["moved"], entry.token, entry.transactions) == ([wanted], detail_of(moved)["token"], {"c:coordinator": 1})
    assert [add["dataChange"] for add in entry.adds] + [remove["dataChange"] for remove in entry.removes] == [False] * 5
    metadata = pq.read_metadata(disk.store.open(f"{ORDER}/{wanted['path']}")).metadata
    assert metadata is not None
    assert json.loads(metadata[b"sparkqueue"]) == wanted


def test_age_topic_and_expiration_of_each_part_stay(disk: Disk) -> None:
    publish_some(disk, 4)
    rows = pa.table({"id": [90], "topic": ["ORDERS"], "expires_at": pa.array([NOW_MS * 1000 + 7], INSTANT)})
    publish(disk.plan(None), disk.journal_id, disk.definitions, rows)
    reign = Reign(disk, epoch=1)
    reign.enter()
    kept = [replace(segment, path="", first_row=0, merged=False) for segment in reign.segments]
    reign.upkeep()
    reign.enter()
    assert [replace(segment, path="", first_row=0, merged=False) for segment in reign.segments] == kept
    actions = pa.table(DeltaTable(disk.store.messages_uri("order")).get_add_actions(flatten=True)).to_pylist()
    assert [(row["num_records"], row["min.topic"], row["max.topic"], row["null_count.expires_at"]) for row in actions] == [
        (13, "ORDERS", "RETURNS", 12)
    ]


def test_recovery_after_the_parts_are_deleted_gives_the_same_state(disk: Disk) -> None:
    """Traits are read where the rows stand at the end of the log: mixed topics need the column."""
    for number in range(5):
        rows = pa.table({"id": [number * 2, number * 2 + 1], "topic": ["ORDERS", "QUOTES"]})
        publish(disk.plan(None), disk.journal_id, disk.definitions, rows)
    reign = Reign(disk, epoch=1)
    reign.enter()
    old = {segment.path for segment in reign.segments}
    reign.upkeep()
    reign.enter()
    for path in old:
        (Path(disk.store.messages_uri("order")) / path).unlink()
    again = JournalState(disk.open().traits)
    folds.fold_all(again, disk.open().records())
    assert not again.troubles
    assert list(again.ledger("WORK").entered) == [0, 2, 4, 6, 8]
    assert digest(again) == digest(reign.state)
    blind = JournalState(disk.open().traits)
    for record in disk.open().records():
        folds.fold(blind, record)
    assert "MESSAGE_FILE_MISSING" in str(blind.troubles["WORK"]), "without knowing the end of the log"


def test_a_crash_between_the_two_commits_is_made_good_by_the_next_reign(disk: Disk) -> None:
    publish_some(disk, 5)
    first = Reign(disk, epoch=1)
    first.enter()
    before = bodies(first, disk)
    first.upkeep()
    second = Reign(disk, epoch=2)
    assert not any(segment.merged for segment in second.segments)
    second.enter()
    assert all(segment.merged for segment in second.segments)
    assert bodies(second, disk) == before
    assert Reign(disk, epoch=3).segments == second.segments


def test_a_merged_file_is_merged_again_with_what_came_after(disk: Disk) -> None:
    reign = Reign(disk, epoch=1)
    for start in range(0, 20, 5):
        publish_some(disk, 5, first=start)
        reign.enter()
        reign.upkeep()
        reign.enter()
    assert [row["id"] for row in bodies(reign, disk)] == list(range(60))
    assert disk.ids() == list(range(60))
    assert len(DeltaTable(disk.store.messages_uri("order")).file_uris()) < 8
    again = JournalState(disk.open().traits)
    folds.fold_all(again, disk.open().records())
    assert digest(again) == digest(reign.state)


def test_columns_that_were_appended_meanwhile_read_null_for_older_rows(disk: Disk) -> None:
    publish_some(disk, 3)
    disk.open().create_message_table("order", "id BIGINT, item STRING, note STRING")
    publish_some(disk, 2, first=3)
    reign = Reign(disk, epoch=1)
    reign.enter()
    reign.upkeep()
    assert disk.stored().column("note").null_count == 15
    assert disk.ids() == list(range(15))


def test_publishers_go_on_while_files_are_merged(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lost race makes the plan anew at the new head: nothing is doubled, nothing lost."""
    publish_some(disk, 5)
    reign = Reign(disk, epoch=1)
    reign.enter()
    refresh, late = MessageTableWork._swap, [20, 21]

    def overtaken(self: MessageTableWork, *given: Any) -> bool:
        if late:
            disk.publish([100 + late.pop()])
        return refresh(self, *given)

    monkeypatch.setattr(MessageTableWork, "_swap", overtaken)
    reign.upkeep()
    reign.enter()
    assert disk.ids() == [*range(15), 120, 121]
    assert [row["id"] for row in bodies(reign, disk)] == [*range(15), 121, 120]


def test_a_plan_whose_files_have_gone_is_dropped(disk: Disk) -> None:
    """Tried: a stale compaction doubles rows."""
    publish_some(disk, 5)
    reign = Reign(disk, epoch=1)
    reign.enter()
    stale = list(reign.segments)
    reign.upkeep()
    work = MessageTableWork(disk.store, disk.journal_id, "order", epoch=1, now_ms=NOW_MS, is_durable=lambda: False)
    assert not message_compaction.merge(work, stale, SMALL)
    assert disk.ids() == list(range(15))


def test_a_zombies_swap_is_refused_once_a_newer_reign_has_claimed_the_table(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    publish_some(disk, 5)
    old = Reign(disk, epoch=1)
    old.enter()
    write = message_compaction._write

    def slow(*given: Any) -> Any:
        written = write(*given)
        monkeypatch.undo()
        new = Reign(disk, epoch=2)
        new.upkeep()
        new.enter()
        return written

    monkeypatch.setattr(message_compaction, "_write", slow)
    with pytest.raises(CoordinatorError, match=r"COORDINATOR_DEPOSED.*carries epoch 2"):
        old.upkeep()
    assert disk.ids() == list(range(15))


def test_a_mapping_that_does_not_fit_stops_the_log_there(disk: Disk) -> None:
    publish_some(disk, 4)
    reign = Reign(disk, epoch=1)
    reign.enter()
    reign.upkeep()
    path = disk.log_path(ORDER, 6)
    path.write_text(path.read_text().replace(",0,3,3]", ",0,3,4]"))
    reign.entrance.admit("order", now_ms=NOW_MS)
    assert "JOURNAL_DAMAGED" in str(reign.entrance.trouble["order"])
    assert not any(segment.merged for segment in reign.segments)


def test_a_removal_that_the_mapping_does_not_explain_is_a_rewrite(disk: Disk) -> None:
    publish_some(disk, 4)
    reign = Reign(disk, epoch=1)
    reign.enter()
    reign.upkeep()
    path = disk.log_path(ORDER, 6)
    lines = [line for line in path.read_text().splitlines(keepends=True) if '"add"' not in line]
    path.write_text("".join(lines).replace('"actions":6', '"actions":5'))
    with pytest.raises(JournalError, match="JOURNAL_REWRITTEN"):
        list(disk.open().messages("order").tail(5))


def test_a_part_that_cannot_be_read_leaves_its_run_as_it_is(disk: Disk, caplog: pytest.LogCaptureFixture) -> None:
    publish_some(disk, 5)
    reign = Reign(disk, epoch=1)
    reign.enter()
    (Path(disk.store.messages_uri("order")) / reign.segments[2].path).write_bytes(b"")
    reign.upkeep()
    assert "stay unmerged" in caplog.text
    assert len(DeltaTable(disk.store.messages_uri("order")).file_uris()) == 5
    assert delta.open_table(disk.store, ORDER) is not None


def test_a_store_that_fails_ends_the_round(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a file that is missing is left alone: it stays so, and the others can go on."""

    def fail(*_: object) -> None:
        raise JournalError("STORE_FAILED", path="p", doing="writing", reason="the disk is full.", next_step="Make room.")

    publish_some(disk, 5)
    reign = Reign(disk, epoch=1)
    reign.enter()
    monkeypatch.setattr(message_compaction, "_write", fail)
    with pytest.raises(JournalError, match="the disk is full"):
        reign.upkeep()


@pytest.mark.parametrize("durability", ["fsync", "os"])
def test_a_merged_file_is_on_the_disk_before_its_parts_may_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durability: str
) -> None:
    """DESIGN 4, power loss: it takes their place in the log, and they are deleted later."""
    disk = Disk(tmp_path / "journal", journal={"durability": durability})
    publish_some(disk, 5)
    reign = Reign(disk, epoch=1)
    reign.enter()
    synced: list[str] = []
    monkeypatch.setattr("spark_queue.journal.store.force", synced.append)
    reign.upkeep()
    (merged,) = DeltaTable(disk.store.messages_uri("order")).file_uris()
    assert [Path(path).name for path in synced if path.endswith(".parquet")] == [Path(merged).name] * (durability == "fsync")
    entry = str(disk.log_path(ORDER, 7))
    assert entry not in synced[: synced.index(merged)] if durability == "fsync" else synced == []


def test_nothing_is_looked_at_before_enough_has_entered(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    publish_some(disk, 5)
    reign = Reign(disk, epoch=1)
    reign.enter()
    reign.upkeep()
    reign.enter()
    reign.upkeep()
    looks: list[int] = []

    def look(*_: object) -> list[list[Segment]]:
        looks.append(1)
        return []

    monkeypatch.setattr(message_compaction, "worth_merging", look)
    publish_some(disk, 3, first=5)
    reign.enter()
    reign.upkeep()
    assert looks == []
    publish_some(disk, 1, first=8)
    reign.enter()
    reign.upkeep()
    assert looks == [1]


@pytest.mark.parametrize("change", ["dropped", "of another type"])
def test_columns_that_somebody_changes_in_the_table_keep_their_values(
    disk: Disk, change: str, caplog: pytest.LogCaptureFixture
) -> None:
    """R92: merged, what stands in such a column would be gone, or be another value; no file was touched, so nothing else tells."""
    publish_some(disk, 8)
    reign = Reign(disk, epoch=1)
    reign.enter()
    before, paths = bodies(reign, disk), [segment.path for segment in reign.segments]
    head = disk.log_path(ORDER, 0).read_text().splitlines()
    (made,) = [json.loads(line)["metaData"] for line in head if "metaData" in line]
    schema = json.loads(made["schemaString"])
    fields = [each for each in schema["fields"] if each["name"] != "item"]
    fields += [] if change == "dropped" else [{"name": "item", "type": "binary", "nullable": True, "metadata": {}}]
    altered = {"metaData": {**made, "schemaString": json.dumps({**schema, "fields": fields})}}
    version = DeltaTable(disk.store.messages_uri("order")).version() + 1
    disk.log_path(ORDER, version).write_text(f'{{"commitInfo": {{"operation": "DROP COLUMNS"}}}}\n{json.dumps(altered)}\n')
    for _ in range(3):
        reign.upkeep()
        reign.enter()
    assert ([segment.path for segment in reign.segments], bodies(reign, disk)) == (paths, before)
    assert caplog.text.count("stay unmerged") == 1, "it is tried again when there is more"
    if change == "dropped":
        assert lacks(disk.store, disk.journal_id, "order", "id BIGINT, item STRING") == ["item"]
    else:
        with pytest.raises(ConfigError, match="MESSAGE_TYPE_CHANGED.*'item' is stored as BINARY"):
            lacks(disk.store, disk.journal_id, "order", "id BIGINT, item STRING")
