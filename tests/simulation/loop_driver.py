"""Who asks the coordinators of a simulated world: drivers like Spark's, and somebody who settles by hand."""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyroaring import BitMap64

from spark_queue.coordinator.logins import Login
from spark_queue.core import commands
from spark_queue.core.bitmaps.ranges import to_bitmap
from spark_queue.core.records import Incarnation, Outcome
from spark_queue.errors import SparkQueueError
from spark_queue.protocol import wire
from tests.simulation.checkpoint import Checkpoint
from tests.simulation.coordinator import QUEUE, QueryFailedError

if TYPE_CHECKING:
    from tests.simulation.loop_world import LoopWorld

#: Something that goes on over several steps of the world and gives an answer in the end.
Steps = Generator[None, None, Any]

#: Refusals after which a client asks again.
_PASSING = frozenset({"COORDINATOR_RECOVERING", "COORDINATOR_DEPOSED"})

#: What is done by hand, the more often the more often it stands here.
_BY_HAND: tuple[Callable[..., wire.AnyRequest], ...] = (
    commands.Settle, commands.Settle, commands.SettleWhere, commands.Purge,
    commands.Pause, commands.Unpause, commands.Unpause, commands.Apply,
)  # fmt: skip


def rows_of(pieces: pa.Table) -> BitMap64:
    """Return the bookmarks of the row ranges that executors would read."""
    firsts, counts = pieces.column("bookmark").to_numpy().tolist(), pieces.column("rows").to_numpy().tolist()
    return to_bitmap([(first, first + count) for first, count in zip(firsts, counts, strict=True)])


class Client:
    """Asks again with the same request id until an answer comes, as `CoordinatorClient` does."""

    #: Whose token its calls have; None where nobody asks for one.
    who: Login | None = None

    def __init__(self, world: LoopWorld) -> None:
        self.world = world
        #: Ids of everything that it asked.
        self.requests: set[str] = set()

    def ask(self, kind: Callable[..., wire.AnyRequest], **fields: Any) -> Steps:
        """Yield the call that was answered; a refusal is raised."""
        request = self.world.request(kind, **fields)
        self.requests.add(request.request)
        while True:
            call = self.world.send(request, self.who)
            # Some replies are lost on the way, so nobody looks.
            lost = self.world.troubled and self.world.random.random() < 0.05
            for _ in range(self.world.random.randint(2, 8)):
                yield
                if call is not None and call.reply is not None and not lost:
                    break
            else:
                continue
            if isinstance(call.reply, wire.Failed) and call.reply.code in _PASSING:
                continue
            wire.raise_failed(call.reply)
            return call

    def tell(self, kind: Callable[..., wire.AnyRequest], **fields: Any) -> None:
        """Send something whose answer nobody waits for."""
        self.world.send(self.world.request(kind, **fields), self.who)


class Driver(Client):
    """One driver process after another on one checkpoint, a step at a time."""

    def __init__(self, world: LoopWorld, name: str, *, filter_sql: str | None) -> None:
        super().__init__(world)
        self.name = name
        self.filter_sql = filter_sql
        self.checkpoint = Checkpoint()
        self.said: dict[int, dict[int, Outcome]] = {}
        self._common: dict[str, Any] = {"queue": QUEUE, "subscription": name}
        self._steps: Steps | None = None
        self._incarnation: Incarnation | None = None
        #: The rows that came with the grant of a lease, and the newest lease of which they were taken as they came.
        self._given: tuple[int, pa.Table | None] = (0, None)
        self._taken = 0

    def step(self) -> None:
        """Take one step, or start the process."""
        if self._steps is None:
            self._steps = self._run()
        try:
            next(self._steps)
        except (QueryFailedError, SparkQueueError):
            # The query failed or was refused; its planner is told to stop, which may or may not still be heard.
            self.end(heard=self.world.random.random() < 0.5)

    def end(self, *, heard: bool) -> None:
        """End the process; with `heard`, its planner's goodbye is sent (P6)."""
        incarnation, self._incarnation, self._steps = self._incarnation, None, None
        if heard and incarnation is not None:
            self.tell(commands.Leave, incarnation=incarnation, call=0, taken=self._taken, **self._common)

    def _planner(self, kind: Callable[..., wire.AnyRequest], **fields: Any) -> Steps:
        self._calls += 1
        call = yield from self.ask(kind, incarnation=self._incarnation, call=self._calls, **self._common, **fields)
        return call

    def _run(self) -> Steps:
        drawn = yield from self.ask(commands.DrawIncarnation, **self._common)
        self._incarnation, self._calls = drawn.reply.incarnation, 0
        self._given, self._taken = (0, None), 0
        yield from self._planner(commands.Attach, ack_mode="auto", max_backlog=1_000, filter=self.filter_sql)
        if not self.checkpoint.is_caught_up:
            yield from self._batch(self.checkpoint.ends[-1])
        while True:
            finished = self._finished()
            limit, wait_ms = self.world.limit(), self.world.random.choice((0, 0, 1_000))
            # Who waits asks again, here: a run that ends would look with a wait of 0 at last.
            waits = {"wait_ms": wait_ms, "asks_again": wait_ms > 0}
            call = yield from self._planner(commands.Next, finished=finished, limit=limit, **waits)
            if call.reply.lease == finished:
                continue
            self._given = (call.reply.lease, call.pieces)
            yield
            self._begin(call.reply.lease)
            yield
            yield from self._batch(call.reply.lease)

    def _finished(self) -> int:
        """Return the newest offset that the process knows of."""
        return self.checkpoint.ends[-1] if self.checkpoint.ends else 0

    def _begin(self, lease: int) -> None:
        """Write a batch to the offset log."""
        self.checkpoint.ends.append(lease)
        self.checkpoint.contents.append(BitMap64())

    def _pieces(self, lease: int) -> Steps:
        """Give the rows of a batch, as they came with the grant, or as the coordinator says; that they came it may not hear."""
        (given, pieces), self._given = self._given, (0, None)
        if given != lease or pieces is None or self.world.random.random() < 0.3:
            call = yield from self._planner(commands.Rows, lease=lease)
            return call.pieces
        self._taken = lease
        self._calls += 1
        if self.world.random.random() < 0.9:
            self.tell(commands.RowsTaken, incarnation=self._incarnation, call=self._calls, lease=lease, **self._common)
        return pieces

    def _batch(self, lease: int) -> Steps:
        pieces = yield from self._pieces(lease)
        rows = rows_of(pieces)
        started = yield from self.ask(commands.StartRun, **self._common)
        run = started.reply.run
        if self.world.random.random() < 0.2:
            self.tell(commands.Renew, incarnation=self._incarnation, call=0, lease=lease, **self._common)
        error = self._failure(pieces)
        outcomes = () if error else self._outcomes(rows)
        self.said[lease] = {row: Outcome(each.outcome) for each in outcomes for row in to_bitmap(each.ranges)}
        yield
        yield from self.ask(commands.EndRun, run=run, outcomes=outcomes, error=error, **self._common)
        if error is not None:
            raise QueryFailedError
        yield
        self.checkpoint.contents[-1] = rows
        self.checkpoint.committed = len(self.checkpoint.ends)
        if self.world.random.random() < 0.5 and run.lease:
            self.tell(commands.Prove, run=run, **self._common)
        yield

    def _failure(self, pieces: pa.Table) -> str | None:
        """Return why a run of a batch fails; None where it does not."""
        return "fn raised" if len(pieces) and self.world.troubled and self.world.random.random() < 0.05 else None

    def _outcomes(self, rows: BitMap64) -> tuple[commands.OutcomeRows, ...]:
        said = []
        for row in [row for row in rows if self.world.random.random() < 0.1][:3]:
            if self.world.is_barrier(row):
                continue
            if self.world.random.random() < 0.5:
                said.append(commands.OutcomeRows(outcome="expire", ranges=((row, row + 1),), error="bad"))
            else:
                retry_after_ms = self.world.random.choice((None, 5_000))
                said.append(commands.OutcomeRows(outcome="cancel", ranges=((row, row + 1),), retry_after_ms=retry_after_ms))
        return tuple(said)


class Operator(Client):
    """Somebody who settles by list and by filter, purges, pauses, and alters the queue."""

    def __init__(self, world: LoopWorld) -> None:
        super().__init__(world)
        self._steps: Steps | None = None

    def step(self) -> None:
        """Go on with what is being done, or begin something."""
        if self._steps is None:
            self._steps = self._act()
        try:
            next(self._steps)
        except (StopIteration, SparkQueueError):
            self._steps = None

    def drain(self) -> None:
        """Leave the queue unpaused."""
        self._steps = None
        self.tell(commands.Unpause, queue=QUEUE)

    def _act(self) -> Steps:
        draw = self.world.random
        kind = draw.choice(_BY_HAND)
        fields: dict[str, Any] = {"queue": QUEUE}
        if kind is commands.Settle:
            row = draw.randrange(len(self.world.published) + 1)
            fields["outcomes"] = (commands.OutcomeRows(outcome=draw.choice(list(Outcome)).value, ranges=((row, row + 1),)),)
        elif kind is commands.SettleWhere:
            fields |= {"where": f"n = {draw.randrange(10)}", "outcome": draw.choice(list(Outcome)).value}
        elif kind is commands.Purge:
            fields["where"] = f"n = {draw.randrange(10)}"
        elif kind is commands.Apply:
            # A copy, since the log keeps what was sent before.
            definitions = copy.deepcopy(self.world.definitions)
            definitions["queues"][QUEUE]["lease_period"] = draw.choice(("5s", "10s", "20s"))
            fields = {"definitions": definitions}
        yield from self.ask(kind, **fields)
