"""``sparkq metrics``: the metrics of journals, for Prometheus."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from spark_queue.cli.arguments import PerSubscription, bad_argument
from spark_queue.cli.output import show_exact
from spark_queue.cli.verb import VerbTarget, verb

if TYPE_CHECKING:
    from spark_queue.journal.store import Store
    from spark_queue.metrics.samples import Family


@verb({"storage"})
def metrics(
    target: VerbTarget,
    journals: Annotated[list[str], typer.Argument(metavar="JOURNAL…", help="Directories or object-store prefixes of journals.")],
    *,
    textfile: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Replace this file, whose name ends in .prom, for the node exporter.")
    ] = None,
    every: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            min=1,
            help="Keep running, and replace the file at this interval in seconds until Ctrl-C; reads only what is new.",
        ),
    ] = None,
    per_subscription: PerSubscription = False,
) -> None:
    """Print the metrics of journals in the text format of Prometheus. Starts nothing."""
    from spark_queue.journal.store import Store
    from spark_queue.metrics.prometheus import render
    from spark_queue.metrics.samples import observe

    if textfile is not None and textfile.suffix != ".prom":
        raise bad_argument("--textfile", str(textfile), "a name that ends in .prom, since the node exporter reads no other")
    if every is not None and textfile is None:
        raise bad_argument("--every", f"{every:g}", "given together with --textfile, which names the file to replace")
    # Each once: who scrapes refuses a series that comes twice.
    stores = list({store.path: store for store in (Store(path, target.storage_options(path)) for path in journals)}.values())
    if textfile is not None and every is not None:
        _keep(stores, textfile, every_s=every, per_subscription=per_subscription)
    families = observe(stores, per_subscription=per_subscription)
    if textfile is None:
        show_exact(render(families).decode())
    else:
        _write(families, textfile)


def _keep(stores: Sequence[Store], textfile: Path, *, every_s: float, per_subscription: bool) -> NoReturn:
    """Replace a file again and again."""
    from spark_queue.following.follower import JournalFollower, families_of

    followers = [JournalFollower(store.path, store) for store in stores]
    while True:
        for follower in followers:
            follower.refresh()
        _write(families_of(followers, per_subscription=per_subscription), textfile)
        time.sleep(every_s)


def _write(families: Sequence[Family], textfile: Path) -> None:
    from spark_queue.metrics.prometheus import write

    try:
        write(families, textfile)
    except OSError as failure:
        raise bad_argument("--textfile", str(textfile), f"a file that can be written: {failure.strerror}") from None
