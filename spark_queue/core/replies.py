"""The replies: answers of the core to the commands of `core.commands`."""

from __future__ import annotations

import html
from dataclasses import dataclass, fields

import msgspec
from pyroaring import BitMap64

from spark_queue.core.records import Incarnation, Ranges


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStatus:
    """One queue's figures at one moment."""

    queue: str
    message_type: str
    semantics: str
    #: Whether nothing is granted until somebody unpauses the queue, or the alarm of every subscription has stopped it.
    paused: bool
    #: A trouble to look at, such as a subscription on whose sink every message fails; None when all is well.
    alarm: str | None
    #: Messages in the queue: available, leased, delayed, held or inactive.
    queue_depth: int
    available: int
    #: Messages given to subscriptions and not yet acknowledged, or lost again (R17, R23).
    backlog: int
    delayed: int
    #: Barriers that wait until nothing stands before them (R68), and those that were released to the subscriptions.
    held: int
    barriers_released: int
    #: Messages beyond the target depth (R79), and how many of them are acknowledged already (R83).
    inactive_message_count: int
    deferred_ack_count: int
    dead_letters: int
    #: Messages on which an expression failed as they came: they matched nothing, rank lowest, or are no barrier.
    failed_expressions: int
    #: Messages that ever entered, and those that left, by reason.
    entered: int
    acknowledged: int
    expired: int
    #: Messages whose lease ran out: they came back, or, at most once, fill no backlog any more.
    expired_leases: int
    #: Most messages leased at once; 0 for no limit (R31).
    max_backlog: int
    #: Most messages that are active at once; 0 for no limit (R79).
    target_queue_depth: int
    subscriptions: int
    #: Age of the oldest message in the queue, in seconds, which a redrive, or the way into a dead-letter queue, begins anew; None
    #: when it is empty.
    seconds_behind: float | None
    #: Age of the oldest lease whose messages count in the backlog, in seconds; None without one.
    age_of_oldest_lease: float | None
    #: Message files that strangers appended to the type's table: no messages of the journal (JOURNAL_FOREIGN_APPEND).
    foreign_files: int
    #: How long the batch that runs for the longest has been running, in seconds, since its rows were granted or last taken up
    #: again, and which subscription's it is: one that hangs may well renew its lease. None when no batch runs.
    longest_batch_seconds: float | None
    longest_batch_subscription: str | None
    #: Attempts to append to a sink of which nobody knows whether they landed, and how long ago the oldest was prepared, in seconds.
    attempts_in_doubt: int
    age_of_oldest_attempt: float | None
    #: Subscriptions of receivers, and outcomes of receivers that came too late to be recorded (R133).
    receivers: int = 0
    outcomes_too_late: int = 0
    #: Of a queue that other instances have, too: messages in it that this instance owns, and that another does; messages that came
    #: by transfers, that went, and that were claimed since their owner could not be reached (R119); whether that is allowed (R108).
    #: How old the oldest of another owner is, and for how long an owner has been asked in vain for messages, in seconds.
    owned: int = 0
    remote: int = 0
    age_of_oldest_remote: float | None = None
    age_of_oldest_request: float | None = None
    transferred_in: int = 0
    transferred_out: int = 0
    proxied_transfer: int = 0
    proxied_transfer_allowed: bool = False
    #: The table that its message type follows (R141), None for none; the last version of it that was read, and how many its log has
    #: beyond that, None where nobody looked; commits that changed rows and were passed over, and how many rows they brought at
    #: most; whether the message type is set aside (R147).
    table: str | None = None
    table_version: int | None = None
    table_versions_behind: int | None = None
    table_changes: int = 0
    table_rows_passed: int = 0
    table_set_aside: bool = False

    def _repr_html_(self) -> str:
        """Show it as a table in a notebook."""
        rows = (
            f"<tr><th>{entry.name.replace('_', ' ')}</th><td>{_shown(getattr(self, entry.name))}</td></tr>"
            for entry in fields(self)
        )
        return f"<table>{''.join(rows)}</table>"


class Reply(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Base of all replies."""


class Drawn(Reply, frozen=True, kw_only=True):
    """A new incarnation, and how long a lease of the queue lasts now: it wants to be renewed well within that."""

    incarnation: Incarnation
    lease_period_ms: int
    #: For receivers: its message type, with the columns as Spark DDL, and whether it delivers at most once.
    message_type: str
    columns: str
    at_most_once: bool


class Place(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Where messages of a receiver's lease stand: a stretch of one file, all delivered and cancelled as often."""

    #: Relative to the message table.
    path: str
    #: Row within the file, and bookmark, of the first; the others follow.
    first_row: int
    rows: int
    bookmark: int
    delivery_count: int
    cancel_count: int
    is_barrier: bool
    #: How the columns of the file are found, as a text; None for a file of the journal.
    columns: str | None = None
    #: The hash of the order key of each row, None for a row without one; None where the queue has no order key.
    keys: tuple[int | None, ...] | None = None
    #: The priority of each row, None for a row without one; None where the queue has no priority.
    priorities: tuple[int | None, ...] | None = None


class Granted(Reply, frozen=True, kw_only=True):
    """The lease that the subscription now has to work on, or the finished one when nothing is there."""

    lease: int
    messages: int = 0
    leased_until_ms: int = 0
    #: 0 where the queue is there no more.
    lease_period_ms: int = 0
    #: How much is left of the lease: one that is given again began when it was given first.
    remaining_ms: int = 0
    #: Where messages are granted: their type, as it is now.
    message_type: str = ""
    #: The columns of its message type as they hold now, as Spark DDL, where messages are granted, or none to a stream for others.
    columns: str = ""
    #: The queue's figures, shown in Spark's progress; None when it was dropped, and until the coordinator adds them.
    status: QueueStatus | None = None
    #: Nothing is there now, but messages wait for other subscriptions that may not come for them: ask again.
    withheld: bool = False
    #: Nothing is given to this subscription now: its queue is paused, or an alarm lets it wait.
    paused: bool = False
    #: To a receiver that asked for the messages of its beginning: nothing of them is in its hand any more, or comes.
    ended: bool = False
    #: With `ended`: how many of those messages wait for their time, and when the first of them comes.
    delayed: int = 0
    due_at_ms: int | None = None
    #: To a receiver that an alarm of its subscription lets wait: its text, and when a message is tried next.
    alarm: str | None = None
    probe_at_ms: int | None = None
    #: To a receiver: receivers have died of its one message, which begins only after a renewal that names its lease (R138).
    alone: bool = False
    #: To a receiver, which asks no second time: where its messages stand, oldest first (R135).
    places: tuple[Place, ...] = ()


class RowsOf(Reply, frozen=True, kw_only=True):
    """Head of the row ranges of a lease."""

    message_type: str
    lease: int
    leased_until_ms: int


class Renewed(Reply, frozen=True, kw_only=True):
    """The lease goes on, if it still was the planner's."""

    lease_period_ms: int
    #: To a receiver: those of its leases that stand, each with the time for which it does, in milliseconds.
    leases: tuple[tuple[int, int], ...] = ()


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """Which execution of a micro-batch speaks (P4): the incarnation and lease that were current when fn began."""

    incarnation: Incarnation
    #: 0 when the batch has no lease (the empty first batch).
    lease: int


class AttemptTold(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt to append to a sink that is in doubt (R123)."""

    subscription: str
    attempt: int
    table: str
    table_id: str
    lease: int
    prepared_at_ms: int
    #: The end of its lease: from then on every subscription that appends to the same table may decide about it.
    due_at_ms: int
    #: Why nobody could decide about it; None while nobody said so.
    error: str | None = None


class SinkTold(msgspec.Struct, frozen=True, kw_only=True):
    """The facts for a run that appends to a sink."""

    #: Count of the run's messages of which something is to be appended; 0 where they have landed already.
    messages: int
    #: The attempt of its own subscription that has to be decided before fn runs.
    own: AttemptTold | None = None
    #: Attempts of other subscriptions of the queue whose lease is past due.
    others: tuple[AttemptTold, ...] = ()


class RunStarted(Reply, frozen=True, kw_only=True):
    """The run that the wrapper now speaks for."""

    run: Run
    ack_mode: str
    #: Whether its one message is a barrier.
    is_barrier: bool
    #: How many messages its batch reads.
    messages: int
    #: What a run has to know that appends to a sink; None where that was not asked.
    sink: SinkTold | None = None


class Prepared(Reply, frozen=True, kw_only=True):
    """The number of the attempt: it commits version 2n of the transaction id, and its fence 2n + 1."""

    attempt: int


class Attempts(Reply, frozen=True, kw_only=True):
    """The attempts that are in doubt."""

    attempts: tuple[AttemptTold, ...]


class Settled(Reply, frozen=True, kw_only=True):
    """Counts of the messages that a settlement changed.

    `late` were acknowledged after another delivery began, `repeated` were settled before, `deferred` settle once active, and
    `skipped` matched a filter and were left alone: leased to another under strict leasing, or of an at-most-once queue. `behind`
    went back with a cancelled message of their order key that stands before them, whatever their outcome was.
    """

    acknowledged: int = 0
    cancelled: int = 0
    expired: int = 0
    late: int = 0
    repeated: int = 0
    deferred: int = 0
    skipped: int = 0
    behind: int = 0


class RefusedRows(msgspec.Struct, frozen=True, kw_only=True):
    """Messages of which a receiver was refused an outcome."""

    lease: int
    ranges: Ranges
    #: A `TooLate`, and the subscription that has them now.
    reason: str
    holder: str | None = None


class HeldSettled(Reply, frozen=True, kw_only=True):
    """The outcomes of a receiver act, but for the refused ones."""

    refused: tuple[RefusedRows, ...] = ()
    #: The answer to the poll that came with them; None where nothing was there, or it was refused, as one by itself would be.
    granted: Granted | None = None


class Purged(Reply, frozen=True, kw_only=True):
    """Messages that a purge removed, and leased ones that it left."""

    purged: int
    leased: int


class DeadLetters(Reply, frozen=True, kw_only=True):
    """Bookmarks of the dead letters that are free to go; how many others are leased or settled."""

    ranges: Ranges
    skipped: int


class Redriven(Reply, frozen=True, kw_only=True):
    """Dead letters that went back to their queue; leased or settled ones were skipped."""

    requested: int
    redriven: int
    skipped: int


class Forgotten(Reply, frozen=True, kw_only=True):
    """How many messages of a peer that is gone were claimed, and how many could not be, by queue: those deliver at most once."""

    claimed: int
    left: dict[str, int]


class Drained(Reply, frozen=True, kw_only=True):
    """How many messages were transferred, and how many are still owned here, by queue."""

    transferred: int
    left: dict[str, int]
    #: Why some of those will never go there as things are, by queue.
    stuck: dict[str, str] = {}
    #: Once nothing is left: the record that says so, and whether the peer has pulled it.
    record: int
    is_pulled: bool


class Done(Reply, frozen=True, kw_only=True):
    """It is done and durable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasedRows:
    """The answer to `Rows`: the reply, and the rows from which its pieces are cut."""

    reply: RowsOf
    rows: BitMap64
    #: Whether its one message is a barrier.
    is_barrier: bool


CoreReply = (
    Drawn | Granted | RowsOf | Renewed | RunStarted | Prepared | Attempts | Settled | HeldSettled | Purged | DeadLetters
    | Redriven | Forgotten | Drained | Done
)  # fmt: skip


def _shown(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int | float) else html.escape(str(value))
