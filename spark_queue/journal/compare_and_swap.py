"""One commit as a compare-and-swap that outlives a power loss.

Each step keeps a sentence of `PROTOCOL.md`, section 6:

1. Who opens a table for writing replaces a torn head first (`recovery`), so that no commit stands on one: "two torn entries, or one
   that is not the head, are damage".
2. The head is synced before anything rests on it, a commit or the answer that none is needed: "a writer of any log [syncs] the
   entry that it commits on". The control log's one writer has synced what it loaded, and by step 6 what it committed.
3. "Data file, its directory, log entry and its directory are synced in that order". Message files are synced as they are staged,
   wherever that is; `Proposal.first` names all others.
4. Put-if-absent, once. Refused, failed, or done with the reply lost: only step 5 tells, and nothing is decided or answered before.
5. A look at the log: in a message table the own token tells; the control log's writer must end unless its commit is the last.
6. The own entry is synced "before success". If that fails the outcome is unknown: a second sync may succeed without the bytes.
7. A lost race is decided anew, on a head that another need not have synced: step 2 again.

Whether a commit is `durable` is asked at each step: it may have begun before the one that "turns "os" into "fsync"".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from spark_queue.errors import JournalError
from spark_queue.journal import delta
from spark_queue.journal.layout import Store, log_key
from spark_queue.journal.log_entry import LogEntry, TornEntryError, read_entry
from spark_queue.journal.log_listing import versions_after

#: Lost races in a row after which a commit is given up, and failures that no race explains.
RACES_LIMIT = 200
FAILURES_LIMIT = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """What is to be committed, decided on one version of a log."""

    #: Of the mark; one for all attempts: a first one whose reply was lost may land during a later one.
    token: str
    #: Puts the entry after that version, if there is none.
    put: Callable[[], object]
    #: Paths of the files that it adds, and keys of those that nobody has synced.
    paths: Sequence[str] = ()
    first: Sequence[str] = ()


def compare_and_swap(
    store: Store, entry: str, proposal: Proposal, *, stands: Callable[[], bool], durable: Callable[[], bool]
) -> str | None:
    """Put the entry of that key (steps 3 to 6); gives None once it `stands`, or why it does not.

    Raises
    ------
    JournalError
        STORE_FAILED: the outcome may be unknown.
    """
    if durable():
        store.sync(proposal.first)
    reason = "The commit is not to be seen."
    try:
        proposal.put()
    except (DeltaError, OSError) as failure:
        reason = store.reason(failure)
    if not stands():
        return reason
    if durable():
        store.sync([entry])
    return None


@dataclass(frozen=True, slots=True)
class TableHead:
    """The head of a table that several write to, as one of them sees it."""

    store: Store
    #: The table's folder, and a handle that `recovery` has opened.
    key: str
    table: DeltaTable
    durable: Callable[[], bool]
    #: Raises where `table` shows that the writer must end.
    fence: Callable[[], None] = lambda: None
    #: What STORE_FAILED says; of the table where nothing else is given.
    doing: str = ""
    next_step: str = "Check the store, then try again."

    def commit(self, decide: Callable[[], Proposal | None]) -> bool:
        """Commit what is decided at the head, and decided anew after a lost race; tell whether there was anything to commit.

        Raises
        ------
        JournalError
            PUBLISH_CONTENDED; STORE_FAILED: the outcome may be unknown.
        """
        races = failures = 0
        while True:
            proposal, base = decide(), int(self.table.version())
            if self.durable():
                self.store.sync([log_key(self.key, base)])
            if proposal is None:
                return False
            stands = partial(self._stands, base, proposal)
            try:
                reason = compare_and_swap(self.store, log_key(self.key, base + 1), proposal, stands=stands, durable=self.durable)
            except JournalError as trouble:
                raise self._unknown(str(trouble.facts["reason"])) if trouble.code == "STORE_FAILED" else trouble from None
            if reason is None:
                return True
            races, failures = (races + 1, 0) if int(self.table.version()) > base else (races, failures + 1)
            if races >= RACES_LIMIT:
                raise JournalError("PUBLISH_CONTENDED", path=self.store.uri(self.key), attempts=races)
            if failures >= FAILURES_LIMIT:
                raise self._unknown(reason)
            delta.back_off(races + failures)

    def draw(self, name: str, version: Callable[[int], int | None], *, writer: str, at_ms: int) -> int:
        """Commit a transaction id alone and give its version, or the one found: how names and epochs are drawn (DESIGN 3.4, 15.4).

        `version` is given the one found, 0 for none, and gives the one to commit or None; it is asked again after a lost race.
        """
        mark, drawn = delta.Mark(writer=writer), 0

        def decide() -> Proposal | None:
            nonlocal drawn
            found = self.table.transaction_version(name) or 0
            wanted = version(found)
            drawn = found if wanted is None else wanted
            put = partial(delta.swap, self.table, [], schema=pa.schema([]), mark=mark, transactions=[(name, drawn)], at_ms=at_ms)
            return None if wanted is None else Proposal(token=mark.token, put=put)

        if self.commit(decide) and self.table.transaction_version(name) != drawn:
            # Another drew the next one before this one was looked for: whoever is given a number is the newest by then.
            return self.draw(name, version, writer=writer, at_ms=at_ms)
        return drawn

    def entry(self, version: int) -> LogEntry | None:
        """Give one entry of the log; None where there is none, or none that is whole."""
        try:
            return read_entry(self.store, self.key, version)
        except TornEntryError:
            return None

    def refresh(self) -> None:
        """Bring the handle to the head, and heed the fence."""
        delta.refresh(self.store, self.key, self.table)
        self.fence()

    def _stands(self, base: int, proposal: Proposal) -> bool:
        failures = 0
        while True:
            try:
                self.refresh()
                return self._has_landed(base, proposal)
            except JournalError as trouble:
                failures += 1
                if trouble.code != "STORE_FAILED" or failures >= FAILURES_LIMIT:
                    raise
            delta.back_off(failures)

    def _has_landed(self, base: int, proposal: Proposal) -> bool:
        entry, head = self.entry(base + 1), int(self.table.version())
        if entry is not None and entry.token != proposal.token:
            return False
        if entry is not None and (head == base + 1 or self.entry(base) is not None):
            return True
        if entry is None and head == base:
            return False
        # Entries were cleaned away during a pause: this one too after it had landed, or those around it before, so that it
        # landed where nobody looks (tried). Whether its files are in the table tells, or were: they may have been merged since.
        later = map(self.entry, versions_after(self.store, self.key, base))
        taken_away = {remove["path"] for entry in later if entry is not None for remove in entry.removes}
        known = set(self.table.get_add_actions().column("path").to_pylist()) | taken_away
        return bool(proposal.paths) and known.issuperset(proposal.paths)

    def _unknown(self, reason: str) -> JournalError:
        doing = self.doing or f"committing to {self.key}"
        return JournalError("STORE_FAILED", path=self.store.path, doing=doing, reason=reason, next_step=self.next_step)
