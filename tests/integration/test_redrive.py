"""Redriving dead letters with real coordinator processes: by filter, at a pace, interrupted and killed (DESIGN 8, 15.11, 15.13)."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from spark_queue import Journal
from spark_queue.core.records import Kind
from spark_queue.errors import SparkQueueError
from spark_queue.protocol import wire
from tests.integration.coordinator_world import DEADLINE_S, QUEUE, MakeWorld, Planner, World, request_id, wait_for_end
from tests.integration.faulty_coordinator import Faults
from tests.integration.source_journal import end_coordinator, wait_until
from tests.unit.cli.sparkq import Terminal

LETTERS = 10

DEFINITIONS = {
    "message_types": {"line": {"columns": "item STRING, amount BIGINT", "topics": ["LINES"]}},
    "queues": {"LINES": {"dead_letter_queue": "FAILED"}, "FAILED": {"message_type": "line"}},
}


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    """Make a journal in which half of the messages are dead letters."""
    journal = Journal.create(str(tmp_path / "journal"), DEFINITIONS)
    journal.publish([{"item": f"item {amount}", "amount": amount} for amount in range(2 * LETTERS)], topic="LINES")
    assert journal.queue("LINES").settle(where="amount % 2 = 0", outcome="expire").expired == LETTERS
    yield journal
    end_coordinator(journal)


def contents(journal: Journal, queue: str) -> dict[int, int]:
    """Return what waits in a queue: amounts by bookmark."""
    found = journal.view("messages", queue=queue).to_pylist()
    return {row["bookmark"]: row["amount"] for row in found}


def redriven(journal: Journal, queue: str) -> list[int]:
    """Return the bookmarks that the log says were redriven, each as often as it was."""
    history = journal.view("history", queue=queue).to_pylist()
    ranges = [piece for row in history if row["kind"] == Kind.REDRIVEN for piece in row["ranges"]]
    return sorted(row for piece in ranges for row in range(piece["first"], piece["until"]))


def has_redriven_more_than(journal: Journal, count: int) -> bool:
    return len(redriven(journal, "LINES")) > count


def test_a_filter_chooses_letters_by_their_bodies_and_bookmarks_are_kept(journal: Journal) -> None:
    done = journal.queue("LINES").redrive("amount < 6")
    assert (done.requested, done.redriven, done.skipped) == (3, 3, 0)
    assert contents(journal, "LINES") == {amount: amount for amount in range(2 * LETTERS) if amount % 2 or amount < 6}
    assert contents(journal, "FAILED") == {amount: amount for amount in range(6, 2 * LETTERS, 2)}
    assert sorted(row["bookmark"] for row in journal.view("dead_letters", queue="LINES").to_pylist()) == list(range(6, 20, 2))
    # A letter that was settled in the dead-letter queue is over, and nobody asks for it.
    assert journal.queue("FAILED").settle([18]).acknowledged == 1
    done = journal.queue("LINES").redrive(per_second=LETTERS)
    assert (done.requested, done.redriven, done.skipped) == (6, 6, 0)
    assert contents(journal, "LINES") == {amount: amount for amount in range(2 * LETTERS) if amount != 18}


def test_a_filter_that_cannot_be_evaluated_is_refused_and_changes_nothing(journal: Journal) -> None:
    for where in ("amuont < 3", "amount <", "rand() < 0.5"):
        with pytest.raises(SparkQueueError, match="EXPRESSION"):
            journal.queue("LINES").redrive(where)
    assert len(contents(journal, "FAILED")) == LETTERS


def test_a_caller_that_ends_in_the_middle_keeps_what_is_done_and_a_repeat_goes_on(journal: Journal, terminal: Terminal) -> None:
    """Ctrl-C ends it, and so does `kill -9`; every letter is redriven once."""
    command = [sys.executable, "-m", "spark_queue.cli", "redrive", journal.path, "LINES", "--per-second", "1", "--json"]
    for end in (signal.SIGINT, signal.SIGKILL):
        before = len(redriven(journal, "LINES"))
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as caller:
            wait_until(partial(has_redriven_more_than, journal, before))
            caller.send_signal(end)
            output, _ = caller.communicate(timeout=DEADLINE_S)
        assert (caller.returncode, output) == (130 if end == signal.SIGINT else -signal.SIGKILL, "")
    gone = len(redriven(journal, "LINES"))
    assert 2 <= gone < LETTERS
    last = terminal("redrive", journal.path, "LINES", "--where", "amount < 100", "--json")
    assert last.json == {"queue": "LINES", "requested": LETTERS - gone, "redriven": LETTERS - gone, "skipped": 0}
    assert redriven(journal, "LINES") == redriven(journal, "FAILED") == list(range(0, 2 * LETTERS, 2))
    assert terminal("redrive", journal.path, "LINES").out == "Queue 'LINES': 0 of 0 dead letters are back, 0 were skipped.\n"
    assert contents(journal, "LINES") == {amount: amount for amount in range(2 * LETTERS)}


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    """Make a journal whose messages are all dead letters, and which nobody serves."""
    world = make_world(queue={"dead_letter_queue": "FAILED"})
    world.publish(LETTERS)
    pid = world.ping().pid
    Journal(world.store.path).queue(QUEUE).settle(list(range(LETTERS)), "expire")
    world.client().call(wire.Stop(journal=world.journal_id, request=request_id()))
    wait_for_end(pid)
    return world


@pytest.mark.drawn(1)
@pytest.mark.parametrize("die", ["before", "staged", "committed", "answerless"])
def test_a_coordinator_that_is_killed_in_the_middle_redrives_every_letter_once(world: World, die: str) -> None:
    victim = world.started(Faults(die=die, at_kind=Kind.REDRIVEN))
    journal = Journal(world.store.path)
    seen: list[tuple[int, int]] = []
    done = journal.queue(QUEUE).redrive(per_second=LETTERS // 2, on_progress=lambda *counts: seen.append(counts))
    assert victim.wait(DEADLINE_S) == -signal.SIGKILL
    # The caller did not even notice.
    assert (done.redriven, done.skipped, seen) == (LETTERS, 0, [(LETTERS // 2, LETTERS), (LETTERS, LETTERS)])
    assert redriven(journal, QUEUE) == redriven(journal, "FAILED") == list(range(LETTERS))
    assert [claim.epoch for claim in world.claims()] == [1, 2, 3]
    again = journal.queue(QUEUE).redrive()
    assert (again.requested, again.redriven) == (0, 0)
    assert sorted(Planner(world).consume()) == list(range(LETTERS))
