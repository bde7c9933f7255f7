"""The coordinator's log says when a queue needs somebody (DESIGN 15.12)."""

from __future__ import annotations

import pytest

from spark_queue.coordinator.alarm_bell import AlarmBell
from spark_queue.core.alarm import Alarm
from tests.unit.core.failing_query import begin


def test_an_alarm_is_told_once_and_its_end_too(caplog: pytest.LogCaptureFixture) -> None:
    state, bell = begin(3).state, AlarmBell()
    bell.ring(state)
    state.queues["Q"].alarm = Alarm(error="every message fails", since_ms=1, probe_at_ms=30_001)
    with caplog.at_level("INFO"):
        bell.ring(state)
        bell.ring(state)
        state.queues["Q"].alarm = Alarm(error="a barrier fails", since_ms=2)
        bell.ring(state)
        state.queues["Q"].alarm = None
        bell.ring(state)
        bell.ring(state)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        (
            "WARNING",
            "ALARM: queue 'Q': every message fails. It pauses, and tries one message at a time until one succeeds.",
        ),
        ("WARNING", "ALARM: queue 'Q': a barrier fails."),
        ("INFO", "The alarm of queue 'Q' is over."),
    ]
