"""Rights of callers: the one place where calls are refused that lack their right (R12)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from spark_queue.coordinator.logins import Login
from spark_queue.core import commands
from spark_queue.core.bitmaps.ranges import BOOKMARK_LIMIT
from spark_queue.core.commands import Caller
from spark_queue.core.definitions.definition import Definitions, PrincipalDefinition
from spark_queue.core.definitions.keys import ADMINISTER, CHANGE, READ, RIGHTS
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.lease import Lease
from spark_queue.errors import AccessError, ConfigError, SparkQueueError, nearest
from spark_queue.journal import expressions
from spark_queue.protocol.wire import REQUESTS, Envelope

#: Most characters of a caller's name that records keep.
_NAME_CHARACTERS = 256

#: How errors name the user who runs the coordinator.
HOST = "(the user who runs the coordinator)"


def refusal(state: JournalState, who: Login | None, request: Any, *, now_ms: int) -> SparkQueueError | None:
    """Return the refusal of a call; None for one that is allowed.

    Without `who` the coordinator itself asks.
    """
    definitions = state.definitions
    principal = _asking(definitions, who, request, now_ms)
    if not isinstance(principal, PrincipalDefinition):
        return principal
    may = _has(definitions, principal, request.right, request)
    if not may and _is_of_own(state, principal, request):
        # To settle messages of one's own lease, or to decide about one's own attempts, belongs to reading.
        may = _has(definitions, principal, READ, request)
    if not may:
        return _denied(principal.name, request)
    if request.subject == "queue" and request.queue not in definitions.queues:
        # A pattern gives rights on names that are not there: names near them may be none of its business.
        own = [name for name in definitions.queues if any(principal.may(right, name) for right in RIGHTS)]
        return ConfigError("UNKNOWN_QUEUE", queue=request.queue, nearest=nearest(request.queue, own))
    if request.right == READ and isinstance(request, commands.SubscriptionCommand):
        return _of_other(state, principal, request)
    return None


def refusal_ahead(definitions: Definitions, who: Login | None, about: Envelope, *, now_ms: int) -> SparkQueueError | None:
    """Refuse by the envelope alone, before the body is decoded; None if the body must be read, or decides.

    A principal must not make others wait by a call that it may not make.
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
    # A principal that may only read may settle its leased messages, and decide about its own attempts.
    rights = (CHANGE, READ) if asked.right == CHANGE else (asked.right,)
    may = any(_has(definitions, principal, right, request) for right in rights)
    return None if may else _denied(principal.name, request)


def _asking(definitions: Definitions, who: Login | None, request: Any, now_ms: int) -> PrincipalDefinition | SparkQueueError | None:
    """Return the principal that asks, or its refusal if it may ask nothing; None for a caller that needs no right for this."""
    if who is None or not definitions.principals:
        return None
    if who.principal is None:
        return None if request.is_hosts else _denied(HOST, request)
    principal = definitions.principals.get(who.principal)
    if principal is None or who.token_hash not in principal.token_hash:
        # It was removed while the call was on its way, or waited.
        return AccessError("TOKEN_WITHDRAWN", principal=who.principal)
    return principal.expiry(now_ms) or principal


def translate_ahead(definitions: Definitions, who: Login | None, request: Any) -> None:
    """Translate a call's expressions on the thread that brings it, if its caller may ask that, so that the loop need not.

    Others learn nothing by how long it lasts. A faulty expression is refused by the loop, by the definitions that hold there.
    """
    if who is not None and who.principal is not None and definitions.principals:
        principal = definitions.principals.get(who.principal)
        if not (principal and _has(definitions, principal, request.right, request)):
            return
    expressions.translate_ahead(definitions, request)


def caller_of(definitions: Definitions, who: Login | None, request: Any) -> Caller | None:
    """Return the caller as the core needs it: to hide messages from it, and for the log."""
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
    """Return whether a call is only about messages and attempts of a principal's own subscriptions."""
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
        # A message that another instance owns by now is in no lease here.
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
    """Return the refusal of a subscription that is another's; one of a principal that is gone is free for the next attach."""
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
