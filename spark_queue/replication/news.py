"""The meaning of a peer's records for other instances (DESIGN 17.3, 17.4)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from msgspec import structs
from pyroaring import BitMap64

from spark_queue.core.bitmaps.ranges import to_bitmap
from spark_queue.core.deciding.instances.replicating import News
from spark_queue.core.definitions import parsing
from spark_queue.core.definitions.definition import Definitions
from spark_queue.core.folds.peers import watermark_of
from spark_queue.core.message_files.message_type import MessageTypeState
from spark_queue.core.records import (
    DEAD_LETTER_REASONS,
    Body,
    DeadLettered,
    Decided,
    DefinitionsApplied,
    Entered,
    JournalCreated,
    Kind,
    Moved,
    Named,
    NotInQueue,
    Pulled,
    Record,
    Redriven,
    Removal,
    Removed,
    Replicated,
    Retired,
    Transferred,
    TransferRequested,
)
from spark_queue.core.state.ownership import MessageValue, Stage, Watermark, value_of
from spark_queue.core.state.peer_changes import Restoration, renew_origins, restoration_of
from spark_queue.replication.record_checks import check, is_of_table, is_sound


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
        check(record, self)
        if is_of_table(record, self):
            return None
        match record.body:
            case JournalCreated(journal=journal):
                self.journal_id = journal
                self.instances[self.journal_id] = self.instance
            case DefinitionsApplied(definitions=definitions):
                self.definitions = parsing.parse(definitions)
                for name in self.definitions.message_types:
                    self.message_types.setdefault(name, MessageTypeState())
                renew_origins(self.message_types, self.restorations)
            case Pulled(peer=peer):
                watermark = watermark_of(record)
                self.instances[watermark.journal] = peer
                self.pulled[watermark.journal] = watermark
            case Entered() | Named() as body:
                needed, known = _needed(body), self.message_types[str(record.message_type)]
                self.instances.update(needed.instances)
                known.fold(replace(record, body=needed))
            case Moved() | Retired():
                self.message_types[str(record.message_type)].fold(record)
            case Decided() as decided:
                return self._decision(record, decided)
            case TransferRequested() as request if record.queue in self.definitions.queues:
                return self._request(record, request)
            case _ if record.queue in self.definitions.queues:
                return self._news(record)
        return None

    def _decision(self, record: Record, body: Decided) -> News:
        known = self.message_types[str(record.message_type)]
        return News(
            queue=str(record.queue), message_type=str(record.message_type), decided=body,
            rows=dict(known.origins.of(_clipped(record, known), own=self.journal_id)),
        )  # fmt: skip

    def _request(self, record: Record, body: TransferRequested) -> News:
        queue = self.definitions.queues[str(record.queue)]
        return News(
            queue=queue.name, message_type=queue.message_type, requested=body, reason=record.reason,
            rows=self._by_origin(record), of_several=self._of_several(record),
        )  # fmt: skip

    def _news(self, record: Record) -> News | None:
        value = self._value(record)
        if value is None:
            return None
        queue = self.definitions.queues[str(record.queue)]
        return News(
            queue=queue.name, message_type=queue.message_type, rows=self._by_origin(record), reason=_reason(record),
            replicated=self._replicated(record.body, value),
        )  # fmt: skip

    def _replicated(self, body: Body, value: MessageValue) -> Replicated:
        """Return the record of a value here. How often a letter was delivered in its life is told of its message."""
        told: dict[str, Any] = {"life": value.life, "stage": int(value.stage), "term": value.term, "owner": value.owner}
        if isinstance(body, Removed | Replicated | Transferred):
            told |= {"deliveries": body.deliveries, "cancels": body.cancels}
        if isinstance(body, Removed | Replicated):
            told |= {"error": body.error, "settled_in": body.settled_in}
        if isinstance(body, DeadLettered | Replicated):
            told |= {"source": body.source, "error": body.error}
        return Replicated(peer=self.instance, **told)

    def _value(self, record: Record) -> MessageValue | None:
        """Return the value of a record's messages from then on; None where it says nothing to others."""
        match record.body:
            case Removed() as body if record.reason in DEAD_LETTER_REASONS:
                return MessageValue(body.life, Stage.DEAD, body.term, body.owner or self.instance)
            case Removed(life=life) | NotInQueue(life=life):
                return MessageValue(life, Stage.GONE)
            case Redriven(life=life, stage=Stage.GONE):
                return MessageValue(life, Stage.GONE)
            case Redriven(life=life):
                initial = self.definitions.queues[str(record.queue)].initial_owner
                return MessageValue(life, Stage.PRESENT, 0, initial or self.instance)
            case DeadLettered(life=life):
                return MessageValue(life, Stage.PRESENT, 0, self.instance)
            case Transferred() | Replicated() as body:
                return value_of(body)
        return None

    def _by_origin(self, record: Record) -> dict[str, BitMap64]:
        if isinstance(record.body, NotInQueue):
            # It is told by origin, since the peer may not have it at all.
            return {origin: to_bitmap(ranges) for origin, ranges in record.body.origins.items()}
        known = self._type_of(record)
        return dict(known.origins.of(_clipped(record, known), own=self.journal_id))

    def _of_several(self, record: Record) -> dict[str, BitMap64]:
        known = self._type_of(record)
        several = BitMap64.union(BitMap64(), *(rows for _, rows in known.origins.named(_clipped(record, known))))
        return dict(known.origins.of(several, own=self.journal_id))

    def _type_of(self, record: Record) -> MessageTypeState:
        return self.message_types[self.definitions.queues[str(record.queue)].message_type]


def _needed(body: Entered | Named) -> Entered | Named:
    """Return a body with what is needed of the origins of messages: all of a log is kept of it, and the rest could fill memory.

    Publishers, clashes and barriers are found out anew as messages are copied and enter.
    """
    rows = body.origin if isinstance(body, Entered) else body.names
    named = {origin for _, _, origin, _ in rows}
    instances = {origin: name for origin, name in body.instances.items() if origin in named}
    if isinstance(body, Named):
        return structs.replace(body, instances=instances)
    groups = {name: group for name, group in body.groups.items() if name in instances.values()}
    return structs.replace(body, instances=instances, groups=groups, publishers={}, clashes=(), barriers={})


def _clipped(record: Record, known: MessageTypeState) -> BitMap64:
    """Return the messages of a record; ranges are clipped before they are expanded: an absurd one would fill the memory."""
    return to_bitmap([(first, min(until, known.entered_until)) for first, until in record.ranges if first < known.entered_until])


def _reason(record: Record) -> str | None:
    if record.kind == Kind.NOT_IN_QUEUE:
        return Removal.PURGED
    return str(record.kind) if record.kind in (Kind.REDRIVEN, Kind.TRANSFERRED, Kind.DEAD_LETTERED) else record.reason
