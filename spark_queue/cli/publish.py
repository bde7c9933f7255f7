"""``sparkq publish``: rows of a file become messages, one commit for each batch."""

from __future__ import annotations

import zoneinfo
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spark_queue.cli.arguments import bad_argument
from spark_queue.cli.output import harmless, progress, warn
from spark_queue.cli.verb import OF_COORDINATOR, VerbTarget, verb
from spark_queue.errors import CallerError, ConfigError, SparkQueueError

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.progress import Progress

    from spark_queue.cli.reading import Source
    from spark_queue.client.journal import Journal
    from spark_queue.client.publisher import Publisher
    from spark_queue.client.replicated import ReplicationWait
    from spark_queue.core.definitions.definition import Definitions
    from spark_queue.journal.commit import Published


@dataclass(slots=True)
class _Sent:
    """The numbers of the file's rows that were published, and that were there before: together its first rows."""

    rows: int = 0
    duplicates: int = 0
    #: The result of each commit.
    commits: list[Published] = field(default_factory=list)

    @property
    def standing(self) -> int:
        return self.rows + self.duplicates


#: The options of the file's form, and of the columns that are left out.
_File = Annotated[str, typer.Argument(metavar="FILE", help="CSV, JSON lines or Parquet, also .gz; - for stdin.")]
_Format = Annotated[
    str | None, typer.Option("--format", metavar="csv|jsonl|parquet", help="Default: by the file's name; for stdin: jsonl.")
]
_Separator = Annotated[
    str | None, typer.Option(metavar="CHARACTER", help="Separator of CSV values, such as ';' or tab; default: a comma.")
]
_Encoding = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help=("Encoding of CSV and JSON lines, such as cp1252; default: by a byte order mark, else UTF-8.")
    ),
]
_Dropped = Annotated[
    list[str] | None,
    typer.Option("--drop-column", metavar="COLUMN", help=("Column to leave out; '' for one without a name. May repeat.")),
]
_Timezone = Annotated[
    str | None, typer.Option(metavar="ZONE", help=("Time zone of times without an offset; default: these are refused."))
]
_Epoch = Annotated[
    str | None,
    typer.Option(
        metavar="seconds|milliseconds", help="Unit of numbers in a TIMESTAMP column, since 1970 UTC; default: these are refused."
    ),
]


@verb(OF_COORDINATOR)
def publish(
    target: VerbTarget,
    file: _File,
    *,
    topic: Annotated[str | None, typer.Option(help="Topic, or a queue's name; default: the rows' own column topic.")] = None,
    publisher: Annotated[str | None, typer.Option(help="Publisher name: rows are numbered, so repeats are recognised.")] = None,
    repeat: Annotated[
        bool,
        typer.Option(
            "--repeat",
            help="The publisher sent this file before, wholly or in part: skip as many rows as are there, without comparing them.",
        ),
    ] = False,
    append: Annotated[bool, typer.Option("--append", help="The publisher sent other rows before: continue its numbers.")] = False,
    file_format: _Format = None,
    separator: _Separator = None,
    encoding: _Encoding = None,
    drop_column: _Dropped = None,
    timezone: _Timezone = None,
    epoch: _Epoch = None,
    batch_rows: Annotated[int, typer.Option(min=1, max=2**31 - 1, help="Rows in one commit.")] = 100_000,
    expires_after: Annotated[
        str | None, typer.Option(metavar="DURATION", help='Such as "1h"; overrides the rows\' own expires_at.')
    ] = None,
    deliver_after: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Deliver no message earlier than this after its publish.")
    ] = None,
    replicated_to: Annotated[
        int, typer.Option(min=0, metavar="N", help="Wait until this many peers of this instance have pulled all rows.")
    ] = 0,
    timeout: Annotated[str, typer.Option(metavar="DURATION", help="How long to wait for them.")] = "30s",
) -> None:
    """Publish a file's rows as messages. For message type json, each line of JSON is a body as it stands."""
    from spark_queue.cli.reading import Source, advise

    _check(publisher, timezone, epoch, repeat=repeat, append=append)
    source = Source(file, file_format, separator=separator, encoding=encoding, dropped=drop_column or ())
    opened = target.journal
    # A coordinator that is not reached fails no publish, so options by which none could be are refused before.
    opened.endpoint.check()
    waiting = _waiting(opened, replicated_to, timeout) if replicated_to else None
    to_rows = partial(_to_rows, source, definitions=opened.definitions(), topic=topic, timezone=timezone, epoch=epoch)
    sent = _Sent()
    with ExitStack() as stack:
        stack.enter_context(source)
        bar = stack.enter_context(progress())
        named = None if publisher is None else stack.enter_context(opened.publisher(publisher))
        first_sequence = None if named is None else _first_sequence(named, repeat=repeat, append=append)
        publish = (named or opened).publish
        commit: Callable[..., Published] = partial(publish, topic=topic, expires_after=expires_after, deliver_after=deliver_after)
        try:
            _publish_all(source, batch_rows, to_rows, commit, bar, sent=sent, first_sequence=first_sequence)
        except SparkQueueError as refusal:
            advise(refusal, source)
            # Earlier commits stay.
            _say_what_stands(file, sent, refusal, numbered=publisher is not None, append=append)
            raise
    if waiting is not None:
        waiting.wait(sent.commits)
    if not sent.standing:
        warn("warning", f"'{file}' holds no rows.", style="yellow")
    repeated = f", {sent.duplicates:,} were there already" if sent.duplicates else ""
    text = f"Published {sent.rows:,} message(s){repeated}."
    target.show({"rows": sent.rows, "duplicates": sent.duplicates}, text)


def _waiting(journal: Journal, count: int, timeout: str) -> ReplicationWait:
    """Make what waits until so many peers have what is published from now on."""
    from spark_queue.client.replicated import ReplicationWait
    from spark_queue.journal.reader import open_with_definitions

    reader, (_, definitions) = open_with_definitions(journal.store)
    return ReplicationWait(reader, definitions, count, timeout, journal.endpoint)


def _check(publisher: str | None, timezone: str | None, epoch: str | None, *, repeat: bool, append: bool) -> None:
    from spark_queue.journal.conversion import EPOCHS

    reason = None
    if repeat and append:
        reason = "the first is for rows that were published before, the second for new ones."
    elif (repeat or append) and publisher is None:
        reason = "rows are numbered for a publisher, but --publisher is missing."
    if reason is not None:
        raise ConfigError("CONTRADICTORY_SETTINGS", where="the arguments", reason=reason, keys="--repeat, --append")
    if timezone is not None and timezone not in zoneinfo.available_timezones():
        raise bad_argument("--timezone", timezone, "a zone, such as UTC or Europe/Berlin")
    if epoch is not None and epoch not in EPOCHS:
        raise bad_argument("--epoch", epoch, " or ".join(EPOCHS))


def _say_what_stands(file: str, sent: _Sent, refusal: SparkQueueError, *, numbered: bool, append: bool) -> None:
    """Return the number of rows that a refused file left in the journal, and a way to go on without doubling them, as a text."""
    nothing, text = "Nothing was published.", str(refusal)
    if sent.standing:
        # An error speaks of its own commit.
        refusal.args = (text.replace(nothing, "Nothing of this commit was published."),)
        refusal.add_note(_what_stands(file, sent, refusal, numbered=numbered, append=append))
    elif nothing not in text and isinstance(refusal, CallerError | ConfigError):
        refusal.add_note(nothing)


def _what_stands(file: str, sent: _Sent, refusal: SparkQueueError, *, numbered: bool, append: bool) -> str:
    # After a failure of the store nobody knows whether the last commit arrived.
    known = "The" if isinstance(refusal, CallerError | ConfigError) else "At least the"
    stands = f"{known} first {sent.standing:,} row(s) of '{file}' are in the journal."
    if numbered and not append:
        return f"{stands} Leave them in the file, correct what follows, and run the same command with --repeat, which skips them."
    again = "with --append again" if append else "because the whole file would double them"
    return f"{stands} Correct the rows that follow, and publish only those, {again}."


def _first_sequence(opened: Publisher, *, repeat: bool, append: bool) -> int:
    """Return the number of the file's first row: only its sender knows whether it repeats earlier rows or follows them."""
    last = opened.last_sequence
    if last is None or repeat:
        return 1
    if append:
        return last + 1
    reason = (
        f"It has {last:,} row(s) in the journal already. If this file begins with these rows, add --repeat to skip them; if all "
        "its rows are new, add --append, or give the file a publisher name of its own."
    )
    raise CallerError("SEQUENCE_MISSING", publisher=opened.name, what="--repeat or --append", reason=reason)


def _publish_all(
    source: Source,
    batch_rows: int,
    to_rows: Callable[..., pa.Table],
    commit: Callable[..., Published],
    bar: Progress,
    *,
    sent: _Sent,
    first_sequence: int | None,
) -> None:
    task = bar.add_task(harmless(f"publishing {source.name}"), total=source.size_bytes)
    lines = 0
    for batch in source.batches(batch_rows):
        # Rows are numbered by their place in the file, with any --batch-rows, so that a repeat of the file is known as one.
        numbered = {} if first_sequence is None else {"first_sequence": first_sequence + sent.standing}
        try:
            published = commit(to_rows(batch, first_line=lines + 1), **numbered)
        except SparkQueueError as refusal:
            if "row" in refusal.facts:
                where = _where(batch, int(refusal.facts["row"]), first_row=sent.standing + 1, first_line=lines + 1)
                refusal.add_note(f"Row {refusal.facts['row']} of this commit is {where} of '{source.name}'.")
            raise
        sent.commits.append(published)
        sent.rows, sent.duplicates, lines = sent.rows + published.rows, sent.duplicates + published.duplicates, lines + len(batch)
        bar.update(task, completed=source.read_bytes, description=harmless(f"publishing {source.name}: {sent.rows:,} messages"))


def _to_rows(source: Source, batch: pa.Table | list[bytes], *, first_line: int, definitions: Definitions, **told: Any) -> pa.Table:
    from spark_queue.journal.rows import from_json_lines, to_arrow

    if isinstance(batch, list):
        of_file: dict[str, Any] = {"source": source.name, "first_line": first_line, "dropped": source.dropped}
        return from_json_lines(batch, definitions, **told, **of_file)[1]
    return to_arrow(batch, definitions, **told)[1]


def _where(batch: pa.Table | list[bytes], row: int, *, first_row: int, first_line: int) -> str:
    """Return the place of a row in the file, as a text: people count from one, and blank lines are no rows."""
    if not isinstance(batch, list):
        return f"row {first_row + row:,}"
    lines = [line for line, text in enumerate(batch, start=first_line) if text.strip()]
    return f"line {lines[row]:,}"
