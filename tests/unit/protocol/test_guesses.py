"""How many tokens an address may try."""

from __future__ import annotations

import logging
import threading

import pytest

from spark_queue.protocol.guesses import ADDRESSES_MAX, FREE_GUESSES, GUESS_MS, GuessLimit
from tests.fake_clock import FakeClock

HERE, THERE = "10.0.0.7", "10.0.0.8"


def wrong() -> bool:
    return False


def right() -> bool:
    return True


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def test_some_are_free_and_each_further_one_takes_its_time(clock: FakeClock) -> None:
    limit = GuessLimit(clock)
    assert [limit.looked_at(HERE, wrong) for _ in range(FREE_GUESSES + 2)] == [False] * FREE_GUESSES + [None] * 2
    for _ in range(3):
        clock.advance(GUESS_MS - 1)
        assert limit.looked_at(HERE, right) is None
        clock.advance(1)
        assert limit.looked_at(HERE, wrong) is False
    clock.advance(FREE_GUESSES * GUESS_MS)
    assert limit.looked_at(HERE, right) is True


def test_the_right_token_is_not_counted_and_what_others_guess_is_theirs(clock: FakeClock) -> None:
    limit = GuessLimit(clock)
    assert [limit.looked_at(HERE, right) for _ in range(20)] == [True] * 20
    assert [limit.looked_at(THERE, wrong) for _ in range(20)].count(None) == 20 - FREE_GUESSES
    assert limit.looked_at(HERE, wrong) is False


def test_guesses_at_once_are_not_more(clock: FakeClock) -> None:
    limit, found = GuessLimit(clock), list[bool | None]()
    threads = [threading.Thread(target=lambda: found.append(limit.looked_at(HERE, wrong))) for _ in range(40)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert (found.count(False), found.count(None)) == (FREE_GUESSES, 40 - FREE_GUESSES)


@pytest.mark.parametrize(
    ("addresses", "are_one"),
    [
        ([f"2001:db8::{number:x}" for number in range(1, 9)], True),
        ([f"fe80::{number:x}%eth0" for number in range(1, 9)], True),
        ([f"2001:db8:0:{number:x}::1" for number in range(1, 9)], False),
        ([f"10.0.0.{number}" for number in range(1, 9)], False),
        (["nobody knows"] * 8, True),
    ],
)
def test_a_network_of_ipv6_is_one_address(clock: FakeClock, addresses: list[str], are_one: bool) -> None:
    limit = GuessLimit(clock)
    assert ([limit.looked_at(each, wrong) for each in addresses].count(None) > 0) == are_one


def test_what_is_remembered_and_logged_is_bounded(clock: FakeClock, caplog: pytest.LogCaptureFixture) -> None:
    limit = GuessLimit(clock)
    for number in range(ADDRESSES_MAX + 10):
        limit.looked_at(f"10.1.{number >> 8}.{number & 255}", wrong)
    assert len(limit._until) == ADDRESSES_MAX
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        for _ in range(100):
            clock.advance(GUESS_MS)
            limit.looked_at(HERE, wrong)
    assert len(caplog.records) == 7
