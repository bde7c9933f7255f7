"""Facts of messages that never were in a file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyroaring import BitMap64

from spark_queue.core.definition import QueueDefinition
from spark_queue.core.segment import EntryFacts, FactRequest, Segment


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What a queue may ask of one message."""

    topic: str
    expires_at_ms: int | None = None


class MemoryFacts:
    """`core.segment.FactSource` over messages that are kept by the path of their segment."""

    def __init__(self) -> None:
        self._files: dict[str, tuple[Published, ...]] = {}

    def add(self, path: str, messages: Iterable[Published]) -> None:
        """Keep the messages of a segment."""
        self._files[path] = tuple(messages)

    def facts(self, segment: Segment, requests: Iterable[FactRequest]) -> Mapping[str, EntryFacts]:
        """Give the facts of `segment` for each of `requests`, by queue name."""
        return {each.queue.name: self._facts(segment, each.queue) for each in requests}

    def matches(self, segments: Iterable[Segment], expression: str, rows: BitMap64, *, columns: str) -> BitMap64:
        """Tell which of `rows` match a filter: all of them, since these messages have no columns."""
        return BitMap64(rows)

    def _facts(self, segment: Segment, queue: QueueDefinition) -> EntryFacts:
        rows = BitMap64()
        expires: dict[int, BitMap64] = {}
        for bookmark, message in enumerate(self._files[segment.path], start=segment.first):
            if queue.takes(message.topic):
                rows.add(bookmark)
                if message.expires_at_ms is not None:
                    expires.setdefault(message.expires_at_ms, BitMap64()).add(bookmark)
        return EntryFacts(rows=rows, expires=expires)
