"""A table as a sink: one commit for each attempt or a fence of it, whatever is late, lost or raced (R123 to R125, DESIGN 19)."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from spark_queue.clock import SystemClock
from spark_queue.core.replies import AttemptTold
from spark_queue.errors import CallerError, ConfigError, JournalError
from spark_queue.journal import delta
from spark_queue.journal.delta_head import DeltaHead
from spark_queue.journal.log_entry import OddEntryError, read_entry
from spark_queue.journal.store import Store
from spark_queue.sinks import table as module
from spark_queue.sinks.sink import Fate, Landing, transaction_id
from spark_queue.sinks.staging import SinkFile, SinkPlan
from spark_queue.sinks.table import SinkTable

COLUMNS: list[dict[str, Any]] = [{"name": "id", "type": "long"}, {"name": "day", "type": "date"}]
TXN = transaction_id("j", "Q", "s")
PUT = DeltaHead.put


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "booked")


def staged(plan: SinkPlan, *ids: int) -> list[SinkFile]:
    columns: dict[str, Any] = {"id": pa.array(ids, pa.int64()), "day": pa.nulls(len(ids), pa.date32())}
    texts: list[Any] = next(plan.stage(list(columns), [pa.record_batch(columns)])).column(0).to_pylist()
    return [msgspec.json.decode(text, type=SinkFile) for text in texts]


def ids(path: str) -> list[int]:
    return sorted(row["id"] for row in DeltaTable(path).to_pyarrow_table().to_pylist())


def test_an_attempt_lands_once_and_its_repeat_is_told_so(path: str) -> None:
    sink = SinkTable(path, {})
    plan = sink.plan(COLUMNS)
    files = staged(plan, 1, 2)
    assert sink.append(plan, files, transaction=TXN, attempt=3) == Landing(Fate.LANDED, 1)
    assert sink.append(plan, files, transaction=TXN, attempt=3).fate is Fate.LANDED
    assert sink.fence(transaction=TXN, attempt=3).fate is Fate.LANDED
    assert (ids(path), sink.transaction_version(TXN)) == ([1, 2], 6)


def test_what_is_fenced_never_lands_and_leaves_nothing(path: str) -> None:
    sink, other = SinkTable(path, {}), SinkTable(path, {})
    plan = sink.plan(COLUMNS)
    files = staged(plan, 1)
    assert other.fence(transaction=TXN, attempt=1) == Landing(Fate.FENCED, None)
    assert sink.append(plan, files, transaction=TXN, attempt=1).fate is Fate.FENCED
    sink.discard(files)
    assert (ids(path), list(Path(path).glob("*.parquet"))) == ([], [])
    assert sink.append(plan, staged(plan, 2), transaction=TXN, attempt=2).fate is Fate.LANDED


def test_subscriptions_have_numbers_of_their_own(path: str) -> None:
    sink = SinkTable(path, {})
    plan = sink.plan(COLUMNS)
    sink.append(plan, staged(plan, 1), transaction=TXN, attempt=9)
    assert sink.append(plan, staged(plan, 2), transaction=transaction_id("j", "Q", "t"), attempt=1).fate is Fate.LANDED
    assert ids(path) == [1, 2]


def test_a_batch_without_rows_is_a_commit_all_the_same(path: str) -> None:
    sink = SinkTable(path, {})
    plan = sink.plan(COLUMNS)
    assert sink.append(plan, [], transaction=TXN, attempt=1) == Landing(Fate.LANDED, 1)


def swapping(monkeypatch: pytest.MonkeyPatch, first: Callable[[Callable[[], None]], None]) -> None:
    """Let the first commit go another way."""
    left = [first]

    def once(*given: Any, **more: Any) -> bool:
        created: list[bool] = []

        def go() -> None:
            created.append(PUT(*given, **more))

        left.pop()(go) if left else go()
        return any(created)

    monkeypatch.setattr(DeltaHead, "put", once)


def entries_synced(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the versions whose entries are put onto the disk from now on, as they are."""
    synced: list[int] = []

    def force(path: str) -> None:
        if path.endswith(".json"):
            synced.append(int(Path(path).stem))

    monkeypatch.setattr("spark_queue.journal.store.force", force)
    return synced


def append_row(path: str, number: int) -> None:
    """Commit as others do."""
    write_deltalake(path, pa.table({"id": [number], "day": pa.nulls(1, pa.date32())}), mode="append")


def test_the_entry_below_is_on_the_disk_first(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN 4, power loss: torn below an entry of ours, it would be damage."""
    sink = SinkTable(path, {})
    plan = sink.plan(COLUMNS)
    sink.append(plan, staged(plan, 1), transaction=TXN, attempt=1)
    synced = entries_synced(monkeypatch)
    sink.append(plan, staged(plan, 2), transaction=TXN, attempt=2)
    append_row(path, 3)
    sink.append(plan, staged(plan, 4), transaction=TXN, attempt=3)
    assert synced == [2, 3, 4]


def test_an_attempt_that_is_found_landed_or_fenced_is_put_onto_the_disk(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its writer may have been killed before it did."""
    sink = SinkTable(path, {})
    plan = sink.plan(COLUMNS)
    sink.append(plan, staged(plan, 1), transaction=TXN, attempt=1)
    append_row(path, 2)
    append_row(path, 3)
    synced = entries_synced(monkeypatch)
    assert SinkTable(path, {}).append(plan, [], transaction=TXN, attempt=1).fate is Fate.LANDED
    assert synced == [1, 2, 3]
    assert sink.fence(transaction=TXN, attempt=2).fate is Fate.FENCED
    synced.clear()
    assert SinkTable(path, {}).fence(transaction=TXN, attempt=2).fate is Fate.FENCED
    assert synced == [4]


def test_an_attempt_is_found_below_an_entry_that_only_delta_rs_can_make_out(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = SinkTable(path, {})
    plan = sink.plan(COLUMNS)
    sink.append(plan, staged(plan, 1), transaction=TXN, attempt=1)
    append_row(path, 2)
    read = read_entry

    def refuse(store: Store, table: str, version: int) -> Any:
        if version == 2:
            raise OddEntryError("it is odd")
        return read(store, table, version)

    monkeypatch.setattr("spark_queue.sinks.table.read_entry", refuse)
    synced = entries_synced(monkeypatch)
    assert SinkTable(path, {}).append(plan, [], transaction=TXN, attempt=1).fate is Fate.LANDED
    assert synced == [1, 2]


def test_an_attempt_whose_entry_the_disk_refuses_stays_in_doubt(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stands in the log, which says nothing of the disk; and of bytes that it lost a system tells once."""
    sink = SinkTable(path, {})
    plan = sink.plan(COLUMNS)
    files, refused = staged(plan, 1), list[str]()

    def refuse(path: str) -> None:
        if path.endswith(f"{1:020}.json") and not refused:
            refused.append(path)
            raise OSError("Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr("spark_queue.journal.store.force", refuse)
        with pytest.raises(JournalError, match="STORE_FAILED.*Input/output error"):
            sink.append(plan, files, transaction=TXN, attempt=1)
    assert SinkTable(path, {}).append(plan, files, transaction=TXN, attempt=1).fate is Fate.LANDED
    assert ids(path) == [1]


def test_a_commit_whose_reply_is_lost_is_found_by_reading(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = SinkTable(path, {})
    plan = sink.plan(COLUMNS)

    def lost(go: Callable[[], None]) -> None:
        go()
        raise JournalError("STORE_FAILED", path=path, doing="creating an entry", reason="the connection was reset", next_step="")

    swapping(monkeypatch, lost)
    assert sink.append(plan, staged(plan, 1), transaction=TXN, attempt=1) == Landing(Fate.LANDED, 1)
    assert ids(path) == [1]


def test_a_race_that_is_lost_is_decided_anew(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fence that came first wins: the commit was decided upon the version before it."""
    sink = SinkTable(path, {})
    plan = sink.plan(COLUMNS)

    def fenced_meanwhile(go: Callable[[], None]) -> None:
        monkeypatch.undo()
        SinkTable(path, {}).fence(transaction=TXN, attempt=1)
        go()

    swapping(monkeypatch, fenced_meanwhile)
    assert sink.append(plan, staged(plan, 1), transaction=TXN, attempt=1).fate is Fate.FENCED
    assert ids(path) == []


def test_a_store_that_refuses_each_commit_is_no_lost_race(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a race moves the table's head."""
    sink = SinkTable(path, {})
    plan = sink.plan(COLUMNS)
    tried: list[int] = []

    def refuse(head: DeltaHead, *_: Any, **__: Any) -> None:
        tried.append(head.version)
        raise JournalError("STORE_FAILED", path=path, doing="creating an entry", reason="the disk is full", next_step="")

    monkeypatch.setattr(DeltaHead, "put", refuse)
    with pytest.raises(JournalError, match="SINK_FAILED.*the disk is full"):
        sink.append(plan, staged(plan, 1), transaction=TXN, attempt=1)
    assert len(tried) < 10


def test_races_that_are_lost_are_no_failures(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = SinkTable(path, {})
    plan = sink.plan(COLUMNS)
    faster = list(range(-12, 0))

    def late(*given: Any, **more: Any) -> bool:
        if faster:
            rows: Any = pa.table({"id": pa.array([faster.pop()]), "day": pa.nulls(1, pa.date32())})
            write_deltalake(path, rows, mode="append")
        return PUT(*given, **more)

    monkeypatch.setattr(DeltaHead, "put", late)
    assert sink.append(plan, staged(plan, 1), transaction=TXN, attempt=1).fate is Fate.LANDED
    assert ids(path) == [*range(-12, 0), 1]


def test_a_table_that_is_not_there_has_no_id(path: str, tmp_path: Path) -> None:
    sink = SinkTable(path, {})
    assert sink.transaction_version(TXN) == -1
    with pytest.raises(JournalError, match="SINK_FAILED.*It is not there"):
        sink.id()
    sink.plan(COLUMNS)
    Path(path).rename(tmp_path / "away")
    assert sink.transaction_version(TXN) == -1
    with pytest.raises(JournalError, match="SINK_FAILED.*It is not there"):
        sink.id()


@pytest.mark.parametrize(
    "kind",
    ["binary", {"type": "array", "elementType": "long", "containsNull": True}, {"type": "struct", "fields": []}],
    ids=str,
)
def test_a_type_without_a_text_that_every_reader_knows_divides_no_table(path: str, kind: Any) -> None:
    with pytest.raises(CallerError, match=r"SINK_SCHEMA_DIFFERS.*partitioned by 'b'"):
        SinkTable(path, {}).plan([*COLUMNS, {"name": "b", "type": kind}], partition_by=["B"])
    assert not Path(path).exists()
    binary: Any = pa.table({"id": pa.array([1]), "b": pa.array([b"1"])})
    write_deltalake(path, binary, partition_by=["b"])
    with pytest.raises(CallerError, match=r"SINK_SCHEMA_DIFFERS.*partitioned by 'b', which is BINARY"):
        SinkTable(path, {}).plan([{"name": "id", "type": "long"}, {"name": "b", "type": "binary"}])


def test_a_put_that_lands_late_finds_its_version_taken(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = SinkTable(path, {})
    plan = sink.plan(COLUMNS)
    late: list[Callable[[], None]] = []

    def put_off(go: Callable[[], None]) -> None:
        late.append(go)
        raise JournalError("STORE_FAILED", path=path, doing="creating an entry", reason="timed out", next_step="")

    swapping(monkeypatch, put_off)
    monkeypatch.setattr(module, "_FAILURES", 1)
    with pytest.raises(JournalError, match="SINK_FAILED.*timed out"):
        sink.append(plan, staged(plan, 1), transaction=TXN, attempt=1)
    assert SinkTable(path, {}).fence(transaction=TXN, attempt=1).fate is Fate.FENCED
    late[0]()
    assert ids(path) == []


def test_a_table_that_changed_after_the_staging_is_not_appended_to(path: str) -> None:
    sink = SinkTable(path, {})
    plan = sink.plan(COLUMNS)
    files = staged(plan, 1)
    SinkTable(path, {}).plan([*COLUMNS, {"name": "more", "type": "string"}], merges_schema=True)
    with pytest.raises(CallerError, match="SINK_CHANGED"):
        sink.append(plan, files, transaction=TXN, attempt=1)
    assert sink.transaction_version(TXN) == -1


def test_no_log_is_listed_for_a_batch_nor_for_who_looks_on(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A listing takes the longer, the more commits there are."""
    sink, other = SinkTable(path, {}), SinkTable(path, {})
    plan = sink.plan(COLUMNS)
    other.check()
    for method in ("update_incremental", "create_write_transaction"):
        monkeypatch.setattr(DeltaTable, method, lambda *_, **__: pytest.fail("delta-rs lists the log"))
    monkeypatch.setattr(Store, "list", lambda *_, **__: pytest.fail("the log is listed"))
    for attempt in range(1, 6):
        assert sink.append(plan, staged(plan, attempt), transaction=TXN, attempt=attempt) == Landing(Fate.LANDED, attempt)
        assert other.transaction_version(TXN) == 2 * attempt


def test_who_has_slept_lists_the_log_before_anything_is_believed(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries behind the head that it knew may have been cleaned away: its own one would stand where nobody looks."""
    sink, other = SinkTable(path, {}), SinkTable(path, {})
    plan = sink.plan(COLUMNS)
    for attempt in (1, 2, 3):
        other.append(plan, staged(plan, attempt), transaction=TXN, attempt=attempt)
    DeltaTable(path).create_checkpoint()
    for version in (1, 2):
        Path(path, "_delta_log", f"{version:020d}.json").unlink()
    wall_ms = SystemClock().wall_ms() + module._LISTED_MS + 1
    monkeypatch.setattr(SystemClock, "wall_ms", lambda _: wall_ms)
    assert sink.append(plan, staged(plan, 4), transaction=TXN, attempt=4) == Landing(Fate.LANDED, 4)
    assert ids(path) == [1, 2, 3, 4]


def test_another_table_in_its_place_is_looked_at_anew(path: str, tmp_path: Path) -> None:
    sink = SinkTable(path, {})
    plan = sink.plan(COLUMNS)
    sink.append(plan, staged(plan, 1), transaction=TXN, attempt=1)
    known = sink.id()
    Path(path).rename(tmp_path / "before")
    other = SinkTable(path, {})
    other.append(other.plan(COLUMNS), [], transaction=TXN, attempt=4)
    assert (sink.transaction_version(TXN), sink.id() == other.id() != known) == (8, True)


def test_a_checkpoint_that_fails_is_no_failed_commit(
    path: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sink = SinkTable(path, {})
    sink.plan(COLUMNS)
    DeltaTable(path).alter.set_table_properties({"delta.checkpointInterval": "2"})
    plan = sink.plan(COLUMNS)

    def fail(_: DeltaTable) -> None:
        raise DeltaError("the disk is full")

    monkeypatch.setattr(DeltaTable, "create_checkpoint", fail)
    assert sink.append(plan, staged(plan, 1), transaction=TXN, attempt=1) == Landing(Fate.LANDED, 2)
    assert "got no checkpoint at version 2: " in caplog.text


def test_who_loses_the_race_for_a_version_leaves_its_checkpoint_to_the_other(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sink, other = SinkTable(path, {}), SinkTable(path, {})
    sink.plan(COLUMNS)
    DeltaTable(path).alter.set_table_properties({"delta.checkpointInterval": "2"})
    plan, written = sink.plan(COLUMNS), list[int]()

    def overtaken(go: Callable[[], None]) -> None:
        monkeypatch.undo()
        other.append(other.plan(COLUMNS), [], transaction=transaction_id("j", "Q", "t"), attempt=1)
        monkeypatch.setattr(DeltaTable, "create_checkpoint", lambda table: written.append(table.version()))
        go()

    swapping(monkeypatch, overtaken)
    assert sink.append(plan, staged(plan, 1), transaction=TXN, attempt=1) == Landing(Fate.LANDED, 3)
    assert written == []


def test_commits_of_others_and_checkpoints_do_not_disturb(path: str) -> None:
    sink = SinkTable(path, {})
    plan = sink.plan(COLUMNS)
    DeltaTable(path).alter.set_table_properties({"delta.checkpointInterval": "5"})
    for attempt in range(1, 13):
        rows: Any = pa.table({"id": pa.array([-attempt]), "day": pa.nulls(1, pa.date32())})
        write_deltalake(path, rows, mode="append")
        assert sink.append(plan, staged(plan, attempt), transaction=TXN, attempt=attempt).fate is Fate.LANDED
    assert ids(path) == [*range(-12, 0), *range(1, 13)]
    assert list(Path(path, "_delta_log").glob("*.checkpoint.parquet"))
    assert SinkTable(path, {}).transaction_version(TXN) == 24


def told(**fields: Any) -> AttemptTold:
    known: dict[str, Any] = {"subscription": "s", "attempt": 1, "table": "t", "table_id": "?", "lease": 1}
    return AttemptTold(**{**known, "prepared_at_ms": 0, "due_at_ms": 0, **fields})


def test_who_decides_looks_at_the_very_table(path: str) -> None:
    """R125: a table that is gone, or made anew, tells nothing."""
    sink = SinkTable(path, {})
    with pytest.raises(JournalError, match=r"SINK_UNREADABLE.*It is not there"):
        sink.decide(told(), journal_id="j", queue="Q")
    sink.plan(COLUMNS)
    with pytest.raises(JournalError, match=r"SINK_UNREADABLE.*Another table"):
        sink.decide(told(), journal_id="j", queue="Q")
    assert sink.transaction_version(TXN) == -1
    assert sink.decide(told(table_id=sink.id()), journal_id="j", queue="Q").fate is Fate.FENCED


def test_a_fence_that_cannot_be_written_is_no_table_that_cannot_be_read(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """R125: as on a full disk; and it says once what failed."""
    sink = SinkTable(path, {})
    sink.plan(COLUMNS)

    def full(*_: object, **__: object) -> bool:
        raise JournalError("STORE_FAILED", path=path, doing="creating", reason="No space left on device.", next_step="Check it.")

    monkeypatch.setattr(DeltaHead, "put", full)
    monkeypatch.setattr("spark_queue.journal.delta.back_off", lambda _: None)
    with pytest.raises(JournalError) as failed:
        sink.decide(told(table_id=sink.id()), journal_id="j", queue="Q")
    assert failed.value.code == "SINK_UNFENCED"
    assert (failed.value.reason, str(failed.value).count("[")) == ("No space left on device.", 1)
    assert sink.fate(told(table_id=sink.id()), journal_id="j", queue="Q") is Fate.IN_DOUBT


@pytest.mark.parametrize("broken", [b"{", b'{"add": 1}\n'])
def test_a_log_that_cannot_be_read_is_no_answer(path: str, broken: bytes) -> None:
    sink = SinkTable(path, {})
    plan = sink.plan(COLUMNS)
    files = staged(plan, 1)
    Path(path, "_delta_log", f"{1:020d}.json").write_bytes(broken)
    with pytest.raises(JournalError, match="SINK_FAILED"):
        sink.append(plan, files, transaction=TXN, attempt=1)
    with pytest.raises(JournalError, match="SINK_UNREADABLE"):
        sink.decide(told(table_id="x"), journal_id="j", queue="Q")


def test_a_table_that_was_dropped_is_made_anew_by_the_next_batch(path: str) -> None:
    """Nothing that a living consumer knew of it counts any more."""
    sink = SinkTable(path, {})
    plan = sink.plan(COLUMNS)
    for attempt in (1, 2):
        sink.append(plan, staged(plan, attempt), transaction=TXN, attempt=attempt)
    for attempt in (3, 4):
        before = sink.id()
        shutil.rmtree(path)
        assert sink.transaction_version(TXN) == -1
        plan = sink.plan(COLUMNS)
        assert sink.id() != before
        assert sink.append(plan, staged(plan, attempt), transaction=TXN, attempt=attempt) == Landing(Fate.LANDED, 1)
        assert ids(path) == [attempt]


def test_a_table_that_was_put_back_from_a_copy_is_looked_at_anew(path: str, tmp_path: Path) -> None:
    """Its log is shorter than what was known of it, and has forgotten what landed since."""
    sink = SinkTable(path, {})
    plan = sink.plan(COLUMNS)
    sink.append(plan, staged(plan, 1), transaction=TXN, attempt=1)
    shutil.copytree(path, tmp_path / "copy")
    for attempt in (2, 3):
        sink.append(plan, staged(plan, attempt), transaction=TXN, attempt=attempt)
    shutil.rmtree(path)
    (tmp_path / "copy").rename(path)
    assert sink.transaction_version(TXN) == 2
    assert sink.append(plan, staged(plan, 4), transaction=TXN, attempt=4) == Landing(Fate.LANDED, 2)
    assert ids(path) == [1, 4]


def test_a_table_that_was_made_anew_after_the_staging_is_not_appended_to(path: str) -> None:
    """The files went with the one before."""
    sink = SinkTable(path, {})
    plan = sink.plan(COLUMNS)
    files = staged(plan, 1)
    shutil.rmtree(path)
    SinkTable(path, {}).plan(COLUMNS)
    with pytest.raises(CallerError, match="SINK_CHANGED"):
        sink.append(plan, files, transaction=TXN, attempt=1)
    assert ids(path) == []


def test_a_put_that_a_new_table_took_for_its_own_acknowledges_nothing(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table was dropped between the last look and the put, and made anew; the files went with the one before."""
    sink = SinkTable(path, {})
    plan = sink.plan(COLUMNS)
    files = staged(plan, 1)

    def made_anew(go: Callable[[], None]) -> None:
        shutil.rmtree(path)
        SinkTable(path, {}).plan(COLUMNS)
        go()

    swapping(monkeypatch, made_anew)
    with pytest.raises(CallerError, match="SINK_CHANGED"):
        sink.append(plan, files, transaction=TXN, attempt=1)


def test_a_look_before_a_long_wait_counts_no_longer(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator may take a minute to start while an attempt is prepared, and fn as long as it likes."""
    sink = SinkTable(path, {})
    plan = sink.plan(COLUMNS)
    sink.look_ahead()
    files = staged(plan, 1)
    sink.confirm(plan)
    shutil.rmtree(path)
    SinkTable(path, {}).plan(COLUMNS)
    monkeypatch.setattr(module, "_FRESH_MS", 0)
    with pytest.raises(CallerError, match="SINK_CHANGED"):
        sink.append(plan, files, transaction=TXN, attempt=1)
    assert ids(path) == []


def test_a_column_that_is_added_while_fn_runs_is_known_to_the_plan(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = SinkTable(path, {})
    sink.plan(COLUMNS)
    sink.look_ahead()
    more = [*COLUMNS, {"name": "more", "type": "string"}]
    SinkTable(path, {}).plan(more, merges_schema=True)
    monkeypatch.setattr(module, "_FRESH_MS", 0)
    sink.plan(more)


def test_a_batch_goes_by_one_look_at_its_table(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = SinkTable(path, {})
    sink.plan(COLUMNS)
    sink.look_ahead()
    monkeypatch.setattr(SinkTable, "_look", lambda _: pytest.fail("it is looked at again"))
    plan = sink.plan(COLUMNS)
    files = staged(plan, 1)
    assert sink.transaction_version(TXN, plan=plan) == -1
    sink.confirm(plan)
    assert sink.append(plan, files, transaction=TXN, attempt=1) == Landing(Fate.LANDED, 1)


def test_a_table_whose_volume_is_away_is_not_made_anew(path: str) -> None:
    """Below its mount point a second table would begin."""
    sink = SinkTable(path, {})
    sink.plan(COLUMNS)
    sink._device = -1
    shutil.rmtree(path)
    for _ in range(2):
        with pytest.raises(JournalError, match=r"SINK_FAILED.*no longer mounted"):
            sink.plan(COLUMNS)
    assert not Path(path).exists()


def test_a_table_that_is_away_is_not_made_anew(path: str, tmp_path: Path) -> None:
    """Below the mount point of a volume a second table would begin."""
    sink = SinkTable(path, {})
    plan = sink.plan(COLUMNS)
    files = staged(plan, 1)
    Path(path).rename(tmp_path / "away")
    with pytest.raises(JournalError, match="STORE_FAILED"):
        staged(plan, 2)
    with pytest.raises(JournalError, match="SINK_FAILED"):
        sink.append(plan, files, transaction=TXN, attempt=1)
    assert not Path(path).exists()


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ({"delta.constraints.positive": "id > 0"}, "the constraint positive"),
        ({"delta.columnMapping.mode": "name"}, "column mapping"),
        ({"delta.enableRowTracking": "true"}, "row tracking"),
        ({"delta.enableInCommitTimestamps": "true"}, "in-commit timestamps"),
        ({"delta.setTransactionRetentionDuration": "interval 6 days 23 hours"}, "SINK_RETENTION_SHORT"),
        ({"delta.setTransactionRetentionDuration": "soon"}, "SINK_RETENTION_SHORT"),
    ],
)
def test_what_an_append_would_not_keep_is_refused_by_name(path: str, properties: dict[str, str], text: str) -> None:
    made(path, properties)
    with pytest.raises(ConfigError, match=text):
        SinkTable(path, {}).check()


@pytest.mark.parametrize(
    "properties",
    [
        {"delta.enableChangeDataFeed": "true", "delta.appendOnly": "true"},
        {"delta.setTransactionRetentionDuration": "interval 1 week"},
        {"delta.setTransactionRetentionDuration": "INTERVAL 30 DAYS"},
    ],
)
def test_what_an_append_keeps_is_taken(path: str, properties: dict[str, str]) -> None:
    made(path, properties)
    sink = SinkTable(path, {})
    plan = sink.plan(COLUMNS)
    assert sink.append(plan, staged(plan, 1), transaction=TXN, attempt=1).fate is Fate.LANDED


def made(path: str, properties: dict[str, str]) -> None:
    """Make a table whose log says so, whatever delta-rs thinks of it."""
    SinkTable(path, {}).plan(COLUMNS)
    entry = Path(path, "_delta_log", f"{0:020d}.json")
    lines = [msgspec.json.decode(line) for line in entry.read_bytes().splitlines()]
    for line in lines:
        if "metaData" in line:
            line["metaData"]["configuration"] |= properties
    entry.write_bytes(b"\n".join(map(msgspec.json.encode, lines)) + b"\n")


@pytest.mark.parametrize(
    "feature", ["rowTracking", "clustering", "icebergCompatV2", "allowColumnDefaults", "identityColumns", "whatComesNext"]
)
def test_features_that_nobody_here_knows_are_refused_by_name(path: str, feature: str) -> None:
    SinkTable(path, {}).plan(COLUMNS)
    entry = Path(path, "_delta_log", f"{0:020d}.json")
    lines = [msgspec.json.decode(line) for line in entry.read_bytes().splitlines()]
    for line in lines:
        if "protocol" in line:
            line["protocol"] = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": [feature]}
    entry.write_bytes(b"\n".join(map(msgspec.json.encode, lines)) + b"\n")
    with pytest.raises(ConfigError, match=f"SINK_FEATURE_UNSUPPORTED.*{feature}"):
        SinkTable(path, {}).check()


def test_a_fence_is_refused_where_nobody_here_knows_what_a_commit_must_say(path: str) -> None:
    """One without a time of its own would make the table unreadable; a constraint asks nothing of what has no rows."""
    made(path, {"delta.enableInCommitTimestamps": "true"})
    with pytest.raises(ConfigError, match="SINK_FEATURE_UNSUPPORTED.*in-commit timestamps"):
        SinkTable(path, {}).fence(transaction=TXN, attempt=1)
    assert DeltaTable(path).version() == 0
    made(f"{path}-checked", {"delta.constraints.positive": "id > 0"})
    assert SinkTable(f"{path}-checked", {}).fence(transaction=TXN, attempt=1).fate is Fate.FENCED


@pytest.mark.parametrize("where", ["{}/booked", "{}", "{}/messages/order"])
def test_a_table_in_the_journal_is_refused(tmp_path: Path, where: str) -> None:
    sink = SinkTable(where.format(tmp_path / "journal"), {})
    with pytest.raises(ConfigError, match="SINK_IN_JOURNAL"):
        sink.refuse_inside(Store(str(tmp_path / "journal")))


@pytest.mark.parametrize("where", ["s3://bucket", "/"])
def test_a_table_needs_a_folder(where: str) -> None:
    with pytest.raises(ConfigError, match=r"BAD_VALUE.*table"):
        SinkTable(where, {})


def test_a_table_is_named_by_its_place_and_not_as_in_a_catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"BAD_VALUE.*'table' in into is 'default\.booked'.*'\./default\.booked'"):
        SinkTable("default.booked", {})
    assert list(tmp_path.iterdir()) == []


def test_two_that_create_the_table_at_once_share_it(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    begin = delta.begin_table

    def after_another(*given: Any, **more: Any) -> bool:
        monkeypatch.setattr(delta, "begin_table", begin)
        SinkTable(path, {}).plan(COLUMNS)
        return begin(*given, **more)

    monkeypatch.setattr(delta, "begin_table", after_another)
    plan = SinkTable(path, {}).plan(COLUMNS)
    assert plan.schema.names == ["id", "day"]


def test_a_stranger_that_uses_the_transaction_id_is_taken_at_its_word(path: str) -> None:
    """Whoever may write the table may say anything of it; nothing is appended twice for it."""
    sink = SinkTable(path, {})
    plan = sink.plan(COLUMNS)
    from deltalake import Transaction

    properties = CommitProperties(app_transactions=[Transaction(TXN, 2)])
    rows: Any = pa.table({"id": pa.array([7]), "day": pa.nulls(1, pa.date32())})
    write_deltalake(path, rows, mode="append", commit_properties=properties)
    assert sink.append(plan, staged(plan, 1), transaction=TXN, attempt=1).fate is Fate.LANDED
    assert ids(path) == [7]


def test_an_empty_text_in_a_partition_that_is_never_null_is_refused(path: str) -> None:
    """In Delta's log it is NULL."""
    columns: list[Any] = [pa.field("id", pa.int64()), pa.field("day", pa.string(), nullable=False)]
    DeltaTable.create(path, pa.schema(columns), partition_by=["day"])
    plan = SinkTable(path, {}).plan([{"name": "id", "type": "long"}, {"name": "day", "type": "string"}])
    values: dict[str, Any] = {"id": [1], "day": [""]}
    rows = pa.record_batch(values)
    with pytest.raises(CallerError, match=r"SINK_SCHEMA_DIFFERS.*column 'day' is empty in a row"):
        next(plan.stage(["id", "day"], [rows]))


def struct_of(*fields: tuple[str, bool]) -> dict[str, Any]:
    """Return a struct of texts, each by its name and whether it may be NULL, as Delta writes it."""
    return {"type": "struct", "fields": [{"name": name, "type": "string", "nullable": may, "metadata": {}} for name, may in fields]}


@pytest.mark.parametrize(
    "nested",
    [
        lambda inner: inner,
        lambda inner: {"type": "array", "elementType": inner, "containsNull": True},
        lambda inner: {"type": "map", "keyType": "string", "valueType": inner, "valueContainsNull": True},
    ],
    ids=["struct", "array", "map"],
)
def test_a_field_of_another_case_is_another_field(path: str, nested: Callable[[Any], Any]) -> None:
    """Files are written by names of fields, and Arrow would find none: NULL in each row."""
    SinkTable(path, {}).plan([{"name": "addr", "type": nested(struct_of(("street", True)))}])
    with pytest.raises(CallerError, match="SINK_SCHEMA_DIFFERS.*column 'ADDR' is .*Street.* in the rows and .*street"):
        SinkTable(path, {}).plan([{"name": "ADDR", "type": nested(struct_of(("Street", True)))}])


def test_a_field_that_may_not_be_null_refuses_the_row_that_lacks_it(path: str) -> None:
    inner: list[Any] = [pa.field("street", pa.string(), nullable=False)]
    DeltaTable.create(path, pa.schema([pa.field("addr", pa.struct(inner))]))
    plan = SinkTable(path, {}).plan([{"name": "addr", "type": struct_of(("street", True))}])
    addresses: dict[str, Any] = {"addr": pa.array([{"street": None}], pa.struct([("street", pa.string())]))}
    with pytest.raises(CallerError, match="SINK_SCHEMA_DIFFERS.*column 'addr' cannot be written.*street.*Leave such rows out"):
        next(plan.stage(["addr"], [pa.record_batch(addresses)]))
