"""``sparkq check``: one way for a job to say that it went well, or that somebody should look."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from spark_queue.core import commands
from spark_queue.core.replies import Run
from spark_queue.errors import CallerError
from tests.unit.cli.sparkq import Terminal
from tests.unit.dashboard.dashboard_world import DashboardWorld

ALL_IS_WELL = "all is well"


@pytest.fixture
def world(tmp_path: Path) -> DashboardWorld:
    made = DashboardWorld(tmp_path)
    made.publish(20, 1)
    made.attach("BILLING", "east", 2)
    made.commit()
    return made


def at(world: DashboardWorld, minute: float) -> str:
    return datetime.fromtimestamp(world.at(minute) / 1_000, UTC).isoformat()


def test_a_queue_without_trouble_is_well_though_messages_wait(sparkq: Terminal, world: DashboardWorld) -> None:
    told = sparkq("check", world.journal.path, "BILLING")
    assert (told.code, ALL_IS_WELL in told.out) == (0, True)
    told = sparkq("check", world.journal.path, "BILLING", "--empty")
    assert (told.code, told.out) == (3, "Left in the queue: 20.\n")


def test_dead_letters_count_that_died_since_the_run_began(sparkq: Terminal, world: DashboardWorld) -> None:
    world.expire("BILLING", range(3), "card declined: 402", 30)
    world.expire("BILLING", range(3, 7), "timeout after 30 s", 40)
    world.commit()
    told = sparkq("check", world.journal.path, "BILLING")
    assert told.code == 3
    assert told.out.splitlines() == [
        "Dead letters: 4 (forced_expire: timeout after 30 s).",
        "Dead letters: 3 (forced_expire: card declined: 402).",
    ]
    told = sparkq("check", world.journal.path, "BILLING", "--since", at(world, 35), "--json")
    assert (told.code, told.json["is_well"]) == (3, False)
    assert [(kind["error"], kind["letters"]) for kind in told.json["dead_letters"]] == [("timeout after 30 s", 4)]
    told = sparkq("check", world.journal.path, "BILLING", "--since", at(world, 41), "--json")
    assert (told.code, told.json["is_well"], told.json["dead_letters"]) == (0, True, [])
    # What was given back is no dead letter any more.
    world.decide(commands.Redrive(queue="BILLING", ranges=((0, 7),)), 50)
    world.commit()
    assert sparkq("check", world.journal.path, "BILLING").code == 0


def test_an_alarm_fails_a_run(sparkq: Terminal, world: DashboardWorld) -> None:
    who: dict[str, Any] = {"queue": "BILLING", "subscription": "east"}
    for _ in range(3):
        run = world.decide(commands.StartRun(**who), 3).run
        world.decide(commands.EndRun(**who, run=run, error="no row"), 3)
    world.commit()
    told = sparkq("check", world.journal.path, "BILLING", "--since", at(world, 30))
    assert told.code == 3
    assert told.out.startswith("Alarm: subscription 'east': 3 runs without messages failed")
    assert sparkq("check", world.journal.path, "SHIPPING").code == 0


def test_a_batch_in_doubt_fails_a_run_once_nobody_works_on_it(sparkq: Terminal, world: DashboardWorld) -> None:
    """R123: one that is being appended is in doubt, too; its consumer lives and has said no goodbye."""
    who: dict[str, Any] = {"queue": "BILLING", "subscription": "east"}
    # In the future of the world, and so now.
    now = (datetime.now(UTC).timestamp() * 1_000 - world.start_ms) / 60_000
    world.work("BILLING", 5, now)
    run: Run = world.decide(commands.StartRun(**who, sink=True), now).run
    world.decide(commands.Prepare(**who, run=run, table="s3://b/booked", table_id="t"), now)
    world.commit()
    assert sparkq("check", world.journal.path, "BILLING").code == 0
    world.decide(commands.Leave(**who, incarnation=run.incarnation, call=0), now)
    world.commit()
    told = sparkq("check", world.journal.path, "BILLING")
    assert told.code == 3
    assert "In doubt: attempt 1 of subscription 'east' at 's3://b/booked'." in told.out
    assert sparkq("check", world.journal.path, "BILLING", "--json").json["in_doubt"] == [
        {"subscription": "east", "attempt": 1, "table": "s3://b/booked"}
    ]


def test_a_check_of_nothing_is_refused_by_name(sparkq: Terminal, world: DashboardWorld) -> None:
    told = sparkq("check", world.journal.path, "BILING")
    assert (told.code, "BILLING" in told.err) == (1, True)
    told = sparkq("check", world.journal.path, "BILLING", "--since", "yesterday")
    assert (told.code, "--since" in told.err) == (1, True)


def test_a_program_asks_the_same(world: DashboardWorld) -> None:
    queue = world.journal.queue("BILLING")
    assert (queue.check().exit_code, str(queue.check())) == (0, "Queue 'BILLING': all is well.")
    world.expire("BILLING", range(3), "card declined: 402", 30)
    world.commit()
    assert queue.check().exit_code == 3
    assert queue.check(since=datetime.now(UTC) - timedelta(minutes=1)).exit_code == 0
    assert queue.check(wants_empty=True).findings[-1] == "Left in the queue: 17."
    with pytest.raises(CallerError, match="TIMESTAMP_AMBIGUOUS"):
        queue.check(since=datetime(2026, 1, 1))  # noqa: DTZ001 - that is what is refused.
