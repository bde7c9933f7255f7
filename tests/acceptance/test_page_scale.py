"""The dashboard of a crowded journal in Chromium: small screens, the keyboard, charts, links, and what takes long."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.acceptance.served_page import DEADLINE_MS, TOKEN, Served, visitor
from tests.unit.dashboard.crowd import FAILING, LONG, crowded_world
from tests.waiting import wait_until

pytestmark = pytest.mark.browser

QUEUE = f"/j/shop/queues/{FAILING}"


@pytest.fixture(scope="module")
def served(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    made = Served(crowded_world(tmp_path_factory.mktemp("crowd")), minute=180)
    page = visitor(browser, made)
    page.goto("/")
    # Charts come last.
    expect(page.locator(".spark").first).to_be_visible()
    page.context.close()
    yield made
    made.end()


def outside(page: Page) -> list[str]:
    """Return what is shown beyond the right edge of the screen."""
    found: list[str] = page.evaluate(
        """() => [...document.querySelectorAll("th, td, p, dd, h1, h2, a, button, input")]
        .filter((each) => each.checkVisibility() && each.getClientRects().length && !each.closest(".skip")
            && !each.matches(".skip") && each.getBoundingClientRect().right > innerWidth + 1)
        .map((each) => each.tagName + " " + each.textContent.slice(0, 60))"""
    )
    return found


@pytest.mark.drawn(2)
@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/j/shop?sort=depth",
        f"/?find={LONG[:20]}",
        QUEUE,
        f"{QUEUE}/dead-letters",
        "/j/shop/queues/BILLING/messages",
        "/j/shop/log",
    ],
)
def test_nothing_lies_beyond_a_small_screen(browser: Browser, served: Served, path: str) -> None:
    page = visitor(browser, served, width=390)
    page.goto(path)
    if page.locator("tbody tr").count():
        expect(page.locator("tbody [data-label]").first).to_be_visible()
    assert outside(page) == []
    page.context.close()


def test_a_long_name_is_cut_and_the_table_is_not(browser: Browser, served: Served) -> None:
    page = visitor(browser, served)
    page.goto(f"/?find={LONG[:20]}")
    name = page.get_by_title(LONG)
    expect(name).to_have_css("text-overflow", "ellipsis")
    # What is looked at may be replaced in that moment by what came of the next look at the journal, and then has no width.
    wait_until(lambda: bool(name.evaluate("each => each.scrollWidth > each.clientWidth")))
    wait_until(lambda: bool(page.locator(".scroll").evaluate("each => each.scrollWidth && each.scrollWidth <= each.clientWidth")))
    page.context.close()


def test_the_slider_keeps_the_keyboard_and_speaks_times_as_people_do(browser: Browser, served: Served) -> None:
    page = visitor(browser, served)
    page.goto(f"{QUEUE}?span=6h")
    slider = page.get_by_label("Moment")
    expect(slider).to_have_attribute("aria-valuetext", "now")
    slider.focus()
    for _ in range(3):
        slider.press("PageDown")
    expect(page.locator("p.notice")).to_contain_text("The queue as it was at")
    expect(slider).to_be_focused()
    spoken = re.compile(r"^\d{1,2} \w+ \d{4} at \d\d:\d\d:\d\d UTC$")
    expect(slider).to_have_attribute("aria-valuetext", spoken)
    assert "at=" in page.url
    expect(page.locator("#state")).not_to_have_attribute("data-live", "")
    slider.press("End")
    expect(page.locator("p.notice")).to_have_count(0)
    expect(slider).to_be_focused()
    page.context.close()


def test_a_chart_tells_the_values_under_the_pointer_and_leads_to_a_moment(browser: Browser, served: Served) -> None:
    page = visitor(browser, served)
    page.goto(f"{QUEUE}?span=6h")
    chart = page.locator("figure", has_text="Dead letters").last
    drawn = chart.locator("svg")
    # Two charts share the width of the page.
    drawn.hover(position={"x": 575, "y": 40})
    expect(chart.locator("output")).to_contain_text(re.compile(r"dead letters [\d,.k]+ · .* UTC"))
    drawn.click(position={"x": 470, "y": 40})
    page.wait_for_url("**at=*")
    expect(page.locator("p.notice")).to_contain_text("The queue as it was at")
    expect(page.locator("svg .marker")).to_have_count(4)
    page.context.close()


def test_what_takes_long_is_told_of(browser: Browser, served: Served) -> None:
    page = visitor(browser, served)
    page.goto("/j/shop")
    expect(page.locator("#live")).to_have_text("live")
    held = list[Route]()

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**find=queue.eu*", hold)
    page.get_by_label("Find").fill("queue.eu")
    page.get_by_label("Find").press("Enter")
    expect(page.locator("#live")).to_have_text("loading …")
    for route in held:
        route.continue_()
    page.unroute("**find=queue.eu*")
    expect(page.locator("tbody th a").first).to_contain_text("queue.eu")
    expect(page.locator("#live")).to_have_text("live")
    page.context.close()


def test_a_link_that_is_opened_logged_out_ends_where_it_pointed(browser: Browser, served: Served) -> None:
    context = browser.new_context(base_url=served.address)
    page = context.new_page()
    page.set_default_timeout(DEADLINE_MS)
    page.goto(f"{QUEUE}/dead-letters?error=order&since=")
    page.get_by_label("Token").fill(TOKEN)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url(f"{served.address}{QUEUE}/dead-letters?error=order&since=")
    expect(page.locator("h1")).to_have_text(FAILING)
    context.close()


def test_figures_that_somebody_opened_stay_open(browser: Browser, served: Served) -> None:
    page = visitor(browser, served)
    page.goto("/j/shop/queues/REFUNDS")
    more = page.locator("details", has_text="More figures")
    more.locator("summary").click()
    before = page.locator("dd").first.inner_text()
    served.world.publish(7, 179.5, topic="RETURNS")
    served.world.commit()
    expect(page.locator("dd").first).not_to_have_text(before)
    expect(more).to_have_attribute("open", "")
    page.context.close()
