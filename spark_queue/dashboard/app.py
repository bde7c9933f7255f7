"""The application: the path of each page.

It also serves the page, by the address, the visitors and the certificate of `ServingOptions`.
"""

from __future__ import annotations

import gc
import json
import secrets
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

import anyio
import uvicorn
from anyio import to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp

from spark_queue.dashboard.changes import Changes, ChangeSite
from spark_queue.dashboard.connections import BACKLOG, BoundedListener, BoundedProtocol
from spark_queue.dashboard.findings import finding_list
from spark_queue.dashboard.guard import TOO_MANY, Access, Guard, own_path
from spark_queue.dashboard.journal_page import PAGE_QUEUES, MetricsSite, choice_of, journal_rows
from spark_queue.dashboard.journal_site import JournalSite
from spark_queue.dashboard.templating import Pages
from spark_queue.errors import ConfigError, SparkQueueError
from spark_queue.following.follower import JournalFollower
from spark_queue.journal.store import Store
from spark_queue.protocol.certificates import tls_context
from spark_queue.protocol.http_ports import bracketed, check_reach, chosen_token, host_headers


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingOptions:
    """The options of serving the page."""

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
    """Serve the page of some journals until the process is told to end; `announce` is given the address to open."""
    # Unsafe options are refused before anybody can connect.
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
    # A token from a file is known to its owner, and stays out of terminals and their logs.
    login = f"/login?token={access.token}" if options.token_file is None else "/"
    # Objects loaded up to here stay: the collector, which many records set to work, need not walk over them each time.
    gc.freeze()
    announce(f"{scheme}://{name}:{options.port}{login}")
    server_of(app, listening, tls).run(sockets=[listening])


def server_of(app: ASGIApp, listening: BoundedListener, tls: ssl.SSLContext | None) -> uvicorn.Server:
    """Return the server of an application, which keeps the bounds of connections."""
    config = uvicorn.Config(
        app,
        # The connections are asyncio's, and the protocol notes them with the listener.
        loop="asyncio",
        http=partial(BoundedProtocol, listening),  # type: ignore[arg-type]  # It is only called.
        backlog=BACKLOG,
        # Strangers choose the texts of its warnings.
        log_level="error",
        access_log=False,
        server_header=False,
        # No proxy stands before it: a header that names one is a stranger's.
        proxy_headers=False,
        ws="none",
        timeout_graceful_shutdown=2,
        ssl_context_factory=None if tls is None else lambda *_: tls,
    )
    return uvicorn.Server(config)


def _listen(options: ServingOptions) -> BoundedListener:
    """Bind the port before it is announced."""
    try:
        family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
        return BoundedListener(socket.create_server((options.host.strip("[]"), options.port), family=family))
    except OSError as failure:
        expected = f"a port of '{options.host}' that can be listened on ({failure.strerror})"
        raise ConfigError("BAD_VALUE", key="--port", where="the arguments", value=options.port, expected=expected) from None


def access_of(options: ServingOptions) -> Access:
    """Return the access to the page; options by which a token would cross a network in clear are refused."""
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
    """Return journals by the names of their pages: the last part of their path, with a number where two are alike."""
    named: dict[str, Store] = {}
    for store in stores:
        plain = store.path.rsplit("/", 1)[-1] or "journal"
        alike = (plain if number == 1 else f"{plain}-{number}" for number in range(1, len(stores) + 1))
        named[next(name for name in alike if name not in named)] = store
    return named


#: Files that pages load, and their media types.
_STATIC = {"page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}

#: Time between two events at most, and between two looks for a change, in seconds.
EVENT_S = 4.0
_EVENT_LOOK_S = 0.5

#: Most bytes of a form.
_FORM_BYTES = 64 * 1024


def make_app(
    followers: Sequence[JournalFollower],
    access: Access,
    *,
    hides_bodies: bool = False,
) -> ASGIApp:
    """Return the application of the page, which starts and stops the followers with itself."""
    pages = Pages(access, hides_bodies=hides_bodies)
    site, changes = _Site(followers, pages), Changes()
    named = {follower.name: follower for follower in followers}

    @asynccontextmanager
    async def life(_: Starlette) -> AsyncIterator[None]:
        for follower in followers:
            follower.start()
        yield
        await to_thread.run_sync(changes.end)
        for follower in followers:
            await to_thread.run_sync(follower.stop)

    routes: list[BaseRoute] = [
        Route("/", site.overview),
        Route("/login", site.login, methods=["GET", "POST"]),
        Route("/logout", site.logout, methods=["POST"]),
        Route("/events", site.events),
        Route("/metrics", MetricsSite(followers).metrics),
        Route("/static/{name}", static),
        Mount("/j", routes=[*JournalSite(named, pages, changes).routes(), *ChangeSite(named, pages, changes).routes()]),
    ]
    handlers: dict[Any, Callable[[Request, Any], Awaitable[Response]]] = {
        HTTPException: site.failed,
        # A stranger may do so as often as it likes: no log fills with that.
        ClientDisconnect: site.left,
        SparkQueueError: site.refused,
        Exception: site.broken,
    }
    made = Starlette(routes=routes, lifespan=life, exception_handlers=handlers, max_body_size=_FORM_BYTES)
    # A path leads to one page or to none; redirects would name this host as the request did.
    made.router.redirect_slashes = False
    return Guard(made, access)


async def static(request: Request) -> Response:
    """Return a file that pages load; any other name is not found."""
    name = request.path_params["name"]
    if name not in _STATIC:
        raise HTTPException(404)
    data = (resources.files("spark_queue.dashboard") / "static" / name).read_bytes()
    return Response(data, media_type=_STATIC[name])


class _Site:
    """The pages that are of no one journal, and errors."""

    def __init__(self, followers: Sequence[JournalFollower], pages: Pages) -> None:
        self._followers = followers
        self._pages = pages

    async def overview(self, request: Request) -> Response:
        choice = choice_of(request.query_params, limit=max(1, PAGE_QUEUES // max(1, len(self._followers))))
        rows = await to_thread.run_sync(lambda: [journal_rows(each, choice) for each in self._followers])
        wrong = finding_list((found for each in rows for found in each.wrong), times_ms=[each.now_ms for each in rows])
        return self._pages.render(request, "overview.html", journals=rows, wrong=wrong)

    async def login(self, request: Request) -> Response:
        access = self._pages.access
        given, onward = request.query_params.get("token"), request.query_params.get("next", "/")
        if request.method == "POST":
            form = await request.form()
            given, onward = str(form.get("token", "")), str(form.get("next", "/"))
        onward = own_path(onward)
        if given is None:
            return self._pages.render(request, "login.html", refusal="", onward=onward)
        is_token = access.is_token(request, given.strip())
        if is_token is None:
            return self._pages.render(request, "login.html", refusal=TOO_MANY, onward=onward, status_code=429)
        if not is_token:
            return self._pages.render(request, "login.html", refusal="That is not the token.", onward=onward, status_code=403)
        answer = RedirectResponse(onward, status_code=303)
        session = access.sessions.begin()
        answer.set_cookie(access.cookie, session, httponly=True, samesite="strict", secure=access.is_secure, path="/")
        return answer

    async def logout(self, request: Request) -> Response:
        await self._pages.refuse_strange_form(request)
        self._pages.access.sessions.end(self._pages.access.session_of(request) or "")
        answer = RedirectResponse("/login", status_code=303)
        answer.delete_cookie(self._pages.access.cookie, path="/", secure=self._pages.access.is_secure, httponly=True)
        return answer

    async def events(self, request: Request) -> Response:
        """Send an event when pages should be read again: after a change, and every few seconds, since ages go on."""

        async def told() -> AsyncIterator[str]:
            while self._pages.access.session_of(request) is not None:
                revisions = self._revisions()
                yield f"data: {json.dumps(revisions)}\n\n"
                with anyio.move_on_after(EVENT_S):
                    while self._revisions() == revisions:
                        await anyio.sleep(_EVENT_LOOK_S)

        return StreamingResponse(told(), media_type="text/event-stream")

    def _revisions(self) -> list[int]:
        return [each.revision for each in self._followers]

    async def failed(self, request: Request, failure: HTTPException) -> Response:
        text = "There is no such page." if failure.status_code == 404 else failure.detail
        return self._error_page(request, text, failure.status_code)

    async def refused(self, request: Request, refusal: SparkQueueError) -> Response:
        return self._error_page(request, str(refusal), 400)

    async def left(self, _: Request, __: ClientDisconnect) -> Response:
        return Response(status_code=400)

    async def broken(self, request: Request, _: Exception) -> Response:
        text = "This page failed. The dashboard's log has the reason; other pages work."
        return self._error_page(request, text, 500)

    def _error_page(self, request: Request, text: str, status: int) -> Response:
        # What cannot be read yet is asked for again; a form is not sent twice.
        may_appear = status == 503 and request.method == "GET"
        return self._pages.render(request, "error.html", text=text, may_appear=may_appear, status_code=status)
