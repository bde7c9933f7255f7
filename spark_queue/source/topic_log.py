"""The log of a message type for topic reads: entered messages, and those that nobody has entered yet.

Bookmarks follow from the log alone, so a reader counts on from the last entered commit by the coordinator's own rule and
never needs one (DESIGN 15.15).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from spark_queue.clock import SystemClock
from spark_queue.core.bitmaps.ranges import to_bitmap, to_ranges
from spark_queue.core.definitions.keys import STOP
from spark_queue.core.message_files.followed_table import TableCommit, judge
from spark_queue.core.message_files.message_type import MessageTypeState
from spark_queue.core.message_files.relocation import moved_record, retired_record
from spark_queue.core.message_files.segment import stretches
from spark_queue.core.records import Entered, Named, Passed, Record
from spark_queue.errors import JournalError
from spark_queue.journal.entering import EnteredNames
from spark_queue.journal.file_columns import text_of
from spark_queue.journal.open import open_journal
from spark_queue.journal.pieces import COLUMNS, PIECES
from spark_queue.journal.reader import NewestDefinitions, open_control
from spark_queue.journal.record_blocks import ControlRows
from spark_queue.journal.schema import ORIGIN
from spark_queue.journal.store import Store
from spark_queue.ports import MessageLogEntry, appended, entered
from spark_queue.settings.parsers import Position
from spark_queue.views.message_search import one_of

if TYPE_CHECKING:
    from spark_queue.journal.reader import NumberedDefinitions

_log = logging.getLogger(__name__)


class TopicLog:
    """One topic's part of the log of its message type; reads the journal when it is made.

    Without `fail_on_data_loss` a range of which retention has let messages go is read without them, with a warning.
    """

    def __init__(
        self,
        store: Store,
        journal_id: str,
        message_type: str,
        topic: str,
        *,
        fail_on_data_loss: bool = True,
    ) -> None:
        journal = open_journal(store)
        if journal.journal_id != journal_id:
            raise JournalError("JOURNAL_MISMATCH", expected=journal_id, path=store.path, found=journal.journal_id)
        self.message_type = message_type
        self._topic = topic
        self._fails_on_data_loss = fail_on_data_loss
        table = open_control(store)
        rows = ControlRows(store, table.blocks)
        of_type = rows.where(lambda table: one_of(table.column("message_type"), [message_type]), "message_type")
        # The first record has the time of the journal's creation.
        records = rows.records(np.union1d([0], of_type))
        self._known = MessageTypeState(created_at_ms=records[0].at_ms)
        #: The names of instances that messages were pulled from, by the UUID of their journal.
        self._instances: dict[str, str] = {}
        #: The segments counted so far; made when one is counted on.
        self._names: EnteredNames | None = None
        for record in records:
            if record.message_type == message_type:
                self._known.fold(record)
                if isinstance(record.body, Entered | Named):
                    self._instances.update(record.body.instances)
        self._definitions = NewestDefinitions(store, table)
        self._set_definitions(self._definitions.look(reads_on=False))
        #: Whether the table was altered for definitions that nobody has told yet.
        self._awaits_definitions = False
        #: The newest version that was read; the log need not hold anything below the last recorded one.
        self.version = self._known.version
        self._log = journal.messages(message_type, self._known.followed)
        self.refresh()

    @property
    def until(self) -> int:
        """Bookmark after the last message of the log."""
        return self._known.entered_until

    def refresh(self, *, finds_gaps: bool = True) -> bool:
        """Read on to the head of the log, and make sure by a listing that it is no gap; returns whether entries came."""
        before, followed = self.version, self._known.followed
        if followed is not None and followed.trouble is not None:
            raise followed.trouble
        for entry in self._log.tail(before, finds_gaps=finds_gaps):
            self._count_on(entry)
            self.version = entry.version
            if entry.alters_table or entry.definitions:
                self._awaits_definitions = entry.alters_table or entry.definitions > self._applied
        came = self.version > before
        # Only now: what was counted was committed before. The log of a followed table tells nothing of definitions.
        if came and (followed is not None or self._awaits_definitions):
            known = self._applied
            self._set_definitions(self._definitions.look())
            self._awaits_definitions = self._awaits_definitions and self._applied == known
        return came

    def _set_definitions(self, numbered: NumberedDefinitions) -> None:
        """Set the definitions by which the log is read on."""
        #: The number of their record.
        self._applied, definitions = numbered
        #: The own name of an instance; None in any other journal.
        self._instance = definitions.journal.instance
        known = definitions.message_types.get(self.message_type)
        #: What a commit does that changes rows of the table which the message type follows.
        self._on_change = STOP if known is None else known.on_change
        #: The columns of the message type, as Spark DDL; None where it was dropped.
        self.columns = None if known is None else known.columns

    def bookmark(self, position: Position) -> int:
        """Return the bookmark of a position as the log stands now: of the first message that is not before it."""
        match position.kind:
            case "earliest":
                return self._known.kept_from
            case "latest":
                return self.until
            case "bookmark":
                return position.value
            case "timestamp":
                return self._known.published_by(position.value - 1)

    def pieces(self, start: int, end: int) -> pa.Table:
        """Return the pieces to read for the messages from `start` to before `end`, in the columns of `RowRanges`.

        A file that holds other topics too is named whole: the reader leaves their rows out.
        """
        # A read may start where nobody knows yet that it ends: then nothing lies between, though a file holds the place.
        over = self._known.overlapping(start, end) if start < end else []
        found = [each for each in over if each.topic_min <= self._topic <= each.topic_max]
        range_asked = to_bitmap([(start, end)])
        gone = next((part for segment in found if not segment.is_whole and (part := segment.let_go & range_asked)), None)
        if gone is not None:
            next_step = "Start there, or set failOnDataLoss to false to read what is kept."
            lost = self._known.retired_error(gone.min(), end=end, next_step=next_step)
            if self._fails_on_data_loss:
                raise lost
            _log.warning("Reading on without them, since failOnDataLoss is false: %s", lost)
        kept = stretches(segment for segment in found if not segment.retired)
        rows = [
            {
                "path": segment.path,
                "first_row": segment.first_row + first - segment.first,
                "rows": until - first,
                "bookmark": first,
                "delivery_count": 0,
                "cancel_count": 0,
                "is_barrier": False,
                "columns": text_of(segment),
                **origin,
            }
            for segment in kept
            for low, high in ([(segment.first, segment.until)] if segment.is_whole else to_ranges(segment.present))
            if max(start, low) < min(end, high)
            for first, until, origin in self._by_origin(max(start, low), min(end, high))
        ]
        pieces = pa.Table.from_pylist(rows, schema=PIECES if self._instance is None else pa.schema([*PIECES, *ORIGIN]))
        if self._known.followed is None:
            return pieces
        return pieces.append_column(COLUMNS, pa.array([row["columns"] for row in rows], COLUMNS.type))

    def _by_origin(self, first: int, until: int) -> Iterator[tuple[int, int, dict[str, Any]]]:
        """Yield the parts of a range that were first published at one instance one after the other, with its columns `ORIGIN`."""
        names = self._known.origin_names(self._instance, self._instances)
        found = [] if names is None else names.between(first, until)
        if not found:
            yield first, until, {}
        for (start, instance, there), end in zip(found, [*(each[0] for each in found[1:]), until], strict=False):
            yield start, end, {"origin": instance, "origin_bookmark": there}

    def _count_on(self, entry: MessageLogEntry) -> None:
        """Count the next version of the log on, as the coordinator will (DESIGN 15.15)."""
        self._names = self._names or EnteredNames(self._known)
        passed: Passed | None = None
        if entry.commit is None:
            entry, _ = self._names.without_repeats(entry)
        else:
            entry, passed = self._judged(entry.commit)
        for added in entry.added:
            # Nobody has entered it yet, so that will be at this moment or later.
            at_ms, since_ms = SystemClock().wall_ms(), self._known.published_until_ms
            first = self._known.entered_until
            self._known.add(entered(self.message_type, entry, added, first=first, at_ms=at_ms, since_ms=since_ms))
            self._instances.update(entry.instances)
        if entry.merged:
            self._known.fold(moved_record(self.message_type, version=entry.version, token=entry.token, files=entry.merged))
        if entry.retired_paths:
            self._known.fold(retired_record(self.message_type, self._known.ranges_in(entry.retired_paths)))
        if passed is not None:
            self._known.fold(Record(body=passed, message_type=self.message_type))
        self._names.note(entry)

    def _judged(self, commit: TableCommit) -> tuple[MessageLogEntry, Passed | None]:
        """Return what a commit of a followed table means, as the coordinator will say."""
        known = self._known.followed
        assert known is not None, "its log is that of a table"
        judged = judge(
            known, commit, message_type=self.message_type, on_change=self._on_change, recorded_version=self._known.version
        )
        return appended(commit, judged, known, topic=self._topic), judged.passed
