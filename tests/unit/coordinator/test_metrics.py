"""What a coordinator's process tells of itself and of its reign (DESIGN 18)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from spark_queue import Journal
from spark_queue.coordinator.inbox import Call, Inbox
from spark_queue.coordinator.metrics import ProcessMetrics
from spark_queue.coordinator.process import start_metrics
from spark_queue.coordinator.server import Admission
from spark_queue.core import commands
from spark_queue.core.log_tail import LogTail
from spark_queue.core.state.log_history import LogHistory
from spark_queue.core.state.status import queue_status
from spark_queue.errors import CoordinatorError
from spark_queue.journal.store import Store
from spark_queue.journal.store_files import count
from spark_queue.metrics.figures import JournalFigures, Observe
from spark_queue.metrics.prometheus import render
from spark_queue.protocol import wire
from spark_queue.protocol.host import StartOptions
from tests.unit.coordinator.loop_world import World
from tests.unit.metrics.exposed import value


class Scraped:
    """A reign whose loop answers scrapes, and the metrics of its process."""

    def __init__(self, world: World, store: Store) -> None:
        self.world = world
        self.inbox = Inbox()
        self.metrics = ProcessMetrics(store, world.journal_id, per_subscription=False)

    def text(self) -> bytes:
        """Scrape it, while its loop serves one group."""
        found: list[bytes] = []
        scraper = threading.Thread(target=lambda: found.append(render(self.metrics.families())))
        scraper.start()
        while scraper.is_alive():
            self.world.loop.step(self.inbox.take(0.05))
        return found[0]

    def until(self, holds: Callable[[bytes], bool]) -> bytes:
        """Scrape until something holds: another thread folds the log."""
        for _ in range(400):
            text = self.text()
            if holds(text):
                return text
        raise AssertionError("it never held")


@pytest.fixture
def scraped(world: World, tmp_path: Any) -> Scraped:
    return Scraped(world, Store(str(tmp_path)))


def planner(world: World, **fields: Any) -> dict[str, Any]:
    drawn = world.ask(commands.DrawIncarnation, queue="WORK", subscription="s")
    who = {"queue": "WORK", "subscription": "s", "incarnation": drawn.incarnation}
    world.ask(commands.Attach, **who, call=1, ack_mode="auto", max_backlog=100, **fields)
    return who


def observed(world: World) -> JournalFigures:
    call = Call(Observe(), lambda: False)
    world.loop.step([call])
    assert call.figures is not None
    return call.figures


def test_a_reign_tells_the_figures_that_it_decides_by(world: World) -> None:
    world.publish(5)
    who = planner(world)
    world.ask(commands.Next, **who, call=2, finished=0, limit=3, wait_ms=0)
    found = observed(world)
    now_ms = world.clock.wall_ms()
    assert found.statuses == [queue_status(world.loop._engine.state, "WORK", now_ms=now_ms)]
    assert found.statuses[0].backlog == 3
    assert [each.subscription for each in found.subscriptions["WORK"]] == ["s"]


def test_a_scrape_does_not_keep_an_idle_coordinator_alive(world: World) -> None:
    idle_since_ms = world.loop._idle_since_ms
    world.clock.advance(5_000)
    observed(world)
    assert world.loop._idle_since_ms == idle_since_ms


def test_what_keeps_messages_from_entering_is_an_alarm_there_too(world: World) -> None:
    world.loop._entrance.trouble["json"] = CoordinatorError("INTERNAL", what="a gap")
    [status] = world.loop._commands.figures(Observe(), world.loop._entrance, {}, now_ms=world.clock.wall_ms()).statuses
    assert "a gap" in str(status.alarm)


def test_who_stands_by_says_so_and_nothing_of_the_journal(scraped: Scraped) -> None:
    text = scraped.text()
    assert value(text, "sparkqueue_coordinator_serving") == 0
    assert value(text, "sparkqueue_journal_up") is None
    assert value(text, "sparkqueue_queue_depth") is None


def test_commits_are_measured_and_their_records_counted_once(scraped: Scraped) -> None:
    world = scraped.world
    world.publish(4)
    world.journal.control = scraped.metrics.measured(world.journal.control)
    who = planner(world)
    world.ask(commands.Next, **who, call=2, finished=0, limit=3, wait_ms=0)
    # The log that is read now has what was noted already; what comes after it is noted alone.
    scraped.metrics.serves(Log(world), scraped.inbox)
    world.clock.advance(2_000)
    world.ask(commands.Next, **who, call=3, finished=1, limit=3, wait_ms=0)
    text = scraped.until(lambda text: bool(value(text, "sparkqueue_lease_duration_seconds_count")))
    assert value(text, "sparkqueue_lease_duration_seconds_sum") == 2
    assert value(text, "sparkqueue_delivery_delay_seconds_count") == 4
    assert value(text, "sparkqueue_removed_messages_total", reason="acknowledged") == 3
    assert (value(text, "sparkqueue_commit_duration_seconds_count") or 0) >= 3
    assert value(text, "sparkqueue_coordinator_serving") == 1
    history = LogHistory()
    history.fold(world.records())
    assert value(text, "sparkqueue_removed_messages_total", reason="acknowledged") == history.queues["WORK"].removed["acknowledged"]


class Log:
    """The log of a world, for who reads it from its beginning."""

    def __init__(self, world: World) -> None:
        self.tail = lambda: LogTail(world.records())


def test_an_ended_reign_answers_scrapes_as_who_stands_by(scraped: Scraped) -> None:
    scraped.metrics.serves(Log(scraped.world), scraped.inbox)
    scraped.inbox.close()
    text = scraped.text()
    assert (value(text, "sparkqueue_coordinator_serving"), value(text, "sparkqueue_journal_up")) == (0, None)


def test_refused_calls_are_counted_by_their_code(scraped: Scraped) -> None:
    admission = Admission(path="/journals/j", journal_id="j", refused=lambda _request, code: scraped.metrics.refused(code))
    # Who asks whether it serves is not refused.
    admission.answer(wire.encode(wire.Ping(journal="j", request="r")), lambda: False)
    admission.claimed(1)
    admission.answer(b"nonsense", lambda: False)
    for _ in range(2):
        admission.answer(wire.encode(wire.Nudge(journal="other", request="r", message_type="json")), lambda: False)
    admission.answer(wire.encode(wire.Nudge(journal="j", request="r", message_type="json")), lambda: False)
    # Who asks whether it lives is not refused.
    admission.answer(wire.encode(wire.Ping(journal="j", request="r")), lambda: False)
    text = scraped.text()
    codes = {"FRAME_MALFORMED": 1, "JOURNAL_MISMATCH": 2, "COORDINATOR_RECOVERING": 1, "COORDINATOR_STANDS_BY": None}
    assert {code: value(text, "sparkqueue_refusals_total", code=code) for code in codes} == codes


def test_nothing_is_made_where_nobody_asks(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    journal = Journal.create(str(tmp_path / "j"))
    before = threading.active_count()
    assert start_metrics(StartOptions(path=journal.path, storage_options={}, journal_id="j")) == (None, None)
    assert threading.active_count() == before


def test_requests_to_object_stores_are_counted_by_kind(scraped: Scraped) -> None:
    before = value(scraped.text(), "sparkqueue_store_requests_total", kind="LIST")
    assert before is not None
    count("LIST", 3)
    assert value(scraped.text(), "sparkqueue_store_requests_total", kind="LIST") == before + 3


def test_commits_are_not_kept_for_a_history_that_nobody_can_begin(scraped: Scraped) -> None:
    """They would fill the memory, commit by commit."""
    scraped.metrics._follow(Unreadable())
    scraped.metrics.committed([], 0.001)
    assert scraped.metrics._committed is None
    assert b"sparkq" in scraped.text()


class Unreadable:
    def tail(self) -> LogTail:
        raise ZeroDivisionError("a bug")
