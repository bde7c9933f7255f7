"""One instance of a simulated world of several: its journal, its coordinators, and who publishes and consumes there."""

from __future__ import annotations

import errno
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from pyroaring import BitMap64

from spark_queue.core import commands
from spark_queue.core.bitmaps.ranges import to_bitmap, to_ranges
from spark_queue.core.definitions import parsing
from spark_queue.core.definitions.definition import Definitions
from spark_queue.core.records import Kind, Record
from spark_queue.core.state.lifecycle import State
from spark_queue.journal.open import DeltaJournal
from spark_queue.journal.store import messages_key
from tests.records import detail_of
from tests.simulation import simulated_table
from tests.simulation.backups import Life
from tests.simulation.bucket import Bucket, SimulatedStore
from tests.simulation.coordinator import QUEUE
from tests.simulation.disk_world import DiskWorld, Process
from tests.simulation.instance_pullers import InstancePullers
from tests.simulation.instance_stores import DistantStore, InstanceBucket
from tests.simulation.loop_driver import Operator, Steps
from tests.simulation.loop_node import Node
from tests.simulation.loop_world import COLUMNS, NESTED_MAX, TYPE, LoopWorld
from tests.simulation.promises import rows_of
from tests.simulation.publishers import FURTHER, Application, Publisher, is_marked

if TYPE_CHECKING:
    from tests.simulation.instances_world import InstancesWorld

#: How many keys there are where a queue has an order of them.
KEYS = 4

#: More messages than any target depth of these worlds.
DEEP = 1_060

#: Most rounds until a queue is put back, since peers are looked at before.
_PUT_BACK_ROUNDS = 500

#: The order key of a queue, where it has one.
KEY = f"n % {KEYS}"

#: The dead-letter queue, where there is one.
LETTERS = "FAILED"


def barriers_of(log: Iterable[Record]) -> set[int]:
    """Return the messages of which a log says that they are barriers of the queue."""
    told = (each for each in log if each.kind == Kind.DECIDED and each.queue == QUEUE and detail_of(each).get("barrier"))
    return {row for record in told for row in rows_of(record)}


class InstanceOperator(Operator):
    """Somebody who gives dead letters back."""

    def __init__(self, instance: WholeInstance) -> None:
        super().__init__(instance)
        self._instance = instance

    def _act(self) -> Steps:
        random = self._instance.random
        found = yield from self.ask(commands.FindDeadLetters, queue=QUEUE)
        rows = to_bitmap(found.reply.ranges)
        if rows:
            chosen = rows if random.random() < 0.5 else BitMap64([random.choice(list(rows))])
            yield from self.ask(commands.Redrive, queue=QUEUE, ranges=tuple(to_ranges(chosen)))


class WholeInstance(DiskWorld):
    """A world of one journal that others pull from, and that pulls from others.

    Parameters
    ----------
    peers : Sequence of str
        From whom it pulls.
    """

    def __init__(self, around: InstancesWorld, name: str, peers: Sequence[str], *, settings: dict[str, Any]) -> None:
        self.around = around
        self.name = name
        self.path = f"sim://{name}"
        self.peers = peers
        self.queues = [QUEUE, LETTERS] if "dead_letter_queue" in settings else [QUEUE]
        #: Whether the definitions of here leave the shared queue out.
        self.is_left = False
        #: Whether its consumers do nothing for a while.
        self.is_asleep = False
        #: What it was before backups were put back.
        self.lives: list[Life] = []
        #: Of each living coordinator process, in the order of their starts.
        self.all_pullers: list[InstancePullers] = []
        #: The living coordinator processes, also those that have yet to be elected.
        self.processes: list[Node] = []
        #: What is a barrier by a log.
        self._barriers: tuple[Sequence[Record], set[int]] = ([], set())
        super().__init__(around.random.getrandbits(32), settings=settings, journal={"instance": name, "group": "sites"})
        self.operator = InstanceOperator(self)

    #: One that its peers pull.
    topics = ("T",)

    def make_bucket(self, now_ms: Callable[[], int]) -> Bucket:
        """Make the bucket of its journal."""
        return InstanceBucket(now_ms, self.path, lambda first, last: self.around.note_commit(self, first, last))

    def _create(self) -> None:
        peer = {"topics": ["T"], "queues": self.queues, "pull_interval": "100ms"}
        self.definitions["peers"] = {name: {**peer, "journal": f"sim://{name}"} for name in self.peers}
        self.definitions["replication"] = {"unreachable_after": self.around.unreachable_after}
        if self.settings.get("ownership") == "group_local" and LETTERS in self.queues:
            same = ("ownership", "initial_owner")
            self.definitions["queues"][LETTERS] |= {key: self.settings[key] for key in same}
        super()._create()

    def _make_publishers(self) -> list[Publisher]:
        kinds = ("named", "stream", "plain", "appending")
        made = [Publisher(self, Application(name=f"{self.name}-{kind}", kind=kind)) for kind in kinds]
        if "target_queue_depth" in self.settings and self.name == "a":
            # So many at once that some are beyond it.
            made[0].application.batches.append(self.new_messages(DEEP))
        return made

    def new_messages(self, count: int) -> list[int]:
        """Draw ids of new messages, which no other instance has."""
        return self.around.new_messages(self, count)

    def open(self, node: Node) -> DeltaJournal:
        """Open the journal for a coordinator process."""
        self.processes = [each for each in self.processes if each.alive] + [node]
        return super().open(node)

    def pullers(self, node: Node) -> InstancePullers:
        """Make what pulls for a coordinator process."""
        made = InstancePullers(self, node)
        self.all_pullers = [each for each in self.all_pullers if each.node.alive] + [made]
        return made

    @property
    def definitions_told(self) -> Definitions:
        """The definitions by which publishers write: those of the log."""
        if not self.around.alters:
            return self.parsed
        applied = (detail_of(each)["definitions"] for each in reversed(self.log) if each.kind == Kind.DEFINITIONS_APPLIED)
        return parsing.parse(next(applied))

    def further(self) -> dict[int, Any]:
        """Return what the further column of each message says here, by its id."""
        files = self.bucket.tables[messages_key(TYPE)][-1].files
        return {each: value for path in files for each, value in zip(self._ids(path), self._column(path, FURTHER), strict=True)}

    def is_barrier(self, bookmark: int) -> bool:
        """Return whether a message is a barrier, as the log says."""
        if not self.around.has_barriers or not is_marked(self.order[bookmark]):
            return False
        log = self.log
        if self._barriers[0] is not log:
            self._barriers = (log, barriers_of(log))
        return bookmark in self._barriers[1]

    def way_to(self, peer: str, process: Process) -> SimulatedStore:
        """Give a process its way to the journal of another instance."""
        there = self.around.instances[peer]

        def hook(doing: str, moment: str) -> None:
            self._at_store(process, doing, moment)
            if not self.around.can_read(self.name, peer):
                raise OSError(errno.EIO, "the network does not answer")

        def comes_late() -> bool:
            return self.troubled and self.random.random() < 0.05

        return self._given(DistantStore(there.bucket, self._next_way(), hook, comes_late=comes_late))

    def way(self, process: Process | None) -> SimulatedStore:
        """Give a process its way to the bucket; nothing ever fails for None, which looks from outside."""

        def hook(doing: str, moment: str) -> None:
            if process is not None:
                self._at_store(process, doing, moment)
                if self.name in self.around.lost:
                    raise OSError(errno.EIO, "the store is not there")

        return self._given(SimulatedStore(self.bucket, self._next_way(), hook))

    def _next_way(self) -> str:
        self._ways += 1
        return f"{self.name} {self._ways}"

    def _given(self, store: SimulatedStore) -> SimulatedStore:
        simulated_table.STORES[store.storage_options["process"]] = store
        return store

    def pull(self) -> None:
        """Let one who pulls for some coordinator process go on."""
        living = [each for each in self.all_pullers if each.node.alive and each.node.loop is not None]
        if living:
            self.random.choice((living[-1], self.random.choice(living))).go_on()

    def go_on_quietly(self) -> None:
        """Let a coordinator serve, and pull, and nobody else do anything."""
        self._step_node()
        self.pull()

    def stop_trouble(self, *, claims: bool) -> None:
        """Let nothing go wrong any more, all publishers finish, and one last coordinator reign.

        Parameters
        ----------
        claims : bool
            Whether messages may be claimed from who is gone.
        """
        self.troubled = False
        self.stray.clear()
        self.bucket.late.clear()
        while not all(publisher.is_done for publisher in self.publishers):
            for publisher in self.publishers:
                publisher.finish()
        for node in self.nodes:
            node.alive = False
        self._elect()
        self.put_back()
        if self.operator is not None:
            self.operator.drain()
        if claims:
            self.switch(on=True)

    def settle(self, *, pulls: bool) -> bool:
        """Let everybody here take a step; returns whether there was something to do."""
        awake = [] if self.is_asleep else self.drivers
        for driver in awake:
            driver.step()
        self.nodes[-1].step()
        self.say_restored()
        for lost in self.around.lost & set(self.peers) if self.reigning.returning is not None else ():
            self.send(self.request(commands.ReturnWithout, peer=lost))
        found = pulls and self.all_pullers[-1].go_on_all()
        return found or not (all(driver.checkpoint.is_caught_up for driver in awake) and self.is_empty())

    def is_empty(self) -> bool:
        """Return whether every message has come, and has reached its end here and elsewhere."""
        return super().is_empty() and not self.reigning.queues[QUEUE].rows[State.REMOTE]

    def has_all_of(self, other: WholeInstance) -> bool:
        """Return whether everything that was published elsewhere has come."""
        return set(other.order) <= set(self.order)

    def switch(self, *, on: bool) -> None:
        """Let somebody allow proxied transfer from all others, or forbid it (R108)."""
        for queue in self.queues:
            for owner in [each.name for each in self.around.sharing if each is not self] if on else [None]:
                self.send(self.request(commands.ProxiedTransfer, queue=queue, on=on, owner=owner))

    def alter(self) -> None:
        """Let somebody say here alone what the messages of here are, whose they are first, and in which order they go (R129)."""
        draw = self.random.choice
        owned = {"ownership": "group_local", "initial_owner": draw(self.around.sharing).name, "group_local_domain": "sites"}
        chosen = draw(({}, owned))
        what = {"filter": draw((None, "n % 3 <> 0", "n % 3 <> 1"))}
        if self.around.has_barriers:
            what["barrier"] = draw((None, "b = 1"))
        # Two owners cannot keep the order of one key: this one has all, but for those of before.
        what["order_key"] = draw((None, KEY)) if chosen else None
        queues = {
            name: {key: value for key, value in queue.items() if key not in {*owned, *what}} | chosen
            for name, queue in self.definitions["queues"].items()
        }
        queues[QUEUE] |= {key: text for key, text in what.items() if text is not None}
        message_types = self.definitions["message_types"]
        if draw((True, False, False)):
            # It stays declared from then on.
            message_types = {TYPE: {**message_types[TYPE], "columns": f"{COLUMNS}, {FURTHER} BIGINT"}}
        self.definitions = {**self.definitions, "message_types": message_types, "queues": queues}
        self.is_left = self.around.leaves and draw((True, False, False, False))
        self._define()

    def _define(self) -> None:
        """Let somebody apply the definitions, without the shared queue while it is left."""
        definitions = self.definitions
        if self.is_left:
            peers = {name: {**peer, "queues": []} for name, peer in definitions["peers"].items()}
            definitions = {**definitions, "queues": {}, "peers": peers}
        self.send(self.request(commands.Apply, definitions=definitions))

    def put_back(self) -> None:
        """Let somebody put the queue back, if it was left."""
        self.is_left = False
        for _ in range(_PUT_BACK_ROUNDS):
            if not self.queues or QUEUE in self.reigning.queues:
                break
            self._define()
            self.go_on_quietly()
            self.advance(300)

    def say_restored(self) -> None:
        """Let somebody say that the journal was restored, where a coordinator asks for that."""
        if any(node.loop._engine.liveness.restored for node in self.nodes if node.alive and node.loop is not None):
            self.send(self.request(commands.Restored, origin=str(uuid.uuid4())))

    def has_entered_all(self) -> bool:
        """Return whether the control log tells of all messages that were published here, or came."""
        self.note_order()
        return sum(int(detail_of(record)["rows"]) for record in self.log if record.kind == Kind.ENTERED) == len(self.order)

    def pulled_of(self, peer: str) -> int:
        """Return the number of the last record that was pulled of a peer; -1 where nothing was."""
        told = (
            detail_of(record)["number"]
            for record in reversed(self.log)
            if record.kind == Kind.PULLED and detail_of(record)["peer"] == peer
        )
        return int(next(told, -1))

    def is_compared(self) -> bool:
        """Return whether a coordinator has searched its peers' logs for what the journal has lost, and somebody has said so."""
        reigning = [node for node in self.nodes if node.alive and node.loop is not None]
        pullers = [each for each in self.all_pullers if reigning and each.node is reigning[-1]]
        return any(each.are_compared() and each.restored() is None for each in pullers)

    def operate(self) -> None:
        """Let somebody do something by hand, and mostly be answered."""
        for _ in range(8):
            if self.operator is not None:
                self.operator.step()
            self._step_node()

    def let_others_go_on(self) -> None:
        """Let others take their steps now and then, before somebody takes his next."""
        if self.troubled and self.random.random() < 0.1 and self.around.nested < NESTED_MAX:
            self._meanwhile()

    def advance(self, elapsed_ms: int) -> None:
        """Let time pass, everywhere."""
        self.around.advance(elapsed_ms)

    def pass_time(self, elapsed_ms: int) -> None:
        """Let time pass here, on each host at its own rate."""
        LoopWorld.advance(self, elapsed_ms)

    @property
    def _nested(self) -> int:
        """How many processes of the world wait for a store, each inside the wait of another."""
        return self.around.nested

    @_nested.setter
    def _nested(self, nested: int) -> None:
        self.around.nested = nested

    def _step_driver(self) -> None:
        if not self.is_asleep:
            super()._step_driver()

    def _at_store(self, process: Process, doing: str, moment: str) -> None:
        if not self.around.is_restoring or not process.alive:
            super()._at_store(process, doing, moment)

    def _go_on(self) -> None:
        self.around.step()


class Archive(WholeInstance):
    """An instance that pulls messages only: nobody publishes or consumes there (R114)."""

    def __init__(self, around: InstancesWorld, name: str, peers: Sequence[str], *, settings: dict[str, Any]) -> None:
        super().__init__(around, name, peers, settings=settings)
        self.drivers = []
        self.operator = None

    def _create(self) -> None:
        self.queues = []
        self.definitions["queues"] = {}
        super()._create()

    def _make_publishers(self) -> list[Publisher]:
        return []

    def publish(self, messages: int) -> None:
        """Do nothing."""

    def _step_driver(self) -> None:
        pass

    def _end_driver(self) -> None:
        pass

    def is_empty(self) -> bool:
        """Return whether all that it has entered."""
        self.note_order()
        return self.reigning.message_types["line"].entered_until == len(self.order)
