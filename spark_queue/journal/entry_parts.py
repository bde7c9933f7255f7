"""The parts of a log entry that are ours: the mark in its commitInfo, and the files that it adds (DESIGN 15.9)."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

#: Transaction id that carries the epoch, in the control log and in message tables (DESIGN 3.4).
COORDINATOR_TXN = "c:coordinator"

#: Key of our own facts in commitInfo, and their version.
MARK_KEY = "sparkqueue"
MARK_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Our part of a commitInfo."""

    #: Its writer: ``creator``, ``coordinator``, ``publisher``, ``stream`` or ``replicator``.
    writer: str
    #: Names the commit, so that its writer can find it again.
    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    first_sequence: int | None = None
    last_sequence: int | None = None
    #: How long after the commit its messages are delivered at the earliest; None for at once.
    deliver_after_ms: int | None = None
    #: Of a commit that merges message files: each as `core.message_files.relocation.MergedFile` is stored.
    merged: Sequence[dict[str, Any]] = ()
    #: Of a commit that lets message files go: their paths.
    retired: Sequence[str] = ()
    #: Of a commit of records: those that its entry holds, as `record_table.Row`.
    records: Sequence[Any] = ()
    #: Of a commit to the control log: the version of the oldest entry whose records no data file has.
    held_since: int | None = None
    #: Of a commit of messages that were pulled: where they were published first, as the message log reads it.
    pulled: Mapping[str, Any] = field(default_factory=dict)

    def commit_info(self, actions: int | None, *, is_append: bool = True) -> dict[str, Any]:
        """Return the commitInfo of a commit of `actions` further actions; by a count a torn entry is known from a whole one.

        `is_append` says that the commit only adds files.
        """
        mark: dict[str, Any] = {"v": MARK_VERSION, "token": self.token, "writer": self.writer}
        if actions is not None:
            mark["actions"] = actions
        if self.first_sequence is not None:
            mark |= {"first_sequence": self.first_sequence, "last_sequence": self.last_sequence}
        if self.deliver_after_ms is not None:
            mark["deliver_after_ms"] = self.deliver_after_ms
        if self.merged:
            mark["moved"] = list(self.merged)
        if self.retired:
            mark["retired"] = list(self.retired)
        if self.records:
            mark["records"] = list(self.records)
        if self.held_since is not None:
            mark["held_since"] = self.held_since
        return {MARK_KEY: {**mark, **self.pulled}, "isBlindAppend": is_append}


@dataclass(frozen=True, slots=True, kw_only=True)
class NewFile:
    """A data file to add."""

    #: Relative to the table.
    path: str
    size_bytes: int
    modified_ms: int
    #: Delta's statistics: numRecords, minValues, maxValues, nullCount; as values, or in JSON.
    stats: dict[str, Any] | str
    #: Whether it brings rows that were not in the table before.
    data_change: bool = True
    #: Values of the partition columns, as Delta writes them.
    partition_values: Mapping[str, str | None] = field(default_factory=dict)

    def entry(self) -> dict[str, Any]:
        """Return the form that it has in a log entry."""
        return {
            "path": self.path, "partitionValues": dict(self.partition_values), "size": self.size_bytes,
            "modificationTime": self.modified_ms, "dataChange": self.data_change, "stats": self._stats(),
        }  # fmt: skip

    def _stats(self) -> str:
        return self.stats if isinstance(self.stats, str) else json.dumps(self.stats, separators=(",", ":"))
