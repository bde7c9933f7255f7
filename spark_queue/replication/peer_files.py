"""Files of a peer's store: Parquet that is read part by part, and what stands where a file should be (DESIGN 17.3)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from spark_queue.errors import JournalError
from spark_queue.journal.layout import CONTROL_LOG, Store
from spark_queue.journal.message_file import is_in_place

#: Most columns of a table that gets those of peers which are not declared here.
COLUMNS_MOST = 5_000


class OddFileError(Exception):
    """A file is not what it says of itself, or what the log says of it."""


class PeerFile:
    """Some columns of a Parquet file.

    Parameters
    ----------
    source : str or file-like
        Path or content of the file.
    columns : Sequence of str or None
        Those that are read, as far as they are there; None for all.

    Attributes
    ----------
    columns : list of str
        Those that are there, and in `schema` their types.
    row_count : int
        As the file says.
    """

    def __init__(self, source: Any, columns: Sequence[str] | None) -> None:
        self._file = pq.ParquetFile(source)
        there: list[str] = self._file.schema_arrow.names
        if len(set(there)) != len(there):
            raise OddFileError("two of its columns have one name")
        self.columns = there if columns is None else [name for name in columns if name in there]
        self.row_count: int = self._file.metadata.num_rows
        self.schema = pa.schema([self._file.schema_arrow.field(name) for name in self.columns])

    def parts(self, first_row: int, row_count: int, *, most_rows: int) -> Iterator[pa.Table]:
        """Yield adjacent rows part by part, checked against their types."""
        start, left = 0, row_count
        for number in range(self._file.num_row_groups):
            group_rows = self._file.metadata.row_group(number).num_rows
            if not left or start + group_rows <= first_row:
                start += group_rows
                continue
            # Threads would have several columns in memory.
            for batch in self._file.iter_batches(most_rows, row_groups=[number], columns=self.columns, use_threads=False):
                part = pa.Table.from_batches([batch])
                # Texts that are no UTF-8 would be found by whoever reads them next.
                part.validate(full=True)
                wanted = part.slice(max(0, first_row - start), left)
                start, left = start + len(part), left - len(wanted)
                if len(wanted):
                    yield wanted
        if left:
            raise OddFileError(f"it has {row_count - left} rows where it should have {row_count}")


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
