"""What the messages of random programs say, where they stand, and how queue and model ask them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from pyroaring import BitMap64

from spark_queue.core.message_files.segment import EntryTraits, Segment, TraitRequest, TraitSource

Body = dict[str, Any]

#: Texts that queue and subscriptions are defined with, and what they mean to the model.
QUESTIONS: dict[str, Callable[[Body], Any]] = {
    "size > 1": lambda body: None if body["size"] is None else body["size"] > 1,
    "colour = 'red'": lambda body: body["colour"] == "red",
    "size": lambda body: body["size"],
    "3 - size": lambda body: None if body["size"] is None else 3 - body["size"],
    "colour": lambda body: body["colour"],
    "size of colour": lambda body: body["size"],
    "colour = 'black'": lambda body: body["colour"] == "black",
    "size = 0": lambda body: body["size"] == 0,
}


class Files(TraitSource):
    """Traits of the bodies of a program, by the meaning that the model gives the texts; of a file that is gone, it knows none."""

    def __init__(self) -> None:
        self.bodies: list[Body] = []
        #: The bookmarks of the rows of each file.
        self.standing: dict[str, list[int]] = {}

    def traits(self, segment: Segment, requests: Iterable[TraitRequest]) -> Mapping[str, EntryTraits]:
        """Return the facts of a segment."""
        self._look_up(segment)
        return {each.queue.name: self._traits(segment, each) for each in requests}

    def matches(
        self, segments: Iterable[Segment], expression: str, rows: BitMap64, *, columns: str, letters: object = None
    ) -> BitMap64:
        """Return what matches among the rows."""
        known = BitMap64()
        for segment in segments:
            self._look_up(segment)
            known.add_range(segment.first, segment.until)
        assert rows <= known, "every row is looked up somewhere"
        return BitMap64(row for row in rows if QUESTIONS[expression](self.bodies[row]) is True)

    def _look_up(self, segment: Segment) -> None:
        found = self.standing[segment.path][segment.first_row : segment.first_row + segment.row_count]
        assert found == list(range(segment.first, segment.until)), segment

    def _traits(self, segment: Segment, request: TraitRequest) -> EntryTraits:
        queue, rows = request.queue, BitMap64(range(segment.first, segment.until))
        if queue.filter is not None:
            rows = self._true(queue.filter, rows)
        expires: dict[int, BitMap64] = {}
        for row in rows:
            if self.bodies[row]["expires_at"] is not None:
                expires.setdefault(self.bodies[row]["expires_at"], BitMap64()).add(row)
        ranked = [] if queue.priority is None else self._values(queue.priority, rows)
        keyed = [] if queue.order_key is None else self._values(queue.order_key, rows)
        return EntryTraits(
            rows=rows,
            expires=expires,
            barriers=BitMap64() if queue.barrier is None else self._true(queue.barrier, rows),
            matches={text: self._true(text, rows) for text in request.filters},
            ranked=np.array([row for row, _ in ranked], dtype=np.int64),
            priorities=np.array([value for _, value in ranked], dtype=np.uint64),
            keyed=np.array([row for row, _ in keyed], dtype=np.int64),
            keys=np.array([hash(value) % 2**64 for _, value in keyed], dtype=np.uint64),
        )

    def _true(self, text: str, rows: BitMap64) -> BitMap64:
        return BitMap64(row for row in rows if QUESTIONS[text](self.bodies[row]) is True)

    def _values(self, text: str, rows: BitMap64) -> list[tuple[int, Any]]:
        return [(row, value) for row in rows if (value := QUESTIONS[text](self.bodies[row])) is not None]
