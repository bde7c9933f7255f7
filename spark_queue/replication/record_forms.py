"""The form that each record of a peer must have, field by field, and its bounds (DESIGN 17.3).

Parts of a peer's log as they are handed over: what their messages need first, then what their records say (DESIGN 17.3).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec

from spark_queue.core.deciding.instances.replicating import News
from spark_queue.core.definitions.keys import NAME_PATTERN
from spark_queue.core.message_files.segment import Segment
from spark_queue.core.records import Kind, Record
from spark_queue.core.state.ownership import COUNT_MAX, Stage

#: Messages after which what was read is handed over: the loop serves others before it takes the next.
PART_ROWS = 500_000


@dataclass(frozen=True, slots=True)
class Chunk:
    """Records one after the other; messages that entered, and news, with the index of their record."""

    records: list[Record]
    entered: list[tuple[int, Segment]]
    news: list[tuple[int, News]]

    def before(self, segment: Segment) -> Chunk:
        """Return what comes before messages that entered."""
        until = next(
            index for index, each in self.entered if (each.message_type, each.first) == (segment.message_type, segment.first)
        )
        entered = [each for each in self.entered if each[0] < until]
        return Chunk(self.records[:until], entered, [each for each in self.news if each[0] < until])


def parts_of(records: Sequence[Record]) -> Iterator[Sequence[Record]]:
    """Cut records where their messages are many, but never within one commit of messages."""
    start = rows = 0
    version: object = None
    for index, record in enumerate(records):
        if record.kind == Kind.ENTERED:
            # What is wrong with it is told when it is taken.
            count, commit = record.detail.get("rows"), (record.message_type, record.detail.get("version"))
            if rows >= PART_ROWS and commit != version:
                yield records[start:index]
                start, rows = index, 0
            rows, version = rows + (count if isinstance(count, int) else 0), commit
    if start < len(records):
        yield records[start:]


#: Bookmarks, versions and numbers of records are below this: sums of two of them are 64-bit integers still.
NUMBER_MAX = 2**53

#: Most messages of one type that a journal has ever had: the bitmap of as many has 320 MB.
MESSAGES_MOST = 2**38

#: Longest text of an error, in characters; ours have up to 4,000.
ERROR_MAX = 16_000

#: Longest token or digest, in characters; ours have 32 and 64.
_TOKEN_MAX = 200

#: Longest name of a publisher, in bytes; in records, in characters.
PUBLISHER_MAX = 1_000

#: Most bytes of what a record says of the publishers of one file: of 50,000 where their names are as long as ours are mostly.
PUBLISHERS_BYTES = 4 * 1024 * 1024

#: Most instances that a transfer request has passed.
_PASSED_MAX = 100

#: What a peer may call anything, and what it may count to.
Name = Annotated[str, msgspec.Meta(pattern=rf"\A(?!\.{{1,2}}\Z){NAME_PATTERN.pattern}\Z")]
_Id = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9._-]{1,64}\Z")]
_Text = Annotated[str, msgspec.Meta(max_length=_TOKEN_MAX)]
_Publisher = Annotated[str, msgspec.Meta(max_length=PUBLISHER_MAX)]
Number = Annotated[int, msgspec.Meta(ge=0, lt=NUMBER_MAX)]
#: Lives, terms, and counts of deliveries.
_Count = Annotated[int, msgspec.Meta(ge=0, le=COUNT_MAX)]
_Instant = Annotated[int, msgspec.Meta(gt=-NUMBER_MAX, lt=NUMBER_MAX)]


class CreatedForm(msgspec.Struct):
    """How a log begins."""

    journal: _Id
    format: Annotated[int, msgspec.Meta(ge=1)]


class AppliedForm(msgspec.Struct):
    """Definitions that hold from then on."""

    definitions: dict[str, Any]


class EnteredForm(msgspec.Struct):
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


class DecidedForm(msgspec.Struct):
    """An origin's word on messages for a queue, once."""

    owner: Name | msgspec.UnsetType = msgspec.UNSET
    barrier: bool = False


class NamedForm(msgspec.Struct):
    """Further names of messages that entered before."""

    names: list[tuple[Number, Number, _Id, Number]]
    instances: dict[_Id, Name]


class _MergedFileForm(msgspec.Struct):
    path: _Text
    parts: list[tuple[_Text, Number, Number, Number]] = msgspec.field(name="from")


class MovedForm(msgspec.Struct):
    """Files that were merged."""

    version: Number
    token: _Text
    files: list[_MergedFileForm]


class PulledForm(msgspec.Struct):
    """How far another instance was pulled."""

    peer: Name
    journal: _Id
    number: Annotated[int, msgspec.Meta(ge=-1, lt=NUMBER_MAX)]
    digest: _Text
    origin_uuid: _Id | msgspec.UnsetType = msgspec.UNSET


class RestoredForm(msgspec.Struct):
    """That a journal was restored from a backup."""

    origin_uuid: _Id
    since: Annotated[dict[Name, Number], msgspec.Meta(max_length=1_000)]


class ValueForm(msgspec.Struct):
    """The fate of messages of a queue."""

    life: _Count = 0
    term: _Count = 0
    owner: str = ""
    stage: Stage = Stage.PRESENT
    deliveries: _Count | msgspec.UnsetType = msgspec.UNSET
    cancels: _Count | msgspec.UnsetType = msgspec.UNSET
    source: Name | msgspec.UnsetType = msgspec.UNSET
    error: Annotated[str, msgspec.Meta(max_length=ERROR_MAX)] | msgspec.UnsetType = msgspec.UNSET
    settled_in: Name | msgspec.UnsetType = msgspec.UNSET


class RequestForm(msgspec.Struct):
    """A request for messages: from whom, to whom, and for how many of those that it names."""

    requester: Name
    owner: Name
    passed: Annotated[list[Name], msgspec.Meta(max_length=_PASSED_MAX)] = []
    limit: Annotated[int, msgspec.Meta(ge=1, lt=NUMBER_MAX)] | msgspec.UnsetType = msgspec.UNSET
    life: _Count = 0


#: Most messages that one record may say were never in a queue; requests name fewer.
ABSENT_MOST = 2**24


class AbsentForm(msgspec.Struct):
    """Messages that were asked for and never were in the queue, by origin."""

    origins: dict[_Id, list[tuple[Number, Number]]]
    life: _Count = 0


#: The form of each kind's detail; what other kinds say tells a peer nothing.
FORMS: Mapping[str, type[msgspec.Struct]] = {
    Kind.JOURNAL_CREATED: CreatedForm,
    Kind.DEFINITIONS_APPLIED: AppliedForm,
    Kind.ENTERED: EnteredForm,
    Kind.DECIDED: DecidedForm,
    Kind.NAMED: NamedForm,
    Kind.MOVED: MovedForm,
    Kind.PULLED: PulledForm,
    Kind.TRANSFER_REQUESTED: RequestForm,
    Kind.NOT_IN_QUEUE: AbsentForm,
    Kind.RESTORED: RestoredForm,
    **dict.fromkeys((Kind.REMOVED, Kind.REDRIVEN, Kind.DEAD_LETTERED, Kind.TRANSFERRED, Kind.REPLICATED), ValueForm),
}


def is_sound(record: Record) -> bool:
    """Return whether a record's detail has its form."""
    return not isinstance(detail_of(record), str)


def detail_of(record: Record) -> Any:
    """Return a record's detail in its form; a text says what is wrong with it."""
    try:
        return msgspec.convert(record.detail, FORMS[record.kind])
    except msgspec.ValidationError as reason:
        return f"its detail is wrong: {reason}."


def checked_detail(record: Record) -> Mapping[str, Any]:
    """Return what the form of a sound record names of its detail: all else was checked by nobody."""
    form = FORMS.get(record.kind)
    return {} if form is None else {name: record.detail[name] for name in form.__struct_fields__ if name in record.detail}
