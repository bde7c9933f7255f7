"""The table for Prometheus: its text format, a file for the node exporter, and an address to scrape (extra `metrics`).

The address that Prometheus scrapes: one path, and nothing for strangers.
"""

from __future__ import annotations

import logging
import socket
import socketserver
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from spark_queue.core.state.log_history import Histogram
from spark_queue.errors import ConfigError, CoordinatorError
from spark_queue.metrics.samples import Family, Sample
from spark_queue.metrics.table import MetricKind
from spark_queue.protocol.http_ports import bracketed, host_headers, reaches_others


class _Collector:
    """The collector that prometheus_client asks."""

    def __init__(self, families: Callable[[], Sequence[Family]]) -> None:
        self._families = families

    def collect(self) -> Iterator[Any]:
        return (_family(family) for family in self._families())


def render(families: Iterable[Family]) -> bytes:
    """Return metrics in the text format of Prometheus."""
    found = list(families)
    return bytes(_client().generate_latest(_registry(lambda: found)))


def content_type() -> str:
    """Return the content type of `render`'s text."""
    return str(_client().CONTENT_TYPE_PLAIN_0_0_4)


def write(families: Iterable[Family], path: Path) -> None:
    """Replace a file by metrics, at once: its readers meet the old ones or the new ones."""
    found = list(families)
    _client().write_to_textfile(str(path), _registry(lambda: found))


def listen(
    families: Callable[[], Sequence[Family]],
    *,
    host: str,
    port: int,
    tls: ssl.SSLContext | None = None,
    admits: Callable[[bytes, str], bool | None] | None = None,
) -> str:
    """Answer scrapes from a thread until this process ends; returns the address to scrape.

    On loopback only names of loopback are answered. `admits` judges an authorization header from an address; it returns None
    where too many wrong ones came from there.
    """
    client = _client()
    registry = _registry(families)
    try:
        server = ScrapeServer(host, port, lambda: (client.generate_latest(registry), content_type()), tls)
    except OSError as failure:
        # An unknown host is one, too.
        raise CoordinatorError("ADDRESS_UNUSABLE", address=f"{host}:{port}", reason=f"{failure.strerror}.") from None
    server.hosts = None if reaches_others(host) else host_headers(host, server.port)
    server.admits = admits
    threading.Thread(target=server.serve_forever, name="scrapes", daemon=True).start()
    return f"{'http' if tls is None else 'https'}://{bracketed(host)}:{server.port}/metrics"


def _registry(families: Callable[[], Sequence[Family]]) -> Any:
    registry = _client().CollectorRegistry(auto_describe=False)
    registry.register(_Collector(families))
    return registry


def _client() -> Any:
    try:
        import prometheus_client
    except ImportError:
        raise ConfigError("EXTRA_MISSING", what="Telling metrics", package="prometheus-client", extra="metrics") from None
    return prometheus_client


def _family(family: Family) -> Any:
    from prometheus_client import core

    metric = family.metric
    made: Any
    if metric.kind is MetricKind.HISTOGRAM:
        made = core.HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
        for sample in family.samples:
            assert isinstance(sample.value, Histogram)
            made.add_metric(sample.labels, _buckets(sample.value), sample.value.total)
        return made
    kind = core.CounterMetricFamily if metric.kind is MetricKind.COUNTER else core.GaugeMetricFamily
    made = kind(metric.name, metric.help, labels=metric.labels)
    for sample in family.samples:
        made.add_metric(sample.labels, _plain(sample))
    return made


def _plain(sample: Sample) -> float:
    assert not isinstance(sample.value, Histogram)
    return sample.value


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    count, found = 0, []
    for bound, observed in zip((*histogram.bounds, float("inf")), histogram.counts, strict=True):
        count += observed
        found.append(("+Inf" if bound == float("inf") else str(float(bound)), float(count)))
    return found


_LOG = logging.getLogger(__name__)

#: How long a connection may be silent, in seconds.
_SILENCE_S = 10.0

#: How long a connection may last in all, in seconds: one that sends a little at a time would keep its place for ever.
CONNECTION_S = 30.0

#: Connections that are served at one time; each holds a thread. Where one more comes, the one that has waited longest with its
#: request makes room.
CONNECTIONS_MAX = 32

#: How long one more waits for that, in seconds.
_ROOM_S = 1.0


class ScrapeServer(socketserver.ThreadingTCPServer):
    """Answers scrapes, each in a thread of its own."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, host: str, port: int, told: Callable[[], tuple[bytes, str]], tls: ssl.SSLContext | None) -> None:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        self.address_family = found[0][0]
        self.told = told
        self._tls = tls
        #: The values of a ``Host`` header that are answered; None where any is.
        self.hosts: frozenset[str] | None = None
        #: Returns whether an authorization header, from an address, may ask (`prometheus.listen`); None where nobody needs one.
        self.admits: Callable[[bytes, str], bool | None] | None = None
        self._free = threading.BoundedSemaphore(CONNECTIONS_MAX)
        #: Until when each connection may last, in seconds of the monotonic clock.
        self._until_s: dict[socket.socket, float] = {}
        #: Those that have not asked yet, the first one first.
        self._waiting: dict[socket.socket, None] = {}
        super().__init__((host, port), _Handler)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self.server_address[1])

    def get_request(self) -> tuple[Any, Any]:
        """Accept a connection; the handshake is made by its own thread, since a stranger may be slow in it."""
        connection, address = super().get_request()
        if self._tls is None:
            return connection, address
        return self._tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False), address

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection, or close it where too many are being answered."""
        if not (self._free.acquire(blocking=False) or (self._end_one() and self._free.acquire(timeout=_ROOM_S))):
            self.shutdown_request(request)
            return
        self._until_s[request] = time.monotonic() + CONNECTION_S
        self._waiting[request] = None
        try:
            super().process_request(request, client_address)
        except RuntimeError:
            # The host has no thread for it, which would give its place back.
            self._leave(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection, in its thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._leave(request)

    def service_actions(self) -> None:
        """End connections that lasted too long; the server does so twice a second."""
        now_s = time.monotonic()
        for connection in [each for each, until_s in list(self._until_s.items()) if until_s <= now_s]:
            _end(connection)

    def asks(self, connection: socket.socket) -> None:
        """Note that a connection has brought its request."""
        self._waiting.pop(connection, None)

    def _end_one(self) -> bool:
        for connection in list(self._waiting):
            self._waiting.pop(connection, None)
            _end(connection)
            return True
        return False

    def _leave(self, request: Any) -> None:
        self._until_s.pop(request, None)
        self._waiting.pop(request, None)
        self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - the library's.
        """Log a failure; a connection that breaks off, or speaks no TLS, is none."""
        failure = sys.exc_info()[1]
        if not isinstance(failure, OSError):
            _LOG.error("A scrape from %s failed.", client_address[0], exc_info=failure)


def _end(connection: socket.socket) -> None:
    with suppress(OSError):
        # Below TLS, since its state belongs to the thread that waits in it; that thread then meets the end.
        socket.socket.shutdown(connection, socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    """One request."""

    server: ScrapeServer
    timeout = _SILENCE_S
    server_version = "sparkq"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer with the metrics, or refuse."""
        self.server.asks(self.connection)
        hosts, admits = self.server.hosts, self.server.admits
        if hosts is not None and self.headers.get("Host", "").lower() not in hosts:
            self._answer(421, b"Metrics are not told under that name. Ask for them by a name of loopback.\n")
            return
        may = True if admits is None else admits(self.headers.get("Authorization", "").encode(), str(self.client_address[0]))
        if may is None:
            self._answer(429, b"Too many tokens from your address were wrong, so this one was not looked at.\n")
        elif not may:
            self._answer(401, b"Give the token of --metrics-token-file, as a bearer.\n")
        elif self.path.partition("?")[0] != "/metrics":
            self._answer(404, b"Metrics are at /metrics.\n")
        else:
            body, content_type = self.server.told()
            self._answer(200, body, content_type)

    def _answer(self, status: int, body: bytes, content_type: str = "text/plain; charset=utf-8") -> None:
        self.send_response(status)
        if status == 401:
            self.send_header("WWW-Authenticate", "Bearer")
        for name, value in (("Content-Type", content_type), ("X-Content-Type-Options", "nosniff"), ("Cache-Control", "no-store")):
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing: a scrape every few seconds is no news."""
