"""Running commands on the engine: what needs files or expressions is done around the decision, which needs neither.

The one place where calls are refused that lack their right (R12).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import msgspec
import pyarrow as pa

from spark_queue.coordinator.logins import Login
from spark_queue.core import commands
from spark_queue.core.bitmaps.numbers import Counts
from spark_queue.core.bitmaps.ranges import BOOKMARK_LIMIT
from spark_queue.core.commands import Caller
from spark_queue.core.deciding import barrier
from spark_queue.core.definitions import parsing
from spark_queue.core.definitions.definition import Definitions, PrincipalDefinition
from spark_queue.core.definitions.keys import ADMINISTER, CHANGE, READ, RIGHTS
from spark_queue.core.engine import Engine
from spark_queue.core.replies import Granted, LeasedRows, QueueStatus
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.lease import Lease
from spark_queue.core.state.status import queue_status
from spark_queue.errors import AccessError, ConfigError, SparkQueueError, nearest
from spark_queue.journal import traits
from spark_queue.journal.message_file import cut_pieces
from spark_queue.journal.traits import check_command, check_definitions
from spark_queue.metrics.figures import JournalFigures, Observe, figures_of
from spark_queue.ports import JournalPort
from spark_queue.protocol.wire import REQUESTS, AnyReply, Envelope, PeerTold
from spark_queue.views.journal_view import needed_files

#: Most characters of a name that records keep of who asks.
_NAME_CHARACTERS = 256

#: How errors name the user who runs the coordinator.
HOST = "(the user who runs the coordinator)"


def refusal(state: JournalState, who: Login | None, request: Any, *, now_ms: int) -> SparkQueueError | None:
    """Return why a call is refused; None for one that is not.

    Parameters
    ----------
    who : Login or None
        None for what the coordinator asks itself.
    """
    definitions = state.definitions
    principal = _asking(definitions, who, request, now_ms)
    if not isinstance(principal, PrincipalDefinition):
        return principal
    may = _has(definitions, principal, request.right, request)
    if not may and _is_of_own(state, principal, request):
        # To settle what came under a lease of one's own, or to decide about one's own attempts, belongs to reading.
        may = _has(definitions, principal, READ, request)
    if not may:
        return _denied(principal.name, request)
    if request.subject == "queue" and request.queue not in definitions.queues:
        # A pattern gives rights on names that are not there: what stands near them may be none of its business.
        own = [name for name in definitions.queues if any(principal.may(right, name) for right in RIGHTS)]
        return ConfigError("UNKNOWN_QUEUE", queue=request.queue, nearest=nearest(request.queue, own))
    if request.right == READ and isinstance(request, commands.SubscriptionCommand):
        return _of_other(state, principal, request)
    return None


def refusal_ahead(definitions: Definitions, who: Login | None, about: Envelope, *, now_ms: int) -> SparkQueueError | None:
    """Return why a call is refused for what it is about; None where what it holds has to be read first, or decides.

    A principal must not make others wait by what it may not ask.
    """
    asked = REQUESTS.get(about.kind)
    if asked is None:
        return None
    request = SimpleNamespace(
        right=asked.right, subject=asked.subject, is_hosts=asked.is_hosts, queue=about.queue, message_type=about.message_type
    )
    principal = _asking(definitions, who, request, now_ms)
    if not isinstance(principal, PrincipalDefinition):
        return principal
    # Who may only read may settle what it has leased, and decide about its own attempts.
    rights = (CHANGE, READ) if asked.right == CHANGE else (asked.right,)
    may = any(_has(definitions, principal, right, request) for right in rights)
    return None if may else _denied(principal.name, request)


def _asking(definitions: Definitions, who: Login | None, request: Any, now_ms: int) -> PrincipalDefinition | SparkQueueError | None:
    """Return the principal that asks, or why it may ask nothing; None for who needs no right for this."""
    if who is None or not definitions.principals:
        return None
    if who.principal is None:
        return None if request.is_hosts else _denied(HOST, request)
    principal = definitions.principals.get(who.principal)
    if principal is None or who.token_hash not in principal.token_hash:
        # It was taken out while the call was on its way, or waited.
        return AccessError("TOKEN_WITHDRAWN", principal=who.principal)
    return principal.expiry(now_ms) or principal


def translate_ahead(definitions: Definitions, who: Login | None, request: Any) -> None:
    """Translate what a call carries on the thread that brings it, if its caller may ask that, so that the loop need not.

    Who may not ask learns nothing by how long it takes. What is wrong with it is told by the loop, by what holds there.
    """
    if who is not None and who.principal is not None and definitions.principals:
        principal = definitions.principals.get(who.principal)
        if not (principal and _has(definitions, principal, request.right, request)):
            return
    traits.translate_ahead(definitions, request)


def caller_of(definitions: Definitions, who: Login | None, request: Any) -> Caller | None:
    """Return who asks, as the core needs it: for what is hidden from it, and for the log."""
    if who is None:
        return None
    signs = request.right in (CHANGE, ADMINISTER)
    if not definitions.principals:
        asker = request.asker
        if asker is None or not signs:
            return None
        # Its word counts as much as the token of the user who runs the coordinator, which the caller has.
        return Caller(principal=None, user=asker.user[:_NAME_CHARACTERS], host=asker.host[:_NAME_CHARACTERS], signs=True)
    if who.principal is None:
        return None
    return Caller(principal=who.principal, host=who.address, signs=signs)


def _has(definitions: Definitions, principal: PrincipalDefinition, right: str | None, request: Any) -> bool:
    if right is None:
        return True
    if right == ADMINISTER:
        return principal.administers
    if request.subject == "message_type":
        return _may_on_type(definitions, principal, right, request.message_type)
    queue = definitions.queues.get(request.queue)
    if queue is not None and right == READ:
        return definitions.may_consume(principal.name, queue)
    return principal.may(right, request.queue)


def _may_on_type(definitions: Definitions, principal: PrincipalDefinition, right: str, message_type: str) -> bool:
    """Return whether a right is there on some queue or topic of a message type."""
    known = definitions.message_types.get(message_type)
    queues = (each.name for each in definitions.queues.values() if each.message_type == message_type)
    return any(principal.may(right, name) for name in (*queues, *(() if known is None else known.topics)))


def _is_of_own(state: JournalState, principal: PrincipalDefinition, request: Any) -> bool:
    """Return whether a call is only about what a principal's own subscriptions have."""
    if isinstance(request, commands.Settle):
        return _is_of_own_leases(state, principal, request)
    if not isinstance(request, commands.AttemptCommand | commands.SinkUnreadable) or request.queue not in state.queues:
        return False
    known = state.queues[request.queue].subscriptions.get(request.subscription)
    return known is not None and known.principal == principal.name


def _is_of_own_leases(state: JournalState, principal: PrincipalDefinition, request: commands.Settle) -> bool:
    """Return whether all that is settled came under leases of subscriptions of the principal."""
    ledger = state.queues.get(request.queue)
    if ledger is None or request.of_owner:
        # What another instance owns by now is no lease of anybody here.
        return False
    for each in request.outcomes:
        lease = ledger.leases.get(each.lease or 0)
        if lease is None or ledger.subscriptions[lease.subscription].principal != principal.name:
            return False
        if not all(_holds(lease, first, until) for first, until in each.ranges):
            return False
    return True


def _holds(lease: Lease, first: int, until: int) -> bool:
    return 0 <= first < until <= BOOKMARK_LIMIT and lease.rows.range_cardinality(first, until) == until - first


def _of_other(state: JournalState, principal: PrincipalDefinition, request: commands.SubscriptionCommand) -> SparkQueueError | None:
    """Return the refusal of a subscription that is another's; one of a principal that is gone is free for who attaches next."""
    ledger = state.queues.get(request.queue)
    known = None if ledger is None else ledger.subscriptions.get(request.subscription)
    if (
        known is None
        or known.principal == principal.name
        or (request.begins and known.principal not in state.definitions.principals)
    ):
        return None
    facts = {"subscription": request.subscription, "queue": request.queue, "principal": principal.name}
    return AccessError("SUBSCRIPTION_OF_OTHER", **facts)


def _denied(principal: str, request: Any) -> AccessError:
    subject = request.subject
    what = "the journal" if subject is None else f"{subject.replace('_', ' ')} '{getattr(request, subject)}'"
    return AccessError("ACCESS_DENIED", principal=principal, right=request.right, what=what)


_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A reply, and the bulk rows that travel beside it."""

    reply: AnyReply
    pieces: pa.Table | None = None


class Commands:
    """Runs commands on the engine. What they decided must be committed before an answer leaves."""

    def __init__(self, engine: Engine, journal: JournalPort) -> None:
        self._engine = engine
        self._journal = journal

    def run(self, command: commands.AnyCommand, *, now_ms: int, who: Login | None = None) -> Answer | None:
        """Return the answer to a command, or None for a `Next` that finds nothing yet."""
        if who is not None and who.principal is not None and isinstance(command, commands.ChangeCommand) and command.request:
            # Who repeats the request of somebody else asks anew: the answer to a repeat counts what was done.
            command = msgspec.structs.replace(command, request=f"{who.principal}/{command.request}")
        with self._engine.attempt(command):
            return self._run(command, now_ms=now_ms, who=who)

    def _run(self, command: commands.AnyCommand, *, now_ms: int, who: Login | None) -> Answer | None:
        state = self._engine.state
        before = state.definitions
        caller = caller_of(before, who, command)
        reply = self._engine.decide(command, now_ms=now_ms, check=self._check, caller=caller)
        if state.definitions is not before:
            # Before the commit, so that no definition is ever durable without its table. A table without definition is harmless.
            for name, message_type in state.definitions.message_types.items():
                try:
                    self._journal.create_message_table(name, message_type.columns)
                except SparkQueueError as trouble:
                    if message_type != before.message_types.get(name):
                        raise
                    # Whose table that is, or what somebody did to it, is nothing of these definitions.
                    _LOG.warning("The table of message type '%s' stays as it is: %s", name, trouble)
        if isinstance(reply, LeasedRows) and isinstance(command, commands.Rows):
            return Answer(reply=reply.reply, pieces=self._pieces(command, reply))
        if isinstance(reply, Granted) and isinstance(command, commands.Next):
            return self._with_status(command, reply, now_ms, who)
        assert not isinstance(reply, LeasedRows), "only `Rows` gives rows"
        return None if reply is None else Answer(reply=reply)

    def _check(self, state: JournalState, command: commands.AnyCommand) -> None:
        """Refuse what the core does not know of: expressions that cannot be, and tables that cannot change so."""
        if not isinstance(command, commands.Apply):
            check_command(state, command)
            return
        wanted = parsing.parse(command.definitions)
        check_definitions(state, wanted)
        for name, message_type in wanted.message_types.items():
            if message_type != state.definitions.message_types.get(name):
                self._journal.check_message_table(name, message_type.columns)

    def nothing_there(self, poll: commands.Next, *, now_ms: int, who: Login | None = None) -> Answer:
        """Return the answer to a `Next` whose wait is over."""
        return self._with_status(poll, self._engine.nothing_there(poll, now_ms=now_ms), now_ms, who)

    def figures(
        self, asked: Observe, troubles: Mapping[str, SparkQueueError], told: Mapping[str, PeerTold], *, now_ms: int
    ) -> JournalFigures:
        """Return what metrics tell of this reign's state.

        Parameters
        ----------
        asked
            The question, with what is known of message files.
        troubles
            What keeps the messages of a type from entering, which is an alarm of its queues.
        told
            How each peer is pulled, by name.
        """
        state = self._engine.state

        texts = {name: str(trouble) for name, trouble in troubles.items()}

        def status(queue: str) -> QueueStatus:
            return queue_status(state, queue, now_ms=now_ms, troubles=texts, damage=asked.damages.get(queue))

        found = figures_of(state, status, now_ms=now_ms, told=told)
        try:
            return replace(found, needed=needed_files(state, asked.looks_at)) if asked.looks_at in state.queues else found
        except Exception:  # noqa: BLE001  # Whatever it is, it is logged, and only its files are not looked at.
            _LOG.exception("The files of queue '%s' cannot be told.", asked.looks_at)
            return found

    def _with_status(self, poll: commands.Next, reply: Granted, now_ms: int, who: Login | None) -> Answer:
        """Add the queue's figures, unless they count what is hidden, or it was dropped or set aside while its caller waited."""
        state = self._engine.state
        is_told = poll.queue in state.queues and (who is None or not state.definitions.row_filters(who.principal, poll.queue))
        status = self._status(poll.queue, now_ms) if is_told else None
        return Answer(reply=msgspec.structs.replace(reply, status=status))

    def _status(self, queue: str, now_ms: int) -> QueueStatus | None:
        """Return a queue's figures; None where that raises, since what is only shown does not keep messages from anybody."""
        try:
            return queue_status(self._engine.state, queue, now_ms=now_ms)
        except Exception:  # noqa: BLE001  # Whatever it is, it is logged, and only shown figures are missing.
            _LOG.exception("The figures of queue '%s' cannot be told.", queue)
            return None

    def _pieces(self, command: commands.Rows, found: LeasedRows) -> pa.Table:
        ledger = self._engine.state.ledger(command.queue)
        state = self._engine.state
        message_type = state.message_types[ledger.definition.message_type]
        segments, origins = message_type.segments, message_type.origin_names(state.definitions.journal.instance, state.instances)
        if found.is_barrier:
            deliveries = barrier.deliveries(ledger.subscriptions[command.subscription])
            return cut_pieces(segments, found.rows, deliveries, Counts(), is_barrier=True, origins=origins)
        order_keys = None if ledger.definition.order_key is None else ledger.selection.order_keys
        return cut_pieces(segments, found.rows, ledger.delivered, ledger.cancelled, order_keys=order_keys, origins=origins)
