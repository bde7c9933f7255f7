"""Tokens of principals: how they are made, and what of them is stored (R12).

How an address proves that it is the coordinator of a journal, before it is sent anything that opens a door.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
from dataclasses import dataclass, field

from spark_queue.errors import ConfigError, CoordinatorError
from spark_queue.journal.store import Store
from spark_queue.protocol import wire

#: Names the header of a caller that wants a proof; such a call has no token.
PROOF_HEADER = "sparkq-proof"

_OWN, _PRINCIPAL = "own", "principal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Introduction:
    """A caller's introduction, sent with its first call."""

    #: Whether its token looks like a principal's, which a coordinator cannot know before it has read the definitions.
    is_principal: bool
    nonce: str
    mark: str

    def header(self) -> str:
        """Return it as the value of a header."""
        return f"{_PRINCIPAL if self.is_principal else _OWN} {self.nonce} {self.mark}"

    @classmethod
    def parse(cls, header: str) -> Introduction | None:
        """Read it from a header; None for what is none."""
        parts = header.split(" ")
        if len(parts) != 3 or parts[0] not in (_OWN, _PRINCIPAL):
            return None
        return cls(is_principal=parts[0] == _PRINCIPAL, nonce=parts[1], mark=parts[2])


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
        """Return what only a coordinator can say that has this key, about itself and to this caller alone."""
        wants = "token" if pong.wants_token else "bearer"
        return self._mac("coordinator", introduction.nonce, pong.session, pong.address, wants)

    def believes(self, introduction: Introduction, pong: wire.Pong) -> bool:
        """Return whether an answer proves that the coordinator has this key."""
        return _is_same(self.prove(introduction, pong), pong.proof)

    def bearer(self, token: bytes, session: str) -> str:
        """Return what the user's own calls have in place of the token: nobody can make it who knows the key alone."""
        return self._mac("bearer", session, key=token)

    def _mac(self, purpose: str, *parts: str, key: bytes | None = None) -> str:
        said = json.dumps(["spark_queue", purpose, self.journal_id, self.location, *parts]).encode()
        return hmac.new(self.key if key is None else key, said, hashlib.sha256).hexdigest()


def _is_same(expected: str, given: str) -> bool:
    # Input of strangers may have any characters, and is compared in constant time.
    return hmac.compare_digest(expected.encode(), given.encode(errors="replace"))


def key_of(token: str) -> bytes:
    """Return what the holder of a token and the coordinator both know."""
    return token_hash(token).encode()


#: How each begins, so that one that was left in a file or a log is found, and told from the token of who runs a coordinator.
TOKEN_PREFIX = "sparkq_"  # noqa: S105  # Not a secret: what makes it one follows.

#: Longest token, in characters: it travels in the header of a call, which has little room.
TOKEN_LENGTH_MAX = 4_096

#: Keeps a hash of ours from being the hash of anything else.
_DOMAIN = b"spark_queue principal token\0"


@dataclass(frozen=True, slots=True)
class Token:
    """A token as its caller has it."""

    text: str = field(repr=False)
    #: Whether it was given for this very journal, and not for whichever is called.
    is_for_journal: bool = False


def choose_token(text: str, store: Store | None, *, key: str, where: str, value: str) -> Token:
    """Return the token of a journal from the text of a file or variable: one token, or lines of a token and its journal.

    Parameters
    ----------
    store : Store, optional
        The journal that is called; without one the first token is as good as any.
    key, where, value : str
        What errors say of the text.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    named = [
        (token, journal.strip()) for token, _, journal in (line.partition(" ") for line in lines) if _is_absolute(journal.strip())
    ]
    names_all = len(named) == len(lines)
    tokens = [token for token, _ in named] if names_all else lines
    if not tokens or not (names_all or len(lines) == 1) or not all(map(_is_token, tokens)):
        expected = (
            f"one token, printable ASCII of at most {TOKEN_LENGTH_MAX:,} characters, or lines that have a token, a space and the "
            "journal that it is for, as an absolute path or URL"
        )
        raise ConfigError("BAD_VALUE", key=key, where=where, value=value, expected=expected)
    if not named or store is None:
        return Token(tokens[0])
    for token, journal in named:
        if _is_same_journal(Store(journal), store):
            return Token(token, is_for_journal=True)
    raise CoordinatorError("TOKEN_OF_OTHER_JOURNAL", path=store.path, source=f"'{key}' in {where}")


def _is_token(text: str) -> bool:
    return len(text) <= TOKEN_LENGTH_MAX and text.isascii() and text.isprintable()


def _is_absolute(journal: str) -> bool:
    # A relative path would be a journal of whatever directory the caller stands in.
    return journal.startswith("/") or re.match(r"[A-Za-z][A-Za-z0-9+.-]*:/", journal) is not None


def _is_same_journal(one: Store, other: Store) -> bool:
    """Return whether two paths lead to the same place for certain: what differs in spelling only may be another's."""
    if one.is_local and other.is_local:
        try:
            return os.path.samefile(one.path, other.path)  # noqa: PTH121  # A store's path is a text.
        except OSError:
            return False
    return _spelled(one) == _spelled(other)


def _spelled(store: Store) -> str:
    return re.sub(r"^s3[an]://", "s3://", store.path)


def new_token() -> str:
    """Return a new token: 256 random bits."""
    return TOKEN_PREFIX + secrets.token_urlsafe(32)


def is_principals(token: str) -> bool:
    """Return whether a token is a principal's, by how it begins."""
    return token.startswith(TOKEN_PREFIX)


def token_hash(token: str) -> str:
    """Return what definitions hold of a token.

    One round of SHA-256 is enough here. Slow hashes with a salt protect passwords, which people choose and others can guess; a
    token has 256 random bits, and nobody can try even a small part of these. And the coordinator needs it for each call.
    """
    return hashlib.sha256(_DOMAIN + token.encode()).hexdigest()
