"""The structure of the package: imports have no circle, and the definitions of a module hang together."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping

from tests.source_tree import SourceFile, product_files
from tests.unit.test_layering import imports_of, resolved

#: Definitions that name each other are one group; groups below this are not looked at.
GROUP_LINES_MIN = 30

#: Modules that hold several groups on purpose, each with the reason.
SEVERAL_GROUPS: Mapping[str, str] = {
    "spark_queue.core.deciding.sinks": "Preparing and deciding an attempt are two acts of one protocol.",
    "spark_queue.dashboard.queue_page": "The figures and the charts of one page.",
    "spark_queue.expression.operators": "The operators of one language: each is an entry of the same table.",
    "spark_queue.replication.sandbox": "The two ends of one pipe, which change together.",
    "spark_queue.views.one_message": "The records of one message, and their fold.",
}


def circles(files: Iterable[SourceFile]) -> list[list[str]]:
    """Return the circles of imports among files, those for type checkers and inside functions included."""
    by_module = {file.module: file for file in files}
    # The bare package is loaded before all that lies in it, so importing it ties nothing to anything.
    targets = {
        module: sorted({target for each in imports_of(file) if (target := resolved(each.module, by_module)) not in (None, module)})
        for module, file in by_module.items()
    }
    numbers: dict[str, int] = {}
    lowest: dict[str, int] = {}
    waiting: list[str] = []
    found: list[list[str]] = []

    def visit(module: str) -> None:
        numbers[module] = lowest[module] = len(numbers)
        waiting.append(module)
        for target in targets[module]:
            if target not in numbers:
                visit(target)
                lowest[module] = min(lowest[module], lowest[target])
            elif target in waiting:
                lowest[module] = min(lowest[module], numbers[target])
        if lowest[module] == numbers[module]:
            at = waiting.index(module)
            circle = sorted(waiting[at:])
            del waiting[at:]
            if len(circle) > 1:
                found.append(circle)

    for module in targets:
        if module not in numbers:
            visit(module)
    return found


def groups(file: SourceFile) -> list[tuple[int, str]]:
    """Return the groups of definitions of a file that name each other: their lines and the first name, the largest first."""
    defined = {name: node for node in file.tree.body for name in _names(node)}
    home = {name: name for name in defined}

    def root(name: str) -> str:
        while home[name] != name:
            name = home[name]
        return name

    for name, node in defined.items():
        for spoken in _spoken(node):
            if spoken in defined:
                home[root(spoken)] = root(name)
    lines: dict[str, list[tuple[int, str]]] = {}
    for name, node in defined.items():
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            lines.setdefault(root(name), []).append(((node.end_lineno or node.lineno) - node.lineno + 1, name))
    sums = [(sum(each for each, _ in members), members[0][1]) for members in lines.values()]
    return sorted((each for each in sums if each[0] >= GROUP_LINES_MIN), reverse=True)


def _names(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            # A logger ties nothing together.
            yield from (name.id for name in ast.walk(target) if isinstance(name, ast.Name) and name.id.lower() != "_log")


def _spoken(node: ast.stmt) -> Iterator[str]:
    for each in ast.walk(node):
        if isinstance(each, ast.Name):
            yield each.id
        elif isinstance(each, ast.Constant) and isinstance(each.value, str):
            yield each.value


def test_imports_have_no_circle() -> None:
    found = circles(product_files())
    assert not found, "\n".join(" <-> ".join(circle) for circle in found)


def test_definitions_of_a_module_hang_together() -> None:
    apart = {file.module: found for file in product_files() if len(found := groups(file)) > 1}
    told = [f"{module}: {found}" for module, found in apart.items() if module not in SEVERAL_GROUPS]
    assert not told, "\n".join(["Each is two rooms: give every subject its file, or say why they stand together.", *told])
    assert set(SEVERAL_GROUPS) <= set(apart), "one of SEVERAL_GROUPS hangs together by now"


def test_a_circle_is_found_also_for_type_checkers_and_inside_functions() -> None:
    texts = {
        "a": "from spark_queue.x import b",
        "b": "def f():\n  from spark_queue.x.c import g",
        "c": "if TYPE_CHECKING:\n  from spark_queue.x import a",
        "d": "from spark_queue.x import a",
    }
    files = [SourceFile(f"spark_queue/x/{name}.py", text) for name, text in texts.items()]
    assert circles(files) == [["spark_queue.x.a", "spark_queue.x.b", "spark_queue.x.c"]]
    assert circles(files[1:]) == []


def test_groups_of_definitions_are_told_apart() -> None:
    body = "\n".join(f"  x{number} = {number}" for number in range(GROUP_LINES_MIN))
    apart = SourceFile("spark_queue/x.py", f"_LOG = 1\ndef f():\n  _LOG\n{body}\ndef g():\n  _LOG\n{body}\n")
    assert groups(apart) == [(GROUP_LINES_MIN + 2, "g"), (GROUP_LINES_MIN + 2, "f")]
    tied = SourceFile("spark_queue/x.py", f"def f():\n  g()\n{body}\ndef g():\n{body}\n")
    assert groups(tied) == [(2 * GROUP_LINES_MIN + 3, "f")]
