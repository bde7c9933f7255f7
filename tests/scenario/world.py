"""What a scenario acts on: a coordinator that may crash, its log in memory, planners, and their checkpoints."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from spark_queue.core import folds
from spark_queue.core.commands import AnyCommand
from spark_queue.core.engine import Engine
from spark_queue.core.message_files.origins import joined
from spark_queue.core.message_files.relocation import moved_record
from spark_queue.core.message_files.segment import Segment, stretches
from spark_queue.core.records import ClashingRows, Incarnation, Kind, MergedFile, MovedRows, OriginRows, Record
from spark_queue.core.state.journal_state import JournalState
from spark_queue.journal.state_codec import decode, encode
from tests.deciding import claim
from tests.fake_clock import FakeClock
from tests.records import record_of
from tests.scenario.traits import MemoryTraits, PublishedMessage


def _file_name(of: str) -> str:
    return f"{hashlib.md5(of.encode(), usedforsecurity=False).hexdigest()}.parquet"


@dataclass(slots=True, kw_only=True)
class Planner:
    """One planner start."""

    queue: str
    subscription: str
    incarnation: Incarnation
    at_most_once: bool
    max_backlog: int
    ack_mode: str
    filter_sql: str | None
    available_now: bool
    #: Of a receiver: whether its subscription ends with it.
    ends: bool = False
    call: int = 0


@dataclass(slots=True)
class World:
    """A journal without a disk."""

    clock: FakeClock = field(default_factory=FakeClock)
    traits: MemoryTraits = field(default_factory=MemoryTraits)
    #: The control log: what a crash leaves.
    committed: list[Record] = field(default_factory=list)
    #: A state as snapshots hold it, and the number of records that it has folded.
    snapshot: tuple[bytes, int] | None = None
    planners: dict[str, Planner] = field(default_factory=dict)
    #: What executions of fn speak for: queue, subscription and run.
    runs: dict[str, dict[str, Any]] = field(default_factory=dict)
    #: The newest lease in Spark's offset log, by queue and subscription; Spark keeps it, whatever happens here.
    checkpoints: dict[tuple[str, str], int] = field(default_factory=dict)
    #: What the journal is called, where there are several.
    journal_id: str = "scenario"
    engine: Engine = field(init=False)

    def __post_init__(self) -> None:
        created = record_of(
            kind=Kind.JOURNAL_CREATED, record=0, at_ms=self.now_ms, detail={"journal": self.journal_id, "format": 1}
        )
        self.committed.append(created)
        self.recover()

    @property
    def now_ms(self) -> int:
        """The coordinator's time."""
        return self.clock.wall_ms()

    @property
    def state(self) -> JournalState:
        """The state that stands."""
        return self.engine.state

    def decide(self, command: AnyCommand) -> Any:
        """Let the engine decide about a command now; returns the reply."""
        return self.engine.decide(command, now_ms=self.now_ms)

    def folded(self) -> JournalState:
        """Fold the committed records from the beginning."""
        state = JournalState(self.traits)
        folds.fold_all(state, self.committed)
        return state

    def restored(self) -> JournalState:
        """Fold on from a snapshot that was taken some lines ago, when message files stood elsewhere; then perhaps take one."""
        state, records = JournalState(self.traits), self.committed
        if self.snapshot is not None:
            data, number = self.snapshot
            state, records = decode(data), records[number:]
            state.traits = self.traits
        folds.fold_all(state, records)
        # Another distance from line to line, and the same for the same scenario; a state with a gap is never kept.
        if len(self.committed) % 4 == 0 and not state.troubles:
            self.snapshot = encode(state), len(self.committed)
        return state

    def commit(self) -> None:
        """Make durable what was decided since the last commit; files that nothing names any more are gone at once."""
        self.committed.extend(self.engine.drain_records())
        for known in self.state.message_types.values():
            for path in list(known.replaced):
                self.traits.remove(path)

    def recover(self) -> None:
        """Start the next coordinator."""
        self.engine = Engine(self.folded())
        epoch = self.engine.state.epoch + 1
        claim(self.engine, epoch=epoch, host="here", address="memory", pid=1, now_ms=self.now_ms)
        self.engine.take_over(now_ms=self.now_ms)
        self.commit()

    def begin_again(self) -> None:
        """Let the coordinator fold what it has committed, as after a fault of a queue, and when one is revived."""
        self.commit()
        self.engine.begin_again(self.folded())
        self.engine.take_over(now_ms=self.now_ms)
        self.engine.expire(now_ms=self.now_ms)

    def merge(self, message_type: str) -> None:
        """Put all messages of a type into one file, but what is retired and what stands before it: neighbours are merged."""
        known = self.state.message_types[message_type]
        files = stretches(known.segments)
        files = files[max((number for number, file in enumerate(files, start=1) if file.retired), default=0) :]
        parts = [
            MovedRows(path=file.path, first_row=file.first_row, row_count=file.row_count, bookmark=file.first) for file in files
        ]
        merged = MergedFile(path=_file_name(f"{message_type}, merged {known.version}"), parts=tuple(parts))
        self.traits.add(merged.path, [message for file in files for message in self.traits.messages(file)])
        version = known.version + 1
        self.engine.note(
            [moved_record(message_type, version=version, token=f"token-{version}", files=[merged])], now_ms=self.now_ms
        )

    def publish(
        self,
        message_type: str,
        messages: Sequence[PublishedMessage],
        *,
        origins: Sequence[OriginRows] = (),
        instances: Mapping[str, str] = MappingProxyType({}),
        clashes: Sequence[ClashingRows] = (),
        waited_ms: int = 0,
        delay_ms: int | None = None,
    ) -> None:
        """Let one message file enter, perhaps of messages that were pulled, that waited for a coordinator, or with a delay."""
        known = self.state.message_types[message_type]
        path = _file_name(f"{message_type} {known.entered_until}")
        self.traits.add(path, messages)
        topics = [message.topic for message in messages]
        named = [{each.publisher: (each.sequence, each.sequence)} for each in messages if each.publisher is not None]
        times = [message.expires_at_ms for message in messages if message.expires_at_ms is not None]
        segment = Segment(
            message_type=message_type,
            first=known.entered_until,
            until=known.entered_until + len(messages),
            path=path,
            version=known.version + 1,
            token=f"token-{known.version + 1}",
            entered_at_ms=self.now_ms,
            published_at_ms=self.now_ms - waited_ms,
            topic_min=min(topics),
            topic_max=max(topics),
            expires_null_count=len(messages) - len(times),
            expires_min_ms=min(times, default=None),
            expires_max_ms=max(times, default=None),
            due_at_ms=None if delay_ms is None else self.now_ms - waited_ms + delay_ms,
            origins=tuple(origins),
            instances=instances,
            publishers=joined(named),
            clashes=tuple(clashes),
        )
        self.engine.enter([segment], now_ms=self.now_ms)
