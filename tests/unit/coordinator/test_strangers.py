"""What somebody without a token can take of the process that listens: bounded in connections, threads and bytes (DESIGN 6, RPC)."""

from __future__ import annotations

import os
import resource
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import msgspec
import psutil
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import flight

from spark_queue.coordinator import flight_messages, flight_port, server
from spark_queue.coordinator.inbox import Inbox
from spark_queue.coordinator.logins import CallerTokens
from spark_queue.coordinator.server import Admission, Server
from spark_queue.core import replies
from spark_queue.core.definitions import parsing
from spark_queue.errors import CoordinatorError
from spark_queue.protocol import wire
from spark_queue.protocol.connection import Connection, Presence, ping
from spark_queue.protocol.host import Bind
from spark_queue.protocol.tokens import new_token
from tests.http2 import Stranger, inflating
from tests.unit.coordinator.test_rights import SAMPLES

WAIT_S = 30.0

#: What a port takes of a message before somebody asks for it: the first window of a stream (RFC 9113, 6.9.2).
WINDOW_BYTES = 65_535

#: What a compressed call would fill.
INFLATED_BYTES = 100 << 20

Serve = Callable[..., Server]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Serve with the token `own`; principals are known, or not yet."""
    with ExitStack() as stack:

        def start(*, connections_max: int = 50, knows: bool = True) -> Server:
            admission = Admission(path="/journals/j", journal_id="j")
            admission.claimed(1)
            logins = CallerTokens("own", pause=lambda _: None)
            if knows:
                logins.know(lambda: parsing.parse({}))
                admission.open(Inbox())
            made = Server(
                bind=Bind(), logins=logins, journal_id="j", admission=admission, location=lambda: "p",
                connections_max=connections_max,
            )  # fmt: skip
            stack.callback(made.shutdown)
            return made

        yield start


def caller(served: Server, token: str = "own") -> Connection:
    return Connection(served.address, "j", "p", lambda: token)


def own_bearer(served: Server) -> str:
    """Return the authorization that calls of the user have who runs it."""
    with closing(caller(served)) as connection:
        connection.call(wire.Ping(journal="j", request="r"), timeout_s=WAIT_S)
        return dict(connection._headers or [])[b"authorization"].decode()


def test_connections_are_bounded_and_who_was_there_before_goes_on(serve: Serve) -> None:
    served = serve(connections_max=4)
    with ExitStack() as strangers:
        before = caller(served)
        assert before.ping(timeout_s=WAIT_S) is Presence.SERVES
        for _ in range(3):
            strangers.enter_context(closing(Stranger(served.port)))
        with pytest.raises(ConnectionError):
            Stranger(served.port)
        # Nobody succeeds one that others reach.
        assert ping(served.address, "j", "p", WAIT_S, lambda: "own") is Presence.SILENT
        assert before.ping(timeout_s=WAIT_S) is Presence.SERVES
    # The port learns of a closed connection when its loop comes to it, which may be after the next one asks.
    end = time.monotonic() + WAIT_S
    while caller(served).ping(timeout_s=WAIT_S) is not Presence.SERVES:
        assert time.monotonic() < end


@pytest.mark.parametrize("bound", ["HANDSHAKE_MS", "IDLE_MS"])
def test_who_says_nothing_loses_the_connection(serve: Serve, monkeypatch: pytest.MonkeyPatch, bound: str) -> None:
    monkeypatch.setattr(flight_port, bound, 100)
    with closing(Stranger(serve().port, speaks=bound == "IDLE_MS")) as stranger:
        assert stranger.is_closed(within_s=WAIT_S)


@pytest.mark.parametrize("method", ["DoAction", "DoPut", "DoExchange", "Handshake"])
def test_calls_without_a_token_end_at_their_headers_and_leave_no_thread(serve: Serve, method: str) -> None:
    served, process = serve(), psutil.Process()
    before = process.num_threads()
    with closing(Stranger(served.port)) as stranger:
        streams = [stranger.begin(method, sparkq_place="p") for _ in range(400)]
        assert process.num_threads() < before + 100
        assert all(map(stranger.ends, streams))
    assert caller(served).ping(timeout_s=WAIT_S) is Presence.SERVES


@pytest.mark.parametrize("encoding", ["gzip", "identity"])
@pytest.mark.parametrize("authorization", ["", "Bearer guessed"])
def test_nothing_of_a_message_is_read_before_the_token(serve: Serve, authorization: str, encoding: str) -> None:
    served, is_compressed = serve(), encoding == "gzip"
    message = inflating(wire.ACTION, INFLATED_BYTES) if is_compressed else bytes(1 << 20)
    with closing(Stranger(served.port)) as stranger:
        stream = stranger.begin("DoAction", sparkq_place="p", authorization=authorization, grpc_encoding=encoding)
        assert stranger.send(stream, message, is_compressed=is_compressed) <= WINDOW_BYTES < len(message)
        assert stranger.ends(stream)


def test_nothing_is_inflated_for_who_has_a_token_either(serve: Serve) -> None:
    served = serve()
    with closing(Stranger(served.port)) as known:
        stream = known.begin("DoAction", sparkq_place="p", authorization=own_bearer(served), grpc_encoding="gzip")
        message = inflating(wire.ACTION, INFLATED_BYTES)
        assert known.send(stream, message, is_compressed=True) <= WINDOW_BYTES < len(message)
        assert known.ends(stream)


def test_every_call_is_refused_without_a_token_and_none_reaches_the_loop(serve: Serve) -> None:
    """R12: whatever is asked; a caller with a token of this user is heard."""
    served = serve()
    inbox = Inbox()
    served._admission.open(inbox)
    strangers = [caller(served, token) for token in ("", "wrong", new_token(), "owner", "OWN")]
    for command, fields in SAMPLES.items():
        request: Any = msgspec.convert({"journal": "j", "request": "r", **fields}, command)
        for stranger in strangers:
            with pytest.raises(CoordinatorError, match="UNAUTHENTICATED"):
                stranger.call(request, timeout_s=WAIT_S)
    assert inbox.take(0.0) == []
    heard = threading.Thread(target=lambda: inbox.take(WAIT_S)[0].answer(replies.Done()))
    heard.start()
    assert caller(served).call(wire.Stop(journal="j", request="r"), timeout_s=WAIT_S) == (replies.Done(), b"")
    heard.join()


def test_who_may_be_known_later_hears_nothing_of_process_and_reign(serve: Serve) -> None:
    """Any text with the prefix of a token may be one."""
    served = serve(knows=False)
    ping = wire.Ping(journal="j", request="r")
    pong = wire.Pong(journal="j", epoch=0, pid=0, recovering=True)
    assert caller(served, new_token())._meet(WAIT_S) == (pong, None)
    known = caller(served).call(ping, timeout_s=WAIT_S)[0]
    assert isinstance(known, wire.Pong)
    assert (known.epoch, known.pid, known.recovering) == (1, os.getpid(), True)


def test_who_may_be_known_later_may_not_be_slow(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in reads calls of tokens that it cannot judge; one that never comes must not keep its place."""
    monkeypatch.setattr(server, "UNKNOWN_MAX", 1)
    served, token = serve(knows=False), new_token()
    with closing(Stranger(served.port)) as slow:
        stream = slow.begin("DoAction", sparkq_place="p", authorization=f"Bearer {token}")
        assert slow.ends(stream)
        assert caller(served, token).ping(timeout_s=WAIT_S) is Presence.SERVES


def test_few_who_may_be_known_later_are_read_at_one_time(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "UNKNOWN_MAX", 1)
    served, token = serve(knows=False), new_token()
    reads = served._reads_of_unknown
    with reads:
        assert caller(served, token).ping(timeout_s=WAIT_S) is Presence.CLOSED
        assert caller(served).ping(timeout_s=WAIT_S) is Presence.SERVES
    assert caller(served, token).ping(timeout_s=WAIT_S) is Presence.SERVES


def test_who_has_a_token_may_not_be_slow_where_many_are(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls whose message never comes hold a thread each, until none is left for others."""
    monkeypatch.setattr(flight_port, "THREADS_MAX", 4)
    monkeypatch.setattr(server, "CROWD", 3)
    monkeypatch.setattr(server, "READ_S", 600.0)
    served = serve()
    bearer = own_bearer(served)
    with closing(Stranger(served.port)) as slow:
        streams = [slow.begin("DoAction", sparkq_place="p", authorization=bearer) for _ in range(4)]
        assert all(map(slow.ends, streams))
        assert caller(served).ping(timeout_s=WAIT_S) is Presence.SERVES


def test_who_has_a_token_has_as_long_as_callers_wait(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "READ_S", 0.5)
    served = serve()
    bearer = own_bearer(served)
    with closing(Stranger(served.port)) as slow:
        assert slow.ends(slow.begin("DoAction", sparkq_place="p", authorization=bearer))


def test_one_that_has_all_calls_that_it_may_have_is_not_gone(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flight_port, "CALLS_MAX", 2)
    served = serve()
    bearer = own_bearer(served)
    with closing(Stranger(served.port)) as slow:
        streams = [slow.begin("DoAction", sparkq_place="p", authorization=bearer) for _ in range(3)]
        assert slow.ends(streams[2])
        assert ping(served.address, "j", "p", WAIT_S, lambda: "own") is Presence.SILENT


def refuse_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the host give the port no further thread."""
    start = threading.Thread.start

    def refused(thread: threading.Thread) -> None:
        if thread.name.startswith("call"):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refused)


def test_where_the_host_gives_no_thread_calls_wait_for_those_that_are_there(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    served = serve()
    refuse_threads(monkeypatch)
    connection = caller(served)
    asking = [threading.Thread(target=connection.ping, kwargs={"timeout_s": WAIT_S}) for _ in range(8)]
    for each in asking:
        each.start()
    for each in asking:
        each.join()
    assert connection.ping(timeout_s=WAIT_S) is Presence.SERVES


def test_a_call_that_waited_for_a_thread_leaves_its_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library counts it until its future has ended."""
    threads = flight_port._Threads(2)
    began, may_end = threading.Event(), threading.Event()

    def call() -> bool:
        began.set()
        return may_end.wait(WAIT_S)

    first = threads.submit(call)
    assert began.wait(WAIT_S)
    refuse_threads(monkeypatch)
    second = threads.submit(lambda: "answered")
    may_end.set()
    assert (first.result(WAIT_S), second.result(WAIT_S)) == (True, "answered")
    threads.shutdown()


@pytest.mark.parametrize(
    ("limits", "taken", "room"),
    [
        ((1_024, 524_288), (2_560, 524_288), 2_048),
        ((1_024, 1_024), (1_024, 1_024), 512),
        ((1_024, resource.RLIM_INFINITY), (2_560, resource.RLIM_INFINITY), 2_048),
        ((256, 256), (256, 256), 128),
        ((65_536, 65_536), None, 2_048),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), None, 2_048),
    ],
)
def test_connections_leave_descriptors_to_the_log(
    monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int], taken: tuple[int, int] | None, room: int
) -> None:
    set_to: list[Any] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda _, given: set_to.append(given))
    assert (flight_port.room_for_connections(), set_to) == (room, [] if taken is None else [taken])


def test_a_message_that_is_no_action_of_ours_is_refused(serve: Serve) -> None:
    connection = caller(serve())
    assert isinstance(connection.call(wire.Ping(journal="j", request="r"), timeout_s=WAIT_S)[0], wire.Pong)
    # The stubs say text here; Flight takes bytes.
    options = flight.FlightCallOptions(timeout=WAIT_S, headers=connection._headers)  # type: ignore[arg-type]
    for kind in ("other", ""):
        with pytest.raises(pa.ArrowException, match="speaks only sparkqueue.call"):
            list(connection._client.do_action(flight.Action(kind, b""), options))


@given(st.binary())
def test_any_bytes_are_an_action_or_refused(message: bytes) -> None:
    try:
        kind, body = flight_messages.read_action(message)
    except ValueError:
        return
    assert len(kind.encode()) + len(body) <= len(message)


@given(st.text(max_size=200), st.binary(max_size=40_000))
def test_an_action_is_read_as_it_was_written(kind: str, body: bytes) -> None:
    def field(number: int, data: bytes) -> bytes:
        # A result is one such field, of number 1.
        return bytes((number << 3 | 2,)) + flight_messages.encode_result(data)[1:]

    for message in (field(1, kind.encode()) + field(2, body), field(2, body) + field(1, kind.encode())):
        read = flight_messages.read_action(message)
        assert (read[0], bytes(read[1])) == (kind, body)


def test_two_coordinators_never_share_a_port(serve: Serve) -> None:
    with pytest.raises(CoordinatorError, match="ADDRESS_UNUSABLE"):
        Server(
            bind=Bind(port=serve().port), logins=CallerTokens("own"), journal_id="j", admission=Admission(path="p", journal_id="j"),
            location=lambda: "p",
        )  # fmt: skip
