"""A sink that simulated drivers append to, and what a wrapper does that appends (DESIGN 19): a step at a time, as worlds go."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pyroaring import BitMap64

from spark_queue.core import commands, replies
from spark_queue.core.bitmaps.ranges import to_bitmap
from spark_queue.core.records import Outcome
from tests.simulation.coordinator import QueryFailedError

#: Something that goes on over several steps of the world and gives an answer in the end.
Steps = Generator[None, None, Any]

#: Asks the coordinator: a kind of command and its fields.
Ask = Callable[..., Steps]


class AnswerLostError(Exception):
    """Nobody knows whether a put took effect, or still will."""


@dataclass(frozen=True)
class Commit:
    """One version of the table."""

    subscription: str
    #: Of the transaction id; odd for a fence.
    transaction: int
    rows: BitMap64 = field(default_factory=BitMap64)
    #: What was acknowledged with it, without standing in it.
    done: BitMap64 = field(default_factory=BitMap64)


class Sink:
    """A Delta table as far as sinks need one: versions that are put if absent, each decided upon the one before it."""

    def __init__(self, chance: random.Random, *, table_id: str = "t1") -> None:
        self.table_id = table_id
        self.troubled = True
        self.commits: list[Commit] = []
        self._random = chance
        #: Puts that are still under way, though their senders have given up.
        self._late: list[tuple[int, Commit]] = []

    def transaction(self, subscription: str) -> int:
        """Return the newest version of a subscription's transaction id."""
        return max((each.transaction for each in self.commits if each.subscription == subscription), default=-1)

    def put(self, version: int, commit: Commit) -> bool:
        """Add a version if there is none; what becomes of it nobody may learn."""
        draw = self._random.random() if self.troubled else 1.0
        if draw < 0.15:
            self._late.append((version, commit))
            raise AnswerLostError
        created = self._create(version, commit)
        if draw < 0.25:
            raise AnswerLostError
        return created

    def step(self) -> None:
        """Let a late put arrive, be lost, or somebody else commit."""
        if self._late:
            put = self._late.pop(self._random.randrange(len(self._late)))
            if self._random.random() < 0.8:
                self._create(*put)
        elif self._random.random() < 0.2:
            self.commits.append(Commit("somebody else", -1))

    def cut(self) -> None:
        """Lose what is under way."""
        self._late.clear()

    def _create(self, version: int, commit: Commit) -> bool:
        if len(self.commits) != version:
            return False
        self.commits.append(commit)
        return True

    @property
    def standing(self) -> Counter[int]:
        """How often each message stands there."""
        return Counter(row for each in self.commits for row in each.rows)

    def settled(self) -> BitMap64:
        """Return what may be acknowledged: what stands there, and what was done with beside it."""
        return BitMap64.union(BitMap64(), *(each.rows | each.done for each in self.commits))


class Appender:
    """What the wrapper of one driver process does; a driver that goes on unseen has one of its own.

    Parameters
    ----------
    sink : Sink
        Where it appends to.
    chance : random.Random
        Decides what it does where it may choose.
    ask : Ask
        Asks the coordinator, and gives the reply.
    who : dict
        Queue and subscription.
    """

    def __init__(self, sink: Sink, chance: random.Random, ask: Ask, who: dict[str, str]) -> None:
        self._sink, self._random, self._ask, self._who = sink, chance, ask, who

    def start(self) -> Steps:
        """Begin a run once nothing is in doubt that it has to decide; returns what it was told."""
        while True:
            started = yield from self._ask(commands.StartRun, **self._who, sink=True)
            doubts = [each for each in (started.sink.own, *started.sink.others) if each is not None]
            mine = [each for each in doubts if each.table_id == self._sink.table_id]
            if not mine:
                return started
            for each in mine:
                yield from self.decide(each)

    def append(self, run: replies.Run, rows: BitMap64, outcomes: tuple[commands.OutcomeRows, ...]) -> Steps:
        """Commit a batch to the sink, and say so."""
        name, said = self._who["subscription"], [(each.outcome, to_bitmap(each.ranges)) for each in outcomes]
        done = BitMap64.union(BitMap64(), *(part for outcome, part in said if outcome == Outcome.ACKNOWLEDGE))
        there = rows - BitMap64.union(BitMap64(), *(part for _, part in said))
        known = self._sink.transaction(name)
        yield
        prepared = yield from self._ask(
            commands.Prepare, **self._who, run=run, table="booked", table_id=self._sink.table_id, transaction_version=known,
            outcomes=outcomes,
        )  # fmt: skip
        assert self._sink.transaction(name) < 2 * prepared.attempt, "the table has not seen that number"
        for found, version in self._look(name, prepared.attempt):
            yield
            if found is not None:
                yield from self._say(name, prepared.attempt, version, landed=found)
                if not found:
                    raise QueryFailedError
                return
            try:
                self._sink.put(version, Commit(name, 2 * prepared.attempt, there, done))
            except AnswerLostError:
                if self._random.random() < 0.3:
                    raise QueryFailedError from None
            yield

    def decide(self, told: replies.AttemptTold) -> Steps:
        """Read the sink, and fence the attempt where it does not stand there."""
        for found, version in self._look(told.subscription, told.attempt):
            yield
            if found is not None:
                yield from self._say(told.subscription, told.attempt, version, landed=found)
                return
            with suppress(AnswerLostError):
                self._sink.put(version, Commit(told.subscription, 2 * told.attempt + 1))
            yield

    def _look(self, subscription: str, attempt: int) -> Iterator[tuple[bool | None, int]]:
        """Yield again and again whether an attempt has landed, None while it is in doubt, and the version that comes next."""
        while True:
            transaction = self._sink.transaction(subscription)
            yield (None if transaction < 2 * attempt else transaction == 2 * attempt), len(self._sink.commits)

    def _say(self, subscription: str, attempt: int, version: int, *, landed: bool) -> Steps:
        named: dict[str, Any] = {"queue": self._who["queue"], "subscription": subscription, "attempt": attempt}
        if landed:
            named["table_version"] = version - 1
        yield from self._ask(commands.Landed if landed else commands.Fenced, **named)
