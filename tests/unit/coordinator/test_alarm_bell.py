"""The coordinator's log says when a queue needs somebody (DESIGN 15.12)."""

from __future__ import annotations

import pytest
from pyroaring import BitMap64

from spark_queue.coordinator.alarm_bell import AlarmBell
from spark_queue.core.state.alarm import Alarm
from spark_queue.core.state.lifecycle import State
from tests.deciding import started
from tests.scenario import Scenario
from tests.unit.core.failing_query import begin

DEFINITIONS = """define
  [message_types.json]
  topics = ["T"]
  [queues.Q]
  underlying_topic = "T"
"""


def test_a_number_that_was_used_twice_is_told_until_its_messages_have_left(caplog: pytest.LogCaptureFixture) -> None:
    world, bell = begin(3), AlarmBell()
    ledger = world.state.queues["Q"]
    ledger.clashing, ledger.clash = BitMap64([1]), Alarm(error="two messages have one number", since_ms=1)
    with caplog.at_level("INFO"):
        bell.ring(world.state, world.state.queues, now_ms=world.now_ms)
        ledger.rows[State.REMOVED].add(1)
        bell.ring(world.state, world.state.queues, now_ms=world.now_ms)
    assert [record.getMessage() for record in caplog.records] == [
        "ALARM: queue 'Q': two messages have one number.",
        "The alarm about numbers that a publisher used twice of queue 'Q' is over.",
    ]


def test_an_alarm_is_told_once_and_its_end_too(caplog: pytest.LogCaptureFixture) -> None:
    world, bell = begin(3), AlarmBell()
    for name in ("s1", "s2"):
        started(world.engine, "Q", name, max_backlog=5, now_ms=world.now_ms)
    state, ledger = world.state, world.state.queues["Q"]
    bell.ring(state, state.queues, now_ms=world.now_ms)
    ledger.subscriptions["s1"].alarm = Alarm(error="every message fails", since_ms=1, probe_at_ms=30_001)
    with caplog.at_level("INFO"):
        bell.ring(state, state.queues, now_ms=world.now_ms)
        bell.ring(state, state.queues, now_ms=world.now_ms)
        ledger.subscriptions["s2"].alarm = Alarm(error="a barrier fails", since_ms=2)
        bell.ring(state, state.queues, now_ms=world.now_ms)
        ledger.subscriptions["s1"].alarm = ledger.subscriptions["s2"].alarm = None
        for _ in range(6):
            ledger.lone_failures.increment(BitMap64([1]))
        ledger.stuck = Alarm(error="boom", since_ms=3)
        bell.ring(state, state.queues, now_ms=world.now_ms)
        bell.ring(state, state.queues, now_ms=world.now_ms)
        ledger.lone_failures.forget(BitMap64([1]))
        bell.ring(state, state.queues, now_ms=world.now_ms)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        (
            "WARNING",
            "ALARM: queue 'Q': every message fails. It is paused, and tries one message at a time until one succeeds.",
        ),
        ("WARNING", "ALARM: queue 'Q': a barrier fails."),
        ("WARNING", "ALARM: queue 'Q': 1 message failed alone more than 5 times, first bookmark 1. The last error: boom."),
        ("INFO", "The alarm about subscription 's1' of queue 'Q' is over."),
        ("INFO", "The alarm about subscription 's2' of queue 'Q' is over."),
        ("INFO", "The alarm about messages that fail alone of queue 'Q' is over."),
    ]


def test_an_alarm_that_comes_by_time_is_told_though_nothing_happens(caplog: pytest.LogCaptureFixture) -> None:
    """R125: nobody decides about a batch, which is no alarm before its stream had time to come back."""
    scenario, bell = Scenario(), AlarmBell()
    scenario.run(DEFINITIONS + "publish T 0..1")
    scenario.run("planner p Q/s\nnext p\nrows p\nstart p sink\nprepare p into=booked")
    state = scenario.world.state
    with caplog.at_level("INFO"):
        bell.ring(state, ["Q"], now_ms=scenario.world.now_ms + 119_999)
        assert caplog.messages == []
        bell.ring(state, [], now_ms=scenario.world.now_ms + 120_000)
        bell.ring(state, [], now_ms=scenario.world.now_ms + 120_001)
        scenario.run("fenced Q/s 1")
        bell.ring(state, ["Q"], now_ms=scenario.world.now_ms + 120_002)
    begins, ends = caplog.messages
    assert begins.startswith("ALARM: queue 'Q': [SINK_STILL_IN_DOUBT] Attempt 1 of subscription 's'")
    assert ends == "The alarm about the sink of subscription 's' of queue 'Q' is over."
