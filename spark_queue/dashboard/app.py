"""The application: which path shows what."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from importlib import resources
from typing import Any

import anyio
from anyio import to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp

from spark_queue.dashboard.change_site import ChangeSite
from spark_queue.dashboard.guard import TOO_MANY, Access, Guard
from spark_queue.dashboard.journal_site import JournalSite
from spark_queue.dashboard.metrics import MetricsSite
from spark_queue.dashboard.overview import journal_rows
from spark_queue.dashboard.templating import Pages
from spark_queue.errors import SparkQueueError
from spark_queue.following.followed_metrics import FollowedMetrics
from spark_queue.following.follower import JournalFollower

#: Files that pages load, and what they are.
_STATIC = {"page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}

#: Time between two events at most, and between two looks whether there is something new, in seconds.
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
    """Make the application.

    Parameters
    ----------
    followers
        The journals; started with the application, and stopped with it.
    access
        Who may come in, and whether they may change something.
    hides_bodies
        Whether bodies of messages are kept off every page.
    """
    pages = Pages(access, hides_bodies=hides_bodies)
    site = _Site(followers, pages)
    named = {follower.name: follower for follower in followers}

    @asynccontextmanager
    async def life(_: Starlette) -> AsyncIterator[None]:
        for follower in followers:
            follower.start()
        yield
        for follower in followers:
            await to_thread.run_sync(follower.stop)

    routes: list[BaseRoute] = [
        Route("/", site.overview),
        Route("/login", site.login, methods=["GET", "POST"]),
        Route("/logout", site.logout, methods=["POST"]),
        Route("/events", site.events),
        Route("/metrics", MetricsSite(FollowedMetrics(followers)).metrics),
        Route("/static/{name}", static),
        Mount("/j", routes=[*JournalSite(named, pages).routes(), *ChangeSite(named, pages).routes()]),
    ]
    handlers: dict[Any, Callable[[Request, Any], Awaitable[Response]]] = {
        HTTPException: site.failed,
        SparkQueueError: site.refused,
        Exception: site.broken,
    }
    made = Starlette(routes=routes, lifespan=life, exception_handlers=handlers, max_body_size=_FORM_BYTES)
    # A path leads to one page or to none; redirects would name this host as the request did.
    made.router.redirect_slashes = False
    return Guard(made, access)


async def static(request: Request) -> Response:
    """Give a file that pages load; any other name is not found."""
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
        rows = await to_thread.run_sync(lambda: [journal_rows(each) for each in self._followers])
        return self._pages.render(request, "overview.html", journals=rows)

    async def login(self, request: Request) -> Response:
        access = self._pages.access
        given = request.query_params.get("token")
        if request.method == "POST":
            given = str((await request.form()).get("token", ""))
        if given is None:
            return self._pages.render(request, "login.html", refusal="")
        is_token = access.is_token(request, given.strip())
        if is_token is None:
            return self._pages.render(request, "login.html", refusal=TOO_MANY, status_code=429)
        if not is_token:
            return self._pages.render(request, "login.html", refusal="That is not the token.", status_code=403)
        answer = RedirectResponse("/", status_code=303)
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
        """Tell when pages should be read again: after a change, and every few seconds, since ages go on."""

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
        return self._pages.render(request, "error.html", text=text, status_code=failure.status_code)

    async def refused(self, request: Request, refusal: SparkQueueError) -> Response:
        return self._pages.render(request, "error.html", text=str(refusal), status_code=400)

    async def broken(self, request: Request, _: Exception) -> Response:
        text = "This page failed. The dashboard's own log says why; other pages work."
        return self._pages.render(request, "error.html", text=text, status_code=500)
