"""Pulling from one peer: a thread beside the loop reads and copies; what changes state is a command of the loop (DESIGN 17.3)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from pyroaring import BitMap64

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
from spark_queue.replication.copying import Copied, Copier
from spark_queue.replication.news import PeerFold
from spark_queue.replication.peer_log import PeerLog, digest_of
from spark_queue.replication.repeats import Standing

_LOG = logging.getLogger(__name__)

#: Records that tell a peer nothing: for them alone no watermark is written, or two instances would answer each other for ever.
_SILENT_KINDS = frozenset(
    {Kind.PULLED, Kind.NAMED, Kind.EPOCH_CLAIMED, Kind.RENEWED, Kind.GRANTED, Kind.RESUMED, Kind.PROVEN, Kind.OUTCOMES}
)

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
    """What a puller must know of the own journal: its UUID, how far the peer is pulled, and what is here by message type."""

    journal: str
    watermark: Watermark | None
    held: Mapping[str, Mapping[str, BitMap64]]
    standing: Mapping[str, Standing]


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
        self._fold = PeerFold(definition.name)
        self._copier = Copier(own, peer, definitions, definition)
        self._definitions = definitions
        self._definition = definition
        self._look = look
        self._hand_over = hand_over
        self._clock = clock
        self._silent = 0
        #: UUID of the own journal; known from the first records on.
        self._own_journal = ""

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
            self._own_journal = own.journal
            records = self._catch_up(records, own.watermark)
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
        pulled = Pulled(
            peer=self._definition.name, journal=self._fold.journal_id, record=records[-1].record, digest=digest_of(records[-1]),
            news=news,
        )  # fmt: skip
        while True:
            copies = self._copies(entered)
            files = [copy.files for copy in copies if copy.files is not None]
            names = [copy.names for copy in copies if copy.names is not None]
            if self._hand_over(Pull(pulled=replace(pulled, names=names), definitions=self._definitions, files=files)):
                return

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
        done = [record for record in records if record.record <= watermark.record]
        created = records[0].detail["journal"]
        if created != watermark.journal:
            raise JournalError("PEER_REPLACED", peer=self._definition.name, expected=watermark.journal, found=created)
        if watermark.record < 0:
            # More is pulled than before.
            return records
        if not done or digest_of(done[-1]) != watermark.digest:
            # It went back to an older backup: what was taken over stands, and taking news twice changes nothing.
            _LOG.warning("Peer '%s' does not go on where it was pulled to; it is read from its beginning.", self._definition.name)
            return records
        for record in done:
            self._fold.fold(record)
        return records[len(done) :]

    def _copies(self, entered: Sequence[Segment]) -> list[Copied]:
        if not entered:
            # The loop tells what is held in its own time, so it is asked for only where there is something to copy.
            return []
        own, copies = self._look(), list[Copied]()
        for message_type in dict.fromkeys(segment.message_type for segment in entered):
            segments = [each for each in entered if each.message_type == message_type and not each.retired]
            if segments and message_type in own.held:
                held, standing = own.held[message_type], own.standing[message_type]
                copies.append(self._copier.copy(self._fold, segments, held, standing, now_ms=self._clock.wall_ms()))
        return copies
