"""Says in the coordinator's log which queues have an alarm (DESIGN 15.12)."""

from __future__ import annotations

import logging

from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.status import CLASH, alarms

_LOG = logging.getLogger(__name__)

#: Alarms that are of no subscription.
_OF_NOBODY = {"": " about messages that fail alone", CLASH: " about numbers that a publisher used twice"}


class AlarmBell:
    """Rings once for each alarm, and says when it is over."""

    def __init__(self) -> None:
        #: When the known alarms began, by queue and subscription.
        self._rung: dict[tuple[str, str], int] = {}

    def ring(self, state: JournalState) -> None:
        """Say what changed since the last call."""
        found = {(queue, name): alarm for queue, ledger in state.queues.items() for name, alarm in alarms(ledger).items()}
        for key, alarm in found.items():
            if self._rung.get(key) != alarm.since_ms:
                paused = "" if alarm.probe_at_ms is None else " It pauses, and tries one message at a time until one succeeds."
                _LOG.warning("ALARM: queue '%s': %s.%s", key[0], alarm.error, paused)
        for queue, name in sorted(self._rung.keys() - found.keys()):
            whose = _OF_NOBODY.get(name, f" of subscription '{name}'")
            _LOG.info("The alarm%s of queue '%s' is over.", whose, queue)
        self._rung = {key: alarm.since_ms for key, alarm in found.items()}
