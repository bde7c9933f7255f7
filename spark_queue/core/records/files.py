"""Records of message files: messages enter, files are merged or let go, and what others put into the tables."""

from __future__ import annotations

from typing import Annotated

import msgspec

from spark_queue.core.records.merged_file import MergedFile
from spark_queue.core.records.record import About, Body
from spark_queue.core.records.tables import ColumnText
from spark_queue.core.records.vocabulary import (
    NUMBER_MAX,
    Id,
    Instant,
    Kind,
    Name,
    Number,
    NumberRanges,
    PublisherName,
    TablePath,
    Text,
)

#: Rows of one file that came from one origin: first row of the file, number of rows, UUID of the origin, bookmark there.
OriginRows = tuple[Number, Number, Id, Number]

#: First and last of the sequences of a publisher, in a file or a commit.
SequenceRange = tuple[Number, Number]

#: Rows of a file with numbers that other messages of their publisher have here: first row, rows, publisher, first number.
ClashingRows = tuple[Number, Number, PublisherName, Number]


class Entered(Body, frozen=True, kw_only=True):
    """The messages of one `add` action of a message table enter."""

    kind = Kind.ENTERED
    about = About.FILES
    reads_on = True

    #: Path of the file, relative to its table, and its number of messages.
    path: TablePath
    rows: Number
    #: Delta version that added it, and the token of that commit.
    version: Number
    token: Text
    #: Lowest and highest topic.
    topics: tuple[Name, Name]
    #: The time of its commit, in milliseconds: no later than that of the record, ascending within the type.
    published: Instant
    #: Number of rows without an expiration of their own, and the range of the others in milliseconds; None where none has one.
    expires: tuple[Number, Instant | None, Instant | None] | None = None
    #: The barriers among them, by queue; without a queue that was set aside then (R75).
    barriers: dict[Name, NumberRanges] = msgspec.field(default_factory=dict)
    origin: tuple[OriginRows, ...] = ()
    #: The names of the instances of those origins, by UUID, and the groups of those that are in one of another name.
    instances: dict[Id, Name] = msgspec.field(default_factory=dict)
    groups: dict[Name, Name] = msgspec.field(default_factory=dict)
    #: First and last sequence of each named publisher; of a journal that replicates.
    publishers: dict[PublisherName, SequenceRange] = msgspec.field(default_factory=dict)
    clashes: tuple[ClashingRows, ...] = ()
    #: Of a file in a followed table, even if it has none: its partition values, by the names that files have.
    partition: dict[ColumnText, ColumnText | None] | None = None
    #: The id of its first row, where the table tracks rows.
    row_id: Number | None = None
    #: Its rows that were deleted before it entered: their bookmarks are of no message.
    absent: NumberRanges = ()


class Named(Body, frozen=True, kw_only=True):
    """Further names of messages that are here already."""

    kind = Kind.NAMED
    about = About.FILES
    critical = silent = True

    #: First own bookmark, number of messages, UUID of the other origin, bookmark there.
    names: tuple[OriginRows, ...]
    instances: dict[Id, Name]


class Foreign(Body, frozen=True, kw_only=True):
    """Files without the marks of ours, which somebody else appended to a message table."""

    kind = Kind.FOREIGN
    about = About.TYPE
    reads_on = True

    version: int
    paths: tuple[str, ...]
    rows: int


class Repeated(Body, frozen=True, kw_only=True):
    """Files that a commit brings and that stood in the log before: their rows enter once."""

    kind = Kind.REPEATED

    version: int
    token: str
    paths: tuple[str, ...]


class Moved(Body, frozen=True, kw_only=True):
    """Message files were merged, or files of a followed table copied before VACUUM may take them (R152)."""

    kind = Kind.MOVED
    about = About.TYPE
    reads_on = True

    #: Of the commit that merged them; where they were copied, the last one that left a record, and its token. -1 where none has
    #: since all commits of a table are to enter.
    version: Annotated[int, msgspec.Meta(ge=-1, lt=NUMBER_MAX)]
    token: Text
    files: tuple[MergedFile, ...]


class Retired(Body, frozen=True):
    """Messages that no queue needs are let go, with their files."""

    kind = Kind.RETIRED
    about = About.FILES
