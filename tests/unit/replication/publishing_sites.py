"""Two journals on disk that pull from each other when told, each with the loop of a coordinator in this process."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from spark_queue.clock import SystemClock
from spark_queue.coordinator.election import Reign
from spark_queue.coordinator.inbox import Call, Inbox
from spark_queue.coordinator.loop import Loop
from spark_queue.coordinator.recovery import recover
from spark_queue.coordinator.reign_clock import ReignClock
from spark_queue.core.definitions import parsing
from spark_queue.core.message_files.message_type import MessageTypeState
from spark_queue.core.records import Record
from spark_queue.core.state.journal_state import JournalState
from spark_queue.journal.layout import Store
from spark_queue.journal.open import create_journal, open_journal
from spark_queue.journal.publisher import Identity, Published, make_plan, publish
from spark_queue.protocol import codec, wire
from spark_queue.replication.exchange import Look, Pull, PullState
from spark_queue.replication.fitting import Fit
from spark_queue.replication.puller import Puller
from tests.no_peers import NoPeers
from tests.unit.journal.journal_on_disk import claim

COLUMNS = "id BIGINT, price DOUBLE, lines ARRAY<STRUCT<item: STRING, count: INT>>"


class Site:
    """A journal of an instance, its coordinator's loop, and its puller from the other one."""

    def __init__(self, folder: Path, name: str, other: str) -> None:
        stored: dict[str, Any] = {
            "journal": {"instance": name},
            "peers": {other: {"journal": str(folder / other), "topics": ["T"], "queues": ["WORK"]}},
            "message_types": {"order": {"topics": ["T"], "columns": COLUMNS}},
            "queues": {"WORK": {"underlying_topic": "T"}},
        }
        self.definitions = parsing.parse(stored)
        self.store = Store(str(folder / name))
        self.journal_id = create_journal(self.store, self.definitions)
        self._peer = self.definitions.peers[other]
        #: Called once, between copying and handing over.
        self.meanwhile: Callable[[], None] = _nothing
        self.begin(1)

    def begin(self, epoch: int) -> None:
        """Begin a reign."""
        journal = open_journal(self.store)
        claim(journal.control, epoch)
        records, clock = deque(journal.control.load()), ReignClock(SystemClock(), last_record_ms=SystemClock().wall_ms())
        reign = Reign(epoch=epoch, records=records, clock=clock)
        self._loop: Loop = recover(reign, journal, Inbox(), pullers=NoPeers(), ends_idle=False)
        definitions = self._loop._engine.state.definitions
        self._puller = Puller(
            self.store, Store(self._peer.journal), definitions, self._peer, look=self._look, hand_over=self._hand_over,
            clock=SystemClock(), fit=Fit(definitions, self._peer, {}),
        )  # fmt: skip

    @property
    def state(self) -> JournalState:
        """What its log says."""
        return self._loop._engine.state

    @property
    def known(self) -> MessageTypeState:
        """What is here of its message type."""
        return self.state.message_types["order"]

    def publish(self, first: int, last: int, *, publisher: str = "app", price: float = 1.0) -> Published:
        """Publish orders under the numbers that are their ids."""
        ids = range(first, last + 1)
        lines = [[{"item": f"item {number}", "count": number}] for number in ids]
        rows = pa.table({"id": list(ids), "price": [price] * len(ids), "lines": lines})
        plan = make_plan(self.store, self.definitions, message_type="order", topic="T", expires_after_ms=None)
        done = publish(plan, self.journal_id, self.definitions, rows, identity=Identity(publisher=publisher), first_sequence=first)
        self.admit()
        return done

    def admit(self) -> None:
        """Let enter what was published."""
        self._loop.step([Call(wire.Nudge(journal="", request="r", message_type="order"), lambda: False)])

    def pull(self) -> None:
        """Take over what the other one has."""
        self._puller.step()

    def records(self, kind: str) -> Sequence[Record]:
        """Return the records of a kind."""
        return [record for record in open_journal(self.store).records() if record.kind == kind]

    def _look(self) -> PullState:
        found = self._ask(Look(self._peer.name))
        assert isinstance(found, PullState)
        return found

    def _hand_over(self, pull: Pull) -> bool:
        meanwhile, self.meanwhile = self.meanwhile, _nothing
        meanwhile()
        return self._ask(pull) is True

    def _ask(self, request: Look | Pull) -> PullState | bool | None:
        call = Call(request, lambda: False)
        self._loop.step([call])
        assert call.reply is not None
        codec.raise_failed(call.reply)
        return call.pulled


def _nothing() -> None:
    """Let nothing happen."""
