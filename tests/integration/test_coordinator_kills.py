"""Coordinators that are killed, cut off from their logs, or not answered: nothing durable is lost, nobody waits for ever."""

from __future__ import annotations

import contextlib
import signal
from pathlib import Path

import pytest

from spark_queue.core import commands, replies
from spark_queue.core.records import Kind
from spark_queue.errors import CoordinatorError, JournalError, SparkQueueError
from spark_queue.journal.open import open_journal
from spark_queue.protocol import wire
from tests.integration.coordinator_world import (
    DEADLINE_S,
    QUEUE,
    Planner,
    World,
    request_id,
    stopped,
)
from tests.integration.faulty_coordinator import Faults
from tests.records import record_of


@pytest.mark.parametrize("die", ["before", "staged", "committed", "answerless"])
def test_a_kill_around_the_commit_of_a_grant_loses_and_doubles_nothing(world: World, die: str) -> None:
    """The repeated call gets a lease whether or not the first commit landed, and every message is received once."""
    world.publish(30)
    victim = world.started(Faults(die=die))
    planner = Planner(world)
    granted = planner.next(limit=10)
    assert victim.wait(DEADLINE_S) == -signal.SIGKILL
    assert (granted.lease, granted.messages) == (1, 10)
    grants = [record for record in world.records() if record.kind == Kind.GRANTED]
    # One grant, by the reign whose commit landed; after a lost reply the same lease is answered again (DESIGN 7).
    assert [grant.epoch for grant in grants] == [1 if die in ("committed", "answerless") else 2]
    assert sorted(planner.bookmarks() + planner.consume()) == list(range(30))
    assert [claim.epoch for claim in world.claims()] == [1, 2]


def test_a_kill_between_the_commit_of_a_proof_and_its_reply_removes_once(world: World) -> None:
    world.publish(20)
    planner = Planner(world)
    planner.next(limit=10)
    first = planner.bookmarks()
    world.client().call(wire.Stop(journal=world.journal_id, request=request_id()))
    victim = world.started(Faults(die="answerless", at_kind="proven"))
    granted = planner.next(limit=10)
    assert victim.wait(DEADLINE_S) == -signal.SIGKILL
    assert granted.lease == 2
    assert sorted(first + planner.bookmarks()) == list(range(20))
    removed = [record.ranges for record in world.records() if record.kind == Kind.REMOVED]
    assert removed == [((0, 10),)]


def test_a_repeat_after_a_lost_reply_gets_the_same_lease(world: World) -> None:
    world.publish(20)
    planner = Planner(world)
    request = planner.next_request(limit=5)
    first = planner.client.call(request)
    before = len(world.records())
    again = planner.client.call(request)
    assert isinstance(first, replies.Granted)
    assert isinstance(again, replies.Granted)
    assert (first.lease, first.messages, first.leased_until_ms) == (again.lease, again.messages, again.leased_until_ms)
    assert len(world.records()) == before


def test_trouble_in_a_message_log_ends_delivery_by_name_after_what_came_before_it(world: World) -> None:
    """LOG_GAP: everything before the gap is delivered, then the stream is told, and the coordinator goes on (DESIGN 4)."""
    world.publish(3)
    planner = Planner(world)
    world.publish(2)
    world.publish(2)
    logs = sorted((Path(world.store.path) / "messages" / "json" / "_delta_log").glob("*.json"))
    logs[-2].unlink()
    assert planner.next(limit=100).messages >= 3
    with pytest.raises(SparkQueueError, match="LOG_GAP"):
        planner.consume(limit=100)
    assert isinstance(
        planner.client.call(
            commands.DrawIncarnation(journal=world.journal_id, request=request_id(), queue=QUEUE, subscription="s")
        ),
        replies.Drawn,
    )
    assert len(world.claims()) == 1


def test_a_call_never_outlives_its_timeout(world: World) -> None:
    """Nobody answers, and nobody can be started: the caller hears of it in time, and by name."""
    pid = world.ping().pid
    client = world.client(start=False)
    client.call(wire.Ping(journal=world.journal_id, request=request_id()))
    with stopped(pid), contextlib.ExitStack() as stack:
        caught = stack.enter_context(pytest.raises(CoordinatorError, match="COORDINATOR_UNAVAILABLE"))
        client.call(wire.Nudge(journal=world.journal_id, request=request_id(), message_type="json"), timeout_s=1.0)
    assert caught.value.facts["path"] == world.store.path


def test_a_log_that_cannot_be_recovered_from_is_told_by_name(world: World) -> None:
    """A record of a later version, marked critical: every coordinator claims, fails, and says why; callers do not go in circles."""
    control = open_journal(world.store).control
    number = len(control.load().records)
    control.append([record_of(kind="of_tomorrow", record=number, detail={"critical": True})], epoch=0)
    with pytest.raises(JournalError, match="PROTOCOL_NEWER.*of_tomorrow"):
        world.client().call(wire.Nudge(journal=world.journal_id, request=request_id(), message_type="json"), timeout_s=DEADLINE_S)
