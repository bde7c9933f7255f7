"""Dry runs: what a change would do now. The coordinator's own engine decides, on the journal as it is, and nobody commits."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import cast

from spark_queue.client.writing_rights import NOBODY, principal_of
from spark_queue.core import commands, replies
from spark_queue.core.caller import Caller
from spark_queue.core.definitions.definition import Definitions, PrincipalDefinition
from spark_queue.core.definitions.keys import ADMINISTER, CHANGE, READ
from spark_queue.core.engine import Engine
from spark_queue.errors import AccessError
from spark_queue.journal.expressions import check_command
from spark_queue.journal.layout import Store
from spark_queue.journal.open import open_journal
from spark_queue.protocol.connection import Endpoint
from spark_queue.views import PointInTime, state_at


def dry_run(store: Store, command: commands.QueueCommand, endpoint: Endpoint) -> replies.CoreReply:
    """Return what the coordinator would answer to the caller now; starts nothing and changes nothing.

    Raises
    ------
    SparkQueueError
        What the coordinator would refuse.
    """
    return try_out(state_at(open_journal(store)), command, partial(endpoint.token, store))


def try_out(
    now: PointInTime, command: commands.QueueCommand | commands.Apply, token: Callable[[], str] | None
) -> replies.CoreReply:
    """Decide about a command on the journal as it is `now`, whose state is changed in memory.

    Parameters
    ----------
    token
        Gives the token of who asks; None for the owner of the store, who needs no right.

    Raises
    ------
    SparkQueueError
        What the coordinator would refuse.
    """
    caller = None if token is None else _caller(now.state.definitions, command, token, now_ms=now.now_ms)
    return cast(replies.CoreReply, Engine(now.state).decide(command, now_ms=now.now_ms, check=check_command, caller=caller))


def _caller(
    definitions: Definitions, command: commands.QueueCommand | commands.Apply, token: Callable[[], str], *, now_ms: int
) -> Caller | None:
    """Return who asks, from whom messages may be hidden (R12); None where there are no principals."""
    if not definitions.principals:
        return None
    principal = principal_of(definitions, token, now_ms=now_ms)
    if principal is None or not _may(principal, command):
        right, what = (ADMINISTER, "the journal") if isinstance(command, commands.Apply) else (CHANGE, f"queue '{command.queue}'")
        raise AccessError("ACCESS_DENIED", principal=NOBODY if principal is None else principal.name, right=right, what=what)
    return Caller(principal=principal.name, host="")


def _may(principal: PrincipalDefinition, command: commands.QueueCommand | commands.Apply) -> bool:
    if isinstance(command, commands.Apply):
        return principal.administers
    # Who reads may settle what came under its own leases: whether it did, the coordinator alone tells.
    reads = isinstance(command, commands.Settle) and all(each.lease for each in command.outcomes)
    return any(principal.may(right, command.queue) for right in ((CHANGE, READ) if reads else (CHANGE,)))
