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
