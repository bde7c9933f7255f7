"""Views as batch reads: the planning side folds the control log, and tasks only hand rows on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from spark_queue.errors import JournalError
from spark_queue.source.table_partitions import TablePartition, TableReader

if TYPE_CHECKING:
    from spark_queue.journal.layout import Store
    from spark_queue.settings.types import ViewOptions
    from spark_queue.source.target import Target

#: Most rows of a partition.
PARTITION_ROWS = 50_000


class ViewReader(DataSourceReader):
    """One view of a journal, as it is when Spark plans the read.

    Parameters
    ----------
    options
        Which view, of which queue and moment.
    store, target
        The journal's place, and which journal is meant.
    schema
        What Spark expects of every record batch.
    """

    def __init__(self, options: ViewOptions, *, store: Store, target: Target, schema: pa.Schema) -> None:
        self._options = options
        self._store = store
        self._target = target
        self._schema = schema

    def __reduce__(self) -> tuple[Any, ...]:
        return TableReader, (self._schema,)

    def partitions(self) -> list[InputPartition]:
        """Read the view and cut it."""
        table = self._table()
        return [TablePartition(table.slice(row, PARTITION_ROWS)) for row in range(0, table.num_rows, PARTITION_ROWS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of a partition; executors run the same of `TableReader`."""
        return TableReader(self._schema).read(partition)

    def _table(self) -> pa.Table:
        from spark_queue.journal.open import open_journal
        from spark_queue.views import read_view, state_at

        journal = open_journal(self._store)
        if journal.journal_id != self._target.journal_id:
            raise JournalError(
                "JOURNAL_MISMATCH", expected=self._target.journal_id, path=self._store.path, found=journal.journal_id
            )
        return read_view(self._store, state_at(journal, self._options.as_of), self._options.view, self._options.queue)
