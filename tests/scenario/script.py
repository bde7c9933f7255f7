"""How the text of a scenario becomes steps."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from pyroaring import BitMap64

from spark_queue.core.bitmaps.ranges import to_ranges
from spark_queue.core.definitions.keys import parse_duration_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One line of a scenario."""

    number: int
    text: str
    #: The instances at which it is taken; none where there is one journal, or it is of all.
    places: tuple[str, ...]
    verb: str
    words: tuple[str, ...]
    #: The indented lines below it.
    block: str
    #: What stands after ``->``; None when any answer will do.
    expected: str | None


class Words:
    """The words of a step, taken from the left; options ``name=value`` and flags from anywhere."""

    def __init__(self, words: tuple[str, ...]) -> None:
        self._words = list(words)

    def take(self) -> str:
        """Take the next word."""
        if not self._words:
            raise ValueError("a word is missing")
        return self._words.pop(0)

    def peek(self) -> str:
        """Return the next word and leave it; an empty text when none is left."""
        return self._words[0] if self._words else ""

    def option(self, name: str) -> str | None:
        """Take the value of option `name`; None when it is not there."""
        for word in self._words:
            if word.startswith(f"{name}="):
                self._words.remove(word)
                return word[len(name) + 1 :]
        return None

    def options(self) -> dict[str, str]:
        """Take all options that are left."""
        found = [word for word in self._words if "=" in word]
        self._words = [word for word in self._words if "=" not in word]
        return {name: value for name, _, value in (word.partition("=") for word in found)}

    def number(self, name: str, default: int) -> int:
        """Take a number option."""
        value = self.option(name)
        return default if value is None else int(value)

    def duration_ms(self, name: str) -> int | None:
        """Take an option that is a duration."""
        value = self.option(name)
        return None if value is None else parse_duration_ms(value)

    def flag(self, name: str) -> bool:
        """Take a word that stands alone."""
        if name in self._words:
            self._words.remove(name)
            return True
        return False

    def rows(self) -> BitMap64:
        """Take the bookmarks that stand next."""
        rows = BitMap64()
        while self._words and self._words[0][0].isdigit():
            first, _, last = self._words.pop(0).partition("..")
            rows.add_range(int(first), int(last or first) + 1)
        return rows

    def rest(self) -> list[str]:
        """Take everything that is left."""
        words, self._words = self._words, []
        return words

    def clauses(self) -> Iterator[Words]:
        """Take everything that is left, in the parts that commas separate."""
        part: list[str] = []
        words, self._words = self._words, []
        for word in words:
            part.append(word.removesuffix(","))
            if word.endswith(","):
                yield Words(tuple(part))
                part = []
        if part:
            yield Words(tuple(part))

    def end(self) -> None:
        """Refuse words that nothing took."""
        if self._words:
            raise ValueError(f"nothing takes {' '.join(self._words)!r}")


def read(text: str) -> Iterator[Step]:
    """Read the steps of a scenario, in order."""
    lines = text.splitlines()
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line[0].isspace() or line.lstrip().startswith("#"):
            continue
        spoken, arrow, expected = line.partition("->")
        places, words = _placed(shlex.split(spoken, comments=True))
        block = "\n".join(_block(lines, number))
        answer = " ".join(shlex.split(expected, comments=True)) if arrow else None
        verb, *rest = words
        yield Step(number=number, text=line.strip(), places=places, verb=verb, words=tuple(rest), block=block, expected=answer)


def _placed(words: list[str]) -> tuple[tuple[str, ...], list[str]]:
    """Return the instances that ``at NAME …:`` names before a step, and the step."""
    until = next((number for number, word in enumerate(words) if word.endswith(":")), 0) if words[0] == "at" else 0
    return tuple(word.removesuffix(":") for word in words[1 : until + 1]), words[until + 1 if until else 0 :]


def _block(lines: list[str], start: int) -> Iterator[str]:
    for line in lines[start:]:
        if line.strip() and not line[0].isspace():
            return
        yield line.strip()


def compare(found: object, wanted: object, text: str) -> None:
    """Refuse, with `text` about what was found, what is not as wanted."""
    if found != wanted:
        raise AssertionError(text)


def rows_text(rows: BitMap64) -> str:
    """Write bookmarks as scenarios do."""
    parts = (f"{first}" if until == first + 1 else f"{first}..{until - 1}" for first, until in to_ranges(rows))
    return " ".join(parts) or "nothing"
