"""The coordinator's own commits on message tables: files replaced or let go by one swap that the epoch fences (DESIGN 3.4, 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from spark_queue.errors import CoordinatorError
from spark_queue.journal import delta, log_entry
from spark_queue.journal.compare_and_swap import Proposal, TableHead
from spark_queue.journal.layout import Store, messages_key
from spark_queue.journal.message_log import Durability
from spark_queue.journal.message_table import open_messages


@dataclass(frozen=True, slots=True, kw_only=True)
class TableChange:
    """Files that come and files that go in one commit."""

    mark: delta.Mark
    #: Paths.
    removed: Sequence[str]
    added: Sequence[delta.NewFile] = ()


class MessageTableWork:
    """What one reign does to the table of one message type.

    Parameters
    ----------
    store : Store
        The journal's place.
    journal_id : str
        Its id.
    message_type : str
        Whose table.
    epoch : int
        The reign.
    now_ms : int
        Its time, in milliseconds since 1970 UTC.
    durability : Durability
        The control log; asked at each commit, since a merge takes longer than `apply`.

    Raises
    ------
    CoordinatorError
        COORDINATOR_DEPOSED, here and in every method, when a newer reign has worked on the table.
    JournalError
        JOURNAL_MISMATCH, STORE_FAILED.
    """

    def __init__(
        self, store: Store, journal_id: str, message_type: str, *, epoch: int, now_ms: int, durability: Durability
    ) -> None:
        self.store = store
        self.message_type = message_type
        self.key = messages_key(message_type)
        self.now_ms = now_ms
        self._epoch = epoch
        self._table = open_messages(store, journal_id, message_type)
        # Only a reign that has claimed the table is fenced by it.
        head = TableHead(store, self.key, self._table, lambda: durability.durable)
        head.draw(delta.COORDINATOR_TXN, lambda found: epoch if found < epoch else None, writer="coordinator", at_ms=now_ms)
        self._head = replace(head, fence=self._check_reign)
        self._check_reign()

    def refresh(self) -> None:
        """Read the head, and check that the reign still holds."""
        self._head.refresh()

    def schema(self) -> pa.Schema:
        """Give the table's columns."""
        exported: object = self._table.schema()
        return pa.schema(exported)  # type: ignore[arg-type]  # It speaks Arrow's C interface.

    def sizes(self) -> Mapping[str, int]:
        """Give the sizes of the table's files by path, in bytes."""
        actions = pa.table(self._table.get_add_actions(flatten=True))
        paths: list[Any] = actions.column("path").to_pylist()
        sizes: list[Any] = actions.column("size_bytes").to_pylist()
        return dict(zip(paths, sizes, strict=True))

    def commit(self, change: TableChange) -> bool:
        """Commit by a swap at the head; tells whether everything that goes still stood there.

        After a lost race the head is read anew and the change looked over again: a stale one would double rows (tried).

        Raises
        ------
        CoordinatorError
            COORDINATOR_DEPOSED.
        JournalError
            PUBLISH_CONTENDED, STORE_FAILED: the outcome may be unknown, which the next reading of the log settles.
        """
        self.refresh()
        return self._head.commit(partial(self._propose, change))

    def _propose(self, change: TableChange) -> Proposal | None:
        if not set(change.removed) <= self.sizes().keys():
            return None
        paths = [file.path for file in change.added]
        put = partial(self._swap, int(self._table.version()) + 1, change)
        return Proposal(token=change.mark.token, paths=paths, first=[f"{self.key}/{path}" for path in paths], put=put)

    def _swap(self, version: int, change: TableChange) -> bool:
        transactions = [(delta.COORDINATOR_TXN, self._epoch)]
        with self.store.failures(f"committing to {self.key}"):
            return log_entry.create_entry(
                self.store, self.key, version, change.added, mark=change.mark, transactions=transactions, at_ms=self.now_ms,
                removed=change.removed,
            )  # fmt: skip

    def _check_reign(self) -> None:
        found = self._table.transaction_version(delta.COORDINATOR_TXN)
        if found != self._epoch:
            reason = f"message type '{self.message_type}' carries epoch {found}"
            raise CoordinatorError("COORDINATOR_DEPOSED", epoch=self._epoch, path=self.store.path, reason=reason)
