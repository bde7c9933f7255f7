"""House rules that no linter knows, read from the files themselves: each message is ``file:line: error: …``."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

import pytest

from tests.source_tree import SourceFile, python_files, text_files

Rule = Callable[[SourceFile], Iterator[str]]

FUNCTION_LINES_MAX = 70

#: The host's wall clock, as code spells it.
WALL_CLOCK = re.compile(
    r"(time\.)?(time|time_ns|ctime|localtime|gmtime|strftime)|(datetime\.)?(datetime|date)\.(now|utcnow|today)"
    r"|(pd|pandas)\.Timestamp\.(now|utcnow|today)"
)
#: Words that say that something is left to do. Spelled apart, so that this file may speak of them.
LEFTOVER = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK")) + r")\b")
#: Places that exist on one machine, or hosts that only a package client should know.
MACHINE = re.compile(
    r"(?<![\w./$}>*-])/(work|root|farm|home/\w|Users/\w)\b|(?<![\w.])/opt/wheel[s]|pypi\.org|pythonhosted\.|repo1?\.maven\.|--(index-url|find-links)\b"
)
#: Silencing a checker; what follows the codes, or a comment on the line above, says why.
SILENCED = re.compile(r"#\s*(noqa|type:\s*ignore|pragma: no cover|nosec)\b(?P<codes>:\s*[A-Z0-9, ]+|\[[\w, -]+\])?(?P<reason>.*)")

DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
#: Words that begin a docstring without naming its subject.
WHO = re.compile(r"(Who|What|Whose)(ever)?\b")


def functions_are_short(file: SourceFile) -> Iterator[str]:
    for node in ast.walk(file.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                yield file.error(
                    node.lineno, f"{node.name} has {lines} lines, over {FUNCTION_LINES_MAX}; say its steps as functions"
                )


def clock_is_read_in_one_place(file: SourceFile) -> Iterator[str]:
    if file.path.startswith(("spark_queue/", "jobs/")) and file.path != "spark_queue/clock.py":
        for node in calls(file):
            # datetime.now(UTC) and the like: given or not, arguments do not stop them from reading the clock.
            if WALL_CLOCK.fullmatch(name := ast.unparse(node.func)) and not (name.endswith(("localtime", "gmtime")) and node.args):
                yield file.error(node.lineno, f"{name} is banned; take `now_ms`, or a Clock")


def no_test_sleeps(file: SourceFile) -> Iterator[str]:
    if file.path.startswith("tests/"):
        for node in calls(file):
            if (name := ast.unparse(node.func)) in {"time.sleep", "sleep"}:
                yield file.error(node.lineno, f"{name} is banned; move the fake clock, or wait for a signal with a deadline")


def only_tools_for_people_print(file: SourceFile) -> Iterator[str]:
    if file.path.startswith("spark_queue/") and file.path != "spark_queue/cli/output.py":
        is_verb = file.path.startswith("spark_queue/cli/")
        instead = "use spark_queue.cli.output, which makes text harmless" if is_verb else "return it, raise it, or log it"
        for node in calls(file):
            name = ast.unparse(node.func)
            if name == "print" or (is_verb and name.endswith((".print", ".echo", "stdout.write", "stderr.write"))):
                yield file.error(node.lineno, f"{name} is banned; {instead}")


def nothing_is_left_to_do(file: SourceFile) -> Iterator[str]:
    yield from matches(file, LEFTOVER, "'{}' is banned; do it, or leave it out")


def no_machine_is_named(file: SourceFile) -> Iterator[str]:
    yield from matches(file, MACHINE, "'{}' names one machine or a package host; say it in a way that holds everywhere")


def silenced_checks_say_why(file: SourceFile) -> Iterator[str]:
    lines = file.text.splitlines() if file.path.endswith(".py") else []
    for number, line in enumerate(lines, start=1):
        found = SILENCED.search(line)
        above = lines[number - 2].strip() if number > 1 else ""
        if found and not (re.search(r"\w{3}", found["reason"]) or above.startswith("#")):
            yield file.error(number, f"'{found[0].strip()}' needs a reason behind it, or in a comment above it")


def docstrings_begin_with_a_noun(file: SourceFile) -> Iterator[str]:
    if file.path.startswith("spark_queue/"):
        for node in ast.walk(file.tree):
            if isinstance(node, DOCUMENTED) and (found := WHO.match(ast.get_docstring(node) or "")):
                yield file.error(node.body[0].lineno, f"a docstring begins with '{found[0]}'; begin with the thing itself")


RULES: tuple[Rule, ...] = (
    functions_are_short,
    clock_is_read_in_one_place,
    no_test_sleeps,
    only_tools_for_people_print,
    nothing_is_left_to_do,
    no_machine_is_named,
    silenced_checks_say_why,
    docstrings_begin_with_a_noun,
)


def calls(file: SourceFile) -> Iterator[ast.Call]:
    return (node for node in ast.walk(file.tree) if isinstance(node, ast.Call))


def matches(file: SourceFile, pattern: re.Pattern[str], text: str) -> Iterator[str]:
    for number, line in enumerate(file.text.splitlines(), start=1):
        if found := pattern.search(line):
            yield file.error(number, text.format(found[0]))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_tree_keeps_the_rule(rule: Rule) -> None:
    problems = [problem for file in text_files() for problem in rule(file)]
    assert not problems, "\n".join(problems)


def test_tree_is_seen_whole() -> None:
    assert {"Makefile", "spark_queue/errors.py", "tests/unit/test_tidy.py", "tools/setup.sh"} <= {
        file.path for file in text_files()
    }
    assert "spark_queue.errors" in {file.module for file in python_files("spark_queue/")}


#: The rule, a file that breaks it once, the line, and a piece of the message.
BROKEN: list[tuple[Rule, str, str, int, str]] = [
    (functions_are_short, "jobs/x.py", "\ndef f():\n" + "  x = 1\n" * 70, 2, "f has 71 lines"),
    (clock_is_read_in_one_place, "spark_queue/x.py", "import time\nx = time.time()", 2, "time.time is banned"),
    (clock_is_read_in_one_place, "spark_queue/x.py", "x = datetime.now(UTC)", 1, "datetime.now is banned"),
    (clock_is_read_in_one_place, "jobs/x.py", "x = datetime.date.today()", 1, "datetime.date.today is banned"),
    (clock_is_read_in_one_place, "spark_queue/x.py", "x = [time_ns()]", 1, "time_ns is banned"),
    (no_test_sleeps, "tests/x.py", "def f():\n  time.sleep(1)", 2, "time.sleep is banned"),
    (only_tools_for_people_print, "spark_queue/core/x.py", "print(1)", 1, "print is banned"),
    (only_tools_for_people_print, "spark_queue/cli/x.py", "typer.echo(body)", 1, "which makes text harmless"),
    (only_tools_for_people_print, "spark_queue/cli/x.py", "out().print(body)", 1, "which makes text harmless"),
    (nothing_is_left_to_do, "README.md", "a\n# TO" + "DO: b", 2, "is banned; do it"),
    (no_machine_is_named, "conf/x.conf", "dir = /ro" + "ot/x", 1, "names one machine"),
    (no_machine_is_named, "requirements.lock", "--index" + "-url x", 1, "package host"),
    (no_machine_is_named, "README.md", "see https://py" + "pi.org/p", 1, "package host"),
    (silenced_checks_say_why, "spark_queue/x.py", "x = f()  # no" + "qa: S101", 1, "needs a reason"),
    (docstrings_begin_with_a_noun, "spark_queue/x.py", 'class X:\n  """What a queue is."""', 2, "begins with 'What'"),
    (docstrings_begin_with_a_noun, "spark_queue/core/x.py", '"""Whoever asks."""', 1, "begins with 'Whoever'"),
    (silenced_checks_say_why, "spark_queue/x.py", "y = 1\nx = f()  # type" + ": ignore[arg-type]", 2, "needs a reason"),
]


@pytest.mark.parametrize(("rule", "path", "text", "line", "message"), BROKEN)
def test_rule_names_file_and_line_when_broken(rule: Rule, path: str, text: str, line: int, message: str) -> None:
    [problem] = rule(SourceFile(path, text))
    assert problem.startswith(f"{path}:{line}: error: ")
    assert message in problem


#: The rule, and a file that keeps it although it comes close.
KEPT: list[tuple[Rule, str, str]] = [
    (functions_are_short, "jobs/x.py", "def f():\n" + "  x = 1\n" * 69),
    (clock_is_read_in_one_place, "spark_queue/clock.py", "x = time.time_ns()"),
    (clock_is_read_in_one_place, "spark_queue/x.py", "x = time.monotonic() + entry.time + time.gmtime(0)[0]"),
    (no_test_sleeps, "spark_queue/cli/x.py", "time.sleep(1)"),
    (only_tools_for_people_print, "spark_queue/cli/output.py", "typer.echo(harmless(1))"),
    (only_tools_for_people_print, "jobs/x.py", "print(1)"),
    (no_machine_is_named, "README.md", "in <journal>/work/x, see https://spark.apache.org/root/x, or $HOME/x"),
    (silenced_checks_say_why, "spark_queue/x.py", "x = f()  # no" + "qa: S101 - the fence was checked above"),
    (docstrings_begin_with_a_noun, "spark_queue/x.py", '"""Whole rows, whatever they are."""'),
    (docstrings_begin_with_a_noun, "tests/x.py", '"""What a test finds."""'),
    (silenced_checks_say_why, "spark_queue/x.py", "# The stub is wrong here.\nx = f()  # type" + ": ignore[arg-type]"),
]


@pytest.mark.parametrize(("rule", "path", "text"), KEPT)
def test_rule_is_silent_when_kept(rule: Rule, path: str, text: str) -> None:
    assert list(rule(SourceFile(path, text))) == []
