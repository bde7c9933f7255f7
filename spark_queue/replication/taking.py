"""Rows of a peer as they are taken over: where each was first published, and which their publishers had brought here already."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_queue.core.message_files.origins import OriginRows
from spark_queue.core.message_files.publishers import ClashingRows, SequenceRange, joined
from spark_queue.replication.exchange import Standing
from spark_queue.replication.repeats import Repeats, numbers_of


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedRows:
    """Rows of a segment that are taken over, and where each was first published."""

    rows: NDArray[np.int64]
    #: Number of the origin in `names`, and the bookmark there, of each.
    origins: NDArray[np.int64]
    bookmarks: NDArray[np.int64]
    names: Sequence[str]

    def among(self, kept: NDArray[np.bool_]) -> WantedRows:
        """Return some of them."""
        return WantedRows(rows=self.rows[kept], origins=self.origins[kept], bookmarks=self.bookmarks[kept], names=self.names)

    def names_of(self, places: NDArray[np.int64]) -> list[OriginRows]:
        """Return them by origin, where each has a place of its own: adjacent here, and adjacent there."""
        if not len(self.rows):
            return []
        goes_on = (np.diff(self.origins) == 0) & (np.diff(self.bookmarks) == 1) & (np.diff(places) == 1)
        breaks = np.flatnonzero(~goes_on) + 1
        starts, ends = [0, *breaks.tolist()], [*breaks.tolist(), len(self.rows)]
        return [
            (int(places[start]), end - start, self.names[self.origins[start]], int(self.bookmarks[start]))
            for start, end in zip(starts, ends, strict=True)
        ]


class Taking:
    """What is found out about the rows of one new file while they are written.

    Attributes
    ----------
    origins : list of OriginRows
        Where each row was first published, as they stand one after the other.
    publishers : dict of str to SequenceRange
        The first and last number of each named publisher.
    clashes : list of ClashingRows
        Rows with a number that another message of their publisher has here.
    names : list of OriginRows
        Own bookmark, origin and bookmark there of what is here already, and is not written.
    """

    def __init__(self, repeats: Repeats, standing: Standing) -> None:
        self._repeats = repeats
        self._standing = standing
        self._written = 0
        self.origins: list[OriginRows] = []
        self.publishers: dict[str, SequenceRange] = {}
        self.clashes: list[ClashingRows] = []
        self.names: list[OriginRows] = []

    @property
    def publishers_bytes(self) -> int:
        """How much its record will say of publishers."""
        return len(msgspec.json.encode(self.publishers)) if self.publishers else 0

    def take(self, rows: pa.Table, wanted: WantedRows) -> pa.Table:
        """Return those of the next rows that no publisher has brought here, and note what they and the others are.

        Raises
        ------
        JournalError
            MESSAGE_FILE_MISSING, MESSAGE_FILE_CORRUPT, STORE_FAILED, of the own journal.
        """
        numbers = numbers_of(rows)
        if numbers:
            found = self._repeats.compare(rows, numbers, self._standing)
            is_here = found.here >= 0
            if is_here.any():
                self.names += wanted.among(is_here).names_of(found.here[is_here])
                rows, wanted = rows.filter(pa.array(~is_here)), wanted.among(~is_here)
            for row in np.flatnonzero(found.clashing[~is_here]).tolist():
                clash = rows.slice(row, 1).select(["publisher", "sequence"]).to_pylist()[0]
                self.clashes.append((self._written + row, 1, clash["publisher"], clash["sequence"]))
            self.publishers = joined([self.publishers, numbers_of(rows)])
        self.origins += wanted.names_of(np.arange(self._written, self._written + len(rows), dtype=np.int64))
        self._written += len(rows)
        return rows
