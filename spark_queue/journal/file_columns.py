"""The columns of messages in one file: under other names in a followed table, and some of them in no file (R150).

This module imports pyarrow and numpy only, because every Python worker of a cluster loads it before its first row.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_queue.declared_types import as_declared

if TYPE_CHECKING:
    from spark_queue.core.message_files.segment import Segment
    from spark_queue.journal.folder import Folder


@dataclass(frozen=True, slots=True, kw_only=True)
class FileColumns:
    """How the columns of messages are found in one file."""

    #: The address of the followed table that has the file; empty for a file of the journal.
    table: str = ""
    #: The name in the file of each column; None where every column has its own. One that is not named is NULL.
    names: Mapping[str, str] | None = None
    #: The values of columns that stand in no file, or may stand there with others, as Delta's log writes them; None for NULL.
    values: Mapping[str, str | None] = field(default_factory=dict)
    #: The bookmark of the file's first row: its sequence. None where the file has sequences.
    first: int | None = None
    #: The number of rows that the file must have; None where that is looked at elsewhere.
    rows: int | None = None

    def stored(self, columns: Iterable[str], there: Iterable[str]) -> list[str]:
        """Return the names of columns as far as the file has them, which are those `there`."""
        wanted = [self._name_of(name) for name in columns if name not in self.values]
        return [name for name in there if name in wanted]

    def column(self, rows: Any, name: str, kind: pa.DataType | None, count: int, row_numbers: Callable[[], NDArray[Any]]) -> Any:
        """Return a column of rows that were read from the file, as a type; None where neither the file nor its log has it.

        Without a type a stored column is as the file has it. There are `count` rows, also where no column of theirs was read, and
        `row_numbers` gives their numbers in the file.
        """
        if name in self.values:
            value: Any = pa.scalar(self.values[name], pa.string())
            return pa.repeat(value if kind is None else value.cast(kind), count)
        if name == "sequence" and self.first is not None:
            # By its bytes: `pa.array` loads pandas, which takes longer than all the work of a small task.
            numbers = np.ascontiguousarray(row_numbers() + self.first, dtype=np.int64)
            return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers.data)])
        stored = self._name_of(name)
        if stored is None or stored not in rows.schema.names:
            return None
        column = rows.column(stored)
        return column if kind is None else as_declared(column, kind)

    def filled(self, rows: Any, name: str, kind: Any, count: int, row_numbers: Callable[[], NDArray[Any]]) -> Any:
        """Return a column as `column` does, NULL in every row where that finds none."""
        found = self.column(rows, name, kind, count, row_numbers)
        return pa.nulls(count, kind) if found is None else found

    def _name_of(self, column: str) -> str | None:
        return column if self.names is None else self.names.get(column)

    def check(self, folder: Folder, path: str, found: int) -> None:
        """Refuse a file that has another number of rows than it must have: its places would be those of other rows."""
        if self.rows is not None and found != self.rows:
            raise folder.corrupt(path, f"it has {found} rows instead of {self.rows}.")

    def to_text(self) -> str:
        """Return it as a text, for who reads the file elsewhere."""
        return json.dumps(asdict(self))


#: The columns of a file of the journal.
OWN = FileColumns()


def from_text(text: str | None) -> FileColumns:
    """Return the columns that `to_text` wrote; those of a file of the journal where there is no text."""
    return OWN if text is None else FileColumns(**json.loads(text))


def text_of(segment: Segment) -> str | None:
    """Return the columns of a segment's file as a text; None for a file of the journal."""
    return None if segment.table is None else columns_of(segment).to_text()


def columns_of(segment: Segment) -> FileColumns:
    """Return how the columns of a segment's file are found."""
    if segment.table is None:
        return OWN
    by_file = {physical: name for name, physical, _ in segment.table.columns}
    # An empty text is NULL to Delta.
    parted = {by_file[physical]: value or None for physical, value in segment.partition.items() if physical in by_file}
    published_at = np.datetime_as_string(np.datetime64(segment.published_at_ms, "ms"), unit="ms")
    envelope = {
        "topic": segment.topic_min, "publisher": segment.table.publisher, "published_at": f"{published_at}Z", "expires_at": None,
    }  # fmt: skip
    return FileColumns(
        table=segment.table.table,
        names=dict(segment.table.names),
        values=parted | envelope,
        first=segment.first - segment.first_row,
        rows=None if segment.merged else segment.row_count,
    )
