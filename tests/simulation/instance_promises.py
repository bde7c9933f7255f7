"""What the logs and checkpoints of several instances must show together: judged from records, not from the cores' states.

A message is known everywhere by what it says, its id, which is read from the files; so nothing here trusts the cores' origins.
"""

from __future__ import annotations

import copy
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from spark_queue.core import commands
from spark_queue.core.records import CLAIMED, DEAD_LETTER_REASONS, Kind, Record, Removal
from tests.records import detail_of
from tests.simulation.backups import Life
from tests.simulation.coordinator import QUEUE
from tests.simulation.instances_world import Commit, InstancesWorld
from tests.simulation.loop_world import TYPE
from tests.simulation.promises import rows_of
from tests.simulation.publishers import is_marked
from tests.simulation.whole_instance import KEYS, WholeInstance, barriers_of

#: A barrier has no owner and no stage: each instance releases it by itself (R117).
PRESENT, DEAD, GONE, BARRIER = 0, 1, 2, 3


class Value(NamedTuple):
    """What an instance says of a message; of two, the greater one is true (DESIGN 17.4)."""

    life: int = 0
    stage: int = PRESENT
    term: int = 0
    owner: str = ""


@dataclass
class Said:
    """What the log of one instance says, as far as it was read."""

    name: str
    #: Of each message of the queue, by its bookmark here: what a restored journal repeats is there twice.
    values: dict[int, Value] = field(default_factory=dict)
    #: The id of each message here, by its bookmark.
    ids: dict[int, int] = field(default_factory=dict)
    #: What is leased here, by its id, and to which lease each message was granted last, by its bookmark.
    leased: set[int] = field(default_factory=set)
    holders: dict[int, int] = field(default_factory=dict)
    #: What is claimed and not granted before another look, and the barriers that are held, by bookmark.
    unsure: set[int] = field(default_factory=set)
    held: set[int] = field(default_factory=set)
    #: Whether messages may be claimed here.
    claims: bool = False
    #: The queue by the definitions of here; none of it before they are known. And whether it is left.
    queue: Mapping[str, str] = field(default_factory=dict)
    is_left: bool = False

    def by_id(self) -> dict[int, list[Value]]:
        """Return what is said of each message, as often as it is here."""
        found = defaultdict[int, list[Value]](list)
        for row, value in self.values.items():
            found[self.ids[row]].append(value)
        return {each: sorted(values) for each, values in found.items()}


@dataclass
class Judgement:
    """What is wrong in a world, in the order in which it became durable."""

    said: dict[str, Said]
    wrong: list[str] = field(default_factory=list)
    #: How often a message that was given to somebody may be given again: it came back, was redriven, or was claimed.
    again: Counter[int] = field(default_factory=Counter)
    claimed: set[int] = field(default_factory=set)
    #: What may be in the world twice: somebody had entered it whose journal was put back from a backup, or entered it there before
    #: that was said.
    rewound: set[int] = field(default_factory=set)
    #: What an instance to which it was published has in the queue, and what is a barrier there.
    members: set[int] = field(default_factory=set)
    barriers: set[int] = field(default_factory=set)
    #: What was published where the queue was left then, or whose word was lost with its journal: what it is, is said later.
    told_later: set[int] = field(default_factory=set)
    #: To which instances each message was published.
    published: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))


def judge(world: InstancesWorld) -> Judgement:
    """Read what all instances said, one record after the other, in the order in which they became durable."""
    found = Judgement({name: Said(name) for name in world.instances})
    for each in world.instances.values():
        each.note_order()
    logs = {
        name: [*((life.log, life.order) for life in each.lives), (each.log, each.order)] for name, each in world.instances.items()
    }
    for log, order in (life for lives in logs.values() for life in lives):
        found.rewound.update(renamed := _renamed(log, order))
        found.again.update(renamed)
    backups: dict[str, Said] = {}
    for moment in world.commits:
        here = found.said[moment.instance]
        if isinstance(moment, Commit):
            log, order = logs[moment.instance][moment.life]
            for record in log[moment.first : moment.last + 1]:
                _read(world, found, here, record, order)
        elif moment.is_back:
            # Until it has heard what it had said since, it may do all of that again.
            found.rewound.update(here.ids.values())
            found.again.update(here.ids.values())
            found.told_later.update(set(here.ids.values()) - set(backups[moment.instance].ids.values()))
            found.said[moment.instance] = backups[moment.instance]
        else:
            backups[moment.instance] = copy.deepcopy(here)
    return found


def _renamed(log: Sequence[Record], order: Sequence[int]) -> set[int]:
    """Return what a restored journal entered under its old name and then named anew: peers may have heard of both (DESIGN 17.3)."""
    own, found = dict[int, int](), set[int]()
    for record in log:
        if record.kind == Kind.ENTERED:
            pulled = {row for first, rows, _, _ in detail_of(record).get("origin", ()) for row in range(first, first + rows)}
            first = record.ranges[0][0]
            own |= {row: order[row] for row in rows_of(record) if row < len(order) and row - first not in pulled}
        elif record.kind == Kind.RESTORED:
            found |= {each for row, each in own.items() if row >= detail_of(record)["since"][TYPE]}
    return found


def _read(world: InstancesWorld, found: Judgement, here: Said, record: Record, order: Sequence[int]) -> None:
    rows = [row for row in rows_of(record) if row < len(order)]
    if record.kind == Kind.ENTERED:
        _enter(world, found, here, record, {row: order[row] for row in rows})
    if record.kind == Kind.DEFINITIONS_APPLIED:
        here.is_left = QUEUE not in detail_of(record)["definitions"]["queues"]
        here.queue = here.queue if here.is_left else detail_of(record)["definitions"]["queues"][QUEUE]
    if record.queue != QUEUE:
        return
    _judge_barriers(found, here, record, rows)
    messages = {row: order[row] for row in rows if here.values[row].stage != BARRIER}
    ids = list(messages.values())
    if record.kind == Kind.PROXIED_TRANSFER:
        here.claims = detail_of(record)["on"]
    if record.kind in (Kind.GRANTED, Kind.RESUMED):
        _judge_grant(found, here, record, messages)
        here.leased.update(ids)
    if record.kind == Kind.RETURNED:
        here.leased.difference_update(ids)
    if record.kind == Kind.CLAIM_CONFIRMED:
        here.unsure.difference_update(messages)
    if record.kind in (Kind.RETURNED, Kind.RESUMED, Kind.REDRIVEN):
        found.again.update(ids)
    for row in messages:
        value = _value(here, record, here.values[row])
        if value is not None:
            _judge_change(found, here, record, row, value)


#: By the filter of a queue, and the remainder of messages that it leaves out; see `WholeInstance.alter`.
_LEFT_OUT = {("n % 3 <> 0", 0), ("n % 3 <> 1", 1)}


def _enter(world: InstancesWorld, found: Judgement, here: Said, record: Record, messages: Mapping[int, int]) -> None:
    """Note to which instance messages were published; which one, of several, only the log tells."""
    first, stretches = record.ranges[0][0], detail_of(record).get("origin", ())
    origins = {first + at: origin for row, rows, origin, _ in stretches for at in range(row, row + rows)}
    several = {each for batch in world.application.batches for each in batch}
    for row, each in messages.items():
        at = detail_of(record)["instances"][origins[row]] if row in origins else here.name
        if each not in several and at != world.published_at[each]:
            found.wrong.append(f"{here.name} in record {record.record}: {each} was not published to {at}")
        found.published[each].add(at)
        if row not in origins and here.is_left:
            found.told_later.add(each)
        elif row not in origins and (here.queue.get("filter"), each % 3) not in _LEFT_OUT:
            found.members.add(each)
            if here.queue.get("barrier") and is_marked(each) and not (each in several and world.application.is_plain):
                found.barriers.add(each)
        here.ids[row] = each
        # Its owner is told by a record of its own (R129).
        here.values[row] = Value()


def _judge_grant(found: Judgement, here: Said, record: Record, messages: Mapping[int, int]) -> None:
    """Who leases a message owns it, and nobody else has it leased, but where it was claimed."""
    told = f"{here.name} {record.kind} in record {record.record}"
    for row, each in messages.items():
        value = here.values[row]
        # A batch that goes on, goes on with what was claimed from it meanwhile.
        goes_on = each in found.claimed and record.kind == Kind.RESUMED
        if (value.stage != PRESENT or value.owner != here.name) and not goes_on:
            found.wrong.append(f"{told}: {each} is {value}")
        others = [other.name for other in found.said.values() if other is not here and each in other.leased]
        # Until each to whom it was published has pulled the other, both may deliver it.
        if len(others) >= len(found.published[each]) and each not in found.claimed | found.rewound:
            found.wrong.append(f"{told}: {each} is leased by {others}")
    if record.kind == Kind.GRANTED:
        _judge_order(found, here, messages, int(record.lease or 0), told)
    here.holders |= dict.fromkeys(messages, int(record.lease or 0))


def _judge_barriers(found: Judgement, here: Said, record: Record, rows: Sequence[int]) -> None:
    """Barriers are what their origin said, and released once nothing that is known to be in the queue stands before them (R68)."""
    told = f"{here.name} {record.kind} in record {record.record}"
    if record.kind == Kind.DECIDED and detail_of(record).get("barrier"):
        here.values.update(dict.fromkeys(rows, Value(stage=BARRIER)))
        here.held.update(rows)
        found.wrong += [
            f"{told}: {here.ids[row]} is no barrier" for row in rows if here.ids[row] not in found.barriers | found.told_later
        ]
    elif record.kind == Kind.BARRIER_RELEASED:
        here.held.difference_update(rows)
        before = (row for row, value in here.values.items() if row < max(rows) and value.stage == PRESENT and value.owner)
        found.wrong += [f"{told}: {here.ids[row]} stands before it" for row in before]


def _judge_order(found: Judgement, here: Said, messages: Mapping[int, int], lease: int, told: str) -> None:
    """What stands behind a barrier waits (R69), and so does what stands behind a message of its key and its owner."""
    behind = [row for row in messages if row > min(here.held, default=row)]
    found.wrong += [f"{told}: {messages[row]} stands behind a barrier" for row in behind]
    if "order_key" not in here.queue:
        return
    own = {row for row, value in here.values.items() if value.stage == PRESENT and value.owner == here.name} - here.unsure
    for row, each in messages.items():
        of_key = [other for other in own - messages.keys() if here.ids[other] % KEYS == each % KEYS]
        before = (other for other in of_key if other < row or (here.ids[other] in here.leased and here.holders[other] != lease))
        found.wrong += [f"{told}: {each} is behind {here.ids[other]}" for other in before]


def _judge_change(found: Judgement, here: Said, record: Record, row: int, value: Value) -> None:
    """What is said of a message only grows, and is claimed only where that is allowed."""
    each, before, told = here.ids[row], here.values[row], f"{here.name} {record.kind} in record {record.record}"
    if value <= before and record.kind in (Kind.REPLICATED, Kind.TRANSFERRED):
        found.wrong.append(f"{told}: {each} is {value} after {before}")
    if record.kind == Kind.TRANSFERRED and record.reason == CLAIMED:
        found.claimed.add(each)
        found.again[each] += 1
        if not here.claims:
            found.wrong.append(f"{told}: {each} is claimed though nobody allows it")
    elif record.kind == Kind.TRANSFERRED and before.owner != here.name:
        # On behalf of an owner that cannot be reached (R109).
        found.claimed.add(each)
        found.again[each] += 1
        if not here.claims:
            found.wrong.append(f"{told}: {each} belongs to {before.owner}")
    here.values[row] = value
    here.unsure.discard(row)
    if detail_of(record).get("awaits_look"):
        here.unsure.add(row)
    if value.stage != PRESENT or value.life > before.life:
        here.leased.discard(each)


def _value(here: Said, record: Record, before: Value) -> Value | None:
    """Return what a record says that a message is from then on; None where it says nothing of that (DESIGN 17.4)."""
    detail = detail_of(record)
    if record.kind == Kind.REMOVED:
        return before._replace(stage=DEAD) if record.reason in DEAD_LETTER_REASONS else Value(before.life, GONE)
    if record.kind == Kind.REDRIVEN:
        if detail.get("stage") == GONE:
            return Value(before.life, GONE)
        return Value(before.life + 1, PRESENT, 0, here.queue.get("initial_owner", here.name))
    if record.kind == Kind.DECIDED:
        # What is not in the queue has none.
        return before._replace(owner=detail_of(record).get("owner", before.owner))
    if record.kind in (Kind.TRANSFERRED, Kind.REPLICATED):
        return Value(detail.get("life", 0), detail.get("stage", PRESENT), detail.get("term", 0), detail.get("owner", ""))
    return None


def committed_at(instance: WholeInstance) -> Counter[int]:
    """Return how often each message stood in a batch that Spark committed, by its id."""
    lives = [*instance.lives, Life(instance.log, instance.order, instance.drivers)]
    return Counter(
        life.order[row]
        for life in lives
        for barriers in [barriers_of(life.log)]
        for each in life.drivers
        for rows in each.checkpoint.contents[: each.checkpoint.committed]
        for row in rows
        if row not in barriers
    )


def delivered_again_without_reason(world: InstancesWorld, judged: Judgement) -> list[int]:
    """Return the messages that stood in more committed batches of the world than there is a reason for (R14, R15)."""
    times = sum((committed_at(each) for each in world.sharing), Counter[int]())
    return [each for each, count in times.items() if count > len(judged.published[each]) + judged.again[each]]


def acknowledged_by_nobody(instance: WholeInstance) -> list[int]:
    """Return what an instance acknowledged although no committed batch of it contained it (R15)."""
    contained = committed_at(instance)
    removed = [each for each in instance.log if each.queue == QUEUE and each.kind == Kind.REMOVED]
    acknowledged = (each for each in removed if each.reason == Removal.ACKNOWLEDGED)
    return [instance.order[row] for record in acknowledged for row in rows_of(record) if not contained[instance.order[row]]]


def read_by_more(world: InstancesWorld, judged: Judgement) -> list[int]:
    """Return the messages of an at-most-once queue that more planner starts were told to read than they were published to (R16)."""
    readers: dict[int, set[object]] = {}
    for instance in world.sharing:
        for request, _, pieces in instance.answers:
            if isinstance(request, commands.Rows | commands.Next) and pieces is not None:
                for first, rows in zip(*(pieces.column(name).to_pylist() for name in ("bookmark", "rows")), strict=True):
                    for each in instance.order[first : first + rows]:
                        readers.setdefault(each, set()).add((instance.name, request.subscription, request.incarnation))
    return [each for each, by in readers.items() if len(by) > len(judged.published[each])]


def said_differently(judged: Judgement, names: list[str]) -> list[str]:
    """Return the messages of which instances do not say the same once they have heard everything."""
    first, *others = said = [judged.said[name].by_id() for name in names]
    return [
        f"{each}: {[values.get(each) for values in said]}"
        for each in sorted(set().union(first, *others))
        if any(other.get(each) != first.get(each) for other in others) and not _is_barrier_of_one(judged, each, said)
    ]


def _is_barrier_of_one(judged: Judgement, each: int, said: Sequence[Mapping[int, list[Value]]]) -> bool:
    """Return whether a message is over everywhere, at some as a barrier: so it may be where two said what it is unheard (R129)."""
    if each not in judged.told_later and len(judged.published[each]) == 1:
        return False
    values = [found.get(each, [Value()]) for found in said]
    return {value for several in values for value in several} == {Value(stage=GONE), Value(stage=BARRIER)}


def not_ended(judged: Judgement, names: list[str]) -> list[int]:
    """Return the messages of the queue that are still there on some instance, and others of which it says anything."""
    said = [(here.ids[row], value) for name in names for here in [judged.said[name]] for row, value in here.values.items()]
    # Of what was published where a store is away for ever only others tell what it is.
    others = {each for each, at in judged.published.items() if not at <= set(names)} | judged.told_later
    members = (judged.members - others) | {each for each, value in said if each in others and value != Value()}
    return [each for each, value in said if (value.stage == PRESENT if each in members else value != Value())]
