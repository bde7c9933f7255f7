"""A coordinator's proof to its caller, and a caller's introduction, without the token itself on the wire."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from dataclasses import dataclass, field

from spark_queue.protocol import wire
from spark_queue.protocol.tokens import OWN, PRINCIPAL, token_hash

#: Names the header of a caller that wants a proof; such a call has no token.
PROOF_HEADER = "sparkq-proof"


@dataclass(frozen=True, slots=True, kw_only=True)
class Introduction:
    """A caller's introduction, sent with its first call."""

    #: Whether its token looks like a principal's, which a coordinator cannot know before it has read the definitions.
    is_principal: bool
    nonce: str
    mark: str

    def header(self) -> str:
        """Return it as the value of a header."""
        return f"{PRINCIPAL if self.is_principal else OWN} {self.nonce} {self.mark}"

    @classmethod
    def parse(cls, header: str) -> Introduction | None:
        """Read it from a header; None for another text."""
        parts = header.split(" ")
        if len(parts) != 3 or parts[0] not in (OWN, PRINCIPAL):
            return None
        return cls(is_principal=parts[0] == PRINCIPAL, nonce=parts[1], mark=parts[2])


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting:
    """A caller and a coordinator that mean the same journal at the same place; either side makes its own."""

    key: bytes = field(repr=False)
    journal_id: str
    location: str

    def introduce(self, *, is_principal: bool) -> Introduction:
        """Begin as the caller."""
        nonce = secrets.token_hex(16)
        return Introduction(is_principal=is_principal, nonce=nonce, mark=self._mac("caller", nonce))

    def knows(self, introduction: Introduction) -> bool:
        """Return whether the caller has this key."""
        return _is_same(self._mac("caller", introduction.nonce), introduction.mark)

    def prove(self, introduction: Introduction, pong: wire.Pong) -> str:
        """Return the proof that only a coordinator with this key can give, of itself and to this caller alone."""
        wants = "token" if pong.wants_token else "bearer"
        return self._mac("coordinator", introduction.nonce, pong.session, pong.address, wants)

    def believes(self, introduction: Introduction, pong: wire.Pong) -> bool:
        """Return whether an answer proves that the coordinator has this key."""
        return _is_same(self.prove(introduction, pong), pong.proof)

    def bearer(self, token: bytes, session: str) -> str:
        """Return the header of the user's own calls in place of the token: the key alone is not enough to make it."""
        return self._mac("bearer", session, key=token)

    def _mac(self, purpose: str, *parts: str, key: bytes | None = None) -> str:
        said = json.dumps(["spark_queue", purpose, self.journal_id, self.location, *parts]).encode()
        return hmac.new(self.key if key is None else key, said, hashlib.sha256).hexdigest()


def _is_same(expected: str, given: str) -> bool:
    # Input of strangers may have any characters, and is compared in constant time.
    return hmac.compare_digest(expected.encode(), given.encode(errors="replace"))


def key_of(token: str) -> bytes:
    """Return the key that the holder of a token and the coordinator share."""
    return token_hash(token).encode()
