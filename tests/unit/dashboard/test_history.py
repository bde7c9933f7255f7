"""Charts say the same as a fold up to each moment does."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from spark_queue.core import commands
from spark_queue.core.records import Outcome
from spark_queue.core.state import status
from spark_queue.dashboard.journal_page import Moments, queue_row
from spark_queue.following.follower import JournalFollower
from spark_queue.following.history import Spark, StepSeries
from spark_queue.journal.open import open_journal
from spark_queue.views import state_at
from tests.unit.dashboard.dashboard_world import DashboardWorld, PastClock

QUEUES = ("BILLING", "BILLING_FAILED", "SHIPPING", "REFUNDS")


def at_record(world: DashboardWorld, queue: str, record: int) -> tuple[int, int, float | None, int]:
    """Return the time of a record, and what a fold up to it says: depth, age and dead letters."""
    point = state_at(open_journal(world.journal.store), record)
    found = status.queue_status(point.state, queue, now_ms=point.now_ms)
    return point.now_ms, found.queue_depth, found.seconds_behind, found.dead_letters


def followed(world: DashboardWorld) -> JournalFollower:
    follower = JournalFollower("shop", world.journal.store)
    follower.refresh()
    assert follower.trouble is None
    return follower


@pytest.mark.drawn(4)
@pytest.mark.parametrize("queue", QUEUES)
@pytest.mark.parametrize("record", [60, 301, 450, -1])
def test_series_is_what_a_fold_up_to_the_moment_says(world: DashboardWorld, queue: str, record: int) -> None:
    records = open_journal(world.journal.store).records()
    # Others may stand at the same millisecond: the last of them is what a time means.
    at_ms = records[record].at_ms
    last = max(each.record for each in records if each.at_ms == at_ms)
    _, depth, age_s, letters = at_record(world, queue, last)
    with followed(world).look() as look:
        assert look is not None
        assert look.history is not None
        found = look.history.series(look.state, queue, np.array([at_ms - 1_000, at_ms]))
    assert (int(found.depth[-1]), int(found.dead_letters[-1])) == (depth, letters)
    assert (None if np.isnan(found.oldest_age_s[-1]) else float(found.oldest_age_s[-1])) == age_s


def test_what_is_redriven_comes_again_and_begins_anew(tmp_path: Path) -> None:
    world = DashboardWorld(tmp_path)
    world.publish(10, 1)
    world.expire("BILLING", range(2, 6), "broken", 2)
    world.decide(commands.Redrive(queue="BILLING", ranges=((2, 5),)), 30)
    world.expire("BILLING", range(2), "broken", 31)
    world.expire("BILLING", range(6, 10), "broken", 32)
    world.commit()
    with followed(world).look() as look:
        assert look is not None
        assert look.history is not None
        times_ms = np.array([world.at(minute) for minute in (0, 1, 2, 30, 31, 32, 40)])
        work = look.history.series(look.state, "BILLING", times_ms)
        letters = look.history.series(look.state, "BILLING_FAILED", times_ms)
    assert work.depth.tolist() == [0, 10, 6, 9, 7, 3, 3]
    assert work.dead_letters.tolist() == [0, 0, 4, 1, 3, 7, 7]
    assert letters.depth.tolist() == [0, 0, 4, 1, 3, 7, 7]
    # Only redriven ones are left at the end.
    assert work.oldest_age_s[1:].tolist() == [0, 60, 29 * 60, 30 * 60, 120, 600]
    assert work.rate_in[2] * 28 * 60 == pytest.approx(3)
    assert work.rate_out[-2] * 60 == pytest.approx(4)


def test_a_reset_queue_begins_where_it_began_anew(tmp_path: Path) -> None:
    world = DashboardWorld(tmp_path)
    world.publish(10, 1)
    world.decide(commands.Apply(definitions=dict(world.journal.definitions().stored), reset=("REFUNDS",)), 20)
    world.commit()
    with followed(world).look() as look:
        assert look is not None
        assert look.history is not None
        assert look.history.since_ms("REFUNDS") == world.at(20)
        assert look.history.since_ms("BILLING") == world.at(0)


def test_a_letter_that_waits_is_no_second_one_when_its_message_dies_again(tmp_path: Path) -> None:
    """Its source began anew meanwhile; what is settled comes again."""
    world = DashboardWorld(tmp_path)
    definitions = dict(world.journal.definitions().stored)
    world.publish(4, 1)
    world.expire("BILLING", range(3), "broken", 2)
    said = zip((Outcome.EXPIRE, Outcome.ACKNOWLEDGE), (((0, 1),), ((1, 2),)), strict=True)
    outcomes = tuple(commands.OutcomeRows(outcome=outcome, ranges=ranges) for outcome, ranges in said)
    world.decide(commands.Settle(queue="BILLING_FAILED", outcomes=outcomes), 3)
    world.decide(commands.Apply(definitions=definitions, reset=("BILLING",)), 20)
    world.expire("BILLING", range(4), "broken", 21)
    world.commit()
    for queue in ("BILLING", "BILLING_FAILED"):
        _, depth, _, letters = at_record(world, queue, world.engine.state.next_record - 1)
        with followed(world).look() as look:
            assert look is not None
            assert look.history is not None
            found = look.history.series(look.state, queue, np.array([world.at(20), world.at(21)]))
        assert (int(found.depth[-1]), int(found.dead_letters[-1])) == (depth, letters), queue


def test_a_little_chart_is_drawn_again_when_it_looks_otherwise_and_only_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = DashboardWorld(tmp_path)
    monkeypatch.setattr("spark_queue.following.follower.SystemClock", lambda: PastClock(world.at(30)))
    world.publish(10, 1)
    world.publish(4, 1, topic="RETURNS")
    world.commit()
    follower, drawn = followed(world), list[tuple[int | None, str]]()

    def sparks() -> dict[str, Spark]:
        with follower.look() as look:
            assert look is not None
            assert look.history is not None
            row = queue_row(look, "BILLING")
            queue_row(look, "REFUNDS")
            drawn.append((row.highest, row.line))
            return dict(look.history.sparks)

    first, again = sparks(), sparks()
    assert again["BILLING"] is first["BILLING"]
    world.expire("BILLING", range(6), "broken", 20)
    world.commit()
    follower.refresh()
    after_loss = sparks()
    assert drawn[-1][0] == 10
    assert drawn[-1][1] != drawn[0][1]
    world.publish(5, 29)
    world.commit()
    follower.refresh()
    sparks()
    assert drawn[-1][1] != drawn[-2][1]
    assert after_loss["REFUNDS"] is first["REFUNDS"]


def test_steps_hold_before_between_and_after_their_changes() -> None:
    steps = StepSeries()
    steps.add(10, 2)
    steps.add(10, 1)
    steps.add(20, -1)
    assert steps.at(np.array([0, 9, 10, 19, 20, 99]), before=7).tolist() == [7, 7, 3, 3, 2, 2]
    assert steps.at(np.array([99])).tolist() == [2]


def test_a_journal_that_is_made_anew_has_a_past_of_its_own(tmp_path: Path) -> None:
    moments, depths = Moments(), list[int]()
    for count in (5, 3):
        world = DashboardWorld(tmp_path)
        world.publish(count, 1)
        world.commit()
        at_ms = world.at(2) // 600_000 * 600_000 + 1_200_000
        depths.append(len(moments.at(world.opened, at_ms).state.ledger("BILLING").entered))
        shutil.rmtree(world.journal.path)
    assert depths == [5, 3]
