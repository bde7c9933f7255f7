"""Records of tables that others write and a message type follows: where that begins, what passes, and where it stops."""

from __future__ import annotations

from typing import Annotated

import msgspec

from spark_queue.core.records.record import About, Body
from spark_queue.core.records.vocabulary import NUMBER_MAX, ErrorText, Instant, Kind, Number, TablePath, Text

#: How long a table keeps a removed file unless its properties say otherwise.
WEEK_MS = 7 * 86_400_000

#: A name or a type of a column, and a value of a partition column.
ColumnText = Annotated[str, msgspec.Meta(max_length=32_768)]

#: A column of a message type: its name, the name that it has in files, and its type there, as Spark DDL.
FollowedColumn = tuple[ColumnText, ColumnText, ColumnText]


class Followed(Body, frozen=True, kw_only=True):
    """A message type follows a table, or goes on behind a version of it (R141)."""

    kind = Kind.FOLLOWED
    about = About.TYPE
    critical = True
    reads_on = True

    #: The address of the table, and the id of its metadata.
    table: TablePath
    id: Text
    #: The version behind which its commits enter, -1 for all of them, and the token of that commit.
    version: Annotated[int, msgspec.Meta(ge=-1, lt=NUMBER_MAX)]
    token: Text
    #: When that commit was made, in milliseconds.
    committed: Instant
    columns: tuple[FollowedColumn, ...]
    #: Names of columns that are declared as STRING and are of another type in the table, which is partitioned by them: each value
    #: is the text that the log has.
    texts: tuple[ColumnText, ...] = ()
    #: How long the table keeps a file that was removed from it before VACUUM may take it, in milliseconds.
    retention: Instant = WEEK_MS
    #: Whether the files that the table has at that version enter first.
    beginning: bool = False
    #: First and last version whose rows will not enter, where somebody said so.
    skipped: tuple[Number, Number] | None = None
    #: Files of messages that the table has no more at that version, and when they were removed, in milliseconds; 0 where its log
    #: does not say.
    removed: tuple[tuple[TablePath, Instant], ...] = ()


class Passed(Body, frozen=True, kw_only=True):
    """A commit of a followed table was passed over, in whole or in part (R145, R146)."""

    kind = Kind.PASSED
    about = About.TYPE
    critical = True
    reads_on = True

    version: Number
    token: Text
    #: What it was: a change of rows, or something that brings none.
    what: Text
    operation: Text
    #: The table's id from then on.
    id: Text
    #: How many rows it brought at most that did not enter.
    rows: Number = 0
    #: Files that it added and that did not enter.
    added: tuple[TablePath, ...] = ()
    #: How long the table keeps removed files from then on; None where that is as before.
    retention: Instant | None = None
    #: Files of messages that it removed, and when, in milliseconds.
    removed: tuple[tuple[TablePath, Instant], ...] = ()


class Stopped(Body, frozen=True, kw_only=True):
    """A message type is set aside before a version of its table: nothing from there on enters (R147)."""

    kind = Kind.STOPPED
    about = About.TYPE
    critical = True

    version: Number
    #: The code of the refusal, and the facts of its text.
    error: Text
    facts: dict[ColumnText, int | ErrorText]
    #: The time of that commit, in milliseconds; 0 where there is none, since the log has a gap, or is another one. Files of
    #: messages count as removed since then (R153).
    since: Instant
