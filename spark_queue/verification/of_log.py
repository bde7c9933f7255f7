"""Invariants of a control log: of its records as they stand, and of the message logs that they speak of.

Each function gives the faults as sentences; none is a sound log. Simulations, the kill farm and `sparkq verify` look for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise, takewhile

from spark_queue.core.message_files.segment import Segment, from_record
from spark_queue.core.records import Kind, Moved, OriginRows, Record
from spark_queue.ports import AddedFile, MessageLogEntry


def of_records(records: Sequence[Record]) -> list[str]:
    """Return the faults of a control log: numbers that are not dense, epochs or times that go back."""
    broken: list[str] = []
    if not records or records[0].kind != Kind.JOURNAL_CREATED:
        broken.append("the control log does not begin with journal_created")
    broken += [f"record {number} is missing, or numbers repeat" for number in _not_dense(records)]
    for earlier, later in pairwise(records):
        if later.epoch < earlier.epoch:
            broken.append(f"record {later.record}: epoch {later.epoch} follows epoch {earlier.epoch}")
        if later.at_ms < earlier.at_ms:
            broken.append(f"record {later.record}: its time lies {earlier.at_ms - later.at_ms} ms before the one before it")
    return broken


def of_message_log(records: Sequence[Record], message_type: str, entries: Iterable[MessageLogEntry]) -> list[str]:
    """Return the contradictions between the `entered` records of a message type and its log.

    Versions of the log that were cleaned away cannot be compared.
    """
    segments = [from_record(record) for record in records if record.kind == Kind.ENTERED and record.message_type == message_type]
    moved = {
        record.body_as(Moved).version: record
        for record in records
        if record.kind == Kind.MOVED and record.message_type == message_type
    }
    tokens = {version: record.body_as(Moved).token for version, record in moved.items()}
    tokens |= {segment.version: segment.token for segment in segments}
    by_version = _without_late({entry.version: entry for entry in entries}, tokens)
    oldest = min(by_version, default=0)
    broken: list[str] = []
    for version in sorted({segment.version for segment in segments if segment.version >= oldest}):
        mine = [segment for segment in segments if segment.version == version]
        entry = by_version.get(version)
        if entry is None:
            broken.append(f"message type '{message_type}': version {version} entered the queues, but its log does not have it")
        elif any(segment.token != entry.token for segment in mine):
            broken.append(f"message type '{message_type}': version {version} is another commit than the one that entered")
        elif [_file(segment) for segment in mine] != [_file(added) for added in entry.added]:
            broken.append(
                f"message type '{message_type}': version {version} names other files, rows or origins than those that entered"
            )
    for entry in by_version.values():
        record = moved.pop(entry.version, None)
        if entry.merged and record is not None and record.body_as(Moved).files != entry.merged:
            broken.append(f"message type '{message_type}': version {entry.version} merged other files than the control log says")
    broken += [
        f"message type '{message_type}': version {version} merged files, but its log does not say so"
        for version in moved
        if version >= oldest
    ]
    return broken


def _without_late(by_version: Mapping[int, MessageLogEntry], tokens: Mapping[int, str]) -> Mapping[int, MessageLogEntry]:
    """Return the entries of a log without commits that landed late, right before its oldest one, where a version had gone.

    `tokens` are those of the commits that were read.
    """
    late = set(takewhile(lambda version: tokens.get(version, "") != by_version[version].token, sorted(by_version)))
    if 0 in late or len(late) == len(by_version):
        # Nothing has gone, or nothing tells where the log begins.
        return by_version
    return {version: entry for version, entry in by_version.items() if version not in late}


def _not_dense(records: Sequence[Record]) -> list[int]:
    return [index for index, record in enumerate(records) if record.record != index][:1]


def _file(added: AddedFile | Segment) -> tuple[str, int, tuple[OriginRows, ...]]:
    return added.path, added.row_count, added.origins
