"""Filters over dead letters: why they died, beside what their messages say (DESIGN 15.11)."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_queue.core import commands
from spark_queue.core.bitmaps.ranges import to_bitmap
from spark_queue.core.records import Outcome
from spark_queue.core.replies import DeadLetters
from spark_queue.errors import ConfigError, JournalError
from spark_queue.journal.expressions import check_command
from tests.deciding import decide
from tests.unit.views.views_world import START_MS, ViewsWorld

TIMEOUT, CARD = "timeout after 30 s at ledger", "card declined"


@pytest.fixture
def world(tmp_path: Path) -> ViewsWorld:
    """Return a journal in which 0 and 3 died of a timeout, 1 of a card, 2 of nothing that is told; 4 lives."""
    made = ViewsWorld(tmp_path)
    made.publish(0, 1, 2)
    made.publish(3, 4)
    for error, bookmarks in {TIMEOUT: [0, 3], CARD: [1], None: [2]}.items():
        made.settle(Outcome.EXPIRE, *bookmarks, error=error)
    return made


def found(world: ViewsWorld, where: str) -> list[int]:
    asked = commands.FindDeadLetters(queue="WORK", where=where)
    check_command(world.engine.state, asked)
    reply = decide(world.engine, asked, now_ms=START_MS)
    assert isinstance(reply, DeadLetters)
    return sorted(to_bitmap(reply.ranges))


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("error LIKE '%timeout%'", [0, 3]),
        ("reason = 'forced_expire'", [0, 1, 2, 3]),
        ("reason = 'max_deliveries'", []),
        ("error IS NULL", [2]),
        ("ERROR LIKE 'card%' OR amount = 3", [1, 3]),
        ("amount < 2 AND Reason <> 'max_cancels' AND length(error) > 15", [0]),
    ],
)
def test_letters_are_found_by_why_they_died(world: ViewsWorld, where: str, expected: list[int]) -> None:
    assert found(world, where) == expected


def test_why_letters_died_takes_no_message_file(world: ViewsWorld) -> None:
    for path in (Path(world.journal.path) / "messages" / "line").glob("*.parquet"):
        path.unlink()
    assert found(world, f"error = '{CARD}'") == [1]
    with pytest.raises(JournalError, match="MESSAGE_FILE_MISSING"):
        found(world, f"error = '{CARD}' AND amount = 1")


@pytest.mark.parametrize(("queue", "accepted"), [("FAILED", True), ("WORK", False)])
def test_dead_letter_queue_is_settled_and_purged_by_why_they_died(world: ViewsWorld, queue: str, *, accepted: bool) -> None:
    """In a queue of messages nothing has died yet, so nobody can ask why."""
    settle = commands.SettleWhere(queue=queue, where="error LIKE 'timeout%'", outcome=Outcome.ACKNOWLEDGE, request="a")
    purge = commands.Purge(queue=queue, where="error IS NULL", request="b")
    if not accepted:
        for command in (settle, purge):
            with pytest.raises(ConfigError, match="EXPRESSION_INVALID.*error"):
                check_command(world.engine.state, command)
        return
    for command in (settle, purge):
        check_command(world.engine.state, command)
        decide(world.engine, command, now_ms=START_MS)
    assert found(world, "true") == [1]
