"""Several whole instances of one queue: each with its own store, and with everything that goes wrong between them.

Of each instance everything is the product's that is in `disk_world`, and the pullers with all that they read and copy. Between them
are networks that are cut, stores that are away for a while or for ever, reads that come late, and clocks that drift.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spark_queue.core.records import Kind
from tests.simulation.backups import Backup, Rewinding
from tests.simulation.disk_world import NIGHT_MS
from tests.simulation.publishers import Application, Publisher
from tests.simulation.whole_instance import Archive, WholeInstance

#: Who pulls from whom.
TOPOLOGIES: Mapping[str, Mapping[str, Sequence[str]]] = {
    "pair": {"a": ["b"], "b": ["a"]},
    "triangle": {"a": ["b", "c"], "b": ["a", "c"], "c": ["a", "b"]},
    "chain": {"a": ["b"], "b": ["a", "c"], "c": ["b"]},
    "archive": {"a": ["b"], "b": ["a"], "archive": ["b"]},
}

#: How many commits somewhere a backup lacks at least that is put back.
OLD_COMMITS = 25

#: Most steps that a world takes until its backup is put back, and steps that follow.
_REWIND_STEPS, _AFTER_STEPS = 2_000, 60

#: Most rounds in which everybody reads and pulls, so that a backup may be taken.
_QUIET_ROUNDS = 500

#: Whether instances pass on requests for messages of others, so that the ends of a chain give each other their backlogs.
PASSES_ON = True


@dataclass(frozen=True, slots=True)
class Commit:
    """Which records of an instance became durable together."""

    instance: str
    #: How often its journal had been put back from a backup.
    life: int
    first: int
    last: int


class InstancesWorld:
    """Two or three instances, and chance; made inside `simulated_delta`.

    Parameters
    ----------
    claims : bool
        Whether somebody allows proxied transfer now and then.
    fails_over : bool
        Whether an application publishes under one name to whatever instance it reaches.
    restores : bool
        Whether a backup of instance `a` is taken and put back.
    alters : bool
        Whether somebody gives single instances other definitions.
    """

    def __init__(
        self, seed: int, *, topology: str, settings: dict[str, Any], claims: bool, fails_over: bool = False, restores: bool = False,
        alters: bool = False,
    ) -> None:  # fmt: skip
        self.random = random.Random(seed)
        self.claims, self.alters = claims, alters
        #: Whether the queue is left here or there, and put back.
        self.leaves = alters
        #: Whether the queue has barriers, or gets them here or there; not where a journal is restored, nor with a target depth.
        self.has_barriers = "barrier" in settings or (alters and not restores and "target_queue_depth" not in settings)
        self.topology = topology
        self.settings = settings
        self.troubled = True
        #: Now and then so soon that an instance counts as gone that only was not heard of.
        self.unreachable_after = self.random.choice(("15s", "20s"))
        #: How many processes wait for a store, each inside the wait of another.
        self.nested = 0
        #: Pairs of instances that cannot read each other now, and those whose store is not there.
        self.cuts: set[frozenset[str]] = set()
        self.lost: set[str] = set()
        #: In the order in which they became durable.
        self.commits: list[Commit | Rewinding] = []
        #: Whether a backup of instance `a` is taken, and put back.
        self.restores = restores
        #: Whether a peer must have pulled what is lost, so that it is told.
        self.tells_loss = restores and self.random.random() < 0.8
        self._backup: Backup | None = None
        self._steps_waited = 0
        self._backed_up_at = 0
        #: Whether somebody who takes a backup, or puts it back, sees to it that all can be read: nobody else tells what is lost.
        self.is_restoring = False
        #: Where each message was published, by its id.
        self.published_at: list[str] = []
        self.instances: dict[str, WholeInstance] = {}
        for name, peers in TOPOLOGIES[topology].items():
            kind = Archive if name == "archive" else WholeInstance
            self.instances[name] = kind(self, name, peers, settings=settings)
            self.instances[name].is_asleep = self.random.random() < 0.5
        #: The application that fails over, and its publisher at each instance.
        self.application = Application(name="failing-over", kind="named", forgets=0.4, is_plain=alters)
        self.failing_over = {each.name: Publisher(each, self.application) for each in self.sharing if fails_over}

    @property
    def sharing(self) -> list[WholeInstance]:
        """The instances that share the queue."""
        return [each for each in self.instances.values() if each.queues]

    def note_commit(self, instance: WholeInstance, first: int, last: int) -> None:
        """Note that records became durable."""
        self.commits.append(Commit(instance.name, len(instance.lives), first, last))

    def new_messages(self, instance: WholeInstance, count: int) -> list[int]:
        """Draw ids of new messages."""
        self.published_at += [instance.name] * count
        return list(range(len(self.published_at) - count, len(self.published_at)))

    def can_read(self, reader: str, peer: str) -> bool:
        """Return whether one instance can read the store of another."""
        return peer not in self.lost and frozenset((reader, peer)) not in self.cuts

    def advance(self, elapsed_ms: int) -> None:
        """Let time pass everywhere."""
        for each in self.instances.values():
            each.pass_time(elapsed_ms)
            if elapsed_ms >= NIGHT_MS:
                # No request is under way for so long.
                each.bucket.late.clear()

    def step(self) -> None:
        """Let something happen somewhere."""
        self.is_restoring = self.is_restoring and not self.instances["a"].is_compared()
        instance = self.random.choice(list(self.instances.values()))
        draw = self.random.random()
        if draw < 0.28:
            instance.pull()
        elif draw < 0.31 and self.is_restoring:
            pass
        elif draw < 0.29:
            self.cuts ^= {frozenset(self.random.sample(list(self.instances), 2))}
        elif draw < 0.31:
            self._lose(instance)
        elif draw < 0.32:
            instance.is_asleep = not instance.is_asleep
        elif draw < 0.34 and "dead_letter_queue" in self.settings:
            instance.operate()
        elif draw < 0.37 and self.claims:
            instance.switch(on=self.random.random() < 0.8)
        elif draw < 0.42:
            self.advance(self.random.choice((300, 1_500, 6_000)))
        elif draw < 0.45 and self.failing_over:
            self.random.choice(list(self.failing_over.values())).step()
        elif draw < 0.5 and self.restores:
            self._rewind()
        elif draw < 0.53 and self.alters and instance.queues:
            instance.alter()
        else:
            instance.step()

    def _lose(self, instance: WholeInstance) -> None:
        """Let a store be away, or the one that is come back; where messages may be claimed, often until all miss it."""
        self.lost = set() if self.lost else {instance.name}
        is_missed = self.lost and self.claims and self.random.random() < 0.5
        for _ in range(8 if is_missed else 0):
            self.advance(4_000)
            for each in [*self.instances.values()] * 3:
                each.go_on_quietly()
                each.step()

    def _rewind(self) -> None:
        """Take a backup, put it back, or let somebody say that this was done."""
        instance = self.instances["a"]
        if self._backup is None and not self._is_known(instance):
            return
        if self._backup is None:
            self._backup, self._backed_up_at = Backup(instance), len(self.commits)
            self.commits.append(Rewinding(instance.name, is_back=False))
        elif not instance.lives and not self._is_old(self._backup):
            return
        elif not instance.lives:
            self.is_restoring, self.cuts, self.lost = True, set(), set()
            publishers = [*instance.publishers, *(self.failing_over[each] for each in self.failing_over if each == instance.name)]
            self._backup.put_back(instance, publishers)
            self.commits.append(Rewinding(instance.name, is_back=True))
        else:
            instance.say_restored()

    def _wait_until_known(self, instance: WholeInstance) -> None:
        """Let everybody read and pull, and nobody publish: where three write, chance seldom brings a moment for a backup."""
        for _ in range(_QUIET_ROUNDS):
            if self._is_known(instance):
                break
            self.is_restoring, self.cuts, self.lost = True, set(), set()
            for each in self.instances.values():
                each.go_on_quietly()
            self.advance(300)
        self.is_restoring = False

    def _is_known(self, instance: WholeInstance) -> bool:
        """Return whether all that is published at an instance has entered, and everybody who pulls from there knows of it.

        What has not enters again on the copy, and what others had not pulled counts as published there: with what comes back of it,
        both would be there twice (docs/operations/instances.md).
        """
        entered = (record.record for record in reversed(instance.log) if record.kind == Kind.ENTERED)
        last, readers = next(entered, -1), [each for each in self.instances.values() if instance.name in each.peers]
        return instance.has_entered_all() and all(each.pulled_of(instance.name) >= last for each in readers)

    def _is_old(self, backup: Backup) -> bool:
        """Return whether enough would be lost, and somebody could tell of it."""
        readers = [each for each in self.instances.values() if "a" in each.peers]
        if len(self.commits) < self._backed_up_at + OLD_COMMITS:
            return False
        return not self.tells_loss or any(backup.record_count <= each.pulled_of("a") for each in readers)

    def put_back_at_last(self) -> None:
        """Go on until the backup was put back, if there is to be one, and for a while after that."""
        instance = self.instances["a"]
        if not self.restores or instance.lives:
            return
        if self._backup is None:
            self._wait_until_known(instance)
            self._rewind()
        for _ in range(2 * _REWIND_STEPS):
            if instance.lives:
                break
            # Where nobody has pulled anything since, nobody tells that it is lost.
            self.tells_loss = self.tells_loss and self._steps_waited < _REWIND_STEPS
            self._steps_waited += 1
            self.step()
        for _ in range(_AFTER_STEPS):
            self.step()

    def drain(self, *, without: str | None = None, rounds: int = 4_000) -> None:
        """Stop all trouble, and let everything reach its end everywhere; a store may be away for ever.

        Parameters
        ----------
        rounds : int
            Most of them; it takes that many where each of many messages is claimed by itself, and some dozens mostly.
        """
        self.cuts.clear()
        self.lost = set() if without is None else {without}
        self.troubled = False
        remaining = self.remaining()
        self._wake(remaining)
        for each in remaining:
            each.stop_trouble(claims=without is not None)
        while not all(self.failing_over[each.name].is_done for each in remaining if each.name in self.failing_over):
            for each in remaining:
                if each.name in self.failing_over:
                    self.failing_over[each.name].finish()
        for turn in range(rounds):
            busy = [each.settle(pulls=turn % 4 == 3) for each in remaining]
            if turn % 4 == 3 and not any(busy):
                if all(each.has_all_of(other) for each in remaining for other in remaining):
                    break
                self.advance(2_000)
            elif turn % 16 == 15:
                self.advance(1_000)
        for _ in range(8):
            # What the last commits say.
            for each in remaining:
                each.settle(pulls=True)

    def _wake(self, instances: Sequence[WholeInstance]) -> None:
        """Let somebody consume to whom each of the others can give what it has."""
        for each in instances:
            near = [other for other in instances if other.queues and (PASSES_ON or other.name in each.peers)]
            # A barrier waits for somebody who subscribes, on every instance; and messages that have an order stay with their owner.
            if self.has_barriers or self.alters or all(other.is_asleep for other in near if other is not each):
                each.is_asleep = False

    def remaining(self) -> list[WholeInstance]:
        """Return the instances whose store is there."""
        return [each for name, each in self.instances.items() if name not in self.lost]
