"""Everything that somebody should look at, since when it is so, and the command that mends it (R119)."""

from __future__ import annotations

import shlex

import pytest

from spark_queue.core.state.findings import LATELY_MS, NOT_ENDED_MS, SLOW_S, WAIT_MS, QueueFinding, queue_findings, slow_after_s
from spark_queue.core.state.findings import of_set_aside as finding_of_set_aside
from spark_queue.core.state.log_history import LEASE_BOUNDS_S, Histogram, QueueHistory
from spark_queue.core.state.sparkq_command import SparkqCommand
from tests.scenario import Scenario

DEFINITIONS = """define
  [message_types.json]
  topics = ["T"]
  [queues.Q]
  underlying_topic = "T"
  dead_letter_queue = "D"
  lease_renewal_limit = "20m"
  [queues.D]
  message_type = "json"
"""

#: A batch that its planner goes on renewing, for ten minutes less its lease period.
HANGS = "planner p Q/s\nnext p limit=2\nrows p\nstart p\n" + "wait 50s\nrenew p\n" * 11


@pytest.fixture
def scenario() -> Scenario:
    made = Scenario()
    made.run(DEFINITIONS)
    return made


def findings(
    scenario: Scenario, queue: str = "Q", *, durations: Histogram | None = None, is_served: bool = True
) -> list[QueueFinding]:
    world, history = scenario.world, QueueHistory()
    if durations is not None:
        history.lease_duration["s"] = durations
    return queue_findings(world.state, queue, now_ms=world.now_ms, history=history, is_served=is_served)


def told(scenario: Scenario, queue: str = "Q", *, is_served: bool = True) -> list[tuple[str, float, str, bool]]:
    """Return the beginning of each finding, how long it is so in seconds, its command, and whether it is an alarm."""
    now_ms, known = scenario.world.now_ms, findings(scenario, queue, is_served=is_served)
    return [(each.text, (now_ms - each.since_ms) / 1_000, each.command.line("shop"), each.is_alarm) for each in known]


def assert_told(scenario: Scenario, text: str, seconds: float, command: str, *, is_alarm: bool, queue: str = "Q") -> None:
    [found] = told(scenario, queue)
    assert text in found[0]
    assert found[1:] == (seconds, command, is_alarm)


def test_nothing_is_found_where_nothing_is_wrong(scenario: Scenario) -> None:
    assert findings(scenario) == []
    scenario.run("publish T 0..5\nplanner p Q/s\nnext p limit=2\nrows p\nstart p\nwait 50s\nrenew p")
    assert findings(scenario) == []
    assert findings(scenario, "D") == []


def test_a_batch_that_runs_for_longer_than_is_usual(scenario: Scenario) -> None:
    """A consumer that hangs renews its lease, so no alarm tells of it."""
    scenario.run("publish T 0..5\n" + HANGS)
    text = "Consumer 's' runs a batch of 2 messages, first bookmark 0, for longer than is usual. End its process:"
    assert_told(scenario, text, 550.0, "sparkq unsubscribe shop Q s", is_alarm=False)
    scenario.run("unsubscribe Q/s")
    assert findings(scenario) == []


def test_how_long_is_usual_is_told_by_the_batches_before(scenario: Scenario) -> None:
    scenario.run("publish T 0..5\n" + HANGS)
    usual = Histogram(LEASE_BOUNDS_S)
    usual.observe(200.0, 99)
    # One in a hundred hung before.
    usual.observe(3_000.0)
    assert [findings(scenario, durations=usual) != [], slow_after_s(usual)] == [False, 600.0]
    usual.observe(3_000.0, 2)
    assert slow_after_s(usual) == 2 * 3_600.0
    usual.observe(100_000.0, 500)
    assert slow_after_s(usual) == 2 * LEASE_BOUNDS_S[-1]
    # A queue that takes a second for each is not slow after ten, and a few batches tell nothing.
    quick, few = Histogram(LEASE_BOUNDS_S), Histogram(LEASE_BOUNDS_S)
    quick.observe(0.2, 500)
    few.observe(5_000.0, 19)
    assert [slow_after_s(each) for each in (quick, few, None)] == [SLOW_S] * 3


def test_a_receiver_that_hangs_is_told_by_its_oldest_message(scenario: Scenario) -> None:
    scenario.run("publish T 0..5\nplanner p Q/s mode=receive\nnext p limit=1\nwait 20s\nnext p limit=1\n")
    scenario.run("wait 40s\nrenew p lease=1\nrenew p lease=2\n" * 8)
    [found] = findings(scenario)
    assert found.text.startswith("Consumer 's' has had 1 message, first bookmark 0, for longer than is usual.")
    assert scenario.world.now_ms - found.since_ms == 340_000


def test_a_batch_that_is_begun_again_and_again(scenario: Scenario) -> None:
    """Each start of its driver takes the lease up anew, and is stopped before the batch is done: no run is long."""
    scenario.run("publish T 0..5\nplanner p Q/s\nnext p limit=2\nrows p\nstart p\nend p stopped")
    for number in range(31):
        scenario.run(f"wait 40s\nplanner p{number} Q/s\nrows p{number}\nstart p{number}\nend p{number} stopped")
    [found] = findings(scenario)
    assert "2 messages, first bookmark 0, which is begun again and again, and never ends." in found.text
    assert scenario.world.now_ms - found.since_ms == 31 * 40_000


def test_a_batch_that_hangs_in_doubt_is_decided_first(scenario: Scenario) -> None:
    """R123: its subscription cannot be ended before."""
    scenario.run("publish T 0..5\nplanner p Q/s\nnext p limit=2\nrows p\nstart p sink\nprepare p into=booked\n")
    scenario.run("wait 50s\nrenew p\n" * 7)
    [found] = findings(scenario)
    assert found.command.line("shop") == "sparkq decide shop Q --subscription=s"
    assert "end the subscription" not in found.text


def test_an_undecided_attempt(scenario: Scenario) -> None:
    scenario.run("publish T 0..1\nplanner p Q/s\nnext p\nrows p\nstart p sink\nprepare p into=booked\ntick 125s")
    text, command = "[SINK_STILL_IN_DOUBT] Attempt 1 of subscription 's'", "sparkq decide shop Q --subscription=s"
    assert_told(scenario, text, 5.0, command, is_alarm=True)
    scenario.run("fenced Q/s 1\ntick 1s")
    assert [each.text for each in findings(scenario) if each.is_alarm] == []


@pytest.mark.parametrize(("read", "code"), [("", "SINK_UNREADABLE"), (" read", "SINK_UNFENCED")])
def test_an_attempt_that_nobody_could_decide(scenario: Scenario, read: str, code: str) -> None:
    scenario.run("publish T 0..1\nplanner p Q/s\nnext p\nrows p\nstart p sink\nprepare p into=booked\nwait 7s")
    scenario.run(f"unreadable Q/s 1 error='the table is gone.'{read}")
    assert_told(scenario, f"[{code}] ", 7.0, "sparkq decide shop Q --subscription=s", is_alarm=True)


def test_a_pause_by_a_person_and_one_by_an_alarm(scenario: Scenario) -> None:
    scenario.run("pause Q\nwait 90s\npause Q\nwait 1s")
    assert_told(scenario, "Somebody paused queue 'Q': it grants nothing.", 91.0, "sparkq unpause shop Q", is_alarm=False)
    # It outlives a new beginning of its queue, and the coordinator.
    scenario.run("define again reset=Q\ncrash\nwait 1s")
    assert [each[1] for each in told(scenario)] == [92.0]
    scenario.run("unpause Q")
    assert findings(scenario) == []
    scenario.run("publish T 0..5\nplanner p Q/s")
    scenario.run("next p limit=1\nstart p\nend p failed='no sink' on_error=cancel\nprove p\n" * 3 + "wait 5s")
    [found] = [each for each in findings(scenario) if "no sink" in each.text]
    assert (found.pauses, found.is_alarm, found.command.line("shop")) == (True, True, "sparkq unpause shop Q")
    assert scenario.world.now_ms - found.since_ms == 5_000


def test_dead_letters_that_came_lately(scenario: Scenario) -> None:
    scenario.run("publish T 0..9\nsettle Q expire 0 error='of old'\nwait 23h\nsettle Q expire 1..2 error=declined")
    scenario.run("wait 30m\nsettle Q expire 3 error=timeout\nwait 10s")
    [found] = [each for each in findings(scenario) if "dead letters" in each.text]
    assert found.text.startswith("4 messages became dead letters, the last at ")
    assert found.text.endswith(". The last of 3 kinds of errors: timeout")
    [verb, path, queue, since] = found.command.line("shop").split()[1:]
    assert (verb, path, queue, since.startswith("--since=")) == ("redrive", "shop", "Q", True)
    scenario.run("wait 1h")
    [found] = [each for each in findings(scenario) if "dead letters" in each.text]
    assert (found.text[:9], found.text.count("of old"), scenario.world.now_ms - found.since_ms) == ("3 message", 0, 5_410_000)
    # Its dead-letter queue does not tell of the same again, but of what died again there.
    assert findings(scenario, "D") == []
    scenario.run("settle D expire 1")
    assert [each.command.line("shop").split()[1:4] for each in findings(scenario, "D")] == [["redrive", "shop", "D"]]
    scenario.run(f"wait {LATELY_MS}ms\nwait 1ms")
    assert [each for queue in "QD" for each in findings(scenario, queue) if "dead letters" in each.text] == []


def test_messages_that_wait_for_too_long(scenario: Scenario) -> None:
    scenario.run(f"publish T 0..1\nwait 1s\npublish T 2..5\nwait {WAIT_MS - 1_001}ms")
    assert findings(scenario) == []
    scenario.run("wait 1ms")
    text = "6 messages wait in queue 'Q', the oldest for more than 15 min: no consumer runs: start one."
    assert_told(scenario, text, WAIT_MS / 1_000, "sparkq explain shop Q 0", is_alarm=False)
    # What is wrong with the whole journal, or with the queue, is why they wait.
    assert findings(scenario, is_served=False) == []
    scenario.run("pause Q")
    assert ["wait in queue" in each.text for each in findings(scenario)] == [False]
    scenario.run("unpause Q\nplanner p Q/s\nnext p limit=2\nwait 1s")
    [found] = findings(scenario)
    assert "4 messages wait in queue 'Q', the oldest for more than 15 min: its consumers do not keep up." in found.text
    assert found.command.line("shop") == "sparkq explain shop Q 2"


def test_dead_letters_in_their_queue_wait_for_people(scenario: Scenario) -> None:
    scenario.run("publish T 0..1\nsettle Q expire 0..1\nwait 2h")
    assert findings(scenario, "D") == []


def test_leases_that_nobody_ends(scenario: Scenario) -> None:
    scenario.run(f"publish T 0..5\nplanner p Q/s\nnext p limit=2\nwait 60s\nwait {NOT_ENDED_MS}ms")
    text = "2 messages are in leases that ran out, and no coordinator runs to end them"
    assert_told(scenario, text, NOT_ENDED_MS / 1_000, "sparkq serve shop", is_alarm=True)


def test_a_queue_that_is_set_aside_is_so_since_its_record(scenario: Scenario) -> None:
    scenario.run("publish T 0..5\nset_aside Q\nwait 40s\ncrash\nwait 2s")
    found = finding_of_set_aside(scenario.world.state, "Q")
    assert found.text.startswith("[QUEUE_SET_ASIDE] Queue 'Q' is set aside: a bug.")
    assert (scenario.world.now_ms - found.since_ms, found.command.line("shop")) == (42_000, "sparkq revive shop Q")


def test_what_keeps_messages_out_and_damage_are_alarms_of_which_nobody_knows_since_when(scenario: Scenario) -> None:
    world = scenario.world
    found = queue_findings(world.state, "Q", now_ms=world.now_ms, trouble="[LOG_GAP] a gap.", damage="[MESSAGE_FILE_MISSING] gone.")
    assert [(each.text, each.since_ms, each.command.line("shop")) for each in found] == [
        ("[LOG_GAP] a gap.", 0, "sparkq verify shop"), ("[MESSAGE_FILE_MISSING] gone.", 0, "sparkq verify shop"),
    ]  # fmt: skip
    # Into a queue for dead letters alone nothing enters from a log.
    assert queue_findings(world.state, "D", now_ms=world.now_ms, trouble="[LOG_GAP] a gap.") == []


@pytest.mark.parametrize(
    ("command", "line"),
    [
        (SparkqCommand("serve"), "sparkq serve 's3://a bucket/it'\"'\"'s'"),
        (SparkqCommand("peers status"), "sparkq peers status 's3://a bucket/it'\"'\"'s'"),
        (SparkqCommand("follow", ("orders",), ("--from=17",)), "sparkq follow 's3://a bucket/it'\"'\"'s' orders --from=17"),
        (
            SparkqCommand("decide", ("-q",), ("--subscription=-s",)),
            "sparkq decide 's3://a bucket/it'\"'\"'s' --subscription=-s -- -q",
        ),
    ],
)
def test_a_command_reaches_a_program_as_it_is_meant(command: SparkqCommand, line: str) -> None:
    path = "s3://a bucket/it's"
    assert command.line(path) == line
    words = shlex.split(line)
    assert path in words
    assert all(each in words for each in (*command.names, *command.options))
