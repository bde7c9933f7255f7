"""A real journal on disk with an engine in this process instead of a coordinator: what views see, without waiting for anybody."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyroaring import BitMap64

from spark_queue import Journal
from spark_queue.core.deciding.batch_runs import OutcomeOf
from spark_queue.core.deciding.engine import Engine
from spark_queue.core.records import Outcome
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.lease import Lease
from spark_queue.journal.control_log import DeltaControlLog
from spark_queue.journal.entering import Entrance, PreparedFacts
from spark_queue.journal.open import open_journal
from spark_queue.views import Moment, moment_of

#: When the world begins, in milliseconds since 1970 UTC: long after the host time at which the journal was created.
START_MS = 4_000_000_000_000

DEFINITIONS = {
    "message_types": {"line": {"columns": "item STRING, amount BIGINT", "topics": ["LINES"]}},
    "queues": {
        "WORK": {"underlying_topic": "LINES", "lease_period": "60s", "dead_letter_queue": "FAILED", "max_deliveries": 3},
        "FAILED": {"message_type": "line"},
        "OTHER": {"underlying_topic": "LINES"},
    },
}


class ViewsWorld:
    """The journal, and the one consumer ``s`` of queue WORK."""

    def __init__(self, place: Path) -> None:
        self.journal = Journal.create(str(place / "journal"), DEFINITIONS)
        self.opened = open_journal(self.journal.store)
        self.records = list(self.opened.records())
        facts = PreparedFacts(self.opened.facts)
        state = JournalState(facts)
        state.fold_all(self.records)
        self.engine = Engine(state)
        self.engine.claim(epoch=1, host="h", address="a", pid=1, now_ms=START_MS)
        self._entrance = Entrance(self.opened, self.engine, facts)
        self._call = 0
        self._finished = 0
        self._control = DeltaControlLog(self.journal.store)
        self._stored = len(self._control.load())

    def publish(self, *amounts: int, now_ms: int = START_MS) -> None:
        """Publish rows in one commit, and let them enter."""
        self.journal.publish([{"item": f"i{amount}", "amount": amount} for amount in amounts], topic="LINES")
        self._entrance.admit("line", now_ms=now_ms)

    def attach(self, *, backlog: int = 100, ack_mode: str = "auto", now_ms: int = START_MS) -> None:
        """Begin the subscription."""
        self.incarnation = self.engine.draw_incarnation()
        self.engine.attach(
            queue="WORK",
            subscription="s",
            incarnation=self.incarnation,
            call=1,
            ack_mode=ack_mode,
            max_backlog=backlog,
            now_ms=now_ms,
        )
        self._call = 1

    def next(self, limit: int, *, now_ms: int = START_MS) -> Lease | None:
        """Prove the lease before and take the next one."""
        self._call += 1
        lease = self.engine.next(
            queue="WORK",
            subscription="s",
            incarnation=self.incarnation,
            call=self._call,
            finished=self._finished,
            limit=limit,
            now_ms=now_ms,
        )
        self._finished = lease.number if lease is not None else self._finished
        return lease

    def fail(self, error: str, *, now_ms: int = START_MS) -> None:
        """Let fn raise on the lease that was granted last."""
        about: dict[str, Any] = {"queue": "WORK", "subscription": "s", "now_ms": now_ms}
        self.engine.start_run(**about)
        self.engine.end_run(**about, incarnation=self.incarnation, lease=self._finished, outcomes=(), error=error)

    def settle(
        self, outcome: Outcome, *bookmarks: int, now_ms: int = START_MS, due_at_ms: int | None = None, error: str | None = None
    ) -> None:
        """Settle messages by hand, as somebody without a lease: it takes effect at once."""
        said = OutcomeOf(outcome=outcome, rows=BitMap64(bookmarks), due_at_ms=due_at_ms, error=error)
        self.engine.settle(queue="WORK", outcomes=[said], now_ms=now_ms)

    def commit(self) -> None:
        """Write to disk what was recorded so far."""
        self.records += self.engine.take()
        if self._stored < len(self.records):
            self._control.append(self.records[self._stored :], epoch=1)
            self._stored = len(self.records)

    def moment(self, now_ms: int = START_MS, *, as_of: int | None = None) -> Moment:
        """Fold what was recorded so far."""
        self.records += self.engine.take()
        return moment_of(self.records, self.opened.facts, as_of=as_of, now_ms=now_ms)
