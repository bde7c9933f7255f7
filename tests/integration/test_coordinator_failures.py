"""Coordinators that are stopped, killed, cut off or wrong about the time: nothing durable is lost, nothing else is answered."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from spark_queue.coordinator import wire
from spark_queue.coordinator.connection import Connection, ConnectionLostError
from spark_queue.coordinator.process import EXIT_DOUBT
from spark_queue.core.records import Kind, Record
from spark_queue.errors import CoordinatorError, JournalError, SparkQueueError
from spark_queue.journal.open import open_journal
from tests.integration.coordinator_world import DEADLINE_S, QUEUE, Planner, World, request_id, stopped, wait_until_stopped
from tests.integration.faulty_coordinator import Faults

MakeWorld = Callable[..., World]
DAY_MS = 86_400_000

#: A starter that does not wait long for a silent predecessor.
HASTY = Faults(silence_s=0.5, watch_s=2.0)


@pytest.fixture(autouse=True)
def directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))


@pytest.fixture
def make_world(tmp_path: Path) -> Iterator[MakeWorld]:
    made: list[World] = []

    def make(**options: Any) -> World:
        made.append(World(tmp_path / f"journal{len(made)}", **options))
        return made[-1]

    yield make
    for world in made:
        world.end()


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    return make_world()


def address_of(world: World) -> str:
    return str(world.claims()[-1].detail["address"])


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
    assert isinstance(first, wire.Granted)
    assert isinstance(again, wire.Granted)
    assert (first.lease, first.messages, first.leased_until_ms) == (again.lease, again.messages, again.leased_until_ms)
    assert len(world.records()) == before


def start_call(pool: ThreadPoolExecutor, world: World, address: str, request: wire.AnyRequest) -> Future[wire.AnyReply]:
    """Send a request to one address only, and wait for its answer elsewhere."""
    sent = threading.Event()

    def send() -> wire.AnyReply:
        connection = Connection(address, world.journal_id)
        sent.set()
        return connection.call(request, timeout_s=DEADLINE_S)[0]

    future = pool.submit(send)
    assert sent.wait(DEADLINE_S)
    return future


def clean_control_log(world: World) -> None:
    """Checkpoint the control log and delete every older entry, as clean-up does in time (DESIGN 15.10)."""
    table = DeltaTable(world.store.control_uri)
    table.create_checkpoint()
    for entry in sorted((Path(world.store.path) / "control" / "_delta_log").glob("*.json")):
        if int(entry.stem) < table.version():
            entry.unlink()


@pytest.mark.parametrize("cleaned", [False, True], ids=["log kept", "log cleaned"])
@pytest.mark.parametrize("asked", ["a grant", "a proof", "rows", "a settlement"])
def test_a_coordinator_stopped_and_continued_after_its_reign_changes_and_answers_nothing(
    world: World, asked: str, cleaned: bool
) -> None:
    """A zombie is fenced at its next commit, also one that lands on a cleaned-up version (DESIGN 3.4), and at reads (P7)."""
    world.publish(40)
    # It does not look at the hint meanwhile: the log alone must stop it.
    old = world.started(Faults(renewal_s=3600.0))
    zombie_address = address_of(world)
    granted, idle = Planner(world, "granted"), Planner(world, "idle")
    granted.next(limit=5)
    outcome = wire.OutcomeRows(outcome="acknowledge", ranges=((0, 5),))
    requests: dict[str, wire.AnyRequest] = {
        "a grant": idle.next_request(limit=5),
        "a proof": granted.next_request(limit=5),
        "rows": granted.rows_request(),
        "a settlement": wire.Settle(journal=world.journal_id, request=request_id(), queue=QUEUE, outcomes=(outcome,)),
    }
    with ThreadPoolExecutor(1) as pool:
        with stopped(old.pid):
            answer = start_call(pool, world, zombie_address, requests[asked])
            world.started(HASTY)
            survivor = Planner(world, "survivor")
            survivor.next(limit=7)
            if cleaned:
                clean_control_log(world)
            before = world.records()
        # It goes on, finds the call waiting, and must not answer it.
        assert old.wait(DEADLINE_S) == EXIT_DOUBT
        assert isinstance(answer.exception(DEADLINE_S), ConnectionLostError), f"the zombie answered: {answer.result()}"
    assert world.records() == before
    assert sorted(survivor.bookmarks() + survivor.consume()) == list(range(5, 40))
    assert all(record.epoch == 2 for record in world.records()[len(before) :])


@pytest.mark.parametrize("cleaned", [False, True], ids=["log kept", "log cleaned"])
def test_a_commit_that_comes_late_lands_nowhere_or_unseen_and_is_not_answered(world: World, cleaned: bool) -> None:
    """Stopped between looking at the log and writing: on a cleaned-up version the write succeeds, and is lost (DESIGN 3.4)."""
    world.publish(20)
    old = world.started(Faults(stall=True, renewal_s=3600.0))
    zombie_address = address_of(world)
    planner = Planner(world)
    with ThreadPoolExecutor(1) as pool:
        answer = start_call(pool, world, zombie_address, planner.next_request(limit=5))
        wait_until_stopped(old.pid)
        world.started(HASTY)
        survivor = Planner(world, "survivor")
        survivor.next(limit=20)
        if cleaned:
            clean_control_log(world)
        before = world.records()
        os.kill(old.pid, signal.SIGCONT)
        assert old.wait(DEADLINE_S) == EXIT_DOUBT
        assert isinstance(answer.exception(DEADLINE_S), ConnectionLostError), f"the zombie answered: {answer.result()}"
    assert world.records() == before
    assert survivor.bookmarks() + survivor.consume() == list(range(20))


def test_callers_leave_a_stopped_coordinator_by_themselves(world: World) -> None:
    """With the real patience: a silent coordinator is succeeded after 10 s, within one call's time."""
    world.publish(5)
    planner = Planner(world)
    pid = int(world.claims()[-1].detail["pid"])
    with stopped(pid):
        assert planner.next(limit=5).messages == 5
        assert [claim.epoch for claim in world.claims()] == [1, 2]


def test_a_deposed_coordinator_that_nobody_calls_ends_at_its_next_renewal(world: World) -> None:
    old = world.started(HASTY)
    with stopped(old.pid):
        world.started(HASTY)
    assert old.wait(DEADLINE_S) == EXIT_DOUBT
    assert world.ping().epoch == 2


def in_another_namespace() -> list[str] | None:
    """Give the command prefix that runs a process on what counts as another host, if this machine allows it."""
    unshare, ip = shutil.which("unshare"), shutil.which("ip")
    if unshare is None or ip is None:
        return None
    prefix = [unshare, "-n", "sh", "-c", f'{ip} link set lo up && exec "$@"', "sh"]
    works = subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode == 0
    return prefix if works else None


@pytest.fixture(params=["network namespace", "named host"])
def elsewhere(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Give the options that start a coordinator on another host, really or by name."""
    if request.param == "named host":
        return {"faults": Faults(host="elsewhere", silence_s=0.5, watch_s=8.0)}
    prefix = in_another_namespace()
    if prefix is None:
        pytest.skip("making a network namespace needs Linux and root")
    return {"faults": Faults(silence_s=0.5, watch_s=8.0), "within": prefix}


def test_a_living_coordinator_is_not_succeeded_from_another_host(world: World, elsewhere: dict[str, Any]) -> None:
    pid = world.ping().pid
    other = world.start(**elsewhere)
    report = world.report(other)
    assert report.code == "COORDINATOR_ELSEWHERE"
    assert other.wait(DEADLINE_S) == 1
    assert world.ping().pid == pid
    assert len(world.claims()) == 1


def test_a_dead_coordinator_is_succeeded_from_another_host(world: World, elsewhere: dict[str, Any]) -> None:
    os.kill(world.ping().pid, signal.SIGKILL)
    other = world.started(**elsewhere)
    assert [claim.epoch for claim in world.claims()] == [1, 2]
    hosts = [claim.detail["host"] for claim in world.claims()]
    assert hosts[0] != hosts[1]
    other.terminate()
    assert other.wait(DEADLINE_S) == 0


def test_a_clock_set_back_never_takes_the_reigns_time_back(make_world: MakeWorld) -> None:
    world = make_world(queue={"lease_period": "1h"})
    world.publish(20)
    first = world.started(Faults(clock_offset_ms=2 * 3_600_000))
    planner = Planner(world)
    held = planner.next(limit=10)
    first.kill()
    first.wait(DEADLINE_S)
    world.started(Faults(clock_offset_ms=-2 * 3_600_000))
    # Neither expired nor extended beyond reason: the lease is still the planner's, and the other half still waits.
    assert planner.next(limit=10).messages == 10
    times = [record.at_ms for record in world.records()]
    assert times == sorted(times)
    assert held.leased_until_ms > times[-1]


def test_a_clock_set_forward_leaves_a_living_holder_time_to_renew(make_world: MakeWorld) -> None:
    world = make_world(queue={"lease_period": "60s"})
    world.publish(10)
    first = world.started()
    planner = Planner(world)
    planner.next(limit=10)
    first.kill()
    first.wait(DEADLINE_S)
    world.started(Faults(clock_offset_ms=12 * 3_600_000))
    assert Planner(world, "other").next().messages == 0
    renewed = [record for record in world.records() if record.kind == Kind.RENEWED]
    assert [(record.reason, record.epoch) for record in renewed] == [("takeover", 2)]
    assert renewed[0].due_at_ms is not None
    assert renewed[0].due_at_ms - renewed[0].at_ms == 20_000
    assert planner.bookmarks() == list(range(10))


def test_a_log_from_the_future_is_refused_until_somebody_accepts_it(world: World) -> None:
    world.publish(5)
    first = world.started(Faults(clock_offset_ms=2 * DAY_MS))
    first.terminate()
    first.wait(DEADLINE_S)
    with pytest.raises(CoordinatorError, match="CLOCK_SKEW.*--accept-clock"):
        world.ping()
    world.started(accept_clock=True)
    assert Planner(world).consume() == list(range(5))


def test_a_log_of_the_past_is_never_an_error(world: World) -> None:
    world.publish(5)
    first = world.started()
    first.terminate()
    first.wait(DEADLINE_S)
    world.started(Faults(clock_offset_ms=300 * DAY_MS))
    assert Planner(world).consume() == list(range(5))


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
        planner.client.call(wire.DrawIncarnation(journal=world.journal_id, request=request_id(), queue=QUEUE, subscription="s")),
        wire.Drawn,
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
    number = len(control.load())
    control.append([Record(kind="of_tomorrow", record=number, detail={"critical": True})], epoch=0)
    with pytest.raises(JournalError, match="PROTOCOL_NEWER.*of_tomorrow"):
        world.client().call(wire.Nudge(journal=world.journal_id, request=request_id(), message_type="json"), timeout_s=DEADLINE_S)
