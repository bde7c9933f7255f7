"""Counting a queue of which a message file is gone or damaged: order and priority, which the file has, matter not for that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from pyroaring import BitMap64

from spark_queue.core.message_files.segment import EntryTraits, Letters, Segment, TraitRequest, TraitSource
from spark_queue.errors import MESSAGE_FILE_CODES, JournalError


class TraitsWithoutKeys:
    """A trait source for counting alone: where a file cannot be read, its messages have no order key and no priority.

    They match no subscription's filter either. A coordinator must not go by that: it sets the queue aside.
    """

    def __init__(self, source: TraitSource) -> None:
        self._source = source

    def traits(self, segment: Segment, requests: Iterable[TraitRequest]) -> Mapping[str, EntryTraits]:
        """Return the traits of a segment; see `TraitSource`."""
        wanted = tuple(requests)
        try:
            return self._source.traits(segment, wanted)
        except JournalError as trouble:
            if trouble.code not in MESSAGE_FILE_CODES:
                raise
        plain = [replace(each, queue=replace(each.queue, order_key=None, priority=None), filters=frozenset()) for each in wanted]
        found = self._source.traits(segment, plain)
        return {
            each.queue.name: replace(found[each.queue.name], matches={text: BitMap64() for text in each.filters}) for each in wanted
        }

    def ahead(self, segments: Iterable[Segment], requests: Iterable[TraitRequest]) -> TraitsWithoutKeys:
        """Return such a source of the traits of many segments; see `TraitSource`."""
        return TraitsWithoutKeys(self._source.ahead(segments, requests))

    def matches(
        self, segments: Iterable[Segment], expression: str, rows: BitMap64, *, columns: str, letters: Letters | None = None
    ) -> BitMap64:
        """Return those of `rows` that match a filter, as far as files can be read; see `TraitSource`."""
        segments, matching = tuple(segments), BitMap64()
        try:
            return self._source.matches(segments, expression, rows, columns=columns, letters=letters)
        except JournalError as trouble:
            if trouble.code not in MESSAGE_FILE_CODES:
                raise
        for segment in segments:
            try:
                matching |= self._source.matches([segment], expression, rows, columns=columns, letters=letters)
            except JournalError as trouble:
                if trouble.code not in MESSAGE_FILE_CODES:
                    raise
        return matching
