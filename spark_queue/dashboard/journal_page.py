"""What the page of a journal itself shows: definitions and how they changed, its files, and what its upkeep left."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spark_queue.client.applied import NOT_SHOWN, TOKEN_KEY
from spark_queue.core.state.journal_state import JournalState
from spark_queue.errors import SparkQueueError
from spark_queue.journal import snapshot
from spark_queue.journal.layout import CONTROL, MESSAGES, SNAPSHOTS, Store
from spark_queue.protocol.discovery import read_advertisement


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeRow:
    """One message type."""

    name: str
    topics: str
    messages: int
    retired: int
    files: int
    #: Files that merges or retention replaced lately and that are still in the store.
    replaced: int
    foreign: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartSize:
    """What a part of the journal takes in its store."""

    name: str
    objects: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalFinding:
    """Something to know, or to do."""

    level: str
    text: str


def definitions_text(state: JournalState) -> str:
    """Return the definitions that hold, as JSON: as they are stored, but for what tells of tokens."""
    return json.dumps(_without_tokens(state.definitions.stored), indent=2, ensure_ascii=False, default=str)


def _without_tokens(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: NOT_SHOWN if name == TOKEN_KEY else _without_tokens(each) for name, each in value.items()}
    return value


def type_rows(state: JournalState) -> list[TypeRow]:
    """Return the message types of a journal."""
    return [
        TypeRow(
            name=name,
            topics=", ".join(state.definitions.message_types[name].topics) or NO_TOPICS,
            messages=known.entered_until,
            retired=known.retired_rows,
            files=len({segment.path for segment in known.segments if not segment.retired}),
            replaced=len(known.replaced),
            foreign=known.foreign_files,
        )
        for name, known in state.message_types.items()
        if name in state.definitions.message_types
    ]


#: A message type that nothing can be published to.
NO_TOPICS = "none"


def sizes(store: Store) -> tuple[list[PartSize], str | None]:
    """Return what the parts of a journal take in its store, or why that cannot be told."""
    try:
        found = {name: store.list(name) for name in (MESSAGES, CONTROL, SNAPSHOTS)}
    except SparkQueueError as refusal:
        return [], str(refusal)
    counted: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for name, objects in found.items():
        for each in objects:
            part = "/".join(each.key.split("/")[: 2 if name == MESSAGES else 1])
            counts[part] += 1
            counted[part] += each.size_bytes
    return [PartSize(name=name, objects=counts[name], size_bytes=counted[name]) for name in sorted(counts)], None


def findings(state: JournalState, troubles: Sequence[str], now_ms: int) -> list[JournalFinding]:
    """Return what somebody should know of a journal, as its state tells; `sparkq doctor` also tries things."""
    found = [JournalFinding(level="bad", text=text) for text in troubles]
    found += [
        JournalFinding(level="bad", text=f"Queue '{name}' is set aside: {trouble}") for name, trouble in state.troubles.items()
    ]
    for name, known in state.message_types.items():
        if known.foreign_files:
            text = (
                f"Strangers appended {known.foreign_files:,} file(s) to message type '{name}'. They are no messages of the journal."
            )
            found.append(JournalFinding(level="warn", text=text))
    if state.last_at_ms > now_ms + 60_000:
        text = f"The log is {(state.last_at_ms - now_ms) / 1_000:,.0f} s ahead of this host's clock."
        found.append(JournalFinding(level="warn", text=text))
    return found


def store_findings(store: Store, journal_id: str, records: int) -> list[JournalFinding]:
    """Return what the store tells beside: how a start goes, and whether a coordinator was seen."""
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
        found.append(JournalFinding(level="ok", text=f"The newest snapshot is of record {newest:,} of {records - 1:,}."))
    if advertised is None:
        found.append(JournalFinding(level="ok", text="No coordinator is advertised. The next caller that needs one starts it."))
    else:
        found.append(JournalFinding(level="ok", text=f"A coordinator was last seen at {advertised.address}."))
    return found
