"""Committing staged files, once: the loop of decide, swap, look (DESIGN 4, 15.4, 15.5, 15.9)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from spark_queue.errors import CallerError, JournalError
from spark_queue.journal import delta
from spark_queue.journal.damage import damaged
from spark_queue.journal.delta_head import DeltaHead
from spark_queue.journal.entry_parts import Mark, NewFile
from spark_queue.journal.log_entry import (
    DEFINITIONS_TXN,
    PUBLISHER_TXN,
    LogEntry,
    TornEntryError,
    read_entry,
    topic_transaction,
)
from spark_queue.journal.log_listing import versions_after
from spark_queue.journal.message_table import arrow_schema, open_messages
from spark_queue.journal.reader import open_reader
from spark_queue.journal.schema import stored_schema
from spark_queue.journal.staging import StagedFile, StagingPlan, read_staged, write_file
from spark_queue.journal.store import log_key, messages_key

if TYPE_CHECKING:
    from spark_queue.ports import Clock

#: Lost races in a row after which publishing gives up, and failures that no race explains.
RACES_LIMIT = 200
FAILURES_LIMIT = 3

#: Staged files older than this are staged anew, in milliseconds: long before leftovers are deleted (after 24 h).
RESTAGE_MS = 3600 * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The result of a publish."""

    #: Messages that it added.
    rows: int
    #: Rows that were there already and were dropped (R95).
    duplicates: int = 0
    #: Highest sequence of the publisher that is in the log; None for unnamed publishers.
    persisted_sequence: int | None = None
    #: Message type, and the version of its table that has all of it; None for nothing.
    message_type: str = field(default="", compare=False, repr=False)
    version: int | None = field(default=None, compare=False, repr=False)


#: Begin the ids of transactions: of a stream's batches, of users' own ids, and of fingerprints that part two batches of one number.
STREAM_TXN, USER_TXN = "s", "t"
OFFSETS_TXN, ROWS_TXN, KEPT_TXN = "o:", "r:", "k:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """A number by which a repeat of a commit is known, whatever its rows are (PROTOCOL 3)."""

    #: Delta's transaction id, see `transaction_name`.
    name: str
    number: int
    #: Fingerprints that its repeat shares with it, and no other batch of that number, by the ids that carry them: one in common
    #: is enough. None where the number alone decides.
    fingerprints: Mapping[str, int] | None = None


def transaction_name(kind: str, name: str, *, target: str | None) -> str:
    """Return the id of the publishes of a query, or a user's own id, to one topic; without a target to the topics of the rows."""
    return f"{kind}:{target or ''}:{name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The identity by which a repeat of a commit is known; each part is optional, and sequences show more than a transaction."""

    #: The publisher whose sequences the rows carry; None when they number themselves (R99).
    publisher: str | None = None
    #: Whether the publisher's name belongs to one opening at a time (R98); streams have their checkpoint for that.
    exclusive: bool = False
    #: The number that opening the name drew; None opens it with this very commit.
    number: int | None = None
    transaction: Transaction | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Decision:
    """The content of one attempt to commit, decided on one version of the table."""

    published: Published
    files: Sequence[StagedFile] = ()
    transactions: Sequence[tuple[str, int]] = ()


class DefinitionsChangedError(Exception):
    """The definitions by which a publish was planned hold no longer, but those with the number `newest`; nothing was committed."""

    def __init__(self, newest: int) -> None:
        super().__init__(newest)
        self.newest = newest


@dataclass(slots=True, kw_only=True)
class KnownLog:
    """The part of a message type's log that a publisher keeps from one publish to the next."""

    head: DeltaHead
    #: The number of the record of the definitions that it plans by; None where it commits by those of its plan in any case.
    definitions: int | None = None

    def check_definitions(self) -> None:
        """Raise `DefinitionsChangedError` where the log says that newer ones hold."""
        if self.definitions is None:
            return
        newest = self.head.transaction_version(DEFINITIONS_TXN)
        if newest is not None and newest > self.definitions:
            raise DefinitionsChangedError(newest)


class Commit:
    """One publish on its way into the log: of `files`, in publish order, into the journal that the caller means.

    `clock` is asked for the age of staged files. With what is `known` of the log it is not opened, and the commit lands only while
    the definitions hold by which it was planned; otherwise it raises `DefinitionsChangedError`.
    """

    def __init__(
        self,
        plan: StagingPlan,
        journal_id: str,
        files: Sequence[StagedFile],
        identity: Identity,
        clock: Clock,
        *,
        known: KnownLog | None = None,
    ) -> None:
        self._known = known
        self._plan = plan
        self._store = plan.store
        self._key = messages_key(plan.message_type)
        self._journal_id = journal_id
        self._files = tuple(files)
        self._identity = identity
        self._clock = clock
        self._started_ms = clock.monotonic_ms()
        sequences = (files[0].first_sequence, files[-1].last_sequence) if identity.publisher is not None else (None, None)
        is_stream = identity.transaction is not None and identity.transaction.name.startswith(f"{STREAM_TXN}:")
        writer = "stream" if is_stream else "publisher"
        # One token for all attempts: a first attempt whose reply was lost may land during a later one.
        self._mark = Mark(
            writer=writer, first_sequence=sequences[0], last_sequence=sequences[1], deliver_after_ms=plan.deliver_after_ms
        )

    def run(self) -> Published:
        """Commit, and return the counts of published rows; nothing is half done."""
        self._check_ascending()
        head = DeltaHead(self._store, self._key, self._open()) if self._known is None else self._known.head
        if head.is_old:
            # Its entries may be cleaned away by now.
            self._read_on(head)
        races = failures = 0
        opened_at: int | None = None
        while True:
            self._restage_old_files()
            if self._known is not None:
                # First: the table of a type that was defined anew may have other columns.
                self._known.check_definitions()
            self._check_table(head)
            decision = self._decide(head)
            base = head.version
            if self._plan.durable:
                # Another's commit may not have reached the disk: torn below this one, it would be damage (PROTOCOL 6), and what
                # is a repeat of it would be lost.
                self._store.sync([log_key(self._key, base)])
            if not decision.files:
                # Of another log, or of newer commits, nobody knows yet whether they have them.
                if opened_at == base or (self._read_on(head) and head.version == base):
                    return replace(decision.published, message_type=self._plan.message_type, version=base)
                opened_at = head.version
                continue
            failure = self._attempt(head, decision)
            if self._look(head, base, decision, is_own=failure is None):
                self._sync_own(base + 1)
                return replace(decision.published, message_type=self._plan.message_type, version=base + 1)
            races, failures = (races + 1, 0) if head.version > base else (races, failures + 1)
            if races >= RACES_LIMIT:
                raise JournalError("PUBLISH_CONTENDED", path=self._store.uri(self._key), attempts=races)
            if failures >= FAILURES_LIMIT:
                raise self._failed("The commit cannot be found." if failure is None else failure)
            delta.back_off(races + failures)
            # After the pause others have gone on: a put behind them would be refused again.
            self._read_on(head)

    def _check_table(self, head: DeltaHead) -> None:
        """Refuse a table that somebody altered so that the files do not fit it (PROTOCOL 2)."""
        if head.fitting is self._plan.shape.schema:
            return
        if self._misfit(head, self._plan.shape.schema) is not None:
            # A head that was kept may be older than the columns of the plan.
            head.reset(self._open())
            found = self._misfit(head, self._plan.shape.schema)
            if found is not None and self._has_other_definitions(head):
                raise CallerError("MESSAGE_TYPE_RENEWED", message_type=self._plan.message_type)
            if found is not None:
                raise damaged(self._store, f"the table of message type '{self._plan.message_type}' was altered", found)
        head.fitting = self._plan.shape.schema

    def _misfit(self, head: DeltaHead, schema: pa.Schema) -> str | None:
        """Return a sentence that says why files of a schema do not fit the table as the head knows it; None where they do."""
        there = {field.name: field.type for field in arrow_schema(head.table)}
        unlike = [field.name for field in schema if there.get(field.name) != field.type]
        if unlike:
            return f"Its columns {', '.join(unlike)} are not as declared."
        partitions = head.table.metadata().partition_columns
        return f"It is partitioned by {', '.join(partitions)}." if partitions else None

    def _has_other_definitions(self, head: DeltaHead) -> bool:
        """Return whether the table fits those of now, or has none: a write of Spark commits by those of its plan."""
        known = open_reader(self._store).definitions().message_types.get(self._plan.message_type)
        if known is None:
            # It goes, or begins anew: its table is altered before its definition stands.
            return True
        columns = stored_schema(known.columns)
        return columns != self._plan.shape.schema and self._misfit(head, columns) is None

    def _read_on(self, head: DeltaHead) -> bool:
        """Read the commits of others, or open the log anew; returns whether it went on from the head."""
        if head.read_on():
            return True
        head.reset(self._open())
        return False

    def _open(self) -> DeltaTable:
        return open_messages(self._store, self._journal_id, self._plan.message_type)

    def _check_ascending(self) -> None:
        if self._identity.publisher is None:
            return
        for earlier, later in zip(self._files, self._files[1:], strict=False):
            if later.first_sequence <= earlier.last_sequence:
                raise CallerError(
                    "SEQUENCE_NOT_ASCENDING",
                    publisher=self._identity.publisher,
                    sequence=later.first_sequence,
                    previous=earlier.last_sequence,
                )

    def _decide(self, head: DeltaHead) -> _Decision:
        identity = self._identity
        transactions: list[tuple[str, int]] = []
        if identity.exclusive:
            transactions.append(self._name_transaction(head))
        files: Sequence[StagedFile] = self._files
        persisted: int | None = None
        if identity.publisher is not None:
            persisted = head.transaction_version(f"{PUBLISHER_TXN}{identity.publisher}")
            if persisted is not None:
                files = self._after(persisted)
                self._check_topics(head, persisted)
            if files:
                persisted = files[-1].last_sequence
                transactions.append((f"{PUBLISHER_TXN}{identity.publisher}", persisted))
                topics = {topic for file in files for topic in file.topics}
                transactions += [(topic_transaction(topic, identity.publisher), persisted) for topic in sorted(topics)]
        elif identity.transaction is not None:
            files = () if self._was_published(head, identity.transaction) else files
            transactions += [(identity.transaction.name, identity.transaction.number)]
            transactions += (identity.transaction.fingerprints or {}).items()
        rows = _count(files)
        published = Published(rows=rows, duplicates=_count(self._files) - rows, persisted_sequence=persisted)
        return _Decision(published=published, files=files, transactions=transactions)

    def _check_topics(self, head: DeltaHead, persisted: int) -> None:
        """Refuse to drop rows for their numbers where none of these was published to their topic."""
        publisher = str(self._identity.publisher)
        for file in self._files:
            if file.first_sequence > persisted:
                return
            for topic, last in self._dropped(file, persisted):
                highest = head.transaction_version(topic_transaction(topic, publisher))
                if highest is None or highest < last:
                    facts = {"last": last, "topic": topic, "persisted": persisted, "message_type": self._plan.message_type}
                    raise CallerError("SEQUENCE_ELSEWHERE", publisher=publisher, **facts)

    def _dropped(self, file: StagedFile, persisted: int) -> Iterable[tuple[str, int]]:
        """Return the topics of the rows of a file that are to be dropped, and the highest number in each."""
        if file.last_sequence <= persisted and len(file.topics) == 1:
            return [(file.topics[0], file.last_sequence)]
        found: dict[str, int] = {}
        for rows in read_staged(self._plan, file, after_sequence=None):
            dropped = rows.filter(pc.field("sequence") <= persisted)
            # Numbers ascend, so the last one that a topic is met with is its highest.
            columns: tuple[list[Any], ...] = tuple(dropped.column(name).to_pylist() for name in ("topic", "sequence"))
            found |= zip(*columns, strict=True)
        return found.items()

    def _was_published(self, head: DeltaHead, wanted: Transaction) -> bool:
        """Return whether this is the repeat of a commit; other rows under a used number are refused."""
        newest = head.transaction_version(wanted.name)
        if newest is None or newest < wanted.number:
            return False
        told = wanted.fingerprints
        if told is None:
            return True
        if newest == wanted.number:
            found = {name: head.transaction_version(name) for name in told}
            if not told or any(found[name] == value for name, value in told.items()):
                return True
        elif any(not told or told.items() & entry.items() for entry in self._transactions_of(wanted)):
            return True
        raise _used(wanted, newest)

    def _transactions_of(self, wanted: Transaction) -> Iterator[Mapping[str, int]]:
        """Yield the transactions of those commits of a number that are still in the log."""
        for version in reversed(versions_after(self._store, self._key, -1)):
            entry = self._entry(version)
            if entry is not None and entry.transactions.get(wanted.name) == wanted.number:
                yield entry.transactions

    def _name_transaction(self, head: DeltaHead) -> tuple[str, int]:
        name, own = f"n:{self._identity.publisher}", self._identity.number
        newest = head.transaction_version(name) or 0
        if own is None:
            return name, newest + 1
        if newest != own:
            raise CallerError("PUBLISHER_NAME_IN_USE", publisher=self._identity.publisher, newest=newest, own=own)
        return name, own

    def _after(self, persisted: int) -> Sequence[StagedFile]:
        """Return the files of the rows that are not in the log yet (DESIGN 15.5)."""
        first, last = self._files[0].first_sequence, self._files[-1].last_sequence
        if last <= persisted:
            return ()
        if first > persisted:
            return self._files
        if not self._repeats(first):
            publisher = self._identity.publisher
            raise CallerError("SEQUENCE_BEHIND", publisher=publisher, first=first, persisted=persisted, last=last)
        new = [file for file in self._files if file.last_sequence > persisted]
        if new[0].first_sequence <= persisted:
            new[0] = self._rewrite(new[0], after_sequence=persisted)
        return new

    def _repeats(self, first_sequence: int) -> bool:
        """Return whether a commit of this publisher that is still in the log started with the same sequence, here or on a peer."""
        publisher = str(self._identity.publisher)
        name = f"{PUBLISHER_TXN}{publisher}"
        for version in reversed(versions_after(self._store, self._key, -1)):
            entry = self._entry(version)
            if entry is None:
                continue
            if name in entry.transactions and entry.mark.get("first_sequence") == first_sequence:
                return True
            if any(file.get(publisher, [None])[0] == first_sequence for file in entry.mark.get("publishers", ())):
                return True
        return False

    def _restage_old_files(self) -> None:
        waited_ms = self._clock.monotonic_ms() - self._started_ms
        now_ms = self._clock.wall_ms()
        if all(max(waited_ms, now_ms - file.staged_at_ms) <= RESTAGE_MS for file in self._files):
            return
        self._files = tuple(self._rewrite(file, after_sequence=None) for file in self._files)
        self._started_ms = self._clock.monotonic_ms()

    def _rewrite(self, file: StagedFile, *, after_sequence: int | None) -> StagedFile:
        rows = read_staged(self._plan, file, after_sequence=after_sequence)
        rewritten = write_file(self._plan, rows, now_ms=self._clock.wall_ms())
        assert rewritten is not None, "a staged file has rows, and its last one is kept"
        return replace(rewritten, columns=file.columns)

    def _attempt(self, head: DeltaHead, decision: _Decision) -> str | None:
        """Commit behind the head; returns None where that was done, and otherwise a reason, which is not certain."""
        now_ms = self._clock.wall_ms()
        files = [
            NewFile(path=file.path, size_bytes=file.size_bytes, modified_ms=now_ms, stats=file.stats()) for file in decision.files
        ]
        try:
            is_own = head.put(files, mark=self._mark, transactions=dict(decision.transactions), at_ms=now_ms)
        except JournalError as failure:
            # Refused, failed, or done with the reply lost: only a look shows it.
            return str(failure.facts["reason"])
        return None if is_own else "Another commit came first."

    def _look(self, head: DeltaHead, base: int, decision: _Decision, *, is_own: bool) -> bool:
        """Read on, and return whether the commit is there; nothing new is decided before that is known."""
        reason = ""
        for attempt in range(FAILURES_LIMIT):
            try:
                if is_own and head.version == base and head.follow_own():
                    return True
                self._read_on(head)
                return self._has_landed(head, base, decision)
            except JournalError as trouble:
                if trouble.code != "STORE_FAILED":
                    raise
                reason = str(trouble.facts["reason"])
            delta.back_off(attempt)
        raise self._failed(reason)

    def _has_landed(self, head: DeltaHead, base: int, decision: _Decision) -> bool:
        entry = self._entry(base + 1)
        if entry is not None and entry.token != self._mark.token:
            return False
        if entry is not None and (head.version == base + 1 or self._entry(base) is not None):
            return True
        if entry is None and head.version == base:
            return False
        # Entries were cleaned away during a pause: this one too after it had landed, or those around it before, so that it
        # landed where nobody looks (tried). Its files in the table show it, also past ones: they may have been merged since.
        table = self._open()
        known = set(table.get_add_actions().column("path").to_pylist()) | self._taken_away_after(base)
        return all(file.path in known for file in decision.files)

    def _taken_away_after(self, version: int) -> set[str]:
        entries = (self._entry(later) for later in versions_after(self._store, self._key, version))
        return {remove["path"] for entry in entries if entry is not None for remove in entry.removes}

    def _entry(self, version: int) -> LogEntry | None:
        try:
            return read_entry(self._store, self._key, version)
        except TornEntryError:
            return None

    def _sync_own(self, version: int) -> None:
        if not self._plan.durable:
            return
        try:
            self._store.sync([log_key(self._key, version)])
        except JournalError as trouble:
            # It stands, and may be gone after a power loss. A second sync may succeed without the bytes.
            raise self._failed(str(trouble.facts["reason"])) from None

    def _failed(self, reason: str) -> JournalError:
        next_step = (
            "It is unknown whether the commit arrived. Publishing again is safe under a publisher name with sequences; otherwise "
            "check first whether the rows are there."
        )
        return JournalError("STORE_FAILED", path=self._store.path, doing="publishing", reason=reason, next_step=next_step)


def _used(wanted: Transaction, newest: int) -> CallerError:
    kind, topic, name = wanted.name.split(":", 2)
    facts = {"number": wanted.number, "name": name, "target": f"topic '{topic}'" if topic else "the topics of its rows"}
    if kind == STREAM_TXN:
        return CallerError("CHECKPOINT_BEHIND", newest=newest, **facts)
    reason = (
        "with other rows."
        if newest == wanted.number
        else f"or skipped: {newest} came before it, and the log no longer shows which."
    )
    return CallerError("TRANSACTION_USED", reason=reason, **facts)


def _count(files: Sequence[StagedFile]) -> int:
    return sum(file.row_count for file in files)
