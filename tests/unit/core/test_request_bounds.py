"""How large what is said of requests may become: in one record, and in memory (R104, R105)."""

from __future__ import annotations

from typing import Any

import pytest
from pyroaring import BitMap64

from spark_queue.core import commands
from spark_queue.core.bitmaps.ranges import to_bitmap
from spark_queue.core.deciding.instances import requests, transfers
from spark_queue.core.deciding.instances.replicating import News, Pulled
from spark_queue.core.deciding.instances.transfers import NAMED_MOST
from spark_queue.core.folds.replication import COUNTED_MOST
from spark_queue.core.state import ownership
from spark_queue.core.state.ownership import MessageValue, Stage
from spark_queue.journal.record_table import to_table
from spark_queue.replication.news import PeerFold
from spark_queue.replication.record_checks import ABSENT_MOST
from spark_queue.verification.state_digest import digest
from tests.fake_clock import FakeClock
from tests.records import detail_of, value_told
from tests.scenario.instances import QUEUES, Instance, ask, exchange
from tests.scenario.traits import PublishedMessage

NARROW = {**QUEUES, "WORK": {**QUEUES["WORK"], "filter": "body = 'wanted'"}}

#: What whoever reads a record of a peer takes at most: bytes of its detail, and ranges.
DETAIL_BYTES, RANGES = 16 * 1024 * 1024, 2**22


def test_a_message_that_was_delivered_ever_so_often_costs_little(pair: tuple[Instance, Instance]) -> None:
    """A peer may say so of any message; that a limit of here was reached is known all the same (R54)."""
    frankfurt, virginia = pair
    frankfurt.define({**QUEUES, "WORK": {**QUEUES["WORK"], "max_deliveries": 3_000}})
    virginia.publish(1)
    frankfurt.pull(virginia)
    value = MessageValue(0, Stage.PRESENT, 1, "frankfurt")
    often = News(
        queue="WORK", message_type="json", rows={virginia.world.journal_id: BitMap64([0])}, reason="transferred",
        replicated=value_told(value, deliveries=10**9, cancels=10**9),
    )  # fmt: skip
    frankfurt.world.engine.pull(
        Pulled(peer="virginia", journal=virginia.world.journal_id, record=99, digest="", news=[often]), now_ms=0
    )
    ledger = frankfurt.world.state.queues["WORK"]
    assert (ledger.delivered.of(0), ledger.cancelled.of(0)) == (3_000, COUNTED_MOST)


def told(instance: Instance) -> list[dict[str, BitMap64]]:
    """Return what records of an instance say that was never in its queue."""
    records = (each for each in instance.world.committed if each.kind == "not_in_queue")
    return [{origin: to_bitmap(ranges) for origin, ranges in detail_of(record)["origins"].items()} for record in records]


def test_a_record_of_what_never_was_in_a_queue_can_be_read_whatever_was_asked_for(clock: FakeClock) -> None:
    frankfurt = Instance("frankfurt", ["virginia"], clock)
    frankfurt.publish(1)
    first = 2**53 - 2 * NAMED_MOST - 2
    ask(frankfurt, {"uuid-of-virginia": range(first, first + 2 * NAMED_MOST, 2)})
    (record,) = [each for each in frankfurt.world.committed if each.kind == "not_in_queue"]
    (detail,) = to_table([record]).column("detail").to_pylist()
    assert len(str(detail)) <= DETAIL_BYTES
    fold = PeerFold("frankfurt")
    for each in frankfurt.world.committed:
        assert fold.fold(each) is not None or each.kind != "not_in_queue", "whoever reads it takes it"


def test_a_request_for_more_than_any_record_may_name_is_answered_in_part(clock: FakeClock) -> None:
    frankfurt = Instance("frankfurt", ["virginia"], clock)
    frankfurt.publish(1)
    ask(frankfurt, {"uuid-of-virginia": to_bitmap([(0, ABSENT_MOST + 1)])})
    (absent,) = told(frankfurt)
    assert 0 < len(absent["uuid-of-virginia"]) <= ABSENT_MOST


def test_what_one_record_cannot_say_is_said_at_the_next_request(
    pair: tuple[Instance, Instance], monkeypatch: pytest.MonkeyPatch
) -> None:
    """R105."""
    monkeypatch.setattr(requests, "ABSENT_RANGES", 2)
    frankfurt, _ = pair
    frankfurt.define(NARROW)
    for body in ("wanted", "") * 5:
        frankfurt.world.publish("json", [PublishedMessage(topic="T", attributes={"body": body})])
    frankfurt.decide(commands.Pause(queue="WORK"))
    left = BitMap64(range(10))
    for count in (2, 3, 5):
        ask(frankfurt, {"uuid-of-frankfurt": left})
        left -= told(frankfurt)[-1]["uuid-of-frankfurt"]
        assert list(left) == [row for row in range(10) if row not in [1, 3, 5, 7, 9][:count]]


def test_a_message_is_told_by_all_its_names_or_not_yet(pair: tuple[Instance, Instance], monkeypatch: pytest.MonkeyPatch) -> None:
    """R105: who asks may know it by one of them only."""
    monkeypatch.setattr(requests, "ABSENT_RANGES", 4)
    frankfurt, _ = pair
    for each in pair:
        each.define(NARROW)
    for number in range(1, 7):
        for each in pair:
            each.publish_as("app", [number], body="" if number % 2 else "wanted")
    exchange(*pair)
    ask(frankfurt, {"uuid-of-virginia": range(6)})
    assert told(frankfurt) == [{"uuid-of-frankfurt": BitMap64([0]), "uuid-of-virginia": BitMap64([0])}]


def test_who_gives_or_passes_on_names_no_more_than_a_record_holds(
    pair: tuple[Instance, Instance], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert NAMED_MOST <= RANGES
    for module in (requests, transfers):
        monkeypatch.setattr(module, "NAMED_MOST", 3)
    frankfurt, virginia = pair
    frankfurt.publish(5)
    exchange(*pair)
    asked: dict[str, Any] = {"requester": "osaka", "passed": ["tokyo"], "limit": 100}
    ask(virginia, {"uuid-of-frankfurt": list(range(5))}, **asked, owner="frankfurt")
    assert virginia.ownership().passed_on["osaka", "frankfurt"].rows == BitMap64([0, 1, 2])
    frankfurt.pull(virginia)
    assert frankfurt.rows("remote") == [0, 1, 2]


def test_what_was_passed_on_is_forgotten_once_it_is_over(pair: tuple[Instance, Instance], clock: FakeClock) -> None:
    """R104."""
    frankfurt, virginia = pair
    frankfurt.publish(5)
    exchange(*pair)

    def request(name: str) -> set[str]:
        ask(virginia, {"uuid-of-frankfurt": [0, 1, 2]}, requester=name, passed=["tokyo"], owner="frankfurt")
        assert digest(virginia.world.folded()) == digest(virginia.world.state)
        return {requester for requester, _ in virginia.ownership().passed_on}

    assert request("osaka") == {"osaka"}
    clock.advance(ownership.PASSED_ON_MS - 1)
    assert request("sydney") == {"osaka", "sydney"}
    clock.advance(1)
    assert request("delhi") == {"sydney", "delhi"}


def test_no_more_requests_of_others_are_known_than_a_bound(
    pair: tuple[Instance, Instance], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ownership, "PASSED_ON_MOST", 3)
    frankfurt, virginia = pair
    frankfurt.publish(1)
    exchange(*pair)
    for number in range(9):
        ask(virginia, {"uuid-of-frankfurt": [0]}, requester=f"of-{number}", passed=["tokyo"], owner="frankfurt")
    assert [requester for requester, _ in virginia.ownership().passed_on] == ["of-6", "of-7", "of-8"]
