"""The pace at which a queue drains."""

from __future__ import annotations

from dataclasses import dataclass

#: The span over which it is measured for people, in milliseconds.
PACE_MS = 300_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The rates at which messages come and leave, each second."""

    rate_in: float
    rate_out: float

    def empty_in_s(self, depth: int) -> float | None:
        """Return the seconds until a queue is empty if it goes on like that; None if it does not become so."""
        return depth / (self.rate_out - self.rate_in) if depth and self.rate_out > self.rate_in else None
