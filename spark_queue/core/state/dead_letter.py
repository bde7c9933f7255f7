"""The dead letters of a queue: delete markers whose reason asks for a person's eye; no copy of the body (DESIGN 8).

Dead letters by kind, those of one reason and class of errors, and the choice of some of them by kind and time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from pyroaring import BitMap64

from spark_queue.core.records import Record


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
        detail = record.detail
        letter = DeadLetter(
            rows=rows,
            reason=str(record.reason),
            error=detail.get("error"),
            deliveries=detail["deliveries"],
            cancels=detail["cancels"],
            removed_at_ms=record.at_ms,
        )
        self._letters.append(letter)

    def before(self, at_ms: int) -> BitMap64:
        """Return the messages that became dead letters at `at_ms` or earlier."""
        return BitMap64.union(BitMap64(), *(letter.rows for letter in self._letters if letter.removed_at_ms <= at_ms))

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


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterChoice:
    """Which dead letters somebody means; None leaves out nothing."""

    reason: str | None = None
    #: A part of the error's text.
    error: str | None = None
    #: When they became dead letters: from then on, and before then.
    since_ms: int | None = None
    until_ms: int | None = None

    @property
    def is_of_all(self) -> bool:
        """Whether no dead letter is left out."""
        return self == LetterChoice()

    def of(self, letters: Iterable[DeadLetter]) -> list[DeadLetter]:
        """Return those that are meant."""
        return [letter for letter in letters if self._means(letter)]

    def rows_of(self, letters: Iterable[DeadLetter]) -> BitMap64:
        """Return the messages of those that are meant."""
        return _rows(self.of(letters))

    def _means(self, letter: DeadLetter) -> bool:
        return (
            (self.reason is None or letter.reason == self.reason)
            and (self.error is None or self.error in (letter.error or ""))
            and (self.since_ms is None or letter.removed_at_ms >= self.since_ms)
            and (self.until_ms is None or letter.removed_at_ms < self.until_ms)
        )


#: Stands in the class of an error for what differs from message to message.
FOLDED = "…"

#: What does: quoted values, and words with a digit in them, such as numbers, times and UUIDs; a hexadecimal number may have none.
#: Quotes stand at the edge of words, so that an apostrophe is none. Words begin at their edge, and values have an end, which keeps
#: the search short.
_VARYING = re.compile(
    r"""(?<!\w)(['"`])(?:(?!\1)[^\\]|\\.|\1(?=\w)){0,500}+\1(?!\w)"""
    r"|(?<![\w-])(?:[\w-]*\d[\w-]*(?:[.,:+/]\d[\w-]*)*|[a-fA-F]{8,}(?![\w-]))",
    re.DOTALL,
)


@lru_cache(maxsize=1 << 15)
def error_class(error: str) -> str:
    """Return what an error's text has in common with those of other messages that failed alike: ids, numbers and values folded."""
    return _VARYING.sub(FOLDED, error)


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterKind:
    """Dead letters of one reason and class of errors."""

    reason: str
    #: The text of their errors, or the class of these where they differ.
    error: str | None
    letters: Sequence[DeadLetter]

    @property
    def rows(self) -> BitMap64:
        """The messages."""
        return _rows(self.letters)

    @property
    def first_ms(self) -> int:
        """When the first of them became one."""
        return min(letter.removed_at_ms for letter in self.letters)

    @property
    def last_ms(self) -> int:
        """When the last of them became one."""
        return max(letter.removed_at_ms for letter in self.letters)

    def errors_of(self, rows: BitMap64) -> list[str | None]:
        """Return the own error of each of some of the messages."""
        known = {row: letter.error for letter in self.letters for row in letter.rows & rows}
        return [known[row] for row in rows]


def letter_kinds(letters: Iterable[DeadLetter]) -> list[LetterKind]:
    """Return dead letters by kind, the latest kind first."""
    of_text: dict[tuple[str, str | None], list[DeadLetter]] = {}
    for letter in letters:
        of_text.setdefault((str(letter.reason), letter.error), []).append(letter)
    found: dict[tuple[str, str | None], list[tuple[str | None, list[DeadLetter]]]] = {}
    for (reason, error), alike in of_text.items():
        found.setdefault((reason, error and error_class(error)), []).append((error, alike))
    kinds = [
        LetterKind(reason=reason, error=each[0][0] if len(each) == 1 else told, letters=[one for _, alike in each for one in alike])
        for (reason, told), each in found.items()
    ]
    return sorted(kinds, key=lambda kind: kind.last_ms, reverse=True)


def _rows(letters: Iterable[DeadLetter]) -> BitMap64:
    return BitMap64.union(BitMap64(), *(letter.rows for letter in letters))
