"""The state of a journal: the fold of its control log (DESIGN 4, 5)."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from pyroaring import BitMap64

from spark_queue.core.bitmaps.ranges import below, to_bitmap, to_ranges
from spark_queue.core.definitions import parsing
from spark_queue.core.definitions.definition import Definitions, Disagreement, QueueDefinition
from spark_queue.core.message_files.foresight import Foresight
from spark_queue.core.message_files.message_type import MessageTypeState
from spark_queue.core.message_files.segment import EntryTraits, Letters, Segment, TraitRequest, TraitSource
from spark_queue.core.records import EpochClaimed, Kind, Ranges, Record, Subscribed
from spark_queue.core.replies import RefusedRows
from spark_queue.core.state.alarm import Alarm
from spark_queue.core.state.attempt import AttemptNumbers
from spark_queue.core.state.done_requests import DoneRequests
from spark_queue.core.state.faults import QueueGuard, describe, is_doubt, set_aside
from spark_queue.core.state.ledger import QueueLedger
from spark_queue.core.state.lifecycle import State
from spark_queue.core.state.ownership import Watermark
from spark_queue.core.state.peer_changes import PeerChanges, Returning
from spark_queue.errors import MESSAGE_FILE_CODES, JournalError, SparkQueueError


class JournalState:
    """Everything that the control log says, up to the last folded record."""

    def __init__(self, traits: TraitSource) -> None:
        #: Asked again whenever the log is folded; it is set when a state is restored from a snapshot.
        self.traits = traits
        self.journal_id, self.created_at_ms = "", 0
        #: The newest claimed reign; 0 before the first.
        self.epoch = 0
        self.claim: EpochClaimed | None = None
        self.next_record = 0
        self.last_at_ms = 0
        self.definitions: Definitions = parsing.parse({})
        self.message_types: dict[str, MessageTypeState] = {}
        self.queues: dict[str, QueueLedger] = {}
        #: Queues that are set aside, and why: their messages cannot be read, since a message file is not whole, or something
        #: raised. Everything else goes on without them.
        self.troubles: dict[str, JournalError] = {}
        #: Since when they are, in milliseconds, as far as a record tells.
        self.set_aside_ms: dict[str, int] = {}
        #: Requests to a file that is not whole, by queue.
        self.unanswered: dict[str, TraitRequest] = {}
        #: Faults of the fold that have no record yet, by queue.
        self.faults: dict[str, str] = {}
        #: Whether a fault of a queue is raised: a reign drops uncommitted records. A reader of a log goes on without
        #: the queue.
        self.raises_faults = True
        #: Matches of new filters, by queue and filter, from before the record that says so until its fold.
        self._prepared: dict[tuple[str, str], BitMap64] = {}
        #: Sources of the traits of segments that enter next, by message type, while a log is folded.
        self._expected: dict[str, TraitSource] = {}
        #: Knowledge of the later part of the log that is being folded.
        self.foresight = Foresight()
        #: Replicated queues that were removed: put back, they go on from the state here of their messages.
        self.left: dict[str, QueueLedger] = {}
        #: Where the numbers of leases and attempts of other dropped queues go on.
        self.lease_numbers: dict[str, int] = {}
        self.attempts: dict[str, dict[str, AttemptNumbers]] = {}
        self.requests = DoneRequests()
        #: How far each peer is pulled, by the name of its instance.
        self.pulled: dict[str, Watermark] = {}
        self.peer_changes = PeerChanges()
        #: Whether this instance was away for so long that it must hear from its peers first; None where it was not.
        self.returning: Returning | None = None
        #: How definitions of peers break rules with those of here, by the name of the peer.
        self.disagreements: dict[str, list[Disagreement]] = {}
        #: Lasting troubles that keep peers from being pulled, by the name of the peer.
        self.peer_troubles: dict[str, Alarm] = {}
        #: The names of instances, by the UUID of their journal.
        self.instances: dict[str, str] = {}

    @property
    def is_shared(self) -> bool:
        """Return whether other instances may count on this one.

        They do so as long as it names one as its peer, or remembers ownership of messages of a replicated queue: it
        owns some of them, even if its definitions have changed.
        """
        return bool(self.definitions.peers or self.pulled or any(known.told for known in self.message_types.values()))

    def has_done(self, request: str) -> bool:
        """Return whether a request that changes something took effect lately; its caller may ask again when the reply was lost."""
        return bool(request) and request in self.requests

    def messages_of(self, request: str) -> int:
        """Return how many messages a request that was done lately settled or purged."""
        return self.requests.messages_of(request)

    def refused_of(self, request: str) -> list[RefusedRows]:
        """Return the messages of which a request was refused an outcome."""
        return self.requests.refused_of(request)

    def is_unused(self, message_type: str, *, by: Definitions | None = None) -> bool:
        """Return whether definitions, by default those that hold, lack a message type of which no message entered."""
        known = self.message_types.get(message_type)
        return message_type not in (by or self.definitions).message_types and (known is None or not known.entered_until)

    def ledger(self, queue: str) -> QueueLedger:
        """Return a queue's ledger."""
        name = self.definitions.queue(queue).name
        if name in self.troubles:
            raise self.troubles[name]
        return self.queues[name]

    def set_aside_queues(self) -> dict[str, JournalError]:
        """Return the queues that are set aside, with the error for callers; without those that were dropped since."""
        return {name: trouble for name, trouble in self.troubles.items() if name in self.definitions.queues}

    def guard(self, queue: str) -> QueueGuard:
        """Return a context in which every error is the fault of a queue, but for doubts about the log or the store."""
        return QueueGuard(self, queue)

    def note_fault(self, queue: str, fault: Exception) -> bool:
        """Go on without a queue at which something raised; returns False where there is no such queue."""
        if self.queues.pop(queue, None) is None:
            return False
        self.faults[queue] = describe(fault)
        self.troubles[queue] = set_aside(queue, f"{self.faults[queue]}.")
        return True

    def foresee(self, records: Iterable[Record], *, of: BitMap64 | None = None) -> None:
        """Learn the facts of messages from a log before it is folded; with no records, forget them afterwards.

        From then on a fault of a queue sets it aside, until a reign takes over.

        Traits of a message file are computed anew when its `entered` record is folded, but the file may have been merged with
        others or retired since, and expressions may say something else by now.
        """
        self.foresight = Foresight(records, of=of)
        self._expected.clear()
        self.raises_faults = False
        for ledger in (*self.queues.values(), *self.left.values()):
            ledger.retired = self.foresight.retired(ledger.definition.message_type)

    def filled_by(self, record: Record) -> Iterator[QueueLedger]:
        """Yield the queues in which messages may become active with a record."""
        names = self.queues if record.kind == Kind.DEFINITIONS_APPLIED else self.definitions.with_target_depth
        return (self.queues[name] for name in list(names) if name in self.queues)

    def queues_changed_by(self, record: Record) -> Collection[str]:
        """Return the queues that a record may have changed; those with newly active messages are in `filled_by`."""
        if record.queue is not None:
            return (record.queue,)
        if record.message_type is not None:
            return self.definitions.queues_of.get(record.message_type, ())
        return self.queues

    def aged_until(self, queue: QueueDefinition, now_ms: int) -> int:
        """Return the bookmark before which messages are older than the queue's `expiration`; 0 when it has none."""
        if queue.expiration_ms is None:
            return 0
        return self.message_types[queue.message_type].entered_by(now_ms - queue.expiration_ms)

    def past_barriers(self, queue: QueueDefinition, start: int) -> BitMap64:
        """Return the messages, from a bookmark on, that are barriers of a queue that begins after they were published (R75)."""
        known, request = self.message_types[queue.message_type], TraitRequest(queue=queue)
        segments = self._standing_of(segment for segment in known.segments if segment.until > start)
        source = self.traits.ahead(segments, [request])
        found = (segment.present & source.traits(segment, [request])[queue.name].barriers for segment in segments)
        rows = BitMap64.union(BitMap64(), *found)
        return rows - below(rows, start)

    def find_barriers(self, segment: Segment) -> dict[str, Ranges]:
        """Return which messages of a segment are barriers, by queue, for a record: it is decided once (R67, R75)."""
        standing = self.trait_requests(self.entered_queues(segment.message_type))
        asked = [each for each in standing if each.queue.barrier is not None]
        segment = self.foresight.place(segment)
        traits = self.traits.traits(segment, asked) if asked else {}
        if not segment.is_whole:
            traits = {name: each.among(segment.present) for name, each in traits.items()}
        return {name: tuple(to_ranges(each.barriers)) for name, each in traits.items()}

    def queues_of(self, message_type: str) -> list[QueueLedger]:
        """Return the queues that take messages from the log of a type."""
        names = self.definitions.queues_of.get(message_type, ())
        ledgers = (self.queues[name] for name in names if name in self.queues)
        return [each for each in ledgers if each.definition.underlying_topic]

    def entered_queues(self, message_type: str) -> list[QueueLedger]:
        """Return the queues that messages of a type enter by its log alone: for a replicated one records decide (R129)."""
        return [each for each in self.queues_of(message_type) if not each.is_replicated]

    def trait_requests(self, ledgers: Iterable[QueueLedger], *, told: Container[str] = ()) -> list[TraitRequest]:
        """Return the requests for traits of entering messages; `told` are the queues with recorded barriers."""
        found = []
        for ledger in ledgers:
            with self.guard(ledger.definition.name):
                found.append(ledger.trait_request(barriers=ledger.definition.name not in told))
        return found

    def enter(self, segment: Segment, ledgers: Iterable[QueueLedger], *, barriers: Mapping[str, Ranges]) -> None:
        """Let a segment into queues.

        A queue that is not among `barriers` finds its own by its expression: no record says yet whether that is so.
        """
        segment = self.foresight.place(segment)
        # Nobody needs messages without records of their own.
        if not segment.retired:
            self._enter(segment, ledgers, barriers, self._expected.get(segment.message_type, self.traits))

    def expect(self, message_type: str, segments: Sequence[Segment], *, told: Container[str]) -> None:
        """Note that these segments enter next, as far as nobody knows better; `told` are the queues with recorded barriers."""
        placed = self._standing_of(segments)
        self._expected[message_type] = self.traits.ahead(placed, self.trait_requests(self.entered_queues(message_type), told=told))

    def enter_past(self, message_type: str, ledgers: Sequence[QueueLedger], barriers: Mapping[str, BitMap64]) -> None:
        """Let all messages that were there before into queues of their type that begin, with these barriers."""
        segments = self._standing_of(self.message_types[message_type].segments) if ledgers else []
        source = self.traits.ahead(segments, self.trait_requests(ledgers, told=barriers))
        for segment in segments:
            of_it = {queue: tuple(to_ranges(rows & segment.rows)) for queue, rows in barriers.items()}
            mine = [each for each in ledgers if each.definition.name not in self.troubles]
            self._enter(segment, mine, of_it, source)

    def _enter(self, segment: Segment, ledgers: Iterable[QueueLedger], barriers: Mapping[str, Ranges], source: TraitSource) -> None:
        wanted = {ledger.definition.name: ledger for ledger in ledgers if segment.until > ledger.start}
        if not wanted:
            return
        requests = self.trait_requests(wanted.values(), told=barriers)
        for name, found in self._traits_of(segment, requests, source).items():
            with self.guard(name):
                traits = found.with_barriers(barriers[name]) if name in barriers else found
                told = self._as_told(segment, wanted[name], traits).since(wanted[name].start)
                wanted[name].enter(told)
                if name not in barriers and wanted[name].definition.barrier is not None:
                    wanted[name].unsaid |= told.rows
                if segment.due_at_ms is not None:
                    wanted[name].delay(told.rows, segment.due_at_ms)

    def enter_decided(self, ledger: QueueLedger, rows: BitMap64, *, owner: str | None) -> None:
        """Let messages into a queue that is replicated, as was decided where they were published (R129).

        No filter is asked whether they belong here; messages already in the queue stay as they are.

        `owner` is the first owner, None for barriers.
        """
        request = ledger.trait_request(barriers=False)
        for segment, here, found in self._traits_standing(ledger, rows - ledger.entered, request):
            # Its own filter may leave out messages that the origin has put in.
            all_of_it = found if here.issubset(found.rows) else next(iter(self._traits_of_any(segment, ledger)), found)
            traits = all_of_it.among(here)
            ledger.enter(replace(traits, barriers=traits.rows if owner is None else BitMap64()))
            if owner is not None:
                ledger.give(traits.rows, term=0, owner=owner)
            if segment.due_at_ms is not None:
                ledger.delay(traits.rows, segment.due_at_ms)
            self.note_clashes([ledger], segment)

    def give_to_first_owners(self, ledger: QueueLedger, rows: BitMap64) -> None:
        """Let messages of a replicated queue belong to whom they belong to at first (R102)."""
        known = self.message_types[ledger.definition.message_type]
        for owner, told in known.membership(ledger.definition.name).members.items():
            part = rows & told
            ledger.give(part, term=0, owner=owner)
            rows = rows - part
        if ledger.definition.initial_owner is not None:
            ledger.give(rows, term=0, owner=ledger.definition.initial_owner)
            return
        for origin, from_there in known.origins.pulled.items():
            part = rows & from_there
            if part:
                ledger.give(part, term=0, owner=self.instances[origin])
        for origin, named in known.origins.named(rows):
            # It was published to several, and the greater value is true.
            owner = self.instances[origin]
            lesser = (part for _, known, part in ledger.ownership.by_owner(named) if known < owner)
            ledger.give(BitMap64.union(BitMap64(), *lesser), term=0, owner=owner)

    def note_clashes(self, ledgers: Iterable[QueueLedger], segment: Segment) -> None:
        """Note the messages of a file that have a number which another message of their publisher has, an alarm of their queues."""
        for ledger in ledgers if segment.clashes else ():
            with self.guard(ledger.definition.name):
                _note_clash(ledger, segment)

    def find_members(self, ledger: QueueLedger, rows: BitMap64) -> tuple[BitMap64, BitMap64]:
        """Return those of `rows`, published here, that are in a replicated queue by its definition, and the barriers there.

        Messages already in it stay, as long as they are not over.
        """
        before = rows & ledger.entered
        standing = before - ledger.rows[State.REMOVED] - ledger.rows[State.DEAD]
        members, barriers = standing - ledger.barriers, standing & ledger.barriers
        for _, here, found in self._traits_standing(ledger, rows - before, ledger.trait_request()):
            members |= (found.rows & here) - found.barriers
            barriers |= found.barriers & here
        return members, barriers

    def _standing_of(self, segments: Iterable[Segment]) -> list[Segment]:
        """Return those of segments that are not retired, as they stand."""
        return [placed for placed in map(self.foresight.place, segments) if not placed.retired]

    def _standing(self, ledger: QueueLedger, rows: BitMap64) -> Iterator[tuple[Segment, BitMap64]]:
        """Yield the segments that hold some of `rows` from where a queue starts, as they stand, with those rows."""
        rows = rows - below(rows, ledger.start)
        known = self.message_types[ledger.definition.message_type]
        for segment in map(self.foresight.place, known.overlapping(rows.min(), rows.max() + 1) if rows else ()):
            here = rows & segment.present
            if here:
                yield segment, here

    def undecided(self, ledger: QueueLedger) -> BitMap64:
        """Return undecided messages of other instances that may be for a replicated queue (R129)."""
        queue, known = ledger.definition, self.message_types[ledger.definition.message_type]
        told = known.membership(queue.name).known
        first, until = ledger.start, known.entered_until
        if not ledger.is_replicated or queue.underlying_topic is None or told.range_cardinality(first, until) >= until - first:
            return BitMap64()
        rows = to_bitmap([(first, until)]) - told - ledger.entered
        concerned = (
            (segment.first, segment.until)
            for segment in known.overlapping(first, until)
            if not segment.retired and (segment.topic_min != segment.topic_max or queue.takes(segment.topic_min))
        )
        return rows & to_bitmap(list(concerned))

    def _as_told(self, segment: Segment, ledger: QueueLedger, traits: EntryTraits) -> EntryTraits:
        """Return traits as the records that follow show them: a message that was in the queue is in it, by any expression."""
        messages, barriers = self.foresight.told(ledger.definition.name)
        here = segment.present
        missing = ((here & messages) | (here & barriers)) - traits.rows
        for everything in self._traits_of_any(segment, ledger) if missing else ():
            traits = replace(everything.among(traits.rows | missing), barriers=traits.barriers, failed=traits.failed)
        return traits.as_told(messages, barriers)

    def traits_of_any(self, ledger: QueueLedger, rows: BitMap64) -> Iterator[EntryTraits]:
        """Yield the traits of all messages of the files that hold `rows`, as if a queue had all that is published."""
        return (found for _, _, found in self._traits_standing(ledger, rows, _request_of_any(ledger)))

    def _traits_of_any(self, segment: Segment, ledger: QueueLedger) -> Iterable[EntryTraits]:
        return self._traits_of(segment, [_request_of_any(ledger)], self.traits).values()

    def _traits_standing(
        self, ledger: QueueLedger, rows: BitMap64, request: TraitRequest
    ) -> Iterator[tuple[Segment, BitMap64, EntryTraits]]:
        """Yield the segments that hold some of `rows`, with those rows, and the traits of each segment's messages."""
        standing = list(self._standing(ledger, rows))
        source = self.traits.ahead([segment for segment, _ in standing], [request])
        for segment, here in standing:
            for found in self._traits_of(segment, [request], source).values():
                yield segment, here, found

    def _traits_of(self, segment: Segment, requests: list[TraitRequest], source: TraitSource) -> Mapping[str, EntryTraits]:
        """Return the traits for each queue, without those with unreadable messages: each of these is set aside."""
        try:
            found = source.traits(segment, requests)
            return found if segment.is_whole else {name: traits.among(segment.present) for name, traits in found.items()}
        except Exception as trouble:
            is_of_file = isinstance(trouble, JournalError) and trouble.code in MESSAGE_FILE_CODES
            if len(requests) > 1 and (is_of_file or not is_doubt(trouble)):
                return {name: traits for each in requests for name, traits in self._traits_of(segment, [each], source).items()}
            with self.guard(requests[0].queue.name):
                if not isinstance(trouble, JournalError):
                    raise
                self._set_aside(requests[0], trouble)
            return {}

    def _set_aside(self, request: TraitRequest, trouble: JournalError) -> None:
        """Go on without a queue for which a file would have to be read that is gone or damaged."""
        if trouble.code not in MESSAGE_FILE_CODES:
            raise trouble
        name = request.queue.name
        self.troubles[name], self.unanswered[name] = trouble, request
        del self.queues[name]

    def is_file_back(self) -> bool:
        """Return whether no absent message file keeps a queue out any more that was set aside for one when the log was folded.

        It can be read again, or somebody has let its messages go since, as foreseen.
        """
        for name, request in self.unanswered.items():
            standing = self._standing_of(self.message_types[request.queue.message_type].segments)
            path = self.troubles[name].facts["file"]
            try:
                for segment in (each for each in standing if each.path == path):
                    self.traits.traits(segment, [request])
            except SparkQueueError:
                continue
            except Exception:  # noqa: BLE001  # It can be read; other faults of it show when the log is folded.
                return True
            return True
        return False

    def prepare_filters(self, ledger: QueueLedger, texts: Iterable[str]) -> None:
        """Find the matches of filters, before a record gives them to a subscription."""
        self._prepared.clear()
        for text in texts:
            if text not in ledger.selection.matches:
                self._prepared[ledger.definition.name, text] = self.matching(ledger, text, ledger.standing)

    def match_new_filters(self, record: Record) -> bool:
        """Let a queue know what new filters match; returns whether it could be found out."""
        ledger, body = self.queues[str(record.queue)], record.body_as(Subscribed)
        asked = (body.filter, *body.entitlement)
        texts = [text for text in asked if text is not None and text not in ledger.selection.matches]
        try:
            for text in texts:
                found = self._prepared.pop((ledger.definition.name, text), None)
                ledger.selection.matches[text] = self.matching(ledger, text, ledger.standing) if found is None else found
        except JournalError as trouble:
            self._set_aside(TraitRequest(queue=ledger.definition, filters=frozenset(texts)), trouble)
            return False
        return True

    def matching(self, ledger: QueueLedger, filter_sql: str, rows: BitMap64, letters: Letters | None = None) -> BitMap64:
        """Return which of `rows` of a queue match a filter, which of letters may ask more; see `TraitSource`."""
        queue = ledger.definition
        segments = self._standing_of(self.message_types[queue.message_type].segments)
        return self.traits.matches(segments, filter_sql, rows - ledger.retired, columns=queue.columns, letters=letters)


def _request_of_any(ledger: QueueLedger) -> TraitRequest:
    """Return the request for the traits of all messages of a type, whether they are in a queue or not."""
    takes_any = replace(ledger.definition, filter=None, underlying_topic="^.*")
    return replace(ledger.trait_request(barriers=False), queue=takes_any)


def _note_clash(ledger: QueueLedger, segment: Segment) -> None:
    for row, rows, publisher, sequence in segment.clashes:
        part = ledger.entered & to_bitmap([(segment.first + row, segment.first + row + rows)])
        if part:
            ledger.clashing |= part
            clash = JournalError("PUBLISHER_CLASH", publisher=publisher, sequence=sequence, bookmark=part.min())
            ledger.clash = Alarm(error=str(clash).removesuffix("."), since_ms=segment.entered_at_ms)
