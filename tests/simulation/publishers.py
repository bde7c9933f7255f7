"""Publishers of a simulated world: applications that repeat what was not confirmed, each in its way, and die in between."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from spark_queue.errors import CallerError, JournalError
from spark_queue.journal.commit import OFFSETS_TXN, ROWS_TXN, STREAM_TXN, USER_TXN, Transaction, transaction_name
from spark_queue.journal.fingerprint import fingerprint, fingerprints_of_rows
from spark_queue.journal.group_commit import GroupCommit, PendingPublish, PublishCall
from spark_queue.journal.publisher import Identity, OpenedName, commit_staged, make_plan, open_name, publish
from spark_queue.journal.staging import StagingPlan, stage_file
from tests.fake_clock import FakeClock
from tests.simulation.loop_node import START_MS, KilledError
from tests.simulation.loop_world import TYPE

if TYPE_CHECKING:
    from tests.simulation.bucket import SimulatedStore
    from tests.simulation.disk_world import DiskWorld

#: Refusals that a publisher goes on after, in its way.
_EXPECTED = frozenset(
    "STORE_FAILED PUBLISHER_NAME_IN_USE SEQUENCE_BEHIND PUBLISH_CONTENDED CHECKPOINT_BEHIND TRANSACTION_USED".split()
)

#: A number above that of any record: the world says which definitions a publisher goes by.
_NEWEST = 2**62

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
    #: ``named`` numbers its messages, ``stream`` its batches, ``plain`` nothing, so that it must not repeat; its messages are calls
    #: of their own, several at once. ``appending`` numbers on after the log's last message, so that only the process that numbered
    #: a batch may repeat it. ``intervals`` publishes those of a calendar, every second one late, each to two topics under one id;
    #: what is refused for that gets an id of its own.
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
    #: Of a stream: the chance that its checkpoint goes back before a batch, and how often it did; its source only grows.
    goes_back: float = 0.0
    plans: int = 0
    #: How many checkpoints it had, and the first batch of the last one; and whether it was refused for what that has forgotten.
    queries: int = 1
    first: int = 0
    refused: bool = False
    #: Of intervals: the batches that have an id of their own.
    own_ids: set[int] = field(default_factory=set)

    def plan_again(self, batch: int, grown: list[int]) -> None:
        """Begin anew with a batch: its rows are all that the source has by now."""
        due = [message for each in self.batches[batch:] for message in each]
        self.batches[batch:] = [due + grown]
        self.done, self.plans = batch, self.plans + 1

    def begin_after(self, standing: Collection[int]) -> None:
        """Begin with an empty checkpoint, and with what of the source is not in the log."""
        due = [message for each in self.batches[self.done :] for message in each]
        there = [message for message in due if message in standing]
        assert there == due[: len(there)], "a stream publishes in the order of its source"
        self.batches[self.done :] = [batch for batch in (there, due[len(there) :]) if batch]
        self.done += bool(there)
        self.first, self.queries, self.refused = self.done, self.queries + 1, False

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
        if app.refused:
            self._go_on_after_refusal()
            return
        if app.done == len(app.batches):
            app.batches.append(self.world.new_messages(self.world.random.randint(1, 4)))
        if app.goes_back and self.world.troubled and random.random() < app.goes_back:
            app.plan_again(random.randint(app.first, app.done), self.world.new_messages(random.randint(0, 2)))
            idle.append(_Process(self.world, app))
            self._processes.append(idle[-1])
        (idle[-1] if random.random() < 0.8 else random.choice(idle)).publish_next()

    def _go_on_after_refusal(self) -> None:
        """Let an operator look at what is there, once nothing of the old query can come any more."""
        if any(process.busy for process in self._processes):
            return
        self.end_processes()
        self.world.bucket.late.clear()
        self.world.note_order()
        self.application.begin_after(set(self.world.order))

    def end_processes(self) -> None:
        """End all of its processes."""
        for process in self._processes:
            process.alive = False

    def finish(self) -> None:
        """Publish what was begun; an older process may still land before."""
        if not self.is_done:
            self.step()

    def end(self) -> None:
        """End its processes, since the log is put back: who does not number messages cannot tell whether to repeat any."""
        self.end_processes()
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
        self._group: GroupCommit | None = None
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
            if refusal.code not in _EXPECTED:
                raise
            # Whoever only numbers nothing must not try again; the others do, after a refusal as a new process.
            self.alive = refusal.code in ("STORE_FAILED", "TRANSACTION_USED")
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
        app, ids, plans = self._app, list(self._app.batches[batch]), self._app.plans
        plan = self._plan("T")
        if app.kind == "plain":
            # It is not repeated, whatever becomes of it.
            app.done = max(app.done, batch + 1)
        try:
            self._send(plan, batch, ids)
        except CallerError as refusal:
            # Whoever comes late with a batch that others have done is told nothing new.
            is_due = batch >= app.done and plans == app.plans
            if refusal.code == "CHECKPOINT_BEHIND" and is_due:
                app.refused = True
            elif refusal.code == "TRANSACTION_USED" and is_due:
                app.own_ids.add(batch)
            raise
        if app.forgets and self._world.troubled and self._world.random.random() < app.forgets:
            raise KilledError
        self._next_sequence += len(ids)
        app.confirmed.update(ids)
        if plans == app.plans:
            app.done = max(app.done, batch + 1)

    def _send(self, plan: StagingPlan, batch: int, ids: list[int]) -> None:
        app, world = self._app, self._world
        common: dict[str, Any] = {"clock": self._clock}
        if self._opened is not None:
            identity = Identity(publisher=app.name, exclusive=True, number=self._opened.numbers[TYPE])
            first = app.sequence(batch) if app.kind == "named" else self._next_sequence
            rows = self._rows(plan, ids)
            publish(plan, world.journal_id, world.definitions_told, rows, identity=identity, first_sequence=first, **common)
        elif app.kind == "stream":
            self._commit(plan, ids, f"{app.name}-{app.queries}", batch - app.first, plan_number=app.plans)
        elif app.kind == "intervals":
            name = f"{app.name}-{batch}" if batch in app.own_ids else app.name
            for topic, part in (("T", ids[::2]), ("U", ids[1::2])):
                if part:
                    self._commit(self._plan(topic), part, name, batch ^ 1)
        else:
            self._send_together(plan, ids)

    def _send_together(self, plan: StagingPlan, ids: list[int]) -> None:
        """Publish each message by a call of its own: they share a commit, behind the head that the one before has left."""
        world = self._world
        # A head that has grown old is read on first.
        self._clock.advance(max(0, START_MS + world.elapsed_ms - self._clock.wall_ms()))
        self._group = self._group or GroupCommit(self._store, world.journal_id, TYPE, clock=self._clock)
        calls = [PublishCall(data=self._rows(plan, [each]).to_pylist(), topic=plan.shape.topic) for each in ids]
        tries = [PendingPublish(call=call, definitions=world.definitions_told, record=_NEWEST) for call in calls]
        self._group.commit(tries)
        for each in tries:
            each.result()

    def _rows(self, plan: StagingPlan, ids: list[int]) -> pa.Table:
        app = self._app
        barriers = [int(is_marked(each) and not app.is_plain) for each in ids]
        columns = {"n": pa.array(ids, pa.int64()), "b": pa.array(barriers, pa.int64())}
        if FURTHER in plan.shape.schema.names and not app.is_plain:
            columns[FURTHER] = pa.array(ids, pa.int64())
        return pa.table(columns)

    def _plan(self, topic: str) -> StagingPlan:
        plan = make_plan(self._store, self._world.definitions_told, message_type=TYPE, topic=topic, expires_after_ms=None)
        return replace(plan, sums_columns=self._app.kind == "intervals")

    def _commit(self, plan: StagingPlan, ids: list[int], name: str, number: int, *, plan_number: int | None = None) -> None:
        """Commit rows under a number, which are told from others by what was planned, or by themselves."""
        file = stage_file(plan, self._rows(plan, ids).to_batches(), now_ms=self._clock.wall_ms())
        assert file is not None
        id_ = transaction_name(USER_TXN if plan_number is None else STREAM_TXN, name, target=plan.shape.topic)
        if plan_number is None:
            told = {f"{ROWS_TXN}{id_}": fingerprints_of_rows([file.columns], file.row_count, number=number)[0]}
        else:
            told = {f"{OFFSETS_TXN}{id_}": fingerprint(f"{number} {plan_number} {ids}".encode())}
        identity = Identity(transaction=Transaction(name=id_, number=number, fingerprints=told))
        definitions = self._world.definitions_told
        commit_staged(plan, self._world.journal_id, definitions, [file], identity=identity, clock=self._clock)
