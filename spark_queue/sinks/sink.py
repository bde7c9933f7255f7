"""The destinations to which each batch of a queue is appended in one commit, and which know the fate of each attempt (DESIGN 19).

An attempt n commits version 2n of the transaction id of its subscription, a fence of it version 2n + 1 without rows. Both are
put-if-absent of the very next version of a Delta log, decided upon the version before it, so one of them wins for good.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, ClassVar

import msgspec

from spark_queue.core.replies import AttemptTold
from spark_queue.errors import JournalError, SparkQueueError

#: A batch that the driver gathers and writes by itself: its messages at most, and bytes of its rows in memory, as the last one had.
SMALL_MESSAGES = 200_000
SMALL_BYTES = 64 * 1024 * 1024


class Fate(StrEnum):
    """The state of an attempt, as the sink has it."""

    IN_DOUBT = "in doubt"
    LANDED = "landed"
    FENCED = "fenced"


def transaction_id(journal_id: str, queue: str, subscription: str) -> str:
    """Return the transaction id of a subscription's attempts in a sink."""
    return f"sparkqueue:{journal_id}:{queue}:{subscription}"


def fate_of(version: int, attempt: int) -> Fate:
    """Return the fate of an attempt, by the newest version of its transaction id."""
    return Fate.IN_DOUBT if version < 2 * attempt else Fate.LANDED if version == 2 * attempt else Fate.FENCED


@dataclass(frozen=True, slots=True)
class Landing:
    """The fate of an attempt, and the table's version that it stands in, where that is known."""

    fate: Fate
    version: int | None = None


class Sink(ABC):
    """A Delta log that batches are appended to; for one thread."""

    #: The type of a task's report of a staged file.
    staged_type: ClassVar[type]

    #: Size of the files for each message of the batch that was staged last; before the first it is not known.
    _bytes_each = math.inf

    @property
    @abstractmethod
    def name(self) -> str:
        """The sink, as people and the control log name it."""

    @abstractmethod
    def check(self) -> object:
        """Refuse a sink that no batch can be appended to."""

    def look_ahead(self) -> None:  # noqa: B027 - a sink that looks each time has nothing to do.
        """Look at the sink while the start of a run is reported: the plan that follows goes by it, and has the errors."""

    def confirm(self, plan: Any) -> None:  # noqa: B027 - as said above.
        """Look whether the sink is as planned while an attempt is prepared: the append that follows goes by it."""

    @abstractmethod
    def taken(self, columns: Sequence[str]) -> list[str]:
        """Return those columns of a batch that are appended where fn names none."""

    @abstractmethod
    def plan(
        self, columns: Sequence[Mapping[str, Any]], *, partition_by: Sequence[str] | None = None, merges_schema: bool = False
    ) -> Any:
        """Return the plan of staging rows of these columns, which are Spark's schema in JSON: an object with a method `stage`.

        A new sink is partitioned by `partition_by`, and an existing one must be; `merges_schema` adds columns that it lacks.
        """

    def stage(self, rows: Any, plan: Any, session: Any, *, messages: int) -> list[Any]:  # noqa: ARG002 - for what Spark commits itself.
        """Write a DataFrame's rows, made of so many messages, to files that no commit names yet, by a job of Spark's."""
        texts = self._gathered(rows, plan, messages)
        if texts is None:
            texts = self._by_tasks(rows, plan)
        files: list[Any] = [msgspec.json.decode(text, type=self.staged_type) for text in texts]
        self._bytes_each = sum(file.memory_bytes for file in files) / max(messages, 1)
        return files

    def _gathered(self, rows: Any, plan: Any, messages: int) -> list[str] | None:
        """Write a small batch here: tasks that write have a second Python each, and Spark hands it the rows, which takes longer.

        The first batch is never small, so harm that this does to the driver is not done again after a restart.
        """
        if messages > SMALL_MESSAGES or self._bytes_each * messages > SMALL_BYTES:
            return None
        try:
            batches = rows.toArrow().to_batches()
        except Exception:  # noqa: BLE001 - fn's own failure comes again, and rows too large for the driver are not for tasks.
            return None
        return [str(text) for batch in plan.stage(tuple(rows.columns), batches) for text in batch.column(0).to_pylist()]

    def _by_tasks(self, rows: Any, plan: Any) -> list[str]:
        # By number: mapInArrow takes a dot in a column's name for a field.
        numbered = rows.toDF(*(f"c{number}" for number in range(len(rows.columns))))
        return [row.file for row in numbered.mapInArrow(partial(plan.stage, tuple(rows.columns)), "file string").collect()]

    @abstractmethod
    def id(self) -> str:
        """Return the id, as it was last read, that distinguishes the sink from another of its name."""

    @abstractmethod
    def transaction_version(self, transaction: str, *, plan: Any = None) -> int:
        """Look for the newest version of a transaction id; -1 where there is none. With a plan, its own look may be enough."""

    @abstractmethod
    def append(self, plan: Any, files: Sequence[Any], *, transaction: str, attempt: int) -> Landing:
        """Commit an attempt's files, unless it is decided already; an error leaves it in doubt."""

    @abstractmethod
    def fence(self, *, transaction: str, attempt: int) -> Landing:
        """Find out the fate of an attempt; if it is in doubt, make sure that it never lands. An error leaves it in doubt."""

    @abstractmethod
    def discard(self, files: Sequence[Any]) -> None:
        """Delete staged files that no commit names, nor ever will."""

    def decide(self, attempt: AttemptTold, *, journal_id: str, queue: str) -> Landing:
        """Fence an attempt that the coordinator names, if this is still the sink that it was prepared for (R125)."""
        self.fate(attempt, journal_id=journal_id, queue=queue)
        facts: dict[str, Any] = {"attempt": attempt.attempt, "subscription": attempt.subscription, "queue": queue}
        try:
            return self.fence(transaction=transaction_id(journal_id, queue, attempt.subscription), attempt=attempt.attempt)
        except SparkQueueError as failure:
            raise JournalError("SINK_UNFENCED", table=attempt.table, reason=failure.reason, **facts) from None

    def fate(self, attempt: AttemptTold, *, journal_id: str, queue: str) -> Fate:
        """Return the fate of an attempt by the sink alone, which is not changed."""
        try:
            version = self.transaction_version(transaction_id(journal_id, queue, attempt.subscription))
            if self.id() == attempt.table_id:
                return fate_of(version, attempt.attempt)
            reason = "Another table is there now."
        except SparkQueueError as failure:
            reason = failure.reason
        facts = {"attempt": attempt.attempt, "subscription": attempt.subscription, "queue": queue}
        raise JournalError("SINK_UNREADABLE", table=attempt.table, reason=reason, **facts)
