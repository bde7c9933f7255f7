"""Dead letters by kind, those of one reason with one error text, and the choice of some of them by kind and time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterKind:
    """Dead letters of one reason and error text."""

    reason: str
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


def letter_kinds(letters: Iterable[DeadLetter]) -> list[LetterKind]:
    """Return dead letters by kind, the latest kind first."""
    found: dict[tuple[str, str | None], list[DeadLetter]] = {}
    for letter in letters:
        found.setdefault((str(letter.reason), letter.error), []).append(letter)
    kinds = [LetterKind(reason=reason, error=error, letters=each) for (reason, error), each in found.items()]
    return sorted(kinds, key=lambda kind: kind.last_ms, reverse=True)


def _rows(letters: Iterable[DeadLetter]) -> BitMap64:
    return BitMap64.union(BitMap64(), *(letter.rows for letter in letters))
