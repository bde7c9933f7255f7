"""The verbs. Each body has its own imports, so that help stays fast and a verb loads no other's.

A verb is declared where its body is, but for those two whose work needs most of the package.
"""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from spark_queue.cli.dashboard import dashboard
from spark_queue.cli.decide import decide, prove
from spark_queue.cli.definitions import apply, init
from spark_queue.cli.follow import follow
from spark_queue.cli.log import log
from spark_queue.cli.metrics import metrics
from spark_queue.cli.options import options
from spark_queue.cli.peek import explain, peek
from spark_queue.cli.peers import group as peers
from spark_queue.cli.peers import mark_restored, return_
from spark_queue.cli.publish import publish
from spark_queue.cli.queue_verbs import dead_letters, pause, proxied_transfer, purge, redrive, revive, settle, unpause, unsubscribe
from spark_queue.cli.serve import serve
from spark_queue.cli.status import check, status
from spark_queue.cli.stop import stop
from spark_queue.cli.tokens import group as tokens
from spark_queue.cli.verb import OF_COORDINATOR, OF_STORE, VerbTarget, verb
from spark_queue.cli.work import work

app = typer.Typer(
    name="sparkq",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(asked: bool) -> None:  # As typer calls it.
    if asked:
        from importlib.metadata import version

        from spark_queue.cli.output import say

        say(f"sparkq {version('spark-queue')}")
        raise typer.Exit


@app.callback()
def main(
    *, _: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")] = False
) -> None:
    """Look after spark_queue journals: create, publish, look inside, verify, serve."""


@verb(OF_STORE)
def verify(target: VerbTarget) -> None:
    """Check every promise of a journal on disk, and of an instance what it pulled from its peers. Exits with 1 if one is broken."""
    from spark_queue.cli import verify as work

    work.verify(target.journal.store, as_json=target.as_json)


@verb(OF_STORE)
def backup(
    target: VerbTarget,
    destination: Annotated[str, typer.Argument(metavar="DESTINATION", help="Empty directory or object-store prefix.")],
) -> None:
    """Copy a journal while it is in use, to restore it later. Options of another store come from your file of stores."""
    from dataclasses import asdict, replace

    from spark_queue.client.backup import back_up
    from spark_queue.journal.store import Store

    store, there = target.journal.store, Store(destination)
    of_there = target if there.is_local == store.is_local else replace(target, storage=None)
    found = back_up(store, Store(destination, of_there.storage_options(destination)))
    text = f"Copied journal {found.journal} with {found.records:,} records to {there.path}. `sparkq verify` checks the copy."
    if found.tables:
        told = f"Not copied: {', '.join(found.tables)}. Messages of followed tables stay there, and the copy reads them there, too."
        text = f"{text}\n{told}"
    target.show(asdict(found), text)


@verb(OF_COORDINATOR - {"path"})
def doctor(
    target: VerbTarget,
    path: Annotated[
        str | None, typer.Argument(metavar="[JOURNAL]", help=("Also check this journal's store and coordinator."))
    ] = None,
    *,
    fetch: Annotated[bool, typer.Option("--fetch", help="Fetch Delta's jars for Spark if they are missing.")] = False,
    checkpoint: Annotated[
        str | None, typer.Option("--checkpoint", metavar="PLACE", help="Also check where this checkpoint of a query is.")
    ] = None,
) -> None:
    """Check what queues need on this host, and say how to fix what fails. Exits with 1 if something does."""
    from dataclasses import replace

    from spark_queue.cli import doctor as work

    journal = None if path is None else replace(target, path=path).journal
    work.doctor(journal, fetch=fetch, checkpoint=checkpoint, as_json=target.as_json)


for each in (
    *(pause, unpause, purge, settle, redrive, unsubscribe, decide, prove, revive, proxied_transfer),
    *(init, apply, options, publish, work, status, check, peek, explain, dead_letters, log),
    *(metrics, dashboard, verify, backup, serve, stop, mark_restored, follow, doctor),
):
    app.command()(each)
app.command("return")(return_)
app.add_typer(peers)
app.add_typer(tokens)


def run() -> None:
    """Run the command line; a refusal prints its code and text and exits with 1, wrong usage with 2."""
    from spark_queue.cli.output import show_error
    from spark_queue.errors import CallerError, SparkQueueError

    # Where a service or a shell has closed one of them there is none.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - it stays open as long as the process.
    try:
        app()
    except SparkQueueError as refusal:
        show_error(refusal, as_json="--json" in sys.argv)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # The reader of a pipe, such as head, has seen enough; nothing more can be written to it.
        sys.stderr.close()
        sys.exit(1)
    except OSError as reason:
        # Failures of a store have names: this is the file, or the disk, that the output goes to.
        if reason.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO):
            raise
        show_error(CallerError("OUTPUT_FAILED", reason=reason.strerror), as_json="--json" in sys.argv)
        sys.exit(1)
