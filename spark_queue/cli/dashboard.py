"""``sparkq dashboard``: the page for people."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Annotated

import typer

from spark_queue.cli.arguments import bad_argument
from spark_queue.cli.verb import COORDINATOR_VARIABLE, VerbTarget, verb
from spark_queue.errors import ConfigError

#: The packages of the extra.
_EXTRA = ("starlette", "uvicorn", "jinja2", "multipart")


@verb({"coordinator", "storage", "as_json"})
def dashboard(
    target: VerbTarget,
    journals: Annotated[list[str], typer.Argument(metavar="JOURNAL…", help="Directories or object-store prefixes of journals.")],
    *,
    host: Annotated[str, typer.Option(help="Where to listen; any host but loopback needs TLS and a token file.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="The port; 0 picks a free one.")] = 7380,
    allow_changes: Annotated[
        bool,
        typer.Option(
            "--allow-changes", help="Let logged-in users redrive, settle, purge and pause; starts a coordinator for that."
        ),
    ] = False,
    hide_bodies: Annotated[bool, typer.Option("--hide-bodies", help="Hide message bodies.")] = False,
    token_file: Annotated[
        Path | None, typer.Option(help="File with the login token; default: a new token at each start, which is printed.")
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate chain, PEM.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Private key, PEM.")] = None,
    allowed_host: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Another name by which browsers reach this host; may repeat.")
    ] = None,
) -> None:
    """Show journals in a browser, live: queues, messages, dead letters, history. Reads only, and starts nothing."""
    for name in _EXTRA:
        if importlib.util.find_spec(name) is None:
            raise ConfigError("EXTRA_MISSING", what="The dashboard", package=name, extra="dashboard")
    if target.coordinator is not None and len(journals) > 1:
        expected = f"left out where several journals are shown, as is {COORDINATOR_VARIABLE}: each has its own"
        raise bad_argument("--coordinator", target.coordinator, expected)
    from spark_queue.coordinator import logs
    from spark_queue.dashboard.app import ServingOptions, serve
    from spark_queue.journal.store import Store

    options = ServingOptions(
        host=host,
        port=port,
        tls_cert=tls_cert,
        tls_key=tls_key,
        token_file=token_file,
        allowed_hosts=allowed_host or (),
        coordinator=target.coordinator,
        allows_changes=allow_changes,
        hides_bodies=hide_bodies,
    )

    # Its log has the ends of changes that were left by their readers.
    logs.configure("text")

    def announce(address: str) -> None:
        target.show({"address": address}, f"Open {address}\nCtrl-C ends it.")

    serve([Store(path, target.storage_options(path)) for path in journals], options, announce)
