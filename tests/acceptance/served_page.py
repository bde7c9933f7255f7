"""The dashboard as a browser reaches it, over a socket."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import Any

import uvicorn
from playwright.sync_api import Browser, Page, expect

from spark_queue import Journal
from spark_queue.core import commands
from spark_queue.dashboard.app import make_app
from spark_queue.dashboard.guard import Access
from spark_queue.following.follower import JournalFollower
from spark_queue.protocol.endpoint import Endpoint
from tests.unit.dashboard.dashboard_world import DashboardWorld
from tests.waiting import wait_until

TOKEN = "a token for one test"

#: How long a test waits for what must be seen, in milliseconds.
DEADLINE_MS = 30_000

# What is expected has a deadline of its own, which that of a page does not change: 5 s, too short where others take the processors.
expect.set_options(timeout=DEADLINE_MS)


class Served:
    """The dashboard of a journal, and of a path without one; the journal's engine answers instead of a coordinator.

    Parameters
    ----------
    world : DashboardWorld
        The journal.
    minute : float
        When all that is asked of it happens.
    is_alone : bool
        Whether the path without a journal is left out.
    """

    def __init__(self, world: DashboardWorld, *, minute: float, is_alone: bool = False) -> None:
        self.world, self._minute = world, minute
        listening = socket.create_server(("127.0.0.1", 0))
        host = f"127.0.0.1:{listening.getsockname()[1]}"
        self.address = f"http://{host}"
        access = Access(token=TOKEN, hosts=frozenset({host}), is_secure=False, allows_changes=True)
        journals = [self.world.journal] if is_alone else [self.world.journal, Journal(f"{world.journal.path}-that-is-gone")]
        followers = [JournalFollower(Path(each.path).name, each.store) for each in journals]
        config = uvicorn.Config(make_app(followers, access), log_level="warning", ws="none", timeout_graceful_shutdown=1)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [listening]})
        self._thread.start()
        # A page that cannot be drawn yet is an error in the browser's console.
        wait_until(lambda: _is_read(followers[0]))

    def answer(self, _store: Any, _journal: str, command: commands.AnyCommand, *, endpoint: Endpoint) -> Any:
        reply = self.world.decide(command, self._minute)
        self.world.commit()
        return reply

    def end(self) -> None:
        self._server.should_exit = True
        self._thread.join()


def _is_read(follower: JournalFollower) -> bool:
    """Return whether a journal's log has been read once."""
    with follower.look() as look:
        return look is not None


def visitor(browser: Browser, served: Served, *, width: int = 1280, scheme: Any = "light", scripts: bool = True) -> Page:
    """Return a page of somebody who is logged in; whatever it complains about fails the test."""
    context = browser.new_context(
        viewport={"width": width, "height": 800}, color_scheme=scheme, java_script_enabled=scripts, base_url=served.address
    )
    page = context.new_page()
    page.set_default_timeout(DEADLINE_MS)
    page.goto(f"/login?token={TOKEN}")
    return page
