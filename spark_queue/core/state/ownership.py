"""Ownership of the messages of a replicated queue: the value that each has on every instance (DESIGN 17.4).

The value is (life, stage, term, owner), and the greater one of two is true. Here are life, term and owner; the stage follows from
where the message is: in its queue, dead, or gone. A gone message has neither term nor owner.

A hostile log may give each message another life and term: knowledge of one must not cost more for that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from pyroaring import BitMap64

from spark_queue.core.bitmaps.numbers import BitSlicedInts
from spark_queue.core.records import COUNT_MAX, Valued
from spark_queue.core.state.lifecycle import State

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
    """An instance's view of a message; values compare in this order, owners by name."""

    life: int = 0
    stage: Stage = Stage.PRESENT
    term: int = 0
    owner: str = ""


def value_of(body: Valued) -> MessageValue:
    """Return the value that a record of an owner, or about one, gives to its messages."""
    return MessageValue(body.life, Stage(body.stage), body.term, body.owner)


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
    #: Up to this record of the peer, messages that it let go unpulled are no gap: nothing was pulled then, or somebody said so.
    gaps_after: int = -1
    #: Queues that were set aside while something was taken over: it is read again for them.
    missed: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Request:
    """Messages that were asked of their owner, how many of them at most, when, in milliseconds, and their earliest life.

    Also since when they, or some of them, were asked for in vain.
    """

    rows: BitMap64
    limit: int
    at_ms: int
    life: int
    since_ms: int


@dataclass(slots=True)
class Ownership:
    """Life, term and owner of each message of a queue.

    Attributes
    ----------
    remote : BitMap64
        Messages that another instance owns.
    requests : dict of str to Request
        Messages that were asked of an owner and have not come, by owner.
    passed_on : dict of (str, str) to Request
        The newest requests of others that were passed on and of which nothing came to them, by asker and owner, oldest first.
        One older than `PASSED_ON_MS` when the next is passed on is forgotten.
    """

    #: The own name: the owner of every message of which nothing else is known. Empty where no other instance knows of the queue.
    instance: str = ""
    remote: BitMap64 = field(default_factory=BitMap64)
    requests: dict[str, Request] = field(default_factory=dict)
    passed_on: dict[tuple[str, str], Request] = field(default_factory=dict)
    #: Messages that came to this instance, and that left it, by transfers: from whose log it heard, and to whom (R119).
    came_from: Counter[str] = field(default_factory=Counter)
    given_to: Counter[str] = field(default_factory=Counter)
    #: Messages that this instance took since their owner could not be reached (R109).
    claimed: int = 0
    #: The owners whose messages may be claimed while they cannot be reached (R108).
    claims_from: set[str] = field(default_factory=set)
    #: Claimed messages, remote still, and not granted before another look at their owner's beacon, by that owner (R110).
    claims: dict[str, BitMap64] = field(default_factory=dict)
    _lives: BitSlicedInts = field(default_factory=BitSlicedInts)
    _terms: BitSlicedInts = field(default_factory=BitSlicedInts)
    #: Messages by the other instance that owns them.
    _owners: dict[str, BitMap64] = field(default_factory=dict)

    def own(self, rows: BitMap64, *, term: int, owner: str) -> None:
        """Give rows to an owner."""
        self._take_away(rows)
        self._terms.set(rows, term)
        if owner == self.instance:
            # Something of it came, so that the next may be asked for.
            self.requests = {name: each for name, each in self.requests.items() if not each.rows.intersect(rows)}
        elif rows:
            # In place: copies would cost as much as all that is owned.
            self._owners.setdefault(owner, BitMap64()).update(rows)
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
        """Forget the owner of rows: they are gone, begin anew here, or get an owner."""
        self._take_away(rows)
        self._terms.set(rows, 0)

    def claim(self, rows: BitMap64, *, term: int) -> None:
        """Own rows of others that are not granted yet."""
        parts = self.of_others(rows)
        self.own(rows, term=term, owner=self.instance)
        for owner, part in parts.items():
            self.claims[owner] = self.claims.get(owner, BitMap64()) | part

    def end_claims(self, rows: BitMap64) -> None:
        """Forget that rows were claimed: they may be granted, or have another owner, or an end."""
        self.claims = {owner: left for owner, part in self.claims.items() if (left := part - rows)}

    @property
    def claimed_rows(self) -> BitMap64:
        """Everything that is claimed and not granted yet."""
        return BitMap64.union(BitMap64(), *self.claims.values())

    def _take_away(self, rows: BitMap64) -> None:
        if self.claims:
            self.end_claims(rows)
        for owner in [owner for owner, owned in self._owners.items() if owned.intersect(rows)]:
            self._owners[owner] -= rows
            if not self._owners[owner]:
                del self._owners[owner]
        self.remote -= rows

    def begin_life(self, rows: BitMap64, life: int) -> None:
        """Let rows be in a life."""
        self._lives.set(rows, life)

    @property
    def all_in_first_life(self) -> bool:
        """Whether no message of the queue was ever redriven."""
        return self._lives.all_zero

    def by_life(self, rows: BitMap64) -> Iterator[tuple[int, BitMap64]]:
        """Yield rows by their life, earliest first."""
        return self._lives.split(rows)

    def of_life(self, rows: BitMap64, life: int) -> BitMap64:
        """Return those of `rows` that are in a life."""
        return self._lives.compare(rows, life)[1]

    def before_life(self, rows: BitMap64, life: int) -> BitMap64:
        """Return those of `rows` that are in an earlier life."""
        return self._lives.compare(rows, life)[0]

    def last_term(self, rows: BitMap64) -> int:
        """Return the latest term of `rows`."""
        return self._terms.largest(rows)

    def of_last_term(self, rows: BitMap64) -> BitMap64:
        """Return those of `rows` that are in their last term."""
        return rows - self._terms.compare(rows, COUNT_MAX)[0]

    def by_owner(self, rows: BitMap64) -> Iterator[tuple[int, str, BitMap64]]:
        """Yield rows by term and owner."""
        for owner, owned in self._each_owners(rows):
            for term, part in self._terms.split(owned):
                yield term, owner, part

    def _each_owners(self, rows: BitMap64) -> Iterator[tuple[str, BitMap64]]:
        parts = ((owner, rows & owned) for owner, owned in self._owners.items())
        yield from ((owner, part) for owner, part in parts if part)
        own = rows - self.remote
        if own:
            yield self.instance, own

    def others(self) -> set[str]:
        """Return the instances that own messages, but this one."""
        return set(self._owners)

    def of_others(self, rows: BitMap64, owners: Collection[str] | None = None) -> dict[str, BitMap64]:
        """Return those of `rows` that other instances own, by owner; only of some `owners`, if they are named."""
        parts = ((owner, rows & owned) for owner, owned in self._owners.items() if owners is None or owner in owners)
        return {owner: part for owner, part in parts if part}

    def lesser(self, states: Mapping[State, BitMap64], rows: BitMap64, value: MessageValue) -> BitMap64:
        """Return those of `rows` whose value is less: those that news of `value` changes; `states` has the rows of the queue."""
        earlier, same = self._lives.compare(rows, value.life)
        return earlier | self._lesser_of_life(states, same, value)

    def _lesser_of_life(self, states: Mapping[State, BitMap64], rows: BitMap64, value: MessageValue) -> BitMap64:
        gone, dead = rows & states[State.REMOVED], rows & states[State.DEAD]
        if value.stage == Stage.GONE:
            return rows - gone
        less, same = (BitMap64(), rows - gone - dead) if value.stage == Stage.PRESENT else (rows - gone - dead, dead)
        before, same = self._terms.compare(same, value.term)
        return BitMap64.union(less, before, *(part for owner, part in self._each_owners(same) if owner < value.owner))
