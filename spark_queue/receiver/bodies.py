"""The rows of messages in hand: read from their files, each row group once while it is used."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from spark_queue.declared_types import as_declared
from spark_queue.errors import CallerError, nearest
from spark_queue.journal.file_columns import FileColumns, from_text
from spark_queue.journal.folder import Folder, of_table, of_type
from spark_queue.journal.opening import opened
from spark_queue.journal.schema import stored_schema, user_schema
from spark_queue.journal.store import Store

#: Decoded row groups that are kept, in bytes: a group has many messages, and they come a few at a time.
KEPT_BYTES = 64 * 1024 * 1024


def brought_up(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows with the columns of a schema, beside any others: one that was appended since is NULL, a retyped one is cast."""
    for field in schema:
        number = table.schema.get_field_index(field.name)
        if number < 0:
            table = table.append_column(field, pa.nulls(table.num_rows, field.type))
        elif table.field(number).type != field.type:
            table = table.set_column(number, field, as_declared(table.column(number), field.type))
    return table


class BodyRows:
    """Some rows of a message file; a column becomes Python's values when somebody asks for it."""

    __slots__ = ("_columns", "_of_user", "message_type", "table")

    def __init__(self, table: pa.Table, of_user: Sequence[str], message_type: str) -> None:
        self.table, self.message_type = table, message_type
        self._of_user = of_user
        self._columns: dict[str, list[Any]] = {}

    def value(self, name: str, row: int) -> Any:
        """Return the value of a column in one row."""
        known = self._columns.get(name)
        if known is None:
            if name not in self.table.column_names:
                columns = list(self.table.column_names)
                raise CallerError(
                    "UNKNOWN_COLUMN", column=name, where="the message", nearest=nearest(name, columns), columns=", ".join(columns)
                )
            column = self.table.column(name)
            try:
                known = self._columns[name] = column.to_pylist()
            except (ValueError, OverflowError):
                # A value that Python does not have is the failure of its own message.
                return column[row].as_py()
        return known[row]

    def body(self, row: int) -> Mapping[str, Any]:
        """Return the values of one row, by the columns of its message type."""
        return {name: self.value(name, row) for name in self._of_user}


class MessageBodies:
    """Reads rows of the message files of one message type, which has `columns`, as Spark DDL."""

    def __init__(self, store: Store, message_type: str, columns: str, *, kept_bytes: int = KEPT_BYTES) -> None:
        self._store = store
        self.message_type = message_type
        #: As Spark DDL.
        self.columns = columns
        self._schema = user_schema(columns)
        self._stored_schema = stored_schema(columns)
        self._kept_bytes = kept_bytes
        #: By path: the number of rows before each row group, and of all.
        self._groups: dict[str, list[int]] = {}
        #: By path and number of a row group, the last used last.
        self._decoded: OrderedDict[tuple[str, int], pa.Table] = OrderedDict()
        self._size_bytes = 0

    def rows(self, path: str, first_row: int, count: int, columns: str | None = None) -> Iterator[BodyRows]:
        """Yield a stretch of rows of a file, part by part; `columns` say how those of a followed table's file are found.

        Raises
        ------
        JournalError
            MESSAGE_FILE_MISSING, MESSAGE_FILE_CORRUPT or STORE_FAILED.
        """
        until, of_file = first_row + count, from_text(columns)
        starts = self._starts(path, of_file)
        if until > starts[-1]:
            raise self._folder(of_file).corrupt(path, f"it has {starts[-1]} rows instead of at least {until}.")
        names = self._schema.names
        for number, (start, end) in enumerate(pairwise(starts)):
            if start < until and first_row < end:
                low = max(first_row, start)
                yield BodyRows(
                    self._group(path, number, of_file, start).slice(low - start, min(until, end) - low), names, self.message_type
                )

    def _folder(self, of_file: FileColumns) -> Folder:
        return of_table(self._store, of_file.table) if of_file.table else of_type(self._store, self.message_type)

    def _starts(self, path: str, of_file: FileColumns) -> list[int]:
        starts = self._groups.get(path)
        if starts is None:
            folder = self._folder(of_file)
            with opened(folder, path) as file:
                of_file.check(folder, path, file.metadata.num_rows)
                starts = [0]
                for number in range(file.metadata.num_row_groups):
                    starts.append(starts[-1] + file.metadata.row_group(number).num_rows)
                if len(starts) == 2:
                    # Nearly every file is one row group, and is open now.
                    self._keep(
                        (path, 0),
                        self._fitted(file.read(columns=self._stored(file, of_file), use_threads=False), of_file, 0, starts[-1]),
                    )
            if len(self._groups) > 1024:
                self._groups.clear()
            self._groups[path] = starts
        return starts

    def _group(self, path: str, number: int, of_file: FileColumns, start: int) -> pa.Table:
        known = self._decoded.get((path, number))
        if known is not None:
            self._decoded.move_to_end((path, number))
            return known
        with opened(self._folder(of_file), path) as file:
            count = file.metadata.row_group(number).num_rows
            table = self._fitted(
                file.read_row_group(number, columns=self._stored(file, of_file), use_threads=False), of_file, start, count
            )
        self._keep((path, number), table)
        return table

    def _keep(self, place: tuple[str, int], table: pa.Table) -> None:
        before = self._decoded.pop(place, None)
        self._decoded[place] = table
        self._size_bytes += table.nbytes - (0 if before is None else before.nbytes)
        while self._size_bytes > self._kept_bytes and len(self._decoded) > 1:
            _, last = self._decoded.popitem(last=False)
            self._size_bytes -= last.nbytes

    def _stored(self, file: pq.ParquetFile, of_file: FileColumns) -> list[str] | None:
        """Return the columns to read: all of a file of ours, which has no others than those of messages."""
        return None if of_file.names is None else of_file.stored(self._stored_schema.names, file.schema_arrow.names)

    def _fitted(self, table: pa.Table, of_file: FileColumns, start: int, count: int) -> pa.Table:
        """Return a table with the columns of its message type as they are declared by now; one that was appended since is NULL."""
        if of_file.names is not None:
            return self._of_table(table, of_file, start, count)
        # A copy of a followed table's file has the columns that were declared when it was made.
        return brought_up(table, self._schema)

    def _of_table(self, table: pa.Table, of_file: FileColumns, start: int, count: int) -> pa.Table:
        """Return rows of a followed table's file, the first of which is row `start`, as if they had been published."""
        found = [
            of_file.filled(table, each.name, each.type, count, lambda: np.arange(start, start + count))
            for each in self._stored_schema
        ]
        return pa.table(found, schema=self._stored_schema)
