"""Whether the definitions of instances fit each other: the rules that a shared queue needs (R106, R113, R116; DESIGN 17.7).

`sparkq peers check` asks for all instances that it can read, a coordinator for each peer that it pulls from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from spark_queue.core.definitions.agreement import Disagreement, Rule
from spark_queue.core.definitions.definition import Definitions, PeerDefinition, QueueDefinition
from spark_queue.core.definitions.keys import GROUP_LOCAL
from spark_queue.errors import ConfigError
from spark_queue.journal.schema import user_schema

#: What must be the same of a queue, besides its columns: keys of definition files.
_SAME = ("message_type", "underlying_topic", "filter", "barrier", "semantics", "ownership", "initial_owner", "dead_letter_queue")

#: Longest reason, in characters: filters may be long, and a peer's text is its own.
_REASON_MAX = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenRule:
    """What breaks a rule between the definitions of two instances."""

    rule: str
    queue: str
    #: The instance that pulls, and the one that it pulls from; of R113.5 who does not hear, and whom.
    instance: str
    peer: str
    reason: str


def find(known: Mapping[str, Definitions]) -> list[BrokenRule]:
    """Return what breaks the rules between instances, each pair and queue once.

    Parameters
    ----------
    known : Mapping of str to Definitions
        By the name of the instance. What those leave open who are not known counts as in order.
    """
    found: list[BrokenRule] = []
    told: set[tuple[str, str, str, str]] = set()
    for instance, own in known.items():
        for peer in own.peers.values():
            for broken in between(instance, own, peer, known[peer.name]) if peer.name in known else ():
                # Two definitions differ from both sides.
                if (peer.name, instance, broken.rule, broken.queue) not in told:
                    told.add((instance, peer.name, broken.rule, broken.queue))
                    found.append(_broken(instance, peer.name, broken))
    return [*found, *unheard(known)]


def of_peer(own: Definitions, peer: PeerDefinition, known: Mapping[str, Definitions]) -> list[Disagreement]:
    """Return what the coordinator of an instance tells of one of its peers.

    Parameters
    ----------
    known : Mapping of str to Definitions
        Those of all peers, as far as they were read.
    """
    instance = str(own.journal.instance)
    paths = unheard({**known, instance: own})
    told = [each for each in paths if each.instance == peer.name or (each.instance, each.peer) == (instance, peer.name)]
    unheard_of = (Disagreement(each.rule, each.queue, each.reason) for each in told)
    return sorted([*between(instance, own, peer, known[peer.name]), *unheard_of])


def between(instance: str, own: Definitions, peer: PeerDefinition, theirs: Definitions) -> Iterator[Disagreement]:
    """Yield what breaks the rules of an instance and one of its peers, for each queue that it pulls from there."""
    back = theirs.peers.get(instance)
    for name in peer.queues:
        if back is None or name not in back.queues:
            yield _disagreement(Rule.BOTH_WAYS, name, f"'{peer.name}' does not pull it from '{instance}'.")
        queue, other = own.queues[name], theirs.queues.get(name)
        if other is None:
            yield _disagreement(Rule.SAME_QUEUES, name, f"'{peer.name}' has no queue of this name.")
            continue
        yield from _differences(queue, other, own, theirs)
        if queue.underlying_topic is not None and not peer.pulls(queue.underlying_topic):
            yield _disagreement(Rule.TOPICS, name, f"its topic '{queue.underlying_topic}' is not pulled.")


def _differences(queue: QueueDefinition, other: QueueDefinition, own: Definitions, theirs: Definitions) -> Iterator[Disagreement]:
    mine, there = _domain(queue, own), _domain(other, theirs)
    if queue.ownership == other.ownership == GROUP_LOCAL and mine != there:
        reason = f"here it is of domain '{mine}', and there of '{there}': set group_local_domain, or [journal] group."
        yield _disagreement(Rule.SAME_QUEUES, queue.name, reason)
    for key in _SAME:
        here, elsewhere = getattr(queue, key), getattr(other, key)
        if here != elsewhere:
            yield _disagreement(Rule.SAME_DEFINITION, queue.name, f"{key} is {here!r} here, and {elsewhere!r} there.")
    if _columns(queue.columns) != _columns(other.columns):
        reason = f"its columns are '{queue.columns}' here, and '{other.columns}' there."
        yield _disagreement(Rule.SAME_DEFINITION, queue.name, reason)


def _domain(queue: QueueDefinition, of: Definitions) -> str | None:
    """Return what tells a group_local queue from others of its name (R116)."""
    return queue.group_local_domain or of.journal.group or of.journal.instance


def _columns(text: str) -> Mapping[str, pa.DataType] | str:
    """Return columns in any order; the text where this software does not know them all."""
    try:
        return {field.name: field.type for field in user_schema(text)}
    except ConfigError:
        return text


def unheard(known: Mapping[str, Definitions]) -> Iterator[BrokenRule]:
    """Yield whose messages and outcomes do not reach an instance that has the queue, by whatever way (R106)."""
    queues = {name: None for each in known.values() for peer in each.peers.values() for name in peer.queues}
    for queue in queues:
        members = [name for name, each in known.items() if _shares(name, queue, known)]
        for origin in members:
            hearing = _hearing(origin, queue, known)
            for instance in members:
                if instance not in hearing:
                    reason = f"what '{origin}' publishes and settles reaches '{instance}' by no way: let it pull, or pass through."
                    yield _broken(instance, origin, _disagreement(Rule.PATHS, queue, reason))


def _shares(instance: str, queue: str, known: Mapping[str, Definitions]) -> bool:
    """Return whether an instance pulls a queue, or is pulled for it."""
    pulled = (peer for each in known.values() for peer in each.peers.values() if peer.name == instance)
    return known[instance].is_replicated(queue) or any(queue in peer.queues for peer in pulled)


def _hearing(origin: str, queue: str, known: Mapping[str, Definitions]) -> set[str]:
    """Return who hears of an origin; whoever is not known may hear of everybody."""
    hearing, grown = {origin}, True
    while grown:
        grown = False
        for instance, own in known.items():
            peers = (peer for peer in own.peers.values() if queue in peer.queues)
            if instance not in hearing and any(_brings(peer, origin, hearing, known) for peer in peers):
                hearing.add(instance)
                grown = True
    return hearing


def _brings(peer: PeerDefinition, origin: str, hearing: set[str], known: Mapping[str, Definitions]) -> bool:
    hears = peer.name in hearing or peer.name not in known
    return hears and (peer.name == origin or peer.passes(origin, known[origin].journal.group or origin))


def _broken(instance: str, peer: str, found: Disagreement) -> BrokenRule:
    return BrokenRule(rule=found.rule, queue=found.queue, instance=instance, peer=peer, reason=found.reason)


def _disagreement(rule: Rule, queue: str, reason: str) -> Disagreement:
    return Disagreement(rule=rule, queue=queue, reason=reason if len(reason) <= _REASON_MAX else f"{reason[: _REASON_MAX - 1]}…")
