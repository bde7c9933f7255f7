"""An open journal to publish to: what is known of its definitions and logs, kept from one publish to the next (PROTOCOL 3)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from spark_queue import tracing
from spark_queue.client.coordinator_client import CoordinatorClient
from spark_queue.core.definitions.definition import Definitions
from spark_queue.errors import AccessError, CallerError, ConfigError
from spark_queue.journal.commit import DefinitionsChangedError, Identity, Published
from spark_queue.journal.delta_head import DeltaHead
from spark_queue.journal.group_commit import GroupCommit, PendingPublish, PublishCall
from spark_queue.journal.publisher import OpenedName
from spark_queue.journal.reader import JournalReader
from spark_queue.journal.rows import message_type_of
from spark_queue.protocol.endpoint import Endpoint

#: How long nobody is looked for where no coordinator was, in seconds.
_NOBODY_S = 0.1


class PublishTarget:
    """An open journal to publish to, and the coordinator that hears of it; safe to share between threads.

    What it knows of logs and definitions it keeps from one publish to the next; each commit finds out whether that still holds.
    `opened` has the numbers drawn by opening a publisher's name; without it a publish under a name opens it with its own commit.
    """

    def __init__(
        self, journal: JournalReader, numbered: tuple[int, Definitions], endpoint: Endpoint, *, opened: OpenedName | None = None
    ) -> None:
        self._journal = journal
        self._endpoint = endpoint
        self._opened = opened
        heads = {} if opened is None else opened.heads
        self._groups = {message_type: self._new_group(message_type, head) for message_type, head in heads.items()}
        #: The definitions, behind the number of their record.
        self._numbered = numbered
        self._looking = threading.Lock()
        self._nudges = _Nudges(CoordinatorClient(journal.store, journal.journal_id, endpoint=endpoint, start=False))

    def definitions(self) -> Definitions:
        """Return the definitions as far as they were read."""
        return self._numbered[1]

    def close(self) -> None:
        """Wait until the coordinator was told of the last publish."""
        self._nudges.close()

    def commit(self, calls: Sequence[PublishCall]) -> list[PendingPublish]:
        """Publish; returns the last try of each call, which has its outcome."""
        tries = [self._begin(call) for call in calls]
        left = list(range(len(calls)))
        while left:
            begun: dict[str, list[PendingPublish]] = {}
            for number in left:
                if tries[number].outcome is None:
                    begun.setdefault(tries[number].message_type, []).append(tries[number])
            for message_type, members in begun.items():
                self._group(message_type).commit(members)
                versions = [done.version or 0 for each in members if isinstance(done := each.outcome, Published) and done.rows]
                if versions:
                    self._nudges.nudge(message_type, max(versions))
            left = [number for number in left if self._goes_again(tries[number])]
            for number in left:
                tries[number] = self._begin(calls[number])
        return tries

    def _begin(self, call: PublishCall) -> PendingPublish:
        """Begin a try by the definitions that are known; it may have ended already."""
        record, definitions = self._numbered
        pending = PendingPublish(call=call, record=record, definitions=definitions)
        try:
            if call.topic is None:
                pending.message_type, rows = call.rows(definitions)
                pending.call = replace(call, data=rows, traceparent=None)
            else:
                pending.message_type = message_type_of(definitions, call.topic)
            self._check_rights(pending)
            if call.repeated_in not in (None, pending.message_type):
                facts = {"publisher": call.publisher, "known": call.repeated_in, "message_type": pending.message_type}
                raise CallerError("REPEAT_MOVED", **facts)
            number = None if self._opened is None else self._opened.number(pending.message_type)
        except Exception as refusal:  # noqa: BLE001 - whatever it is, it is the caller's.
            pending.outcome = refusal
        else:
            pending.identity = Identity(publisher=call.publisher, exclusive=call.publisher is not None, number=number)
        return pending

    def _check_rights(self, pending: PendingPublish) -> None:
        if not pending.definitions.principals:
            return
        # Where there are none, nothing of this is loaded.
        from spark_queue.client.rights import check_writes  # noqa: PLC0415 - as said above.

        call = pending.call
        names = [call.topic] if call.topic is not None else call.data.column("topic").drop_null().unique().to_pylist()
        check_writes(pending.definitions, map(str, names), partial(self._endpoint.token, self._journal.store))

    def _goes_again(self, pending: PendingPublish) -> bool:
        """Return whether other definitions hold than those that it went by: a right may be withdrawn, a topic moved."""
        try:
            match pending.outcome:
                case DefinitionsChangedError(newest=newest):
                    self._look_again(pending.record, newest)
                    return True
                case AccessError() | CallerError() | ConfigError():
                    # By those that hold now it may be none.
                    return self._look_again(pending.record)
        except Exception as failure:  # noqa: BLE001 - the caller is told of it.
            pending.outcome = failure
        return False

    def _look_again(self, record: int, newest: int = -1) -> bool:
        """Read the definitions that hold now, unless others than those of a record are known; returns whether there are others.

        Where a log names a `newest` record that the control log does not have, as in a copy that took the control log first, those
        that are there hold.
        """
        with self._looking:
            if self._numbered[0] == record:
                found, definitions = self._journal.numbered_definitions()
                self._numbered = found if found != record else max(record, newest), definitions
            return self._numbered[0] != record

    def _group(self, message_type: str) -> GroupCommit:
        return self._groups.get(message_type) or self._groups.setdefault(message_type, self._new_group(message_type))

    def _new_group(self, message_type: str, head: DeltaHead | None = None) -> GroupCommit:
        return GroupCommit(self._journal.store, self._journal.journal_id, message_type, head=head)


@contextmanager
def sending(call: PublishCall, definitions: Callable[[], Definitions]) -> Iterator[PublishCall]:
    """Make the span of a send around the work, and the call whose rows carry its context."""
    if not tracing.is_on():
        yield call
        return
    destination = call.topic if call.topic is not None else call.rows(definitions())[0]
    with tracing.span("send", destination, batch__message_count=call.row_count):
        yield replace(call, traceparent=tracing.traceparent())


class _Nudges:
    """Tells the coordinator of publishes beside them, since its answer waits for a commit of its own."""

    def __init__(self, client: CoordinatorClient) -> None:
        self._client = client
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sparkqueue-nudge")
        #: The message types of those that did not begin yet, with the newest version that each tells of.
        self._waiting: dict[str, int] = {}
        self._telling = threading.Lock()
        #: Whether the last one found no coordinator.
        self._finds_nobody = False
        self._closing = threading.Event()

    def nudge(self, message_type: str, version: int) -> None:
        with self._telling:
            is_waiting = message_type in self._waiting
            self._waiting[message_type] = max(self._waiting.get(message_type, 0), version)
        if is_waiting:
            return
        try:
            self._thread.submit(self._nudge, message_type)
        except RuntimeError:
            # The interpreter is about to end, and starts no thread any more.
            self._nudge(message_type)

    def _nudge(self, message_type: str) -> None:
        if self._finds_nobody:
            # Who starts now reads the log itself: nobody is looked for again with each publish.
            self._closing.wait(_NOBODY_S)
        # Before the call: it may miss what is published during it.
        with self._telling:
            version = self._waiting.pop(message_type)
        self._finds_nobody = not self._client.nudge(message_type, version)

    def close(self) -> None:
        self._closing.set()
        self._thread.shutdown()
        self._client.close()
