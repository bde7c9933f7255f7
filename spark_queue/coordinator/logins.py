"""Tokens of callers: each names a principal, or is refused (R12)."""

from __future__ import annotations

import hmac
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from urllib.parse import unquote

from spark_queue.core.definitions.definition import Definitions
from spark_queue.protocol.proof import key_of
from spark_queue.protocol.tokens import is_principals, token_hash

_LOG = logging.getLogger(__name__)

#: Failed logins of an address that are answered at once: a token that was just replaced costs nobody time.
_FREE_FAILURES = 3

#: How long an answer to a failed login waits after these, in seconds: twice as long each time, and always shorter than a ping,
#: whose caller would take a coordinator that says nothing for one that hangs.
_FIRST_DELAY_S = 0.05
LONGEST_DELAY_S = 0.8

#: Addresses of which failures are remembered; the one that failed longest ago is forgotten first.
ADDRESSES_MAX = 1_024

#: Answers that wait at one time; more are given at once, since each holds a thread.
WAITING_MAX = 32


@dataclass(frozen=True, slots=True)
class Login:
    """The identity behind a token: a principal, or the user who runs the coordinator."""

    #: None for the user who runs the coordinator.
    principal: str | None
    #: The address that the call came from, without its port.
    address: str
    #: The hash of a principal's token, which may be withdrawn while the call waits; None for the user who runs the coordinator.
    token_hash: str | None = None
    #: Whether the principals were not known yet: the caller may be one of them, with other rights.
    is_early: bool = False


class CallerTokens:
    """Knows callers by their tokens, counts failed logins by address, and slows them."""

    def __init__(self, own_token: str, *, pause: Callable[[float], None] = time.sleep) -> None:
        self.own = own_token.encode()
        #: How a call would have that token.
        self.own_header = b"Bearer " + self.own
        #: The key that this process shares with the user who runs it.
        self.own_key = key_of(own_token)
        self._pause = pause
        self._definitions: Callable[[], Definitions] | None = None
        self._lock = threading.Lock()
        self._failures: OrderedDict[str, int] = OrderedDict()
        self._waiting = 0
        #: Failed logins since the start.
        self.failed = 0

    def know(self, definitions: Callable[[], Definitions]) -> None:
        """Know principals from now on, by the definitions that hold."""
        self._definitions = definitions

    def keys_of_principals(self) -> Iterator[bytes]:
        """Yield the keys that principals and this process share; readers of the definitions know them, too."""
        if self._definitions is not None:
            for principal in self._definitions().principals.values():
                yield from (each.encode() for each in principal.token_hash)

    def principal_of(self, header: bytes) -> tuple[str, str] | None:
        """Return the principal whose token an authorization header has, and the token's hash; None for none that is known."""
        definitions = None if self._definitions is None else self._definitions()
        if definitions is None or not definitions.principals:
            return None
        # Hashes are compared, so the time that it takes tells nothing of a token.
        given = token_hash(token_of(header).decode(errors="replace"))
        known = definitions.principal_with(given)
        return None if known is None else (known.name, given)

    def is_own(self, header: bytes) -> bool:
        """Return whether a header has the token of the user who runs the coordinator."""
        return hmac.compare_digest(token_of(header), self.own)

    @property
    def knows_principals(self) -> bool:
        """Whether the principals are known."""
        return self._definitions is not None

    def is_principals(self, header: bytes) -> bool:
        """Return whether a header may have a principal's token, by how it begins."""
        return is_principals(token_of(header).decode(errors="replace"))

    def refused(self, address: str) -> None:
        """Count a failed login, and wait before it is answered. Its token is written nowhere."""
        with self._lock:
            self.failed += 1
            count = self._failures.pop(address, 0) + 1
            self._failures[address] = count
            if len(self._failures) > ADDRESSES_MAX:
                self._failures.popitem(last=False)
            delay_s = 0.0 if count <= _FREE_FAILURES else _FIRST_DELAY_S * 2 ** min(count - _FREE_FAILURES - 1, 30)
            waits = delay_s > 0 and self._waiting < WAITING_MAX
            self._waiting += waits
        if count & (count - 1) == 0:
            # The first, the second, the fourth and so on: a flood must not fill the log.
            _LOG.warning("A call from %s was refused for an unknown token; %d in all from there.", address, count)
        if waits:
            try:
                self._pause(min(delay_s, LONGEST_DELAY_S))
            finally:
                with self._lock:
                    self._waiting -= 1


def token_of(header: bytes) -> bytes:
    """Return the token of an authorization header; nothing where it has none. The scheme has any case of letters (RFC 9110)."""
    scheme, _, token = header.partition(b" ")
    return token.strip(b" ") if scheme.lower() == b"bearer" else b""


def address_of(peer: str) -> str:
    """Return the address in Flight's name of a caller, such as ``ipv4:10.0.0.7:40312``: each connection has another port."""
    kind, _, rest = peer.partition(":")
    return unquote(rest).rpartition(":")[0].strip("[]") if kind in ("ipv4", "ipv6") else peer
