"""README.md and docs/ say what is true: their tables, pictures and links, and every name that they mention (DESIGN 9)."""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
from collections import Counter
from dataclasses import fields
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import typer

import spark_queue
from spark_queue import Journal, session
from spark_queue.cli.app import app
from spark_queue.cli.verb import COORDINATOR_VARIABLE
from spark_queue.core.replies import QueueStatus
from spark_queue.core.state.lifecycle import TRANSITIONS, Event, State
from spark_queue.errors import CATALOGUE
from spark_queue.journal.stores_file import STORES_FILE_VARIABLE
from spark_queue.protocol.host import TLS_ROOTS_VARIABLE
from spark_queue.protocol.user_files import TOKEN_FILE_VARIABLE, TOKEN_VARIABLE
from spark_queue.settings.read import load_definitions
from spark_queue.settings.registry import key_rows, option_rows
from tests.docs import api, pages, ways
from tests.docs.generated import PARTS, generated, names_in
from tests.docs.meanings import FIGURES
from tests.docs.pages import Page
from tests.source_tree import ROOT, python_files

README_LINES_MAX = 250

PAGES = pages.pages()
TEXT = "\n".join(page.text for page in PAGES)
OPTIONS = {row.name for row in option_rows()}
#: One queue with a message, and one without.
DEFINITIONS = {"message_types": {"json": {"topics": ["ORDERS", "NONE"]}}, "queues": {"ORDERS": {}, "NONE": {}}}
VERBS = typer.main.get_command(app).commands  # type: ignore[attr-defined]  # An application with verbs is a group.

of_each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.path)


@of_each_page
def test_generated_parts_are_those_of_the_product(page: Page) -> None:
    assert generated(page.text) == page.text, "run `make readme`"


def test_every_generated_part_stands_in_one_place() -> None:
    assert sorted(name for page in PAGES for name in names_in(page.text)) == sorted(PARTS)


@pytest.mark.parametrize("name", sorted(OPTIONS | {row.name for row in key_rows()}))
def test_every_option_and_key_is_in_a_table(name: str) -> None:
    assert f"\n| `{name}` |" in TEXT


def test_every_figure_of_a_queue_is_explained() -> None:
    """R119."""
    assert FIGURES.keys() == {entry.name for entry in fields(QueueStatus)}
    assert FIGURES.keys() <= set(re.findall(r"^\| `(\w+)` \| ", pages.page("docs/reference/status.md").text, re.MULTILINE))


def test_everything_that_programs_import_has_its_reference() -> None:
    assert set(spark_queue.__all__) <= {shown.__name__ for shown in api.SHOWN}


def test_whatever_explains_parameters_explains_all() -> None:
    called = {f"{shown.__name__}.{name}": member for shown in api.SHOWN for name, member in api.members(shown) if callable(member)}
    functions = {spark_queue.configure_spark.__name__: spark_queue.configure_spark, **called}
    missing = {
        name: inspect.signature(function).parameters.keys() - {"self"} - api.explained(function)
        for name, function in functions.items()
        if api.explained(function)
    }
    assert len(missing) > 10
    assert not {name: left for name, left in missing.items() if left}


@pytest.mark.parametrize("code", CATALOGUE)
def test_every_error_has_a_heading(code: str) -> None:
    assert code.lower() in pages.page("docs/reference/errors.md").anchors


@pytest.mark.parametrize("name", [*State, *Event])
def test_every_state_and_event_of_a_message_is_explained(name: str) -> None:
    assert f"\n| `{name}` |" in pages.page("docs/concepts/life-of-a-message.md").text


def test_readme_is_short() -> None:
    assert len(pages.page("README.md").text.splitlines()) <= README_LINES_MAX


@of_each_page
def test_links_lead_somewhere(page: Page) -> None:
    of_page = {other.path: other for other in PAGES}
    dead = [
        (path, anchor)
        for path, anchor in page.links()
        if not (ROOT / path).is_file() or (anchor and anchor not in of_page[path].anchors)
    ]
    assert not dead


def test_readme_leads_to_every_page() -> None:
    linked = {path for path, _ in pages.page("README.md").links()}
    assert {page.path for page in PAGES} - linked <= {"README.md"}


def test_every_example_has_a_name_of_its_own_and_is_run() -> None:
    assert set(Counter(pages.example_names()).values()) == {1}
    named = {
        node.value
        for file in python_files("tests/unit/test_readme.py", "tests/acceptance/", "tests/integration/", "tests/docs/ways.py")
        for node in ast.walk(file.tree)
        if isinstance(node, ast.Constant)
    }
    assert set(pages.example_names()) <= named


@pytest.mark.parametrize("name", [*ways.PROGRAM, "ways_queues", "ways_table"])
def test_way_in_or_out_takes_ten_lines_at_most(name: str) -> None:
    assert len([line for line in pages.example(name).splitlines() if line.strip()]) <= 10


@pytest.mark.parametrize("block", pages.blocks("python"))
def test_python_block_compiles_and_names_known_options(block: str) -> None:
    calls = [call for call in ast.walk(ast.parse(block)) if isinstance(call, ast.Call)]
    named = {call.args[0].value for call in calls if _is_option(call) and isinstance(call.args[0], ast.Constant)}
    of_others = {"checkpointLocation", "kafka.bootstrap.servers", "subscribe"}
    assert named <= OPTIONS | of_others


def _is_option(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr == "option"


@pytest.mark.parametrize("block", pages.blocks("toml"))
def test_definitions_are_accepted(block: str) -> None:
    # What has no message types is to be added to the file of the tutorial.
    whole = block if "[message_types." in block else pages.example("tutorial_queues") + block
    assert load_definitions(tomllib.loads(whole)).queues


@pytest.mark.parametrize("command", sorted(set(re.findall(r"\bsparkq [a-z][^`\n#|]*", TEXT))))
def test_command_line_exists(command: str) -> None:
    _, verb, *arguments = command.split()
    # A group has verbs of its own.
    found = getattr(VERBS[verb], "commands", {}).get(arguments[0] if arguments else "", VERBS[verb])
    known = {name for parameter in found.params for name in parameter.opts}
    assert {argument for argument in arguments if argument.startswith("-")} <= known


def test_error_codes_exist() -> None:
    ours = {TOKEN_FILE_VARIABLE, TOKEN_VARIABLE, TLS_ROOTS_VARIABLE, STORES_FILE_VARIABLE, COORDINATOR_VARIABLE}
    variables = ours | {"XDG_CACHE_HOME", "PYSPARK_PYTHON", "JAVA_HOME"}
    headings = "\n".join(re.findall(r"^#+ .+$", TEXT, re.MULTILINE))
    named = set(re.findall(r"`([A-Z]+(?:_[A-Z]+)+)`", TEXT)) | set(re.findall(r"\b[A-Z]+(?:_[A-Z]+)+\b", headings))
    # Topics and queues of the one example in the rules.
    of_example = {name for name in named if name.startswith("ORDERS_")}
    # OpenTelemetry's own, and those of clouds.
    variables |= {name for name in named if name.startswith(("OTEL_", "AWS_", "AZURE_"))}
    assert named
    assert named - of_example <= CATALOGUE.keys() | variables


def test_settings_of_a_submitted_job_are_those_of_a_session() -> None:
    told = dict(line.split(maxsplit=1) for line in pages.example("submitting").splitlines())
    assert told == session._SETTINGS | session._OF_WORKERS | session._OF_DELTA


def test_wheel_has_the_name_that_is_told() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert set(re.findall(r"spark_queue-([\d.]+)-py3", TEXT)) == {version}


@pytest.mark.parametrize("name", ["architecture", "lifecycle"])
def test_picture_is_well_formed_and_says_what_it_shows(name: str) -> None:
    picture = ET.parse(ROOT / "docs" / f"{name}.svg").getroot()
    spoken = {child.tag.rpartition("}")[2] for child in picture if (child.text or "").strip()}
    assert {"title", "desc"} <= spoken


def test_picture_of_the_lifecycle_shows_moves_that_there_are() -> None:
    picture = ET.parse(ROOT / "docs" / "lifecycle.svg").getroot()
    moves = [path.attrib for path in picture.iter() if "data-event" in path.attrib]
    assert moves
    assert not [
        move for move in moves if TRANSITIONS.get((State(move["data-from"]), Event(move["data-event"]))) != State(move["data-to"])
    ]
    written = Counter(text.text or "" for text in picture.iter() if text.tag.endswith("}text"))
    assert not Counter(move["data-event"] for move in moves) - written


@pytest.mark.parametrize(("limit_s", "code"), [(3_600, 0), (0, 1)])
def test_alert_exits_by_the_age_of_the_oldest_message(tmp_path: Path, limit_s: float, code: int) -> None:
    Journal.create(str(tmp_path / "shop"), DEFINITIONS).publish([{"value": "{}"}], topic="ORDERS")
    done = pages.run_example("alert", "shop", str(limit_s), folder=tmp_path)
    assert (done.returncode, done.stderr) == (code, "")
    assert done.stdout.count("oldest message waits") == done.stdout.count("ORDERS: ") == code


def test_example_of_explaining_tells_what_happened(tmp_path: Path) -> None:
    definitions = pages.example("defining")
    Journal.create(str(tmp_path / "shop"), tomllib.loads(definitions)).publish([{"item": "lamp"}] * 2, topic="ORDERS")
    done = pages.run_example("explain", "shop", "1", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("ORDERS 2 is available\n")
    assert [line.split("\t")[1] for line in done.stdout.splitlines()[1:]] == ["published", "committed"]


def test_example_of_publishing_publishes_and_drops_the_repeat(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    definitions = pages.example("defining")
    journal = Journal.create(str(tmp_path / "shop"), tomllib.loads(definitions))
    exec(pages.example("publish"), {"journal": journal, "rows": [{"item": "kettle"}, {"item": "lamp"}]})
    assert capsys.readouterr().out == "0 published, 2 dropped\n"
    assert journal.queue("WORK").status().entered == 8


def test_example_of_spreading_keeps_the_rows_of_a_key_in_one_journal_and_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    journals = [Journal.create(f"shop-{number}", tomllib.loads(pages.example("defining"))) for number in range(4)]
    rows = [{"item": f"item {number % 9}", "quantity": number} for number in range(36)]
    exec(pages.example("spreading"), {"rows": rows})
    stored = [journal.view("messages", queue="WORK", columns=["item", "quantity"]).to_pylist() for journal in journals]
    assert sum(map(len, stored)) == len(rows)
    assert sum(part != [] for part in stored) > 1
    for item in {row["item"] for row in rows}:
        found = [[row["quantity"] for row in part if row["item"] == item] for part in stored]
        assert [part for part in found if part] == [[row["quantity"] for row in rows if row["item"] == item]]


def test_rows_with_other_names_come_in_as_define_md_says(tmp_path: Path) -> None:
    journal = Journal.create(str(tmp_path / "flats"), tomllib.loads(pages.example("renaming")))
    journal.publish([{"id": 1, "lease": 12, "topic": "two rooms"}, {"id": 2, "lease_months": 6}], topic="FLATS")
    rows = journal.view("messages", queue="FLATS", columns=["id", "lease_months", "subject", "topic"]).to_pylist()
    assert [tuple(row.values()) for row in rows] == [(1, 12, "two rooms", "FLATS"), (2, 6, None, "FLATS")]
