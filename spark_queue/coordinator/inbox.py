"""Calls on their way from the server's threads to the one loop, those that wait there, and their replies on the way back."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from spark_queue.coordinator.logins import Login
from spark_queue.core import commands
from spark_queue.metrics.figures import JournalFigures, Observe
from spark_queue.protocol import wire
from spark_queue.replication.exchange import ApplyPulled, PullProgressQuery, PullState


class ClosedError(Exception):
    """The loop accepts no more calls: the coordinator is ending, and callers should start the next one."""


class Call:
    """One request and the thread that waits for its reply."""

    __slots__ = ("_answered", "abandoned", "figures", "pieces", "pulled", "reply", "request", "who")

    def __init__(
        self,
        request: wire.AnyRequest | PullProgressQuery | ApplyPulled | Observe,
        abandoned: Callable[[], bool],
        who: Login | None = None,
    ) -> None:
        self.request = request
        #: The caller, by its token; None for calls of the coordinator itself.
        self.who = who
        self.reply: wire.AnyReply | None = None
        #: Bulk rows that travel beside the reply.
        self.pieces: pa.Table | None = None
        #: The answer to a puller.
        self.pulled: PullState | bool | None = None
        #: The answer for metrics.
        self.figures: JournalFigures | None = None
        #: Whether its caller hung up.
        self.abandoned = abandoned
        # A lock that starts locked is the lightest signal of the standard library, and this one is used per call.
        self._answered = threading.Lock()
        self._answered.acquire()

    def answer(self, reply: wire.AnyReply | None, pieces: pa.Table | None = None) -> None:
        """Hand over the reply; None sends the caller elsewhere."""
        self.reply, self.pieces = reply, pieces
        self._answered.release()

    @property
    def is_answered(self) -> bool:
        """Whether it has its reply, or was sent elsewhere."""
        return not self._answered.locked()

    def wait(self) -> None:
        """Wait for the reply. The loop answers every call or ends the process, so there is no timeout here."""
        self._answered.acquire()


@dataclass(frozen=True, slots=True)
class WaitingPoll:
    """A call that found nothing and waits, until a time of the reign."""

    call: Call
    request: commands.Next | wire.AwaitPublish
    until_ms: int
    #: The message type whose log may bring the messages that the poll waits for.
    message_type: str


class Inbox:
    """Where calls wait while a group is being committed."""

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[Call] = queue.SimpleQueue()
        # Reentrant, because a signal handler may submit while its own thread is in here.
        self._lock = threading.RLock()
        self._closed = False

    def submit(self, call: Call) -> None:
        """Put a call in line."""
        with self._lock:
            if self._closed:
                raise ClosedError
            self._waiting.put(call)

    def take(self, timeout_s: float) -> list[Call]:
        """Return every waiting call, waiting up to `timeout_s` for the first."""
        calls: list[Call] = []
        try:
            calls.append(self._waiting.get(timeout=max(0.0, timeout_s)))
            while True:
                calls.append(self._waiting.get_nowait())
        except queue.Empty:
            return calls

    def close(self) -> Sequence[Call]:
        """Refuse further calls and give those that were still waiting."""
        with self._lock:
            self._closed = True
        return self.take(0.0)
