"""A simulated world on the journal's own code: tables, files, merges, retention and publishers over an object store in memory.

Everything that `spark_queue.journal` does happens, down to the store's calls; only delta-rs is replaced (`simulated_table`). The
upkeep's thread is an actor of its own, so its plans are carried out whenever it likes, also after its reign.
"""

from __future__ import annotations

import errno
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_queue.core import replies
from spark_queue.core.definitions import parsing
from spark_queue.core.definitions.definition import Definitions
from spark_queue.core.records import Record
from spark_queue.journal import creation, delta, read_ahead, reader, record_blocks, upkeep
from spark_queue.journal.log_listing import first_unbroken
from spark_queue.journal.message_compaction import MergeLimits
from spark_queue.journal.message_log import DeltaMessageLog
from spark_queue.journal.message_upkeep import MessageLimits
from spark_queue.journal.open import DeltaJournal
from spark_queue.journal.store import CONTROL, messages_key
from spark_queue.ports import MessageLogEntry
from spark_queue.protocol import wire
from spark_queue.replication import peer_log
from tests.fake_clock import FakeClock
from tests.simulation import simulated_table
from tests.simulation.bucket import Bucket, LateCreateError, SimulatedStore
from tests.simulation.coordinator import QUEUE
from tests.simulation.loop_node import START_MS, HeardCall, KilledError, Node
from tests.simulation.loop_world import NESTED_MAX, TYPE, LoopWorld
from tests.simulation.publishers import Application, Publisher, is_marked
from tests.simulation.upkeep_thread import InlineReaders, UpkeepThread

#: How long nobody does anything, now and then: long enough for leftovers to be deleted.
NIGHT_MS = 25 * 3600 * 1000

_TABLE = messages_key(TYPE)


class Process(Protocol):
    """Whoever calls the store, until it dies."""

    alive: bool
    #: How much likelier than for others something happens at its steps.
    bad_luck: int
    #: How many of its next steps fail.
    outage: int


class DiskWorld(LoopWorld):
    """A world whose journal stands in a bucket; made inside `simulated_delta`."""

    #: Topics of its messages; all are in the queue.
    topics: tuple[str, ...] = ("T", "U")

    make_bucket: Callable[[Callable[[], int]], Bucket] = Bucket

    def _create(self) -> None:
        self.bucket = self.make_bucket(lambda: START_MS + self.elapsed_ms)
        self.definitions["message_types"][TYPE]["topics"] = list(self.topics)
        if len(self.topics) > 1:
            several = {"underlying_topic": f"^({'|'.join(self.topics)})$", "default_publish_target": self.topics[0]}
            self.definitions["queues"][QUEUE] |= several
        self.parsed = parsing.parse(self.definitions)
        self.threads: list[UpkeepThread] = []
        self._ways = self._messages = 0
        self._log: tuple[int, Sequence[Record]] = (0, [])
        self._read: dict[str, list[Any]] = {}
        #: Ids of the messages in the order of their bookmarks.
        self.order: list[int] = []
        self._ordered_entries = 0
        #: What executors would not have found where they were told to read it.
        self.misread: list[str] = []
        self.journal_id = creation.create_journal(self.way(None), self.parsed, clock=FakeClock(START_MS))
        self.publishers = self._make_publishers()

    @property
    def definitions_told(self) -> Definitions:
        """The definitions by which publishers write."""
        return self.parsed

    def _make_publishers(self) -> list[Publisher]:
        kinds = ("named", "stream", "plain", "appending", "intervals")
        return [Publisher(self, Application(name=kind, kind=kind, goes_back=0.1 if kind == "stream" else 0.0)) for kind in kinds]

    def way(self, process: Process | None) -> SimulatedStore:
        """Give a process its way to the bucket; nothing ever fails for None, which looks from outside."""
        self._ways += 1

        def hook(doing: str, moment: str) -> None:
            if process is not None:
                self._at_store(process, doing, moment)

        store = SimulatedStore(self.bucket, str(self._ways), hook)
        simulated_table.STORES[str(self._ways)] = store
        return store

    def open(self, node: Node) -> DeltaJournal:
        """Open the journal for a coordinator process, with its upkeep's thread."""
        merging = MergeLimits(files_min=2, files_due=2, target_bytes=8_000)
        journal = DeltaJournal(self.way(node), self.journal_id, limits=MessageLimits(merging=merging))
        thread = UpkeepThread(node)
        journal._upkeep._worker = thread  # type: ignore[assignment]  # As much of an executor as upkeep asks for.
        self.threads.append(thread)
        return journal

    @property
    def log(self) -> Sequence[Record]:
        """The committed records, whatever snapshots say."""
        version = len(self.bucket.tables[CONTROL])
        if self._log[0] != version:
            self._log = (version, reader.JournalReader(self.way(None), self.journal_id).records())
        return self._log[1]

    @property
    def epoch(self) -> int:
        """The newest reign, as the log has it."""
        return self.bucket.epoch

    @property
    def message_log(self) -> Iterable[MessageLogEntry]:
        """What was committed to the message table, as far as it was not cleaned away."""
        store = self.way(None)
        # A commit that landed where nobody looks is none of it.
        first = first_unbroken(store, _TABLE, len(self.bucket.tables[_TABLE]) - 1)
        return DeltaMessageLog(store, TYPE, is_durable=lambda: False).tail(first - 1)

    def new_messages(self, count: int) -> list[int]:
        """Draw ids of new messages."""
        self._messages += count
        return list(range(self._messages - count, self._messages))

    def is_barrier(self, bookmark: int) -> bool:
        """Return whether a message was published as a barrier."""
        return "barrier" in self.settings and is_marked(self.order[bookmark])

    def publish(self, messages: int) -> None:
        """Let a publisher go on."""
        self.random.choice(self.publishers).step()

    def note_answer(self, call: HeardCall, reply: wire.AnyReply | None, pieces: pa.Table | None) -> None:
        """Look whether what executors are told to read stands there, beside what every world notes."""
        super().note_answer(call, reply, pieces)
        if isinstance(reply, replies.RowsOf | replies.Granted) and pieces is not None:
            self.note_order()
            for path, first_row, rows, bookmark in zip(*(pieces.column(name).to_pylist() for name in _PLACES), strict=True):
                found = self._ids(path)[first_row : first_row + rows] if self._stands(path) else []
                if found != self.order[bookmark : bookmark + rows]:
                    self.misread.append(f"{bookmark} and {rows - 1} more in {path}: {found}")

    def step(self) -> None:
        """Let something happen."""
        draw = self.random.random()
        working = [thread for thread in self.threads if thread.is_waiting]
        if draw < 0.1 and working:
            self.random.choice(working).go_on()
        elif draw < 0.13:
            self.publish(1)
        elif draw < 0.14 and not self._nested:
            # No request is under way for a day.
            self.bucket.late.clear()
            self.advance(NIGHT_MS)
        else:
            super().step()

    def _trouble(self) -> None:
        # Upkeep is for reigns that last.
        if self.random.random() < 0.4:
            super()._trouble()

    def drain(self, *, rounds: int = 4_000) -> None:
        """Stop all trouble, let every publisher finish, and everything reach its end under one last coordinator."""
        self.troubled = False
        self.bucket.late.clear()
        while not all(publisher.is_done for publisher in self.publishers):
            for publisher in self.publishers:
                publisher.finish()
        super().drain(rounds=rounds)

    def is_empty(self) -> bool:
        """Return whether every message entered and reached its end."""
        self.note_order()
        return super().is_empty() and self.reigning.message_types[TYPE].entered_until == len(self.order)

    def _trouble_store(self, *, land: bool) -> None:
        if land and self.bucket.late:
            self.bucket.land()

    def _at_store(self, process: Process, doing: str, moment: str) -> None:
        if not process.alive:
            raise KilledError
        if not self.troubled:
            return
        if process.outage:
            process.outage -= 1
            raise OSError(errno.EIO, "the store does not answer")
        draw = self.random.random() / process.bad_luck
        if draw < 0.0003:
            process.alive = False
            raise KilledError
        if draw < 0.0012:
            late = doing.startswith("creating") and "_delta_log" in doing and moment == "before" and self.random.random() < 0.5
            process.outage = self.random.choice((0, 0, 8))
            raise LateCreateError("late") if late else OSError(errno.EIO, "the store did not answer")
        if draw < 0.006 and self._nested < NESTED_MAX:
            self._meanwhile()
            if not process.alive:
                raise KilledError

    def note_order(self) -> None:
        """Read on which messages stand in the log, from the entries as they were written."""
        entries = self.bucket.entries[_TABLE]
        for entry in entries[self._ordered_entries :]:
            for action in map(msgspec.json.decode, entry.splitlines()):
                if action.get("add", {}).get("dataChange"):
                    self.order += self._ids(action["add"]["path"])
        self._ordered_entries = len(entries)

    def _ids(self, path: str) -> list[Any]:
        if path not in self._read:
            self._read[path] = self._column(path, "n")
        return self._read[path]

    def _column(self, path: str, name: str) -> list[Any]:
        file = pq.ParquetFile(pa.BufferReader(self.bucket.files[f"{_TABLE}/{path}"]))
        if name not in file.schema_arrow.names:
            return [None] * file.metadata.num_rows
        return file.read(columns=[name], use_threads=False).column(name).to_pylist()

    def _stands(self, path: str) -> bool:
        key = f"{_TABLE}/{path}"
        return key in self.bucket.objects and self.bucket.objects[key][0] == self.bucket.files[key]


_PLACES = ("path", "first_row", "rows", "bookmark")


@contextmanager
def simulated_delta(world_random: Callable[[int], int]) -> Iterator[None]:
    """Put simulated tables in delta-rs's place, let names be drawn from a seed, and let upkeep be due soon."""
    known: dict[str, pa.Table] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delta, "DeltaTable", simulated_table.SimulatedTable)
        patch.setattr(delta, "back_off", lambda attempt: None)
        patch.setattr(read_ahead, "ThreadPoolExecutor", InlineReaders)
        patch.setattr(peer_log, "_AHEAD", 1)
        for module in (record_blocks, reader, peer_log):
            patch.setattr(module, "read_known", simulated_table.known_files(record_blocks.read_known, known))
        patch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=world_random(128), version=4))
        patch.setattr(upkeep, "CONTROL_CHECKPOINT_COMMITS", 4)
        patch.setattr(upkeep, "CONTROL_KEPT_COMMITS", 2)
        patch.setattr(upkeep, "CONTROL_KEPT_MS", 0)
        patch.setattr(upkeep, "MESSAGES_CHECKPOINT_COMMITS", 3)
        patch.setattr(upkeep, "SNAPSHOT_RECORDS", 25)
        patch.setattr(peer_log, "LISTING_LOOKS", 2)
        yield
        simulated_table.STORES.clear()
