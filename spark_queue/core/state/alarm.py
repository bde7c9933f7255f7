"""Messages that failed alone, signs against a sink rather than them, and the alarms that they raise (DESIGN 15.12)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_queue.core.definitions.keys import Backoff

if TYPE_CHECKING:
    pass

#: Different lone messages that fail, with no success between, until it is the sink that is blamed.
SUSPECTS_LIMIT = 3

#: How often a message may fail alone until somebody should look at it.
LONE_FAILURES_LIMIT = 5

#: Runs of a subscription that fail in a row and have no messages, until somebody should look: it gets no further by itself.
IDLE_FAILURES_LIMIT = 3

#: How long a message that failed alone waits, where the queue has no `retry_backoff`.
LONE_BACKOFF = Backoff(first_ms=1_000, max_ms=300_000, factor=2)

#: How often a lone message is tried during an alarm, where the queue has no `retry_backoff`.
PROBE_BACKOFF = Backoff(first_ms=30_000, max_ms=30_000, factor=1)


@dataclass(slots=True, kw_only=True)
class Suspect:
    """A message that failed alone: its failure is held against it once another message succeeds, and never in an alarm."""

    #: The count before it failed.
    deliveries: int
    cancels: int
    #: How often it had failed alone before. One that had says nothing against the sink.
    lone_failures: int
    #: The last exception of fn.
    error: str | None = None


@dataclass(slots=True, kw_only=True)
class Alarm:
    """Something that somebody should look at."""

    error: str
    since_ms: int
    #: When the next lone message is tried; None for an alarm that pauses nothing.
    probe_at_ms: int | None = None
    #: Lone messages tried so far.
    probes: int = 0
