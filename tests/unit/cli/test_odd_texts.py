"""Odd texts for every argument and option of every verb: an error by name, and nothing is asked of a coordinator."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from spark_queue import Journal
from spark_queue.cli.app import app
from tests.unit.cli.sparkq import Terminal

#: A text with a byte that is no UTF-8, as Linux hands it over.
SURROGATE = "a\udcff"

#: Verbs that serve until they are ended.
SERVING = frozenset({"dashboard", "serve"})

#: Fitting values of what a verb cannot do without.
PLAIN: dict[str, str] = {
    "queue": "WORK", "subscription": "s", "checkpoint": "gone", "switch": "on", "definitions": "queues.toml", "file": "lines.csv",
    "bookmark": "0", "destination": "copy", "peer": "there", "name": "ann", "where": "amount > 0", "without": "there",
    "function": "os:getpid", "message_type": "line", "from_": "now",
}  # fmt: skip

DEFINITIONS = {
    "message_types": {"line": {"columns": "item STRING, amount BIGINT", "topics": ["LINES"]}},
    "queues": {"WORK": {"underlying_topic": "LINES"}},
}


def _verbs(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if hasattr(group, "commands"):
        for name, found in group.commands.items():
            yield from _verbs(found, (*path, name))
    elif path[0] not in SERVING:
        yield path, group


def _takes_text(parameter: Any) -> bool:
    return parameter.name != "help" and not getattr(parameter, "is_flag", False)


def cases() -> list[Any]:
    return [
        pytest.param(path, parameter.name, id=f"{'-'.join(path)}:{parameter.name}")
        for path, verb in _verbs(typer.main.get_command(app))
        for parameter in verb.params
        if _takes_text(parameter)
    ]


class AskedError(Exception):
    """The call would have gone to a coordinator."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make one journal for all of it: what is refused changes nothing."""
    place = tmp_path_factory.mktemp("odd")
    made = Journal.create(str(place / "journal"), DEFINITIONS)
    made.publish([{"item": "a", "amount": 1}], topic="LINES")
    (place / "lines.csv").write_text("item,amount\na,1\n", encoding="utf-8")
    lines = '[message_types.line]\ncolumns = "item STRING, amount BIGINT"\ntopics = ["LINES"]\n'
    (place / "queues.toml").write_text(lines, encoding="utf-8")
    return place


@pytest.fixture
def journal(place: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(place)

    def ask(*_: object, **__: object) -> None:
        raise AskedError

    monkeypatch.setattr("spark_queue.client.coordinator_client.CoordinatorClient.call", ask)
    return str(place / "journal")


def typed(path: tuple[str, ...], odd: str, value: str, journal: str) -> list[str]:
    """Return the words of a verb with one odd value, and fitting ones where it needs them."""
    verb = next(found for known, found in _verbs(typer.main.get_command(app)) if known == path)
    words = list(path)
    for parameter in verb.params:
        given = value if parameter.name == odd else journal if parameter.name in ("path", "journals") else PLAIN.get(parameter.name)
        if parameter.name not in (odd, "path") and not parameter.required:
            continue
        assert given is not None, f"PLAIN has no {parameter.name}"
        words += [given] if parameter.param_type_name == "argument" else [parameter.opts[0], given]
    return words


@pytest.mark.drawn(40)
@pytest.mark.parametrize(("path", "parameter"), cases())
def test_a_text_that_is_no_utf_8_is_refused(
    journal: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], path: tuple[str, ...], parameter: str
) -> None:
    sparkq = Terminal(monkeypatch=monkeypatch, capsys=capsys)
    answer = sparkq(*typed(path, parameter, SURROGATE, journal))
    assert (answer.code, "Traceback" in answer.err, "[INTERNAL]" in answer.err) in ((1, False, False), (2, False, False)), (
        answer.err
    )
    assert answer.code == 2 or re.search(r"\[[A-Z_]{6,}\]", answer.err + answer.out), "it says by a code what is wrong"
