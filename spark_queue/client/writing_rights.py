"""Whether the caller may publish to a name (R12): asked before anything is staged, where a journal has principals.

This stops mistakes, and nobody who writes to the store by other means: only the store's own permissions do.
"""

from __future__ import annotations

from collections.abc import Iterable

from spark_queue.core.definitions.definition import Definitions
from spark_queue.core.definitions.keys import WRITE
from spark_queue.errors import AccessError
from spark_queue.protocol.tokens import token_hash

#: How errors name a caller whose token is no principal's.
NOBODY = "(nobody: the token is no principal's)"


def check_writes(definitions: Definitions, names: Iterable[str], token: str) -> None:
    """Refuse to publish to names without the right, which is one on the name alone.

    Who may publish to a queue's name may do so also where it goes to a default target, and has no right on that target itself.

    Raises
    ------
    AccessError
        ACCESS_DENIED.
    """
    known = definitions.principal_with(token_hash(token))
    for name in names:
        if known is None or not known.may(WRITE, name):
            principal = NOBODY if known is None else known.name
            raise AccessError("ACCESS_DENIED", principal=principal, right=WRITE, what=f"'{name}'")
