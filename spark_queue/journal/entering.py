"""Entering: published messages get bookmarks and join their queues, as far as their log can be understood."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import islice
from typing import Protocol

from pyroaring import BitMap64

from spark_queue.core.engine import Engine
from spark_queue.core.message_files.followed_table import FollowedTable, judge, not_entered
from spark_queue.core.message_files.message_type import MessageTypeState
from spark_queue.core.message_files.relocation import foreign_record, moved_record
from spark_queue.core.message_files.segment import EntryTraits, Letters, Segment, TraitRequest, TraitSource, repeated_record
from spark_queue.core.records import Record, Stopped
from spark_queue.core.state.faults import FaultError, describe, is_doubt
from spark_queue.errors import STOPPING_CODES, JournalError, SparkQueueError
from spark_queue.ports import AddedFile, MessageLog, MessageLogEntry, PulledFiles, appended, entered

_LOG = logging.getLogger(__name__)

#: Most versions that enter in one group, so that a long backlog does not keep callers waiting.
GROUP_VERSIONS = 1_000

#: Files of a message log that are foreseen at once, about as many as are read together where each has a few messages.
FORESEEN_FILES = 250


class PreparedTraits:
    """A trait source that can be asked before segments enter.

    Reading a message file may fail, and a failure inside a fold would leave it half done; so the traits of a whole commit are
    computed first, and kept until the fold asks for them.
    """

    def __init__(self, source: TraitSource) -> None:
        self._source = source
        #: By queue.
        self._requests: dict[str, TraitRequest] = {}
        self._prepared: dict[tuple[str, int], Mapping[str, EntryTraits]] = {}
        #: Segments that are to be prepared soon, and the source that was asked ahead for them.
        self._expected: AbstractSet[tuple[str, int]] = frozenset()
        self._ahead = source

    def expect(self, segments: Sequence[Segment], requests: Sequence[TraitRequest]) -> None:
        """Note that these segments are prepared next, some at a time: small files of theirs are read together."""
        self._expected, self._ahead = {(each.path, each.first) for each in segments}, self._source.ahead(segments, requests)

    def prepare(self, segments: Iterable[Segment], requests: Sequence[TraitRequest]) -> None:
        """Compute the traits of segments that are about to enter, and forget those prepared before."""
        self._requests, self._prepared = {each.queue.name: each for each in requests}, {}
        placed = {(each.path, each.first): each for each in segments} if requests else {}
        source = self._ahead if placed.keys() <= self._expected else self._source.ahead(placed.values(), requests)
        for place, segment in placed.items():
            self._prepared[place] = source.traits(segment, requests)

    def traits(self, segment: Segment, requests: Iterable[TraitRequest]) -> Mapping[str, EntryTraits]:
        """Return the traits of a segment; see `TraitSource`."""
        wanted = tuple(requests)
        known = self._known(segment, wanted)
        if known is None:
            return self._source.traits(segment, wanted)
        return {each.queue.name: known[each.queue.name] for each in wanted}

    def ahead(self, segments: Iterable[Segment], requests: Iterable[TraitRequest]) -> PreparedTraits:
        """Return a source that knows what was prepared, too; see `TraitSource`."""
        wanted = tuple(requests)
        unknown = (segment for segment in segments if self._known(segment, wanted) is None)
        made = PreparedTraits(self._source.ahead(unknown, wanted))
        made._requests, made._prepared = self._requests, self._prepared
        return made

    def _known(self, segment: Segment, wanted: Sequence[TraitRequest]) -> Mapping[str, EntryTraits] | None:
        """Return the prepared traits of a segment, where they answer these requests.

        A queue that was altered since asks for something else; barriers that nobody asks for are no harm.
        """
        known = self._prepared.get((segment.path, segment.first))
        if known is not None and all(self._requests.get(each.queue.name) == replace(each, barriers=True) for each in wanted):
            return known
        return None

    def matches(
        self, segments: Iterable[Segment], expression: str, rows: BitMap64, *, columns: str, letters: Letters | None = None
    ) -> BitMap64:
        """Return which of `rows` match a filter; see `TraitSource`."""
        return self._source.matches(segments, expression, rows, columns=columns, letters=letters)


class EnteredNames:
    """Knows the commits and files of one message type that have entered, and finds those that stand in its log once more.

    An entry that was copied, by hand or by a tool that restores, names files that are in the table already. A reader of Delta
    counts a file once, however often it is added, and so does every count of messages.
    """

    def __init__(self, known: MessageTypeState) -> None:
        self._names = {name for segment in known.segments for name in (segment.token, segment.path)} | known.replaced.keys()

    def without_repeats(self, entry: MessageLogEntry) -> tuple[MessageLogEntry, tuple[str, ...]]:
        """Return an entry without the files that have entered before, and the paths of these."""
        is_known, seen = entry.token in self._names, set[str]()
        added, repeated = list[AddedFile](), list[str]()
        for file in entry.added:
            if is_known or file.path in self._names or file.path in seen:
                repeated.append(file.path)
            else:
                added.append(file)
            seen.add(file.path)
        merged = entry.merged
        if merged and all(file.path in self._names for file in merged):
            repeated, merged = [file.path for file in merged], ()
        return (replace(entry, added=tuple(added), merged=merged) if repeated else entry), tuple(repeated)

    def note(self, entry: MessageLogEntry) -> None:
        """Note an entry that has entered."""
        files = [file.path for file in entry.added] + [file.path for file in entry.merged]
        self._names.update([entry.token, *files] if files else ())


class MessageLogs(Protocol):
    """Readers of message logs, each going forward."""

    @property
    def path(self) -> str:
        """For errors."""
        ...

    def messages(self, message_type: str, followed: FollowedTable | None = None) -> MessageLog:
        """Return the log of a message type: its own, or that of the table which it follows."""
        ...


class Sequencer:
    """Reads the message logs forward and lets their messages enter.

    Attributes
    ----------
    trouble : dict of str to SparkQueueError
        The trouble that keeps a message type's log from being read further; everything before it has entered.
    """

    def __init__(self, journal: MessageLogs, engine: Engine, traits: PreparedTraits) -> None:
        self.trouble: dict[str, SparkQueueError] = {}
        self._journal = journal
        self._engine = engine
        self._traits = traits
        #: Newest version read in this reign, also of commits that left no record.
        self.read_until: dict[str, int] = {}
        #: When the head of a log was last seen: messages behind it were published since, by any clock of their publisher.
        self._seen_at_ms: dict[str, int] = {}
        #: Names of entered commits and files, of the types of which something was read.
        self._names: dict[str, EnteredNames] = {}
        #: Message types whose last entered commit must be looked at before anything of them enters.
        self._unchecked: set[str] = set()
        #: Troubles that keep commits out, since something raised at them in this reign, by message type and version.
        self._broken: dict[tuple[str, int], JournalError] = {}
        #: Message types of which this reign reads no further, since something raised beside their commits.
        self._ended: set[str] = set()

    def recover(self) -> None:
        """Begin a reign: the last entered commit must still be the same, or nothing of its type enters; bookmarks count on from it.

        Only a coordinator may ask for it, since a torn head entry is set aside on the way (DESIGN 4, power loss).
        """
        self._unchecked = set(self._engine.state.message_types)
        self.read_until.clear()
        self._names.clear()

    def admit(self, message_type: str, *, now_ms: int, finds_gaps: bool = True, until: int | None = None) -> bool:
        """Let new messages of a type enter; returns whether it stopped at `GROUP_VERSIONS`, with more to come.

        `finds_gaps` looks beyond the head for versions after a gap; after a trouble that is done until it is over. What follows
        version `until`, if one is given, is left for later.
        """
        if message_type in self._ended or message_type not in self._engine.state.message_types:
            # One that followed a table, and of which nothing had entered, may have been dropped.
            return False
        begun = self._engine.begun
        try:
            return self._read_on(message_type, now_ms, finds_gaps=finds_gaps or message_type in self.trouble, until=until)
        except FaultError:
            raise
        except Exception as fault:
            what, reason = f"the log of message type '{message_type}'", f"Reading it raised {describe(fault)}."
            self._note(message_type, JournalError("JOURNAL_DAMAGED", path=self._journal.path, what=what, reason=reason))
            self._ended.add(message_type)
            if self._engine.begun != begun:
                raise FaultError(None, fault, message_type=message_type) from fault
            return False

    def _read_on(self, message_type: str, now_ms: int, *, finds_gaps: bool, until: int | None) -> bool:
        read, is_at_end = 0, False
        try:
            known = self._engine.state.message_types[message_type]
            if known.followed is not None and known.followed.trouble is not None:
                raise known.followed.trouble
            self._check_past(message_type)
            entries = self._messages(message_type).tail(self._version(message_type), finds_gaps=finds_gaps)
            for entry in self._foreseen(message_type, islice(entries, GROUP_VERSIONS), until):
                if (message_type, entry.version) in self._broken:
                    raise self._broken[message_type, entry.version]
                self._admit_unbroken(message_type, entry, now_ms)
                self.read_until[message_type] = entry.version
                read += 1
                if is_at_end := entry.version == until:
                    break
        except SparkQueueError as trouble:
            # Of an entry that is missing, or another one, or that cannot be made out, nobody knows the time.
            self._stop(message_type, trouble, since_ms=0, now_ms=now_ms)
            self._note(message_type, trouble)
        else:
            self.trouble.pop(message_type, None)
            if read < GROUP_VERSIONS and not is_at_end:
                self._seen_at_ms[message_type] = now_ms
        return read == GROUP_VERSIONS and not is_at_end

    def _foreseen(self, message_type: str, entries: Iterable[MessageLogEntry], until: int | None) -> Iterator[MessageLogEntry]:
        """Yield entries; what the small files of those that come together need is found at once (DESIGN 15.17)."""
        # A commit that keeps others out is looked at again and again, and alone.
        most_files = 1 if message_type in self.trouble else FORESEEN_FILES
        for coming in _together(entries, most_files, until=until):
            # A commit that comes alone is prepared as a whole anyway, and most looks find one or none.
            if len(coming) > 1:
                self._expect(message_type, coming)
            yield from coming

    def _expect(self, message_type: str, coming: Iterable[MessageLogEntry]) -> None:
        state, segments = self._engine.state, list[Segment]()
        first = state.message_types[message_type].entered_until
        for entry in coming:
            segments += _segments(message_type, entry, first=first, now_ms=0, since_ms=0)
            first += sum(added.row_count for added in entry.added)
        self._traits.expect(segments, state.trait_requests(state.queues_of(message_type)))

    def take_pulled(self, files: PulledFiles, append: Callable[..., bool], *, now_ms: int) -> bool:
        """Commit files of pulled messages, and let them enter; returns False where some of them have entered by another way.

        The messages held here are exactly those up to the version before the commit, so none enters twice.
        """
        known = self._engine.state.message_types[files.message_type]
        while True:
            self._admit_all(files.message_type, now_ms)
            if any(known.origins.holds(file.origins) for file in files.files):
                return False
            if known.may_repeat(files.publishers, since=files.compared_until):
                # A publisher of theirs has brought something here since they were compared.
                return False
            if append(files, after_version=self._version(files.message_type), at_ms=now_ms):
                break
        # News of them that are applied before they have entered would be about nothing here, and never come again.
        self._admit_all(files.message_type, now_ms)
        return True

    def _admit_all(self, message_type: str, now_ms: int) -> None:
        while self.admit(message_type, now_ms=now_ms):
            continue
        if message_type in self.trouble:
            raise self.trouble[message_type]

    def _check_past(self, message_type: str) -> None:
        if message_type not in self._unchecked:
            return
        state = self._engine.state.message_types[message_type]
        self._messages(message_type).recover(version=state.version, token=state.token)
        self._unchecked.discard(message_type)

    def silent_ms(self, message_type: str) -> int:
        """Return the longest time between two looks at a message log while somebody waits, in milliseconds."""
        return self._messages(message_type).silent_ms

    def _messages(self, message_type: str) -> MessageLog:
        return self._journal.messages(message_type, self._engine.state.message_types[message_type].followed)

    def _stop(self, message_type: str, trouble: SparkQueueError, *, since_ms: int, now_ms: int) -> None:
        """Record, once, that a message type is set aside whose table cannot be followed any further (R147)."""
        known = self._engine.state.message_types[message_type]
        if known.followed is None or known.followed.stopped is not None or trouble.code not in STOPPING_CODES:
            return
        version = int(trouble.facts.get("version", self._version(message_type) + 1))
        body = Stopped(version=version, error=trouble.code, facts=dict(trouble.facts), since=since_ms)
        self._engine.note([Record(body=body, message_type=message_type)], now_ms=now_ms)
        # Where somebody lets it go on, its log may be another one, which counts anew.
        self.read_until.pop(message_type, None)

    def _note(self, message_type: str, trouble: SparkQueueError) -> None:
        if str(trouble) != str(self.trouble.get(message_type)):
            # Once, not at every look; and a refusal has no use for a traceback.
            _LOG.error("No more messages of type '%s' enter: %s", message_type, trouble)
        self.trouble[message_type] = trouble

    def _version(self, message_type: str) -> int:
        return max(self._engine.state.message_types[message_type].version, self.read_until.get(message_type, -1))

    def _admit_unbroken(self, message_type: str, entry: MessageLogEntry, now_ms: int) -> None:
        """Let a commit enter; one at which something raises keeps itself out, and all later ones."""
        begun = self._engine.begun
        try:
            self._admit_entry(message_type, entry, now_ms)
        except (SparkQueueError, FaultError):
            raise
        except Exception as fault:
            what, reason = f"version {entry.version} of message type '{message_type}'", f"Entering it raised {describe(fault)}."
            trouble = JournalError("JOURNAL_DAMAGED", path=self._journal.path, what=what, reason=reason)
            self._broken[message_type, entry.version] = trouble
            if self._engine.begun == begun:
                raise trouble from fault
            raise FaultError(None, fault, message_type=message_type) from fault

    def _admit_entry(self, message_type: str, entry: MessageLogEntry, now_ms: int) -> None:
        known = self._engine.state.message_types[message_type]
        if entry.commit is not None:
            self._admit_commit(message_type, entry, now_ms)
            return
        if message_type not in self._names:
            self._names[message_type] = EnteredNames(known)
        names = self._names[message_type]
        entry, repeated = names.without_repeats(entry)
        if repeated:
            self._note_repeated(message_type, entry, repeated, now_ms)
        since_ms = max(known.published_until_ms, self._seen_at_ms.get(message_type, 0))
        segments = _segments(message_type, entry, first=known.entered_until, now_ms=now_ms, since_ms=since_ms)
        if self._engine.state.definitions.journal.instance is None:
            # Nobody asks for numbers where nothing is replicated.
            segments = [replace(each, publishers={}) if each.publishers else each for each in segments]
        # All traits first: a commit enters as a whole or not at all, since its version is the next place to read on from.
        self._prepare(message_type, segments)
        self._engine.enter(segments, now_ms=now_ms)
        if entry.merged:
            self._note_merged(message_type, entry, now_ms)
        if entry.foreign_paths:
            made = foreign_record(message_type, version=entry.version, paths=entry.foreign_paths, row_count=entry.foreign_rows)
            self._engine.note([made], now_ms=now_ms)
        names.note(entry)

    def _admit_commit(self, message_type: str, entry: MessageLogEntry, now_ms: int) -> None:
        """Let a commit of a followed table enter, or pass; one that cannot sets its message type aside (R144 to R147)."""
        state = self._engine.state
        known, definition, commit = state.message_types[message_type], state.definitions.message_types[message_type], entry.commit
        assert commit is not None and known.followed is not None, "its log is that of a table"  # noqa: PT018 - one fact.
        try:
            judged = judge(
                known.followed, commit, message_type=message_type, on_change=definition.on_change, recorded_version=known.version
            )
        except SparkQueueError as trouble:
            self._stop(message_type, trouble, since_ms=commit.committed_at_ms, now_ms=now_ms)
            raise
        found = appended(commit, judged, known.followed, topic=definition.topics[0])
        segments = _segments(message_type, found, first=known.entered_until, now_ms=now_ms, since_ms=known.published_until_ms)
        try:
            self._prepare(message_type, segments)
        except JournalError as trouble:
            raise not_entered(trouble, message_type, commit.version) from trouble
        self._engine.enter(segments, now_ms=now_ms)
        if judged.passed is not None:
            self._engine.note([Record(body=judged.passed, message_type=message_type)], now_ms=now_ms)

    def _note_repeated(self, message_type: str, entry: MessageLogEntry, paths: Sequence[str], now_ms: int) -> None:
        """Record, once, that files stand in the log again."""
        known = self._engine.state.message_types[message_type].repeated.get(entry.version)
        if known is None or known.token != entry.token:
            told = JournalError("JOURNAL_ENTRY_REPEATED", message_type=message_type, version=entry.version, files=len(paths))
            _LOG.warning("%s", told)
            made = repeated_record(message_type, version=entry.version, token=entry.token, paths=paths)
            self._engine.note([made], now_ms=now_ms)

    def _prepare(self, message_type: str, segments: Sequence[Segment]) -> None:
        """Compute the traits of segments that are about to enter; a queue for which that raises is set aside."""
        state = self._engine.state
        requests = state.trait_requests(state.queues_of(message_type))
        try:
            self._traits.prepare(segments, requests)
        except Exception as fault:
            if is_doubt(fault):
                raise
            for each in requests:
                with state.guard(each.queue.name):
                    self._traits.prepare(segments, [each])
            if len(state.queues_of(message_type)) == len(requests):
                raise
            self._prepare(message_type, segments)

    def _note_merged(self, message_type: str, entry: MessageLogEntry, now_ms: int) -> None:
        state = self._engine.state.message_types[message_type]
        for file in entry.merged:
            if not state.fits(file):
                what = f"version {entry.version} of message type '{message_type}' merges files other than those it names"
                reason = "Its messages would get wrong bodies, so nothing after it enters."
                raise JournalError("JOURNAL_DAMAGED", path=self._journal.path, what=what, reason=reason)
        made = moved_record(message_type, version=entry.version, token=entry.token, files=entry.merged)
        self._engine.note([made], now_ms=now_ms)


def _together(entries: Iterable[MessageLogEntry], most_files: int, *, until: int | None) -> Iterator[list[MessageLogEntry]]:
    """Yield entries, those of some files at a time; none behind version `until` is read before that has entered."""
    coming, file_count = list[MessageLogEntry](), 0
    try:
        for entry in entries:
            coming.append(entry)
            file_count += len(entry.added)
            # What a commit of a followed table means depends on those before it.
            if file_count >= most_files or entry.commit is not None or entry.version == until:
                yield coming
                coming, file_count = [], 0
    except Exception:
        # What was read before the trouble enters.
        yield coming
        raise
    yield coming


def _segments(message_type: str, entry: MessageLogEntry, *, first: int, now_ms: int, since_ms: int) -> list[Segment]:
    segments = []
    for added in entry.added:
        segments.append(entered(message_type, entry, added, first=first, at_ms=now_ms, since_ms=since_ms))
        first += added.row_count
    return segments
