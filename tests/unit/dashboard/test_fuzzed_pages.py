"""Whatever is sent to the page: no failure, nothing that runs, no file but its own, no change, and no body that is hidden."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any
from urllib.parse import quote

import anyio
import pytest
from starlette.types import Message

from spark_queue.dashboard import guard
from spark_queue.protocol import guesses
from spark_queue.protocol.endpoint import Endpoint
from tests.unit.dashboard.asking import HOST, TOKEN, Asker, asker
from tests.unit.dashboard.dashboard_world import DashboardWorld
from tests.unit.dashboard.strange_requests import FIELDS, MARK, WORDS, Stranger, StrangeRequest, guesses_of

#: Requests of each test; more look further.
REQUESTS = int(os.environ.get("PAGE_REQUESTS", "400"))

#: Longest that an answer may take, in seconds, also on a machine with other work.
LONGEST_S = 30.0

#: All that may be answered; 503 while a log is read for the first time, or cannot be read.
STATUSES = {200, 303, 400, 401, 403, 404, 405, 411, 413, 415, 421, 503}

#: What stands in files beside those that may be read, and in a failure.
NEVER = ("Traceback (most recent call last)", 'File "/', "root:x:0:0", "def _refusal", "site-packages", "object at 0x")


class _Page(HTMLParser):
    """What a browser would make of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.strange: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        if tag == "zq7" or any(name.startswith("on") or name == "style" for name in names):
            self.strange.append(f"<{tag} {' '.join(names)}>")
        if tag == "script" and attrs != [("src", "/static/page.js"), ("defer", None)]:
            self.strange.append(f"<script {attrs}>")
        for name, value in attrs:
            is_own = (value or "").startswith(("/", "?", "#")) and not (value or "").startswith("//")
            if name in ("href", "src", "action") and not is_own:
                self.strange.append(f"{name}={value}")


async def _answered(visitor: Asker, request: StrangeRequest) -> tuple[Message, bytes]:
    """Return the head and the body of an answer; of events, the first."""
    messages: list[Message] = []
    waiting = [{"type": "http.request", "body": part, "more_body": True} for part in request.body]
    waiting.append({"type": "http.request", "body": b"", "more_body": False})
    is_over = anyio.Event()

    async def receive() -> Any:
        if not waiting:
            await is_over.wait()
            return {"type": "http.disconnect"}
        return waiting.pop(0)

    async def send(message: Message) -> None:
        messages.append(message)
        if request.path == "/events" and message.get("body"):
            is_over.set()

    scope = {
        "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1", "method": request.method,
        "scheme": "http", "root_path": "", "path": request.path, "raw_path": request.raw_path.encode(),
        "query_string": request.query, "headers": list(request.headers), "server": ("127.0.0.1", 7380), "client": ("127.0.0.1", 1),
    }  # fmt: skip
    with anyio.fail_after(LONGEST_S):
        await visitor.app(scope, receive, send)
    return messages[0], b"".join(each.get("body", b"") for each in messages[1:])


def check(visitor: Asker, request: StrangeRequest) -> tuple[int, str]:
    """Send a request, and check what holds of every answer; returns its status and text."""
    try:
        head, body = anyio.run(_answered, visitor, request)
    except BaseException as failure:
        raise AssertionError(f"{request!r} broke the page: {failure!r}") from failure
    status, headers = head["status"], {name.decode().lower(): value.decode() for name, value in head["headers"]}
    assert status in STATUSES, (status, request, body[-300:])
    for name, value in guard.HEADERS.items():
        assert headers[name.lower()] == value, (name, request)
    # A login leads back to what was asked for, with everything strange in it encoded.
    shown = {name: re.sub(r"^/login\?next=[\w.~%+-]*$", "/login", value) for name, value in headers.items()}
    assert not any(mark in value for value in shown.values() for mark in ("zq7", "\r", "\n")), request
    assert headers.get("location", "/").startswith("/"), request
    assert not headers.get("location", "/").startswith("//"), request
    # Nobody logs in by a guess; who logs out is told to forget the cookie.
    assert "set-cookie" not in headers or request.path == "/logout", request
    text = body.decode()
    found = [never for never in NEVER if never in text]
    assert not found, (found, request)
    if headers.get("content-type", "").startswith("text/html"):
        assert _Page(text).strange == [], request
    else:
        assert "zq7" not in text, request
    return status, text


@pytest.fixture(scope="module", autouse=True)
def nobody_waits() -> Iterator[None]:
    """Wrong tokens are looked at one by one, which takes no time here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(guesses, "GUESS_MS", 0)
        yield


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return what a coordinator was asked to do."""
    asked: list[Any] = []

    def ask(_store: Any, _journal: str, command: Any, *, endpoint: Endpoint) -> Any:
        asked.append(command)
        raise AssertionError("nobody may change anything")

    monkeypatch.setattr("spark_queue.client.coordinator_client.call_once", ask)
    return asked


def fuzz(visitor: Asker, seed: int, cookies: Sequence[str], form_tokens: Sequence[str]) -> dict[int, int]:
    """Send requests, and return how often each status came."""
    stranger, counts = Stranger(seed=seed, cookies=cookies, form_tokens=form_tokens), dict[int, int]()
    for _ in range(REQUESTS):
        begun_s = time.monotonic()
        request = stranger.request()
        if request.path == "/logout" and visitor.form_token in form_tokens:
            # It would end the session that all others have.
            continue
        status, _ = check(visitor, request)
        counts[status] = counts.get(status, 0) + 1
        if request.method == "POST" and request.path != "/login" and visitor.form_token not in form_tokens:
            assert status >= 400, request
        assert time.monotonic() - begun_s < LONGEST_S
    return counts


def test_a_stranger_sees_the_login_alone(world: DashboardWorld, called: list[Any]) -> None:
    visitor = asker(world.journal, allows_changes=True)
    stranger = replace(visitor, cookie="")
    guesses, tokens = guesses_of(visitor.access.cookie), ["", "guessed", visitor.form_token]
    found = Stranger(seed=1, cookies=guesses, form_tokens=tokens)
    for _ in range(REQUESTS):
        request = found.request()
        status, text = check(stranger, request)
        if status == 200:
            assert request.path.startswith(("/login", "/static/")), request
        assert "BILLING" not in text.replace(request.path, "")
        assert "kettle" not in text
    assert called == []


def test_who_may_look_changes_nothing_without_the_token_of_the_session(world: DashboardWorld, called: list[Any]) -> None:
    visitor = asker(world.journal, allows_changes=True)
    other = replace(visitor, cookie=f"{visitor.access.cookie}={visitor.access.sessions.begin()}")
    tokens = ["", "guessed", other.form_token, visitor.form_token[:-1], "\x00", "ü", TOKEN]
    counts = fuzz(visitor, 2, [visitor.cookie, f"a=b; {visitor.cookie}"], tokens)
    # The draw has teeth only where pages of all kinds were reached.
    assert {200, 303, 400, 403, 404, 405, 413, 415, 421} - {303} <= counts.keys(), counts
    assert called == []


def test_where_changes_are_not_allowed_the_right_token_changes_nothing(world: DashboardWorld, called: list[Any]) -> None:
    visitor = asker(world.journal)
    fuzz(visitor, 3, [visitor.cookie], [visitor.form_token])
    assert called == []


def test_what_is_not_confirmed_is_not_done(world: DashboardWorld, called: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    visitor = asker(world.journal, allows_changes=True)
    monkeypatch.setattr("spark_queue.dashboard.changes.ChangeRequest.run", lambda *_: called.append("run"))
    monkeypatch.setattr("tests.unit.dashboard.strange_requests.FIELDS", _unconfirmed())
    counts = fuzz(visitor, 4, [visitor.cookie], [visitor.form_token])
    assert counts[200] > 0
    assert called == []


def test_hidden_bodies_come_out_nowhere(world: DashboardWorld, called: list[Any]) -> None:
    visitor = asker(world.journal, hides_bodies=True, allows_changes=True)
    stranger, shown = Stranger(seed=5, cookies=[visitor.cookie], form_tokens=[visitor.form_token[:-1]]), 0
    for _ in range(REQUESTS):
        status, text = check(visitor, stranger.request())
        shown += status == 200
        assert "kettle" not in text
        assert "lamp" not in text
    assert shown > REQUESTS / 20
    assert called == []


@pytest.mark.drawn(2)
@pytest.mark.parametrize(
    "page",
    ["queues/BILLING", "queues/BILLING/messages", "queues/BILLING/messages/5", "queues/BILLING/dead-letters", "log", "journal"],
)
def test_what_a_page_is_asked_does_not_come_back_as_it_came(world: DashboardWorld, page: str) -> None:
    visitor = asker(world.journal, allows_changes=True)
    for name in WORDS:
        query = f"{quote(name)}={quote(MARK)}".encode()
        headers = [(b"host", HOST.encode()), (b"cookie", visitor.cookie.encode()), (b"accept", b"text/html")]
        check(visitor, StrangeRequest(method="GET", raw_path=f"/j/shop/{page}", query=query, headers=headers, body=[]))


def _unconfirmed() -> dict[str, list[str]]:
    return {name: values for name, values in FIELDS.items() if name != "confirmed"}
