"""Each container of the manifests is run as a process with its own arguments, over an object store, and probed as they say."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import ssl
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from spark_queue import Journal
from spark_queue.protocol.host import TLS_ROOTS_VARIABLE
from tests.certificates import make_certificate
from tests.integration.s3_server import BUCKET, S3Server, s3_server
from tests.kubernetes import Container, containers, expanded
from tests.source_tree import ROOT

WAIT_S = 60.0
JOURNAL = f"s3://{BUCKET}/shop"
TOKEN = "a token of sixteen characters and more"
[PREPARES, COORDINATOR, PREPARES_PAGE, PAGE] = containers()
#: What this host calls the pods.
HERE = "localhost"


class Pod:
    """Containers of a pod, in a folder in place of its volumes, and with ports that are free in place of its own."""

    def __init__(self, folder: Path, number: int, store: S3Server) -> None:
        self.folder = folder / f"pod{number}"
        (self.folder / "tmp").mkdir(parents=True)
        (self.folder / "own-tokens").mkdir()
        self.ports = {str(each["containerPort"]): free_port() for each in (*COORDINATOR.spec["ports"], *PAGE.spec["ports"])}
        self._of_pod = {"metadata.name": f"sparkq-{number}", "metadata.namespace": "queues"}
        self._store = {name.upper(): value for name, value in store.options.items()} | {"JOURNAL": JOURNAL}
        self._instead = {
            f"sparkq-{number}.sparkq.queues.svc.cluster.local": HERE,
            "/mnt/tokens": str(folder / "tokens"),
            "/run/sparkq": str(self.folder / "own-tokens"),
            "/etc/sparkq/tls": str(folder / "tls"),
            **self.ports,
        }

    def here(self, text: str) -> str:
        """Return an argument or a value as it is on this host."""
        for there, here in self._instead.items():
            text = text.replace(there, here)
        return text

    def start(self, container: Container) -> subprocess.Popen[str]:
        """Start a container with nothing but its own environment; only its volumes can be written."""
        variables = container.environment(**self._of_pod) | self._store
        command = [self.here(expanded(each, variables)) for each in container.command]
        if command[0] == "sparkq":
            command[:1] = [sys.executable, "-m", "spark_queue.cli"]
        environment = {name: self.here(value) for name, value in variables.items()} | {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            # Of a file nobody makes a directory, so a home of that name is one that cannot be written.
            "HOME": "/dev/null/home",
            "TMPDIR": str(self.folder / "tmp"),
        }
        return subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def passes(self, container: Container, probe: str) -> bool:
        """Return whether a probe that the manifest has would pass now, as the node asks it."""
        asked: Mapping[str, Any] = container.spec[f"{probe}Probe"]
        name = (asked.get("tcpSocket") or asked["httpGet"])["port"]
        [there] = [str(each["containerPort"]) for each in container.spec["ports"] if each["name"] == name]
        try:
            if "tcpSocket" in asked:
                socket.create_connection((HERE, int(self.ports[there])), WAIT_S).close()
                return True
            headers = {each["name"]: self.here(each["value"]) for each in asked["httpGet"]["httpHeaders"]}
            return 200 <= self.ask(there, asked["httpGet"]["path"], **headers) < 400
        except ConnectionRefusedError:
            return False

    def ask(self, there: str, path: str, **headers: str) -> int:
        """Ask a port over TLS, without a look at who answers, and give the status."""
        trusting = ssl.create_default_context()
        trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
        with closing(http.client.HTTPSConnection(HERE, int(self.ports[there]), timeout=WAIT_S, context=trusting)) as connection:
            connection.request("GET", path, headers=headers)
            return connection.getresponse().status


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return str(taken.getsockname()[1])


@contextmanager
def running(pod: Pod, container: Container) -> Iterator[tuple[subprocess.Popen[str], Said]]:
    with pod.start(container) as process:
        try:
            yield process, Said(process)
        finally:
            process.kill()


class Said:
    """What a process says, line by line."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._lines: list[str] = []
        self._more = threading.Condition()
        self._over = False
        self._thread = threading.Thread(target=self._read, args=(process,), daemon=True)
        self._thread.start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            with self._more:
                self._lines.append(line)
                self._more.notify_all()
        with self._more:
            self._over = True
            self._more.notify_all()

    def until(self, text: str) -> str:
        """Wait for a line that has a text in it."""
        with self._more:
            assert self._more.wait_for(lambda: self._over or any(text in line for line in self._lines), WAIT_S), self._lines
            return next((line for line in self._lines if text in line), "") or pytest.fail("".join(self._lines))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[S3Server, Path]]:
    """Give a store with the journal in it, and a folder with the files of the Secrets."""
    tokens, tls = tmp_path / "tokens", tmp_path / "tls"
    tokens.mkdir()
    tls.mkdir()
    for name in ("sparkq-token", "metrics-token", "dashboard-token"):
        (tokens / name).write_text(TOKEN)
        # As a node mounts them for a group.
        (tokens / name).chmod(0o440)
    cert, key = make_certificate(tls, f"DNS:{HERE}", "IP:127.0.0.1")
    monkeypatch.setenv(TLS_ROOTS_VARIABLE, str(cert.rename(tls / "tls.crt")))
    key.rename(tls / "tls.key").chmod(0o440)
    with s3_server() as store:
        Journal.create(JOURNAL, {"message_types": {"json": {"topics": ["T"]}}, "queues": {"T": {}}}, storage_options=store.options)
        yield store, tmp_path


def prepared(pod: Pod, container: Container) -> None:
    with pod.start(container) as process:
        assert process.wait(WAIT_S) == 0
    made = list((pod.folder / "own-tokens").iterdir())
    assert made
    assert {stat.S_IMODE(each.stat().st_mode) for each in made} == {0o400}


def test_two_coordinators_of_which_one_serves_and_the_other_takes_over(world: tuple[S3Server, Path]) -> None:
    store, folder = world
    pods = [Pod(folder, number, store) for number in (0, 1)]
    for pod in pods:
        prepared(pod, PREPARES)
        assert not pod.passes(COORDINATOR, "startup")
    addresses = ",".join(f"grpc+tls://{HERE}:{pod.ports['7337']}" for pod in pods)
    token = str(pods[0].folder / "own-tokens" / "sparkq-token")
    queue = Journal(JOURNAL, storage_options=store.options, coordinator=addresses, token_file=token).queue("T")
    with ExitStack() as stack:
        first, said_by_first = stack.enter_context(running(pods[0], COORDINATOR))
        assert f":{pods[0].ports['7337']}" in said_by_first.until("serves at")
        second, said_by_second = stack.enter_context(running(pods[1], COORDINATOR))
        said_by_second.until("takes over when")
        for pod in pods:
            assert [pod.passes(COORDINATOR, probe) for probe in ("startup", "readiness", "liveness")] == [True] * 3
            assert pod.ask("9464", "/metrics", Authorization=f"Bearer {TOKEN}") == 200
            assert pod.ask("9464", "/metrics") == 401
        queue.pause()
        first.send_signal(signal.SIGTERM)
        said_by_second.until("serves at")
        assert first.wait(WAIT_S) == 0
        assert not pods[0].passes(COORDINATOR, "liveness")
        queue.unpause()
        second.send_signal(signal.SIGTERM)
        assert second.wait(WAIT_S) == 0


def test_the_page_answers_the_probe_and_nobody_else(world: tuple[S3Server, Path]) -> None:
    store, folder = world
    pod = Pod(folder, 0, store)
    prepared(pod, PREPARES_PAGE)
    with running(pod, PAGE) as (process, said):
        said.until("Open https://queues.example")
        assert [pod.passes(PAGE, probe) for probe in ("startup", "readiness", "liveness")] == [True] * 3
        assert pod.ask("7380", "/login", Host="10.0.0.7:7380") == 421
        process.send_signal(signal.SIGTERM)
        # It ends in good order, and then by the signal that it was told by.
        assert process.wait(WAIT_S) == -signal.SIGTERM
