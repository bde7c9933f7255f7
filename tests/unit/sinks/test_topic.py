"""A topic as a sink: an attempt is one commit of messages, or a fence is, whoever comes first (R123 to R125, DESIGN 19)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from spark_queue.core.replies import AttemptTold
from spark_queue.errors import CallerError, ConfigError, JournalError
from spark_queue.journal.staging import StagedFile
from spark_queue.sinks.sink import Fate, Landing, transaction_id
from spark_queue.sinks.table import SinkTable
from spark_queue.sinks.topic import SinkTopic, TopicPlan, sink_at
from tests.unit.journal.journal_on_disk import Disk

COLUMNS: list[dict[str, Any]] = [{"name": "ID", "type": "long"}, {"name": "item", "type": "string"}]
TXN = transaction_id("j", "Q", "s")


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path / "journal")


@pytest.fixture
def sink(disk: Disk) -> SinkTopic:
    return SinkTopic(disk.store, disk.journal_id, "order", "ORDERS")


def staged(plan: TopicPlan, *ids: int) -> list[StagedFile]:
    columns: dict[str, Any] = {"c0": pa.array(ids, pa.int64()), "c1": [f"item {number}" for number in ids]}
    rows = pa.record_batch(columns)
    texts: list[Any] = next(plan.stage(["ID", "item"], [rows])).column(0).to_pylist()
    return [msgspec.json.decode(text, type=StagedFile) for text in texts]


def test_an_attempt_is_one_commit_of_messages_however_often_it_is_made(disk: Disk, sink: SinkTopic) -> None:
    plan = sink.plan(COLUMNS)
    files = staged(plan, 1, 2) + staged(plan, 3)
    assert sink.append(plan, files, transaction=TXN, attempt=4) == Landing(Fate.LANDED, 1)
    assert sink.append(plan, files, transaction=TXN, attempt=4).fate is Fate.LANDED
    assert sink.fence(transaction=TXN, attempt=4).fate is Fate.LANDED
    assert (disk.ids(), disk.tail_rows(), sink.transaction_version(TXN)) == ([1, 2, 3], 3, 8)


def test_what_is_fenced_is_never_published(disk: Disk, sink: SinkTopic) -> None:
    plan = sink.plan(COLUMNS)
    files = staged(plan, 1)
    other = sink_at(disk.store, disk.journal_id, sink.name)
    assert other.fence(transaction=TXN, attempt=1) == Landing(Fate.FENCED)
    assert sink.append(plan, files, transaction=TXN, attempt=1).fate is Fate.FENCED
    sink.discard(files)
    assert (disk.ids(), list(Path(disk.store.uri(sink.name)).glob("*.parquet"))) == ([], [])
    assert sink.append(plan, staged(plan, 2), transaction=TXN, attempt=2).fate is Fate.LANDED
    assert disk.ids() == [2]


def test_an_attempt_without_messages_lands_too(disk: Disk, sink: SinkTopic) -> None:
    plan = sink.plan(COLUMNS)
    assert staged(plan) == []
    assert sink.append(plan, [], transaction=TXN, attempt=1).fate is Fate.LANDED
    assert sink.fence(transaction=TXN, attempt=1).fate is Fate.LANDED
    assert disk.tail_rows() == 0


def test_who_decides_finds_the_sink_by_its_name_wherever_the_journal_lies(disk: Disk, sink: SinkTopic, tmp_path: Path) -> None:
    plan = sink.plan(COLUMNS)
    sink.append(plan, staged(plan, 1), transaction=transaction_id(disk.journal_id, "Q", "s"), attempt=1)
    told = AttemptTold(subscription="s", attempt=1, table=sink.name, table_id=sink.id(), lease=1, prepared_at_ms=0, due_at_ms=0)
    Path(disk.store.path).rename(tmp_path / "moved")
    moved = sink_at(type(disk.store)(str(tmp_path / "moved")), disk.journal_id, told.table)
    assert moved.decide(told, journal_id=disk.journal_id, queue="Q").fate is Fate.LANDED
    with pytest.raises(JournalError, match=r"SINK_UNREADABLE.*Another table"):
        moved.decide(msgspec.structs.replace(told, table_id="x"), journal_id=disk.journal_id, queue="Q")
    assert isinstance(sink_at(disk.store, disk.journal_id, str(tmp_path / "t")), SinkTable)


def test_rows_that_are_no_messages_of_the_type_are_refused_by_name(disk: Disk, sink: SinkTopic) -> None:
    with pytest.raises(CallerError, match="UNKNOWN_COLUMN.*price"):
        sink.plan([*COLUMNS, {"name": "price", "type": "double"}])
    with pytest.raises(CallerError, match="SINK_SCHEMA_DIFFERS"):
        sink.plan([])
    assert sink.taken(["bookmark", "Item", "topic", "expires_at", "id"]) == ["Item", "id"]
    with pytest.raises(ConfigError, match="UNKNOWN_TOPIC"):
        SinkTopic(disk.store, disk.journal_id, "order", "NOWHERE").check()
    with pytest.raises(CallerError, match="TOPIC_OF_OTHER_TYPE"):
        SinkTopic(disk.store, disk.journal_id, "order", "EVENTS").check()


def test_a_log_that_cannot_be_read_is_no_answer(disk: Disk, sink: SinkTopic) -> None:
    plan = sink.plan(COLUMNS)
    files = staged(plan, 1)
    disk.log_path(sink.name, 1).write_bytes(b'{"add": 1}\n')
    with pytest.raises(JournalError, match="SINK_FAILED"):
        sink.append(plan, files, transaction=TXN, attempt=1)
