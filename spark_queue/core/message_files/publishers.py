"""Sequences of named publishers: what tells that a message came here already by another instance (DESIGN 17.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

#: First and last of the sequences of a publisher, in a file or a commit.
SequenceRange = tuple[int, int]

#: Rows of a file with numbers that other messages of their publisher have here: first row, rows, publisher, first number.
ClashingRows = tuple[int, int, str, int]

#: Begins the name that a file without a publisher gets; nobody can choose such a name (R99).
_UNNAMED = "~"


def is_named(publisher: str) -> bool:
    """Return whether a publisher has chosen its name, so that its numbers mean the same on every instance."""
    return not publisher.startswith(_UNNAMED)


def overlap(one: Mapping[str, SequenceRange], other: Mapping[str, SequenceRange]) -> bool:
    """Return whether a publisher has numbers in both."""
    return any(name in other and first <= other[name][1] and other[name][0] <= last for name, (first, last) in one.items())


def joined(parts: Sequence[Mapping[str, SequenceRange]]) -> dict[str, SequenceRange]:
    """Return the first and last number of each publisher in any of some parts."""
    found: dict[str, SequenceRange] = {}
    for part in parts:
        for name, (first, last) in part.items():
            known_first, known_last = found.get(name, (first, last))
            found[name] = (min(first, known_first), max(last, known_last))
    return found


def sequence_ranges(stored: Mapping[str, Sequence[int]]) -> dict[str, SequenceRange]:
    """Read the form of records and of commitInfo."""
    return {name: (first, last) for name, (first, last) in stored.items()}
