"""``sparkq stop``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_queue.cli.verb import OF_COORDINATOR, VerbTarget, verb
from spark_queue.errors import CoordinatorError

if TYPE_CHECKING:
    from spark_queue.client.journal import Journal


#: The time for a coordinator to answer that it stops, in seconds.
STOP_S = 15.0


@verb(OF_COORDINATOR)
def stop(target: VerbTarget) -> None:
    """Stop the journal's coordinator cleanly; the next caller that needs one starts it again."""
    journal_id = target.journal.journal_id()
    stopped = stop_coordinator(target.journal, journal_id)
    text = "The coordinator ends." if stopped else "No coordinator runs."
    target.show({"journal": journal_id, "stopped": stopped}, text)


def stop_coordinator(journal: Journal, journal_id: str) -> bool:
    """Tell the coordinator to end; returns whether one runs."""
    from spark_queue.client.coordinator_client import call_once
    from spark_queue.protocol import wire
    from spark_queue.protocol.endpoint import Endpoint

    endpoint = journal.endpoint
    if endpoint.addresses is not None and _nobody_listens(journal, journal_id):
        # Its services are stopped: the aim, unless a caller without their addresses has started another one.
        endpoint = Endpoint(token_file=endpoint.token_file)
    try:
        call_once(journal.store, journal_id, wire.Stop(), endpoint=endpoint, start=False, timeout_s=STOP_S)
    except CoordinatorError as refusal:
        # One that is silent at an address may run all the same.
        if endpoint.addresses is not None or refusal.code != "COORDINATOR_UNAVAILABLE":
            raise
        return False
    return True


def _nobody_listens(journal: Journal, journal_id: str) -> bool:
    """Return whether nobody at all listens where coordinators are said to be, or only somebody else."""
    from functools import partial

    from spark_queue.client.coordinator_client import PING_S
    from spark_queue.protocol.connection import Presence, ping
    from spark_queue.protocol.host import location_of

    store, token = journal.store, partial(journal.endpoint.token, journal.store)
    at = (ping(address, journal_id, location_of(store), PING_S, token) for address in journal.endpoint.uris())
    return all(presence is Presence.GONE for presence in at)
