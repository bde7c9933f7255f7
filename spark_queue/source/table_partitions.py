"""Rows that were read where Spark plans, on their way through tasks; imports pyarrow only, like `partitions`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition


class TablePartition(InputPartition):
    """Some rows of a table."""

    def __init__(self, rows: pa.Table) -> None:
        sink = pa.BufferOutputStream()
        # An Arrow stream holds these rows only, where a pickled slice would carry the whole table along.
        with pa.ipc.new_stream(sink, rows.schema) as stream:
            stream.write_table(rows)
        super().__init__(sink.getvalue().to_pybytes())


@dataclass(frozen=True, slots=True)
class TableReader:
    """Gives the rows of such partitions in exactly the schema that Spark asked for."""

    schema: pa.Schema

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of a partition, by column name."""
        if not isinstance(partition, TablePartition):
            # Spark plans one empty partition where there is none.
            return iter(())
        rows = pa.ipc.open_stream(partition.value).read_all()
        return iter(rows.select(self.schema.names).cast(self.schema).to_batches())
