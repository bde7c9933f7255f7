"""A clock that moves only when told."""

from __future__ import annotations


class FakeClock:
    """`ports.Clock` for tests: no test waits for time to pass.

    Parameters
    ----------
    wall_ms : int
        The first wall-clock reading, in milliseconds since 1970 UTC.
    """

    def __init__(self, wall_ms: int = 1_700_000_000_000) -> None:
        self._wall_ms = wall_ms
        self._monotonic_ms = 0

    def wall_ms(self) -> int:
        """Milliseconds since 1970 UTC, as set."""
        return self._wall_ms

    def monotonic_ms(self) -> int:
        """Milliseconds since the clock was made."""
        return self._monotonic_ms

    def advance(self, elapsed_ms: int) -> None:
        """Let time pass."""
        if elapsed_ms < 0:
            raise ValueError(f"time cannot pass backwards: {elapsed_ms} ms")
        self._wall_ms += elapsed_ms
        self._monotonic_ms += elapsed_ms

    def set_wall(self, wall_ms: int) -> None:
        """Set the wall clock forward or back, as an operator or a time server might; the monotonic reading stays."""
        self._wall_ms = wall_ms
