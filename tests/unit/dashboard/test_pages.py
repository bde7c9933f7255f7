"""What pages show, and that nothing that is shown becomes part of a page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from spark_queue import Journal
from spark_queue.core import commands
from spark_queue.core.commands import Caller
from spark_queue.core.state.lifecycle import State
from spark_queue.dashboard.formatting import field_time, machine_time
from spark_queue.dashboard.queue_page import as_of
from spark_queue.journal.open import DeltaJournal
from tests.unit.dashboard.asking import asker
from tests.unit.dashboard.dashboard_world import EVIL, DashboardWorld

QUEUE = "/j/shop/queues/BILLING"


def text_of(html: str) -> str:
    """Return what a reader sees of a page."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html))


def test_overview_shows_every_queue_of_every_journal(world: DashboardWorld, tmp_path: Path) -> None:
    found = asker(world.journal, Journal(str(tmp_path / "gone"))).get("/").text
    for name in ("BILLING", "BILLING_FAILED", "SHIPPING", "REFUNDS"):
        assert f"/queues/{name}" in found
    assert "paused" in found
    assert "NOT_A_JOURNAL" in found
    assert "This journal cannot be read now." in found


def test_queue_page_shows_subscriptions_leases_and_charts(world: DashboardWorld) -> None:
    found = text_of(asker(world.journal).get(f"{QUEUE}?span=6h").text)
    for told in ("Subscriptions", "east", "Age of the oldest", "Dead letters 7", "dead_letter_queue BILLING_FAILED"):
        assert told in found


def test_queue_page_shows_the_queue_as_it_was(world: DashboardWorld) -> None:
    at_s, visitor = world.at(90.2) // 1_000, asker(world.journal)
    found = text_of(visitor.get(f"{QUEUE}?span=6h&at={at_s}").text)
    moment = re.search(r"The queue as it was at [^,]* UTC", found)
    # A field for a time and a link mean the moment that a slider does.
    for at in (field_time(at_s * 1_000), machine_time(at_s * 1_000)):
        assert moment is not None
        assert moment[0] in text_of(visitor.get(f"{QUEUE}?span=6h&at={at}").text)
    assert "The queue as it was at" in found
    then = world.journal.queue("BILLING").status(as_of(at_s * 1_000))
    assert f"Depth {then.queue_depth} Oldest" in found
    assert f"Acknowledged {then.acknowledged:,} " in found


@pytest.mark.parametrize(
    ("query", "code"),
    [("span=2y", "BAD_VALUE"), ("at=yesterday", "BAD_VALUE"), ("at=1969-12-31", "BAD_VALUE")],
)
def test_an_address_that_is_wrong_is_refused_by_name(world: DashboardWorld, query: str, code: str) -> None:
    answer = asker(world.journal).get(f"{QUEUE}?{query}")
    assert answer.status == 400
    assert code in answer.text


def test_a_moment_before_the_journal_is_told_of_on_the_page(world: DashboardWorld) -> None:
    answer = asker(world.journal).get(f"{QUEUE}?at=2001-01-01T00:00:00Z")
    assert answer.status == 200
    assert "RECORD_UNKNOWN" in answer.text


def test_messages_are_found_by_state_bookmark_and_filter(world: DashboardWorld) -> None:
    visitor = asker(world.journal)
    by_filter = visitor.get("/j/shop/queues/SHIPPING/messages?where=amount+%3E+8")
    assert set(re.findall(r'<td class="body">(\d+)</td>', by_filter.text)) == {"9"}
    leased = visitor.get(f"{QUEUE}/messages?state=leased").text
    assert len(re.findall(r"east(?:</\w+>)?, until", leased)) == 25
    one = visitor.get(f"{QUEUE}/messages?bookmark=7").text
    assert re.findall(r"/messages/(\d+)", one) == ["7"]
    wrong = visitor.get(f"{QUEUE}/messages?where=nothing+%3E+8")
    assert wrong.status == 200
    assert "EXPRESSION_INVALID" in wrong.text
    assert visitor.get(f"{QUEUE}/messages?state=odd").status == 400


ROW = (
    r'/messages/(\d+)">\d+</a></th>\s*<td><span class="badge[^"]*">(\w+)</span></td>\s*<td>(?:(?:<[^>]+>)?(\w+)(?:</\w+>)?, until)?'
)


@pytest.mark.parametrize(
    ("query", "chosen"),
    [
        ("", lambda _: True),
        ("&state=leased", lambda row: row["state"] == "leased"),
        ("&where=amount+%3E+7", lambda row: row["amount"] > 7),
    ],
)
def test_messages_of_a_past_moment_stand_where_they_stood(world: DashboardWorld, query: str, chosen: Any) -> None:
    at_ms = world.at(90.6)
    page = asker(world.journal).get(f"{QUEUE}/messages?at={machine_time(at_ms)}{query}").text
    then = [row for row in world.journal.view("messages", queue="BILLING", as_of=as_of(at_ms)).to_pylist() if chosen(row)][:50]
    assert then
    found = [(int(bookmark), state, holder or None) for bookmark, state, holder in re.findall(ROW, page)]
    assert found == [(row["bookmark"], row["state"], row["subscription"]) for row in then]
    bodies = re.findall(r'<td class="body">(kettle|\d+)</td>', page)
    assert bodies == [each for row in then for each in (row["item"], str(row["amount"]))]
    assert "The messages as they were at" in page


def test_what_came_later_is_not_found_at_a_past_moment(world: DashboardWorld) -> None:
    visitor, at = asker(world.journal), machine_time(world.at(2.2))
    newest = world.engine.state.message_types["order"].entered_until - 4
    assert re.findall(ROW, visitor.get(f"{QUEUE}/messages?bookmark={newest}").text) == [(str(newest), "available", "")]
    assert "Nothing was found." in visitor.get(f"{QUEUE}/messages?bookmark={newest}&at={at}").text
    # Done long ago, and in the queue then.
    assert re.findall(ROW, visitor.get(f"{QUEUE}/messages?bookmark=7&at={at}").text) == [("7", "available", "")]
    assert re.findall(ROW, visitor.get(f"{QUEUE}/messages?bookmark=7").text) == [("7", "removed", "")]


def test_a_moment_goes_along_between_the_pages_of_a_queue(world: DashboardWorld) -> None:
    visitor, at = asker(world.journal, allows_changes=True), machine_time(world.at(90.6))
    tab = f"{QUEUE}/messages?at={at}"
    assert f'href="{tab}"' in visitor.get(f"{QUEUE}?span=6h&at={at}").text
    page = visitor.get(tab).text
    assert f'href="{QUEUE}?at={at}"' in page
    assert f"at={quote(at, safe='')}&amp;after=" in page, "further ones are of that moment, too"
    assert "Change what matches" not in page
    assert "Change what matches" in visitor.get(f"{QUEUE}/messages").text


@pytest.mark.parametrize(("at", "code"), [("2001-01-01T00:00:00Z", "RECORD_UNKNOWN"), ("2999-01-01T00:00:00Z", "BAD_VALUE")])
def test_a_moment_that_no_messages_are_known_of_is_refused(world: DashboardWorld, at: str, code: str) -> None:
    answer = asker(world.journal).get(f"{QUEUE}/messages?at={at}")
    assert (answer.status, code in answer.text) == (400, True)


def test_a_search_goes_on_where_it_ended(world: DashboardWorld) -> None:
    visitor = asker(world.journal)
    path, seen = "/j/shop/queues/SHIPPING/messages?where=amount+%3E+4&state=removed", list[str]()
    while path:
        page = visitor.get(path).text
        seen += re.findall(r'<th scope="row" class="num"><a href="[^"]*/messages/(\d+)"', page)
        following = re.search(r'rel="next" href="([^"]+)"', page)
        path = "" if following is None else "/j/shop/queues/SHIPPING/messages" + following[1].replace("&amp;", "&")
    assert len(seen) == len(set(seen)) > 100


def test_message_page_tells_its_life(world: DashboardWorld) -> None:
    found = asker(world.journal).get(f"{QUEUE}/messages/5").text
    assert "leased to &#39;east&#39;" in found
    assert 'class="life-band"' in found
    assert "<pre>kettle</pre>" in found


def test_the_page_of_a_message_that_waits_folds_no_log(world: DashboardWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """It loads again every few seconds, and the followed state knows what decides."""
    bookmark = world.engine.state.ledger("SHIPPING").rows[State.AVAILABLE].max()
    visitor = asker(world.journal)

    def fold(*_: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(DeltaJournal, "tail", fold)
    found = visitor.get(f"/j/shop/queues/SHIPPING/messages/{bookmark}")
    assert (found.status, "It waits" in found.text) == (200, True)


def test_dead_letters_stand_in_groups(world: DashboardWorld) -> None:
    visitor = asker(world.journal)
    page = ""
    for queue in ("BILLING", "BILLING_FAILED"):
        page = visitor.get(f"/j/shop/queues/{queue}/dead-letters").text
        assert "7 in 2 groups" in page
        assert "card declined: 402 from the bank" in page
    key = re.findall(r"\?group=([0-9a-f]+)#", page)[0]
    group = visitor.get(f"{QUEUE}/dead-letters?group={key}").text
    assert "Letters of this group" in group
    assert group.count('<td class="body">kettle</td>') == 3


def test_log_page_shows_who_did_what(world: DashboardWorld) -> None:
    visitor = asker(world.journal)
    everything = visitor.get("/j/shop/log")
    assert 'rel="next"' in everything.text
    people = text_of(visitor.get("/j/shop/log?people=1").text)
    assert "paused" in people
    assert "new definitions" in people
    assert "granted" not in people.split("Who", 1)[1]
    one_kind = visitor.get("/j/shop/log?kind=paused&queue=REFUNDS").text
    assert "1 record, newest first" in one_kind


@pytest.mark.parametrize(
    "path",
    [
        f"messages/{9**30}",
        f"messages/{'9' * 5_000}",
        "?end=0001-01-01T00:00:00Z",
        "?at=0001-01-01T00:00:00Z",
        "messages?after=9" * 30,
    ],
)
def test_numbers_and_times_beyond_everything_are_refused(world: DashboardWorld, path: str) -> None:
    assert asker(world.journal).get(f"{QUEUE}{'' if path[0] == '?' else '/'}{path}").status in (400, 404)


def test_journal_page_shows_files_definitions_and_findings(world: DashboardWorld) -> None:
    found = text_of(asker(world.journal).get("/j/shop/journal").text)
    for told in ("ORDERS, RETURNS", "messages/order", "No snapshot yet", world.journal.journal_id()):
        assert told in found


def test_journal_page_tells_what_changed_between_two_versions(tmp_path: Path) -> None:
    world = DashboardWorld(tmp_path)
    stored = dict(world.journal.definitions().stored)
    changed = {**stored, "queues": {**stored["queues"], "REFUNDS": {**stored["queues"]["REFUNDS"], "max_deliveries": 9}}}
    world.decide(commands.Apply(definitions=changed), 1)
    world.commit()
    found = asker(world.journal).get("/j/shop/journal").text
    assert "change [queues.REFUNDS] max_deliveries" in found


def test_a_journal_without_peers_says_so(world: DashboardWorld) -> None:
    assert "This journal does not pull from other instances." in asker(world.journal).get("/j/shop/peers").text


def test_bodies_can_be_kept_off_every_page(world: DashboardWorld) -> None:
    visitor = asker(world.journal, hides_bodies=True)
    key = re.findall(r"\?group=([0-9a-f]+)#", visitor.get(f"{QUEUE}/dead-letters").text)[0]
    for path in ("messages", "messages?where=amount+%3E+1", "messages/5", f"dead-letters?group={key}"):
        assert "kettle" not in visitor.get(f"{QUEUE}/{path}").text


def test_a_key_that_is_a_column_is_kept_off_with_the_body(tmp_path: Path) -> None:
    world = DashboardWorld(tmp_path)
    stored = dict(world.journal.definitions().stored)
    keyed = {**stored["queues"], "KEYED": {"underlying_topic": "ORDERS", "message_type": "order", "order_key": "item"}}
    world.decide(commands.Apply(definitions={**stored, "queues": keyed}), 1)
    world.commit()
    world.publish(1, 2)
    world.commit()
    path = "/j/shop/queues/KEYED/messages/0"
    assert "<dd>kettle</dd>" in asker(world.journal).get(path).text
    assert "kettle" not in asker(world.journal, hides_bodies=True).get(path).text


def test_nothing_that_is_shown_becomes_an_element(tmp_path: Path) -> None:
    world = DashboardWorld(tmp_path)
    world.attach("BILLING", "east", 0.5)
    world.publish(5, 1, item=EVIL)
    world.expire("BILLING", range(3), EVIL, 2)
    stored = dict(world.journal.definitions().stored)
    shown = {**stored["queues"]["REFUNDS"], "filter": "item <> '<script>alert(1)</script>'"}
    world.decide(commands.Apply(definitions={**stored, "queues": {**stored["queues"], "REFUNDS": shown}}), 3)
    world.commit()
    visitor = asker(world.journal, allows_changes=True)
    key = re.findall(r"\?group=([0-9a-f]+)#", visitor.get(f"{QUEUE}/dead-letters").text)[0]
    paths = [
        "/", f"{QUEUE}/messages", f"{QUEUE}/messages/1", f"{QUEUE}/dead-letters?group={key}", "/j/shop/log", "/j/shop/journal",
        "/j/shop/queues/REFUNDS", f"{QUEUE}/messages?where=%3Cscript%3Ealert(1)%3C/script%3E", f"{QUEUE}?at=%3Cscript%3Ealert(1)",
        f"{QUEUE}?end=%22%3E%3Cscript%3Ealert(1)&at=1", "/login?token=%3Cscript%3Ealert(1)",
    ]  # fmt: skip
    for path in paths:
        page = visitor.get(path).text
        assert re.findall(r"<script\b[^>]*>", page) == ['<script src="/static/page.js" defer>'], path
        assert not re.findall(r"<img|\sonerror=alert\(1\)>", page.replace("&lt;img src=x onerror=alert(1)&gt;", "")), path
    assert "&lt;script&gt;" in visitor.get(f"{QUEUE}/messages").text


def test_events_tell_revisions(world: DashboardWorld) -> None:
    answer = asker(world.journal).get("/events")
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert re.fullmatch(r"data: \[\d+\]\n\n", answer.text)


def test_no_page_tells_of_tokens_and_the_log_tells_who_it_was(tmp_path: Path) -> None:
    world = DashboardWorld(tmp_path)
    stored = dict(world.journal.definitions().stored)
    for minute, letter in enumerate("ab", start=1):
        rights = [{"rights": ["administer"]}]
        definitions = {**stored, "principals": {"ann": {"token_hash": letter * 64, "rights": rights}}}
        caller = Caller(principal="ann", host="10.0.0.9", signs=True) if minute > 1 else None
        world.engine.decide(commands.Apply(definitions=definitions), now_ms=world.at(minute), caller=caller)
    world.commit()
    visitor = asker(world.journal)
    page = visitor.get("/j/shop/journal").text
    assert "change [principals.ann] token_hash" in page
    assert "a" * 64 not in page
    assert "b" * 64 not in page
    people = visitor.get("/j/shop/log?people=1").text
    assert "principal ann, host 10.0.0.9" in people
