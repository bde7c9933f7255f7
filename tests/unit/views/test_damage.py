"""Message files that a queue's consumers will stumble over are an alarm of status, before and after they do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from spark_queue.clock import SystemClock
from spark_queue.core import commands
from spark_queue.core.records import Kind, Outcome
from spark_queue.core.state import status
from spark_queue.errors import JournalError
from spark_queue.views import journal_view, queue_status, state_at
from tests.unit.views.views_world import DEFINITIONS, START_MS, ViewsWorld


@pytest.fixture
def world(tmp_path: Path) -> ViewsWorld:
    return ViewsWorld(tmp_path)


def alarm(world: ViewsWorld, queue: str = "WORK") -> str | None:
    world.commit()
    return queue_status(state_at(world.opened), queue).alarm


def file_of(world: ViewsWorld, segment: int) -> Path:
    return Path(world.journal.path) / "messages" / "line" / world.engine.state.message_types["line"].segments[segment].path


def halve(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def scribble(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4:60] = bytes(56)
    path.write_bytes(data)


def shorten(path: Path) -> None:
    pq.write_table(pq.read_table(path).slice(0, 1), path)


@pytest.mark.parametrize(
    ("spoil", "code"),
    [(Path.unlink, "MISSING"), (halve, "CORRUPT"), (lambda path: path.write_bytes(b""), "CORRUPT"), (shorten, "CORRUPT")],
    ids=["missing", "torn", "empty", "short"],
)
def test_a_file_that_is_not_whole_is_an_alarm_of_each_queue_that_waits_for_it(
    world: ViewsWorld, spoil: Callable[[Path], object], code: str
) -> None:
    for amount in (10, 12, 14):
        world.publish(amount, amount + 1)
    world.settle(Outcome.EXPIRE, 2, 3)
    assert alarm(world) is None
    spoil(file_of(world, 1))
    assert alarm(world) is None, "nobody in it needs that file"
    for queue in ("OTHER", "FAILED"):
        assert str(alarm(world, queue)).startswith(f"[MESSAGE_FILE_{code}] Message file '{file_of(world, 1).name}' of "), queue
    # What was done does not get undone by it, and what stood then is not looked at today.
    assert queue_status(state_at(world.opened, len(world.records) - 1), "OTHER").alarm is None


def test_damage_inside_a_file_is_an_alarm_as_soon_as_a_batch_failed_on_it(world: ViewsWorld) -> None:
    world.publish(10, 11)
    world.publish(12, 13)
    scribble(file_of(world, 1))
    world.attach()
    world.next(4)
    assert alarm(world) is None, "only `sparkq verify` reads everything"
    world.fail("a task failed")
    assert str(alarm(world)).startswith("[MESSAGE_FILE_CORRUPT]")


def test_of_a_long_queue_only_the_next_files_are_opened(world: ViewsWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_view, "FILES_LIMIT", 2)
    for amount in range(3):
        world.publish(amount)
    file_of(world, 2).unlink()
    assert alarm(world) is None
    world.settle(Outcome.ACKNOWLEDGE, 0)
    assert "[MESSAGE_FILE_MISSING]" in str(alarm(world))


def test_a_store_that_does_not_answer_says_nothing_about_files(world: ViewsWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world.publish(10)
    world.commit()
    moment = state_at(world.opened)

    def fail(*_arguments: object, **_options: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("pyarrow.parquet.ParquetFile.__init__", fail)
    with pytest.raises(JournalError, match=r"STORE_FAILED.*Input/output error"):
        queue_status(moment, "WORK")


def ordered(place: Path, **keys: str) -> ViewsWorld:
    """Return a journal whose queue WORK has such keys, with a file gone of which one message was settled."""
    known = DEFINITIONS["queues"]
    queues = {**known, "WORK": {**known["WORK"], **keys}}
    world = ViewsWorld(place)
    world.engine.decide(commands.Apply(definitions={**DEFINITIONS, "queues": queues}, reset=("WORK",)), now_ms=START_MS)
    world.publish(10, 11, 12)
    world.publish(13)
    world.attach()
    world.next(2)
    world.settle(Outcome.EXPIRE, 2)
    world.commit()
    file_of(world, 0).unlink()
    return world


@pytest.mark.parametrize("keys", [{"order_key": "item"}, {"priority": "amount"}])
def test_lost_file_under_a_queue_with_an_order_leaves_figures_that_can_be_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: dict[str, str]
) -> None:
    """Who is whose turn only the file tells; what is in the queue the log does."""
    world = ordered(tmp_path, **keys)
    monkeypatch.setattr(SystemClock, "wall_ms", lambda _: START_MS + 9_000)
    assert set(state_at(world.opened).state.troubles) == {"WORK"}, "nobody is given anything"
    found = queue_status(state_at(world.opened), "WORK")
    known = status.queue_status(world.engine.state, "WORK", now_ms=START_MS + 9_000)
    assert replace(found, alarm=None) == known
    assert (found.queue_depth, found.dead_letters, found.seconds_behind) == (3, 1, 9.0)
    assert str(found.alarm).startswith("[MESSAGE_FILE_MISSING]")
    (row,) = [each for each in world.journal.view("status").to_pylist() if each["queue"] == "WORK"]
    assert row == asdict(found)
    removed = next(each.record for each in world.records if each.kind == Kind.REMOVED)
    past = queue_status(state_at(world.opened, removed - 1), "WORK")
    assert (past.queue_depth, past.dead_letters, str(past.alarm)[:22]) == (4, 0, "[MESSAGE_FILE_MISSING]")


def test_lost_file_under_a_filter_leaves_nothing_to_count(tmp_path: Path) -> None:
    """Whether its messages are in the queue only the file tells."""
    world = ordered(tmp_path, filter="amount < 50")
    with pytest.raises(JournalError, match="MESSAGE_FILE_MISSING"):
        queue_status(state_at(world.opened), "WORK")
    (row,) = [each for each in world.journal.view("status").to_pylist() if each["queue"] == "WORK"]
    assert (row["queue_depth"], str(row["alarm"])[:22]) == (None, "[MESSAGE_FILE_MISSING]")
