"""Backups of simulated journals: what is put back has forgotten all since, and everybody ends who knew more (DESIGN 17.3)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_queue.core.records import Record
from tests.simulation.bucket import TableState
from tests.simulation.loop_driver import Driver
from tests.simulation.publishers import Publisher

if TYPE_CHECKING:
    from tests.simulation.whole_instance import WholeInstance


@dataclass(frozen=True, slots=True)
class Rewinding:
    """A backup was taken of an instance, or was put back."""

    instance: str
    is_back: bool


@dataclass(frozen=True, slots=True)
class Life:
    """What an instance was until a backup was put back."""

    log: Sequence[Record]
    #: Ids of its messages by bookmark.
    order: Sequence[int]
    drivers: Sequence[Driver]


class Backup:
    """A copy of an instance's journal."""

    def __init__(self, instance: WholeInstance) -> None:
        bucket = instance.bucket
        instance.note_order()
        #: Of its control log.
        self.record_count = len(instance.log)
        self._objects = dict(bucket.objects)
        self._tables: dict[str, list[TableState]] = {name: list(states) for name, states in bucket.tables.items()}
        self._entries = {name: list(entries) for name, entries in bucket.entries.items()}
        self._order, self._ordered_entries = list(instance.order), instance._ordered_entries

    def put_back(self, instance: WholeInstance, publishers: Iterable[Publisher]) -> None:
        """Put the copy in the journal's place, and end every process that knew the journal."""
        instance.note_order()
        instance.lives.append(Life(instance.log, list(instance.order), instance.drivers))
        for process in instance.processes:
            process.alive = False
        for publisher in publishers:
            publisher.end()
        bucket = instance.bucket
        bucket.late.clear()
        instance.stray.clear()
        bucket.objects, bucket.tables, bucket.entries = self._objects, self._tables, self._entries
        instance.order, instance._ordered_entries = self._order, self._ordered_entries
        instance._log = (0, [])
        # Their checkpoints name leases that the journal does not know: they begin with empty ones.
        instance.drivers = [Driver(instance, each.name, filter_sql=None) for each in instance.drivers]
