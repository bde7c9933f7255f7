"""``sparkq serve`` and ``sparkq stop``.

``sparkq token``: tokens of principals (R12).
``sparkq dashboard``: the page for people.
``sparkq metrics``: what Prometheus is told of journals.
"""

from __future__ import annotations

import importlib.util
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from spark_queue.cli.arguments import (
    Coordinator,
    JournalPath,
    Json,
    PerSubscription,
    StorageOptions,
    TokenFile,
    bad_argument,
    open_target,
    storage_options,
)
from spark_queue.cli.output import say, show, show_exact
from spark_queue.errors import ConfigError, CoordinatorError

if TYPE_CHECKING:
    from spark_queue.client.journal import Journal
    from spark_queue.coordinator.process import Environment
    from spark_queue.journal.store import Store
    from spark_queue.metrics.samples import Family
    from spark_queue.protocol.host import Bind, MetricsOptions, StartOptions

group = typer.Typer(name="token", help="Make tokens of principals.", no_args_is_help=True)


@group.command()
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The principal, as [principals.NAME] in the definitions.")],
    *,
    json: Json = False,
) -> None:
    """Make a token, print it this once, and print the hash for the definitions."""
    from spark_queue.core.definitions.keys import valid_name
    from spark_queue.errors import ConfigError
    from spark_queue.protocol.tokens import new_token, token_hash
    from spark_queue.protocol.user_files import TOKEN_FILE_VARIABLE, TOKEN_VARIABLE

    if not valid_name(name):
        raise ConfigError("NAME_INVALID", what="principal", name=name)
    token = new_token()
    lines = [
        f"Token of {name}, printed this once; it is stored nowhere:",
        f"  {token}",
        "Save it in a file of mode 0600, followed by a space and the journal's path. Name the file by --token-file, token_file= in",
        f"Python, the option tokenFile of a stream, or {TOKEN_FILE_VARIABLE}; or put the same text into {TOKEN_VARIABLE}.",
        f"In the definitions, under [principals.{name}]:",
        f'  token_hash = "{token_hash(token)}"',
    ]
    show({"principal": name, "token": token, "token_hash": token_hash(token)}, "\n".join(lines), as_json=json)


#: The packages of the extra.
_EXTRA = ("starlette", "uvicorn", "jinja2", "multipart")


def dashboard(
    journals: Annotated[list[str], typer.Argument(metavar="JOURNAL…", help="Directories or object-store prefixes of journals.")],
    *,
    host: Annotated[
        str, typer.Option(help="Where to listen; another host than loopback needs TLS and a token file.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="The port; 0 for any that is free.")] = 7380,
    allow_changes: Annotated[
        bool,
        typer.Option(
            "--allow-changes", help="Let whoever is logged in redrive, settle, purge and pause; starts a coordinator for that."
        ),
    ] = False,
    hide_bodies: Annotated[bool, typer.Option("--hide-bodies", help="Show no bodies of messages.")] = False,
    token_file: Annotated[
        Path | None, typer.Option(help="File with the login's token; default: a new token with each start, which is printed.")
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate chain, PEM.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Private key, PEM.")] = None,
    allowed_host: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A further name that browsers call this host by; may repeat.")
    ] = None,
    coordinator: Coordinator = None,
    storage: StorageOptions = None,
    json: Json = False,
) -> None:
    """Show journals in a browser, live: queues, messages, dead letters, history. Reads only, and starts nothing."""
    for name in _EXTRA:
        if importlib.util.find_spec(name) is None:
            raise ConfigError("EXTRA_MISSING", what="The dashboard", package=name, extra="dashboard")
    if coordinator is not None and len(journals) > 1:
        raise bad_argument("--coordinator", coordinator, "left out where several journals are shown: each has its own")
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
        coordinator=coordinator,
        allows_changes=allow_changes,
        hides_bodies=hide_bodies,
    )

    # It tells how changes end whose page was left.
    logs.configure("text")

    def announce(address: str) -> None:
        show({"address": address}, f"Open {address}\nCtrl-C ends it.", as_json=json)

    serve([Store(path, storage_options(path, storage)) for path in journals], options, announce)


def metrics(
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
            help="Keep running, and replace the file every so many seconds until Ctrl-C; reads only what is new.",
        ),
    ] = None,
    per_subscription: PerSubscription = False,
    storage: StorageOptions = None,
) -> None:
    """Print the metrics of journals in the text format of Prometheus. Starts nothing."""
    from spark_queue.metrics.prometheus import render
    from spark_queue.metrics.samples import observe

    if textfile is not None and textfile.suffix != ".prom":
        raise bad_argument("--textfile", str(textfile), "a name that ends in .prom, since the node exporter reads no other")
    if every is not None and textfile is None:
        raise bad_argument("--every", f"{every:g}", "given together with --textfile, which names the file to replace")
    # Each once: who scrapes refuses a series that comes twice.
    stores = list({store.path: store for store in (open_target(journal, storage).store for journal in journals)}.values())
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


#: How long a background coordinator may take to say where it serves, in seconds.
START_S = 60.0

#: How long a coordinator may take to answer that it stops, in seconds.
STOP_S = 15.0


def serve(
    journal: JournalPath,
    *,
    bind: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where to listen; another host than loopback needs TLS.")
    ] = "127.0.0.1:0",
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate chain, PEM.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Private key, PEM.")] = None,
    daemon: Annotated[bool, typer.Option("--daemon", help="Run in the background until `sparkq stop`.")] = False,
    standby: Annotated[
        bool | None,
        typer.Option(
            "--standby/--no-wait",
            help="While another one serves: wait, and take over when it is silent (the default); or exit with 1, as --daemon does.",
        ),
    ] = None,
    accept_clock: Annotated[bool, typer.Option("--accept-clock", help="Serve although the log is ahead of the clock.")] = False,
    metrics: Annotated[
        str | None,
        typer.Option(metavar="[HOST:]PORT", help="Answer Prometheus there; on loopback, unless a host is given. Port 0 finds one."),
    ] = None,
    metrics_token_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Token that scrapers must give; required beyond loopback, as is TLS."),
    ] = None,
    per_subscription: PerSubscription = False,
    log_format: Annotated[str, typer.Option(metavar="text|json", help="How the log is written.")] = "text",
    storage: StorageOptions = None,
    json: Json = False,
) -> None:
    """Run the journal's coordinator until Ctrl-C, or stand by for the one that runs."""
    from spark_queue.client.coordinator_client import launch
    from spark_queue.coordinator import logs, process
    from spark_queue.protocol import user_files
    from spark_queue.protocol.host import StartOptions, location_of

    if log_format not in logs.FORMATS:
        raise bad_argument("--log-format", log_format, "text or json")
    if daemon and standby:
        raise bad_argument("--daemon", "with --standby", "one of the two: let a service of the system keep a stand-in")
    target = open_target(journal, storage)
    store, journal_id = target.store, target.journal_id()
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
        show({"journal": journal_id, "address": address}, text, as_json=json)

    if daemon:
        announce(launch(options, timeout_s=START_S))
        if not json:
            say(f"Its log: {user_files.log_path(journal_id, location_of(store))}")
        return
    logs.configure(log_format)
    environment = _environment(options)
    if standby is False:
        process.serve(options, announce, environment)
    _stand_by(options, announce, environment)


def _environment(options: StartOptions) -> Environment:
    """Start what tells metrics: before it is known whether this process serves or stands by, since both are told there."""
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


def stop(
    journal: JournalPath,
    *,
    coordinator: Coordinator = None,
    token_file: TokenFile = None,
    storage: StorageOptions = None,
    json: Json = False,
) -> None:
    """End the journal's coordinator in good order; the next caller that needs one starts it again."""
    target = open_target(journal, storage, coordinator, token_file)
    journal_id = target.journal_id()
    stopped = stop_coordinator(target, journal_id)
    text = "The coordinator ends." if stopped else "No coordinator runs."
    show({"journal": journal_id, "stopped": stopped}, text, as_json=json)


def stop_coordinator(target: Journal, journal_id: str) -> bool:
    """Tell the coordinator to end; returns whether one runs."""
    from spark_queue.client.coordinator_client import call_once
    from spark_queue.protocol import wire
    from spark_queue.protocol.connection import Endpoint

    endpoint = target.endpoint
    if endpoint.addresses is not None and _nobody_listens(target, journal_id):
        # Its services are stopped: the aim, unless a caller without their addresses has started another one.
        endpoint = Endpoint(token_file=endpoint.token_file)
    try:
        call_once(target.store, journal_id, wire.Stop(), endpoint=endpoint, start=False, timeout_s=STOP_S)
    except CoordinatorError as refusal:
        # One that is silent at an address may run all the same.
        if endpoint.addresses is not None or refusal.code != "COORDINATOR_UNAVAILABLE":
            raise
        return False
    return True


def _nobody_listens(target: Journal, journal_id: str) -> bool:
    """Return whether nobody at all listens where coordinators are said to be, or only somebody else."""
    from functools import partial

    from spark_queue.client.coordinator_client import PING_S
    from spark_queue.protocol.connection import Verdict, ping
    from spark_queue.protocol.host import location_of

    store, token = target.store, partial(target.endpoint.token, target.store)
    at = (ping(address, journal_id, location_of(store), PING_S, token) for address in target.endpoint.uris())
    return all(verdict is Verdict.GONE for verdict in at)
