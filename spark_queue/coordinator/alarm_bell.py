"""Alarms of queues, in the coordinator's log (DESIGN 15.12)."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from spark_queue.core.state.findings import QueueFinding, alarms, of_set_aside
from spark_queue.core.state.journal_state import JournalState

_LOG = logging.getLogger(__name__)


class AlarmBell:
    """Rings once for each alarm, and says when it is over."""

    def __init__(self) -> None:
        #: When the known alarms began, by queue and subject.
        self._rung: dict[str, dict[str, int]] = {}
        #: When the next alarm of a queue begins, unless something happens before.
        self._begins_at_ms: dict[str, int] = {}

    def ring(self, state: JournalState, changed: Iterable[str], *, now_ms: int) -> None:
        """Log new alarms of the queues that changed since the last call, those that are no more among them, or by now."""
        for queue in sorted({*changed, *(name for name, at_ms in self._begins_at_ms.items() if at_ms <= now_ms)}):
            found = dict[str, QueueFinding]()
            if queue in state.queues:
                with state.guard(queue):
                    found = alarms(state, state.queues[queue])
            elif queue in state.troubles:
                found["its being set aside"] = of_set_aside(state, queue)
            self._begins_at_ms.pop(queue, None)
            if begins_ms := [each.since_ms for each in found.values() if each.since_ms > now_ms]:
                self._begins_at_ms[queue] = min(begins_ms)
            self._tell(queue, {name: each for name, each in found.items() if each.since_ms <= now_ms})

    def _tell(self, queue: str, found: dict[str, QueueFinding]) -> None:
        known = self._rung.pop(queue, {})
        for alarm in (each for name, each in found.items() if known.get(name) != each.since_ms):
            paused = " It is paused, and tries one message at a time until one succeeds." if alarm.pauses else ""
            _LOG.warning("ALARM: queue '%s': %s.%s", queue, alarm.text.removesuffix("."), paused)
        for name in sorted(known.keys() - found.keys()):
            _LOG.info("The alarm about %s of queue '%s' is over.", name, queue)
        if found:
            self._rung[queue] = {name: alarm.since_ms for name, alarm in found.items()}
