"""``sparkq`` and the facade with real coordinator processes: applying, settling, serving, stopping, doctoring (DESIGN 6, 9)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from spark_queue import Journal
from spark_queue.client.coordinator_client import call_once
from spark_queue.errors import CallerError, CoordinatorError, LeaseError
from spark_queue.protocol import wire
from tests.integration.source_journal import end_coordinator
from tests.unit.cli.sparkq import Terminal

TOML = '[message_types.line]\ncolumns = "amount BIGINT"\ntopics = ["LINES"]\n[queues.LINES]\n'


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    (tmp_path / "queues.toml").write_text(TOML)
    journal = Journal.create(str(tmp_path / "journal"), tmp_path / "queues.toml")
    yield journal
    end_coordinator(journal)


def sparkq(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "spark_queue.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def sparkq_json(*arguments: str) -> Any:
    return json.loads(sparkq(*arguments, "--json").stdout)


def ping(journal: Journal) -> wire.Pong:
    reply = call_once(journal.store, journal.journal_id(), wire.Ping(), start=False)
    assert isinstance(reply, wire.Pong)
    return reply


@contextmanager
def served(journal: Journal) -> Iterator[subprocess.Popen[str]]:
    """Run `sparkq serve` in the foreground of a process of its own."""
    command = [sys.executable, "-m", "spark_queue.cli", "serve", journal.path, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["journal"] == journal.journal_id()
        try:
            yield process
        finally:
            process.kill()


def test_apply_changes_the_definitions_through_the_coordinator(journal: Journal, tmp_path: Path, terminal: Terminal) -> None:
    (tmp_path / "queues.toml").write_text(f"{TOML}max_deliveries = 2\n")
    (change,) = terminal("apply", journal.path, tmp_path / "queues.toml", "--json").json["changes"]
    assert (change["key"], change["before"], change["after"]) == ("max_deliveries", 0, 2)
    assert journal.definitions().queue("LINES").max_deliveries == 2


def test_apply_lets_go_of_a_queue_that_is_named(journal: Journal, tmp_path: Path, terminal: Terminal) -> None:
    (tmp_path / "queues.toml").write_text(TOML.replace("[queues.LINES]", "[queues.OTHER]\nunderlying_topic = 'LINES'"))
    changes = terminal("apply", journal.path, tmp_path / "queues.toml", "--remove", "LINES", "--json").json["changes"]
    assert [(each["action"], each["where"]) for each in changes] == [("remove", "[queues.LINES]"), ("add", "[queues.OTHER]")]
    assert list(journal.definitions().queues) == ["OTHER"]


def test_settling_by_hand_removes_and_a_repeat_is_counted(journal: Journal) -> None:
    journal.publish([{"amount": amount} for amount in range(4)], topic="LINES")
    queue = journal.queue("LINES")
    assert queue.settle([0, 1]).acknowledged == 2
    again = queue.settle([1, 2])
    assert (again.acknowledged, again.repeated) == (1, 1)
    status = queue.status()
    assert (status.acknowledged, status.available) == (3, 1)
    assert queue.settle([3], "expire").expired == 1
    with pytest.raises(LeaseError, match=r"\[LEASE_SETTLED\]"):
        queue.settle([0], "expire")
    with pytest.raises(CallerError, match=r"\[UNKNOWN_BOOKMARK\]"):
        queue.settle([99])


def test_unsubscribing_somebody_unknown_is_refused_by_name(journal: Journal) -> None:
    with pytest.raises(CallerError, match=r"\[UNKNOWN_SUBSCRIPTION\]"):
        journal.queue("LINES").unsubscribe("nobody")


def test_a_settlement_over_several_leases_is_one_that_is_refused_as_a_whole(journal: Journal) -> None:
    """R36: the refusal of one row leaves the others as they were."""
    journal.publish([{"amount": amount} for amount in range(4)], topic="LINES")
    queue = journal.queue("LINES")
    rows = [{"bookmark": 0, "outcome": "acknowledge", "lease": None}, {"bookmark": 1, "outcome": "cancel", "lease": 9}]
    with pytest.raises(LeaseError, match=r"\[LEASE_SETTLED\]"):
        queue.settle(rows)
    assert queue.status().available == 4


def test_a_purge_removes_what_is_not_leased(journal: Journal, terminal: Terminal) -> None:
    journal.publish([{"amount": amount} for amount in range(4)], topic="LINES")
    assert terminal("purge", journal.path, "LINES", "--json").json == {"queue": "LINES", "purged": 4, "leased": 0}
    assert journal.queue("LINES").status().queue_depth == 0


def test_a_paused_queue_says_so_until_it_is_unpaused(journal: Journal, terminal: Terminal) -> None:
    assert terminal("pause", journal.path, "LINES", "--json").json == {"queue": "LINES", "paused": True}
    assert [row["paused"] for row in terminal("status", journal.path, "--json").json] == [True]
    journal.queue("LINES").unpause()
    assert not journal.queue("LINES").status().paused
    assert "[UNKNOWN_QUEUE]" in terminal("pause", journal.path, "LINE").err


def test_serve_answers_until_ctrl_c_and_ends_in_good_order(journal: Journal) -> None:
    with served(journal) as process:
        assert ping(journal).pid == process.pid
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(timeout=30) == 0
    with pytest.raises(CoordinatorError, match=r"\[COORDINATOR_UNAVAILABLE\]"):
        ping(journal)


@contextmanager
def waiting(journal: Journal, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run `sparkq serve --standby` while another one serves, until it has said that it waits."""
    command = [sys.executable, "-m", "spark_queue.cli", "serve", journal.path, "--standby", "--json", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert "Another coordinator serves this journal at grpc://127.0.0.1:" in process.stderr.readline()
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_second_serve_takes_over_when_the_first_ends(journal: Journal, how: signal.Signals) -> None:
    """DESIGN 6: nobody claims while another serves, however long that takes."""
    with served(journal) as first, waiting(journal) as second:
        assert ping(journal).pid == first.pid
        os.kill(first.pid, how)
        assert second.stdout is not None
        assert json.loads(second.stdout.readline())["journal"] == journal.journal_id()
        assert (ping(journal).pid, ping(journal).epoch) == (second.pid, 2)
        os.kill(second.pid, signal.SIGTERM)
        assert second.wait(timeout=30) == 0
        assert second.stderr is not None
        assert "Another coordinator" not in second.stderr.read(), "it says so once"


def test_a_second_serve_waits_for_the_port_that_the_first_has(journal: Journal) -> None:
    with served(journal) as first:
        hint = json.loads((Path(journal.path) / "coordinator.json").read_text())
        bind = hint["address"].removeprefix("grpc://")
        with waiting(journal, "--bind", bind) as second:
            os.kill(first.pid, signal.SIGKILL)
            assert second.stdout is not None
            assert json.loads(second.stdout.readline())["address"] == hint["address"]
            assert ping(journal).pid == second.pid


@pytest.mark.drawn(1)
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_who_waits_to_serve_ends_when_told_to(journal: Journal, how: signal.Signals) -> None:
    with served(journal) as first:
        with waiting(journal) as second:
            os.kill(second.pid, how)
            assert second.wait(timeout=30) == 0
        assert (ping(journal).pid, ping(journal).epoch) == (first.pid, 1)


@pytest.mark.drawn(1)
@pytest.mark.parametrize("arguments", [("--no-wait",), ("--daemon",)])
def test_serve_is_refused_where_another_serves_and_it_does_not_stand_by(journal: Journal, arguments: tuple[str, ...]) -> None:
    with served(journal) as process:
        second = sparkq("serve", journal.path, *arguments)
        assert second.returncode == 1
        assert f"[COORDINATOR_SERVES] Another coordinator already serves '{journal.path}', at grpc://127.0.0.1:" in second.stderr
        assert (ping(journal).pid, ping(journal).epoch) == (process.pid, 1)


def test_serve_as_a_daemon_lives_on_and_stop_ends_it(journal: Journal) -> None:
    assert sparkq_json("serve", journal.path, "--daemon")["address"].startswith("grpc://127.0.0.1:")
    assert ping(journal).epoch == 1
    assert sparkq_json("stop", journal.path)["stopped"] is True
    assert sparkq_json("stop", journal.path)["stopped"] is False
    # Also what a caller without the addresses of the services has started, and that is found as without them.
    sparkq_json("serve", journal.path, "--daemon")
    assert sparkq_json("stop", journal.path, "--coordinator", "127.0.0.1:1")["stopped"] is True
    assert sparkq_json("stop", journal.path, "--coordinator", "127.0.0.1:1")["stopped"] is False


@pytest.mark.drawn(2)
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--bind", "0.0.0.0:0"), "ADDRESS_UNSAFE"),
        (("--bind", "nowhere"), "BAD_VALUE"),
        (("--tls-cert", "a.pem"), "BAD_VALUE"),
        (("--daemon", "--standby"), "BAD_VALUE"),
    ],
)
def test_serve_refuses_what_is_unsafe_or_makes_no_sense(journal: Journal, arguments: tuple[str, ...], code: str) -> None:
    refused = sparkq("serve", journal.path, *arguments)
    assert refused.returncode == 1
    assert f"[{code}]" in refused.stderr


def test_doctor_tries_a_journal_and_its_coordinator(journal: Journal) -> None:
    findings = {finding["check"]: finding for finding in sparkq_json("doctor", journal.path)}
    assert {"python", "packages", "java", "token", "store", "clock", "coordinator"} <= set(findings)
    assert {findings[check]["result"] for check in ("python", "packages", "token", "store", "clock", "coordinator")} == {"ok"}
    assert ping(journal).epoch == 1


def test_doctor_without_a_journal_leaves_nothing_behind(tmp_path: Path) -> None:
    scratch, state = tmp_path / "tmp", tmp_path / "state"
    scratch.mkdir()
    environment = {**os.environ, "TMPDIR": str(scratch), "XDG_STATE_HOME": str(state)}
    environment.pop("XDG_RUNTIME_DIR", None)
    done = subprocess.run(
        [sys.executable, "-m", "spark_queue.cli", "doctor", "--json"], env=environment, capture_output=True, check=False
    )
    assert done.returncode == 0
    assert [path.name for path in (state / "spark_queue").iterdir()] == ["token"]
    assert [path for path in scratch.rglob("*") if path.is_file()] == []


def test_doctor_fails_on_a_token_that_others_can_read(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("known")
    token.chmod(0o644)
    environment = {**os.environ, "SPARKQ_TOKEN_FILE": str(token)}
    command = [sys.executable, "-m", "spark_queue.cli", "doctor", "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    findings = {finding["check"]: finding for finding in json.loads(done.stdout)}
    assert done.returncode == 1
    assert (findings["token"]["result"], findings["token"]["found"]) == ("failed", "TOKEN_FILE_UNSAFE")
    assert "known" not in done.stdout


@pytest.mark.drawn(2)
@pytest.mark.parametrize("attempt", range(6))
def test_a_refused_publish_ends_in_order_while_a_thread_of_arrow_still_reads(journal: Journal, attempt: int) -> None:
    """The interpreter is gone when the thread returns from its read: half of such runs ended with SIGABRT."""
    command = [sys.executable, "-m", "spark_queue.cli", "publish", journal.path, "-", "--format", "csv", "--topic", "LINES"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        with suppress(BrokenPipeError):
            process.stdin.write(b"item,amuont\n" + b"kettle,1\n" * 1_000_000)
        told = process.stderr.read(1)
        # What the thread waits for comes while the process ends.
        with suppress(BrokenPipeError):
            process.stdin.close()
        told += process.stderr.read()
    assert b"[UNKNOWN_COLUMN]" in told
    assert process.returncode == 1
