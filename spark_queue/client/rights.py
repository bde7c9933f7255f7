"""Rights checked where no coordinator is asked: to publish, and to make a dry run (R12)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from spark_queue.clock import SystemClock
from spark_queue.core.definitions.definition import Definitions, PrincipalDefinition
from spark_queue.core.definitions.keys import ADMINISTER, WRITE
from spark_queue.errors import AccessError
from spark_queue.protocol.tokens import token_hash


def principal_of(definitions: Definitions, token: Callable[[], str], *, now_ms: int) -> PrincipalDefinition | None:
    """Return the principal of the caller's token; None for a token of nobody. An expired one is refused."""
    known = definitions.principal_with(token_hash(token()))
    expiry = None if known is None else known.expiry(now_ms)
    if expiry is not None:
        raise expiry
    return known


def denied(principal: PrincipalDefinition | None, right: str, what: str) -> AccessError:
    """Return the refusal of a principal without a right, or of a caller whose token is no principal's."""
    if principal is None:
        return AccessError("TOKEN_OF_NOBODY", right=right, what=what)
    return AccessError("ACCESS_DENIED", principal=principal.name, right=right, what=what)


def check_administers(definitions: Definitions, token: Callable[[], str], *, now_ms: int) -> None:
    """Refuse a change of the journal to a caller without the right to administer, where there are principals."""
    if not definitions.principals:
        return
    known = principal_of(definitions, token, now_ms=now_ms)
    if known is None or not known.administers:
        raise denied(known, ADMINISTER, "the journal")


def check_writes(definitions: Definitions, names: Iterable[str], token: Callable[[], str]) -> None:
    """Refuse to publish to names without the right, which is one on the name alone.

    The right to publish to a queue's name holds also where that goes to a default target, and is no right on the target itself.
    """
    known = principal_of(definitions, token, now_ms=SystemClock().wall_ms())
    for name in names:
        if known is None or not known.may(WRITE, name):
            raise denied(known, WRITE, f"'{name}'")
