"""Bugs that nobody thought of: changes that operators make where lines are new, drawn by a seed."""

from __future__ import annotations

import random
import re
from collections.abc import Collection, Mapping
from itertools import islice

from tests.mutants.change import Change
from tests.mutants.operators import changes
from tests.source_tree import ROOT


def drawn_changes(diff: str, *, count: int, seed: int) -> list[Change]:
    """Draw so many changes of the lines of the product that are new in a diff."""
    lines = changed_lines(diff)
    return draw({path: (ROOT / path).read_text(encoding="utf-8") for path in lines}, lines, count=count, seed=seed)


def changed_lines(diff: str) -> dict[str, set[int]]:
    """Return the numbers of the lines that are new or other in each file, from what ``git diff -U0 --dst-prefix=`` prints."""
    lines: dict[str, set[int]] = {}
    path = ""
    for told in diff.splitlines():
        if found := re.fullmatch(r"\+\+\+ (spark_queue/\S+)", told):
            path = found[1]
        elif found := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", told):
            first, count = int(found[1]), int(found[2] or 1)
            # A file that is gone has hunks without lines.
            if count:
                lines.setdefault(path, set()).update(range(first, first + count))
    return lines


def draw(texts: Mapping[str, str], lines: Mapping[str, Collection[int]], *, count: int, seed: int) -> list[Change]:
    """Draw so many of the changes that touch these lines of the files; the same seed draws the same."""
    touching = [
        each for path in sorted(lines) for each in changes(path, texts[path]) if not set(each.lines).isdisjoint(lines[path])
    ]
    random.Random(seed).shuffle(touching)
    # Each is compiled only now that it is its turn.
    return list(islice((each for each in touching if each.makes_a_difference(texts[each.path])), count))
