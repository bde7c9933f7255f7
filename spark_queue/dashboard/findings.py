"""Findings about a journal, for its page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spark_queue.core.state.journal_state import JournalState
from spark_queue.errors import MESSAGE_FILE_CODES, SparkQueueError, counted
from spark_queue.journal import snapshot
from spark_queue.journal.store import Store
from spark_queue.protocol.discovery import read_advertisement


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalFinding:
    """Something to know, or to do."""

    level: str
    text: str


def findings(state: JournalState, troubles: Sequence[str], now_ms: int) -> list[JournalFinding]:
    """Return the findings about a journal by its state; `sparkq doctor` also tries things."""
    found = [JournalFinding(level="bad", text=text) for text in troubles]
    for name, trouble in state.set_aside_queues().items():
        # The trouble of a file says nothing of the queue.
        of_file = f"Queue '{name}' is set aside: " if trouble.code in MESSAGE_FILE_CODES else ""
        found.append(JournalFinding(level="bad", text=f"{of_file}{trouble}"))
    found += [JournalFinding(level="bad", text=each.error) for each in state.peer_troubles.values()]
    for name, known in state.message_types.items():
        if known.foreign_files:
            text = (
                f"Other software appended {known.foreign_files:,} file(s) to message type '{name}'. They are not messages of the "
                "journal."
            )
            found.append(JournalFinding(level="warn", text=counted(text)))
    if state.last_at_ms > now_ms + 60_000:
        text = f"The log is {(state.last_at_ms - now_ms) / 1_000:,.0f} s ahead of this host's clock."
        found.append(JournalFinding(level="warn", text=text))
    return found


def store_findings(store: Store, journal_id: str, records: int) -> list[JournalFinding]:
    """Return the findings about the store: the cost of a start, and whether a coordinator was seen."""
    try:
        known_snapshots = snapshot.stored(store)
        advertised = read_advertisement(store, journal_id)
    except SparkQueueError as refusal:
        return [JournalFinding(level="warn", text=str(refusal))]
    found = []
    newest = known_snapshots[0][0] if known_snapshots else None
    if newest is None:
        found.append(JournalFinding(level="ok", text=f"No snapshot yet: a start folds all {records:,} records."))
    else:
        found.append(JournalFinding(level="ok", text=f"The newest snapshot is of record {newest} of {records - 1}."))
    if advertised is None:
        found.append(JournalFinding(level="ok", text="No coordinator is advertised. The next caller that needs one starts it."))
    else:
        found.append(JournalFinding(level="ok", text=f"A coordinator was last seen at {advertised.address}."))
    return found
