"""Upkeep of message tables: merging small files, letting retired ones go, deleting files that nothing names.

The state belongs to the coordinator's loop, so `due` reads it there and gives jobs that know all they need; the upkeep's
thread runs them one after the other.

The coordinator's own commits on message tables: files replaced or let go by one swap that the epoch fences (DESIGN 3.4, 4).
Merging small message files (DESIGN 4): one commit adds the merged file and takes its parts away; bookmarks stay.
"""

from __future__ import annotations

import json
import logging
import re
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa

from spark_queue.core.message_files.message_type import KEPT_MS
from spark_queue.core.message_files.segment import MergedFile, MovedRows, Segment, stretches
from spark_queue.core.state.journal_state import JournalState
from spark_queue.errors import MESSAGE_FILE_CODES, CoordinatorError, JournalError, SparkQueueError
from spark_queue.journal import delta, log_entry
from spark_queue.journal.delta import Mark, commit_transaction
from spark_queue.journal.message_file import MessageFiles, fitted, fitting
from spark_queue.journal.message_table import arrow_schema, open_messages
from spark_queue.journal.staging import write_rows
from spark_queue.journal.store import Store, StoredObject, log_key, messages_key

#: Races with publishers that one commit may lose.
_ATTEMPTS = 200


class MessageTableWork:
    """Work of the reign `epoch` on the table of one message type; `now_ms` is its time, in milliseconds since 1970 UTC.

    `is_durable` tells whether commits must survive power loss; it is asked at each, since a merge takes longer than `apply`.
    """

    def __init__(
        self, store: Store, journal_id: str, message_type: str, *, epoch: int, now_ms: int, is_durable: Callable[[], bool]
    ) -> None:
        self.store = store
        self.message_type = message_type
        self.key = messages_key(message_type)
        self.now_ms = now_ms
        self._epoch = epoch
        self._is_durable = is_durable
        self._table = open_messages(store, journal_id, message_type)
        found = commit_transaction(
            store,
            self.key,
            self._table,
            name=delta.COORDINATOR_TXN,
            version=lambda newest: epoch if newest < epoch else None,
            writer="coordinator",
            at_ms=now_ms,
            durable=is_durable(),
        )
        if found != epoch:
            raise self._deposed(f"message type '{message_type}' carries epoch {found}")

    def refresh(self) -> None:
        """Read the head, and check that the reign still holds."""
        delta.refresh(self.store, self.key, self._table)
        found = self._table.transaction_version(delta.COORDINATOR_TXN)
        if found != self._epoch:
            raise self._deposed(f"message type '{self.message_type}' carries epoch {found}")

    def schema(self) -> pa.Schema:
        """Return the table's columns."""
        return arrow_schema(self._table)

    def sizes(self) -> Mapping[str, int]:
        """Return the sizes of the table's files by path, in bytes."""
        actions = pa.table(self._table.get_add_actions(flatten=True))
        paths: list[Any] = actions.column("path").to_pylist()
        sizes: list[Any] = actions.column("size_bytes").to_pylist()
        return dict(zip(paths, sizes, strict=True))

    def commit(self, mark: delta.Mark, *, removed: Sequence[str], added: Sequence[delta.NewFile] = ()) -> bool:
        """Commit that paths go and files come by a swap at the head; returns whether all that goes still stood there.

        After a lost race the head is read anew and the change looked over again: a stale one would double rows (tried).
        """
        for attempt in range(_ATTEMPTS):
            self.refresh()
            if not set(removed) <= self.sizes().keys():
                return False
            base = int(self._table.version())
            if self._swap(base + 1, mark, removed, added):
                self._check_landed(base, removed, added)
                return True
            delta.back_off(attempt)
        raise JournalError("PUBLISH_CONTENDED", path=self.store.uri(self.key), attempts=_ATTEMPTS)

    def _swap(self, version: int, mark: delta.Mark, removed: Sequence[str], added: Sequence[delta.NewFile]) -> bool:
        durable = self._is_durable()
        if durable:
            self.store.sync([*(f"{self.key}/{file.path}" for file in added), log_key(self.key, version - 1)])
        with self.store.failures(f"committing to {self.key}"):
            created = log_entry.create_entry(
                self.store, self.key, version, added, mark=mark, epoch=self._epoch, at_ms=self.now_ms, removed=removed
            )
        if created and durable:
            self.store.sync([log_key(self.key, version)])
        return created

    def _check_landed(self, base: int, removed: Sequence[str], added: Sequence[delta.NewFile]) -> None:
        """Look whether the commit is where readers look: after a pause its version may have been cleaned away (DESIGN 3.4)."""
        self.refresh()
        standing = self.sizes().keys()
        seen = all(file.path in standing for file in added) and not any(path in standing for path in removed)
        if not seen:
            raise self._deposed(f"its commit after version {base} of {self.key} is not to be seen")

    def _deposed(self, reason: str) -> SparkQueueError:
        return CoordinatorError("COORDINATOR_DEPOSED", epoch=self._epoch, path=self.store.path, reason=reason)


_LOG = logging.getLogger(__name__)

#: Key of the mapping in the merged file's own metadata.
METADATA_KEY = "sparkqueue"


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeLimits:
    """Limits of a merge: which files are worth it, and how much at once."""

    #: Fewest files that are merged: fewer are cheaper to read than to rewrite.
    files_min: int = 16
    #: Largest merged file, in bytes; one of this size is not touched again.
    target_bytes: int = 128 * 1024 * 1024
    #: Most that is copied before other upkeep has its turn, in bytes.
    round_bytes: int = 512 * 1024 * 1024


def worth_merging(segments: Sequence[Segment], sizes: Mapping[str, int], limits: MergeLimits) -> list[list[Segment]]:
    """Return runs of adjacent whole files to merge, oldest first, as far as one round goes.

    Parameters
    ----------
    segments : Sequence[Segment]
        All of the message type.
    sizes : Mapping[str, int]
        The files of the table, in bytes; what does not stand there is left alone.
    limits : MergeLimits
        What is worth it.
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
    """Merge what is worth it, one commit for each merged file; returns whether the table has changed."""
    sizes, has_merged = work.sizes(), False
    for run in worth_merging(segments, sizes, limits):
        try:
            added, merged = _write(work, run)
        except JournalError as damage:
            if damage.code not in MESSAGE_FILE_CODES:
                raise
            # Its queues say so where it matters; the other files can be merged all the same.
            _LOG.warning("Files of message type '%s' stay unmerged: %s", work.message_type, damage)
            continue
        mark = delta.Mark(writer="coordinator", merged=[merged.stored()])
        if not work.commit(mark, removed=[file.path for file in run], added=[added]):
            # Something that was to be merged has gone meanwhile; the next round plans anew.
            return True
        _LOG.info("Merged %d files of message type '%s' into %s.", len(run), work.message_type, added.path)
        has_merged = True
    return has_merged


def _write(work: MessageTableWork, run: Sequence[Segment]) -> tuple[delta.NewFile, MergedFile]:
    path = f"{uuid.uuid4().hex}.parquet"
    parts = tuple(
        MovedRows(path=file.path, first_row=file.first_row, row_count=file.row_count, bookmark=file.first) for file in run
    )
    merged = MergedFile(path=path, parts=parts)
    schema = work.schema()
    mapping = {METADATA_KEY: json.dumps(merged.stored())}
    file = write_rows(work.store, f"{work.key}/{path}", _rows(work, run, schema), schema, now_ms=work.now_ms, metadata=mapping)
    added = delta.NewFile(path=path, size_bytes=file.size_bytes, modified_ms=work.now_ms, stats=file.stats(), data_change=False)
    return added, merged


def _rows(work: MessageTableWork, run: Sequence[Segment], schema: pa.Schema) -> Iterator[pa.Table]:
    files = MessageFiles(work.store)
    for file in run:
        with fitting(work.store, file):
            rows = files.read(file, None)
            # A table that somebody altered: merged, what stands in such a column would be gone, or be stored as another value.
            kinds = {field.name: field.type for field in schema}
            other = [field.name for field in rows.schema if kinds.get(field.name) != field.type]
            if other:
                raise ValueError(f"the table has no column {other[0]}, or it is of another type there")
            rows = fitted(rows, schema)
        yield rows


#: Only what is named as our own writers name files is ever deleted.
_OUR_NAME = re.compile(r"[0-9a-f]{32}\.parquet")

#: Most files that one commit takes away.
_COMMIT_FILES = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageLimits:
    """When message tables are worked on; tests give smaller ones."""

    merging: MergeLimits = field(default_factory=MergeLimits)
    #: How often the store is searched for files that nothing names, and how long those stay, in milliseconds.
    search_ms: int = 3600 * 1000
    kept_ms: int = KEPT_MS


#: A piece of work on one message table.
Job = Callable[[MessageTableWork], None]


class MessageUpkeep:
    """Knows what was done to message tables in this reign; `limits` say when there is something to do."""

    def __init__(self, limits: MessageLimits) -> None:
        self._limits = limits
        #: By message type: segments when nothing was left to merge, retired messages whose files are gone, time of the last search.
        self._merged_segments: dict[str, int] = {}
        self._dropped_rows: dict[str, int] = {}
        self._searched_at_ms: dict[str, int] = {}

    def due(self, state: JournalState, name: str, *, now_ms: int) -> Iterator[Job]:
        """Yield what is due on a message type's table."""
        known = state.message_types[name]
        if known.retired_rows > self._dropped_rows.get(name, 0):
            yield partial(self._drop, tuple(known.segments))
        if len(known.segments) >= self._merged_segments.get(name, 0) + self._limits.merging.files_min:
            yield partial(self._merge, tuple(known.segments))
        if now_ms >= self._searched_at_ms.get(name, now_ms) + self._limits.search_ms:
            self._searched_at_ms[name] = now_ms
            if _oldest_reader_ms(state, name, now_ms) >= now_ms - self._limits.kept_ms:
                # Files that a merge replaces at this very moment are not in the log yet: segments still name them.
                yield partial(
                    self._delete, {segment.path for segment in known.segments if not segment.retired}, dict(known.replaced)
                )
        self._searched_at_ms.setdefault(name, now_ms)

    def _merge(self, segments: Sequence[Segment], work: MessageTableWork) -> None:
        if not merge(work, segments, self._limits.merging):
            self._merged_segments[work.message_type] = len(segments)

    def _drop(self, segments: Sequence[Segment], work: MessageTableWork) -> None:
        """Let the files of retired messages go, since the control log has said so; the store keeps them for a day."""
        retired = [segment for segment in segments if segment.retired]
        # Messages retired after a merge with others stay with them, until the whole file may go.
        paths = {segment.path for segment in retired} - {segment.path for segment in segments if not segment.retired}
        standing = sorted(work.sizes().keys() & paths)
        for start in range(0, len(standing), _COMMIT_FILES):
            part = standing[start : start + _COMMIT_FILES]
            work.commit(Mark(writer="coordinator", retired=part), removed=part)
            _LOG.info("%d files of message type '%s' are over their retention and left the table.", len(part), work.message_type)
        self._dropped_rows[work.message_type] = sum(segment.row_count for segment in retired)

    def _delete(self, named: Collection[str], replaced: Mapping[str, int], work: MessageTableWork) -> None:
        """Delete what nothing has named for `kept_ms`: never committed, merged into others, or retired (DESIGN 4).

        Parameters
        ----------
        named : Collection[str]
            Files in which messages stand, as far as the control log knows.
        replaced : Mapping[str, int]
            Files that left the table lately, and when, in milliseconds.
        work : MessageTableWork
            The table. Its files stay as long after they were written, too: a publisher commits or stages anew within an hour.
        """
        # First the store, then the table: a file that is committed in between stands in the table.
        candidates = unnamed_files(work.store, work.message_type, named)
        # By the store's own clock too, since a host whose clock is wrong must not take files from under their publishers.
        before_ms = min(work.now_ms, work.store.time_ms()) - self._limits.kept_ms
        work.refresh()
        standing = work.sizes().keys()
        folder = f"{work.key}/"
        gone = [
            entry.key
            for entry in candidates
            if entry.modified_ms < before_ms
            and (name := entry.key.removeprefix(folder)) not in standing
            and replaced.get(name, before_ms - 1) < before_ms
        ]
        work.store.delete(gone)
        if gone:
            _LOG.info("Deleted %d message files of type '%s' that nothing names.", len(gone), work.message_type)


def unnamed_files(store: Store, message_type: str, standing: Collection[str]) -> list[StoredObject]:
    """Return the message files in the store that are not among those of the table."""
    folder = f"{messages_key(message_type)}/"
    found = [(entry, entry.key.removeprefix(folder)) for entry in store.list(folder.rstrip("/"))]
    return [entry for entry, name in found if _OUR_NAME.fullmatch(name) and name not in standing]


def _oldest_reader_ms(state: JournalState, message_type: str, now_ms: int) -> int:
    """Return when the oldest lease was granted whose rows may still be read where they stood then."""
    ledgers = [ledger for ledger in state.queues.values() if ledger.definition.message_type == message_type]
    return min(
        (
            lease.granted_at_ms
            for ledger in ledgers
            for lease in ledger.leases.values()
            # Rows of an at-most-once lease left the queue when they were granted.
            if lease.leased or (ledger.definition.at_most_once and not lease.proven)
        ),
        default=now_ms,
    )
