"""Records of the journal itself: its creation, its reigns, its definitions, and queues that are set aside."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from spark_queue.core.records.record import About, Body
from spark_queue.core.records.vocabulary import Id, Kind, NumberRanges


class JournalCreated(Body, frozen=True, kw_only=True):
    """The first record of every journal."""

    kind = Kind.JOURNAL_CREATED
    about = About.JOURNAL
    separate = True

    #: UUID of the journal, and the version of what is stored.
    journal: Id
    format: Annotated[int, msgspec.Meta(ge=1)]


class EpochClaimed(Body, frozen=True, kw_only=True):
    """A reign begins: the host, the address and the process id of its coordinator."""

    kind = Kind.EPOCH_CLAIMED
    about = About.JOURNAL
    silent = True

    host: str
    address: str
    pid: int


class DefinitionsApplied(Body, frozen=True, kw_only=True):
    """The whole set of definitions, as it holds from then on."""

    kind = Kind.DEFINITIONS_APPLIED
    about = About.JOURNAL
    separate = True

    definitions: dict[str, Any]
    #: The bookmark at which each queue starts that begins, or begins anew.
    resets: dict[str, int]
    #: Of each queue that begins and has a `barrier`, the messages that are there already and are barriers (R75).
    barriers: dict[str, NumberRanges] = msgspec.field(default_factory=dict)
    #: Replicated queues that are put back, and go on from what is known of their messages.
    goes_on: tuple[str, ...] = ()


class SetAside(Body, frozen=True, kw_only=True):
    """A queue has no part in anything until it is revived: something raised when it was worked on (R122)."""

    kind = Kind.SET_ASIDE

    error: str


class Revived(Body, frozen=True):
    """A queue is taken back in: earlier records that set it aside are passed over by every fold from then on."""

    kind = Kind.REVIVED
