"""A record of the control log: an envelope that every record has, and a body with the facts of its kind.

Each kind is one class, beside its subject: its fields, and what its kind means to those who keep, copy or pass over records. A
record is made by a command, committed, and only then believed; state is always the fold of records. Times are milliseconds here
(the log stores microseconds, which hold them exactly).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, Protocol, TypedDict, TypeVar, Unpack

import msgspec

from spark_queue.core.records.vocabulary import Kind
from spark_queue.errors import JournalError

#: Version of what is stored; a journal that says a higher one is refused.
FORMAT = 1

#: Version of the form of bodies, which is stored with each; a higher one is refused.
BODY_VERSION = 1

#: The class of each kind that is known here.
BODIES: dict[str, type[Body]] = {}


class About(StrEnum):
    """The messages that a record is about."""

    #: Those of its ranges.
    MESSAGES = "messages"
    #: Those of its lease, though it does not name them.
    LEASE = "lease"
    #: All of its queue.
    QUEUE = "queue"
    #: Those of its ranges, in whatever queue of its type.
    FILES = "files"
    #: All of its type.
    TYPE = "type"
    #: All of the journal.
    JOURNAL = "journal"


class Body(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The facts of a record beside its envelope. A field that has its default is not stored."""

    kind: ClassVar[Kind]
    #: Whether software that does not know the kind must refuse the log, since it would go wrong without it.
    critical: ClassVar[bool] = False
    #: Whether its records stand in files of their own, so that statistics alone find them.
    separate: ClassVar[bool] = False
    #: Whether it tells a peer nothing: for such records alone no watermark is written, or two instances would answer each other
    #: for ever.
    silent: ClassVar[bool] = False
    about: ClassVar[About] = About.MESSAGES
    #: Whether its messages are in its queue, whatever is known of them besides (records win, DESIGN 4).
    shows_membership: ClassVar[bool] = False
    #: Whether a call settles or purges its messages by it.
    settles: ClassVar[bool] = False
    #: Whether its message log is read on behind its version.
    reads_on: ClassVar[bool] = False

    #: Id of the request that made it; empty for a timer's work.
    request: str = ""
    #: The caller of a change that somebody asked for by hand: principal, or user, and host.
    by: dict[str, str] = msgspec.field(default_factory=dict)

    def __init_subclass__(cls, **_: object) -> None:
        kind = cls.__dict__.get("kind")
        if isinstance(kind, Kind):
            BODIES[kind] = cls


def kinds_with(have: Callable[[type[Body]], bool]) -> frozenset[str]:
    """Return the kinds of which something is true, by their classes."""
    return frozenset(kind for kind, body in BODIES.items() if have(body))


class Unread(Body, frozen=True, kw_only=True):
    """A body that nobody here reads: of a kind that is not known, or, in the log of a peer, with a fault."""

    #: The text of its kind.
    name: str
    must_be_known: bool = False
    fault: str | None = None


AnyBody = TypeVar("AnyBody", bound=Body)


class RecordColumns(TypedDict, total=False):
    """The columns of a record that say what it is about."""

    message_type: str | None
    queue: str | None
    subscription: str | None
    lease: int | None
    ranges: Sequence[tuple[int, int]]
    reason: str | None
    due_at_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One row of the control log."""

    body: Body
    #: Dense number from 0; -1 until it is appended.
    record: int = -1
    #: The reign that wrote it; 0 for the journal's creation.
    epoch: int = 0
    #: The coordinator's time of the commit, in milliseconds since 1970 UTC.
    at_ms: int = 0
    message_type: str | None = None
    queue: str | None = None
    subscription: str | None = None
    #: Number of the lease, one counter per queue, from 1.
    lease: int | None = None
    #: The bookmarks it speaks of, as half-open ranges, ascending and disjoint.
    ranges: Sequence[tuple[int, int]] = ()
    reason: str | None = None
    #: End of a lease, or the moment a delayed message becomes available, in milliseconds since 1970 UTC.
    due_at_ms: int | None = None
    #: Its detail as it stands in the log, also what other software wrote there; empty before it is stored.
    stored: str = field(default="", compare=False, repr=False)

    @property
    def kind(self) -> str:
        """A `Kind`, or the text of a kind that is not known here."""
        return self.body.name if isinstance(self.body, Unread) else self.body.kind

    def body_as(self, kind: type[AnyBody]) -> AnyBody:
        """Return the body of a record whose kind is known to be this one."""
        assert isinstance(self.body, kind), f"a record of kind '{self.kind}' is taken for a {kind.__name__}"
        return self.body


class Emit(Protocol):
    """Makes, numbers, folds and collects one record."""

    def __call__(self, body: Body, **envelope: Unpack[RecordColumns]) -> None:
        """Record a body, and what it is about."""
        ...


def refuse_unknown(record: Record, *, path: str) -> None:
    """Refuse a record that cannot be skipped and is of no kind that is known here."""
    if isinstance(record.body, Unread) and record.body.must_be_known:
        raise JournalError("PROTOCOL_NEWER", path=path, what=f"records of kind {record.kind[:50]!r}")
