"""Journals that were restored from a backup: how this one hears of it, and where a peer's log goes on (DESIGN 17.3)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from spark_queue.core.records import Kind, Record
from spark_queue.core.state.folds.peers import watermark_of
from spark_queue.core.state.ownership import Watermark
from spark_queue.errors import JournalError
from spark_queue.journal.layout import Store
from spark_queue.replication.peer_log import digest_of, scan
from spark_queue.replication.record_forms import is_sound

#: What errors call the own log.
_OWN = "this journal"


def told_ahead(store: Store, peer: str) -> list[Record]:
    """Return what the whole log of a peer says of how far it has pulled, of restored backups, and of its definitions.

    It is looked at before anything of the log is believed.
    """
    told = list[Record]()
    try:
        for record in scan(store, peer, (Kind.PULLED, Kind.RESTORED, Kind.DEFINITIONS_APPLIED)):
            told += [record] if is_sound(record) else []
    except JournalError as refusal:
        # It is refused again where it stands, once what came before is taken.
        if refusal.code not in ("PEER_REFUSED", "PROTOCOL_NEWER"):
            raise
    return told


def check_own(own: Store, peer: str, told: Sequence[Record], *, origins: Sequence[str]) -> None:
    """Raise where a peer has pulled what the own log does not have.

    Parameters
    ----------
    told : Sequence of Record
        What the peer's log says of how far it has pulled.
    origins : Sequence of str
        UUIDs of the own origins, oldest first; the first is that of the journal.

    Raises
    ------
    JournalError
        JOURNAL_RESTORED.
    """
    marks = _marks(reversed(told), origins[0])
    if not marks:
        return
    newest = marks[0]
    origin = newest.origin or newest.journal
    if origin in origins[:-1]:
        # It has pulled nothing since somebody said that the journal was restored.
        return
    if origin == origins[-1] and is_common(own, _OWN, newest):
        return
    log = list(scan(own, _OWN, None))
    common = _newest_common(marks, log)
    # The first reign after that is the one that began on the copy.
    reigns = (record.record for record in log if record.kind == Kind.EPOCH_CLAIMED and record.record > common)
    since = next(reigns, len(log))
    raise JournalError("JOURNAL_RESTORED", peer=peer, record=newest.record, path=own.path, since=since)


def is_common(store: Store, peer: str, watermark: Watermark) -> bool:
    """Return whether a peer's log has the record that was pulled last."""
    standing = next(scan(store, peer, None, first=watermark.record), None)
    return standing is not None and digest_of(standing) == watermark.digest


def shared_until(own: Store, store: Store, watermark: Watermark, *, peer: str) -> int:
    """Return the last record of a peer's log that was pulled before the peer was restored from a backup; -1 where there is none.

    Parameters
    ----------
    store : Store
        The peer's journal.

    Raises
    ------
    JournalError
        PEER_RESTORED while nobody has said there that it was restored: its bookmarks may be those of other messages.
    """
    # The whole log at once: it happens once after each restore.
    records = list(scan(store, peer, None))
    common = _newest_common(_marks(reversed(list(scan(own, _OWN, (Kind.PULLED,)))), watermark.journal), records)
    if not any(record.kind == Kind.RESTORED and record.record > common for record in records):
        raise JournalError("PEER_RESTORED", peer=peer, record=watermark.record, common=common)
    return common


def _marks(records: Iterable[Record], journal: str) -> list[Watermark]:
    """Return how far a journal was pulled, by records of who pulls; what says that it is read again tells nothing."""
    marks = (watermark_of(record) for record in records if record.kind == Kind.PULLED)
    return [mark for mark in marks if mark.journal == journal and mark.record >= 0]


def _newest_common(marks: Sequence[Watermark], log: Sequence[Record]) -> int:
    """Return the number of the first of some watermarks that a log has; -1 where it has none of them."""
    return next((mark.record for mark in marks if mark.record < len(log) and digest_of(log[mark.record]) == mark.digest), -1)
