"""What queues must know of entering messages: by statistics where they decide, by reading a column where not (DESIGN 15.17)."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyroaring import BitMap64

from spark_queue.core.definition import Definitions, QueueDefinition, is_pattern
from spark_queue.core.ranges import to_bitmap
from spark_queue.core.segment import EntryFacts, FactRequest, Segment
from spark_queue.errors import ConfigError
from spark_queue.journal.layout import Store
from spark_queue.journal.message_file import MessageFiles


def check_expressions(definitions: Definitions) -> None:
    """Refuse expressions that cannot be evaluated: all of them, so far.

    Raises
    ------
    ConfigError
        BAD_VALUE.
    """
    for queue in definitions.queues.values():
        for key, expression in (("priority", queue.priority), ("order_key", queue.order_key), ("barrier", queue.barrier)):
            if expression is not None:
                expected = "absent, since expressions are not evaluated yet"
                raise ConfigError("BAD_VALUE", key=key, where=f"[queues.{queue.name}]", value=expression, expected=expected)


class FileFacts:
    """`core.segment.FactSource` over message files.

    Parameters
    ----------
    store : Store
        The journal's place.
    """

    def __init__(self, store: Store) -> None:
        self._files = MessageFiles(store)

    def facts(self, segment: Segment, requests: Iterable[FactRequest]) -> Mapping[str, EntryFacts]:
        """Give the facts of `segment` for each of `requests`, by queue name.

        Raises
        ------
        JournalError
            MESSAGE_FILE_MISSING when a column is needed and the file is not there or not whole; STORE_FAILED.
        """
        expires = self._expires(segment)
        topics: _Topics | None = None
        facts: dict[str, EntryFacts] = {}
        for queue in (each.queue for each in requests):
            taken = _taken_by_statistics(segment, queue)
            if taken is None:
                topics = topics or _Topics(self._files.read(segment, ["topic"]).column("topic"))
                rows = topics.bookmarks(queue, segment.first)
            else:
                rows = to_bitmap([(segment.first, segment.until)]) if taken else BitMap64()
            facts[queue.name] = EntryFacts(rows=rows, expires=_restricted(expires, rows, segment))
        return facts

    def matches(self, segments: Iterable[Segment], expression: str, rows: BitMap64, *, columns: str) -> BitMap64:
        """Tell which of `rows` match a filter: all of them, as long as no filter is accepted."""
        del segments, expression, columns
        return BitMap64(rows)

    def _expires(self, segment: Segment) -> Mapping[int, BitMap64]:
        if segment.expires_null_count == segment.rows:
            return {}
        if segment.expires_null_count == 0 and segment.expires_min_ms == segment.expires_max_ms:
            return {int(segment.expires_min_ms or 0): to_bitmap([(segment.first, segment.until)])}
        return _group_by_time(self._files.read(segment, ["expires_at"]).column("expires_at"), segment.first)


class _Topics:
    """The topic column of a file, as numbers of distinct topics."""

    def __init__(self, column: pa.ChunkedArray[Any]) -> None:
        encoded: Any = column.combine_chunks().dictionary_encode()
        self._topics: list[str] = encoded.dictionary.to_pylist()
        self._numbers: NDArray[np.int32] = encoded.indices.to_numpy(zero_copy_only=False)

    def bookmarks(self, queue: QueueDefinition, first: int) -> BitMap64:
        taken = np.fromiter((queue.takes(topic) for topic in self._topics), dtype=np.bool_, count=len(self._topics))
        return _bitmap(np.flatnonzero(taken[self._numbers]) + first)


def _taken_by_statistics(segment: Segment, queue: QueueDefinition) -> bool | None:
    """Tell whether the queue takes all of the segment's rows, or none; None when only the column can tell."""
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
    return {int(time_ms): _bitmap(part) for time_ms, part in zip(distinct, parts, strict=True)}


def _restricted(expires: Mapping[int, BitMap64], rows: BitMap64, segment: Segment) -> Mapping[int, BitMap64]:
    if len(rows) == segment.rows or not rows:
        return expires if rows else {}
    parts = ((time_ms, part & rows) for time_ms, part in expires.items())
    return {time_ms: part for time_ms, part in parts if part}


def _bitmap(bookmarks: NDArray[Any]) -> BitMap64:
    return BitMap64(array("Q", bookmarks.astype(np.uint64).tobytes()))
