"""The engine: commands in, records and answers out. What the coordinator runs, and the simulator, and nobody else.

Every method that changes something folds the records it makes and collects them; `take` hands them over to be committed, and
no answer may leave before that. State thus runs ahead of the log within one group of commands, and is never rolled back:
where a commit fails, the process ends (DESIGN 3.5).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyroaring import BitMap64

from spark_queue.core.deciding import alteration, barrier, batch_runs, delivery, granting, manual_settlement, redriving, timers
from spark_queue.core.deciding.barrier import releases_barriers
from spark_queue.core.deciding.batch_runs import OutcomeOf
from spark_queue.core.deciding.expression_failures import count_failed_expressions
from spark_queue.core.deciding.manual_settlement import SettledCounts
from spark_queue.core.deciding.removal import end_letters, remove_reached
from spark_queue.core.deciding.retention import Retention
from spark_queue.core.deciding.session import Session
from spark_queue.core.deciding.shares import Shares
from spark_queue.core.deciding.turn import Turn
from spark_queue.core.definitions import parsing
from spark_queue.core.message_files.segment import Segment, to_record
from spark_queue.core.records import Kind, Pause, Record, Unpause
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.lease import Incarnation, Lease, Subscription
from spark_queue.core.state.lifecycle import State


class Engine:
    """Decides for one journal.

    Parameters
    ----------
    state : JournalState
        The fold of the whole control log; owned by the engine from here on.
    """

    def __init__(self, state: JournalState) -> None:
        self.state = state
        self._pending: list[Record] = []
        self._sessions: dict[tuple[str, str], Session] = {}
        self._heard_at_ms: dict[str, dict[str, int]] = {}
        self._shares: dict[str, Shares] = {}
        self._incarnations_drawn = 0
        self._ticked_at_ms = 0
        self._retention = Retention()
        self._reign_began_at_ms = 0

    def take(self) -> list[Record]:
        """Give the records made since the last call; they must be committed before anybody hears of them."""
        records, self._pending = self._pending, []
        return records

    def claim(self, *, epoch: int, host: str, address: str, pid: int, now_ms: int) -> None:
        """Begin a reign: record its claim. The epoch must be one above the newest."""
        self._reign_began_at_ms = now_ms
        self._emit(now_ms, epoch)(Kind.EPOCH_CLAIMED, detail={"host": host, "address": address, "pid": pid})

    def take_over(self, *, now_ms: int) -> None:
        """Give every open lease time to be renewed by a living holder, and every planner to poll (DESIGN 15.2, 8)."""
        self._reign_began_at_ms = now_ms
        for turn in [self._turn(queue, now_ms) for queue in self.state.queues]:
            timers.take_over(turn)
            redriving.end_settled(turn)

    @releases_barriers
    def enter(self, segments: Sequence[Segment], *, now_ms: int) -> None:
        """Take the messages of one commit of a message table in; the segments continue its bookmarks."""
        self.note((to_record(replace(each, barriers=self.state.find_barriers(each))) for each in segments), now_ms=now_ms)
        self.expire(now_ms=now_ms)

    def note(self, made: Iterable[Record], *, now_ms: int) -> None:
        """Record what happened to message files, as `to_record` and `relocation` make it."""
        for each in made:
            self._emit(now_ms)(each.kind, message_type=each.message_type, ranges=each.ranges, detail=each.detail)

    @releases_barriers
    def expire(self, *, now_ms: int) -> None:
        """Remove what is past its age, before anybody is given anything; leases end by `tick` only."""
        timers.expire(self._turn(queue, now_ms) for queue in list(self.state.queues))

    @releases_barriers
    def tick(self, *, now_ms: int) -> None:
        """Do what is due."""
        self._ticked_at_ms = now_ms
        for queue in list(self.state.queues):
            heard = self._heard_at_ms.get(queue, {})
            timers.tick(self._turn(queue, now_ms), heard_at_ms=heard, reign_began_at_ms=self._reign_began_at_ms)
        self.expire(now_ms=now_ms)  # Also what just came back to a dead-letter queue.
        self.note(self._retention.due(self.state, now_ms=now_ms), now_ms=now_ms)

    def next_due_ms(self) -> int | None:
        """Give the earliest time at which `tick` has something more to do, or a waiting poll might be served."""
        times = (
            timers.next_due_ms(self.state, ledger, self._shares.get(queue, Shares()), ticked_at_ms=self._ticked_at_ms)
            for queue, ledger in self.state.queues.items()
        )
        return min((time for time in times if time is not None), default=None)

    @releases_barriers
    def apply(self, *, definitions: Mapping[str, Any], reset: Iterable[str], now_ms: int, request: str | None = None) -> None:
        """Replace the whole set of definitions.

        Raises
        ------
        ConfigError
            Whatever `parsing.parse` refuses; MESSAGE_TYPE_CHANGED or DEFINITION_IN_USE where messages or leases forbid it.
        """
        wanted, resets = parsing.parse(definitions), set(reset)
        starts = alteration.starts(self.state, wanted, resets)
        alteration.check(self.state, wanted, resets)
        barriers = alteration.past_barriers(self.state, wanted, starts)
        detail = {"definitions": dict(definitions), "resets": starts, "barriers": barriers}
        self._emit(now_ms)(Kind.DEFINITIONS_APPLIED, detail=detail | ({} if request is None else {"request": request}))
        self._ticked_at_ms = 0  # By the new ones more may be due than was by then.
        self.expire(now_ms=now_ms)

    def draw_incarnation(self) -> Incarnation:
        """Give a planner start its place in the order; changes nothing (DESIGN 15.6)."""
        self._incarnations_drawn += 1
        return (self.state.epoch, self._incarnations_drawn)

    @releases_barriers
    def attach(
        self, *, queue: str, subscription: str, incarnation: Incarnation, call: int, ack_mode: str, max_backlog: int,
        filter_sql: str | None = None, available_now: bool = False, now_ms: int, request: str | None = None,
    ) -> None:  # fmt: skip
        """Make a planner start the owner of a subscription (P1)."""
        turn = self._turn(queue, now_ms, request)
        session = self._sessions.get((queue, subscription), Session(incarnation))
        session = session if session.incarnation == incarnation else Session(incarnation)
        delivery.attach(
            turn, subscription, session, call,
            ack_mode=ack_mode, max_backlog=max_backlog, filter_sql=filter_sql, available_now=available_now,
        )  # fmt: skip
        self._session(queue, subscription, incarnation).call = max(session.call, call)

    @releases_barriers
    def next(
        self, *, queue: str, subscription: str, incarnation: Incarnation, call: int, finished: int, limit: int,
        now_ms: int, request: str | None = None,
    ) -> Lease | None:  # fmt: skip
        """Prove the finished lease and give the one to work on now; None when nothing is there."""
        turn, known, session = self._planner(queue, subscription, incarnation, call, now_ms=now_ms, request=request)
        turn.shares.note_poll(known, limit=limit, now_ms=now_ms)
        return delivery.next_lease(turn, known, session, call=call, finished=finished, limit=limit)

    def note_poll(self, *, queue: str, subscription: str, incarnation: Incarnation, limit: int, now_ms: int) -> None:
        """Note that a planner waits for its `next`, before anybody else's is decided; changes nothing else."""
        known = self.state.queues[queue].subscriptions.get(subscription) if queue in self.state.queues else None
        if known is not None and known.incarnation == incarnation:
            self._turn(queue, now_ms).shares.note_poll(known, limit=limit, now_ms=now_ms)

    def is_withheld(self, *, queue: str, subscription: str, now_ms: int) -> bool:
        """Tell whether a planner that got nothing would get something if others do not come for it in time."""
        known = self.state.queues[queue].subscriptions.get(subscription) if queue in self.state.queues else None
        return known is not None and granting.is_withheld(self._turn(queue, now_ms), known)

    @releases_barriers
    def rows(
        self, *, queue: str, subscription: str, incarnation: Incarnation, call: int, lease: int,
        now_ms: int, request: str | None = None,
    ) -> tuple[Lease | None, BitMap64]:  # fmt: skip
        """Give the rows of a lease; none, with no lease, when it is settled."""
        turn, known, session = self._planner(queue, subscription, incarnation, call, now_ms=now_ms, request=request)
        return delivery.lease_rows(turn, known, session, call=call, number=lease)

    def renew(
        self, *, queue: str, subscription: str, incarnation: Incarnation, lease: int, now_ms: int, request: str | None = None
    ) -> None:
        """Extend a lease by one period."""
        turn = self._turn(queue, now_ms, request)
        delivery.renew(turn, turn.subscription(subscription), incarnation=incarnation, number=lease)

    @releases_barriers
    def leave(self, *, queue: str, subscription: str, incarnation: Incarnation, now_ms: int, request: str | None = None) -> None:
        """Note that a planner ends (P6)."""
        turn = self._turn(queue, now_ms, request)
        session = self._sessions.get((queue, subscription), Session(incarnation))
        if session.incarnation == incarnation:
            delivery.leave(turn, turn.subscription(subscription), session)

    @releases_barriers
    def unsubscribe(self, *, queue: str, subscription: str, now_ms: int, request: str | None = None) -> None:
        """End a subscription; what it holds returns."""
        turn = self._turn(queue, now_ms, request)
        delivery.unsubscribe(turn, turn.subscription(subscription), reason="user")
        self._sessions.pop((queue, subscription), None)

    def pause(self, *, queue: str, now_ms: int, request: str | None = None) -> None:
        """Grant nothing from now on; what is leased goes on to its end."""
        turn = self._turn(queue, now_ms, request)
        if not turn.ledger.paused:
            turn.emit(Kind.PAUSED, reason=Pause.USER)

    @releases_barriers
    def unpause(self, *, queue: str, now_ms: int, request: str | None = None) -> None:
        """Grant again, whatever the queue was paused for."""
        turn = self._turn(queue, now_ms, request)
        if turn.ledger.paused or any(each.is_stopped for each in turn.ledger.subscriptions.values()):
            turn.emit(Kind.UNPAUSED, reason=Unpause.USER)

    @releases_barriers
    def redrive(self, *, queue: str, rows: BitMap64, now_ms: int, request: str | None = None) -> int:
        """Give dead letters back to their queue; gives how many were free to go."""
        return redriving.redrive(self._turn(queue, now_ms, request), rows)

    def start_run(self, *, queue: str, subscription: str, now_ms: int) -> tuple[Subscription, Lease | None]:
        """Note that fn begins; gives the subscription and the lease that it speaks for (P4)."""
        turn = self._turn(queue, now_ms)
        known = turn.subscription(subscription)
        lease = turn.ledger.open_lease(known)
        self._session(queue, subscription, known.incarnation).started = 0 if lease is None else lease.number
        return known, lease

    @releases_barriers
    def end_run(
        self, *, queue: str, subscription: str, incarnation: Incarnation, lease: int, outcomes: Iterable[OutcomeOf],
        error: str | None = None, cancel: bool = False, settle: bool = False, now_ms: int, request: str | None = None,
    ) -> None:  # fmt: skip
        """Note that fn ended, and what it said (P4, P5)."""
        turn = self._turn(queue, now_ms, request)
        known = turn.subscription(subscription)
        session = self._sessions.get((queue, subscription), Session(incarnation))
        session = session if session.incarnation == incarnation else Session(incarnation)
        batch_runs.end_run(turn, known, session, lease_number=lease, outcomes=outcomes, error=error, cancel=cancel, settle=settle)

    @releases_barriers
    def prove(
        self, *, queue: str, subscription: str, incarnation: Incarnation, lease: int, now_ms: int, request: str | None = None
    ) -> None:
        """Take the listener's word that Spark committed the batch of a lease."""
        turn = self._turn(queue, now_ms, request)
        batch_runs.prove_run(turn, turn.subscription(subscription), incarnation, lease)

    @releases_barriers
    def settle(self, *, queue: str, outcomes: Iterable[OutcomeOf], now_ms: int, request: str | None = None) -> SettledCounts:
        """Settle messages by hand (DESIGN 15.1)."""
        return manual_settlement.settle(self._turn(queue, now_ms, request), outcomes)

    @releases_barriers
    def settle_where(self, *, queue: str, where: str, said: OutcomeOf, now_ms: int, request: str | None = None) -> SettledCounts:
        """Settle the messages that match a filter (R37)."""
        return manual_settlement.settle_where(self._turn(queue, now_ms, request), where, said)

    @releases_barriers
    def purge(self, *, queue: str, where: str | None = None, now_ms: int, request: str | None = None) -> tuple[int, int]:
        """Remove what is not leased; gives how many messages that were, and how many leased ones stay."""
        return manual_settlement.purge(self._turn(queue, now_ms, request), where)

    def release_barriers(self, *, now_ms: int) -> None:
        """Release what is due in any queue; every command that may empty a queue ahead of a barrier ends with it."""
        for name, ledger in self.state.queues.items():
            if ledger.rows[State.HELD]:
                barrier.release(self._turn(name, now_ms))

    def _emit(self, now_ms: int, epoch: int | None = None) -> Any:
        at_ms = max(now_ms, self.state.last_at_ms)

        def emit(kind: str, **fields: Any) -> None:
            record = Record(
                kind=kind, record=self.state.next_record, epoch=self.state.epoch if epoch is None else epoch, at_ms=at_ms, **fields
            )
            self.state.fold(record)
            self._pending.append(record)
            end_letters(self.state, record, emit)
            remove_reached(self.state.queues, emit)
            count_failed_expressions(self.state.queues, emit)

        return emit

    def _turn(self, queue: str, now_ms: int, request: str | None = None) -> Turn:
        return Turn(
            state=self.state, ledger=self.state.ledger(queue), shares=self._shares.setdefault(queue, Shares()), now_ms=now_ms,
            request=request, emit_record=self._emit(now_ms),
        )  # fmt: skip

    def _session(self, queue: str, subscription: str, incarnation: Incarnation) -> Session:
        """Give what this reign saw of a planner start; a newer one begins anew, but rows nobody asked for stay so (P3)."""
        old = self._sessions.get((queue, subscription))
        if old is None or old.incarnation != incarnation:
            self._sessions[queue, subscription] = Session(incarnation, unasked=0 if old is None else old.unasked)
        return self._sessions[queue, subscription]

    def _planner(
        self, queue: str, subscription: str, incarnation: Incarnation, call: int, *, now_ms: int, request: str | None
    ) -> tuple[Turn, Subscription, Session]:
        turn = self._turn(queue, now_ms, request)
        known = turn.subscription(subscription)
        session = self._session(queue, subscription, incarnation) if incarnation == known.incarnation else Session(incarnation)
        delivery.check_planner(turn, known, session, incarnation, call)
        self._heard_at_ms.setdefault(queue, {})[subscription] = now_ms
        return turn, known, session
