"""The control log as its Delta log has it at one version: read entry by entry, since every writer of it is ours (DESIGN 4).

delta-rs reads each entry two to four times, one after the other, and knows nothing of the records that entries hold.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import msgspec

from spark_queue.journal import control_checkpoint
from spark_queue.journal.damage import is_whole_checkpoint
from spark_queue.journal.log_entry import LogEntry, OddEntryError, TornEntryError, check_mark, parse_entry
from spark_queue.journal.log_listing import is_checkpoint, is_entry, last_checkpoint, version_of
from spark_queue.journal.read_ahead import read_together
from spark_queue.journal.record_blocks import RecordBlock
from spark_queue.journal.record_table import rows_of
from spark_queue.journal.store import CONTROL, CONTROL_LOG, Store, log_key

#: Entries that are fetched at once from an object store.
_AHEAD = 64

#: Looks at a log in which an entry is missing: it may have been cleaned away since the listing, or the listing have left it out.
_LOOKS = 3


class OddLogError(Exception):
    """The log is not whole.

    Attributes
    ----------
    what : str
        The part that is not, and the fault.
    """

    def __init__(self, what: str, reason: object) -> None:
        super().__init__(str(reason))
        self.what = what


@dataclass(slots=True, kw_only=True)
class ControlTable:
    """The control log up to one of its entries."""

    version: int = -1
    #: The newest entry; None before the first.
    head: LogEntry | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    protocol: Mapping[str, Any] = field(default_factory=dict)
    transactions: dict[str, int] = field(default_factory=dict)
    #: The actions by which data files came into the table, and by which others left it, by path.
    adds: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    removes: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    #: The data files, by path.
    files: dict[str, RecordBlock] = field(default_factory=dict)
    #: The records that no data file has yet: a block for each entry that holds some, by its version, oldest first.
    held: dict[int, RecordBlock] = field(default_factory=dict)

    @property
    def blocks(self) -> list[RecordBlock]:
        """All records, in their order; adjacent ones that entries hold are one block."""
        runs: list[list[RecordBlock]] = []
        for block in self.held.values():
            if not runs or block.first > runs[-1][-1].last + 1:
                runs.append([])
            runs[-1].append(block)
        held = (RecordBlock.of_rows([row for block in run for row in block.rows]) for run in runs)
        return sorted([*self.files.values(), *held])

    @property
    def held_since(self) -> int | None:
        """The version of the oldest entry whose records no data file has; None where files have all."""
        return next(iter(self.held), None)

    def apply(self, entry: LogEntry) -> None:
        """Go on to the next entry."""
        for remove in entry.removes:
            path = remove["path"]
            self.adds.pop(path, None)
            self.files.pop(path, None)
            self.removes[path] = remove
        for add in entry.adds:
            path, block = add["path"], RecordBlock.of_add(add)
            self.removes.pop(path, None)
            self.adds[path], self.files[path] = add, block
            self.held = {at: held for at, held in self.held.items() if not _has(block, held)}
        for block in held_by(entry):
            self.held[entry.version] = block
        self.transactions |= entry.transactions
        self.metadata, self.protocol = entry.metadata or self.metadata, entry.protocol or self.protocol
        self.version, self.head = entry.version, entry

    def hold(self, earlier: LogEntry) -> None:
        """Take in the records that an earlier entry holds and no data file has."""
        for block in held_by(earlier):
            if not any(_has(file, block) for file in self.files.values()):
                self.held[earlier.version] = block

    def as_entry(self) -> LogEntry:
        """Return the one entry that would make the table, as a checkpoint has it."""
        return LogEntry(
            version=self.version, commit_info={}, adds=list(self.adds.values()), removes=list(self.removes.values()),
            transactions=dict(self.transactions), metadata=self.metadata, protocol=self.protocol,
        )  # fmt: skip

    def forget_removed(self, *, before_ms: int) -> None:
        """Forget files that left the table before a time: Delta need not tell of them any more."""
        gone = [path for path, remove in self.removes.items() if remove.get("deletionTimestamp", 0) < before_ms]
        for path in gone:
            del self.removes[path]


def _has(file: RecordBlock, block: RecordBlock) -> bool:
    return file.first <= block.first <= block.last <= file.last


def brought_by(entry: LogEntry) -> list[RecordBlock]:
    """Return the blocks of an entry in their order: those of files whose rows are new to the table, and what it holds itself.

    A reader that comes from the entry before knows the records of files that were held by entries until then.
    """
    return sorted(chain((RecordBlock.of_add(add) for add in entry.adds if add.get("dataChange", True)), held_by(entry)))


def held_by(entry: LogEntry) -> list[RecordBlock]:
    """Return the block of the records that an entry holds itself, if it does."""
    rows = rows_of(entry.mark.get("records", ()))
    return [RecordBlock.of_rows(rows)] if rows else []


def read(store: Store, *, get: Callable[[str], bytes | None] | None = None, skips_torn: bool = False) -> ControlTable | None:
    """Read the log to its end; None where there is none, and OddLogError where it is not whole.

    `get` reads an object, where that is not to be done by the store alone. With `skips_torn` a newest checkpoint that a power loss
    has torn is left out, for readers that may not repair the log.
    """
    if not _has_log(store):
        return None
    get, missing, newest, table = get or store.read, 0, -1, ControlTable()
    for _ in range(_LOOKS):
        checkpoint, newest = _found(store, get, skips_torn=skips_torn)
        if checkpoint is None and newest < 0:
            return None
        table = ControlTable() if checkpoint is None else _begun(store, checkpoint, get)
        # The entry of a checkpoint's version tells that commit's token.
        versions = range(max(table.version, 0), max(table.version, newest) + 1)
        for version, data in zip(versions, _fetched(store, [log_key(CONTROL, each) for each in versions], get), strict=True):
            if data is None:
                missing = version
                break
            entry = _parsed(store, version, data)
            if version == table.version:
                table.head = entry
                _hold_earlier(store, table, get)
            else:
                with _faults_named(entry):
                    table.apply(entry)
        else:
            return table
    if missing == newest == table.version + 1:
        # A listing can name an entry before it is there to be read: until then the log ends before it.
        return table
    raise OddLogError(f"{log_key(CONTROL, missing)} is missing", "Later ones are there.")


def read_on(store: Store, table: ControlTable) -> bool:
    """Read what was committed since a look; False where the log of that look may be cleaned away. OddLogError as in `read`."""
    if store.read(log_key(CONTROL, table.version)) is None:
        return False
    while (data := store.read(log_key(CONTROL, table.version + 1))) is not None:
        entry = _parsed(store, table.version + 1, data)
        with _faults_named(entry):
            table.apply(entry)
    return True


def read_checkpoint(store: Store) -> ControlTable | None:
    """Read the log up to its newest checkpoint; None where there is none. OddLogError where that is not whole."""
    if not _has_log(store):
        return None
    checkpoint, newest = _found(store, store.read)
    # A log without the entry of its checkpoint's version is damaged, or to be repaired first.
    return None if checkpoint is None or version_of(checkpoint) > newest else _begun(store, checkpoint, store.read)


def _has_log(store: Store) -> bool:
    """Return whether there is a folder to list; a store has none."""
    return not store.is_local or os.path.lexists(store.uri(CONTROL_LOG))


def _found(store: Store, get: Callable[[str], bytes | None], *, skips_torn: bool = False) -> tuple[str | None, int]:
    """Return the key of the newest checkpoint, and the newest version that has an entry; None and -1 where there is none."""
    hint = last_checkpoint(store, CONTROL).version
    keys = [each.key for each in store.list(CONTROL_LOG, after=log_key(CONTROL, hint - 1))] if hint > 0 else []
    if not (any(map(is_checkpoint, keys)) and any(map(is_entry, keys))):
        # It is only a hint.
        keys = [each.key for each in store.list(CONTROL_LOG)]
    newest = max((version_of(key) for key in keys if is_entry(key)), default=-1)
    checkpoints = [key for key in keys if is_checkpoint(key)]
    # One that was torn with the commit that it is of goes when its version is written again.
    while checkpoints and (skips_torn or version_of(checkpoints[-1]) > newest) and not is_whole_checkpoint(get(checkpoints[-1])):
        checkpoints.pop()
    return checkpoints[-1] if checkpoints else None, newest


def _begun(store: Store, checkpoint: str, get: Callable[[str], bytes | None]) -> ControlTable:
    try:
        found = control_checkpoint.read(get(checkpoint) or b"", version=version_of(checkpoint))
    except control_checkpoint.FAULTS as reason:
        raise OddLogError(f"{checkpoint} is not whole", store.reason(reason)) from None
    table = ControlTable()
    with _faults_named(found):
        table.apply(found)
    return table


def _hold_earlier(store: Store, table: ControlTable, get: Callable[[str], bytes | None]) -> None:
    """Take in records of entries up to a checkpoint that no data file has: where somebody else made it, not right after a flush."""
    version, entry = table.version, table.head
    # What an entry of a repair, or of a stranger, does not say, the one before it does.
    while entry is not None and entry.mark.get("writer") not in ("coordinator", "creator"):
        version -= 1
        entry = _parsed_at(store, version, get)
    since = version + 1 if entry is None else entry.mark.get("held_since", version + 1)
    if not isinstance(since, int):
        raise OddLogError(f"{log_key(CONTROL, version)} is not whole", "It does not say which entries hold records.")
    for held in range(since, table.version + 1):
        entry = _parsed_at(store, held, get)
        with _faults_named(entry):
            table.hold(entry)


def _parsed_at(store: Store, version: int, get: Callable[[str], bytes | None]) -> LogEntry:
    data = get(log_key(CONTROL, version))
    if data is None:
        raise OddLogError(f"{log_key(CONTROL, version)} is missing", "Its records stand in no data file.")
    return _parsed(store, version, data)


def _fetched(store: Store, keys: Sequence[str], get: Callable[[str], bytes | None]) -> Iterator[bytes | None]:
    """Return what stands under keys; a disk answers one after the other sooner than several at once."""
    return map(get, keys) if store.is_local else read_together(get, keys, at_once=_AHEAD)


def _parsed(store: Store, version: int, data: bytes) -> LogEntry:
    try:
        entry = parse_entry(version, data)
    except OddEntryError as reason:
        raise OddLogError(f"{log_key(CONTROL, version)} has content that no commit of records has", reason) from None
    except TornEntryError as reason:
        raise OddLogError(f"{log_key(CONTROL, version)} is not whole", reason) from None
    check_mark(entry, path=store.path)
    return entry


@contextmanager
def _faults_named(entry: LogEntry) -> Iterator[None]:
    """Raise OddLogError for an entry that the table cannot take in."""
    try:
        yield
    except (msgspec.MsgspecError, LookupError, TypeError, ValueError) as reason:
        # A stranger's commit: of a file without statistics, or of rows that are none.
        path = next((str(add.get("path")) for add in entry.adds), None)
        what = f"{log_key(CONTROL, entry.version)} holds no records" if path is None else f"{CONTROL}/{path} has no statistics"
        raise OddLogError(what, reason) from None
