"""Snapshots: the state at one record, so that a start reads only what came after it (DESIGN 4).

A snapshot is a shortcut and never a source: it holds what folding the log gives, was made by folding the log, and whoever finds
none that is whole, of this journal, of this very log and of this very software folds from the beginning.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import importlib.resources
import logging
from collections.abc import Callable, Iterator, Sequence
from importlib.resources.abc import Traversable
from typing import Any

import msgspec

from spark_queue.core.message_files.segment import TraitSource
from spark_queue.core.records import Kind, Record
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.log_tail import LogTail
from spark_queue.journal import state_codec
from spark_queue.journal.control_files import ControlFile, read_records
from spark_queue.journal.layout import SNAPSHOTS, Store

_log = logging.getLogger(__name__)

FORMAT = 1

#: How many are kept: the older one serves while the newer is written, or when it is damaged.
KEPT = 2

_SUFFIX = ".snapshot"

#: What decides how records fold and what traits say, with all that lies below: snapshots of other code are not used.
_CODE = ("spark_queue.core", "spark_queue.expression", "spark_queue.journal")
_LIBRARIES = ("duckdb", "google-re2", "numpy", "pyroaring", "sqlglot")


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of a snapshot, as JSON; the state follows."""

    format: int
    journal: str
    #: What made it; see `software`.
    software: str
    #: Number of the last record that is in the state, and what that record says.
    record: int
    last: str
    #: SHA-256 of the rest of the file.
    checksum: str


@functools.cache
def software() -> str:
    """Name the code that folds: any change of it may fold otherwise, and an upgrade or a rollback reads the log once."""
    found = hashlib.sha256()
    for package in _CODE:
        for path, text in _sources(importlib.resources.files(package), package):
            found.update(path.encode() + text)
    for library in _LIBRARIES:
        found.update(f"{library} {importlib.metadata.version(library)}".encode())
    return found.hexdigest()


def _sources(folder: Traversable, path: str) -> Iterator[tuple[str, bytes]]:
    """Yield every source file at or below a folder with where it lies: a class that moved is not found by its old name."""
    for each in sorted(folder.iterdir(), key=lambda each: each.name):
        if each.is_dir():
            yield from _sources(each, f"{path}/{each.name}")
        elif each.name.endswith(".py"):
            yield f"{path}/{each.name}", each.read_bytes()


def write(store: Store, state: JournalState, last: Record) -> None:
    """Store a state of which `last` is the newest record, and delete the older snapshots but one.

    Raises
    ------
    TypeError
        When something in the state is of a type that snapshots do not know.
    JournalError
        STORE_FAILED.
    """
    body = state_codec.encode(state)
    header = Header(
        format=FORMAT, journal=state.journal_id, software=software(), record=last.record, last=_said(last),
        checksum=hashlib.sha256(body).hexdigest(),
    )  # fmt: skip
    # Whole or not at all, on a local disk as on an object store; what a power loss tears, the checksum tells.
    store.make_folder(SNAPSHOTS)
    store.write(_key(last.record), msgspec.json.encode(header) + b"\n" + body)
    store.delete([key for number, key in stored(store) if number <= last.record][KEPT:])


def stored(store: Store) -> list[tuple[int, str]]:
    """Return the record and the key of each snapshot, newest first, whether it can be used or not.

    Raises
    ------
    JournalError
        STORE_FAILED.
    """
    keys = [entry.key for entry in store.list(SNAPSHOTS) if entry.key.endswith(_SUFFIX)]
    named = [(key.removeprefix(f"{SNAPSHOTS}/").removesuffix(_SUFFIX), key) for key in keys]
    return sorted(((int(name), key) for name, key in named if len(name) == 20 and name.isdecimal()), reverse=True)


def load(store: Store, files: Sequence[ControlFile]) -> LogTail:
    """Return what the log of these files tells: from the newest usable snapshot, or from its beginning.

    Raises
    ------
    JournalError
        JOURNAL_DAMAGED, PROTOCOL_NEWER or STORE_FAILED, of the log itself.
    """
    until = files[-1].last + 1 if files else 0
    return _from_newest(store, until, lambda first: read_records(store, files, first=first), lambda: _journal_id(store, files))


def shorten(store: Store, records: Sequence[Record]) -> LogTail:
    """Return the same as these records, which begin with the log: from the newest usable snapshot of them, or all of them.

    Raises
    ------
    JournalError
        STORE_FAILED.
    """
    return _from_newest(store, len(records), lambda first: records[first:], lambda: str(records[0].detail["journal"]))


def resume(store: Store, key: str, records: Sequence[Record]) -> LogTail:
    """Return the same as these records, which begin with the log, from one snapshot.

    Raises
    ------
    ValueError
        When it cannot be used, and why.
    JournalError
        STORE_FAILED.
    """
    return _resumed(store, key, lambda first: records[first:], lambda: str(records[0].detail["journal"]))


def _from_newest(store: Store, until: int, since: Callable[[int], Sequence[Record]], journal_id: Callable[[], str]) -> LogTail:
    """Return what a log tells, from the newest usable snapshot of a record before `until` on, or from its beginning."""
    for key in [key for number, key in stored(store) if number < until]:
        try:
            return _resumed(store, key, since, journal_id)
        except ValueError as reason:
            level = logging.INFO if isinstance(reason, OtherSoftwareError) else logging.WARNING
            _log.log(level, "Snapshot %s of '%s' is not used: %s. The log is read further back instead.", key, store.path, reason)
    return LogTail(since(0))


def _resumed(store: Store, key: str, since: Callable[[int], Sequence[Record]], journal_id: Callable[[], str]) -> LogTail:
    """Return what one snapshot tells, checked against the record that it ends with.

    Parameters
    ----------
    since : callable
        Gives the records of the log from a number on.
    journal_id : callable
        Gives the journal's id, as the log says it.
    """
    header, state = _read(store.read(key) or b"")
    if (header.journal, _key(header.record), state.next_record) != (journal_id(), key, header.record + 1):
        raise ValueError("it is of another journal or another record")
    records = since(header.record)
    if not records or header.last != _said(records[0]):
        raise ValueError("the log went on otherwise")
    past = LogTail(records[1:])
    past.state = state
    return past


class OtherSoftwareError(ValueError):
    """A snapshot was written by other software, as after an upgrade: nothing is wrong with it."""


def _read(data: bytes) -> tuple[Header, JournalState]:
    """Read a snapshot; the state has no source of traits yet. ValueError tells that it is damaged, or of other software."""
    head, _, body = data.partition(b"\n")
    try:
        header = msgspec.json.decode(head, type=Header)
    except msgspec.DecodeError as reason:
        raise ValueError(f"it is damaged ({reason})") from None
    if (header.format, header.software) != (FORMAT, software()):
        raise OtherSoftwareError("it was written by other software")
    if hashlib.sha256(body).hexdigest() != header.checksum:
        raise ValueError("it is damaged")
    return header, state_codec.decode(body)


def take(store: Store, files: Sequence[ControlFile], traits: TraitSource) -> None:
    """Fold on from the newest usable snapshot to the end of these files, and store the state there.

    A state of its own: the coordinator's runs ahead of the log, and copying that would hold up its commits.

    Raises
    ------
    TypeError
        As `write`.
    SparkQueueError
        What keeps the log from being read or folded.
    """
    past = load(store, files)
    if not past:
        return
    state = past.fold(traits)
    # What a queue that was set aside would hold is not known; the next start may find its file again.
    if not state.troubles:
        write(store, state, past[-1])


def _key(record: int) -> str:
    return f"{SNAPSHOTS}/{record:020d}{_SUFFIX}"


def _journal_id(store: Store, files: Sequence[ControlFile]) -> str:
    first = next(iter(read_records(store, files[:1])), None)
    return str(first.detail.get("journal")) if first is not None and first.kind == Kind.JOURNAL_CREATED else ""


def _said(record: Record) -> str:
    """Return what a record says, in short: another log may have another record of the same number."""
    plain: dict[str, Any] = {name: getattr(record, name) for name in Record.__slots__}
    plain["ranges"] = [[int(first), int(until)] for first, until in record.ranges]
    return hashlib.sha256(msgspec.json.encode(plain, order="deterministic")).hexdigest()
