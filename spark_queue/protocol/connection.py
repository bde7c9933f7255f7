"""Where a coordinator is asked, and one connection to one address: an answer, or one of the ways of not getting one."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import flight

from spark_queue.errors import ConfigError, CoordinatorError
from spark_queue.protocol import codec, user_files, wire
from spark_queue.protocol.host import is_loopback, keeps_secrets

#: Names a PEM file of certificates to trust beside the system's, for a coordinator served with one's own certificate.
TLS_ROOTS_VARIABLE = "SPARKQ_TLS_ROOTS"

#: Names the header that says where the caller's journal is; a coordinator refuses calls that are meant for a copy.
LOCATION_HEADER = "sparkq-place"

#: What a refused token is answered with, followed by the journal's id: another journal means that a port was used again.
TOKEN_REFUSAL = "call refused by the coordinator of journal "  # noqa: S105  # A text, not a secret.

#: Refusals that another token may mend: the file of the token may hold a new one by now.
_TOKEN_REFUSALS = frozenset({"UNAUTHENTICATED", "TOKEN_EXPIRED", "TOKEN_WITHDRAWN"})

_Headers = list[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """How a caller reaches the coordinator of its journal. A value: it reads nothing until asked."""

    #: Addresses of coordinators that `sparkq serve` runs, with commas between them; None where one is found or started here.
    addresses: str | None = None
    #: The file of the caller's token; None where the environment or the user's own file has it.
    token_file: str | None = None

    def uris(self) -> tuple[str, ...]:
        """Return the Flight URIs of `addresses`, ``host:port,host:port``, in order: a coordinator, and its stand-ins.

        Raises
        ------
        ConfigError
            BAD_VALUE for what is no address.
        """
        text = self.addresses or ""
        addresses = [address.strip() for address in text.split(",")]
        if not all(addresses):
            expected = "HOST:PORT or HOST:PORT,HOST:PORT"
            raise ConfigError("BAD_VALUE", key="coordinator", where="the caller", value=text, expected=expected)
        return tuple(map(normalise_address, addresses))

    def token(self) -> str:
        """Read the token, anew each time: its file may hold another one by now.

        Raises
        ------
        ConfigError
            BAD_VALUE when its file is not there.
        CoordinatorError
            TOKEN_FILE_UNSAFE when others could read or replace it, or when it is empty.
        """
        return user_files.token(self.token_file)

    def check(self) -> None:
        """Refuse addresses and a file that no call could use, before anybody calls; connects to nobody.

        Raises
        ------
        ConfigError
            BAD_VALUE.
        CoordinatorError
            TOKEN_FILE_UNSAFE.
        """
        if self.token_file is not None:
            self.token()
        for address in () if self.addresses is None else self.uris():
            _open_client(address).close()


#: A coordinator that is found or started here, with the token of the environment or of this user.
LOCAL = Endpoint()


class Verdict(Enum):
    """What a ping found at an address."""

    #: The journal's coordinator, serving or recovering.
    SERVES = auto()
    #: Nobody, or somebody else: the port was used again, or the journal was copied.
    GONE = auto()
    #: Something that takes the connection and says nothing, as a stopped process does.
    SILENT = auto()
    #: Something whose certificate is not trusted here, or that speaks no TLS where it should.
    UNTRUSTED = auto()


class ConnectionLostError(Exception):
    """No answer came; whether the call took effect is unknown. Never leaves this package."""

    def __init__(self, reason: str, verdict: Verdict) -> None:
        super().__init__(reason)
        self.verdict = verdict


class Connection:
    """A lazy connection to the coordinator of one journal at one address.

    Parameters
    ----------
    location : str
        Where the journal is, as `location_of` tells.
    token : callable
        Reads the token: now, and again when the coordinator refuses it, so that a new one needs no restart of its caller.

    Raises
    ------
    ConfigError
        BAD_VALUE for what is no address, or one that the token would reach in clear, or a certificate or token file that is not
        there.
    CoordinatorError
        TOKEN_FILE_UNSAFE or USER_DIRECTORY_UNUSABLE.
    """

    def __init__(self, address: str, journal_id: str, location: str, token: Callable[[], str] = LOCAL.token) -> None:
        self.address = address
        self._journal_id = journal_id
        self._client = _open_client(address)
        self._location = location
        self._read_token = token
        self._headers = self._read_headers()

    def call(self, request: wire.AnyRequest, *, timeout_s: float) -> tuple[wire.AnyReply, list[pa.Buffer]]:
        """Send a request and give the reply with the Arrow stream beside it, in parts.

        A refused token is read again, and the request sent once more if it has changed.

        Raises
        ------
        ConnectionLostError
            When no answer came within `timeout_s`, or somebody else answered.
        CoordinatorError
            UNAUTHENTICATED, FRAME_TOO_LARGE or FRAME_MALFORMED; what the token's file is refused for.
        """
        frame, headers = codec.encode(request), self._headers
        try:
            answer = self._send(frame, headers, timeout_s)
        except CoordinatorError as refusal:
            if refusal.code not in _TOKEN_REFUSALS or not self._has_other_token(headers):
                raise
        else:
            reply = answer[0]
            if not (isinstance(reply, wire.Failed) and reply.code in _TOKEN_REFUSALS and self._has_other_token(headers)):
                return answer
        return self._send(frame, self._headers, timeout_s)

    def _read_headers(self) -> _Headers:
        return [(b"authorization", f"Bearer {self._read_token()}".encode()), (LOCATION_HEADER.encode(), self._location.encode())]

    def _has_other_token(self, refused: _Headers) -> bool:
        """Read the token again; another thread of the caller may have done so before."""
        self._headers = self._read_headers()
        return self._headers != refused

    def _send(self, frame: bytes, headers: _Headers, timeout_s: float) -> tuple[wire.AnyReply, list[pa.Buffer]]:
        # The stubs say text here; Flight takes bytes.
        options = flight.FlightCallOptions(timeout=timeout_s, headers=headers)  # type: ignore[arg-type]
        try:
            results = [result.body for result in self._client.do_action(flight.Action(wire.ACTION, frame), options)]
        except flight.FlightTimedOutError as reason:
            raise ConnectionLostError(str(reason), Verdict.SILENT) from None
        except flight.FlightUnauthenticatedError as reason:
            raise self._unauthenticated(str(reason)) from None
        except (pa.ArrowException, OSError) as reason:
            verdict = Verdict.UNTRUSTED if "handshake failed" in str(reason) else Verdict.GONE
            raise ConnectionLostError(str(reason), verdict) from None
        if not results:
            raise ConnectionLostError("the answer was empty", Verdict.GONE)
        return codec.decode_reply(results[0].to_pybytes()), results[1:]

    def ping(self, *, timeout_s: float) -> Verdict:
        """Ask whether the journal's coordinator is there.

        Raises
        ------
        CoordinatorError
            UNAUTHENTICATED when it is, and does not take this user's token.
        """
        try:
            reply, _ = self.call(wire.Ping(journal=self._journal_id, request=uuid.uuid4().hex), timeout_s=timeout_s)
        except ConnectionLostError as lost:
            return lost.verdict
        serves = isinstance(reply, wire.Pong) and reply.journal == self._journal_id
        return Verdict.SERVES if serves else Verdict.GONE

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _unauthenticated(self, text: str) -> ConnectionLostError | CoordinatorError:
        if TOKEN_REFUSAL in text and f"{TOKEN_REFUSAL}{self._journal_id}" not in text:
            return ConnectionLostError("the port now belongs to another journal's coordinator", Verdict.GONE)
        return CoordinatorError("UNAUTHENTICATED", address=self.address)


def ping(address: str, journal_id: str, location: str, timeout_s: float) -> Verdict:
    """Ask once whether the journal's coordinator is at an address; see `Connection.ping`."""
    try:
        connection = Connection(address, journal_id, location)
    except ConfigError as refusal:
        if not tells_no_address(refusal):
            raise
        return Verdict.GONE
    with closing(connection):
        return connection.ping(timeout_s=timeout_s)


def tells_no_address(refusal: ConfigError) -> bool:
    """Return whether a connection was refused for its address: a claim or an advertisement may say anything."""
    return str(refusal.facts["key"]) == "coordinator"


def normalise_address(address: str) -> str:
    """Return an address as a Flight URI: ``host:port`` means TLS, except on loopback.

    Raises
    ------
    ConfigError
        BAD_VALUE for what is no address.
    """
    if "://" in address:
        return address
    plain = f"grpc://{address}"
    try:
        urlsplit(plain)
    except ValueError:
        raise ConfigError("BAD_VALUE", key="coordinator", where="the caller", value=address, expected="host:port") from None
    return plain if is_loopback(plain) else f"grpc+tls://{address}"


def _open_client(address: str) -> flight.FlightClient:
    """Make a client, which connects at its first call."""
    roots, named = None, os.environ.get(TLS_ROOTS_VARIABLE)
    if named is not None and address.startswith("grpc+tls"):
        try:
            roots = Path(named).read_text()
        except (OSError, UnicodeDecodeError):
            expected = "a PEM file that can be read"
            raise ConfigError(
                "BAD_VALUE", key=TLS_ROOTS_VARIABLE, where="the environment", value=named, expected=expected
            ) from None
    expected = "HOST:PORT"
    try:
        if keeps_secrets(address):
            return flight.FlightClient(address, tls_root_certs=roots)
        expected = "HOST:PORT or grpc+tls://HOST:PORT: without TLS everybody on the way could read the token"
    except (pa.ArrowException, ValueError):
        pass
    raise ConfigError("BAD_VALUE", key="coordinator", where="the call", value=address, expected=expected)
