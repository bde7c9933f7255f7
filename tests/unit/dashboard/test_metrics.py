"""``/metrics`` of the page (DESIGN 18)."""

from __future__ import annotations

from spark_queue.metrics import exposition
from tests.unit.dashboard.asking import TOKEN, asker
from tests.unit.dashboard.dashboard_world import DashboardWorld
from tests.unit.metrics.exposed import values


def test_the_page_tells_what_the_command_line_tells(world: DashboardWorld) -> None:
    answer = asker(world.journal).get("/metrics")
    assert (answer.status, answer.headers["content-type"].partition(";")[0]) == (200, "text/plain")
    moving = ("timestamp_seconds", "age_seconds", "longest_batch_seconds")
    told, expected = (
        {series: each for series, each in values(text).items() if not series[0].endswith(moving)}
        for text in (answer.text.encode(), exposition([world.journal]))
    )
    assert told == expected


def test_prometheus_comes_in_with_the_token_and_only_there(world: DashboardWorld) -> None:
    stranger = asker(world.journal, logs_in=False)
    assert stranger.get("/metrics", authorization=f"Bearer {TOKEN}").status == 200
    assert stranger.get("/", authorization=f"Bearer {TOKEN}").status == 303
    assert stranger.get("/metrics").status == 303


def test_a_wrong_token_is_refused_and_slowed_as_at_the_login(world: DashboardWorld) -> None:
    stranger = asker(world.journal, logs_in=False)
    assert stranger.get("/metrics", authorization="Bearer guessed").status == 401
    assert stranger.get("/metrics", authorization="Basic guessed").status == 303
    assert len(stranger.access._failures) == 1
