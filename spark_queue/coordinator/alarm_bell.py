"""Says in the coordinator's log which queues have an alarm (DESIGN 15.12)."""

from __future__ import annotations

import logging

from spark_queue.core.state.alarm import Alarm
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.status import alarms

_LOG = logging.getLogger(__name__)


class AlarmBell:
    """Rings once for each alarm, and says when it is over."""

    def __init__(self) -> None:
        #: When the known alarms began, by queue and what they are about.
        self._rung: dict[tuple[str, str], int] = {}

    def ring(self, state: JournalState) -> None:
        """Say what changed since the last call."""
        found = dict[tuple[str, str], Alarm]()
        for queue, ledger in list(state.queues.items()):
            with state.guard(queue):
                found |= {(queue, name): alarm for name, alarm in alarms(state, ledger).items()}
        for queue, trouble in state.troubles.items():
            found[queue, "its being set aside"] = Alarm(error=str(trouble).removesuffix("."), since_ms=0)
        for key, alarm in found.items():
            if self._rung.get(key) != alarm.since_ms:
                paused = "" if alarm.probe_at_ms is None else " It pauses, and tries one message at a time until one succeeds."
                _LOG.warning("ALARM: queue '%s': %s.%s", key[0], alarm.error, paused)
        for queue, name in sorted(self._rung.keys() - found.keys()):
            _LOG.info("The alarm about %s of queue '%s' is over.", name, queue)
        self._rung = {key: alarm.since_ms for key, alarm in found.items()}
