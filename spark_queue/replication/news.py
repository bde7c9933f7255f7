"""The meaning of a peer's records for other instances (DESIGN 17.3, 17.4)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyroaring import BitMap64

from spark_queue.core.bitmaps.ranges import to_bitmap
from spark_queue.core.deciding.instances.replicating import News
from spark_queue.core.definitions import parsing
from spark_queue.core.definitions.definition import Definitions
from spark_queue.core.folds.peers import watermark_of
from spark_queue.core.folds.replication import value_of
from spark_queue.core.message_files.message_type import MessageTypeState
from spark_queue.core.message_files.origins import OriginRows
from spark_queue.core.records import DEAD_LETTER_REASONS, SINK_KINDS, Kind, Record, Removal
from spark_queue.core.state.ownership import MessageValue, Stage, Watermark
from spark_queue.core.state.peer_changes import Restoration, renew_origins, restoration_of
from spark_queue.replication.record_forms import checked, is_sound

#: Records that tell a peer nothing: for them alone no watermark is written, or two instances would answer each other for ever.
SILENT_KINDS = SINK_KINDS | {
    Kind.PULLED, Kind.NAMED, Kind.EPOCH_CLAIMED, Kind.RENEWED, Kind.GRANTED, Kind.RESUMED, Kind.PROVEN, Kind.OUTCOMES,
    Kind.CLAIM_CONFIRMED, Kind.RETURNING,
}  # fmt: skip

#: Details of a peer's record that travel with its news. What a letter was counted in its life is told of its message.
_TRAVELLING = ("deliveries", "cancels", "source", "error", "settled_in")
_OF_LETTERS = ("source", "error")
#: What a record of messages says that is found out anew where they are copied.
_FOUND_ANEW = frozenset({"publishers", "clashes", "barriers"})
_OF_REQUESTS = ("requester", "owner", "passed", "limit", "life")


class PeerFold:
    """The picture of a peer as its log is read: its definitions, the meaning of its bookmarks, and the places of its rows."""

    def __init__(self, instance: str) -> None:
        self.instance = instance
        #: UUID of its journal; empty before its first record.
        self.journal_id = ""
        self.definitions: Definitions = parsing.parse({})
        self.message_types: dict[str, MessageTypeState] = {}
        #: Names of instances, by the UUID of their journal.
        self.instances: dict[str, str] = {}
        #: As often as its journal was restored from a backup.
        self.restorations: list[Restoration] = []
        #: How far it has pulled other journals, by their UUID.
        self.pulled: dict[str, Watermark] = {}

    @property
    def origin(self) -> str:
        """UUID of the origin of what is published there now, where its journal was restored; else empty."""
        return self.restorations[-1].origin if self.restorations else ""

    def is_own(self, origin: str) -> bool:
        """Return whether its messages have or had an origin."""
        return origin == self.journal_id or any(origin == each.origin for each in self.restorations)

    def held(self) -> dict[str, dict[str, BitMap64]]:
        """Return all that ever entered there, by message type and origin."""
        return {name: known.held(self.journal_id) for name, known in self.message_types.items()}

    def group_of(self, instance: str, message_type: str) -> str:
        """Return the group of an instance whose messages of a type are there."""
        if instance == self.instance:
            return self.definitions.journal.group or instance
        return self.message_types[message_type].origins.groups.get(instance, instance)

    def foresee(self, records: Iterable[Record]) -> None:
        """Learn from records, before they are folded, that the journal was restored: they tell it after what entered since."""
        told = (restoration_of(record) for record in records if record.kind == Kind.RESTORED and is_sound(record))
        # An origin of somebody else is refused where the record stands.
        found = [
            each
            for each in told
            if each not in self.restorations and self.instances.get(each.origin, self.instance) == self.instance
        ]
        self.restorations += found
        self.instances |= {each.origin: self.instance for each in found}
        if found:
            renew_origins(self.message_types, self.restorations)

    def fold(self, record: Record) -> News | None:
        """Apply the peer's next record; returns what it says of messages of a queue, if it does."""
        record = checked(record, self)
        told: Sequence[OriginRows] = [*record.detail.get("origin", ()), *record.detail.get("names", ())]
        match record.kind:
            case Kind.JOURNAL_CREATED:
                self.journal_id = record.detail["journal"]
                self.instances[self.journal_id] = self.instance
            case Kind.DEFINITIONS_APPLIED:
                self.definitions = parsing.parse(record.detail["definitions"])
                for name in self.definitions.message_types:
                    self.message_types.setdefault(name, MessageTypeState())
                renew_origins(self.message_types, self.restorations)
            case Kind.PULLED:
                watermark = watermark_of(record)
                self.instances[watermark.journal] = record.detail["peer"]
                self.pulled[watermark.journal] = watermark
            case Kind.ENTERED | Kind.NAMED:
                needed, known = _needed(record, told), self.message_types[str(record.message_type)]
                self.instances.update(needed.detail["instances"])
                known.fold(needed)
            case Kind.MOVED | Kind.RETIRED:
                self.message_types[str(record.message_type)].fold(record)
            case Kind.DECIDED:
                return self._decision(record)
            case _ if record.queue in self.definitions.queues:
                return self._news(record)
        return None

    def _decision(self, record: Record) -> News:
        known = self.message_types[str(record.message_type)]
        return News(
            queue=str(record.queue), message_type=str(record.message_type), value=None, is_decision=True, detail=record.detail,
            rows=dict(known.origins.of(_clipped(record, known), own=self.journal_id)),
        )  # fmt: skip

    def _news(self, record: Record) -> News | None:
        value = self._value(record)
        if value is None and record.kind != Kind.TRANSFER_REQUESTED:
            return None
        names = _OF_REQUESTS if value is None else _OF_LETTERS if record.kind == Kind.DEAD_LETTERED else _TRAVELLING
        detail: Mapping[str, Any] = {name: record.detail[name] for name in names if name in record.detail}
        queue = self.definitions.queues[str(record.queue)]
        news = News(
            queue=queue.name, message_type=queue.message_type, rows=self._by_origin(record), value=value, reason=_reason(record),
            detail=detail,
        )  # fmt: skip
        return news if value is not None else replace(news, of_several=self._of_several(record))

    def _value(self, record: Record) -> MessageValue | None:
        """Return what a record says that its messages are from then on; None where it says nothing to others."""
        detail = record.detail
        life, term, owner = detail.get("life", 0), detail.get("term", 0), detail.get("owner") or self.instance
        match record.kind:
            case Kind.REMOVED if record.reason in DEAD_LETTER_REASONS:
                return MessageValue(life, Stage.DEAD, term, owner)
            case Kind.REMOVED | Kind.NOT_IN_QUEUE:
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
        if record.kind == Kind.NOT_IN_QUEUE:
            # It is told by origin, since the peer may not have it at all.
            return {origin: to_bitmap(ranges) for origin, ranges in record.detail["origins"].items()}
        known = self._type_of(record)
        return dict(known.origins.of(_clipped(record, known), own=self.journal_id))

    def _of_several(self, record: Record) -> dict[str, BitMap64]:
        known = self._type_of(record)
        several = BitMap64.union(BitMap64(), *(rows for _, rows in known.origins.named(_clipped(record, known))))
        return dict(known.origins.of(several, own=self.journal_id))

    def _type_of(self, record: Record) -> MessageTypeState:
        return self.message_types[self.definitions.queues[str(record.queue)].message_type]


def _needed(record: Record, told: Sequence[OriginRows]) -> Record:
    """Return what a record says of where messages were first published: all of a log is kept of it, and the rest could fill memory.

    Publishers, clashes and barriers are found out anew as messages are copied and enter.
    """
    detail = {name: value for name, value in record.detail.items() if name not in _FOUND_ANEW}
    named = {origin for _, _, origin, _ in told}
    instances = {origin: name for origin, name in detail.get("instances", {}).items() if origin in named}
    groups = {name: group for name, group in detail.get("groups", {}).items() if name in instances.values()}
    return replace(record, detail={**detail, "instances": instances, "groups": groups})


def _clipped(record: Record, known: MessageTypeState) -> BitMap64:
    """Return the messages of a record; ranges are clipped before they are expanded: an absurd one would fill the memory."""
    return to_bitmap([(first, min(until, known.entered_until)) for first, until in record.ranges if first < known.entered_until])


def _reason(record: Record) -> str | None:
    if record.kind == Kind.NOT_IN_QUEUE:
        return Removal.PURGED
    return str(record.kind) if record.kind in (Kind.REDRIVEN, Kind.TRANSFERRED, Kind.DEAD_LETTERED) else record.reason
