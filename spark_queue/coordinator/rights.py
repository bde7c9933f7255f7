"""Which right each call needs, and the one place where calls are refused that lack it (R12).

What a caller asks is looked at before anything is decided. What a filter hides from a principal the core leaves out:
`UnitOfWork.seen` of what people do, `UnitOfWork.allowed` of what subscriptions are given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spark_queue.coordinator.logins import Login
from spark_queue.core import commands
from spark_queue.core.caller import Caller
from spark_queue.core.definitions.definition import Definitions, PrincipalDefinition
from spark_queue.core.definitions.keys import ADMINISTER, CHANGE, READ, RIGHTS, WRITE
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.lease import Lease
from spark_queue.errors import AccessError, ConfigError, SparkQueueError, nearest
from spark_queue.journal import expressions
from spark_queue.protocol import wire


@dataclass(frozen=True, slots=True)
class Needed:
    """What a call needs."""

    #: None for what everybody may whose token is known.
    right: str | None
    #: The field that names the queue; None for what concerns the whole journal.
    field: str | None = None
    #: Whether it begins a subscription, and so needs none that is the caller's own.
    begins: bool = False
    #: Whether the user who runs the coordinator may do it, too.
    is_hosts: bool = False


_READS = Needed(READ, "queue")
_BEGINS = Needed(READ, "queue", begins=True)
_CHANGES = Needed(CHANGE, "queue")
_ADMINISTERS = Needed(ADMINISTER)

#: What each command needs. Whoever adds a command adds its row; a test looks.
NEEDED: Mapping[type[commands.Command], Needed] = {
    commands.DrawIncarnation: _BEGINS,
    commands.Attach: _BEGINS,
    commands.Next: _READS,
    commands.Rows: _READS,
    commands.Renew: _READS,
    commands.Leave: _READS,
    commands.StartRun: _READS,
    commands.EndRun: _READS,
    commands.Prove: _READS,
    # To settle what came under a lease of one's own belongs to reading.
    commands.Settle: _CHANGES,
    commands.SettleWhere: _CHANGES,
    commands.Purge: _CHANGES,
    commands.FindDeadLetters: _CHANGES,
    commands.Redrive: _CHANGES,
    commands.Unsubscribe: _CHANGES,
    commands.Pause: _CHANGES,
    commands.Unpause: _CHANGES,
    commands.ProxiedTransfer: _ADMINISTERS,
    commands.Revive: _ADMINISTERS,
    commands.Apply: _ADMINISTERS,
    commands.SkipLost: _ADMINISTERS,
    commands.ResetPeer: _ADMINISTERS,
    commands.ForgetPeer: _ADMINISTERS,
    commands.DrainTo: _ADMINISTERS,
    commands.Restored: _ADMINISTERS,
    # It may write to a queue of the message type whose log is to be looked at.
    wire.Nudge: Needed(WRITE, "message_type"),
    # Whoever runs the process could end it by a signal as well.
    wire.Stop: Needed(ADMINISTER, is_hosts=True),
    wire.AskPeers: _ADMINISTERS,
    wire.Ping: Needed(None, is_hosts=True),
}

#: Above every bookmark, and within what a bitmap can be asked for.
BOOKMARK_LIMIT = 2**63

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
    if who is None or not definitions.principals:
        return None
    needed = NEEDED[type(request)]
    if who.principal is None:
        return None if needed.is_hosts else _denied(HOST, needed, request)
    principal = definitions.principals.get(who.principal)
    if principal is None or who.token_hash not in principal.token_hash:
        # It was taken out while the call was on its way, or waited.
        return AccessError("TOKEN_WITHDRAWN", principal=who.principal)
    expiry = principal.expiry(now_ms)
    if expiry is not None:
        return expiry
    may = _has(definitions, principal, needed, request)
    if not may and isinstance(request, commands.Settle) and _is_of_own_leases(state, principal, request):
        may = _has(definitions, principal, _READS, request)
    if not may:
        return _denied(principal.name, needed, request)
    if needed.field == "queue" and request.queue not in definitions.queues:
        # A pattern gives rights on names that are not there: what stands near them may be none of its business.
        own = [name for name in definitions.queues if any(principal.may(right, name) for right in RIGHTS)]
        return ConfigError("UNKNOWN_QUEUE", queue=request.queue, nearest=nearest(request.queue, own))
    if needed.right == READ and isinstance(request, commands.SubscriptionCommand):
        return _of_other(state, principal, request, begins=needed.begins)
    return None


def translate_ahead(definitions: Definitions, who: Login | None, request: Any) -> None:
    """Translate what a call carries on the thread that brings it, if its caller may ask that, so that the loop need not.

    Who may not ask learns nothing by how long it takes. What is wrong with it is told by the loop, by what holds there.
    """
    if who is not None and who.principal is not None and definitions.principals:
        principal = definitions.principals.get(who.principal)
        if not (principal and _has(definitions, principal, NEEDED[type(request)], request)):
            return
    expressions.translate_ahead(definitions, request)


def caller_of(definitions: Definitions, who: Login | None, request: Any) -> Caller | None:
    """Return who asks, as the core needs it: for what is hidden from it, and for the log."""
    if who is None or who.principal is None or not definitions.principals:
        return None
    signs = NEEDED[type(request)].right in (CHANGE, ADMINISTER)
    return Caller(principal=who.principal, host=who.address, signs=signs)


def _has(definitions: Definitions, principal: PrincipalDefinition, needed: Needed, request: Any) -> bool:
    if needed.right is None:
        return True
    if needed.right == ADMINISTER:
        return principal.administers
    if needed.right == WRITE:
        return _writes_to(definitions, principal, request.message_type)
    queue = definitions.queues.get(request.queue)
    if queue is not None and needed.right == READ and queue.underlying_topic is None and principal.filters(queue.name):
        # No filter is evaluated in a dead-letter queue, so nothing of it could be hidden.
        return False
    return principal.may(needed.right, request.queue)


def _writes_to(definitions: Definitions, principal: PrincipalDefinition, message_type: str) -> bool:
    known = definitions.message_types.get(message_type)
    queues = (each.name for each in definitions.queues.values() if each.message_type == message_type)
    return any(principal.may(WRITE, name) for name in (*queues, *(() if known is None else known.topics)))


def _is_of_own_leases(state: JournalState, principal: PrincipalDefinition, request: commands.Settle) -> bool:
    """Return whether all that is settled came under leases of subscriptions of the principal."""
    ledger = state.queues.get(request.queue)
    if ledger is None:
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


def _of_other(
    state: JournalState, principal: PrincipalDefinition, request: commands.SubscriptionCommand, *, begins: bool
) -> SparkQueueError | None:
    """Return the refusal of a subscription that is another's; one of a principal that is gone is free for who attaches next."""
    ledger = state.queues.get(request.queue)
    known = None if ledger is None else ledger.subscriptions.get(request.subscription)
    if known is None or known.principal == principal.name or (begins and known.principal not in state.definitions.principals):
        return None
    facts = {"subscription": request.subscription, "queue": request.queue, "principal": principal.name}
    return AccessError("SUBSCRIPTION_OF_OTHER", **facts)


def _denied(principal: str, needed: Needed, request: Any) -> AccessError:
    if needed.field is None:
        what = "the journal"
    else:
        what = f"{'message type' if needed.right == WRITE else 'queue'} '{getattr(request, needed.field)}'"
    return AccessError("ACCESS_DENIED", principal=principal, right=needed.right, what=what)
