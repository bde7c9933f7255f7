"""The port that Prometheus scrapes, over real sockets: who is answered, and who is not."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from spark_queue import Journal
from spark_queue.coordinator.process import start_metrics
from spark_queue.errors import ConfigError, CoordinatorError
from spark_queue.metrics import prometheus
from spark_queue.protocol.host import Bind, MetricsOptions, StartOptions
from tests.certificates import make_certificate

TOKEN = "a token of some length"
WAIT_S = 30.0


@dataclass(frozen=True)
class Scraped:
    """A port of metrics."""

    address: str
    tls: ssl.SSLContext | None = None

    def ask(self, path: str = "/metrics", method: str = "GET", **headers: str) -> tuple[int, str]:
        """Return status and body of an answer."""
        port = int(self.address.rpartition(":")[2].partition("/")[0])
        if self.tls is None:
            connection: Any = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
        else:
            connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=WAIT_S, context=self.tls)
        with closing(connection):
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    def connect(self) -> socket.socket:
        """Return a connection over which nothing is said."""
        return socket.create_connection(("127.0.0.1", int(self.address.rpartition(":")[2].partition("/")[0])), timeout=WAIT_S)


@dataclass(frozen=True)
class Place:
    """A journal, a certificate and a token file."""

    journal: Journal
    cert: Path
    key: Path
    token: Path

    def listen(self, host: str = "127.0.0.1", *, tls: bool = False, token: bool = False) -> Scraped:
        """Ask for metrics as `sparkq serve --metrics` does."""
        asked = MetricsOptions(host=host, port=0, token_file=str(self.token) if token else None)
        bind = Bind(tls_cert=str(self.cert), tls_key=str(self.key)) if tls else Bind()
        options = StartOptions(path=self.journal.path, storage_options={}, journal_id="j", bind=bind, metrics=asked)
        _, address = start_metrics(options)
        assert address is not None
        trusted = ssl.create_default_context(cafile=str(self.cert)) if address.startswith("https:") else None
        return Scraped(address, trusted)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    directory = tmp_path_factory.mktemp("metrics")
    token = directory / "token"
    token.write_text(TOKEN + "\n")
    token.chmod(0o600)
    return Place(Journal.create(str(directory / "j")), *make_certificate(directory, "IP:127.0.0.1"), token)


@pytest.fixture(autouse=True)
def no_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)


def test_on_loopback_only_names_of_loopback_are_answered(place: Place) -> None:
    scraped = place.listen()
    port = scraped.address.rpartition(":")[2].partition("/")[0]
    for name in ("127.0.0.1", "localhost", "LOCALHOST", "[::1]"):
        status, told = scraped.ask(Host=f"{name}:{port}")
        assert (status, "sparkqueue_coordinator_serving" in told) == (200, True)
    for name in (f"evil.example:{port}", "127.0.0.1", "127.0.0.1:1", f"127.0.0.1:{port}.evil.example", ""):
        status, told = scraped.ask(Host=name)
        assert (status, "sparkqueue" in told) == (421, False), name


def test_beyond_loopback_it_takes_a_certificate_and_a_token(place: Place) -> None:
    for tls, token, missing in (
        (False, False, "no --tls-cert, no --tls-key, no --metrics-token-file"),
        (True, False, "no --metrics-token-file"),
        (False, True, "no --tls-cert, no --tls-key"),
    ):
        with pytest.raises(CoordinatorError, match=f"ADDRESS_UNSAFE.*given {missing}\\."):
            place.listen("0.0.0.0", tls=tls, token=token)
    scraped = place.listen("0.0.0.0", tls=True, token=True)
    assert scraped.address.startswith("https://0.0.0.0:")
    assert scraped.ask(Authorization=f"Bearer {TOKEN}")[0] == 200
    assert scraped.ask(Host="queues.example", Authorization=f"bEARER {TOKEN}")[0] == 200
    for given in ({}, {"Authorization": "Bearer guessed"}, {"Authorization": TOKEN}, {"Authorization": f"Basic {TOKEN}"}):
        assert scraped.ask(**given) == (401, "Give the token of --metrics-token-file, as a bearer.\n")
    with pytest.raises((http.client.HTTPException, OSError)):
        Scraped(scraped.address).ask(Authorization=f"Bearer {TOKEN}")


def test_a_token_is_asked_for_on_loopback_where_one_is_given(place: Place) -> None:
    scraped = place.listen(token=True)
    assert (scraped.ask()[0], scraped.ask(Authorization=f"Bearer {TOKEN}")[0]) == (401, 200)
    assert scraped.ask(Host="evil.example", Authorization=f"Bearer {TOKEN}")[0] == 421


def test_no_token_is_looked_at_after_many_that_were_wrong(place: Place) -> None:
    scraped = place.listen(token=True)
    assert [scraped.ask(Authorization="Bearer guessed")[0] for _ in range(6)] == [401] * 5 + [429]
    assert scraped.ask(Authorization=f"Bearer {TOKEN}")[0] == 429


@pytest.mark.parametrize("path", ["/", "/metrics/", "/../metrics", "/etc/passwd", "/metrics%00"])
def test_there_is_one_path(place: Place, path: str) -> None:
    assert place.listen().ask(path) == (404, "Metrics are at /metrics.\n")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "<script>"])
def test_there_is_one_method(place: Place, method: str) -> None:
    status, told = place.listen().ask(method=method)
    assert (status, "<script>" in told, "Traceback" in told) == (501, False, False)


def test_who_says_nothing_keeps_nobody_out(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus, "CONNECTIONS_MAX", 3)
    scraped = place.listen("0.0.0.0", tls=True, token=True)
    silent = [scraped.connect() for _ in range(2)]
    assert scraped.ask(Authorization=f"Bearer {TOKEN}")[0] == 200
    # More than there is room for: the place of the scrape before may not be free yet.
    silent += [scraped.connect() for _ in range(4)]
    assert scraped.ask(Authorization=f"Bearer {TOKEN}")[0] == 200
    assert silent[0].recv(1) == b"", "it waited longest"
    for each in silent:
        each.close()


@pytest.mark.parametrize("tls", [False, True])
def test_who_says_a_little_at_a_time_loses_its_place(place: Place, monkeypatch: pytest.MonkeyPatch, *, tls: bool) -> None:
    monkeypatch.setattr(prometheus, "CONNECTIONS_MAX", 1)
    monkeypatch.setattr(prometheus, "CONNECTION_S", 1.0)
    scraped = place.listen("0.0.0.0" if tls else "127.0.0.1", tls=tls, token=True)
    plain = scraped.connect()
    with closing(plain if scraped.tls is None else scraped.tls.wrap_socket(plain, server_hostname="127.0.0.1")) as slow:
        slow.sendall(b"GET /metrics HTTP/1.0\r\nX: ")
        slow.settimeout(0.2)
        assert any(is_ended(slow) for _ in range(100)), "it is never ended"
    monkeypatch.setattr(prometheus, "CONNECTION_S", WAIT_S)
    assert any(is_answered(scraped) for _ in range(1_000)), "its place is never free"


def is_ended(connection: socket.socket) -> bool:
    """Return whether the other end has closed a connection; otherwise a little more is said."""
    try:
        return connection.recv(1) == b""
    except TimeoutError:
        connection.sendall(b"x")
        return False
    except OSError:
        return True


def is_answered(scraped: Scraped) -> bool:
    """Return whether there is a place for one more connection."""
    try:
        return scraped.ask(Authorization=f"Bearer {TOKEN}")[0] == 200
    except (http.client.HTTPException, OSError):
        return False


def test_a_connection_that_got_no_thread_takes_no_place(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus, "CONNECTIONS_MAX", 2)
    scraped, start = place.listen(), threading.Thread.start

    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fail)
    for _ in range(2):
        with closing(scraped.connect()) as refused:
            assert refused.recv(1) == b""
    monkeypatch.setattr(threading.Thread, "start", start)
    assert scraped.ask()[0] == 200


@pytest.mark.parametrize(
    ("text", "mode", "problem"),
    [("short", 0o600, "16 characters"), (TOKEN, 0o640, "chmod 600"), ("über" * 8, 0o600, "ASCII"), (None, 0, "FileNotFoundError")],
)
def test_a_token_file_that_is_not_safe_is_refused(place: Place, tmp_path: Path, text: str | None, mode: int, problem: str) -> None:
    file = tmp_path / "token"
    if text is not None:
        file.write_text(text)
        file.chmod(mode)
    with pytest.raises(ConfigError, match=f"BAD_VALUE.*--metrics-token-file.*{problem}"):
        Place(place.journal, place.cert, place.key, file).listen(token=True)


def test_a_certificate_that_cannot_be_read_is_refused_by_name(place: Place) -> None:
    with pytest.raises(ConfigError, match=r"BAD_VALUE.*--tls-cert.*token"):
        Place(place.journal, place.token, place.key, place.token).listen("0.0.0.0", tls=True, token=True)
