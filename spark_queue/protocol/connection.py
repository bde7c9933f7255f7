"""One connection to one address: an answer, or one of the ways of not getting one."""

from __future__ import annotations

import errno
import logging
import socket
import uuid
from collections.abc import Callable
from contextlib import closing
from enum import Enum, auto
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import flight

from spark_queue.errors import ConfigError, CoordinatorError
from spark_queue.protocol import wire
from spark_queue.protocol.endpoint import LOCAL
from spark_queue.protocol.flight_client import open_client
from spark_queue.protocol.host import tells_no_address

_LOG = logging.getLogger(__name__)


#: Names the header that says where the caller's journal is; a coordinator refuses calls that are meant for a copy.
LOCATION_HEADER = "sparkq-place"

#: The answer to a refused token, followed by the journal's id: another journal means that a port was used again.
TOKEN_REFUSAL = "call refused by the coordinator of journal "  # noqa: S105  # A text, not a secret.

#: The answer of the coordinator of a copy, or of its original.
PLACE_REFUSAL = "its journal is elsewhere: one is a copy of the other"

#: Refusals that another token may mend: the file of the token may hold a new one by now.
_TOKEN_REFUSALS = frozenset({"UNAUTHENTICATED", "TOKEN_EXPIRED", "TOKEN_WITHDRAWN"})

_Headers = list[tuple[bytes, bytes]]


class Presence(Enum):
    """The result of a ping at an address."""

    #: The journal's coordinator, serving or recovering.
    SERVES = auto()
    #: Nobody, or somebody else: the port was used again, or the journal was copied.
    GONE = auto()
    #: Something that accepts the connection and says nothing, as a stopped process does.
    SILENT = auto()
    #: No answer, and no silence either: nobody listens, or a process that sends everybody away, as one does that is full.
    CLOSED = auto()
    #: Something with a certificate that is not trusted here, or that speaks no TLS where it should.
    UNTRUSTED = auto()


class ConnectionLostError(Exception):
    """No answer came; whether the call took effect is unknown. Never leaves this package."""

    def __init__(self, reason: str, presence: Presence) -> None:
        super().__init__(reason)
        self.presence = presence


class Connection:
    """A lazy connection to the coordinator of one journal at one address.

    `token` is read again when the coordinator refuses it, so that a new one needs no restart of its caller. `check_sends` refuses
    to send it to an address that was found, unless the coordinator says that this is its own; None where the caller named the
    address.
    """

    def __init__(
        self,
        address: str,
        journal_id: str,
        location: str,
        token: Callable[[], str] = LOCAL.token,
        check_sends: Callable[[str], None] | None = None,
    ) -> None:
        self.address = address
        self._journal_id = journal_id
        self._client = open_client(address)
        self._location = location
        self._read_token = token
        self._check_sends = check_sends
        self._token = token()
        #: Headers of calls, once the coordinator has proven itself.
        self._headers: _Headers | None = None

    def call(self, request: wire.AnyRequest, *, timeout_s: float) -> tuple[wire.AnyReply, bytes]:
        """Send a request and give the reply with the Arrow stream beside it, which may be empty.

        Before the first one the coordinator has to prove itself. A refused token is read again, and the request sent once more if
        it has changed, or if another process may have the address by now.
        """
        frame, headers, token = wire.encode(request), self._headers, self._token
        try:
            answer = self._ask(frame, timeout_s)
        except CoordinatorError as refusal:
            if refusal.code not in _TOKEN_REFUSALS or not self._begins_anew(headers, token):
                raise
        else:
            reply = answer[0]
            if not (isinstance(reply, wire.Failed) and reply.code in _TOKEN_REFUSALS and self._begins_anew(None, token)):
                return answer
        return self._ask(frame, timeout_s)

    def _ask(self, frame: bytes, timeout_s: float) -> tuple[wire.AnyReply, bytes]:
        headers = self._headers
        if headers is None:
            reply, headers = self._meet(timeout_s)
            if headers is None:
                recovering = CoordinatorError("COORDINATOR_RECOVERING", path=self._journal_id)
                return (reply if isinstance(reply, wire.Failed) else wire.failed(recovering)), b""
            if isinstance(reply, wire.Pong) and reply.wants_token and self._check_sends is not None:
                self._check_sends(self.address)
            self._headers = headers
        return self._send(frame, headers, timeout_s)

    def _begins_anew(self, refused: _Headers | None, token: str) -> bool:
        """Return whether another try may do better: the token is another by now, or the process to which its headers were known."""
        self._token = self._read_token()
        if refused is None and self._token == token:
            return False
        self._headers = None
        return True

    def _meet(self, timeout_s: float) -> tuple[wire.Pong | wire.Failed, _Headers | None]:
        """Let the coordinator prove itself; return its answer, and the headers of calls from then on if it could."""
        # Most publishers meet nobody, and load nothing of it.
        from spark_queue.protocol.proof import PROOF_HEADER, Meeting, key_of  # noqa: PLC0415 - as said above.
        from spark_queue.protocol.tokens import is_principals  # noqa: PLC0415 - as said above.

        token = self._token
        meeting = Meeting(key=key_of(token), journal_id=self._journal_id, location=self._location)
        introduction = meeting.introduce(is_principal=is_principals(token))
        place = (LOCATION_HEADER.encode(), self._location.encode())
        frame = wire.encode(wire.Ping(journal=self._journal_id, request=uuid.uuid4().hex))
        reply, _ = self._send(frame, [(PROOF_HEADER.encode(), introduction.header().encode()), place], timeout_s)
        if isinstance(reply, wire.Failed):
            if reply.code == "VERSIONS_DIFFER":
                # It lives, and serves callers of its own version: nobody may begin a reign in its place.
                wire.raise_failed(reply)
            return reply, None
        if not isinstance(reply, wire.Pong) or reply.journal != self._journal_id:
            raise ConnectionLostError("another server answered", Presence.GONE)
        if meeting.believes(introduction, reply) and (self._check_sends is None or reply.address == self.address):
            bearer = token if reply.wants_token else meeting.bearer(token.encode(), reply.session)
            return reply, [(b"authorization", f"Bearer {bearer}".encode()), place]
        if introduction.is_principal and reply.recovering and not reply.proof:
            return reply, None
        raise ConnectionLostError("the server that answered could not prove that it is the journal's coordinator", Presence.GONE)

    def _send(self, frame: bytes, headers: _Headers, timeout_s: float) -> tuple[wire.AnyReply, bytes]:
        # The stubs say text here; Flight needs bytes.
        options = flight.FlightCallOptions(timeout=timeout_s, headers=headers)  # type: ignore[arg-type]
        try:
            results = [result.body for result in self._client.do_action(flight.Action(wire.ACTION, frame), options)]
        except flight.FlightTimedOutError as reason:
            raise ConnectionLostError(str(reason), Presence.SILENT) from None
        except flight.FlightUnauthenticatedError as reason:
            raise self._unauthenticated(str(reason)) from None
        except (pa.ArrowException, OSError) as reason:
            presence = Presence.UNTRUSTED if "handshake failed" in str(reason) else Presence.CLOSED
            raise ConnectionLostError(str(reason), Presence.GONE if PLACE_REFUSAL in str(reason) else presence) from None
        if not results:
            raise ConnectionLostError("the answer was empty", Presence.GONE)
        return wire.read_answer(memoryview(results[0]))

    def ping(self, *, timeout_s: float) -> Presence:
        """Ask whether the journal's coordinator is there."""
        try:
            reply, _ = self._meet(timeout_s)
        except ConnectionLostError as lost:
            return lost.presence
        return Presence.SERVES if isinstance(reply, wire.Pong) else Presence.GONE

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _unauthenticated(self, text: str) -> ConnectionLostError | CoordinatorError:
        if TOKEN_REFUSAL in text and f"{TOKEN_REFUSAL}{self._journal_id}" not in text:
            return ConnectionLostError("the port now belongs to another journal's coordinator", Presence.GONE)
        return CoordinatorError("UNAUTHENTICATED", address=self.address)


def ping(address: str, journal_id: str, location: str, timeout_s: float, token: Callable[[], str] = LOCAL.token) -> Presence:
    """Ask once whether the journal's coordinator is at an address that was found; see `Connection.ping`.

    A process that sends everybody away is SILENT: only an address where nobody listens, or somebody else answers, is gone.
    """
    try:
        # A ping sends no token.
        connection = Connection(address, journal_id, location, token, lambda _: None)
    except ConfigError as refusal:
        if not tells_no_address(refusal):
            raise
        return Presence.GONE
    with closing(connection):
        presence = connection.ping(timeout_s=timeout_s)
    if presence is Presence.CLOSED:
        return Presence.SILENT if _is_heard(address, timeout_s) else Presence.GONE
    return presence


def _is_heard(address: str, timeout_s: float) -> bool:
    """Return whether somebody listens at an address, by the word of the system: that of a library is a text."""
    asked = urlsplit(address)
    at = str(asked.hostname), asked.port or 0
    try:
        socket.create_connection(at, timeout=timeout_s).close()
    except ConnectionRefusedError:
        return _is_taken(at)
    except OSError:
        # Nothing is known, as where this process has no descriptor left.
        return True
    return True


def _is_taken(at: tuple[str, int]) -> bool:
    """Return whether somebody listens on a port of this host: a firewall may refuse in the name of that process."""
    with socket.socket(socket.AF_INET6 if ":" in at[0] else socket.AF_INET) as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            other.bind(at)
        except OSError as reason:
            return reason.errno == errno.EADDRINUSE
    return False
