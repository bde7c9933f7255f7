"""Copies of files of a followed table, made before VACUUM may take them (R152).

A copy is a file of the journal like any other, with our names of columns, the partition columns and the envelope. It has as many
rows as the file of the table, so each message stays at its place; of rows that no queue needs it has no values.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyroaring import BitMap64

from spark_queue.core.bitmaps.ranges import to_array, to_bitmap, to_ranges
from spark_queue.core.message_files.relocation import CopiedFile, FileFinding, MissingFile, UncopiedFile
from spark_queue.core.message_files.segment import Segment
from spark_queue.core.records import MergedFile, MovedRows, Ranges
from spark_queue.errors import MESSAGE_FILE_CODES, JournalError
from spark_queue.journal.file_columns import FileColumns, columns_of
from spark_queue.journal.folder import Folder, of_segment
from spark_queue.journal.log_listing import versions_after
from spark_queue.journal.message_compaction import METADATA_KEY
from spark_queue.journal.message_file import fitting, row_groups_in_pieces
from spark_queue.journal.opening import opened
from spark_queue.journal.schema import ENVELOPE, stored_schema
from spark_queue.journal.staging import write_rows
from spark_queue.journal.store import Store, messages_key

_LOG = logging.getLogger(__name__)

#: Most ranges of messages that a record of a copy names: where there are more, the copy has all of the file.
RANGES_MAX = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class NeededFile:
    """A file of a followed table, and the messages in it that are needed."""

    segment: Segment
    needed: BitMap64


def copy_files(store: Store, files: Sequence[NeededFile], columns: str, *, now_ms: int, is_durable: bool) -> Iterator[FileFinding]:
    """Copy files of one message type, whose own columns are `columns`, and yield what becomes of each.

    A file that cannot be read stays where it is, and is tried again; so are all that are left where the store fails. A copy that
    `is_durable` is forced to the disk.
    """
    failure: JournalError | None = None
    for file in files:
        segment = file.segment
        try:
            if failure is not None:
                raise failure
            copied = _copy(store, file, columns, now_ms=now_ms)
        except JournalError as trouble:
            failure = None if trouble.code in MESSAGE_FILE_CODES else trouble
            missing = [] if failure else list(missing_files(store, [segment]))
            yield from missing
            if not missing:
                _LOG.warning("A file of message type '%s' cannot be copied yet: %s", segment.message_type, trouble)
                yield UncopiedFile(message_type=segment.message_type, first=segment.first, trouble=str(trouble))
        else:
            if is_durable:
                store.sync([f"{messages_key(segment.message_type)}/{copied.path}"], ancestors=True)
            yield CopiedFile(message_type=segment.message_type, file=copied)


def missing_files(store: Store, segments: Sequence[Segment]) -> Iterator[MissingFile]:
    """Yield those files of a followed table that its store says not to have; a refusal, or a failure, says nothing (R155)."""
    for segment in segments:
        try:
            is_gone = _is_gone(of_segment(store, segment), segment.path)
        except JournalError as failure:
            _LOG.warning("Nobody knows whether a file of message type '%s' is there: %s", segment.message_type, failure)
        else:
            if is_gone:
                yield MissingFile(message_type=segment.message_type, path=segment.path, first=segment.first)


def absent_files(store: Store, segments: Sequence[Segment]) -> list[Segment]:
    """Return those files of a followed table that its store does not have, also where the table itself is gone."""
    places = ((segment, of_segment(store, segment)) for segment in segments)
    return [segment for segment, folder in places if not folder.store.has(folder.key_of(segment.path))]


def _is_gone(folder: Folder, path: str) -> bool:
    # Where not even the log of the table is to be seen, it is the store that is away, or the right to see it.
    return not folder.store.has(folder.key_of(path)) and bool(versions_after(folder.store, folder.key, -1))


def _copy(store: Store, file: NeededFile, columns: str, *, now_ms: int) -> MergedFile:
    segment = file.segment
    path = f"{uuid.uuid4().hex}.parquet"
    part = MovedRows(path=segment.path, first_row=0, row_count=segment.row_count, bookmark=segment.first)
    kept = tuple(to_ranges(file.needed))
    if len(kept) > RANGES_MAX:
        kept = ((segment.first, segment.until),)
    copied = MergedFile(path=path, parts=(part,), kept=kept)
    schema = stored_schema(columns)
    mapping = {METADATA_KEY: msgspec.json.encode(copied).decode()}
    key = messages_key(segment.message_type)
    store.make_folder(key)
    with fitting(store, segment):
        rows = _rows(of_segment(store, segment), segment, kept, schema)
        write_rows(store, f"{key}/{path}", rows, schema, now_ms=now_ms, metadata=mapping)
    _LOG.info("Copied file %s of the table of message type '%s' to %s.", segment.path, segment.message_type, path)
    return copied


def _rows(folder: Folder, segment: Segment, kept: Ranges, schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield the rows of a copy part by part; those that are not kept have the columns of the envelope alone."""
    of_file, rows_kept = columns_of(segment), to_bitmap(kept)
    with opened(folder, segment.path) as file:
        of_file.check(folder, segment.path, file.metadata.num_rows)
        names = of_file.stored(schema.names, file.schema_arrow.names)
        start = 0
        for groups in row_groups_in_pieces(file.metadata):
            count = sum(file.metadata.row_group(number).num_rows for number in groups)
            first = segment.first + start
            here = to_array(rows_kept & to_bitmap([(first, first + count)])) - first
            numbers = np.arange(start, start + count)
            rows = file.read_row_groups(groups, columns=names) if len(here) else pa.table({"": pa.nulls(count)})
            places = np.full(count, -1)
            places[here] = here
            yield pa.table(list(_columns(of_file, rows, schema, numbers, pa.array(places, mask=places < 0))), schema=schema)
            start += count


def _columns(of_file: FileColumns, rows: pa.Table, schema: pa.Schema, numbers: NDArray[Any], chosen: Any) -> Iterator[Any]:
    """Yield the columns of rows with some numbers, those of the user NULL in rows that are not `chosen`."""
    for field in schema:
        column = of_file.filled(rows, field.name, field.type, len(numbers), lambda: numbers)
        yield column if field.name in ENVELOPE.names else column.take(chosen)
