"""How fast a queue drains."""

from __future__ import annotations

from dataclasses import dataclass

#: Over how long people are told it, in milliseconds.
PACE_MS = 300_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How fast messages come and leave, each second."""

    rate_in: float
    rate_out: float

    def empty_in_s(self, depth: int) -> float | None:
        """Return when a queue is empty if it goes on like that, in seconds; None if it does not become so."""
        return depth / (self.rate_out - self.rate_in) if depth and self.rate_out > self.rate_in else None
