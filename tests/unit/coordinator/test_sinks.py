"""Batches that are appended to a sink, at the coordinator's port: repeats, the next reign, rights (R123)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from spark_queue.coordinator.inbox import Call
from spark_queue.core import commands, replies
from spark_queue.core.definitions.keys import ADMINISTER, CHANGE, READ
from spark_queue.core.records import Kind
from spark_queue.journal.record_table import to_records, to_table
from spark_queue.protocol import wire
from spark_queue.protocol.tokens import token_hash
from tests.records import detail_of
from tests.unit.coordinator.loop_world import DEFINITIONS, PERIOD_MS, Planner, World

SINK: dict[str, Any] = {"table": "lake/booked", "table_id": "t1"}


def rights(right: str, token: str) -> dict[str, Any]:
    return {"token_hash": token_hash(token), "rights": [{"queues": "WORK", "rights": [right]}]}


PRINCIPALS: dict[str, Any] = {
    "admin": {"token_hash": token_hash("admin"), "rights": [{"rights": [ADMINISTER]}]},
    "east": rights(READ, "east"),
    "west": rights(READ, "west"),
    "operator": rights(CHANGE, "operator"),
}


def prepared(world: World, planner: Planner, *, limit: int = 2) -> Call:
    """Let a planner's next batch be prepared; returns the call."""
    planner.next(limit=limit)
    world.ask(commands.Rows, lease=planner.lease, **planner.planner())
    run = world.ask(commands.StartRun, sink=True, **planner.common).run
    call = world.call(commands.Prepare, run=run, **SINK, **planner.common)
    world.loop.step([call])
    return call


def code_of(reply: Any) -> str | None:
    return reply.code if isinstance(reply, wire.Failed) else None


def test_a_batch_is_prepared_lands_and_is_acknowledged_with_the_next_poll(world: World) -> None:
    """R123, R126."""
    world.publish(3)
    planner = Planner(world)
    assert prepared(world, planner).reply == replies.Prepared(attempt=1)
    world.clock.advance(20 * PERIOD_MS)
    world.loop.step([])
    told = world.ask(commands.FindAttempts, queue="WORK").attempts
    assert [(each.subscription, each.attempt, each.table, each.table_id) for each in told] == [("s", 1, "lake/booked", "t1")]
    before = len(world.records())
    assert world.ask(commands.Landed, attempt=1, table_version=12, **planner.common) == replies.Done()
    planner.next()
    assert world.kinds(before) == ["landed", "removed", "proven", "granted"]
    assert detail_of(world.records()[before])["version"] == 12


def test_a_prepare_whose_reply_was_lost_gets_its_number_again_also_from_the_next_reign(world: World) -> None:
    """R124: a second number would leave the first in doubt for ever."""
    world.publish(2)
    call = prepared(world, Planner(world))
    for _ in range(2):
        repeated = Call(call.request, lambda: False)
        world.loop.step([repeated])
        world.loop, _ = world.reign()
        assert repeated.reply == call.reply == replies.Prepared(attempt=1)
    assert world.kinds().count(Kind.PREPARED) == 1


def test_a_run_is_told_what_others_left_in_doubt_once_their_lease_is_past_due(world: World) -> None:
    """R125."""
    world.publish(4)
    prepared(world, Planner(world, "east"))
    west = Planner(world, "west")
    west.next(limit=1)
    assert world.ask(commands.StartRun, sink=True, **west.common).sink == replies.SinkTold(messages=1)
    world.clock.advance(PERIOD_MS)
    (told,) = world.ask(commands.StartRun, sink=True, **west.common).sink.others
    assert (told.subscription, told.attempt, told.table_id) == ("east", 1, "t1")
    assert world.ask(commands.Fenced, queue="WORK", subscription="east", attempt=1) == replies.Done()
    assert code_of(world.ask(commands.Landed, queue="WORK", subscription="east", attempt=1)) == "SINK_FENCED"


def test_a_principal_decides_about_its_own_attempts_and_who_may_change_the_queue_about_all() -> None:
    """R12: and a run is told of no attempt of another principal, since it may not decide about it."""
    world = World({**DEFINITIONS, "principals": PRINCIPALS})
    world.act_as("admin")
    world.publish(4)
    world.act_as("east")
    east = Planner(world, "east")
    assert prepared(world, east).reply == replies.Prepared(attempt=1)
    world.act_as("west")
    west = Planner(world, "west")
    west.next(limit=1)
    world.clock.advance(PERIOD_MS)
    assert world.ask(commands.StartRun, sink=True, **west.common).sink.others == ()
    for command in (commands.Landed, commands.Fenced):
        assert code_of(world.ask(command, attempt=1, **east.common)) == "ACCESS_DENIED"
    assert code_of(world.ask(commands.SinkUnreadable, attempt=1, error="gone", **east.common)) == "ACCESS_DENIED"
    assert code_of(world.ask(commands.FindAttempts, queue="WORK")) == "ACCESS_DENIED"
    world.act_as("east")
    assert world.ask(commands.SinkUnreadable, attempt=1, error="gone", **east.common) == replies.Done()
    world.act_as("operator")
    assert [each.error for each in world.ask(commands.FindAttempts, queue="WORK").attempts] == ["gone"]
    assert world.ask(commands.Landed, attempt=1, forced=True, **east.common) == replies.Done()
    (landed,) = (each for each in world.records() if each.kind == Kind.LANDED)
    assert detail_of(landed) == {
        "attempt": 1, "table": "lake/booked", "forced": True, "request": f"r{world.requests}",
        "by": {"principal": "operator", "host": "10.0.0.7"},
    }  # fmt: skip


@pytest.mark.parametrize(
    "bad",
    [
        {"table": ""}, {"table_id": ""}, {"table": "t" * 5_000}, {"transaction_version": -2}, {"transaction_version": 2**53},
        {"outcomes": (commands.OutcomeRows(outcome="cancel", ranges=((5, 6),)),)},
        {"outcomes": (commands.OutcomeRows(outcome="forget", ranges=((0, 1),)),)},
    ],
)  # fmt: skip
def test_what_no_record_could_keep_is_refused_before_anything_is_recorded(world: World, bad: dict[str, Any]) -> None:
    world.publish(2)
    planner = Planner(world)
    planner.next()
    world.ask(commands.Rows, lease=planner.lease, **planner.planner())
    run = world.ask(commands.StartRun, sink=True, **planner.common).run
    before = len(world.records())
    reply = world.ask(commands.Prepare, **{"run": run, **SINK, **planner.common, **bad})
    assert code_of(reply) in ("UNSUPPORTED_WRITE", "UNKNOWN_BOOKMARK", "OUTCOME_INVALID")
    assert len(world.records()) == before


def test_records_of_a_sink_say_that_nobody_may_skip_them(world: World) -> None:
    """DESIGN 19: whoever did would let a lease lapse whose messages stand in a sink."""
    world.publish(2)
    planner = Planner(world)
    prepared(world, planner)
    world.ask(commands.Landed, attempt=1, **planner.common)
    records = [each for each in world.records() if each.kind in (Kind.PREPARED, Kind.LANDED)]
    details = [msgspec.json.decode(str(text)) for text in to_table(records).column("detail").to_pylist()]
    assert [(each["v"], each["critical"]) for each in details] == [(1, True), (1, True)]
    assert list(to_records(to_table(records))) == records
