"""What code, tests and texts cite is there to be read: sections of the design, rules of a queue, sections of the stored format.

A citation is a word and numbers: a section (of docs/design.md, or of PROTOCOL.md), a rule R and number (of docs/semantics.md), a
rule of the delivery protocol P and number (of docs/design.md). Numbers may be listed, or be a range.
"""

from __future__ import annotations

import io
import json
import re
import tokenize
from collections.abc import Iterator

import pytest

from tests.rules import RULES
from tests.source_tree import SourceFile, text_files

DESIGN, SEMANTICS, PROTOCOL = "docs/design.md", "docs/semantics.md", "spark_queue/journal/PROTOCOL.md"

#: Not written by people, or not about this project.
_SKIPPED = ("requirements.lock", "LICENSE", "NOTICE", "docs/architecture.svg", "tests/benchmarks/curves.svg")

#: Cites things that are not there, on purpose.
_OWN = "tests/unit/test_citations.py"

_NUMBER = r"\d+(?:\.\d+)?"
_SECTIONS = re.compile(rf"\b(DESIGN|PROTOCOL) ({_NUMBER}(?:(?:, | and | to ){_NUMBER}\b)*)")
_SECTION_OF_PROTOCOL = re.compile(r"\bPROTOCOL(?:\.md)?(?:\]\([^)]*\))?,? section (\d+)")
#: What stands between quotes by itself is data, and more digits than rules have are something else.
_RULES = re.compile(r"(?<![\w.-])(?!(?<=['\"])[RP]\d+['\"])([RP])(\d{1,3})(?: to \1(\d{1,3}))?(?![\w-]|\.\d)")
#: Within the design itself a section is named by its number in brackets.
_OWN_SECTION = re.compile(r"\((\d+\.\d+)\)")
#: Texts that are not in the repository.
_ELSEWHERE = re.compile(r"\b(SEMANTICS|PITFALLS|STYLE|REPLICATION) [A-Z]?\w?\d*")

#: What every citation has, for a look at a whole file: to take one apart costs a hundred times as much.
_CITES = re.compile(r"[RP]\d|DESIGN|PROTOCOL|SEMANTICS|PITFALLS|STYLE|REPLICATION")

#: Rules of the delivery protocol have one digit; P50 and the like are percentiles.
_PROTOCOL_RULE_DIGITS = 1


def headings(text: str) -> set[str]:
    """Return the numbers of the sections of a text, such as ``15.11``."""
    return set(re.findall(rf"(?m)^#{{2,3}} ({_NUMBER})\.? ", text))


def rules_of(text: str) -> set[str]:
    """Return the rules that a text defines, such as ``R52``: each begins its own paragraph."""
    return set(re.findall(r"(?m)^\*\*([RP]\d+)\.\*\* ", text))


def said(file: SourceFile) -> Iterator[tuple[int, str]]:
    """Yield what a file says to people, by line: of Python comments and texts, of a notebook its cells, else everything."""
    if file.path.endswith(".py"):
        for token in tokenize.generate_tokens(io.StringIO(file.text).readline):
            if tokenize.tok_name[token.type] in {"COMMENT", "STRING", "FSTRING_MIDDLE"}:
                yield from enumerate(token.string.splitlines(), start=token.start[0])
    elif file.path.endswith(".ipynb"):
        for cell in json.loads(file.text)["cells"]:
            yield from ((1, line) for line in "".join(cell["source"]).splitlines())
    else:
        yield from enumerate(file.text.splitlines(), start=1)


def cited(line: str) -> Iterator[tuple[str, str]]:
    """Yield every text and number that a line cites, ranges one by one."""
    for word, numbers in _SECTIONS.findall(line):
        for part in re.split(r", | and ", numbers):
            first, _, last = part.partition(" to ")
            yield from ((word, number) for number in _between(first, last or first))
    yield from (("PROTOCOL", number) for number in _SECTION_OF_PROTOCOL.findall(line))
    for letter, first, last in _RULES.findall(line):
        if letter == "R" or len(first) == _PROTOCOL_RULE_DIGITS:
            yield from ((letter, f"{letter}{number}") for number in _between(first, last or first))


def _between(first: str, last: str) -> list[str]:
    """Return the numbers of a range: the last parts of ``3.3`` to ``3.5`` are counted through."""
    start, _, low = first.rpartition(".")
    high = last.rpartition(".")[2]
    return [f"{start}.{number}" if start else str(number) for number in range(int(low), int(high) + 1)]


def problems(file: SourceFile, known: dict[str, set[str]]) -> Iterator[str]:
    """Say which citations of a file lead nowhere."""
    for number, line in said(file) if file.path == DESIGN or _CITES.search(file.text) else ():
        for text in _ELSEWHERE.findall(line):
            yield file.error(number, f"{text} is no text of this repository; cite {DESIGN} or {SEMANTICS}")
        found = [*cited(line), *((("DESIGN", own) for own in _OWN_SECTION.findall(line)) if file.path == DESIGN else ())]
        for word, cite in found:
            if cite not in known[word]:
                yield file.error(number, f"cites {cite if word in 'RP' else f'{word} {cite}'}, which is not there")


@pytest.fixture(scope="module")
def known() -> dict[str, set[str]]:
    files = {file.path: file.text for file in text_files()}
    return {
        "DESIGN": headings(files[DESIGN]),
        "PROTOCOL": headings(files[PROTOCOL]),
        "R": rules_of(files[SEMANTICS]),
        "P": rules_of(files[DESIGN]),
    }


def test_every_citation_leads_somewhere(known: dict[str, set[str]]) -> None:
    found = [line for file in text_files() if file.path not in (*_SKIPPED, _OWN) for line in problems(file, known)]
    assert not found, "\n".join(found)


def test_the_texts_are_whole(known: dict[str, set[str]]) -> None:
    assert known["R"] == {f"R{number}" for number in range(1, 158)}
    assert known["P"] == {f"P{number}" for number in range(1, 8)}
    assert {str(number) for number in range(1, 16)} | {f"15.{number}" for number in range(1, 18)} <= known["DESIGN"]


def test_rules_without_tests_say_that_they_are_planned() -> None:
    [text] = [file.text for file in text_files() if file.path == SEMANTICS]
    planned = {int(number) for number in re.findall(r"(?m)^\*\*R(\d+)\.\*\* \*Planned\.\*", text)}
    assert planned == set(range(1, 141)) - set(RULES)


SMALL = {"DESIGN": {"4", "15", "15.3", "15.4", "15.5"}, "PROTOCOL": {"6"}, "R": {"R51", "R52"}, "P": {"P1", "P2"}}


#: A file, its text, and the line and a piece of the message that tell of its citation. A test that named these would prove them.
BROKEN = [
    ("spark_queue/x.py", '"""A thing (DESIGN 17)."""', 1, "cites DESIGN 17"),
    ("spark_queue/x.py", "\nx = 1  # Kept for long (DESIGN 4, 15.9).", 2, "cites DESIGN 15.9"),
    ("spark_queue/x.py", '"""A thing (DESIGN 15.3 to 15.6)."""', 1, "cites DESIGN 15.6"),
    ("spark_queue/x.py", '"""A thing (DESIGN 4 and 16)."""', 1, "cites DESIGN 16"),
    ("spark_queue/x.py", '"""A\n\n    thing (PROTOCOL 7).\n"""', 3, "cites PROTOCOL 7"),
    ("spark_queue/x.py", 'x = f"{y} as R53 says"', 1, "cites R53"),
    ("spark_queue/x.py", "x = 'see R53'", 1, "cites R53"),
    ("tests/x.scenario", "\n== R51 to R53, P2: a lease ends", 2, "cites R53"),
    ("tests/x.scenario", "# P3: nobody read.", 1, "cites P3"),
    ("tests/x.py", '"""P1 to P3."""', 1, "cites P3"),
    ("README.md", "See PROTOCOL.md, section 12.", 1, "cites PROTOCOL 12"),
    (DESIGN, "as said (15.6)", 1, "cites DESIGN 15.6"),
    ("tests/x.py", '"""After Trigger.Once nobody calls (PITFALLS A4)."""', 1, "PITFALLS is no text of this repository"),
    ("notebooks/x.ipynb", '{"cells": [{"source": ["It expires (R99)."]}]}', 1, "cites R99"),
]


@pytest.mark.parametrize(("path", "text", "line", "message"), BROKEN)
def test_a_citation_that_leads_nowhere_is_named(path: str, text: str, line: int, message: str) -> None:
    [problem] = problems(SourceFile(path, text), SMALL)
    assert problem.startswith(f"{path}:{line}: error: ")
    assert message in problem


#: A file and its text, in which nothing leads nowhere although it comes close.
KEPT = [
    ("spark_queue/x.py", '"""A thing (DESIGN 4, 15.3 to 15.5, and R51; P1, P2)."""'),
    ("spark_queue/x.py", "R99 = P9 = 1  # names of Python"),
    ("spark_queue/x.py", '"""The latency (P50, P999) of 10 R2D2-99 and R99_x; see Rn, R3.14."""'),
    ("tests/x.py", 'skus = ["R99", "P9"]  # bare codes between quotes are data'),
    ("jobs/x.py", "x = 'pages 12 to 15, by DESIGN or not'"),
    ("README.md", "On Python 3.11 (3.12) see PROTOCOL.md, section 6."),
    ("notebooks/x.ipynb", '{"cells": [{"source": [], "outputs": ["R99 P9 DESIGN 99"]}]}'),
]


@pytest.mark.parametrize(("path", "text"), KEPT)
def test_what_only_looks_like_a_citation_is_none(path: str, text: str) -> None:
    assert list(problems(SourceFile(path, text), SMALL)) == []
