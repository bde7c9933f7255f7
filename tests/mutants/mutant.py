"""One planted bug."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutant:
    """One bug: in the file at `path`, the text `was`, which stands there once, becomes another."""

    name: str
    path: str
    was: str
    becomes: str
    #: Files or node ids for pytest.
    tests: tuple[str, ...]
