"""Tokens of principals: how they are made, and what of them is stored (R12)."""

from __future__ import annotations

import hashlib
import secrets

#: How each begins, so that one that was left in a file or a log is found, and told from the token of who runs a coordinator.
TOKEN_PREFIX = "sparkq_"  # noqa: S105  # Not a secret: what makes it one follows.

#: Keeps a hash of ours from being the hash of anything else.
_DOMAIN = b"spark_queue principal token\0"


def new_token() -> str:
    """Return a new token: 256 random bits."""
    return TOKEN_PREFIX + secrets.token_urlsafe(32)


def token_hash(token: str) -> str:
    """Return what definitions hold of a token.

    One round of SHA-256 is enough here. Slow hashes with a salt protect passwords, which people choose and others can guess; a
    token has 256 random bits, and nobody can try even a small part of these. And the coordinator needs it for each call.
    """
    return hashlib.sha256(_DOMAIN + token.encode()).hexdigest()
