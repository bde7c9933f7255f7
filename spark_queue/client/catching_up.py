"""Reading followed tables on, and having copied what VACUUM may take, without a consumer (R157)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from spark_queue.client.coordinator_client import call_once
from spark_queue.core.definitions.keys import parse_duration_ms
from spark_queue.errors import parsed
from spark_queue.journal.store import Store
from spark_queue.protocol import wire
from spark_queue.protocol.endpoint import Endpoint

#: How often the coordinator is asked how far it is, in seconds.
EVERY_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class TablesRead:
    """How far the followed tables of a journal are read, and their files copied."""

    #: Files of which messages are still to be copied, or let go.
    files: int
    #: What keeps the table of a message type from being read further, or messages from being copied, by the name of the type.
    troubles: Mapping[str, str]


def catch_up(store: Store, journal_id: str, endpoint: Endpoint, *, timeout: str) -> TablesRead:
    """Ask the coordinator until nothing is left to be done, nothing of that can be done now, or the time is over."""
    until_s = time.monotonic() + parsed(parse_duration_ms, timeout, key="timeout", where="catch_up") / 1_000
    while True:
        found = call_once(store, journal_id, wire.CatchUp(), endpoint=endpoint)
        assert isinstance(found, wire.CaughtUp), "the coordinator answers what it was asked"
        if found.tried or time.monotonic() >= until_s:
            return TablesRead(files=found.files, troubles=found.troubles)
        time.sleep(EVERY_S)
