"""Reads as Spark makes them, without a JVM: what is shipped to executors is pickled, since they get nothing else."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader

from spark_queue import Journal
from spark_queue.source.datasource import SparkQueueDataSource


def source(journal: Journal, **options: str) -> SparkQueueDataSource:
    return SparkQueueDataSource({"path": journal.path, **options})


def batch(journal: Journal, **options: str) -> DataSourceReader:
    made = source(journal, **options)
    return made.reader(made.schema())


def stream(journal: Journal, **options: str) -> DataSourceStreamReader:
    made = source(journal, **options)
    return made.streamReader(made.schema())


def read(reader: DataSourceReader | DataSourceStreamReader, partitions: Any) -> pa.Table:
    shipped = pickle.loads(pickle.dumps(reader))
    found: list[pa.RecordBatch] = []
    for partition in pickle.loads(pickle.dumps(list(partitions))):
        found.extend(shipped.read(partition))
    return pa.Table.from_batches(found) if found else pa.table({"id": [], "bookmark": []})


def ids(reader: DataSourceReader) -> list[Any]:
    return read(reader, reader.partitions()).column("id").to_pylist()


def between(reader: DataSourceStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[Any]:
    return read(reader, reader.partitions(start, end)).column("id").to_pylist()
