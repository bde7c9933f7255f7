"""The page of a journal in an object store: every page shows what the journal holds, by reading the bucket alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from spark_queue.dashboard.formatting import machine_time
from spark_queue.following.follower import JournalFollower
from tests.integration.s3_server import BUCKET, SECRET, s3_server
from tests.unit.dashboard.asking import Asker, asker_of, following
from tests.unit.dashboard.dashboard_world import DashboardWorld
from tests.unit.metrics.exposed import value

QUEUE = "/j/shop/queues/BILLING"


@dataclass(frozen=True)
class Bucket:
    """A journal in a bucket, and what follows it."""

    world: DashboardWorld
    follower: JournalFollower
    visitor: Asker


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    with s3_server() as server:
        world = DashboardWorld(f"s3://{BUCKET}/dashboard", storage_options=server.options)
        world.attach("BILLING", "east", 1)
        world.publish(20, 2)
        world.work("BILLING", 5, 3)
        world.expire("BILLING", range(10, 13), "card declined", 4)
        world.commit()
        follower = following(world.journal)
        yield Bucket(world, follower, asker_of([follower]))


def test_the_overview_shows_its_queues_live(bucket: Bucket) -> None:
    page = bucket.visitor.get("/").text
    assert f"s3://{BUCKET}/dashboard/shop" in page
    assert re.search(r'queues/BILLING">BILLING</a></th>\s*<td>.*?</td>\s*<td class="num">17</td>', page, re.DOTALL)
    assert 'class="spark"' in page
    bucket.world.publish(4, 5, topic="RETURNS")
    bucket.world.commit()
    bucket.follower.refresh()
    page = bucket.visitor.get("/").text
    assert re.search(r'queues/REFUNDS">REFUNDS</a></th>\s*<td>.*?</td>\s*<td class="num">4</td>', page, re.DOTALL)


def test_a_queue_is_shown_now_and_at_a_past_moment(bucket: Bucket) -> None:
    now = bucket.visitor.get(f"{QUEUE}?span=6h").text
    assert "<dt>Leased</dt><dd>5</dd>" in now
    assert 'class="chart"' in now
    then = bucket.visitor.get(f"{QUEUE}?span=6h&at={machine_time(bucket.world.at(2.5))}").text
    assert "<dt>Depth</dt><dd>20</dd>" in then


def test_messages_are_found_with_their_bodies(bucket: Bucket) -> None:
    found = bucket.visitor.get(f"{QUEUE}/messages?where=amount+%3E+8").text
    assert re.findall(r'<td class="body">(kettle|\d+)</td>', found) == ["kettle", "9", "kettle", "9"]
    assert bucket.visitor.get(f"{QUEUE}/messages?state=leased").text.count("east</span>, until") == 5
    then = bucket.visitor.get(f"{QUEUE}/messages?state=leased&at={machine_time(bucket.world.at(2.5))}").text
    assert "Nothing was found." in then
    one = bucket.visitor.get(f"{QUEUE}/messages/3").text
    assert "leased to &#39;east&#39;" in one
    assert "<pre>kettle</pre>" in one


def test_letters_log_journal_and_metrics_are_shown(bucket: Bucket) -> None:
    assert "card declined" in bucket.visitor.get(f"{QUEUE}/dead-letters").text
    assert "definitions" in bucket.visitor.get("/j/shop/log").text
    journal = bucket.visitor.get("/j/shop/journal")
    assert (journal.status, SECRET in journal.text) == (200, False)
    told = bucket.visitor.get("/metrics").text.encode()
    assert value(told, "sparkqueue_queue_depth", queue="BILLING") == 17
