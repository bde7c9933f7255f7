"""Publishes to one message type that one process makes at once share a commit (DESIGN 4).

While a commit is under way, what comes waits, and goes into the next one together: as one message file, which one entry names. A
publish that comes alone goes at once: nobody waits for company. Whoever waits commits for all that wait, so it needs no thread.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterable, Sequence, Sized
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from spark_queue.clock import SystemClock
from spark_queue.core.definitions.definition import Definitions
from spark_queue.errors import CallerError, ConfigError, JournalError, SparkQueueError
from spark_queue.journal.commit import DefinitionsChangedError, Identity, KnownLog, Published
from spark_queue.journal.delta_head import DeltaHead
from spark_queue.journal.publisher import check_rows, commit_staged, make_plan, open_head, publish, stage_rows
from spark_queue.journal.rows import to_arrow
from spark_queue.journal.schema import user_schema
from spark_queue.journal.staging import StagedFile, StagingPlan, own_publisher, stored_tables, write_file
from spark_queue.journal.store import Store
from spark_queue.journal.stored_rows import Sequences

if TYPE_CHECKING:
    from spark_queue.ports import Clock

#: Rows and bytes of a publish that shares a message file; a larger one stages a file of its own, beside the commits of others.
SHARED_ROWS = 1_000
SHARED_BYTES = 1024 * 1024

#: Rows of publishes that share a commit, about as many as a row group has.
GROUP_ROWS = 32_000

#: How long a head on an object store, where a look costs a request, is put behind without one, in milliseconds.
_TRUSTED_MS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishCall:
    """The rows of one publish, and what its caller says of them."""

    #: Rows that can be read more than once, see `rows.kept`.
    data: Any
    topic: str | None
    expires_after_ms: int | None = None
    deliver_after_ms: int | None = None
    #: The name under which the rows are numbered, from `first_sequence` on; None where they number themselves.
    publisher: str | None = None
    first_sequence: int | None = None
    #: The message type where a publish of this name may have arrived of which nobody knows: its repeat goes nowhere else.
    repeated_in: str | None = None
    #: The trace context that the rows carry, where their message type has a column for it and they have none; None for none.
    traceparent: str | None = None

    @property
    def row_count(self) -> int:
        """The number of its rows, as far as they tell it without being read."""
        if isinstance(self.data, pa.Table):
            return self.data.num_rows
        return len(self.data) if isinstance(self.data, Sized) else 0

    def rows(self, definitions: Definitions) -> tuple[str, pa.Table]:
        """Return the message type, and the rows as a table."""
        message_type, rows = to_arrow(self.data, definitions, topic=self.topic)
        if self.traceparent is None:
            return message_type, rows
        from spark_queue.tracing import COLUMN  # noqa: PLC0415 - few programs have a trace.

        columns = user_schema(definitions.message_type(message_type).columns)
        wanted = [field for field in columns if field.name.lower() == COLUMN and pa.types.is_string(field.type)]
        if not wanted or any(name.lower() == COLUMN for name in rows.column_names):
            return message_type, rows
        return message_type, rows.append_column(wanted[0], pa.repeat(pa.scalar(self.traceparent, pa.string()), rows.num_rows))

    def plan(self, store: Store, definitions: Definitions, message_type: str) -> StagingPlan:
        """Plan it."""
        return make_plan(
            store, definitions, message_type=message_type, topic=self.topic, expires_after_ms=self.expires_after_ms,
            deliver_after_ms=self.deliver_after_ms,
        )  # fmt: skip


@dataclass(eq=False, slots=True, kw_only=True)
class PendingPublish:
    """One try of a call, and what became of it."""

    call: PublishCall
    #: The definitions that it goes by, and the number of their record.
    definitions: Definitions
    record: int
    message_type: str = ""
    identity: Identity = field(default_factory=Identity)
    #: The rows in a file of their own; None where they share one.
    file: StagedFile | None = None
    #: Whether a commit of it was begun: it may be in the log even where its outcome is an error.
    may_be_committed: bool = False
    #: What became of it: its part of a commit, or why there is none.
    outcome: Published | BaseException | None = None

    def result(self) -> Published:
        """Return its part of a commit, or raise why there is none."""
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        assert self.outcome is not None, "it has ended"
        return self.outcome

    def joins(self, other: PendingPublish) -> bool:
        """Return whether the two may share a commit; a publisher's name has commits of its own, by which repeats are known."""
        ours, theirs = ((each.record, each.call.deliver_after_ms, each.identity) for each in (self, other))
        return ours == theirs and self.identity.publisher is None

    def is_converted_with(self, other: PendingPublish) -> bool:
        """Return whether the rows of both are to become stored rows alike, and can be put into one list."""
        ours, theirs = (
            (each.call.topic, each.call.expires_after_ms, each.call.traceparent, type(each.call.data)) for each in (self, other)
        )
        return ours == theirs and self.call.topic is not None and isinstance(self.call.data, list)


@dataclass(eq=False, slots=True)
class _Caller:
    """A thread that waits for some publishes."""

    publishes: Sequence[PendingPublish]
    #: Set when it is to go on: they have their outcomes, or it is the one that leads.
    turn: threading.Event = field(default_factory=threading.Event)
    leads: bool = False

    @property
    def is_settled(self) -> bool:
        """Whether all of them have their outcomes."""
        return all(each.outcome is not None for each in self.publishes)


class GroupCommit:
    """The commits of this process to one message type's log; safe to share between threads."""

    def __init__(
        self, store: Store, journal_id: str, message_type: str, *, head: DeltaHead | None = None, clock: Clock | None = None
    ) -> None:
        self._store = store
        self._journal_id = journal_id
        self._message_type = message_type
        self._clock = clock or SystemClock()
        #: The head of the log as the last commit left it; None before the first, and after one of which nobody knows the end.
        self._head = head
        #: Whose publishes are on their way, in the order in which they came; one of them leads: it commits for all.
        self._callers: list[_Caller] = []
        self._is_led = False
        self._changing = threading.Lock()

    def commit(self, publishes: Sequence[PendingPublish]) -> None:
        """Commit publishes, also those of others that wait; afterwards each has its outcome."""
        for each in publishes:
            self._stage_large(each)
        self._wait(_Caller([each for each in publishes if each.outcome is None]))

    def _wait(self, caller: _Caller) -> None:
        """Wait until the publishes of a caller are settled, or settle them and those of others."""
        try:
            self._enter(caller)
            caller.turn.wait()
            while not caller.is_settled:
                try:
                    self._settle(self._next_group())
                finally:
                    self._wake_settled()
        finally:
            self._leave(caller)

    def _enter(self, caller: _Caller) -> None:
        with self._changing:
            self._callers.append(caller)
            if not self._is_led:
                self._lead_on(caller)

    def _leave(self, caller: _Caller) -> None:
        with self._changing:
            self._callers = [each for each in self._callers if each is not caller]
            if caller.leads:
                # Not this thread, however much has come meanwhile: its caller waits.
                self._lead_on(next((each for each in self._callers if not each.is_settled), None))

    def _lead_on(self, caller: _Caller | None) -> None:
        self._is_led = caller is not None
        if caller is not None:
            caller.leads = True
            caller.turn.set()

    def _wake_settled(self) -> None:
        with self._changing:
            for each in self._callers:
                if each.is_settled:
                    each.turn.set()

    def _stage_large(self, pending: PendingPublish) -> None:
        call = pending.call
        is_large = call.row_count > SHARED_ROWS or (isinstance(call.data, pa.Table) and call.data.nbytes > SHARED_BYTES)
        if not is_large or pending.identity.publisher is not None:
            return
        try:
            plan = call.plan(self._store, pending.definitions, self._message_type)
            rows = call.rows(pending.definitions)[1]
            pending.file = stage_rows(plan, pending.definitions, rows, now_ms=self._clock.wall_ms())
        except Exception as refusal:  # noqa: BLE001 - whatever it is, it is its caller's.
            pending.outcome = refusal

    def _next_group(self) -> list[PendingPublish]:
        """Return who waits longest, and those that share its commit."""
        with self._changing:
            waiting = [each for caller in self._callers for each in caller.publishes if each.outcome is None]
        group, row_count = waiting[:1], waiting[0].call.row_count
        for each in waiting[1:]:
            if each.joins(group[0]) and row_count + each.call.row_count <= GROUP_ROWS:
                group.append(each)
                row_count += each.call.row_count
        return group

    def _settle(self, group: Sequence[PendingPublish]) -> None:
        try:
            self._commit(group)
        except Exception as failure:  # noqa: BLE001 - each of them raises it to its caller.
            _fail(group, failure)
        except BaseException:
            # This thread was interrupted, and the others cannot tell how far it came.
            facts = {"path": self._store.path, "doing": "publishing", "reason": "the thread that committed was interrupted."}
            next_step = "It is unknown whether the commit arrived: check first whether the rows are there."
            _fail(group, JournalError("STORE_FAILED", **facts, next_step=next_step))
            raise

    def _commit(self, group: Sequence[PendingPublish]) -> None:
        first = group[0]
        head, self._head = self._standing_head(), None
        known = KnownLog(head=head, definitions=first.record)
        try:
            if first.identity.publisher is None:
                self._commit_together(group, known)
            else:
                [named] = group
                self._commit_named(named, known)
        except DefinitionsChangedError:
            self._head = head
            raise
        except (CallerError, ConfigError):
            if not head.stands():
                # It was another log that refuses this.
                raise DefinitionsChangedError(first.record) from None
            self._head = head
            raise
        self._head = head

    def _standing_head(self) -> DeltaHead:
        """Return the head of the log; of a journal that was deleted and made anew it is another one.

        A put behind the old one would be no commit, but stand where the new log gets to some day.
        """
        head = self._head
        is_asked = head is not None and (self._store.is_local or head.age_ms > _TRUSTED_MS)
        if head is None or (is_asked and not head.stands()):
            head = open_head(self._store, self._journal_id, self._message_type, clock=self._clock)
        return head

    def _commit_named(self, pending: PendingPublish, known: KnownLog) -> None:
        call = pending.call
        plan = call.plan(self._store, pending.definitions, self._message_type)
        rows = call.rows(pending.definitions)[1]
        pending.may_be_committed = True
        pending.outcome = publish(
            plan, self._journal_id, pending.definitions, rows, identity=pending.identity, first_sequence=call.first_sequence,
            clock=self._clock, known=known,
        )  # fmt: skip

    def _commit_together(self, group: Sequence[PendingPublish], known: KnownLog) -> None:
        rows = _SharedRows(self._store, self._message_type, self._clock.wall_ms())
        rows.take([each for each in group if each.file is None])
        files = {each: each.file for each in group if each.file is not None}
        committed = {**{each: file.row_count for each, file in files.items()}, **rows.row_counts}
        if not committed:
            return
        first = group[0]
        plan = first.call.plan(self._store, first.definitions, self._message_type)
        shared = write_file(plan, iter(rows.tables), now_ms=rows.now_ms)
        for each in committed:
            each.may_be_committed = True
        staged = [*files.values(), *([] if shared is None else [shared])]
        done = commit_staged(plan, self._journal_id, first.definitions, staged, clock=self._clock, known=known)
        for each, row_count in committed.items():
            each.outcome = replace(done, rows=row_count)


class _SharedRows:
    """The stored rows of publishes that share a message file, and so the name under which they number themselves (R99)."""

    def __init__(self, store: Store, message_type: str, now_ms: int) -> None:
        self._store = store
        self._message_type = message_type
        self._publisher = own_publisher()
        self.now_ms = now_ms
        self.tables: list[pa.Table] = []
        #: How many are of each publish that has any.
        self.row_counts: dict[PendingPublish, int] = {}

    def take(self, publishes: Iterable[PendingPublish]) -> None:
        """Take the rows of publishes; those that are refused have their outcome then, and so have those without rows."""
        parts: list[list[PendingPublish]] = []
        for each in publishes:
            if parts and each.is_converted_with(parts[-1][-1]):
                parts[-1].append(each)
            else:
                parts.append([each])
        for part in parts:
            self._take_part(part)

    def _take_part(self, part: Sequence[PendingPublish]) -> None:
        try:
            self._add(part)
        except Exception as refusal:  # noqa: BLE001 - whatever it is, it is the callers'.
            if len(part) == 1:
                part[0].outcome = refusal
                return
            # Alone, each tells whether it is meant, and which of its rows.
            for each in part:
                self._take_part([each])

    def _add(self, part: Sequence[PendingPublish]) -> None:
        first = part[0]
        call = first.call if len(part) == 1 else replace(first.call, data=[row for each in part for row in each.call.data])
        rows = call.rows(first.definitions)[1]
        if rows.num_rows:
            plan = call.plan(self._store, first.definitions, self._message_type)
            check_rows(plan, first.definitions, rows)
            sequences = Sequences(publisher=self._publisher, first=1 + sum(table.num_rows for table in self.tables))
            self.tables += list(stored_tables(plan, rows.to_batches(), sequences=sequences, now_ms=self.now_ms))
        for each in part:
            row_count = rows.num_rows if len(part) == 1 else each.call.row_count
            if row_count:
                self.row_counts[each] = row_count
            else:
                each.outcome = Published(rows=0)


def _fail(group: Iterable[PendingPublish], failure: Exception) -> None:
    """Let those that have no outcome have this one, each an error of its own: whoever raises an error writes into it."""
    for each in group:
        if each.outcome is None:
            each.outcome = copy.copy(failure) if isinstance(failure, SparkQueueError) else failure
