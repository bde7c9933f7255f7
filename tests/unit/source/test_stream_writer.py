"""The writer's side towards Spark: what becomes of staged files when a commit fails or is never tried (DESIGN 4, 7)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spark_queue.errors import CallerError, JournalError
from spark_queue.journal.store import Store
from spark_queue.protocol.endpoint import LOCAL, Endpoint
from spark_queue.source import committing
from spark_queue.source.stream_writer import BatchWriter, StreamWriter
from spark_queue.source.write_job import Staged, WriteJob
from tests.unit.journal.journal_on_disk import Disk, orders
from tests.unit.journal.lost_reply import lose_reply


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path / "journal")


def job(disk: Disk, *, topic: str = "ORDERS", endpoint: Endpoint = LOCAL, **told: Any) -> WriteJob:
    return WriteJob(
        journal_id=disk.journal_id,
        endpoint=endpoint,
        plans={"order": disk.plan(topic)},
        message_type="order",
        definitions={},
        publisher=None,
        sequence_column=None,
        **told,
    )


def files(disk: Disk) -> int:
    return len(list(Path(disk.store.messages_uri("order")).glob("*.parquet")))


@pytest.mark.parametrize("abort", [BatchWriter.abort, lambda writer, messages: StreamWriter.abort(writer, messages, 1)])
def test_commit_whose_reply_was_lost_keeps_its_files_through_the_abort(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, abort: Callable[[Any, Any], None]
) -> None:
    """Spark aborts with every message after a commit that raised, also where the log has it: deleting would lose the rows."""

    writer = BatchWriter(job(disk))
    staged = [writer.write(iter(orders([1, 2]).to_batches()))]
    with monkeypatch.context() as patch:
        lose_reply(patch)
        with pytest.raises(JournalError, match=r"STORE_FAILED.*It is unknown whether the commit arrived"):
            writer.commit(staged)
    abort(writer, staged)
    assert disk.ids() == [1, 2]


def test_abort_after_a_failed_task_deletes_what_the_others_staged(disk: Disk) -> None:
    writer = BatchWriter(job(disk))
    staged = writer.write(iter(orders([1]).to_batches()))
    writer.abort([staged, None])
    assert files(disk) == 0


def test_write_of_no_rows_commits_nothing(disk: Disk) -> None:
    writer = BatchWriter(job(disk))
    writer.commit([writer.write(iter([])), writer.write(iter([]))])
    writer.abort([writer.write(iter([])), None])
    assert (files(disk), disk.tail_rows()) == (0, 0)


def test_refused_commit_leaves_no_file(disk: Disk) -> None:
    writer = BatchWriter(job(disk, topic="EVENTS"))
    staged = [writer.write(iter(orders([1]).to_batches()))]
    with pytest.raises(CallerError, match="TOPIC_OF_OTHER_TYPE"):
        writer.commit(staged)
    assert (files(disk), disk.tail_rows()) == (0, 0)


@pytest.mark.parametrize("address", ["no address:1", "[::1"])
def test_published_write_does_not_fail_when_nobody_can_be_nudged(disk: Disk, monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    """A driver without a home directory cannot make the token file; Spark would call the write failed, and abort it."""
    monkeypatch.setenv("XDG_STATE_HOME", "/dev/null/nowhere")
    writer = BatchWriter(job(disk, endpoint=Endpoint(address)))
    writer.commit([writer.write(iter(orders([1]).to_batches()))])
    writer = BatchWriter(job(disk))
    writer.commit([writer.write(iter(orders([2]).to_batches()))])
    assert disk.ids() == [1, 2]


def batch(disk: Disk, number: int, ids: list[int], *, checkpoint: Path | None, query: str = "query") -> None:
    """Publish a micro-batch of a query, whose writer sums up columns where nothing tells what Spark has planned."""
    told = job(disk, checkpoint=None if checkpoint is None else str(checkpoint))
    if checkpoint is None:
        told = replace(told, plans={name: replace(plan, sums_columns=True) for name, plan in told.plans.items()})
    staged = StreamWriter(told)
    file = BatchWriter(told).write(iter(orders(ids).to_batches())).file
    staged.commit([Staged(message_type="order", file=file, query_id=query)], number)


def plan(checkpoint: Path, number: int, offsets: str) -> None:
    (checkpoint / "offsets").mkdir(parents=True, exist_ok=True)
    (checkpoint / "offsets" / str(number)).write_text(offsets)


def test_batch_is_known_by_what_spark_has_planned(disk: Disk, tmp_path: Path) -> None:
    """R94: its repeat may compute other rows, and the same rows under another plan are no repeat."""
    plan(tmp_path, 0, "v1\n{}\n5")
    batch(disk, 0, [1, 2], checkpoint=tmp_path)
    batch(disk, 0, [8, 9], checkpoint=tmp_path)
    plan(tmp_path, 0, "v1\n{}\n7")
    with pytest.raises(CallerError, match="CHECKPOINT_BEHIND.*Query query .*batch 0 to"):
        batch(disk, 0, [1, 2], checkpoint=tmp_path)
    batch(disk, 0, [3], checkpoint=tmp_path, query="another")
    assert disk.ids() == [1, 2, 3]
    assert files(disk) == 2, "what is not published is not left lying about"


def test_batch_that_spark_has_not_planned_there_is_refused(disk: Disk, tmp_path: Path) -> None:
    """Its repeat could not be told."""
    with pytest.raises(CallerError, match=r"PUBLISHER_IDENTITY_UNKNOWN.*no offsets of batch 0"):
        batch(disk, 0, [1], checkpoint=tmp_path)
    assert (files(disk), disk.tail_rows()) == (0, 0)


def test_batch_of_a_checkpoint_that_cannot_be_read_is_known_by_its_rows(disk: Disk) -> None:
    """R94."""
    batch(disk, 0, [1, 2], checkpoint=None)
    batch(disk, 0, [2, 1], checkpoint=None)
    for others in ([1, 3], [1, 2, 3], [1]):
        with pytest.raises(CallerError, match="CHECKPOINT_BEHIND"):
            batch(disk, 0, others, checkpoint=None)
    batch(disk, 1, [1, 3], checkpoint=None)
    assert disk.ids() == [1, 1, 2, 3]


def test_checkpoint_is_read_where_credentials_are_known(tmp_path: Path) -> None:
    """A directory, or a store of the journal's kind; to look for other credentials in vain takes seconds."""
    (tmp_path / "metadata").write_text("{}")
    here = Store(str(tmp_path / "journal"))
    assert committing.readable_checkpoint(str(tmp_path), here) == Store(str(tmp_path))
    assert committing.readable_checkpoint(f"file:{tmp_path}", Store("s3://bucket/shop")) == Store(str(tmp_path))
    for location in (None, str(tmp_path / "nothing"), "hdfs://name:9000/checkpoint", "dbfs:/checkpoint", "s3a://bucket/checkpoint"):
        assert committing.readable_checkpoint(location, here) is None
