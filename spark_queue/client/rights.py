"""Rights checked where no coordinator is asked: to publish, and to try what would be done (R12)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from spark_queue.clock import SystemClock
from spark_queue.core.definitions.definition import Definitions, PrincipalDefinition
from spark_queue.core.definitions.keys import ADMINISTER, WRITE
from spark_queue.errors import AccessError
from spark_queue.protocol.tokens import token_hash

#: How errors name a caller whose token is no principal's.
NOBODY = "(none: your token belongs to no principal here)"


def principal_of(definitions: Definitions, token: Callable[[], str], *, now_ms: int) -> PrincipalDefinition | None:
    """Return whose token the caller has; None for a token that is no principal's.

    Raises
    ------
    AccessError
        TOKEN_EXPIRED.
    """
    known = definitions.principal_with(token_hash(token()))
    expiry = None if known is None else known.expiry(now_ms)
    if expiry is not None:
        raise expiry
    return known


def check_administers(definitions: Definitions, token: Callable[[], str], *, now_ms: int) -> None:
    """Refuse what administers the journal to who may not, where there are principals.

    Raises
    ------
    AccessError
        ACCESS_DENIED or TOKEN_EXPIRED.
    """
    if not definitions.principals:
        return
    known = principal_of(definitions, token, now_ms=now_ms)
    if known is None or not known.administers:
        raise AccessError("ACCESS_DENIED", principal=NOBODY if known is None else known.name, right=ADMINISTER, what="the journal")


def check_writes(definitions: Definitions, names: Iterable[str], token: Callable[[], str]) -> None:
    """Refuse to publish to names without the right, which is one on the name alone.

    Who may publish to a queue's name may do so also where it goes to a default target, and has no right on that target itself.

    Raises
    ------
    AccessError
        ACCESS_DENIED or TOKEN_EXPIRED.
    """
    known = principal_of(definitions, token, now_ms=SystemClock().wall_ms())
    for name in names:
        if known is None or not known.may(WRITE, name):
            principal = NOBODY if known is None else known.name
            raise AccessError("ACCESS_DENIED", principal=principal, right=WRITE, what=f"'{name}'")
