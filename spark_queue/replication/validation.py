"""Whether the definitions of instances fit each other: the rules that a shared queue needs (R106, R113, R116; DESIGN 17.7).

`sparkq peers check` asks for all instances that it can read, a coordinator for each peer that it pulls from.

Whether a peer's definitions fit, as its log is read: what is told of it, and which news wait until they do (DESIGN 17.7).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from spark_queue.core.definitions.column_names import ColumnNames
from spark_queue.core.definitions.definition import WITHHOLDING, Definitions, Disagreement, PeerDefinition, QueueDefinition, Rule
from spark_queue.core.definitions.keys import GROUP_LOCAL
from spark_queue.errors import ConfigError
from spark_queue.journal.schema import user_schema

#: What must be the same of a queue, besides its columns, and what may differ: keys of definition files.
_SAME = ("message_type", "underlying_topic", "semantics", "dead_letter_queue")
_MAY_DIFFER = ("filter", "barrier", "ownership", "initial_owner")

#: Longest reason, in characters: filters may be long, and a peer's text is its own.
_REASON_MAX = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenRule:
    """A broken rule between the definitions of two instances."""

    rule: str
    queue: str
    #: The instance that pulls, and the one that it pulls from; of R113.5 who does not hear, and whom.
    instance: str
    peer: str
    reason: str


def find(known: Mapping[str, Definitions]) -> list[BrokenRule]:
    """Return what breaks the rules between instances, each pair and queue once; what unknown ones leave open is in order."""
    found: list[BrokenRule] = []
    told: set[tuple[str, str, str, str]] = set()
    for instance, own in known.items():
        for peer in own.peers.values():
            theirs = known.get(peer.name)
            for broken in () if theirs is None else (*between(instance, own, peer, theirs), *_nobodys(own, peer, theirs)):
                # Two definitions differ from both sides.
                if (peer.name, instance, broken.rule, broken.queue) not in told:
                    told.add((instance, peer.name, broken.rule, broken.queue))
                    found.append(_broken(instance, peer.name, broken))
    return [*found, *(_broken(*each) for each in _unheard(known))]


def of_peer(own: Definitions, peer: PeerDefinition, known: Mapping[str, Definitions]) -> list[Disagreement]:
    """Return what the coordinator of an instance tells of one of its peers, as far as they were read: what is to be put right."""
    instance = str(own.journal.instance)
    paths = _unheard({**known, instance: own})
    unheard_of = [each for deaf, origin, each in paths if deaf == peer.name or (deaf, origin) == (instance, peer.name)]
    broken = [each for each in between(instance, own, peer, known[peer.name]) if each.rule != Rule.SAME_MEMBERS]
    return sorted([*broken, *unheard_of])


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


def _nobodys(own: Definitions, peer: PeerDefinition, theirs: Definitions) -> Iterator[Disagreement]:
    """Yield the shared queues of which messages come from a peer that does not have them, while no first owner is named (R129)."""
    for name in sorted(own.replicated):
        queue = own.queues[name]
        has_topic = queue.message_type in theirs.message_types
        is_pulled = has_topic and queue.underlying_topic is not None and peer.pulls(queue.underlying_topic)
        if is_pulled and name not in peer.queues and name not in theirs.queues and queue.initial_owner is None:
            reason = f"'{peer.name}' has its topic but not the queue, so its messages stay undecided: name an initial_owner."
            yield _disagreement(Rule.SAME_QUEUES, name, reason)


def _differences(queue: QueueDefinition, other: QueueDefinition, own: Definitions, theirs: Definitions) -> Iterator[Disagreement]:
    mine, there = _domain(queue, own), _domain(other, theirs)
    if queue.ownership == other.ownership == GROUP_LOCAL and mine != there:
        reason = f"here it is of domain '{mine}', but there of '{there}': set group_local_domain, or [journal] group."
        yield _disagreement(Rule.SAME_QUEUES, queue.name, reason)
    for rule, keys in ((Rule.SAME_DEFINITION, _SAME), (Rule.SAME_MEMBERS, _MAY_DIFFER)):
        for key in keys:
            here, elsewhere = getattr(queue, key), getattr(other, key)
            if here != elsewhere:
                yield _disagreement(rule, queue.name, f"{key} is {here!r} here, and {elsewhere!r} there.")
    own_columns, columns = columns_of(queue.columns), columns_of(other.columns)
    if own_columns != columns:
        # A column that only one of them has is copied all the same, and shows here once it is declared.
        rule = Rule.SAME_MEMBERS if agree(own_columns, columns) else Rule.SAME_DEFINITION
        yield _disagreement(rule, queue.name, f"its columns are '{queue.columns}' here, and '{other.columns}' there.")


def _domain(queue: QueueDefinition, of: Definitions) -> str | None:
    """Return what tells a group_local queue from others of its name (R116)."""
    return queue.group_local_domain or of.journal.group or of.journal.instance


def agree(mine: Mapping[str, pa.DataType] | str, there: Mapping[str, pa.DataType] | str) -> bool:
    """Return whether columns that are in both have one spelling and one type."""
    if isinstance(mine, str) or isinstance(there, str):
        return False
    names = ColumnNames(there)
    return all((known := names.find(name)) is None or (known == name and there[name] == kind) for name, kind in mine.items())


def columns_of(text: str) -> Mapping[str, pa.DataType] | str:
    """Return columns in any order; the text where this software does not know them all."""
    try:
        return {field.name: field.type for field in user_schema(text)}
    except ConfigError:
        return text


def _unheard(known: Mapping[str, Definitions]) -> Iterator[tuple[str, str, Disagreement]]:
    """Yield which instance that has a queue the messages and outcomes of another do not reach, by whatever way (R106)."""
    queues = {name: None for each in known.values() for peer in each.peers.values() for name in peer.queues}
    for queue in queues:
        members = [name for name, each in known.items() if _shares(name, queue, known)]
        for origin in members:
            hearing = _hearing(origin, queue, known)
            for instance in members:
                if instance not in hearing:
                    reason = f"what '{origin}' publishes and settles does not reach '{instance}': add a peer to pull it from."
                    yield instance, origin, _disagreement(Rule.PATHS, queue, reason)


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


class Fit:
    """How the definitions of a peer break rules with the own.

    Those of all peers by name are shared by their pullers: what reaches whom follows from all of them.
    """

    def __init__(self, own: Definitions, peer: PeerDefinition, definitions: dict[str, Definitions]) -> None:
        self._own = own
        self._peer = peer
        self._definitions = definitions
        self._seen: tuple[tuple[str, Definitions], ...] = ()
        #: What the own log says of it, and what is so now.
        self._told: list[Disagreement] = []
        self._now: list[Disagreement] = []
        #: Queues whose news were withheld before this began.
        self._waiting: frozenset[str] = frozenset()

    def begin(self, told: Sequence[Disagreement], *, reads_all: bool) -> None:
        """Go on with how it broke rules, as the own log says; who reads all of its log misses nothing of it."""
        self._told = self._now = list(told)
        self._waiting = frozenset() if reads_all else _withheld(told)

    def look(self, theirs: Definitions) -> None:
        """Learn what the peer's newest definitions are, and what breaks rules now."""
        self._definitions[self._peer.name] = theirs
        seen = tuple(self._definitions.items())
        if seen == self._seen:
            return
        self._seen = seen
        found = of_peer(self._own, self._peer, dict(seen))
        if len(seen) < len(self._own.peers):
            # Who is not read yet may be whom something did not reach.
            found += [each for each in self._told if each.rule == Rule.PATHS and each not in found]
        self._now = sorted(found)

    def withholds(self, queue: str) -> bool:
        """Return whether news about a queue wait: it is another one there. What was said before it was left stands."""
        return queue in _withheld(self._now) and queue in self._definitions[self._peer.name].queues

    @property
    def fits_again(self) -> bool:
        """Whether a queue fits whose news were withheld, so that the log must be read again."""
        return bool(self._waiting - _withheld(self._now))

    @property
    def changed(self) -> Sequence[Disagreement] | None:
        """The disagreements that the own log is to have from now on; None where it has them already."""
        return self._now if self._now != self._told else None

    def note_told(self) -> None:
        """Note that the own log says what is so now, and that news were withheld by it."""
        self._told = self._now
        self._waiting |= _withheld(self._now)


def _withheld(disagreements: Sequence[Disagreement]) -> frozenset[str]:
    return frozenset(each.queue for each in disagreements if each.rule in WITHHOLDING)
