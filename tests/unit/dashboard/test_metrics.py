"""``/metrics`` of the page (DESIGN 18)."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from spark_queue.core.records import Record
from spark_queue.core.state.log_history import LogHistory
from spark_queue.following.follower import JournalFollower, families_of
from spark_queue.metrics import exposition
from spark_queue.metrics.prometheus import render
from tests.unit.dashboard.asking import TOKEN, asker
from tests.unit.dashboard.dashboard_world import DashboardWorld
from tests.unit.metrics.exposed import value, values


def test_the_page_tells_what_the_command_line_tells(world: DashboardWorld) -> None:
    answer = asker(world.journal).get("/metrics")
    assert (answer.status, answer.headers["content-type"].partition(";")[0]) == (200, "text/plain")
    moving = ("timestamp_seconds", "age_seconds", "longest_batch_seconds")
    told, expected = (
        {series: each for series, each in values(text).items() if not series[0].endswith(moving)}
        for text in (answer.text.encode(), exposition([world.journal]))
    )
    assert told == expected


def test_a_scrape_costs_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = DashboardWorld(tmp_path)
    world.attach("BILLING", "east", 1)
    world.publish(10, 1)
    world.commit()
    follower, folded = JournalFollower("shop", world.journal.store), list[int]()
    fold = LogHistory.fold

    def counted(history: LogHistory, records: Sequence[Record]) -> None:
        folded.append(len(records))
        fold(history, records)

    monkeypatch.setattr(LogHistory, "fold", counted)
    follower.refresh()
    families_of([follower])
    first = world.engine.state.next_record
    for number in range(3):
        world.work("BILLING", 2, 2 + number)
        world.commit()
        follower.refresh()
        told = render(families_of([follower]))
        assert value(told, "sparkqueue_removed_messages_total", queue="BILLING", reason="acknowledged") == 2 * number
    assert folded[0] == first
    assert sum(folded) == world.engine.state.next_record


def test_a_journal_that_is_gone_is_told_as_one_that_cannot_be_read(tmp_path: Path) -> None:
    world = DashboardWorld(tmp_path)
    world.commit()
    follower = JournalFollower("shop", world.journal.store)
    follower.refresh()
    assert value(render(families_of([follower])), "sparkqueue_journal_up") == 1
    shutil.move(world.journal.path, tmp_path / "away")
    follower.refresh()
    told = render(families_of([follower]))
    assert (value(told, "sparkqueue_journal_up"), value(told, "sparkqueue_records_total")) == (0, None)


def test_prometheus_comes_in_with_the_token_and_only_there(world: DashboardWorld) -> None:
    stranger = asker(world.journal, logs_in=False)
    assert stranger.get("/metrics", authorization=f"Bearer {TOKEN}").status == 200
    assert stranger.get("/", authorization=f"Bearer {TOKEN}").status == 303
    assert stranger.get("/metrics").status == 303


def test_a_wrong_token_is_refused_and_counted_as_at_the_login(world: DashboardWorld) -> None:
    stranger = asker(world.journal, logs_in=False)
    assert [stranger.get("/metrics", authorization="Basic guessed").status for _ in range(9)] == [303] * 9
    assert [stranger.get("/metrics", authorization="Bearer guessed").status for _ in range(6)] == [401] * 5 + [429]
    assert stranger.post("/login", {"token": TOKEN}).status == 429
