"""Taking a peer's messages over: rows are always written anew, as files of this journal (DESIGN 17.3)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyroaring import BitMap64

from spark_queue.core.bitmaps.numbers import to_array
from spark_queue.core.bitmaps.ranges import to_bitmap
from spark_queue.core.definitions.definition import Definitions, PeerDefinition
from spark_queue.core.definitions.keys import valid_name
from spark_queue.core.message_files.origins import OriginRows
from spark_queue.core.message_files.segment import Segment, stretches
from spark_queue.errors import ConfigError, JournalError
from spark_queue.journal.layout import Store
from spark_queue.journal.message_file import decoding, fitted
from spark_queue.journal.publisher import make_plan
from spark_queue.journal.schema import Field
from spark_queue.journal.staging import ROW_GROUP_ROWS, write_file
from spark_queue.ports import PulledFile, PulledFiles
from spark_queue.replication.bounded_files import BoundedFile, UnboundedFileError
from spark_queue.replication.news import PeerFold
from spark_queue.replication.peer_records import DAMAGE, refused
from spark_queue.replication.record_forms import NUMBER_MAX

#: Rows of a peer's file that are in memory at once.
_PART_ROWS = ROW_GROUP_ROWS

#: Longest name of a publisher, in bytes.
_PUBLISHER_BYTES = 1_000


class CopyFailedError(Exception):
    """A file of the peer cannot be read, or is refused.

    Attributes
    ----------
    segment : Segment
        Whose messages stand in it.
    reason : JournalError
        MESSAGE_FILE_MISSING, PEER_REFUSED, STORE_FAILED.
    """

    def __init__(self, segment: Segment, reason: JournalError) -> None:
        super().__init__(str(reason))
        self.segment = segment
        self.reason = reason


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
        if not len(self.rows):
            return ()
        breaks = np.flatnonzero((np.diff(self.origins) != 0) | (np.diff(self.bookmarks) != 1)) + 1
        starts, ends = [0, *breaks.tolist()], [*breaks.tolist(), len(self.rows)]
        return tuple(
            (start, end - start, self.names[self.origins[start]], int(self.bookmarks[start]))
            for start, end in zip(starts, ends, strict=True)
        )


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
        self._peer = peer
        self._definitions = definitions
        self._definition = definition

    def copy(self, fold: PeerFold, segments: Sequence[Segment], held: Mapping[str, BitMap64], *, now_ms: int) -> PulledFiles | None:
        """Write the rows of segments of one message type that are pulled and not held here; None where there are none.

        Parameters
        ----------
        held : Mapping of str to BitMap64
            What is here already, by the UUID of its origin; all of it where that is this journal.

        Raises
        ------
        ConfigError
            MESSAGE_TYPE_DIFFERS when a column has another type there.
        CopyFailedError
            When a file of the peer cannot be read, or is refused.
        JournalError
            STORE_FAILED of the own journal.
        """
        message_type = segments[0].message_type
        plan = make_plan(self._own, self._definitions, message_type=message_type, topic=None, expires_after_ms=None)
        written: list[PulledFile] = []
        # Neighbours in a merged file are read at once.
        for segment in stretches([each for each in segments if not each.retired]):
            if not self._is_wanted(fold, segment, held):
                continue
            origins: list[OriginRows] = []
            staged = write_file(plan, self._rows(plan.shape.schema, fold, segment, held, origins), now_ms=now_ms)
            if staged is not None:
                path, size_bytes = staged.path, staged.size_bytes
                written.append(PulledFile(path=path, size_bytes=size_bytes, stats=staged.stats(), origins=tuple(origins)))
        if not written:
            return None
        instances = {origin: fold.instances[origin] for file in written for _, _, origin, _ in file.origins}
        return PulledFiles(message_type=message_type, files=tuple(written), instances=instances)

    def missing(self, fold: PeerFold, segment: Segment, held: Mapping[str, BitMap64]) -> BitMap64:
        """Return the bookmarks at the peer of what would be taken over of a segment, as far as its topics tell."""
        if segment.topic_min == segment.topic_max and not self._definition.takes(segment.topic_min):
            return BitMap64()
        return BitMap64(self._wanted(fold, segment, held).rows + segment.first)

    def _is_wanted(self, fold: PeerFold, segment: Segment, held: Mapping[str, BitMap64]) -> bool:
        """Return whether any row is, before its file is looked at; the cost follows stretches, not rows."""
        known = fold.message_types[segment.message_type].origins
        return any(
            self._passes(fold, origin) and (origin not in held or held[origin].range_cardinality(bookmark, bookmark + rows) < rows)
            for _, rows, origin, bookmark in known.between(segment.first, segment.until, own=fold.journal_id)
        )

    def _wanted(self, fold: PeerFold, segment: Segment, held: Mapping[str, BitMap64]) -> _Wanted:
        known = fold.message_types[segment.message_type].origins
        adjacent = known.between(segment.first, segment.until, own=fold.journal_id)
        names = list(dict.fromkeys(origin for _, _, origin, _ in adjacent))
        whole = _Wanted(
            rows=np.arange(segment.row_count, dtype=np.int64),
            origins=np.repeat([names.index(origin) for _, _, origin, _ in adjacent], [rows for _, rows, _, _ in adjacent]),
            bookmarks=np.concatenate([np.arange(first, first + rows, dtype=np.int64) for _, rows, _, first in adjacent]),
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
        return fold.is_own(origin) or self._definition.passes(fold.instances[origin])

    def _rows(
        self, schema: pa.Schema, fold: PeerFold, segment: Segment, held: Mapping[str, BitMap64], origins: list[OriginRows]
    ) -> Iterator[pa.Table]:
        """Yield the rows that are taken over, and note in `origins` where each was first published."""
        at = written = 0
        for rows in self._parts(schema, segment):
            # As large as the file is in fact, not as the log says: so much is in memory of it.
            part = replace(segment, first=segment.first + at, until=segment.first + at + len(rows))
            at += len(rows)
            mine = self._wanted(fold, part, held)
            rows = rows.take(mine.rows) if len(mine.rows) != len(rows) else rows
            takes = {topic: self._definition.takes(str(topic)) for topic in rows.column("topic").unique().to_pylist()}
            if not all(takes.values()):
                pulled = np.array([takes[topic] for topic in rows.column("topic").to_pylist()], dtype=np.bool_)
                rows, mine = rows.filter(pa.array(pulled)), mine.among(pulled)
            origins += ((written + row, count, origin, bookmark) for row, count, origin, bookmark in mine.stretches())
            written += len(rows)
            if len(rows):
                yield rows

    def _parts(self, schema: pa.Schema, segment: Segment) -> Iterator[pa.Table]:
        """Yield the rows of a segment of the peer, checked, with the columns of this journal."""
        try:
            with decoding(self._peer, segment, lambda source: BoundedFile(source, schema.names)) as file:
                for field in file.schema:
                    if field.type != schema.field(field.name).type:
                        raise self._differs(segment, field)
                if file.row_count != segment.row_count and not segment.merged:
                    raise UnboundedFileError(f"it has {file.row_count} rows instead of {segment.row_count}")
                for rows in file.parts(segment.first_row, segment.row_count, most_rows=_PART_ROWS):
                    yield _checked(fitted(rows, schema))
        except DAMAGE as reason:
            raise CopyFailedError(segment, self._refused(segment, self._peer.reason(reason))) from None
        except JournalError as failure:
            is_damage = failure.code == "MESSAGE_FILE_CORRUPT"
            raise CopyFailedError(segment, self._refused(segment, failure.facts["reason"]) if is_damage else failure) from None

    def _refused(self, segment: Segment, reason: object) -> JournalError:
        what = f"file {segment.path} of message type '{segment.message_type}' (its messages from {segment.first})"
        return refused(self._definition.name, what, reason)

    def _differs(self, segment: Segment, field: Field) -> ConfigError:
        facts = {"peer": self._definition.name, "column": field.name, "found": str(field.type)[:200]}
        return ConfigError("MESSAGE_TYPE_DIFFERS", message_type=segment.message_type, **facts)


def _checked(rows: pa.Table) -> pa.Table:
    """Return rows if an honest publisher may have written them."""
    for field in rows.schema:
        if not field.nullable and rows.column(field.name).null_count:
            raise ValueError(f"column {field.name} lacks values")
    for topic in rows.column("topic").unique().to_pylist():
        if not valid_name(str(topic)):
            raise ValueError(f"{topic!r:.100} is no topic")
    sequences: Any = pc.min_max(rows.column("sequence")).as_py()
    if len(rows) and not 0 <= sequences["min"] <= sequences["max"] < NUMBER_MAX:
        raise ValueError(f"its sequences {sequences['min']} to {sequences['max']} are none of ours")
    if (pc.max(pc.binary_length(rows.column("publisher"))).as_py() or 0) > _PUBLISHER_BYTES:
        raise ValueError("a publisher has no name of ours")
    return rows
