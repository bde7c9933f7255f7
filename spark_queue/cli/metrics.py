"""``sparkq metrics``: what Prometheus is told of journals."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from spark_queue.cli.arguments import PerSubscription, StorageOptions, bad_argument, open_target


def metrics(
    journals: Annotated[list[str], typer.Argument(metavar="JOURNAL…", help="Directories or object-store prefixes of journals.")],
    *,
    textfile: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Replace this file, whose name ends in .prom, for the node exporter.")
    ] = None,
    per_subscription: PerSubscription = False,
    storage: StorageOptions = None,
) -> None:
    """Tell the metrics of journals in the text format of Prometheus. Starts nothing."""
    from spark_queue.metrics.observing import observe
    from spark_queue.metrics.prometheus import render, write

    families = observe((open_target(journal, storage).store for journal in journals), per_subscription=per_subscription)
    if textfile is None:
        typer.echo(render(families).decode(), nl=False)
        return
    if textfile.suffix != ".prom":
        raise bad_argument("--textfile", str(textfile), "a name that ends in .prom, since the node exporter reads no other")
    try:
        write(families, textfile)
    except OSError as failure:
        raise bad_argument("--textfile", str(textfile), f"a file that can be written: {failure.strerror}") from None
