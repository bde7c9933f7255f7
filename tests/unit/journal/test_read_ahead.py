"""Questions to a store that are under way beside each other: in order, one where there is nothing, and no more than allowed."""

from __future__ import annotations

import threading
from itertools import count

import pytest

from spark_queue.journal.read_ahead import read_ahead, read_together
from tests.waiting import wait_until


class Slow:
    """Answers a question by its own number, once it is let go."""

    def __init__(self, *, open_at: int = 0) -> None:
        self.asked: list[int] = []
        self._may_answer = threading.Semaphore(open_at)

    def __call__(self, number: int) -> int:
        self.asked.append(number)
        assert self._may_answer.acquire(timeout=30)
        return number

    def let_go(self, count: int = 1) -> None:
        self._may_answer.release(count)


@pytest.mark.parametrize("at_once", [1, 4])
def test_answers_come_in_order(at_once: int) -> None:
    assert list(read_ahead(lambda number: -number, range(20), at_once=at_once)) == [-number for number in range(20)]


def test_the_first_question_is_asked_alone_and_nothing_behind_it_where_the_caller_stops() -> None:
    ask = Slow(open_at=100)
    for _ in read_ahead(ask, count(), at_once=16):
        break
    assert ask.asked == [0]


def test_more_are_under_way_the_more_have_been_answered_up_to_the_most() -> None:
    ask = Slow(open_at=1)
    answers = read_ahead(ask, count(), at_once=3)
    assert next(answers) == 0
    reader = threading.Thread(target=lambda: [next(answers) for _ in range(3)])
    reader.start()
    wait_until(lambda: len(ask.asked) == 3)
    ask.let_go(100)
    reader.join(30)
    assert not reader.is_alive()
    assert max(ask.asked) <= 3 + 3


def test_an_error_is_raised_in_its_turn() -> None:
    def ask(number: int) -> float:
        return 1 / (3 - number)

    found = list[float]()
    with pytest.raises(ZeroDivisionError):
        found.extend(read_ahead(ask, range(10), at_once=4))
    answers = read_ahead(ask, range(10), at_once=4)
    assert [next(answers) for _ in range(3)] == [1 / 3, 1 / 2, 1.0]


def test_things_that_are_there_are_asked_for_together_from_the_first() -> None:
    ask = Slow()
    reader = threading.Thread(target=lambda: list(read_together(ask, range(5), at_once=3)))
    reader.start()
    wait_until(lambda: len(ask.asked) == 3)
    ask.let_go(5)
    reader.join(30)
    assert not reader.is_alive()
    assert sorted(ask.asked) == list(range(5))
    assert list(read_together(lambda number: -number, range(4), at_once=3)) == [0, -1, -2, -3]
