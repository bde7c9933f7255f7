"""``sparkq stop``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_queue.cli.arguments import Coordinator, JournalPath, Json, StorageOptions, TokenFile, open_target
from spark_queue.cli.output import show
from spark_queue.errors import CoordinatorError

if TYPE_CHECKING:
    from spark_queue.client.journal import Journal


#: The time for a coordinator to answer that it stops, in seconds.
STOP_S = 15.0


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
    """Ask the coordinator to end; returns whether one ran."""
    from spark_queue.client.coordinator_client import call_once
    from spark_queue.protocol import wire
    from spark_queue.protocol.connection import Endpoint

    endpoint = target.endpoint
    if endpoint.addresses is not None and _nobody_listens(target, journal_id):
        # Its services are stopped, as is meant, unless a caller without their addresses has started another one.
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
    """Return whether nothing, or only a stranger, listens at the coordinator's addresses."""
    from functools import partial

    from spark_queue.client.coordinator_client import PING_S
    from spark_queue.protocol.connection import Verdict, ping
    from spark_queue.protocol.host import location_of

    store, token = target.store, partial(target.endpoint.token, target.store)
    at = (ping(address, journal_id, location_of(store), PING_S, token) for address in target.endpoint.uris())
    return all(verdict is Verdict.GONE for verdict in at)
