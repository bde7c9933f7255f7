"""Committing a Delta transaction id alone, which draws names and epochs (DESIGN 3.4, 15.4)."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from spark_queue.errors import JournalError
from spark_queue.journal import delta
from spark_queue.journal.delta import REFUSALS, Mark
from spark_queue.journal.log_listing import is_made_anew
from spark_queue.journal.store import Store, log_key

_TRANSACTION_ATTEMPTS = 100


def commit_transaction(
    store: Store,
    key: str,
    table: DeltaTable,
    *,
    name: str,
    version: Callable[[int], int | None],
    writer: str,
    at_ms: int,
    durable: bool,
) -> int:
    """Commit a Delta transaction id without files, and give the version that it then has.

    `version` makes of the id's version (0 for none) the one to commit, or None to leave it; it is asked again after each lost
    race. When `durable`, the entry below reaches the disk first, and the own one before this returns (PROTOCOL 6).
    """
    for attempt in range(_TRANSACTION_ATTEMPTS):
        found = table.transaction_version(name) or 0
        wanted = version(found)
        if wanted is None:
            return found
        base = int(table.version())
        if durable:
            store.sync([log_key(key, base)])
        won = _try_transaction(store, key, table, name=name, version=wanted, writer=writer, at_ms=at_ms)
        if won and durable:
            # Lost with the power, the number would be drawn again while its holder lives on, on another host.
            store.sync([log_key(key, base + 1)])
        # Last of all: the publisher that is given a number is the newest by then.
        delta.refresh(store, key, table)
        if won and table.transaction_version(name) == wanted:
            return wanted
        delta.back_off(attempt)
    raise JournalError("PUBLISH_CONTENDED", path=store.uri(key), attempts=_TRANSACTION_ATTEMPTS)


def _try_transaction(store: Store, key: str, table: DeltaTable, *, name: str, version: int, writer: str, at_ms: int) -> bool:
    with store.failures(f"committing to {key}"):
        try:
            delta.swap(table, [], schema=pa.schema([]), mark=Mark(writer=writer), transactions=[(name, version)], at_ms=at_ms)
        except CommitFailedError:
            return False
        except REFUSALS as reason:
            raise OSError(str(reason)) from None
        if is_made_anew(store, key, int(table.version())):
            raise OSError("The log disappeared while it was written")
    return True
