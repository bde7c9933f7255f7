"""Logins at the page: each begins a session, which ends by "Log out", after some hours, or with the process."""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict

from spark_queue.clock import SystemClock
from spark_queue.ports import Clock

#: How long a session lasts, in milliseconds; pages load again by themselves, so that a rest of some time would never come.
LENGTH_MS = 12 * 3_600_000

#: Most sessions at one time; one more ends the oldest.
KEPT = 1_000


class LoginSessions:
    """The sessions of one process."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        #: When each began, by a hash of its key: to look one up takes a time that tells nothing of any key.
        self._begun_ms: OrderedDict[bytes, int] = OrderedDict()

    def begin(self) -> str:
        """Return the key of a new session, which its cookie holds."""
        key = secrets.token_urlsafe(32)
        self._begun_ms[_hash(key)] = self._clock.monotonic_ms()
        while len(self._begun_ms) > KEPT:
            self._begun_ms.popitem(last=False)
        return key

    def holds(self, key: str) -> bool:
        """Return whether a key is that of a session that has not ended."""
        begun_ms = self._begun_ms.get(_hash(key))
        return begun_ms is not None and self._clock.monotonic_ms() - begun_ms < LENGTH_MS

    def end(self, key: str) -> None:
        """End a session; its key opens nothing any more."""
        self._begun_ms.pop(_hash(key), None)


def _hash(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
