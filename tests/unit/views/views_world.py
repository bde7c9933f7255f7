"""A real journal on disk with an engine in this process instead of a coordinator: what views see, without waiting for anybody."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from pyroaring import BitMap64

from spark_queue import Journal
from spark_queue.core import commands, folds
from spark_queue.core.bitmaps.ranges import to_ranges
from spark_queue.core.engine import Engine
from spark_queue.core.log_tail import LogTail
from spark_queue.core.message_files.relocation import retired_record
from spark_queue.core.records import Outcome
from spark_queue.core.replies import Run
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.lease import Lease
from spark_queue.journal.control_log import DeltaControlLog
from spark_queue.journal.entering import PreparedTraits, Sequencer
from spark_queue.journal.open import open_journal
from spark_queue.views import JournalView
from spark_queue.views.journal_view import state_of
from tests.commit_times import date_commit, newest_entry
from tests.deciding import claim, decide, leased, started

#: When the world begins, in milliseconds since 1970 UTC: long after the host time at which the journal was created.
START_MS = 4_000_000_000_000

DEFINITIONS: dict[str, Any] = {
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
        traits = PreparedTraits(self.opened.traits)
        state = JournalState(traits)
        folds.fold_all(state, self.records)
        self.engine = Engine(state)
        claim(self.engine, epoch=1, host="h", address="a", pid=1, now_ms=START_MS)
        self._entrance = Sequencer(self.opened, self.engine, traits)
        self._call = 0
        self._finished = 0
        self._control = DeltaControlLog(self.journal.store)
        self._stored = len(self._control.load().records)

    def publish(self, *amounts: int, now_ms: int = START_MS) -> None:
        """Publish rows in one commit, and let them enter at once."""
        self.journal.publish([{"item": f"i{amount}", "amount": amount} for amount in amounts], topic="LINES")
        date_commit(newest_entry(self.journal.path, "line"), now_ms)
        self.admit("line", now_ms=now_ms)

    def admit(self, message_type: str, *, now_ms: int = START_MS) -> None:
        """Let what was published enter."""
        self._entrance.admit(message_type, now_ms=now_ms)

    def attach(self, *, backlog: int = 100, ack_mode: str = "auto", now_ms: int = START_MS) -> None:
        """Begin the subscription."""
        self.planner = started(self.engine, "WORK", "s", max_backlog=backlog, ack_mode=ack_mode, now_ms=now_ms)
        self._call = 1

    def next(self, limit: int, *, now_ms: int = START_MS) -> Lease | None:
        """Prove the lease before and take the next one."""
        self._call += 1
        poll = commands.Next(**self.planner, call=self._call, finished=self._finished, limit=limit)
        lease = leased(self.engine, poll, now_ms=now_ms)
        self._finished = lease.number if lease is not None else self._finished
        return lease

    def fail(self, error: str, *, now_ms: int = START_MS) -> None:
        """Let fn raise on the lease that was granted last."""
        begun = decide(self.engine, commands.StartRun(queue="WORK", subscription="s"), now_ms=now_ms)
        assert begun.run == Run(incarnation=self.planner["incarnation"], lease=self._finished)
        self.engine.decide(commands.EndRun(queue="WORK", subscription="s", run=begun.run, error=error), now_ms=now_ms)

    def retry(self, error: str, *, now_ms: int) -> None:
        """Take the batch in hand, up again if it failed before, and let it fail: the stream ends, and starts again."""
        self.next(1, now_ms=now_ms)
        self.fail(error, now_ms=now_ms)
        self._finished = 0
        self.attach(now_ms=now_ms)

    def settle(
        self, outcome: Outcome, *bookmarks: int, now_ms: int = START_MS, due_at_ms: int | None = None, error: str | None = None
    ) -> None:
        """Settle messages by hand, as somebody without a lease: it takes effect at once."""
        retry_after_ms = None if due_at_ms is None else due_at_ms - now_ms
        ranges = tuple(to_ranges(BitMap64(bookmarks)))
        said = commands.OutcomeRows(outcome=outcome, ranges=ranges, retry_after_ms=retry_after_ms, error=error)
        self.engine.decide(commands.Settle(queue="WORK", outcomes=(said,)), now_ms=now_ms)

    def commit(self) -> None:
        """Write to disk what was recorded so far."""
        self.records += self.engine.drain_records()
        if self._stored < len(self.records):
            self._control.append(self.records[self._stored :], epoch=1)
            self._stored = len(self.records)

    def retire(self, first: int, until: int) -> None:
        """Record that the files of messages go, which no queue needs."""
        record = retired_record("line", ((first, until),))
        self.records.append(replace(record, record=len(self.records), epoch=1, at_ms=self.records[-1].at_ms))

    def moment(self, now_ms: int = START_MS, *, as_of: int | None = None) -> JournalView:
        """Fold what was recorded so far, or up to a record."""
        self.commit()
        tail = LogTail(self.records if as_of is None else self.records[: as_of + 1])
        state = state_of(self.records, self.opened.traits, until=len(tail.records))
        now_ms = now_ms if as_of is None else tail.records[-1].at_ms
        return JournalView(journal=self.opened, state=state, now_ms=now_ms, log_history=tail.fold_history)
