"""Messages that failed alone, what speaks against a sink rather than them, and the alarms that they raise (DESIGN 15.12).

Faults of one queue: whatever raises while one is worked on is that queue's own, and reaches no other (DESIGN 3.5).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_queue.core.definitions.keys import Backoff
from spark_queue.errors import JournalError

if TYPE_CHECKING:
    from types import TracebackType

    from spark_queue.core.state.journal_state import JournalState

#: Different lone messages that fail, with no success between, until it is the sink that is blamed.
SUSPECTS_LIMIT = 3

#: How often a message may fail alone until somebody should look at it.
LONE_FAILURES_LIMIT = 5

#: Runs of a subscription that fail in a row and have no messages, until somebody should look: it gets no further by itself.
IDLE_FAILURES_LIMIT = 3

#: How long a message that failed alone waits, where the queue has no `retry_backoff`.
LONE_BACKOFF = Backoff(first_ms=1_000, max_ms=300_000, factor=2)

#: How often a lone message is tried during an alarm, where the queue has no `retry_backoff`.
PROBE_BACKOFF = Backoff(first_ms=30_000, max_ms=30_000, factor=1)


@dataclass(slots=True, kw_only=True)
class Suspect:
    """A message that failed alone: its failure is held against it once another message succeeds, and never in an alarm."""

    #: The count before it failed.
    deliveries: int
    cancels: int
    #: How often it had failed alone before. One that had says nothing against the sink.
    lone_failures: int
    #: The last exception of fn.
    error: str | None = None


@dataclass(slots=True, kw_only=True)
class Alarm:
    """Something that somebody should look at."""

    error: str
    since_ms: int
    #: When the next lone message is tried; None for an alarm that pauses nothing.
    probe_at_ms: int | None = None
    #: Lone messages tried so far.
    probes: int = 0


class FaultError(Exception):
    """Something raised when state may have been half changed: what is not committed cannot be trusted.

    Attributes
    ----------
    queue : str or None
        Whose fault it is; None where that cannot be told.
    message_type : str or None
        The message type whose messages were entering.
    """

    def __init__(self, queue: str | None, cause: Exception, *, message_type: str | None = None) -> None:
        super().__init__(describe(cause) if queue is None else f"queue '{queue}': {describe(cause)}")
        self.queue = queue
        self.message_type = message_type
        self.cause = cause


class QueueGuard:
    """Blames a queue for what raises inside a `with`; see `JournalState.guard`."""

    __slots__ = ("_queue", "_state")

    def __init__(self, state: JournalState, queue: str) -> None:
        self._state = state
        self._queue = queue

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None) -> bool:
        if not isinstance(fault, Exception) or isinstance(fault, FaultError) or is_doubt(fault):
            return False
        if self._state.raises_faults:
            raise FaultError(self._queue, fault) from fault
        return self._state.note_fault(self._queue, fault)


def is_doubt(fault: Exception) -> bool:
    """Return whether an exception is about the log or the store, and thus no queue's own."""
    return isinstance(fault, JournalError) and fault.code != "EXPRESSION_UNUSABLE"


def describe(fault: Exception) -> str:
    """Return what an exception says, in a line of bounded length."""
    text = " ".join(str(fault).split())
    return f"{type(fault).__name__}: {text[:500]}" if text else type(fault).__name__


def untold(fault: Exception) -> str:
    """Return what is shown in the place of figures that cannot be computed."""
    return f"Its figures cannot be told: {describe(fault)}."


def set_aside(queue: str, reason: str) -> JournalError:
    """Return what is told of a queue that is set aside."""
    return JournalError("QUEUE_SET_ASIDE", queue=queue, reason=reason)
