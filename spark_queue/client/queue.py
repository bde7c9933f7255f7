"""`Queue`: the users' handle of a queue. It is a value that opens nothing until asked (DESIGN 9).

Methods import the modules that they need themselves: a receiver loads neither the views nor what decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

from spark_queue.client.arguments import checked
from spark_queue.client.handle import Handle
from spark_queue.core import commands, replies
from spark_queue.errors import CallerError, ConfigError, JournalError

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from spark_queue.core.state.dead_letter import DeadLetter
    from spark_queue.core.state.letter_kinds import LetterKind
    from spark_queue.receiver.message import Message
    from spark_queue.receiver.processing import Processed
    from spark_queue.receiver.receiver import Receiver
    from spark_queue.source.spark_table import MergeFunction
    from spark_queue.views import JournalView, MessageHistory, QueueCheck


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue of a journal, by name."""

    journal: Handle
    name: str

    @checked
    def foreach_batch(
        self,
        fn: Callable[[DataFrame, int], DataFrame | pa.Table | pd.DataFrame | None],
        *,
        subscription: str,
        on_barrier: Callable[[DataFrame, int], None] | None = None,
        on_error: str = "fail",
        ack_early: bool = False,
    ) -> Callable[[DataFrame, int], None]:
        """Wrap a function for ``writeStream.foreachBatch``: what it finishes is acknowledged (DESIGN 7).

        Parameters
        ----------
        fn
            Gets a micro-batch and its id. Returns None (all rows are acknowledged), or a table that names the exceptions, a
            DataFrame of Spark or pandas, or an Arrow table: ``bookmark``, ``outcome`` (acknowledge, cancel, expire), and
            optionally ``error`` and, with cancel, ``retry_after`` (``"5m"``, an INTERVAL, or seconds).
        subscription
            The one that the stream reads as.
        on_barrier
            Gets each micro-batch that is a barrier, instead of `fn`: so neither has to ask its rows, which would be a Spark job.
        on_error
            ``fail``: an exception fails the query. ``cancel``: the batch goes back to the queue and the query lives on.
        ack_early
            Settle when `fn` returns instead of when Spark has committed the batch: for stateless jobs that prefer a restart
            without duplicates.
        """
        from spark_queue.source.foreach_batch import BatchWrapper

        return BatchWrapper(
            fn,
            on_barrier=on_barrier,
            store=self.journal.store,
            endpoint=self.journal.endpoint,
            queue=self.name,
            subscription=subscription,
            on_error=on_error,
            ack_early=ack_early,
        )

    @checked
    def into(
        self,
        table: str | None = None,
        fn: Callable[[DataFrame, int], DataFrame | tuple[DataFrame | None, Any] | None] | None = None,
        *,
        topic: str | None = None,
        subscription: str,
        on_barrier: Callable[[DataFrame, int], None] | None = None,
        on_error: str = "fail",
        partition_by: Sequence[str] | None = None,
        merge_schema: bool = False,
        storage_options: Mapping[str, str] | None = None,
        writer: str = "direct",
        merge: MergeFunction | None = None,
        single_driver: bool = False,
    ) -> Callable[[DataFrame, int], None]:
        """Wrap a function for ``writeStream.foreachBatch``: its rows and the acknowledgement of the batch are one commit (R123).

        However often consumers die, in the table stands each message's share exactly once, or not at all if it was cancelled,
        expired or became a dead letter. Any number of consumers may share the queue and the table.

        Parameters
        ----------
        table
            The path or URL of a Delta table outside of the journal, which the first batch creates if there is none, or the name of
            one, such as ``main.sales.booked``, in a catalog of the active Spark session.
        topic
            Instead of a table, a topic or a queue of the journal, to which the rows are published.
        fn
            Gets a micro-batch and its id. Returns the DataFrame to append, or that and a table of exceptions as `foreach_batch`
            takes it. For None, and without fn, the batch is appended as it is: to a topic the columns that its message type has.
        subscription
            The one that the stream reads as.
        on_barrier
            Gets each micro-batch that is a barrier; nothing of it is appended.
        on_error
            ``fail``: an exception fails the query. ``cancel``: the batch goes back to the queue and the query lives on.
        partition_by
            The columns by which a new table is partitioned; an existing one must be.
        merge_schema
            Whether columns that the table lacks are added to it.
        storage_options
            How the table's store is reached, as `deltalake` takes them; without them as the journal's, where it is one store's.
        writer
            ``direct``: Spark's tasks write files, and one commit names them. ``spark``: Spark's own Delta writes, for
            tables with features that this does not keep, and on stores where several drivers may commit by Spark.
        merge
            With writer ``spark``: gets the `delta.tables.DeltaTable` and the rows, and returns the MERGE, not yet executed.
        single_driver
            With writer ``spark``: this driver alone commits to the table, as on a laptop's disk; a second one may lose a batch.

        Raises
        ------
        ConfigError
            SINK_FEATURE_UNSUPPORTED, SINK_RETENTION_SHORT, SINK_IN_JOURNAL, SINK_COMMIT_UNSAFE or TABLE_NAME_UNKNOWN for a table
            that no batch can be appended to; BAD_VALUE where what was given does not fit together.
        CallerError
            UNSUPPORTED_WRITE where the queue delivers at most once.
        AccessError
            ACCESS_DENIED without the right to publish to the topic.
        JournalError
            SINK_FAILED where the table cannot be read.
        """
        from spark_queue.source.into import SinkWrapper

        return SinkWrapper(
            fn, table=table, topic=topic, storage_options=storage_options, partition_by=partition_by, merge_schema=merge_schema,
            writer=writer, merge=merge, single_driver=single_driver, on_barrier=on_barrier, store=self.journal.store,
            endpoint=self.journal.endpoint, queue=self.name, subscription=subscription, on_error=on_error,
        )  # fmt: skip

    @checked
    def receive(
        self,
        *,
        subscription: str | None = None,
        max_backlog: int = 10,
        filter: str | None = None,  # noqa: A002 - as the option of the stream is called.
        wait: str | None = None,
        until_empty: bool = False,
        on_lost: Callable[[Message], None] | None = None,
    ) -> Receiver:
        """Receive messages in plain Python, one by one, without Spark (R131 to R140).

        Use it in a ``with`` statement, or an ``async with``. What was handed out and not settled when the block is left is
        cancelled with the exception's text; the rest goes back, and counts no delivery.

        Parameters
        ----------
        subscription
            The name to receive under, so that a newer receiver takes over from an older one; default: a name of its own, which ends
            with the receiver.
        max_backlog
            Most messages in hand; more are fetched once half of that is free.
        filter
            Only messages that match it, in Spark SQL over the columns of the message type.
        wait
            End when nothing came for so long, such as ``"30s"``; default: never.
        until_empty
            Only what is in the queue now, each message once.
        on_lost
            Gets each message whose outcome was refused, or whose lease is over while it is in work; default: a warning is logged.
            It runs on the threads that settle and renew, so it must neither wait for answers, as `Settlement.result` does, nor take
            long.

        Raises
        ------
        ConfigError
            BAD_VALUE; when it begins, UNKNOWN_QUEUE or EXPRESSION_INVALID.
        AccessError
            When it begins: ACCESS_DENIED, or SUBSCRIPTION_OF_OTHER.
        LeaseError
            At the next step: SUBSCRIPTION_TAKEN, once another consumer has begun under its name.
        """
        from spark_queue.receiver.receiver import Receiver, ReceiverOptions

        wanted = ReceiverOptions(
            store=self.journal.store, endpoint=self.journal.endpoint, queue=self.name, subscription=subscription,
            max_backlog=max_backlog, filter_sql=filter, wait=wait, until_empty=until_empty, on_lost=on_lost,
        )  # fmt: skip
        return Receiver(wanted, self.journal.journal_id)

    @checked
    def process(
        self,
        fn: Callable[[Message], Any],
        *,
        concurrency: int = 1,
        on_barrier: Callable[[Message], Any] | None = None,
        stop_timeout: str = "30s",
        signals: bool = False,
        subscription: str | None = None,
        max_backlog: int | None = None,
        filter: str | None = None,  # noqa: A002 - as the option of the stream is called.
        wait: str | None = None,
        until_empty: bool = False,
        on_lost: Callable[[Message], None] | None = None,
    ) -> Processed:
        """Run a function on each message: acknowledged when it returns, cancelled when it raises.

        ``raise Retry(after="5m")`` cancels a message so, ``raise Expire("why")`` makes a dead letter of it. Any other exception
        cancels it with its text. Three messages that fail in a row, with no success between them, pause the subscription: it
        tries one message at a time until one succeeds.

        Parameters
        ----------
        fn
            Gets a `Message`; may be a coroutine function, which runs in an event loop of its own.
        concurrency
            Messages in work at once: in so many threads, or, for a coroutine function, tasks of one event loop.
        on_barrier
            Gets each barrier; default: it is acknowledged.
        stop_timeout
            How long what runs may go on after a stop.
        signals
            End in good order at SIGTERM and SIGINT.
        subscription, filter, wait, until_empty, on_lost
            As for `receive`.
        max_backlog
            As for `receive`; default: twice `concurrency`.

        Returns
        -------
        Processed
            Counts, once it has ended: by `wait`, `until_empty` or a signal. Of a run with one of the first two it knows which
            messages failed, and its `exit_code` is 3 if somebody should look.

        Raises
        ------
        ConfigError
            BAD_VALUE, and as `receive`.
        CallerError
            EVENT_LOOP_RUNNING for a coroutine function where this thread runs an event loop.
        """
        from spark_queue.receiver.processing import process

        receiver = self.receive(
            subscription=subscription, max_backlog=2 * concurrency if max_backlog is None else max_backlog, filter=filter,
            wait=wait, until_empty=until_empty, on_lost=on_lost,
        )  # fmt: skip
        return process(receiver, fn, concurrency=concurrency, on_barrier=on_barrier, stop_timeout=stop_timeout, signals=signals)

    @checked
    def settle(
        self,
        rows: Any = None,
        outcome: str = "acknowledge",
        *,
        where: str | None = None,
        retry_after: str | timedelta | None = None,
        error: str | None = None,
        of_owner: bool = False,
        dry_run: bool = False,
    ) -> replies.Settled:
        """Give messages their outcome by hand: all that are named, or none when one of them is refused (DESIGN 15.1).

        Parameters
        ----------
        rows
            A Spark or pandas DataFrame, an Arrow table or dicts with ``bookmark`` and optionally ``outcome``, ``retry_after``,
            ``error`` and ``lease``; or bookmarks.
        outcome
            For rows without a column ``outcome``, and for `where`: acknowledge, cancel or expire.
        where
            Instead of rows, a filter in Spark SQL over the message type's columns: whatever matches it, leased or not (R37). Strict
            leasing leaves alone what is leased, and cancel finds only what is leased.
        retry_after
            With cancel, for rows without a column ``retry_after``, and for `where`: how long they wait, such as ``"30s"``.
        error
            With cancel and expire, for rows without a column ``error``, and for `where`: why; a dead letter keeps it.
        of_owner
            Acknowledge or expire also what another instance owns, though it lives: it hears of it, and may have delivered it.
        dry_run
            Only tell what it would do now; starts nothing and changes nothing.

        Returns
        -------
        Settled
            Counts of what it did.

        Raises
        ------
        ConfigError
            BAD_VALUE for a `retry_after` that is no duration, and what should be a text and is none.
        CallerError
            OUTCOME_INVALID or UNKNOWN_BOOKMARK.
        LeaseError
            LEASE_HELD or LEASE_SETTLED.
        """
        from spark_queue.client.delays import to_delay_ms
        from spark_queue.client.outcomes import check_error, to_outcomes

        if (rows is None) == (where is None):
            reason = "rows and where are both given." if where is not None else "neither rows nor where is given."
            raise CallerError("OUTCOME_INVALID", queue=self.name, reason=reason, next_step="Give one of them.")
        after_ms = to_delay_ms(retry_after, where="settle")
        if where is not None:
            check_error(self.name, [outcome], error)
            asked: dict[str, Any] = {"where": where, "outcome": outcome, "retry_after_ms": after_ms, "error": error}
            return self._settle(commands.SettleWhere(queue=self.name, of_owner=of_owner, **asked), dry_run=dry_run)
        outcomes = tuple(to_outcomes(self.name, rows, outcome, after_ms, error, columns=self._columns))
        return self._settle(commands.Settle(queue=self.name, outcomes=outcomes, of_owner=of_owner), dry_run=dry_run)

    def _columns(self) -> str:
        """Return the columns of its message type."""
        return self.journal.definitions().queue(self.name).columns

    def _settle(self, command: commands.Settle | commands.SettleWhere, *, dry_run: bool) -> replies.Settled:
        if dry_run:
            return cast(replies.Settled, self._ask(command, dry_run=True))
        from spark_queue import tracing

        with tracing.span("settle", self.name):
            return cast(replies.Settled, self._ask(command, dry_run=False))

    @checked
    def purge(self, where: str | None = None, *, dry_run: bool = False) -> replies.Purged:
        """Remove the messages that nobody has leased, for good and without dead letters; dead letters stay.

        Parameters
        ----------
        where
            Only those that match this filter in Spark SQL over the message type's columns.
        dry_run
            Only tell what it would do now; starts nothing and changes nothing.

        Returns
        -------
        Purged
            How many were removed, and how many are leased and stay.

        Raises
        ------
        ConfigError
            BAD_VALUE for a `where` that is no text.
        """
        return cast(replies.Purged, self._ask(commands.Purge(queue=self.name, where=where), dry_run=dry_run))

    @checked
    def redrive(
        self,
        where: str | None = None,
        *,
        bookmarks: Iterable[int] | None = None,
        reason: str | None = None,
        error: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        per_second: int | None = None,
        on_progress: Callable[[int, int], None] | None = None,
        dry_run: bool = False,
    ) -> replies.Redriven:
        """Give dead letters back to this queue, oldest first, with their bookmarks and as if never delivered (DESIGN 15.11).

        What is done stays done when this is interrupted; a repeat goes on with the rest. The age of a redriven message counts
        from now.

        Parameters
        ----------
        where
            Only those that match this filter in Spark SQL over the message type's columns, and their `reason` and `error`.
        bookmarks
            Only those among these; what is no dead letter is skipped.
        reason, error
            Only those that died of this reason (forced_expire, max_deliveries or max_cancels), or whose error has this text in it.
        since, until
            Only those that died from the one time on and before the other; aware times.
        per_second
            Most messages each second; default: all in one commit.
        on_progress
            Called with how many are done, and how many there are.
        dry_run
            Only tell what it would do now; starts nothing and changes nothing.

        Returns
        -------
        Redriven
            How many were found, given back, and skipped since somebody has leased or settled them in the dead-letter queue, or
            another instance owns them.

        Raises
        ------
        ConfigError
            BAD_VALUE for a `per_second` below 1, a reason that no dead letter has, a `where` or `error` that is no text, and
            `bookmarks` that are none.
        CallerError
            UNSUPPORTED_WRITE for a dead-letter queue without dead letters of its own; call it on the queue they come from.
            TIMESTAMP_AMBIGUOUS for a time without an offset.
        """
        from spark_queue.client.letter_choices import letter_choice, to_bookmarks
        from spark_queue.client.redriving import redrive_rows
        from spark_queue.core.bitmaps.ranges import to_bitmap

        chosen = None if bookmarks is None else to_bookmarks(bookmarks, where=f"redrive of queue '{self.name}'")
        choice = letter_choice(reason=reason, error=error, since=since, until=until)
        asked = commands.FindDeadLetters(queue=self.name, where=where)
        found = cast(replies.DeadLetters, self._ask(asked, dry_run=dry_run))
        left = to_bitmap(found.ranges)
        requested = len(left) + found.skipped
        if chosen is not None or not choice.is_of_all:
            named = left if chosen is None else chosen
            named = named if choice.is_of_all else named & choice.rows_of(self._dead_letters())
            left, requested = left & named, len(named)
        if dry_run:
            return replies.Redriven(requested=requested, redriven=len(left), skipped=requested - len(left))
        return redrive_rows(self._ask, self.name, left, requested=requested, per_second=per_second, on_progress=on_progress)

    @checked
    def letter_kinds(
        self, *, reason: str | None = None, error: str | None = None, since: datetime | None = None, until: datetime | None = None
    ) -> list[LetterKind]:
        """Return the dead letters of this queue by reason and error, the latest kind first; starts nothing.

        Parameters
        ----------
        reason, error, since, until
            Only some, as in `redrive`.
        """
        from spark_queue.client.letter_choices import letter_choice
        from spark_queue.core.state.letter_kinds import letter_kinds

        choice = letter_choice(reason=reason, error=error, since=since, until=until)
        return letter_kinds(choice.of(self._dead_letters()))

    def _dead_letters(self) -> list[DeadLetter]:
        from spark_queue.core.state.letters import standing_letters

        return standing_letters(self._look(None).state, self.name)

    def _look(self, as_of: datetime | int | None) -> JournalView:
        """Fold the journal's log, as of a time or a record."""
        from spark_queue.journal.open import open_journal
        from spark_queue.views import state_at

        return state_at(open_journal(self.journal.store), as_of)

    @checked
    def check(self, *, since: datetime | None = None, wants_empty: bool = False) -> QueueCheck:
        """Look for what a job that ends should fail for: dead letters, an alarm, batches about which nobody has decided.

        Starts nothing.

        Parameters
        ----------
        since
            An aware time: only dead letters that died from then on; default: all that stand.
        wants_empty
            Whether messages that are left in the queue count, too.

        Raises
        ------
        ConfigError
            UNKNOWN_QUEUE.
        CallerError
            TIMESTAMP_AMBIGUOUS for a time without an offset.
        """
        from spark_queue.client.letter_choices import letter_choice
        from spark_queue.views import check_queue

        choice = letter_choice(reason=None, error=None, since=since, until=None)
        return check_queue(self._look(None), self.name, choice=choice, wants_empty=wants_empty)

    @checked
    def status(self, as_of: datetime | int | None = None) -> replies.QueueStatus:
        """Return the queue's figures; starts nothing.

        Parameters
        ----------
        as_of
            An aware time or a record number: what they were then; default: now.
        """
        from spark_queue.views import queue_status

        return queue_status(self._look(as_of), self.name)

    @checked
    def explain(self, bookmark: int, as_of: datetime | int | None = None) -> MessageHistory:
        """Tell the whole life of a message: publish, each lease, outcome and return, its end, and where it is now; starts nothing.

        Parameters
        ----------
        bookmark
            The message.
        as_of
            An aware time or a record number: what was known then; default: now.

        Raises
        ------
        CallerError
            UNKNOWN_BOOKMARK, RECORD_UNKNOWN or TIMESTAMP_AMBIGUOUS.
        ConfigError
            UNKNOWN_QUEUE.
        """
        from spark_queue.journal.open import open_journal
        from spark_queue.views import explain

        return explain(open_journal(self.journal.store), self.name, bookmark, as_of)

    def pause(self) -> None:
        """Let the queue grant nothing until `unpause`; what is leased goes on, and may be settled. Repeating it changes nothing."""
        self._ask(commands.Pause(queue=self.name))

    @checked
    def proxied_transfer(self, *, on: bool, owner: str | None = None) -> None:
        """Let messages be claimed whose owner cannot be reached, or no more (R108).

        While it is on, a message that the lost owner has delivered may be delivered again (R111).

        Parameters
        ----------
        on
            Whether they may be.
        owner
            The instance that is lost; None for the only peer, and to end all of it.

        Raises
        ------
        CallerError
            UNSUPPORTED_WRITE for a queue that no other instance has, or that delivers at most once, and where several instances
            may be meant.
        ConfigError
            UNKNOWN_PEER.
        """
        self._ask(commands.ProxiedTransfer(queue=self.name, on=on, owner=owner))

    def revive(self) -> None:
        """Take the queue back in after it was set aside (R122): its log is folded again, by software that mends the fault.

        Raises
        ------
        JournalError
            QUEUE_SET_ASIDE where the fault comes again.
        CallerError
            UNSUPPORTED_WRITE for a queue that is not set aside.
        """
        self._call(commands.Revive(queue=self.name))

    def unpause(self) -> None:
        """Let the queue grant again, also after an alarm. Repeating it changes nothing."""
        self._ask(commands.Unpause(queue=self.name))

    @checked
    def unsubscribe(self, subscription: str) -> None:
        """End a subscription for good; what it holds returns to the queue.

        Raises
        ------
        CallerError
            UNKNOWN_SUBSCRIPTION.
        """
        self._ask(commands.Unsubscribe(queue=self.name, subscription=subscription))

    @checked
    def attempts_in_doubt(self, subscription: str | None = None) -> tuple[replies.AttemptTold, ...]:
        """Return the batches of which nobody knows whether they stand in their sink, or those of one subscription (R123)."""
        return cast(replies.Attempts, self._ask(commands.FindAttempts(queue=self.name, subscription=subscription))).attempts

    @checked
    def decide(
        self, attempt: replies.AttemptTold, *, landed: bool | None = None, storage_options: Mapping[str, str] | None = None
    ) -> bool:
        """Find out in its table whether a batch stands there, and say so; if it does not by now, it never will (R125).

        Parameters
        ----------
        attempt
            One of those that `attempts_in_doubt` returns.
        landed
            What to say of a table that is gone for good.
        storage_options
            How the table's store is reached; without them as the journal's.

        Returns
        -------
        bool
            Whether it stands there.

        Raises
        ------
        JournalError
            SINK_UNREADABLE where the table is gone, is another one, or cannot be read; SINK_UNFENCED where it cannot be written.
            That is noted, and it stays in doubt.
        CallerError
            SINK_READABLE where `landed` is given and the table can be read: what stands there decides.
        LeaseError
            SINK_LANDED or SINK_FENCED where the contrary is known by now.
        """
        from spark_queue.sinks.sink import Fate, Landing
        from spark_queue.sinks.topic import sink_at

        who: dict[str, Any] = {"queue": self.name, "subscription": attempt.subscription, "attempt": attempt.attempt}
        journal_id = self.journal.journal_id()
        try:
            sink = sink_at(self.journal.store, journal_id, attempt.table, storage_options)
            if landed is None:
                found = sink.decide(attempt, journal_id=journal_id, queue=self.name)
            else:
                sink.fate(attempt, journal_id=journal_id, queue=self.name)
                raise CallerError("SINK_READABLE", table=attempt.table, **who)
        except (JournalError, ConfigError) as reason:
            if landed is None:
                self._ask(commands.SinkUnreadable(**who, error=reason.reason, read=reason.code == "SINK_UNFENCED"))
                raise
            found, who = Landing(Fate.LANDED if landed else Fate.FENCED), {**who, "forced": True}
        if found.fate is Fate.LANDED:
            self._ask(commands.Landed(**who, table_version=found.version))
        else:
            self._ask(commands.Fenced(**who))
        return found.fate is Fate.LANDED

    def _ask(self, command: commands.QueueCommand, *, dry_run: bool = False) -> replies.CoreReply:
        if not dry_run:
            return self._call(command)
        from spark_queue.client import dry_runs

        return dry_runs.dry_run(self.journal.store, command, self.journal.endpoint)

    def _call(self, command: commands.QueueCommand | commands.Revive) -> replies.CoreReply:
        from spark_queue.client.coordinator_client import call_once

        endpoint = self.journal.endpoint
        return cast(replies.CoreReply, call_once(self.journal.store, self.journal.journal_id(), command, endpoint=endpoint))
