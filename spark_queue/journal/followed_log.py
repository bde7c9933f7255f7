"""The log of a Delta table that others write and a message type follows, read as a message log (R144, R147).

Every entry is input from outside: paths are looked at as they are read, numbers are bounded, and whatever cannot be made out sets
the message type aside by name. Nothing is ever written to the table.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Annotated, Any
from urllib.parse import unquote

import msgspec
from msgspec import Meta, Struct

from spark_queue.core.message_files.followed_table import (
    BEGINNING,
    FollowedTable,
    RemovedFile,
    TableCommit,
    TableFile,
    TableMeaning,
    not_entered,
    way_on,
)
from spark_queue.core.records import Ranges
from spark_queue.errors import JournalError
from spark_queue.journal import delta
from spark_queue.journal.damage import gap
from spark_queue.journal.deletion_vector import VectorError, deleted_rows
from spark_queue.journal.folder import Folder, is_in_table
from spark_queue.journal.log_entry import LogEntry, TornEntryError, parse_entry
from spark_queue.journal.log_listing import versions_after
from spark_queue.journal.log_looks import NEAR_SILENT_MS, SILENT_MS
from spark_queue.journal.opening import opened
from spark_queue.journal.read_ahead import read_ahead, read_together
from spark_queue.journal.store import TooLargeError, log_key
from spark_queue.journal.table_meaning import meaning_of, unsupported_protocol
from spark_queue.journal.table_snapshot import adds_at
from spark_queue.ports import MessageLogEntry

#: Most bytes of an entry.
ENTRY_BYTES = 256 * 1024 * 1024

#: Entries that are read before the log is looked back at, their bytes, and how many are fetched at once from an object store.
AHEAD_ENTRIES, AHEAD_BYTES, AT_ONCE = 1_000, 64 * 1024 * 1024, 16

#: Rows of one file, and numbers of 64 bits that records hold.
_Rows = Annotated[int, Meta(ge=0, le=2**31 - 1)]
_Time = Annotated[int, Meta(gt=-(2**53), lt=2**53)]
_RowId = Annotated[int, Meta(ge=0, lt=2**53)]


class _Add(Struct):
    path: str
    partitionValues: dict[str, str | None] = {}  # noqa: N815 - Delta's name
    modificationTime: _Time = 0  # noqa: N815 - Delta's name
    dataChange: bool = True  # noqa: N815 - Delta's name
    stats: str | None = None
    baseRowId: _RowId | None = None  # noqa: N815 - Delta's name
    deletionVector: dict[str, Any] | None = None  # noqa: N815 - Delta's name


class _Remove(Struct):
    path: str
    dataChange: bool = True  # noqa: N815 - Delta's name
    deletionTimestamp: _Time | None = None  # noqa: N815 - Delta's name


class _Counted(Struct):
    numRecords: _Rows | None = None  # noqa: N815 - Delta's name


class UnsupportedError(Exception):
    """An entry holds what cannot be followed."""


#: What an entry of a stranger makes a reader raise.
ODD = (msgspec.MsgspecError, ValueError, KeyError, TypeError, AttributeError, RecursionError)


class FollowedLog:
    """`ports.MessageLog` on a followed table; made for one state of what is known of it."""

    def __init__(self, folder: Folder, message_type: str, known: FollowedTable) -> None:
        self._folder = folder
        self._message_type = message_type
        self.known = known
        #: Paths of the table at the version from which it is followed; read where an entry adds a file that may be one of them.
        self._first_paths: frozenset[str] | None = None
        #: The version that was read last, and its token.
        self._read = known.last

    @property
    def silent_ms(self) -> int:
        """See `ports.MessageLog`."""
        return NEAR_SILENT_MS if self._folder.store.is_local else SILENT_MS

    def recover(self, *, version: int, token: str) -> None:
        """Look whether the last version that left a record is still that commit."""
        if token:
            self._look_back(version, token)

    def tail(self, after_version: int, *, finds_gaps: bool = True) -> Iterator[MessageLogEntry]:
        """Yield the commits after a version, unjudged; see `ports.MessageLog`.

        The log is read on first and looked back at then: otherwise another table could take its place between the two.
        """
        if after_version != self._read[0] or self._read[0] <= self.known.last[0]:
            # Of a version that left no record the token is known only to who has read it.
            self._read = self.known.last
        if self.known.begins_with_files and self._read == self.known.last:
            yield self._files_of_beginning()
            self._read = (self.known.from_version, self.known.from_token)
        while True:
            found = self._entries(self._read[0] + 1)
            if self._read[1] and (found or finds_gaps):
                self._look_back(*self._read)
            if not found:
                if finds_gaps:
                    self._refuse_gap(self._read[0] + 1)
                return
            for version, data in found:
                entry = self._understood(version, data)
                self._read = (version, entry.token)
                if version > after_version:
                    yield entry

    def _files_of_beginning(self) -> MessageLogEntry:
        """Return the files that the table has where it begins to be followed, as if one commit had appended them (R143)."""
        known = self.known
        try:
            added = files_at(self._folder, known.from_version)
        except UnsupportedError as reason:
            raise self._unsupported(known.from_version, str(reason)) from None
        # Another table may have taken its place since somebody applied.
        self._look_back(known.from_version, known.from_token)
        commit = TableCommit(
            version=known.from_version, token=known.from_token, operation=BEGINNING, committed_at_ms=known.from_ms, added=added
        )
        return MessageLogEntry(version=commit.version, token=commit.token, committed_at_ms=known.from_ms, commit=commit)

    def _entries(self, version: int) -> list[tuple[int, bytes]]:
        """Return the next entries as they stand, several at once from an object store."""
        found, size_bytes, at_once = list[tuple[int, bytes]](), 0, 1 if self._folder.store.is_local else AT_ONCE
        for number, data in enumerate(read_ahead(self._bytes, count(version), at_once=at_once), start=version):
            if data is None:
                break
            found.append((number, data))
            size_bytes += len(data)
            if len(found) == AHEAD_ENTRIES or size_bytes >= AHEAD_BYTES:
                break
        return found

    def _bytes(self, version: int) -> bytes | None:
        try:
            return self._folder.store.read(log_key(self._folder.key, version), most_bytes=ENTRY_BYTES)
        except TooLargeError as reason:
            raise self._unsupported(version, f"{reason}.") from None

    def _look_back(self, version: int, token: str) -> None:
        """Refuse a log whose entry of a version is not the one that was read; where it was cleaned away, by the table's id."""
        data = self._bytes(version)
        if data is not None:
            if token_of(data) != token:
                raise self._replaced(version, "that version is another commit by now.")
            return
        store, key = self._folder.store, self._folder.key
        is_later_there, table = bool(versions_after(store, key, version)), delta.open_table(store, key)
        found = None if table is None else str(table.metadata().id)
        if not is_later_there:
            if table is not None:
                raise self._replaced(version, f"the table there, with id {found}, has no version after {table.version()}.")
            facts = {"doing": f"reading the log of {key}", "reason": f"its version {version} is not there, and no later one."}
            raise JournalError("STORE_FAILED", path=store.path, next_step="Check the table, then try again.", **facts)
        if found != self.known.table_id:
            reason = f"version {version} was cleaned away, and the table there has id {found} instead of {self.known.table_id}."
            raise self._replaced(version, reason)

    def _refuse_gap(self, version: int) -> None:
        store, key = self._folder.store, self._folder.key
        # Listing and reading are two moments: only a second look makes a gap.
        if (later := versions_after(store, key, version)) and self._bytes(version) is None:
            raise gap(store, key, version, next_step=way_on(self._message_type, later[0]))

    def _understood(self, version: int, data: bytes) -> MessageLogEntry:
        """Return an entry as a commit; one that cannot be made out sets the message type aside."""
        try:
            commit = self._commit(parse_entry(version, data), token_of(data))
        except JournalError as trouble:
            # To count the rows of a file, it may have to be opened.
            raise not_entered(trouble, self._message_type, version) from trouble
        except TornEntryError as reason:
            raise JournalError("STORE_FAILED", path=self._folder.store.path, **_torn(version, reason)) from None
        except UnsupportedError as reason:
            raise self._unsupported(version, str(reason)) from None
        except ODD as reason:
            what = f"its entry cannot be made out ({type(reason).__name__}: {str(reason)[:300]})."
            raise self._unsupported(version, what) from None
        return MessageLogEntry(version=version, token=commit.token, committed_at_ms=commit.committed_at_ms, commit=commit)

    def _commit(self, entry: LogEntry, token: str) -> TableCommit:
        meaning: TableMeaning | None = None
        unsupported = None if entry.protocol is None else unsupported_protocol(entry.protocol)
        if entry.metadata is not None:
            found = meaning_of(entry.metadata)
            meaning, unsupported = (found, unsupported) if isinstance(found, TableMeaning) else (None, unsupported or found)
        adds = [msgspec.convert(add, _Add) for add in entry.adds]
        removed, at_ms = _removes(entry), committed_at_ms(entry)
        return TableCommit(
            version=entry.version, token=token, operation=entry.operation, committed_at_ms=at_ms, meaning=meaning,
            unsupported=unsupported, added=tuple(self._files(adds, {each.path for each in removed})), removed=removed,
        )  # fmt: skip

    def _files(self, adds: Sequence[_Add], removed: set[str]) -> Iterator[TableFile]:
        paths, known = [path_of(add.path) for add in adds], self.known.added
        # Of a file that cannot be new nobody needs to know how many rows it has; it may be gone by now.
        needed = [add.dataChange and path not in known and path not in removed for path, add in zip(paths, adds, strict=True)]
        for add, path, rows in zip(adds, paths, _row_counts(self._folder, adds, needed), strict=True):
            is_old = add.dataChange and add.modificationTime < self.known.from_ms and path in self._paths_before()
            yield _file(add, path, rows, was_there=is_old)

    def _paths_before(self) -> frozenset[str]:
        """Return the paths of the table at the version from which it is followed."""
        if self._first_paths is None:
            adds = adds_at(self._folder, self.known.from_version)
            self._first_paths = frozenset(path_of(str(add["path"])) for add in adds)
        return self._first_paths

    def _unsupported(self, version: int, reason: str) -> JournalError:
        place, next_step = f" from version {version} on", way_on(self._message_type, version + 1)
        facts = {"table": self._folder.uri, "message_type": self._message_type, "place": place, "reason": reason}
        return JournalError("TABLE_UNSUPPORTED", next_step=next_step, **facts)

    def _replaced(self, version: int, reason: str) -> JournalError:
        facts = {"table": self._folder.uri, "message_type": self._message_type, "version": version, "reason": reason}
        return JournalError("TABLE_REPLACED", next_step=way_on(self._message_type, 0), **facts)


def files_at(folder: Folder, version: int) -> tuple[TableFile, ...]:
    """Return the files that a table has at a version, in the order in which they enter: by their time, then by path (R143)."""
    # That a checkpoint or a compaction brought one is nothing here: all of them are new.
    adds = [msgspec.convert({**add, "dataChange": True}, _Add) for add in adds_at(folder, version)]
    counts = _row_counts(folder, adds, [True] * len(adds))
    found = (
        replace(_file(add, path_of(add.path), rows, was_there=False), deleted=_deleted(folder, add, rows))
        for add, rows in zip(adds, counts, strict=True)
    )
    return tuple(sorted(found, key=lambda file: (file.modified_ms, file.path)))


def _deleted(folder: Folder, add: _Add, row_count: int | None) -> Ranges:
    """Return the rows of a file that its vector deletes."""
    if add.deletionVector is None:
        return ()
    try:
        return deleted_rows(folder, add.deletionVector, row_count=row_count or 0)
    except VectorError as reason:
        raise UnsupportedError(f"the deletion vector of file '{path_of(add.path)}' cannot be read: {reason}.") from None


def token_of(data: bytes) -> str:
    """Return what tells an entry from another of its version: a writer need not name its commits (tried)."""
    return hashlib.sha256(data).hexdigest()[:32]


def committed_at_ms(entry: LogEntry) -> int:
    """Return when a commit was made: by the table's own clock where it has one, else its writer's; 0 where it does not say."""
    found = entry.commit_info.get("inCommitTimestamp", entry.commit_info.get("timestamp"))
    return found if type(found) is int and abs(found) < 2**53 else 0


def path_of(written: str) -> str:
    """Return a path of an entry as the store has it, decoded once; one that leads out of the table is refused."""
    path = unquote(written, errors="strict")
    if not is_in_table(written) or not is_in_table(path):
        raise UnsupportedError(f"{written[:300]!r} is no path of a file in the table; a shallow clone cannot be followed.")
    return path


def removed_in(entry: LogEntry) -> dict[str, int]:
    """Return the files that an entry removes, and when, in milliseconds."""
    return {file.path: file.removed_at_ms for file in _removes(entry)}


def _removes(entry: LogEntry) -> tuple[RemovedFile, ...]:
    at_ms, found = committed_at_ms(entry), list[RemovedFile]()
    for action in entry.removes:
        each = msgspec.convert(action, _Remove)
        removed_at_ms = at_ms if each.deletionTimestamp is None else each.deletionTimestamp
        found.append(RemovedFile(path=path_of(each.path), data_change=each.dataChange, removed_at_ms=removed_at_ms))
    return tuple(found)


def _file(add: _Add, path: str, rows: int | None, *, was_there: bool) -> TableFile:
    return TableFile(
        path=path, row_count=rows, data_change=add.dataChange, modified_ms=add.modificationTime, partition=add.partitionValues,
        row_id=add.baseRowId, deleted=() if add.deletionVector is None else None, was_there=was_there,
    )  # fmt: skip


def _row_counts(folder: Folder, adds: Sequence[_Add], needed: Sequence[bool]) -> list[int | None]:
    """Return how many rows each file has by its statistics, or else by its footer, where that is `needed`."""
    counts = [_count(add.stats) for add in adds]
    uncounted = [number for number, is_needed in enumerate(needed) if is_needed and counts[number] is None]
    read = read_together(partial(_footer_rows, folder), [adds[number].path for number in uncounted], at_once=AT_ONCE)
    for number, rows in zip(uncounted, read, strict=True):
        counts[number] = rows
    return counts


def _footer_rows(folder: Folder, path: str) -> int:
    with opened(folder, path_of(path)) as file:
        rows = file.metadata.num_rows
    if rows >= 2**31:
        raise UnsupportedError(f"file '{path}' has {rows} rows.")
    return rows


def _count(stats: str | None) -> int | None:
    if not stats:
        return None
    try:
        return msgspec.json.decode(stats, type=_Counted).numRecords
    except msgspec.ValidationError as reason:
        raise UnsupportedError(f"a file has wrong statistics ({reason}).") from None
    except msgspec.DecodeError:
        return None


def is_counted(stats: object) -> bool:
    """Return whether the statistics of a file tell how many rows it has."""
    try:
        return isinstance(stats, str) and _count(stats) is not None
    except UnsupportedError:
        return False


def _torn(version: int, reason: Exception) -> Mapping[str, str]:
    doing, text = f"reading version {version} of its log", f"it is not whole ({str(reason)[:300]})."
    return {"doing": doing, "reason": text, "next_step": "Its writer may still be at work: look again later."}
