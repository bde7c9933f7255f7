"""Pulling from one peer: a thread beside the loop reads and copies; what changes state is a command of the loop (DESIGN 17.3)."""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from spark_queue.core.deciding.instances.replicating import News, Pulled
from spark_queue.core.deciding.instances.transfers import OPEN_MS
from spark_queue.core.definitions.definition import Definitions, PeerDefinition
from spark_queue.core.message_files.segment import Segment, from_record
from spark_queue.core.records import Kind, Record
from spark_queue.errors import ConfigError, JournalError, SparkQueueError
from spark_queue.journal.layout import Store
from spark_queue.ports import Clock, PulledFiles
from spark_queue.replication.checking import check_path
from spark_queue.replication.copying import Copied, CopyFailedError
from spark_queue.replication.fetching import Fetcher, PullState
from spark_queue.replication.news import PeerFold
from spark_queue.replication.peer_log import PeerLog, digest_of, scan
from spark_queue.replication.record_forms import is_sound
from spark_queue.replication.restored import check_own, is_common, shared_until

_LOG = logging.getLogger(__name__)

#: Records that tell a peer nothing: for them alone no watermark is written, or two instances would answer each other for ever.
_SILENT_KINDS = frozenset(
    {Kind.PULLED, Kind.NAMED, Kind.EPOCH_CLAIMED, Kind.RENEWED, Kind.GRANTED, Kind.RESUMED, Kind.PROVEN, Kind.OUTCOMES}
)

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
        self._own = own
        self._clock = clock
        self._definitions = definitions
        self._definition = definition
        self._look = look
        self._hand_over = hand_over
        self._silent = 0
        #: Whether it goes on where it was: what the peer has let go since is missed.
        self._goes_on = False
        #: UUID of the own journal; known from the first records on.
        self._own_journal = ""
        self._begin()
        #: UUID of its origin, where it was restored from a backup.
        self._own_origin = ""

    def _begin(self) -> None:
        """Read the log from its first record."""
        self._log = PeerLog(self._peer, self._definition.name)
        self._fold = PeerFold(self._definition.name)
        stores = (self._own, self._peer, self._definitions, self._definition)
        self._fetcher = Fetcher(*stores, fold=self._fold, log=self._log, clock=self._clock)

    @property
    def trouble(self) -> ConfigError | None:
        """What keeps messages of a type from being pulled, while all else is."""
        return self._fetcher.trouble

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
                self._goes_on = self._goes_on or found
                return found
            records = self._log.read()

    def _take(self, records: Sequence[Record]) -> None:
        self._fold.foresee(records)
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
            news=[news for _, news in read.news], origin=self._fold.origin,
        )  # fmt: skip
        try:
            taken = False
            while not taken:
                copies, lost = self._fetched([segment for _, segment in read.entered])
                files = [copy.files for copy in copies if copy.files is not None]
                names = [copy.names for copy in copies if copy.names is not None]
                found = replace(pulled, names=names, lost=lost)
                taken = self._hand_over(Pull(pulled=found, definitions=self._definitions, files=files))
        except CopyFailedError as failed:
            self._give(read.before(failed.segment))
            raise failed.reason from None

    def _fetched(self, entered: Sequence[Segment]) -> tuple[Sequence[Copied], int]:
        # The loop tells what is held in its own time, so it is asked for only where there is something to copy.
        if not entered:
            return (), 0
        return self._fetcher.fetch(entered, self._look(), may_miss=not self._goes_on)

    def pulled_here(self) -> int | None:
        """Return the last record of the own journal that the peer has pulled; -1 before the first, None where it pulls nothing."""
        if self._definitions.journal.instance not in self._fold.definitions.peers:
            return None
        watermark = self._fold.pulled.get(self._own_journal)
        # Before this journal was restored its log had other records of the same numbers.
        return watermark.record if watermark is not None and watermark.origin == self._own_origin else -1

    def _told(self) -> list[Record]:
        """Return what the whole log says of how far it has pulled, and of restored backups, before anything of it is believed."""
        told = list[Record]()
        try:
            for record in scan(self._peer, self._definition.name, (Kind.PULLED, Kind.RESTORED)):
                told += [record] if is_sound(record) else []
        except JournalError as refusal:
            # It is refused again where it stands, once what came before is taken.
            if refusal.code not in ("PEER_REFUSED", "PROTOCOL_NEWER"):
                raise
        return told

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
        self._own_journal, self._own_origin = own.journal, own.renewed[-1] if own.renewed else ""
        told = self._told()
        check_own(self._own, self._definition.name, told, origins=[own.journal, *own.renewed])
        self._fold.foresee(told)
        self._fold.instances.update(own.instances)
        watermark, created = own.watermark, records[0].detail.get("journal")
        if watermark is None or records[0].kind != Kind.JOURNAL_CREATED:
            return records
        if created != watermark.journal:
            facts = {"expected": watermark.journal, "found": str(created)[:100], "journal": self._own.path}
            raise JournalError("PEER_REPLACED", peer=self._definition.name, **facts)
        if watermark.record < 0:
            # More is pulled than before.
            return records
        until, name = watermark.record, self._definition.name
        if not is_common(self._peer, name, watermark):
            # What was taken over stands, and taking news twice changes nothing.
            until = shared_until(self._own, self._peer, watermark, peer=name)
            _LOG.warning("Peer '%s' was restored from a backup; it is read on behind record %d.", name, until)
        self._goes_on = True
        while records:
            done = bisect_right(records, until, key=lambda record: record.record)
            for record in records[:done]:
                self._fold.fold(record)
            records = records[done:]
            if records or not self._log.has_more:
                break
            records = self._log.read()
        return records


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
