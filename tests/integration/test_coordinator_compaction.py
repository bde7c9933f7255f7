"""Coordinators that are killed while they merge the control log's files: no record, lease or message is lost or doubled."""

from __future__ import annotations

import signal

import pytest
from deltalake import DeltaTable

from spark_queue.journal import control_compaction
from spark_queue.journal.open import open_journal
from spark_queue.journal.reader import open_control
from spark_queue.journal.record_blocks import RecordBlock
from spark_queue.journal.store import CONTROL
from tests.integration.coordinator_world import DEADLINE_S, Planner, World
from tests.integration.faulty_coordinator import Faults
from tests.second_model.problems import of_records

MESSAGES = 120


@pytest.mark.drawn(1)
@pytest.mark.parametrize("die_merging", ["planned", "committed", "done"])
def test_a_kill_in_the_middle_of_a_merge_loses_and_doubles_nothing(world: World, die_merging: str) -> None:
    world.publish(MESSAGES)
    victim = world.started(Faults(die_merging=die_merging, upkeep_commits=10))
    planner = Planner(world)
    received, published = planner.consume(limit=3), MESSAGES
    # The merge is planned beside the commits and made between two of them: go on until it happens.
    while victim.poll() is None:
        world.publish(3)
        published += 3
        received += planner.consume(limit=3)
    assert victim.wait(DEADLINE_S) == -signal.SIGKILL
    assert sorted(received) == list(range(published))
    assert [claim.epoch for claim in world.claims()] == [1, 2]
    assert of_records(world.records()) == []
    # Entries hold the newest ones alone.
    table = DeltaTable(world.store.uri(CONTROL)).to_pyarrow_table()
    assert table.sort_by("record").column("record").to_pylist() == list(range(table.num_rows))
    assert table.num_rows <= len(world.records())
    assert bool(open_control(world.store).removes) == (die_merging != "planned")
    _leftovers_harm_nobody(world)


def test_control_log_is_merged_while_a_stream_works(world: World) -> None:
    world.publish(MESSAGES)
    world.started(Faults(upkeep_commits=10))
    planner = Planner(world)
    planner.next(limit=3)
    before = open_journal(world.store).records()
    received, published = planner.bookmarks() + planner.consume(limit=3), MESSAGES
    while all(file.records < 10 for file in _files(world)):
        world.publish(3)
        published += 3
        received += planner.consume(limit=3)
    assert sorted(received) == list(range(published))
    assert world.records()[: len(before)] == before


def _files(world: World) -> list[RecordBlock]:
    return sorted(open_control(world.store).files.values())


def _leftovers_harm_nobody(world: World) -> None:
    """Delete whatever no listing names, as the clean-up does a day later: every record is still there."""
    records = world.records()
    files = _files(world)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(control_compaction, "LEFTOVERS_KEPT_MS", -1)
        gone = control_compaction.leftovers(control_compaction.data_files(world.store), files)
    assert gone
    assert not {f"{CONTROL}/{file.path}" for file in files} & set(gone)
    world.store.delete(gone)
    assert world.records() == records
