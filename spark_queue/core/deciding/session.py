"""A reign's knowledge of one planner start beyond the log: lost with the reign, and never needed to be safe (P1, P3, P6)."""

from __future__ import annotations

from dataclasses import dataclass

from spark_queue.core.records import Incarnation
from spark_queue.core.state.lease import Lease


@dataclass(slots=True)
class Session:
    """One planner start, as this reign has seen it."""

    incarnation: Incarnation
    #: Number of the newest call heard.
    call: int = 0
    #: Newest lease granted to it in this reign.
    granted: int = 0
    #: The lease of which it is certain, as far as was told, that no planner start asked for its rows yet; 0 for none.
    unasked: int = 0
    #: Newest lease of which this planner start asked for the rows in this reign.
    asked: int = 0
    #: Newest lease on which fn started, and the newest on which it returned, in this reign.
    started: int = 0
    returned: int = 0

    def note_taken(self, lease: int) -> None:
        """Note that a planner start asked for the rows of a lease, or gave Spark those that came with its grant."""
        self.asked = lease
        self.note_read(lease)

    def note_read(self, lease: int) -> None:
        """Note that somebody has the rows of a lease (P3, P6)."""
        if self.unasked == lease:
            self.unasked = 0

    def cannot_be_committed(self, lease: Lease) -> bool:
        """Return whether it is certain that Spark has not committed, and will not commit, the batch of `lease` (P6)."""
        running = self.started == lease.number != self.returned
        return self.granted == lease.number and not lease.resumed and (self.unasked == lease.number or running)


class Sessions:
    """The newest planner start of each subscription of one queue, as this reign has seen them.

    Attributes
    ----------
    drawn : int
        The newest place that was given to a planner start.
    """

    def __init__(self, drawn: int = 0) -> None:
        self.drawn = drawn
        #: When each subscription last called, in milliseconds.
        self.heard_at_ms: dict[str, int] = {}
        self._newest: dict[str, Session] = {}

    def begin_again(self) -> None:
        """Forget all but which places were given, as a new reign would; nobody may get one of them twice."""
        self.heard_at_ms.clear()
        self._newest.clear()

    def draw(self, epoch: int) -> Incarnation:
        """Return the place of one more planner start in the order of all of them (DESIGN 15.6)."""
        self.drawn += 1
        return (epoch, self.drawn)

    def of(self, subscription: str, incarnation: Incarnation) -> Session:
        """Return the session of a planner start; one that is new here is not kept before `keep`."""
        known = self._newest.get(subscription)
        if known is not None and known.incarnation == incarnation:
            return known
        # Rows that nobody asked for stay so (P3).
        return Session(incarnation, unasked=0 if known is None else known.unasked)

    def keep(self, subscription: str, session: Session) -> None:
        """Remember the planner start that owns a subscription now."""
        self._newest[subscription] = session

    def forget(self, subscription: str) -> None:
        """Forget the planner start of a subscription that ended."""
        self._newest.pop(subscription, None)
        self.heard_at_ms.pop(subscription, None)


def heard_of(sessions: dict[str, Sessions]) -> dict[str, dict[str, int]]:
    """Return when each planner called last, by queue and subscription; another thread may ask, since a copy is one step."""
    return {queue: each.heard_at_ms.copy() for queue, each in sessions.copy().items()}
