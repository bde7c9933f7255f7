"""Views fold the log: each column says what the engine decided, now and at any past record (DESIGN 7, 15.13)."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spark_queue.clock import SystemClock
from spark_queue.core import commands
from spark_queue.core.records import Outcome
from spark_queue.core.state.alarm import Alarm
from spark_queue.errors import CallerError, ConfigError, JournalError
from spark_queue.settings.types import VIEWS
from spark_queue.views import queue_status, read_view, state_at, view_schema
from tests.commit_times import date_commit, newest_entry
from tests.unit.views.views_world import DEFINITIONS, START_MS, ViewsWorld

MINUTE_MS = 60_000
DAY_MS = 86_400_000


@pytest.fixture
def world(tmp_path: Path) -> ViewsWorld:
    return ViewsWorld(tmp_path)


def rows(world: ViewsWorld, name: str, *, queue: str | None = "WORK", now_ms: int = START_MS, **more: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = read_view(world.moment(now_ms), name, queue, **more).to_pylist()
    return found


def moment(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1_000, UTC)


def test_messages_shows_each_message_with_its_body_and_place(world: ViewsWorld) -> None:
    """R10: looking takes nothing."""
    world.publish(10, 11, 12)
    world.publish(13)
    world.attach()
    world.next(2)
    found = rows(world, "messages")
    assert [(row["bookmark"], row["item"], row["amount"], row["state"]) for row in found] == [
        (0, "i10", 10, "leased"),
        (1, "i11", 11, "leased"),
        (2, "i12", 12, "available"),
        (3, "i13", 13, "available"),
    ]
    leased, free = found[0], found[3]
    assert (leased["subscription"], leased["lease"], leased["leased_until"]) == ("s", 1, moment(START_MS + MINUTE_MS))
    assert (free["subscription"], free["lease"], free["leased_until"]) == (None, None, None)
    assert [row["delivery_count"] for row in found] == [1, 1, 0, 0]
    assert (free["topic"], free["priority"], free["is_barrier"]) == ("LINES", None, False)


def test_messages_leaves_out_what_left_the_queue(world: ViewsWorld) -> None:
    """R4, R10: what is done with is no longer shown."""
    world.publish(10, 11, 12)
    world.attach()
    world.next(2)
    world.next(1)
    assert [row["bookmark"] for row in rows(world, "messages")] == [2]
    assert [row["bookmark"] for row in rows(world, "messages", queue="OTHER")] == [0, 1, 2]


def test_a_delayed_message_is_available_as_soon_as_its_time_has_come(world: ViewsWorld) -> None:
    world.publish(10, 11)
    world.attach()
    world.next(2)
    world.settle(Outcome.CANCEL, 1, due_at_ms=START_MS + 5_000)
    assert [(row["state"], row["due_at"]) for row in rows(world, "messages")] == [
        ("leased", None),
        ("delayed", moment(START_MS + 5_000)),
    ]
    late = rows(world, "messages", now_ms=START_MS + 5_000)[1]
    assert (late["state"], late["due_at"], late["cancel_count"]) == ("available", None, 1)


def test_only_the_asked_columns_and_rows_are_read(world: ViewsWorld) -> None:
    world.publish(10, 11)
    world.publish(12)
    second = world.moment().state.message_types["line"].segments[1]
    (Path(world.journal.path) / "messages" / "line" / second.path).unlink()
    assert rows(world, "messages", limit=2, columns=["amount"]) == [{"amount": 10}, {"amount": 11}]
    assert [row["bookmark"] for row in rows(world, "messages", columns=["bookmark", "state"])] == [0, 1, 2]
    with pytest.raises(JournalError, match=r"\[MESSAGE_FILE_MISSING\]"):
        rows(world, "messages")


def test_a_column_appended_later_is_null_in_older_files(world: ViewsWorld) -> None:
    world.publish(10)
    before = world.moment()
    wider = {"line": {"columns": "item STRING, amount BIGINT, note STRING", "topics": ["LINES"]}}
    world.engine.decide(commands.Apply(definitions={**DEFINITIONS, "message_types": wider}), now_ms=START_MS)
    assert rows(world, "messages", columns=["amount", "note"]) == [{"amount": 10, "note": None}]
    assert "note" not in read_view(before, "messages", "WORK").column_names


def test_leases_and_subscriptions_show_who_works_on_what(world: ViewsWorld) -> None:
    world.publish(10, 11, 12)
    world.attach(backlog=7)
    world.next(2)
    assert rows(world, "leases") == [
        {
            "subscription": "s",
            "lease": 1,
            "messages": 2,
            "granted_at": moment(START_MS),
            "leased_until": moment(START_MS + MINUTE_MS),
            "proven": False,
        }
    ]
    (subscription,) = rows(world, "subscriptions")
    assert (subscription["subscription"], subscription["max_backlog"], subscription["backlog"]) == ("s", 7, 2)
    assert subscription["incarnation"] == [1, 1]


def test_a_lease_is_shown_as_long_as_it_is_open_or_holds_something(world: ViewsWorld) -> None:
    """A consumer that settles by hand holds messages of batches that Spark committed long ago."""
    world.publish(10, 11, 12)
    world.attach(ack_mode="explicit")
    world.next(2)
    world.next(1)
    assert [(row["lease"], row["messages"], row["proven"]) for row in rows(world, "leases")] == [(1, 2, True), (2, 1, False)]
    world.settle(Outcome.ACKNOWLEDGE, 0, 1, 2)
    assert rows(world, "leases", columns=["messages", "lease"]) == [{"lease": 2, "messages": 0}]


def test_status_counts_everything_once(world: ViewsWorld) -> None:
    """R119: the statistics of a queue."""
    world.publish(10, 11, 12, 13)
    world.attach()
    world.next(2)
    world.settle(Outcome.EXPIRE, 0)
    world.next(1)
    status = queue_status(world.moment(START_MS + 9_000), "WORK")
    assert (status.entered, status.queue_depth, status.available, status.backlog) == (4, 2, 1, 1)
    assert (status.acknowledged, status.expired, status.dead_letters) == (1, 1, 1)
    assert (status.seconds_behind, status.age_of_oldest_lease) == (9.0, 9.0)
    assert "<th>queue depth</th><td>2</td>" in status._repr_html_()
    assert [row["queue"] for row in rows(world, "status", queue=None)] == ["WORK", "FAILED", "OTHER"]


def test_what_is_beyond_the_target_depth_is_counted_and_not_shown(world: ViewsWorld) -> None:
    """R80, R119."""
    queues = {"WORK": {"underlying_topic": "LINES", "target_queue_depth": 1000}}
    world.engine.decide(commands.Apply(definitions={**DEFINITIONS, "queues": queues}), now_ms=START_MS)
    world.publish(*range(1_003))
    world.settle(Outcome.ACKNOWLEDGE, 1_002)
    status = queue_status(world.moment(), "WORK")
    assert (status.target_queue_depth, status.queue_depth, status.available) == (1_000, 1_003, 1_000)
    assert (status.inactive_message_count, status.deferred_ack_count) == (3, 1)
    assert queue_status(world.moment(START_MS + 2 * DAY_MS), "WORK").deferred_ack_count == 0
    assert [row["bookmark"] for row in rows(world, "messages")] == list(range(1_000))


def test_status_tells_that_a_queue_is_paused(world: ViewsWorld) -> None:
    world.engine.decide(commands.Pause(queue="WORK"), now_ms=START_MS)
    paused = {row["queue"]: row["paused"] for row in rows(world, "status", queue=None)}
    assert paused == {"WORK": True, "FAILED": False, "OTHER": False}
    assert "<th>paused</th><td>yes</td>" in queue_status(world.moment(), "WORK")._repr_html_()


def test_status_tells_an_alarm(world: ViewsWorld) -> None:
    world.attach()
    seen = world.moment()
    assert queue_status(seen, "WORK").alarm is None
    seen.state.ledger("WORK").subscriptions["s"].alarm = Alarm(error="the sink is down", since_ms=START_MS)
    assert queue_status(seen, "WORK").alarm == "the sink is down"


def test_history_is_the_control_log(world: ViewsWorld) -> None:
    """R2, R121: everything that happened is in the log, as a table."""
    world.publish(10)
    world.attach()
    world.next(1)
    found = rows(world, "history")
    assert [row["kind"] for row in found] == ["subscribed", "attached", "granted"]
    assert (found[2]["ranges"], found[2]["lease"]) == ([{"first": 0, "until": 1}], 1)
    assert json.loads(found[2]["detail"])["v"] == 1
    everything = rows(world, "history", queue=None)
    assert [row["record"] for row in everything] == list(range(len(world.records)))
    assert rows(world, "history", limit=1) == found[-1:]


def test_a_past_record_shows_the_queue_as_it_was(world: ViewsWorld) -> None:
    """R120: the state of a queue can be written out, also of a past moment."""
    world.publish(10, 11)
    world.attach()
    before = world.moment().state.next_record - 1
    world.next(2)
    now = queue_status(world.moment(), "WORK")
    past = queue_status(world.moment(as_of=before), "WORK")
    assert (now.available, now.backlog) == (0, 2)
    assert (past.available, past.backlog) == (2, 0)


def test_a_past_time_shows_the_queue_as_it_was(world: ViewsWorld) -> None:
    world.publish(10)
    world.attach(now_ms=START_MS + 1_000)
    world.next(1, now_ms=START_MS + 2_000)
    world.commit()
    past = state_at(world.opened, moment(START_MS + 1_999))
    assert (past.now_ms, queue_status(past, "WORK").available) == (START_MS + 1_999, 1)


@pytest.mark.parametrize("as_of", [-1, 10_000, datetime(1990, 1, 1, tzinfo=UTC)])
def test_a_moment_outside_the_log_is_refused(world: ViewsWorld, as_of: datetime | int) -> None:
    with pytest.raises(CallerError, match=r"\[RECORD_UNKNOWN\]"):
        state_at(world.opened, as_of)


def test_a_bare_time_is_refused(world: ViewsWorld) -> None:
    with pytest.raises(CallerError, match=r"\[TIMESTAMP_AMBIGUOUS\]") as refused:
        state_at(world.opened, moment(START_MS).replace(tzinfo=None))
    assert refused.value.facts["utc"] != refused.value.facts["local"]


def test_looking_counts_on_from_the_message_logs_and_starts_nothing(world: ViewsWorld) -> None:
    """R10: dESIGN 15.15: what was published and has not entered is there, and no record says so."""
    world.journal.publish([{"item": "x", "amount": 1}] * 3, topic="LINES")
    found = state_at(world.opened)
    assert queue_status(found, "WORK").available == 3
    assert len(world.opened.records()) == 2
    assert not (Path(world.journal.path) / "coordinator.json").exists()


def test_a_message_that_has_not_entered_is_as_old_as_its_commit(world: ViewsWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """An alert on the oldest age must not sleep because no coordinator runs."""
    world.journal.publish([{"item": "x", "amount": 1}], topic="LINES")
    committed_ms = SystemClock().wall_ms()
    date_commit(newest_entry(world.journal.path, "line"), committed_ms)
    monkeypatch.setattr(SystemClock, "wall_ms", lambda _: committed_ms + 3_600_000)
    age_s = queue_status(state_at(world.opened), "WORK").seconds_behind
    assert age_s == 3_600


@pytest.mark.parametrize("recorded", [False, True])
def test_a_past_time_counts_what_was_published_by_then(
    world: ViewsWorld, monkeypatch: pytest.MonkeyPatch, *, recorded: bool
) -> None:
    """One rule for now and for then, whether a coordinator has seen the messages since or not."""
    monkeypatch.setattr(SystemClock, "wall_ms", lambda _: START_MS + 10_000_000)
    for after_s, amounts in {1_000: [1, 2], 2_000: [3]}.items():
        world.journal.publish([{"item": "x", "amount": amount} for amount in amounts], topic="LINES")
        date_commit(newest_entry(world.journal.path, "line"), START_MS + 1_000 * after_s)
    if recorded:
        world.publish(4, now_ms=START_MS + 9_000_000)
    world.commit()
    found = [queue_status(state_at(world.opened, moment(START_MS + 1_000 * after_s)), "WORK") for after_s in (500, 1_500, 2_500)]
    assert [(status.entered, status.seconds_behind) for status in found] == [(0, None), (2, 500.0), (3, 1_500.0)]
    assert queue_status(state_at(world.opened), "WORK").entered == 3 + recorded
    assert queue_status(state_at(world.opened, 1), "WORK").entered == 0


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_has_the_columns_that_its_schema_names(world: ViewsWorld, name: str) -> None:
    world.publish(10)
    table = read_view(world.moment(), name, "WORK")
    assert table.schema.equals(view_schema(name, world.moment().state.definitions, "WORK"))


@pytest.mark.parametrize(
    ("name", "queue", "code"),
    [("mesages", "WORK", "BAD_VALUE"), ("messages", "WROK", "UNKNOWN_QUEUE"), ("leases", None, "MISSING_OPTION")],
)
def test_a_wrong_view_or_queue_is_refused_by_name(world: ViewsWorld, name: str, queue: str | None, code: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_view(world.moment(), name, queue)
    assert refused.value.code == code


def test_an_empty_queue_reads_as_an_empty_table_of_the_same_columns(world: ViewsWorld) -> None:
    table = read_view(world.moment(), "messages", "WORK")
    assert (table.num_rows, table.schema.field("amount").type) == (0, pa.int64())


def test_views_show_priorities_and_filters(world: ViewsWorld) -> None:
    """Unsigned 64-bit does not fit a BIGINT (R66, DESIGN 15.13)."""
    world.publish(1, 2, 3)
    world.attach()
    looked = world.moment()
    ledger = looked.state.ledger("WORK")
    ledger.selection.priorities.add(np.array([0, 2]), np.array([7, 2**64 - 1], dtype=np.uint64))
    ledger.subscriptions["s"].filter = "amount > 1"
    shown = read_view(looked, "messages", "WORK", columns=["priority"])
    assert shown.column("priority").to_pylist() == [Decimal(7), None, Decimal(2**64 - 1)]
    assert read_view(looked, "subscriptions", "WORK").column("filter").to_pylist() == ["amount > 1"]
