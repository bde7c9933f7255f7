"""Snapshots: the state at one record, so that a start reads only later records (DESIGN 4).

A snapshot is a shortcut and never a source: it holds the fold of the log, was made by folding the log, and a reader that finds
none that is whole, of this journal, of this very log and of this very software folds from the beginning.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.metadata
import importlib.resources
import logging
from collections.abc import Callable, Iterator, Sequence
from importlib.resources.abc import Traversable
from itertools import pairwise
from typing import Any

import msgspec

from spark_queue.core.log_tail import LogTail
from spark_queue.core.message_files.segment import TraitSource
from spark_queue.core.records import JournalCreated, Kind, Record
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.log_history import LogHistory
from spark_queue.journal.record_blocks import RecordBlock, read_records
from spark_queue.journal.record_table import detail_of
from spark_queue.journal.state_codec import decode, decoded, encode
from spark_queue.journal.store import SNAPSHOTS, Store
from spark_queue.journal.traits import FileTraits

_log = logging.getLogger(__name__)

FORMAT = 1

#: How many of the newest are kept: the older one serves while the newer is written, or when it is damaged.
KEPT = 2

#: How many stretches of the log keep a snapshot of their beginning at most, and the least records of a stretch.
PAST_KEPT = 64
STRETCH_RECORDS = 1 << 15

#: Of a state of which nothing is missing; and of one without some queues, which are set aside.
_SUFFIX, _PARTIAL = ".snapshot", ".partial"

#: The code that decides about folds and traits: snapshots of other code are not used.
_CODE = ("spark_queue.core", "spark_queue.expression", "spark_queue.journal")
_LIBRARIES = ("duckdb", "google-re2", "numpy", "pyroaring", "sqlglot")


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of a snapshot, as JSON; the state follows."""

    format: int
    journal: str
    #: The software that made it; see `software`.
    software: str
    #: Number of the last record that is in the state, and the digest of that record.
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


def write(store: Store, state: JournalState, history: LogHistory, last: Record) -> None:
    """Store a state of which `last` is the newest record, and its history; and delete older snapshots, see `_surplus`.

    A queue that is taken back in is folded from the newest one in which it was, so those outlive others that lack it.
    """
    body = msgspec.msgpack.encode((encode(state), encode(history)))
    header = Header(
        format=FORMAT, journal=state.journal_id, software=software(), record=last.record, last=_said(last),
        checksum=hashlib.sha256(body).hexdigest(),
    )  # fmt: skip
    # Whole or not at all, on a local disk as on an object store; one that a power loss tears is known by the checksum.
    store.make_folder(SNAPSHOTS)
    suffix = _PARTIAL if state.troubles else _SUFFIX
    store.write(f"{SNAPSHOTS}/{last.record:020d}{suffix}", msgspec.json.encode(header) + b"\n" + body)
    older = [each for each in stored(store) if each[0] <= last.record]
    partial = [key for _, key in older if key.endswith(_PARTIAL)]
    whole = [each for each in older if each[1] not in partial]
    store.delete(_surplus(whole, records=last.record + 1) + partial[KEPT if state.troubles else 0 :])


def _surplus(older: Sequence[tuple[int, str]], *, records: int) -> list[str]:
    """Return the keys of snapshots, given newest first, that may go: the newest stay, and the first one in each stretch of the log.

    A past moment is folded from the snapshot before it. The log is cut into at most `PAST_KEPT` stretches, which double as it
    grows; before the first cut there is nothing to save.
    """
    stretch = max(STRETCH_RECORDS, 1 << (records // PAST_KEPT).bit_length())
    stretches = [*(number // stretch for number, _ in older), 0]
    firsts = [each > before for each, before in pairwise(stretches)]
    return [key for (_, key), is_first in zip(older[KEPT:], firsts[KEPT:], strict=True) if not is_first]


def stored(store: Store) -> list[tuple[int, str]]:
    """Return the record and the key of each snapshot, newest first, whether it can be used or not."""
    keys = [entry.key for entry in store.list(SNAPSHOTS) if entry.key.endswith((_SUFFIX, _PARTIAL))]
    named = [(key.removeprefix(f"{SNAPSHOTS}/").rpartition(".")[0], key) for key in keys]
    return sorted(((int(name), key) for name, key in named if len(name) == 20 and name.isdecimal()), reverse=True)


def load(store: Store, blocks: Sequence[RecordBlock], *, until: int | None = None) -> LogTail:
    """Return the log tail of these blocks before record `until`: from the newest usable snapshot, or from their beginning."""
    until = until if until is not None else blocks[-1].last + 1 if blocks else 0
    for key in [key for number, key in stored(store) if number < until][: 2 * KEPT]:
        try:
            return _resumed(
                store, key, lambda first: read_records(store, blocks, first=first, until=until), lambda: _journal_id(store, blocks)
            )
        except ValueError as reason:
            level = logging.INFO if isinstance(reason, UnsuitableError) else logging.WARNING
            _log.log(level, "Snapshot %s of '%s' is not used: %s. More of the log is read instead.", key, store.path, reason)
    return LogTail(read_records(store, blocks, until=until))


def resume(store: Store, key: str, records: Sequence[Record]) -> LogTail:
    """Return the same as these records, which begin with the log, from one snapshot."""
    return _resumed(store, key, lambda first: records[first:], lambda: records[0].body_as(JournalCreated).journal)


def _resumed(store: Store, key: str, since: Callable[[int], Sequence[Record]], journal_id: Callable[[], str]) -> LogTail:
    """Return the log tail of one snapshot, checked against the record that it ends with."""
    header, state, history = _read(store.read(key) or b"")
    number = f"{SNAPSHOTS}/{header.record:020d}"
    if (header.journal, number, state.next_record) != (journal_id(), key.rpartition(".")[0], header.record + 1):
        raise ValueError("it belongs to another journal or another record")
    records = since(header.record)
    if not records or header.last != _said(records[0]):
        raise ValueError("the log continued differently")
    state.traits, since_then = FileTraits(store), records[1:]
    state.foresee(since_then if state.unanswered else ())
    if any(record.kind == Kind.REVIVED and record.queue in state.troubles for record in since_then) or state.is_file_back():
        raise UnsuitableError("a queue that was set aside then has been revived")
    state.foresee(())
    return LogTail(since_then, state, history)


class UnsuitableError(ValueError):
    """A snapshot is of other software, as after an upgrade, or lacks a queue: nothing is wrong with it."""


def _read(data: bytes) -> tuple[Header, JournalState, LogHistory]:
    """Read a snapshot; the state has no source of traits yet. ValueError means that it is damaged, or of other software."""
    head, _, body = data.partition(b"\n")
    try:
        header = msgspec.json.decode(head, type=Header)
    except msgspec.DecodeError as reason:
        raise ValueError(f"it is damaged ({reason})") from None
    if (header.format, header.software) != (FORMAT, software()):
        raise UnsuitableError("it was written by other software")
    if hashlib.sha256(body).hexdigest() != header.checksum:
        raise ValueError("it is damaged")
    state, history = msgspec.msgpack.decode(body, type=tuple[bytes, bytes])
    return header, decode(state), decoded(history, LogHistory)


def capture(store: Store, blocks: Sequence[RecordBlock], traits: TraitSource) -> None:
    """Fold on from the newest usable snapshot to the end of these blocks, and store the state there.

    A state of its own: the coordinator's runs ahead of the log, and copying that would hold up its commits.
    """
    tail = load(store, blocks)
    if not tail.records:
        return
    state, history = tail.fold(traits), tail.fold_history()
    # A fault that occurred only here has no record, so nothing would show that the queue is back.
    if not state.faults:
        write(store, state, history, tail.records[-1])


def _journal_id(store: Store, blocks: Sequence[RecordBlock]) -> str:
    first = next(iter(read_records(store, blocks[:1])), None)
    return first.body.journal if first is not None and isinstance(first.body, JournalCreated) else ""


def _said(record: Record) -> str:
    """Return what a record says, in short: another log may have another record of the same number."""
    plain: dict[str, Any] = {name: getattr(record, name) for name in Record.__slots__ if name not in ("body", "stored")}
    plain["ranges"] = [[int(first), int(until)] for first, until in record.ranges]
    plain["detail"] = detail_of(record)
    return hashlib.sha256(msgspec.json.encode(plain, order="deterministic")).hexdigest()
