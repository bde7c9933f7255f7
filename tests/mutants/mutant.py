"""One planted bug."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path


def sources(root: Path) -> Iterator[tuple[Path, str]]:
    """Read each file of the product below `root` in which a bug may stand."""
    for path in sorted((root / "spark_queue").rglob("*")):
        if path.suffix in (".py", ".html", ".js", ".css"):
            yield path, path.read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Mutant:
    """One bug: the text `was`, which stands once in the product, wherever that is by now, becomes another."""

    name: str
    was: str
    becomes: str
    #: Files or node ids for pytest.
    tests: tuple[str, ...]
    #: The function or class in which it stands, where the text alone says too little.
    within: str = ""

    def places(self, root: Path) -> list[tuple[Path, int]]:
        """Return each file below `root` that has the text, and where in it; a bug can be planted where there is one."""
        return self.places_in(sources(root))

    def places_in(self, product: Iterable[tuple[Path, str]]) -> list[tuple[Path, int]]:
        """Return the same for files that were read already, with what they hold."""
        return [
            (path, start + match.start())
            for path, text in product
            if self.was in text
            for start, end in self._rooms(text)
            for match in re.finditer(re.escape(self.was), text[start:end])
        ]

    def _rooms(self, text: str) -> list[tuple[int, int]]:
        """Return the parts of a file in which the text is looked for."""
        if not self.within:
            return [(0, len(text))]
        definition = rf"^( *)(?:async def|def|class) {self.within}\b.*\n(?:(?:\1[ )].*)?\n)*"
        return [match.span() for match in re.finditer(definition, text, re.MULTILINE)]

    def plant(self, root: Path) -> tuple[Path, str]:
        """Put the bug where the text stands; returns the file and what it held before."""
        ((path, at),) = self.places(root)
        text = path.read_text(encoding="utf-8")
        path.write_text(self.planted(text, at), encoding="utf-8")
        return path, text

    def planted(self, text: str, at: int) -> str:
        """Return a file's text with the bug at a place."""
        return text[:at] + self.becomes + text[at + len(self.was) :]
