"""The ports: a journal and a clock as the coordinator, views and tools need them.

The real implementations are in `spark_queue.journal`; tests have others in memory, and one contract suite runs over both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from pyroaring import BitMap64

from spark_queue.core.definitions.definition import MessageTypeDefinition
from spark_queue.core.log_tail import LogTail
from spark_queue.core.message_files.followed_table import FollowedColumns, FollowedTable, Judged, TableCommit
from spark_queue.core.message_files.origins import joined
from spark_queue.core.message_files.relocation import FileFinding
from spark_queue.core.message_files.segment import Segment, TraitSource
from spark_queue.core.records import ClashingRows, Followed, MergedFile, OriginRows, Ranges, Record, SequenceRange
from spark_queue.core.state.journal_state import JournalState


class Clock(Protocol):
    """Two readings of time; only the coordinator's counts."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970 UTC; may jump."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds since an arbitrary start; never goes back."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedFile:
    """One `add` action of a message table, as its log entry has it."""

    path: str
    row_count: int
    topic_min: str
    topic_max: str
    expires_null_count: int
    expires_min_ms: int | None = None
    expires_max_ms: int | None = None
    #: How long after they were published its messages are delivered at the earliest, or when, where they were pulled.
    deliver_after_ms: int = 0
    due_at_ms: int | None = None
    #: Of messages that were pulled: its rows by origin.
    origins: tuple[OriginRows, ...] = ()
    #: First and last sequence of each named publisher, and rows whose number another message of it has here.
    publishers: Mapping[str, SequenceRange] = field(default_factory=dict)
    clashes: tuple[ClashingRows, ...] = ()
    #: Of a followed table: where its columns stand, the values that stand in no file, and the id of its first row.
    table: FollowedColumns | None = None
    partition: Mapping[str, str | None] = field(default_factory=dict)
    row_id: int | None = None
    #: Its rows that were deleted before it enters: their bookmarks will be of no message.
    deleted: Ranges = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageLogEntry:
    """One version of a message table, or of a table that is followed."""

    version: int
    #: The commit's token (DESIGN 15.9); empty for a stranger's.
    token: str
    #: When it was committed by the clock of its writer, in milliseconds; None where the entry does not say.
    committed_at_ms: int | None = None
    #: Files whose rows get bookmarks, in the commit's order.
    added: tuple[AddedFile, ...] = ()
    #: Paths that a stranger appended: no bookmarks, recorded once as `foreign`.
    foreign_paths: tuple[str, ...] = ()
    foreign_rows: int = 0
    #: Files that the coordinator's compaction made of others; their messages keep their bookmarks.
    merged: tuple[MergedFile, ...] = ()
    #: Files that retention took from the table; the control log retired their messages before.
    retired_paths: tuple[str, ...] = ()
    #: The names of the instances from which its messages were pulled, by UUID; and groups of them by name.
    instances: Mapping[str, str] = field(default_factory=dict)
    groups: Mapping[str, str] = field(default_factory=dict)
    #: The number of the record of the newest definitions, where the entry tells it (PROTOCOL 3); 0 in any other.
    definitions: int = 0
    #: Whether it alters the table: for definitions that hold only afterwards.
    alters_table: bool = False
    #: Of a followed table: its commit, of which nothing has been judged.
    commit: TableCommit | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PulledFile:
    """A file of messages that were pulled: written, and in no log yet."""

    path: str
    size_bytes: int
    #: Its statistics, as its `add` action will carry them.
    stats: Mapping[str, Any]
    #: Its rows by origin.
    origins: tuple[OriginRows, ...]
    #: First and last sequence of each named publisher, and rows whose number another message of it has here.
    publishers: Mapping[str, SequenceRange] = field(default_factory=dict)
    clashes: tuple[ClashingRows, ...] = ()
    #: Last sequence of each named publisher in each topic, by topic and then publisher.
    topics: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    #: When its messages are delivered at the earliest.
    due_at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PulledFiles:
    """Files of one message type, for one commit."""

    message_type: str
    files: tuple[PulledFile, ...]
    #: The names of the instances that their messages come from, by UUID.
    instances: Mapping[str, str]
    #: The groups of those of them that are in one of another name, by name.
    groups: Mapping[str, str] = field(default_factory=dict)
    #: The own bookmark before which everything was looked at for messages that their publishers had brought here already.
    compared_until: int = 0

    @property
    def publishers(self) -> dict[str, SequenceRange]:
        """First and last sequence of each named publisher."""
        return joined([file.publishers for file in self.files])


def entered(message_type: str, entry: MessageLogEntry, added: AddedFile, *, first: int, at_ms: int, since_ms: int) -> Segment:
    """Make the segment of a file that enters at `at_ms`, its first row with bookmark `first`.

    By any clock of its publisher, it was published no later than that, and no earlier than `since_ms`: times ascend in a log.
    """
    committed_at_ms = at_ms if entry.committed_at_ms is None else entry.committed_at_ms
    published_at_ms = max(since_ms, min(at_ms, committed_at_ms))
    return Segment(
        message_type=message_type,
        first=first,
        until=first + added.row_count,
        path=added.path,
        version=entry.version,
        token=entry.token,
        entered_at_ms=at_ms,
        published_at_ms=published_at_ms,
        topic_min=added.topic_min,
        topic_max=added.topic_max,
        expires_null_count=added.expires_null_count,
        expires_min_ms=added.expires_min_ms,
        expires_max_ms=added.expires_max_ms,
        due_at_ms=published_at_ms + added.deliver_after_ms if added.deliver_after_ms else added.due_at_ms,
        origins=added.origins,
        instances=entry.instances,
        groups=entry.groups,
        publishers=added.publishers,
        clashes=added.clashes,
        table=added.table,
        partition=added.partition,
        row_id=added.row_id,
        absent=tuple((first + low, first + high) for low, high in added.deleted),
    )


def appended(commit: TableCommit, judged: Judged, known: FollowedTable, *, topic: str) -> MessageLogEntry:
    """Return a commit of a followed table as what it means: the files that enter (R144)."""
    added = tuple(
        AddedFile(
            path=file.path,
            row_count=file.row_count or 0,
            topic_min=topic,
            topic_max=topic,
            expires_null_count=file.row_count or 0,
            table=known.columns,
            partition=file.partition,
            row_id=file.row_id,
            deleted=file.deleted or (),
        )
        for file in judged.entering
    )
    return MessageLogEntry(version=commit.version, token=commit.token, committed_at_ms=commit.committed_at_ms, added=added)


class MessageLog(Protocol):
    """The log of one message type, read forward."""

    @property
    def silent_ms(self) -> int:
        """The longest time between two looks at it while somebody waits, in milliseconds."""
        ...

    def recover(self, *, version: int, token: str) -> None:
        """Set a torn head entry aside, and check that `version`, entered last (-1 for none), still is the commit `token`.

        Called once in a reign, before the first `tail`; the token of a stranger's commit is empty.
        """
        ...

    def tail(self, after_version: int, *, finds_gaps: bool = True) -> Iterator[MessageLogEntry]:
        """Return the versions after `after_version` (-1 for all), in order, up to the head.

        `finds_gaps` makes sure that the seeming head is no gap, which may need a listing of the log. LOG_GAP, JOURNAL_REWRITTEN
        and JOURNAL_DAMAGED are raised after the entries before the trouble were given.
        """
        ...


class ControlLog(Protocol):
    """The log of the history of queues; one writer, fenced by the log itself (DESIGN 3.4)."""

    def load(self) -> LogTail:
        """Refresh; return every record in order, or a state and every record since, and append after that head from then on."""
        ...

    def append(self, records: Sequence[Record], *, epoch: int) -> None:
        """Commit numbered records by one swap at the head, carrying `epoch`, and check that it holds.

        The process must end after either error: COORDINATOR_DEPOSED when the swap is refused or the check fails, STORE_FAILED
        when the outcome is unknown.
        """
        ...

    def check(self, *, epoch: int) -> None:
        """Refresh and check that the head is still the own last commit and the epoch the own one (P7)."""
        ...


class JournalPort(Protocol):
    """A journal as the coordinator sees it."""

    #: For messages and logs.
    path: str

    #: The log of the history of queues.
    control: ControlLog

    @property
    def traits(self) -> TraitSource:
        """Computes the traits of entering messages."""
        ...

    def messages(self, message_type: str, followed: FollowedTable | None = None) -> MessageLog:
        """Return the log of a message type: its own, or that of the table which it follows."""
        ...

    def check_message_table(self, message_type: str, columns: str, *, is_unused: bool = False) -> None:
        """Refuse columns that `create_message_table` would; changes nothing."""
        ...

    def create_message_table(self, message_type: str, columns: str, *, is_unused: bool = False) -> None:
        """Make the table of a message type, or append nullable columns to it; does nothing when it already fits.

        Where the type `is_unused`, a table that has no file may have other columns, which give way.
        """
        ...

    def look_at_table(
        self, message_type: MessageTypeDefinition, known: FollowedTable | None, before: MessageTypeDefinition | None
    ) -> Followed | None:
        """Return what is to be recorded of the table that a message type follows; None where what is known holds.

        Refuses a table that cannot be followed, or not by these columns; changes nothing.
        """
        ...

    def look_further(self, message_type: MessageTypeDefinition, known: FollowedTable, version: int | None) -> Followed:
        """Return what is to be recorded where a message type that was set aside goes on: with a version, or what comes next."""
        ...

    def absent_files(self, segments: Sequence[Segment]) -> Sequence[Segment]:
        """Return those of some files of a followed table that its store does not have, whoever took them."""
        ...

    def look_for_files(self, queue: str, rows: BitMap64) -> None:
        """Let the next upkeep look which files of messages of a followed table are gone: their consumer failed, or left."""
        ...

    def append_pulled(self, files: PulledFiles, *, after_version: int, at_ms: int) -> bool:
        """Commit files of pulled messages right after a version; returns whether that was the head.

        After STORE_FAILED the outcome is unknown, and all that was pulled is looked at again.
        """
        ...

    def upkeep(self, *, epoch: int, state: JournalState, now_ms: int) -> Sequence[FileFinding]:
        """Begin the work that keeps the logs short (DESIGN 4, 15.10), of a state that is committed; no commit waits for it.

        Returns files of followed tables that earlier work has copied, or has not found: they are to be recorded.
        """
        ...
