"""Whether the definitions of instances fit each other: the rules that a shared queue needs (R106, R113, R116; DESIGN 17.7).

`sparkq peers check` asks for all instances that it can read, a coordinator for each peer that it pulls from.

What a peer may say: each record that matters is checked wholly before anything believes it (DESIGN 17.3).
Whether a peer's definitions fit, as its log is read: what is told of it, and which news wait until they do (DESIGN 17.7).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa

from spark_queue.core.bitmaps.ranges import RangeArray
from spark_queue.core.definitions import parsing
from spark_queue.core.definitions.column_names import ColumnNames
from spark_queue.core.definitions.definition import WITHHOLDING, Definitions, Disagreement, PeerDefinition, QueueDefinition, Rule
from spark_queue.core.definitions.keys import GROUP_LOCAL, valid_name
from spark_queue.core.message_files.message_type import MessageTypeState
from spark_queue.core.message_files.origins import OriginRows
from spark_queue.core.message_files.segment import from_record, merged_files
from spark_queue.core.records import CLAIMED, DEAD_LETTER_REASONS, FORMAT, RETURNED_CLAIM, Kind, Record, Removal
from spark_queue.core.state.ownership import Stage
from spark_queue.errors import ConfigError, JournalError, SparkQueueError
from spark_queue.journal.schema import user_schema
from spark_queue.replication.record_forms import (
    ABSENT_MOST,
    FORMS,
    MESSAGES_MOST,
    NUMBER_MAX,
    AbsentForm,
    AppliedForm,
    CreatedForm,
    DecidedForm,
    EnteredForm,
    MovedForm,
    NamedForm,
    PulledForm,
    RequestForm,
    RestoredForm,
    ValueForm,
    detail_of,
)

if TYPE_CHECKING:
    from spark_queue.replication.news import PeerFold

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


def refused(peer: str, record: Record, reason: str) -> JournalError:
    """Make PEER_REFUSED for a record of a peer."""
    return JournalError("PEER_REFUSED", peer=peer, what=f"record {record.record} ({record.kind[:50]})", reason=reason)


def check(record: Record, known: PeerFold) -> None:
    """Refuse a peer's next record that no honest software of ours writes."""
    reason = _fault(record, known)
    if reason is not None:
        raise refused(known.instance, record, reason)


def check_move(record: Record, known: PeerFold) -> None:
    """Refuse a later record of where messages went, which is looked at before its turn."""
    detail = detail_of(record) if record.kind == Kind.MOVED else None
    reason = detail if isinstance(detail, str) else _ranges_fault(record.ranges)
    if reason is not None:
        raise refused(known.instance, record, reason)
    check_path(record, known)


def check_path(record: Record, known: PeerFold) -> None:
    """Refuse a record of files that have no names of ours: they could lead out of their folder."""
    paths = [record.detail["path"]] if record.kind == Kind.ENTERED else []
    paths += [file.path for file in merged_files(record)] if record.kind == Kind.MOVED else []
    for path in paths:
        if _PATH.fullmatch(path) is None:
            raise refused(known.instance, record, f"{path[:100]!r} is no name of a message file.")


def _fault(record: Record, known: PeerFold) -> str | None:
    """Return what is wrong with a record; None where nothing is."""
    if record.kind not in FORMS:
        if record.kind not in frozenset(Kind) and record.detail.get("critical"):
            raise JournalError("PROTOCOL_NEWER", path=known.instance, what=f"records of kind {record.kind[:50]!r}")
        return _files_fault(record, known) if record.kind == Kind.RETIRED else None
    detail = detail_of(record)
    if isinstance(detail, str):
        return detail
    if known.journal_id == "" and record.kind != Kind.JOURNAL_CREATED:
        return "a log begins with the creation of its journal."
    match detail:
        case CreatedForm():
            return _created_fault(detail, record, known)
        case AppliedForm():
            return _definitions_fault(detail)
        case PulledForm():
            return _instances_fault({detail.journal: detail.peer}, known)
        case EnteredForm() | MovedForm() | NamedForm() | DecidedForm():
            return _files_fault(record, known)
        case RestoredForm():
            return _instances_fault({detail.origin_uuid: known.instance}, known)
        case AbsentForm():
            return _absent_fault(detail)
        case ValueForm() | RequestForm() if record.queue in known.definitions.queues:
            of_kind = _value_fault(detail, record) if isinstance(detail, ValueForm) else _request_fault(detail, known)
            return _ranges_fault(record.ranges) or of_kind
    return None


def _absent_fault(detail: AbsentForm) -> str | None:
    faults = (_ranges_fault(ranges) for ranges in detail.origins.values())
    count = sum(until - first for ranges in detail.origins.values() for first, until in ranges)
    return next(filter(None, faults), None) or (
        f"it speaks of {count} messages, which nobody asked for." if count > ABSENT_MOST else None
    )


def _created_fault(detail: CreatedForm, record: Record, known: PeerFold) -> str | None:
    if known.journal_id != "":
        return "a journal is created once."
    if detail.format > FORMAT:
        raise JournalError("PROTOCOL_NEWER", path=known.instance, what=f"format {detail.format} (known: {FORMAT})")
    return None if record.record == 0 else "a log begins with the creation of its journal."


def _definitions_fault(detail: AppliedForm) -> str | None:
    try:
        parsing.parse(detail.definitions)
    except SparkQueueError as reason:
        return f"its definitions are refused: {reason}"
    except Exception as reason:  # noqa: BLE001  # Of what a peer calls definitions anything can be the matter.
        return f"its definitions cannot be read: {reason!r:.200}."
    return None


def _instances_fault(instances: Mapping[str, str], known: PeerFold) -> str | None:
    for origin, name in instances.items():
        before = known.instances.get(origin, name)
        if before != name:
            return f"it says that journal {origin} is instance '{name}', and it is '{before}'."
    return None


def _files_fault(record: Record, known: PeerFold) -> str | None:
    message_type = known.message_types.get(str(record.message_type))
    if message_type is None:
        return "its journal has no such message type."
    if record.kind == Kind.ENTERED:
        return _instances_fault(record.detail.get("instances", {}), known) or _entered_fault(record, message_type, known)
    if record.kind == Kind.DECIDED:
        is_named = record.queue is not None and valid_name(record.queue)
        return _ranges_fault(record.ranges) if is_named else f"{record.queue!r:.100} is no name of a queue."
    if record.kind == Kind.NAMED:
        names, instances = record.detail["names"], record.detail["instances"]
        until = message_type.entered_until
        return _instances_fault(instances, known) or _origins_fault(names, until, message_type, instances, known)
    if record.kind == Kind.MOVED and not all(message_type.fits(file) for file in merged_files(record)):
        return "it merges files that do not hold what it says."
    if record.kind == Kind.RETIRED:
        return _ranges_fault(record.ranges) or _bounds_fault(record.ranges, message_type.entered_until)
    return None


def _entered_fault(record: Record, message_type: MessageTypeState, known: PeerFold) -> str | None:
    if len(record.ranges) != 1 or _ranges_fault(record.ranges) is not None:
        return "messages of a file have one range of bookmarks."
    segment = from_record(record)
    if segment.first != message_type.entered_until:
        return f"bookmarks go on at {message_type.entered_until}, and it begins at {segment.first}."
    if segment.until > MESSAGES_MOST:
        return f"it has {segment.until} messages, and {MESSAGES_MOST} are the most."
    if segment.row_count != record.detail["rows"]:
        return f"it has {segment.row_count} bookmarks for {record.detail['rows']} messages."
    if len(segment.publishers) > segment.row_count:
        return "it has more publishers than messages."
    if any(row < before + length for (before, length, _, _), (row, _, _, _) in pairwise(segment.origins)):
        return "its origins do not fit its messages."
    return _origins_fault(segment.origins, segment.row_count, message_type, segment.instances, known)


def _origins_fault(
    origins: Sequence[OriginRows], until: int, message_type: MessageTypeState, instances: Mapping[str, str], known: PeerFold
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


def _ranges_fault(ranges: Sequence[tuple[int, int]]) -> str | None:
    edges = ranges.edges if isinstance(ranges, RangeArray) else np.array(ranges, dtype=np.int64).reshape(-1)
    # Compared, since the difference of two may be none of 64 bits.
    if (edges < 0).any() or (edges[1:] < edges[:-1]).any() or (edges[::2] == edges[1::2]).any():
        return "its ranges do not ascend."
    return None


def _bounds_fault(ranges: Sequence[tuple[int, int]], entered_until: int) -> str | None:
    return f"only messages to {entered_until} have entered." if len(ranges) and ranges[-1][1] > entered_until else None


def _value_fault(detail: ValueForm, record: Record) -> str | None:
    is_owned = record.kind == Kind.TRANSFERRED or (record.kind == Kind.REPLICATED and detail.stage != Stage.GONE)
    if (is_owned or detail.owner) and not valid_name(detail.owner):
        return f"its owner {detail.owner!r:.100} is no name of an instance."
    of_stage = _REASONS_OF_STAGE[detail.stage] if record.kind == Kind.REPLICATED else None
    reasons = _REASONS.get(record.kind, of_stage)
    if reasons is not None and record.reason not in reasons:
        return f"{record.reason!r:.100} is no reason for it."
    if record.reason in DEAD_LETTER_REASONS and msgspec.UNSET in (detail.deliveries, detail.cancels):
        return "it does not say how often its messages were delivered and cancelled."
    return None


def _request_fault(detail: RequestForm, known: PeerFold) -> str | None:
    if detail.requester == detail.owner:
        return f"'{detail.owner}' asks itself."
    if detail.requester != known.instance and not detail.passed:
        return f"it asks in the name of '{detail.requester}', and passed nobody."
    return None


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
    """Return what the coordinator of an instance tells of one of its peers: what is to be put right.

    Parameters
    ----------
    known : Mapping of str to Definitions
        Those of all peers, as far as they were read.
    """
    instance = str(own.journal.instance)
    paths = unheard({**known, instance: own})
    told = [each for each in paths if each.instance == peer.name or (each.instance, each.peer) == (instance, peer.name)]
    unheard_of = (Disagreement(each.rule, each.queue, each.reason) for each in told)
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


def _differences(queue: QueueDefinition, other: QueueDefinition, own: Definitions, theirs: Definitions) -> Iterator[Disagreement]:
    mine, there = _domain(queue, own), _domain(other, theirs)
    if queue.ownership == other.ownership == GROUP_LOCAL and mine != there:
        reason = f"here it is of domain '{mine}', and there of '{there}': set group_local_domain, or [journal] group."
        yield _disagreement(Rule.SAME_QUEUES, queue.name, reason)
    for rule, keys in ((Rule.SAME_DEFINITION, _SAME), (Rule.SAME_MEMBERS, _MAY_DIFFER)):
        for key in keys:
            here, elsewhere = getattr(queue, key), getattr(other, key)
            if here != elsewhere:
                yield _disagreement(rule, queue.name, f"{key} is {here!r} here, and {elsewhere!r} there.")
    own_columns, columns = _columns(queue.columns), _columns(other.columns)
    if own_columns != columns:
        # A column that only one of them has is copied all the same, and shows here once it is declared.
        rule = Rule.SAME_MEMBERS if _agree(own_columns, columns) else Rule.SAME_DEFINITION
        yield _disagreement(rule, queue.name, f"its columns are '{queue.columns}' here, and '{other.columns}' there.")


def _domain(queue: QueueDefinition, of: Definitions) -> str | None:
    """Return what tells a group_local queue from others of its name (R116)."""
    return queue.group_local_domain or of.journal.group or of.journal.instance


def _agree(mine: Mapping[str, pa.DataType] | str, there: Mapping[str, pa.DataType] | str) -> bool:
    """Return whether columns that are in both have one spelling and one type."""
    if isinstance(mine, str) or isinstance(there, str):
        return False
    names = ColumnNames(there)
    return all((known := names.find(name)) is None or (known == name and there[name] == kind) for name, kind in mine.items())


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


class Fit:
    """How the definitions of a peer break rules with the own.

    Parameters
    ----------
    own : Definitions
        The own.
    peer : PeerDefinition
        What is pulled.
    definitions : dict
        Those of all peers by name, shared by their pullers: what reaches whom follows from all of them.
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
        """Go on with what the own log says.

        Parameters
        ----------
        told : Sequence of Disagreement
            How it broke rules.
        reads_all : bool
            Whether its log is read from the first record, so that nothing of it is missed.
        """
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
        """Return whether news about a queue wait: it is another one there."""
        return queue in _withheld(self._now)

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
