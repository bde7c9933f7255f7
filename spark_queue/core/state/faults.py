"""Faults of one queue: an error while one is worked on is that queue's own, and reaches no other (DESIGN 3.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from spark_queue.errors import JournalError

if TYPE_CHECKING:
    from types import TracebackType


class Blamed(Protocol):
    """The state whose queues are blamed for faults."""

    raises_faults: bool

    def note_fault(self, queue: str, fault: Exception) -> bool:
        """Set a queue aside, and return whether the work goes on without it."""
        ...


class FaultError(Exception):
    """An error when state may have been half changed: uncommitted records cannot be trusted.

    Attributes
    ----------
    queue : str or None
        The queue whose fault it is; None where that is not known.
    message_type : str or None
        The message type whose messages were entering.
    """

    def __init__(self, queue: str | None, cause: Exception, *, message_type: str | None = None) -> None:
        super().__init__(describe(cause) if queue is None else f"queue '{queue}': {describe(cause)}")
        self.queue = queue
        self.message_type = message_type
        self.cause = cause


class QueueGuard:
    """Blames a queue for errors inside a `with`; see `JournalState.guard`."""

    __slots__ = ("_queue", "_state")

    def __init__(self, state: Blamed, queue: str) -> None:
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
    """Return the text of an exception, in a line of bounded length."""
    text = " ".join(str(fault).split())
    return f"{type(fault).__name__}: {text[:500]}" if text else type(fault).__name__


def untold(fault: Exception) -> str:
    """Return the text in the place of figures that cannot be computed."""
    return f"Its figures cannot be computed: {describe(fault)}."


def set_aside(queue: str, reason: str) -> JournalError:
    """Return the error of a queue that is set aside."""
    return JournalError("QUEUE_SET_ASIDE", queue=queue, reason=reason)
