"""What the loop has to do with peers: taking over what was pulled, and hearing them before it grants (DESIGN 17.3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from spark_queue.coordinator.commands import Answer
from spark_queue.coordinator.inbox import Call
from spark_queue.core import replies
from spark_queue.core.bitmaps.ranges import to_bitmap
from spark_queue.core.deciding.engine import Engine
from spark_queue.core.definitions.definition import Definitions
from spark_queue.errors import SparkQueueError
from spark_queue.journal.entering import Entrance
from spark_queue.ports import JournalPort
from spark_queue.protocol import codec
from spark_queue.replication.puller import Look, Pull, PullState
from spark_queue.replication.repeats import Standing

#: Longest wait of replicated queues for what peers said while nobody reigned here, in milliseconds.
HEARS_MS = 30_000


class PeerPullers(Protocol):
    """Pulls from the peers of the journal, beside the loop."""

    def keep(self, definitions: Definitions) -> None:
        """Pull from the peers that are defined now, and from no others."""
        ...

    def are_level(self) -> bool:
        """Return whether each peer that can be read is pulled to where it was when this began."""
        ...

    def numbers(self) -> Mapping[str, int]:
        """Return the newest beacon of each instance that was heard of, by name."""
        ...


class Peers:
    """The peers of a journal, as its loop meets them."""

    def __init__(self, journal: JournalPort, engine: Engine, entrance: Entrance, pullers: PeerPullers, *, now_ms: int) -> None:
        self._journal = journal
        self._engine = engine
        self._entrance = entrance
        self._pullers = pullers
        self._heard_at_latest_ms = now_ms + HEARS_MS

    def look(self, *, now_ms: int) -> None:
        """Pull from those who are defined now, and note who is heard of."""
        self._pullers.keep(self._engine.state.definitions)
        self._engine.reach.hear(self._pullers.numbers(), now_ms=now_ms)
        self._engine.reach.is_level = self._pullers.are_level()

    def are_heard(self, queue: str, *, now_ms: int) -> bool:
        """Return whether a queue may grant: an owner who was away must first hear what was claimed."""
        if now_ms >= self._heard_at_latest_ms or not self._engine.state.definitions.is_replicated(queue):
            return True
        if self._pullers.are_level():
            self._heard_at_latest_ms = now_ms
        return now_ms >= self._heard_at_latest_ms

    def serve(self, call: Call, request: Look | Pull, *, now_ms: int) -> Answer:
        """Tell a puller what it must know, or take over what it has read: one commit for all that changes here."""
        if isinstance(request, Look):
            call.pulled = self._state(request.peer)
            return Answer(reply=replies.Done())
        if request.definitions is not self._engine.state.definitions:
            # It passed over what the new ones ask for; another puller reads it by them.
            return Answer(reply=replies.Done())
        append, state = self._journal.append_pulled, self._engine.state
        try:
            for queue in state.definitions.peers[request.pulled.peer].queues:
                if queue in state.troubles:
                    # It is set aside, and would miss these news for good.
                    raise state.troubles[queue]
            call.pulled = all(self._entrance.take_pulled(files, append, now_ms=now_ms) for files in request.files)
        except SparkQueueError as refusal:
            return Answer(reply=codec.failed(refusal))
        if call.pulled:
            self._engine.pull(request.pulled, now_ms=now_ms)
        return Answer(reply=replies.Done())

    def _state(self, peer: str) -> PullState:
        state = self._engine.state
        held, standing = {}, {}
        for name, known in state.message_types.items():
            held[name] = {origin: rows.copy() for origin, rows in known.origins.held.items()}
            held[name][state.journal_id] = to_bitmap([(0, known.entered_until)])
            # To look through only where a publisher may have brought the same here; a list of them costs little.
            segments = tuple(known.segments) if known.publishers else ()
            standing[name] = Standing(segments=segments, highest=dict(known.publishers), until=known.entered_until)
        return PullState(journal=state.journal_id, watermark=state.pulled.get(peer), held=held, standing=standing)
