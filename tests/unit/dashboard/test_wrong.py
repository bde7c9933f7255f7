"""The list of what is wrong, on the first page and on that of a journal: what, where, since when, and the command to type."""

from __future__ import annotations

import html
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from deltalake import DeltaTable

from spark_queue import Journal
from spark_queue.core import commands
from spark_queue.dashboard.findings import LISTED
from spark_queue.following.follower import JournalFollower
from spark_queue.protocol.discovery import Advertisement
from spark_queue.views import queue_findings
from tests.deciding import started
from tests.fake_clock import FakeClock
from tests.table_on_disk import DAY_MS, TableWorld
from tests.unit.dashboard.asking import Asker, asker_of, following
from tests.unit.dashboard.dashboard_world import DEFINITIONS, EVIL, DashboardWorld
from tests.unit.dashboard.test_pages import text_of

_ITEM = re.compile(
    r'<li( class="bad")?><p><a href="([^"]*)">([^<]*)</a>([^<]*)<span class="path">(.*?)</span></p>\s*<p>(.*?)</p>\s*'
    r'<input class="command" readonly aria-label="Command" size="\d+" value="([^"]*)"></li>',
    re.DOTALL,
)


@dataclass(frozen=True, kw_only=True)
class Item:
    """An item of the list, as a browser would read it."""

    is_alarm: bool
    href: str
    where: str
    since: str
    text: str
    command: str


def section_of(page: str) -> str:
    [found] = re.findall(r'<section id="wrong" data-live>(.*?)</section>', page, re.DOTALL)
    return str(found)


def items(page: str) -> list[Item]:
    section = section_of(page)
    found = [
        Item(
            is_alarm=bool(bad), href=html.unescape(href), where=html.unescape(text_of(where + more)).strip(),
            since=text_of(since).strip(), text=html.unescape(text_of(text)), command=html.unescape(command),
        )
        for bad, href, where, more, since, text, command in _ITEM.findall(section)
    ]  # fmt: skip
    assert len(found) == section.count("<li"), "each item has all its parts"
    return found


def serve(world: DashboardWorld) -> None:
    """Let a coordinator advertise itself."""
    advertisement = Advertisement(
        journal=world.opened.journal_id, address="grpc://127.0.0.1:1", host="h", host_name="h", epoch=1, pid=1,
        renewed_at_ms=world.at(0),
    )  # fmt: skip
    world.journal.store.write("coordinator.json", msgspec.json.encode(advertisement))


@pytest.fixture
def world(tmp_path: Path) -> DashboardWorld:
    made = DashboardWorld(tmp_path)
    serve(made)
    return made


def looked(world: DashboardWorld) -> tuple[JournalFollower, Asker]:
    world.commit()
    follower = following(world.journal)
    return follower, asker_of([follower])


def test_one_quiet_line_where_nothing_is_wrong(world: DashboardWorld, tmp_path: Path) -> None:
    _, visitor = looked(world)
    for path, journals in (("/", "1 journal"), ("/j/shop", "1 journal")):
        told = text_of(section_of(visitor.get(path).text)).strip()
        assert re.fullmatch(rf"Nothing is wrong as of \d\d:\d\d:\d\d UTC, in {journals}\.", told)
    other = Journal.create(str(tmp_path / "other"), {"message_types": {"json": {"topics": ["T"]}}, "queues": {}})
    both = asker_of([following(world.journal), following(other)])
    assert text_of(section_of(both.get("/").text)).strip().endswith("UTC, in 2 journals.")


def test_a_journal_that_was_not_read_yet_is_not_called_well(world: DashboardWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_queue.following.follower.FIRST_WAIT_S", 0.0)
    visitor = asker_of([JournalFollower("shop", world.journal.store)])
    for path in ("/", "/j/shop"):
        assert text_of(section_of(visitor.get(path).text)).strip() == "Not all journals have been read yet."


def test_each_item_says_what_where_since_when_and_leads_there(world: DashboardWorld) -> None:
    world.publish(20, 160)
    world.decide(commands.Pause(queue="REFUNDS"), 165)
    world.expire("BILLING", range(4), "card declined: 402", 170)
    world.attach("SHIPPING", "west", 171)
    world.work("SHIPPING", 5, 171)
    lease = world.engine.state.ledger("SHIPPING").subscriptions["west"].lease
    planner = {name: value for name, value in world._planners["SHIPPING"].items() if name != "call"}
    for step in range(12):
        world.decide(commands.Renew(**planner, call=0, lease=lease), 171.5 + step * 0.75)
    _, visitor = looked(world)
    path = world.journal.store.path
    found = {each.command.split()[1]: each for each in items(visitor.get("/").text)}
    assert set(found) == {"unpause", "unsubscribe", "redrive", "explain"}
    assert found["unpause"].command == f"sparkq unpause {path} REFUNDS"
    assert (found["unpause"].where, found["unpause"].href) == ("shop / REFUNDS", "/j/shop/queues/REFUNDS")
    assert re.fullmatch(r"since 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC, 15 min \d+ s", found["unpause"].since)
    hung = found["unsubscribe"]
    assert hung.command == f"sparkq unsubscribe {path} SHIPPING west"
    assert hung.text.startswith("Consumer 'west' runs a batch of 5 messages, first bookmark")
    assert (hung.href, hung.since[-10:-4]) == ("/j/shop/queues/SHIPPING", " 9 min")
    assert (found["explain"].where, found["redrive"].where) == ("shop / BILLING", "shop / BILLING")
    assert re.search(r"4 in 1 group\b", text_of(visitor.get(found["redrive"].href).text))
    for each in found.values():
        assert visitor.get(each.href).status == 200, each
    assert [each.command for each in items(visitor.get("/j/shop").text)] == [each.command for each in items(visitor.get("/").text)]


def test_a_coordinator_that_is_gone_is_so_since_it_was_last_heard_of_while_messages_wait(tmp_path: Path) -> None:
    world = DashboardWorld(tmp_path)
    world.publish(3, 100, topic="RETURNS")
    world.decide(commands.Pause(queue="BILLING"), 150)
    _, visitor = looked(world)
    first = items(visitor.get("/").text)[0]
    assert (first.is_alarm, first.where, first.href) == (True, "journal shop", "/j/shop/journal")
    assert first.command == f"sparkq serve {world.journal.store.path}"
    assert "UTC, 30 min" in first.since
    # Messages wait because of that: they are told once.
    assert [each.command.split()[1] for each in items(visitor.get("/").text)] == ["serve", "unpause"]


def test_a_trouble_of_a_message_type_is_told_once_for_all_its_queues_and_since_it_was_seen(world: DashboardWorld) -> None:
    world.publish(3, 179)
    world.commit()
    DeltaTable(world.journal.store.messages_uri("order")).delete("amount = 1")
    world.journal.publish([{"item": "lamp", "amount": 1}], topic="RETURNS")
    follower, visitor = looked(world)
    [first, *_] = items(visitor.get("/").text)
    assert (first.is_alarm, first.where, first.href) == (True, "shop / BILLING and 2 more queues", "/j/shop/journal")
    assert first.command == f"sparkq verify {world.journal.store.path}"
    assert re.fullmatch(r"seen first at 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC, .*s ago", first.since)
    follower.refresh()
    assert items(visitor.get("/").text)[0].since[:36] == first.since[:36]


def test_a_queue_that_is_set_aside(world: DashboardWorld) -> None:
    world.engine.set_aside("REFUNDS", "KeyError: 'x'", now_ms=world.at(170))
    _, visitor = looked(world)
    [found] = items(visitor.get("/").text)
    assert (found.is_alarm, found.where, found.command) == (
        True, "shop / REFUNDS", f"sparkq revive {world.journal.store.path} REFUNDS",
    )  # fmt: skip
    assert "UTC, 10 min" in found.since
    assert found.text.startswith("[QUEUE_SET_ASIDE] Queue 'REFUNDS' is set aside: KeyError: 'x'.")
    assert visitor.get(found.href).status == 200


def test_a_journal_that_cannot_be_read_is_told_since_when(world: DashboardWorld, tmp_path: Path) -> None:
    gone = JournalFollower("gone", Journal(str(tmp_path / "gone")).store)
    gone.refresh()
    world.commit()
    [found] = items(asker_of([following(world.journal), gone]).get("/").text)
    assert (found.where, found.command) == ("journal gone", f"sparkq doctor {gone.store.path}")
    assert "NOT_A_JOURNAL" in found.text
    assert re.fullmatch(r"since 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC, \d\.\d s", found.since)


def test_what_cannot_be_computed_is_told_too(world: DashboardWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    def raising(look: object, name: str, **told: bool) -> object:
        if name == "REFUNDS":
            raise ZeroDivisionError("a bug")
        return queue_findings(look, name, **told)  # type: ignore[arg-type]  # It is handed on.

    monkeypatch.setattr("spark_queue.dashboard.journal_page.queue_findings", raising)
    _, visitor = looked(world)
    [found] = items(visitor.get("/").text)
    assert (found.where, found.text) == ("shop / REFUNDS", "Its figures cannot be computed: ZeroDivisionError: a bug.")


def test_errors_and_names_of_all_kinds_stay_texts(tmp_path: Path) -> None:
    """What a consumer raises is anybody's text, and a journal may have any name."""
    name = "-shop's <b>&\"`x`$(reboot)"
    world = DashboardWorld(tmp_path, name=name)
    queues = {**DEFINITIONS["queues"], "-rf": {"underlying_topic": "ORDERS"}, "a" * 200: {"underlying_topic": "ORDERS"}}
    world.decide(commands.Apply(definitions={**DEFINITIONS, "queues": queues}), 1)
    serve(world)
    world.publish(5, 179)
    for queue in ("-rf", "a" * 200):
        world.expire(queue, range(3), f"{EVIL} `{EVIL}` {'x' * 5_000}", 179)
        world.decide(commands.Pause(queue=queue), 179)
    _, visitor = looked(world)
    page = visitor.get("/").text
    section, found = section_of(page), items(page)
    assert re.findall(r"<(?!/?(?:ul|li|p|a|span|time|input|div|h2|code)\b)[^>]*>", section) == []
    assert sorted(each.where for each in found) == sorted(f"{name} / {queue}" for queue in ["-rf", "a" * 200] * 2)
    assert EVIL in next(each.text for each in found if each.command.startswith("sparkq redrive"))
    assert len(section) < 10_000
    # As they reach a program when they are pasted.
    for each in found:
        words = shlex.split(each.command)
        assert (words[0], words[2]) == ("sparkq", world.journal.store.path)
        assert words[3:] == ["--", "-rf"] or words[3:] == ["a" * 200] or words[3].startswith("--since=") or words[4][0] == "-"
        assert visitor.get(each.href).status == 200, each.href


def test_hundreds_of_troubles_are_cut_with_a_count_the_newest_alarms_first(world: DashboardWorld) -> None:
    many = {f"q{number:03}": {"underlying_topic": "RETURNS"} for number in range(300)}
    world.decide(commands.Apply(definitions={**DEFINITIONS, "queues": {**DEFINITIONS["queues"], **many}}), 1)
    for number, name in enumerate(many):
        world.decide(commands.Pause(queue=name), 100 + number / 10)
    world.engine.set_aside("q007", "a bug", now_ms=world.at(131))
    world.engine.set_aside("q004", "a bug", now_ms=world.at(132))
    _, visitor = looked(world)
    page = visitor.get("/").text
    found = items(page)
    assert [each.where for each in found[:3]] == ["shop / q004", "shop / q007", "shop / q299"]
    assert len(found) == LISTED
    assert f"{300 - LISTED} more: below, queues with an alarm come first." in text_of(section_of(page))


def table_page(table: TableWorld, path: str = "/") -> str:
    return asker_of([following(Journal(table.store.path))]).get(path).text


def command_items(page: str, verb: str) -> list[Item]:
    return [each for each in items(page) if each.command.split()[1] == verb]


def test_files_that_vacuum_may_take_and_messages_that_it_took(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R155, R157."""
    table = TableWorld(tmp_path)
    table.append(10, 3)
    table.append(20, 2)
    table.enter()
    table.optimize()
    table.enter()
    clock = FakeClock(table.now_ms + int(4.6 * DAY_MS))
    monkeypatch.setattr("spark_queue.following.follower.SystemClock", lambda: clock)
    told = f"Message type 'orders' follows table '{table.table}' and has read it up to version 3, the newest. 2 files are still to "
    for path in ("/", "/j/journal", "/j/journal/queues/WORK"):
        assert f"{told}be copied: VACUUM may take the first from 20" in html.unescape(text_of(table_page(table, path))), path
    assert command_items(table_page(table), "follow") == []
    clock.advance(int(0.1 * DAY_MS))
    [due] = command_items(table_page(table), "follow")
    assert due.text.startswith("[TABLE_FILES_DUE] 5 messages of queue 'WORK' stand in 2 files")
    assert due.command == f"sparkq follow {table.store.path} --catch-up"
    assert re.search(r"UTC, \d+ min|UTC, \d h", due.since)
    table.vacuum()
    table.wait(ms=1)
    [lost] = command_items(table_page(table), "follow")
    assert lost.text.startswith("[TABLE_ROWS_LOST] 5 messages of queue 'WORK' are lost")
    assert (lost.command, lost.href) == (f"sparkq follow {table.store.path} orders --forget-lost", "/j/journal/journal")
    assert lost.since.startswith("since 20")
    # They came lately by the clock of this host, and nobody can redrive them.
    monkeypatch.undo()
    assert command_items(table_page(table), "redrive") == []


def test_a_followed_table_that_was_changed(tmp_path: Path) -> None:
    table = TableWorld(tmp_path, type_keys={"on_change": "stop"})
    table.append(10, 3)
    table.enter()
    table.delete("id = 11")
    assert table.enter() is not None
    [found] = command_items(table_page(table), "follow")
    assert (found.is_alarm, found.where) == (True, "journal / WORK")
    assert found.command == f"sparkq follow {table.store.path} orders --from=3"
    assert found.text.startswith("[TABLE_CHANGED] Version 2 of table")
    assert found.since.startswith("since 20")
    assert "and has read it up to version 1" in html.unescape(text_of(table_page(table, "/j/journal/queues/WORK")))
    assert "and is set aside" in html.unescape(text_of(table_page(table)))


def test_receivers_are_told_from_streams(world: DashboardWorld) -> None:
    world.attach("SHIPPING", "west", 171)
    started(world.engine, "BILLING", "worker", max_backlog=10, ack_mode="receive", now_ms=world.at(172))
    _, visitor = looked(world)
    assert "1 receiver: consumers in plain Python." in text_of(visitor.get("/").text)
    page = text_of(visitor.get("/j/shop/queues/BILLING").text)
    assert re.search(r"worker receiver ", page)
    assert "Receivers 1 " in page
    assert not re.search(r"west receiver ", text_of(visitor.get("/j/shop/queues/SHIPPING").text))
