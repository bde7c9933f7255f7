"""README says what is true: its tables, its drawing, its links, and every name that it mentions (DESIGN 9)."""

from __future__ import annotations

import ast
import re
import tomllib
from dataclasses import fields
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import typer

from spark_queue import Journal
from spark_queue.cli.app import app
from spark_queue.core.state.lifecycle import TRANSITIONS, Event
from spark_queue.core.state.status import QueueStatus
from spark_queue.errors import CATALOGUE
from spark_queue.protocol.connection import TLS_ROOTS_VARIABLE
from spark_queue.protocol.user_files import TOKEN_FILE_VARIABLE
from spark_queue.settings import key_rows, load_definitions, option_rows
from tests import readme
from tests.source_tree import ROOT

TEXT = readme.read()
OPTIONS = {row.name for row in option_rows()}
#: One queue with a message, and one without.
DEFINITIONS = {"message_types": {"json": {"topics": ["ORDERS", "NONE"]}}, "queues": {"ORDERS": {}, "NONE": {}}}
VERBS = typer.main.get_command(app).commands  # type: ignore[attr-defined]  # An application with verbs is a group.


def test_tables_are_those_of_the_registry() -> None:
    assert readme.generated(TEXT) == TEXT, "run `make readme`"


@pytest.mark.parametrize("name", sorted(OPTIONS | {row.name for row in key_rows()}))
def test_every_option_and_key_is_in_a_table(name: str) -> None:
    assert f"\n| `{name}` |" in TEXT


def test_every_figure_of_a_queue_is_explained() -> None:
    """R119."""
    table = TEXT[TEXT.index("| Figure | Meaning |") : TEXT.index("Other verbs:")]
    assert {name for row in re.findall(r"^\| (`.+?) \| ", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)} == {
        entry.name for entry in fields(QueueStatus)
    }


def test_drawing_of_the_lifecycle_is_the_table_of_transitions() -> None:
    [drawing] = readme.blocks("mermaid")
    arrows = re.findall(r"^ +(\w+) --> (\w+): (.+)$", drawing, re.MULTILINE)
    drawn = [(before, after, event) for before, after, events in arrows for event in events.split(", ")]
    assert sorted(drawn) == sorted((str(before), str(after), str(event)) for (before, event), after in TRANSITIONS.items())


@pytest.mark.parametrize("event", Event)
def test_every_event_of_the_drawing_is_explained(event: Event) -> None:
    assert f"\n| `{event}` |" in TEXT


def test_links_lead_somewhere() -> None:
    headings = re.findall(r"^#+ (.+)$", TEXT, re.MULTILINE)
    anchors = {"#" + re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}
    links = re.findall(r"\]\(([^)\s]+)\)", TEXT)
    assert links
    dead = [link for link in links if not (link in anchors or link.startswith("https://") or (ROOT / link).is_file())]
    assert not dead


def test_first_example_is_twenty_lines() -> None:
    assert len([line for line in readme.example("first").splitlines() if line.strip()]) <= 20


@pytest.mark.parametrize("block", readme.blocks("python"))
def test_python_block_compiles_and_names_known_options(block: str) -> None:
    calls = [call for call in ast.walk(ast.parse(block)) if isinstance(call, ast.Call)]
    named = {call.args[0].value for call in calls if _is_option(call) and isinstance(call.args[0], ast.Constant)}
    of_others = {"checkpointLocation", "kafka.bootstrap.servers", "subscribe"}
    assert named <= OPTIONS | of_others


def _is_option(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr == "option"


@pytest.mark.parametrize("block", readme.blocks("toml"))
def test_definitions_are_accepted(block: str) -> None:
    assert load_definitions(tomllib.loads(block)).queues


@pytest.mark.parametrize("command", sorted(set(re.findall(r"\bsparkq [a-z][^`\n#|]*", TEXT))))
def test_command_line_exists(command: str) -> None:
    _, verb, *arguments = command.split()
    known = {name for parameter in VERBS[verb].params for name in parameter.opts}
    assert {argument for argument in arguments if argument.startswith("-")} <= known


def test_error_codes_exist() -> None:
    variables = {TOKEN_FILE_VARIABLE, TLS_ROOTS_VARIABLE, "XDG_CACHE_HOME"}
    named = set(re.findall(r"`([A-Z]+(?:_[A-Z]+)+)`", TEXT))
    assert named
    assert named <= CATALOGUE.keys() | variables


def test_wheel_has_the_name_that_is_told() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert set(re.findall(r"spark_queue-([\d.]+)-py3", TEXT)) == {version}


def test_picture_is_well_formed_and_says_what_it_shows() -> None:
    picture = ET.parse(ROOT / "docs" / "architecture.svg").getroot()
    spoken = {child.tag.rpartition("}")[2] for child in picture if (child.text or "").strip()}
    assert {"title", "desc"} <= spoken


@pytest.mark.parametrize(("limit_s", "code"), [(3_600, 0), (0, 1)])
def test_alert_exits_by_the_age_of_the_oldest_message(tmp_path: Path, limit_s: float, code: int) -> None:
    Journal.create(str(tmp_path / "shop"), DEFINITIONS).publish([{"value": "{}"}], topic="ORDERS")
    done = readme.run_example("alert", "shop", str(limit_s), folder=tmp_path)
    assert (done.returncode, done.stderr) == (code, "")
    assert done.stdout.count("oldest message waits") == done.stdout.count("ORDERS: ") == code


def test_example_of_explaining_tells_what_happened(tmp_path: Path) -> None:
    definitions, *_ = readme.blocks("toml")
    Journal.create(str(tmp_path / "shop"), tomllib.loads(definitions)).publish([{"item": "lamp"}] * 2, topic="ORDERS")
    done = readme.run_example("explain", "shop", "1", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("ORDERS 2 is available\n")
    assert [line.split("\t")[1] for line in done.stdout.splitlines()[1:]] == ["published", "committed"]


def test_example_of_publishing_publishes_and_drops_the_repeat(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    definitions, *_ = readme.blocks("toml")
    journal = Journal.create(str(tmp_path / "shop"), tomllib.loads(definitions))
    exec(readme.example("publish"), {"journal": journal, "rows": [{"item": "kettle"}, {"item": "lamp"}]})
    assert capsys.readouterr().out == "0 published, 2 dropped\n"
    assert journal.queue("WORK").status().entered == 8
