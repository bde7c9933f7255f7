"""``sparkq verify``: the invariants of `testing.invariants`, run on a journal on disk, and every message file opened."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq
from rich.progress import Progress

from spark_queue.cli.output import out, progress, show_json
from spark_queue.cli.target import open_target
from spark_queue.clock import SystemClock
from spark_queue.core.records import Record
from spark_queue.core.segment import Segment
from spark_queue.errors import JournalError, SparkQueueError
from spark_queue.journal.layout import Store, messages_key
from spark_queue.journal.log_entry import versions_after
from spark_queue.journal.open import DeltaJournal, open_journal
from spark_queue.ports import MessageLogEntry
from spark_queue.testing import invariants
from spark_queue.views import Moment, look, moment_of


def verify(path: str, storage: list[str] | None, *, as_json: bool) -> None:
    """Check a journal; exits 1 when something is broken."""
    journal = open_journal(open_target(path, storage).store)
    with progress() as bar:
        records, moment, problems = _fold(journal, bar)
        if moment is not None:
            problems += _of_logs(journal, moment, records)
            # What was published and has not entered yet must be whole, too.
            seen = look(journal)
            problems += _of_strangers(seen)
            problems += _of_files(journal.store, seen, bar)
    if as_json:
        show_json({"journal": journal.journal_id, "records": len(records), "problems": problems})
    else:
        _show(journal, records, moment, problems)
    if problems:
        sys.exit(1)


def _show(journal: DeltaJournal, records: Sequence[Record], moment: Moment | None, problems: list[str]) -> None:
    for problem in problems:
        out.print(problem, style="red", markup=False, soft_wrap=True)
    if problems:
        out.print(f"Journal {journal.journal_id}: {len(problems)} problem(s).", soft_wrap=True)
    elif moment is not None:
        entered = sum(message_type.entered_until for message_type in moment.state.message_types.values())
        text = f"{len(records):,} records, {entered:,} entered messages, {len(moment.state.queues)} queue(s). Every promise holds."
        out.print(f"Journal {journal.journal_id}: {text}", soft_wrap=True)


def _fold(journal: DeltaJournal, bar: Progress) -> tuple[Sequence[Record], Moment | None, list[str]]:
    task = bar.add_task("control log", total=1)
    try:
        records = journal.records()
    except SparkQueueError as damage:
        return (), None, [str(damage)]
    problems = invariants.of_records(records)
    try:
        moment = moment_of(records, journal.facts, as_of=None, now_ms=SystemClock().wall_ms())
    except SparkQueueError as damage:
        return records, None, [*problems, str(damage)]
    bar.update(task, completed=1)
    return records, moment, problems + invariants.of_state(moment.state)


def _of_logs(journal: DeltaJournal, moment: Moment, records: Sequence[Record]) -> list[str]:
    problems: list[str] = []
    for name in moment.state.message_types:
        entries: list[MessageLogEntry] = []
        versions = versions_after(journal.store, messages_key(name), -1)
        try:
            # What was cleaned away after it had entered is no gap.
            entries.extend(journal.messages(name).tail(min(versions, default=0) - 1))
        except SparkQueueError as damage:
            problems.append(str(damage))
        else:
            problems += invariants.of_message_log(records, name, entries)
    return problems


def _of_strangers(moment: Moment) -> list[str]:
    foreign = {
        name: sum(len(detail["paths"]) for detail in message_type.foreign.values())
        for name, message_type in moment.state.message_types.items()
    }
    return [str(JournalError("JOURNAL_FOREIGN_APPEND", message_type=name, files=files)) for name, files in foreign.items() if files]


def _of_files(store: Store, moment: Moment, bar: Progress) -> list[str]:
    segments = [segment for message_type in moment.state.message_types.values() for segment in message_type.segments]
    task = bar.add_task("message files", total=len(segments))
    problems: list[str] = []
    for segment in segments:
        reason = _unreadable(store, segment)
        if reason is not None:
            path = store.messages_uri(segment.message_type)
            problems.append(str(JournalError("MESSAGE_FILE_MISSING", file=segment.path, path=path, reason=reason)))
        bar.advance(task)
    return problems


def _unreadable(store: Store, segment: Segment) -> str | None:
    try:
        rows = pq.read_metadata(store.open(f"{messages_key(segment.message_type)}/{segment.path}")).num_rows
    except (OSError, pa.ArrowInvalid) as reason:
        return store.reason(reason)
    return None if rows == segment.rows else f"it has {rows} rows instead of {segment.rows}."
