"""Tokens of principals: their making, and their stored hash (R12)."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from dataclasses import dataclass, field

from spark_queue.errors import ConfigError, CoordinatorError
from spark_queue.journal.store import Store

OWN, PRINCIPAL = "own", "principal"


#: How each begins, so that one that was left in a file or a log is found, and is not confused with a coordinator's user's.
TOKEN_PREFIX = "sparkq_"  # noqa: S105  # Not a secret: the secret part follows.

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

    Without `store` the first token is as good as any.
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
    # A relative path would be a journal of any directory that the caller stands in.
    return journal.startswith("/") or re.match(r"[A-Za-z][A-Za-z0-9+.-]*:/", journal) is not None


def _is_same_journal(one: Store, other: Store) -> bool:
    """Return whether two paths lead to the same place for certain: one that differs in spelling only may be another's."""
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
    """Return the hash of a token, as definitions hold it.

    One round of SHA-256 is enough here. Slow hashes with a salt protect passwords, which people choose and others can guess; a
    token has 256 random bits, and nobody can try even a small part of these. And the coordinator needs it for each call.
    """
    return hashlib.sha256(_DOMAIN + token.encode()).hexdigest()
