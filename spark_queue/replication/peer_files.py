"""Files of a peer's store: those of messages, and what stands where a file should be (DESIGN 17.3)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pyarrow as pa

from spark_queue.core.message_files.segment import Segment
from spark_queue.errors import JournalError
from spark_queue.journal.folder import is_in_place, of_type
from spark_queue.journal.message_file import MessageFiles
from spark_queue.journal.opening import opened
from spark_queue.journal.store import CONTROL_LOG, Store

#: Most columns of a table that gets those of peers which are not declared here.
COLUMNS_MOST = 5_000

#: What reading whatever somebody made may raise.
DAMAGE = (
    pa.ArrowException, msgspec.MsgspecError, ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError,
    RecursionError,
)  # fmt: skip

#: Files that stand for several others, or name further ones; our software writes none.
_COMPOUND = re.compile(r"[0-9]{20}\.(checkpoint\..+\.(parquet|json)|.*compacted\.json)")


def refused(peer: str, what: str, reason: object) -> JournalError:
    """Make PEER_REFUSED for a part of a peer's journal."""
    text = str(reason).rstrip(".")
    return JournalError("PEER_REFUSED", peer=peer, what=what, reason=f"{text[:500]}.")


def check_place(store: Store, peer: str, key: str) -> None:
    """Refuse what is no file, or a link that leads out of its folder; where there is nothing, whoever reads it tells."""
    if not is_in_place(store, key):
        raise refused(peer, key, "it is no file, or a link to one that is elsewhere")


def check_log(store: Store, peer: str) -> None:
    """Refuse a folder of a control log with what no software of ours leaves there, and that would keep whoever opens it."""
    if store.is_local:
        folder = Path(store.uri(CONTROL_LOG))
        if not folder.is_dir():
            # Whoever opens it tells that no journal is there.
            return
        with store.failures(f"listing {CONTROL_LOG}"), os.scandir(folder) as standing:
            # A listing of the store leaves out what is no file. A log has thousands of plain ones, which need no further look.
            odd = [each.name for each in standing if not each.is_file(follow_symlinks=False) and not (folder / each.name).is_dir()]
        for name in odd:
            check_place(store, peer, f"{CONTROL_LOG}/{name}")
    for entry in store.list(CONTROL_LOG):
        if _COMPOUND.fullmatch(entry.key.rsplit("/", 1)[1]) is not None:
            raise refused(peer, entry.key, "it is no file of a control log")


def refused_file(peer: str, segment: Segment, reason: object) -> JournalError:
    """Make PEER_REFUSED for a peer's file of messages."""
    what = f"file {segment.path} of message type '{segment.message_type}' (its messages from {segment.first})"
    return refused(peer, what, reason)


class PeerMessages(MessageFiles):
    """Columns of a peer's messages; what is wrong with a file is refused."""

    def __init__(self, store: Store, peer: str) -> None:
        super().__init__(store)
        self._peer = peer

    def read(self, segment: Segment, columns: Sequence[str] | None) -> pa.Table:
        """Return columns of the segment's rows, None for all, checked against their types; see `MessageFiles`."""
        with self.refusing(segment):
            rows = super().read(segment, columns)
            # Texts that are no UTF-8 would be found by whoever reads them next.
            rows.validate(full=True)
            return rows

    def pieces(self, segment: Segment, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield the same part by part."""
        with self.refusing(segment):
            for rows in super().pieces(segment, columns):
                rows.validate(full=True)
                yield rows

    def schema(self, segment: Segment) -> pa.Schema:
        """Return the columns of the file in which a segment stands."""
        with self.refusing(segment), opened(of_type(self._store, segment.message_type), segment.path) as file:
            if len(set(file.schema_arrow.names)) != len(file.schema_arrow):
                raise ValueError("two of its columns have one name")
            return file.schema_arrow

    @contextmanager
    def refusing(self, segment: Segment) -> Iterator[None]:
        """Refuse a segment's file for what the block finds wrong with it."""
        try:
            yield
        except DAMAGE as reason:
            raise refused_file(self._peer, segment, self._store.reason(reason)) from None
        except JournalError as failure:
            if failure.code == "MESSAGE_FILE_CORRUPT":
                raise refused_file(self._peer, segment, failure.facts["reason"]) from None
            raise
