"""The engine: commands in, records and replies out. What the coordinator runs, and the simulator, and nobody else.

Whatever changes something folds the records it makes and collects them; `take` hands them over to be committed, and no reply
may leave before that. State thus runs ahead of the log within one group of commands, and is never rolled back: where a commit
fails, the process ends (DESIGN 3.5).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from msgspec import structs

from spark_queue.core import commands
from spark_queue.core.caller import Caller
from spark_queue.core.deciding import alteration, batch_runs, delivery, granting, manual_settlement, pausing, redriving, timers
from spark_queue.core.deciding.barrier import release
from spark_queue.core.deciding.expression_failures import count_failed_expressions
from spark_queue.core.deciding.instances import peer_changes, transfers
from spark_queue.core.deciding.instances.lives import of_one_life
from spark_queue.core.deciding.instances.patience import Patience
from spark_queue.core.deciding.instances.peer_changes import PeersWork
from spark_queue.core.deciding.instances.reach import Reach
from spark_queue.core.deciding.instances.replicating import Pulled, end_letters_elsewhere, take
from spark_queue.core.deciding.removal import end_letters, remove_reached
from spark_queue.core.deciding.session import Sessions
from spark_queue.core.deciding.shares import Shares
from spark_queue.core.deciding.subscribing import renew_entitlements
from spark_queue.core.deciding.unit_of_work import UnitOfWork
from spark_queue.core.message_files.segment import Segment, to_record
from spark_queue.core.records import Emit, Kind, Record
from spark_queue.core.replies import CoreReply, Done, Granted, LeasedRows, Purged, Redriven
from spark_queue.core.retention import Retention
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.lifecycle import State
from spark_queue.errors import JournalError

#: Who decides about each command of a queue. A handler gives None where nothing is there yet.
HANDLERS: Mapping[type[commands.Command], Callable[[UnitOfWork, Any], CoreReply | LeasedRows | None]] = {
    commands.DrawIncarnation: delivery.draw_incarnation,
    commands.Attach: delivery.attach,
    commands.Next: delivery.next_lease,
    commands.Rows: delivery.lease_rows,
    commands.Renew: delivery.renew,
    commands.Leave: delivery.leave,
    commands.Unsubscribe: delivery.unsubscribe,
    commands.StartRun: batch_runs.start_run,
    commands.EndRun: batch_runs.end_run,
    commands.Prove: batch_runs.prove_run,
    commands.Settle: manual_settlement.settle,
    commands.SettleWhere: manual_settlement.settle_where,
    commands.Purge: manual_settlement.purge,
    commands.FindDeadLetters: redriving.find_dead_letters,
    commands.Redrive: redriving.redrive,
    commands.Pause: pausing.pause,
    commands.Unpause: pausing.unpause,
    commands.ProxiedTransfer: transfers.switch,
}

#: Who decides about each command about the instances of a journal.
PEER_HANDLERS: Mapping[type[commands.Command], Callable[[PeersWork, Any], CoreReply]] = {
    commands.SkipLost: peer_changes.skip_lost,
    commands.ResetPeer: peer_changes.reset,
    commands.ForgetPeer: peer_changes.forget,
    commands.DrainTo: peer_changes.drain,
    commands.Restored: peer_changes.restored,
}

#: What would take effect a second time when its caller asks again after a lost reply, and what is answered then. Planners' calls
#: are numbered, and what batches say is about one lease.
DONE_BEFORE: Mapping[type[commands.Command], Callable[[JournalState, Any], CoreReply]] = {
    commands.Settle: manual_settlement.settled_before,
    commands.SettleWhere: manual_settlement.settled_where_before,
    commands.Purge: manual_settlement.purged_before,
    commands.Redrive: redriving.redriven_before,
    **{
        command: lambda _state, _command: Done()
        for command in (
            *(commands.Apply, commands.Unsubscribe, commands.Pause, commands.Unpause, commands.ProxiedTransfer),
            *(commands.SkipLost, commands.ResetPeer, commands.Restored),
        )
    },
}

#: What follows from a record at once, in this order, beside its fold (which also fills the active part of a queue, `depth`):
#: dead letters that were settled end in their source, what was acknowledged before its turn leaves, failed expressions are
#: counted. Each records what it does, from which the same follows. Barriers come last, once a command is done.
CONSEQUENCES: Sequence[Callable[[JournalState, Record, Emit], None]] = (
    end_letters, end_letters_elsewhere, remove_reached, count_failed_expressions,
)  # fmt: skip


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
        self._shares: dict[str, Shares] = {}
        self._patience: dict[str, Patience] = {}
        self._ticked_at_ms = self._reign_began_at_ms = 0
        self._retention = Retention()
        #: What is heard of planners, by queue, and of other instances.
        self.sessions: dict[str, Sessions] = {}
        self.reach = Reach()

    def decide(
        self,
        command: commands.AnyCommand,
        *,
        now_ms: int,
        check: Callable[[JournalState, commands.AnyCommand], None] | None = None,
        caller: Caller | None = None,
    ) -> CoreReply | LeasedRows | None:
        """Do what a command asks, and return the reply; None for a `Next` for which nothing is there yet.

        What took effect before is only answered again. `check` may refuse any other command, by what the core does not know.
        Whether the `caller` may ask is not looked at here; what is hidden from it is.

        Raises
        ------
        SparkQueueError
            The refusal; nothing was changed.
        """
        answer_again = DONE_BEFORE.get(type(command))
        if answer_again is not None and self.state.has_done(command.request):
            return self._without_hidden(answer_again(self.state, command), command, now_ms, caller)
        if check is not None:
            check(self.state, command)
        self._refuse_restored(command)
        before = self.state.next_record
        if isinstance(command, commands.Apply):
            reply: CoreReply | LeasedRows | None = self._apply(command, now_ms=now_ms, caller=caller)
        elif isinstance(command, commands.InstanceCommand):
            reply = PEER_HANDLERS[type(command)](self._work_on_peers(now_ms, command.request, caller), command)
        else:
            reply = HANDLERS[type(command)](self._work(command.queue, now_ms, command.request, caller), command)
        if self.state.next_record != before:
            self._release_barriers(now_ms)
        return reply

    def nothing_there(self, poll: commands.Next, *, now_ms: int) -> Granted:
        """Return the reply to a `Next` whose wait is over; its queue may have been dropped, or set aside, meanwhile."""
        ledger = self.state.queues.get(poll.queue)
        if ledger is None:
            return Granted(lease=poll.finished, messages=0, leased_until_ms=0, lease_period_ms=0)
        known = ledger.subscriptions.get(poll.subscription)
        withheld = known is not None and granting.is_withheld(self._work(poll.queue, now_ms), known)
        period_ms = ledger.definition.lease_period_ms
        return Granted(lease=poll.finished, messages=0, leased_until_ms=0, lease_period_ms=period_ms, withheld=withheld)

    def note_poll(self, poll: commands.Next, *, now_ms: int) -> None:
        """Note that a planner waits for its `next`, before anybody else's is decided; changes nothing else."""
        known = self.state.queues[poll.queue].subscriptions.get(poll.subscription) if poll.queue in self.state.queues else None
        if known is not None and known.incarnation == poll.incarnation:
            self._work(poll.queue, now_ms).shares.note_poll(known, limit=poll.limit, now_ms=now_ms)

    def pull(self, pulled: Pulled, *, now_ms: int) -> None:
        """Take over what a peer's log says (DESIGN 17.3).

        Raises
        ------
        JournalError
            PEER_REFUSED where that cannot be understood; nothing was changed.
        """
        emit_record, begun = self._emit(now_ms), list[str]()

        def emit(kind: str, **fields: Any) -> None:
            begun.append(kind)
            emit_record(kind, **fields)

        try:
            take(self.state, pulled, emit, lambda queue: replace(self._work(queue, now_ms), emit_record=emit))
        except Exception as fault:
            if begun:
                raise
            what, reason = f"what was read up to record {pulled.record}", f"taking it over raised {fault!r:.500}."
            raise JournalError("PEER_REFUSED", peer=pulled.peer, what=what, reason=reason) from fault
        self._release_barriers(now_ms)

    def ask_owners(self, poll: commands.Next, *, now_ms: int) -> None:
        """Ask other instances for messages that a waiting poll could take (R104)."""
        known = self.state.queues[poll.queue].subscriptions.get(poll.subscription) if poll.queue in self.state.queues else None
        if known is not None and known.incarnation == poll.incarnation:
            transfers.request(self._work(poll.queue, now_ms), known, limit=poll.limit)

    def take(self) -> list[Record]:
        """Return the records made since the last call; they must be committed before anybody hears of them."""
        records, self._pending = self._pending, []
        return records

    def take_over(self, *, now_ms: int) -> None:
        """Give every open lease time to be renewed by a living holder, and every planner to poll (DESIGN 15.2, 8)."""
        self._reign_began_at_ms = now_ms
        for work in list(self._work_of_all(now_ms)):
            timers.take_over(work)
            redriving.end_settled(work)

    def enter(self, segments: Sequence[Segment], *, now_ms: int) -> None:
        """Take the messages of one commit of a message table in; the segments continue its bookmarks."""
        self.note((to_record(replace(each, barriers=self.state.find_barriers(each))) for each in segments), now_ms=now_ms)
        self.expire(now_ms=now_ms)

    def note(self, made: Iterable[Record], *, now_ms: int) -> None:
        """Record what happened to message files, as `to_record` and `relocation` make it."""
        for each in made:
            self._emit(now_ms)(each.kind, message_type=each.message_type, ranges=each.ranges, detail=each.detail)

    def expire(self, *, now_ms: int) -> None:
        """Remove what is past its age, before anybody is given anything; leases end by `tick` only."""
        timers.expire(self._work_of_all(now_ms))
        self._release_barriers(now_ms)

    def tick(self, *, now_ms: int) -> None:
        """Do what is due."""
        self._ticked_at_ms = now_ms
        for work in self._work_of_all(now_ms):
            timers.tick(work, reign_began_at_ms=self._reign_began_at_ms)
        self.expire(now_ms=now_ms)  # Also what just came back to a dead-letter queue.
        over = self._retention.due(self.state, pulled_here=self.reach.pulled_here, now_ms=now_ms)
        self.note(over, now_ms=now_ms)

    def next_due_ms(self) -> int | None:
        """Return the earliest time at which `tick` has something more to do, or a waiting poll might be served."""
        times = (
            timers.next_due_ms(self.state, ledger, self._shares.get(queue, Shares()), ticked_at_ms=self._ticked_at_ms)
            for queue, ledger in self.state.queues.items()
        )
        return min((time for time in times if time is not None), default=None)

    def _refuse_restored(self, command: commands.AnyCommand) -> None:
        """Refuse what is asked of a replicated queue while nobody has said that the journal was restored (DESIGN 17.3)."""
        if self.reach.restored is None or isinstance(command, commands.Apply | commands.InstanceCommand | commands.Leave):
            return
        if self.state.definitions.is_replicated(command.queue):
            raise self.reach.restored

    def _without_hidden(self, reply: CoreReply, command: Any, now_ms: int, caller: Caller | None) -> CoreReply:
        """Return the answer to a repeat without counting what is hidden from who asks."""
        if caller is None or not isinstance(reply, Purged | Redriven):
            return reply
        work = self._work(command.queue, now_ms, caller=caller)
        if isinstance(reply, Redriven):
            return redriving.redriven_of_seen(work, command) if work.hiding() else reply
        return structs.replace(reply, leased=len(work.seen(work.ledger.rows[State.LEASED])))

    def _apply(self, command: commands.Apply, *, now_ms: int, caller: Caller | None) -> Done:
        """Replace the whole set of definitions."""
        signed = {"by": caller.signature()} if caller is not None else {}
        self._emit(now_ms)(Kind.DEFINITIONS_APPLIED, detail=alteration.apply(self.state, command) | signed)
        for work in list(self._work_of_all(now_ms)):
            renew_entitlements(work)
        self._ticked_at_ms = 0  # By the new ones more may be due than was by then.
        self.expire(now_ms=now_ms)
        return Done()

    def _release_barriers(self, now_ms: int) -> None:
        """Release what nothing stands before any more, in any queue: a letter that is settled may free one in another."""
        for name, ledger in self.state.queues.items():
            if ledger.rows[State.HELD]:
                release(self._work(name, now_ms))

    def _emit(self, now_ms: int) -> Emit:
        at_ms = max(now_ms, self.state.last_at_ms)

        def emit(kind: str, **fields: Any) -> None:
            for each in of_one_life(self.state, kind, fields):
                record = Record(kind=kind, record=self.state.next_record, epoch=self.state.epoch, at_ms=at_ms, **each)
                self.state.fold(record)
                self._pending.append(record)
                for consequence in CONSEQUENCES:
                    consequence(self.state, record, emit)

        return emit

    def _work_on_peers(self, now_ms: int, request: str, caller: Caller | None) -> PeersWork:
        return PeersWork(
            state=self.state, reach=self.reach, now_ms=now_ms, request=request, emit_record=self._emit(now_ms), caller=caller,
            work_on=lambda queue: self._work(queue, now_ms, request, caller),
        )  # fmt: skip

    def _work_of_all(self, now_ms: int) -> Iterator[UnitOfWork]:
        return (self._work(queue, now_ms) for queue in list(self.state.queues))

    def _work(self, queue: str, now_ms: int, request: str = "", caller: Caller | None = None) -> UnitOfWork:
        ledger = self.state.ledger(queue)
        sessions, shares = self.sessions.setdefault(queue, Sessions()), self._shares.setdefault(queue, Shares())
        return UnitOfWork(
            state=self.state, ledger=ledger, sessions=sessions, shares=shares, reach=self.reach,
            patience=self._patience.setdefault(queue, Patience()), now_ms=now_ms, request=request, emit_record=self._emit(now_ms),
            caller=caller,
        )  # fmt: skip
