"""``sparkq dead-letters`` and the choice of dead letters by ``sparkq redrive``; ``sparkq log``."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from spark_queue.core import commands
from spark_queue.core.commands import Caller
from spark_queue.errors import CallerError
from spark_queue.protocol.endpoint import Endpoint
from tests.unit.cli.sparkq import Terminal
from tests.unit.dashboard.dashboard_world import DashboardWorld

#: Words by which errors differ in kind.
WORDS = [first + second for first in "bcdfghj" for second in "aeiouxy"]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DashboardWorld:
    """Make a journal whose letters died at known times, and whose engine answers instead of a coordinator."""
    made = DashboardWorld(tmp_path)
    made.publish(20, 1)
    made.expire("BILLING", range(3), "card declined: 402", 2)
    made.expire("BILLING", range(3, 6), "card declined: 402", 30)
    made.expire("BILLING", range(6, 10), "timeout after 30 s", 40)
    made.decide(commands.Purge(queue="SHIPPING", where="amount > 7"), 50)
    made.commit()

    def answer(_store: Any, _journal: str, command: commands.AnyCommand, *, endpoint: Endpoint) -> Any:
        reply = made.decide(command, 60)
        made.commit()
        return reply

    monkeypatch.setattr("spark_queue.client.coordinator_client.call_once", answer)
    return made


def at(world: DashboardWorld, minute: float) -> str:
    return datetime.fromtimestamp(world.at(minute) / 1_000, UTC).isoformat()


def test_dead_letters_are_told_by_kind(sparkq: Terminal, world: DashboardWorld) -> None:
    rows = sparkq("dead-letters", world.journal.path, "BILLING", "--json").json
    assert [(row["reason"], row["error"], row["letters"], row["oldest_bookmark"]) for row in rows] == [
        ("forced_expire", "timeout after 30 s", 4, 6),
        ("forced_expire", "card declined: 402", 6, 0),
    ]
    told = sparkq("dead-letters", world.journal.path, "BILLING", "--error", "declined", "--since", at(world, 20))
    assert "card declined: 402" in told.out
    assert "timeout" not in told.out
    assert "begin with --dry-run" in told.out
    assert "no such dead letters" in sparkq("dead-letters", world.journal.path, "BILLING", "--until", at(world, 1)).out


def test_a_dead_letter_queue_names_the_queues_whose_redrive_takes_its_letters(sparkq: Terminal, world: DashboardWorld) -> None:
    path = world.journal.path
    assert f"sparkq redrive {path} BILLING gives" in sparkq("dead-letters", path, "BILLING").out
    world.expire("BILLING_FAILED", range(2), "again", 55)
    world.commit()
    told = sparkq("dead-letters", path, "BILLING_FAILED").out
    assert f"sparkq redrive {path} BILLING gives" in told
    assert f"died here again come back by sparkq redrive {path} BILLING_FAILED." in told
    # Both named commands are right: neither is refused, and together they take all letters that are shown.
    taken = [sparkq("redrive", path, queue, "--json").json["redriven"] for queue in ("BILLING", "BILLING_FAILED", "BILLING")]
    assert taken == [8, 2, 2]


def test_many_kinds_are_shown_up_to_a_limit_and_the_rest_is_counted(sparkq: Terminal, world: DashboardWorld) -> None:
    world.publish(60, 51)
    for number, word in enumerate(WORDS):
        world.expire("BILLING", range(20 + number, 21 + number), f"bad {word}", 52 + number / 10)
    world.commit()
    command = ("dead-letters", world.journal.path, "BILLING")
    assert len(sparkq(*command, "--json").json) == 50
    told = sparkq(*command).out
    assert "Older kinds not shown: 1, of 6 letters. --limit 51 shows all." in told
    assert f"bad {WORDS[-1]}" in told
    assert "card declined" not in told
    whole = sparkq(*command, "--limit", 51).out
    assert "card declined" in whole
    assert "not shown" not in whole
    assert [row["error"] for row in sparkq(*command, "-n", 1, "--json").json] == [f"bad {WORDS[-1]}"]


def test_errors_that_differ_in_numbers_alone_are_one_kind(sparkq: Terminal, world: DashboardWorld) -> None:
    world.publish(60, 51)
    for number in range(20, 30):
        world.expire("BILLING", range(number, number + 1), f"KeyError: order {number}", 52)
    world.commit()
    newest = sparkq("dead-letters", world.journal.path, "BILLING", "--json").json[0]
    assert (newest["error"], newest["letters"], newest["oldest_bookmark"]) == ("KeyError: order …", 10, 20)


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ({"--since": 20, "--until": 35, "--error": "declined"}, 7),
        ({"--since": 20, "--error": "declined"}, 7),
        ({"--until": 20, "--error": "declined", "--reason": "forced_expire"}, 7),
        ({"--error": "timeout"}, 6),
        ({"--reason": "max_deliveries"}, 10),
        # From the one time on, and before the other.
        ({"--since": 2, "--until": 30}, 7),
        ({"--since": 30, "--until": 40}, 7),
    ],
)
def test_letters_of_a_kind_and_a_time_are_redriven(
    sparkq: Terminal, world: DashboardWorld, given: dict[str, Any], left: int
) -> None:
    options = [text for name, value in given.items() for text in (name, at(world, value) if isinstance(value, int) else value)]
    would = sparkq("redrive", world.journal.path, "BILLING", *options, "--dry-run", "--json").json
    assert (would["redriven"], would["dry_run"]) == (10 - left, True)
    assert world.journal.queue("BILLING").status().dead_letters == 10
    done = sparkq("redrive", world.journal.path, "BILLING", *options, "--json").json
    assert (done["redriven"], done["skipped"]) == (10 - left, 0)
    assert world.journal.queue("BILLING").status().dead_letters == left


def test_a_choice_and_bookmarks_and_a_filter_hold_together(world: DashboardWorld) -> None:
    queue = world.journal.queue("BILLING")
    done = queue.redrive("amount > 0", bookmarks=[0, 1, 4, 7], error="declined")
    assert done.redriven == 2
    assert [len(kind.rows) for kind in queue.letter_kinds()] == [4, 4]


def test_what_cannot_be_meant_is_refused_by_name(sparkq: Terminal, world: DashboardWorld) -> None:
    for given in (("--since", "yesterday"), ("--until", "2026-02-30"), ("--reason", "bored")):
        said = sparkq("redrive", world.journal.path, "BILLING", *given)
        assert (said.code, "[BAD_VALUE]" in said.err, given[1] in said.err) == (1, True, True)
    said = sparkq("dead-letters", world.journal.path, "BILLING", "--since", "2026-02-03T10:00:00")
    assert "[TIMESTAMP_AMBIGUOUS] Timestamp '2026-02-03T10:00:00' of --since has no offset" in said.err
    with pytest.raises(CallerError, match="TIMESTAMP_AMBIGUOUS"):
        world.journal.queue("BILLING").redrive(since=datetime(2026, 1, 1))  # noqa: DTZ001 - as said by the test.


def test_a_date_is_its_beginning_in_utc(sparkq: Terminal, world: DashboardWorld) -> None:
    today = datetime.fromtimestamp(world.at(2) / 1_000, UTC).date()
    assert len(sparkq("dead-letters", world.journal.path, "BILLING", "--since", today, "--json").json) == 2
    assert sparkq("dead-letters", world.journal.path, "BILLING", "--until", today, "--json").json == []


def test_the_log_tells_who_purged(sparkq: Terminal, world: DashboardWorld) -> None:
    caller = Caller(principal="ann", host="10.0.0.9", signs=True)
    world.engine.decide(commands.Purge(queue="SHIPPING", request="r"), now_ms=world.at(70), caller=caller)
    world.decide(commands.Pause(queue="REFUNDS"), 71)
    world.commit()
    [row] = sparkq("log", world.journal.path, "SHIPPING", "--people", "-n", 1, "--json").json
    assert (row["reason"], row["who"]) == ("purged", "principal ann, host 10.0.0.9")
    told = sparkq("log", world.journal.path, "--people").out
    assert "principal ann" in told
    assert "paused" in told
    assert "leased" not in told
    newest, *_ = sparkq("log", world.journal.path, "--json").json
    assert (newest["kind"], newest["queue"]) == ("paused", "REFUNDS")
    older = sparkq("log", world.journal.path, "--before", newest["record"], "--kind", "paused")
    assert "There are no such records. The log has these kinds: " in older.out
    assert "definitions_applied" in older.out
    shown = sparkq("log", world.journal.path, "-n", 2).out
    assert f"--before {newest['record'] - 1} shows older ones." in shown


def test_the_log_tells_what_changed_in_the_definitions(sparkq: Terminal, tmp_path: Path) -> None:
    world = DashboardWorld(tmp_path)
    stored = dict(world.journal.definitions().stored)
    changed = {**stored, "queues": {**stored["queues"], "REFUNDS": {**stored["queues"]["REFUNDS"], "max_deliveries": 9}}}
    world.decide(commands.Apply(definitions=changed), 1)
    world.commit()
    assert "change [queues.REFUNDS] max_deliveries: 0 -> 9" in sparkq("log", world.journal.path, "--people").out
    newest, oldest = sparkq("log", world.journal.path, "--kind", "definitions_applied", "--json").json
    assert newest["changes"] == ["change [queues.REFUNDS] max_deliveries: 0 -> 9"]
    assert oldest["changes"] == []
