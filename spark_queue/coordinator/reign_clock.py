"""The time of one reign: starts where the wall clock or the log stands, then moves only with the monotonic clock (DESIGN 6)."""

from __future__ import annotations

import logging

from spark_queue.errors import CoordinatorError
from spark_queue.ports import Clock

_LOG = logging.getLogger(__name__)

#: How far the last record may be ahead of the wall clock before it is worth a log line, in milliseconds.
AHEAD_LOGGED_MS = 60_000

#: How far it may be ahead before a reign is refused, in milliseconds.
AHEAD_REFUSED_MS = 86_400_000


class ReignClock:
    """Milliseconds since 1970 UTC that never go back: they begin at the wall clock, or at the newest record if that is later."""

    def __init__(self, clock: Clock, *, last_record_ms: int) -> None:
        self._clock = clock
        self._start_ms = max(clock.wall_ms(), last_record_ms)
        self._start_monotonic_ms = clock.monotonic_ms()

    def now_ms(self) -> int:
        """Return the reign's time."""
        return self._start_ms + self._clock.monotonic_ms() - self._start_monotonic_ms

    def host_ms(self) -> int:
        """Return the reign's time, or the host's where that is earlier: by it the ages of files are judged.

        A store stamps files with its own time, so files that were written just now would be old for a reign that is ahead.
        """
        return min(self.now_ms(), self._clock.wall_ms())


def check_skew(clock: Clock, *, last_record_ms: int, path: str, accepted: bool) -> None:
    """Refuse to reign when the log is more than a day ahead of this host's clock; a log in the past is never an error."""
    ahead_ms = last_record_ms - clock.wall_ms()
    if ahead_ms > AHEAD_REFUSED_MS and not accepted:
        raise CoordinatorError("CLOCK_SKEW", path=path, ahead_s=ahead_ms // 1000)
    if ahead_ms > AHEAD_LOGGED_MS:
        _LOG.warning("The last record is %d s ahead of this host's clock; the reign's time starts there.", ahead_ms // 1000)
