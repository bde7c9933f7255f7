"""A journal as those see it who look at what is followed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from spark_queue.core.replies import QueueStatus
from spark_queue.core.state import status
from spark_queue.core.state.journal_state import JournalState
from spark_queue.following.history import JournalHistory
from spark_queue.journal.open import DeltaJournal
from spark_queue.protocol.discovery import Heard
from spark_queue.views.pace import PACE_MS, Pace


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalLook:
    """A journal as it is now; to be used inside `JournalFollower.look` only."""

    journal: DeltaJournal
    state: JournalState
    now_ms: int
    #: None until all records were read once.
    history: JournalHistory | None
    rows: pa.Table | None
    #: What keeps messages of a type from entering any further, by its name.
    troubles: Mapping[str, str]
    #: What is wrong with the message files that a queue's consumers need next, by its name.
    damages: Mapping[str, str]
    #: When planners called last, as the coordinator says.
    heard: Heard


def pace_of(look: JournalLook, name: str) -> Pace | None:
    """Return how fast messages come to a queue and leave it now; None where the history is still being read."""
    if look.history is None:
        return None
    rate_in, rate_out = look.history.rates(look.state, name, look.now_ms - PACE_MS, look.now_ms)
    return Pace(rate_in=rate_in, rate_out=rate_out)


def status_of(look: JournalLook, name: str) -> QueueStatus:
    """Return a queue's figures; what keeps messages from entering it is an alarm, too, and so is a file that cannot be read."""
    found = status.queue_status(look.state, name, now_ms=look.now_ms)
    has_topic = look.state.definitions.queue(name).underlying_topic is not None
    trouble = look.troubles.get(found.message_type) if has_topic else None
    alarms = dict.fromkeys(filter(None, [found.alarm, trouble, look.damages.get(name)]))
    return replace(found, alarm=" ".join(alarms) or None)
