"""The publishes of this process to one journal, by whatever handle: they share what is known of it, and commits (DESIGN 4)."""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spark_queue import forks
from spark_queue.client.publish_target import PublishTarget, sending
from spark_queue.errors import JournalError
from spark_queue.journal.commit import Published
from spark_queue.journal.group_commit import PendingPublish, PublishCall
from spark_queue.journal.reader import open_for_publishing
from spark_queue.journal.store import Store
from spark_queue.protocol.endpoint import Endpoint

if TYPE_CHECKING:
    import asyncio

    from spark_queue.core.definitions.definition import Definitions

#: Journals of which a process keeps what it knows; of others it begins anew.
_KEPT_MOST = 16

#: Threads that commit for event loops: a log that waits for its store keeps no other waiting.
_THREADS = 4


@functools.lru_cache(maxsize=_KEPT_MOST)
def shared_target(store: Store, endpoint: Endpoint) -> SharedTarget:
    """Return what all handles of a journal publish through; opens nothing."""
    return SharedTarget(store, endpoint)


@dataclass(frozen=True, slots=True)
class _Awaited:
    """A call that a task waits for."""

    call: PublishCall
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Published]


class SharedTarget:
    """A journal that is opened with the first publish, and anew where another one stands in its place by now."""

    def __init__(self, store: Store, endpoint: Endpoint) -> None:
        self._store = store
        self._endpoint = endpoint
        self._target: PublishTarget | None = None
        self._opening, self._arriving = threading.Lock(), threading.Lock()
        self._arrived: list[_Awaited] = []
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="sparkqueue-publish")

    def publish(self, call: PublishCall) -> Published:
        """Publish; raises what is wrong with it."""
        # Before any lock: another thread may have held it at the fork.
        forks.check_process()
        with sending(call, self._definitions) as sent:
            return self._commit([sent])[0].result()

    async def publish_async(self, call: PublishCall) -> Published:
        """Publish to a topic without blocking the event loop; raises what is wrong with it."""
        # Who has an event loop has loaded it.
        import asyncio  # noqa: PLC0415 - as said above.

        forks.check_process()
        with sending(call, self._definitions) as sent:
            loop = asyncio.get_running_loop()
            awaited = _Awaited(sent, loop, loop.create_future())
            with self._arriving:
                self._arrived.append(awaited)
                # Who came first since then has begun a thread for all of them.
                if len(self._arrived) == 1:
                    try:
                        self._threads.submit(self._commit_arrived)
                    except RuntimeError:
                        # No thread can be started: the next one begins anew.
                        self._arrived.clear()
                        raise
            return await awaited.future

    def _commit_arrived(self) -> None:
        with self._arriving:
            arrived, self._arrived = self._arrived, []
        outcomes: list[Published | BaseException | None]
        try:
            outcomes = [each.outcome for each in self._commit([each.call for each in arrived])]
        except BaseException as failure:  # noqa: BLE001 - tasks wait for it, whatever it is.
            outcomes = [failure] * len(arrived)
        by_loop: dict[asyncio.AbstractEventLoop, list[tuple[_Awaited, Any]]] = {}
        for awaited, outcome in zip(arrived, outcomes, strict=True):
            by_loop.setdefault(awaited.loop, []).append((awaited, outcome))
        for loop, told in by_loop.items():
            # A loop that is closed by now waits for nothing.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(_tell, told)

    def _commit(self, calls: Sequence[PublishCall]) -> list[PendingPublish]:
        target, is_new = self._open()
        tries = target.commit(calls)
        if is_new:
            return tries
        refused = [number for number, each in enumerate(tries) if isinstance(each.outcome, JournalError)]
        failed = [number for number in refused if not tries[number].may_be_committed]
        if failed:
            # Another journal may stand there by now, or none: an open one knows only that it is not the one that it knew.
            self._forget(target)
            try:
                again = self._open()[0].commit([calls[number] for number in failed])
            except Exception as failure:  # noqa: BLE001 - those beside them were committed all the same.
                for number in failed:
                    tries[number].outcome = failure
            else:
                for number, each in zip(failed, again, strict=True):
                    tries[number] = each
        return tries

    def _definitions(self) -> Definitions:
        return self._open()[0].definitions()

    def _open(self) -> tuple[PublishTarget, bool]:
        """Return the open journal, and whether it was opened just now."""
        with self._opening:
            if self._target is not None:
                return self._target, False
            journal, numbered = open_for_publishing(self._store)
            self._target = PublishTarget(journal, numbered, self._endpoint)
            return self._target, True

    def _forget(self, target: PublishTarget) -> None:
        with self._opening:
            if self._target is target:
                self._target = None


def _tell(told: Sequence[tuple[_Awaited, Any]]) -> None:
    for awaited, outcome in told:
        # Its task may have been cancelled.
        if awaited.future.done():
            continue
        if isinstance(outcome, StopIteration):
            # No future takes one, and those behind it would wait for ever.
            awaited.future.set_exception(RuntimeError("Reading the rows raised StopIteration."))
        elif isinstance(outcome, BaseException):
            awaited.future.set_exception(outcome)
        else:
            awaited.future.set_result(outcome)
