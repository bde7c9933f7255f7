"""Publishing from Python: rows of any common kind, unnamed or under a publisher's name."""

from __future__ import annotations

import contextvars
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from spark_queue import forks
from spark_queue.client.arguments import REPLICATED_WITHIN, checked
from spark_queue.client.publish_target import PublishTarget, sending
from spark_queue.client.shared_target import shared_target
from spark_queue.core.definitions.keys import parse_duration_ms
from spark_queue.errors import AccessError, CallerError, ConfigError, parsed
from spark_queue.journal.commit import Published
from spark_queue.journal.group_commit import PublishCall
from spark_queue.journal.publisher import open_name
from spark_queue.journal.reader import JournalReader, open_reader, open_with_definitions
from spark_queue.journal.rows import kept
from spark_queue.journal.store import Store
from spark_queue.protocol.endpoint import Endpoint

if TYPE_CHECKING:
    from spark_queue.client.replicated import ReplicationWait


def publish(
    store: Store,
    endpoint: Endpoint,
    data: Any,
    *,
    publisher: str | None = None,
    first_sequence: int | None = None,
    replicated_to: int = 0,
    timeout: str = REPLICATED_WITHIN,
    **given: str | None,
) -> Published:
    """Publish rows in one commit; a named publisher opens its name with the same commit (DESIGN 15.4).

    `given` are the topic and the times, as `_call` has them.

    Raises
    ------
    SparkQueueError
        What is wrong with the rows, the topic or the store; nothing was published. REPLICATION_PENDING: it was.
    """
    call = _call(data, publisher=publisher, first_sequence=first_sequence, **given)
    waiting = _waiting(open_reader(store), endpoint, replicated_to, timeout) if replicated_to else None
    done = shared_target(store, endpoint).publish(call)
    if waiting is not None:
        waiting.wait([done])
    return done


async def publish_async(
    store: Store, endpoint: Endpoint, data: Any, *, replicated_to: int, timeout: str, **given: Any
) -> Published:
    """Publish rows as `publish` does, without blocking the event loop."""
    if replicated_to or given["topic"] is None or not isinstance(data, list | tuple | pa.Table):
        # To wait for peers, or to read what rows there are, takes a thread of its own.
        import asyncio  # noqa: PLC0415 - who has an event loop has loaded it.

        return await asyncio.to_thread(publish, store, endpoint, data, replicated_to=replicated_to, timeout=timeout, **given)
    return await shared_target(store, endpoint).publish_async(_call(data, **given))


def _call(
    data: Any,
    *,
    topic: str | None,
    expires_after: str | None = None,
    deliver_after: str | None = None,
    publisher: str | None = None,
    first_sequence: int | None = None,
) -> PublishCall:
    if first_sequence is not None and publisher is None:
        raise ConfigError("MISSING_OPTION", option="publisher", where="publish", reason="sequences belong to a publisher.")
    durations = {
        f"{key}_ms": None if value is None else parsed(parse_duration_ms, value, key=key, where="publish")
        for key, value in (("expires_after", expires_after), ("deliver_after", deliver_after))
    }
    numbers: dict[str, Any] = {"first_sequence": first_sequence, **durations}
    return PublishCall(data=kept(data), topic=topic, publisher=publisher, **numbers)


def _waiting(journal: JournalReader, endpoint: Endpoint, replicated_to: int, timeout: str) -> ReplicationWait:
    """Make the wait until so many peers have the messages published from now on."""
    # Few publishers wait, and all others would load it.
    from spark_queue.client.replicated import ReplicationWait  # noqa: PLC0415 - as said above.

    return ReplicationWait(journal, journal.definitions(), replicated_to, timeout, endpoint)


class Publisher:
    """A publisher's name, held by this process until another opens it (R98); use it in a ``with`` statement.

    Each publish goes by the definitions, and rights, that hold then.
    """

    def __init__(self, store: Store, endpoint: Endpoint, name: str) -> None:
        self.name = name
        self._store = store
        self._endpoint = endpoint
        self._journal: JournalReader | None = None
        self._target: PublishTarget | None = None
        self._last: int | None = None
        #: Where the last publish ended without an answer: the message type in which it may be, "" for any. None where it had one.
        self._unsure_in: str | None = None
        #: Held while one publishes: rows get their numbers one batch after the other.
        self._publishing = threading.Lock()
        #: Publishes for event loops, in the order in which they came; None while the name is not open.
        self._for_loops: ThreadPoolExecutor | None = None

    def __enter__(self) -> Self:
        journal, numbered = open_with_definitions(self._store)
        self._journal = journal
        definitions = numbered[1]
        publishable = [name for name, each in definitions.message_types.items() if each.topics and each.table is None]
        opened = open_name(self._store, journal.journal_id, publishable, self.name, durable=definitions.journal.durable)
        self._last = opened.last_sequence
        self._unsure_in = None
        self._target = PublishTarget(journal, numbered, self._endpoint, opened=opened)
        self._for_loops = ThreadPoolExecutor(1, thread_name_prefix="sparkqueue-publisher")
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        if self._for_loops is not None:
            self._for_loops.shutdown()
        if self._target is not None:
            self._target.close()
        self._target = self._for_loops = None

    @property
    def last_sequence(self) -> int | None:
        """Highest sequence of this publisher in the journal; None before its first message."""
        return self._last

    @checked
    def publish(
        self,
        data: Any,
        *,
        topic: str | None = None,
        first_sequence: int | None = None,
        expires_after: str | None = None,
        deliver_after: str | None = None,
        replicated_to: int = 0,
        timeout: str = REPLICATED_WITHIN,
    ) -> Published:
        """Publish rows in one commit; those at or below the last sequence are dropped and counted (R95).

        Parameters
        ----------
        data, topic, expires_after, deliver_after, replicated_to, timeout
            As for `Journal.publish`.
        first_sequence
            Number of the first row; the others follow. Default: after `last_sequence`. It must be given after a publish of
            which nobody knows whether it arrived: rows that take the same numbers may be told as its repeat, and dropped.

        Raises
        ------
        CallerError
            PUBLISHER_NAME_IN_USE, SEQUENCE_BEHIND, SEQUENCE_MISSING, REPEAT_MOVED, or what is wrong with the rows; nothing was
            published.
        CoordinatorError
            REPLICATION_PENDING: it is published, and so many peers do not have it in time.
        """
        # Before any lock: another thread may have held it at the fork.
        forks.check_process()
        given = {"topic": topic, "expires_after": expires_after, "deliver_after": deliver_after}
        with self._publishing:
            return self._publish(data, given, first_sequence, replicated_to, timeout)

    @checked
    async def publish_async(
        self,
        data: Any,
        *,
        topic: str | None = None,
        first_sequence: int | None = None,
        expires_after: str | None = None,
        deliver_after: str | None = None,
        replicated_to: int = 0,
        timeout: str = REPLICATED_WITHIN,
    ) -> Published:
        """Publish rows as `publish` does, without blocking the event loop: one batch after the other, in the order of the calls.

        If the task that waits is cancelled, the rows may be published all the same; `last_sequence` then counts them.

        Parameters
        ----------
        data, topic, first_sequence, expires_after, deliver_after, replicated_to, timeout
            As for `publish`.

        Raises
        ------
        CallerError
            As for `publish`.
        CoordinatorError
            As for `publish`.
        """
        import asyncio  # noqa: PLC0415 - who has an event loop has loaded it.

        given: dict[str, Any] = {"topic": topic, "expires_after": expires_after, "deliver_after": deliver_after}
        given |= {"first_sequence": first_sequence, "replicated_to": replicated_to, "timeout": timeout}
        # The context has the span that this one is part of.
        deed = partial(contextvars.copy_context().run, self.publish, data, **given)
        if self._for_loops is None:
            raise self._not_open()
        return await asyncio.get_running_loop().run_in_executor(self._for_loops, deed)

    def _not_open(self) -> CallerError:
        reason = f"publisher '{self.name}' is not open."
        return CallerError("UNSUPPORTED_WRITE", what="Publishing", reason=reason, next_step="Use it in a `with` statement.")

    def _publish(
        self, data: Any, given: dict[str, str | None], first_sequence: int | None, replicated_to: int, timeout: str
    ) -> Published:
        if self._target is None or self._journal is None:
            raise self._not_open()
        first = (self._last or 0) + 1 if first_sequence is None else first_sequence
        if first_sequence is None and self._unsure_in is not None:
            reason = (
                f"It is unknown whether the rows of the last publish arrived. Publish the same rows with first_sequence={first}: "
                "if they did, they count as a repeat. For other rows, open the publisher again."
            )
            raise CallerError("SEQUENCE_MISSING", publisher=self.name, what="first_sequence", reason=reason)
        waiting = _waiting(self._journal, self._endpoint, replicated_to, timeout) if replicated_to else None
        before = self._unsure_in
        self._unsure_in = before or ""
        try:
            # By number it would be known as a repeat where its numbers are, and in another log by none.
            call = replace(_call(data, publisher=self.name, first_sequence=first, **given), repeated_in=before or None)
            with sending(call, self._target.definitions) as sent:
                [tried] = self._target.commit([sent])
            self._unsure_in = before or tried.message_type
            done = tried.result()
        except (AccessError, CallerError, ConfigError):
            self._unsure_in = before
            raise
        self._unsure_in = None
        self._last = max((known for known in (self._last, done.persisted_sequence) if known is not None), default=None)
        if waiting is not None:
            waiting.wait([done])
        return done
