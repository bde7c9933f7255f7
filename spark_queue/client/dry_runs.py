"""Dry runs: the effect of a change now. The coordinator's own engine decides, on the journal as it is, and nobody commits."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import cast

from spark_queue.client.rights import denied, principal_of
from spark_queue.core import commands, replies
from spark_queue.core.commands import Caller
from spark_queue.core.definitions.definition import Definitions, PrincipalDefinition
from spark_queue.core.definitions.keys import CHANGE, READ
from spark_queue.core.engine import Engine
from spark_queue.journal.expressions import check_command
from spark_queue.journal.open import open_journal
from spark_queue.journal.store import Store
from spark_queue.protocol.endpoint import Endpoint
from spark_queue.views import JournalView, state_at


def dry_run(store: Store, command: commands.QueueCommand, endpoint: Endpoint) -> replies.CoreReply:
    """Return or raise the coordinator's answer to the caller, as it would be now; starts nothing and changes nothing."""
    now = state_at(open_journal(store))
    caller = _caller(now.state.definitions, command, partial(endpoint.token, store), now_ms=now.now_ms)
    return try_out(now, command, caller)


def try_out(now: JournalView, command: commands.QueueCommand | commands.Apply, caller: Caller | None = None) -> replies.CoreReply:
    """Decide about a command on the journal as it is `now`, whose state is changed in memory; no `caller` is the store's owner."""
    return cast(replies.CoreReply, Engine(now.state).decide(command, now_ms=now.now_ms, check=check_command, caller=caller))


def _caller(definitions: Definitions, command: commands.QueueCommand, token: Callable[[], str], *, now_ms: int) -> Caller | None:
    """Return the caller, from whom messages may be hidden (R12); None where there are no principals."""
    if not definitions.principals:
        return None
    principal = principal_of(definitions, token, now_ms=now_ms)
    if principal is None or not _may(principal, command):
        raise denied(principal, CHANGE, f"queue '{command.queue}'")
    return Caller(principal=principal.name, host="")


def _may(principal: PrincipalDefinition, command: commands.QueueCommand) -> bool:
    # A reader may settle messages of its own leases: the coordinator alone knows which these are.
    reads = isinstance(command, commands.Settle) and all(each.lease for each in command.outcomes)
    return any(principal.may(right, command.queue) for right in ((CHANGE, READ) if reads else (CHANGE,)))
