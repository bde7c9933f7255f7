"""Entering: what was published gets bookmarks and joins its queues, as far as its log can be understood."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Protocol

from pyroaring import BitMap64

from spark_queue.core.engine import Engine
from spark_queue.core.message_files.relocation import foreign_record, moved_record
from spark_queue.core.message_files.segment import EntryTraits, Segment, TraitRequest, TraitSource
from spark_queue.errors import JournalError, SparkQueueError
from spark_queue.ports import MessageLog, MessageLogEntry, PulledFiles, entered

_LOG = logging.getLogger(__name__)

#: Most versions that enter in one group, so that a long backlog does not keep callers waiting.
GROUP_VERSIONS = 1_000


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

    def prepare(self, segments: Iterable[Segment], requests: Sequence[TraitRequest]) -> None:
        """Compute the traits of segments that are about to enter, and forget those prepared before."""
        self._requests, self._prepared = {each.queue.name: each for each in requests}, {}
        for segment in segments if requests else ():
            self._prepared[segment.path, segment.first] = self._source.traits(segment, requests)

    def traits(self, segment: Segment, requests: Iterable[TraitRequest]) -> Mapping[str, EntryTraits]:
        """Return the traits of a segment; see `TraitSource`."""
        wanted = tuple(requests)
        known = self._prepared.get((segment.path, segment.first))
        # A queue that was altered since asks for something else; barriers that nobody asks for are no harm.
        if known is not None and all(self._requests.get(each.queue.name) == replace(each, barriers=True) for each in wanted):
            return {each.queue.name: known[each.queue.name] for each in wanted}
        return self._source.traits(segment, wanted)

    def matches(self, segments: Iterable[Segment], expression: str, rows: BitMap64, *, columns: str) -> BitMap64:
        """Return which of `rows` match a filter; see `TraitSource`."""
        return self._source.matches(segments, expression, rows, columns=columns)


class MessageLogs(Protocol):
    """What is read forward: of a journal, its message logs."""

    @property
    def path(self) -> str:
        """For errors."""
        ...

    def messages(self, message_type: str) -> MessageLog:
        """Return the log of a message type."""
        ...


class Entrance:
    """Reads the message logs forward and lets their messages enter.

    Attributes
    ----------
    trouble : dict of str to SparkQueueError
        What keeps a message type's log from being read further; everything before it has entered.
    """

    def __init__(self, journal: MessageLogs, engine: Engine, traits: PreparedTraits) -> None:
        self.trouble: dict[str, SparkQueueError] = {}
        self._journal = journal
        self._engine = engine
        self._traits = traits
        #: Newest version read, also of commits that left no record.
        self._read_until: dict[str, int] = {}
        #: Message types whose last entered commit must be looked at before anything of them enters.
        self._unchecked: set[str] = set()

    def recover(self) -> None:
        """Begin a reign: what entered last must still be what it was, or nothing of that type enters; bookmarks count on from it.

        Only a coordinator may ask for it, since a torn head entry is set aside on the way (DESIGN 4, power loss).
        """
        self._unchecked = set(self._engine.state.message_types)

    def admit(self, message_type: str, *, now_ms: int, finds_gaps: bool = True) -> bool:
        """Let new messages of a type enter; returns whether it stopped at `GROUP_VERSIONS`, with more to come.

        Parameters
        ----------
        finds_gaps : bool
            Whether to look beyond the head for versions after a gap; after a trouble that is done until it is over.
        """
        read, finds_gaps = 0, finds_gaps or message_type in self.trouble
        try:
            self._check_past(message_type)
            entries = self._journal.messages(message_type).tail(self._version(message_type), finds_gaps=finds_gaps)
            for entry in islice(entries, GROUP_VERSIONS):
                self._admit_entry(message_type, entry, now_ms)
                self._read_until[message_type] = entry.version
                read += 1
        except SparkQueueError as trouble:
            self._note(message_type, trouble)
        else:
            self.trouble.pop(message_type, None)
        return read == GROUP_VERSIONS

    def take_pulled(self, files: PulledFiles, append: Callable[..., bool], *, now_ms: int) -> bool:
        """Commit files of pulled messages, and let them enter; returns False where some of them have entered by another way.

        What is held here is exactly what the version before the commit says, so no message enters twice.

        Parameters
        ----------
        append : callable
            `JournalPort.append_pulled`.

        Raises
        ------
        SparkQueueError
            What keeps the log of the type from being read, or written.
        """
        known = self._engine.state.message_types[files.message_type]
        while True:
            while self.admit(files.message_type, now_ms=now_ms):
                continue
            if files.message_type in self.trouble:
                raise self.trouble[files.message_type]
            if any(known.origins.holds(file.origins) for file in files.files):
                return False
            if known.may_repeat(files.publishers, since=files.compared_until):
                # A publisher of theirs has brought something here since they were compared.
                return False
            if append(files, after_version=self._version(files.message_type), at_ms=now_ms):
                break
        self.admit(files.message_type, now_ms=now_ms)
        return True

    def is_file_back(self) -> bool:
        """Return whether a message file can be read again whose absence had a queue set aside when the log was folded."""
        state = self._engine.state
        for name, trouble in state.troubles.items():
            queue = state.definitions.queue(name)
            segments = state.message_types[queue.message_type].segments
            try:
                for segment in (each for each in segments if each.path == trouble.facts["file"]):
                    self._traits.traits(segment, [state.unanswered[name]])
            except SparkQueueError:
                continue
            return True
        return False

    def _check_past(self, message_type: str) -> None:
        if message_type not in self._unchecked:
            return
        state = self._engine.state.message_types[message_type]
        self._journal.messages(message_type).recover(version=state.version, token=state.token)
        self._unchecked.discard(message_type)

    def _note(self, message_type: str, trouble: SparkQueueError) -> None:
        if str(trouble) != str(self.trouble.get(message_type)):
            # Once, not at every look; and a refusal has no use for a traceback.
            _LOG.error("Messages of type '%s' enter no further: %s", message_type, trouble)
        self.trouble[message_type] = trouble

    def _version(self, message_type: str) -> int:
        return max(self._engine.state.message_types[message_type].version, self._read_until.get(message_type, -1))

    def _admit_entry(self, message_type: str, entry: MessageLogEntry, now_ms: int) -> None:
        segments = _segments(message_type, entry, first=self._engine.state.message_types[message_type].entered_until, now_ms=now_ms)
        if self._engine.state.definitions.journal.instance is None:
            # Nobody asks for numbers where nothing is replicated.
            segments = [replace(each, publishers={}) if each.publishers else each for each in segments]
        requests = [each.trait_request() for each in self._engine.state.queues_of(message_type)]
        # All traits first: a commit enters as a whole or not at all, since its version is the next place to read on from.
        self._traits.prepare(segments, requests)
        self._engine.enter(segments, now_ms=now_ms)
        if entry.merged:
            self._note_merged(message_type, entry, now_ms)
        if entry.foreign_paths:
            made = foreign_record(message_type, version=entry.version, paths=entry.foreign_paths, row_count=entry.foreign_rows)
            self._engine.note([made], now_ms=now_ms)

    def _note_merged(self, message_type: str, entry: MessageLogEntry, now_ms: int) -> None:
        state = self._engine.state.message_types[message_type]
        for file in entry.merged:
            if not state.fits(file):
                what = f"version {entry.version} of message type '{message_type}' merges files that do not hold what it says"
                reason = "Its messages would get other bodies, so nothing after it enters."
                raise JournalError("JOURNAL_DAMAGED", path=self._journal.path, what=what, reason=reason)
        made = moved_record(message_type, version=entry.version, token=entry.token, files=entry.merged)
        self._engine.note([made], now_ms=now_ms)


def _segments(message_type: str, entry: MessageLogEntry, *, first: int, now_ms: int) -> list[Segment]:
    segments = []
    for added in entry.added:
        segments.append(entered(message_type, entry, added, first=first, at_ms=now_ms))
        first += added.row_count
    return segments
