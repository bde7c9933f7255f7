"""Kinds of dead letters, by reason and error, and the choice of some of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from pyroaring import BitMap64

from spark_queue.core.state.dead_letter import DeadLetter


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


#: Stands in the class of an error for the parts that differ from message to message.
FOLDED = "…"

#: These parts: quoted values, and words with a digit in them, such as numbers, times and UUIDs; a hexadecimal number may have none.
#: Quotes stand at the edge of words, so that an apostrophe is none. Words begin at their edge, and values have an end, which keeps
#: the search short.
_VARYING = re.compile(
    r"""(?<!\w)(['"`])(?:(?!\1)[^\\]|\\.|\1(?=\w)){0,500}+\1(?!\w)"""
    r"|(?<![\w-])(?:[\w-]*\d[\w-]*(?:[.,:+/]\d[\w-]*)*|[a-fA-F]{8,}(?![\w-]))",
    re.DOTALL,
)


@lru_cache(maxsize=1 << 15)
def error_class(error: str) -> str:
    """Return the class of an error: its text with ids, numbers and values folded, as other messages that failed alike have it."""
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
