"""Operators' statements about a journal and its peers (DESIGN 17.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from spark_queue.core.message_files.message_type import MessageTypeState
from spark_queue.core.records import Record, Restored


@dataclass(frozen=True, slots=True)
class Restoration:
    """That a journal was restored from a backup: the UUID of its origin from then on, and its first bookmark by message type."""

    origin: str
    since: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Returning:
    """That an instance grants nothing that it owns of replicated queues before it has heard from its peers (DESIGN 17.6)."""

    #: The time at which that began.
    since_ms: int
    #: Whether nobody can have claimed from it, since it is new: then it waits only for the peers that can be read.
    joins: bool
    #: The peers for which it does not wait, by an operator's statement.
    excused_peers: frozenset[str]
    #: The queues that begin here, where others go on; empty where none does.
    queues: frozenset[str] = frozenset()

    def holds(self, queue: str) -> bool:
        """Return whether a replicated queue waits for it."""
        return not self.queues or queue in self.queues


@dataclass(slots=True)
class PeerChanges:
    """Operators' statements about peers, by the name of their instance, and about the journal itself.

    Attributes
    ----------
    skips : set of str
        Peers with records that are applied although some of their messages are lost, until a watermark says up to which.
    forgotten : set of str
        Peers that are gone for good, until something of them is pulled.
    restorations : list of Restoration
        As often as the journal was restored, in this order.
    """

    skips: set[str] = field(default_factory=set)
    forgotten: set[str] = field(default_factory=set)
    restorations: list[Restoration] = field(default_factory=list)


def restoration_of(record: Record) -> Restoration:
    """Return what a `restored` record says."""
    body = record.body_as(Restored)
    return Restoration(body.origin_uuid, body.since)


def renew_origins(message_types: Mapping[str, MessageTypeState], restorations: Sequence[Restoration]) -> None:
    """Let each message type know from which bookmark on which origin holds, instead of the journal's first."""
    for name, known in message_types.items():
        renewed: list[tuple[int, str]] = []
        for each in restorations:
            # A type that came later has nothing of an earlier origin.
            since = each.since.get(name, 0)
            renewed = [*(earlier for earlier in renewed if earlier[0] < since), (since, each.origin)]
        known.origins.renewed = renewed
