"""The loop: drain waiting commands, decide, commit once, check, answer (DESIGN 6).

One thread does all of it, so nothing here is shared. While it commits, the next group gathers in the inbox. A fault of one
queue sets it aside: uncommitted records are dropped, the log is folded again, and the rest of the group is done again (R122). Any
other exception that leaves `run` is a doubt: the process must end, and the next coordinator recovers from the log.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from pyroaring import BitMap64

from spark_queue.coordinator.alarm_bell import AlarmBell
from spark_queue.coordinator.commands import Answer, Commands
from spark_queue.coordinator.held_calls import HeldCalls
from spark_queue.coordinator.inbox import Call, Inbox, WaitingPoll
from spark_queue.coordinator.pulling import PeerPullers, Peers, defines, fixes_place
from spark_queue.coordinator.reign_clock import ReignClock
from spark_queue.coordinator.rights import refusal
from spark_queue.core import commands, replies
from spark_queue.core.deciding.agenda import Follower
from spark_queue.core.engine import Engine
from spark_queue.core.state.faults import FaultError, describe
from spark_queue.errors import CoordinatorError, JournalError, SparkQueueError
from spark_queue.journal.entering import Sequencer
from spark_queue.journal.log_looks import SILENT_MS, LogLooks
from spark_queue.metrics.figures import Observe
from spark_queue.ports import JournalPort
from spark_queue.protocol import wire
from spark_queue.replication.exchange import ApplyPulled, PullProgressQuery

_LOG = logging.getLogger(__name__)


#: Polls of this length and more end together, at its multiples, in milliseconds: one look at the control log is for all of them.
POLLS_END_MS = 1_000

#: How often waiting polls are looked over, in milliseconds: messages that they wait for may have fallen due.
POLLED_MS = 100

#: Polls that wait at one time. Each holds a thread of the server, and some are left for renewals and all other calls.
WAITING_MAX = 384

#: How often every queue is looked over, in milliseconds.
ROUND_MS = 1_000

#: How long a look at the control log serves those who wait and hear that nothing is there, in milliseconds (P7).
QUIET_MS = 5_000

#: How late a wait for calls may end before the process counts as stopped meanwhile, in milliseconds.
SLEPT_MS = 3_000


@dataclass(frozen=True, slots=True)
class _Reading:
    """The part of a message log that is to be read."""

    finds_gaps: bool
    #: The version with which it ends; None for the head, which only a look at the next one finds.
    until: int | None


class ReignEndedError(Exception):
    """Something failed half-way that is nobody's own: memory can no longer be trusted, and nothing of it was committed."""


class Loop:
    """Serves calls until it is stopped, idle, or in doubt."""

    def __init__(
        self, *, journal: JournalPort, engine: Engine, entrance: Sequencer, inbox: Inbox, clock: ReignClock, epoch: int,
        ends_idle: bool, pullers: PeerPullers,
    ) -> None:  # fmt: skip
        self._journal = journal
        self._engine = engine
        self._commands = Commands(engine, journal, entrance.trouble)
        self._entrance = entrance
        self._inbox = inbox
        self._clock = clock
        self._epoch = epoch
        self._ends_idle = ends_idle
        self._peers = Peers(journal, engine, entrance, pullers, now_ms=clock.now_ms())
        self._bell = AlarmBell()
        self._stopped = False
        #: Whether the reign begins, or begins again, or could not hear anybody for a while: holders get time to be heard.
        self._takes_over = True
        #: The call that is being decided about.
        self._running: Call | None = None
        #: Calls that ask for what was set aside to be taken back in; and whether the log is folded again, also for a file that is
        #: back.
        self._reviving: list[Call] = []
        self._folds_again = False
        self._polls: list[WaitingPoll] = []
        #: How many of them were decided about in an earlier step.
        self._known_polls = 0
        #: Queues of which all waiting polls were told to the core in this step.
        self._noted: set[str] = set()
        self._ready: list[tuple[Call, Answer]] = []
        #: Answers that promise nothing: to publishers, and that nothing is there, to callers that ask again; and when this reign
        #: was last seen to hold.
        self._quiet: list[tuple[Call, Answer]] = []
        self._seen_at_ms = -QUIET_MS
        #: Message types whose logs must be read before this group is answered.
        self._tails: dict[str, _Reading] = {}
        #: The looks at each message log, and the message types of which a publisher has just announced new messages.
        self._looks: dict[str, LogLooks] = {}
        self._told: set[str] = set()
        self._held = HeldCalls()
        self._idle_since_ms = self._round_at_ms = self._polls_at_ms = clock.now_ms()

    def run(self) -> None:
        """Serve until the end; calls still waiting then are sent elsewhere."""
        while not self.is_over():
            began_ms = self._clock.now_ms()
            try:
                wait_ms = self.wait_ms()
            except FaultError as fault:
                self._mend(fault)
                wait_ms = 0
            calls = self._inbox.take(wait_ms / 1000)
            # Nobody could be heard meanwhile: living holders are given the time to renew that a new reign gives them.
            now_ms = self._clock.now_ms()
            self._takes_over |= now_ms - began_ms - wait_ms > SLEPT_MS
            polls = [poll.call for poll in self._polls]
            self.step(self._held.release(calls, polls, is_due=self._is_due(now_ms), now_ms=now_ms))
            # Whoever called during a long step is not heard yet: it is no idle time.
            self._idle_since_ms += self._clock.now_ms() - now_ms
        self._held.close()
        for poll in self._polls:
            poll.call.answer(None)

    @property
    def engine(self) -> Engine:
        """The engine, which decides; other threads only read it."""
        return self._engine

    def is_over(self) -> bool:
        """Return whether it was stopped, or has been idle for long enough."""
        idle_ms = self._clock.now_ms() - self._idle_since_ms
        # Other instances count on one that lives, and answers their requests.
        state = self._engine.state
        # A replay waits here only to save itself looks.
        is_asked = any(not isinstance(poll.request, wire.AwaitPublish) for poll in self._polls)
        may_end = self._ends_idle and not state.is_shared and not is_asked
        return self._stopped or (may_end and idle_ms >= state.definitions.journal.coordinator_idle_ms)

    def wait_ms(self) -> int:
        """Return how long the next step may wait for a call, in milliseconds."""
        if self._tails:
            return 0
        polled_ms = (min(poll.until_ms, self._polls_at_ms) for poll in self._polls)
        others_ms = [due_ms for due_ms in (self._engine.next_due_ms(), self._held.due_ms) if due_ms is not None]
        return max(0, min([self._round_at_ms, *polled_ms, *others_ms]) - self._clock.now_ms())

    def step(self, calls: Sequence[Call]) -> None:
        """Serve one group of calls, and everything that is due; where one queue has a fault, all but that again."""
        polls, refused = list(self._polls), list[tuple[Call, Answer]]()
        while True:
            try:
                self._step(calls)
            except FaultError as fault:
                refused += self._mend(fault, calls)
                done = [call for call, _ in refused]
                calls = [call for call in calls if not call.is_answered and call not in done]
                self._polls = [poll for poll in polls if not poll.call.is_answered and poll.call not in done]
                self._known_polls = 0
                # Those that were refused before still await their answer.
                self._ready += [each for each in refused if not each[0].is_answered]
            else:
                return

    def _step(self, calls: Sequence[Call]) -> None:
        now_ms = self._clock.now_ms()
        if self._takes_over:
            if self._engine.take_over(now_ms=now_ms):
                self._peers.changed(now_ms=now_ms)
            self._takes_over = False
        self._peers.note_heard(now_ms=now_ms)
        self._peers.end_claims(now_ms=now_ms)
        if self._is_due(now_ms):
            # It may have slept: nothing too old is granted. Leases end after the calls, so that this group is heard first.
            self._engine.expire(now_ms=now_ms)
        self._noted = set()
        self._note_polls(calls, now_ms)
        for call in calls:
            self._serve(call, now_ms)
        is_round = now_ms >= self._round_at_ms
        self._do_due(now_ms)
        self._admit(now_ms)
        self._serve_polls(now_ms)
        # Work that an earlier reign left undone waits for no commit.
        if self._commit() or is_round:
            self._keep_up()
        if self._folds_again:
            self._take_back_in()

    def _take_back_in(self) -> None:
        """Fold the log again, which is committed, and say whether the queues are back for which somebody asked."""
        calls, self._reviving = self._reviving, []
        self._fold_again()
        for call in calls:
            trouble = self._engine.state.troubles.get(getattr(call.request, "queue", ""))
            self._answer(call, Answer(reply=replies.Done() if trouble is None else wire.failed(trouble)))
        self._step(())

    def _mend(self, fault: FaultError, calls: Sequence[Call] = ()) -> list[tuple[Call, Answer]]:
        """Drop uncommitted records after a fault, and keep it from coming again; returns the call that is refused, if one is.

        A queue at which something raised is set aside, a message type enters no further. Any other fault is that of its call,
        and a queue that is new by one of these calls, of that one.
        """
        _LOG.error("Uncommitted changes are dropped, and the log is folded again: %s", fault, exc_info=fault)
        call, self._running = self._running, None
        self._fold_again()
        state = self._engine.state
        is_of_queue = fault.queue in state.definitions.queues and (
            call is None or isinstance(call.request, commands.QueueCommand | ApplyPulled)
        )
        if call is None and fault.queue is not None and not is_of_queue:
            call = next((each for each in calls if defines(each.request, fault.queue) and not each.is_answered), None)
        if fault.queue is not None and is_of_queue:
            if fault.queue in state.queues:
                self._engine.set_aside(fault.queue, describe(fault.cause), now_ms=self._clock.now_ms())
        elif call is not None:
            what = f"{type(call.request).__name__} raised {fault}"
            reason = fault.cause if isinstance(fault.cause, SparkQueueError) else CoordinatorError("INTERNAL", what=what)
            return [(call, Answer(reply=wire.failed(reason)))]
        elif fault.message_type is None:
            raise ReignEndedError(str(fault)) from fault.cause
        # The trouble that keeps a message type's commit out is noted where it entered.
        return []

    def _fold_again(self) -> None:
        """Go on from the log, as a new reign does; answers that were not given are forgotten."""
        control = self._journal.control
        tail = control.load()
        control.check(epoch=self._epoch)
        self._engine.begin_again(tail.fold(self._engine.state.traits))
        self._entrance.recover()
        self._ready.clear()
        self._quiet.clear()
        self._tails.clear()
        self._reviving.clear()
        self._folds_again, self._takes_over = False, True

    def _note_waiting(self, queue: str, now_ms: int) -> None:
        """Let the core know all waiting polls of a queue, before it gives any of them a share, so that none gains by being first.

        Once in a step, and only where there is something to give: hundreds may wait.
        """
        if queue not in self._noted and self._engine.has_something(queue, now_ms=now_ms):
            self._noted.add(queue)
            self._note_polls((poll.call for poll in self._polls if getattr(poll.request, "queue", None) == queue), now_ms)

    def _note_polls(self, calls: Iterable[Call], now_ms: int) -> None:
        for call in calls:
            poll = call.request.to_next() if isinstance(call.request, commands.SettleHeld) else call.request
            if isinstance(poll, commands.Next) and not call.abandoned() and self._refusal(call, now_ms) is None:
                self._engine.note_poll(poll, now_ms=now_ms)

    def _serve(self, call: Call, now_ms: int) -> None:
        if not isinstance(call.request, PullProgressQuery | ApplyPulled | Observe | wire.AwaitPublish):
            self._idle_since_ms = now_ms
        assert not isinstance(call.request, wire.Ping), "pings are answered before they come here"
        match call.request:
            case _ if (refused := self._refusal(call, now_ms)) is not None:
                self._answer(call, Answer(reply=wire.failed(refused)))
            case wire.Stop():
                self._stopped = True
                self._answer(call, Answer(reply=replies.Done()))
            case wire.Nudge() | wire.AwaitPublish() as about_log:
                self._serve_log(call, about_log, now_ms)
            case wire.CatchUp():
                self._answer(call, Answer(reply=self._caught_up(now_ms)))
            case Observe() as asked:
                told = self._peers.told(now_ms=now_ms)
                call.figures = self._commands.figures(asked, self._entrance, told, now_ms=now_ms)
                self._answer(call, Answer(reply=replies.Done()))
            case PullProgressQuery() | ApplyPulled() | wire.AskPeers() as about_peers:
                self._running = call
                self._answer(call, self._peers.serve(call, about_peers, now_ms=now_ms))
                self._running = None
            case command:
                self._serve_command(call, command, now_ms)

    def _note_unread(self, command: commands.Leave | commands.EndRun) -> None:
        """Have the files looked for of messages whose consumer fails or leaves: it may not have found them (R155).

        What failed is not asked for: of an executor's error Spark tells a text only, and of a sink of its own nothing.
        """
        ledger = self._engine.state.queues.get(command.queue)
        if ledger is not None and self._engine.state.message_types[ledger.definition.message_type].followed is not None:
            rows = BitMap64.union(BitMap64(), *(lease.leased for lease in ledger.leases_of(command.subscription)))
            self._journal.look_for_files(command.queue, rows)

    def _caught_up(self, now_ms: int) -> wire.CaughtUp:
        """Read the logs of all followed tables on, and return what is left to be done; upkeep does it after the answer."""
        state = self._engine.state
        followed = [name for name, known in state.message_types.items() if known.followed is not None]
        for name in followed:
            while self._entrance.admit(name, now_ms=now_ms):
                continue
        left = self._engine.catch_up(now_ms=now_ms)
        # What keeps a type from being read goes before what keeps its queues, and that before what keeps single files.
        troubles = {each.message_type: each.trouble for each in left if each.trouble}
        defined = state.definitions.queues
        troubles |= {defined[queue].message_type: str(aside) for queue, aside in state.troubles.items() if queue in defined}
        troubles |= {name: str(trouble) for name, trouble in self._entrance.trouble.items()}
        told = {name: troubles[name] for name in followed if name in troubles}
        return wire.CaughtUp(files=len(left), troubles=told, tried=all(each.trouble for each in left))

    def _serve_command(self, call: Call, request: commands.AnyCommand, now_ms: int) -> None:
        match request:
            case commands.Next() as poll:
                self._serve_next(call, poll, now_ms)
            case commands.SettleHeld(poll=commands.ReceiverPoll()) as settle:
                self._note_waiting(settle.queue, now_ms)
                self._run(call, settle, now_ms)
            case commands.Leave() as leave:
                self._note_unread(leave)
                self._run(call, leave, now_ms)
                self._release_polls(leave, now_ms)
            case early if self._peers.are_awaited(early, now_ms=now_ms):
                # Its caller asks again.
                reason = CoordinatorError("COORDINATOR_RECOVERING", path=self._journal.path)
                self._answer(call, Answer(reply=wire.failed(reason)))
            case commands.Revive() | commands.GiveUpFiles() as mended:
                # Only a new fold takes back in what was set aside. It is answered then.
                self._run(call, mended, now_ms)
                if isinstance(self._ready[-1][1].reply, replies.Done):
                    self._reviving.append(self._ready.pop()[0])
                    self._folds_again = True
            case commands.SkipLost() | commands.ResetPeer() | commands.Restored() as change:
                self._run(call, change, now_ms)
                self._peers.changed(now_ms=now_ms)
            case command:
                if isinstance(command, commands.EndRun) and command.error is not None:
                    self._note_unread(command)
                if fixes_place(command):
                    # Messages that were published before it enter before it.
                    self._admit_everything(now_ms)
                elif isinstance(command, commands.ChangeCommand):
                    self._look_before(command, now_ms)
                if isinstance(command, commands.Apply):
                    known = {name: ledger.ownership for name, ledger in self._engine.state.queues.items()}
                    self._run(call, command, now_ms)
                    self._peers.join(known, now_ms=now_ms)
                else:
                    self._run(call, command, now_ms)

    def _refusal(self, call: Call, now_ms: int) -> SparkQueueError | None:
        """Return why its caller may not ask that; None where it may."""
        return refusal(self._engine.state, call.who, call.request, now_ms=now_ms)

    def _serve_log(self, call: Call, request: wire.Nudge | wire.AwaitPublish, now_ms: int) -> None:
        """Read a message log of which a publisher says that it goes on, or let a call wait until it does."""
        try:
            self._engine.state.definitions.message_type(request.message_type)
        except SparkQueueError as refusal:
            self._answer(call, Answer(reply=wire.failed(refusal)))
            return
        if isinstance(request, wire.AwaitPublish):
            self._polls.append(WaitingPoll(call, request, self._until_ms(request.wait_ms, now_ms), request.message_type))
            return
        self._told.add(request.message_type)
        self._read_log(request.message_type, finds_gaps=False, until=request.log_version)
        # It promises nothing, and whoever waits for the messages hears before their publisher.
        self._quiet.append((call, Answer(reply=replies.Done())))

    def _serve_next(self, call: Call, request: commands.Next, now_ms: int) -> None:
        """Answer a `Next`, or let it wait at least until the end of this group."""
        self._note_waiting(request.queue, now_ms)
        if self._run(call, request, now_ms):
            return
        message_type = self._engine.state.ledger(request.queue).definition.message_type
        self._polls.append(WaitingPoll(call, request, self._until_ms(request.wait_ms, now_ms), message_type))
        if request.wait_ms <= 0:
            # It asks for the messages that are there now; a waiting poll gets later ones, or hears of a gap, by one of the looks.
            self._read_log(message_type, finds_gaps=True)

    def _until_ms(self, wait_ms: int, now_ms: int) -> int:
        """Return until when a poll may wait."""
        if wait_ms < POLLS_END_MS:
            return now_ms + max(0, wait_ms)
        return (now_ms + min(wait_ms, wire.LONG_POLL_LIMIT_MS)) // POLLS_END_MS * POLLS_END_MS

    def _run(self, call: Call, command: commands.AnyCommand, now_ms: int) -> bool:
        """Run a call's command and keep its answer for after the commit; returns whether there is one."""
        self._running = call
        try:
            answer = self._commands.run(command, now_ms=now_ms, who=call.who)
        except SparkQueueError as refusal:
            answer = Answer(reply=wire.failed(refusal))
        self._running = None
        if answer is not None:
            self._answer(call, answer)
        return answer is not None

    def _answer(self, call: Call, answer: Answer) -> None:
        self._ready.append((call, answer))

    def _is_due(self, now_ms: int) -> bool:
        due_ms = self._engine.next_due_ms()
        return due_ms is not None and due_ms <= now_ms

    def _do_due(self, now_ms: int) -> None:
        if now_ms >= self._round_at_ms:
            self._round_at_ms = now_ms + ROUND_MS
            self._look_at_logs(now_ms)
            self._engine.tick(now_ms=now_ms)
            self._peers.look(now_ms=now_ms)
            if self._engine.state.is_file_back():
                # Only a new fold takes back in the queue that was set aside.
                _LOG.info("A missing message file is back: the log is folded again to include its messages.")
                self._folds_again = True
        elif self._is_due(now_ms):
            self._engine.tick(now_ms=now_ms)
        if self._polls and now_ms >= self._polls_at_ms:
            self._polls_at_ms = now_ms + POLLED_MS
            self._look_at_logs(now_ms)

    def _look_at_logs(self, now_ms: int) -> None:
        """Have the message logs read at which a look is due, oftener those that somebody waits for."""
        awaited = {poll.message_type for poll in self._polls} | self._entrance.trouble.keys()
        # Pullers of other instances wait, too.
        is_instance = self._engine.state.definitions.journal.instance is not None
        for message_type in self._engine.state.message_types:
            looks = self._looks_at(message_type, now_ms)
            is_awaited = is_instance or message_type in awaited
            if now_ms >= looks.due_ms(awaited=is_awaited):
                self._read_log(message_type, finds_gaps=looks.finds_gaps(now_ms, awaited=is_awaited))

    def _look_before(self, command: commands.ChangeCommand, now_ms: int) -> None:
        """Let messages enter that its caller may know of: it published them, or views showed them, after the last look."""
        queue = self._engine.state.queues.get(command.queue)
        message_type = None if queue is None else queue.definition.message_type
        if message_type in self._looks:
            self._read_log(message_type, finds_gaps=False)
            self._admit(now_ms)

    def _read_until(self, message_type: str) -> int:
        """Return the newest version of a message log that was read."""
        return max(self._engine.state.message_types[message_type].version, self._entrance.read_until.get(message_type, -1))

    def _read_log(self, message_type: str, *, finds_gaps: bool, until: int | None = None) -> None:
        known = self._tails.get(message_type)
        if known is not None:
            finds_gaps |= known.finds_gaps
            until = None if until is None or known.until is None else max(until, known.until)
        self._tails[message_type] = _Reading(finds_gaps, until)

    def _admit(self, now_ms: int) -> None:
        tails, self._tails = self._tails, {}
        told, self._told = self._told, set()
        for message_type, reading in tails.items():
            if not self._peers.may_enter(message_type, now_ms=now_ms):
                continue
            before, finds_gaps = self._read_until(message_type), reading.finds_gaps
            if reading.until is not None and before >= reading.until:
                # Another look was faster than the word of its publisher.
                continue
            if self._entrance.admit(message_type, now_ms=now_ms, finds_gaps=finds_gaps, until=reading.until):
                # More is waiting than fits one group: go on in the next.
                self._read_log(message_type, finds_gaps=finds_gaps, until=reading.until)
            # A publisher that announces its messages will announce the next, too.
            came = message_type not in told and self._read_until(message_type) > before
            self._looks_at(message_type, now_ms).looked(now_ms, came=came, searched=finds_gaps)

    def _looks_at(self, message_type: str, now_ms: int) -> LogLooks:
        if message_type not in self._looks:
            self._looks[message_type] = LogLooks(now_ms, self._silent_ms(message_type))
        return self._looks[message_type]

    def _silent_ms(self, message_type: str) -> int:
        """Return the longest time between two looks at a message log."""
        try:
            return self._entrance.silent_ms(message_type)
        except Exception:  # noqa: BLE001 - whatever is wrong with its log, the look says so, and keeps its messages out alone.
            _LOG.exception("How often the log of message type '%s' is to be looked at cannot be determined.", message_type)
            return SILENT_MS

    def _admit_everything(self, now_ms: int) -> None:
        for message_type in self._engine.state.message_types:
            may_enter = self._peers.may_enter(message_type, now_ms=now_ms)
            while may_enter and self._entrance.admit(message_type, now_ms=now_ms):
                continue

    def _serve_polls(self, now_ms: int) -> None:
        """Serve the waiting polls together, oldest first; those that are too many wait no longer.

        Of hundreds that wait only those are looked at for which there may be something, or whose time is over.
        """
        changed = self._engine.take_changed(Follower.POLLS)
        left, backlogs = list[WaitingPoll](), dict[str, Counter[str]]()
        too_many = len(self._polls) - WAITING_MAX
        for place, poll in enumerate(self._polls):
            if too_many <= place < self._known_polls and not self._needs_look(poll, changed, now_ms):
                left.append(poll)
                continue
            if poll.call.abandoned():
                # Nobody would hear of the lease that this poll might get.
                poll.call.answer(None)
                continue
            trouble = self._refusal(poll.call, now_ms)
            if trouble is None and self._serve_poll(poll, backlogs, now_ms):
                continue
            trouble = trouble or self._entrance.trouble.get(poll.message_type)
            if trouble is not None:
                self._answer(poll.call, Answer(reply=wire.failed(trouble)))
            elif now_ms < poll.until_ms and place >= too_many and not self._has_ended(poll, now_ms):
                left.append(poll)
            elif isinstance(poll.request, wire.AwaitPublish):
                # It promises nothing, so no look at the control log is needed for it (P7).
                poll.call.answer(wire.LogHead(head=poll.request.after_version))
            else:
                nothing = self._commands.nothing_there(poll.request, now_ms=now_ms, who=poll.call.who)
                if poll.request.asks_again and not (isinstance(nothing.reply, replies.Granted) and nothing.reply.ended):
                    self._quiet.append((poll.call, nothing))
                else:
                    self._answer(poll.call, nothing)
        self._polls, self._known_polls = left, len(left)

    def _needs_look(self, poll: WaitingPoll, changed: Collection[str], now_ms: int) -> bool:
        """Return whether a poll may have to be answered: something has happened to its queue, or its time is over."""
        if isinstance(poll.request, wire.AwaitPublish) or now_ms >= poll.until_ms or poll.message_type in self._entrance.trouble:
            return True
        queue = poll.request.queue
        # What peers say of a queue that several instances share is not recorded.
        ledger = self._engine.state.queues.get(queue)
        return queue in changed or ledger is None or ledger.is_replicated

    def _has_ended(self, poll: WaitingPoll, now_ms: int) -> bool:
        return isinstance(poll.request, commands.Next) and self._engine.has_ended(poll.request, now_ms=now_ms)

    def _serve_poll(self, poll: WaitingPoll, backlogs: dict[str, Counter[str]], now_ms: int) -> bool:
        """Answer a waiting poll if there is something for it; `backlogs` are those of queues, as far as they are counted."""
        if isinstance(poll.request, wire.AwaitPublish):
            head = self._read_until(poll.message_type)
            if head > poll.request.after_version:
                self._answer(poll.call, Answer(reply=wire.LogHead(head=head)))
            return head > poll.request.after_version
        queue = poll.request.queue
        if queue not in backlogs and queue in self._engine.state.queues:
            backlogs[queue] = self._engine.state.ledger(queue).backlogs()
        if self._engine.has_nothing_for(poll.request, backlogs.get(queue, Counter()), now_ms=now_ms):
            return False
        self._note_waiting(queue, now_ms)
        if self._run(poll.call, poll.request, now_ms):
            return True
        self._engine.ask_owners(poll.request, now_ms=now_ms)
        return False

    def _release_polls(self, leave: commands.Leave, now_ms: int) -> None:
        """Let go the poll of a planner that said goodbye, before it is granted a lease that nobody would work on."""
        gone = (leave.queue, leave.subscription, leave.incarnation)
        polls, known = self._polls, self._known_polls
        self._polls, self._known_polls = [], 0
        for place, poll in enumerate(polls):
            asked = poll.request
            if isinstance(asked, commands.Next) and (asked.queue, asked.subscription, asked.incarnation) == gone:
                self._answer(poll.call, self._commands.nothing_there(asked, now_ms=now_ms, who=poll.call.who))
            else:
                self._polls.append(poll)
                self._known_polls += place < known

    def _commit(self) -> bool:
        """Make the group durable, or check that this reign still holds (P7), and only then answer; returns whether it committed."""
        records = self._engine.drain_records()
        ready, quiet, self._ready, self._quiet = self._ready, self._quiet, [], []
        now_ms = self._clock.now_ms()
        if records:
            self._journal.control.append(records, epoch=self._epoch)
            self._seen_at_ms = now_ms
        elif ready or (quiet and now_ms >= self._seen_at_ms + QUIET_MS):
            self._journal.control.check(epoch=self._epoch)
            self._seen_at_ms = now_ms
        for call, answer in (*ready, *quiet):
            call.answer(answer.reply, answer.pieces)
        self._bell.ring(self._engine.state, self._engine.take_changed(Follower.ALARMS), now_ms=self._clock.now_ms())
        return bool(records)

    def _keep_up(self) -> None:
        try:
            found = self._journal.upkeep(epoch=self._epoch, state=self._engine.state, now_ms=self._clock.host_ms())
        except JournalError as trouble:
            # Logs that stay long are slow, not wrong; the next look tries again.
            _LOG.warning("The logs could not be shortened: %s", trouble)
        else:
            # It is committed with the next group.
            self._engine.take_files(found, now_ms=self._clock.now_ms())
