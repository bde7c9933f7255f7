"""What views and `explain` of an instance tell: whose a message is, then and now, and what other instances did with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spark_queue.core import commands
from spark_queue.core.records import Outcome
from tests.sites_on_disk import Site, exchange, two_sites


@pytest.fixture
def sites(tmp_path: Path) -> tuple[Site, Site]:
    """Make two instances; frankfurt has asked twice for what virginia owns, got it, and is done with one of it."""
    frankfurt, virginia = two_sites(tmp_path)
    frankfurt.publish("f0")
    virginia.publish("v0", "v1")
    exchange(frankfurt, virginia)
    frankfurt.clock.advance(60_000)
    who: dict[str, Any] = {"queue": "WORK", "subscription": "s"}
    who["incarnation"] = frankfurt.decide(commands.DrawIncarnation(**who)).incarnation
    frankfurt.decide(commands.Attach(**who, call=1, ack_mode="auto", max_backlog=100, filter=None, available_now=False))
    first = frankfurt.decide(commands.Next(**who, call=2, finished=0, limit=100))
    poll = commands.Next(**who, call=3, finished=first.lease, limit=100)
    frankfurt.decide(poll)
    for _ in range(2):
        frankfurt.engine.ask_owners(poll, now_ms=frankfurt.now_ms)
        frankfurt.commit()
        frankfurt.clock.advance(5_000)
    exchange(frankfurt, virginia)
    return frankfurt, virginia


def owners(site: Site, as_of: int | None = None) -> dict[str, tuple[str, str]]:
    found = site.journal.view("messages", queue="WORK", as_of=as_of, columns=["item", "state", "owner"]).to_pylist()
    return {row["item"]: (row["state"], row["owner"]) for row in found}


def record_of(site: Site, kind: str) -> int:
    return max(int(row["record"]) for row in site.journal.view("history").to_pylist() if row["kind"] == kind)


def test_a_view_of_a_past_moment_shows_who_owned_what_then(sites: tuple[Site, Site]) -> None:
    frankfurt, virginia = sites
    before = record_of(virginia, "transferred") - 1
    assert owners(virginia, before)["v0"] == ("available", "virginia")
    assert owners(virginia) == {"v0": ("remote", "frankfurt"), "v1": ("remote", "frankfurt")}
    before = record_of(frankfurt, "transfer_requested")
    assert owners(frankfurt, before) == {"v0": ("remote", "virginia"), "v1": ("remote", "virginia")}
    assert owners(frankfurt) == {"v0": ("available", "frankfurt"), "v1": ("available", "frankfurt")}


def test_explain_tells_what_each_instance_did_with_a_message(sites: tuple[Site, Site]) -> None:
    frankfurt, virginia = sites
    settle = commands.OutcomeRows(outcome=Outcome.ACKNOWLEDGE, ranges=((1, 2),))
    frankfurt.decide(commands.Settle(queue="WORK", outcomes=(settle,)))
    exchange(frankfurt, virginia)
    told = frankfurt.journal.queue("WORK").explain(1)
    assert (told.origin, told.origin_bookmark, told.owner, told.state) == ("virginia", 0, None, "removed")
    texts = [event.text for event in told.events]
    assert texts[0].endswith("at instance 'virginia', where it is message 0")
    assert texts[1].startswith("pulled from a peer, and committed here as version")
    assert texts.count("instance 'frankfurt' asked its owner, instance 'virginia', for it or for other messages") == 1
    assert "instance 'virginia' reported: it belongs to instance 'frankfurt' from now on, in term 1" in texts
    there = virginia.journal.queue("WORK").explain(0)
    texts = [event.text for event in there.events]
    assert "instance" not in texts[0], "it was published there"
    assert "transferred to instance 'frankfurt', by a request or a drain (term 1)" in texts
    assert texts[-1] == "instance 'frankfurt' reported: acknowledged: it left the queue"
    waiting = virginia.journal.queue("WORK").explain(1)
    assert waiting.owner == "frankfurt"
    assert "Only its owner, instance 'frankfurt', delivers it: ask there why it waits." in str(waiting.reason)
    assert "  origin bookmark 1\n" in str(waiting)
