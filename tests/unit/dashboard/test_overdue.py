"""A lease that ran out while no coordinator runs is an alarm, and page and command line say the same of it (R119)."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_queue.clock import SystemClock
from spark_queue.core.state.findings import NOT_ENDED_MS
from tests.unit.cli.sparkq import Terminal
from tests.unit.dashboard.asking import asker_of, following
from tests.unit.dashboard.dashboard_world import MINUTE_MS, DashboardWorld

ALARM = "40 messages are in leases that ran out, and no coordinator runs to end them: the consumer of subscription 'east'"


def hung(place: Path, *, granted_ago_ms: int) -> DashboardWorld:
    """Return a journal whose consumer took a lease of a minute so long ago, and whose coordinator is gone."""
    world = DashboardWorld(place)
    now = (SystemClock().wall_ms() - granted_ago_ms - world.start_ms) / MINUTE_MS
    world.attach("BILLING", "east", now - 1)
    world.publish(40, now - 1)
    world.work("BILLING", 40, now)
    world.commit()
    return world


@pytest.mark.parametrize("over_ms", [NOT_ENDED_MS + 60_000, -50_000])
def test_page_and_command_line_agree_on_a_lease_that_ran_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, over_ms: int
) -> None:
    world = hung(tmp_path, granted_ago_ms=60_000 + over_ms)
    follower = following(world.journal)
    visitor, sparkq = asker_of([follower]), Terminal(monkeypatch=monkeypatch, capsys=capsys)
    told = sparkq("status", world.journal.path)
    first, page = visitor.get("/").text, visitor.get("/j/shop/queues/BILLING").text
    is_over = over_ms > 0
    assert (told.code, ALARM in told.out) == ((3, True) if is_over else (0, False))
    assert [ALARM in text.replace("&#39;", "'") for text in (first, page)] == [is_over] * 2
    row = first.split('queues/BILLING"')[0].rpartition("<tr")[2]
    assert ('class="bad"' in row, '<span class="badge bad">alarm</span>' in first) == (is_over, is_over)
    assert ('<span class="badge ok">working</span>' in page) == (not is_over)
    assert page.count(">overdue</span>") == (2 if is_over else 0)
    assert ("none, over for" in page) == is_over


def test_an_alarm_about_a_lease_ends_with_it(tmp_path: Path) -> None:
    world = hung(tmp_path, granted_ago_ms=600_000)
    assert ALARM in str(world.journal.queue("BILLING").status().alarm)
    world.tick(world.engine.state.last_at_ms / MINUTE_MS - world.start_ms / MINUTE_MS + 2)
    world.commit()
    status = world.journal.queue("BILLING").status()
    assert (status.alarm, status.available) == (None, 40)
