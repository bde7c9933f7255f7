"""Says in the coordinator's log which queues have an alarm (DESIGN 15.12)."""

from __future__ import annotations

import logging

from spark_queue.core.fold import JournalState

_LOG = logging.getLogger(__name__)


class AlarmBell:
    """Rings once for each alarm, and says when it is over."""

    def __init__(self) -> None:
        #: When the known alarm of each queue began.
        self._rung: dict[str, int] = {}

    def ring(self, state: JournalState) -> None:
        """Say what changed since the last call."""
        alarms = {name: ledger.alarm for name, ledger in state.queues.items() if ledger.alarm is not None}
        for name, alarm in alarms.items():
            if self._rung.get(name) != alarm.since_ms:
                paused = "" if alarm.probe_at_ms is None else " It pauses, and tries one message at a time until one succeeds."
                _LOG.warning("ALARM: queue '%s': %s.%s", name, alarm.error, paused)
        for name in self._rung.keys() - alarms.keys():
            _LOG.info("The alarm of queue '%s' is over.", name)
        self._rung = {name: alarm.since_ms for name, alarm in alarms.items()}
