"""A message in hand, and the answer to its outcome."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Protocol

from spark_queue.client.delays import to_delay_ms
from spark_queue.core.records import Outcome
from spark_queue.errors import CallerError, check_text

if TYPE_CHECKING:
    import asyncio

    from spark_queue.receiver.bodies import BodyRows

#: The message type whose one column holds JSON text.
_JSON_TYPE = "json"

#: Digits of which Python makes an int as it is by default: more cost it seconds.
_INT_DIGITS_MOST = 4_300


def teller(loop: asyncio.AbstractEventLoop, told: asyncio.Event) -> Callable[[], None]:
    """Return a function that sets an event of an event loop from any thread."""

    def tell() -> None:
        # In a loop that is closed nobody waits any more.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(told.set)

    return tell


class Settlement:
    """The answer to an outcome; nobody has to wait for it.

    It can be awaited, too.
    """

    __slots__ = ("_answered", "_error", "_is_done", "_waiting")

    def __init__(self, answered: threading.Condition) -> None:
        self._answered = answered
        self._is_done = False
        self._error: BaseException | None = None
        self._waiting: tuple[Callable[[], None], ...] = ()

    @property
    def is_done(self) -> bool:
        """Whether the answer is there."""
        return self._is_done

    def result(self, timeout: float | None = None) -> None:
        """Wait until the outcome is durable.

        Parameters
        ----------
        timeout
            Most seconds to wait; default: for ever.

        Raises
        ------
        LeaseError
            MESSAGE_LOST: it came too late, and was not recorded.
        SparkQueueError
            What ended its receiver before there was an answer, such as ACCESS_DENIED: it may be recorded or not.
        TimeoutError
            No answer came in time; it may come still.
        """
        with self._answered:
            if not self._answered.wait_for(lambda: self._is_done, timeout):
                raise TimeoutError(f"no answer came within {timeout} s")
        if self._error is not None:
            raise self._error

    def __await__(self) -> Generator[Any, None, None]:
        import asyncio  # noqa: PLC0415 - who has an event loop has loaded it.

        loop, told = asyncio.get_running_loop(), asyncio.Event()
        with self._answered:
            if not self._is_done:
                self._waiting += (teller(loop, told),)
            else:
                told.set()
        yield from told.wait().__await__()
        if self._error is not None:
            raise self._error

    def answer(self, error: BaseException | None = None) -> None:
        """Give the answer; its lock is held."""
        self._error, self._is_done = error, True
        for tell in self._waiting:
            tell()
        self._waiting = ()


class Settles(Protocol):
    """The receiver, as its messages know it."""

    @property
    def queue(self) -> str:
        """The name of the queue."""
        ...

    def settle(
        self, message: Message, outcome: str, *, retry_after_ms: int | None = None, error: str | None = None, failed: bool = False
    ) -> Settlement:
        """Say what becomes of a message."""
        ...


class Message:
    """A message that a receiver has in hand.

    Its columns are read as ``message["name"]``: those of its message type, and ``topic``, ``publisher``, ``sequence``,
    ``published_at`` and ``expires_at``.

    Attributes
    ----------
    bookmark : int
        Its place in the log of its message type.
    lease : int
        The lease under which it is in hand.
    delivery_count, cancel_count : int
        How often it was delivered, this time too, and cancelled.
    is_barrier : bool
        Whether it is a barrier: everything before it is done, and nothing behind it was delivered.
    is_lost : bool
        Whether its lease is over, so that others may have it.
    """

    __slots__ = (
        "_receiver", "_row", "_rows", "bookmark", "cancel_count", "delivery_count", "is_barrier", "is_lost", "key", "lease",
        "priority", "said",
    )  # fmt: skip

    def __init__(
        self, receiver: Settles, rows: BodyRows, row: int, *, bookmark: int, lease: int, delivery_count: int, cancel_count: int,
        is_barrier: bool, key: int | None, priority: int | None,
    ) -> None:  # fmt: skip
        self._receiver, self._rows, self._row = receiver, rows, row
        self.bookmark, self.lease, self.is_barrier, self.key, self.priority = bookmark, lease, is_barrier, key, priority
        self.delivery_count, self.cancel_count = delivery_count, cancel_count
        self.is_lost = False
        #: Its outcome; None before it is settled.
        self.said: str | None = None

    def __getitem__(self, name: str) -> Any:
        return self._rows.value(name, self._row)

    def __repr__(self) -> str:
        return f"Message(queue={self._receiver.queue!r}, bookmark={self.bookmark}, delivery_count={self.delivery_count})"

    @property
    def topic(self) -> str:
        """The topic that it was published to."""
        return str(self["topic"])

    @property
    def place(self) -> tuple[BodyRows, int]:
        """Its rows, and which of them it is."""
        return self._rows, self._row

    def value(self) -> Any:
        """Return its body: of message type ``json`` what the text means, of any other a dict of its columns.

        A whole number of more than 4,300 digits is a `decimal.Decimal`: Python refuses to make an int of it.
        """
        body: Mapping[str, Any] = self._rows.body(self._row)
        if self._rows.message_type != _JSON_TYPE:
            return dict(body)
        text = body["value"]
        return None if text is None else json.loads(text, parse_int=_whole_number)

    def acknowledge(self) -> Settlement:
        """Say that it is done: it leaves the queue.

        Raises
        ------
        CallerError
            OUTCOME_INVALID: it was settled before. RECEIVER_CLOSED or RECEIVER_FORKED.
        """
        return self._receiver.settle(self, Outcome.ACKNOWLEDGE)

    def cancel(self, *, retry_after: str | timedelta | None = None, error: str | None = None) -> Settlement:
        """Give it back to the queue.

        Parameters
        ----------
        retry_after
            How long it waits, such as ``"5m"``; default: as the queue's `retry_backoff` says.
        error
            Why; a dead letter keeps it.

        Raises
        ------
        CallerError
            As `acknowledge`.
        ConfigError
            BAD_VALUE.
        """
        after_ms = to_delay_ms(retry_after, where="cancel")
        return self._receiver.settle(self, Outcome.CANCEL, retry_after_ms=after_ms, error=_text(error))

    def expire(self, *, error: str | None = None) -> Settlement:
        """Let it leave the queue as a dead letter.

        Parameters
        ----------
        error
            Why; the dead letter keeps it.

        Raises
        ------
        CallerError
            As `acknowledge`; OUTCOME_INVALID also for a barrier, which nobody can expire.
        ConfigError
            BAD_VALUE.
        """
        self.check_outcome(Outcome.EXPIRE)
        return self._receiver.settle(self, Outcome.EXPIRE, error=_text(error))

    def check_outcome(self, outcome: str) -> None:
        """Refuse an outcome that it cannot have (OUTCOME_INVALID)."""
        if self.is_barrier and outcome == Outcome.EXPIRE:
            reason, next_step = f"bookmark {self.bookmark} is a barrier, which nobody can expire.", "Acknowledge it, or cancel it."
            raise CallerError("OUTCOME_INVALID", queue=self._receiver.queue, reason=reason, next_step=next_step)


def _text(error: str | None) -> str | None:
    if error is not None:
        check_text(error, key="error", where="an outcome")
    return error


def _whole_number(digits: str) -> int | Decimal:
    return int(digits) if len(digits) <= _INT_DIGITS_MOST else Decimal(digits)
