"""``sparkq publish``: rows of a file become messages, one commit for each batch."""

from __future__ import annotations

import zoneinfo
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from rich.progress import Progress

from spark_queue.cli.output import err, out, progress, show_json
from spark_queue.cli.reading import Source
from spark_queue.cli.target import open_target
from spark_queue.client.publisher import Publisher
from spark_queue.core.definitions.definition import Definitions
from spark_queue.errors import CallerError, ConfigError, SparkQueueError
from spark_queue.journal.commit import Published
from spark_queue.journal.rows import from_json_lines, to_arrow


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What to publish, and how."""

    source: str
    topic: str | None
    publisher: str | None
    #: What the file is to a publisher that has published before: the same rows again, or new ones; one of them, or neither.
    repeat: bool
    append: bool
    file_format: str | None
    batch_rows: int
    expires_after: str | None
    #: Zone of times that carry no offset; None refuses them.
    timezone: str | None


@dataclass(slots=True)
class _Sent:
    """How many rows of the file were published, and how many were there before: together the file's first rows."""

    rows: int = 0
    duplicates: int = 0

    @property
    def standing(self) -> int:
        return self.rows + self.duplicates


def publish(path: str, request: Request, storage: list[str] | None, *, as_json: bool) -> None:
    """Publish a file; what was committed before a failure stays, and the error says how much that is and how to go on."""
    if request.repeat and request.append:
        reason = "a file holds rows that were published before, or new ones."
        raise ConfigError("CONTRADICTORY_SETTINGS", where="the arguments", reason=reason, keys="--repeat, --append")
    if (request.repeat or request.append) and request.publisher is None:
        reason = "rows are numbered for a publisher, and no --publisher is named."
        raise ConfigError("CONTRADICTORY_SETTINGS", where="the arguments", reason=reason, keys="--repeat, --append")
    if request.timezone is not None and request.timezone not in zoneinfo.available_timezones():
        expected = "a zone, such as UTC or Europe/Berlin"
        raise ConfigError("BAD_VALUE", key="--timezone", where="the arguments", value=request.timezone, expected=expected)
    journal = open_target(path, storage)
    definitions = journal.definitions()
    first_sequence: int | None = None
    sent = _Sent()
    with ExitStack() as stack:
        source = stack.enter_context(Source(request.source, request.file_format))
        bar = stack.enter_context(progress())
        commit: Callable[..., Published] = partial(journal.publish, topic=request.topic, expires_after=request.expires_after)
        if request.publisher is not None:
            opened = stack.enter_context(journal.publisher(request.publisher))
            commit = partial(opened.publish, topic=request.topic, expires_after=request.expires_after)
            first_sequence = _first_sequence(request, opened)
        try:
            _publish_all(source, request, definitions, commit, bar, sent=sent, first_sequence=first_sequence)
        except SparkQueueError as refusal:
            if refusal.code == "COLUMN_TYPE_MISMATCH" and "tz=" in refusal.facts["expected"] and request.timezone is None:
                refusal.add_note("If it holds times without an offset, name their zone, as in --timezone Europe/Berlin.")
            refusal.add_note(_what_stands(request, sent, refusal))
            raise
    if not sent.standing:
        err.print(f"[yellow]warning[/] '{request.source}' holds no rows.", soft_wrap=True)
    if as_json:
        show_json({"rows": sent.rows, "duplicates": sent.duplicates})
    else:
        repeated = f", {sent.duplicates:,} were there already" if sent.duplicates else ""
        out.print(f"Published {sent.rows:,} message(s){repeated}.")


def _what_stands(request: Request, sent: _Sent, refusal: SparkQueueError) -> str:
    """Say what earlier commits of a refused file left in the journal, and how to go on without doubling it."""
    if not sent.standing:
        return "No earlier commit of this run published anything."
    # After a failure of the store nobody knows whether the last commit arrived.
    known = "The" if isinstance(refusal, CallerError | ConfigError) else "At least the"
    stands = f"{known} first {sent.standing:,} row(s) of '{request.source}' are in the journal."
    if request.publisher is not None and not request.append:
        return f"{stands} Leave them in the file, correct what follows, and run the same command with --repeat: they are dropped."
    again = "with --append again" if request.append else "because the whole file would double them"
    return f"{stands} Correct the rows that follow, and publish only those, {again}."


def _first_sequence(request: Request, opened: Publisher) -> int:
    """Return the number of the file's first row: what the file is to earlier ones only its sender knows.

    Raises
    ------
    CallerError
        SEQUENCE_MISSING when the publisher has rows in the journal and nobody said whether these are the same.
    """
    last = opened.last_sequence
    if last is None or request.repeat:
        return 1
    if request.append:
        return last + 1
    reason = (
        f"It has {last:,} row(s) in the journal already. If this file is the same, or the same and longer, say --repeat, and what "
        "is there is dropped; if its rows are new, say --append, or give the file a publisher name of its own."
    )
    raise CallerError("SEQUENCE_MISSING", publisher=opened.name, what="--repeat or --append", reason=reason)


def _publish_all(
    source: Source,
    request: Request,
    definitions: Definitions,
    commit: Callable[..., Published],
    bar: Progress,
    *,
    sent: _Sent,
    first_sequence: int | None,
) -> None:
    task = bar.add_task(f"publishing {source.name}", total=source.size_bytes)
    lines = 0
    for batch in source.batches(request.batch_rows):
        # Rows are numbered by their place in the file, whatever --batch-rows is, so that a repeat of the file is known as one.
        numbered = {} if first_sequence is None else {"first_sequence": first_sequence + sent.standing}
        try:
            published = commit(_rows(batch, request, definitions, first_line=lines + 1), **numbered)
        except SparkQueueError as refusal:
            if "row" in refusal.facts:
                place = _place(batch, int(refusal.facts["row"]), first_row=sent.standing + 1, first_line=lines + 1)
                refusal.add_note(f"Row {refusal.facts['row']} of this commit is {place} of '{request.source}'.")
            raise
        sent.rows, sent.duplicates, lines = sent.rows + published.rows, sent.duplicates + published.duplicates, lines + len(batch)
        bar.update(task, completed=source.read_bytes, description=f"publishing {source.name}: {sent.rows:,} messages")


def _rows(batch: pa.Table | list[bytes], request: Request, definitions: Definitions, *, first_line: int) -> pa.Table:
    told = {"topic": request.topic, "timezone": request.timezone}
    if isinstance(batch, list):
        return from_json_lines(batch, definitions, **told, first_line=first_line)[1]
    return to_arrow(batch, definitions, **told)[1]


def _place(batch: pa.Table | list[bytes], row: int, *, first_row: int, first_line: int) -> str:
    """Say where a row stands in the file: people count from one, and blank lines are no rows."""
    if not isinstance(batch, list):
        return f"row {first_row + row:,}"
    lines = [line for line, text in enumerate(batch, start=first_line) if text.strip()]
    return f"line {lines[row]:,}"
