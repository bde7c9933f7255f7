"""Checks of a peer's records, before anything believes them (DESIGN 17.3).

What a body holds is checked field by field as it is read, by its class. Here is what a record must fit beside that: what its
peer said before.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from functools import singledispatch
from itertools import pairwise
from typing import Protocol

import numpy as np

from spark_queue.core import records
from spark_queue.core.bitmaps.ranges import RangeArray
from spark_queue.core.definitions import parsing
from spark_queue.core.definitions.definition import Definitions
from spark_queue.core.definitions.keys import valid_name
from spark_queue.core.message_files.message_type import MessageTypeState
from spark_queue.core.message_files.segment import from_record
from spark_queue.core.records import (
    BODIES,
    CLAIMED,
    DEAD_LETTER_REASONS,
    FORMAT,
    NUMBER_MAX,
    RETURNED_CLAIM,
    Body,
    Kind,
    OriginRows,
    Record,
    Removal,
    Unread,
    refuse_unknown,
)
from spark_queue.core.state.ownership import Stage
from spark_queue.errors import JournalError, SparkQueueError

#: Most messages of one type that a journal has ever had: the bitmap of as many has 320 MB.
MESSAGES_MOST = 2**38

#: Most bytes of what a record says of the publishers of one file: of 50,000 where their names are as long as ours are mostly.
PUBLISHERS_BYTES = 4 * 1024 * 1024

#: Most messages that one record may say were never in a queue; requests name fewer.
ABSENT_MOST = 2**24

#: The name of a message file; anything else could lead out of the folder of the peer's message type.
_PATH = re.compile(r"[0-9a-f]{32}\.parquet")

_ENDINGS: Collection[str | None] = frozenset(Removal) - DEAD_LETTER_REASONS

#: Why messages of a replicated queue die: none of them stands in a table that somebody follows.
_DEATHS: Collection[str | None] = DEAD_LETTER_REASONS - {Removal.LOST}

#: Reasons that each kind may have, where the stage does not say more.
_REASONS: Mapping[str, Collection[str | None]] = {
    Kind.REMOVED: frozenset(Removal) - {Removal.LOST},
    Kind.DEAD_LETTERED: _DEATHS,
    Kind.TRANSFERRED: (None, CLAIMED, RETURNED_CLAIM),
}

#: Reasons of a `replicated` record: why a message ended, or the kind of the record that moved it.
_REASONS_OF_STAGE: Mapping[Stage, Collection[str | None]] = {
    Stage.PRESENT: (Kind.REDRIVEN, Kind.TRANSFERRED, Kind.DEAD_LETTERED, Kind.NAMED),
    Stage.DEAD: _DEATHS,
    Stage.GONE: {*_ENDINGS, Kind.REDRIVEN},
}


class Known(Protocol):
    """The knowledge of a peer that its records are checked against."""

    @property
    def instance(self) -> str:
        """Name of its instance."""
        ...

    @property
    def journal_id(self) -> str:
        """UUID of its journal; empty before its first record."""
        ...

    @property
    def definitions(self) -> Definitions:
        """Its definitions."""
        ...

    @property
    def message_types(self) -> Mapping[str, MessageTypeState]:
        """Its message types, by name."""
        ...

    @property
    def instances(self) -> Mapping[str, str]:
        """Names of instances, by the UUID of their journal."""
        ...


@singledispatch
def _fault(_body: Body, _record: Record, _known: Known) -> str | None:
    """Return what is wrong with a record by what is known of its peer; None where nothing is, or it tells nothing."""
    return None


@_fault.register
def _(body: records.JournalCreated, record: Record, known: Known) -> str | None:
    if known.journal_id != "":
        return "a journal is created once."
    if body.format > FORMAT:
        raise JournalError("PROTOCOL_NEWER", path=known.instance, what=f"format {body.format} (known: {FORMAT})")
    return None if record.record == 0 else "a log begins with the creation of its journal."


@_fault.register
def _(body: records.DefinitionsApplied, _record: Record, _known: Known) -> str | None:
    try:
        parsing.parse(body.definitions)
    except SparkQueueError as reason:
        return f"its definitions are refused: {reason}"
    except Exception as reason:  # noqa: BLE001  # Of what a peer calls definitions anything can be the matter.
        return f"its definitions cannot be read: {reason!r:.200}."
    return None


@_fault.register
def _(body: records.Entered, record: Record, known: Known) -> str | None:
    message_type, fault = known.message_types[str(record.message_type)], _instances_fault(body.instances, known)
    if fault is not None:
        return fault
    if len(record.ranges) != 1 or _ranges_fault(record.ranges) is not None:
        return "messages of a file have one range of bookmarks."
    if body.partition is not None:
        return "its file is in a table, and its message type follows none."
    segment = from_record(record)
    if segment.first != message_type.entered_until:
        return f"bookmarks go on at {message_type.entered_until}, and it begins at {segment.first}."
    if segment.until > MESSAGES_MOST:
        return f"it has {segment.until} messages, and {MESSAGES_MOST} are the most."
    if segment.row_count != body.rows:
        return f"it has {segment.row_count} bookmarks for {body.rows} messages."
    if len(segment.publishers) > segment.row_count:
        return "it has more publishers than messages."
    if any(row < before + length for (before, length, _, _), (row, _, _, _) in pairwise(segment.origins)):
        return "its origins do not fit its messages."
    fault = _origins_fault(segment.origins, segment.row_count, message_type, segment.instances, known)
    return fault or _path_fault([body.path])


@_fault.register
def _(_body: records.Decided, record: Record, _known: Known) -> str | None:
    is_named = record.queue is not None and valid_name(record.queue)
    return _ranges_fault(record.ranges) if is_named else f"{record.queue!r:.100} is no name of a queue."


@_fault.register
def _(body: records.Named, record: Record, known: Known) -> str | None:
    of_type = known.message_types[str(record.message_type)]
    fault = _instances_fault(body.instances, known)
    return fault or _origins_fault(body.names, of_type.entered_until, of_type, body.instances, known)


@_fault.register
def _(body: records.Moved, record: Record, known: Known) -> str | None:
    is_whole = all(known.message_types[str(record.message_type)].fits(file) for file in body.files)
    return _path_fault([file.path for file in body.files]) if is_whole else "it merges files that do not hold what it says."


@_fault.register
def _(_body: records.Retired, record: Record, known: Known) -> str | None:
    until, fault = known.message_types[str(record.message_type)].entered_until, _ranges_fault(record.ranges)
    is_beyond = fault is None and len(record.ranges) and record.ranges[-1][1] > until
    return f"only messages to {until} have entered." if is_beyond else fault


@_fault.register
def _(body: records.Pulled, _record: Record, known: Known) -> str | None:
    return _instances_fault({body.journal: body.peer}, known)


@_fault.register
def _(body: records.Restored, _record: Record, known: Known) -> str | None:
    return _instances_fault({body.origin_uuid: known.instance}, known)


@_fault.register
def _(body: records.Valued, record: Record, _known: Known) -> str | None:
    is_replicated = isinstance(body, records.Replicated)
    is_owned = isinstance(body, records.Transferred) or (is_replicated and body.stage != Stage.GONE)
    if (is_owned or body.owner) and not valid_name(body.owner):
        return f"its owner {body.owner!r:.100} is no name of an instance."
    reasons = _REASONS_OF_STAGE[Stage(body.stage)] if is_replicated else _REASONS.get(record.kind)
    if reasons is not None and record.reason not in reasons:
        return f"{record.reason!r:.100} is no reason for it."
    if isinstance(body, records.Removed | records.Replicated) and record.reason in DEAD_LETTER_REASONS:
        is_told = body.deliveries is not None and body.cancels is not None
        return None if is_told else "it does not say how often its messages were delivered and cancelled."
    return None


@_fault.register
def _(body: records.TransferRequested, _record: Record, known: Known) -> str | None:
    if body.requester == body.owner:
        return f"'{body.owner}' asks itself."
    if body.requester != known.instance and not body.passed:
        return f"it asks in the name of '{body.requester}', and passed nobody."
    return None


@_fault.register
def _(body: records.NotInQueue, _record: Record, _known: Known) -> str | None:
    fault = next(filter(None, map(_ranges_fault, body.origins.values())), None)
    count = sum(until - first for ranges in body.origins.values() for first, until in ranges)
    return f"it speaks of {count} messages, which nobody asked for." if fault is None and count > ABSENT_MOST else fault


def _path_fault(paths: Sequence[str]) -> str | None:
    """Return what is wrong with paths of files: those that are no names of ours could lead out of their folder."""
    bad = [path for path in paths if _PATH.fullmatch(path) is None]
    return f"{bad[0][:100]!r} is no name of a message file." if bad else None


def _ranges_fault(ranges: Sequence[tuple[int, int]]) -> str | None:
    edges = ranges.edges if isinstance(ranges, RangeArray) else np.array(ranges, dtype=np.int64).reshape(-1)
    # Compared, since the difference of two may be none of 64 bits.
    if (edges < 0).any() or (edges[1:] < edges[:-1]).any() or (edges[::2] == edges[1::2]).any():
        return "its ranges do not ascend."
    return None


def _instances_fault(instances: Mapping[str, str], known: Known) -> str | None:
    for origin, name in instances.items():
        before = known.instances.get(origin, name)
        if before != name:
            return f"it says that journal {origin} is instance '{name}', and it is '{before}'."
    return None


def _origins_fault(
    origins: Sequence[OriginRows], until: int, message_type: MessageTypeState, instances: Mapping[str, str], known: Known
) -> str | None:
    """Return what is wrong with where rows up to one, or messages, were first published."""
    for row, length, origin, bookmark in origins:
        if length < 1 or row + length > until or bookmark + length >= NUMBER_MAX:
            return "its origins do not fit its messages."
        # A journal that was restored gets back what it had lost.
        is_other = origin != known.journal_id or message_type.origins.renewed
        if not is_other or (origin not in instances and origin not in known.instances):
            return f"its origin {origin} is no other journal that it names."
    by_origin = sorted((origin, bookmark, bookmark + length) for _, length, origin, bookmark in origins)
    twice = any(one[0] == next_[0] and next_[1] < one[2] for one, next_ in pairwise(by_origin))
    return "messages of an origin enter twice." if twice or message_type.origins.holds(origins) else None


#: Records of which the message type must be known.
_OF_TYPES = (records.Entered, records.Decided, records.Named, records.Moved, records.Retired)

#: Records of messages of a queue, which tell something only where its definitions have that.
_OF_QUEUES = (records.Valued, records.TransferRequested)


def refused(peer: str, record: Record, reason: str) -> JournalError:
    """Make PEER_REFUSED for a record of a peer."""
    return JournalError("PEER_REFUSED", peer=peer, what=f"record {record.record} ({record.kind[:50]})", reason=reason)


def is_sound(record: Record) -> bool:
    """Return whether a record's body is one of its kind, or of one that is not known here."""
    return not isinstance(record.body, Unread) or record.body.fault is None


def is_of_table(record: Record, known: Known) -> bool:
    """Return whether a record is about messages of a table that its peer follows, which nobody pulls (R149)."""
    queue = known.definitions.queues.get(str(record.queue))
    name = record.message_type if queue is None or record.message_type is not None else queue.message_type
    found = known.definitions.message_types.get(str(name))
    return found is not None and found.table is not None


def check(record: Record, known: Known) -> None:
    """Refuse a peer's next record that no honest software of ours writes."""
    refuse_unknown(record, path=known.instance)
    if isinstance(record.body, Unread):
        if record.body.fault is not None and _tells(BODIES[record.kind]):
            raise refused(known.instance, record, record.body.fault)
        return
    if _tells(type(record.body)) and known.journal_id == "" and not isinstance(record.body, records.JournalCreated):
        raise refused(known.instance, record, "a log begins with the creation of its journal.")
    if isinstance(record.body, _OF_TYPES) and str(record.message_type) not in known.message_types:
        raise refused(known.instance, record, "its journal has no such message type.")
    if is_of_table(record, known):
        return
    fault = None
    if isinstance(record.body, _OF_QUEUES):
        if record.queue not in known.definitions.queues:
            return
        fault = _ranges_fault(record.ranges)
    fault = fault or _fault(record.body, record, known)
    if fault is not None:
        raise refused(known.instance, record, fault)


def _tells(kind: type[Body]) -> bool:
    """Return whether records of a kind tell a peer something."""
    return _fault.dispatch(kind) is not _fault.dispatch(Body)


def check_move(record: Record, known: Known) -> None:
    """Refuse a later record of where messages went, which is looked at before its turn."""
    if isinstance(record.body, Unread):
        raise refused(known.instance, record, str(record.body.fault))
    paths = [file.path for file in record.body.files] if isinstance(record.body, records.Moved) else []
    fault = _ranges_fault(record.ranges) or _path_fault(paths)
    if fault is not None:
        raise refused(known.instance, record, fault)
