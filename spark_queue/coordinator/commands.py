"""Running commands on the engine: work with files or expressions is done around the decision, which needs neither."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import msgspec
import pyarrow as pa
from pyroaring import BitMap64

from spark_queue.coordinator.logins import Login
from spark_queue.coordinator.rights import caller_of
from spark_queue.core import commands
from spark_queue.core.bitmaps.numbers import Counts
from spark_queue.core.bitmaps.order_key import OrderKeys
from spark_queue.core.bitmaps.priority import Priorities
from spark_queue.core.deciding import barrier
from spark_queue.core.deciding.losing import lost_record
from spark_queue.core.definitions import parsing
from spark_queue.core.engine import Engine
from spark_queue.core.message_files.followed_table import FollowedTable, TablePlace
from spark_queue.core.message_files.segment import Segment
from spark_queue.core.records import Followed, Record
from spark_queue.core.replies import Granted, LeasedRows, QueueStatus
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.ledger import QueueLedger
from spark_queue.core.state.status import queue_status
from spark_queue.errors import MESSAGE_FILE_CODES, CallerError, SparkQueueError
from spark_queue.journal.entering import Sequencer
from spark_queue.journal.expressions import check_command, check_definitions
from spark_queue.journal.pieces import cut_pieces, cut_places
from spark_queue.metrics.figures import JournalFigures, Observe, figures_of
from spark_queue.ports import JournalPort
from spark_queue.protocol.wire import AnyReply, PeerTold
from spark_queue.views.journal_view import needed_files

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A reply, and the bulk rows that travel beside it."""

    reply: AnyReply
    pieces: pa.Table | None = None


class Commands:
    """Runs commands on the engine. Their decisions must be committed before an answer leaves.

    `troubles` has the trouble that keeps a message type from entering further, by its name, as it is at any time.
    """

    def __init__(self, engine: Engine, journal: JournalPort, troubles: Mapping[str, SparkQueueError]) -> None:
        self._engine = engine
        self._journal = journal
        self._troubles = troubles

    def run(self, command: commands.AnyCommand, *, now_ms: int, who: Login | None = None) -> Answer | None:
        """Return the answer to a command, or None for a `Next` that finds nothing yet."""
        if who is not None and who.principal is not None and isinstance(command, commands.ChangeCommand) and command.request:
            # The same request of another caller is a new one: the answer to a repeat counts the messages that were changed.
            command = msgspec.structs.replace(command, request=f"{who.principal}/{command.request}")
        with self._engine.attempt(command):
            answer = self._run(command, now_ms=now_ms, who=who)
        poll = command.to_next() if isinstance(command, commands.SettleHeld) else None
        return answer if poll is None or answer is None else self._with_poll(answer, poll, now_ms, who)

    def _with_poll(self, answer: Answer, poll: commands.Next, now_ms: int, who: Login | None) -> Answer:
        """Add what the poll is granted that came with a receiver's outcomes."""
        try:
            granted = self.run(poll, now_ms=now_ms, who=who)
        except SparkQueueError:
            # Its receiver polls by itself next, and hears of it then.
            return answer
        if granted is None:
            return answer
        return Answer(reply=msgspec.structs.replace(answer.reply, granted=granted.reply))

    def _run(self, command: commands.AnyCommand, *, now_ms: int, who: Login | None) -> Answer | None:
        state = self._engine.state
        before = state.definitions
        caller, looks = caller_of(before, who, command), list[Record]()
        reply = self._engine.decide(command, now_ms=now_ms, check=partial(self._check, looks), caller=caller, looks=looks)
        if state.definitions is not before:
            # Before the commit, so that no definition is ever durable without its table. A table without definition is harmless.
            for name, message_type in state.definitions.message_types.items():
                if message_type.table is not None:
                    continue
                try:
                    is_unused = state.is_unused(name, by=before)
                    self._journal.create_message_table(name, message_type.columns, is_unused=is_unused)
                except SparkQueueError as trouble:
                    if message_type != before.message_types.get(name):
                        raise
                    # The owner of that table, or a change of it by somebody, is nothing of these definitions.
                    _LOG.warning("The table of message type '%s' stays as it is: %s", name, trouble)
        if isinstance(reply, LeasedRows) and isinstance(command, commands.Rows):
            return Answer(reply=reply.reply, pieces=self._pieces(command, reply.rows, is_barrier=reply.is_barrier))
        if isinstance(reply, Granted) and isinstance(command, commands.Next) and reply.messages:
            return self._granted(command, reply, now_ms, who)
        assert not isinstance(reply, LeasedRows), "only `Rows` gives rows"
        return None if reply is None else Answer(reply=reply)

    def _check(self, looks: list[Record], state: JournalState, command: commands.AnyCommand) -> None:
        """Refuse commands by facts that the core does not know: expressions that cannot be, and tables that cannot change so.

        What is found of tables that are to be followed is added to `looks`.
        """
        if isinstance(command, commands.Follow):
            looks.append(Record(body=self._look_on(state, command), message_type=command.message_type))
            return
        if isinstance(command, commands.GiveUpFiles):
            looks += map(lost_record, self._absent_files(state, command))
            return
        if isinstance(command, commands.ForgetLost):
            _followed(state, command.message_type, what=f"Forgetting what message type '{command.message_type}' has lost")
            return
        if not isinstance(command, commands.Apply):
            check_command(state, command)
            return
        wanted = parsing.parse(command.definitions)
        check_definitions(state, wanted)
        for name, message_type in wanted.message_types.items():
            before = state.definitions.message_types.get(name)
            if message_type == before:
                continue
            if message_type.table is None:
                self._journal.check_message_table(name, message_type.columns, is_unused=state.is_unused(name))
                continue
            known = state.message_types.get(name)
            found = self._journal.look_at_table(message_type, None if known is None else known.followed, before)
            if found is not None:
                looks.append(Record(body=found, message_type=name))

    def _look_on(self, state: JournalState, command: commands.Follow) -> Followed:
        """Return where a message type goes on that was set aside, or that a missing file keeps from entering.

        One of both it must be, or messages would never enter.
        """
        what = f"Letting message type '{command.message_type}' go on elsewhere"
        known = _followed(state, command.message_type, what=what)
        trouble = self._troubles.get(command.message_type)
        if known.stopped is None and (trouble is None or trouble.code not in MESSAGE_FILE_CODES):
            next_step = "`sparkq status` shows the ones that are."
            raise CallerError("UNSUPPORTED_WRITE", what=what, reason="it is not set aside.", next_step=next_step)
        return self._journal.look_further(state.definitions.message_type(command.message_type), known, command.first)

    def _absent_files(self, state: JournalState, command: commands.GiveUpFiles) -> Sequence[Segment]:
        """Return the files of messages that the store of a table does not have; some of it must be missing."""
        what = f"Giving up files of message type '{command.message_type}'"
        table, known = _followed(state, command.message_type, what=what), state.message_types[command.message_type]
        found = self._journal.absent_files([known.segment_of(first) for first in table.entered.values()])
        if not found:
            next_step = "What is missing is named by MESSAGE_FILE_MISSING; a store that refuses to look says nothing of it."
            raise CallerError("UNSUPPORTED_WRITE", what=what, reason="none of its files is missing.", next_step=next_step)
        return found

    def nothing_there(self, poll: commands.Next, *, now_ms: int, who: Login | None = None) -> Answer:
        """Return the answer to a `Next` whose wait is over."""
        nothing = self._engine.nothing_there(poll, now_ms=now_ms)
        return Answer(reply=nothing) if self._receives(poll) else self._with_status(poll, nothing, now_ms, who)

    def figures(self, asked: Observe, entrance: Sequencer, told: Mapping[str, PeerTold], *, now_ms: int) -> JournalFigures:
        """Return the figures of this reign's state, and of what enters it."""
        state = self._engine.state

        texts = {name: str(trouble) for name, trouble in entrance.trouble.items()}

        def status(queue: str) -> QueueStatus:
            message_type = state.ledger(queue).definition.message_type
            known, version = state.message_types[message_type].followed, entrance.read_until.get(message_type, -1)
            place = None if known is None else TablePlace(max(known.read_until, version), asked.heads.get(queue))
            return queue_status(state, queue, now_ms=now_ms, troubles=texts, damage=asked.damages.get(queue), place=place)

        found = figures_of(state, status, now_ms=now_ms, told=told)
        try:
            return replace(found, needed=needed_files(state, asked.looks_at)) if asked.looks_at in state.queues else found
        except Exception:  # noqa: BLE001  # Whatever it is, it is logged, and only its files are not looked at.
            _LOG.exception("The files of queue '%s' cannot be determined.", asked.looks_at)
            return found

    def _receives(self, poll: commands.Next) -> bool:
        ledger = self._engine.state.queues.get(poll.queue)
        return ledger is not None and ledger.receives(poll.subscription)

    def _granted(self, poll: commands.Next, reply: Granted, now_ms: int, who: Login | None) -> Answer:
        """Add the places of the messages, and what a stream shows; a receiver asks no second time (R135)."""
        ledger = self._engine.state.ledger(poll.queue)
        lease = ledger.leases[reply.lease]
        if not self._receives(poll):
            answer = self._with_status(poll, reply, now_ms, who)
            if not lease.is_whole:
                # To be asked for its rows is to resume it, or, at most once, to give them to the first who asks.
                return answer
            return replace(answer, pieces=self._pieces(poll, lease.rows, is_barrier=lease.is_barrier))
        # Of an at-most-once lease nothing is leased any more.
        rows = lease.rows if lease.is_barrier else ledger.outstanding(lease)
        segments = self._engine.state.message_types[ledger.definition.message_type].segments
        delivered, cancelled = _counts(ledger, poll, is_barrier=lease.is_barrier)
        order_keys, priorities = (None, None) if lease.is_barrier else (_order_keys(ledger), _priorities(ledger))
        places = cut_places(
            segments, rows, delivered, cancelled, is_barrier=lease.is_barrier, order_keys=order_keys, priorities=priorities
        )
        return Answer(reply=msgspec.structs.replace(reply, places=places))

    def _with_status(self, poll: commands.Next, reply: Granted, now_ms: int, who: Login | None) -> Answer:
        """Add the queue's figures, unless they count hidden messages, or it was dropped or set aside while its caller waited."""
        state = self._engine.state
        is_told = poll.queue in state.queues and (who is None or not state.definitions.row_filters(who.principal, poll.queue))
        status = self._status(poll.queue, now_ms) if is_told else None
        return Answer(reply=msgspec.structs.replace(reply, status=status))

    def _status(self, queue: str, now_ms: int) -> QueueStatus | None:
        """Return a queue's figures; None where that raises, since figures that are only shown keep messages from nobody."""
        try:
            return queue_status(self._engine.state, queue, now_ms=now_ms)
        except Exception:  # noqa: BLE001  # Whatever it is, it is logged, and only shown figures are missing.
            _LOG.exception("The figures of queue '%s' cannot be computed.", queue)
            return None

    def _pieces(self, command: commands.Rows | commands.Next, rows: BitMap64, *, is_barrier: bool) -> pa.Table:
        ledger = self._engine.state.ledger(command.queue)
        state = self._engine.state
        message_type = state.message_types[ledger.definition.message_type]
        segments, origins = message_type.segments, message_type.origin_names(state.definitions.journal.instance, state.instances)
        delivered, cancelled = _counts(ledger, command, is_barrier=is_barrier)
        order_keys = None if is_barrier else _order_keys(ledger)
        return cut_pieces(segments, rows, delivered, cancelled, is_barrier=is_barrier, order_keys=order_keys, origins=origins)


def _counts(ledger: QueueLedger, command: commands.SubscriptionCommand, *, is_barrier: bool) -> tuple[Counts, Counts]:
    """Return how often the rows of a lease were delivered and cancelled; a barrier counts for the subscription that has it."""
    if is_barrier:
        return barrier.deliveries(ledger.subscriptions[command.subscription]), Counts()
    return ledger.delivered, ledger.cancelled


def _order_keys(ledger: QueueLedger) -> OrderKeys | None:
    return None if ledger.definition.order_key is None else ledger.selection.order_keys


def _priorities(ledger: QueueLedger) -> Priorities | None:
    return None if ledger.definition.priority is None else ledger.selection.priorities


def _followed(state: JournalState, message_type: str, *, what: str) -> FollowedTable:
    """Return the table that a message type follows; refuse what is asked of one that follows none."""
    state.definitions.message_type(message_type)
    known = state.message_types[message_type].followed
    if known is None:
        next_step = "Name a message type that has `table` in its definition."
        raise CallerError("UNSUPPORTED_WRITE", what=what, reason="it follows no table.", next_step=next_step)
    return known
