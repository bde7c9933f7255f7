"""When messages were published: by the clock of who committed them, within what the coordinator's clock knows (DESIGN 15.3)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from spark_queue.core.deciding.alteration import recovery_point
from spark_queue.core.definitions.definition import QueueDefinition
from spark_queue.settings.parsers import Position
from spark_queue.settings.timestamps import to_text
from spark_queue.source.topic_log import TopicLog
from tests.commit_times import date_commit, newest_entry
from tests.fake_clock import FakeClock
from tests.unit.journal.journal_on_disk import Disk
from tests.unit.journal.reign import NOW_MS, Reign

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path / "journal", clock=FakeClock(NOW_MS - 9 * DAY_MS))


def publish(disk: Disk, number: int, at_ms: object) -> None:
    """Commit one message by a clock that says `at_ms`."""
    disk.publish([number])
    date_commit(newest_entry(disk.store.path, "order"), at_ms)


def published_ms(reign: Reign) -> list[int]:
    return [segment.published_at_ms for segment in reign.segments]


def starting(disk: Disk, at_ms: int) -> int:
    """Return where a replay from a time begins."""
    return TopicLog(disk.store, disk.journal_id, "order", "ORDERS").bookmark(Position(kind="timestamp", value=at_ms))


def test_what_came_while_no_coordinator_ran_keeps_its_time(disk: Disk) -> None:
    """A weekend's messages are found by their day, before a coordinator starts on Monday and after it did."""
    for number, days in enumerate((3, 2, 1)):
        publish(disk, number, NOW_MS - days * DAY_MS)
    days_ms = [NOW_MS - days * DAY_MS for days in (3, 2, 1)]
    moments_ms = [*days_ms, NOW_MS - DAY_MS + 1]
    before = [starting(disk, at_ms) for at_ms in moments_ms]
    reign = Reign(disk, epoch=1)
    reign.enter()
    assert published_ms(reign) == days_ms
    assert [segment.entered_at_ms for segment in reign.segments] == [NOW_MS] * 3
    assert [starting(disk, at_ms) for at_ms in moments_ms] == before == [0, 1, 2, 3]
    later = Reign(disk, epoch=2)
    assert published_ms(later) == days_ms, "the log tells"
    queue = later.state.definitions.queue("WORK")
    assert [starts(later, queue, at_ms) for at_ms in moments_ms] == before


def starts(reign: Reign, queue: QueueDefinition, at_ms: int) -> int:
    """Return where a queue would begin whose recovery point is a time."""
    return recovery_point(reign.state, replace(queue, recovery_point=to_text(at_ms, "milliseconds")))


@pytest.mark.parametrize("clock", ["yesterday", None, True, 1e300, {"a": 1}], ids=str)
def test_commit_that_says_no_time_came_when_it_entered(disk: Disk, clock: object) -> None:
    publish(disk, 0, clock)
    reign = Reign(disk, epoch=1)
    reign.enter()
    assert published_ms(reign) == [NOW_MS]


@pytest.mark.parametrize(
    ("said_ms", "known_ms"),
    [
        pytest.param(NOW_MS + 10**18, NOW_MS, id="after it entered"),
        pytest.param(NOW_MS - 2 * DAY_MS, NOW_MS - DAY_MS, id="before the message before it"),
        pytest.param(-(10**18), NOW_MS - DAY_MS, id="before there were clocks"),
    ],
)
def test_clock_that_is_wrong_is_held_between_the_message_before_and_the_coordinator(
    disk: Disk, said_ms: int, known_ms: int
) -> None:
    """Times ascend in the log, and none is later than the coordinator that saw it."""
    publish(disk, 0, NOW_MS - DAY_MS)
    publish(disk, 1, said_ms)
    publish(disk, 2, NOW_MS)
    reign = Reign(disk, epoch=1)
    reign.enter()
    assert published_ms(reign) == [NOW_MS - DAY_MS, known_ms, NOW_MS]


def test_nothing_was_published_before_the_journal_was_made(disk: Disk) -> None:
    publish(disk, 0, 0)
    assert starting(disk, NOW_MS - 9 * DAY_MS) == 0
    assert starting(disk, NOW_MS - 9 * DAY_MS + 1) == 1
    reign = Reign(disk, epoch=1)
    reign.enter()
    assert published_ms(reign) == [NOW_MS - 9 * DAY_MS]


def test_coordinator_that_was_told_of_a_version_has_not_seen_the_head_by_it(disk: Disk) -> None:
    reign = Reign(disk, epoch=1)
    for number in range(2):
        publish(disk, number, NOW_MS - 2 * HOUR_MS + number)
    assert not reign.entrance.admit("order", now_ms=NOW_MS - HOUR_MS, until=1)
    assert published_ms(reign) == [NOW_MS - 2 * HOUR_MS]
    reign.enter()
    assert published_ms(reign) == [NOW_MS - 2 * HOUR_MS, NOW_MS - 2 * HOUR_MS + 1]


def test_coordinator_that_has_seen_the_head_knows_that_what_follows_came_later(disk: Disk) -> None:
    """While one runs, no publisher's clock makes its messages old."""
    reign = Reign(disk, epoch=1)
    reign.entrance.admit("order", now_ms=NOW_MS - HOUR_MS)
    publish(disk, 0, NOW_MS - 2 * HOUR_MS)
    reign.enter()
    publish(disk, 1, NOW_MS + 10)
    reign.entrance.admit("order", now_ms=NOW_MS + HOUR_MS)
    assert published_ms(reign) == [NOW_MS - HOUR_MS, NOW_MS + 10]
