"""Plants each bug of the catalogue in a copy of the repository, and runs the tests that must fail there.

``python -m tests.mutants [NAME …]`` exits 1 when a bug escapes, and names it. ``--since REV --most N`` takes those in files that
have changed since a commit; of more than N of them, N whose turn it is with the last commit. ``--since REV --drawn N`` takes none
of them: it draws N bugs that operators make in lines that have changed; the last commit is the seed, or ``--seed S``.
"""

from __future__ import annotations

import argparse
import compileall
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path

from rich.console import Console

from tests.mutants.catalogue import MUTANTS
from tests.mutants.change import Change
from tests.mutants.drawing import drawn_changes
from tests.mutants.mutant import Mutant
from tests.source_tree import ROOT

#: What the tests need of the repository.
_COPIED = (
    "spark_queue", "tests", "jobs", "conf", "tools", "notebooks", "docs",
    "Makefile", "mkdocs.yml", "pyproject.toml", "README.md", "pyspark_sparkqueue.py",
)  # fmt: skip

#: For each file or folder of tests: a bug may make a test wait for ever; then it is noticed, too.
_TIMEOUT_S = 600

#: What a test may fill of the memory, in bytes: a bug may be that nothing is bounded, and this machine has other work.
_MEMORY_BYTES = 8 * 1024**3


def main(words: Sequence[str]) -> int:
    """Run the mutants that the words of the command choose, or all; returns how many escape."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--since", metavar="REV")
    parser.add_argument("--most", type=int, default=len(MUTANTS), metavar="N")
    parser.add_argument("--drawn", type=int, metavar="N")
    parser.add_argument("--seed", type=int, metavar="S")
    asked = parser.parse_args(words)
    if asked.drawn is not None:
        if not asked.since:
            parser.error("--drawn needs --since REV: bugs are drawn from lines that have changed since then")
        diff = _git("diff", "-U0", "--no-color", "--no-ext-diff", "--dst-prefix=", asked.since, "--", "spark_queue/*.py")
        return _run(drawn_changes(diff, count=asked.drawn, seed=_turn() if asked.seed is None else asked.seed))
    chosen = [mutant for mutant in MUTANTS if not asked.names or mutant.name in asked.names]
    if asked.since:
        changed = set(_git("diff", "--name-only", asked.since).splitlines())
        chosen = of_changed(chosen, changed, root=ROOT, most=asked.most, turn=_turn())
    return _run(chosen)


def of_changed(mutants: Sequence[Mutant], changed: Collection[str], *, root: Path, most: int, turn: int) -> list[Mutant]:
    """Return those whose bug or tests stand in changed files, named from `root`; of more than `most`, those whose turn it is."""

    def is_concerned(mutant: Mutant) -> bool:
        # Tests may be named by their folder.
        places = [*(path for path, _ in mutant.places(root)), *(root / test.split("::")[0] for test in mutant.tests)]
        return any((root / name).is_relative_to(place) for name in changed for place in places)

    planted = [mutant for mutant in mutants if is_concerned(mutant)]
    at = turn % max(1, len(planted))
    return (planted[at:] + planted[:at])[:most]


def _turn() -> int:
    """Return the number that ``make test`` takes from the last commit, too."""
    return int(_git("rev-parse", "HEAD")[:6], 16)


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=True, text=True).stdout


def _run(chosen: Sequence[Mutant | Change]) -> int:
    # Names of drawn bugs are code, with brackets.
    console = Console(markup=False, highlight=False, soft_wrap=True)
    escaped = []
    with tempfile.TemporaryDirectory(prefix="spark_queue-mutants-") as place:
        copy = _copy(Path(place))
        for number, mutant in enumerate(chosen, start=1):
            caught = _is_caught(copy, mutant)
            console.print(f"{number:>3}/{len(chosen)} {'caught ' if caught else 'ESCAPES'} {mutant.name}")
            escaped += [] if caught else [mutant.name]
    console.print(f"{len(chosen) - len(escaped)} of {len(chosen)} caught." + (f" Escaped: {', '.join(escaped)}" if escaped else ""))
    return len(escaped)


def _copy(place: Path) -> Path:
    for name in _COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, place / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, place / name)
    # Nobody writes bytecode later: that of a planted bug might be taken for the true one's.
    compileall.compile_dir(place / "spark_queue", quiet=1)
    return place


def _is_caught(copy: Path, mutant: Mutant | Change) -> bool:
    path, text = mutant.plant(copy)
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *mutant.tests]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(copy), str(copy / "jobs"))), "PYTHONDONTWRITEBYTECODE": "1"}
    # As many worlds as show it, and those that do; a test run has more.
    environment.setdefault("SIMULATION_SEEDS", "40")
    environment["SEED_WINDOW"] = "0"
    limit_s = _TIMEOUT_S * len(mutant.tests)
    try:
        done = subprocess.run(
            command, cwd=copy, env=environment, capture_output=True, check=False, timeout=limit_s, preexec_fn=_bound_memory
        )
    except subprocess.TimeoutExpired:
        return True
    finally:
        path.write_text(text, encoding="utf-8")
    # 1: tests failed; below 0: the bug ended the process; 2 to 5: pytest itself did not come that far, which proves nothing. But
    # the tests of a drawn bug are there: for them, 4 says that what they share cannot be imported.
    return done.returncode == 1 or done.returncode < 0 or (done.returncode == 4 and isinstance(mutant, Change))


def _bound_memory() -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY_BYTES, _MEMORY_BYTES))


if __name__ == "__main__":
    sys.exit(1 if main(sys.argv[1:]) else 0)
