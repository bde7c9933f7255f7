"""The page of an instance: a replicated queue's charts show who owned its messages, and what was transferred (R119)."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spark_queue.core import commands
from spark_queue.core.state import status
from spark_queue.dashboard.journal_page import queue_row
from spark_queue.following.follower import FollowedView, JournalFollower
from spark_queue.following.history import Series
from spark_queue.journal.open import open_journal
from spark_queue.views import state_at
from tests.deciding import started
from tests.fake_clock import FakeClock
from tests.sites_on_disk import Site, exchange
from tests.unit.dashboard.asking import asker
from tests.unit.dashboard.dashboard_world import DEFINITIONS, DashboardWorld

MINUTE_MS = 60_000


class Sites:
    """Two instances: messages are published at one, some of them are done at the other."""

    def __init__(self, folder: Path) -> None:
        self.clock = FakeClock(time.time_ns() // 1_000_000 - 50 * MINUTE_MS)
        self.virginia = Site(folder, "virginia", ["frankfurt"], self.clock)
        self.frankfurt = Site(folder, "frankfurt", ["virginia"], self.clock)
        self.followers = [JournalFollower(each.path.name, each.store) for each in (self.virginia, self.frankfurt)]
        self.look()

    def look(self) -> None:
        """Let time pass, and the pages see what is new."""
        for each in self.followers:
            each.refresh()
        self.clock.advance(5 * MINUTE_MS)

    def ask(self, limit: int) -> None:
        """Let frankfurt ask for messages that virginia owns."""
        planner = started(self.frankfurt.engine, "WORK", "s", max_backlog=1_000, now_ms=self.frankfurt.now_ms)
        poll = commands.Next(**planner, call=2, finished=0, limit=limit)
        self.frankfurt.engine.note_poll(poll, now_ms=self.frankfurt.now_ms)
        assert self.frankfurt.engine.decide(poll, now_ms=self.frankfurt.now_ms) is None
        self.frankfurt.engine.ask_owners(poll, now_ms=self.frankfurt.now_ms)
        self.frankfurt.commit()


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Sites:
    made = Sites(tmp_path_factory.mktemp("sites"))
    made.virginia.publish(*"abcdefgh")
    exchange(made.virginia, made.frankfurt)
    made.look()
    made.ask(3)
    exchange(made.virginia, made.frankfurt)
    made.look()
    assert len(made.frankfurt.consume(2)) == 2
    exchange(made.virginia, made.frankfurt)
    made.look()
    assert len(made.virginia.consume(4)) == 4
    exchange(made.virginia, made.frankfurt)
    made.look()
    return made


@contextmanager
def looked(follower: JournalFollower) -> Iterator[FollowedView]:
    with follower.look() as look:
        assert look is not None
        yield look


def series(follower: JournalFollower, queue: str, times_ms: list[int]) -> Series:
    with looked(follower) as look:
        assert look.history is not None
        return look.history.series(look.state, queue, np.array(times_ms))


def told(found: Series) -> list[tuple[Any, ...]]:
    assert found.remote is not None
    assert found.transferred_in is not None
    assert found.transferred_out is not None
    ages_s = [None if np.isnan(each) else each for each in found.oldest_age_s.tolist()]
    columns = found.depth, found.remote, found.transferred_in, found.transferred_out
    return list(zip(*(each.tolist() for each in columns), ages_s, strict=True))


@pytest.mark.parametrize("queue", ["WORK", "FAILED"])
@pytest.mark.parametrize("number", [0, 1], ids=["virginia", "frankfurt"])
def test_charts_say_of_each_moment_what_status_says(sites: Sites, number: int, queue: str) -> None:
    """R119: owned, remote and transferred, and the age of what is owned."""
    follower = sites.followers[number]
    journal = open_journal(follower.store)
    records = journal.records()
    times_ms = sorted({each.at_ms for each in records if each.record > 1})
    expected = []
    for at_ms in times_ms:
        point = state_at(journal, max(each.record for each in records if each.at_ms == at_ms))
        now = status.queue_status(point.state, queue, now_ms=at_ms)
        expected.append((now.owned, now.remote, now.transferred_in, now.transferred_out, now.seconds_behind))
    assert told(series(follower, queue, times_ms)) == expected
    anew = JournalFollower(follower.name, follower.store)
    anew.refresh()
    assert told(series(anew, queue, times_ms)) == expected
    if queue == "WORK":
        assert max(each[2] + each[3] for each in expected) == 3, "something was transferred"


def test_the_overview_counts_what_is_owned_here(sites: Sites) -> None:
    rows = []
    for follower in sites.followers:
        with looked(follower) as look:
            rows.append(queue_row(look, "WORK"))
    assert [(row.status and row.status.queue_depth, row.highest) for row in rows] == [(1, 8), (1, 3)]


def test_the_page_of_a_replicated_queue_shows_owners_and_transfers(sites: Sites) -> None:
    page = asker(sites.frankfurt.journal).get("/j/frankfurt/queues/WORK?span=1h").text
    assert "owned here: from 0 to 3 messages in the queue, 1 at the end; owned elsewhere: from 0 to 8" in page
    assert "Transferred. came here: from 0 to 3 messages since the left edge, 3 at the end; given away: from 0 to 0" in page
    assert '<path class="line remote"' in page


def test_a_journal_that_becomes_an_instance_has_owners_from_then_on(tmp_path: Path) -> None:
    world = DashboardWorld(tmp_path)
    world.commit()
    follower = JournalFollower("shop", world.journal.store)
    follower.refresh()
    with looked(follower) as look:
        assert look.history is not None
        assert look.history.owners is None
    world.decide(commands.Apply(definitions={**DEFINITIONS, "journal": {"instance": "shop"}}), 1)
    world.commit()
    follower.refresh()
    follower.refresh()
    with looked(follower) as look:
        assert look.history is not None
        assert look.history.owners is not None
        assert set(look.history.owners.traces) == set(DEFINITIONS["queues"])


def test_the_list_of_messages_says_who_owns_each(sites: Sites, world: DashboardWorld) -> None:
    page = asker(sites.frankfurt.journal).get("/j/frankfurt/queues/WORK/messages?state=in+any+state").text
    owners = dict(re.findall(r'/messages/(\d+)">.*?</th>\s*<td>.*?</td>\s*<td>(\w*)</td>', page, re.DOTALL))
    then = sites.frankfurt.journal.view("messages", queue="WORK").to_pylist()
    assert then
    assert {str(row["bookmark"]): row["owner"] for row in then}.items() <= owners.items()
    assert set(owners.values()) >= {"frankfurt", "virginia"}
    assert '<th scope="col">Owner</th>' not in asker(world.journal).get("/j/shop/queues/BILLING/messages").text
