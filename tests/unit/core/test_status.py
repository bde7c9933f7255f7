"""The statistics of a queue that only some queues have (R119)."""

from __future__ import annotations

from spark_queue.core.message_files.relocation import foreign_record
from spark_queue.core.replies import QueueStatus
from spark_queue.core.state.status import queue_status
from spark_queue.verification.state_digest import digest
from tests.scenario import Scenario

DEFINITIONS = """define
  [message_types.json]
  topics = ["T"]
  [queues.ONCE]
  underlying_topic = "T"
  semantics = "at-most-once"
  expiration = "1h"
  [queues.Q]
  underlying_topic = "T"
  dead_letter_queue = "D"
  [queues.D]
  message_type = "json"
"""


def status(scenario: Scenario, queue: str) -> QueueStatus:
    world = scenario.world
    return queue_status(world.engine.state, queue, now_ms=world.now_ms)


def test_what_was_delivered_at_most_once_counts_as_acknowledged() -> None:
    scenario = Scenario()
    scenario.run(DEFINITIONS + "publish T 0..5\nplanner p ONCE/s\nnext p limit=2\ntick 2h")
    assert (status(scenario, "ONCE").acknowledged, status(scenario, "ONCE").expired) == (2, 4)


def test_a_lease_that_ran_out_at_most_once_is_counted_and_its_messages_count_as_acknowledged() -> None:
    """R31, R119."""
    scenario = Scenario()
    scenario.run(DEFINITIONS + "publish T 0..5\nplanner p ONCE/s\nnext p limit=2\nwait 9s")
    found = status(scenario, "ONCE")
    assert (found.expired_leases, found.age_of_oldest_lease, found.backlog) == (0, 9.0, 2)
    scenario.run("tick 51s")
    found = status(scenario, "ONCE")
    assert (found.expired_leases, found.age_of_oldest_lease, found.backlog) == (2, None, 0)
    assert (found.acknowledged, found.expired, found.queue_depth) == (2, 0, 4)


def test_the_batch_that_runs_for_the_longest_is_named_however_often_it_is_renewed() -> None:
    """A consumer that hangs renews its lease."""
    scenario = Scenario()
    scenario.run(DEFINITIONS + "publish T 0..5\nplanner p Q/slow\nnext p limit=2\nrows p\nstart p\nwait 20s\nplanner r Q/quick")
    scenario.run("next r limit=1\nrows r\nwait 20s\nrenew p\nwait 30s\nrenew p")
    found = status(scenario, "Q")
    assert (found.longest_batch_subscription, found.longest_batch_seconds, found.age_of_oldest_lease) == ("slow", 70.0, 70.0)
    # A restart takes the batch up anew, and the lease stays as old as it is.
    scenario.run("renew r\nplanner p Q/slow\nrows p\nwait 5s")
    found = status(scenario, "Q")
    assert (found.longest_batch_subscription, found.longest_batch_seconds) == ("quick", 55.0)
    scenario.run("next r limit=1\nstart p\nend p\nprove p\nwait 1s")
    found = status(scenario, "Q")
    assert (found.longest_batch_subscription, found.longest_batch_seconds) == ("quick", 1.0)
    scenario.run("tick 61s")
    found = status(scenario, "Q")
    assert (found.longest_batch_subscription, found.longest_batch_seconds, found.age_of_oldest_lease) == (None, None, None)


def test_dead_letters_that_were_settled_in_their_queue_are_no_longer_counted() -> None:
    scenario = Scenario()
    scenario.run(DEFINITIONS + "publish T 0..5\nsettle Q expire 0..3")
    assert (status(scenario, "Q").dead_letters, status(scenario, "D").dead_letters) == (4, 4)
    scenario.run("settle D acknowledge 1..2")
    state = scenario.world.engine.state
    before = digest(state)
    assert (status(scenario, "Q").dead_letters, status(scenario, "D").dead_letters) == (2, 2)
    assert digest(state) == before, "looking changes nothing"


def test_all_files_of_a_strangers_commit_are_counted() -> None:
    scenario = Scenario()
    scenario.run(DEFINITIONS)
    engine, now_ms = scenario.world.engine, scenario.world.now_ms
    for version, paths in enumerate((["a", "b"], ["c"]), start=1):
        engine.note([foreign_record("json", version=version, paths=paths, row_count=5)], now_ms=now_ms)
    assert status(scenario, "Q").foreign_files == 3


def test_what_leases_gave_back_at_their_end_is_counted() -> None:
    """R119: as often as it came back."""
    scenario = Scenario()
    scenario.run(DEFINITIONS + "publish T 0..5\nplanner p Q/s\nnext p limit=2\nrows p\ntick 61s")
    assert status(scenario, "Q").expired_leases == 2
    scenario.run("planner r Q/t\nnext r limit=3\nrows r\ntick 61s")
    assert status(scenario, "Q").expired_leases == 5


def test_attempts_in_doubt_are_counted_with_their_age_and_one_that_nobody_can_read_is_an_alarm() -> None:
    """R119, R125."""
    scenario = Scenario()
    scenario.run(DEFINITIONS + "publish T 0..5\nplanner p Q/s\nnext p limit=2\nrows p\nstart p sink\nprepare p into=booked")
    scenario.run("wait 9s\nplanner r Q/t\nnext r limit=1\nrows r\nstart r sink\nprepare r\nwait 1s")
    found = status(scenario, "Q")
    assert (found.attempts_in_doubt, found.age_of_oldest_attempt, found.alarm) == (2, 10.0, None)
    scenario.run("unreadable Q/s 1 error='the table is gone.'")
    assert "Sink 'booked' cannot be read, so it is unknown whether attempt 1" in str(status(scenario, "Q").alarm)
    scenario.run("unreadable Q/s 1 error='the table is gone.' read")
    told = str(status(scenario, "Q").alarm)
    assert ("[SINK_UNFENCED] Attempt 1" in told, told.count("["), told.count("the table is gone.")) == (True, 1, 1)
    scenario.run("landed Q/s 1")
    found = status(scenario, "Q")
    assert (found.attempts_in_doubt, found.age_of_oldest_attempt, found.alarm) == (1, 1.0, None)


def test_an_attempt_about_which_nobody_decides_is_an_alarm_once_its_stream_had_time_to_come_back() -> None:
    """R125: another stream decides with a batch of its own, and there may be none."""
    scenario = Scenario()
    scenario.run(DEFINITIONS + "publish T 0..1\nplanner p Q/s\nnext p\nrows p\nstart p sink\nprepare p into=booked\ntick 119s")
    assert status(scenario, "Q").alarm is None
    scenario.run("tick 1s")
    told = str(status(scenario, "Q").alarm)
    assert "[SINK_STILL_IN_DOUBT] Attempt 1 of subscription 's' of queue 'Q' to append to 'booked' is in doubt" in told
    scenario.run("fenced Q/s 1\ntick 1s")
    assert status(scenario, "Q").alarm is None
