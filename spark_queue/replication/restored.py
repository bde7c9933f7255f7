"""Journals that were restored from a backup, and what peers' logs say to who only compares them (DESIGN 17.3)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from pyroaring import BitMap64

from spark_queue.core.definitions import parsing
from spark_queue.core.definitions.definition import Definitions, PeerDefinition
from spark_queue.core.folds.peers import watermark_of
from spark_queue.core.records import Entered, Kind, Pulled, Record
from spark_queue.core.state.ownership import Watermark
from spark_queue.errors import JournalError
from spark_queue.journal.record_blocks import RecordBlock
from spark_queue.journal.store import Store
from spark_queue.replication.exchange import PullState
from spark_queue.replication.news import PeerFold
from spark_queue.replication.peer_files import refused
from spark_queue.replication.peer_log import PeerLog, blocks_of, digest_of, read_table, scan
from spark_queue.replication.peer_process import ask
from spark_queue.replication.peer_stores import peer_store
from spark_queue.replication.record_checks import is_sound


def read_definitions(store: Store, peer: str) -> tuple[str, Definitions]:
    """Return the UUID of a peer's journal and the definitions that hold there; reads nothing else."""
    journal, stored = ask(peer, tuple[str, dict[str, Any]], newest_definitions, store, peer)
    return journal, parsing.parse(stored)


def lag_of(store: Store, peer: PeerDefinition, watermark: Watermark | None, *, now_ms: int) -> tuple[int, float]:
    """Return how many records of a peer the journal in a store is to take over, and how long the first has waited, in seconds."""
    first = 0 if watermark is None else watermark.record + 1
    count, since_ms = ask(peer.name, tuple[int, int], waiting_since, peer_store(store, peer), peer.name, first)
    return count, max(0, now_ms - since_ms) / 1_000 if count else 0.0


def waiting_since(store: Store, peer: str, first: int) -> tuple[int, int]:
    """Return how many records from one on are news, and when the first was written; to be asked of a process (`sandbox`)."""
    count, since_ms = 0, 0
    for record in scan(store, peer, None, first=first):
        if not record.body.silent:
            count, since_ms = count + 1, since_ms if count else record.at_ms
    return count, since_ms


def newest_definitions(store: Store, peer: str) -> tuple[str, dict[str, Any]]:
    """Return the UUID of a peer's journal and its definitions as they are stored; to be asked of a process (`sandbox`)."""
    blocks = blocks_of(read_table(store, peer), peer)
    fold = PeerFold(peer)
    for kind in (Kind.JOURNAL_CREATED, Kind.DEFINITIONS_APPLIED):
        fold.fold(_newest(store, peer, blocks, kind))
    return fold.journal_id, dict(fold.definitions.stored)


def read_records(store: Store, peer: str) -> list[Record]:
    """Return all records of a peer's log, each of which one may write."""
    records = list(scan(store, peer, None))
    fold = PeerFold(peer)
    fold.foresee(records)
    for record in records:
        fold.fold(record)
    return records


def _newest(store: Store, peer: str, blocks: Sequence[RecordBlock], kind: str) -> Record:
    """Return the newest record of a kind whose records stand in files of their own."""
    of_kind = [block for block in blocks if block.holds_only(kind)]
    if not of_kind:
        raise refused(peer, "its log", f"no file of it has records of kind {kind} alone")
    block = of_kind[-1]
    found = PeerLog(store, peer, first=block.last, kinds=(kind,), blocks=(block,)).read()
    if not found:
        raise refused(peer, f"record {block.last}", f"it is not of kind {kind}, although the list of its log's files says so")
    return found[0]


#: What errors call the own log.
_OWN = "this journal"


def told_ahead(store: Store, peer: str, known: PullState) -> tuple[list[Record], Mapping[str, int]]:
    """Return the newest that the whole log of a peer says of how far it has pulled this journal and others, and of its definitions.

    And all that it says of restored backups, and up to which message it has those of this journal, by the types that are known
    here. It is looked at before anything of the log is believed.
    """
    newest, restored, copied = dict[tuple[str, bool], Record](), list[Record](), dict[str, int]()
    for record in _told(store, peer, (Kind.PULLED, Kind.RESTORED, Kind.DEFINITIONS_APPLIED, Kind.ENTERED), known.origin):
        body = record.body
        if isinstance(body, Entered):
            _note_copied(str(record.message_type), body, known, copied)
        elif not isinstance(body, Pulled) or body.number >= 0:
            # Below that it says that a log is read again, which tells nothing of this one.
            newest[record.kind, isinstance(body, Pulled) and body.journal == known.journal] = record
        if record.kind == Kind.RESTORED:
            restored.append(record)
    others = [record for record in newest.values() if record.kind != Kind.RESTORED]
    return sorted([*others, *restored], key=lambda record: record.record), copied


def _note_copied(name: str, body: Entered, known: PullState, copied: dict[str, int]) -> None:
    """Note the end of the messages of the own origin that a record says have entered."""
    origin, own = known.origin, known.instances[known.journal]
    if name in known.held and body.instances.get(origin) == own:
        ends = (bookmark + rows for _, rows, found, bookmark in body.origin if found == origin)
        copied[name] = max(copied.get(name, 0), *ends, 0)


def _told(store: Store, peer: str, kinds: Collection[str], origin: str = "") -> Iterator[Record]:
    """Yield the sound records of some kinds that stand before what is refused; of messages that entered, those of an origin."""
    try:
        yield from filter(is_sound, scan(store, peer, kinds, origin=origin))
    except JournalError as refusal:
        # It is refused again where it stands, once what came before is taken.
        if refusal.code not in ("PEER_REFUSED", "PROTOCOL_NEWER"):
            raise


def check_own(own: Store, store: Store, peer: str, known: PullState, look: Callable[[], PullState]) -> list[Record]:
    """Return what a peer's log says ahead; raise where it has pulled what the own log does not have, or has a message of that."""
    told, copied = told_ahead(store, peer, known)
    lost = _lost(known, copied)
    if lost is not None:
        # It may have been published and copied since: what the peer had copied by now is here by now.
        lost = _lost(look(), copied)
    newest, origins = next(_marks(reversed(told), known.journal), None), [known.journal, *known.renewed]
    origin = "" if newest is None else newest.origin or newest.journal
    # Before somebody said that the journal was restored it may have pulled anything.
    if newest is not None and origin not in origins[:-1] and not (origin == origins[-1] and is_common(own, _OWN, newest)):
        lost = f"record {newest.record}"
    if lost is None:
        return told
    log, common = list(scan(own, _OWN, None)), -1
    for mark in _marks(_told(store, peer, (Kind.PULLED,)), known.journal):
        if has_record(log, mark):
            common = mark.record
    # The first reign after that is the one that began on the copy.
    reigns = (record.record for record in log if record.kind == Kind.EPOCH_CLAIMED and record.record > common)
    since = next(reigns, len(log))
    raise JournalError("JOURNAL_RESTORED", peer=peer, record=lost, path=own.path, since=since)


def _lost(known: PullState, copied: Mapping[str, int]) -> str | None:
    """Return a message that a peer has copied, and that is not here; own messages are here without a gap."""
    ends = ((name, end) for name, end in copied.items() if end and end - 1 not in known.held[name].get(known.origin, BitMap64()))
    return next((f"message {end - 1} of type '{name}'" for name, end in ends), None)


def is_common(store: Store, peer: str, watermark: Watermark) -> bool:
    """Return whether a peer's log has the record that was pulled last."""
    standing = next(scan(store, peer, None, first=watermark.record), None)
    return standing is not None and digest_of(standing) == watermark.digest


def newest_mark(own: Store, journal: str) -> Watermark | None:
    """Return how far a journal was pulled before it was to be read again; None where nothing was."""
    return next(iter(deque(_marks(scan(own, _OWN, (Kind.PULLED,)), journal), maxlen=1)), None)


def shared_until(own: Store, store: Store, watermark: Watermark, *, peer: str) -> int:
    """Return the last record of a peer's log that was pulled before the peer was restored from a backup; -1 where there is none."""
    # Which of them is newer follows from where the own log has them, not from their numbers.
    ages = {(mark.record, mark.digest): age for age, mark in enumerate(_marks(scan(own, _OWN, (Kind.PULLED,)), watermark.journal))}
    numbers = {number for number, _ in ages}
    newest, common, restored = -1, -1, -1
    for record in scan(store, peer, None):
        age = ages.get((record.record, digest_of(record)), -1) if record.record in numbers else -1
        if age > newest:
            newest, common = age, record.record
        restored = record.record if record.kind == Kind.RESTORED else restored
    if restored <= common:
        raise JournalError("PEER_RESTORED", peer=peer, record=watermark.record, common=common)
    return common


def _marks(records: Iterable[Record], journal: str) -> Iterator[Watermark]:
    """Yield how far a journal was pulled, by records of who pulls; what says that it is read again tells nothing."""
    marks = (watermark_of(record) for record in records if record.kind == Kind.PULLED)
    return (mark for mark in marks if mark.journal == journal and mark.record >= 0)


def has_record(log: Sequence[Record], watermark: Watermark) -> bool:
    """Return whether a whole log has the record up to which it was pulled."""
    return 0 <= watermark.record < len(log) and digest_of(log[watermark.record]) == watermark.digest
