"""What reaches an address that is not the coordinator's: no token, and nothing that opens another door (PROTOCOL of calls)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from pyarrow import flight

from spark_queue.client.coordinator_client import CoordinatorClient
from spark_queue.coordinator.logins import CallerTokens
from spark_queue.coordinator.proofs import Proofs
from spark_queue.coordinator.server import Admission, Server
from spark_queue.core import commands
from spark_queue.core.definitions import parsing
from spark_queue.errors import CoordinatorError
from spark_queue.journal.store import ADVERTISEMENT_KEY, Store
from spark_queue.protocol import wire
from spark_queue.protocol.connection import LOCATION_HEADER, TOKEN_REFUSAL, Connection, ConnectionLostError, Presence, ping
from spark_queue.protocol.discovery import Advertisement
from spark_queue.protocol.endpoint import Endpoint
from spark_queue.protocol.host import Bind, host_id, location_of
from spark_queue.protocol.proof import PROOF_HEADER, Meeting, key_of
from spark_queue.protocol.tokens import new_token, token_hash

OWN, PRINCIPALS = "the own token of a user", new_token()
#: Whatever has a hash may be a principal's.
PLAIN = "a-principals-token-of-another-maker"
DEFINITIONS = parsing.parse(
    {"principals": {"ops": {"token_hash": [token_hash(PRINCIPALS), token_hash(PLAIN)], "rights": [{"rights": ["administer"]}]}}}
)
PINGED = wire.Ping(journal="j", request="r")
PING = wire.encode(PINGED)

Headers = dict[str, list[str]]
#: What is said to a frame with its headers, at an address.
Answer = Callable[[bytes, Headers, str], bytes]


class Listener(flight.FlightServerBase):
    """Somebody at an address, who keeps all that is sent there and answers as told."""

    def __init__(self, answer: Answer) -> None:
        self.heard: list[Headers] = []
        self._answer = answer
        super().__init__("grpc://127.0.0.1:0", middleware={"ear": _Ear(self.heard)})

    @property
    def address(self) -> str:
        return f"grpc://127.0.0.1:{self.port}"

    def do_action(self, _: flight.ServerCallContext, action: flight.Action) -> Iterator[Any]:
        yield flight.Result(self._answer(action.body.to_pybytes(), self.heard[-1], self.address))


class _Ear(flight.ServerMiddlewareFactory):
    def __init__(self, heard: list[Headers]) -> None:
        self._heard = heard

    def start_call(self, _: flight.CallInfo, headers: Any) -> None:
        self._heard.append({name: list(values) for name, values in headers.items()})


def answers_anybody(frame: bytes, _: Headers, address: str) -> bytes:
    journal = wire.decode_envelope(frame).journal
    pong = wire.Pong(journal=journal, epoch=1, pid=1, recovering=False, address=address, wants_token=True, proof="trust me")
    return wire.encode_answer(pong)


def send(address: str, frame: bytes, headers: dict[str, str]) -> bytes:
    """Send what no client of ours would send."""
    # The stubs say text here; Flight takes bytes.
    encoded: Any = [(name.encode(), value.encode()) for name, value in headers.items()]
    with closing(flight.FlightClient(address)) as client:
        (result,) = client.do_action(flight.Action(wire.ACTION, frame), flight.FlightCallOptions(headers=encoded))
        return bytes(result.body.to_pybytes())


def relay_to(server: Server) -> Answer:
    def relay(frame: bytes, headers: Headers, _: str) -> bytes:
        passed = (PROOF_HEADER, LOCATION_HEADER, "authorization")
        return send(server.address, frame, {name: headers[name][0] for name in passed if name in headers})

    return relay


def found(address: str, token: str) -> Connection:
    """Return a connection to an address that nobody named."""
    return Connection(address, "j", "p", lambda: token, lambda _: None)


@pytest.fixture
def server() -> Iterator[Server]:
    admission, logins = Admission(path="/j", journal_id="j"), CallerTokens(OWN, pause=lambda _: None)
    admission.claimed(1)
    logins.know(lambda: DEFINITIONS)
    made = Server(bind=Bind(), logins=logins, journal_id="j", admission=admission, location=lambda: "p")
    yield made
    made.shutdown()


@pytest.mark.parametrize("token", [OWN, PRINCIPALS, PLAIN], ids=["own", "principal's", "plain"])
@pytest.mark.parametrize("relays", [False, True], ids=["answers", "relays"])
def test_who_cannot_prove_to_be_the_coordinator_hears_no_token(server: Server, token: str, relays: bool) -> None:
    """Not even who passes everything on to the real one: that proves its own address alone."""
    with Listener(relay_to(server) if relays else answers_anybody) as stranger:
        assert ping(stranger.address, "j", "p", 30.0, lambda: token) is Presence.GONE
        with pytest.raises(ConnectionLostError, match="could not prove that it is the journal's coordinator"):
            found(stranger.address, token).call(wire.Nudge(journal="j", message_type="m"), timeout_s=30.0)
        assert stranger.heard
        assert all("authorization" not in headers and token not in str(headers) for headers in stranger.heard)
    assert ping(server.address, "j", "p", 30.0, lambda: token) is Presence.SERVES


def test_what_the_users_own_calls_carry_opens_one_process_of_one_journal_at_one_place(server: Server) -> None:
    """An address that the caller names may be passed on, as through a tunnel; what goes through there must open nothing else."""
    with Listener(relay_to(server)) as tunnel:
        connection = Connection(tunnel.address, "j", "p", lambda: OWN)
        assert isinstance(connection.call(PINGED, timeout_s=30.0)[0], wire.Pong)
        (given,) = tunnel.heard[-1]["authorization"]
    assert OWN not in given
    assert server._proofs.stands_for_token(given.encode())
    for journal_id, place in (("other", "p"), ("j", "elsewhere"), ("j", "p")):
        assert not Proofs(journal_id, CallerTokens(OWN), partial(str, place)).stands_for_token(given.encode())


def test_who_runs_the_coordinator_with_a_principals_token_is_that_principal() -> None:
    """From its first call on: the definitions may be read only after it. Who reads them, and so knows the hash, is not."""
    admission, logins = Admission(path="/j", journal_id="j"), CallerTokens(PLAIN)
    admission.claimed(1)
    server = Server(bind=Bind(), logins=logins, journal_id="j", admission=admission, location=lambda: "p")
    try:
        connection = found(server.address, PLAIN)
        assert isinstance(connection.call(PINGED, timeout_s=30.0)[0], wire.Pong)
        logins.know(lambda: DEFINITIONS)
        assert server._proofs.stands_for_token(dict(connection._headers or [])[b"authorization"])
        assert logins.principal_of(logins.own_header) == ("ops", token_hash(PLAIN))
        reader = Meeting(key=key_of(PLAIN), journal_id="j", location="p")
        forged = reader.bearer(reader.key, server._proofs._name)
        assert not server._proofs.stands_for_token(f"Bearer {forged}".encode())
    finally:
        server.shutdown()


def test_a_caller_is_known_again_by_the_next_process_at_the_address(server: Server) -> None:
    connection = Connection(server.address, "j", "p", lambda: OWN)
    for _ in range(2):
        assert isinstance(connection.call(PINGED, timeout_s=30.0)[0], wire.Pong)
        server._proofs._name = "of the next process"


def test_who_introduces_itself_may_ask_nothing_else(server: Server) -> None:
    """Who reads the definitions knows the hash of a token, and so can introduce itself as its principal."""
    introduction = Meeting(key=key_of(PRINCIPALS), journal_id="j", location="p").introduce(is_principal=True)
    headers = {PROOF_HEADER: introduction.header(), LOCATION_HEADER: "p"}
    assert isinstance(wire.read_answer(memoryview(send(server.address, PING, headers)))[0], wire.Pong)
    with pytest.raises(flight.FlightUnauthenticatedError):
        send(server.address, wire.encode(commands.Purge(journal="j", request="r", queue="Q")), headers)


@pytest.mark.parametrize("header", ["", "own", "own a", "own a b", "principal a b", "other a b", "own a b c"])
def test_who_has_no_key_is_told_nothing_but_a_refusal(server: Server, header: str) -> None:
    with pytest.raises(flight.FlightUnauthenticatedError, match=f"{TOKEN_REFUSAL}j"):
        send(server.address, PING, {PROOF_HEADER: header, LOCATION_HEADER: "p"})


def advertise(store: Store, address: str) -> None:
    advertisement = Advertisement(journal="j", address=address, host=host_id(), host_name="h", epoch=1, pid=1, renewed_at_ms=0)
    Path(store.uri(ADVERTISEMENT_KEY)).write_bytes(msgspec.json.encode(advertisement))


@pytest.mark.parametrize("is_own_word", [True, False], ids=["the caller's word", "another's word"])
@pytest.mark.parametrize("token", [PRINCIPALS, PLAIN], ids=["principal's", "plain"])
@pytest.mark.parametrize("names", ["nothing", "this journal", "another journal"])
def test_a_principals_token_goes_to_a_found_address_of_its_own_journal_only(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, token: str, names: str, is_own_word: bool
) -> None:
    """Who reads the definitions of a journal knows the hash of a token, and could prove to be a coordinator of it anywhere."""
    store, other, file = Store(str(tmp_path / "shop")), tmp_path / "other", tmp_path / "token"
    for directory in (Path(store.path), other):
        directory.mkdir()
    server._proofs.location = lambda: location_of(store)
    advertise(store, server.address)
    file.touch(mode=0o600)
    file.write_text(token + {"nothing": "", "this journal": f" {store.path}", "another journal": f" {other}"}[names])
    if not is_own_word:
        somebody = SimpleNamespace(fstat=os.fstat, getuid=lambda: os.getuid() + 1)
        monkeypatch.setattr("spark_queue.protocol.discovery.os", somebody)
    client = CoordinatorClient(store, "j", endpoint=Endpoint(token_file=str(file)), start=False)
    refused = {"nothing": "TOKEN_NAMES_NO_JOURNAL", "another journal": "TOKEN_OF_OTHER_JOURNAL"}.get(names)
    if refused is None or (names == "nothing" and is_own_word):
        assert isinstance(client.call(wire.Ping()), wire.Pong)
    else:
        with pytest.raises(CoordinatorError, match=refused):
            client.call(wire.Ping())
    if names == "nothing":
        named = Endpoint(addresses=server.address, token_file=str(file))
        assert isinstance(CoordinatorClient(store, "j", endpoint=named).call(wire.Ping()), wire.Pong)
