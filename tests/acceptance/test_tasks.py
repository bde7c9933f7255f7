"""What people are called for at night, each on the page alone and on the command line alone, from where a new user would begin."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from spark_queue.core import commands
from spark_queue.core.commands import Caller
from tests.acceptance.served_page import Served, visitor
from tests.unit.cli.sparkq import Terminal
from tests.unit.dashboard.dashboard_world import DashboardWorld

pytestmark = pytest.mark.browser

#: When the night is, in minutes since the journal began.
NOW = 48 * 60.0

DECLINED = "card declined: 402 from the bank"


def night(place: Path) -> DashboardWorld:
    """Return a journal in which all four have happened, in the last two days."""
    world = DashboardWorld(place, hours=NOW / 60)
    world.attach("BILLING", "east", 1)
    world.publish(40, 2)
    noon = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0) - timedelta(days=1)
    yesterday = (noon.timestamp() * 1_000 - world.start_ms) / 60_000
    world.expire("BILLING", range(5), DECLINED, yesterday)
    world.expire("BILLING", range(5, 8), "timeout after 30 s at ledger.example:443", yesterday + 1)
    caller = Caller(principal="ann", host="10.0.0.9", signs=True)
    stored = dict(world.journal.definitions().stored)
    changed = {**stored, "queues": {**stored["queues"], "BILLING": {**stored["queues"]["BILLING"], "max_deliveries": 5}}}
    world.engine.decide(commands.Apply(definitions=changed), now_ms=world.at(yesterday + 2), caller=caller)
    # It renews its lease, and finishes nothing.
    world.work("BILLING", 20, NOW - 25)
    planner = {name: value for name, value in world._planners["BILLING"].items() if name != "call"}
    lease = world.engine.state.ledger("BILLING").subscriptions["east"].lease
    for step in range(36):
        world.decide(commands.Renew(**planner, call=0, lease=lease), NOW - 24.2 + step * 0.8)
    world.expire("BILLING", range(30, 32), DECLINED, NOW + 4)
    purge = commands.Purge(queue="SHIPPING", where="amount > 8", request="r")
    world.engine.decide(purge, now_ms=world.at(NOW + 4), caller=caller)
    world.publish(3, NOW + 4, topic="RETURNS", item="lamp")
    world.decide(commands.Pause(queue="REFUNDS"), NOW + 4)
    world.commit()
    return world


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    made = Served(night(tmp_path), minute=NOW + 4.1)
    monkeypatch.setattr("spark_queue.client.coordinator_client.call_once", made.answer)
    yield made
    made.end()


@pytest.fixture
def sparkq(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(monkeypatch=monkeypatch, capsys=capsys)


def at_home(browser: Browser, served: Served) -> Page:
    """Return the first page."""
    page = visitor(browser, served)
    page.goto("/")
    return page


def test_at_three_in_the_morning_what_is_wrong_where_since_when_and_what_do_i_type(
    browser: Browser, served: Served, sparkq: Terminal
) -> None:
    path = served.world.journal.path
    # On a phone, in the dark, without scripts.
    page = visitor(browser, served, width=390, scheme="dark", scripts=False)
    page.goto("/")
    for command, where, since in (
        (f"sparkq unsubscribe {path} BILLING east", "shop / BILLING", r"since [\d-]{10} [\d:]{8} UTC, (2\d|30) min"),
        (f"sparkq unpause {path} REFUNDS", "shop / REFUNDS", r"since [\d-]{10} [\d:]{8} UTC"),
        (f"sparkq serve {path}", "journal shop", r"since [\d-]{10} [\d:]{8} UTC"),
    ):
        item = page.locator("ul.wrong li", has=page.locator(f'input[value="{command}"]'))
        expect(item.locator("a")).to_have_text(where)
        expect(item.locator(".path")).to_have_text(re.compile(since))
        for part in (item.locator("p").last, item.locator("input")):
            box = part.bounding_box()
            assert box is not None
            assert box["x"] + box["width"] <= 390, command
    # The keyboard chooses the whole command, which is to be copied.
    hung = page.locator("ul.wrong li", has_text="Consumer 'east'")
    hung.locator("a").focus()
    page.keyboard.press("Tab")
    command = page.evaluate("getSelection().toString()")
    assert command == f"sparkq unsubscribe {path} BILLING east"
    page.context.close()
    page = at_home(browser, served)
    field = page.locator(f'input[value="sparkq unpause {path} REFUNDS"]')
    field.focus()
    # By the keyboard: an element that is looked for first may be another one a moment later.
    page.keyboard.press("ControlOrMeta+a")
    looked_at = page.locator("#wrong .heading .path").inner_text()
    # The list goes on beneath, and the command stays chosen.
    expect(page.locator("#wrong .heading .path")).not_to_have_text(looked_at)
    expect(field).to_be_focused()
    typed = shlex.split(page.evaluate("getSelection().toString()"))
    assert sparkq(*typed[1:]).code == 0
    expect(field).to_have_count(0)
    assert sparkq(*shlex.split(command)[1:]).code == 0
    expect(page.locator("ul.wrong li", has_text="Consumer 'east'")).to_have_count(0)
    page.context.close()


def test_which_consumer_hangs(browser: Browser, served: Served, sparkq: Terminal) -> None:
    page = at_home(browser, served)
    # On the first page, without a step.
    row = page.locator("tr", has=page.get_by_role("link", name="BILLING", exact=True))
    expect(row).to_contain_text(re.compile(r"east: (2\d min|30 min)"))
    row.get_by_role("link", name="BILLING", exact=True).click()
    expect(page.locator("tr", has=page.get_by_role("rowheader", name="east", exact=True)).first).to_contain_text("slow batch")
    page.context.close()
    told = sparkq("status", served.world.journal.path).out
    assert re.search(r"(2\d min \d+ s|30 min 0 s), east", told)


def test_why_is_this_message_not_delivered(browser: Browser, served: Served, sparkq: Terminal) -> None:
    page = at_home(browser, served)
    page.get_by_role("link", name="REFUNDS", exact=True).click()
    page.get_by_role("link", name="Messages").click()
    page.get_by_label("Filter").first.fill("item = 'lamp' AND amount = 1")
    page.get_by_role("button", name="Search").click()
    page.locator("tbody a").first.click()
    expect(page.locator("main")).to_contain_text("It waits: queue 'REFUNDS' is paused, and grants nothing until")
    page.context.close()
    path = served.world.journal.path
    assert "lamp" in sparkq("peek", path, "REFUNDS").out
    [first, *_] = sparkq("peek", path, "REFUNDS", "--json").json
    assert "It waits: queue 'REFUNDS' is paused" in sparkq("explain", path, "REFUNDS", first["bookmark"]).out


def test_who_purged(browser: Browser, served: Served, sparkq: Terminal) -> None:
    page = at_home(browser, served)
    page.get_by_role("link", name="SHIPPING", exact=True).click()
    page.get_by_role("link", name="Its log").click()
    page.get_by_label("only changes by people").check()
    row = page.locator("tr", has_text="purged")
    expect(row).to_contain_text("principal ann, host 10.0.0.9")
    page.context.close()
    told = sparkq("log", served.world.journal.path, "SHIPPING", "--people").out
    assert re.search(r"purged.*principal ann", told)


def test_where_is_the_message_that_says_this(browser: Browser, served: Served, sparkq: Terminal) -> None:
    page = at_home(browser, served)
    page.get_by_role("link", name="SHIPPING", exact=True).click()
    page.get_by_role("link", name="Messages").click()
    page.get_by_label("Filter").first.fill("amount = 9")
    page.get_by_role("button", name="Search").click()
    # It is not in the queue any more, and the page says where to look on.
    page.get_by_role("link", name="Look in any state").click()
    page.locator("tbody a").first.click()
    expect(page.locator("main")).to_contain_text("purged by ann (10.0.0.9)")
    page.context.close()
    path = served.world.journal.path
    [first, *_] = sparkq("peek", path, "SHIPPING", "--where", "amount = 9", "--json").json
    assert "purged by ann (10.0.0.9)" in sparkq("explain", path, "SHIPPING", first["bookmark"]).out


def test_what_changed_in_the_definitions_and_who_did_it(browser: Browser, served: Served, sparkq: Terminal) -> None:
    page = at_home(browser, served)
    page.get_by_role("link", name="shop", exact=True).click()
    page.get_by_role("link", name="Journal", exact=True).click()
    for told in ("principal ann, host 10.0.0.9", "change [queues.BILLING] max_deliveries: 3 -> 5"):
        expect(page.locator("main")).to_contain_text(told)
    page.context.close()
    told = sparkq("log", served.world.journal.path, "--kind", "definitions_applied").out
    assert "principal ann, host 10.0.0.9" in told
    assert "change [queues.BILLING] max_deliveries: 3 -> 5" in told


def test_end_a_pause_that_was_wrong(browser: Browser, served: Served, sparkq: Terminal) -> None:
    page = at_home(browser, served)
    page.get_by_role("link", name="REFUNDS", exact=True).click()
    path = served.world.journal.path
    expect(page.locator("main")).to_contain_text(f"sparkq unpause {path} REFUNDS")
    page.get_by_role("button", name="Unpause").click()
    page.get_by_role("button", name="Unpause the queue").click()
    expect(page.locator("#change")).to_contain_text("Queue 'REFUNDS' grants again.")
    page.context.close()
    assert not sparkq("status", path, "REFUNDS", "--json").json[0]["paused"]
    assert sparkq("pause", path, "REFUNDS").code == 0
    assert sparkq("unpause", path, "REFUNDS").code == 0
    assert not sparkq("status", path, "REFUNDS", "--json").json[0]["paused"]


def test_on_a_phone_the_first_page_tells_who_hangs_and_what_is_paused(browser: Browser, served: Served) -> None:
    page = visitor(browser, served, width=390)
    page.goto("/")
    for name, told in (("BILLING", "east: "), ("REFUNDS", "paused")):
        row = page.locator("tr", has=page.get_by_role("link", name=name, exact=True))
        box = row.get_by_text(re.compile(told)).bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= 390, told
    page.context.close()


def test_redrive_yesterdays_failures_of_one_kind_on_the_page(browser: Browser, served: Served) -> None:
    page = at_home(browser, served)
    row = page.locator("tr", has=page.get_by_role("link", name="BILLING", exact=True))
    row.locator("a.dead").click()
    page.get_by_role("link", name="Yesterday").click()
    expect(page.locator("#groups")).to_contain_text("8 of 10 in 2 groups")
    page.locator("tr", has_text=DECLINED).get_by_role("button", name="Redrive").click()
    expect(page.locator("main")).to_contain_text("5 dead letters would go back to queue 'BILLING'")
    page.get_by_role("button", name="Redrive 5 messages").click()
    expect(page.locator("#change")).to_contain_text("5 dead letters are back in queue 'BILLING', 0 were skipped.")
    page.context.close()
    assert served.world.journal.queue("BILLING").status().dead_letters == 5


def test_redrive_yesterdays_failures_of_one_kind_on_the_command_line(served: Served, sparkq: Terminal) -> None:
    path, today = served.world.journal.path, datetime.now(UTC).date()
    days = ("--since", today - timedelta(days=1), "--until", today)
    kinds = sparkq("dead-letters", path, "BILLING", *days, "--json").json
    assert {kind["error"]: kind["letters"] for kind in kinds} == {DECLINED: 5, "timeout after 30 s at ledger.example:443": 3}
    chosen = (*days, "--error", "declined")
    assert "5 of 5 dead letters would go back" in sparkq("redrive", path, "BILLING", *chosen, "--dry-run").out
    assert "5 of 5 dead letters are back" in sparkq("redrive", path, "BILLING", *chosen).out
    assert json.loads(sparkq("status", path, "BILLING", "--json").out)[0]["dead_letters"] == 5


def test_help_names_what_each_task_begins_with(sparkq: Terminal) -> None:
    told = sparkq("--help").out
    for verb in ("status", "explain", "log", "dead-letters", "redrive"):
        assert re.search(rf"\b{verb}\b", told), verb
