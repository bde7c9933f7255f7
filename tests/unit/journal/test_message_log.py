"""Reading a message log forward, and what strangers and power losses do to it (DESIGN 4, 15.9)."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from spark_queue.clock import SystemClock
from spark_queue.errors import JournalError
from spark_queue.journal.publisher import commit_staged, publish
from spark_queue.journal.sql_types import INSTANT
from spark_queue.journal.staging import stage_file
from spark_queue.journal.store import Store, messages_key
from spark_queue.ports import MessageLogEntry, PulledFiles
from tests.unit.journal.journal_on_disk import Disk, orders

ORDER = messages_key("order")


def tail(disk: Disk, after: int = -1) -> list[MessageLogEntry]:
    return list(disk.open().messages("order").tail(after))


def tail_until_trouble(disk: Disk) -> tuple[list[int], JournalError]:
    """Return the versions before the trouble, and the trouble."""
    seen: list[int] = []
    with pytest.raises(JournalError) as trouble:
        seen.extend(entry.version for entry in disk.open().messages("order").tail(-1))
    return seen, trouble.value


def test_tail_gives_files_in_the_order_of_the_commit(disk: Disk) -> None:
    """A snapshot lists files in another order (tried), so order comes from the log entry alone."""
    plan = disk.plan()
    now_ms = SystemClock().wall_ms()
    staged = [stage_file(plan, orders(range(count)).to_batches(), now_ms=now_ms) for count in (1, 2, 3, 4, 5)]
    commit_staged(plan, disk.journal_id, disk.definitions, [file for file in staged if file is not None])
    (entry,) = tail(disk, 0)
    assert [(added.path, added.row_count) for added in entry.added] == [
        (file.path, file.row_count) for file in staged if file is not None
    ]


def test_tail_reads_statistics_of_topics_and_expirations(disk: Disk) -> None:
    rows = pa.table(
        {
            "id": [1, 2, 3],
            "topic": ["RETURNS", "ORDERS", "RETURNS"],
            "expires_at": pa.array([1_700_000_000_000_001, None, 1_700_000_005_999_999], INSTANT),
        }
    )
    publish(disk.plan(None), disk.journal_id, disk.definitions, rows)
    ((added,),) = [entry.added for entry in tail(disk, 0)]
    assert (added.topic_min, added.topic_max, added.expires_null_count) == ("ORDERS", "RETURNS", 1)
    # Widened to whole milliseconds, so that statistics never rule out a value that is there.
    assert (added.expires_min_ms, added.expires_max_ms) == (1_700_000_000_000, 1_700_000_006_000)


def test_tail_goes_on_after_an_entry_without_messages(disk: Disk) -> None:
    disk.publish([1])
    DeltaTable(disk.store.messages_uri("order")).alter.set_table_description("mine now")
    with pytest.raises(JournalError, match="JOURNAL_MISMATCH"):
        disk.publish([2])
    assert [len(entry.added) for entry in tail(disk)] == [0, 1, 0]


def test_gap_is_named_and_what_is_before_it_is_given(disk: Disk) -> None:
    for number in range(4):
        disk.publish([number])
    disk.log_path(ORDER, 2).unlink()
    seen, trouble = tail_until_trouble(disk)
    assert (seen, trouble.code, trouble.facts["version"]) == ([0, 1], "LOG_GAP", 2)
    assert [entry.version for entry in disk.open().messages("order").tail(-1, finds_gaps=False)] == [0, 1]


@pytest.mark.parametrize("content", [b"", b'{"commitInfo":{"timest', b"\0" * 40, b"[]\n"])
def test_torn_entry_that_is_not_the_head_is_damage(disk: Disk, content: bytes) -> None:
    for number in range(3):
        disk.publish([number])
    disk.log_path(ORDER, 2).write_bytes(content)
    seen, trouble = tail_until_trouble(disk)
    assert (seen, trouble.code) == ([0, 1], "JOURNAL_DAMAGED")
    assert f"messages/order/_delta_log/{2:020d}.json is not whole" in str(trouble)


def test_entry_cut_at_the_end_of_a_line_is_torn(disk: Disk) -> None:
    """It is JSON, but its commit announced more actions."""
    disk.publish([1])
    path = disk.log_path(ORDER, 1)
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])
    assert tail_until_trouble(disk)[1].code == "JOURNAL_DAMAGED"


def test_pulled_files_whose_commit_is_put_again_by_the_stores_client_are_there_once_and_told_so(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """object_store puts again where a connection breaks, and hears that the key is there: it is its own."""
    journal, create = disk.open(), Store.create
    monkeypatch.setattr(Store, "create", lambda store, key, data: create(store, key, data) and create(store, key, data))
    pulled = PulledFiles(message_type="order", files=(), instances={})
    assert journal.append_pulled(pulled, after_version=0, at_ms=1)
    assert not journal.append_pulled(pulled, after_version=0, at_ms=1), "another commit stands there"


def test_append_by_a_stranger_is_foreign_and_nothing_else_stops(disk: Disk) -> None:
    """DESIGN 15.9: it has no bookmarks."""
    disk.publish([1])
    stranger = disk.stored()
    write_deltalake(disk.store.messages_uri("order"), pa.concat_tables([stranger] * 3), mode="append")
    disk.publish([2])
    first, foreign, second = tail(disk, 0)
    assert (len(first.added), len(second.added)) == (1, 1)
    assert (foreign.added, foreign.foreign_rows, foreign.token) == ((), 3, "")
    assert len(foreign.foreign_paths) == 1


def test_own_add_without_a_row_count_is_foreign(disk: Disk) -> None:
    disk.publish([1])
    path = disk.log_path(ORDER, 1)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[1]["add"]["stats"] = None
    path.write_text("\n".join(json.dumps(line) for line in lines))
    (entry,) = tail(disk, 0)
    assert (entry.added, len(entry.foreign_paths), entry.foreign_rows) == ((), 1, 0)


@pytest.mark.parametrize("deed", ["optimize", "delete", "overwrite", "vacuum_and_compact"])
def test_rewrite_by_a_stranger_is_named(disk: Disk, deed: str) -> None:
    for number in range(3):
        disk.publish([number])
    table = DeltaTable(disk.store.messages_uri("order"))
    match deed:
        case "optimize":
            table.optimize.compact()
        case "delete":
            table.delete("id = 1")
        case "overwrite":
            write_deltalake(table, disk.stored(), mode="overwrite")
        case _:
            table.optimize.z_order(["id"])
    seen, trouble = tail_until_trouble(disk)
    assert (seen, trouble.code) == ([0, 1, 2, 3], "JOURNAL_REWRITTEN")
    assert (trouble.facts["version"], trouble.facts["previous"]) == (4, 3)


def test_recover_sets_a_torn_head_aside_and_publishing_goes_on(disk: Disk) -> None:
    disk.publish([1])
    disk.publish([2])
    torn = disk.log_path(ORDER, 2)
    content = torn.read_bytes()[:100]
    torn.write_bytes(content)
    log = disk.open().messages("order")
    log.recover(version=-1, token="")
    assert Path(f"{torn}.torn").read_bytes() == content
    disk.publish([3])
    assert [entry.version for entry in log.tail(-1)] == [0, 1, 2, 3]
    assert disk.ids() == [1, 3]
    assert disk.tail_rows() == 2


def test_recover_says_damaged_when_the_torn_head_had_entered(disk: Disk) -> None:
    disk.publish([1])
    (entry,) = tail(disk, 0)
    disk.log_path(ORDER, 1).write_bytes(b"")
    with pytest.raises(JournalError, match=r"JOURNAL_DAMAGED.*version 1 of messages/order is another commit \(REPAIR\)"):
        disk.open().messages("order").recover(version=entry.version, token=entry.token)


def test_durable_tail_syncs_an_entry_before_it_is_relied_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry that a power loss could still take must not be entered durably."""
    disk = Disk(tmp_path / "journal", journal={"durability": "fsync"})
    disk.publish([1])
    journal = disk.open()
    journal.control.load()
    synced: list[str] = []
    monkeypatch.setattr("spark_queue.journal.store.force", synced.append)
    assert len(list(journal.messages("order").tail(0))) == 1
    assert synced[0] == str(disk.log_path(ORDER, 1))
