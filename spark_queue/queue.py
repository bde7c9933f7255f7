"""`Queue`: what users hold of a queue. It is a value that opens nothing until asked (DESIGN 9)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from spark_queue.coordinator import wire
from spark_queue.coordinator.asking import ask
from spark_queue.journal.open import open_journal
from spark_queue.outcomes import to_outcomes
from spark_queue.views import QueueStatus, look, queue_status

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from spark_queue.facade import Journal


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue of a journal, by name."""

    journal: Journal
    name: str

    def foreach_batch(
        self,
        fn: Callable[[DataFrame, int], DataFrame | None],
        *,
        subscription: str,
        on_error: str = "fail",
        ack_early: bool = False,
    ) -> Callable[[DataFrame, int], None]:
        """Wrap a function for ``writeStream.foreachBatch``: what it finishes is acknowledged (DESIGN 7).

        Parameters
        ----------
        fn
            Gets a micro-batch and its id. Returns None (all rows are acknowledged), or a DataFrame that names the exceptions:
            ``bookmark``, ``outcome`` (acknowledge, cancel, expire), and optionally ``retry_after`` (with cancel) and ``error``.
        subscription
            The one that the stream reads as.
        on_error
            ``fail``: an exception fails the query. ``cancel``: the batch goes back to the queue and the query lives on.
        ack_early
            Settle when `fn` returns instead of when Spark has committed the batch: for stateless jobs that prefer a restart
            without duplicates.
        """
        from spark_queue.source.foreach_batch import BatchWrapper  # noqa: PLC0415 - this module needs no Spark.

        return BatchWrapper(
            fn,
            store=self.journal.store,
            coordinator=self.journal.coordinator,
            queue=self.name,
            subscription=subscription,
            on_error=on_error,
            ack_early=ack_early,
        )

    def settle(self, rows: Any, outcome: str = "acknowledge") -> wire.Settled:
        """Give messages their outcome by hand, for streams with ``ackMode=explicit`` (DESIGN 15.1).

        Parameters
        ----------
        rows
            A Spark or pandas DataFrame, an Arrow table or dicts with ``bookmark`` and optionally ``outcome``, ``retry_after``,
            ``error`` and ``lease``; or bookmarks.
        outcome
            For rows without a column ``outcome``: acknowledge, cancel or expire.

        Returns
        -------
        Settled
            Counts of what it did.

        Raises
        ------
        CallerError
            OUTCOME_INVALID or UNKNOWN_BOOKMARK.
        LeaseError
            LEASE_HELD or LEASE_SETTLED.
        """
        replies = [self._ask(wire.Settle, outcomes=said, lease=lease) for lease, said in to_outcomes(self.name, rows, outcome)]
        return wire.Settled(**{name: sum(getattr(reply, name) for reply in replies) for name in wire.Settled.__struct_fields__})

    def status(self, as_of: datetime | int | None = None) -> QueueStatus:
        """Give the queue's figures, now or at a past moment; starts nothing."""
        return queue_status(look(open_journal(self.journal.store), as_of), self.name)

    def pause(self) -> None:
        """Let the queue grant nothing until `unpause`; what is leased goes on, and may be settled. Repeating it changes nothing."""
        self._ask(wire.Pause)

    def unpause(self) -> None:
        """Let the queue grant again, also after an alarm. Repeating it changes nothing."""
        self._ask(wire.Unpause)

    def unsubscribe(self, subscription: str) -> None:
        """End a subscription for good; what it holds returns to the queue.

        Raises
        ------
        CallerError
            UNKNOWN_SUBSCRIPTION.
        """
        self._ask(wire.Unsubscribe, subscription=subscription)

    def _ask(self, request: Callable[..., wire.AnyRequest], **fields: Any) -> wire.AnyReply:
        store, address = self.journal.store, self.journal.coordinator
        return ask(store, self.journal.journal_id(), request, address=address, queue=self.name, **fields)
