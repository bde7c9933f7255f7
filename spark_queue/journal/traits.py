"""Traits of entering messages: from statistics where they decide, otherwise by reading columns (DESIGN 15.17)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyroaring import BitMap64

from spark_queue.core.bitmaps.ranges import from_array, to_array, to_bitmap
from spark_queue.core.definitions.definition import QueueDefinition, is_pattern
from spark_queue.core.message_files.segment import EntryTraits, Letters, Segment, TraitRequest
from spark_queue.expression import FILTER, Found, Wanted
from spark_queue.journal.evaluation import Evaluation, EvaluationAhead, Question
from spark_queue.journal.expressions import wanted_by_key, wanted_of
from spark_queue.journal.message_file import MessageFiles, fitting
from spark_queue.journal.store import Store


class FileTraits:
    """`core.segment.TraitSource` over message files; `files` where they are not read as one's own."""

    def __init__(self, store: Store, files: MessageFiles | None = None) -> None:
        self._store = store
        self._files = files or MessageFiles(store)
        self._evaluation = Evaluation(self._files)

    def traits(self, segment: Segment, requests: Iterable[TraitRequest]) -> Mapping[str, EntryTraits]:
        """Return the traits of `segment` for each of `requests`, by queue name."""
        with fitting(self._store, segment):
            return self._traits(segment, tuple(requests))

    def ahead(self, segments: Iterable[Segment], requests: Iterable[TraitRequest]) -> FileTraits:
        """Return a source that is about to be asked for the traits of many segments; see `TraitSource`."""
        segments, requests = tuple(segments), tuple(requests)
        if len(segments) < 2:
            return self
        made = FileTraits(self._store, self._files)
        made._evaluation = EvaluationAhead(self._files, (each for segment in segments for each in _questions(segment, requests)))
        return made

    def _traits(self, segment: Segment, requests: tuple[TraitRequest, ...]) -> Mapping[str, EntryTraits]:
        if segment.record < 0:
            self._files.check_size(segment)
        expires = self._expires(segment)
        found: dict[Wanted, Found] = {}
        for question in _questions(segment, requests):
            found |= self._evaluation.run(question)
        topics: _Topics | None = None
        traits: dict[str, EntryTraits] = {}
        for each in requests:
            taken = _taken_by_statistics(segment, each.queue)
            if taken is None:
                topics = topics or _Topics(self._files.pieces(segment, ["topic"]))
                rows = topics.bookmarks(each.queue, segment.first)
            else:
                rows = to_bitmap([(segment.first, segment.until)]) if taken else BitMap64()
            own = _restricted(expires, rows, segment)
            nothing = EntryTraits(rows=rows, expires=own, matches={text: BitMap64() for text in each.filters})
            asks = bool(rows) and bool(wanted_of(each))
            traits[each.queue.name] = _entry_traits(segment, each, rows, own, found) if asks else nothing
        return traits

    def matches(
        self, segments: Iterable[Segment], expression: str, rows: BitMap64, *, columns: str, letters: Letters | None = None
    ) -> BitMap64:
        """Return which of `rows` match a filter; see `TraitSource`."""
        wanted = Wanted(expression, FILTER)
        parts = ((segment, rows & segment.rows) for segment in segments)
        asked = [(Question(segment, (wanted,), columns), part) for segment, part in parts if part]
        evaluation = EvaluationAhead(self._files, (question for question, _ in asked), letters)
        matching = BitMap64()
        for question, part in asked:
            with fitting(self._store, question.segment):
                found = evaluation.run(question)[wanted]
                matching |= part & _bitmap_of(found.values, question.segment.first)
        return matching

    def _expires(self, segment: Segment) -> Mapping[int, BitMap64]:
        if segment.expires_null_count == segment.row_count:
            return {}
        if segment.expires_null_count == 0 and segment.expires_min_ms == segment.expires_max_ms:
            return {int(segment.expires_min_ms or 0): to_bitmap([(segment.first, segment.until)])}
        return _group_by_time(self._files.read(segment, ["expires_at"]).column("expires_at"), segment.first)


def _questions(segment: Segment, requests: Iterable[TraitRequest]) -> Iterator[Question]:
    """Yield all expressions of several queues together: each column is read once, and each part computed once."""
    by_columns: dict[str, set[Wanted]] = {}
    for each in requests:
        if _taken_by_statistics(segment, each.queue) is not False:
            by_columns.setdefault(each.queue.columns, set()).update(wanted_of(each))
    yield from (Question(segment, tuple(sorted(wanted)), columns) for columns, wanted in by_columns.items() if wanted)


class _Topics:
    """The topics of a file's rows, as numbers of distinct topics."""

    def __init__(self, pieces: Iterable[pa.Table]) -> None:
        encoded: list[Any] = [piece.column("topic").combine_chunks().dictionary_encode() for piece in pieces]
        whole: Any = pa.chunked_array(encoded).unify_dictionaries()
        self._topics: list[str] = whole.chunk(0).dictionary.to_pylist()
        self._numbers: NDArray[np.int32] = np.concatenate([chunk.indices.to_numpy() for chunk in whole.chunks])

    def bookmarks(self, queue: QueueDefinition, first: int) -> BitMap64:
        taken = np.fromiter((queue.takes(topic) for topic in self._topics), dtype=np.bool_, count=len(self._topics))
        return _bitmap_of(taken[self._numbers], first)


def _taken_by_statistics(segment: Segment, queue: QueueDefinition) -> bool | None:
    """Return whether the queue has all of the segment's rows, or none; None when only the column decides."""
    if queue.underlying_topic is None:
        return False
    if segment.topic_min == segment.topic_max:
        return queue.takes(segment.topic_min)
    if is_pattern(queue.underlying_topic):
        return None
    # Statistics order topics as Parquet and Delta do: by code point, as Python compares them.
    return None if segment.topic_min <= queue.underlying_topic <= segment.topic_max else False


def _group_by_time(column: pa.ChunkedArray[Any], first: int) -> Mapping[int, BitMap64]:
    times = pc.divide(column.combine_chunks().cast(pa.int64()), 1_000)
    rows = np.flatnonzero(times.is_valid().to_numpy(zero_copy_only=False)) + first
    values = times.drop_null().to_numpy()
    order = np.argsort(values, kind="stable")
    distinct, starts = np.unique(values[order], return_index=True)
    parts = np.split(rows[order], starts[1:])
    return {int(time_ms): from_array(part) for time_ms, part in zip(distinct, parts, strict=True)}


def _restricted(expires: Mapping[int, BitMap64], rows: BitMap64, segment: Segment) -> Mapping[int, BitMap64]:
    if len(rows) == segment.row_count or not rows:
        return expires if rows else {}
    parts = ((time_ms, part & rows) for time_ms, part in expires.items())
    return {time_ms: part for time_ms, part in parts if part}


def _entry_traits(
    segment: Segment, request: TraitRequest, rows: BitMap64, expires: Mapping[int, BitMap64], found: Mapping[Wanted, Found]
) -> EntryTraits:
    """Return the traits of a queue by the values of its expressions for every row; `rows` and `expires` are of its topics."""
    by_key = {key: found[wanted] for key, wanted in wanted_by_key(request).items()}
    inside = _mask(rows, segment)
    failed = np.zeros(segment.row_count, dtype=np.bool_)
    if (admitted := by_key.pop("filter", None)) is not None:
        failed |= inside & admitted.failed
        inside &= admitted.values
        rows = _bitmap_of(inside, segment.first)
        expires = {at_ms: part & rows for at_ms, part in expires.items() if part.intersect(rows)}
    matches = {text: found[Wanted(text, FILTER)] for text in request.filters}
    for each in (*by_key.values(), *matches.values()):
        failed |= inside & each.failed
    barrier = by_key.get("barrier")
    ranked, priorities = _numbers(by_key.get("priority"), inside, segment.first)
    keyed, keys = _numbers(by_key.get("order_key"), inside, segment.first)
    return EntryTraits(
        rows=rows,
        expires=expires,
        barriers=BitMap64() if barrier is None else _bitmap_of(inside & barrier.values, segment.first),
        matches={text: _bitmap_of(inside & each.values, segment.first) for text, each in matches.items()},
        ranked=ranked,
        priorities=priorities,
        keyed=keyed,
        keys=keys,
        failed=_bitmap_of(failed, segment.first),
    )


def _bitmap_of(mask: NDArray[np.bool_], first: int) -> BitMap64:
    """Return the bookmarks of the rows where `mask` holds, the first of which is `first`."""
    return from_array(np.flatnonzero(mask) + first)


def _mask(rows: BitMap64, segment: Segment) -> NDArray[np.bool_]:
    if len(rows) == segment.row_count:
        return np.ones(segment.row_count, dtype=np.bool_)
    mask = np.zeros(segment.row_count, dtype=np.bool_)
    mask[to_array(rows) - segment.first] = True
    return mask


def _numbers(found: Found | None, inside: NDArray[np.bool_], first: int) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    if found is None:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.uint64)
    there = inside & found.valid
    return np.flatnonzero(there) + first, found.values[there].astype(np.uint64)
