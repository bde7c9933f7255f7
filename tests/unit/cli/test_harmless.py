"""What others wrote reaches a terminal as text: it is no markup, commands nothing, and forges no line."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from spark_queue import Journal
from spark_queue.cli import output
from spark_queue.errors import ConfigError
from tests.unit.cli.sparkq import Answer, Terminal
from tests.unit.dashboard.dashboard_world import DashboardWorld

#: Ends what was not begun, is a link, names a picture; writes clipboard and screen, has C1, and turns the direction.
MARKUP = "\\[/x] [/x] \\[link=https://example.com]I[/link] [bold red]ALARM[/] :smile:"
COMMANDS = "\x1b]52;c;cm0gLXJmIH4K\x07\x1b[2J\x1b[1A\r\x08\x00\x7f\x9b31m\u202eabc\u2066\u2028"
HOSTILE = f"{MARKUP} {COMMANDS}"

#: As people see the commands.
SHOWN = r"\x1b]52;c;cm0gLXJmIH4K\x07\x1b[2J\x1b[1A\x0d\x08\x00\x7f\x9b31m\u202eabc\u2066\u2028"

PIECES = [*MARKUP.split(), *COMMANDS, "\ud800", "\udcff", "\n", "\t", "[", "]", "\\", "e\u0301", "\u597d", "x"]
STRANGE_TEXT = st.lists(st.one_of(st.sampled_from(PIECES), st.characters()), max_size=12).map("".join)


def is_harmless(text: str) -> bool:
    """Tell by Unicode's own tables: no control but tab and end of line, nothing that turns the direction, no half character."""
    turning = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
    kinds = {unicodedata.category(each) for each in text if each not in "\n\t"}
    return not kinds & {"Cc", "Cs", "Zl", "Zp"} and not turning & {unicodedata.bidirectional(each) for each in text}


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is cut, and styles are written as to a terminal."""
    monkeypatch.setattr(output, "CELL_CHARACTERS", 10_000)


@given(STRANGE_TEXT)
def test_any_text_is_shown_and_commands_nothing(text: str) -> None:
    shown = output.harmless(text)
    assert is_harmless(shown)
    assert shown == text or not is_harmless(text)
    with (console := Console(width=2_000, highlight=False)).capture() as captured:
        console.print(output.table([{text: text}], [text], title="t", cut=False), output.styled(text))
    assert is_harmless(captured.get())


@given(STRANGE_TEXT)
def test_json_reads_exactly_as_it_was_and_commands_nothing(text: str) -> None:
    written: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdout.write", written.append)
        output.show_json({"text": text})
    assert is_harmless("".join(written))
    # JSON has no two forms for a pair of surrogates and the character that they mean.
    as_read = text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    assert json.loads("".join(written)) == {"text": as_read}


@pytest.mark.parametrize(("number", "text"), [(float("nan"), "NaN"), (float("inf"), "Infinity"), (-float("inf"), "-Infinity")])
def test_json_has_texts_for_numbers_that_it_does_not_have(number: float, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    output.show_json([{"column": number, "parts": (1.5, {"deep": number})}])
    shown = json.loads(capsys.readouterr().out, parse_constant=lambda said: pytest.fail(f"{said} is no JSON"))
    assert shown == [{"column": text, "parts": [1.5, {"deep": text}]}]


def texts(value: Any) -> list[str]:
    """Return every text in what JSON holds."""
    if isinstance(value, dict | list):
        return [text for each in (value.values() if isinstance(value, dict) else value) for text in texts(each)]
    return [value] if isinstance(value, str) else []


def check(answer: Answer, *, times: int = 1) -> None:
    assert answer.code in (0, output.ALARM_EXIT_CODE), answer.err
    # Cells fold where the column ends.
    said = "".join(part.strip() for line in answer.out.splitlines() for part in line.split("\u2502")).replace(" ", "")
    assert is_harmless(answer.out)
    assert said.count(SHOWN) >= times
    assert said.count(MARKUP.replace(" ", "")) >= times


@pytest.fixture
def world(tmp_path: Path) -> DashboardWorld:
    made = DashboardWorld(tmp_path)
    made.publish(3, 1, item=HOSTILE)
    made.expire("BILLING", range(1), HOSTILE, 2)
    made.commit()
    return made


@pytest.mark.parametrize(
    "arguments",
    [
        lambda path: ("peek", path, "BILLING", "--columns", "item"),
        lambda path: ("peek", path, "BILLING", "--where", "amount < 5", "--columns", "item"),
        lambda path: ("peek", path, "BILLING", "--view", "dead_letters", "--columns", "error"),
        lambda path: ("dead-letters", path, "BILLING"),
        lambda path: ("explain", path, "BILLING", "0"),
        lambda path: ("log", path),
    ],
    ids=["peek", "peek --where", "peek --view", "dead-letters", "explain", "log"],
)
def test_verbs_show_what_others_wrote_as_it_is(
    sparkq: Terminal, world: DashboardWorld, monkeypatch: pytest.MonkeyPatch, arguments: Callable[[str], tuple[str, ...]]
) -> None:
    monkeypatch.setattr(output, "WIDE", 1_000)
    output.out.cache_clear()
    given_arguments = arguments(world.journal.path)
    check(sparkq(*given_arguments))
    told = sparkq(*given_arguments, "--json")
    assert is_harmless(told.out)
    assert any(HOSTILE in text for text in texts(told.json))
    output.out.cache_clear()


def test_an_error_that_names_what_others_wrote_is_harmless(sparkq: Terminal, journal: Journal) -> None:
    answer = sparkq("peek", journal.path, HOSTILE)
    assert answer.code == 1
    assert is_harmless(answer.err)
    assert SHOWN in answer.err
    assert MARKUP in answer.err


def test_refusals_warnings_and_alarms_are_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    output.show_error(ConfigError("UNKNOWN_QUEUE", queue=HOSTILE, nearest=""), as_json=False)
    output.warn("warning", HOSTILE, style="yellow")
    output.say(HOSTILE, style="bold red")
    output.say(HOSTILE)
    said = capsys.readouterr()
    for text in (said.out, said.err):
        assert is_harmless(text)
        assert text.count(SHOWN) == text.count(MARKUP) == 2


def test_an_error_of_several_lines_forges_none(sparkq: Terminal, world: DashboardWorld) -> None:
    world.expire("BILLING", range(1, 2), "boom\n  2030-01-01T00:00:00+00:00  nothing went wrong", 3)
    world.commit()
    lines = sparkq("explain", world.journal.path, "BILLING", "1").out.splitlines()
    forged = [line for line in lines if line.endswith("nothing went wrong")]
    assert forged
    assert all(line.startswith(" " * 6) for line in forged)


def test_metrics_are_exact_for_programs_and_harmless_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    output.show_exact(COMMANDS)
    assert capsys.readouterr().out == COMMANDS
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    output.show_exact(COMMANDS)
    assert capsys.readouterr().out == SHOWN


#: As Linux hands the byte 0xff over that stands in an argument.
NO_UTF8 = "a\udcff"


def test_what_is_no_utf8_is_refused_before_anything_is_made(sparkq: Terminal, journal: Journal, tmp_path: Path) -> None:
    before = set(tmp_path.iterdir())
    for arguments in (
        ("init", tmp_path / NO_UTF8),
        ("backup", journal.path, tmp_path / NO_UTF8),
        ("init", f"s3://bucket/{NO_UTF8}"),
    ):
        done = sparkq(*arguments)
        assert (done.code, "[BAD_VALUE] 'path' in the call is" in done.err) == (1, True)
        assert "but it must be a text in UTF-8." in done.err
    assert set(tmp_path.iterdir()) == before
    for chosen in ((NO_UTF8,), ("--kind", NO_UTF8)):
        done = sparkq("log", journal.path, *chosen)
        assert (done.code, "[BAD_VALUE]" in done.err, "a\\udcff" in done.err) == (1, True, True)


def test_an_empty_text_is_no_path_and_no_name(
    sparkq: Terminal, journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A variable of a shell that is not set must not be the working directory, all queues, or another token."""
    monkeypatch.chdir(tmp_path)
    before = set(tmp_path.iterdir())
    for arguments in (
        ("init", ""),
        ("status", ""),
        ("log", journal.path, ""),
        ("log", journal.path, "--kind", ""),
        ("pause", journal.path, "WORK", "--token-file", ""),
    ):
        done = sparkq(*arguments)
        assert (done.code, "[BAD_VALUE]" in done.err, "is ''" in done.err) == (1, True, True), arguments
    assert set(tmp_path.iterdir()) == before
