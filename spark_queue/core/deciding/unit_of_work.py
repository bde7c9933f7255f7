"""A unit of work: one command on one queue, at one moment, making records that take effect as they are made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Unpack

from msgspec import structs
from pyroaring import BitMap64

from spark_queue.core.bitmaps.ranges import to_ranges
from spark_queue.core.commands import Caller
from spark_queue.core.deciding.instances.liveness import Liveness, TransferDelay
from spark_queue.core.deciding.session import Sessions
from spark_queue.core.deciding.shares import Shares
from spark_queue.core.records import Body, Emit, RecordColumns
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.lease import Lease
from spark_queue.core.state.ledger import QueueLedger
from spark_queue.core.state.letters import letter_facts, standing_letters
from spark_queue.core.state.subscription import Subscription
from spark_queue.errors import CallerError, nearest


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitOfWork:
    """One queue, the time, and a way to record: all that a decision needs."""

    state: JournalState
    ledger: QueueLedger
    sessions: Sessions
    shares: Shares
    liveness: Liveness
    transfer_delay: TransferDelay
    now_ms: int
    #: Id of the request that is being served; empty for a timer's work.
    request: str
    emit_record: Emit
    #: The caller; None for a timer's work, and where there are no principals.
    caller: Caller | None = None

    def emit(self, body: Body, rows: BitMap64 | None = None, *, of: Lease | None = None, **envelope: Unpack[RecordColumns]) -> None:
        """Record something for this queue, about `rows`, and `of` a lease and its subscription when given."""
        signature = self.caller.signature() if self.caller is not None and self.caller.signs else {}
        if self.request or signature:
            body = structs.replace(body, request=self.request, by=signature)
        known: RecordColumns = {"queue": self.ledger.definition.name, "ranges": () if rows is None else to_ranges(rows)}
        if of is not None:
            known |= {"lease": of.number, "subscription": of.subscription}
        self.emit_record(body, **(known | envelope))

    def may_grant(self) -> bool:
        """Return whether this queue may grant own messages: nobody can have claimed them, or all claims were heard (R130).

        That also holds of a queue that is pulled from nobody any more: others may know of its messages still.
        """
        queue, returning = self.ledger.definition.name, self.state.returning
        is_heard = self.liveness.may_grant() and (returning is None or not returning.holds(queue))
        return is_heard or not self.ledger.is_replicated

    def subscription(self, name: str) -> Subscription:
        """Return a subscription of this queue; UNKNOWN_SUBSCRIPTION names the nearest."""
        known = self.ledger.subscriptions
        if name not in known:
            raise CallerError(
                "UNKNOWN_SUBSCRIPTION", queue=self.ledger.definition.name, subscription=name, nearest=nearest(name, known)
            )
        return known[name]

    def matching(self, where: str, rows: BitMap64) -> BitMap64:
        """Return which of `rows` match a filter; of a dead-letter queue it may ask why they died."""
        queue = self.ledger.definition
        letters = None if queue.underlying_topic is not None else letter_facts(standing_letters(self.state, queue.name))
        return self.state.matching(self.ledger, where, rows, letters)

    def visible_to_caller(self, rows: BitMap64) -> BitMap64:
        """Return those of `rows` that are not hidden from the caller (R12)."""
        for text in self.row_filters():
            rows = self.matching(text, rows)
        return rows

    def row_filters(self) -> tuple[str, ...]:
        """Return the filters that hide messages of this queue from the caller."""
        if self.caller is None or self.caller.principal is None:
            return ()
        return self.state.definitions.row_filters(self.caller.principal, self.ledger.definition.name)

    def visible_to_subscription(self, subscription: Subscription, rows: BitMap64) -> BitMap64:
        """Return those of `rows` that match a subscription's filter and that its principal may read (R12, R47, R49)."""
        return self.entitled(subscription, self.ledger.selection.matching(rows, subscription.filter))

    def entitled(self, subscription: Subscription, rows: BitMap64) -> BitMap64:
        """Return those of `rows` that a subscription's principal may read (R12)."""
        definitions, selection = self.state.definitions, self.ledger.selection
        if not definitions.principals:
            return rows
        if not self.may_read(subscription):
            return BitMap64()
        for text in subscription.entitlement:
            rows = selection.matching(rows, text)
        return rows

    def may_read(self, subscription: Subscription) -> bool:
        """Return whether a subscription's principal may be given messages of the queue, be it that some are hidden (R12)."""
        return self.state.definitions.may_consume(subscription.principal, self.ledger.definition)

    @property
    def dead_letters(self) -> QueueLedger | None:
        """The ledger of this queue's dead-letter queue; None where it has none, or that is set aside."""
        return self.state.queues.get(self.ledger.definition.dead_letter_queue or "")

    @property
    def are_letters_unknown(self) -> bool:
        """Whether this queue's dead-letter queue is set aside, so that the leased letters there are not known."""
        return self.ledger.definition.dead_letter_queue is not None and self.dead_letters is None
