"""From requests to the engine's commands, and from its answers to replies; strings and ranges end here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import pyarrow as pa

from spark_queue.core.bitmaps.counts import Counts
from spark_queue.core.bitmaps.ranges import to_bitmap, to_ranges
from spark_queue.core.deciding import barrier
from spark_queue.core.deciding.batch_runs import NAME_KNOWN_ROWS, OutcomeOf
from spark_queue.core.deciding.engine import Engine
from spark_queue.core.deciding.manual_settlement import SettledCounts
from spark_queue.core.definitions import parsing
from spark_queue.core.definitions.keys import DURATION_LIMIT_MS
from spark_queue.core.records import Outcome, Ranges
from spark_queue.core.state.lease import Lease
from spark_queue.core.state.letters import dead_letters, free_letters
from spark_queue.core.state.lifecycle import State
from spark_queue.core.state.status import QueueStatus, queue_status
from spark_queue.errors import CallerError, nearest
from spark_queue.journal.expressions import check_expressions, check_filter
from spark_queue.protocol import wire

#: Cuts the rows of a lease into pieces of message files: segments, rows, delivery and cancel counts; `is_barrier`, `order_keys`.
Cutter = Callable[..., pa.Table]

#: Makes the table of a message type, or appends columns to it.
TableMaker = Callable[[str, str], None]


#: What would take effect a second time when its caller asks again; planners' calls are numbered, and batches' are about one lease.
_NOT_TWICE = (wire.Settle, wire.SettleWhere, wire.Purge, wire.Redrive, wire.Apply, wire.Unsubscribe, wire.Pause, wire.Unpause)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A reply, and the bulk rows that travel beside it."""

    reply: wire.AnyReply
    pieces: pa.Table | None = None


class Commands:
    """Runs requests on the engine. What they decided must be committed before an answer leaves."""

    def __init__(self, engine: Engine, *, cut: Cutter, make_table: TableMaker) -> None:
        self._engine = engine
        self._cut = cut
        self._make_table = make_table

    def run(self, request: wire.AnyRequest, *, now_ms: int) -> Answer | None:
        """Give the answer to a request, or None for a `Next` that finds nothing yet.

        Raises
        ------
        SparkQueueError
            The engine's refusal; it changed nothing.
        """
        match request:
            case _ if isinstance(request, _NOT_TWICE) and self._engine.state.has_done(request.request):
                return Answer(reply=self._repeated(request))
            case wire.Next():
                return self._next(request, now_ms)
            case wire.Rows():
                return self._rows(request, now_ms)
            case wire.StartRun():
                return self._start_run(request, now_ms)
            case wire.DrawIncarnation():
                self._engine.state.ledger(request.queue)
                drawn = wire.Drawn(
                    incarnation=self._engine.draw_incarnation(), lease_period_ms=self._lease_period_ms(request.queue)
                )
                return Answer(reply=drawn)
            case wire.Renew():
                self._engine.renew(
                    queue=request.queue, subscription=request.subscription, incarnation=request.incarnation, lease=request.lease,
                    now_ms=now_ms, request=request.request,
                )  # fmt: skip
                return Answer(reply=wire.Renewed(lease_period_ms=self._lease_period_ms(request.queue)))
            case wire.Settle() | wire.SettleWhere():
                return Answer(reply=wire.Settled(**asdict(self._settle(request, now_ms))))
            case wire.Purge():
                self._check_filter(request.queue, request.where, "a purge")
                purged, leased = self._engine.purge(
                    queue=request.queue, where=request.where, now_ms=now_ms, request=request.request
                )
                return Answer(reply=wire.Purged(purged=purged, leased=leased))
            case wire.FindDeadLetters():
                self._check_filter(request.queue, request.where, "a redrive")
                rows = dead_letters(self._engine.state, request.queue, request.where)
                free = rows & free_letters(self._engine.state, request.queue)
                return Answer(reply=wire.DeadLetters(ranges=tuple(to_ranges(free)), skipped=len(rows) - len(free)))
            case wire.Redrive():
                redriven = self._engine.redrive(
                    queue=request.queue, rows=to_bitmap(request.ranges), now_ms=now_ms, request=request.request
                )
                return Answer(reply=_redriven(request, redriven))
            case _:
                self._change(request, now_ms)
                return Answer(reply=wire.Done())

    def nothing_there(self, request: wire.Next, *, now_ms: int) -> Answer:
        """Give the answer to a `Next` whose wait is over."""
        withheld = self._engine.is_withheld(queue=request.queue, subscription=request.subscription, now_ms=now_ms)
        return Answer(reply=self._granted(request, None, now_ms, withheld=withheld))

    def _next(self, request: wire.Next, now_ms: int) -> Answer | None:
        lease = self._engine.next(
            queue=request.queue, subscription=request.subscription, incarnation=request.incarnation, call=request.call,
            finished=request.finished, limit=request.limit, now_ms=now_ms, request=request.request,
        )  # fmt: skip
        return None if lease is None else Answer(reply=self._granted(request, lease, now_ms))

    def _granted(self, request: wire.Next, lease: Lease | None, now_ms: int, *, withheld: bool = False) -> wire.Granted:
        return wire.Granted(
            lease=request.finished if lease is None else lease.number,
            messages=0 if lease is None else len(lease.rows),
            leased_until_ms=0 if lease is None else lease.due_at_ms,
            lease_period_ms=self._lease_period_ms(request.queue),
            status=self._status(request.queue, now_ms),
            withheld=withheld,
        )

    def _lease_period_ms(self, queue: str) -> int:
        """Give how long a lease of a queue lasts now; 0 when the queue was dropped while its caller waited on it."""
        ledger = self._engine.state.queues.get(queue)
        return 0 if ledger is None else ledger.definition.lease_period_ms

    def _rows(self, request: wire.Rows, now_ms: int) -> Answer:
        lease, rows = self._engine.rows(
            queue=request.queue, subscription=request.subscription, incarnation=request.incarnation, call=request.call,
            lease=request.lease, now_ms=now_ms, request=request.request,
        )  # fmt: skip
        ledger = self._engine.state.ledger(request.queue)
        message_type = ledger.definition.message_type
        segments = self._engine.state.message_types[message_type].segments
        if lease is not None and lease.is_barrier:
            deliveries = barrier.deliveries(ledger.subscriptions[request.subscription])
            pieces = self._cut(segments, rows, deliveries, Counts(), is_barrier=True)
        else:
            order_keys = None if ledger.definition.order_key is None else ledger.selection.order_keys
            pieces = self._cut(segments, rows, ledger.delivered, ledger.cancelled, order_keys=order_keys)
        leased_until_ms = 0 if lease is None else lease.due_at_ms
        return Answer(
            reply=wire.RowsOf(message_type=message_type, lease=request.lease, leased_until_ms=leased_until_ms), pieces=pieces
        )

    def _start_run(self, request: wire.StartRun, now_ms: int) -> Answer:
        subscription, lease = self._engine.start_run(queue=request.queue, subscription=request.subscription, now_ms=now_ms)
        run = wire.Run(incarnation=subscription.incarnation, lease=0 if lease is None else lease.number)
        is_barrier = lease is not None and lease.is_barrier and bool(lease.rows)
        return Answer(reply=wire.RunStarted(run=run, ack_mode=subscription.ack_mode, is_barrier=is_barrier))

    def _settle(self, request: wire.Settle | wire.SettleWhere, now_ms: int) -> SettledCounts:
        common: dict[str, Any] = {"queue": request.queue, "now_ms": now_ms, "request": request.request}
        if isinstance(request, wire.SettleWhere):
            self._check_filter(request.queue, request.where, "a settlement")
            outcome = _known_outcome(request.queue, request.outcome)
            due_at_ms = _due_at_ms(request.queue, outcome, request.retry_after_ms, now_ms)
            said = OutcomeOf(outcome=outcome, due_at_ms=due_at_ms, error=request.error)
            return self._engine.settle_where(where=request.where, said=said, **common)
        pairs = zip(self._outcomes(request.queue, request.outcomes, now_ms), request.outcomes, strict=True)
        return self._engine.settle(outcomes=[replace(each, lease=given.lease) for each, given in pairs], **common)

    def _repeated(self, request: wire.AnyRequest) -> wire.AnyReply:
        """Give the answer to a request that took effect before, and whose reply was lost."""
        match request:
            case wire.Settle():
                return wire.Settled(repeated=sum(_messages(each.ranges) for each in request.outcomes))
            case wire.SettleWhere():
                return wire.Settled(repeated=self._engine.state.messages_of(request.request))
            case wire.Purge():
                leased = len(self._engine.state.ledger(request.queue).rows[State.LEASED])
                return wire.Purged(purged=self._engine.state.messages_of(request.request), leased=leased)
            case wire.Redrive():
                left = to_bitmap(request.ranges) & self._engine.state.ledger(request.queue).rows[State.DEAD]
                return _redriven(request, _messages(request.ranges) - len(left))
            case _:
                return wire.Done()

    def _status(self, queue: str, now_ms: int) -> QueueStatus | None:
        state = self._engine.state
        # It may have been dropped, or set aside, while the caller waited on it.
        return queue_status(state, queue, now_ms=now_ms) if queue in state.queues else None

    def _change(self, request: wire.AnyRequest, now_ms: int) -> None:
        common: dict[str, Any] = {"now_ms": now_ms, "request": request.request}
        if isinstance(request, wire.SubscriptionRequest):
            common |= {"queue": request.queue, "subscription": request.subscription}
        match request:
            case wire.Attach():
                self._check_filter(request.queue, request.filter, f"subscription '{request.subscription}'")
                self._engine.attach(
                    incarnation=request.incarnation, call=request.call, ack_mode=request.ack_mode, max_backlog=request.max_backlog,
                    filter_sql=request.filter, available_now=request.available_now, **common,
                )  # fmt: skip
            case wire.Leave():
                self._engine.leave(incarnation=request.incarnation, **common)
            case wire.EndRun():
                outcomes = self._outcomes(request.queue, request.outcomes, now_ms)
                self._engine.end_run(
                    incarnation=request.run.incarnation, lease=request.run.lease, outcomes=outcomes, error=request.error,
                    cancel=request.cancel, settle=request.settle, **common,
                )  # fmt: skip
            case wire.Prove():
                self._engine.prove(incarnation=request.run.incarnation, lease=request.run.lease, **common)
            case wire.Unsubscribe():
                self._engine.unsubscribe(**common)
            case wire.Pause():
                self._engine.pause(queue=request.queue, **common)
            case wire.Unpause():
                self._engine.unpause(queue=request.queue, **common)
            case wire.Apply():
                self._apply(request.definitions, request.reset, common)
            case _:
                raise AssertionError(f"{type(request).__name__} is not a command")

    def _check_filter(self, queue: str, expression: str | None, what: str) -> None:
        if expression is not None:
            check_filter(expression, self._engine.state.ledger(queue).definition.columns, what=what)

    def _outcomes(self, queue: str, given: Iterable[wire.OutcomeRows], now_ms: int) -> list[OutcomeOf]:
        state = self._engine.state
        entered_until = state.message_types[state.ledger(queue).definition.message_type].entered_until
        return [_outcome(queue, each, entered_until=entered_until, now_ms=now_ms) for each in given]

    def _apply(self, definitions: Mapping[str, Any], reset: Iterable[str], common: Mapping[str, Any]) -> None:
        check_expressions(parsing.parse(definitions))
        self._engine.apply(definitions=definitions, reset=reset, **common)
        # Before the commit, so that no definition is ever durable without its table. A table without definition is harmless.
        for message_type in self._engine.state.definitions.message_types.values():
            self._make_table(message_type.name, message_type.columns)


def _redriven(request: wire.Redrive, redriven: int) -> wire.Redriven:
    requested = _messages(request.ranges)
    return wire.Redriven(requested=requested, redriven=redriven, skipped=requested - redriven)


def _messages(ranges: Ranges) -> int:
    return sum(until - first for first, until in ranges)


def _outcome(queue: str, given: wire.OutcomeRows, *, entered_until: int, now_ms: int) -> OutcomeOf:
    outcome = _known_outcome(queue, given.outcome)
    due_at_ms = _due_at_ms(queue, outcome, given.retry_after_ms, now_ms)
    for first, until in given.ranges:
        if not 0 <= first < until:
            reason = f"[{first}, {until}) is no range of bookmarks."
            raise CallerError("OUTCOME_INVALID", queue=queue, reason=reason, next_step="Give bookmarks as they were read.")
        # Before a bitmap is made of it: an absurd range would fill the memory.
        if until > entered_until:
            count, first_unknown = until - max(first, entered_until), max(first, entered_until)
            facts = {"count": count, "bookmark": first_unknown, "reason": "never entered the queue"}
            raise CallerError("UNKNOWN_BOOKMARK", queue=queue, next_step=NAME_KNOWN_ROWS, **facts)
    return OutcomeOf(outcome=outcome, rows=to_bitmap(given.ranges), due_at_ms=due_at_ms, error=given.error)


def _due_at_ms(queue: str, outcome: Outcome, retry_after_ms: int | None, now_ms: int) -> int | None:
    if retry_after_ms is None:
        return None
    # A time that no record could hold would end the reign at its commit, and the next one, as often as the caller asks again.
    if outcome != Outcome.CANCEL or not 0 <= retry_after_ms <= DURATION_LIMIT_MS:
        reason = f"retry_after of {retry_after_ms} ms with '{outcome}'."
        next_step = "Give retry_after with cancel only, not in the past, and of a century at most."
        raise CallerError("OUTCOME_INVALID", queue=queue, reason=reason, next_step=next_step)
    return now_ms + retry_after_ms


def _known_outcome(queue: str, given: str) -> Outcome:
    known = [outcome.value for outcome in Outcome]
    if given not in known:
        next_step = f"Use one of: {', '.join(known)}.{nearest(given, known)}"
        raise CallerError("OUTCOME_INVALID", queue=queue, reason=f"'{given}' is no outcome.", next_step=next_step)
    return Outcome(given)
