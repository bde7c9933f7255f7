"""Forms of a peer's records: each that matters is checked wholly, field by field, before anything believes it (DESIGN 17.3)."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Annotated, Any, Protocol

import msgspec
import numpy as np

from spark_queue.core.bitmaps.ranges import RangeArray
from spark_queue.core.definitions import parsing
from spark_queue.core.definitions.definition import Definitions
from spark_queue.core.definitions.keys import NAME_PATTERN, valid_name
from spark_queue.core.message_files.message_type import MessageTypeState
from spark_queue.core.message_files.origins import OriginRows
from spark_queue.core.message_files.relocation import merged_files
from spark_queue.core.message_files.segment import from_record
from spark_queue.core.records import CLAIMED, DEAD_LETTER_REASONS, FORMAT, RETURNED_CLAIM, Kind, Record, Removal
from spark_queue.core.state.ownership import COUNT_MAX, Stage
from spark_queue.errors import JournalError, SparkQueueError

#: Bookmarks, versions and numbers of records are below this: sums of two of them are 64-bit integers still.
NUMBER_MAX = 2**53

#: Most messages of one type that a journal has ever had: the bitmap of as many has 320 MB.
MESSAGES_MOST = 2**38

#: Longest name of a publisher, in bytes; in records, in characters.
PUBLISHER_MAX = 1_000

#: Most bytes of what a record says of the publishers of one file: of 50,000 where their names are as long as ours are mostly.
PUBLISHERS_BYTES = 4 * 1024 * 1024

#: What a peer may call anything, and what it may count to.
Name = Annotated[str, msgspec.Meta(pattern=rf"\A(?!\.{{1,2}}\Z){NAME_PATTERN.pattern}\Z")]
_Id = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9._-]{1,64}\Z")]
#: A token or digest; ours have 32 and 64 characters.
_Text = Annotated[str, msgspec.Meta(max_length=200)]
_Publisher = Annotated[str, msgspec.Meta(max_length=PUBLISHER_MAX)]
Number = Annotated[int, msgspec.Meta(ge=0, lt=NUMBER_MAX)]
#: Lives, terms, and counts of deliveries.
_Count = Annotated[int, msgspec.Meta(ge=0, le=COUNT_MAX)]
_Instant = Annotated[int, msgspec.Meta(gt=-NUMBER_MAX, lt=NUMBER_MAX)]

#: The name of a message file; anything else could lead out of the folder of the peer's message type.
_PATH = re.compile(r"[0-9a-f]{32}\.parquet")

_ENDINGS: Collection[str | None] = frozenset(Removal) - DEAD_LETTER_REASONS

#: Reasons that each kind may have, where the stage does not say more.
_REASONS: Mapping[str, Collection[str | None]] = {
    Kind.REMOVED: frozenset(Removal),
    Kind.DEAD_LETTERED: DEAD_LETTER_REASONS,
    Kind.TRANSFERRED: (None, CLAIMED, RETURNED_CLAIM),
}

#: Reasons of a `replicated` record: why a message ended, or the kind of the record that moved it.
_REASONS_OF_STAGE: Mapping[Stage, Collection[str | None]] = {
    Stage.PRESENT: (Kind.REDRIVEN, Kind.TRANSFERRED, Kind.DEAD_LETTERED, Kind.NAMED),
    Stage.DEAD: DEAD_LETTER_REASONS,
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


class _Form(msgspec.Struct):
    """The detail of a record, which says what is wrong with it."""

    def fault(self, _record: Record, _known: Known) -> str | None:
        """Return what is wrong with the record beside its form; None where nothing is."""
        return None


class _CreatedForm(_Form):
    """How a log begins."""

    journal: _Id
    format: Annotated[int, msgspec.Meta(ge=1)]

    def fault(self, record: Record, known: Known) -> str | None:
        if known.journal_id != "":
            return "a journal is created once."
        if self.format > FORMAT:
            raise JournalError("PROTOCOL_NEWER", path=known.instance, what=f"format {self.format} (known: {FORMAT})")
        return None if record.record == 0 else "a log begins with the creation of its journal."


class _AppliedForm(_Form):
    """Definitions that hold from then on."""

    definitions: dict[str, Any]

    def fault(self, _record: Record, _known: Known) -> str | None:
        try:
            parsing.parse(self.definitions)
        except SparkQueueError as reason:
            return f"its definitions are refused: {reason}"
        except Exception as reason:  # noqa: BLE001  # Of what a peer calls definitions anything can be the matter.
            return f"its definitions cannot be read: {reason!r:.200}."
        return None


class _EnteredForm(_Form):
    """A file of messages that entered."""

    path: _Text
    rows: Number
    version: Number
    token: _Text
    topics: tuple[Name, Name]
    published: _Instant | msgspec.UnsetType = msgspec.UNSET
    expires: tuple[Number, _Instant | None, _Instant | None] | None = None
    barriers: dict[Name, list[tuple[Number, Number]]] = {}
    origin: list[tuple[Number, Number, _Id, Number]] = []
    instances: dict[_Id, Name] = {}
    groups: dict[Name, Name] = {}
    publishers: dict[_Publisher, tuple[Number, Number]] = {}
    clashes: list[tuple[Number, Number, _Publisher, Number]] = []

    def fault(self, record: Record, known: Known) -> str | None:
        message_type, fault = known.message_types[str(record.message_type)], _instances_fault(self.instances, known)
        if fault is not None:
            return fault
        if len(record.ranges) != 1 or _ranges_fault(record.ranges) is not None:
            return "messages of a file have one range of bookmarks."
        segment = from_record(record)
        if segment.first != message_type.entered_until:
            return f"bookmarks go on at {message_type.entered_until}, and it begins at {segment.first}."
        if segment.until > MESSAGES_MOST:
            return f"it has {segment.until} messages, and {MESSAGES_MOST} are the most."
        if segment.row_count != self.rows:
            return f"it has {segment.row_count} bookmarks for {self.rows} messages."
        if len(segment.publishers) > segment.row_count:
            return "it has more publishers than messages."
        if any(row < before + length for (before, length, _, _), (row, _, _, _) in pairwise(segment.origins)):
            return "its origins do not fit its messages."
        fault = _origins_fault(segment.origins, segment.row_count, message_type, segment.instances, known)
        return fault or _path_fault([self.path])


class _DecidedForm(_Form):
    """An origin's word on messages for a queue, once."""

    owner: Name | msgspec.UnsetType = msgspec.UNSET
    barrier: bool = False

    def fault(self, record: Record, _known: Known) -> str | None:
        is_named = record.queue is not None and valid_name(record.queue)
        return _ranges_fault(record.ranges) if is_named else f"{record.queue!r:.100} is no name of a queue."


class _NamedForm(_Form):
    """Further names of messages that entered before."""

    names: list[tuple[Number, Number, _Id, Number]]
    instances: dict[_Id, Name]

    def fault(self, record: Record, known: Known) -> str | None:
        of_type = known.message_types[str(record.message_type)]
        fault = _instances_fault(self.instances, known)
        return fault or _origins_fault(self.names, of_type.entered_until, of_type, self.instances, known)


class _MergedFileForm(msgspec.Struct):
    path: _Text
    parts: list[tuple[_Text, Number, Number, Number]] = msgspec.field(name="from")


class _MovedForm(_Form):
    """Files that were merged."""

    version: Number
    token: _Text
    files: list[_MergedFileForm]

    def fault(self, record: Record, known: Known) -> str | None:
        is_whole = all(known.message_types[str(record.message_type)].fits(file) for file in merged_files(record))
        return _path_fault([file.path for file in self.files]) if is_whole else "it merges files that do not hold what it says."


class _RetiredForm(_Form):
    """Messages that were let go; its detail tells a peer nothing."""

    def fault(self, record: Record, known: Known) -> str | None:
        until, fault = known.message_types[str(record.message_type)].entered_until, _ranges_fault(record.ranges)
        is_beyond = fault is None and len(record.ranges) and record.ranges[-1][1] > until
        return f"only messages to {until} have entered." if is_beyond else fault


class _PulledForm(_Form):
    """How far another instance was pulled."""

    peer: Name
    journal: _Id
    number: Annotated[int, msgspec.Meta(ge=-1, lt=NUMBER_MAX)]
    digest: _Text
    origin_uuid: _Id | msgspec.UnsetType = msgspec.UNSET

    def fault(self, _record: Record, known: Known) -> str | None:
        return _instances_fault({self.journal: self.peer}, known)


class _RestoredForm(_Form):
    """That a journal was restored from a backup."""

    origin_uuid: _Id
    since: Annotated[dict[Name, Number], msgspec.Meta(max_length=1_000)]

    def fault(self, _record: Record, known: Known) -> str | None:
        return _instances_fault({self.origin_uuid: known.instance}, known)


class _ValueForm(_Form):
    """The fate of messages of a queue."""

    life: _Count = 0
    term: _Count = 0
    owner: str = ""
    stage: Stage = Stage.PRESENT
    deliveries: _Count | msgspec.UnsetType = msgspec.UNSET
    cancels: _Count | msgspec.UnsetType = msgspec.UNSET
    source: Name | msgspec.UnsetType = msgspec.UNSET
    #: Ours have up to 4,000 characters.
    error: Annotated[str, msgspec.Meta(max_length=16_000)] | msgspec.UnsetType = msgspec.UNSET
    settled_in: Name | msgspec.UnsetType = msgspec.UNSET

    def fault(self, record: Record, _known: Known) -> str | None:
        is_owned = record.kind == Kind.TRANSFERRED or (record.kind == Kind.REPLICATED and self.stage != Stage.GONE)
        if (is_owned or self.owner) and not valid_name(self.owner):
            return f"its owner {self.owner!r:.100} is no name of an instance."
        of_stage = _REASONS_OF_STAGE[self.stage] if record.kind == Kind.REPLICATED else None
        reasons = _REASONS.get(record.kind, of_stage)
        if reasons is not None and record.reason not in reasons:
            return f"{record.reason!r:.100} is no reason for it."
        if record.reason in DEAD_LETTER_REASONS and msgspec.UNSET in (self.deliveries, self.cancels):
            return "it does not say how often its messages were delivered and cancelled."
        return None


class _RequestForm(_Form):
    """A request for messages: from whom, to whom, and for how many of those that it names."""

    requester: Name
    owner: Name
    passed: Annotated[list[Name], msgspec.Meta(max_length=100)] = []
    limit: Annotated[int, msgspec.Meta(ge=1, lt=NUMBER_MAX)] | msgspec.UnsetType = msgspec.UNSET
    life: _Count = 0

    def fault(self, _record: Record, known: Known) -> str | None:
        if self.requester == self.owner:
            return f"'{self.owner}' asks itself."
        if self.requester != known.instance and not self.passed:
            return f"it asks in the name of '{self.requester}', and passed nobody."
        return None


#: Most messages that one record may say were never in a queue; requests name fewer.
ABSENT_MOST = 2**24


class _AbsentForm(_Form):
    """Messages that were asked for and never were in the queue, by origin."""

    origins: dict[_Id, list[tuple[Number, Number]]]
    life: _Count = 0

    def fault(self, _record: Record, _known: Known) -> str | None:
        fault = next(filter(None, map(_ranges_fault, self.origins.values())), None)
        count = sum(until - first for ranges in self.origins.values() for first, until in ranges)
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


#: The form of each kind's detail; what other kinds say tells a peer nothing.
FORMS: Mapping[str, type[_Form]] = {
    Kind.JOURNAL_CREATED: _CreatedForm,
    Kind.DEFINITIONS_APPLIED: _AppliedForm,
    Kind.ENTERED: _EnteredForm,
    Kind.DECIDED: _DecidedForm,
    Kind.NAMED: _NamedForm,
    Kind.MOVED: _MovedForm,
    Kind.RETIRED: _RetiredForm,
    Kind.PULLED: _PulledForm,
    Kind.TRANSFER_REQUESTED: _RequestForm,
    Kind.NOT_IN_QUEUE: _AbsentForm,
    Kind.RESTORED: _RestoredForm,
    **dict.fromkeys((Kind.REMOVED, Kind.REDRIVEN, Kind.DEAD_LETTERED, Kind.TRANSFERRED, Kind.REPLICATED), _ValueForm),
}

#: Kinds of which the message type must be known.
_OF_TYPES = frozenset({Kind.ENTERED, Kind.DECIDED, Kind.NAMED, Kind.MOVED, Kind.RETIRED})


def refused(peer: str, record: Record, reason: str) -> JournalError:
    """Make PEER_REFUSED for a record of a peer."""
    return JournalError("PEER_REFUSED", peer=peer, what=f"record {record.record} ({record.kind[:50]})", reason=reason)


def is_sound(record: Record) -> bool:
    """Return whether a record's detail has its form."""
    return not isinstance(_detail_of(record), str)


def _detail_of(record: Record) -> _Form | str:
    """Return a record's detail in its form; a text says what is wrong with it."""
    try:
        return msgspec.convert(record.detail, FORMS[record.kind])
    except msgspec.ValidationError as reason:
        return f"its detail is wrong: {reason}."


def checked(record: Record, known: Known) -> Record:
    """Return a peer's next record with what its form names of its detail; refuse what no honest software of ours writes.

    All else of its detail was checked by nobody.
    """
    form = FORMS.get(record.kind)
    if form is None:
        if record.kind not in frozenset(Kind) and record.detail.get("critical"):
            raise JournalError("PROTOCOL_NEWER", path=known.instance, what=f"records of kind {record.kind[:50]!r}")
        return replace(record, detail={})
    fault = _fault(record, known)
    if fault is not None:
        raise refused(known.instance, record, fault)
    return replace(record, detail={name: record.detail[name] for name in form.__struct_fields__ if name in record.detail})


def _fault(record: Record, known: Known) -> str | None:
    """Return what is wrong with a record that has a form; None where nothing is."""
    detail = _detail_of(record)
    if isinstance(detail, str):
        return detail
    if known.journal_id == "" and record.kind != Kind.JOURNAL_CREATED:
        return "a log begins with the creation of its journal."
    if record.kind in _OF_TYPES and str(record.message_type) not in known.message_types:
        return "its journal has no such message type."
    if isinstance(detail, _ValueForm | _RequestForm):
        is_known = record.queue in known.definitions.queues
        return _ranges_fault(record.ranges) or detail.fault(record, known) if is_known else None
    return detail.fault(record, known)


def check_move(record: Record, known: Known) -> None:
    """Refuse a later record of where messages went, which is looked at before its turn."""
    detail = _detail_of(record)
    paths = [file.path for file in detail.files] if isinstance(detail, _MovedForm) else []
    fault = detail if isinstance(detail, str) else _ranges_fault(record.ranges) or _path_fault(paths)
    if fault is not None:
        raise refused(known.instance, record, fault)
