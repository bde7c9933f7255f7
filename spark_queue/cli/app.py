"""The verbs and their arguments. Each body imports what it needs, so that help stays fast and a verb loads only its own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from spark_queue.cli.arguments import Coordinator, JournalPath, Json, QueueName, StorageOptions
from spark_queue.cli.queue_verbs import pause, purge, redrive, settle, unpause, unsubscribe

app = typer.Typer(
    name="sparkq",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

for verb in (pause, unpause, purge, settle, redrive, unsubscribe):
    app.command()(verb)


def _print_version(asked: bool) -> None:  # As typer calls it.
    if asked:
        from importlib.metadata import version

        typer.echo(f"sparkq {version('spark-queue')}")
        raise typer.Exit


@app.callback()
def main(
    *, _: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")] = False
) -> None:
    """Look after spark_queue journals: create, publish, look inside, verify, serve."""


@app.command()
def init(
    journal: JournalPath,
    definitions: Annotated[Path | None, typer.Argument(metavar="[DEFINITIONS]", help="TOML file to apply at once.")] = None,
    *,
    storage: StorageOptions = None,
    json: Json = False,
) -> None:
    """Create a journal."""
    from spark_queue.cli import definitions as verb

    verb.init(journal, definitions, storage, as_json=json)


@app.command()
def apply(
    journal: JournalPath,
    definitions: Annotated[Path, typer.Argument(metavar="DEFINITIONS", help="TOML file with the whole set.")],
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")] = False,
    reset: Annotated[
        list[str] | None, typer.Option(metavar="QUEUE", help="Take this queue's recovery point again; may repeat.")
    ] = None,
    remove: Annotated[
        list[str] | None, typer.Option(metavar="QUEUE", help="Let this queue go, which the file leaves out; may repeat.")
    ] = None,
    coordinator: Coordinator = None,
    storage: StorageOptions = None,
    json: Json = False,
) -> None:
    """Make a definition file the definitions of a journal."""
    from spark_queue.cli import definitions as verb

    verb.apply(journal, definitions, storage, coordinator, dry_run=dry_run, reset=reset or [], remove=remove or [], as_json=json)


@app.command()
def options(
    *,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the tables as Markdown, as the reference has them.")] = False,
    json: Json = False,
) -> None:
    """List every key of a definition file and every Spark option."""
    from spark_queue.cli import options as verb

    verb.options(markdown=markdown, as_json=json)


@app.command()
def publish(
    journal: JournalPath,
    source: Annotated[str, typer.Argument(metavar="FILE", help="CSV, JSON lines or Parquet, also .gz; - for stdin.")],
    *,
    topic: Annotated[str | None, typer.Option(help="Topic, or a queue's name; default: the rows' own column topic.")] = None,
    publisher: Annotated[str | None, typer.Option(help="Publisher name: rows are numbered, so that a repeat can be told.")] = None,
    repeat: Annotated[
        bool,
        typer.Option(
            "--repeat",
            help="The publisher sent this file before, wholly or in part: drop as many rows as are there, uncompared.",
        ),
    ] = False,
    append: Annotated[bool, typer.Option("--append", help="The publisher sent other rows before: number on after them.")] = False,
    file_format: Annotated[
        str | None, typer.Option("--format", metavar="csv|jsonl|parquet", help="Default: by the file's name; for stdin: jsonl.")
    ] = None,
    batch_rows: Annotated[int, typer.Option(min=1, help="Rows in one commit.")] = 100_000,
    expires_after: Annotated[str | None, typer.Option(metavar="DURATION", help='Such as "1h".')] = None,
    timezone: Annotated[str | None, typer.Option(metavar="ZONE", help="Zone of times without an offset; default: refused.")] = None,
    storage: StorageOptions = None,
    json: Json = False,
) -> None:
    """Publish a file's rows as messages. Into message type json each line of JSON goes whole, as the body."""
    from spark_queue.cli import publish as verb

    request = verb.Request(
        source=source,
        topic=topic,
        publisher=publisher,
        repeat=repeat,
        append=append,
        file_format=file_format,
        batch_rows=batch_rows,
        expires_after=expires_after,
        timezone=timezone,
    )
    verb.publish(journal, request, storage, as_json=json)


@app.command()
def status(
    journal: JournalPath,
    queue: Annotated[str | None, typer.Argument(metavar="[QUEUE]", help="Only this queue.")] = None,
    *,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Look again every 2 s until Ctrl-C.")] = False,
    as_of: Annotated[str | None, typer.Option(metavar="TIME|RECORD", help="ISO-8601 time with offset, or a record number.")] = None,
    storage: StorageOptions = None,
    json: Json = False,
) -> None:
    """Show how the queues are doing. Starts nothing. Exits with 2 where a queue has an alarm."""
    from spark_queue.cli import status as verb

    verb.status(journal, queue, storage, watch=watch, as_of=as_of, as_json=json)


@app.command()
def peek(
    journal: JournalPath,
    queue: QueueName,
    *,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Rows to show.")] = 10,
    view: Annotated[str, typer.Option(help="messages, dead_letters, leases, subscriptions or history.")] = "messages",
    columns: Annotated[str | None, typer.Option(metavar="A,B,…", help="Only these columns.")] = None,
    as_of: Annotated[str | None, typer.Option(metavar="TIME|RECORD", help="ISO-8601 time with offset, or a record number.")] = None,
    storage: StorageOptions = None,
    json: Json = False,
) -> None:
    """Show the oldest messages of a queue without taking them. Starts nothing."""
    from spark_queue.cli import status as verb

    verb.peek(journal, queue, storage, limit=limit, view=view, columns=columns, as_of=as_of, as_json=json)


@app.command()
def explain(
    journal: JournalPath,
    queue: QueueName,
    bookmark: Annotated[int, typer.Argument(metavar="BOOKMARK", help="The message's number.")],
    *,
    as_of: Annotated[str | None, typer.Option(metavar="TIME|RECORD", help="ISO-8601 time with offset, or a record number.")] = None,
    storage: StorageOptions = None,
    json: Json = False,
) -> None:
    """Tell the whole life of one message: publish, leases, returns, its end. Starts nothing."""
    from spark_queue.cli import status as verb

    verb.explain(journal, queue, bookmark, storage, as_of=as_of, as_json=json)


@app.command()
def verify(journal: JournalPath, *, storage: StorageOptions = None, json: Json = False) -> None:
    """Check every promise of a journal on disk. Exits 1 when one is broken."""
    from spark_queue.cli import verify as verb

    verb.verify(journal, storage, as_json=json)


@app.command()
def serve(
    journal: JournalPath,
    *,
    bind: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where to listen; another host than loopback needs TLS.")
    ] = "127.0.0.1:0",
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate chain, PEM.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Private key, PEM.")] = None,
    daemon: Annotated[bool, typer.Option("--daemon", help="Run in the background until `sparkq stop`.")] = False,
    no_wait: Annotated[
        bool,
        typer.Option("--no-wait", help="Exit with 1 where another one serves, as --daemon does; default: take over when it ends."),
    ] = False,
    accept_clock: Annotated[bool, typer.Option("--accept-clock", help="Serve although the log is ahead of the clock.")] = False,
    storage: StorageOptions = None,
    json: Json = False,
) -> None:
    """Run the journal's coordinator until Ctrl-C; while another one serves, wait for its end."""
    from spark_queue.cli import serve as verb

    verb.serve(
        journal,
        storage,
        bind=bind,
        tls=(tls_cert, tls_key),
        daemon=daemon,
        wait=not no_wait,
        accept_clock=accept_clock,
        as_json=json,
    )


@app.command()
def stop(journal: JournalPath, *, coordinator: Coordinator = None, storage: StorageOptions = None, json: Json = False) -> None:
    """End the journal's coordinator in good order; the next caller that needs one starts it again."""
    from spark_queue.cli import serve as verb

    verb.stop(journal, storage, coordinator, as_json=json)


@app.command()
def doctor(
    journal: Annotated[
        str | None, typer.Argument(metavar="[JOURNAL]", help="Also try this journal's store and coordinator.")
    ] = None,
    *,
    fetch: Annotated[bool, typer.Option("--fetch", help="Fetch Delta's jars for Spark, where they are not.")] = False,
    storage: StorageOptions = None,
    json: Json = False,
) -> None:
    """Try what queues need on this host, and say what to do about what fails. Exits 1 when something does."""
    from spark_queue.cli import doctor as verb

    verb.doctor(journal, storage, fetch=fetch, as_json=json)


def run() -> None:
    """Run the command line; a refusal prints its code and text and exits with 1, wrong usage with 2."""
    from spark_queue.cli.output import show_error
    from spark_queue.errors import SparkQueueError

    try:
        app()
    except SparkQueueError as refusal:
        show_error(refusal, as_json="--json" in sys.argv)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # The reader of a pipe, such as head, has seen enough; nothing more can be said to it.
        sys.stderr.close()
        sys.exit(1)
