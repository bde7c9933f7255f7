"""Whoever looks at a journal says the same of it: status, both scrapes, the page and views have one composition of figures."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import pytest

from spark_queue import Journal
from spark_queue.coordinator.commands import Commands
from spark_queue.coordinator.inbox import Call
from spark_queue.coordinator.metrics import ProcessMetrics
from spark_queue.core.engine import Engine
from spark_queue.core.replies import Done, QueueStatus
from spark_queue.following import follower as following
from spark_queue.following.follower import JournalFollower, families_of
from spark_queue.journal import snapshot
from spark_queue.journal.entering import PreparedTraits, Sequencer
from spark_queue.journal.open import open_journal
from spark_queue.journal.reader import list_blocks
from spark_queue.metrics import exposition
from spark_queue.metrics.figures import Observe
from spark_queue.metrics.prometheus import render
from spark_queue.metrics.table import METRICS, Scope
from spark_queue.views import queue_status, state_at
from tests.unit.metrics.exposed import value
from tests.unit.views.test_damage import file_of, ordered
from tests.unit.views.views_world import START_MS, ViewsWorld

QUEUES = ("WORK", "FAILED", "OTHER")

#: Figures that a status and a scrape both have.
BOTH = {
    each.figure: each.name for each in METRICS if each.scope is Scope.QUEUE and each.figure in {x.name for x in fields(QueueStatus)}
}


class Reign:
    """A coordinator that has recovered, as scrapes ask it: each call is answered at once."""

    def __init__(self, journal: Journal) -> None:
        opened = open_journal(journal.store)
        state, traits = state_at(opened).state, PreparedTraits(opened.traits)
        engine = Engine(state)
        self._commands, self._now_ms = Commands(engine, opened, {}), state.last_at_ms
        self._entrance = Sequencer(opened, engine, traits)

    def submit(self, call: Call) -> None:
        """Answer a scrape."""
        assert isinstance(call.request, Observe)
        call.figures = self._commands.figures(call.request, self._entrance, {}, now_ms=self._now_ms)
        call.answer(Done())


def busy(place: Path) -> ViewsWorld:
    world = ViewsWorld(place)
    world.publish(1, 2, 3)
    world.publish(4, 5, now_ms=START_MS + 5_000)
    world.attach(now_ms=START_MS + 6_000)
    world.next(2, now_ms=START_MS + 6_000)
    world.next(1, now_ms=START_MS + 8_000)
    world.commit()
    return world


def healthy(place: Path) -> Journal:
    return busy(place).journal


def from_a_snapshot(place: Path) -> Journal:
    world = busy(place)
    snapshot.capture(world.journal.store, list_blocks(world.journal.store), world.opened.traits)
    world.fail("the sink is down", now_ms=START_MS + 9_000)
    world.commit()
    return world.journal


def with_a_lost_file(place: Path) -> Journal:
    world = busy(place)
    file_of(world, 1).unlink()
    return world.journal


def with_a_damaged_file(place: Path) -> Journal:
    world = busy(place)
    file_of(world, 1).write_bytes(b"PAR1")
    return world.journal


def set_aside(place: Path) -> Journal:
    return ordered(place, order_key="item").journal


def put_back(place: Path) -> Journal:
    """Make a copy of before, in which the snapshots of after were left."""
    world = busy(place)
    copy = shutil.copytree(world.journal.path, place / "copy")
    world.publish(6, now_ms=START_MS + 10_000)
    world.commit()
    snapshot.capture(world.journal.store, list_blocks(world.journal.store), world.opened.traits)
    shutil.copytree(Path(world.journal.path) / "snapshots", Path(copy) / "snapshots", dirs_exist_ok=True)
    return Journal(str(copy))


def scraped(text: bytes) -> dict[str, dict[str, float | None]]:
    return {queue: {figure: value(text, name, queue=queue) for figure, name in BOTH.items()} for queue in QUEUES}


def as_scraped(row: dict[str, Any]) -> dict[str, float | None]:
    return {figure: float(bool(row["alarm"]) if figure == "alarm" else row[figure] or 0) for figure in BOTH}


def of_coordinator(journal: Journal) -> bytes:
    metrics = ProcessMetrics(journal.store, journal.journal_id(), per_subscription=False)
    metrics.serves(open_journal(journal.store), Reign(journal))  # type: ignore[arg-type]  # it answers as an inbox does
    for _ in ("chosen", *QUEUES):
        # Each scrape looks at the files of one queue more; the first only chooses it.
        metrics.families()
    return render(metrics.families())


def of_page(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> tuple[bytes, dict[str, dict[str, Any]]]:
    monkeypatch.setattr(following, "FILES_MS", 0)
    follower = JournalFollower("shop", journal.store)
    for _ in QUEUES:
        follower.refresh()
    with follower.look() as view:
        assert view is not None
        rows = {queue: asdict(queue_status(view, queue)) for queue in view.state.queues}
    return render(families_of([follower])), rows


@pytest.mark.drawn(2)
@pytest.mark.parametrize(
    ("make", "alarmed"),
    [
        (healthy, set[str]()),
        (from_a_snapshot, set[str]()),
        (with_a_lost_file, {"WORK", "OTHER"}),
        (with_a_damaged_file, {"WORK", "OTHER"}),
        (set_aside, {*QUEUES}),
        (put_back, set[str]()),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_readers_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], Journal], alarmed: set[str]) -> None:
    journal = make(tmp_path)
    rows = {row["queue"]: row for row in journal.view("status").to_pylist()}
    assert {name for name, row in rows.items() if row["alarm"]} == alarmed
    assert rows == {queue: asdict(journal.queue(queue).status()) for queue in QUEUES}
    outside = scraped(exposition([journal]))
    page, of_rows = of_page(journal, monkeypatch)
    assert scraped(of_coordinator(journal)) == outside
    assert scraped(page) == outside
    assert of_rows == {name: rows[name] for name in of_rows}
    # A queue that is set aside has no figures in a scrape, which says that it is not up.
    told = {queue: figures for queue, figures in outside.items() if queue in of_rows}
    assert told == {queue: as_scraped(rows[queue]) for queue in told}
    assert set(QUEUES) - set(told) == ({"WORK"} if make is set_aside else set())
