"""A table in an object store as a sink: racing consumers, and stores that keep no version safe (R123 to R125, DESIGN 19)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from spark_queue.errors import JournalError
from spark_queue.sinks.sink import Fate, transaction_id
from spark_queue.sinks.table import SinkTable
from tests.integration.s3_gateway import KINDS, s3_server_of
from tests.integration.s3_server import BUCKET, UNCONDITIONAL, S3Server, objects, s3_server
from tests.unit.sinks.test_table import staged

COLUMNS: list[dict[str, Any]] = [{"name": "id", "type": "long"}]
TABLE = f"s3://{BUCKET}/booked"
CONSUMERS, BATCHES = 3, 8


@pytest.fixture(params=KINDS)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[S3Server]:
    with s3_server_of(request.param, tmp_path) as server:
        yield server


def test_consumers_that_race_for_versions_append_each_batch_once_or_are_fenced(server: S3Server) -> None:
    """Each consumer appends while another one decides about the same attempt, as an operator might.

    Neither asks about an attempt before the one before it is decided, as the coordinator sees to it: a table tells of the newest.
    """
    both = threading.Barrier(2)
    fates: dict[int, set[Fate]] = {number: set() for number in range(CONSUMERS * BATCHES)}

    def append(consumer: int) -> None:
        sink = SinkTable(TABLE, server.options)
        plan = sink.plan(COLUMNS)
        for attempt in range(BATCHES):
            number = consumer * BATCHES + attempt
            transaction = transaction_id("j", "Q", f"s{consumer}")
            files = staged(plan, number)
            if consumer == 0:
                both.wait(60)
            fates[number].add(sink.append(plan, files, transaction=transaction, attempt=attempt).fate)

    def decide() -> None:
        sink = SinkTable(TABLE, server.options)
        for attempt in range(BATCHES):
            both.wait(60)
            # Of the first consumer alone: the others' batches have to land.
            fates[attempt].add(sink.fence(transaction=transaction_id("j", "Q", "s0"), attempt=attempt).fate)

    SinkTable(TABLE, server.options).plan(COLUMNS)
    workers = [threading.Thread(target=append, args=(consumer,)) for consumer in range(CONSUMERS)]
    workers.append(threading.Thread(target=decide))
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    there = sorted(row["id"] for row in DeltaTable(TABLE, storage_options=server.options).to_pyarrow_table().to_pylist())
    assert there == [number for number, found in fates.items() if found == {Fate.LANDED}]
    # Whoever asked heard the same.
    assert {len(found) for found in fates.values()} == {1}
    assert set(range(BATCHES, CONSUMERS * BATCHES)) <= set(there)


def test_a_store_without_conditional_puts_is_refused_before_a_table_is_made() -> None:
    with s3_server(UNCONDITIONAL) as server:
        with pytest.raises(JournalError, match="STORE_UNSAFE"):
            SinkTable(TABLE, server.options).plan(COLUMNS)
        assert not objects(server.endpoint)
