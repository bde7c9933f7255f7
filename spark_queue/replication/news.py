"""What the records of a peer mean for other instances (DESIGN 17.3, 17.4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyroaring import BitMap64

from spark_queue.core.bitmaps.ranges import to_bitmap
from spark_queue.core.deciding.instances.replicating import News
from spark_queue.core.definitions import parsing
from spark_queue.core.definitions.definition import Definitions
from spark_queue.core.message_files.message_type import MessageTypeState
from spark_queue.core.records import DEAD_LETTER_REASONS, Kind, Record
from spark_queue.core.state.folds.replication import value_of
from spark_queue.core.state.ownership import MessageValue, Stage

#: Details of a peer's record that travel with its news. What a letter was counted in its life is told of its message.
_TRAVELLING = ("deliveries", "cancels", "source", "error", "settled_in")
_OF_LETTERS = ("source", "error")
_OF_REQUESTS = ("requester", "owner", "passed")


class PeerFold:
    """What is known of a peer as its log is read: what it defines, what its bookmarks mean, and where its rows stand.

    Attributes
    ----------
    journal_id : str
        UUID of its journal; empty before its first record.
    instance : str
        The name of its instance.
    """

    def __init__(self, instance: str) -> None:
        self.instance = instance
        self.journal_id = ""
        self.definitions: Definitions = parsing.parse({})
        self.message_types: dict[str, MessageTypeState] = {}
        #: Names of instances, by the UUID of their journal.
        self.instances: dict[str, str] = {}

    def fold(self, record: Record) -> News | None:
        """Apply the peer's next record; returns what it says of messages of a queue, if it does."""
        match record.kind:
            case Kind.JOURNAL_CREATED:
                self.journal_id = record.detail["journal"]
                self.instances[self.journal_id] = self.instance
            case Kind.DEFINITIONS_APPLIED:
                self.definitions = parsing.parse(record.detail["definitions"])
                for name in self.definitions.message_types:
                    self.message_types.setdefault(name, MessageTypeState())
            case Kind.PULLED:
                self.instances[record.detail["journal"]] = record.detail["peer"]
            case Kind.ENTERED | Kind.NAMED | Kind.FOREIGN | Kind.MOVED | Kind.RETIRED:
                self.instances.update(record.detail.get("instances", {}))
                self.message_types[str(record.message_type)].fold(record)
            case _ if record.queue in self.definitions.queues:
                return self._news(record)
        return None

    def _news(self, record: Record) -> News | None:
        value = self._value(record)
        if value is None and record.kind != Kind.TRANSFER_REQUESTED:
            return None
        names = _OF_REQUESTS if value is None else _OF_LETTERS if record.kind == Kind.DEAD_LETTERED else _TRAVELLING
        detail: Mapping[str, Any] = {name: record.detail[name] for name in names if name in record.detail}
        return News(queue=str(record.queue), rows=self._by_origin(record), value=value, reason=_reason(record), detail=detail)

    def _value(self, record: Record) -> MessageValue | None:
        """Return what a record says that its messages are from then on; None where it says nothing to others."""
        detail = record.detail
        life, term, owner = detail.get("life", 0), detail.get("term", 0), detail.get("owner", self.instance)
        match record.kind:
            case Kind.REMOVED if record.reason in DEAD_LETTER_REASONS:
                return MessageValue(life, Stage.DEAD, term, owner)
            case Kind.REMOVED:
                return MessageValue(life, Stage.GONE)
            case Kind.REDRIVEN if detail.get("stage") == Stage.GONE:
                return MessageValue(life, Stage.GONE)
            case Kind.REDRIVEN:
                initial = self.definitions.queues[str(record.queue)].initial_owner
                return MessageValue(life, Stage.PRESENT, 0, initial or self.instance)
            case Kind.DEAD_LETTERED:
                return MessageValue(life, Stage.PRESENT, 0, self.instance)
            case Kind.TRANSFERRED | Kind.REPLICATED:
                return value_of(record)
        return None

    def _by_origin(self, record: Record) -> dict[str, BitMap64]:
        known = self.message_types[self.definitions.queues[str(record.queue)].message_type]
        # Ranges are clipped before they are expanded: an absurd one would fill the memory.
        ranges = [(first, min(until, known.entered_until)) for first, until in record.ranges if first < known.entered_until]
        return dict(known.origins.of(to_bitmap(ranges), own=self.journal_id))


def _reason(record: Record) -> str | None:
    return str(record.kind) if record.kind in (Kind.REDRIVEN, Kind.TRANSFERRED, Kind.DEAD_LETTERED) else record.reason
