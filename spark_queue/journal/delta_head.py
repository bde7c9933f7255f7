"""The head of a Delta log as a writer keeps it from one commit to the next (DESIGN 4).

delta-rs lists and reads a log before and after each commit. A writer that keeps the head reads what came since, entry by entry, and
commits by one put. If the entry before it still stands afterwards, the version was never another's: entries are cleaned away oldest
first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import DeltaTable

from spark_queue.clock import SystemClock
from spark_queue.errors import JournalError
from spark_queue.journal import delta, entry_writing, log_entry
from spark_queue.journal.entry_parts import Mark, NewFile
from spark_queue.journal.store import Store, log_key

if TYPE_CHECKING:
    from spark_queue.ports import Clock

#: The age of a head after which it is read on before anything is put behind it, in milliseconds: entries stand for ten minutes.
_OLD_MS = 60_000

#: Entries that are read one by one; behind more, the newest checkpoint is nearer.
_READ_ON_MOST = 100


class DeltaHead:
    """The newest version of a table's log, as far as it was read here; for one thread at a time.

    Attributes
    ----------
    table : DeltaTable
        The handle by which the log was opened; it may know older commits only.
    version : int
        The newest version that was read, or committed here.
    fitting : pyarrow.Schema, optional
        The columns of files that a writer has found to fit the table.
    """

    table: DeltaTable
    version: int
    fitting: pa.Schema | None

    @property
    def is_old(self) -> bool:
        """Whether nobody has read it for so long that its entry may have been cleaned away."""
        return self.age_ms > _OLD_MS

    @property
    def age_ms(self) -> int:
        """How long ago it was read, in milliseconds."""
        return self._clock.monotonic_ms() - self._read_at_ms

    def __init__(self, store: Store, key: str, table: DeltaTable, *, clock: Clock | None = None) -> None:
        self._store = store
        self._key = key
        self._clock = clock or SystemClock()
        self.reset(table)

    def reset(self, table: DeltaTable) -> None:
        """Begin anew at the version of a handle."""
        self.table, self.version, self.fitting = table, int(table.version()), None
        #: The bytes of the head's entry, and of the one that was put behind it last.
        self._entry, self._own = self._store.read(log_key(self._key, self.version)) or b"", b""
        self._read_at_ms = self._clock.monotonic_ms()
        #: By id: of commits since the handle, and what it said when it was asked.
        self._transactions: dict[str, int | None] = {}
        self._own_transactions: Mapping[str, int] = {}

    def transaction_version(self, name: str) -> int | None:
        """Return the newest version of a transaction id; None where there is none."""
        if name not in self._transactions:
            if self.table.version() < self.version:
                # What an old handle needs to answer may be cleaned away.
                delta.refresh(self._store, self._key, self.table)
            try:
                self._transactions[name] = self.table.transaction_version(name)
            except delta.REFUSALS as reason:
                # It reads the log anew.
                facts = {"doing": f"reading the log of {self._key}", "reason": self._store.reason(reason)}
                raise JournalError("STORE_FAILED", path=self._store.path, **facts, next_step="Try again.") from None
        return self._transactions[name]

    def stands(self) -> bool:
        """Return whether the entry of the head is there as it was read; another one is of a table that was made anew."""
        return bool(self._entry) and self._store.read(log_key(self._key, self.version)) == self._entry

    def read_on(self) -> bool:
        """Read the commits since, entry by entry; returns False where the log has to be opened anew."""
        if not self.stands():
            return False
        self._read_at_ms, begun = self._clock.monotonic_ms(), self.version
        while (data := self._store.read(log_key(self._key, self.version + 1))) is not None:
            try:
                entry = log_entry.parse_entry(self.version + 1, data)
            except log_entry.TornEntryError:
                return False
            if entry.changes_table or self.version - begun >= _READ_ON_MOST:
                return False
            self._advance(data, entry.transactions)
        return True

    def put(self, files: Sequence[NewFile], *, mark: Mark, transactions: Mapping[str, int], at_ms: int) -> bool:
        """Commit as the version after the head; returns whether there was none before this call. The head itself stays."""
        self._own = entry_writing.entry_bytes(files, mark=mark, epoch=None, at_ms=at_ms, transactions=transactions)
        self._own_transactions = transactions
        return self._store.create(log_key(self._key, self.version + 1), self._own)

    def follow_own(self) -> bool:
        """Take the entry that was put last for the head, if the one before it still stands; returns whether it does."""
        if not self.stands():
            return False
        self._advance(self._own, self._own_transactions)
        return True

    def _advance(self, data: bytes, transactions: Mapping[str, int]) -> None:
        self.version, self._entry, self._read_at_ms = self.version + 1, data, self._clock.monotonic_ms()
        self._transactions |= transactions
