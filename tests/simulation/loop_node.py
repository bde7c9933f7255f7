"""The coordinator processes of a simulated world, and the store and the calls that they see."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from spark_queue.coordinator.election import Candidate, ElectionPorts, Reign, elect
from spark_queue.coordinator.inbox import Call, Inbox
from spark_queue.coordinator.logins import Login
from spark_queue.coordinator.loop import Loop
from spark_queue.coordinator.recovery import recover
from spark_queue.coordinator.standby import Holder, succeed
from spark_queue.errors import CoordinatorError, JournalError
from spark_queue.protocol import wire
from spark_queue.protocol.connection import Presence
from tests.fake_clock import FakeClock
from tests.unit.coordinator.loop_world import NoAdvertisements

if TYPE_CHECKING:
    from tests.simulation.loop_world import LoopWorld

START_MS = 1_700_000_000_000


class KilledError(BaseException):
    """The process ended at a storage step."""


class HeardCall(Call):
    """A call whose answer the world looks at the moment it leaves."""

    __slots__ = ("asked_in_epoch", "node", "world")

    def __init__(self, world: LoopWorld, node: Node, request: wire.AnyRequest, who: Login | None, *, abandoned: bool) -> None:
        super().__init__(request, lambda: abandoned, who)
        self.world = world
        self.node = node
        self.asked_in_epoch = world.epoch

    def answer(self, reply: wire.AnyReply | None, pieces: pa.Table | None = None) -> None:
        """Note what is answered, and by whom."""
        self.world.note_answer(self, reply, pieces)
        super().answer(reply, pieces)


class Node:
    """One coordinator process, on a host whose clock drifts and may be hours off."""

    bad_luck = 1
    outage = 0

    def __init__(self, world: LoopWorld, number: int, *, host: str = "h", silent_epoch: int | None = None) -> None:
        self.world = world
        self.host = host
        #: Whom a stand-in found in the log, instead of claiming a reign.
        self.holder: Holder | None = None
        self._silent_epoch = silent_epoch
        self.rate = world.random.choice((0.97, 1.0, 1.0, 1.05))
        self.clock = FakeClock(START_MS + world.elapsed_ms + world.random.choice((0, 0, 0, -7_200_000, 3_600_000)))
        self.address = f"grpc://127.0.0.1:{number}"
        self.mailbox: list[Call] = []
        self.busy = False
        self.alive = True
        self.epoch = 0
        self.loop: Loop | None = None
        with self._working():
            self._begin()

    def step(self) -> None:
        """Serve some of the calls that wait, in any order, as one group."""
        if self.loop is None:
            return
        self.world.random.shuffle(self.mailbox)
        taken = self.world.random.randint(0, len(self.mailbox)) if self.world.troubled else len(self.mailbox)
        calls, self.mailbox = self.mailbox[:taken], self.mailbox[taken:]
        with self._working():
            now_ms = self.loop._clock.now_ms()
            self.loop.step(calls)
            with self.world.judging():
                due_ms = self.loop._engine.next_due_ms()
            assert due_ms is None or due_ms > now_ms, "the loop spins: what is due now stays due"
            self.alive = not self.loop.is_over()

    @contextmanager
    def _working(self) -> Any:
        """Let the process work; what a coordinator may end with ends it, and anything else is a failure of the test."""
        self.busy = True
        try:
            yield
        except KilledError:
            self.alive = False
        except (CoordinatorError, JournalError) as end:
            if end.code not in ("COORDINATOR_DEPOSED", "STORE_FAILED"):
                raise
            self.alive = False
        finally:
            self.busy = False

    def _begin(self) -> None:
        journal = self.world.open(self)
        candidate = Candidate(journal_id=self.world.journal_id, path=journal.path, host=self.host, address=self.address, pid=1)
        around = ElectionPorts(
            advertisements=NoAdvertisements(),
            ping=lambda *_: Presence.GONE,
            clock=self.clock,
            # Only one on another host waits at all.
            pause=lambda seconds: self.clock.advance(round(seconds * 1000)),
        )
        if self._silent_epoch is None:
            outcome: Reign | Holder = elect(journal.control, candidate, around)
        else:
            outcome = succeed(journal.control, candidate, around, silent_epoch=self._silent_epoch)
        if isinstance(outcome, Holder):
            self.holder, self.alive = outcome, False
            return
        self.epoch = outcome.epoch
        self.loop = recover(outcome, journal, Inbox(), pullers=self.world.pullers(self), ends_idle=False)
