"""``sparkq serve`` and ``sparkq stop``."""

from __future__ import annotations

import logging
import signal
from pathlib import Path
from threading import Event
from typing import NoReturn

from spark_queue.cli.output import err, out, show_json
from spark_queue.cli.target import open_target
from spark_queue.client.coordinator_client import call_once
from spark_queue.client.launcher import launch
from spark_queue.coordinator.process import serve as serve_here
from spark_queue.coordinator.process import stand_by
from spark_queue.errors import ConfigError, CoordinatorError, SparkQueueError
from spark_queue.protocol import user_files, wire
from spark_queue.protocol.journal_location import location_of
from spark_queue.protocol.start_options import Bind, StartOptions

#: How long a background coordinator may take to say where it serves, in seconds.
START_S = 60.0

#: How long a coordinator may take to answer that it stops, in seconds.
STOP_S = 15.0


def serve(
    path: str,
    storage: list[str] | None,
    *,
    bind: str,
    tls: tuple[Path | None, Path | None],
    daemon: bool,
    wait: bool,
    accept_clock: bool,
    as_json: bool,
) -> None:
    """Run a coordinator, here or in the background; it does not end when nobody calls.

    Where another one serves, it takes over when that one ends; in the background, and without `wait`, it is refused.
    """
    journal = open_target(path, storage)
    store, journal_id = journal.store, journal.journal_id()
    orders = StartOptions(
        path=store.path,
        storage_options=dict(store.storage_options),
        journal_id=journal_id,
        bind=_bind(bind, tls),
        ends_idle=False,
        accept_clock=accept_clock,
    )
    if daemon:
        address = launch(orders, timeout_s=START_S)
        _announce(journal_id, address, as_json=as_json)
        if not as_json:
            out.print(f"Its log: {user_files.log_path(journal_id, location_of(store))}", soft_wrap=True)
        return
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")

    def announce(address: str) -> None:
        _announce(journal_id, address, as_json=as_json)

    if not wait:
        serve_here(orders, announce)
    told_to_end = Event()

    def end(_number: int, _frame: object) -> NoReturn:
        told_to_end.set()
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    try:
        stand_by(orders, announce, _waits, told_to_end)
    except KeyboardInterrupt:
        err.print("It ends without having served.")


def _waits(refusal: SparkQueueError) -> None:
    where = refusal.facts.get("address") or refusal.facts.get("host")
    found = "Another coordinator serves this journal" + (f" at {where}" if where else "")
    err.print(f"{found}; this one takes over when that one ends. Ctrl-C ends the waiting.", markup=False, soft_wrap=True)


def _announce(journal_id: str, address: str, *, as_json: bool) -> None:
    if as_json:
        show_json({"journal": journal_id, "address": address})
    else:
        out.print(f"The coordinator of journal {journal_id} serves at {address}.", soft_wrap=True)


def _bind(text: str, tls: tuple[Path | None, Path | None]) -> Bind:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65_535:
        raise ConfigError("BAD_VALUE", key="--bind", where="the arguments", value=text, expected="HOST:PORT, with port 0 for any")
    cert, key = tls
    if (cert is None) != (key is None):
        (given, value), missing = (("--tls-key", key), "--tls-cert") if cert is None else (("--tls-cert", cert), "--tls-key")
        expected = f"given together with {missing}"
        raise ConfigError("BAD_VALUE", key=given, where="the arguments", value=str(value), expected=expected)
    return Bind(
        host=host.strip("[]"),
        port=int(port),
        tls_cert=None if cert is None else str(cert.resolve()),
        tls_key=None if key is None else str(key.resolve()),
    )


def stop(path: str, storage: list[str] | None, coordinator: str | None, *, as_json: bool) -> None:
    """End the coordinator; that none runs is no error."""
    journal = open_target(path, storage, coordinator)
    journal_id = journal.journal_id()
    stopped = True
    try:
        call_once(journal.store, journal_id, wire.Stop(), address=coordinator, start=False, timeout_s=STOP_S)
    except CoordinatorError as refusal:
        # With an address the user says that one runs there; without one, nobody answering is the aim.
        if coordinator is not None or refusal.code != "COORDINATOR_UNAVAILABLE":
            raise
        stopped = False
    if as_json:
        show_json({"journal": journal_id, "stopped": stopped})
    else:
        out.print("The coordinator ends." if stopped else "No coordinator runs.")
