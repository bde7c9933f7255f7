"""What a peer's log says, for who only compares it: within the bounds of pulling, and nothing is repaired there."""

from __future__ import annotations

from collections.abc import Sequence

from spark_queue.core.definitions.definition import Definitions
from spark_queue.core.records import Kind, Record
from spark_queue.journal.control_files import ControlFile
from spark_queue.journal.layout import Store
from spark_queue.replication.checking import check_path
from spark_queue.replication.news import PeerFold
from spark_queue.replication.peer_log import listed, scan
from spark_queue.replication.peer_records import RecordReader, parts_of, source_of
from spark_queue.replication.places import refused


def read_definitions(store: Store, peer: str) -> tuple[str, Definitions]:
    """Return the UUID of a peer's journal and the definitions that hold there; reads nothing else.

    Raises
    ------
    JournalError
        PEER_AWAY, PROTOCOL_NEWER, PEER_REFUSED, LOG_GAP, JOURNAL_DAMAGED or STORE_FAILED.
    """
    files, _ = listed(store, peer)
    fold = PeerFold(peer)
    for kind in (Kind.JOURNAL_CREATED, Kind.DEFINITIONS_APPLIED):
        fold.fold(_newest(store, peer, files, kind))
    return fold.journal_id, fold.definitions


def read_records(store: Store, peer: str) -> list[Record]:
    """Return all records of a peer's log, each of which one may write.

    Raises
    ------
    JournalError
        As `read_definitions`.
    """
    records = list(scan(store, peer, None))
    fold = PeerFold(peer)
    fold.foresee(records)
    for record in records:
        fold.fold(record)
        check_path(record, fold)
    return records


def _newest(store: Store, peer: str, files: Sequence[ControlFile], kind: str) -> Record:
    """Return the newest record of a kind whose records stand in files of their own."""
    of_kind = [file for file in files if file.holds_only(kind)]
    if not of_kind:
        raise refused(peer, "its log", f"no file of it has records of kind {kind} alone")
    file, found = of_kind[-1], list[Record]()
    reader = RecordReader(store, peer, file.last, (kind,))
    for rows in parts_of(store, peer, file, source_of(store, peer, file), first=file.last):
        reader.read(rows, found)
    if not found:
        raise refused(peer, f"record {file.last}", f"it is not of kind {kind}, as the list of its log's files says")
    return found[0]
