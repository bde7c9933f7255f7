"""A coordinator process with one thing wrong: `python -m tests.integration.faulty_coordinator FAULTS` takes orders as the real one.

FAULTS is JSON, see `Faults`. Nothing of this is in the product: the process is the real one, put together with a journal, a
clock or a host that misbehaves.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Sequence
from typing import Any
from unittest import mock

import msgspec

from spark_queue.clock import SystemClock
from spark_queue.coordinator import __main__ as entry
from spark_queue.coordinator import election, process
from spark_queue.core.records import Record
from spark_queue.journal import entry_writing, upkeep
from spark_queue.journal.entering import Sequencer
from spark_queue.journal.log_entry import LogEntry
from spark_queue.journal.message_compaction import MergeLimits
from spark_queue.journal.message_upkeep import MessageLimits
from spark_queue.journal.message_work import MessageTableWork
from spark_queue.journal.open import DeltaJournal, open_journal
from spark_queue.journal.store import Store
from spark_queue.protocol import discovery
from spark_queue.protocol.host import host_id


class Faults(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong."""

    #: Where in a commit the process kills itself: before it, staged (about to write the log entry), committed (log entry
    #: written, not checked), or answerless (all done, no reply sent).
    die: str | None = None
    #: Where in the merging of the control log's files it kills itself: planned (files written, no log entry), committed (log
    #: entry written, not checked), or done.
    die_merging: str | None = None
    #: Commits after which the control log is kept in order.
    upkeep_commits: int = upkeep.CONTROL_CHECKPOINT_COMMITS
    #: How long its records stand in entries alone, in milliseconds.
    flush_ms: int = upkeep.FLUSH_MS
    #: Stop, as by `kill -STOP`, just before putting the log entry; go on from there when continued.
    stall: bool = False
    #: Only in a commit that holds a record of this kind.
    at_kind: str = "granted"
    #: Fewest message files that are merged, where it is not to be as usual.
    merge_files: int | None = None
    #: Where the work on a message table kills the process: written (merged file staged, no log entry) or swapped (log entry
    #: written, not recorded); and where it stops itself: planned (before the head is read) or swap (just before the log entry).
    die_working: str | None = None
    stall_working: str | None = None
    #: How far the wall clock is off, in milliseconds.
    clock_offset_ms: int = 0
    #: Another host's name.
    host: str | None = None
    #: Shorter patience, in seconds, where the length of the wait is not what is tested.
    silence_s: float = election.SILENCE_S
    watch_s: float = election.WATCH_S
    #: How often it renews its hint, in seconds.
    renewal_s: float = discovery.RENEWAL_S


class OffsetClock(SystemClock):
    """The host's clock, set wrongly."""

    def __init__(self, offset_ms: int) -> None:
        self._offset_ms = offset_ms

    def wall_ms(self) -> int:
        return super().wall_ms() + self._offset_ms


class FaultyControl:
    """A control log whose process dies or stalls at one point of one commit."""

    def __init__(self, inner: Any, faults: Faults) -> None:
        self._inner = inner
        self._faults = faults

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def append(self, records: Sequence[Record], *, epoch: int) -> None:
        if not any(record.kind == self._faults.at_kind for record in records):
            self._inner.append(records, epoch=epoch)
            return
        if self._faults.die == "before":
            die()
        with mock.patch.object(entry_writing, "create_entry", self._create_entry):
            self._inner.append(records, epoch=epoch)
        if self._faults.die is not None:
            die()

    def flush(self, merge: Any = None, *, epoch: int, at_ms: int) -> None:
        """Stand in for the log's own `flush`, which upkeep calls."""
        if merge is None:
            self._inner.flush(epoch=epoch, at_ms=at_ms)
            return
        if self._faults.die_merging == "planned":
            die()
        with mock.patch.object(entry_writing, "create_entry", self._create_merge):
            self._inner.flush(merge, epoch=epoch, at_ms=at_ms)
        if self._faults.die_merging == "done":
            die()

    def _create_merge(self, *given: Any, **options: Any) -> LogEntry | None:
        created = CREATE_ENTRY(*given, **options)
        if self._faults.die_merging == "committed":
            die()
        return created

    def _create_entry(self, *given: Any, **options: Any) -> LogEntry | None:
        if self._faults.die == "staged":
            die()
        if self._faults.stall:
            stall()
        created = CREATE_ENTRY(*given, **options)
        if self._faults.die == "committed":
            die()
        return created


def faulty_work(faults: Faults) -> dict[str, Any]:
    """Return methods of `MessageTableWork` that die or stall at one point."""
    commit_table, swap_table = MessageTableWork.commit, MessageTableWork._swap

    def commit(work: MessageTableWork, *given: Any, **options: Any) -> bool:
        if faults.die_working == "written":
            die()
        if faults.stall_working == "planned":
            stall()
        return commit_table(work, *given, **options)

    def swap(work: MessageTableWork, *given: Any) -> bool:
        if faults.stall_working == "swap":
            stall()
        if faults.die_working != "swapped":
            return swap_table(work, *given)
        # The loop's thread goes on meanwhile, and would record the entry as soon as it stands.
        with READING:
            created = swap_table(work, *given)
            if created:
                die()
        return created

    return {"commit": commit, "_swap": swap}


def admit(entrance: Sequencer, *given: Any, **options: Any) -> bool:
    """Stand in for `Sequencer.admit`, which reads the message log, unless somebody is about to die over it."""
    with READING:
        return ADMIT(entrance, *given, **options)


#: Held by whoever reads or writes message logs.
READING = threading.Lock()

ADMIT = Sequencer.admit

CREATE_ENTRY = entry_writing.create_entry


def die() -> None:
    """End as by `kill -9`."""
    os.kill(os.getpid(), signal.SIGKILL)


def stall() -> None:
    """Stop the process here: a signal to the process stops its main thread first, and the calling one goes on for a while."""
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


def main(faults: Faults) -> int:
    """Run the real process in a faulty environment."""

    def open_faulty(store: Store) -> DeltaJournal:
        limits = None
        if faults.merge_files is not None:
            limits = MessageLimits(merging=MergeLimits(files_min=faults.merge_files, files_due=faults.merge_files))
        journal = open_journal(store, limits=limits)
        if faults.die is not None or faults.stall:
            journal.control = FaultyControl(journal.control, faults)
        upkeep_control: Any = FaultyControl(journal._upkeep._control, faults)
        journal._upkeep._control = upkeep_control
        return journal

    environment = process.Environment(
        open_journal=open_faulty, clock=OffsetClock(faults.clock_offset_ms), host=faults.host or host_id()
    )
    serve = process.serve
    with (
        mock.patch.multiple(MessageTableWork, **faulty_work(faults)),
        mock.patch.object(Sequencer, "admit", admit),
        mock.patch.object(election, "SILENCE_S", faults.silence_s),
        mock.patch.object(election, "WATCH_S", faults.watch_s),
        mock.patch.object(upkeep, "CONTROL_CHECKPOINT_COMMITS", faults.upkeep_commits),
        mock.patch.object(upkeep, "FLUSH_MS", faults.flush_ms),
        mock.patch.object(discovery, "RENEWAL_S", faults.renewal_s),
        mock.patch.object(entry, "serve", lambda orders, announce, _environment: serve(orders, announce, environment)),
    ):
        return entry.main()


if __name__ == "__main__":
    sys.exit(main(msgspec.json.decode(sys.argv[1], type=Faults)))
