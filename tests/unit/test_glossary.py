"""The words of docs/design.md, section 2, are those of the code: what they name exists, and what is not to be said is no name."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import pytest

from spark_queue.core.records import BODIES, Kind
from tests.source_tree import ROOT, SourceFile, product_files, python_files

DESIGN = ROOT / "docs" / "design.md"

#: One row of a table: its cells.
Row = Sequence[str]


def tables(text: str) -> Sequence[Sequence[Row]]:
    """Return the tables of the section on words, without their heads: the glossary, and what is not to be said."""
    section = re.split(r"(?m)^## ", text.split("\n## 2 Words\n", 1)[1])[0]
    found: list[Sequence[Row]] = []
    for block in re.findall(r"(?:^\|.*\n)+", section, re.MULTILINE):
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines()]
        found.append(rows[2:])
    return found


def names(cell: str) -> list[str]:
    """Return what stands in backquotes."""
    return re.findall(r"`([^`]+)`", cell)


def modules_of(files: Iterable[SourceFile]) -> set[str]:
    """Return the modules and packages of some files, dotted."""
    return {file.module for file in files}


def classes_of(files: Iterable[SourceFile]) -> set[str]:
    """Return the names of the classes that some files define."""
    return {node.name for file in files for node in ast.walk(file.tree) if isinstance(node, ast.ClassDef)}


def missing(glossary: Iterable[Row], files: Sequence[SourceFile]) -> Iterator[str]:
    """Say which words name a module or class that is not there."""
    known = modules_of(files) | classes_of(files)
    for word, _, code in glossary:
        yield from (f"'{word}' names {name}, which is no module or class" for name in names(code) if name not in known)


def said_otherwise(instead: Iterable[Row], files: Sequence[SourceFile]) -> Iterator[str]:
    """Say which modules and classes have a name that the second table forbids: small letters mean modules, others classes."""
    known = {module.rpartition(".")[2] for module in modules_of(files)} | classes_of(files)
    for word, forbidden in instead:
        yield from (f"{name} is a name that the glossary forbids; say {word}" for name in names(forbidden) if name in known)


@pytest.fixture(scope="module")
def words() -> Sequence[Sequence[Row]]:
    return tables(DESIGN.read_text(encoding="utf-8"))


def test_words_name_modules_and_classes_that_exist(words: Sequence[Sequence[Row]]) -> None:
    glossary, _ = words
    assert list(missing(glossary, python_files("spark_queue/"))) == []


def test_no_module_or_class_has_a_name_that_is_forbidden(words: Sequence[Sequence[Row]]) -> None:
    _, instead = words
    assert list(said_otherwise(instead, python_files("spark_queue/"))) == []


#: One thing, one word, also in what users read: other phrases for it.
SAID_ONCE = {
    "in doubt": r"undecided (batch|attempt)|(batch(es)?|attempt)( of [^.|]*)? (is|are|stays?)( still)? undecided",
    "file of stores": r"stores'? file\b",
}


@pytest.mark.parametrize("word", SAID_ONCE)
def test_one_thing_has_one_word_in_texts(word: str) -> None:
    texts = [*(ROOT / "spark_queue").rglob("*.py"), *(ROOT / "spark_queue").rglob("*.html"), *(ROOT / "docs").rglob("*.md")]
    said = [
        path.name
        for path in [*texts, ROOT / "README.md"]
        if re.search(SAID_ONCE[word], path.read_text(encoding="utf-8"), re.IGNORECASE)
    ]
    assert said == []


def test_each_word_is_explained_once(words: Sequence[Sequence[Row]]) -> None:
    glossary, instead = words
    said = [word.lower() for word, *_ in glossary]
    assert sorted({word for word in said if said.count(word) > 1}) == []
    assert all(explained.endswith(".") for _, explained, _ in glossary)
    assert all(names(forbidden) for _, forbidden in instead)


SMALL = [
    SourceFile("spark_queue/core/lease.py", "class Lease:\n  class Held: ..."),
    SourceFile("spark_queue/core/__init__.py", ""),
    SourceFile("spark_queue/runs.py", "class Broker: ..."),
]


def test_a_word_without_its_module_or_class_is_named() -> None:
    rows = [
        ("lease", "A right.", "`spark_queue.core.lease`, `Lease`"),
        ("barrier", "It waits.", "`spark_queue.barrier`, `Barrier`"),
    ]
    assert list(missing(rows, SMALL)) == [
        "'barrier' names spark_queue.barrier, which is no module or class",
        "'barrier' names Barrier, which is no module or class",
    ]


def test_a_forbidden_name_is_named_with_the_word_to_say() -> None:
    rows = [("coordinator", "`broker`, `Broker`"), ("batch_runs", "`runs`, `Runs`"), ("held rows", "`Held`, `held`")]
    assert list(said_otherwise(rows, SMALL)) == [
        "Broker is a name that the glossary forbids; say coordinator",
        "runs is a name that the glossary forbids; say batch_runs",
        "Held is a name that the glossary forbids; say held rows",
    ]


def test_tables_are_read_from_their_section_only() -> None:
    glossary = "| W | M | C |\n|---|---|---|\n| a | b. | `c` |\n"
    instead = "| S | N |\n|---|---|\n| d | `e` |\n"
    text = f"# A\n\n## 2 Words\n\n{glossary}\n{instead}\n## 3 B\n\n| x |\n"
    assert tables(text) == [[["a", "b.", "`c`"]], [["d", "`e`"]]]


#: A record is named by its kind, as the command that makes it and the reply that tells of it may be, too; beside one of these it is
#: written as `records.Granted`.
RECORDS = "spark_queue/core/records/"


def twins(files: Iterable[SourceFile]) -> list[str]:
    """Return the public names that more than one class has, records not counted."""
    classes = Counter(
        node.name
        for file in files
        if not file.path.startswith(RECORDS)
        for node in ast.walk(file.tree)
        if isinstance(node, ast.ClassDef) and node.name[0] != "_"
    )
    return sorted(name for name, count in classes.items() if count > 1)


def test_no_two_classes_have_one_name() -> None:
    assert twins(product_files()) == []


def test_a_record_is_named_by_its_kind() -> None:
    assert {each.__name__ for each in BODIES.values()} == {kind.title().replace("_", "") for kind in Kind}


def test_two_classes_of_one_name_are_found() -> None:
    texts = {"a": "class Pause: ...\nclass _Own: ...", "b": "class Pause: ...\nclass _Own: ..."}
    assert twins(SourceFile(f"spark_queue/{name}.py", text) for name, text in texts.items()) == ["Pause"]


def astray(files: Sequence[SourceFile]) -> list[str]:
    """Return what packages say of their modules that is none: of their own by its name, of others by its place below the root."""
    known = modules_of(files)
    return [
        f"{file.module} names {name}"
        for file in files
        if file.path.endswith("__init__.py")
        for name in re.findall(r"(?<!`)`([a-z_.]+)`(?!`)", ast.get_docstring(file.tree) or "")
        if known.isdisjoint((f"{file.module}.{name}", f"spark_queue.{name}", name)) and name not in OTHERS
    ]


#: Names there that are no module's: of a key, a file, a verb, a function and a folder.
OTHERS = frozenset(("coordinator_idle", "coordinator.json", "verify", "configure_spark", "templates"))


def test_packages_tell_of_modules_that_they_have() -> None:
    assert astray(product_files()) == []


def test_a_module_that_is_gone_is_named() -> None:
    text = '"""Reading order: `lease`, `core.lease`, `metrics` (extra), `lost`; then ``now_ms``."""'
    files = [*SMALL, SourceFile("spark_queue/core/__init__.py", text), SourceFile("spark_queue/metrics.py", "")]
    assert astray(files) == ["spark_queue.core names lost"]
