"""Serving the page: where, to whom, and with what certificate."""

from __future__ import annotations

import gc
import secrets
import socket
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from spark_queue.dashboard.app import make_app
from spark_queue.dashboard.connections import BACKLOG, BoundedListener, BoundedProtocol
from spark_queue.dashboard.guard import Access
from spark_queue.errors import ConfigError
from spark_queue.following.follower import JournalFollower
from spark_queue.journal.layout import Store
from spark_queue.protocol.http_ports import bracketed, check_reach, chosen_token, host_headers, tls_context


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingOptions:
    """How the page is served."""

    host: str
    port: int
    tls_cert: Path | None = None
    tls_key: Path | None = None
    token_file: Path | None = None
    allowed_hosts: Sequence[str] = ()
    #: ``host:port`` of the coordinator of the one journal, where it runs on another host.
    coordinator: str | None = None
    allows_changes: bool = False
    hides_bodies: bool = False


def serve(stores: Sequence[Store], options: ServingOptions, announce: Callable[[str], None]) -> None:
    """Serve the page of some journals until the process is told to end; `announce` is given the address to open.

    Raises
    ------
    CoordinatorError
        ADDRESS_UNSAFE: another host than loopback needs TLS and a token.
    ConfigError
        BAD_VALUE.
    """
    # What is not safe is refused before anybody can connect.
    access_of(options)
    cert, key = options.tls_cert, options.tls_key
    tls = None if cert is None or key is None else tls_context(cert, key)
    listening = _listen(options)
    options = replace(options, port=listening.getsockname()[1])
    access = access_of(options)
    followers = [JournalFollower(name, store, coordinator=options.coordinator) for name, store in names_of(stores).items()]
    app = make_app(followers, access, hides_bodies=options.hides_bodies)
    scheme = "https" if access.is_secure else "http"
    name = options.allowed_hosts[0] if options.allowed_hosts else bracketed(options.host)
    # A token that somebody chose is known to them, and stays out of terminals and their logs.
    login = f"/login?token={access.token}" if options.token_file is None else "/"
    # What was loaded up to here stays: the collector, which many records set to work, need not walk over it each time.
    gc.freeze()
    announce(f"{scheme}://{name}:{options.port}{login}")
    server_of(app, listening, tls).run(sockets=[listening])


def server_of(app: ASGIApp, listening: BoundedListener, tls: ssl.SSLContext | None) -> uvicorn.Server:
    """Return what serves an application within the bounds of connections."""
    config = uvicorn.Config(
        app,
        # What holds the connections is asyncio's, and tells the listener of them.
        loop="asyncio",
        http=partial(BoundedProtocol, listening),  # type: ignore[arg-type]  # It is only called.
        backlog=BACKLOG,
        # Strangers choose what is warned of.
        log_level="error",
        access_log=False,
        server_header=False,
        # Nobody stands before it: a header that says otherwise is a stranger's.
        proxy_headers=False,
        ws="none",
        timeout_graceful_shutdown=2,
        ssl_context_factory=None if tls is None else lambda *_: tls,
    )
    return uvicorn.Server(config)


def _listen(options: ServingOptions) -> BoundedListener:
    """Take the port before anybody is told of it."""
    try:
        family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
        return BoundedListener(socket.create_server((options.host.strip("[]"), options.port), family=family))
    except OSError as failure:
        expected = f"a port of '{options.host}' that can be listened on ({failure.strerror})"
        raise ConfigError("BAD_VALUE", key="--port", where="the arguments", value=options.port, expected=expected) from None


def access_of(options: ServingOptions) -> Access:
    """Return who may come in.

    Raises
    ------
    CoordinatorError
        ADDRESS_UNSAFE.
    ConfigError
        BAD_VALUE.
    """
    cert, key = options.tls_cert, options.tls_key
    check_reach("the dashboard is", options.host, options.host, tls_cert=cert, tls_key=key, token_file=options.token_file)
    if (cert is None) != (key is None):
        given, other = ("--tls-key", "--tls-cert") if cert is None else ("--tls-cert", "--tls-key")
        expected = f"given together with {other}"
        raise ConfigError("BAD_VALUE", key=given, where="the arguments", value=str(cert or key), expected=expected)
    return Access(
        token=secrets.token_urlsafe(24) if options.token_file is None else chosen_token(options.token_file, "--token-file"),
        hosts=host_headers(options.host, options.port, options.allowed_hosts),
        is_secure=cert is not None,
        allows_changes=options.allows_changes,
    )


def names_of(stores: Sequence[Store]) -> dict[str, Store]:
    """Return journals by what their pages are called: the last part of their path, with a number where two are alike."""
    named: dict[str, Store] = {}
    for store in stores:
        plain = store.path.rsplit("/", 1)[-1] or "journal"
        alike = (plain if number == 1 else f"{plain}-{number}" for number in range(1, len(stores) + 1))
        named[next(name for name in alike if name not in named)] = store
    return named
