"""Names as long as names may be, and charts on a small screen, in a real browser: nothing leaves the page, labels can be read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from spark_queue.core import commands
from tests.acceptance.served_page import Served, visitor
from tests.unit.dashboard.crowd import LONG
from tests.unit.dashboard.dashboard_world import DEFINITIONS, DashboardWorld

pytestmark = pytest.mark.browser

JOURNAL, SUBSCRIPTION = "j" * 200, "s" * 200

BASE = f"/j/{JOURNAL}"
QUEUE = f"{BASE}/queues/{LONG}"

#: Least height of a label that can be read, in pixels of the screen.
READABLE_PX = 10


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    world = DashboardWorld(tmp_path_factory.mktemp("layout"), name=JOURNAL)
    queues = {**DEFINITIONS["queues"], LONG: {"underlying_topic": "ORDERS"}}
    world.decide(commands.Apply(definitions={**DEFINITIONS, "queues": queues}), 1)
    world.attach(LONG, SUBSCRIPTION, 2)
    for minute in range(3, 170, 9):
        world.publish(400 * (minute % 7 + 1), minute)
        world.work(LONG, 700, minute + 1)
    newest = world.engine.state.message_types["order"].entered_until
    # Each width has letters of its own to redrive.
    world.expire(LONG, range(newest - 20, newest - 10), "card declined", 175)
    world.expire(LONG, range(newest - 10, newest), "no such item", 175)
    world.commit()
    made = Served(world, minute=179)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("spark_queue.client.coordinator_client.call_once", made.answer)
        yield made
    made.end()


def leaving(page: Page, width: int) -> list[str]:
    """Return what makes a page wider than its window."""
    if page.evaluate("document.documentElement.scrollWidth") <= width:
        return []
    found: list[str] = page.evaluate(
        """(width) => [...document.querySelectorAll('body *')].filter((each) => each.getBoundingClientRect().right > width)
             .map((each) => `${each.tagName} ${each.className} ${each.textContent.trim().slice(0, 40)}`)""",
        width,
    )
    return found or ["something"]


@pytest.mark.parametrize("width", [390, 1280])
def test_names_of_two_hundred_characters_leave_no_page(browser: Browser, served: Served, width: int) -> None:
    page = visitor(browser, served, width=width)
    for path in ("/", BASE, QUEUE, f"{QUEUE}/messages", f"{QUEUE}/messages/1", f"{BASE}/log?queue={LONG}", f"{QUEUE}/dead-letters"):
        page.goto(path)
        assert leaving(page, width) == [], path
    page.get_by_role("button", name="Redrive").first.click()
    confirmed = page.get_by_role("button", name="Redrive 1")
    # While one page makes room for the next, nothing can be measured.
    confirmed.wait_for()
    assert leaving(page, width) == []
    confirmed.click()
    page.wait_for_url("**/changes/*")
    page.wait_for_load_state()
    assert leaving(page, width) == []
    page.goto(f"{BASE}/log")
    assert leaving(page, width) == []
    # The trail keeps one line for each name, which says itself whole when pointed at.
    page.goto(QUEUE)
    last = page.locator("header nav a").last
    assert last.get_attribute("title") == LONG
    box = last.bounding_box()
    assert box is not None
    assert box["height"] < 30
    page.context.close()


@pytest.mark.drawn(4)
@pytest.mark.parametrize("width", [390, 600, 1280])
@pytest.mark.parametrize("span", ["15min", "6h", "24h", "7d", "30d"])
def test_labels_of_charts_can_be_read(browser: Browser, served: Served, width: int, span: str) -> None:
    page = visitor(browser, served, width=width)
    page.goto(f"{QUEUE}?span={span}")
    charts = page.evaluate(
        """() => [...document.querySelectorAll('.chart svg[data-start]')].map((svg) => ({
             frame: svg.getBoundingClientRect().toJSON(),
             labels: [...svg.querySelectorAll('text')].filter((each) => getComputedStyle(each).display !== 'none')
               .map((each) => ({ text: each.textContent, ...each.getBoundingClientRect().toJSON() })) }))"""
    )
    assert len(charts) == 4
    for chart in charts:
        labels, frame = chart["labels"], chart["frame"]
        assert len(labels) >= 3
        for each in labels:
            assert each["height"] >= READABLE_PX, each
            assert frame["left"] - 1 <= each["left"] <= each["right"] <= frame["right"] + 1, each
            assert frame["top"] - 1 <= each["top"] <= each["bottom"] <= frame["bottom"] + 1, each
        pairs = [(one, other) for index, one in enumerate(labels) for other in labels[index + 1 :]]
        assert [(one["text"], other["text"]) for one, other in pairs if overlap(one, other)] == []
    page.context.close()


def overlap(one: dict[str, float], other: dict[str, float]) -> bool:
    """Return whether two labels cover each other; boxes are somewhat higher than what is written in them."""
    across = min(one["right"], other["right"]) - max(one["left"], other["left"])
    down = min(one["bottom"], other["bottom"]) - max(one["top"], other["top"])
    return across > 0 and down > 0.35 * one["height"]
