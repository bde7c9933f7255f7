"""Message files: row groups and the statistics of their add actions (DESIGN 15.17)."""

from __future__ import annotations

import errno
import pickle
import resource
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_queue.errors import JournalError
from spark_queue.journal import staging
from spark_queue.journal.sql_types import INSTANT
from spark_queue.journal.staging import stage_file
from spark_queue.journal.store_files import LocalSink
from tests.source_tree import ROOT
from tests.unit.journal.journal_on_disk import Disk, orders


def test_staged_file_tells_what_is_in_it(disk: Disk) -> None:
    expires = pa.array([None, 5_000_001, 9_000_000], INSTANT)
    rows = pa.table({"id": [1, 2, 3], "topic": ["RETURNS", "ORDERS", "RETURNS"], "expires_at": expires})
    file = stage_file(disk.plan(None), rows.to_batches(), now_ms=7)
    assert file is not None
    assert (file.row_count, file.topics, file.first_sequence, file.last_sequence) == (3, ("ORDERS", "RETURNS"), 1, 3)
    path = Path(disk.store.messages_uri("order")) / file.path
    assert path.stat().st_size == file.size_bytes
    assert file.stats() == {
        "numRecords": 3,
        "minValues": {"topic": "ORDERS", "expires_at": "1970-01-01T00:00:05.000Z"},
        "maxValues": {"topic": "RETURNS", "expires_at": "1970-01-01T00:00:09.000Z"},
        "nullCount": {"topic": 0, "expires_at": 1},
    }
    assert file.topics == ("ORDERS", "RETURNS")
    assert pickle.loads(pickle.dumps(file)) == file


def test_the_last_moment_that_there_is_may_be_when_a_message_expires(disk: Disk) -> None:
    """Many write so what never expires; as a text there is no later one to widen it to."""
    rows = pa.table({"id": [1], "topic": ["ORDERS"], "expires_at": pa.array([datetime.max.replace(tzinfo=UTC)], INSTANT)})
    file = stage_file(disk.plan(None), rows.to_batches(), now_ms=7)
    assert file is not None
    last = {"topic": "ORDERS", "expires_at": "9999-12-31T23:59:59.999Z"}
    assert [file.stats()[bound] for bound in ("minValues", "maxValues")] == [last, last]


def test_staging_no_rows_writes_no_file(disk: Disk) -> None:
    assert stage_file(disk.plan(), [], now_ms=0) is None
    assert stage_file(disk.plan(), orders([]).to_batches(), now_ms=0) is None
    assert list(Path(disk.store.messages_uri("order")).glob("*.parquet")) == []


def test_small_batches_share_a_row_group_and_large_bodies_do_not(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    def groups(batches: list[pa.RecordBatch]) -> list[int]:
        file = stage_file(disk.plan(), batches, now_ms=0)
        assert file is not None
        metadata = pq.read_metadata(Path(disk.store.messages_uri("order")) / file.path)
        return [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]

    monkeypatch.setattr(staging, "ROW_GROUP_ROWS", 25)
    assert groups(orders(range(60)).to_batches(max_chunksize=10)) == [25, 5, 25, 5]
    monkeypatch.setattr(staging, "ROW_GROUP_BYTES", 10_000)
    large = pa.table({"id": range(6), "item": ["x" * 4_000] * 6})
    assert groups(large.to_batches()) == [2, 2, 2]


def test_sequences_must_ascend_from_batch_to_batch(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    from spark_queue.errors import CallerError
    from spark_queue.journal.stored_rows import Sequences

    monkeypatch.setattr(staging, "ROW_GROUP_ROWS", 2)
    batches = orders([1, 2, 2, 3]).to_batches(max_chunksize=2)
    with pytest.raises(CallerError, match=r"SEQUENCE_NOT_ASCENDING.*sequence 2 follows 2"):
        stage_file(disk.plan(), batches, now_ms=0, sequences=Sequences(publisher="p", column="id"))
    assert list(Path(disk.store.messages_uri("order")).glob("*.parquet")) == []


def test_staging_into_a_missing_directory_says_so(disk: Disk) -> None:
    Path(disk.store.messages_uri("order")).rename(Path(disk.store.path) / "moved")
    with pytest.raises(JournalError, match="STORE_FAILED"):
        stage_file(disk.plan(), orders([1]).to_batches(), now_ms=0)


def test_write_that_fails_says_what_it_failed_with(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever closing the file says on top of it."""

    write = LocalSink.write

    def fill(sink: LocalSink, data: bytes) -> int:
        if sink.tell():
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(sink, data)

    monkeypatch.setattr(LocalSink, "write", fill)
    with pytest.raises(JournalError, match=r"STORE_FAILED.*No space left"):
        stage_file(disk.plan(), orders(range(100_000)).to_batches(), now_ms=0)
    assert list(Path(disk.store.messages_uri("order")).glob("*.parquet")) == []


def test_a_disk_that_takes_a_part_of_the_last_bytes_is_full(disk: Disk) -> None:
    """pyarrow does not look how much of what it writes was taken, and would leave a file whose last bytes are missing."""
    whole = stage_file(disk.plan(), orders([1]).to_batches(), now_ms=0)
    assert whole is not None
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (whole.size_bytes - 1, before[1]))
        with pytest.raises(JournalError, match=r"STORE_FAILED.*File too large"):
            stage_file(disk.plan(), orders([1]).to_batches(), now_ms=0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [file.name for file in Path(disk.store.messages_uri("order")).glob("*.parquet")] == [whole.path]


def test_staging_loads_neither_delta_nor_the_core() -> None:
    """Executors stage; what they load is what a cluster pays for every Python worker."""
    code = (
        "import sys, spark_queue.journal.staging as s;"
        "print([m for m in sys.modules if m.partition('.')[0] in ('deltalake','pyspark','sqlglot','duckdb','re2','pandas')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"
