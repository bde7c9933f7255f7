"""Pulling from one peer: a thread beside the loop reads and copies; what changes state is a command of the loop (DESIGN 17.3)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pyroaring import BitMap64

from spark_queue.core.deciding.instances.replicating import News, Pulled
from spark_queue.core.deciding.instances.transfers import OPEN_MS
from spark_queue.core.definitions.agreement import Disagreement
from spark_queue.core.definitions.definition import Definitions, PeerDefinition
from spark_queue.core.message_files.relocation import Foresight
from spark_queue.core.message_files.segment import Segment, from_record
from spark_queue.core.records import Kind, Record
from spark_queue.core.state.ownership import Watermark
from spark_queue.errors import JournalError
from spark_queue.journal.layout import Store
from spark_queue.ports import Clock, PulledFiles
from spark_queue.replication.copying import Copier
from spark_queue.replication.fitting import Fit
from spark_queue.replication.news import PeerFold
from spark_queue.replication.peer_log import PeerLog, digest_of

_LOG = logging.getLogger(__name__)

#: Records that tell a peer nothing: for them alone no watermark is written, or two instances would answer each other for ever.
SILENT_KINDS = frozenset({Kind.PULLED, Kind.EPOCH_CLAIMED, Kind.RENEWED, Kind.GRANTED, Kind.RESUMED, Kind.PROVEN, Kind.OUTCOMES})

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
    #: How the peer's definitions break rules, as the own log says.
    disagreements: Sequence[Disagreement] = ()


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
    fit : Fit
        Whether the peer's definitions fit.
    """

    def __init__(
        self, own: Store, peer: Store, definitions: Definitions, definition: PeerDefinition, *,
        look: Callable[[], PullState], hand_over: Callable[[Pull], bool], clock: Clock, fit: Fit,
    ) -> None:  # fmt: skip
        self._peer = peer
        self._log = PeerLog(peer)
        self._fold = PeerFold(definition.name)
        self._fit = fit
        self._copier = Copier(own, peer, definitions, definition)
        self._definitions = definitions
        self._definition = definition
        self._look = look
        self._hand_over = hand_over
        self._clock = clock
        self._silent = 0
        #: What the own journal says of the peer; None before the first records.
        self._own: PullState | None = None
        #: The last record that was read.
        self._last: Record | None = None

    def step(self) -> bool:
        """Take over what the peer has committed since the last step; returns whether there was something.

        Raises
        ------
        SparkQueueError
            What keeps the peer from being read, or the news from being taken: this puller must be made anew.
        """
        records = self._log.read()
        if records or self._own is not None:
            self._take(records)
        return bool(records)

    def _take(self, records: Sequence[Record]) -> None:
        if self._own is None:
            self._own = self._look()
            records = self._catch_up(records, self._own)
        foresight, entered, news = Foresight(records), list[Segment](), list[News]()
        for record in records:
            found = self._fold.fold(record)
            # A request that is no longer open asks for somebody who may wait no more.
            is_over = found is not None and found.value is None and record.at_ms < records[-1].at_ms - OPEN_MS
            if found is not None and found.queue in self._definition.queues and not is_over:
                news.append(found)
            if record.kind == Kind.ENTERED:
                entered.append(foresight.place(from_record(record)))
            self._last = record
        self._check_name(self._own)
        self._fit.look(self._fold.definitions)
        if self._fit.fits_again:
            self._begin_again()
            return
        self._silent += len(records)
        is_silent = all(record.kind in SILENT_KINDS for record in records) and self._silent < _SILENT_RECORDS
        if self._last is None or (is_silent and not self._fit.has_changed):
            return
        self._silent = 0
        pulled = Pulled(
            peer=self._definition.name, journal=self._fold.journal_id, record=self._last.record, digest=digest_of(self._last),
            news=[each for each in news if not self._fit.withholds(each.queue)], disagreements=self._fit.tell(),
        )  # fmt: skip
        while not self._hand_over(Pull(pulled=pulled, definitions=self._definitions, files=self._copies(entered))):
            continue

    def _begin_again(self) -> None:
        """Read the log from its first record: a queue fits again whose news were withheld."""
        again = Pulled(
            peer=self._definition.name, journal=self._fold.journal_id, record=-1, digest="", disagreements=self._fit.tell()
        )
        self._hand_over(Pull(pulled=again, definitions=self._definitions))
        self._log, self._fold, self._own, self._last = PeerLog(self._peer), PeerFold(self._definition.name), None, None

    def _check_name(self, own: PullState) -> None:
        """Refuse a journal that is not the instance that it was taken for: owners are told by name."""
        instance = self._fold.definitions.journal.instance
        found = "no instance" if instance is None else f"instance '{instance}'"
        if self._fold.journal_id == own.journal:
            found = "this very journal"
        if self._fold.journal_id == own.journal or instance != self._definition.name:
            path = self._definition.journal
            raise JournalError("PEER_MISNAMED", peer=self._definition.name, path=path, found=found)

    def _catch_up(self, records: Sequence[Record], own: PullState) -> Sequence[Record]:
        """Fold what was taken over by an earlier reign; returns the records after it."""
        watermark = own.watermark
        self._fit.begin(own.disagreements, reads_all=watermark is None or watermark.record < 0)
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
        self._last = done[-1]
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
