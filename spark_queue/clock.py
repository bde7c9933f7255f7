"""The host's clock: the one place of the product that reads it."""

from __future__ import annotations

import time


class SystemClock:
    """`ports.Clock` over the host's own clocks."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970 UTC; may jump."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Milliseconds since an arbitrary start; never goes back."""
        return time.monotonic_ns() // 1_000_000


#: `time.monotonic` stands still while the machine sleeps. On macOS this one goes on by itself.
_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def steady_s() -> float:
    """Return seconds since an arbitrary start, which never go back, and go on while the machine sleeps: a lease does so, too."""
    return time.clock_gettime(_STEADY)
