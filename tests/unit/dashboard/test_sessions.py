"""Sessions end: by "Log out", after some hours, and where there are too many."""

from __future__ import annotations

from dataclasses import replace

import anyio
import pytest

from spark_queue.dashboard import sessions
from spark_queue.dashboard.sessions import LoginSessions
from tests.fake_clock import FakeClock
from tests.unit.dashboard.asking import HOST, TOKEN, Asker, asker
from tests.unit.dashboard.dashboard_world import DashboardWorld


def login(visitor: Asker) -> Asker:
    """Return somebody else at the same page, who has just logged in."""
    cookie = visitor.post("/login", {"token": TOKEN}).headers["set-cookie"].partition(";")[0]
    return replace(visitor, cookie=cookie)


def test_logging_out_ends_the_session_and_no_other(world: DashboardWorld) -> None:
    stranger = asker(world.journal, logs_in=False)
    first, second = login(stranger), login(stranger)
    assert first.cookie != second.cookie
    assert (first.get("/").status, second.get("/").status) == (200, 200)
    assert first.change("/logout", {}).status == 303
    # The browser would have forgotten the cookie; whoever has a copy of it comes in no more.
    assert (first.get("/").status, second.get("/").status) == (303, 200)
    assert first.get("/metrics", accept="text/plain").status == 401


def test_logging_out_takes_the_form_of_the_session(world: DashboardWorld) -> None:
    stranger = asker(world.journal, logs_in=False)
    first, second = login(stranger), login(stranger)
    assert first.post("/logout", {}).status == 403
    assert first.post("/logout", {"form_token": second.form_token}).status == 403
    assert first.get("/").status == 200


def test_a_session_ends_after_some_hours() -> None:
    clock = FakeClock()
    known = LoginSessions(clock)
    key = known.begin()
    clock.advance(sessions.LENGTH_MS - 1)
    assert known.holds(key)
    clock.advance(1)
    assert not known.holds(key)


def test_one_session_too_many_ends_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "KEPT", 3)
    known = LoginSessions()
    keys = [known.begin() for _ in range(4)]
    assert [known.holds(key) for key in keys] == [False, True, True, True]
    assert not known.holds("")


def test_events_end_with_their_session(world: DashboardWorld) -> None:
    visitor = login(asker(world.journal, logs_in=False))
    told: list[bytes] = []

    async def listen() -> None:
        headers = [(b"host", HOST.encode()), (b"cookie", visitor.cookie.encode())]
        scope = {
            "type": "http", "method": "GET", "path": "/events", "raw_path": b"/events", "root_path": "", "scheme": "http",
            "query_string": b"", "headers": headers, "server": ("127.0.0.1", 7380), "client": ("127.0.0.1", 1),
            "asgi": {"version": "3.0", "spec_version": "2.4"}, "http_version": "1.1",
        }  # fmt: skip

        async def send(message: dict[str, object]) -> None:
            told.append(bytes(message.get("body", b"")))  # type: ignore[call-overload]  # It is bytes.
            if len(told) == 2:
                visitor.access.sessions.end(visitor.cookie.partition("=")[2])

        with anyio.fail_after(30):
            await visitor.app(scope, anyio.sleep_forever, send)  # type: ignore[arg-type]  # A message is a mapping.

    anyio.run(listen)
    assert [text[:5] for text in told] == [b"", b"data:", b""]
