"""Merging small message files: one commit adds the merged file and removes its parts; bookmarks stay (DESIGN 4)."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import pyarrow as pa

from spark_queue.core.message_files.segment import Segment, stretches
from spark_queue.core.records import MergedFile, MovedRows
from spark_queue.errors import MESSAGE_FILE_CODES, JournalError
from spark_queue.journal.entry_parts import Mark, NewFile
from spark_queue.journal.message_file import MessageFiles, fitted, fitting
from spark_queue.journal.message_work import MessageTableWork
from spark_queue.journal.staging import write_rows

_LOG = logging.getLogger(__name__)

#: Key of the mapping in the merged file's own metadata.
METADATA_KEY = "sparkqueue"


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeLimits:
    """Limits of a merge: which files are worth it, and how much at once."""

    #: Fewest files that are merged: fewer are cheaper to read than to rewrite.
    files_min: int = 16
    #: New files after which a table is looked over: each look opens it, and publishes of one message bring many.
    files_due: int = 64
    #: Largest merged file, in bytes; one of this size is not touched again.
    target_bytes: int = 128 * 1024 * 1024
    #: Most that is copied before other upkeep has its turn, in bytes.
    round_bytes: int = 512 * 1024 * 1024


def worth_merging(segments: Sequence[Segment], sizes: Mapping[str, int], limits: MergeLimits) -> list[list[Segment]]:
    """Return runs of adjacent whole files to merge, oldest first, as far as one round goes.

    A file that is not among `sizes`, those of the table in bytes, is left alone.
    """
    found: list[list[Segment]] = []
    run: list[Segment] = []
    run_bytes = copied_bytes = 0
    for file in [*stretches(segments), None]:
        size = limits.target_bytes if file is None or file.retired else sizes.get(file.path, limits.target_bytes)
        if file is None or run_bytes + size > limits.target_bytes or size >= limits.target_bytes:
            run = _balanced(run, sizes, limits.files_min)
            copied_bytes += sum(sizes[each.path] for each in run)
            if run:
                found.append(run)
            if copied_bytes >= limits.round_bytes:
                return found
            run, run_bytes = [], 0
        if file is not None and size < limits.target_bytes:
            run.append(file)
            run_bytes += size
    return found


def _balanced(run: list[Segment], sizes: Mapping[str, int], files_min: int) -> list[Segment]:
    """Return the end of a run in which no file is larger than the others together; none when few files are left."""
    while len(run) >= files_min:
        of_run = [sizes[file.path] for file in run]
        if sum(of_run) >= 2 * max(of_run):
            return run
        run = run[of_run.index(max(of_run)) + 1 :]
    return []


def merge(work: MessageTableWork, segments: Sequence[Segment], limits: MergeLimits) -> bool:
    """Merge files where it is worth it, one commit for each merged file; returns whether another round is due at once."""
    sizes, copied_bytes = work.sizes(), 0
    for run in worth_merging(segments, sizes, limits):
        try:
            added, merged = _write(work, run)
        except JournalError as damage:
            if damage.code not in MESSAGE_FILE_CODES:
                raise
            # Its queues say so where it matters; the other files can be merged all the same.
            _LOG.warning("Files of message type '%s' stay unmerged: %s", work.message_type, damage)
            continue
        mark = Mark(writer="coordinator", merged=[msgspec.to_builtins(merged)])
        if not work.commit(mark, removed=[file.path for file in run], added=[added]):
            # Something that was to be merged has gone meanwhile; the next round plans anew.
            return True
        _LOG.info("Merged %d files of message type '%s' into %s.", len(run), work.message_type, added.path)
        copied_bytes += sum(sizes[file.path] for file in run)
    return copied_bytes >= limits.round_bytes


def _write(work: MessageTableWork, run: Sequence[Segment]) -> tuple[NewFile, MergedFile]:
    path = f"{uuid.uuid4().hex}.parquet"
    parts = tuple(
        MovedRows(path=file.path, first_row=file.first_row, row_count=file.row_count, bookmark=file.first) for file in run
    )
    merged = MergedFile(path=path, parts=parts)
    schema = work.schema()
    mapping = {METADATA_KEY: msgspec.json.encode(merged).decode()}
    file = write_rows(work.store, f"{work.key}/{path}", _rows(work, run, schema), schema, now_ms=work.now_ms, metadata=mapping)
    added = NewFile(path=path, size_bytes=file.size_bytes, modified_ms=work.now_ms, stats=file.stats(), data_change=False)
    return added, merged


def _rows(work: MessageTableWork, run: Sequence[Segment], schema: pa.Schema) -> Iterator[pa.Table]:
    files = MessageFiles(work.store)
    for file in run:
        with fitting(work.store, file):
            rows = files.read(file, None)
            # A table that somebody altered: merged, the values of such a column would be gone, or be stored as others.
            kinds = {field.name: field.type for field in schema}
            other = [field.name for field in rows.schema if kinds.get(field.name) != field.type]
            if other:
                raise ValueError(f"the table has no column {other[0]}, or it has another type there")
            rows = fitted(rows, schema)
        yield rows
