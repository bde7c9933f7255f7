"""The coordinator's own commits on message tables: files replaced or let go by one swap that the epoch fences (DESIGN 3.4, 4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from spark_queue.errors import CoordinatorError, JournalError, SparkQueueError
from spark_queue.journal import delta, entry_writing
from spark_queue.journal.delta_head import DeltaHead
from spark_queue.journal.entry_parts import COORDINATOR_TXN, Mark, NewFile
from spark_queue.journal.message_table import arrow_schema, open_messages
from spark_queue.journal.store import Store, log_key, messages_key
from spark_queue.journal.transaction import commit_transaction

#: Races with publishers that one commit may lose.
_ATTEMPTS = 200


class MessageTableWork:
    """Work of the reign `epoch` on the table of one message type; `now_ms` is its time, in milliseconds since 1970 UTC.

    `is_durable` returns whether commits must survive power loss; it is asked at each, since a merge lasts longer than `apply`.
    """

    def __init__(
        self, store: Store, journal_id: str, message_type: str, *, epoch: int, now_ms: int, is_durable: Callable[[], bool]
    ) -> None:
        self.store = store
        self.message_type = message_type
        self.key = messages_key(message_type)
        self.now_ms = now_ms
        self._epoch = epoch
        self._is_durable = is_durable
        self._table = open_messages(store, journal_id, message_type)
        found = commit_transaction(
            store,
            self.key,
            DeltaHead(store, self.key, self._table),
            name=COORDINATOR_TXN,
            version=lambda newest: epoch if newest < epoch else None,
            writer="coordinator",
            at_ms=now_ms,
            durable=is_durable(),
        )
        if found != epoch:
            raise self._deposed(f"message type '{message_type}' carries epoch {found}")

    def refresh(self) -> None:
        """Read the head, and check that the reign still holds."""
        delta.refresh(self.store, self.key, self._table)
        found = self._table.transaction_version(COORDINATOR_TXN)
        if found != self._epoch:
            raise self._deposed(f"message type '{self.message_type}' carries epoch {found}")

    def schema(self) -> pa.Schema:
        """Return the table's columns."""
        return arrow_schema(self._table)

    def sizes(self) -> Mapping[str, int]:
        """Return the sizes of the table's files by path, in bytes."""
        actions = pa.table(self._table.get_add_actions(flatten=True))
        paths: list[Any] = actions.column("path").to_pylist()
        sizes: list[Any] = actions.column("size_bytes").to_pylist()
        return dict(zip(paths, sizes, strict=True))

    def commit(self, mark: Mark, *, removed: Sequence[str], added: Sequence[NewFile] = ()) -> bool:
        """Commit that paths go and files come by a swap at the head; returns whether all that goes still stood there.

        After a lost race the head is read anew and the change looked over again: a stale one would double rows (tried).
        """
        for attempt in range(_ATTEMPTS):
            self.refresh()
            if not set(removed) <= self.sizes().keys():
                return False
            base = int(self._table.version())
            if self._swap(base + 1, mark, removed, added):
                self._check_landed(base, removed, added)
                return True
            delta.back_off(attempt)
        raise JournalError("PUBLISH_CONTENDED", path=self.store.uri(self.key), attempts=_ATTEMPTS)

    def _swap(self, version: int, mark: Mark, removed: Sequence[str], added: Sequence[NewFile]) -> bool:
        durable = self._is_durable()
        if durable:
            self.store.sync([*(f"{self.key}/{file.path}" for file in added), log_key(self.key, version - 1)])
        with self.store.failures(f"committing to {self.key}"):
            created = entry_writing.create_entry(
                self.store, self.key, version, added, mark=mark, epoch=self._epoch, at_ms=self.now_ms, removed=removed
            )
        if created is not None and durable:
            self.store.sync([log_key(self.key, version)])
        return created is not None

    def _check_landed(self, base: int, removed: Sequence[str], added: Sequence[NewFile]) -> None:
        """Look whether the commit is where readers look: after a pause its version may have been cleaned away (DESIGN 3.4)."""
        self.refresh()
        standing = self.sizes().keys()
        seen = all(file.path in standing for file in added) and not any(path in standing for path in removed)
        if not seen:
            raise self._deposed(f"its commit after version {base} of {self.key} cannot be found")

    def _deposed(self, reason: str) -> SparkQueueError:
        return CoordinatorError("COORDINATOR_DEPOSED", epoch=self._epoch, path=self.store.path, reason=reason)
