"""Publishers of a simulated world: applications that repeat what was not confirmed, each in its way, and die in between."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from spark_queue.errors import CallerError, JournalError
from spark_queue.journal.publisher import Identity, OpenedName, Published, commit_staged, make_plan, open_name, publish
from spark_queue.journal.staging import StagingPlan, stage_file
from tests.fake_clock import FakeClock
from tests.simulation.loop_node import START_MS, KilledError
from tests.simulation.loop_world import TYPE

if TYPE_CHECKING:
    from tests.simulation.bucket import SimulatedStore
    from tests.simulation.disk_world import DiskWorld

#: A column that some instance declares later, or no more.
FURTHER = "further"

#: Every so many messages one is published that is a barrier where its queue has any.
BARRIER_EVERY = 9


def is_marked(message: int) -> bool:
    """Return whether a message is a barrier where its queue has any, by its id."""
    return message % BARRIER_EVERY == 0


@dataclass
class Application:
    """One program, whoever runs it: its batches, and what it was told of them."""

    name: str
    #: ``named`` numbers its messages, ``stream`` its batches, ``plain`` nothing, so that it must not repeat. ``appending`` numbers
    #: on after the log's last message, so that only the process that numbered a batch may repeat it.
    kind: str
    #: Ids of the messages of each batch, oldest first; the last one may still be under way.
    batches: list[list[int]] = field(default_factory=list)
    #: How many batches it need not publish any more, and the ids of which it was told that they are in the log.
    done: int = 0
    confirmed: set[int] = field(default_factory=set)
    #: Chance that a process dies after it published, before it notes that.
    forgets: float = 0.0
    #: Whether its messages are no barriers anywhere, and have nothing in the further column: where several instances get one by
    #: different definitions, it must be the same at each.
    is_plain: bool = False

    def sequence(self, batch: int) -> int:
        """Return the number of a batch's first message."""
        return 1 + sum(map(len, self.batches[:batch]))


class Publisher:
    """One process after another of one application; older ones may still wait for the store, or go on until they are refused."""

    def __init__(self, world: DiskWorld, application: Application) -> None:
        self.world = world
        self.application = application
        #: Those that live, the newest last.
        self._processes: list[_Process] = []

    def step(self) -> None:
        """Publish the next batch, or the last one again, as a process that lives or as the next one."""
        app, random = self.application, self.world.random
        self._processes = [process for process in self._processes if process.alive]
        idle = [process for process in self._processes if not process.busy]
        if not idle or random.random() < 0.1:
            idle.append(_Process(self.world, app))
            self._processes.append(idle[-1])
        if app.done == len(app.batches):
            app.batches.append(self.world.new_messages(self.world.random.randint(1, 4)))
        (idle[-1] if random.random() < 0.8 else random.choice(idle)).publish_next()

    def finish(self) -> None:
        """Publish what was begun; an older process may still land before."""
        if not self.is_done:
            self.step()

    def end(self) -> None:
        """End its processes, since the log is put back: who does not number messages cannot tell whether to repeat any."""
        for process in self._processes:
            process.alive = False
        if self.application.kind != "named":
            self.application.done = len(self.application.batches)

    @property
    def is_done(self) -> bool:
        """Whether everything that it has was published."""
        return self.application.done == len(self.application.batches)


class _Process:
    #: It calls the store rarely, and each of its steps matters.
    bad_luck = 5
    outage = 0

    def __init__(self, world: DiskWorld, application: Application) -> None:
        self.alive, self.busy = True, False
        self._world = world
        self._app = application
        self._store: SimulatedStore = world.way(self)
        self._opened: OpenedName | None = None
        #: Number of the next message of an ``appending`` application.
        self._next_sequence = 1
        self._clock = FakeClock(START_MS + world.elapsed_ms)

    def publish_next(self) -> None:
        """Publish the first batch that is not done."""
        self.busy = True
        try:
            batch = self._first_open_batch()
            if batch is not None:
                self._publish(batch)
        except KilledError:
            self.alive = False
        except (CallerError, JournalError) as refusal:
            if refusal.code not in ("STORE_FAILED", "PUBLISHER_NAME_IN_USE", "SEQUENCE_BEHIND", "PUBLISH_CONTENDED"):
                raise
            # Whoever only numbers nothing must not try again; the others do, after a refusal as a new process.
            self.alive = refusal.code == "STORE_FAILED"
            if self._app.kind == "plain":
                self._app.done = len(self._app.batches)
        finally:
            self.busy = False

    def _first_open_batch(self) -> int | None:
        app = self._app
        if app.kind in ("named", "appending") and self._opened is None:
            self._open()
        return app.done if app.done < len(app.batches) else None

    def _open(self) -> None:
        app, world = self._app, self._world
        self._opened = open_name(
            self._store, world.journal_id, [TYPE], app.name, durable=world.definitions_told.journal.durable, clock=self._clock
        )
        persisted = self._opened.last_sequence or 0
        if app.kind == "named":
            # What the log says counts, not what a process was told.
            app.done = max(app.done, sum(app.sequence(batch + 1) <= persisted + 1 for batch in range(len(app.batches))))
        else:
            # Whether the last batch of an earlier process is there, it cannot tell.
            app.done, self._next_sequence = len(app.batches), persisted + 1

    def _publish(self, batch: int) -> None:
        app, ids = self._app, list(self._app.batches[batch])
        plan = make_plan(self._store, self._world.definitions_told, message_type=TYPE, topic="T", expires_after_ms=None)
        if app.kind == "plain":
            # It is not repeated, whatever becomes of it.
            app.done = max(app.done, batch + 1)
        self._send(plan, batch, ids)
        if app.forgets and self._world.troubled and self._world.random.random() < app.forgets:
            raise KilledError
        self._next_sequence += len(ids)
        app.confirmed.update(ids)
        app.done = max(app.done, batch + 1)

    def _send(self, plan: StagingPlan, batch: int, ids: list[int]) -> Published:
        app, world = self._app, self._world
        barriers = [int(is_marked(each) and not app.is_plain) for each in ids]
        columns = {"n": pa.array(ids, pa.int64()), "b": pa.array(barriers, pa.int64())}
        if FURTHER in plan.shape.schema.names and not app.is_plain:
            columns[FURTHER] = pa.array(ids, pa.int64())
        rows = pa.table(columns)
        common: dict[str, Any] = {"clock": self._clock}
        if self._opened is not None:
            identity = Identity(publisher=app.name, exclusive=True, number=self._opened.numbers[TYPE])
            first = app.sequence(batch) if app.kind == "named" else self._next_sequence
            return publish(plan, world.journal_id, world.definitions_told, rows, identity=identity, first_sequence=first, **common)
        if app.kind == "stream":
            file = stage_file(plan, rows.to_batches(), now_ms=self._clock.wall_ms())
            assert file is not None
            identity = Identity(transaction=(f"s:{app.name}", batch))
            return commit_staged(plan, world.journal_id, world.definitions_told, [file], identity=identity, **common)
        return publish(plan, world.journal_id, world.definitions_told, rows, **common)
