"""Asks the dashboard's application in this process, as a browser would: with its cookies, and nothing that it was not given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from urllib.parse import unquote, urlencode, urlsplit

import anyio
from starlette.requests import Request
from starlette.types import ASGIApp, Message

from spark_queue import Journal
from spark_queue.dashboard.app import make_app
from spark_queue.dashboard.guard import Access
from spark_queue.following.follower import JournalFollower

HOST = "127.0.0.1:7380"
TOKEN = "a token of some length"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What the application answered."""

    status: int
    headers: Mapping[str, str]
    text: str


@dataclass(kw_only=True)
class Asker:
    """Somebody at a browser."""

    app: ASGIApp
    access: Access
    followers: Sequence[JournalFollower]
    #: The cookie that is sent; empty before the login.
    cookie: str = ""
    #: Headers of every request, beside the cookie.
    headers: dict[str, str] = field(default_factory=lambda: {"host": HOST, "accept": "text/html"})

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, b"", headers)

    def post(self, path: str, form: Mapping[str, str], **headers: str) -> Answer:
        given = {"content-type": "application/x-www-form-urlencoded", **headers}
        return self.ask("POST", path, urlencode(form).encode(), given)

    @property
    def form_token(self) -> str:
        """What the forms of the session's pages carry."""
        return self.access.form_token(Request({"type": "http", "headers": [(b"cookie", self.cookie.encode())]}))

    def change(self, path: str, form: Mapping[str, str], **headers: str) -> Answer:
        """Send a form as a page of the session holds it."""
        return self.post(path, {"form_token": self.form_token, **form}, **headers)

    def ask(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        parts = urlsplit(path)
        sent = {**self.headers, "cookie": self.cookie, **{name.replace("_", "-"): value for name, value in headers.items()}}
        scope: dict[str, Any] = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http", "root_path": "",
            "path": unquote(parts.path), "raw_path": parts.path.encode(), "query_string": parts.query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in sent.items() if value],
            "server": ("127.0.0.1", 7380), "client": ("127.0.0.1", 50_000),
        }  # fmt: skip
        return anyio.run(self._asked, scope, body)

    async def _asked(self, scope: dict[str, Any], body: bytes) -> Answer:
        messages: list[Message] = []

        async def receive() -> Message:
            if scope.pop("read", False):
                await anyio.sleep_forever()
            scope["read"] = True
            # Whoever sends a header of this name leaves instead.
            leaves = any(name == b"leaves" for name, _ in scope["headers"])
            return {"type": "http.disconnect"} if leaves else {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Message) -> None:
            messages.append(message)
            if scope["path"] == "/events" and message.get("body"):
                raise _EnoughError

        try:
            await self.app(scope, receive, send)
        except* _EnoughError:
            pass
        start, data = messages[0], b"".join(each.get("body", b"") for each in messages[1:])
        found = {name.decode(): value.decode() for name, value in start["headers"]}
        return Answer(status=start["status"], headers=found, text=data.decode())


class _EnoughError(Exception):
    """Events go on for ever; the first one is enough."""


@cache
def followed(path: str) -> JournalFollower:
    """Return what follows a journal, whose log has been read once."""
    return following(Journal(path))


def following(journal: Journal) -> JournalFollower:
    """Return what follows a journal from now on."""
    follower = JournalFollower(journal.path.rsplit("/", 1)[-1], journal.store)
    follower.refresh()
    return follower


def asker(*journals: Journal, logs_in: bool = True, hides_bodies: bool = False, allows_changes: bool = False) -> Asker:
    """Return somebody who looks at journals, whose logs have been read once."""
    return asker_of(
        [followed(each.path) for each in journals], logs_in=logs_in, hides_bodies=hides_bodies, allows_changes=allows_changes
    )


def asker_of(
    followers: Sequence[JournalFollower], *, logs_in: bool = True, hides_bodies: bool = False, allows_changes: bool = False
) -> Asker:
    """Return somebody who looks at journals that are followed."""
    access = Access(token=TOKEN, hosts=frozenset({HOST}), is_secure=False, allows_changes=allows_changes)
    made = Asker(app=make_app(followers, access, hides_bodies=hides_bodies), access=access, followers=followers)
    if logs_in:
        made.cookie = f"{access.cookie}={access.sessions.begin()}"
    return made
