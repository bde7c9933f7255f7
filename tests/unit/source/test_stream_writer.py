"""The writer's side towards Spark: what becomes of staged files when a commit fails or is never tried (DESIGN 4, 7)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spark_queue.errors import CallerError, JournalError
from spark_queue.journal import delta
from spark_queue.protocol.connection import LOCAL, Endpoint
from spark_queue.source.stream_writer import BatchWriter, StreamWriter, WriteJob
from tests.unit.journal.journal_on_disk import Disk, orders


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path / "journal")


def job(disk: Disk, *, topic: str = "ORDERS", endpoint: Endpoint = LOCAL) -> WriteJob:
    return WriteJob(
        journal_id=disk.journal_id,
        endpoint=endpoint,
        plans={"order": disk.plan(topic)},
        message_type="order",
        definitions={},
        publisher=None,
        sequence_column=None,
    )


def files(disk: Disk) -> int:
    return len(list(Path(disk.store.messages_uri("order")).glob("*.parquet")))


@pytest.mark.parametrize("abort", [BatchWriter.abort, lambda writer, messages: StreamWriter.abort(writer, messages, 1)])
def test_commit_whose_reply_was_lost_keeps_its_files_through_the_abort(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, abort: Callable[[Any, Any], None]
) -> None:
    """Spark aborts with every message after a commit that raised, also where the log has it: deleting would lose the rows."""

    def unreachable(*_: Any) -> None:
        raise JournalError("STORE_FAILED", path="/j", doing="reading", reason="it is away.", next_step="Wait.")

    writer = BatchWriter(job(disk))
    staged = [writer.write(iter(orders([1, 2]).to_batches()))]
    with monkeypatch.context() as patch:
        patch.setattr(delta, "refresh", unreachable)
        with pytest.raises(JournalError, match=r"STORE_FAILED.*Whether the commit arrived is not known"):
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
