"""Taking a peer's messages over: rows are always written anew, as files of this journal (DESIGN 17.3)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyroaring import BitMap64

from spark_queue.core.bitmaps.numbers import to_array
from spark_queue.core.bitmaps.ranges import to_bitmap
from spark_queue.core.deciding.instances.naming import OtherNames
from spark_queue.core.definitions.definition import Definitions, PeerDefinition
from spark_queue.core.message_files.origins import OriginRows
from spark_queue.core.message_files.publishers import ClashingRows, SequenceRange, joined
from spark_queue.core.message_files.segment import Segment
from spark_queue.errors import ConfigError
from spark_queue.journal.layout import Store
from spark_queue.journal.message_file import MessageFiles, fitted
from spark_queue.journal.publisher import make_plan
from spark_queue.journal.staging import StagingPlan, write_file
from spark_queue.ports import PulledFile, PulledFiles
from spark_queue.replication.news import PeerFold
from spark_queue.replication.repeats import Repeats, Standing, numbers_of


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """Rows of a segment that are taken over, and where each was first published."""

    rows: NDArray[np.int64]
    #: Number of the origin in `names`, and the bookmark there, of each.
    origins: NDArray[np.int64]
    bookmarks: NDArray[np.int64]
    names: Sequence[str]

    def among(self, kept: NDArray[np.bool_]) -> _Wanted:
        return _Wanted(rows=self.rows[kept], origins=self.origins[kept], bookmarks=self.bookmarks[kept], names=self.names)

    def stretches(self) -> tuple[OriginRows, ...]:
        """Return them by origin, as they stand one after the other in the new file."""
        return tuple(self.names_of(np.arange(len(self.rows), dtype=np.int64)))

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """What there is to take over of some segments: files, and names of messages that are here already."""

    files: PulledFiles | None
    names: OtherNames | None


@dataclass(slots=True)
class _Taking:
    """What is found out about the rows of one segment while they are written."""

    standing: Standing
    kept: list[_Wanted] = field(default_factory=list)
    numbers: list[dict[str, SequenceRange]] = field(default_factory=list)
    clashes: list[ClashingRows] = field(default_factory=list)
    #: Own bookmark, origin and bookmark there of each row that is here already.
    names: list[OriginRows] = field(default_factory=list)
    written: int = 0


class Copier:
    """Writes messages of one peer to files of the own journal.

    Parameters
    ----------
    own, peer : Store
        Where the two journals are.
    definitions : Definitions
        The own.
    definition : PeerDefinition
        What is pulled from the peer.
    """

    def __init__(self, own: Store, peer: Store, definitions: Definitions, definition: PeerDefinition) -> None:
        self._own = own
        self._repeats = Repeats(own)
        self._files = MessageFiles(peer)
        self._definitions = definitions
        self._definition = definition

    def copy(
        self, fold: PeerFold, segments: Sequence[Segment], held: Mapping[str, BitMap64], standing: Standing, *, now_ms: int
    ) -> Copied:
        """Write the rows of segments of one message type that are pulled and not here, under whatever name.

        Parameters
        ----------
        held : Mapping of str to BitMap64
            What is here already, by the UUID of its origin; all of it where that is this journal.
        standing : Standing
            What publishers have brought here already.

        Raises
        ------
        ConfigError
            MESSAGE_TYPE_DIFFERS when a column has another type there.
        JournalError
            MESSAGE_FILE_MISSING, MESSAGE_FILE_CORRUPT, STORE_FAILED.
        """
        message_type = segments[0].message_type
        plan = make_plan(self._own, self._definitions, message_type=message_type, topic=None, expires_after_ms=None)
        written, names = list[PulledFile](), list[OriginRows]()
        for segment in segments:
            wanted = self._wanted(fold, segment, held)
            if not len(wanted.rows):
                continue
            taking = _Taking(standing)
            staged = write_file(plan, self._rows(plan, segment, wanted, taking), now_ms=now_ms)
            names += taking.names
            if staged is not None:
                origins = wanted.among(np.isin(wanted.rows, np.concatenate([part.rows for part in taking.kept]))).stretches()
                publishers, clashes = joined(taking.numbers), tuple(taking.clashes)
                file = PulledFile(path=staged.path, size_bytes=staged.size_bytes, stats=staged.stats(), origins=origins)
                written.append(replace(file, publishers=publishers, clashes=clashes))
        instances = {origin: fold.instances[origin] for file in written for _, _, origin, _ in file.origins}
        named = {origin: fold.instances[origin] for _, _, origin, _ in names}
        files = PulledFiles(message_type=message_type, files=tuple(written), instances=instances, compared_until=standing.until)
        others = OtherNames(message_type=message_type, rows=tuple(names), instances=named)
        return Copied(files=files if written else None, names=others if names else None)

    def _wanted(self, fold: PeerFold, segment: Segment, held: Mapping[str, BitMap64]) -> _Wanted:
        known = fold.message_types[segment.message_type].origins
        stretches = known.between(segment.first, segment.until, own=fold.journal_id)
        names = list(dict.fromkeys(origin for _, _, origin, _ in stretches))
        whole = _Wanted(
            rows=np.arange(segment.row_count, dtype=np.int64),
            origins=np.repeat([names.index(origin) for _, _, origin, _ in stretches], [rows for _, rows, _, _ in stretches]),
            bookmarks=np.concatenate([np.arange(first, first + rows, dtype=np.int64) for _, rows, _, first in stretches]),
            names=names,
        )
        kept = np.ones(segment.row_count, dtype=np.bool_)
        for number, origin in enumerate(names):
            of_origin = whole.origins == number
            if not self._passes(fold, origin):
                kept &= ~of_origin
            elif origin in held:
                # Only what is held between the first and the last of them: all that is held would cost its number each time.
                there = whole.bookmarks[of_origin]
                here = held[origin] & to_bitmap([(int(there.min()), int(there.max()) + 1)])
                kept &= ~(of_origin & np.isin(whole.bookmarks, to_array(here)))
        return whole.among(kept)

    def _passes(self, fold: PeerFold, origin: str) -> bool:
        """Return whether messages of an origin may come through this peer."""
        return origin == fold.journal_id or self._definition.passes(fold.instances[origin])

    def _rows(self, plan: StagingPlan, segment: Segment, wanted: _Wanted, taking: _Taking) -> Iterator[pa.Table]:
        schema, first = plan.shape.schema, 0
        for piece in self._files.pieces(segment, schema.names):
            mine = wanted.among((wanted.rows >= first) & (wanted.rows < first + len(piece)))
            rows = piece.take(mine.rows - first) if len(mine.rows) != len(piece) else piece
            first += len(piece)
            takes = {topic: self._definition.takes(str(topic)) for topic in rows.column("topic").unique().to_pylist()}
            if not all(takes.values()):
                pulled = np.array([takes[topic] for topic in rows.column("topic").to_pylist()], dtype=np.bool_)
                rows, mine = rows.filter(pa.array(pulled)), mine.among(pulled)
            if len(rows):
                rows, mine = self._new(_as_own(rows, schema, segment.message_type, self._definition.name), mine, taking)
            if len(rows):
                taking.kept.append(mine)
                taking.written += len(rows)
                yield rows

    def _new(self, rows: pa.Table, mine: _Wanted, taking: _Taking) -> tuple[pa.Table, _Wanted]:
        """Return the rows that no publisher has brought here, and note the further names of the others."""
        numbers = numbers_of(rows)
        if not numbers:
            return rows, mine
        found = self._repeats.compare(rows, numbers, taking.standing)
        is_here = found.here >= 0
        if is_here.any():
            taking.names += mine.among(is_here).names_of(found.here[is_here])
            rows, mine = rows.filter(pa.array(~is_here)), mine.among(~is_here)
            numbers = numbers_of(rows)
        taking.numbers.append(numbers)
        for row in np.flatnonzero(found.clashing[~is_here]).tolist():
            clash = rows.slice(row, 1).select(["publisher", "sequence"]).to_pylist()[0]
            taking.clashes.append((taking.written + row, 1, clash["publisher"], clash["sequence"]))
        return rows, mine


def _as_own(rows: pa.Table, schema: pa.Schema, message_type: str, peer: str) -> pa.Table:
    """Return rows with the columns of this journal; one that the peer does not have is NULL."""
    for column in rows.schema:
        if column.type != schema.field(column.name).type:
            found = str(column.type)
            raise ConfigError("MESSAGE_TYPE_DIFFERS", message_type=message_type, peer=peer, column=column.name, found=found)
    return fitted(rows, schema)
