"""What a log must show of order keys, whatever died: judged from the records, not from the core's state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from spark_queue.core.records import Kind, Outcomes, Record, Removal
from tests.simulation.coordinator import QUEUE
from tests.simulation.promises import rows_of


def delivered_out_of_order(log: Sequence[Record], key_of: Callable[[int], Any]) -> list[tuple[int, int]]:
    """Return (record, bookmark) of every delivery before an older message of its key is finished, but for those in its own lease.

    And of every delivery while another lease has a message of its key. What a lease has already it keeps when an older message
    is redriven.
    """
    line, wrong = _Line(key_of), []
    for record in log:
        wrong += [(record.record, row) for row in line.follow(record)]
    return wrong


@dataclass
class _Line:
    """The messages of one queue that are not finished, by key."""

    key_of: Callable[[int], Any]
    unfinished: dict[Any, set[int]] = field(default_factory=dict)
    #: Who has what: the lease, and whether it was removed as it was granted.
    holder: dict[int, int] = field(default_factory=dict)
    sent: set[int] = field(default_factory=set)
    leases: dict[int, str] = field(default_factory=dict)

    def follow(self, record: Record) -> Iterator[int]:
        """Take the next record, and give what it delivers out of order."""
        rows, lease = list(rows_of(record)), int(record.lease or 0)
        if record.kind == Kind.ENTERED:
            self._come(rows)
        if record.kind == Kind.RETIRED and record.reason == Removal.LOST:
            # Of a queue that was set aside for their file, nothing else tells; what a lease has, its end does.
            self._finish([row for row in rows if row not in self.holder])
        if record.queue != QUEUE:
            return
        match record.kind:
            case Kind.GRANTED | Kind.RESUMED:
                self.leases[lease] = str(record.subscription)
                yield from self._out_of_order(rows, lease)
                left_out = [row for row, of in self.holder.items() if of == lease and row not in rows]
                self._let_go(left_out if record.kind == Kind.RESUMED else [])
                self.holder.update(dict.fromkeys(rows, lease))
            case Kind.RETURNED:
                self._let_go(rows)
            case Kind.REDRIVEN:
                self._come(rows)
            case Kind.REMOVED if record.reason == Removal.DELIVERED:
                self.sent.update(rows)
            case Kind.REMOVED:
                self._finish(rows)
            case Kind.OUTCOMES if record.body_as(Outcomes).final:
                # A receiver proves nothing.
                self._finish([row for row in rows if row in self.sent and self.holder.get(row) == lease])
            case Kind.PROVEN | Kind.LAPSED:
                self._finish([row for row in self.sent if self.holder.get(row) == lease])
            case Kind.UNSUBSCRIBED:
                self._finish([row for row in self.sent if self.leases.get(self.holder.get(row, 0)) == record.subscription])

    def _out_of_order(self, rows: list[int], lease: int) -> Iterator[int]:
        for row in rows:
            others = self.unfinished[self.key_of(row)] - set(rows)
            is_late = self.holder.get(row) != lease and any(other < row for other in others)
            if is_late or any(self.holder.get(other, lease) != lease for other in others):
                yield row

    def _come(self, rows: list[int]) -> None:
        for row in rows:
            self.unfinished.setdefault(self.key_of(row), set()).add(row)

    def _let_go(self, rows: list[int]) -> None:
        for row in rows:
            self.holder.pop(row, None)

    def _finish(self, rows: list[int]) -> None:
        self._let_go(rows)
        self.sent.difference_update(rows)
        for row in rows:
            self.unfinished[self.key_of(row)].discard(row)
