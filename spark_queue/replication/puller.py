"""Pulling from one peer: a thread beside the loop reads and copies; what changes state is a command of the loop (DESIGN 17.3)."""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyroaring import BitMap64

from spark_queue.core.deciding.instances.replicating import News, Pulled
from spark_queue.core.deciding.instances.transfers import OPEN_MS
from spark_queue.core.definitions.definition import Definitions, PeerDefinition
from spark_queue.core.message_files.relocation import Foresight
from spark_queue.core.message_files.segment import Segment, from_record
from spark_queue.core.records import Kind, Record
from spark_queue.core.state.ownership import Watermark
from spark_queue.errors import ConfigError, JournalError, SparkQueueError
from spark_queue.journal.layout import Store
from spark_queue.ports import Clock, PulledFiles
from spark_queue.replication.checking import check_move, check_path
from spark_queue.replication.copying import Copier, CopyFailedError
from spark_queue.replication.news import PeerFold
from spark_queue.replication.peer_log import PeerLog, digest_of
from spark_queue.replication.peer_records import refused

_LOG = logging.getLogger(__name__)

#: Records that tell a peer nothing: for them alone no watermark is written, or two instances would answer each other for ever.
_SILENT_KINDS = frozenset({Kind.PULLED, Kind.EPOCH_CLAIMED, Kind.RENEWED, Kind.GRANTED, Kind.RESUMED, Kind.PROVEN, Kind.OUTCOMES})

#: After so many silent records one watermark is written all the same.
_SILENT_RECORDS = 1_000

#: Messages after which what was read is handed over: the loop serves others before it takes the next.
PART_ROWS = 500_000


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
    #: The names of instances by the UUID of their journal, this one's too.
    instances: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Read:
    """Records one after the other; messages that entered, and news, with the index of their record."""

    records: list[Record]
    entered: list[tuple[int, Segment]]
    news: list[tuple[int, News]]

    def before(self, segment: Segment) -> _Read:
        """Return what comes before messages that entered."""
        until = next(
            index for index, each in self.entered if (each.message_type, each.first) == (segment.message_type, segment.first)
        )
        entered = [each for each in self.entered if each[0] < until]
        return _Read(self.records[:until], entered, [each for each in self.news if each[0] < until])


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
        self._peer = peer
        self._copier = Copier(own, peer, definitions, definition)
        self._definitions = definitions
        self._definition = definition
        self._look = look
        self._hand_over = hand_over
        self._clock = clock
        self._silent = 0
        #: UUID of the own journal; known from the first records on.
        self._own_journal = ""
        #: Message types of which nothing more is copied, and why: their columns differ.
        self._stopped: dict[str, ConfigError] = {}
        self._begin()

    def _begin(self) -> None:
        """Read the log from its first record."""
        self._log = PeerLog(self._peer, self._definition.name)
        self._fold = PeerFold(self._definition.name)

    @property
    def trouble(self) -> ConfigError | None:
        """What keeps messages of a type from being pulled, while all else is."""
        return next(iter(self._stopped.values()), None)

    def step(self) -> bool:
        """Take over what the peer has committed since the last step; returns whether there was something.

        Raises
        ------
        SparkQueueError
            What keeps the peer from being read, or the news from being taken: this puller must be made anew. What came before it
            was taken over.
        """
        records: Sequence[Record] = self._log.read()
        found = bool(records)
        if records and self._fold.journal_id == "":
            records = self._catch_up(records)
        while True:
            for part in _parts(records):
                self._take(part)
            if not self._log.has_more:
                return found
            records = self._log.read()

    def _take(self, records: Sequence[Record]) -> None:
        read, refusal = _Read([], [], []), None
        for record in records:
            try:
                found = self._fold.fold(record)
                check_path(record, self._fold)
            except SparkQueueError as reason:
                refusal = reason
                break
            # A request that is no longer open asks for somebody who may wait no more.
            is_over = found is not None and found.value is None and record.at_ms < records[-1].at_ms - OPEN_MS
            if found is not None and found.queue in self._definition.queues and not is_over:
                read.news.append((len(read.records), found))
            if record.kind == Kind.ENTERED:
                read.entered.append((len(read.records), from_record(record)))
            read.records.append(record)
        if refusal is None or self._fold.definitions.journal.instance is not None:
            self._check_name()
            self._give(read)
        if refusal is not None:
            raise refusal

    def _give(self, read: _Read) -> None:
        """Hand over what records say: their messages first, so that no later record is taken before them."""
        records = read.records
        self._silent += len(records)
        if not records or (all(record.kind in _SILENT_KINDS for record in records) and self._silent < _SILENT_RECORDS):
            return
        self._silent = 0
        pulled = Pulled(
            peer=self._definition.name, journal=self._fold.journal_id, record=records[-1].record, digest=digest_of(records[-1]),
            news=[news for _, news in read.news],
        )  # fmt: skip
        try:
            while not self._hand_over(Pull(pulled=pulled, definitions=self._definitions, files=self._copies(read.entered))):
                continue
        except CopyFailedError as failed:
            self._give(read.before(failed.segment))
            raise failed.reason from None

    def _check_name(self) -> None:
        """Refuse a journal that is not the instance that it was taken for: owners are told by name."""
        instance = self._fold.definitions.journal.instance
        found = "no instance" if instance is None else f"instance '{instance}'"
        if self._fold.journal_id == self._own_journal:
            found = "this very journal"
        if self._fold.journal_id == self._own_journal or instance != self._definition.name:
            path = self._definition.journal
            raise JournalError("PEER_MISNAMED", peer=self._definition.name, path=path, found=found)

    def _catch_up(self, records: Sequence[Record]) -> Sequence[Record]:
        """Fold what was taken over by an earlier reign; returns the records after it, of those that are read."""
        own = self._look()
        self._own_journal = own.journal
        self._fold.instances.update(own.instances)
        watermark, created = own.watermark, records[0].detail.get("journal")
        if watermark is None or records[0].kind != Kind.JOURNAL_CREATED:
            return records
        if created != watermark.journal:
            raise JournalError("PEER_REPLACED", peer=self._definition.name, expected=watermark.journal, found=str(created)[:100])
        if watermark.record < 0:
            # More is pulled than before.
            return records
        last = None
        while records:
            done = bisect_right(records, watermark.record, key=lambda record: record.record)
            for record in records[:done]:
                self._fold.fold(record)
            last, records = records[done - 1] if done else last, records[done:]
            if records or not self._log.has_more:
                break
            records = self._log.read()
        if last is not None and last.record == watermark.record and digest_of(last) == watermark.digest:
            return records
        # It went back to an older backup: what was taken over stands, and taking news twice changes nothing.
        _LOG.warning("Peer '%s' does not go on where it was pulled to; it is read from its beginning.", self._definition.name)
        self._begin()
        self._fold.instances.update(own.instances)
        return self._log.read()

    def _copies(self, entered: Sequence[tuple[int, Segment]]) -> list[PulledFiles]:
        # The loop tells what is held in its own time, so it is asked for only where there is something to copy.
        known = self._look().held if entered else {}
        copies: list[PulledFiles] = []
        for message_type in dict.fromkeys(segment.message_type for _, segment in entered):
            if message_type in known and message_type not in self._stopped:
                mine = [segment for _, segment in entered if segment.message_type == message_type]
                try:
                    files = self._copied(mine, known[message_type])
                except ConfigError as differs:
                    if differs.code != "MESSAGE_TYPE_DIFFERS":
                        raise
                    _LOG.warning("Messages of type '%s' are not pulled: %s", message_type, differs)
                    self._stopped[message_type] = differs
                else:
                    copies += [] if files is None else [files]
        return copies

    def _copied(self, entered: Sequence[Segment], held: Mapping[str, BitMap64]) -> PulledFiles | None:
        """Copy what entered, from where it stands by now."""
        for segment in entered:
            self._check_origins(segment, held)
        known = self._fold.message_types[entered[0].message_type]
        segments = [known.segment_of(each.first) for each in entered]
        try:
            return self._copier.copy(self._fold, segments, held, now_ms=self._clock.wall_ms())
        except CopyFailedError as failed:
            if failed.reason.code != "MESSAGE_FILE_MISSING":
                raise
            # Its records are far behind: what was merged, or let go, since then is told further on.
            foresight = Foresight(self._within(self._log.moves_ahead(), entered[0].message_type, known.entered_until))
            placed = [foresight.place(each) for each in segments]
            if placed == segments:
                raise
            return self._copier.copy(self._fold, placed, held, now_ms=self._clock.wall_ms())

    def _check_origins(self, segment: Segment, held: Mapping[str, BitMap64]) -> None:
        """Refuse messages that are said to have been published here, and were not."""
        for _, rows, origin, bookmark in segment.origins:
            if origin == self._own_journal and held[origin].range_cardinality(bookmark, bookmark + rows) != rows:
                what = f"file {segment.path} of message type '{segment.message_type}' (its messages from {segment.first})"
                reason = f"messages {bookmark} to {bookmark + rows - 1} of this journal were never published here"
                raise CopyFailedError(segment, refused(self._definition.name, what, reason))

    def _within(self, moves: Iterable[Record], message_type: str, until: int) -> Iterator[Record]:
        """Yield records that say where messages of a type went, cut to those that are known."""
        for record in moves:
            if record.message_type == message_type:
                check_move(record, self._fold)
                ranges = tuple((first, min(end, until)) for first, end in record.ranges if first < until)
                yield replace(record, ranges=ranges)


def _parts(records: Sequence[Record]) -> Iterator[Sequence[Record]]:
    """Cut records where their messages are many, but never within one commit of messages."""
    start = rows = 0
    version: object = None
    for index, record in enumerate(records):
        if record.kind == Kind.ENTERED:
            # What is wrong with it is told when it is taken.
            count, commit = record.detail.get("rows"), (record.message_type, record.detail.get("version"))
            if rows >= PART_ROWS and commit != version:
                yield records[start:index]
                start, rows = index, 0
            rows, version = rows + (count if isinstance(count, int) else 0), commit
    if start < len(records):
        yield records[start:]
