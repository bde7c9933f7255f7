"""What the page leads to when somebody is called at night: when a queue is empty, how a pause ends, where what is done is found."""

from __future__ import annotations

import re
from pathlib import Path

from spark_queue.core import commands
from tests.unit.dashboard.asking import asker
from tests.unit.dashboard.dashboard_world import DashboardWorld
from tests.unit.dashboard.test_pages import QUEUE, text_of


def test_queue_page_tells_when_it_is_empty_and_how_a_pause_ends(tmp_path: Path) -> None:
    world = DashboardWorld(tmp_path, hours=1)
    world.publish(40, 1)
    world.attach("BILLING", "east", 57)
    world.work("BILLING", 30, 58)
    world.work("BILLING", 5, 59)
    world.decide(commands.Pause(queue="REFUNDS"), 59)
    world.commit()
    visitor = asker(world.journal)
    told = text_of(visitor.get(QUEUE).text)
    assert "Out, 5 min 6/min Empty in 1 min 40 s" in told
    paused = text_of(visitor.get("/j/shop/queues/REFUNDS").text)
    assert "The queue is paused. Its log shows who paused it; sparkq unpause " in paused


def test_a_search_that_finds_nothing_leads_to_what_is_done(tmp_path: Path) -> None:
    world = DashboardWorld(tmp_path)
    world.publish(4, 1)
    world.attach("BILLING", "east", 2)
    world.work("BILLING", 4, 3)
    world.work("BILLING", 4, 4)
    world.commit()
    visitor = asker(world.journal)
    [further] = re.findall(r'href="([^"]+)">Look in any state', visitor.get(f"{QUEUE}/messages?where=amount+%3D+2").text)
    found = visitor.get(f"{QUEUE}/messages{further.replace('&amp;', '&')}").text
    assert f'{QUEUE}/messages/2"' in found
    assert "Look in any state" not in found
