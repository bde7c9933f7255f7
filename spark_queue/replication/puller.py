"""Pulling from one peer: a thread beside the loop reads and copies; what changes state is a command of the loop (DESIGN 17.3)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pyroaring import BitMap64

from spark_queue.core.bitmaps.ranges import to_ranges
from spark_queue.core.deciding.instances.replicating import News, Pulled
from spark_queue.core.deciding.instances.transfers import OPEN_MS
from spark_queue.core.definitions.definition import Definitions, PeerDefinition
from spark_queue.core.message_files.relocation import Foresight
from spark_queue.core.message_files.segment import Segment, from_record
from spark_queue.core.records import Kind, Record
from spark_queue.core.state.ownership import Watermark
from spark_queue.errors import JournalError
from spark_queue.journal.layout import Store
from spark_queue.ports import Clock, PulledFiles
from spark_queue.replication.copying import Copier
from spark_queue.replication.news import PeerFold
from spark_queue.replication.peer_log import PeerLog, digest_of
from spark_queue.replication.restored import check_own, shared_until

_LOG = logging.getLogger(__name__)

#: Records that tell a peer nothing: for them alone no watermark is written, or two instances would answer each other for ever.
_SILENT_KINDS = frozenset({Kind.PULLED, Kind.EPOCH_CLAIMED, Kind.RENEWED, Kind.GRANTED, Kind.RESUMED, Kind.PROVEN, Kind.OUTCOMES})

#: After so many silent records one watermark is written all the same.
_SILENT_RECORDS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Pull:
    """What was read of a peer, for the loop: files of messages first, then what the records say."""

    pulled: Pulled
    #: By which it was read.
    definitions: Definitions
    files: Sequence[PulledFiles] = ()


@dataclass(frozen=True, slots=True)
class Look:
    """The question for the `PullState` about one peer."""

    peer: str


@dataclass(frozen=True, slots=True)
class PullState:
    """What a puller must know of the own journal: its UUID, how far the peer is pulled, and which rows are here."""

    journal: str
    watermark: Watermark | None
    held: Mapping[str, Mapping[str, BitMap64]]
    #: Whether to go on without the messages that the peer let go before they were pulled.
    skips: bool = False
    #: UUIDs of the own origin since the journal was restored from a backup, oldest first.
    renewed: Sequence[str] = ()


class Puller:
    """Pulls from one peer.

    Parameters
    ----------
    own : Store
        The own journal.
    peer : Store
        The peer's journal.
    definitions : Definitions
        The own.
    definition : PeerDefinition
        What is pulled.
    look : callable
        Returns the `PullState` of the own journal.
    hand_over : callable
        Gives a `Pull` to the loop; returns whether it was taken. Where it was not, rows have come by another way meanwhile.
    """

    def __init__(
        self, own: Store, peer: Store, definitions: Definitions, definition: PeerDefinition, *,
        look: Callable[[], PullState], hand_over: Callable[[Pull], bool], clock: Clock,
    ) -> None:  # fmt: skip
        self._log = PeerLog(peer)
        self._own = own
        self._fold = PeerFold(definition.name)
        self._copier = Copier(own, peer, definitions, definition)
        self._definitions = definitions
        self._definition = definition
        self._look = look
        self._hand_over = hand_over
        self._clock = clock
        self._silent = 0
        #: Whether it goes on where it was: what the peer has let go since is missed.
        self._goes_on = False
        #: UUID of the own journal; known from the first records on.
        self._own_journal = ""
        #: UUID of its origin, where it was restored from a backup.
        self._own_origin = ""

    def step(self) -> bool:
        """Take over what the peer has committed since the last step; returns whether there was something.

        Raises
        ------
        SparkQueueError
            What keeps the peer from being read, or the news from being taken: this puller must be made anew.
        """
        records = self._log.read()
        if records:
            self._take(records)
        return bool(records)

    def _take(self, records: Sequence[Record]) -> None:
        if self._fold.journal_id == "":
            own = self._look()
            self._own_journal, self._own_origin = own.journal, own.renewed[-1] if own.renewed else ""
            check_own(self._own, self._definition.name, records, origins=[own.journal, *own.renewed])
            self._fold.foresee(records)
            records = self._catch_up(records, own.watermark)
        else:
            self._fold.foresee(records)
        if not records:
            return
        foresight, entered, news = Foresight(records), list[Segment](), list[News]()
        for record in records:
            found = self._fold.fold(record)
            # A request that is no longer open asks for somebody who may wait no more.
            is_over = found is not None and found.value is None and record.at_ms < records[-1].at_ms - OPEN_MS
            if found is not None and found.queue in self._definition.queues and not is_over:
                news.append(found)
            if record.kind == Kind.ENTERED:
                entered.append(foresight.place(from_record(record)))
        self._check_name()
        self._silent += len(records)
        if all(record.kind in _SILENT_KINDS for record in records) and self._silent < _SILENT_RECORDS:
            return
        self._silent = 0
        lost = self._lost([segment for segment in entered if segment.retired])
        pulled = Pulled(
            peer=self._definition.name, journal=self._fold.journal_id, record=records[-1].record, digest=digest_of(records[-1]),
            news=news, lost=lost, origin=self._fold.origin,
        )  # fmt: skip
        while not self._hand_over(Pull(pulled=pulled, definitions=self._definitions, files=self._copies(entered))):
            continue
        self._goes_on = True

    def pulled_here(self) -> int | None:
        """Return the last record of the own journal that the peer has pulled; -1 before the first, None where it pulls nothing."""
        if self._definitions.journal.instance not in self._fold.definitions.peers:
            return None
        watermark = self._fold.pulled.get(self._own_journal)
        # Before this journal was restored its log had other records of the same numbers.
        return watermark.record if watermark is not None and watermark.origin == self._own_origin else -1

    def _lost(self, retired: Sequence[Segment]) -> int:
        """Return how many messages the peer let go before they were pulled.

        Raises
        ------
        JournalError
            PEER_GAP where it was pulled before, and nobody has said that they may be missed.
        """
        if not retired:
            return 0
        state, count = self._look(), 0
        for message_type in dict.fromkeys(segment.message_type for segment in retired):
            segments = [segment for segment in retired if segment.message_type == message_type]
            lost = self._copier.missing(self._fold, segments, state.held.get(message_type, {}))
            count += len(lost)
            if lost and self._goes_on and not state.skips:
                facts = {"peer": self._definition.name, "message_type": message_type, "count": len(lost)}
                ranges = ", ".join(f"{first} to {until - 1}" for first, until in to_ranges(lost))
                raise JournalError("PEER_GAP", bookmarks=ranges, journal=self._own.path, **facts)
        return count

    def _check_name(self) -> None:
        """Refuse a journal that is not the instance that it was taken for: owners are told by name."""
        instance = self._fold.definitions.journal.instance
        found = "no instance" if instance is None else f"instance '{instance}'"
        if self._fold.journal_id == self._own_journal:
            found = "this very journal"
        if self._fold.journal_id == self._own_journal or instance != self._definition.name:
            path = self._definition.journal
            raise JournalError("PEER_MISNAMED", peer=self._definition.name, path=path, found=found)

    def _catch_up(self, records: Sequence[Record], watermark: Watermark | None) -> Sequence[Record]:
        """Fold what was taken over by an earlier reign; returns the records after it."""
        if watermark is None:
            return records
        done: Sequence[Record] = [record for record in records if record.record <= watermark.record]
        created = records[0].detail["journal"]
        if created != watermark.journal:
            facts = {"peer": self._definition.name, "expected": watermark.journal, "found": created, "journal": self._own.path}
            raise JournalError("PEER_REPLACED", **facts)
        if watermark.record < 0:
            # More is pulled than before.
            return records
        if not done or digest_of(done[-1]) != watermark.digest:
            # What was taken over stands, and taking news twice changes nothing.
            shared = shared_until(self._own, watermark, records, peer=self._definition.name)
            _LOG.warning("Peer '%s' was restored from a backup; it is read on behind record %d.", self._definition.name, shared)
            done = records[: shared + 1]
        self._goes_on = True
        for record in done:
            self._fold.fold(record)
        return records[len(done) :]

    def _copies(self, entered: Sequence[Segment]) -> list[PulledFiles]:
        # The loop tells what is held in its own time, so it is asked for only where there is something to copy.
        known = self._look().held if entered else {}
        copies: list[PulledFiles] = []
        for message_type in dict.fromkeys(segment.message_type for segment in entered):
            segments = [each for each in entered if each.message_type == message_type and not each.retired]
            if segments and message_type in known:
                files = self._copier.copy(self._fold, segments, known[message_type], now_ms=self._clock.wall_ms())
                copies += [] if files is None else [files]
        return copies
