"""Explaining one message: a long control log read by whole columns, the one row of the message, and what it waits for."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from spark_queue.core.message_files.segment import to_record
from spark_queue.core.records import Kind, Record, Removal, Return
from spark_queue.journal import snapshot
from spark_queue.journal.control_log import DeltaControlLog
from spark_queue.journal.open import DeltaJournal, open_journal
from spark_queue.journal.reader import list_blocks
from spark_queue.ports import entered
from spark_queue.views import explain
from tests.benchmarks.figure import Bench, Figure, median, spread
from tests.benchmarks.journals import MANY_MESSAGES, QUEUE, SUBSCRIPTION, BenchJournal
from tests.records import record_of

#: Messages of one lease.
LEASE_MESSAGES = 500

#: Records of one commit: as many as a merged file of the control log holds.
_COMMIT_RECORDS = 100_000

_AT_MS = 4_000_000_000_000


def measure(bench: Bench) -> Iterator[Figure]:
    """Measure with 10 million messages, all but those of one lease delivered twice and acknowledged; the budgets are 2 s.

    Why one of these waits, the state of the whole journal tells. A coordinator stores it after so many records.
    """
    journal = BenchJournal(bench.place / "journal", messages=MANY_MESSAGES)
    opened, control = open_journal(journal.store), DeltaControlLog(journal.store)
    begun = len(control.load().records)
    records = [replace(each, record=number, epoch=1, at_ms=_AT_MS + number) for number, each in enumerate(_life(opened), begun)]
    for first in range(0, len(records), _COMMIT_RECORDS):
        control.append(records[first : first + _COMMIT_RECORDS], epoch=1)
    note = f"{begun + len(records):,} control records, leases of {LEASE_MESSAGES} messages"
    times_s = list(_explained(journal, [MANY_MESSAGES // 2 + run for run in range(bench.runs)], was_delivered=True))
    yield Figure(
        row="explain", what="explain one of 10 M messages, each delivered twice", value=median(times_s), unit="s", budget=2,
        note=f"{spread(times_s)}; {note}",
    )  # fmt: skip
    snapshot.capture(journal.store, list_blocks(journal.store), opened.traits)
    times_s = list(_explained(journal, [MANY_MESSAGES - 1 - run for run in range(bench.runs)], was_delivered=False))
    yield Figure(
        row="explain-waiting", what="explain why one of 10 M messages waits, from a snapshot", value=median(times_s), unit="s",
        budget=2, note=f"{spread(times_s)}; {note}",
    )  # fmt: skip


def _explained(journal: BenchJournal, bookmarks: Iterable[int], *, was_delivered: bool) -> Iterator[float]:
    """Explain messages, and yield how long each took, in seconds."""
    for bookmark in bookmarks:
        began_s = time.perf_counter()
        history = explain(open_journal(journal.store), QUEUE, bookmark)
        yield time.perf_counter() - began_s
        assert history.state == ("removed" if was_delivered else "available")
        assert [event.event for event in history.events].count("granted") == (2 if was_delivered else 0)
        assert was_delivered or str(history.reason).startswith("It waits")


def _life(opened: DeltaJournal) -> Iterator[Record]:
    """Yield the records of a queue whose leases all ran out once, and were proven then; the last messages still wait."""
    yield record_of(kind=Kind.EPOCH_CLAIMED, detail={"host": "h", "address": "a", "pid": 1})
    first = 0
    for entry in opened.messages("json").tail(-1):
        for added in entry.added:
            yield to_record(entered("json", entry, added, first=first, at_ms=0, since_ms=0))
            first += added.row_count
    asks = {"ack_mode": "auto", "max_backlog": LEASE_MESSAGES, "filter": None}
    yield record_of(kind=Kind.SUBSCRIBED, queue=QUEUE, subscription=SUBSCRIPTION, detail=asks)
    for lease in range(1, 2 * (first // LEASE_MESSAGES - 1), 2):
        row = lease // 2 * LEASE_MESSAGES
        about: dict[str, Any] = {"queue": QUEUE, "subscription": SUBSCRIPTION, "ranges": ((row, row + LEASE_MESSAGES),)}
        granted = {"incarnation": [1, 1], "call": lease, "limit": LEASE_MESSAGES}
        yield record_of(kind=Kind.GRANTED, **about, lease=lease, due_at_ms=_AT_MS, detail=granted)
        yield record_of(kind=Kind.RETURNED, **about, lease=lease, reason=Return.LEASE_EXPIRED)
        yield record_of(kind=Kind.GRANTED, **about, lease=lease + 1, due_at_ms=_AT_MS, detail=granted)
        yield record_of(kind=Kind.REMOVED, **about, lease=lease + 1, reason=Removal.ACKNOWLEDGED)
        yield record_of(kind=Kind.PROVEN, queue=QUEUE, subscription=SUBSCRIPTION, lease=lease + 1)
