"""Redriving at a pace, from the caller's side (DESIGN 15.13)."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from spark_queue import Journal
from spark_queue.client import queue, redriving
from spark_queue.core import commands, replies
from spark_queue.errors import ConfigError

#: Stands for the coordinator.
Ask = Callable[[commands.AnyCommand], replies.CoreReply]
Redrive = Callable[..., replies.Redriven]


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the pauses, which take no time."""
    pauses: list[float] = []
    monkeypatch.setattr(redriving, "time", SimpleNamespace(sleep=pauses.append))
    return pauses


@pytest.fixture
def redrive(monkeypatch: pytest.MonkeyPatch, slept: list[float]) -> Redrive:
    def redriven(ask: Ask, where: str | None, **options: Any) -> replies.Redriven:
        monkeypatch.setattr(queue.Queue, "_ask", lambda _queue, command, **_how: ask(command))
        return Journal("/nowhere").queue("Q").redrive(where, **options)

    return redriven


def test_each_second_is_a_request_of_its_own_and_what_was_skipped_is_counted(redrive: Redrive, slept: list[float]) -> None:
    asked: list[tuple[Any, ...]] = []
    progress: list[tuple[int, int]] = []

    def ask(command: commands.AnyCommand) -> replies.CoreReply:
        if isinstance(command, commands.FindDeadLetters):
            assert command == commands.FindDeadLetters(queue="Q", where="amount > 1")
            return replies.DeadLetters(ranges=((0, 3), (5, 7)), skipped=4)
        assert isinstance(command, commands.Redrive)
        assert command.queue == "Q"
        asked.append(command.ranges)
        return replies.Redriven(requested=2, redriven=1, skipped=1)

    done = redrive(ask, "amount > 1", per_second=2, on_progress=lambda *counts: progress.append(counts))
    assert asked == [((0, 2),), ((2, 3), (5, 6)), ((6, 7),)]
    assert done == replies.Redriven(requested=9, redriven=3, skipped=6)
    assert (slept, progress) == ([1, 1], [(6, 9), (8, 9), (9, 9)])


def test_the_slowest_pace_is_one_a_second(redrive: Redrive) -> None:
    asked: list[tuple[Any, ...]] = []

    def ask(command: commands.AnyCommand) -> replies.CoreReply:
        if isinstance(command, commands.FindDeadLetters):
            return replies.DeadLetters(ranges=((4, 6),), skipped=0)
        assert isinstance(command, commands.Redrive)
        assert command.queue == "Q"
        asked.append(command.ranges)
        return replies.Redriven(requested=1, redriven=1, skipped=0)

    assert redrive(ask, None, per_second=1).redriven == 2
    assert asked == [((4, 5),), ((5, 6),)]


def test_without_a_pace_everything_is_one_request(redrive: Redrive) -> None:
    def ask(command: commands.AnyCommand) -> replies.CoreReply:
        if isinstance(command, commands.FindDeadLetters):
            return replies.DeadLetters(ranges=((0, 3),), skipped=0)
        return replies.Redriven(requested=3, redriven=3, skipped=0)

    assert redrive(ask, None).redriven == 3


def test_a_pace_below_one_is_refused(redrive: Redrive) -> None:
    def ask(_: commands.AnyCommand) -> replies.CoreReply:
        raise AssertionError("nothing is asked")

    with pytest.raises(ConfigError, match="per_second"):
        redrive(ask, None, per_second=0)


@pytest.mark.parametrize(
    ("where", "given", "key"),
    [
        (None, {"bookmarks": [-1]}, "bookmarks"),
        (None, {"bookmarks": [2**64]}, "bookmarks"),
        (None, {"bookmarks": ["1"]}, "bookmarks"),
        (None, {"error": 5}, "error"),
        (True, {}, "where"),
        ("item = '\udcff'", {}, "where"),
    ],
)
def test_what_is_no_bookmark_and_no_text_is_refused(redrive: Redrive, where: Any, given: dict[str, Any], key: str) -> None:
    def ask(_: commands.AnyCommand) -> replies.CoreReply:
        raise AssertionError("nothing is asked")

    with pytest.raises(ConfigError, match=rf"\[BAD_VALUE\] '{key}' in "):
        redrive(ask, where, **given)
