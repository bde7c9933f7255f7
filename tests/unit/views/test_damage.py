"""Message files that a queue's consumers will stumble over are an alarm of status, before and after they do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from spark_queue.core.records import Outcome
from spark_queue.errors import JournalError
from spark_queue.views import damage, queue_status, state_at
from tests.unit.views.views_world import ViewsWorld


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
    monkeypatch.setattr(damage, "FILES_LIMIT", 2)
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

    def fail(*_arguments: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("pyarrow.parquet.ParquetFile.__init__", fail)
    with pytest.raises(JournalError, match=r"STORE_FAILED.*Input/output error"):
        queue_status(moment, "WORK")
