"""A Delta table that others write and a message type follows: the facts that are known of it, and the meaning of its commits.

One pure function of what is known and a commit decides (`judge`), for a coordinator, for views and for reads of topics alike, so
that they can never differ. Its rules are R144 to R147; none of them guesses: where rows may be old or new, none of them enters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from spark_queue.core.bitmaps.ranges import count_rows
from spark_queue.core.definitions.keys import KEEP
from spark_queue.core.records import WEEK_MS, Followed, FollowedColumn, Passed, Ranges, Record, Stopped
from spark_queue.errors import MESSAGE_FILE_CODES, JournalError, SparkQueueError, error

#: A moment as a partition value says it: without a zone it means another one to each reader.
_ZONE = re.compile(r"(Z|[+-]\d{2}:?\d{2})$")

#: How a date or a time begins that every reader can make out; Spark writes years beyond 9999 with a sign.
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}(?!\d)")

#: Types of partition columns, a value of which may be one that not every reader makes out, or not alike.
TIMES = frozenset({"DATE", "TIMESTAMP", "TIMESTAMP_NTZ"})

#: Delta's name of the operation that puts a table back: its files are old, whatever else it says of them.
RESTORE = "RESTORE"

#: What stands for an operation where the files enter that a table had when it began to be followed.
BEGINNING = "beginning"

#: Commits without news after which one is recorded all the same, so that the next reader need not go back further.
SILENT_COMMITS = 100

#: What `passed` calls a commit.
CHANGE, OLD_ROWS, NEW_TABLE, NO_ROWS = "change", "old rows", "new table", "no rows"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFile:
    """One `add` action of a table's log."""

    #: Decoded, relative to the table.
    path: str
    #: None where the log does not say how many it has.
    row_count: int | None
    data_change: bool
    modified_ms: int
    #: By the names that columns have in files.
    partition: Mapping[str, str | None]
    row_id: int | None = None
    #: Its rows that a vector deletes, None where nobody has read that; nothing where it has no vector.
    deleted: Ranges | None = ()
    #: Whether the table had it before it began to be followed.
    was_there: bool = False

    @property
    def has_rows(self) -> bool:
        """Whether some row of it is not deleted."""
        return bool(self.row_count) and self.row_count != count_rows(self.deleted or ())


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedFile:
    """One `remove` action of a table's log."""

    path: str
    data_change: bool
    #: When it was removed, in milliseconds.
    removed_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMeaning:
    """A table by its metadata: all that matters to who reads some of its columns."""

    id: str
    #: Its columns, those in other columns not, by the name in files: name and type as Spark DDL, None for a type that has none.
    columns: Mapping[str, tuple[str, str | None]]
    #: Names in files of the columns by which it is partitioned.
    partition: tuple[str, ...] = ()
    #: How long it keeps a removed file before VACUUM may take it, in milliseconds.
    retention_ms: int = WEEK_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCommit:
    """One version of a followed table."""

    version: int
    token: str
    operation: str
    committed_at_ms: int
    added: tuple[TableFile, ...] = ()
    removed: tuple[RemovedFile, ...] = ()
    #: None where the commit does not say what the table is.
    meaning: TableMeaning | None = None
    #: Why what the commit brings cannot be followed; None where it can.
    unsupported: str | None = None


@dataclass(frozen=True, slots=True)
class FollowedColumns:
    """Where the columns of messages stand that entered from a table: of all files between two `followed` records."""

    #: The address of the table.
    table: str
    #: Its id as it was when it began to be followed: the publisher of each message.
    publisher: str
    columns: tuple[FollowedColumn, ...]
    #: Those of its partition columns whose values are texts to messages, as the log has them, whatever their type.
    texts: tuple[str, ...] = ()

    @property
    def names(self) -> Mapping[str, str]:
        """The name in files of each column of the message type."""
        return {name: physical for name, physical, _ in self.columns}


@dataclass(frozen=True, slots=True)
class TablePlace:
    """How far a followed table was read: the last version, and the newest that its log has, None where nobody looked."""

    version: int
    head: int | None

    @property
    def behind(self) -> int | None:
        """How many versions are still to be read."""
        return None if self.head is None else max(0, self.head - self.version)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFigures:
    """A followed table as people see it."""

    table: str
    #: The last version that was read, and how many are still to be; None where nobody looked.
    version: int
    behind: int | None
    #: Commits that were passed over although they changed rows, and how many rows they brought at most.
    changes: int
    rows_passed: int
    #: Why its message type is set aside, and how it goes on; None where it is not.
    trouble: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The meaning of a commit: the files that enter, in its order, and the record of the rest, if it leaves one."""

    entering: tuple[TableFile, ...] = ()
    passed: Passed | None = None


class FollowedTable:
    """A table that a message type follows, by the control log; only records change it."""

    def __init__(self, begun: Followed) -> None:
        self.columns = FollowedColumns(begun.table, begun.id, begun.columns, begun.texts)
        self.table_id, self.retention_ms = begun.id, begun.retention
        #: Where it was begun, or begun anew, the token of that commit, and when it was made: files from before stand there.
        self.from_version, self.from_token, self.from_ms = begun.version, begun.token, begun.committed
        #: The last version that left a record, and the token of that commit; none of the first where its files are to enter.
        self.last = _last_read(begun)
        #: Whether the files of that version are still to enter.
        self.begins_with_files = begun.beginning
        #: The version whose files entered first, whichever commits they are of; None where only later commits enter.
        self.stood_at = begun.version if begun.beginning else None
        #: Decoded paths of all files that commits have added since, whether they entered or not.
        self.added: set[str] = set()
        #: Those of them in which messages stand, and the first bookmark of each: without those that were copied or let go.
        self.entered: dict[str, int] = {}
        #: Those of these that were removed from it, and when, in milliseconds (R151).
        self.removed: dict[str, int] = {}
        #: The first bookmarks of those that its store did not have any more: no fold of the log looks for them (R155).
        self.lost: list[int] = []
        #: Commits that were passed over although they changed rows, and how many rows they brought at most.
        self.changes = self.changed_rows = 0
        self.stopped: Stopped | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FollowedTable) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]  # It changes.

    @property
    def trouble(self) -> SparkQueueError | None:
        """The refusal that the message type is set aside for; None where it is not."""
        return None if self.stopped is None else error(self.stopped.error, self.stopped.facts)

    @property
    def read_until(self) -> int:
        """The last version that was read, as far as records tell; of commits without news not each leaves one."""
        return self.last[0] if self.stopped is None else self.stopped.version - 1

    def figures(self, place: TablePlace | None) -> TableFigures:
        """Return its figures; without a `place`, which nobody has looked for, as far as records tell."""
        return TableFigures(
            table=self.columns.table,
            version=self.read_until if place is None else place.version,
            behind=None if place is None else place.behind,
            changes=self.changes,
            rows_passed=self.changed_rows,
            trouble=None if self.trouble is None else str(self.trouble),
        )

    def removed_at_ms(self, path: str) -> int | None:
        """Return since when VACUUM may wait for a file of messages, in milliseconds; None where the table has it.

        Of a message type that is set aside it may for each: nobody reads on what becomes of them (R153).
        """
        at_ms = self.removed.get(path)
        if self.stopped is None or path not in self.entered:
            return at_ms
        return self.stopped.since if at_ms is None else min(at_ms, self.stopped.since)

    def leave(self, path: str) -> None:
        """Note that no message stands in a file of it any more."""
        self.entered.pop(path, None)
        self.removed.pop(path, None)

    def goes_on(self, body: Followed) -> None:
        """Go on behind another version, or with other columns (R148)."""
        self.columns = FollowedColumns(body.table, self.columns.publisher, body.columns, body.texts)
        if (body.version, body.token) != self.last:
            self.from_version, self.from_token, self.from_ms = body.version, body.token, body.committed
        self.last, self.begins_with_files = _last_read(body), body.beginning
        self.stood_at = body.version if body.beginning else self.stood_at
        self.table_id, self.retention_ms, self.stopped = body.id, body.retention, None
        self.removed = {path: at_ms for path, at_ms in body.removed if path in self.entered}

    def enter(self, path: str, first: int, version: int, token: str) -> None:
        """Note that a file of it has entered, its first row with bookmark `first`."""
        self.last = (version, token)
        self.added.add(path)
        self.entered[path] = first
        self.begins_with_files = False

    def fold(self, record: Record) -> None:
        """Apply a record of a commit that passed, or before which the message type stopped."""
        match record.body:
            case Passed() as passed:
                self.table_id, self.last, self.begins_with_files = passed.id, (passed.version, passed.token), False
                self.retention_ms = self.retention_ms if passed.retention is None else passed.retention
                self.added.update(passed.added)
                for path in passed.added:
                    self.removed.pop(path, None)
                self.removed.update((path, at_ms) for path, at_ms in passed.removed if path in self.entered)
                if passed.what == CHANGE:
                    self.changes, self.changed_rows = self.changes + 1, self.changed_rows + passed.rows
            case Stopped() as stopped:
                self.stopped = stopped


def _last_read(begun: Followed) -> tuple[int, str]:
    """Return the version behind which commits enter, and its token; none where the files of the first are to enter."""
    return (begun.version - 1, "") if begun.beginning else (begun.version, begun.token)


def judge(known: FollowedTable, commit: TableCommit, *, message_type: str, on_change: str, recorded_version: int) -> Judged:
    """Return what a commit means to a message type; raise the refusal that sets it aside before the commit.

    `recorded_version` is the last version that left a record.

    Raises
    ------
    JournalError
        TABLE_CHANGED or TABLE_UNSUPPORTED.
    """
    _refuse_other_columns(known, commit, message_type)
    changes = [file for file in commit.removed if file.data_change]
    if changes and on_change != KEEP:
        reason = f"it removes {len(changes)} file(s), so rows were deleted, updated or overwritten."
        raise _changed(known, commit, message_type, reason, next_step=way_on(message_type, commit.version + 1))
    # With a `remove` old rows and new ones may stand in one file, and a path that is removed beside has only a new vector.
    is_append = not commit.removed and commit.operation != RESTORE

    def enters(file: TableFile) -> bool:
        return is_append and file.data_change and not file.was_there and file.path not in known.added and file.has_rows

    entering = tuple(filter(enters, commit.added))
    _refuse_unreadable(known, commit, message_type, entering)
    what = CHANGE if changes else OLD_ROWS if commit.added else NO_ROWS
    left_out = [file for file in commit.added if not enters(file)]
    passed = Passed(
        version=commit.version,
        token=commit.token,
        what=what,
        operation=commit.operation[:200],
        id=known.table_id if commit.meaning is None else commit.meaning.id,
        rows=sum(file.row_count or 0 for file in left_out if file.data_change),
        added=tuple(file.path for file in left_out),
        retention=None if commit.meaning is None else commit.meaning.retention_ms,
        removed=tuple((file.path, file.removed_at_ms) for file in _taken(known, commit)),
    )
    is_news = passed.added or passed.removed or changes or passed.id != known.table_id
    # Where a column is taken in later, the table is looked at as it was at the last version that left a record.
    is_news = is_news or (commit.meaning is not None and (not entering or passed.retention != known.retention_ms))
    is_due = not entering and commit.version - recorded_version >= SILENT_COMMITS
    return Judged(entering=entering, passed=passed if is_news or is_due else None)


def _taken(known: FollowedTable, commit: TableCommit) -> Iterator[RemovedFile]:
    """Yield the files of messages that a commit removes; one whose path it adds again stays, with a new vector."""
    standing = {file.path for file in commit.added}
    return (file for file in commit.removed if file.path in known.entered and file.path not in standing)


def _refuse_other_columns(known: FollowedTable, commit: TableCommit, message_type: str) -> None:
    """Refuse a commit from which on a column of the message type would not be the one that was followed."""
    if commit.unsupported is not None:
        raise _unsupported(known, commit, message_type, commit.unsupported)
    if commit.meaning is None:
        return
    for name, physical, kind in known.columns.columns:
        found = commit.meaning.columns.get(physical)
        reason = None
        if found is None:
            reason = f"column '{name}' is gone, or is another one of that name."
        elif found[1] != kind:
            reason = f"column '{name}' is {found[1] or 'of an unknown type'} instead of {kind}."
        elif name in known.columns.texts and physical not in commit.meaning.partition:
            # In a file it has no text.
            reason = f"the table is not partitioned by column '{name}' any more."
        if reason is not None:
            raise _changed(known, commit, message_type, reason, next_step=_way_on_with(message_type, commit.version))


def _refuse_unreadable(known: FollowedTable, commit: TableCommit, message_type: str, entering: Sequence[TableFile]) -> None:
    """Refuse files of which a column of the message type cannot be read, or could be in two ways."""
    for file in entering:
        if file.deleted is None:
            raise _unsupported(known, commit, message_type, f"file '{file.path}' is added with a deletion vector.")
        reason = unreadable_value(known.columns, file.partition)
        if reason is not None:
            raise _unsupported(known, commit, message_type, reason)


def unreadable_value(columns: FollowedColumns, partition: Mapping[str, str | None]) -> str | None:
    """Return why a partition value cannot be read, or could be in two ways, and what to do then; None where all can be (R150).

    A writer may leave the zone out, and each reader takes its own then, or UTC.
    """
    for name, physical, kind in columns.columns:
        value = partition.get(physical)
        reason = _unreadable(value, kind) if value and name not in columns.texts else None
        if value and reason is not None:
            return (
                f"the partition value {value[:100]!r} of column '{name}' {reason}. Declare that column as STRING in `columns`, and "
                "apply: then its messages have the text."
            )
    return None


def _unreadable(value: str, kind: str) -> str | None:
    if kind in TIMES and _DAY.match(value) is None:
        return "is no day of the years 0000 to 9999"
    if kind == "TIMESTAMP" and _ZONE.search(value) is None:
        return "has no time zone, so it may be any of several moments"
    return None


def _changed(known: FollowedTable, commit: TableCommit, message_type: str, reason: str, *, next_step: str) -> JournalError:
    facts = {"version": commit.version, "operation": commit.operation[:200], "message_type": message_type, "reason": reason}
    return JournalError("TABLE_CHANGED", table=known.columns.table, next_step=next_step, **facts)


def _unsupported(known: FollowedTable, commit: TableCommit, message_type: str, reason: str) -> JournalError:
    place, next_step = f" from version {commit.version} on", way_on(message_type, commit.version + 1)
    facts = {"table": known.columns.table, "message_type": message_type, "place": place, "reason": reason}
    return JournalError("TABLE_UNSUPPORTED", next_step=next_step, **facts)


def not_entered(trouble: JournalError, message_type: str, version: int) -> JournalError:
    """Return the refusal of a commit that cannot enter: where a file of it is missing or damaged, with the way on (R148)."""
    if trouble.code not in MESSAGE_FILE_CODES:
        return trouble
    next_step = (
        f"Version {version} of the table, which message type '{message_type}' follows, brings that file, and neither it nor what "
        "follows enters without it. Restore the file, or skip the version: "
        f"`sparkq follow JOURNAL {message_type} --from {version + 1}`."
    )
    return JournalError(trouble.code, **{**trouble.facts, "next_step": next_step})


def way_on(message_type: str, version: int) -> str:
    """Return the sentence that says how a message type that was set aside goes on."""
    return (
        f"Nothing more of it enters; what entered stays in its queues. To go on behind what is skipped, run `sparkq follow JOURNAL "
        f"{message_type} --from {version}`, or --from now; the log records what is skipped."
    )


def _way_on_with(message_type: str, version: int) -> str:
    """Return the sentence that says how a message type goes on with the version that changes its columns."""
    return (
        "Nothing more of it enters; what entered stays in its queues. To go on with that version, by the columns of the table from "
        f"then on, run `sparkq follow JOURNAL {message_type} --from {version}`. It refuses a column that cannot be read as it is "
        "declared; then define a message type of another name that follows the table, with the columns that it has by now and "
        f'`from = "{version}"`.'
    )
