"""The dashboard in a real browser: every page, every action, small and large, dark and light; the pictures are kept."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.acceptance.served_page import TOKEN, Served, visitor
from tests.source_tree import ROOT
from tests.unit.dashboard.dashboard_world import EVIL, busy_world

pytestmark = pytest.mark.browser

PICTURES = ROOT / "build" / "pictures"

#: The pages by the names of their pictures.
PAGES = {
    "overview": "/",
    "queue": "/j/shop/queues/BILLING?span=6h",
    "messages": "/j/shop/queues/SHIPPING/messages?where=amount+%3E+5",
    "message": "/j/shop/queues/BILLING/messages/2192",
    "dead-letters": "/j/shop/queues/BILLING/dead-letters",
    "log": "/j/shop/log",
    "peers": "/j/shop/peers",
    "journal": "/j/shop/journal",
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    world = busy_world(tmp_path_factory.mktemp("dashboard"))
    world.publish(2, 178.9, topic="RETURNS", item=EVIL)
    newest = world.engine.state.message_types["order"].entered_until
    world.expire("REFUNDS", range(newest - 2, newest - 1), EVIL, 179)
    world.commit()
    made = Served(world, minute=180)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("spark_queue.client.coordinator_client.call_once", made.answer)
        yield made
    made.end()


def complaints(page: Page) -> list[str]:
    """Return what the browser will complain about: scripts that fail, and what the policy refuses."""
    found: list[str] = []
    page.on("console", lambda message: found.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: found.append(str(error)))
    page.on("dialog", lambda dialog: found.append(f"dialog {dialog.message}"))
    return found


@pytest.mark.drawn(3)
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light")])
@pytest.mark.parametrize("name", PAGES)
def test_every_page_is_drawn_without_a_complaint(browser: Browser, served: Served, name: str, width: int, scheme: str) -> None:
    page = visitor(browser, served, width=width, scheme=scheme)
    found = complaints(page)
    hosts: set[str] = set()
    page.on("request", lambda request: hosts.add(request.url.removeprefix(served.address).partition("/")[0]))
    answer = page.goto(PAGES[name])
    assert answer is not None
    assert answer.status == 200
    if page.locator("[data-live]").count():
        expect(page.locator("#live")).to_have_text("live")
    PICTURES.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=PICTURES / f"dashboard-{name}-{scheme}-{width}.png", full_page=True)
    assert found == []
    assert hosts == {""}
    # Tables scroll by themselves; the page does not.
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.context.close()


def test_what_is_new_appears_by_itself(browser: Browser, served: Served) -> None:
    page = visitor(browser, served)
    page.goto("/j/shop")
    row = page.locator("tr", has=page.get_by_role("link", name="REFUNDS", exact=True))
    before = int(row.locator("td").nth(1).inner_text().replace(",", ""))
    served.world.publish(7, 179.5, topic="RETURNS")
    served.world.commit()
    expect(row.locator("td").nth(1)).to_have_text(str(before + 7))
    page.context.close()


def test_the_slider_shows_the_queue_as_it_was_and_back(browser: Browser, served: Served) -> None:
    page = visitor(browser, served)
    page.goto("/j/shop/queues/BILLING?span=6h")
    slider = page.get_by_label("Moment")
    slider.focus()
    # As a keyboard does it: some steps back from the end.
    for _ in range(3):
        slider.press("PageDown")
    page.wait_for_url("**at=*")
    expect(page.locator("p.notice")).to_contain_text("The queue as it was at")
    expect(page.locator("svg .marker")).to_have_count(4)
    page.screenshot(path=PICTURES / "dashboard-queue-as-it-was.png", full_page=True)
    page.get_by_role("link", name="Back to now").click()
    expect(page.locator("p.notice")).to_have_count(0)
    page.context.close()


def test_a_group_is_redriven_with_a_confirmation(browser: Browser, served: Served) -> None:
    page = visitor(browser, served)
    found = complaints(page)
    page.goto("/j/shop/queues/BILLING/dead-letters")
    row = page.locator("tr", has_text="card declined: 402 from the bank")
    row.get_by_role("button", name="Redrive").click()
    expect(page.locator("main")).to_contain_text("4 dead letters would go back to queue 'BILLING'")
    page.screenshot(path=PICTURES / "dashboard-confirm.png", full_page=True)
    page.get_by_role("button", name="Redrive 4 messages").click()
    expect(page.locator("#change")).to_contain_text("4 dead letters are back in queue 'BILLING', 0 were skipped.")
    page.screenshot(path=PICTURES / "dashboard-change.png", full_page=True)
    page.goto("/j/shop/queues/BILLING/dead-letters")
    expect(page.locator("#groups")).to_contain_text(re.compile(r"3 in 1 group\b"))
    assert found == []
    page.context.close()


def test_what_somebody_published_runs_nowhere(browser: Browser, served: Served) -> None:
    page = visitor(browser, served)
    found = complaints(page)
    page.goto("/j/shop/queues/REFUNDS/dead-letters")
    page.get_by_role("link", name=re.compile("<script>")).click()
    expect(page.locator("#letters pre")).to_have_text(EVIL)
    page.locator("#letters tbody a").first.click()
    expect(page.locator("pre").first).to_have_text(EVIL)
    assert page.locator("main img, main script").count() == 0
    assert found == []
    page.context.close()


def test_pages_work_without_scripts(browser: Browser, served: Served) -> None:
    page = visitor(browser, served, scripts=False)
    page.goto("/")
    page.get_by_role("link", name="SHIPPING", exact=True).click()
    page.get_by_role("link", name="Messages").click()
    page.get_by_label("Filter").first.fill("amount > 8")
    page.get_by_role("button", name="Search").click()
    expect(page.locator("tbody tr").first).to_contain_text("9")
    page.get_by_role("link", name="More").count()
    page.context.close()


def test_the_keyboard_reaches_everything(browser: Browser, served: Served) -> None:
    page = visitor(browser, served)
    page.goto("/")
    page.keyboard.press("Tab")
    expect(page.locator(":focus")).to_have_text("Skip to the page")
    seen = set[str]()
    for _ in range(60):
        page.keyboard.press("Tab")
        seen.add(page.evaluate("document.activeElement.innerText"))
    assert {"BILLING", "SHIPPING", "Log out"} <= seen
    page.context.close()


def test_logging_out_ends_it(browser: Browser, served: Served) -> None:
    page = visitor(browser, served)
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("Token")).to_be_visible()
    page.screenshot(path=PICTURES / "dashboard-login.png")
    page.goto("/")
    expect(page.get_by_label("Token")).to_be_visible()
    page.get_by_label("Token").fill("wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.locator("main")).to_contain_text("That is not the token.")
    page.get_by_label("Token").fill(TOKEN)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", name="Queues")).to_be_visible()
    page.context.close()
