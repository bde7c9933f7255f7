"""Ownership on its way: what is asked for, how often, and what a log says of it that is read again (R104, R105)."""

from __future__ import annotations

import pytest
from pyroaring import BitMap64

from spark_queue.core.bitmaps.ranges import to_bitmap
from spark_queue.core.deciding.instances import transfers
from tests.fake_clock import FakeClock
from tests.records import detail_of
from tests.scenario.instances import Consumer, Instance, ask, exchange


def test_what_one_request_cannot_name_is_in_the_next(
    pair: tuple[Instance, Instance], clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R104: behind what was asked for in vain, and then from the beginning."""
    monkeypatch.setattr(transfers, "NAMED_MOST", 4)
    frankfurt, virginia = pair
    frankfurt.publish(10)
    exchange(*pair)
    busy, idle = Consumer(frankfurt), Consumer(virginia)
    assert len(busy.take(limit=9)) == 9
    for _ in range(3):
        clock.advance(5_000)
        idle.take(limit=1)
        exchange(*pair)
    asked = [list(to_bitmap(each.ranges)) for each in virginia.world.committed if each.kind == "transfer_requested"]
    assert asked == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert idle.take() == [9]
    clock.advance(5_000)
    idle.take()
    assert virginia.ownership().requests["frankfurt"].rows == BitMap64([0, 1, 2, 3])


def test_what_was_left_out_when_it_was_pulled_is_gone_for_who_asks(pair: tuple[Instance, Instance]) -> None:
    frankfurt, _ = pair
    frankfurt.publish(2)
    ask(frankfurt, {"uuid-of-virginia": [7, 8, 20], "uuid-of-frankfurt": [0, 5]}, life=3)
    told = [detail_of(record) for record in frankfurt.world.committed if record.kind == "not_in_queue"]
    assert told == [{"origins": {"uuid-of-virginia": [[7, 9], [20, 21]]}, "life": 3}]


def test_an_owner_says_again_what_has_ended_to_who_goes_on_asking(pair: tuple[Instance, Instance], clock: FakeClock) -> None:
    """R105: virginia missed it, and would ask for ever; of what was redriven meanwhile nothing is said."""
    frankfurt, virginia = pair
    frankfurt.publish(3)
    virginia.pull(frankfurt)
    consumer = Consumer(frankfurt)
    assert consumer.take(limit=2) == [0, 1]
    assert consumer.take(limit=1) == [2]
    for seconds, count in ((0, 0), (4, 0), (1, 1), (1, 1), (4, 2)):
        clock.advance(1_000 * seconds)
        ask(frankfurt, {"uuid-of-frankfurt": [0, 1, 2]})
        assert frankfurt.count("not_in_queue") == count
    clock.advance(5_000)
    ask(frankfurt, {"uuid-of-frankfurt": [0, 1, 2]}, life=1)
    assert frankfurt.count("not_in_queue") == 2
    virginia._read["frankfurt"] = max(
        number for number, record in enumerate(frankfurt.world.committed) if record.kind == "not_in_queue"
    )
    virginia.pull(frankfurt)
    assert (virginia.rows("removed"), virginia.rows("remote")) == ([0, 1], [2])
