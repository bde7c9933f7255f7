"""``sparkq serve``."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from spark_queue.cli.arguments import PerSubscription, bad_argument
from spark_queue.cli.output import say
from spark_queue.cli.verb import OF_STORE, VerbTarget, verb

if TYPE_CHECKING:
    from spark_queue.coordinator.process import Environment
    from spark_queue.protocol.host import Bind, MetricsOptions, StartOptions


#: The time for a background coordinator to report its address, in seconds.
START_S = 60.0


@verb(OF_STORE)
def serve(
    target: VerbTarget,
    *,
    bind: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where to listen; any host but loopback needs TLS.")
    ] = "127.0.0.1:0",
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate chain, PEM.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Private key, PEM.")] = None,
    daemon: Annotated[bool, typer.Option("--daemon", help="Run in the background until `sparkq stop`.")] = False,
    standby: Annotated[
        bool | None,
        typer.Option(
            "--standby/--no-wait",
            help="If another one serves: wait, and take over when it is silent (the default); or exit with 1, as --daemon does.",
        ),
    ] = None,
    accept_clock: Annotated[bool, typer.Option("--accept-clock", help="Serve even if the log is ahead of the clock.")] = False,
    metrics: Annotated[
        str | None,
        typer.Option(
            metavar="[HOST:]PORT",
            help=("Serve metrics for Prometheus there; on loopback unless a host is given. Port 0 picks a free one."),
        ),
    ] = None,
    metrics_token_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File with the token that scrapers must send; required beyond loopback, as is TLS."),
    ] = None,
    per_subscription: PerSubscription = False,
    log_format: Annotated[str, typer.Option(metavar="text|json", help="Format of the log.")] = "text",
) -> None:
    """Run the journal's coordinator until Ctrl-C, or stand by for the one that runs."""
    from spark_queue.client.launcher import launch
    from spark_queue.coordinator import logs, process
    from spark_queue.protocol import user_files
    from spark_queue.protocol.host import StartOptions, location_of

    if log_format not in logs.FORMATS:
        raise bad_argument("--log-format", log_format, "text or json")
    if daemon and standby:
        raise bad_argument("--daemon", "with --standby", "one of the two: run a stand-in as a service of the system")
    store, journal_id = target.journal.store, target.journal.journal_id()
    options = StartOptions(
        path=store.path,
        storage_options=dict(store.storage_options),
        journal_id=journal_id,
        bind=_bind(bind, tls_cert, tls_key),
        ends_idle=False,
        accept_clock=accept_clock,
        metrics=_metrics(metrics, metrics_token_file, per_subscription=per_subscription),
        log_format=log_format,
    )

    def announce(address: str) -> None:
        text = f"The coordinator of journal {journal_id} serves at {address}."
        target.show({"journal": journal_id, "address": address}, text)

    if daemon:
        announce(launch(options, timeout_s=START_S))
        if not target.as_json:
            say(f"Its log: {user_files.log_path(journal_id, location_of(store))}")
        return
    logs.configure(log_format)
    environment = _environment(options)
    if standby is False:
        process.serve(options, announce, environment)
    _stand_by(options, announce, environment)


def _environment(options: StartOptions) -> Environment:
    """Start the server of metrics: before it is known whether this process serves or stands by, since both have metrics."""
    from spark_queue.coordinator import process

    told, scraped_at = process.start_metrics(options)
    if scraped_at is not None:
        say(f"Metrics are at {scraped_at}.", is_news=True)
    return process.Environment(metrics=told)


def _stand_by(options: StartOptions, announce: Callable[[str], None], environment: Environment) -> None:
    """Serve, or wait until that is possible; a signal ends the waiting."""
    from spark_queue.coordinator import process

    told_to_end = Event()

    def end(_number: int, _frame: object) -> NoReturn:
        told_to_end.set()
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    try:
        process.stand_by(options, announce, _waits, told_to_end, environment)
    except KeyboardInterrupt:
        say("It ends without having served.", is_news=True)


def _waits(address: str) -> None:
    found = f"Another coordinator serves this journal at {address}"
    say(f"{found}; this one takes over when that one is silent. Ctrl-C ends the waiting.", is_news=True)


def _metrics(text: str | None, token_file: Path | None, *, per_subscription: bool) -> MetricsOptions | None:
    from spark_queue.protocol.host import MetricsOptions

    if text is None:
        if token_file is not None:
            raise bad_argument("--metrics-token-file", str(token_file), "given together with --metrics")
        return None
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65_535:
        raise bad_argument("--metrics", text, "PORT or HOST:PORT, with port 0 for any")
    return MetricsOptions(
        host=host.strip("[]") or "127.0.0.1",
        port=int(port),
        per_subscription=per_subscription,
        token_file=None if token_file is None else str(token_file.resolve()),
    )


def _bind(text: str, cert: Path | None, key: Path | None) -> Bind:
    from spark_queue.protocol.host import Bind

    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65_535:
        raise bad_argument("--bind", text, "HOST:PORT, with port 0 for any")
    if (cert is None) != (key is None):
        given, missing = ("--tls-key", "--tls-cert") if cert is None else ("--tls-cert", "--tls-key")
        raise bad_argument(given, str(cert or key), f"given together with {missing}")
    return Bind(
        host=host.strip("[]"),
        port=int(port),
        tls_cert=None if cert is None else str(cert.resolve()),
        tls_key=None if key is None else str(key.resolve()),
    )
