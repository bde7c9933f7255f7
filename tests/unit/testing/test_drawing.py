"""Bugs are drawn by a seed, and only where lines have changed."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from tests.mutants import __main__ as command
from tests.mutants import drawing
from tests.mutants.change import Change
from tests.mutants.drawing import changed_lines, draw
from tests.mutants.operators import changes

DIFF = """\
diff --git a/spark_queue/a.py spark_queue/a.py
--- a/spark_queue/a.py
+++ spark_queue/a.py
@@ -1,0 +2 @@ def f():
+    x = 1
@@ -7,2 +9,3 @@
-    y = 1
-    y = 2
+    y = 3
+    y = 4
+    y = 5
@@ -20 +24,0 @@
-    z = 1
diff --git a/spark_queue/b.py spark_queue/b.py
--- a/spark_queue/b.py
+++ /dev/null
@@ -1 +0,0 @@
-x = 1
diff --git a/spark_queue/core/c.py spark_queue/core/c.py
--- /dev/null
+++ spark_queue/core/c.py
@@ -0,0 +1,2 @@
+x = 1
+y = 2
"""


def test_new_lines_are_read_from_a_diff() -> None:
    assert changed_lines(DIFF) == {"spark_queue/a.py": {2, 9, 10, 11}, "spark_queue/core/c.py": {1, 2}}
    assert changed_lines("+++ /dev/null\n@@ -1 +0,0 @@\n-x = 1\n") == changed_lines("") == {}


#: Thirty lines with one change each.
LINES = "".join(f"x = {number}\n" for number in range(30))


def drawn(lines: dict[str, set[int]], *, count: int, seed: int = 1, text: str = LINES) -> list[str]:
    return [f"{each.path}:{each.line}" for each in draw(dict.fromkeys(lines, text), lines, count=count, seed=seed)]


def test_only_changed_lines_are_drawn_from() -> None:
    assert sorted(drawn({"b": {3}, "a": {1, 30}}, count=10)) == ["a:1", "a:30", "b:3"]
    assert drawn({"a": set()}, count=10) == []


def test_a_change_of_several_lines_is_drawn_where_one_of_them_changed() -> None:
    text = "x = y\nf(\n  a,\n  b,\n)\nx = y\n"
    assert [drawn({"a": {line}}, count=10, text=text) for line in range(1, 7)] == [[], *[["a:2"]] * 4, []]


def test_a_seed_draws_the_same_again_and_another_one_other_changes() -> None:
    lines = {"a": set(range(1, 31)), "b": set(range(1, 31))}
    turned = dict(reversed(lines.items()))
    assert drawn(lines, count=5, seed=1) == drawn(turned, count=5, seed=1)
    assert len({tuple(drawn(lines, count=5, seed=seed)) for seed in range(5)}) == 5
    # Nobody else's chance changes it.
    random.seed(0)
    before = drawn(lines, count=5)
    random.seed(1)
    assert drawn(lines, count=5) == before


def test_so_many_are_drawn_each_once_and_none_that_changes_nothing() -> None:
    assert len(set(drawn({"a": set(range(1, 31))}, count=7))) == 7
    text = "while True: f\n"
    for seed in range(5):
        [change] = draw({"a": text}, {"a": {1}}, count=2, seed=seed)
        assert change.after == "False"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Change]:
    """Return what the command would run, in a repository with one file that is new."""
    (tmp_path / "spark_queue").mkdir()
    (tmp_path / "spark_queue" / "a.py").write_text(LINES, encoding="utf-8")
    monkeypatch.setattr(drawing, "ROOT", tmp_path)
    chosen: list[Change] = []
    answers = {"diff": "+++ spark_queue/a.py\n@@ -0,0 +1,30 @@\n", "rev-parse": "00001f" + "0" * 34}
    monkeypatch.setattr(command, "_git", lambda *words: answers[words[0]])
    monkeypatch.setattr(command, "_run", chosen.extend)
    return chosen


def test_the_commit_is_the_seed_unless_one_is_given(run: list[Change]) -> None:
    for words in ([], ["--seed", "31"], ["--seed", "0"]):
        command.main(["--drawn", "4", "--since", "HEAD~1", *words])
    by_commit, by_number, other = run[:4], run[4:8], run[8:]
    assert len(by_commit) == len(other) == 4
    assert by_commit == by_number != other


def test_without_a_revision_nothing_is_drawn(run: list[Change], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["--drawn", "4"])
    assert "--drawn needs --since REV" in capsys.readouterr().err
    assert run == []


@pytest.mark.parametrize(
    ("returncode", "caught"),
    # Tests failed, the process was killed, or what tests share could not be imported; they passed, or there was none.
    [(1, True), (-9, True), (4, True), (0, False), (2, False), (5, False)],
)
def test_a_change_is_caught_where_tests_fail_or_cannot_be_loaded(
    returncode: int, caught: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "spark_queue" / "core" / "log_tail.py"
    path.parent.mkdir(parents=True)
    path.write_text("x = 1\n", encoding="utf-8")
    [change] = changes("spark_queue/core/log_tail.py", "x = 1\n")

    def run(words: list[str], **_: object) -> subprocess.CompletedProcess[bytes]:
        assert path.read_text(encoding="utf-8") == "x = 2\n"
        assert words[-len(change.tests) :] == list(change.tests)
        return subprocess.CompletedProcess(words, returncode)

    monkeypatch.setattr(subprocess, "run", run)
    assert command._is_caught(tmp_path, change) is caught
    assert path.read_text(encoding="utf-8") == "x = 1\n"
