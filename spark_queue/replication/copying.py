"""Taking a peer's messages over: rows are always written anew, as files of this journal (DESIGN 17.3).

Told of each is where it was first published, and which their publishers had brought here already, by whatever way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyroaring import BitMap64

from spark_queue.core.bitmaps.ranges import to_array, to_bitmap
from spark_queue.core.deciding.instances.naming import OtherNames
from spark_queue.core.definitions.definition import Definitions, PeerDefinition
from spark_queue.core.definitions.keys import DURATION_LIMIT_MS, valid_name
from spark_queue.core.message_files.origins import is_named, joined, overlap
from spark_queue.core.message_files.segment import Segment, stretches
from spark_queue.core.records import NUMBER_MAX, PUBLISHER_MAX, ClashingRows, OriginRows, SequenceRange
from spark_queue.errors import JournalError
from spark_queue.journal.message_file import MessageFiles, fitted
from spark_queue.journal.message_table import widen
from spark_queue.journal.publisher import make_plan
from spark_queue.journal.schema import of_others
from spark_queue.journal.staging import StagingPlan, write_file
from spark_queue.journal.store import Store
from spark_queue.ports import PulledFile, PulledFiles
from spark_queue.replication.exchange import Standing
from spark_queue.replication.news import PeerFold
from spark_queue.replication.peer_files import COLUMNS_MOST, PeerMessages, refused_file
from spark_queue.replication.record_checks import PUBLISHERS_BYTES

#: What a message says of its publishing rather than of itself: two publishes of the same may differ in it.
_OF_PUBLISHING = frozenset({"publisher", "sequence", "published_at", "expires_at"})

#: Most rows of one publisher and number that are compared at once; an honest peer has one for each instance.
_SAME_NUMBER_MAX = 100


def numbers_of(rows: pa.Table) -> dict[str, SequenceRange]:
    """Return the first and last sequence of each named publisher in stored rows."""
    publishers: Any = rows.column("publisher").unique().to_pylist()
    if not any(map(is_named, publishers)):
        return {}
    if len(publishers) == 1:
        found: Any = pc.min_max(rows.column("sequence")).as_py()
        return {publishers[0]: (found["min"], found["max"])}
    ends: Any = rows.group_by("publisher").aggregate([("sequence", "min"), ("sequence", "max")])
    columns = (ends.column(name).to_pylist() for name in ("publisher", "sequence_min", "sequence_max"))
    return {name: (low, high) for name, low, high in zip(*columns, strict=True) if is_named(name)}


def _numbers_in_topics(rows: pa.Table, names: Mapping[str, SequenceRange]) -> Iterator[tuple[str, str, int]]:
    """Yield topic, publisher and last sequence of what named publishers have in each topic."""
    if names:
        ends: Any = rows.group_by(["topic", "publisher"]).aggregate([("sequence", "max")])
        columns = (ends.column(name).to_pylist() for name in ("topic", "publisher", "sequence_max"))
        yield from (found for found in zip(*columns, strict=True) if found[1] in names)


def _places(rows: pa.Table, names: Mapping[str, SequenceRange]) -> dict[tuple[str, int], list[int]]:
    places: dict[tuple[str, int], list[int]] = {}
    for row, key in enumerate(_keys(rows)):
        if key[0] in names and len(places.setdefault(key, [])) < _SAME_NUMBER_MAX:
            places[key].append(row)
    return places


def _keys(rows: pa.Table) -> list[tuple[str, int]]:
    publishers: Any = rows.column("publisher").to_pylist()
    sequences: Any = rows.column("sequence").to_pylist()
    return list(zip(publishers, sequences, strict=True))


def _same(rows: pa.Table, others: pa.Table) -> NDArray[np.bool_]:
    """Return which rows have the same content: all that their publisher gave, but for how long they live."""
    same = np.ones(len(rows), dtype=np.bool_)
    for name in rows.schema.names:
        if name not in _OF_PUBLISHING and not rows.column(name).equals(others.column(name)):
            # As texts: two NaN are the same content, and values may be nested.
            pairs = zip(rows.column(name).to_pylist(), others.column(name).to_pylist(), strict=True)
            same &= np.array([repr(one) == repr(other) for one, other in pairs], dtype=np.bool_)
    return same


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
    """Findings about the rows of one new file while they are written.

    Rows are looked for in the own journal by publisher and number, and compared only where ranges of numbers overlap.
    """

    def __init__(self, own: MessageFiles, standing: Standing, columns: Sequence[str]) -> None:
        self._own = own
        self._standing = standing
        #: Those that are declared here: by these two messages of one number are the same.
        self._columns = columns
        self._written = 0
        #: Where each row was first published, as they stand one after the other.
        self.origins: list[OriginRows] = []
        self.publishers: dict[str, SequenceRange] = {}
        #: Last sequence of each named publisher in each topic.
        self.topics: dict[str, dict[str, int]] = {}
        #: Rows with a number that another message of their publisher has here.
        self.clashes: list[ClashingRows] = []
        #: Own bookmark, origin and bookmark there of what is here already, and is not written.
        self.names: list[OriginRows] = []

    def take(self, rows: pa.Table, wanted: WantedRows) -> pa.Table:
        """Return those of the next rows that no publisher has brought here, and note what they and the others are."""
        numbers = numbers_of(rows)
        if numbers:
            here, clashing = self._compared(rows.select(self._columns), numbers)
            is_here = here >= 0
            if is_here.any():
                self.names += wanted.among(is_here).names_of(here[is_here])
                rows, wanted = rows.filter(pa.array(~is_here)), wanted.among(~is_here)
            for row in np.flatnonzero(clashing[~is_here]).tolist():
                clash = rows.slice(row, 1).select(["publisher", "sequence"]).to_pylist()[0]
                self.clashes.append((self._written + row, 1, clash["publisher"], clash["sequence"]))
            left = numbers_of(rows)
            self.publishers = joined([self.publishers, left])
            for topic, publisher, last in _numbers_in_topics(rows, left):
                known = self.topics.setdefault(topic, {})
                known[publisher] = max(known.get(publisher, last), last)
        self.origins += wanted.names_of(np.arange(self._written, self._written + len(rows), dtype=np.int64))
        self._written += len(rows)
        return rows

    def _compared(self, rows: pa.Table, numbers: Mapping[str, SequenceRange]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the own bookmark of each row, -1 where it is not here, and whether another message of its number is."""
        here, clashing = np.full(len(rows), -1, dtype=np.int64), np.zeros(len(rows), dtype=np.bool_)
        low = {name: ends for name, ends in numbers.items() if ends[0] <= self._standing.highest.get(name, -1)}
        # What retention has let go can be compared with nothing, so such a message comes again.
        near = [each for each in self._standing.segments if not each.retired and overlap(low, each.publishers)] if low else []
        places = _places(rows, low) if near else {}
        sequences = [sequence for _, sequence in places]
        for segment in near:
            bookmark = segment.first
            for piece in self._own.pieces(segment, rows.schema.names):
                alike = np.flatnonzero(np.isin(piece.column("sequence").to_numpy(), sequences))
                keys = zip(alike.tolist(), _keys(piece.take(alike)), strict=True)
                pairs = [(row, number) for number, key in keys for row in places.get(key, ())]
                if pairs:
                    pulled, standing = np.array(pairs, dtype=np.int64).T
                    same = _same(rows.take(pulled), fitted(piece.take(standing), rows.schema))
                    here[pulled[same]] = bookmark + standing[same]
                    clashing[pulled[~same]] = True
                bookmark += len(piece)
        return here, clashing


def _due_at_ms(segment: Segment, now_ms: int) -> int | None:
    """Return when messages of a peer are delivered at the earliest; no delay that a publisher can ask for ends later."""
    return None if segment.due_at_ms is None else max(0, min(segment.due_at_ms, now_ms + DURATION_LIMIT_MS))


class CopyFailedError(Exception):
    """The peer's file of a segment's messages cannot be read, or is refused: MESSAGE_FILE_MISSING, PEER_REFUSED, STORE_FAILED."""

    def __init__(self, segment: Segment, reason: JournalError) -> None:
        super().__init__(str(reason))
        self.segment = segment
        self.reason = reason


class Copier:
    """Writes messages of one peer to files of the own journal, by what its log has said so far: see `Puller`."""

    def __init__(self, own: Store, peer: Store, definitions: Definitions, definition: PeerDefinition, fold: PeerFold) -> None:
        self._own = own
        self._files = PeerMessages(peer, definition.name)
        self._own_files = MessageFiles(own)
        self._definitions = definitions
        self._definition = definition
        self._fold = fold
        #: Columns of the own tables, by message type, as far as they were asked for.
        self._stored: dict[str, pa.Schema] = {}

    def copy(
        self, segments: Sequence[Segment], held: Mapping[str, BitMap64], standing: Standing, *, now_ms: int
    ) -> tuple[PulledFiles, OtherNames]:
        """Write the rows of segments of one message type that are pulled and not here; what is here gets further names.

        What is `held` is told by the UUID of its origin, all of it where that is this journal.
        """
        message_type = segments[0].message_type
        plan = make_plan(self._own, self._definitions, message_type=message_type, topic=None, expires_after_ms=None)
        written, names = list[PulledFile](), list[OriginRows]()
        # Neighbours in a merged file are read at once.
        for segment in stretches([each for each in segments if not each.retired], of_one_delay=True):
            if not self._is_wanted(segment, held):
                continue
            taking = Taking(self._own_files, standing, plan.shape.schema.names)
            staged = write_file(plan, self._rows(plan, segment, held, taking), now_ms=now_ms)
            names += taking.names
            if staged is not None:
                file = PulledFile(
                    path=staged.path, size_bytes=staged.size_bytes, stats=staged.stats(), origins=tuple(taking.origins),
                    publishers=taking.publishers, clashes=tuple(taking.clashes), topics=taking.topics,
                    due_at_ms=_due_at_ms(segment, now_ms),
                )  # fmt: skip
                written.append(file)
        instances = {origin: self._fold.instances[origin] for file in written for _, _, origin, _ in file.origins}
        named = {origin: self._fold.instances[origin] for _, _, origin, _ in names}
        groups = {name: self._fold.group_of(name, message_type) for name in instances.values()}
        files = PulledFiles(
            message_type=message_type, files=tuple(written), instances=instances, compared_until=standing.until,
            groups={name: group for name, group in groups.items() if group != name},
        )  # fmt: skip
        return files, OtherNames(message_type=message_type, rows=tuple(names), instances=named)

    def missing(self, segment: Segment, held: Mapping[str, BitMap64]) -> BitMap64:
        """Return the bookmarks at the peer of what would be taken over of a segment, as far as its topics tell."""
        found = BitMap64()
        for row, rows, origin, bookmark in self._passing(segment):
            wanted = to_bitmap([(bookmark, bookmark + rows)]) - held.get(origin, BitMap64())
            found |= wanted.shift(segment.first + row - bookmark)
        return found

    def _is_wanted(self, segment: Segment, held: Mapping[str, BitMap64]) -> bool:
        """Return whether any row is, before its file is looked at."""
        return any(
            origin not in held or held[origin].range_cardinality(bookmark, bookmark + rows) < rows
            for _, rows, origin, bookmark in self._passing(segment)
        )

    def _passing(self, segment: Segment) -> Iterator[OriginRows]:
        """Yield which rows may come through this peer, as far as topics tell, and where they were first published.

        By stretches: nothing has shown yet that there are as many messages as the log says.
        """
        if segment.topic_min != segment.topic_max or self._definition.takes(segment.topic_min):
            yield from (each for each in self._adjacent(segment) if self._passes(segment, each[2]))

    def _adjacent(self, segment: Segment) -> list[OriginRows]:
        known = self._fold.message_types[segment.message_type].origins
        return known.between(segment.first, segment.until, own=self._fold.journal_id)

    def _wanted(self, segment: Segment, held: Mapping[str, BitMap64]) -> WantedRows:
        adjacent = self._adjacent(segment)
        names = list(dict.fromkeys(origin for _, _, origin, _ in adjacent))
        whole = WantedRows(
            rows=np.arange(segment.row_count, dtype=np.int64),
            origins=np.repeat([names.index(origin) for _, _, origin, _ in adjacent], [rows for _, rows, _, _ in adjacent]),
            bookmarks=np.concatenate([np.arange(first, first + rows, dtype=np.int64) for _, rows, _, first in adjacent]),
            names=names,
        )
        kept = np.ones(segment.row_count, dtype=np.bool_)
        for number, origin in enumerate(names):
            of_origin = whole.origins == number
            if not self._passes(segment, origin):
                kept &= ~of_origin
            elif origin in held:
                # Only what is held between the first and the last of them: all that is held would cost its number each time.
                there = whole.bookmarks[of_origin]
                here = held[origin] & to_bitmap([(int(there.min()), int(there.max()) + 1)])
                kept &= ~(of_origin & np.isin(whole.bookmarks, to_array(here)))
        return whole.among(kept)

    def _passes(self, segment: Segment, origin: str) -> bool:
        """Return whether messages of an origin may come through this peer."""
        instance = self._fold.instances[origin]
        # What this journal had lost when it was restored comes back from whoever has it.
        if self._fold.is_own(origin) or instance == self._definitions.journal.instance:
            return True
        return self._definition.passes(instance, self._fold.group_of(instance, segment.message_type))

    def _rows(self, plan: StagingPlan, segment: Segment, held: Mapping[str, BitMap64], taking: Taking) -> Iterator[pa.Table]:
        """Yield the rows that are taken over, and note in `taking` what they are."""
        at = 0
        for rows in self._parts(plan, segment):
            # As large as the file is in fact, not as the log says: so much is in memory of it.
            part = replace(segment, first=segment.first + at, until=segment.first + at + len(rows))
            at += len(rows)
            mine = self._wanted(part, held)
            rows = rows.take(mine.rows) if len(mine.rows) != len(rows) else rows
            takes = {topic: self._definition.takes(str(topic)) for topic in rows.column("topic").unique().to_pylist()}
            if not all(takes.values()):
                pulled = np.array([takes[topic] for topic in rows.column("topic").to_pylist()], dtype=np.bool_)
                rows, mine = rows.filter(pa.array(pulled)), mine.among(pulled)
            rows = taking.take(rows, mine)
            size_bytes = len(msgspec.json.encode(taking.publishers))
            if size_bytes > PUBLISHERS_BYTES:
                # They would stand in a record of here, and in the memory of everybody who reads it.
                reason = f"a record would need {size_bytes} bytes for its publishers, and {PUBLISHERS_BYTES} are the most"
                raise CopyFailedError(segment, refused_file(self._definition.name, segment, reason))
            if len(rows):
                yield rows

    def _parts(self, plan: StagingPlan, segment: Segment) -> Iterator[pa.Table]:
        """Yield the rows of a segment of the peer, checked, with the columns of this journal and those that they have beyond."""
        try:
            with self._files.refusing(segment):
                there = self._files.schema(segment)
                schema = self._widened(plan, there)
                for rows in self._files.pieces(segment, there.names):
                    yield _checked(fitted(rows, schema))
        except JournalError as failure:
            raise CopyFailedError(segment, failure) from None

    def _widened(self, plan: StagingPlan, there: pa.Schema) -> pa.Schema:
        """Return the columns of a copy: what its origin says of a message shows here as soon as somebody declares it."""
        declared, message_type = plan.shape.schema, plan.message_type
        names = self._stored.get(message_type, declared)
        more = of_others(message_type, self._definition.name, there, declared)
        new = [field.name for field in more if field not in list(names)]
        if len(names) + len(new) > COLUMNS_MOST:
            raise ValueError(f"with its columns there were {len(names) + len(new)} here, and {COLUMNS_MOST} are the most")
        if new:
            names = self._stored[message_type] = widen(self._own, message_type, self._definition.name, more, durable=plan.durable)
        return pa.schema([*more, *declared])


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
    if (pc.max(pc.binary_length(rows.column("publisher"))).as_py() or 0) > PUBLISHER_MAX:
        raise ValueError("a publisher has no name of ours")
    return rows
