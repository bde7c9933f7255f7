"""Parquet files from outside, read part by part: a small file must not fill the memory (DESIGN 17.3).

Pages are compressed, and a dictionary lets one long text stand in many rows. So texts are read as references to their dictionary,
and measured, before they are written out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_queue.replication.parquet_footer import value_counts

#: Most rows of a row group; ours have 32,768.
GROUP_ROWS = 2**20

#: Most values of a column in a row group, in which one row may have a list of any length.
GROUP_VALUES = 2**26

#: Most bytes of a footer; ours have some kilobytes for each row group.
FOOTER_BYTES = 16 * 1024 * 1024

#: Most bytes of a row group and of a part of it in memory; ours have 128 MiB.
GROUP_BYTES = 512 * 1024 * 1024


class UnboundedFileError(Exception):
    """A file is larger than any of ours, or is not what it says of itself."""


class BoundedFile:
    """Some columns of a Parquet file.

    Parameters
    ----------
    source : str or file-like
        Path or content of the file.
    columns : Sequence of str
        Those that are read, as far as they are there.

    Attributes
    ----------
    columns : list of str
        Those that are there, and in `schema` their types.
    row_count : int
        As the file says.

    Raises
    ------
    UnboundedFileError
        When it says itself that it is too large.
    ArrowException, OSError
        When it is no Parquet file.
    """

    def __init__(self, source: Any, columns: Sequence[str]) -> None:
        file = pq.ParquetFile(source)
        if file.metadata.serialized_size > FOOTER_BYTES:
            raise UnboundedFileError(f"its footer has {file.metadata.serialized_size} bytes, and {FOOTER_BYTES} are the most")
        there: list[str] = file.schema_arrow.names
        if len(set(there)) != len(there):
            raise UnboundedFileError("two of its columns have one name")
        self.columns = [name for name in columns if name in there]
        self.row_count: int = file.metadata.num_rows
        self.schema = pa.schema([file.schema_arrow.field(name) for name in self.columns])
        leaves = {number: file.schema.column(number) for number in range(file.metadata.num_columns)}
        read = {number: leaf for number, leaf in leaves.items() if leaf.path.split(".")[0] in self.columns}
        texts = [leaf.path for leaf in read.values() if leaf.physical_type == "BYTE_ARRAY"]
        self._file = pq.ParquetFile(source, metadata=file.metadata, read_dictionary=texts)
        # Where a struct is null, its required texts refer to an entry that their dictionary may not have: these are measured alone.
        self._plain = file if any(map(_is_hollow, self.schema)) else None
        groups = [file.metadata.row_group(number) for number in range(file.num_row_groups)]
        for group in groups:
            _check_group(group)
        if sum(group.num_rows for group in groups) != self.row_count:
            raise UnboundedFileError(f"its row groups have no {self.row_count} rows together")
        lists = [number for number, leaf in read.items() if leaf.max_repetition_level]
        if lists:
            _check_lists(source, lists)

    def parts(self, first_row: int, row_count: int, *, most_rows: int) -> Iterator[pa.Table]:
        """Yield adjacent rows part by part, checked against their types.

        Raises
        ------
        UnboundedFileError
            When a part would be too large, or there are fewer rows.
        ArrowException, OSError
            When it is damaged.
        """
        start, left = 0, row_count
        for number in range(self._file.num_row_groups):
            group_rows = self._file.metadata.row_group(number).num_rows
            if left and start + group_rows > first_row:
                for part in self._decoded(number, most_rows):
                    wanted = part.slice(max(0, first_row - start), left)
                    start += len(part)
                    left -= len(wanted)
                    if len(wanted):
                        yield wanted
            else:
                start += group_rows
        if left:
            raise UnboundedFileError(f"it has {row_count - left} rows where it should have {row_count}")

    def _decoded(self, group: int, most_rows: int) -> Iterator[pa.Table]:
        # Threads would have several columns of several groups in memory.
        how: dict[str, Any] = {"batch_size": most_rows, "row_groups": [group], "columns": self.columns, "use_threads": False}
        plain = None if self._plain is None else self._plain.iter_batches(**how)
        for batch in self._file.iter_batches(**how):
            size_bytes = sum(map(_decoded_bytes, batch.columns))
            if size_bytes > GROUP_BYTES:
                raise UnboundedFileError(f"{len(batch)} rows of it have {size_bytes} bytes, and {GROUP_BYTES} are the most")
            part = pa.Table.from_batches([batch if plain is None else next(plain)]).cast(self.schema)
            # Texts that are no UTF-8 would be found by whoever reads them next.
            part.validate(full=True)
            yield part


def _check_group(group: pq.RowGroupMetaData) -> None:
    # Never what it says of a column: where that is odd, pyarrow ends the process instead of raising.
    for what, found, most in (("rows", group.num_rows, GROUP_ROWS), ("bytes", group.total_byte_size, GROUP_BYTES)):
        if not 0 <= found <= most:
            raise UnboundedFileError(f"a row group of it has {found} {what}, and {most} are the most")


def _is_hollow(field: pa.Field[Any], *, in_null: bool = False) -> bool:
    """Return whether a column has a required value in a struct that may be null."""
    kind: Any = field.type
    if pa.types.is_struct(kind):
        return any(_is_hollow(kind.field(number), in_null=in_null or field.nullable) for number in range(kind.num_fields))
    if pa.types.is_map(kind):
        return _is_hollow(kind.key_field) or _is_hollow(kind.item_field)
    if pa.types.is_list(kind):
        return _is_hollow(kind.value_field)
    return in_null and not field.nullable


def _check_lists(source: Any, columns: Sequence[int]) -> None:
    # Many equal values take next to no bytes, and a list is decoded wholly.
    try:
        most = max((group[number] for group in value_counts(source) for number in columns), default=0)
    except (ValueError, LookupError) as reason:
        raise UnboundedFileError(str(reason)) from None
    if most > GROUP_VALUES:
        raise UnboundedFileError(f"a row group of it has {most} values in a column, and {GROUP_VALUES} are the most")


def _decoded_bytes(array: pa.Array[Any]) -> int:
    """Return how many bytes an array has once it refers to no dictionary."""
    kind: Any = array.type
    values: Any = array
    if pa.types.is_dictionary(kind):
        if not len(values.dictionary):
            return 8 * len(array)
        lengths = pc.binary_length(values.dictionary)
        return int(pc.sum(lengths.take(values.indices)).as_py() or 0) + 8 * len(array)
    if pa.types.is_struct(kind):
        return sum(map(_decoded_bytes, values.flatten()))
    if pa.types.is_map(kind):
        return 8 * len(array) + _decoded_bytes(values.keys) + _decoded_bytes(values.items)
    if pa.types.is_list(kind):
        return 8 * len(array) + _decoded_bytes(values.values)
    return int(array.nbytes)
