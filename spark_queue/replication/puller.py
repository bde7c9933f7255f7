"""Pulling from one peer: a thread beside the loop reads and copies; what changes state is a command of the loop (DESIGN 17.3).

What entered at a peer is fetched from where it stands there by now; what was let go in between is told.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain

from pyroaring import BitMap64

from spark_queue.core.bitmaps.ranges import to_ranges
from spark_queue.core.deciding.instances.naming import OtherNames
from spark_queue.core.deciding.instances.replicating import News, Pulled
from spark_queue.core.deciding.instances.transfers import OPEN_MS
from spark_queue.core.definitions import parsing
from spark_queue.core.definitions.definition import Definitions, PeerDefinition
from spark_queue.core.message_files.foresight import Foresight
from spark_queue.core.message_files.segment import Segment, from_record
from spark_queue.core.records import DefinitionsApplied, Entered, JournalCreated, Kind, Record
from spark_queue.errors import ConfigError, JournalError, SparkQueueError
from spark_queue.journal.store import Store
from spark_queue.ports import Clock, PulledFiles
from spark_queue.replication.copying import Copier, CopyFailedError
from spark_queue.replication.exchange import ApplyPulled, PullState, Step
from spark_queue.replication.news import PeerFold
from spark_queue.replication.peer_files import refused_file
from spark_queue.replication.peer_log import PeerLog, digest_of
from spark_queue.replication.record_checks import check_move, is_of_table
from spark_queue.replication.restored import check_own, is_common, newest_mark, shared_until
from spark_queue.replication.validation import Fit

_LOG = logging.getLogger(__name__)

#: After so many silent records one watermark is written all the same.
_SILENT_RECORDS = 1_000

#: Messages after which what was read is handed over: the loop serves others before it takes the next.
PART_ROWS = 500_000

#: A record, and what it says of messages that entered, or of those of a queue.
_Read = tuple[Record, Segment | None, News | None]


class Puller:
    """Pulls from one peer.

    `hand_over` returns whether the loop accepted the part; if not, rows have come by another way meanwhile. `meet` is called
    before anything is handed over, once the peer shows no sign that the own journal was restored: it waits for the pullers of
    other peers, which may see one.
    """

    def __init__(
        self, own: Store, peer: Store, definitions: Definitions, definition: PeerDefinition, *,
        look: Callable[[], PullState], hand_over: Callable[[ApplyPulled], bool], clock: Clock, fit: Fit,
        meet: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self._peer = peer
        self._own = own
        self._clock = clock
        self._fit = fit
        self._definitions = definitions
        self._definition = definition
        self._look = look
        self._hand_over = hand_over
        self._meet = meet
        self._silent = 0
        #: UUID of the own journal; known from the first records on.
        self._own_journal = ""
        #: UUID of its origin, where it was restored from a backup.
        self._own_origin = ""
        self._begin()

    def _begin(self) -> None:
        """Read the log from its first record."""
        #: The last record that was read, and the newest definitions that are known, with their record.
        self._last: Record | None = None
        #: Whether a queue fits again whose news were withheld, so that all of it is read again.
        self._reads_again = False
        #: Up to which record it is no gap that the peer let messages go, and whether the own log is still to say so.
        self._gaps_after = -1
        self._tells_gaps = False
        self._newest: tuple[int, Definitions] = (-1, parsing.parse({}))
        #: The latest time that is known of the log, which is read in chunks: a request of long before is over.
        self._newest_ms = 0
        self._log = PeerLog(self._peer, self._definition.name)
        self._fold = PeerFold(self._definition.name)
        self._copier = Copier(self._own, self._peer, self._definitions, self._definition, self._fold)
        #: Records that were read and not taken yet: they tell where messages went, too.
        self._not_taken: Sequence[Record] = ()
        #: Message types of which nothing more is copied, and why: their columns differ.
        self._stopped: dict[str, ConfigError] = {}

    def step(self, *, tells_held: bool = False) -> Step:
        """Take over what the peer has committed since the last step; `tells_held` asks for what it has, too."""
        try:
            found = self._take_new()
        except SparkQueueError as failure:
            if failure.code != "STORE_FAILED":
                # What was read may be of a log that is no more: then nothing is wrong with its files.
                self._log.check_last()
            raise
        return Step(
            found=found, is_at_end=self._last is not None, pulled_here=self._pulled_here(),
            trouble=next(iter(self._stopped.values()), None), held=self._fold.held() if tells_held else None,
        )  # fmt: skip

    def _take_new(self) -> bool:
        records: Sequence[Record] = self._log.read()
        found = bool(records)
        if records and self._fold.journal_id == "":
            records = self._catch_up(records)
        while True:
            self._newest_ms = max(self._newest_ms, *(record.at_ms for record in records[-1:]), 0)
            parts = list(_parts_of(records))
            for number, part in enumerate(parts, 1):
                self._not_taken = [record for later in parts[number:] for record in later]
                self._take(part)
            if not self._log.has_more:
                break
            records = self._log.read()
        return self._tell_fit() or found

    def _tell_fit(self) -> bool:
        """Tell how definitions fit by now, those of other peers included; returns whether the log is to be read again."""
        if self._last is None:
            return False
        self._fit.look(self._newest[1])
        again = self._reads_again or self._fit.fits_again
        if again or self._fit.changed is not None or self._tells_gaps:
            # A queue fits again whose news were withheld: they are read from the first record.
            record, digest = (-1, "") if again else (self._last.record, digest_of(self._last))
            # Nothing is copied, so it is refused for no rows that came by another way.
            self._hand_over(ApplyPulled(pulled=self._pulled(record, digest), definitions=self._definitions))
            self._note_told()
        if again:
            self._begin()
        return again

    def _pulled(self, record: int, digest: str) -> Pulled:
        """Return how far the peer is pulled, and what else the own log is to say of it from now on."""
        return Pulled(
            peer=self._definition.name, journal=self._fold.journal_id, record=record, digest=digest, origin=self._fold.origin,
            missing_queues=[name for name in sorted(self._definitions.replicated) if name not in self._fold.definitions.queues],
            disagreements=self._fit.changed, gaps_after=self._gaps_after if self._tells_gaps else None,
        )  # fmt: skip

    def _note_told(self) -> None:
        self._fit.note_told()
        self._tells_gaps = False

    def _take(self, records: Sequence[Record]) -> None:
        self._fold.foresee(records)
        read, refusal = list[_Read](), None
        for record in records:
            try:
                news = self._fold.fold(record)
            except SparkQueueError as reason:
                refusal = reason
                break
            # A request that is no longer open asks for somebody who may wait no more.
            if news is not None and (
                not self._is_wanted(news) or (news.requested is not None and record.at_ms < self._newest_ms - OPEN_MS)
            ):
                news = None
            enters = record.kind == Kind.ENTERED and not is_of_table(record, self._fold)
            read.append((record, from_record(record) if enters else None, news))
            self._last = record
            if record.kind == Kind.DEFINITIONS_APPLIED and record.record > self._newest[0]:
                self._newest = (record.record, self._fold.definitions)
        self._fit.look(self._newest[1])
        self._reads_again = self._reads_again or self._fit.fits_again
        if self._reads_again:
            return
        # Its definitions follow on its creation, and the store may have failed in between.
        if self._fold.definitions.journal.instance is not None or (refusal is None and records[-1].record > 0):
            self._check_name()
            self._give(read)
        if refusal is not None:
            raise refusal

    def _is_wanted(self, news: News) -> bool:
        """Return whether news are of a queue that is pulled; what messages are is passed on of queues that are none here, too."""
        return news.queue in self._definition.queues or (
            news.decided is not None and not self._definitions.is_replicated(news.queue)
        )

    def _give(self, read: Sequence[_Read]) -> None:
        """Hand over what records say: their messages first, so that no later record is taken before them."""
        records, entered = [record for record, _, _ in read], [segment for _, segment, _ in read if segment is not None]
        self._silent += len(records)
        is_silent = all(record.body.silent for record in records) and self._silent < _SILENT_RECORDS
        if not records or (is_silent and self._fit.changed is None and not self._tells_gaps):
            return
        self._silent = 0
        told = [news for _, _, news in read if news is not None and not self._fit.withholds(news.queue)]
        pulled = replace(self._pulled(records[-1].record, digest_of(records[-1])), news=told)
        try:
            taken = False
            while not taken:
                files, names, lost = self._fetched(entered)
                found = replace(pulled, names=names, lost=lost)
                taken = self._hand_over(ApplyPulled(pulled=found, definitions=self._definitions, files=files))
            self._note_told()
        except CopyFailedError as failed:
            place = (failed.segment.message_type, failed.segment.first)
            segments = enumerate(segment for _, segment, _ in read)
            until = next(index for index, each in segments if each is not None and (each.message_type, each.first) == place)
            self._give(read[:until])
            raise failed.reason from None

    def _fetched(self, entered: Sequence[Segment]) -> tuple[list[PulledFiles], list[OtherNames], int]:
        """Copy what of some messages is pulled and not here; returns files, further names, and how many the peer let go before."""
        files, names, lost = list[PulledFiles](), list[OtherNames](), 0
        # The loop tells what is held in its own time, so it is asked for only where there is something to copy.
        state = self._look() if entered else None
        for message_type in dict.fromkeys(segment.message_type for segment in entered):
            if state is not None and message_type in state.held and message_type not in self._stopped:
                mine = [segment for segment in entered if segment.message_type == message_type]
                try:
                    copied, others, gone = self._copied(mine, state)
                except ConfigError as differs:
                    if differs.code != "MESSAGE_TYPE_DIFFERS":
                        raise
                    _LOG.warning("Messages of type '%s' are not pulled: %s", message_type, differs)
                    self._stopped[message_type] = differs
                else:
                    files, names, lost = [*files, copied], [*names, others], lost + gone
        return [each for each in files if each.files], [each for each in names if each.rows], lost

    def _copied(self, entered: Sequence[Segment], state: PullState) -> tuple[PulledFiles, OtherNames, int]:
        """Copy what entered, from where it stands by now; returns how many of it the peer has let go, too."""
        message_type = entered[0].message_type
        held, standing, known = state.held[message_type], state.standing[message_type], self._fold.message_types[message_type]
        for segment in entered:
            # What a restored journal has lost comes back from others.
            self._check_origins(segment, state.origin, held)
        placed = [known.segment_of(each.first) for each in entered]
        lost = self._lost(placed, held)
        try:
            return *self._copier.copy(placed, held, standing, now_ms=self._clock.wall_ms()), lost
        except CopyFailedError as failed:
            if failed.reason.code != "MESSAGE_FILE_MISSING":
                raise
            # Its records are far behind: what was merged, or let go, since then is told further on.
            ahead = (record for record in self._not_taken if record.kind in (Kind.MOVED, Kind.RETIRED))
            foresight = Foresight(self._within(chain(ahead, self._log.moves_ahead()), message_type, known.entered_until))
            moved = [foresight.place(each) for each in placed]
            if moved == placed:
                raise
            lost = self._lost(moved, held)
            return *self._copier.copy(moved, held, standing, now_ms=self._clock.wall_ms()), lost

    def _lost(self, segments: Sequence[Segment], held: Mapping[str, BitMap64]) -> int:
        """Return how many messages the peer let go before they were pulled."""
        count = 0
        for segment in segments:
            lost = self._copier.missing(segment, held) if segment.retired else BitMap64()
            count += len(lost)
            if lost and segment.record > self._gaps_after:
                facts = {"peer": self._definition.name, "message_type": segment.message_type, "count": len(lost)}
                ranges = ", ".join(f"{first} to {until - 1}" for first, until in to_ranges(lost))
                raise CopyFailedError(segment, JournalError("PEER_GAP", bookmarks=ranges, journal=self._own.path, **facts))
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

    def _pulled_here(self) -> int | None:
        if self._definitions.journal.instance not in self._fold.definitions.peers:
            return None
        watermark = self._fold.pulled.get(self._own_journal)
        # Before this journal was restored its log had other records of the same numbers.
        return watermark.record if watermark is not None and watermark.origin == self._own_origin else -1

    def _foresee_definitions(self, told: Sequence[Record]) -> None:
        """Learn which definitions are the newest before the log is read: whether a queue fits is told by them alone."""
        applied = [record for record in told if isinstance(record.body, DefinitionsApplied)]
        if applied:
            # Of what a peer calls definitions anything can be the matter; it is refused where they stand.
            with suppress(Exception):
                self._newest = (applied[-1].record, parsing.parse(applied[-1].body_as(DefinitionsApplied).definitions))

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
        told = check_own(self._own, self._peer, self._definition.name, own, self._look)
        self._meet()
        self._fold.instances.update(own.instances)
        self._fold.foresee(told)
        self._foresee_definitions(told)
        # Who asks also pulls, and says so: what is told there is about as new as the log.
        self._newest_ms = max((record.at_ms for record in told), default=0)
        watermark, created = own.watermark, records[0].body
        # Nothing was pulled yet, or somebody said that what is gone by now may be missed.
        self._tells_gaps = watermark is None or own.skips
        self._gaps_after = self._log.last_found if watermark is None or own.skips else watermark.gaps_after
        self._fit.begin(own.disagreements, reads_all=watermark is None or watermark.record < 0)
        if watermark is None or not isinstance(created, JournalCreated):
            return records
        if created.journal != watermark.journal:
            facts = {"expected": watermark.journal, "found": created.journal, "journal": self._own.path}
            raise JournalError("PEER_REPLACED", peer=self._definition.name, **facts)
        until, name = watermark.record, self._definition.name
        # Where more is pulled than before it is read from the start: it may have been restored all the same.
        newest = watermark if until >= 0 else newest_mark(self._own, watermark.journal)
        if newest is not None and not is_common(self._peer, name, newest):
            # What was taken over stands, and taking news twice changes nothing.
            common = shared_until(self._own, self._peer, newest, peer=name)
            until = min(until, common)
            _LOG.warning("Peer '%s' was restored from a backup; reading continues after record %d.", name, until)
            if not own.skips and self._gaps_after > common:
                # What was no gap of its lost records may be one of those that have their numbers now.
                self._gaps_after, self._tells_gaps = common, True
        while records and until >= 0:
            done = bisect_right(records, until, key=lambda record: record.record)
            for record in records[:done]:
                self._fold.fold(record)
                self._last = record
            records = records[done:]
            if records or not self._log.has_more:
                break
            records = self._log.read()
        return records


def _parts_of(records: Sequence[Record]) -> Iterator[Sequence[Record]]:
    """Cut records where their messages are many, but never within one commit of messages."""
    start = rows = 0
    version: object = None
    for index, record in enumerate(records):
        if isinstance(record.body, Entered):
            commit = (record.message_type, record.body.version)
            if rows >= PART_ROWS and commit != version:
                yield records[start:index]
                start, rows = index, 0
            rows, version = rows + record.body.rows, commit
    if start < len(records):
        yield records[start:]
