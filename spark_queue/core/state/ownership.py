"""Whose the messages of a replicated queue are: the value that each has on every instance (DESIGN 17.4).

The value is (life, stage, term, owner), and the greater one of two is true. Here are life, term and owner; the stage follows from
where the message is: in its queue, dead, or gone. What is gone has neither term nor owner.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from pyroaring import BitMap64

from spark_queue.core.state.lifecycle import State

#: The last life and the last term: with what is added to them they fit 32 bits still. A message that a peer says to be in them is
#: transferred, or redriven, no more: others would refuse the log that says one of a later term.
COUNT_MAX = 10**9

#: How long a request that was passed on is not passed on again when it comes by another way; shorter than until it is repeated.
PASSED_ON_MS = 2_500

#: Most requests of others that are known at a time.
PASSED_ON_MOST = 1_000


class Stage(IntEnum):
    """How far a message has come in its life."""

    PRESENT = 0
    DEAD = 1
    GONE = 2


@dataclass(frozen=True, slots=True, order=True)
class MessageValue:
    """What an instance says of a message; values compare in this order, owners by name."""

    life: int = 0
    stage: Stage = Stage.PRESENT
    term: int = 0
    owner: str = ""

    def told(self) -> dict[str, int | str]:
        """Return it as the detail of a `replicated` record says it."""
        return {"life": self.life, "stage": int(self.stage), "term": self.term, "owner": self.owner}


@dataclass(frozen=True, slots=True)
class Watermark:
    """How far a peer is pulled: the UUID of its journal, the number of the last record that was taken over, and its SHA-256.

    Record -1 is before the first: its log is to be read again.
    """

    journal: str
    record: int
    digest: str
    #: UUID of its origin then, where the journal had been restored from a backup.
    origin: str = ""
    #: What the peer let go before it was pulled is no gap up to this record of it: nothing was pulled then, or somebody said so.
    gaps_after: int = -1


@dataclass(frozen=True, slots=True)
class Request:
    """Messages that were asked of their owner, how many of them at most, when, in milliseconds, and their earliest life."""

    rows: BitMap64
    limit: int
    at_ms: int
    life: int


@dataclass(slots=True)
class Ownership:
    """Life, term and owner of each message of a queue, as one bitmap for each value that is not the first.

    Parameters
    ----------
    instance : str
        The own name: whose a message is of which nothing else is known.

    Attributes
    ----------
    remote : BitMap64
        What another instance owns.
    requests : dict of str to Request
        What was asked of an owner and has not come, by owner.
    passed_on : dict of (str, str) to Request
        The newest requests of others that were passed on and of which nothing came to them, by who asks and whom, oldest first.
        What is older than `PASSED_ON_MS` when the next is passed on is forgotten.
    """

    instance: str
    remote: BitMap64 = field(default_factory=BitMap64)
    requests: dict[str, Request] = field(default_factory=dict)
    passed_on: dict[tuple[str, str], Request] = field(default_factory=dict)
    #: Messages that came to this instance, and that left it, by transfers: from whose log it heard, and to whom (R119).
    came_from: Counter[str] = field(default_factory=Counter)
    given_to: Counter[str] = field(default_factory=Counter)
    #: Messages that this instance took since their owner could not be reached (R109).
    claimed: int = 0
    #: Whether messages may be claimed whose owner cannot be reached (R108).
    claims_unreachable: bool = False
    _lives: dict[int, BitMap64] = field(default_factory=dict)
    _owners: dict[tuple[int, str], BitMap64] = field(default_factory=dict)

    def own(self, rows: BitMap64, *, term: int, owner: str) -> None:
        """Give rows to an owner."""
        self.disown(rows)
        if rows and (term, owner) != (0, self.instance):
            # In place: copies would cost as much as all that is owned.
            self._owners.setdefault((term, owner), BitMap64()).update(rows)
        if owner == self.instance:
            # Something of it came, so that the next may be asked for.
            self.requests = {name: each for name, each in self.requests.items() if not each.rows.intersect(rows)}
        else:
            self.remote |= rows
            self.passed_on = {
                (requester, asked): each
                for (requester, asked), each in self.passed_on.items()
                if requester != owner or not each.rows.intersect(rows)
            }

    def pass_on(self, requester: str, owner: str, request: Request) -> None:
        """Note a request of another instance, and forget those that are over, by its time: so every fold does the same."""
        since_ms = request.at_ms - PASSED_ON_MS
        kept = {key: each for key, each in self.passed_on.items() if each.at_ms > since_ms and key != (requester, owner)}
        for key in list(kept)[: max(0, len(kept) + 1 - PASSED_ON_MOST)]:
            del kept[key]
        self.passed_on = {**kept, (requester, owner): request}

    def disown(self, rows: BitMap64) -> None:
        """Forget whose rows are: they are gone, begin anew here, or get an owner."""
        for key in [key for key, owned in self._owners.items() if owned.intersect(rows)]:
            self._owners[key] -= rows
            if not self._owners[key]:
                del self._owners[key]
        self.remote -= rows

    def begin_life(self, rows: BitMap64, life: int) -> None:
        """Let rows be in a life."""
        for key in [key for key, members in self._lives.items() if members.intersect(rows)]:
            self._lives[key] -= rows
            if not self._lives[key]:
                del self._lives[key]
        if life:
            self._lives.setdefault(life, BitMap64()).update(rows)

    @property
    def all_in_first_life(self) -> bool:
        """Whether no message of the queue was ever redriven."""
        return not self._lives

    def by_life(self, rows: BitMap64) -> Iterator[tuple[int, BitMap64]]:
        """Yield rows by their life."""
        for life, members in list(self._lives.items()):
            part = rows & members
            if part:
                rows = rows - part
                yield life, part
        if rows:
            yield 0, rows

    def of_life(self, rows: BitMap64, life: int) -> BitMap64:
        """Return those of `rows` that are in a life."""
        if life:
            return rows & self._lives.get(life, BitMap64())
        return rows - BitMap64.union(BitMap64(), *self._lives.values())

    def of_last_term(self, rows: BitMap64) -> BitMap64:
        """Return those of `rows` that are in their last term."""
        return BitMap64.union(BitMap64(), *(rows & members for (term, _), members in self._owners.items() if term >= COUNT_MAX))

    def by_owner(self, rows: BitMap64) -> Iterator[tuple[int, str, BitMap64]]:
        """Yield rows by term and owner."""
        for (term, owner), members in list(self._owners.items()):
            part = rows & members
            if part:
                rows = rows - part
                yield term, owner, part
        if rows:
            yield 0, self.instance, rows

    def others(self) -> set[str]:
        """Return the instances that own messages, but this one."""
        return {owner for _, owner in self._owners} - {self.instance}

    def of_others(self, rows: BitMap64, owners: Collection[str] | None = None) -> dict[str, BitMap64]:
        """Return those of `rows` that other instances own, by owner; only of some `owners`, if they are named."""
        parts: dict[str, BitMap64] = {}
        for (_, owner), members in self._owners.items():
            if owner != self.instance and (owners is None or owner in owners):
                part = rows & members
                if part:
                    parts[owner] = parts[owner] | part if owner in parts else part
        return parts

    def lesser(self, states: Mapping[State, BitMap64], rows: BitMap64, value: MessageValue) -> BitMap64:
        """Return those of `rows` whose value is less: what news of `value` changes.

        Parameters
        ----------
        states : Mapping of State to BitMap64
            Where the messages of the queue are.
        """
        found = BitMap64()
        for life, part in self.by_life(rows):
            if life < value.life:
                found |= part
            elif life == value.life:
                found |= self._lesser_of_life(states, part, value)
        return found

    def _lesser_of_life(self, states: Mapping[State, BitMap64], rows: BitMap64, value: MessageValue) -> BitMap64:
        gone, dead = rows & states[State.REMOVED], rows & states[State.DEAD]
        if value.stage == Stage.GONE:
            return rows - gone
        less, same = (BitMap64(), rows - gone - dead) if value.stage == Stage.PRESENT else (rows - gone - dead, dead)
        parts = (part for term, owner, part in self.by_owner(same) if (term, owner) < (value.term, value.owner))
        return BitMap64.union(less, *parts)
