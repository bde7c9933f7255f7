"""The page's connections, over real sockets: who says nothing, or not enough, keeps nobody out."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import anyio
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from spark_queue.dashboard import connections
from spark_queue.dashboard.app import server_of
from spark_queue.dashboard.connections import BoundedListener
from spark_queue.protocol.certificates import tls_context
from tests.certificates import make_certificate

WAIT_S = 30.0


class Served:
    """A page that answers at once, and one that answers when it is told to."""

    def __init__(self, tls: ssl.SSLContext | None, trusted: ssl.SSLContext | None) -> None:
        self._trusted = trusted
        self.begun, self.may_end = threading.Semaphore(0), threading.Event()
        listening = BoundedListener(socket.create_server(("127.0.0.1", 0)))
        self.port = listening.getsockname()[1]
        app = Starlette(routes=[Route("/", self._page, methods=["GET", "POST"]), Route("/slow", self._slow)])
        self._server = server_of(app, listening, tls)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [listening]})
        self._thread.start()

    async def _page(self, request: Request) -> Response:
        return PlainTextResponse(await request.body() or b"page")

    async def _slow(self, _: Request) -> Response:
        self.begun.release()
        await anyio.to_thread.run_sync(self.may_end.wait)
        return PlainTextResponse("slow")

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=WAIT_S)

    def ask(self, path: str = "/") -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)
        if self._trusted is not None:
            connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=WAIT_S, context=self._trusted)
        connection.request("GET", path)
        return connection

    def page(self) -> bytes:
        with closing(self.ask()) as connection:
            body: bytes = connection.getresponse().read()
            return body

    def end(self) -> None:
        self.may_end.set()
        self._server.should_exit = True
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()


Serve = Callable[..., Served]


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    monkeypatch.setattr(connections, "CONNECTIONS_MAX", 4)
    with ExitStack() as stack:

        def start(*, tls: bool = False) -> Served:
            pair = make_certificate(tmp_path, "IP:127.0.0.1") if tls else None
            given = (None, None) if pair is None else (tls_context(*pair), ssl.create_default_context(cafile=str(pair[0])))
            served = Served(*given)
            stack.callback(served.end)
            return served

        yield start


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize(
    "said",
    [b"", b"GET / HTTP/1.1\r\nHost: ", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf", b"rubbish\r\n\r\n"],
    ids=["nothing", "half a head", "half a body", "no request"],
)
def test_who_does_not_ask_makes_room_for_who_does(serve: Serve, said: bytes, *, tls: bool) -> None:
    served = serve(tls=tls)
    with ExitStack() as silent:
        held = [silent.enter_context(closing(served.connect())) for _ in range(12)]
        for each in held:
            each.sendall(said)
        assert [served.page() for _ in range(4)] == [b"page"] * 4
        assert sum(is_ended(each) for each in held[:9]) == 9, "the ones that came first"


def is_ended(connection: socket.socket) -> bool:
    """Wait for the other end to close a connection."""
    try:
        while connection.recv(65_536):
            pass
    except TimeoutError:
        return False
    except OSError:
        pass
    return True


def test_who_is_being_answered_is_not_ended(serve: Serve) -> None:
    served = serve()
    with ExitStack() as asking:
        slow = [asking.enter_context(closing(served.ask("/slow"))) for _ in range(4)]
        for _ in slow:
            assert served.begun.acquire(timeout=WAIT_S)
        with closing(served.connect()) as one_more:
            assert is_ended(one_more)
        served.may_end.set()
        assert [each.getresponse().read() for each in slow] == [b"slow"] * 4
        # Their connections stay open for a while, and make room.
        assert served.page() == b"page"


def test_a_connection_asks_again_and_again(serve: Serve) -> None:
    served = serve()
    with closing(served.ask()) as connection:
        for _ in range(20):
            assert connection.getresponse().read() == b"page"
            connection.request("GET", "/")
