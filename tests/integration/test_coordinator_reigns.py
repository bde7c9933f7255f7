"""Who may reign: other hosts, and clocks that are wrong (DESIGN 6, 15.16)."""

from __future__ import annotations

import os
import platform
import shutil
import signal
import subprocess
from typing import Any

import pytest

from spark_queue.core.records import Kind
from spark_queue.errors import CoordinatorError
from tests.integration.coordinator_world import (
    DEADLINE_S,
    MakeWorld,
    Planner,
    World,
)
from tests.integration.faulty_coordinator import Faults
from tests.records import detail_of

DAY_MS = 86_400_000


def in_another_namespace() -> list[str] | None:
    """Return the command prefix that runs a process on what counts as another host, if this machine allows it."""
    unshare, ip = shutil.which("unshare"), shutil.which("ip")
    if unshare is None or ip is None:
        return None
    prefix = [unshare, "-n", "sh", "-c", f'{ip} link set lo up && exec "$@"', "sh"]
    works = subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode == 0
    return prefix if works else None


@pytest.fixture(params=["network namespace", "named host"])
def elsewhere(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return the options that start a coordinator on another host, really or by name."""
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
    assert (report.facts["host"], report.facts["pid"]) == (platform.node(), pid)
    assert other.wait(DEADLINE_S) == 1
    assert world.ping().pid == pid
    assert len(world.claims()) == 1


def test_a_dead_coordinator_is_succeeded_from_another_host(world: World, elsewhere: dict[str, Any]) -> None:
    os.kill(world.ping().pid, signal.SIGKILL)
    other = world.started(**elsewhere)
    assert [claim.epoch for claim in world.claims()] == [1, 2]
    hosts = [detail_of(claim)["host"] for claim in world.claims()]
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
