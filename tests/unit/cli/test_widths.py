"""Tables on terminals of any width: no word is broken, no line is too long, and what finds no room is counted."""

from __future__ import annotations

import re

import pytest

from spark_queue.cli import output
from spark_queue.core import commands
from tests.unit.cli.sparkq import Terminal
from tests.unit.dashboard.dashboard_world import DashboardWorld

WIDTHS = (60, 72, 80, 100)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> DashboardWorld:
    made = DashboardWorld(tmp_path_factory.mktemp("widths"))
    made.publish(140, 1)
    made.attach("BILLING", "consumer_of_the_east", 2)
    made.work("BILLING", 10, 3)
    made.expire("SHIPPING", range(4, 9), "carrier says: no such address", 4)
    for number in range(120):
        made.decide(commands.Pause(queue="REFUNDS") if number % 2 else commands.Unpause(queue="REFUNDS"), 5 + number)
    made.decide(commands.Pause(queue="REFUNDS"), 150)
    made.commit()
    return made


def lines_of(sparkq: Terminal, monkeypatch: pytest.MonkeyPatch, width: int, *arguments: object) -> list[str]:
    """Return what a verb prints on a terminal of some width."""
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    output.out.cache_clear()
    try:
        return re.sub(r"\x1b\[[0-9;]*m", "", sparkq(*arguments).out).splitlines()
    finally:
        output.out.cache_clear()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("verb", ["status", "peek", "dead-letters", "log"])
def test_no_word_is_broken_on_a_narrow_terminal(
    sparkq: Terminal, world: DashboardWorld, monkeypatch: pytest.MonkeyPatch, verb: str, width: int
) -> None:
    queue = ["SHIPPING"] if verb in ("peek", "dead-letters") else []
    arguments = (verb, world.journal.path, *queue)
    narrow, wide = (lines_of(sparkq, monkeypatch, each, *arguments) for each in (width, 2_000))
    table = [line for line in narrow if not re.search(r"for lack of room|sparkq | records\.", line)]
    assert max(map(len, table)) <= width
    known = words_of(wide)
    # A path or a key may be longer than any column.
    long = " ".join(word for word in known if len(word) > output.WORD_CHARACTERS)
    assert [word for word in words_of(table) - known if word not in long] == []


def words_of(lines: list[str]) -> set[str]:
    return set(re.sub(r"[\u2500-\u257f]", " ", "\n".join(lines)).split())


@pytest.mark.parametrize("width", WIDTHS)
def test_what_finds_no_room_is_counted(
    sparkq: Terminal, world: DashboardWorld, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    told = lines_of(sparkq, monkeypatch, width, "status", world.journal.path)
    head = [line for line in told if line.startswith("┃")]
    assert any("queue" in line and "paused" in line for line in head)
    (left_out,) = [int(line.split()[0]) for line in told if "for lack of room; --json shows all." in line]
    assert head[0].count("┃") - 1 + left_out == 12


def test_a_row_becomes_a_block_where_all_of_it_is_needed(
    sparkq: Terminal, world: DashboardWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = lines_of(sparkq, monkeypatch, 60, "log", world.journal.path, "-n", 2)
    assert [re.split(r"\s{2,}", line.strip())[:1] for line in told[:8]] == [
        ["record"], ["at"], ["kind"], ["queue"], ["subscription"], ["messages"], ["text"], ["who"],
    ]  # fmt: skip
    assert re.fullmatch(r"text +paused", told[6].strip())
    assert told[8].strip() == ""


def test_the_log_gives_as_many_records_as_are_asked_for(sparkq: Terminal, world: DashboardWorld) -> None:
    total = world.opened.record_rows().count
    given = [len(sparkq("log", world.journal.path, "-n", asked, "--json").json) for asked in (20, 101, 5_000)]
    assert given == [20, 101, total]
