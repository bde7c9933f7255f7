"""Committing a Delta transaction id alone, which draws names and epochs (DESIGN 3.4, 15.4)."""

from __future__ import annotations

from collections.abc import Callable

from spark_queue.errors import JournalError
from spark_queue.journal import delta
from spark_queue.journal.delta_head import DeltaHead
from spark_queue.journal.entry_parts import Mark
from spark_queue.journal.store import Store, log_key

_TRANSACTION_ATTEMPTS = 100


def commit_transaction(
    store: Store,
    key: str,
    head: DeltaHead,
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
        found = head.transaction_version(name) or 0
        wanted = version(found)
        base = head.version
        if durable:
            # Also where nothing is committed: whoever committed what was found may have been killed before it reached the disk.
            store.sync([log_key(key, base)])
        if wanted is None:
            return found
        won = head.put([], mark=Mark(writer=writer), transactions={name: wanted}, at_ms=at_ms)
        if won and durable:
            # Lost with the power, the number would be drawn again while its holder lives on, on another host.
            store.sync([log_key(key, base + 1)])
        if won and head.follow_own():
            return wanted
        # Another came first, or the own one may stand where nobody looks: whoever drew the number meanwhile has it.
        delta.back_off(attempt)
        if not head.read_on():
            table = delta.open_table(store, key)
            if table is None:
                facts = {"doing": f"committing to {key}", "reason": "The log disappeared while it was written."}
                raise JournalError("STORE_FAILED", path=store.path, **facts, next_step="Check the store, then try again.")
            head.reset(table)
    raise JournalError("PUBLISH_CONTENDED", path=store.uri(key), attempts=_TRANSACTION_ATTEMPTS)
