"""Facts of messages that never were in a file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from pyroaring import BitMap64

from spark_queue.core.message_files.segment import EntryTraits, Letters, Segment, TraitRequest, TraitSource
from tests.scenario.attributes import Attributes, fails, key_of, matches, priority_of


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedMessage:
    """What a queue may ask of one message."""

    topic: str
    expires_at_ms: int | None = None
    attributes: Attributes = field(default_factory=dict)
    #: Its publisher and the number there, where that one has a name.
    publisher: str | None = None
    sequence: int = 0


class MemoryTraits(TraitSource):
    """`core.segment.TraitSource` over messages that are kept by the path of their segment."""

    def __init__(self) -> None:
        self._files: dict[str, tuple[PublishedMessage, ...]] = {}
        #: What was asked before: each coordinator of a journal, and each that comes back, asks the same of every file.
        self._known: dict[str, dict[tuple[int, int, int, TraitRequest], EntryTraits]] = {}

    def add(self, path: str, messages: Iterable[PublishedMessage]) -> None:
        """Keep the messages of a segment."""
        self._files[path] = tuple(messages)

    def messages(self, segment: Segment) -> tuple[PublishedMessage, ...]:
        """Return the messages of a segment."""
        return self._files[segment.path][segment.first_row : segment.first_row + segment.row_count]

    def remove(self, path: str) -> None:
        """Lose a file, as when nothing names it any more."""
        self._files.pop(path, None)
        self._known.pop(path, None)

    def traits(self, segment: Segment, requests: Iterable[TraitRequest]) -> Mapping[str, EntryTraits]:
        """Return the facts of `segment` for each of `requests`, by queue name."""
        return {each.queue.name: self._known_facts(segment, each) for each in requests}

    def matches(
        self, segments: Iterable[Segment], expression: str, rows: BitMap64, *, columns: str, letters: Letters | None = None
    ) -> BitMap64:
        """Return which of `rows` match a filter."""
        del columns
        told = {row: {"reason": reason, "error": error or ""} for each, reason, error in letters or () for row in each}
        messages = {bookmark: message for segment in segments for bookmark, message in self._messages(segment).items()}
        return BitMap64([row for row in rows if matches(expression, {**told.get(row, {}), **messages[row].attributes})])

    def _known_facts(self, segment: Segment, request: TraitRequest) -> EntryTraits:
        known, asked = self._known.setdefault(segment.path, {}), (segment.first_row, segment.first, segment.row_count, request)
        if asked not in known:
            known[asked] = self._traits(segment, request)
        return known[asked]

    def _messages(self, segment: Segment) -> dict[int, PublishedMessage]:
        return dict(enumerate(self.messages(segment), start=segment.first))

    def _traits(self, segment: Segment, request: TraitRequest) -> EntryTraits:
        queue = request.queue
        of_topic = {row: message for row, message in self._messages(segment).items() if queue.takes(message.topic)}
        taken = {row: message for row, message in of_topic.items() if matches(queue.filter, message.attributes)}
        barrier = queue.barrier if request.barriers else None
        inside = (barrier, queue.priority, *request.filters)
        failed = [
            row
            for row, each in of_topic.items()
            if fails(queue.filter, each.attributes) or (row in taken and any(fails(text, each.attributes) for text in inside))
        ]
        expires: dict[int, BitMap64] = {}
        for row, message in taken.items():
            if message.expires_at_ms is not None:
                expires.setdefault(message.expires_at_ms, BitMap64()).add(row)
        ranked = {row: value for row, each in taken.items() if (value := priority_of(queue.priority, each.attributes)) is not None}
        keyed = {row: key for row, each in taken.items() if (key := key_of(queue.order_key, each.attributes)) is not None}
        return EntryTraits(
            rows=BitMap64(taken),
            expires=expires,
            barriers=BitMap64([row for row, each in taken.items() if barrier and matches(barrier, each.attributes)]),
            matches={
                text: BitMap64([row for row, each in taken.items() if matches(text, each.attributes)]) for text in request.filters
            },
            ranked=np.array(list(ranked), dtype=np.int64),
            priorities=np.array(list(ranked.values()), dtype=np.uint64),
            keyed=np.array(list(keyed), dtype=np.int64),
            keys=np.array(list(keyed.values()), dtype=np.uint64),
            failed=BitMap64(failed),
        )
