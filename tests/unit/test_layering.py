"""Who may import whom (DESIGN 11), read from the code itself: each message is ``file:line: error: …``."""

from __future__ import annotations

import ast
import functools
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import pytest

from tests.source_tree import ROOT, SourceFile, product_files

#: A module imports from its own line and the lines above it. A name stands for the module and all below it.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("spark_queue.error_texts",),
    ("spark_queue.errors",),
    ("spark_queue.core.bitmaps", "spark_queue.core.definitions"),
    ("spark_queue.core.records",),
    ("spark_queue.core.replies",),
    ("spark_queue.core.commands",),
    ("spark_queue.core.message_files",),
    ("spark_queue.core.state",),
    ("spark_queue.core.folds",),
    ("spark_queue.core.deciding",),
    ("spark_queue.core",),
    ("spark_queue.clock", "spark_queue.allocator", "spark_queue.forks", "spark_queue.declared_types"),
    ("spark_queue.expression", "spark_queue.ports"),
    ("spark_queue.settings", "spark_queue.tracing"),
    ("spark_queue.journal",),
    ("spark_queue.sinks",),
    ("spark_queue.protocol", "spark_queue.verification", "spark_queue.views"),
    ("spark_queue.replication",),
    ("spark_queue.metrics",),
    ("spark_queue.coordinator",),
    ("spark_queue.client", "spark_queue.session"),
    ("spark_queue.receiver",),
    ("spark_queue.source",),
    # The two handles that wrap a function for Spark.
    ("spark_queue.client.journal", "spark_queue.client.queue"),
    ("spark_queue.following",),
    ("spark_queue.dashboard",),
    ("spark_queue", "spark_queue.cli", "jobs", "pyspark_sparkqueue"),
)

#: The core decides and touches nothing: no host, no storage, no clock, no chance, no other thread.
IMPURE = frozenset(
    "asyncio concurrent deltalake duckdb io logging multiprocessing obstore os pathlib pyarrow pyspark random secrets shutil "
    "signal socket subprocess sys tempfile threading time uuid".split()
)

#: What only some places may import, wherever the statement stands.
CONFINED: Mapping[str, tuple[str, ...]] = {
    "delta": ("spark_queue.source.spark_table", "jobs"),
    # Jobs read their own sink tables without Spark; the journal is read through the package.
    "deltalake": ("spark_queue.journal", "spark_queue.sinks", "spark_queue.source.spark_table", "jobs"),
    "duckdb": ("spark_queue.expression",),
    "grpc": ("spark_queue.coordinator",),
    "jinja2": ("spark_queue.dashboard",),
    "obstore": ("spark_queue.journal",),
    "opentelemetry": ("spark_queue.metrics.otlp", "spark_queue.tracing"),
    "prometheus_client": ("spark_queue.metrics.prometheus",),
    "pyarrow.flight": ("spark_queue.protocol",),
    "pyspark": ("spark_queue.source", "spark_queue.client.queue", "spark_queue.session", "pyspark_sparkqueue", "jobs"),
    "rich": ("spark_queue.cli", "jobs"),
    "sqlglot": ("spark_queue.expression",),
    # A command works without what the page needs.
    "spark_queue.dashboard": ("spark_queue.dashboard", "spark_queue.cli.dashboard"),
    "starlette": ("spark_queue.dashboard",),
    "typer": ("spark_queue.cli",),
    "uvicorn": ("spark_queue.dashboard",),
}

#: What importing a module may never load, through however many other modules of ours.
NEVER_LOADS: Mapping[str, frozenset[str]] = {
    # Extras are loaded by who asks for them.
    "spark_queue.coordinator": frozenset({"pyspark", "delta", "opentelemetry", "prometheus_client"}),
    "spark_queue.cli": frozenset({"pyspark", "delta", "opentelemetry", "prometheus_client"}),
    "spark_queue.dashboard": frozenset({"pyspark", "delta"}),
    # `sparkq metrics --every` follows logs as the page does, without what serves the page.
    "spark_queue.following": frozenset({"pyspark", "delta", "anyio", "jinja2", "starlette", "uvicorn"}),
    "spark_queue.journal": frozenset({"pyspark", "delta"}),
    # Tasks that write a sink's files run it.
    "spark_queue.sinks.staging": frozenset({"pyspark", "delta", "deltalake", "obstore", "pandas"}),
    "spark_queue.views": frozenset({"pyspark", "delta"}),
    # Many consumers in plain Python run on one host, each a process of its own.
    "spark_queue.client.journal": frozenset({"deltalake", "duckdb", "numpy", "obstore", "pyarrow", "re2", "sqlglot"}),
    "spark_queue.client.queue": frozenset({"deltalake", "duckdb", "numpy", "obstore", "pyarrow", "re2", "sqlglot"}),
    "spark_queue.receiver": frozenset({"asyncio", "deltalake", "duckdb", "obstore", "re2", "sqlglot"}),
}

#: The modules that executors run, and all that importing them may load beside the standard library. Spark's own base
#: classes are there in any case.
EXECUTORS_RUN = tuple(
    f"spark_queue.source.{name}"
    for name in ("datasource", "partitions", "stream_reader", "stream_writer", "topic_reader", "view_reader")
)
EXECUTORS_LOAD = frozenset({"numpy", "pyarrow", "pyspark"})


@dataclass(frozen=True, kw_only=True)
class Import:
    """One imported name: ``from a import b`` may mean the module ``a.b`` or a name of ``a``."""

    line: int
    module: str
    #: Whether importing the file itself executes it: not inside a function, not for type checkers only.
    at_load: bool


def imports(tree: ast.AST, *, at_load: bool = True) -> Iterator[Import]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (Import(line=node.lineno, module=alias.name, at_load=at_load) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (Import(line=node.lineno, module=f"{node.module}.{alias.name}", at_load=at_load) for alias in node.names)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from (found for child in node.body for found in imports(ast.Module([child], []), at_load=False))
            yield from (found for child in node.orelse for found in imports(ast.Module([child], []), at_load=at_load))
        else:
            yield from imports(node, at_load=at_load and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


@functools.cache
def imports_of(file: SourceFile) -> tuple[Import, ...]:
    """Return what a file imports; files are asked again for every module that loads them."""
    return tuple(imports(file.tree))


def within(module: str, names: Iterable[str]) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in names)


def layer(module: str) -> int | None:
    """Return the number of a module's layer, by the longest name of `LAYERS` that it lies under."""
    homes = [(len(name), number) for number, names in enumerate(LAYERS) for name in names if within(module, (name,))]
    home = max(homes, default=None)
    # The bare package is no home for what lies in it: a new module is given a layer on purpose.
    return None if home is None or (home[0] == len("spark_queue") and module.count(".") > 0) else home[1]


def layer_problems(file: SourceFile, modules: Iterable[str]) -> Iterator[str]:
    own = layer(file.module)
    if own is None:
        yield file.error(1, f"{file.module} has no layer; give it one in LAYERS")
        return
    for found in imports_of(file):
        # The bare package is loaded before all that lies in it, so importing it ties nothing to anything.
        target = resolved(found.module, modules)
        if target is None or found.module == "spark_queue":
            continue
        if (other := layer(target)) is not None and other > own:
            yield file.error(found.line, f"{file.module} may not import {target}, which lies in a higher layer")


def resolved(name: str, modules: Iterable[str]) -> str | None:
    """Return the module of ours that an imported name belongs to, or None where it is not ours."""
    candidates = (name, name.rpartition(".")[0])
    return next((candidate for candidate in candidates if candidate in modules), None)


def confinement_problems(file: SourceFile) -> Iterator[str]:
    in_core = within(file.module, ("spark_queue.core",))
    for found in imports_of(file):
        if in_core and within(found.module, IMPURE):
            yield file.error(found.line, f"the core is pure and may not import {found.module}; take what it gives as an argument")
        for name, homes in CONFINED.items():
            if within(found.module, (name,)) and not within(file.module, homes):
                yield file.error(found.line, f"only {', '.join(homes)} may import {name}")


def load_problems(files: Iterable[SourceFile]) -> Iterator[str]:
    tree = {file.module: file for file in files}
    for start in tree:
        banned = frozenset[str]().union(*(names for home, names in NEVER_LOADS.items() if within(start, (home,))))
        executors = start in EXECUTORS_RUN
        for module in loaded(start, tree) if banned or executors else ():
            for found in imports_of(tree[module]):
                top = found.module.partition(".")[0]
                foreign = top not in sys.stdlib_module_names and top not in {"spark_queue", "__future__"}
                if found.at_load and (top in banned or (executors and foreign and top not in EXECUTORS_LOAD)):
                    yield tree[module].error(
                        found.line, f"importing {start} loads {top} here; import it where it is used, or elsewhere"
                    )


def loaded(start: str, tree: Mapping[str, SourceFile]) -> set[str]:
    """Return all modules of ours that importing one of them loads, with the packages they lie in."""
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        module = waiting.pop()
        if module in seen or module not in tree:
            continue
        seen.add(module)
        parts = module.split(".")
        waiting += [".".join(parts[:length]) for length in range(1, len(parts))]
        for found in imports_of(tree[module]):
            if found.at_load:
                waiting += [found.module, found.module.rpartition(".")[0]]
    return seen


def test_modules_import_only_from_their_own_layer_and_below() -> None:
    modules = {file.module for file in product_files()}
    problems = dict.fromkeys(problem for file in product_files() for problem in layer_problems(file, modules))
    assert not problems, "\n".join(problems)


def test_the_design_shows_every_layer_in_its_place() -> None:
    _, _, table = (ROOT / "docs" / "design.md").read_text(encoding="utf-8").partition("| Layer | Packages |\n")
    named = re.findall(r"`([\w.]+)`", table.partition("\n\n")[0])
    shown = [name if name in ("jobs", "pyspark_sparkqueue") else f"spark_queue.{name}" for name in named]
    places = [layer(name) or 0 for name in shown]
    assert places == sorted(places)
    assert set(shown) >= {name for names in LAYERS for name in names} - {"spark_queue", "spark_queue.core"}


def test_packages_are_imported_only_where_they_belong() -> None:
    problems = [problem for file in product_files() for problem in confinement_problems(file)]
    assert not problems, "\n".join(problems)


def test_importing_a_module_loads_nothing_that_it_must_do_without() -> None:
    problems = sorted(set(load_problems(product_files())))
    assert not problems, "\n".join(problems)


def test_every_layer_name_that_executors_and_rules_speak_of_can_exist() -> None:
    spoken_of = {*NEVER_LOADS, *EXECUTORS_RUN, *(home for homes in CONFINED.values() for home in homes)}
    assert [name for name in spoken_of if layer(name) is None] == []


@pytest.mark.parametrize(
    ("path", "text", "message"),
    [
        ("spark_queue/core/x.py", "import spark_queue.ports", "1: error: spark_queue.core.x may not import spark_queue.ports"),
        ("spark_queue/journal/x.py", "\nfrom spark_queue.client import queue", "2: error: spark_queue.journal.x may not import"),
        ("spark_queue/errors.py", "def f():\n  from spark_queue.core.state import age", "2: error: spark_queue.errors may not"),
        ("spark_queue/core/state/x.py", "from spark_queue.core.deciding import turn", "1: error: spark_queue.core.state.x may not"),
        ("spark_queue/client/queue.py", "from spark_queue.cli import app", "may not import spark_queue.cli"),
        ("spark_queue/core/x.py", "if TYPE_CHECKING:\n  from spark_queue import Journal", "2: error: spark_queue.core.x may not"),
        ("spark_queue/newcomer.py", "", "1: error: spark_queue.newcomer has no layer"),
    ],
)
def test_layer_rule_names_file_line_and_module_when_broken(path: str, text: str, message: str) -> None:
    names = ("ports", "client.queue", "core.deciding.turn", "core.state.age", "cli", "cli.app")
    modules = {"spark_queue", *(f"spark_queue.{name}" for name in names)}
    [problem] = layer_problems(SourceFile(path, text), modules)
    assert problem.startswith(f"{path}:")
    assert message in problem


@pytest.mark.parametrize(
    ("path", "text", "message"),
    [
        ("spark_queue/core/x.py", "import os.path", "the core is pure and may not import os.path"),
        ("spark_queue/core/x.py", "def f():\n  from time import monotonic", "2: error: the core is pure"),
        ("spark_queue/views/x.py", "from deltalake import DeltaTable", "jobs may import deltalake"),
        ("spark_queue/cli/x.py", "def f():\n  import pyspark.sql", "may import pyspark"),
        ("spark_queue/source/x.py", "from pyarrow import flight", "only spark_queue.protocol may import"),
    ],
)
def test_confinement_rule_names_file_line_and_package_when_broken(path: str, text: str, message: str) -> None:
    [problem] = confinement_problems(SourceFile(path, text))
    assert problem.startswith(f"{path}:")
    assert message in problem


def test_load_rule_follows_imports_of_imports_when_broken() -> None:
    app = SourceFile("spark_queue/cli/app.py", "from spark_queue.ports import Journal")
    ports = SourceFile("spark_queue/ports.py", "import json\nfrom pyspark.sql import DataFrame")
    assert list(load_problems([app, ports])) == [
        "spark_queue/ports.py:2: error: importing spark_queue.cli.app loads pyspark here; import it where it is used, or elsewhere"
    ]


def test_load_rule_counts_the_packages_that_a_module_lies_in() -> None:
    partitions = SourceFile("spark_queue/source/partitions.py", "import pyarrow as pa\nimport numpy")
    package = SourceFile("spark_queue/source/__init__.py", "import obstore")
    [problem] = load_problems([partitions, package])
    assert problem.startswith("spark_queue/source/__init__.py:1: error: importing spark_queue.source.partitions loads obstore")


def test_load_rule_lets_functions_and_type_checkers_import_what_they_like() -> None:
    text = "if TYPE_CHECKING:\n  import pyspark\nelse:\n  import json\ndef f():\n  import pyspark"
    assert list(load_problems([SourceFile("spark_queue/cli/app.py", text)])) == []


@pytest.mark.parametrize(("given", "holds"), [({}, "NONE"), ({"GRPC_VERBOSITY": "DEBUG"}, "DEBUG")])
@pytest.mark.parametrize(
    "entry", ["spark_queue.cli", "spark_queue.client.journal", "pyspark_sparkqueue", "spark_queue.coordinator"]
)
def test_every_way_in_keeps_grpc_quiet_before_it_is_loaded(entry: str, given: dict[str, str], holds: str) -> None:
    """Where its user does not say otherwise: it would tell terminals of connections that were idle."""
    code = "import os, sys, spark_queue; assert not {'grpc', 'pyarrow.flight'} & set(sys.modules); "
    code += f"import {entry}; print(os.environ['GRPC_VERBOSITY'])"
    known = {name: value for name, value in os.environ.items() if name != "GRPC_VERBOSITY"}
    done = subprocess.run([sys.executable, "-c", code], env=known | given, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == holds
