"""One question to a journal's coordinator, for callers that have no connection to keep."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from spark_queue.client.coordinator_client import CoordinatorClient
from spark_queue.journal.layout import Store
from spark_queue.protocol import wire


def ask(
    store: Store,
    journal_id: str,
    request: Callable[..., wire.AnyRequest],
    *,
    address: str | None = None,
    start: bool = True,
    timeout_s: float = 30.0,
    **fields: Any,
) -> wire.AnyReply:
    """Ask, starting a coordinator when none answers, and let go of the connection.

    Parameters
    ----------
    store, journal_id, address, start
        As for `CoordinatorClient`.
    request
        The kind of request; `fields` are its own fields.
    timeout_s
        How long to go on asking, in seconds.

    Raises
    ------
    SparkQueueError
        The refusal, or COORDINATOR_UNAVAILABLE.
    """
    client = CoordinatorClient(store, journal_id, address=address, start=start)
    try:
        return client.call(request(journal=journal_id, request=uuid.uuid4().hex, **fields), timeout_s=timeout_s)
    finally:
        client.close()
