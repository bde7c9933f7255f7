"""Fetching what entered at a peer, from where it stands there by now; what was let go in between is told (DESIGN 17.3)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from pyroaring import BitMap64

from spark_queue.core.bitmaps.ranges import to_ranges
from spark_queue.core.definitions.definition import Definitions, PeerDefinition
from spark_queue.core.message_files.segment import Foresight, Segment
from spark_queue.core.records import Kind, Record
from spark_queue.errors import ConfigError, JournalError
from spark_queue.journal.layout import Store
from spark_queue.ports import Clock
from spark_queue.replication.copying import Copied, Copier, CopyFailedError
from spark_queue.replication.exchange import PullState
from spark_queue.replication.news import PeerFold
from spark_queue.replication.peer_files import refused_file
from spark_queue.replication.peer_log import PeerLog
from spark_queue.replication.validation import check_move

_LOG = logging.getLogger(__name__)


class Fetcher:
    """Copies messages of one peer, as its log tells of them.

    Parameters
    ----------
    own, peer : Store
        The two journals.
    definitions : Definitions
        The own.
    definition : PeerDefinition
        What is pulled.
    fold : PeerFold
        What the peer's log has said so far.
    log : PeerLog
        The log, which tells further on where messages went.
    """

    def __init__(
        self, own: Store, peer: Store, definitions: Definitions, definition: PeerDefinition, *, fold: PeerFold, log: PeerLog,
        clock: Clock,
    ) -> None:  # fmt: skip
        self._own_path = own.path
        self._copier = Copier(own, peer, definitions, definition, fold)
        self._definition = definition
        self._fold = fold
        self._log = log
        self._clock = clock
        #: Records that were read and not taken yet: they tell where messages went, too.
        self.not_taken: Sequence[Record] = ()
        #: Message types of which nothing more is copied, and why: their columns differ.
        self._stopped: dict[str, ConfigError] = {}

    @property
    def trouble(self) -> ConfigError | None:
        """An obstacle to pulling messages of one type, while all else is pulled."""
        return next(iter(self._stopped.values()), None)

    def fetch(self, entered: Sequence[Segment], state: PullState, *, gaps_after: int) -> tuple[list[Copied], int]:
        """Copy what of some messages is pulled and not here; returns the copies, and how many the peer let go before.

        Parameters
        ----------
        entered : Sequence of Segment
            They stand in the fold, and the log was read up to them, at least.
        gaps_after : int
            Up to which record it is no gap that the peer has let messages go; see `Watermark`.
        """
        copies, lost = list[Copied](), 0
        for message_type in dict.fromkeys(segment.message_type for segment in entered):
            if message_type in state.held and message_type not in self._stopped:
                mine = [segment for segment in entered if segment.message_type == message_type]
                try:
                    copied, gone = self._copied(mine, state, gaps_after=gaps_after)
                except ConfigError as differs:
                    if differs.code != "MESSAGE_TYPE_DIFFERS":
                        raise
                    _LOG.warning("Messages of type '%s' are not pulled: %s", message_type, differs)
                    self._stopped[message_type] = differs
                else:
                    copies.append(copied)
                    lost += gone
        return copies, lost

    def _copied(self, entered: Sequence[Segment], state: PullState, *, gaps_after: int) -> tuple[Copied, int]:
        """Copy what entered, from where it stands by now; returns how many of it the peer has let go, too."""
        held, standing = state.held[entered[0].message_type], state.standing[entered[0].message_type]
        for segment in entered:
            # What a restored journal has lost comes back from others.
            self._check_origins(segment, state.renewed[-1] if state.renewed else state.journal, held)
        known = self._fold.message_types[entered[0].message_type]
        placed = [known.segment_of(each.first) for each in entered]
        lost = self._lost(placed, held, gaps_after=gaps_after)
        try:
            return self._copier.copy(placed, held, standing, now_ms=self._clock.wall_ms()), lost
        except CopyFailedError as failed:
            if failed.reason.code != "MESSAGE_FILE_MISSING":
                raise
            # Its records are far behind: what was merged, or let go, since then is told further on.
            ahead = (record for record in self.not_taken if record.kind in (Kind.MOVED, Kind.RETIRED))
            foresight = Foresight(self._within(chain(ahead, self._log.moves_ahead()), entered[0].message_type, known.entered_until))
            moved = [foresight.place(each) for each in placed]
            if moved == placed:
                raise
            lost = self._lost(moved, held, gaps_after=gaps_after)
            return self._copier.copy(moved, held, standing, now_ms=self._clock.wall_ms()), lost

    def _lost(self, segments: Sequence[Segment], held: Mapping[str, BitMap64], *, gaps_after: int) -> int:
        """Return how many messages the peer let go before they were pulled."""
        count = 0
        for segment in segments:
            lost = self._copier.missing(segment, held) if segment.retired else BitMap64()
            count += len(lost)
            if lost and segment.record > gaps_after:
                facts = {"peer": self._definition.name, "message_type": segment.message_type, "count": len(lost)}
                ranges = ", ".join(f"{first} to {until - 1}" for first, until in to_ranges(lost))
                raise CopyFailedError(segment, JournalError("PEER_GAP", bookmarks=ranges, journal=self._own_path, **facts))
        return count

    def _check_origins(self, segment: Segment, own_origin: str, held: Mapping[str, BitMap64]) -> None:
        """Refuse messages that are said to have been published here, and were not."""
        for _, rows, origin, bookmark in segment.origins:
            if origin == own_origin and held.get(origin, BitMap64()).range_cardinality(bookmark, bookmark + rows) != rows:
                reason = f"messages {bookmark} to {bookmark + rows - 1} of this journal were never published here"
                raise CopyFailedError(segment, refused_file(self._definition.name, segment, reason))

    def _within(self, moves: Iterable[Record], message_type: str, until: int) -> Iterator[Record]:
        """Yield records that say where messages of a type went, cut to those that are known."""
        for record in moves:
            if record.message_type == message_type:
                check_move(record, self._fold)
                ranges = tuple((first, min(end, until)) for first, end in record.ranges if first < until)
                yield replace(record, ranges=ranges)
