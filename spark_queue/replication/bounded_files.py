"""Parquet files from outside, read part by part: a small file must not fill the memory (DESIGN 17.3).

Pages are compressed, and a dictionary lets one long text stand in many rows. So texts are read as references to their dictionary,
and measured, before they are written out.

What the footer of a Parquet file says of its columns, taken from its bytes.
Whether a peer's store has a file where one should be, before anything waits for it or opens it (DESIGN 17.3).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_queue.errors import JournalError
from spark_queue.journal.layout import CONTROL, CONTROL_LOG, Store
from spark_queue.journal.message_file import is_in_place

#: Most rows of a row group; ours have 32,768.
GROUP_ROWS = 2**20

#: Most values of a column in a row group, in which one row may have a list of any length.
GROUP_VALUES = 2**26

#: Most columns of a file, and of a table that gets those which are not declared here.
COLUMNS_MOST = 5_000

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
    columns : Sequence of str or None
        Those that are read, as far as they are there; None for all.

    Attributes
    ----------
    columns : list of str
        Those that are there, and in `schema` their types.
    row_count : int
        As the file says.
    """

    def __init__(self, source: Any, columns: Sequence[str] | None) -> None:
        file = pq.ParquetFile(source)
        if file.metadata.serialized_size > FOOTER_BYTES:
            raise UnboundedFileError(f"its footer has {file.metadata.serialized_size} bytes, and {FOOTER_BYTES} are the most")
        there: list[str] = file.schema_arrow.names
        if len(set(there)) != len(there):
            raise UnboundedFileError("two of its columns have one name")
        if len(there) > COLUMNS_MOST:
            raise UnboundedFileError(f"it has {len(there)} columns, and {COLUMNS_MOST} are the most")
        self.columns = there if columns is None else [name for name in columns if name in there]
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
        """Yield adjacent rows part by part, checked against their types."""
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


#: Types of Thrift's compact protocol, as far as they are named here.
_TRUE, _I16, _I64, _LIST, _STRUCT = 1, 4, 6, 9, 12

#: Fields of a file, of a row group, of a column and of its description, as the format numbers them, with their types.
_GROUPS, _COLUMNS, _DESCRIPTION, _VALUES = (4, _LIST), (1, _LIST), (3, _STRUCT), (5, _I64)

#: Most bits of a number.
_BITS_MOST = 64


def value_counts(source: Any) -> list[list[int]]:
    """Return how many values each column of each row group has, as a file says.

    Parameters
    ----------
    source : str or file-like
        Path or content of a file whose footer pyarrow has read.
    """
    if isinstance(source, str):
        with pa.OSFile(source, "r") as file:
            return value_counts(file)
    source.seek(-8, 2)
    size_bytes = int.from_bytes(source.read(4), "little")
    source.seek(-8 - size_bytes, 2)
    try:
        footer = _Reader(source.read(size_bytes)).value(_STRUCT)
        return [[column[_DESCRIPTION][_VALUES] for column in group[_COLUMNS]] for group in footer[_GROUPS]]
    except (LookupError, TypeError, RecursionError) as reason:
        raise ValueError(f"its footer is damaged: {reason!r}") from None


class _Reader:
    """Reads values of Thrift's compact protocol: numbers, bytes, lists, and structs by number and type of their fields."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def value(self, kind: int, *, is_element: bool = False) -> Any:
        match kind:
            case 1 | 2:
                # A field is true or false by its type.
                return self._take(1) if is_element else kind == _TRUE
            case 3:
                return self._take(1)
            case 4 | 5 | 6:
                number = self._varint()
                return number >> 1 ^ -(number & 1)
            case 7:
                return self._take(8)
            case 8:
                return self._take(self._varint())
            case 9 | 10:
                return self._list()
            case 11:
                return self._map()
            case 12:
                return self._struct()
        raise LookupError(f"there is no type {kind}")

    def _list(self) -> list[Any]:
        header = self._byte()
        count = header >> 4 if header >> 4 < 15 else self._varint()
        return [self.value(header & 15, is_element=True) for _ in range(count)]

    def _map(self) -> list[Any]:
        count = self._varint()
        kinds = self._byte() if count else 0
        return [self.value(kind, is_element=True) for _ in range(count) for kind in (kinds >> 4, kinds & 15)]

    def _struct(self) -> dict[tuple[int, int], Any]:
        found, number = dict[tuple[int, int], Any](), 0
        while header := self._byte():
            # A field is named by its distance from the one before, or by its number where that is far.
            number = number + (header >> 4) if header >> 4 else self.value(_I16)
            found[number, header & 15] = self.value(header & 15)
        return found

    def _byte(self) -> int:
        return self._take(1)[0]

    def _take(self, count: int) -> bytes:
        if self._at + count > len(self._data):
            raise LookupError("it ends too early")
        self._at += count
        return self._data[self._at - count : self._at]

    def _varint(self) -> int:
        number = shift = 0
        while (byte := self._byte()) & 128:
            number, shift = number | (byte & 127) << shift, shift + 7
            if shift >= _BITS_MOST:
                raise LookupError("a number of it is too long")
        return number | byte << shift


#: Most bytes of an entry of the log; ours name a few files.
ENTRY_BYTES = 16 * 1024 * 1024

#: Most bytes of a checkpoint; ours name what left within an hour, some hundred bytes for each commit, and are compressed.
CHECKPOINT_BYTES = 64 * 1024 * 1024

#: Most bytes of what a checkpoint has in memory, where texts that repeat stand each time.
_CHECKPOINT_DECODED_BYTES = 256 * 1024 * 1024

#: How many of its rows are looked at together.
_CHECKPOINT_ROWS = 64

#: What a checkpoint is made of.
_ACTIONS = ("add", "remove", "txn", "metaData", "protocol", "domainMetadata", "checkpointMetadata", "sidecar")

#: Most bytes of what tells where the last checkpoint is.
_HINT_BYTES = 100_000

#: No listing of a log that is written meanwhile lacks as many versions one after the other.
_JUMP_MOST = 10_000

_NUMBERED = re.compile(r"([0-9]{20})\.(json|checkpoint\.parquet)")
#: Files that stand for several others, or name further ones; our software writes none.
_COMPOUND = re.compile(r"[0-9]{20}\.(checkpoint\..+\.(parquet|json)|.*compacted\.json)")


def refused(peer: str, what: str, reason: object) -> JournalError:
    """Make PEER_REFUSED for a part of a peer's journal."""
    text = str(reason).rstrip(".")
    return JournalError("PEER_REFUSED", peer=peer, what=what, reason=f"{text[:500]}.")


def check_place(store: Store, peer: str, key: str) -> None:
    """Refuse what is no file, or a link that leads out of its folder; where there is nothing, whoever reads it tells."""
    if not is_in_place(store, key):
        raise refused(peer, key, "it is no file, or a link to one that is elsewhere")


def check_log(store: Store, peer: str) -> None:
    """Refuse a folder of a control log with what no software of ours leaves there, and that would keep whoever opens it."""
    if store.is_local:
        folder = Path(store.uri(CONTROL_LOG))
        if not folder.is_dir():
            # Whoever opens it tells that no journal is there.
            return
        with store.failures(f"listing {CONTROL_LOG}"), os.scandir(folder) as standing:
            # A listing of the store leaves out what is no file. A log has thousands of plain ones, which need no further look.
            odd = [each.name for each in standing if not each.is_file(follow_symlinks=False) and not (folder / each.name).is_dir()]
        for name in odd:
            check_place(store, peer, f"{CONTROL_LOG}/{name}")
    versions = list[int]()
    for entry in store.list(CONTROL_LOG):
        name = entry.key.rsplit("/", 1)[1]
        numbered = _NUMBERED.fullmatch(name)
        most = _HINT_BYTES if numbered is None else ENTRY_BYTES if numbered[2] == "json" else CHECKPOINT_BYTES
        if (numbered is not None or name == "_last_checkpoint") and entry.size_bytes > most:
            raise refused(peer, entry.key, f"it has {entry.size_bytes} bytes, and {most} are the most")
        if numbered is None and _COMPOUND.fullmatch(name) is not None:
            raise refused(peer, entry.key, "it is no file of a control log")
        if numbered is not None and numbered[2] != "json":
            _check_checkpoint(store, peer, entry.key)
        versions += [] if numbered is None else [int(numbered[1])]
    for before, version in pairwise(sorted(versions)):
        if version - before > _JUMP_MOST:
            raise JournalError("LOG_GAP", path=store.uri(CONTROL), version=version - 1)


def _check_checkpoint(store: Store, peer: str, key: str) -> None:
    """Refuse a checkpoint that would fill the memory of whoever opens it; of a damaged one, and one that is gone, he tells."""
    decoded_bytes = 0
    with suppress(pa.ArrowException, OSError):
        try:
            file = BoundedFile(store.open(key), _ACTIONS)
            for part in file.parts(0, file.row_count, most_rows=_CHECKPOINT_ROWS):
                decoded_bytes += part.nbytes
                if decoded_bytes > _CHECKPOINT_DECODED_BYTES:
                    raise UnboundedFileError(f"it has more than {_CHECKPOINT_DECODED_BYTES} bytes in memory")
        except UnboundedFileError as reason:
            raise refused(peer, key, reason) from None
