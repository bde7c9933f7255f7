"""The server and the door before the loop: tokens, frames, journals, addresses (DESIGN 6, RPC)."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from pyarrow import flight

from spark_queue.coordinator.inbox import Inbox
from spark_queue.coordinator.logins import CallerTokens
from spark_queue.coordinator.server import Admission, Server
from spark_queue.core import commands, replies
from spark_queue.core.definitions import parsing
from spark_queue.errors import ConfigError, CoordinatorError, JournalError
from spark_queue.protocol import user_files, wire
from spark_queue.protocol.connection import PLACE_REFUSAL, Connection, ConnectionLostError, Presence, ping
from spark_queue.protocol.host import TLS_ROOTS_VARIABLE, Bind
from tests.certificates import make_certificate

NUDGE = wire.Nudge(journal="j", request="r", message_type="json")


@pytest.fixture(scope="module")
def admission() -> Admission:
    made = Admission(path="/journals/j", journal_id="j")
    made.claimed(1)
    return made


@pytest.fixture(scope="module")
def server(admission: Admission, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        logins = CallerTokens(user_files.token())
        logins.know(lambda: parsing.parse({}))
        server = Server(bind=Bind(), logins=logins, journal_id="j", admission=admission, location=lambda: "p")
        yield server
        server.shutdown()


@pytest.fixture
def connection(server: Server) -> Connection:
    return Connection(server.address, "j", "p")


def serve_one(inbox: Inbox, reply: wire.AnyReply | None, pieces: pa.Table | None = None) -> threading.Thread:
    def answer() -> None:
        (call,) = inbox.take(10.0)
        call.answer(reply, pieces)

    thread = threading.Thread(target=answer)
    thread.start()
    return thread


def send(connection: Connection, frame: bytes) -> wire.AnyReply:
    """Send what no client of ours would send."""
    assert isinstance(connection.call(wire.Ping(journal="j", request="r"), timeout_s=30.0)[0], wire.Pong)
    # The stubs say text here; Flight takes bytes.
    options = flight.FlightCallOptions(timeout=30.0, headers=connection._headers)  # type: ignore[arg-type]
    (result,) = connection._client.do_action(flight.Action(wire.ACTION, frame), options)
    return wire.read_answer(memoryview(result.body))[0]


def test_until_it_has_recovered_every_call_but_a_ping_is_told_so(server: Server) -> None:
    admission = server._admission
    recovering = Admission(path="/journals/j", journal_id="j")
    recovering.claimed(1)
    server._admission = recovering
    try:
        reply, _ = Connection(server.address, "j", "p").call(NUDGE, timeout_s=60.0)
        assert isinstance(reply, wire.Failed)
        assert reply.code == "COORDINATOR_RECOVERING"
        assert ping(server.address, "j", "p", 5.0) is Presence.SERVES
    finally:
        server._admission = admission


def test_until_it_has_claimed_a_reign_every_call_is_told_that_it_stands_by_and_a_ping_finds_nobody(server: Server) -> None:
    admission = server._admission
    server._admission = Admission(path="/journals/j", journal_id="j")
    try:
        reply, _ = Connection(server.address, "j", "p").call(NUDGE, timeout_s=60.0)
        assert isinstance(reply, wire.Failed)
        assert reply.code == "COORDINATOR_STANDS_BY"
        assert ping(server.address, "j", "p", 5.0) is Presence.GONE
    finally:
        server._admission = admission


def test_what_keeps_a_coordinator_from_recovering_is_told_to_every_caller() -> None:
    """The next one would fail in the same way."""
    admission = Admission(path="/journals/j", journal_id="j")
    admission.refuse(JournalError("LOG_GAP", path="/journals/j", version=3, next_step=""))
    reply, _ = admission.answer(wire.encode(NUDGE), lambda: False)
    assert isinstance(reply, wire.Failed)
    assert (reply.code, reply.facts["version"]) == ("LOG_GAP", 3)


def test_a_call_is_answered_by_the_loop_with_its_rows_beside_the_reply(admission: Admission, connection: Connection) -> None:
    inbox = Inbox()
    admission.open(inbox)
    table = pa.table({"bookmark": pa.array(range(1_000_000), pa.int64())})
    thread = serve_one(inbox, replies.RowsOf(message_type="json", lease=1, leased_until_ms=5), table)
    reply, rows = connection.call(NUDGE, timeout_s=60.0)
    thread.join()
    assert reply == replies.RowsOf(message_type="json", lease=1, leased_until_ms=5)
    assert pa.ipc.open_stream(rows).read_all().equals(table)


def test_a_call_that_the_loop_sends_away_finds_nobody(admission: Admission, connection: Connection) -> None:
    inbox = Inbox()
    admission.open(inbox)
    thread = serve_one(inbox, None)
    with pytest.raises(ConnectionLostError, match="the coordinator is ending"):
        connection.call(NUDGE, timeout_s=60.0)
    thread.join()


def test_a_call_after_the_loop_has_ended_finds_nobody(admission: Admission, connection: Connection) -> None:
    inbox = Inbox()
    admission.open(inbox)
    assert inbox.close() == []
    with pytest.raises(ConnectionLostError):
        connection.call(NUDGE, timeout_s=60.0)


def test_a_wrong_token_is_refused_by_name(server: Server) -> None:
    with pytest.raises(CoordinatorError, match="UNAUTHENTICATED.*refused the token"):
        Connection(server.address, "j", "p", lambda: "wrong").call(NUDGE, timeout_s=60.0)
    with pytest.raises(CoordinatorError, match="UNAUTHENTICATED"):
        Connection(server.address, "j", "p", str).ping(timeout_s=60.0)


def test_a_refused_token_at_another_journals_coordinator_means_that_ours_is_gone(server: Server) -> None:
    assert Connection(server.address, "other", "p", str).ping(timeout_s=60.0) is Presence.GONE


def test_a_call_for_a_copy_is_refused_whatever_its_token(server: Server) -> None:
    connection = Connection(server.address, "j", "where the copy is")
    stranger = Connection(server.address, "j", "where the copy is", lambda: "wrong")
    with pytest.raises(ConnectionLostError, match=PLACE_REFUSAL):
        connection.call(NUDGE, timeout_s=60.0)
    assert connection.ping(timeout_s=60.0) is Presence.GONE
    assert stranger.ping(timeout_s=60.0) is Presence.GONE


def test_a_call_that_does_not_say_where_its_journal_is_is_refused(connection: Connection) -> None:
    ping = wire.Ping(journal="j", request="r")
    connection.call(ping, timeout_s=60.0)
    connection._headers = [each for each in connection._headers or [] if each[0] == b"authorization"]
    with pytest.raises(ConnectionLostError, match=PLACE_REFUSAL):
        connection.call(ping, timeout_s=60.0)


def test_the_token_itself_opens_nothing(connection: Connection) -> None:
    """It would open all journals of its user, so whoever listens anywhere could ask for it."""
    connection.call(wire.Ping(journal="j", request="r"), timeout_s=60.0)
    place = [each for each in connection._headers or [] if each[0] != b"authorization"]
    connection._headers = [(b"authorization", f"Bearer {user_files.token()}".encode()), *place]
    with pytest.raises(CoordinatorError, match="UNAUTHENTICATED"):
        connection._ask(wire.encode(wire.Ping(journal="j", request="r")), 60.0)


def test_a_call_for_another_journal_is_refused_by_name(connection: Connection) -> None:
    reply, _ = connection.call(wire.Nudge(journal="other", request="r", message_type="json"), timeout_s=60.0)
    assert isinstance(reply, wire.Failed)
    assert (reply.code, reply.facts["expected"], reply.facts["found"]) == ("JOURNAL_MISMATCH", "other", "j")


@pytest.mark.parametrize("frame", [b"", b"\xff\xfe", b"GET / HTTP/1.1\r\n\r\n"])
def test_a_malformed_frame_is_refused_by_name_and_the_server_goes_on(server: Server, connection: Connection, frame: bytes) -> None:
    reply = send(connection, frame)
    assert isinstance(reply, wire.Failed)
    assert reply.code == "FRAME_MALFORMED"
    assert connection.ping(timeout_s=60.0) is Presence.SERVES


def test_a_caller_of_another_version_is_told_so_as_it_is_met_and_its_token_is_not_to_blame(
    server: Server, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode = wire.encode

    def of_tomorrow(message: commands.Command | replies.Reply) -> bytes:
        return encode(msgspec.structs.replace(message, version=2) if isinstance(message, commands.Command) else message)

    monkeypatch.setattr(wire, "encode", of_tomorrow)
    with pytest.raises(CoordinatorError, match=r"VERSIONS_DIFFER.*has version 2, and the coordinator of journal j knows version 1"):
        connection.call(NUDGE, timeout_s=60.0)
    # A starter that took it for gone would depose it.
    with pytest.raises(CoordinatorError, match="VERSIONS_DIFFER"):
        ping(server.address, "j", "p", 5.0)


def test_an_oversized_frame_is_refused_by_name_on_both_sides(connection: Connection) -> None:
    error = "x" * (wire.FRAME_LIMIT_BYTES + 1)
    request = commands.EndRun(
        journal="j", request="r", queue="Q", subscription="s", run=replies.Run(incarnation=(1, 1), lease=1), error=error
    )
    with pytest.raises(CoordinatorError, match="FRAME_TOO_LARGE"):
        connection.call(request, timeout_s=60.0)
    reply = send(connection, error.encode())
    assert isinstance(reply, wire.Failed)
    assert (reply.code, reply.facts["limit"]) == ("FRAME_TOO_LARGE", wire.FRAME_LIMIT_BYTES)
    assert connection.ping(timeout_s=60.0) is Presence.SERVES


def test_nobody_at_the_address_and_somebody_silent_are_told_apart(server: Server) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        assert ping(f"grpc://127.0.0.1:{silent.getsockname()[1]}", "j", "p", 0.2) is Presence.SILENT
        port = silent.getsockname()[1]
    assert ping(f"grpc://127.0.0.1:{port}", "j", "p", 5.0) is Presence.GONE


def test_one_whose_connections_a_firewall_refuses_is_not_gone(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """It refuses in the name of who listens there, once an address has as many connections as it may."""

    def refused(*_: object, **__: object) -> socket.socket:
        raise ConnectionRefusedError

    monkeypatch.setattr(Connection, "ping", lambda *_, **__: Presence.CLOSED)
    monkeypatch.setattr(socket, "create_connection", refused)
    assert ping(server.address, "j", "p", 5.0) is Presence.SILENT
    with socket.create_server(("127.0.0.1", 0)) as ended:
        port = ended.getsockname()[1]
    assert ping(f"grpc://127.0.0.1:{port}", "j", "p", 5.0) is Presence.GONE


@pytest.mark.parametrize("host", ["0.0.0.0", "10.1.2.3"])
def test_an_address_beyond_this_host_without_tls_is_refused(host: str) -> None:
    with pytest.raises(CoordinatorError, match="ADDRESS_UNSAFE.*--tls-cert"):
        Bind(host=host).location()
    assert Bind(host=host, tls_cert="c", tls_key="k").location() == f"grpc+tls://{host}:0"


def test_a_certificate_serves_tls(tmp_path: Path, admission: Admission, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    cert, key = make_certificate(tmp_path, "DNS:localhost")
    monkeypatch.setenv("SPARKQ_TLS_ROOTS", str(cert))
    bind = Bind(host="localhost", tls_cert=str(cert), tls_key=str(key))
    over_tls = Server(bind=bind, logins=CallerTokens(user_files.token()), journal_id="j", admission=admission, location=lambda: "p")
    try:
        assert over_tls.address.startswith("grpc+tls://localhost:")
        assert ping(over_tls.address, "j", "p", 5.0) is Presence.SERVES
        monkeypatch.delenv(TLS_ROOTS_VARIABLE)
        assert ping(over_tls.address, "j", "p", 5.0) is Presence.UNTRUSTED, "not taken for one that is gone"
    finally:
        over_tls.shutdown()


def test_an_address_that_is_taken_is_refused_by_name(server: Server, admission: Admission) -> None:
    port = int(server.address.rpartition(":")[2])
    with pytest.raises(CoordinatorError, match=f"ADDRESS_UNUSABLE.*127.0.0.1:{port}"):
        Server(bind=Bind(port=port), logins=CallerTokens("t"), journal_id="j", admission=admission, location=lambda: "p")


def test_a_certificate_that_cannot_be_read_is_refused_by_name(admission: Admission) -> None:
    bind = Bind(tls_cert="/nowhere/cert.pem", tls_key="/nowhere/key.pem")
    with pytest.raises(CoordinatorError, match="ADDRESS_UNUSABLE.*/nowhere/cert.pem"):
        Server(bind=bind, logins=CallerTokens("t"), journal_id="j", admission=admission, location=lambda: "p")


def test_what_is_no_address_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="BAD_VALUE.*'coordinator'.*HOST:PORT"):
        Connection("grpc://no address:1", "j", "p")


@pytest.mark.parametrize("address", ["grpc://10.0.0.7:7337", "grpc+tcp://queue.example.com:1", "grpc+unix:///tmp/s", "http://a:1"])
def test_a_token_is_sent_nowhere_in_clear(address: str) -> None:
    with pytest.raises(ConfigError, match="BAD_VALUE.*could read the token"):
        Connection(address, "j", "p")


def test_a_file_of_roots_that_cannot_be_read_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TLS_ROOTS_VARIABLE, "/nowhere/roots.pem")
    with pytest.raises(ConfigError, match="BAD_VALUE.*SPARKQ_TLS_ROOTS.*/nowhere/roots.pem"):
        Connection("grpc+tls://127.0.0.1:1", "j", "p")


def test_ping_tells_whether_calls_are_let_through_and_which_epoch_answers() -> None:
    admission = Admission(path="/journals/j", journal_id="j")
    frame = wire.encode(wire.Ping(journal="j", request="r"))

    def pong() -> tuple[bool, int]:
        reply, _ = admission.answer(frame, lambda: False)
        assert isinstance(reply, wire.Pong)
        return reply.recovering, reply.epoch

    admission.claimed(3)
    assert pong() == (True, 3)
    admission.open(Inbox())
    assert pong() == (False, 3)
