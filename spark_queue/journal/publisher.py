"""Publishing without a coordinator (DESIGN 4): stage anywhere, commit once.

`publish` does both for rows at hand. A distributed writer makes a `plan` on the driver, calls `stage_file` where the rows
are, and `commit_staged` once with their results.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from spark_queue.clock import SystemClock
from spark_queue.core.definitions.definition import Definitions
from spark_queue.core.definitions.keys import valid_name
from spark_queue.errors import CallerError, ConfigError, JournalError
from spark_queue.journal.commit import Commit, Identity, KnownLog, Published
from spark_queue.journal.delta_head import DeltaHead
from spark_queue.journal.log_entry import PUBLISHER_TXN
from spark_queue.journal.message_table import open_messages
from spark_queue.journal.schema import stored_schema
from spark_queue.journal.staging import StagedFile, StagingPlan, stage_file
from spark_queue.journal.store import Store, messages_key
from spark_queue.journal.stored_rows import RowShape, Sequences
from spark_queue.journal.transaction import commit_transaction

if TYPE_CHECKING:
    from spark_queue.ports import Clock

#: Bits of a sequence, beside its sign.
_BITS = 63

__all__ = [
    "Identity", "OpenedName", "Published", "check_rows", "commit_staged", "make_plan", "open_head", "open_name", "publish",
    "stage_rows",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedName:
    """A publisher name that belongs to this process until another opens it (R98)."""

    name: str
    #: The number drawn, by message type, and the troubles that keep other types from being published to.
    numbers: dict[str, int]
    troubles: dict[str, JournalError]
    #: The heads of the logs of those types, as they were when the number was drawn.
    heads: dict[str, DeltaHead] = field(compare=False, repr=False)
    #: Highest sequence in the log; None before the first.
    last_sequence: int | None

    def number(self, message_type: str) -> int:
        """Return the number drawn for a type; raises the trouble that keeps it from being published to."""
        if message_type in self.troubles:
            raise self.troubles[message_type]
        if message_type not in self.numbers:
            reason = f"message type '{message_type}' was added after publisher '{self.name}' was opened."
            raise CallerError("UNSUPPORTED_WRITE", what="Publishing", reason=reason, next_step="Open the publisher again.")
        return self.numbers[message_type]


def make_plan(
    store: Store,
    definitions: Definitions,
    *,
    message_type: str,
    topic: str | None,
    expires_after_ms: int | None,
    deliver_after_ms: int | None = None,
) -> StagingPlan:
    """Plan a publish: everything that staging needs to know, picklable.

    Without `topic`, which may also be a queue's name (R62), rows bring their own, as they may bring `expires_at`; a delay counts
    from the commit (R128).
    """
    targets = {
        queue.name: queue.default_publish_target
        for queue in definitions.queues.values()
        if queue.default_publish_target not in (None, queue.name)
    }
    shape = RowShape(
        message_type=message_type,
        schema=stored_schema(definitions.message_type(message_type).columns),
        topic=topic,
        publish_targets={name: str(target) for name, target in targets.items()},
        expires_after_ms=expires_after_ms,
        rename=definitions.message_type(message_type).rename,
    )
    durable = definitions.journal.durable
    return StagingPlan(store=store, message_type=message_type, shape=shape, durable=durable, deliver_after_ms=deliver_after_ms)


def publish(
    plan: StagingPlan,
    journal_id: str,
    definitions: Definitions,
    rows: pa.Table,
    *,
    identity: Identity | None = None,
    first_sequence: int | None = None,
    sequence_column: str | None = None,
    clock: Clock | None = None,
    known: KnownLog | None = None,
) -> Published:
    """Publish rows in one commit.

    A named publisher numbers its rows by `first_sequence` or by `sequence_column`, never by both. Without a `known` log its log is
    opened.
    """
    identity, clock = identity or Identity(), clock or SystemClock()
    if not rows.num_rows:
        return Published(rows=0)
    sequences: Sequences | None = None
    if identity.publisher is not None:
        if first_sequence is None and sequence_column is None:
            reason = "Without it, a repeat could not be told from new rows (R95)."
            raise CallerError(
                "SEQUENCE_MISSING", publisher=identity.publisher, what="a first sequence or a sequence column", reason=reason
            )
        _check_publisher(identity.publisher)
        _check_numbers(first_sequence, rows.num_rows)
        sequences = Sequences(publisher=identity.publisher, first=first_sequence, column=sequence_column)
    file = stage_rows(plan, definitions, rows, now_ms=clock.wall_ms(), sequences=sequences)
    return Commit(plan, journal_id, [file], identity, clock, known=known).run()


def stage_rows(
    plan: StagingPlan, definitions: Definitions, rows: pa.Table, *, now_ms: int, sequences: Sequences | None = None
) -> StagedFile:
    """Write rows, of which there are some, to a message file; without `sequences` they number themselves."""
    check_rows(plan, definitions, rows)
    file = stage_file(plan, rows.to_batches(), now_ms=now_ms, sequences=sequences)
    assert file is not None, "there are rows"
    return file


def check_rows(plan: StagingPlan, definitions: Definitions, rows: pa.Table) -> None:
    """Refuse rows whose topics are of another message type, or that have none, before anything is written."""
    _check_topics(plan, definitions, _own_topics(plan, rows))


def commit_staged(
    plan: StagingPlan,
    journal_id: str,
    definitions: Definitions,
    files: Sequence[StagedFile],
    *,
    identity: Identity | None = None,
    clock: Clock | None = None,
    known: KnownLog | None = None,
) -> Published:
    """Commit staged files, in this order, once; a repeat is known by `identity`. Without a `known` log its log is opened."""
    identity = identity or Identity()
    if identity.publisher is not None:
        _check_publisher(identity.publisher)
    if not files:
        return Published(rows=0)
    _check_topics(plan, definitions, {topic for file in files for topic in file.topics})
    return Commit(plan, journal_id, files, identity, clock or SystemClock(), known=known).run()


def open_head(store: Store, journal_id: str, message_type: str, *, clock: Clock | None = None) -> DeltaHead:
    """Open the log of a message type for publishes."""
    return DeltaHead(store, messages_key(message_type), open_messages(store, journal_id, message_type), clock=clock)


def open_name(
    store: Store, journal_id: str, message_types: Iterable[str], name: str, *, durable: bool, clock: Clock | None = None
) -> OpenedName:
    """Open a publisher name: from now on older openings are refused at their next batch (R98).

    A fault of one type's table keeps nobody from publishing messages of others.
    """
    _check_publisher(name)
    at_ms = (clock or SystemClock()).wall_ms()
    numbers, troubles, persisted = dict[str, int](), dict[str, JournalError](), list[int]()
    heads: dict[str, DeltaHead] = {}
    for message_type in message_types:
        try:
            head = open_head(store, journal_id, message_type)
            numbers[message_type] = commit_transaction(
                store, messages_key(message_type), head, name=f"n:{name}", version=lambda found: found + 1, writer="publisher",
                at_ms=at_ms, durable=durable,
            )  # fmt: skip
        except JournalError as trouble:
            if trouble.code in ("STORE_FAILED", "PUBLISH_CONTENDED"):
                # A failure that may be over at the next try is no trouble of the type.
                raise
            troubles[message_type] = trouble
            continue
        # Read after the number is drawn: an older opening that was still publishing is refused from here on.
        last = head.transaction_version(f"{PUBLISHER_TXN}{name}")
        persisted += [] if last is None else [last]
        heads[message_type] = head
    return OpenedName(name=name, numbers=numbers, troubles=troubles, heads=heads, last_sequence=max(persisted, default=None))


def _own_topics(plan: StagingPlan, rows: pa.Table) -> set[str]:
    """Return the topics that rows will be stored under, before anything is written."""
    shape = plan.shape
    if shape.topic is not None:
        found = {shape.topic}
    elif "topic" not in rows.column_names or rows.column("topic").null_count:
        raise CallerError(
            "TOPIC_MISSING", rows=rows.num_rows if "topic" not in rows.column_names else rows.column("topic").null_count
        )
    else:
        found = {str(topic) for topic in rows.column("topic").unique().to_pylist()}
    return {shape.publish_targets.get(topic, topic) for topic in found}


def _check_topics(plan: StagingPlan, definitions: Definitions, topics: Iterable[str]) -> None:
    for topic in topics:
        _, home = definitions.route(topic)
        if home.name != plan.message_type:
            raise CallerError("TOPIC_OF_OTHER_TYPE", topic=topic, found=home.name, message_type=plan.message_type)


def _check_numbers(first: Any, row_count: int) -> None:
    """Refuse a first number that is none, or that leaves too few for all of the rows."""
    is_whole = isinstance(first, int | np.integer) and not isinstance(first, bool)
    if first is None or (is_whole and -(2**_BITS) <= first <= 2**_BITS - row_count):
        return
    expected = f"a whole number such that those of {row_count:,} row(s) lie between -2^63 and 2^63 - 1"
    # Python writes no number of thousands of digits.
    value = f"a number of {first.bit_length():,} bits" if isinstance(first, int) and first.bit_length() > _BITS else first
    raise ConfigError("BAD_VALUE", key="first_sequence", where="publish", value=value, expected=expected)


def _check_publisher(name: str) -> None:
    if not valid_name(name):
        raise ConfigError("NAME_INVALID", what="publisher", name=name)
