"""Views as batch reads: the planning side folds the control log; tasks hand rows on, and import pyarrow and no more for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from spark_queue.errors import JournalError

if TYPE_CHECKING:
    from spark_queue.settings.types import ViewOptions


#: Most rows of a partition.
PARTITION_ROWS = 50_000


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


class ViewReader(DataSourceReader):
    """One view of a journal, as it is when Spark plans the read."""

    def __init__(self, options: ViewOptions, journal_id: str, *, schema: pa.Schema) -> None:
        self._options = options
        self._journal_id = journal_id
        self._schema = schema

    def __reduce__(self) -> tuple[Any, ...]:
        return TableReader, (self._schema,)

    def partitions(self) -> list[InputPartition]:
        """Read the view and cut it."""
        from spark_queue.journal.open import open_journal
        from spark_queue.journal.store import Store
        from spark_queue.views import read_view, state_at

        journal = open_journal(Store(self._options.journal, self._options.storage))
        if journal.journal_id != self._journal_id:
            raise JournalError("JOURNAL_MISMATCH", expected=self._journal_id, path=journal.path, found=journal.journal_id)
        table = read_view(state_at(journal, self._options.as_of), self._options.view, self._options.queue)
        return [TablePartition(table.slice(row, PARTITION_ROWS)) for row in range(0, table.num_rows, PARTITION_ROWS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of a partition; executors run the same of `TableReader`."""
        return TableReader(self._schema).read(partition)
