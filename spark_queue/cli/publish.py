"""``sparkq publish``: rows of a file become messages, one commit for each batch."""

from __future__ import annotations

import zoneinfo
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from rich.progress import Progress

from spark_queue.cli.output import err, out, progress, show_json
from spark_queue.cli.reading import Source
from spark_queue.cli.target import open_target
from spark_queue.core.definition import Definitions, MessageTypeDefinition
from spark_queue.errors import CallerError, ConfigError, SparkQueueError
from spark_queue.journal.commit import Published
from spark_queue.journal.rows import from_json_lines, to_arrow
from spark_queue.journal.schema import user_schema
from spark_queue.journal.stored_rows import sentence
from spark_queue.publishing import Publisher


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
    """Give the number of the file's first row: what the file is to earlier ones only its sender knows.

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
        if isinstance(batch, list):
            message_type, table = from_json_lines(batch, definitions, topic=request.topic, first_line=lines + 1)
        else:
            message_type, table = to_arrow(batch, definitions, topic=request.topic)
        table = _with_zone(table, definitions.message_type(message_type), request.timezone)
        # Rows are numbered by their place in the file, whatever --batch-rows is, so that a repeat of the file is known as one.
        numbered = {} if first_sequence is None else {"first_sequence": first_sequence + sent.standing}
        published = commit(table, **numbered)
        sent.rows, sent.duplicates, lines = sent.rows + published.rows, sent.duplicates + published.duplicates, lines + len(batch)
        bar.update(task, completed=source.read_bytes, description=f"publishing {source.name}: {sent.rows:,} messages")


def _with_zone(table: pa.Table, message_type: MessageTypeDefinition, timezone: str | None) -> pa.Table:
    """Read times without an offset in the zone that the user named; without one the journal refuses them."""
    if timezone is None:
        return table
    if timezone not in zoneinfo.available_timezones():
        raise ConfigError(
            "BAD_VALUE", key="--timezone", where="the arguments", value=timezone, expected="a zone, such as UTC or Europe/Berlin"
        )
    for field in user_schema(message_type.columns):
        if field.name in table.column_names and pa.types.is_timestamp(field.type) and field.type.tz is not None:
            index = table.column_names.index(field.name)
            try:
                table = table.set_column(index, field.name, _zoned(table.column(index), timezone))
            except pa.ArrowInvalid as reason:
                where = f"message type '{message_type.name}'"
                facts = {
                    "column": field.name,
                    "where": where,
                    "found": str(table.schema.field(index).type),
                    "expected": str(field.type),
                }
                raise CallerError("COLUMN_TYPE_MISMATCH", **facts, reason=sentence(reason)) from None
    return table


def _zoned(column: Any, timezone: str) -> Any:
    if pa.types.is_timestamp(column.type) and column.type.tz is None:
        return pc.assume_timezone(column, timezone)
    if not pa.types.is_string(column.type):
        return column
    bare = pc.invert(pc.match_substring_regex(column, r"(Z|[+-]\d\d(:?\d\d)?)$"))
    instants = pc.assume_timezone(pc.if_else(bare, column, None).cast(pa.timestamp("us")), timezone)
    return pc.coalesce(
        pc.if_else(bare, None, column).cast(pa.timestamp("us", tz="UTC")), instants.cast(pa.timestamp("us", tz="UTC"))
    )
