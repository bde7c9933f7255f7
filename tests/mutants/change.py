"""One change that an operator can make: a planted bug that nobody thought of."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.judging import judging_tests

#: Longer texts are cut where people read them.
_SHOWN_LENGTH = 60


@dataclass(frozen=True, slots=True)
class Change:
    """One change of a file: the text `before`, which stands at `start`, becomes `after`."""

    #: From the root of the repository, with forward slashes.
    path: str
    #: Counted from 1, as editors do.
    line: int
    column: int
    operator: str
    start: int
    before: str
    after: str

    @property
    def name(self) -> str:
        """Where it is, what the operator does there, and the text before and after, in one line."""
        before, after = (f"{text[:_SHOWN_LENGTH]}…" if len(text) > _SHOWN_LENGTH else text for text in (self.before, self.after))
        return " ".join(f"{self.path}:{self.line}:{self.column} {self.operator}: {before} → {after or 'nothing'}".split())

    @property
    def tests(self) -> tuple[str, ...]:
        """The test files that judge it."""
        return judging_tests(self.path)

    @property
    def lines(self) -> range:
        """The lines that it touches."""
        return range(self.line, self.line + self.before.count("\n") + 1)

    def applied(self, text: str) -> str:
        """Return the text of the file with the change."""
        return text[: self.start] + self.after + text[self.start + len(self.before) :]

    def makes_a_difference(self, text: str) -> bool:
        """Whether the file still compiles with it, and then says something else."""
        changed = self.applied(text)
        try:
            compile(changed, self.path, "exec")
        except SyntaxError:
            return False
        return ast.dump(ast.parse(changed)) != ast.dump(ast.parse(text))

    def plant(self, root: Path) -> tuple[Path, str]:
        """Make the change in the file below `root`; returns the file and what it held before."""
        path = root / self.path
        text = path.read_text(encoding="utf-8")
        path.write_text(self.applied(text), encoding="utf-8")
        return path, text
