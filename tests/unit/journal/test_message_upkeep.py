"""What is due on message tables, and when it is done with: each piece of work costs a table that is opened (DESIGN 4)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spark_queue.core.state.journal_state import JournalState
from spark_queue.journal.message_compaction import MergeLimits
from spark_queue.journal.message_upkeep import MessageLimits, MessageUpkeep
from spark_queue.journal.message_work import MessageTableWork
from spark_queue.verification.state_digest import digest
from tests.scenario import Scenario
from tests.unit.journal.journal_on_disk import Disk
from tests.unit.journal.reign import NOW_MS, SMALL, Reign, publish_some

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS

QUEUES = """define
  [journal]
  retention = "1h"
  [message_types.json]
  topics = ["T"]
  [queues.Q]
  underlying_topic = "T"
  lease_period = "90d"
  lease_renewal_limit = "90d"
  [queues.ONCE]
  underlying_topic = "T"
  semantics = "at-most-once"
"""


def upkeep() -> MessageUpkeep:
    return MessageUpkeep(MessageLimits(merging=SMALL))


def opened(disk: Disk) -> MessageTableWork:
    return MessageTableWork(disk.store, disk.journal_id, "order", epoch=1, now_ms=NOW_MS, is_durable=lambda: False)


def work(tables: MessageUpkeep, state: JournalState, now_ms: int) -> list[str]:
    """Name what is due on messages of type json."""
    due: list[Any] = list(tables.due(state, "json", now_ms=now_ms))
    return [job.func.__name__ for job in due]


def search_is_due(scenario: Scenario, *, begun_ms: int) -> bool:
    """Return whether an upkeep that began then looks for files that nothing names."""
    tables, state = upkeep(), scenario.world.engine.state
    work(tables, state, begun_ms)
    return "_delete" in work(tables, state, scenario.world.now_ms)


def test_store_is_searched_once_an_hour() -> None:
    scenario, tables = Scenario(), upkeep()
    scenario.run(QUEUES + "publish T 0")
    state, begun_ms = scenario.world.engine.state, scenario.world.now_ms
    found = ["_delete" in work(tables, state, begun_ms + quarter * HOUR_MS // 4) for quarter in range(13)]
    assert [quarter for quarter, due in enumerate(found) if due] == [4, 8, 12]


@pytest.mark.parametrize(
    ("steps", "is_due"),
    [
        ("planner p Q/s\nnext p\ntick 23h", True),
        ("planner p Q/s\nnext p\ntick 25h", False),
        ("planner p Q/s\nnext p\ntick 25h\nnext p", True),
        ("planner p ONCE/s\nnext p\ntick 25h", False),
        ("planner p ONCE/s\nnext p\ntick 25h\nnext p", True),
    ],
)
def test_files_stay_as_long_as_a_lease_may_read_them(steps: str, is_due: bool) -> None:
    """A lease that is read was cut when it was granted, and its files may have been replaced since."""
    scenario = Scenario()
    scenario.run(QUEUES + "publish T 0..3")
    begun_ms = scenario.world.now_ms
    scenario.run(steps)
    assert search_is_due(scenario, begun_ms=begun_ms) is is_due


def test_what_was_let_go_is_dropped_once(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "journal", journal={"retention": "1h"})
    reign = Reign(disk, epoch=1)
    tables = upkeep()
    publish_some(disk, 2)
    reign.enter()
    reign.consume(6)
    reign.tick(NOW_MS + 2 * HOUR_MS)
    (drop,) = tables.due(reign.state, "order", now_ms=NOW_MS)
    drop(opened(disk))
    assert list(tables.due(reign.state, "order", now_ms=NOW_MS)) == []


def test_what_is_retired_while_it_is_merged_takes_nothing_else_with_it(tmp_path: Path) -> None:
    """A merge is committed to the table before the control log tells of it; retention may come in between."""
    disk = Disk(tmp_path / "journal", journal={"retention": "1h"})
    publish_some(disk, 4)
    reign = Reign(disk, epoch=1)
    reign.enter()
    reign.upkeep()
    reign.consume(5)
    reign.tick(NOW_MS + 2 * HOUR_MS)
    # WORK has messages of the second and the fourth file left.
    assert [segment.retired for segment in reign.segments] == [True, False, True, False]
    reign.enter()
    reign.upkeep()
    assert disk.ids() == list(range(12)), "what is still needed stands in the same file by now"
    reign.consume(100)
    reign.tick(NOW_MS + 4 * HOUR_MS)
    assert all(segment.retired for segment in reign.segments)
    assert reign.state.message_types["order"].retired_rows == 12
    reign.upkeep()
    assert disk.ids() == []
    assert digest(Reign(disk, epoch=2).state)["message_types"] == digest(reign.state)["message_types"]


def test_merge_whose_files_went_meanwhile_is_planned_anew_at_the_next_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(tmp_path / "journal")
    reign = Reign(disk, epoch=1)
    tables = upkeep()
    publish_some(disk, SMALL.files_min)
    reign.enter()
    with monkeypatch.context() as patch:
        patch.setattr(MessageTableWork, "commit", lambda *_given, **_options: False)
        (merge,) = tables.due(reign.state, "order", now_ms=NOW_MS)
        merge(opened(disk))
    (merge,) = tables.due(reign.state, "order", now_ms=NOW_MS)
    merge(opened(disk))
    reign.enter()
    assert len({segment.path for segment in reign.segments}) == 1


def test_table_that_was_merged_is_opened_again_only_for_new_files(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "journal")
    reign = Reign(disk, epoch=1)
    tables = MessageUpkeep(MessageLimits(merging=MergeLimits(files_min=2, files_due=4)))
    publish_some(disk, 3)
    reign.enter()
    assert list(tables.due(reign.state, "order", now_ms=NOW_MS)) == []
    publish_some(disk, 1)
    reign.enter()
    (merge,) = tables.due(reign.state, "order", now_ms=NOW_MS)
    merge(opened(disk))
    reign.enter()
    assert len({segment.path for segment in reign.segments}) == 1
    publish_some(disk, 3)
    reign.enter()
    assert list(tables.due(reign.state, "order", now_ms=NOW_MS)) == []


def test_merge_of_more_than_one_round_goes_on_at_once(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "journal")
    reign = Reign(disk, epoch=1)
    tables = MessageUpkeep(MessageLimits(merging=MergeLimits(files_min=2, files_due=2, target_bytes=8_000, round_bytes=1)))
    publish_some(disk, 8)
    reign.enter()
    rounds = 0
    while due := list(tables.due(reign.state, "order", now_ms=NOW_MS)):
        due[0](opened(disk))
        reign.enter()
        rounds += 1
    assert rounds > 2
    assert len({segment.path for segment in reign.segments}) < 8
