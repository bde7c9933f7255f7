"""Columns of the messages of a segment, read from the file that holds them now (DESIGN 4: compaction puts many in one file)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from obstore.exceptions import NotFoundError

from spark_queue.core.message_files.segment import Segment
from spark_queue.errors import JournalError, SparkQueueError
from spark_queue.journal.store import Store, messages_key

#: The path of a message file: a name in its table's folder, as all of ours are. A path that leads out of it may be another
#: type's, or the host's.
PATH = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,199}")

#: Most of a file that is in memory at once, where a row group alone is not more.
PIECE_ROWS = 131_072
PIECE_BYTES = 128 * 1024 * 1024


class MessageFiles:
    """Reads segments' columns; a merged file is read once for all the segments in it, asked for one after the other."""

    def __init__(self, store: Store) -> None:
        self._store = store
        #: The merged file that was read last, and its columns.
        self._last: tuple[str, pa.Table] = ("", pa.table({}))

    def read(self, segment: Segment, columns: Sequence[str] | None) -> pa.Table:
        """Return columns of the segment's rows, None for all; one that the file does not have is left out."""
        key = _key(self._store, segment)
        known, rows = self._last
        if known != key or columns is None or not set(columns) <= set(rows.column_names):
            with decoding(self._store, segment) as file:
                rows = file.read(columns=None if columns is None else _standing(file, columns))
        found = rows.slice(segment.first_row, segment.row_count)
        until = segment.first_row + segment.row_count
        if len(rows) < until or (len(rows) != until and not segment.merged):
            raise corrupt(self._store, segment, f"it has {len(rows)} rows instead of {until}.")
        self._last = (key, rows) if len(rows) > until else ("", pa.table({}))
        there = set(found.column_names)
        return found if columns is None else found.select([name for name in columns if name in there])

    def pieces(self, segment: Segment, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield columns of the segment's rows part by part, so that a large file is never in memory as a whole.

        A file of its own comes by some row groups at once; a merged one, which compaction keeps small, as `read` gives it.
        """
        if segment.merged:
            yield self.read(segment, columns)
            return
        with decoding(self._store, segment) as file:
            self._check(segment, file)
            for groups in _pieces_of(file.metadata):
                yield file.read_row_groups(groups, columns=_standing(file, columns))

    def check(self, segment: Segment) -> None:
        """Look whether a file of its own has as many rows as it should; raises what `pieces` raises."""
        with decoding(self._store, segment) as file:
            self._check(segment, file)

    def _check(self, segment: Segment, file: pq.ParquetFile) -> None:
        if file.metadata.num_rows != segment.row_count:
            raise corrupt(self._store, segment, f"it has {file.metadata.num_rows} rows instead of {segment.row_count}.")


def _standing(file: pq.ParquetFile, columns: Sequence[str]) -> list[str]:
    there = set(file.schema_arrow.names)
    return [name for name in columns if name in there]


def fitted(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows with exactly the columns of a schema; one that their file does not have is NULL."""
    there = set(rows.column_names)
    columns: list[Any] = [
        rows.column(field.name).cast(field.type) if field.name in there else pa.nulls(len(rows), field.type) for field in schema
    ]
    return pa.table(columns, schema=schema)


def _pieces_of(file: pq.FileMetaData) -> Iterator[list[int]]:
    """Yield the row groups of a file in pieces: evaluating an expression costs milliseconds, however few rows there are."""
    groups: list[int] = []
    rows = size_bytes = 0
    for number in range(file.num_row_groups):
        group = file.row_group(number)
        if groups and (rows + group.num_rows > PIECE_ROWS or size_bytes + group.total_byte_size > PIECE_BYTES):
            yield groups
            groups, rows, size_bytes = [], 0, 0
        groups.append(number)
        rows, size_bytes = rows + group.num_rows, size_bytes + group.total_byte_size
    if groups:
        yield groups


@contextmanager
def decoding(store: Store, segment: Segment) -> Iterator[pq.ParquetFile]:
    """Open the file in which a segment stands, and part damage of it from a store that does not answer."""
    key = _key(store, segment)
    with store.failures(f"reading {key}"):
        try:
            yield pq.ParquetFile(store.open(key))
        except (FileNotFoundError, PermissionError, NotFoundError) as failure:
            path = store.messages_uri(segment.message_type)
            reason = store.reason(failure) if isinstance(failure, PermissionError) else "it is not there."
            raise JournalError("MESSAGE_FILE_MISSING", file=segment.path, path=path, reason=reason) from None
        except pa.ArrowException as failure:
            raise corrupt(store, segment, store.reason(failure)) from None
        except OSError as failure:
            # A disk or a network that fails has a number; an error of pyarrow's decoding has none.
            if failure.errno is None:
                raise corrupt(store, segment, store.reason(failure)) from None
            raise


@contextmanager
def fitting(store: Store, segment: Segment) -> Iterator[None]:
    """Refuse a file with other columns than its message type, whatever they make libraries raise."""
    try:
        yield
    except SparkQueueError:
        raise
    except Exception as raised:
        reason = f"its columns are not those of the message type ({type(raised).__name__}: {store.reason(raised)})."
        raise corrupt(store, segment, reason) from raised


def is_in_place(store: Store, key: str) -> bool:
    """Return whether a key leads to a file of its folder, and no link to one elsewhere; also where there is nothing."""
    path = Path(store.uri(key))
    if not store.is_local or not os.path.lexists(path):
        return True
    # Where folders lie is up to the user who set the journal up.
    found, folder = os.path.realpath(path), os.path.realpath(path.parent)
    return os.path.isfile(found) and os.path.dirname(found) == folder  # noqa: PTH113, PTH120 - loops of links raise nothing.


def _key(store: Store, segment: Segment) -> str:
    """Return the key of the file in which a segment stands: a name in its table's folder, whichever log names it."""
    key = f"{messages_key(segment.message_type)}/{segment.path}"
    if PATH.fullmatch(segment.path) is None or not is_in_place(store, key):
        raise corrupt(store, segment, "it is no file in the folder of its message type, or a link to one elsewhere.")
    return key


def corrupt(store: Store, segment: Segment, reason: str) -> JournalError:
    """Make MESSAGE_FILE_CORRUPT."""
    path = store.messages_uri(segment.message_type)
    return JournalError("MESSAGE_FILE_CORRUPT", file=segment.path, path=path, reason=reason)
