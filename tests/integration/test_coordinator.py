"""Coordinators as real processes: found, started, shared, refused, ended (DESIGN 6)."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest

from spark_queue.core import commands, replies
from spark_queue.core.records import Kind
from spark_queue.errors import ConfigError, CoordinatorError
from spark_queue.protocol import user_files, wire
from spark_queue.protocol.connection import Presence, ping
from spark_queue.protocol.discovery import read_advertisement
from spark_queue.protocol.endpoint import Endpoint
from spark_queue.protocol.host import location_of
from tests.integration.coordinator_world import DEADLINE_S, QUEUE, MakeWorld, Planner, World, request_id, wait_for_end
from tests.records import detail_of
from tests.source_tree import ROOT

pytestmark = pytest.mark.usefixtures("coordinators_are_started")


def test_the_first_call_starts_a_coordinator_that_outlives_the_caller(world: World) -> None:
    script = (
        "import sys\n"
        "from spark_queue.client.coordinator_client import CoordinatorClient\n"
        "from spark_queue.journal.store import Store\n"
        "from spark_queue.protocol import wire\n"
        "print(CoordinatorClient(Store(sys.argv[1]), sys.argv[2]).call(wire.Ping()).pid)\n"
    )
    command = [sys.executable, "-c", script, world.store.path, world.journal_id]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=DEADLINE_S, env=environment).stdout
    assert world.ping().pid == int(output)
    assert os.getsid(int(output)) == int(output)
    assert len(world.claims()) == 1


def test_messages_are_leased_read_proven_and_removed(world: World) -> None:
    """R3, R4, R5, R18: publishers know of no queue; each message is available, leased or done with, and that is in the log."""
    world.publish(25)
    planner = Planner(world)
    granted = planner.next(limit=10)
    assert (granted.lease, granted.messages) == (1, 10)
    status = granted.status
    assert status is not None
    assert (status.queue_depth, status.available, status.backlog) == (25, 15, 10)
    rows = planner.rows()
    assert (rows.message_type, rows.lease, rows.leased_until_ms) == ("json", 1, granted.leased_until_ms)
    assert planner.consume(limit=10) == list(range(10, 25))
    idle = planner.next()
    assert (idle.lease, idle.messages, idle.status and idle.status.queue_depth) == (planner.lease, 0, 0)
    removed = [record for record in world.records() if record.kind == Kind.REMOVED]
    assert [record.ranges for record in removed] == [((0, 10),), ((10, 20),), ((20, 25),)]
    assert {record.epoch for record in removed} == {1}


def test_a_long_poll_hears_of_a_publish_within_its_wait(world: World) -> None:
    """R22: nobody has to ask again and again."""
    planner = Planner(world)
    with ThreadPoolExecutor(1) as pool:
        polled = pool.submit(planner.next, wait_ms=1_000)
        world.publish(3)
        granted = polled.result(DEADLINE_S)
    if not granted.messages:
        granted = planner.next(wait_ms=1_000)
    assert granted.messages == 3


def test_an_available_now_run_ends_where_the_log_ended_when_it_began(world: World) -> None:
    world.ping()
    world.publish(4)
    planner = Planner(world)
    attach = planner.attach_request()
    planner.client.call(
        commands.Attach(
            **{name: getattr(attach, name) for name in attach.__struct_fields__ if name != "available_now"}, available_now=True
        )
    )
    world.publish(3)
    assert planner.consume() == [0, 1, 2, 3]


def test_definitions_are_applied_with_their_tables_and_refused_whole(world: World) -> None:
    client = world.client()
    added = {
        **world.definitions,
        "message_types": {**world.definitions["message_types"], "line": {"columns": "id BIGINT", "topics": ["LINES"]}},
    }
    client.call(commands.Apply(journal=world.journal_id, request=request_id(), definitions=added), timeout_s=DEADLINE_S)
    assert (Path(world.store.path) / "messages" / "line" / "_delta_log").is_dir()
    with pytest.raises(ConfigError, match="UNKNOWN_KEY.*'max_deliverys'.*Did you mean 'max_deliveries'"):
        client.call(
            commands.Apply(journal=world.journal_id, request=request_id(), definitions={"queues": {QUEUE: {"max_deliverys": 1}}})
        )
    bad = {**added, "message_types": {**added["message_types"], "bad": {"columns": "topic STRING", "topics": ["B"]}}}
    with pytest.raises(ConfigError, match="RESERVED_COLUMN"):
        client.call(commands.Apply(journal=world.journal_id, request=request_id(), definitions=bad))
    planner = Planner(world)
    assert planner.next().messages == 0


def test_outcomes_that_make_no_sense_are_refused_by_name_and_change_nothing(world: World) -> None:
    world.publish(5)
    client = world.client()
    planner = Planner(world, client=client)
    planner.next()

    def settle(outcome: str, first: int, until: int, retry_after_ms: int | None = None) -> None:
        rows = commands.OutcomeRows(outcome=outcome, ranges=((first, until),), retry_after_ms=retry_after_ms)
        client.call(commands.Settle(journal=world.journal_id, request=request_id(), queue=QUEUE, outcomes=(rows,)))

    from spark_queue.errors import CallerError

    before = len(world.records())
    with pytest.raises(CallerError, match="'acknowledged' is no outcome.*acknowledge"):
        settle("acknowledged", 0, 1)
    with pytest.raises(CallerError, match="retry_after of 5 ms with 'expire'"):
        settle("expire", 0, 1, 5)
    with pytest.raises(CallerError, match=r"\[3, 3\) is no range"):
        settle("acknowledge", 3, 3)
    with pytest.raises(CallerError, match="UNKNOWN_BOOKMARK.*never entered"):
        settle("acknowledge", 0, 1 << 62)
    assert len(world.records()) == before


def test_eight_callers_at_once_share_the_queue_and_the_commits(world: World) -> None:
    for _ in range(4):
        world.publish(250)
    planners = [Planner(world, f"s{number}") for number in range(8)]
    before = len(world.records())
    with ThreadPoolExecutor(len(planners)) as pool:
        received = [bookmark for taken in pool.map(lambda planner: planner.consume(limit=20), planners) for bookmark in taken]
    assert Counter(received) == Counter(range(1000))
    grants = [record for record in world.records()[before:] if record.kind == Kind.GRANTED]
    commits = len(list((Path(world.store.path) / "control" / "_delta_log").glob("*.json")))
    assert len(grants) >= 50
    # All commands of one group share one commit; with eight callers there are far fewer commits than calls.
    assert commits < 2 * len(grants)
    assert len(world.claims()) == 1


def test_two_started_at_once_agree_on_one_that_reigns(world: World) -> None:
    world.records()
    processes = [world.start() for _ in range(2)]
    reports = [world.report(process) for process in processes]
    claims = world.claims()
    served = {report.address for report in reports if report.address is not None}
    assert detail_of(claims[-1])["address"] in served
    # The loser either found the winner or lost the swap, and said so.
    assert all(report.address is not None or report.code == "COORDINATOR_DEPOSED" for report in reports)
    assert world.ping().pid == detail_of(claims[-1])["pid"]
    assert sum(process.poll() is None for process in processes) >= 1
    losers = [process for process in processes if process.pid != detail_of(claims[-1])["pid"]]
    for loser in losers:
        loser.wait(DEADLINE_S)


def test_five_callers_starting_at_once_on_a_dead_one_make_one(world: World) -> None:
    dead = world.ping()
    psutil.Process(dead.pid).kill()
    wait_for_end(dead.pid)
    script = (
        "import sys\n"
        "from spark_queue.client.coordinator_client import CoordinatorClient\n"
        "from spark_queue.core import commands\n"
        "from spark_queue.journal.store import Store\n"
        "client = CoordinatorClient(Store(sys.argv[1]), sys.argv[2])\n"
        f"call = commands.DrawIncarnation(queue={QUEUE!r}, subscription='s')\n"
        "print(*client.call(call, timeout_s=60).incarnation)\n"
    )
    command = [sys.executable, "-c", script, world.store.path, world.journal_id]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    callers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) for _ in range(5)]
    drawn = sorted(caller.communicate(timeout=DEADLINE_S)[0].strip() for caller in callers)
    assert drawn == [f"2 {number}" for number in range(1, 6)]
    assert [claim.epoch for claim in world.claims()] == [1, 2]


def test_an_idle_coordinator_ends_and_the_next_call_starts_another(make_world: MakeWorld) -> None:
    world = make_world(journal={"coordinator_idle": "1s"})
    first = world.ping()
    wait_for_end(first.pid)
    assert read_advertisement(world.store, world.journal_id) is None
    assert world.ping().epoch == 2


def test_a_coordinator_ends_when_told_and_nobody_is_started_to_hear_it(world: World) -> None:
    process = world.started(ends_idle=False)
    world.client(start=False).call(wire.Stop(journal=world.journal_id, request=request_id()))
    assert process.wait(DEADLINE_S) == 0
    with pytest.raises(CoordinatorError, match="COORDINATOR_UNAVAILABLE.*none is running"):
        world.client(start=False).call(wire.Stop(journal=world.journal_id, request=request_id()))
    assert len(world.claims()) == 1


def test_a_signal_ends_a_coordinator_in_good_order(world: World) -> None:
    process = world.started()
    process.terminate()
    assert process.wait(DEADLINE_S) == 0
    assert read_advertisement(world.store, world.journal_id) is None


def test_a_coordinator_that_ends_sends_its_long_polls_elsewhere(world: World) -> None:
    planner = Planner(world)
    stopped_pid = world.ping().pid
    polling = threading.Event()

    def poll() -> replies.Granted:
        polling.set()
        return planner.next(wait_ms=1_000)

    with ThreadPoolExecutor(1) as pool:
        polled = pool.submit(poll)
        assert polling.wait(DEADLINE_S)
        psutil.Process(stopped_pid).terminate()
        assert polled.result(DEADLINE_S).messages == 0
    wait_for_end(stopped_pid)


def test_another_users_token_is_refused_by_name(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pid = world.ping().pid
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "stranger"))
    with pytest.raises(CoordinatorError, match="UNAUTHENTICATED"):
        world.ping()
    monkeypatch.setenv(user_files.TOKEN_FILE_VARIABLE, str(tmp_path / "state" / "spark_queue" / "token"))
    assert world.ping().pid == pid


def test_a_coordinator_that_cannot_start_says_why(world: World) -> None:
    client = world.client()
    client._journal_id = "another"
    with pytest.raises(Exception, match="JOURNAL_MISMATCH.*for journal another"):
        client.call(wire.Ping(journal="another", request=request_id()), timeout_s=DEADLINE_S)
    assert world.claims() == []


def test_a_fixed_address_is_used_and_nothing_is_started(world: World) -> None:
    address = read_address(world)
    assert ping(address, world.journal_id, location_of(world.store), 5.0) is Presence.SERVES
    client = world.client(endpoint=Endpoint(address.removeprefix("grpc://")))
    assert isinstance(client.call(wire.Ping(journal=world.journal_id, request=request_id())), wire.Pong)
    client.call(wire.Stop(journal=world.journal_id, request=request_id()))
    wait_for_end(int(detail_of(world.claims()[-1])["pid"]))
    with pytest.raises(CoordinatorError, match="COORDINATOR_UNAVAILABLE.*did not answer"):
        client.call(wire.Ping(journal=world.journal_id, request=request_id()), timeout_s=1.0)
    assert len(world.claims()) == 1


def read_address(world: World) -> str:
    world.ping()
    return str(detail_of(world.claims()[-1])["address"])


def test_a_body_is_stored_once_and_what_happened_to_it_is_told_by_bookmark(world: World) -> None:
    """R1, R2, R9, R11: a queue is a view; only what was published enters, and no record carries it."""
    world.publish(3)
    Planner(world).consume()
    texts = {path: str(pq.read_table(path).to_pylist()) for path in Path(world.store.path).rglob("*.parquet")}
    assert [path.parent.name for path, text in texts.items() if '{"n": 1}' in text] == ["json"]
    removed = [record for record in world.records() if record.kind == Kind.REMOVED]
    assert [record.ranges for record in removed] == [((0, 3),)]
