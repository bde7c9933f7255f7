"""The kill farm: consumers of one queue on real Spark, a publisher, and a hand that kills parts of them at random.

The queue is in one journal, or on two instances: then whole journals disappear for a while, too, and in every run, whatever else
is drawn, one instance is given the backlog of the other, and one claims what the other had (`takeovers`).
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import psutil

from spark_queue.errors import SparkQueueError
from tests.acceptance.farm.load import Load
from tests.acceptance.farm.site import VICTIMS, Site, command_line
from tests.acceptance.farm.takeovers import Takeovers

#: Environment variable by which a coordinator tells to which farm it belongs.
OF_FARM = "SPARK_QUEUE_FARM"

LOOK_AGAIN_S = 0.1

#: The cards of one deck. Killing a JVM or a driver costs a start of Spark, so there is one of each.
CARDS = {"coordinator": 5, "planner": 5, "worker": 4, "jvm": 1, "driver": 1}

#: What else is dealt where there are two instances: a journal disappears.
STORE, STORE_CARDS = "store", 5

#: What is dealt there, too: an instance alone gets other definitions. What its messages are it says itself (R129).
ALTER, ALTER_CARDS = "alter", 3
FILTERS = tuple(f"CAST(get_json_object(value, '$.order') AS BIGINT) % 5 <> {number}" for number in range(3))

#: What else is dealt where consumers append to a table: a whole consumer stands still for longer than its lease, then goes on.
FROZEN, FROZEN_CARDS, FROZEN_S = "frozen", 2, (7.0, 10.0)

#: What happens once in each run with two instances.
TRANSFER, CLAIM = "transfer", "claim"

#: How long a journal is away at least, in seconds: mostly longer than its instance counts as reachable.
AWAY_S = (1.0, 45.0)

#: Messages of one publish, and how many publishes in a row are to one journal: whoever waits meanwhile asks for its messages.
ROWS, IN_A_ROW = 150, 20


def deal(chance: random.Random, cards: Mapping[str, int], count: int) -> list[str]:
    """Deal cards from shuffled decks, in random order; of as many as there are kinds, or more, each kind is one.

    Drawn freely, some kinds would not come up in most short runs, and those that cost much would in others many times.
    """
    dealt: list[str] = []
    while len(dealt) < count:
        others = [kind for kind, number in cards.items() for _ in range(number - 1)]
        dealt += chance.sample(list(cards), len(cards)) + chance.sample(others, len(others))
    dealt = dealt[:count]
    chance.shuffle(dealt)
    return dealt


@dataclass
class Farm:
    """One run of the farm.

    Parameters
    ----------
    folder
        Where journals, checkpoints, sinks and logs go.
    seed
        What decides victims and moments.
    load
        What is published, and to what queue.
    instances
        Names of the instances that share the queue; none for a journal that does not replicate.
    consumers
        How many each journal has.
    into
        Whether they append what they acknowledge to one Delta table, by the commit that acknowledges it.
    """

    folder: Path
    seed: int
    load: Load
    instances: tuple[str, ...] = ()
    consumers: int = 2
    into: bool = False
    kills: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        names = [f"consumer{number}" for number in range(self.consumers)]
        if not self.instances:
            table = self.folder / "booked" if self.into else None
            self.sites = [Site(self.folder / "site", self.load, self.load.definitions(), names, table=table)]
        else:
            paths = {name: str(self.folder / name / "journal") for name in self.instances}
            definitions = {name: self.load.definitions_of_instance(name, paths) for name in self.instances}
            self.sites = [Site(self.folder / name, self.load, definitions[name], names) for name in self.instances]
        self._over = threading.Event()
        self._back_at_s = 0.0
        self._environment = {OF_FARM: str(self.folder)}

    @property
    def published(self) -> int:
        """How many messages were published."""
        return sum(site.published for site in self.sites)

    @property
    def cards(self) -> dict[str, int]:
        """What is dealt, and how often."""
        of_instances = {STORE: STORE_CARDS, ALTER: ALTER_CARDS} if self.instances else {}
        return CARDS | of_instances | ({FROZEN: FROZEN_CARDS} if self.into else {})

    def run(self, *, kills: int, patience_s: float) -> None:
        """Publish, consume and kill; then wait for what is left, as long as it gets less, and stop the consumers."""
        publisher = threading.Thread(target=self._publish)
        # Coordinators that the farm itself starts may be killed, too.
        with mock.patch.dict(os.environ, self._environment):
            try:
                self._await_streams(patience_s)
                publisher.start()
                for kind in self._drawn(kills):
                    self._over.wait(self.random.uniform(0.3, 2.5))
                    self._bring_back()
                    while not self._let(kind):
                        self._over.wait(LOOK_AGAIN_S)
                        self._keep_running()
                        self._bring_back()
                self._over.set()
                publisher.join()
                self._bring_back(at_once=True)
                self._drain(patience_s)
            finally:
                self._over.set()
                self._bring_back(at_once=True)
                for site in self.sites:
                    site.stop()

    def _drawn(self, kills: int) -> list[str]:
        """Draw what happens, one after the other."""
        kinds = deal(self.random, self.cards, kills)
        for certain in (TRANSFER, CLAIM) if self.instances else ():
            kinds.insert(self.random.randint(0, len(kinds)), certain)
        return kinds

    def _let(self, kind: str) -> bool:
        """Let something happen; returns whether it could."""
        match kind:
            case "store":
                return self._take_away()
            case "alter":
                return self._alter()
            case "frozen":
                stood = self.sites[0].pause_one(self.random, self.random.uniform(*FROZEN_S))
                self.kills[FROZEN] += stood
                return stood
            case "transfer" | "claim":
                self._bring_back(at_once=True)
                takeovers = Takeovers(self.random, self.sites, keep_running=self._keep_running, allow_claims=self._allow_claims)
                takeovers.transfer() if kind == TRANSFER else takeovers.claim()
                return True
        return self._kill_one(kind)

    def _publish(self) -> None:
        is_behind = False
        for number in itertools.count():
            if self._over.wait(0.25):
                return
            site = self.sites[number // IN_A_ROW % len(self.sites)]
            if number % IN_A_ROW == 0:
                is_behind = site.is_behind()
            if not is_behind:
                site.publish(ROWS // len(self.sites))

    def _keep_running(self) -> None:
        for site in self.sites:
            site.keep_running(self._environment)

    def _await_streams(self, patience_s: float) -> None:
        """Wait until each journal has a consumer whose stream has begun."""
        deadline = time.monotonic() + patience_s
        while not all(site.parts(VICTIMS["planner"]) for site in self.sites) and time.monotonic() < deadline:
            self._keep_running()
            self._over.wait(LOOK_AGAIN_S)

    def _kill_one(self, kind: str) -> bool:
        """Kill one random part of a kind; returns whether there was one."""
        candidates = (
            self._coordinators() if kind == "coordinator" else [part for site in self.sites for part in site.parts(VICTIMS[kind])]
        )
        if not candidates:
            return False
        victim = self.random.choice(sorted(candidates, key=lambda process: process.pid))
        try:
            victim.send_signal(signal.SIGKILL)
        except psutil.NoSuchProcess:
            return False
        self.kills[kind] += 1
        return True

    def _coordinators(self) -> list[psutil.Process]:
        """Return the coordinators of this farm; they outlive whoever started them, and tell whose they are by a variable."""
        found = []
        for process in psutil.process_iter():
            try:
                is_ours = VICTIMS["coordinator"] in command_line(process) and process.environ().get(OF_FARM) == str(self.folder)
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
            if is_ours:
                found.append(process)
        return found

    def _take_away(self) -> bool:
        """Let a journal disappear, unless one has; mostly the others may claim what it owns meanwhile."""
        if any(site.is_lost for site in self.sites):
            return True
        if not self._allow_claims(on=self.random.random() < 0.75):
            return False
        self.random.choice(self.sites).vanish()
        self._back_at_s = time.monotonic() + self.random.uniform(*AWAY_S)
        self.kills[STORE] += 1
        return True

    def _alter(self) -> bool:
        """Give an instance another filter, first owner and order of messages, or none; returns whether it heard that."""
        owned = {"ownership": "group_local", "group_local_domain": "farm", "initial_owner": self.random.choice(self.instances)}
        order = {"order_key": f"CAST(get_json_object(value, '$.order') AS BIGINT) % {self.random.choice((97, 997))}"}
        parts = [{"filter": self.random.choice(FILTERS)}, owned, owned | order]
        chosen = {name: value for part in parts if self.random.random() < 0.5 for name, value in part.items()}
        altered = self.random.choice([site for site in self.sites if not site.is_lost]).alter(**chosen)
        self.kills[ALTER] += altered
        return altered

    def _bring_back(self, *, at_once: bool = False) -> None:
        """Bring a journal back that was away for long enough; whether claims stay allowed is chance."""
        for site in self.sites:
            if site.is_lost and (at_once or time.monotonic() >= self._back_at_s):
                site.come_back()
                self._allow_claims(on=self.random.random() < 0.5)

    def _allow_claims(self, *, on: bool) -> bool:
        """Switch proxied transfer everywhere; returns whether everybody heard it."""
        try:
            for site in self.sites:
                site.journal.queue("WORK").proxied_transfer(on=on)
        except SparkQueueError:
            # A coordinator that is killed just now.
            return False
        return True

    def _drain(self, patience_s: float) -> None:
        """Wait until nothing is left, keeping the consumers alive."""
        left, deadline = self._left(), time.monotonic() + patience_s
        while left and time.monotonic() < deadline:
            self._keep_running()
            threading.Event().wait(0.5)
            before, left = left, self._left()
            if left < before:
                deadline = time.monotonic() + patience_s

    def _left(self) -> int:
        return sum(site.left() for site in self.sites)
