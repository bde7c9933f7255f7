"""The engine: commands in, records and replies out. The coordinator runs it, and the simulator, and nobody else.

Each method that changes something folds its records and collects them; `take` hands them over to be committed, and no reply
may leave before that. State thus runs ahead of the log within one group of commands, and is never rolled back: where a commit
fails, the process ends, and after an error half-way, the coordinator folds the log again and lets it
`begin_again` (DESIGN 3.5).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, Unpack

import msgspec
from msgspec import structs

from spark_queue.core import commands, folds
from spark_queue.core.bitmaps.ranges import to_bitmap
from spark_queue.core.commands import Caller
from spark_queue.core.deciding import alteration, free_rows, losing, redriving, timers
from spark_queue.core.deciding.agenda import Agenda, Follower
from spark_queue.core.deciding.barrier import pending, release, say_barriers
from spark_queue.core.deciding.handlers import CONSEQUENCES, HANDLERS
from spark_queue.core.deciding.instances import claims, replicating, transfers
from spark_queue.core.deciding.instances.liveness import Liveness, TransferDelay
from spark_queue.core.deciding.instances.lives import split_by_life
from spark_queue.core.deciding.instances.replicating import PeersWork, Pulled, apply_pulled, record_returning, reread_peers
from spark_queue.core.deciding.outcomes import read_rows
from spark_queue.core.deciding.planners import renew_entitlements
from spark_queue.core.deciding.removal import remove
from spark_queue.core.deciding.session import Sessions
from spark_queue.core.deciding.shares import Shares, backlog_limit
from spark_queue.core.deciding.unit_of_work import UnitOfWork
from spark_queue.core.message_files.relocation import CopiedFile, FileFinding, MissingFile, UncopiedFile
from spark_queue.core.message_files.segment import Segment, to_record
from spark_queue.core.records import (
    Body,
    Emit,
    Followed,
    Kind,
    PeerChange,
    PeerChanged,
    Record,
    RecordColumns,
    Removal,
    Retired,
    Returning,
    Revived,
    SetAside,
)
from spark_queue.core.replies import CoreReply, Done, Granted, LeasedRows, Purged, Redriven
from spark_queue.core.retention import Retention
from spark_queue.core.state.faults import FaultError, describe
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.ledger import QueueLedger
from spark_queue.core.state.lifecycle import State
from spark_queue.core.state.needed import due_files
from spark_queue.core.state.subscription import Subscription
from spark_queue.errors import MESSAGE_FILE_CODES, CallerError, CoordinatorError, JournalError, SparkQueueError


class Engine:
    """Decides for one journal."""

    def __init__(self, state: JournalState) -> None:
        self.state = state
        self._pending: list[Record] = []
        #: How many records were begun to be folded: an error after that may have left half of one.
        self.begun = 0
        self._shares: dict[str, Shares] = {}
        self._transfer_delays: dict[str, TransferDelay] = {}
        self._agenda = Agenda([*state.queues, *state.troubles], self._due_ms)
        self._ticked_at_ms = self._reign_began_at_ms = 0
        self._retention = Retention()
        #: Why files of followed tables could not be copied when that was tried last, by message type and first bookmark.
        self._uncopied: dict[tuple[str, int], str] = {}
        #: Knowledge of planners, by queue, and of other instances.
        self.sessions: dict[str, Sessions] = {}
        #: The newest place that was given to a planner start of a queue that was dropped: nobody may get it twice.
        self._drawn = 0
        self.liveness = Liveness()

    @contextmanager
    def attempt(self, command: commands.AnyCommand) -> Iterator[None]:
        """Tell an error before a command has changed anything from one that leaves it half done."""
        begun = self.begun
        try:
            yield
        except FaultError:
            raise
        except Exception as fault:
            if self.begun != begun:
                # A store that does not answer is no fault of the queue.
                queue = None if isinstance(fault, JournalError) else getattr(command, "queue", None)
                raise FaultError(queue, fault) from fault
            if isinstance(fault, SparkQueueError):
                raise
            raise CoordinatorError("INTERNAL", what=f"{type(command).__name__} raised {describe(fault)}") from fault

    def decide(
        self,
        command: commands.AnyCommand,
        *,
        now_ms: int,
        check: Callable[[JournalState, commands.AnyCommand], None] | None = None,
        caller: Caller | None = None,
        looks: Sequence[Record] = (),
    ) -> CoreReply | LeasedRows | None:
        """Carry a command out, and return the reply; None for a `Next` for which nothing is there yet.

        A command that took effect before is only answered again. `check` may refuse any other, by facts beyond the core; `looks`
        has what it finds of tables that are to be followed.
        The rights of the `caller` are not looked at here, but for the messages that are hidden from it.
        """
        handling = HANDLERS[type(command)]
        if handling.done_before is not None and self.state.has_done(command.request):
            return self._without_hidden(handling.done_before(self.state, command), command, now_ms, caller)
        if check is not None:
            check(self.state, command)
        self._refuse_restored(command)
        before = self.state.next_record
        if isinstance(command, commands.Apply):
            reply: CoreReply | LeasedRows | None = self._apply(command, now_ms=now_ms, caller=caller)
            self.note(looks, now_ms=now_ms)
        elif isinstance(command, commands.Revive):
            reply = self._revive(command, now_ms, caller)
        elif isinstance(command, commands.Follow):
            reply = self._follow(command, looks, now_ms, caller)
        elif isinstance(command, commands.GiveUpFiles):
            reply = self._give_up(command, looks, now_ms, caller)
        elif isinstance(command, commands.ForgetLost):
            reply = self._forget_lost(command, now_ms, caller)
        else:
            assert handling.handler is not None, "every other command has a handler of its own"
            if isinstance(command, commands.InstanceCommand):
                reply = handling.handler(self._work_on_peers(now_ms, command.request, caller), command)
            else:
                self._agenda.note((command.queue,))
                reply = handling.handler(self._work(command.queue, now_ms, command.request, caller), command)
        if self.state.next_record != before:
            self._release_barriers(now_ms)
        return reply

    def nothing_there(self, poll: commands.Next, *, now_ms: int) -> Granted:
        """Return the reply to a `Next` whose wait is over; its queue may have been dropped, or set aside, meanwhile."""
        ledger = self.state.queues.get(poll.queue)
        if ledger is None:
            return Granted(lease=poll.finished)
        known, withheld, paused = ledger.subscriptions.get(poll.subscription), False, ledger.paused
        ended, delayed, due_at_ms = self.has_ended(poll, now_ms=now_ms), 0, None
        with self.state.guard(poll.queue):
            if known is not None:
                work = self._work(poll.queue, now_ms)
                withheld, paused = free_rows.is_withheld(work, known), free_rows.is_paused(work, known)
                delayed, due_at_ms = free_rows.delayed_of(work, known) if ended else (delayed, due_at_ms)
        alarm = known.alarm if known is not None and known.receives and paused and not ledger.paused else None
        return Granted(
            lease=poll.finished,
            lease_period_ms=ledger.definition.lease_period_ms,
            withheld=withheld,
            paused=paused,
            ended=ended,
            delayed=delayed,
            due_at_ms=due_at_ms,
            alarm=None if alarm is None else alarm.error,
            probe_at_ms=None if alarm is None else alarm.probe_at_ms,
        )

    def _owned(self, poll: commands.Next) -> tuple[QueueLedger, Subscription] | None:
        """Return the queue and the subscription of a poll, if they stand and its planner owns the subscription still."""
        ledger = self.state.queues.get(poll.queue)
        known = None if ledger is None else ledger.subscriptions.get(poll.subscription)
        if ledger is None or known is None or known.incarnation != poll.incarnation:
            return None
        return ledger, known

    def has_ended(self, poll: commands.Next, *, now_ms: int) -> bool:
        """Return whether nothing is left of a receiver's run for the messages of its beginning, if it is one (R135)."""
        if (owned := self._owned(poll)) is None:
            return False
        ledger, known = owned
        if not known.receives or known.run_until is None or ledger.leases_in_hand(known, newest=known.lease):
            return False
        comes = True
        with self.state.guard(poll.queue):
            work = self._work(poll.queue, now_ms)
            comes = not free_rows.is_paused(work, known) and (bool(pending(known)) or free_rows.is_withheld(work, known))
        return not comes

    def has_something(self, queue: str, *, now_ms: int) -> bool:
        """Return whether anybody may be granted any message of a queue now; also where only its peers can tell."""
        ledger = self.state.queues.get(queue)
        if ledger is None or ledger.is_replicated:
            return True
        return bool(ledger.rows[State.AVAILABLE]) or any(due_ms <= now_ms for due_ms in ledger.delayed)

    def note_poll(self, poll: commands.Next, *, now_ms: int) -> None:
        """Note that a planner waits for its `next`, before anybody else's is decided; changes nothing else."""
        if (owned := self._owned(poll)) is not None:
            _, known = owned
            with self.state.guard(poll.queue):
                try:
                    overrun = read_rows(self.state, poll.queue, poll.overrun)
                except CallerError:
                    # Its caller hears of it when it is served.
                    return
                shares = self._shares.setdefault(poll.queue, Shares())
                shares.note_poll(known, limit=poll.limit, overrun=overrun, now_ms=now_ms)
                self._agenda.note((poll.queue,))

    def has_nothing_for(self, poll: commands.Next, backlogs: Counter[str], *, now_ms: int) -> bool:
        """Return whether nothing can be there for a poll that was decided about before, and waits; most have nothing.

        A decision about each of hundreds, whenever something comes for one of them, would take longer than all the rest.
        `backlogs` are those of its queue's subscriptions.
        """
        if (owned := self._owned(poll)) is None:
            return False
        ledger, known = owned
        session = self.sessions[poll.queue].of(poll.subscription, poll.incarnation)
        if ledger.is_replicated or known.lease > poll.finished or session.call > poll.call:
            return False
        if ledger.paused:
            return True
        if known.barriers:
            return False
        if not self.has_something(poll.queue, now_ms=now_ms):
            return True
        shares = self._shares[poll.queue]
        if not shares.kept.get(known.name) and shares.keeps_all(ledger, backlogs, now_ms):
            return True
        return backlogs[known.name] >= backlog_limit(ledger, known)

    def pull(self, pulled: Pulled, *, now_ms: int) -> None:
        """Take over what a peer's log says (DESIGN 17.3)."""
        emit_record, begun = self._emit(now_ms), list[Body]()

        def emit(body: Body, **envelope: Unpack[RecordColumns]) -> None:
            begun.append(body)
            emit_record(body, **envelope)

        try:
            apply_pulled(self.state, pulled, emit, lambda queue: replace(self._work(queue, now_ms), emit_record=emit))
        except FaultError:
            raise
        except Exception as fault:
            if begun:
                raise FaultError(None, fault) from fault
            what, reason = f"what was read up to record {pulled.record}", f"taking it over raised {fault!r:.500}."
            raise JournalError("PEER_REFUSED", peer=pulled.peer, what=what, reason=reason) from fault
        self._release_barriers(now_ms)

    def begin_return(self, *, joins: bool, queues: Collection[str] = (), now_ms: int) -> None:
        """Grant nothing that is owned here of replicated queues before peers were heard, also in reigns to come.

        Only `queues` wait, since they begin; all do where none is named.
        """
        known, wanted = self.state.returning, frozenset(queues)
        if known is not None:
            wanted = known.queues | wanted if known.queues and wanted else frozenset()
        if known is None or known.joins > joins or wanted != known.queues:
            record_returning(
                self._emit(now_ms), joins=joins, excused_peers=() if known is None else known.excused_peers, queues=wanted
            )

    def note_trouble(self, peer: str, error: str, *, now_ms: int) -> None:
        """Record the trouble that keeps a peer from being pulled, empty once none does; readers of the log show it as an alarm."""
        known = self.state.peer_troubles.get(peer)
        if error.partition("]")[0] != ("" if known is None else known.error.partition("]")[0]):
            self._emit(now_ms)(PeerChanged(peer=peer, error=error), reason=PeerChange.TROUBLE)

    def end_return(self, *, now_ms: int) -> None:
        """Grant again what is owned here: peers were heard."""
        self._emit(now_ms)(Returning(on=False))

    def end_claims(self, *, now_ms: int) -> None:
        """Let earlier claims be granted, or go back to their owner, by the signs of life of that one since (R110)."""
        self._of_each(self.liveness.claimed() & self.state.queues.keys(), now_ms, claims.end_claims)

    def ask_owners(self, poll: commands.Next, *, now_ms: int) -> None:
        """Ask other instances for messages that a waiting poll could take (R104)."""
        if (owned := self._owned(poll)) is not None:
            _, known = owned
            with self.state.guard(poll.queue):
                transfers.request(self._work(poll.queue, now_ms), known, limit=poll.limit)

    def drain_records(self) -> list[Record]:
        """Return the records made since the last call; they must be committed before anybody hears of them."""
        records, self._pending = self._pending, []
        return records

    def take_over(self, *, now_ms: int) -> bool:
        """Give every open lease time to be renewed by a living holder, and every planner to poll (DESIGN 15.2, 8).

        Faults while the log was folded are recorded, and the decisions that a queue missed while it was set aside:
        nothing of it is granted before. Returns whether peers are to be read again.
        """
        self._reign_began_at_ms = now_ms
        self.state.raises_faults = True
        for queue, fault in list(self.state.faults.items()):
            self.set_aside(queue, fault, now_ms=now_ms)
        self._of_each(self.state.queues, now_ms, say_barriers)
        replicating.decide_all_published(self.state, self._emit(now_ms))
        self._of_each(self.state.queues, now_ms, renew_entitlements)
        self.liveness.forget_claims()
        self._of_each(self.state.queues, now_ms, timers.take_over)
        self._of_each(self.state.queues, now_ms, redriving.end_settled)
        self._lose_given_back(now_ms)
        self._agenda.note(self.state.queues)
        return reread_peers(self.state, self._emit(now_ms))

    def begin_again(self, state: JournalState) -> None:
        """Go on from the log, folded anew, as a new reign does that knows nothing beyond it; `take_over` comes next."""
        self.state = state
        self._pending.clear()
        for sessions in self.sessions.values():
            sessions.begin_again()
        self._shares.clear()
        self._transfer_delays.clear()
        self._agenda = Agenda([*state.queues, *state.troubles], self._due_ms)
        self._ticked_at_ms = 0

    def set_aside(self, queue: str, fault: str, *, now_ms: int) -> None:
        """Record that a queue is set aside, and why: nothing of it is granted or changed until it is revived (R122)."""
        self._emit(now_ms)(SetAside(error=fault), queue=queue)

    def _revive(self, command: commands.Revive, now_ms: int, caller: Caller | None) -> Done:
        """Record that a queue is to be taken back in; every fold of the log from here on has it again (R122)."""
        name = self.state.definitions.queue(command.queue).name
        trouble = self.state.troubles.get(name)
        if trouble is None:
            what, next_step = f"Reviving queue '{name}'", "`sparkq status` shows the queues that are."
            raise CallerError("UNSUPPORTED_WRITE", what=what, reason="it is not set aside.", next_step=next_step)
        if trouble.code in MESSAGE_FILE_CODES:
            raise trouble
        self._emit(now_ms)(Revived(request=command.request, by=dict(caller.signature()) if caller else {}), queue=name)
        return Done()

    def _follow(self, command: commands.Follow, looks: Sequence[Record], now_ms: int, caller: Caller | None) -> Done:
        """Record where a message type goes on that was set aside (R148)."""
        by = dict(caller.signature()) if caller else {}
        for each in looks:
            body = structs.replace(each.body_as(Followed), request=command.request, by=by)
            self._emit(now_ms)(body, message_type=each.message_type)
        return Done()

    def _give_up(self, command: commands.GiveUpFiles, looks: Sequence[Record], now_ms: int, caller: Caller | None) -> Done:
        """Record that files are gone for good, whatever a queue that is set aside for them needs (R155)."""
        by = dict(caller.signature()) if caller else {}
        known = self.state.message_types[command.message_type]
        for each in looks:
            body = structs.replace(each.body_as(Retired), request=command.request, by=by)
            for segment in [known.segment_of(first) for first, _ in each.ranges]:
                self._lose_rows(segment, now_ms)
            self._emit(now_ms)(body, message_type=each.message_type, ranges=each.ranges, reason=each.reason)
        return Done()

    def _forget_lost(self, command: commands.ForgetLost, now_ms: int, caller: Caller | None) -> Done:
        """Remove the dead letters of messages that are lost."""
        for queue in losing.queues_of(self.state, command.message_type):
            with self.state.guard(queue):
                work = self._work(queue, now_ms, command.request, caller)
                remove(work, work.ledger.dead_letters.lost, Removal.PURGED)
        return Done()

    def enter(self, segments: Sequence[Segment], *, now_ms: int) -> None:
        """Enter the messages of one commit of a message table; the segments continue its bookmarks."""
        told = (replace(each, barriers=self.state.find_barriers(each)) for each in segments)
        self.note(map(to_record, told), now_ms=now_ms)
        # Only an instance has replicated queues.
        if segments and self.state.definitions.journal.instance is not None:
            rows = to_bitmap([(segments[0].first, segments[-1].until)])
            replicating.decide_published(self.state, segments[0].message_type, rows, self._emit(now_ms))
        self.expire(now_ms=now_ms)

    def note(self, made: Iterable[Record], *, now_ms: int) -> None:
        """Record changes of message files, as `to_record` and `relocation` make them."""
        for each in made:
            self._emit(now_ms)(
                each.body, message_type=each.message_type, ranges=each.ranges, reason=each.reason, due_at_ms=each.due_at_ms
            )

    def take_files(self, found: Sequence[FileFinding], *, now_ms: int) -> None:
        """Record the copies of files of followed tables, and the loss of what stood in those that are gone (R152, R155)."""
        for each in found:
            match each:
                case CopiedFile(file=file):
                    self._uncopied.pop((each.message_type, file.parts[0].bookmark), None)
                    moved = losing.take_copy(self.state, each)
                    self.note([] if moved is None else [moved], now_ms=now_ms)
                case MissingFile(first=first, path=path):
                    # Unless it is let go now, somebody has a message of it in hand, or a queue is set aside.
                    self._uncopied[each.message_type, first] = f"File '{path}' is gone, and messages in it are not let go yet."
                    self._lose(each, now_ms)
                case UncopiedFile(first=first, trouble=trouble):
                    self._uncopied[each.message_type, first] = trouble
        self._release_barriers(now_ms)

    def _lose(self, missing: MissingFile, now_ms: int) -> None:
        segment = losing.missing_segment(self.state, missing)
        if segment is None:
            return
        self._lose_rows(segment, now_ms)
        let_go = losing.let_go(self.state, segment)
        if let_go is not None:
            self._uncopied.pop((missing.message_type, missing.first), None)
            self.note([let_go], now_ms=now_ms)

    def _lose_given_back(self, now_ms: int) -> None:
        """Let the messages of lost files be dead letters that nobody has in hand any more."""
        for segment in losing.lost_segments(self.state):
            self._lose_rows(segment, now_ms)

    def _lose_rows(self, segment: Segment, now_ms: int) -> None:
        queues = losing.queues_of(self.state, segment.message_type)
        self._of_each(queues, now_ms, partial(losing.lose, segment=segment))

    def expire(self, *, now_ms: int) -> None:
        """Remove messages past their age, before anything is granted; leases end by `tick` only."""
        self._agenda.take_due(now_ms)
        self._of_each(self._agenda.pop_due(Follower.AGES), now_ms, timers.expire)
        self._release_barriers(now_ms)

    def tick(self, *, now_ms: int) -> None:
        """Carry out everything that is due."""
        due = dict.fromkeys([*self._agenda.take_due(now_ms), *self._agenda.take_round(self.state.queues)])
        self._ticked_at_ms = now_ms
        self._of_each(due, now_ms, partial(timers.tick, reign_began_at_ms=self._reign_began_at_ms))
        self._agenda.note(due)
        self.expire(now_ms=now_ms)  # Also letters that just came back to a dead-letter queue.
        self._lose_given_back(now_ms)
        over = self._retention.due(self.state, pulled_here=self.liveness.pulled_here, now_ms=now_ms)
        self.note(over, now_ms=now_ms)

    def catch_up(self, *, now_ms: int) -> Sequence[UncopiedFile]:
        """Let go what is due of followed tables, and return the files that are left to be copied or let go (R157).

        One that nobody has tried to copy yet has no trouble.
        """
        self.note(
            self._retention.due(self.state, pulled_here=self.liveness.pulled_here, now_ms=now_ms, at_once=True), now_ms=now_ms
        )
        left = [
            (name, file.segment.first) for name in self.state.message_types for file in due_files(self.state, name, now_ms=now_ms)
        ]
        return [UncopiedFile(message_type=name, first=first, trouble=self._uncopied.get((name, first), "")) for name, first in left]

    def next_due_ms(self) -> int | None:
        """Return the earliest time at which `tick` has something more to do, or a waiting poll might be served."""
        return self._agenda.next_due_ms()

    def take_changed(self, follower: Follower) -> Collection[str]:
        """Return the queues that may have changed since the last call for a reader of changes."""
        return self._agenda.pop_due(follower)

    def _due_ms(self, queue: str) -> int | None:
        if queue in self.state.queues:
            with self.state.guard(queue):
                shares = self._shares.setdefault(queue, Shares())
                return timers.next_due_ms(self.state, self.state.queues[queue], shares, ticked_at_ms=self._ticked_at_ms)
        return None

    def _refuse_restored(self, command: commands.AnyCommand) -> None:
        """Refuse commands on a replicated queue while nobody has said that the journal was restored (DESIGN 17.3)."""
        if self.liveness.restored is None or isinstance(
            command, commands.Apply | commands.TableCommand | commands.InstanceCommand | commands.Leave
        ):
            return
        if self.state.definitions.is_replicated(command.queue):
            raise self.liveness.restored

    def _without_hidden(self, reply: CoreReply, command: Any, now_ms: int, caller: Caller | None) -> CoreReply:
        """Return the answer to a repeat without counting messages that are hidden from the caller."""
        if caller is None or not isinstance(reply, Purged | Redriven):
            return reply
        work = self._work(command.queue, now_ms, caller=caller)
        if isinstance(reply, Redriven):
            return redriving.redriven_of_seen(work, command) if work.row_filters() else reply
        return structs.replace(reply, leased=len(work.visible_to_caller(work.ledger.rows[State.LEASED])))

    def _apply(self, command: commands.Apply, *, now_ms: int, caller: Caller | None) -> Done:
        """Replace the whole set of definitions."""
        applied = alteration.apply(self.state, command)
        self._emit(now_ms)(applied if caller is None else structs.replace(applied, by=caller.signature()))
        replicating.decide_all_published(self.state, self._emit(now_ms))
        self._of_each(applied.goes_on, now_ms, timers.take_over)
        self._of_each(self.state.queues, now_ms, renew_entitlements)
        self._ticked_at_ms = 0  # By the new ones more may be due than was by then.
        self.expire(now_ms=now_ms)
        return Done()

    def _release_barriers(self, now_ms: int) -> None:
        """Release barriers that nothing stands before any more, in any queue: a letter that is settled may free one in another."""
        for name in self._agenda.pop_due(Follower.BARRIERS):
            if name in self.state.queues and self.state.queues[name].rows[State.HELD]:
                with self.state.guard(name):
                    release(self._work(name, now_ms))

    def _emit(self, now_ms: int) -> Emit:
        at_ms = max(now_ms, self.state.last_at_ms)

        def emit(body: Body, **envelope: Unpack[RecordColumns]) -> None:
            for part, about in split_by_life(self.state, body, envelope):
                record = Record(body=part, record=self.state.next_record, epoch=self.state.epoch, at_ms=at_ms, **about)
                # What cannot be stored, or read again, is a fault of its command; at the commit it would end this reign and the
                # next ones.
                msgspec.json.decode(msgspec.json.encode(part), type=type(part))
                # Also of a queue that ends with it.
                self._agenda.note(self.state.queues_changed_by(record))
                self.begun += 1
                folds.fold(self.state, record)
                self._forget_ended(record)
                self._agenda.note(self.state.queues_changed_by(record))
                self._agenda.note(each.definition.name for each in self.state.filled_by(record))
                self._pending.append(record)
                if record.queue is not None and record.queue not in self.state.queues:
                    # It is set aside.
                    continue
                with nullcontext() if record.queue is None else self.state.guard(record.queue):
                    for consequence in CONSEQUENCES:
                        consequence(self.state, record, emit)

        return emit

    def _forget_ended(self, record: Record) -> None:
        """Forget facts beyond the log of a subscription, or of dropped queues, that a record ended."""
        if record.kind == Kind.UNSUBSCRIBED:
            queue, subscription = str(record.queue), str(record.subscription)
            self.sessions[queue].forget(subscription)
            self._shares[queue].forget(subscription)
        elif record.kind == Kind.DEFINITIONS_APPLIED:
            for queue in {*self.sessions, *self._shares} - self.state.definitions.queues.keys():
                self._drawn = max(self._drawn, self.sessions.pop(queue, Sessions()).drawn)
                self._shares.pop(queue, None)
                self._transfer_delays.pop(queue, None)

    def _work_on_peers(self, now_ms: int, request: str, caller: Caller | None) -> PeersWork:
        return PeersWork(
            state=self.state, liveness=self.liveness, now_ms=now_ms, request=request, emit_record=self._emit(now_ms), caller=caller,
            work_on=lambda queue: self._work(queue, now_ms, request, caller),
        )  # fmt: skip

    def _of_each(self, queues: Iterable[str], now_ms: int, act: Callable[[UnitOfWork], None]) -> None:
        """Do something on those of some queues that stand, and are not set aside."""
        for queue in list(queues):
            if queue in self.state.queues:
                with self.state.guard(queue):
                    act(self._work(queue, now_ms))

    def _work(self, queue: str, now_ms: int, request: str = "", caller: Caller | None = None) -> UnitOfWork:
        ledger = self.state.ledger(queue)
        sessions, shares = self.sessions.setdefault(queue, Sessions(self._drawn)), self._shares.setdefault(queue, Shares())
        return UnitOfWork(
            state=self.state, ledger=ledger, sessions=sessions, shares=shares, liveness=self.liveness,
            transfer_delay=self._transfer_delays.setdefault(queue, TransferDelay()), now_ms=now_ms, request=request,
            emit_record=self._emit(now_ms), caller=caller,
        )  # fmt: skip
