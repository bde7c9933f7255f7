"""A message queue in your lake: queues are views over Delta tables.

Start with `Journal`; `configure_spark` sets a session up in notebooks and plain Python. Names are imported when they are first
used: executors, the command line and the coordinator load this package too, and none of them needs all of it.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spark_queue.client.journal import Journal
    from spark_queue.client.queue import Queue
    from spark_queue.errors import SparkQueueError
    from spark_queue.journal.json_bodies import is_json
    from spark_queue.receiver.message import Message
    from spark_queue.receiver.processing import Expire, Retry
    from spark_queue.receiver.receiver import Receiver
    from spark_queue.session import configure_spark

__all__ = ["Expire", "Journal", "Message", "Queue", "Receiver", "Retry", "SparkQueueError", "configure_spark", "is_json"]

# Before Flight or grpc are loaded, by whatever way in: gRPC would write to people's terminals that a connection was idle, and to a
# coordinator's log a line for each handshake of a stranger. A failure is an error of the call.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

_HOMES = {
    "Expire": "spark_queue.receiver.processing",
    "Journal": "spark_queue.client.journal",
    "Message": "spark_queue.receiver.message",
    "Queue": "spark_queue.client.queue",
    "Receiver": "spark_queue.receiver.receiver",
    "Retry": "spark_queue.receiver.processing",
    "SparkQueueError": "spark_queue.errors",
    "configure_spark": "spark_queue.session",
    "is_json": "spark_queue.journal.json_bodies",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """List the public names."""
    return __all__
