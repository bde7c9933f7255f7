"""Files of messages of a peer, read within bounds (DESIGN 17.3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa

from spark_queue.core.message_files.segment import Segment
from spark_queue.errors import JournalError
from spark_queue.journal.layout import Store, messages_key
from spark_queue.journal.message_file import MessageFiles, decoding
from spark_queue.journal.staging import ROW_GROUP_ROWS
from spark_queue.replication.peer_files import OddFileError, PeerFile, check_place, refused
from spark_queue.replication.peer_log import DAMAGE

#: Rows of a peer's file that are in memory at once.
PART_ROWS = ROW_GROUP_ROWS


def refused_file(peer: str, segment: Segment, reason: object) -> JournalError:
    """Make PEER_REFUSED for a peer's file of messages."""
    what = f"file {segment.path} of message type '{segment.message_type}' (its messages from {segment.first})"
    return refused(peer, what, reason)


@contextmanager
def opened(store: Store, peer: str, segment: Segment, columns: Sequence[str] | None) -> Iterator[PeerFile]:
    """Open the file in which a segment of a peer stands; what the block finds wrong with it is refused as well."""
    try:
        check_place(store, peer, f"{messages_key(segment.message_type)}/{segment.path}")
        with decoding(store, segment, lambda source: PeerFile(source, columns)) as file:
            if file.row_count != segment.row_count and not segment.merged:
                raise OddFileError(f"it has {file.row_count} rows instead of {segment.row_count}")
            yield file
    except DAMAGE as reason:
        raise refused_file(peer, segment, store.reason(reason)) from None
    except JournalError as failure:
        if failure.code == "MESSAGE_FILE_CORRUPT":
            raise refused_file(peer, segment, failure.facts["reason"]) from None
        raise


class PeerMessages(MessageFiles):
    """Columns of a peer's messages, for who evaluates expressions over them."""

    def __init__(self, store: Store, peer: str) -> None:
        super().__init__(store)
        self._peer = peer

    def read(self, segment: Segment, columns: Sequence[str]) -> pa.Table:
        """Return columns of the segment's rows; one that the file does not have is left out."""
        return pa.concat_tables(self.pieces(segment, columns))

    def pieces(self, segment: Segment, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield the same part by part."""
        with opened(self._store, self._peer, segment, columns) as file:
            yield from file.parts(segment.first_row, segment.row_count, most_rows=PART_ROWS)
