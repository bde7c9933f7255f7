"""A function for each message: acknowledged when it returns, cancelled when it raises (R131, DESIGN 15.12)."""

from __future__ import annotations

import inspect
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

from spark_queue import tracing
from spark_queue.core.definitions.keys import parse_duration_ms
from spark_queue.core.records import Outcome
from spark_queue.errors import CallerError, ConfigError, SparkQueueError, counted, parsed
from spark_queue.receiver import stop_signals
from spark_queue.receiver.message import Message
from spark_queue.receiver.receiver import Receiver, text_of
from spark_queue.settings.timestamps import to_text

_LOG = logging.getLogger(__name__)


class Retry(Exception):  # noqa: N818 - users raise it to say what becomes of a message; nothing failed.
    """Raised by the function of `Queue.process`: the message goes back to its queue.

    Parameters
    ----------
    error
        Why; a dead letter keeps it.
    after
        How long it waits, such as ``"5m"``; default: as the queue's `retry_backoff` says.
    """

    def __init__(self, error: str | None = None, *, after: str | timedelta | None = None) -> None:
        super().__init__(error or "")
        self.error, self.after = error, after


class Expire(Exception):  # noqa: N818 - as above.
    """Raised by the function of `Queue.process`: the message becomes a dead letter.

    Parameters
    ----------
    error
        Why; the dead letter keeps it.
    """

    def __init__(self, error: str | None = None) -> None:
        super().__init__(error or "")
        self.error = error


@dataclass(slots=True, kw_only=True)
class Processed:
    """Counts of the messages on which a function was run, by what became of them."""

    acknowledged: int = 0
    #: By `Retry`, or since the function raised, or did not end in time.
    cancelled: int = 0
    expired: int = 0
    #: Of all these, outcomes that came too late to be recorded.
    lost: int = 0
    #: Messages on which the function raised, and which it has not acknowledged since; of a run with `until_empty` or `wait`.
    failed: int = 0
    #: The first of them, and its exception.
    first_failure: str | None = None
    #: Messages of a run with `until_empty` that wait for their time, and when the first comes, in milliseconds since 1970.
    delayed: int = 0
    due_at_ms: int | None = None
    #: Why nothing more was granted, and the next step, where the queue is paused, or an alarm pauses the subscription.
    pause: str | None = None

    @property
    def findings(self) -> list[str]:
        """The findings that need a look, a sentence each; empty when all is well."""
        failed = [counted(f"Failed: {self.failed:,} message(s), first {self.first_failure}.")] if self.failed else []
        return failed if self.pause is None else [*failed, self.pause]

    @property
    def exit_code(self) -> int:
        """The exit code of a job: 0 when all is well, 3 when somebody should look, as that of `Queue.check`."""
        return 3 if self.findings else 0

    @property
    def counts(self) -> str:
        """The counts of messages, as a text."""
        return f"{self.acknowledged:,} acknowledged, {self.cancelled:,} cancelled, {self.expired:,} expired, {self.lost:,} lost"

    def __str__(self) -> str:
        waits = counted(f"Delayed: {self.delayed:,} message(s) in the queue, the first until {to_text(self.due_at_ms)}.")
        return "\n".join([self.counts, *([waits] if self.delayed else []), *self.findings])


class Processing:
    """One run of a function over a receiver's messages."""

    def __init__(
        self, receiver: Receiver, fn: Callable[[Message], Any], *, concurrency: int, on_barrier: Callable[[Message], Any] | None,
        stop_timeout: str, signals: bool,
    ) -> None:  # fmt: skip
        self._receiver = receiver
        self._fn = fn
        self._on_barrier = on_barrier
        self._concurrency = concurrency
        self._stop_s = parsed(parse_duration_ms, stop_timeout, key="stop_timeout", where="process") / 1_000
        if signals and threading.current_thread() is not threading.main_thread():
            expected = "False in other threads than the main one, which alone can handle signals"
            raise ConfigError("BAD_VALUE", key="signals", where="process", value=True, expected=expected)
        self._stopped_by_signals = stop_signals.calling(receiver.stop) if signals else nullcontext()
        #: Whether the function runs in tasks of an event loop, and not in threads.
        self._is_async = inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004 - only its kind is asked.
        if self._is_async and _runs_event_loop():
            raise CallerError("EVENT_LOOP_RUNNING", queue=receiver.queue)
        self._done = Processed()
        self._counting = threading.Lock()
        #: By bookmark, the exceptions of messages that failed and were not acknowledged since. A run that goes on for ever reports
        #: to nobody, and would remember every message that others have ended long ago.
        self._failures: dict[int, str] = {}
        self._trouble: BaseException | None = None

    def run(self) -> Processed:
        """Run until the receiver is at its end, and return the counts."""
        try:
            with self._receiver, self._stopped_by_signals:
                if self._is_async:
                    import asyncio  # noqa: PLC0415 - a function in threads needs no event loop.

                    asyncio.run(self._run_async())
                else:
                    self._run_threads()
                if self._trouble is not None:
                    raise self._trouble
        except SparkQueueError as trouble:
            # What no time mends ends a run that has worked: its counts go with the refusal.
            self._report(self._receiver)
            if self._done != Processed():
                trouble.add_note(f"Before that: {self._done.counts}. {' '.join(self._done.findings)}".rstrip())
            raise
        self._report(self._receiver)
        return self._done

    def _report(self, receiver: Receiver) -> None:
        status, done = receiver.status, self._done
        left = status.left
        done.cancelled += receiver.unsettled
        done.lost, done.delayed, done.due_at_ms, done.pause = status.lost, left.delayed, left.due_at_ms, left.pause
        done.failed = len(self._failures)
        done.first_failure = next((f"{bookmark} ({text})" for bookmark, text in self._failures.items()), None)

    # ------------------------------------------------------------- a function

    def _run_threads(self) -> None:
        # Daemons: a function that does not end must not keep its program from ending.
        threads = [
            threading.Thread(target=self._work, name=f"sparkqueue-process-{number}", daemon=True)
            for number in range(self._concurrency)
        ]
        for each in threads:
            each.start()
        stop = threading.Event()
        try:
            while any(each.is_alive() for each in threads) and not self._receiver.is_stopping:
                stop.wait(0.1)
        except BaseException:
            self._receiver.stop()
            raise
        finally:
            self._await_end(threads)

    def _await_end(self, threads: list[threading.Thread]) -> None:
        """Let what runs end within its time; what does not is cancelled with its receiver."""
        until_s = time.monotonic() + self._stop_s
        for each in threads:
            each.join(max(0.0, until_s - time.monotonic()))

    def _work(self) -> None:
        try:
            for message in self._receiver:
                self._run_on(message)
        except BaseException as trouble:  # noqa: BLE001 - `run` raises it.
            self._trouble = self._trouble or trouble
            self._receiver.stop()

    def _run_on(self, message: Message) -> None:
        fn = self._on_barrier if message.is_barrier else self._fn
        try:
            with self._span(message):
                found = None if fn is None else fn(message)
        except Exception as raised:  # noqa: BLE001 - whatever it is, it is the outcome.
            self._settle(message, raised)
        else:
            self._refuse_awaitable(found)
            self._settle(message, None)

    def _refuse_awaitable(self, found: object) -> None:
        """Refuse a function of which nothing has run yet: a message that nobody worked on would be acknowledged."""
        if not inspect.isawaitable(found):
            return
        if inspect.iscoroutine(found):
            found.close()
        expected = "a function that has done its work when it returns, or one that `async def` defines itself"
        raise ConfigError("BAD_VALUE", key="fn", where="process", value=found, expected=expected)

    # ------------------------------------------------------------- a coroutine function

    async def _run_async(self) -> None:
        import asyncio  # noqa: PLC0415 - who has an event loop has loaded it.

        tasks = [asyncio.create_task(self._work_async()) for _ in range(self._concurrency)]
        waiting: set[asyncio.Task[None]] = set(tasks)
        try:
            while waiting and not self._receiver.is_stopping:
                _, waiting = await asyncio.wait(waiting, timeout=0.1)
        finally:
            self._receiver.stop()
            if waiting:
                _, waiting = await asyncio.wait(waiting, timeout=self._stop_s)
            for each in waiting:
                each.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _work_async(self) -> None:
        import asyncio  # noqa: PLC0415 - who has an event loop has loaded it.

        try:
            async for message in self._receiver:
                fn = cast("Callable[[Message], Awaitable[Any]] | None", self._on_barrier if message.is_barrier else self._fn)
                try:
                    with self._span(message):
                        found = None if fn is None else fn(message)
                        if inspect.isawaitable(found):
                            await found
                except (Exception, asyncio.CancelledError) as raised:
                    task = asyncio.current_task()
                    if isinstance(raised, asyncio.CancelledError) and task is not None and task.cancelling():
                        # This task is cancelled, and not something for which the function waited.
                        raise
                    self._settle(message, raised)
                else:
                    self._settle(message, None)
        except asyncio.CancelledError:
            raise
        except BaseException as trouble:  # noqa: BLE001 - `run` raises it.
            self._trouble = self._trouble or trouble
            self._receiver.stop()

    def _span(self, message: Message) -> AbstractContextManager[bool]:
        """Make a span around the work on a message, with a link to its send where it carries the context of that."""
        links: list[str] = []
        if tracing.is_on() and not message.is_barrier:
            column = next((name for name in message.place[0].table.column_names if name.lower() == tracing.COLUMN), None)
            links = [] if column is None or message[column] is None else [message[column]]
        return tracing.span(
            "process", self._receiver.queue, links=links, destination__subscription__name=self._receiver.subscription,
            spark_queue__lease=message.lease, message__id=str(message.bookmark),
        )  # fmt: skip

    # ------------------------------------------------------------- outcomes

    def _settle(self, message: Message, raised: BaseException | None) -> None:
        """Settle a message by how its function ended, unless that has settled it itself."""
        if message.said is not None:
            if raised is not None and not isinstance(raised, Retry | Expire):
                _LOG.error("The function raised after it had settled message %d.", message.bookmark, exc_info=raised)
            return
        with suppress(CallerError):
            # It may be settled, or closed, at this moment.
            try:
                self._say(message, raised)
            except ConfigError as wrong:
                # What it gave to `Retry` or `Expire` has no meaning, which is a failure as any other.
                self._say(message, wrong)

    def _say(self, message: Message, raised: BaseException | None) -> None:
        match raised:
            case None:
                _ = message.acknowledge()
                self._count("acknowledged")
                self._failures.pop(message.bookmark, None)
            case Retry():
                _ = message.cancel(retry_after=raised.after, error=raised.error)
                self._count("cancelled")
            case Expire() if not message.is_barrier:
                _ = message.expire(error=raised.error)
                self._count("expired")
            case _:
                # Also of a barrier, which nobody can expire.
                _LOG.warning(
                    "The function failed on message %d of queue '%s'.", message.bookmark, self._receiver.queue, exc_info=raised
                )
                text = text_of(raised)
                _ = self._receiver.settle(message, Outcome.CANCEL, error=text, failed=True)
                self._count("cancelled")
                if self._receiver.ends_by_itself:
                    self._failures[message.bookmark] = text

    def _count(self, name: str) -> None:
        with self._counting:
            setattr(self._done, name, getattr(self._done, name) + 1)


def _runs_event_loop() -> bool:
    """Return whether an event loop runs in this thread, where no other can be run."""
    import asyncio  # noqa: PLC0415 - a function in threads needs no event loop.

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def process(receiver: Receiver, fn: Callable[[Message], Any], **how: Any) -> Processed:
    """Run a function on each message of a receiver; see `Queue.process`."""
    return Processing(receiver, fn, **how).run()
