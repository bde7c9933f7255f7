"""Pages of a journal with 500 queues and ten thousand dead letters: what is bad stands first, and no change sends much."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable

from spark_queue.dashboard.journal_page import PAGE_QUEUES
from tests.unit.dashboard.asking import Asker, asker, asker_of, following
from tests.unit.dashboard.crowd import FAILING, LETTERS, LONG, QUEUES, crowded_world
from tests.unit.dashboard.dashboard_world import DashboardWorld

#: Most bytes that a change sends to each browser.
UPDATE_BYTES = 50_000

LETTERS_PAGE = f"/j/shop/queues/{FAILING}/dead-letters"


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> DashboardWorld:
    return crowded_world(tmp_path_factory.mktemp("crowd"))


@pytest.fixture(scope="module")
def visitor(crowd: DashboardWorld) -> Asker:
    return asker(crowd.journal)


def names_of(page: str) -> list[str]:
    return re.findall(r'<th scope="row"><a class="name"[^>]*>([^<]+)<', page)


def following_of(page: str) -> str | None:
    found = re.search(r'rel="next" href="([^"]+)"', page)
    return None if found is None else html.unescape(found[1])


def walked(visitor: Asker, path: str, base: str) -> Iterator[str]:
    """Yield a page, and those that its links to further ones lead to."""
    further: str | None = path
    while further is not None:
        page = visitor.get(further if further.startswith("/") else base + further).text
        yield page
        further = following_of(page)


def test_what_is_bad_stands_first(visitor: Asker) -> None:
    """Of 500 queues two have something that somebody should look at; both were defined among the others."""
    shown = names_of(visitor.get("/").text)
    assert set(shown[:2]) == {FAILING, "queue.us.492"}
    assert len(shown) == PAGE_QUEUES
    assert f"1 to {PAGE_QUEUES} of {QUEUES} queues" in visitor.get("/").text


def test_every_queue_is_on_one_of_the_pages(visitor: Asker) -> None:
    shown = [name for page in walked(visitor, "/", "/j/shop") for name in names_of(page)]
    assert (len(shown), len(set(shown))) == (QUEUES, QUEUES)


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("sort=name", ["a_queue_of", "BILLING", "BILLING_FAILED"]),
        ("sort=letters", [FAILING]),
        ("sort=depth&find=queue.us", ["queue.us.000", "queue.us.002"]),
        ("find=49&sort=name", ["queue.eu.049", "queue.eu.149"]),
        ("find=QUEUE.EU.17", ["queue.eu.17"]),
    ],
)
def test_queues_are_sorted_and_found_by_name(visitor: Asker, query: str, first: list[str]) -> None:
    for path in ("/", "/j/shop"):
        shown = names_of(visitor.get(f"{path}?{query}").text)
        assert [name.startswith(start) for name, start in zip(shown, first, strict=False)] == [True] * len(first), shown[:3]


#: Places of columns among those of numbers.
FIGURES = {"depth": 0, "leased": 4, "delayed": 5}


@pytest.mark.parametrize("name", ["depth", "oldest", "in", "out", "leased", "delayed", "letters"])
def test_a_figure_sorts_the_largest_first(visitor: Asker, name: str) -> None:
    page = visitor.get(f"/?sort={name}").text
    assert f'aria-sort="descending"><a href="?sort={name}">' in page
    rows = [re.findall(r'<td class="num">([^<]*)</td>', row) for row in page.split("<tr")[2:]]
    if name in FIGURES:
        figures = [int(row[FIGURES[name]].replace(",", "")) for row in rows]
        assert len(figures) == PAGE_QUEUES
        assert figures == sorted(figures, reverse=True)


def test_nothing_of_that_name_is_said(visitor: Asker) -> None:
    assert f"0 queues of this name; {QUEUES} in all" in re.sub(r"\s+", " ", visitor.get("/?find=nowhere").text)


@pytest.mark.parametrize("query", ["sort=odd", "start=-1", "start=1e3", f"start={9**40}"])
def test_a_choice_that_is_none_is_refused(visitor: Asker, query: str) -> None:
    answer = visitor.get(f"/?{query}")
    assert (answer.status, "BAD_VALUE" in answer.text) == (400, True)


@pytest.mark.parametrize("query", ["", "sort=name", "sort=depth", "sort=letters", "start=480", "find=queue"])
def test_a_change_sends_at_most_50_kb(visitor: Asker, query: str) -> None:
    for path in ("/", "/j/shop"):
        assert len(visitor.get(f"{path}?{query}").text.encode()) <= UPDATE_BYTES
    for path in (LETTERS_PAGE, "/j/shop/log"):
        assert len(visitor.get(path).text.encode()) <= UPDATE_BYTES


def test_a_change_sends_no_more_where_every_queue_has_an_alarm(tmp_path: Path) -> None:
    world = crowded_world(tmp_path)
    world.publish(5, 176, topic="RETURNS")
    world.commit()
    DeltaTable(world.journal.store.messages_uri("order")).delete("amount = 3")
    world.journal.publish([{"item": "lamp", "amount": 1}], topic="RETURNS")
    page = asker_of([following(world.journal)]).get("/").text
    # Once for each queue that is shown, and once for all of them.
    assert page.count("JOURNAL_REWRITTEN") == PAGE_QUEUES + 1
    assert len(page.encode()) <= UPDATE_BYTES


def test_a_long_name_is_told_whole_where_it_is_cut(visitor: Asker) -> None:
    page = visitor.get(f"/?find={LONG[:30]}").text
    assert f'title="{LONG}"' in page
    assert f'title="{FAILING}"' not in visitor.get("/").text


def test_ten_thousand_letters_with_ids_are_one_group_that_is_paged_through(visitor: Asker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_queue.dashboard.journal_site.GROUP_LETTERS", 2_500)
    page = visitor.get(LETTERS_PAGE).text
    assert re.search(rf"{LETTERS:,} in 1 group\b", page)
    assert "KeyError: order …" in page
    (key,) = set(re.findall(r"\?group=([0-9a-f]+)#", page))
    pages = list(walked(visitor, f"{LETTERS_PAGE}?group={key}", LETTERS_PAGE))
    errors = [each for one in pages for each in re.findall(r'<td class="wrap">KeyError: order (\d+)</td>', one)]
    assert errors == [str(7 * number) for number in range(LETTERS)]
    assert len(pages) == 4


def test_the_letters_of_the_last_day_are_a_link(visitor: Asker) -> None:
    link = re.search(r'href="(\?[^"]+)">Last 24 h</a>', visitor.get(LETTERS_PAGE).text)
    assert link is not None
    since = re.search(r"since=([^&]+)", html.unescape(link[1]))
    assert since is not None
    told = datetime.fromisoformat(since[1].replace("%3A", ":")).replace(tzinfo=UTC)
    assert timedelta(hours=23) < datetime.now(UTC) - told < timedelta(hours=25)
    assert "until=" not in link[1]
    assert re.search(rf"{LETTERS:,} of {LETTERS:,} in 1 group\b", visitor.get(LETTERS_PAGE + html.unescape(link[1])).text)
