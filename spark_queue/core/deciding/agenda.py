"""The agenda: which queue is due when."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from enum import Enum, auto
from heapq import heappop, heappush

#: Queues that a tick looks over beside those that changed or are due: effects of another queue, or of silence, are found so.
LOOKED_OVER = 100


class Follower(Enum):
    """A reader of changes: it is given each change once."""

    DUE_TIMES = auto()
    AGES = auto()
    BARRIERS = auto()
    ALARMS = auto()
    POLLS = auto()


class Agenda:
    """The queues to look at.

    `due_ms` returns None for a queue on which nothing is due, and for one that is no more.
    """

    def __init__(self, queues: Iterable[str], due_ms: Callable[[str], int | None]) -> None:
        self._changed = {each: dict.fromkeys(queues) for each in Follower}
        self._due_ms = due_ms
        self._due_at_ms: dict[str, int] = {}
        #: Due times with their queues, the first on top; those that do not hold any more are passed over.
        self._times: list[tuple[int, str]] = []
        self._round: list[str] = []

    def note(self, queues: Iterable[str]) -> None:
        """Note queues that may have changed."""
        queues = dict.fromkeys(queues)
        for changed in self._changed.values():
            changed |= queues

    def pop_due(self, follower: Follower) -> Collection[str]:
        """Return the queues that changed since its last call."""
        changed, self._changed[follower] = self._changed[follower], {}
        return changed

    def next_due_ms(self) -> int | None:
        """Return when something is due on any queue; None for never."""
        for queue in self.pop_due(Follower.DUE_TIMES):
            due_at_ms = self._due_ms(queue)
            if due_at_ms is None:
                self._due_at_ms.pop(queue, None)
            elif self._due_at_ms.get(queue) != due_at_ms:
                self._due_at_ms[queue] = due_at_ms
                heappush(self._times, (due_at_ms, queue))
        while self._times and self._due_at_ms.get(self._times[0][1]) != self._times[0][0]:
            heappop(self._times)
        return self._times[0][0] if self._times else None

    def take_due(self, now_ms: int) -> list[str]:
        """Return the queues on which something is due; they count as changed."""
        found: list[str] = []
        due_at_ms = self.next_due_ms()
        while due_at_ms is not None and due_at_ms <= now_ms:
            found.append(heappop(self._times)[1])
            del self._due_at_ms[found[-1]]
            due_at_ms = self.next_due_ms()
        self.note(found)
        return found

    def take_round(self, queues: Iterable[str]) -> list[str]:
        """Return the next few of all queues, in turns."""
        self._round = self._round or list(queues)
        few, self._round = self._round[:LOOKED_OVER], self._round[LOOKED_OVER:]
        return few
