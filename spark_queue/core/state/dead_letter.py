"""The dead letters of a queue: delete markers whose reason asks for a person's eye; no copy of the body (DESIGN 8)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from pyroaring import BitMap64

from spark_queue.core.records import Record, Removal, Removed, Replicated


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """Why and when some messages became dead letters."""

    rows: BitMap64
    #: A member of `records.DEAD_LETTER_REASONS`.
    reason: str
    error: str | None
    deliveries: int
    cancels: int
    removed_at_ms: int


class DeadLetterIndex:
    """The standing dead letters of one queue; a bookmark is in at most one of them."""

    def __init__(self) -> None:
        self._letters: list[DeadLetter] = []

    def __iter__(self) -> Iterator[DeadLetter]:
        return iter(self._letters)

    def add(self, record: Record, rows: BitMap64) -> None:
        """Take the dead letters that a `removed` record makes."""
        # In the log of its own queue, or as a peer says it; how often, a peer need not say.
        body = record.body
        assert isinstance(body, Removed | Replicated), "these make dead letters"
        letter = DeadLetter(
            rows=rows,
            reason=str(record.reason),
            error=body.error,
            deliveries=body.deliveries or 0,
            cancels=body.cancels or 0,
            removed_at_ms=record.at_ms,
        )
        self._letters.append(letter)

    def before(self, at_ms: int) -> BitMap64:
        """Return the messages that became dead letters at `at_ms` or earlier."""
        return BitMap64.union(BitMap64(), *(letter.rows for letter in self._letters if letter.removed_at_ms <= at_ms))

    @property
    def lost(self) -> BitMap64:
        """The messages whose body is gone for good: nobody can redrive them (R155)."""
        return BitMap64.union(BitMap64(), *(letter.rows for letter in self._letters if letter.reason == Removal.LOST))

    @property
    def oldest_ms(self) -> int | None:
        """When the oldest of them became one; None without any."""
        return self._letters[0].removed_at_ms if self._letters else None

    def take_back(self, rows: BitMap64) -> dict[str, int]:
        """Forget the letters of `rows`; returns how many there were, by reason."""
        counts: dict[str, int] = {}
        kept = []
        for letter in self._letters:
            rest = letter.rows - rows
            counts[letter.reason] = counts.get(letter.reason, 0) + len(letter.rows) - len(rest)
            if rest:
                kept.append(replace(letter, rows=rest))
        self._letters = kept
        return counts
