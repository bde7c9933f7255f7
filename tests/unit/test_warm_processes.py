"""What is forked, for Spark or to read a peer, ends as what was started: with its input, by a signal, and with what is killed."""

from __future__ import annotations

import operator
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from spark_queue.errors import JournalError
from spark_queue.journal.store import Store
from spark_queue.replication.peer_process import Answers, Asks, Reader
from tests.source_tree import ROOT
from tests.waiting import wait_until
from tests.warm_processes import warm_readers, warm_spark

STARTUP = str(ROOT / "tests" / "startup")

DEADLINE_S = 60


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    place = tmp_path_factory.mktemp("pythons")
    with warm_spark(place) as variables:
        wait_until((place / "warm").exists)
        yield variables


class Daemon:
    """Spark's daemon, and a worker of it that waits for its first task."""

    def __init__(self, environment: dict[str, str]) -> None:
        command = [sys.executable, "-m", "pyspark.daemon", "pyspark.worker"]
        around = {**os.environ, "PYTHONPATH": STARTUP, **environment}
        self.started = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=around)
        assert self.started.stdout is not None
        port = int.from_bytes(self.started.stdout.read(4))
        self.task = socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S)
        self.worker = psutil.Process(int.from_bytes(self.task.recv(4, socket.MSG_WAITALL)))
        self.process = psutil.Process(self.worker.ppid())

    def close(self) -> None:
        # Its end closes the pipes, and waits.
        with self.started:
            self.task.close()


@pytest.fixture
def make_daemon() -> Iterator[Callable[[dict[str, str]], Daemon]]:
    made: list[Daemon] = []

    def make(environment: dict[str, str]) -> Daemon:
        made.append(Daemon(environment))
        return made[-1]

    yield make
    for each in made:
        each.close()


def end_stdin(daemon: Daemon) -> None:
    assert daemon.started.stdin is not None
    daemon.started.stdin.close()


def terminate(daemon: Daemon) -> None:
    daemon.started.terminate()


def kill(daemon: Daemon) -> None:
    daemon.started.kill()


@pytest.mark.parametrize(("end", "code"), [(end_stdin, 0), (terminate, 0), (kill, -signal.SIGKILL)])
def test_a_forked_daemon_ends_as_one_that_was_started(
    make_daemon: Callable[[dict[str, str]], Daemon], warm: dict[str, str], end: Callable[[Daemon], None], code: int
) -> None:
    daemon = make_daemon(warm)
    assert daemon.process.pid != daemon.started.pid
    assert "tests.startup.warm_spark" in daemon.worker.cmdline()
    assert daemon.process.is_running()
    end(daemon)
    psutil.wait_procs([daemon.process], timeout=DEADLINE_S)
    assert not daemon.process.is_running()
    assert daemon.started.wait(DEADLINE_S) == code


def test_the_process_that_was_started_ends_with_the_one_in_its_place(
    make_daemon: Callable[[dict[str, str]], Daemon], warm: dict[str, str]
) -> None:
    daemon = make_daemon(warm)
    daemon.process.kill()
    assert daemon.started.wait(DEADLINE_S) == 0
    # Its worker, which Spark would end by closing this connection, keeps nobody from ending.
    assert daemon.worker.is_running()


def test_where_other_code_is_named_first_a_daemon_is_started(
    make_daemon: Callable[[dict[str, str]], Daemon], warm: dict[str, str], tmp_path: Path
) -> None:
    daemon = make_daemon(warm | {"PYTHONPATH": os.pathsep.join((str(tmp_path), STARTUP))})
    assert daemon.process.pid == daemon.started.pid


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reader]:
    """Yield the reader of a peer that waits for its next order, and was forked."""
    monkeypatch.setenv("PYTHONPATH", STARTUP)
    with warm_readers(tmp_path):
        wait_until((tmp_path / "warm").exists)
        made = Reader("peer")
        made.send(Asks("peer", operator.attrgetter("path"), Store(str(tmp_path)), ()))
        assert made.receive() == Answers(msgspec.Raw(msgspec.msgpack.encode(Store(str(tmp_path)).path)))
        yield made
        made.close()


def forked_of(reader: Reader, place: Path) -> psutil.Process:
    """Return the process in the place of the one that was started, while the server that forked it has no other."""
    [server] = [each for each in psutil.Process().children() if str(place / "warm") in each.cmdline()]
    [forked] = server.children()
    assert forked.pid != reader.pid
    return forked


def test_a_forked_reader_ends_with_its_pipe(reader: Reader, tmp_path: Path) -> None:
    forked = forked_of(reader, tmp_path)
    reader.close()
    psutil.wait_procs([forked], timeout=DEADLINE_S)
    assert not forked.is_running()


def test_that_a_forked_reader_has_died_is_told(reader: Reader, tmp_path: Path) -> None:
    forked_of(reader, tmp_path).kill()
    with pytest.raises(JournalError, match="has ended"):
        reader.receive()
