"""Publishing from Python: rows of any common kind, unnamed or under a publisher's name."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from spark_queue.client.arguments import REPLICATED_WITHIN, checked
from spark_queue.client.coordinator_client import CoordinatorClient
from spark_queue.core.definitions.definition import Definitions
from spark_queue.core.definitions.keys import parse_duration_ms
from spark_queue.errors import AccessError, CallerError, ConfigError, parsed
from spark_queue.journal.commit import DefinitionsChangedError, Identity, KnownLog, Published
from spark_queue.journal.delta_head import DeltaHead
from spark_queue.journal.publisher import OpenedName, make_plan, open_head, open_name
from spark_queue.journal.publisher import publish as commit
from spark_queue.journal.reader import JournalReader, open_reader
from spark_queue.journal.rows import kept, to_arrow
from spark_queue.journal.schema import user_schema
from spark_queue.journal.store import Store
from spark_queue.protocol.endpoint import Endpoint

if TYPE_CHECKING:
    from spark_queue.client.replicated import ReplicationWait

_LOG = logging.getLogger(__name__)


def publish(
    store: Store,
    endpoint: Endpoint,
    data: Any,
    *,
    topic: str | None,
    expires_after: str | None,
    deliver_after: str | None = None,
    publisher: str | None = None,
    first_sequence: int | None = None,
    replicated_to: int = 0,
    timeout: str = REPLICATED_WITHIN,
) -> Published:
    """Publish rows in one commit; a named publisher opens its name with the same commit (DESIGN 15.4).

    Raises
    ------
    SparkQueueError
        What is wrong with the rows, the topic or the store; nothing was published. REPLICATION_PENDING: it was.
    """
    if first_sequence is not None and publisher is None:
        raise ConfigError("MISSING_OPTION", option="publisher", where="publish", reason="sequences belong to a publisher.")
    journal = open_reader(store)
    target = _Target(journal, journal.numbered_definitions(), endpoint, publisher, opened=None)
    waiting = target.waiting(replicated_to, timeout) if replicated_to else None
    given = {"topic": topic, "expires_after": expires_after, "deliver_after": deliver_after}
    try:
        done = target.publish(data, **given, first_sequence=first_sequence)
    finally:
        target.close()
    if waiting is not None:
        waiting.wait([done])
    return done


class Publisher:
    """A publisher's name, held by this process until another opens it (R98); use it in a ``with`` statement.

    Each publish goes by the definitions, and rights, that hold then.
    """

    def __init__(self, store: Store, endpoint: Endpoint, name: str) -> None:
        self.name = name
        self._store = store
        self._endpoint = endpoint
        self._target: _Target | None = None
        self._last: int | None = None
        #: Whether the last publish ended without an answer.
        self._unsure = False

    def __enter__(self) -> Self:
        journal = open_reader(self._store)
        numbered = journal.numbered_definitions()
        definitions = numbered[1]
        publishable = [name for name, message_type in definitions.message_types.items() if message_type.topics]
        opened = open_name(self._store, journal.journal_id, publishable, self.name, durable=definitions.journal.durable)
        self._last = opened.last_sequence
        self._unsure = False
        self._target = _Target(journal, numbered, self._endpoint, self.name, opened=opened, nudges_beside=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        if self._target is not None:
            self._target.close()
        self._target = None

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
            PUBLISHER_NAME_IN_USE, SEQUENCE_BEHIND, SEQUENCE_MISSING, or what is wrong with the rows; nothing was published.
        CoordinatorError
            REPLICATION_PENDING: it is published, and so many peers do not have it in time.
        """
        if self._target is None:
            reason = f"publisher '{self.name}' is not open."
            raise CallerError("UNSUPPORTED_WRITE", what="Publishing", reason=reason, next_step="Use it in a `with` statement.")
        first = (self._last or 0) + 1 if first_sequence is None else first_sequence
        if first_sequence is None and self._unsure:
            reason = (
                f"It is unknown whether the rows of the last publish arrived. Publish the same rows with first_sequence={first}: "
                "if they did, they count as a repeat. For other rows, open the publisher again."
            )
            raise CallerError("SEQUENCE_MISSING", publisher=self.name, what="first_sequence", reason=reason)
        waiting = self._target.waiting(replicated_to, timeout) if replicated_to else None
        was_unsure, self._unsure = self._unsure, True
        try:
            given = {"topic": topic, "expires_after": expires_after, "deliver_after": deliver_after}
            done = self._target.publish(data, **given, first_sequence=first)
        except (AccessError, CallerError, ConfigError):
            self._unsure = was_unsure
            raise
        self._unsure = False
        self._last = max((known for known in (self._last, done.persisted_sequence) if known is not None), default=None)
        if waiting is not None:
            waiting.wait([done])
        return done


class _Target:
    """An open journal to publish to, under a name or without one, and the coordinator that hears of it.

    What it knows of logs and definitions it keeps from one publish to the next; each commit finds out whether that still holds.
    """

    def __init__(
        self,
        journal: JournalReader,
        numbered: tuple[int, Definitions],
        endpoint: Endpoint,
        publisher: str | None,
        *,
        opened: OpenedName | None,
        nudges_beside: bool = False,
    ) -> None:
        self._journal = journal
        self._endpoint = endpoint
        self._publisher = publisher
        #: The numbers drawn by opening the name; None where a publish opens it with its own commit.
        self._opened = opened
        self._heads: dict[str, DeltaHead] = {} if opened is None else dict(opened.heads)
        self._record, self._definitions = numbered
        client = CoordinatorClient(journal.store, journal.journal_id, endpoint=endpoint, start=False)
        self._nudges = _Nudges(client, beside=nudges_beside)

    def close(self) -> None:
        """Wait until the coordinator was told of the last publish."""
        self._nudges.close()

    def _look_again(self) -> bool:
        """Read the definitions that hold now, and return whether they are others: a right may be withdrawn, a topic moved."""
        before, (self._record, self._definitions) = self._record, self._journal.numbered_definitions()
        return self._record != before

    def waiting(self, replicated_to: int, timeout: str) -> ReplicationWait:
        """Make the wait until so many peers have the messages published from now on."""
        # Few publishers wait, and all others would load it.
        from spark_queue.client.replicated import ReplicationWait  # noqa: PLC0415 - as said above.

        return ReplicationWait(self._journal, self._definitions, replicated_to, timeout, self._endpoint)

    def publish(
        self, data: Any, *, topic: str | None, expires_after: str | None, deliver_after: str | None, first_sequence: int | None
    ) -> Published:
        durations = {
            f"{key}_ms": None if value is None else parsed(parse_duration_ms, value, key=key, where="publish")
            for key, value in (("expires_after", expires_after), ("deliver_after", deliver_after))
        }
        data = kept(data)
        while True:
            try:
                return self._publish(data, topic=topic, durations=durations, first_sequence=first_sequence)
            except DefinitionsChangedError as changed:
                if not self._look_again():
                    # As in a copy whose control log is older than its message logs: these hold, then.
                    self._record = max(self._record, changed.newest)
            except (AccessError, CallerError, ConfigError):
                # By those that hold now it may be none.
                if not self._look_again():
                    raise

    def _publish(
        self, data: Any, *, topic: str | None, durations: Mapping[str, int | None], first_sequence: int | None
    ) -> Published:
        store, definitions = self._journal.store, self._definitions
        message_type, rows = to_arrow(data, definitions, topic=topic)
        if definitions.principals:
            # Where there are none, nothing of this is loaded.
            from spark_queue.client.rights import check_writes  # noqa: PLC0415 - as said above.

            names = [topic] if topic is not None else rows.column("topic").drop_null().unique().to_pylist()
            check_writes(definitions, map(str, names), partial(self._endpoint.token, store))
        number = None if self._opened is None else self._opened.number(message_type)
        identity = Identity(publisher=self._publisher, exclusive=self._publisher is not None, number=number)
        plan = make_plan(store, definitions, message_type=message_type, topic=topic, **durations)
        with _span(topic or message_type, rows.num_rows) as is_traced:
            if is_traced:
                rows = _with_context(rows, definitions.message_type(message_type).columns)
            # After a failure nobody knows whether it is still the head.
            head = self._heads.pop(message_type, None) or open_head(store, self._journal.journal_id, message_type)
            known = KnownLog(head=head, definitions=self._record)
            try:
                done = commit(
                    plan, self._journal.journal_id, definitions, rows, identity=identity, first_sequence=first_sequence, known=known
                )
            except DefinitionsChangedError:
                self._heads[message_type] = head
                raise
            except (CallerError, ConfigError):
                if not head.stands():
                    # It was another log that refuses this.
                    raise DefinitionsChangedError(self._record) from None
                self._heads[message_type] = head
                raise
            self._heads[message_type] = head
            if done.rows:
                self._nudges.nudge(message_type)
        return done


class _Nudges:
    """Tells the coordinator of publishes: before each returns, or `beside` them, since its answer waits for a commit of its own."""

    def __init__(self, client: CoordinatorClient, *, beside: bool) -> None:
        self._client = client
        self._beside = ThreadPoolExecutor(1, thread_name_prefix="sparkqueue-nudge") if beside else None
        #: The message types of those that did not begin yet.
        self._waiting: set[str] = set()

    def nudge(self, message_type: str) -> None:
        if self._beside is None:
            self._client.nudge(message_type)
        elif message_type not in self._waiting:
            self._waiting.add(message_type)
            try:
                self._beside.submit(self._nudge, message_type)
            except RuntimeError:
                # The interpreter is about to end, and starts no thread any more.
                self._nudge(message_type)

    def _nudge(self, message_type: str) -> None:
        # Before the call: it may miss what is published during it.
        self._waiting.discard(message_type)
        self._client.nudge(message_type)

    def close(self) -> None:
        if self._beside is not None:
            self._beside.shutdown()
        self._client.close()


def _span(destination: str, messages: int) -> AbstractContextManager[bool]:
    """Return the span of a send, which knows whether it is one; a program without OpenTelemetry loads nothing for that."""
    if "opentelemetry" not in sys.modules and not any(name.startswith("OTEL_") for name in os.environ):
        return nullcontext(enter_result=False)
    from spark_queue import tracing  # noqa: PLC0415 - as said above.

    return tracing.span("send", destination, batch__message_count=messages)


def _with_context(rows: pa.Table, columns: str) -> pa.Table:
    """Let rows carry the context of the span that is current, where their message type has a column for it and they have none."""
    from spark_queue import tracing  # noqa: PLC0415 - it is loaded where there is a span.

    wanted = [field for field in user_schema(columns) if field.name.lower() == tracing.COLUMN and pa.types.is_string(field.type)]
    if not wanted or any(name.lower() == tracing.COLUMN for name in rows.column_names):
        return rows
    return rows.append_column(wanted[0], pa.repeat(pa.scalar(tracing.traceparent(), pa.string()), rows.num_rows))
