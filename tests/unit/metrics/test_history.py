"""What the control log tells of leases, delays, removals and returns, record by record."""

from __future__ import annotations

from spark_queue.core.state.log_history import Histogram, LogHistory, QueueHistory
from tests.scenario import Scenario

DEFINITIONS = """define
  [message_types.json]
  topics = ["T"]
  [queues.Q]
  underlying_topic = "T"
  lease_period = "60s"
  max_deliveries = 2
  dead_letter_queue = "D"
  [queues.D]
  message_type = "json"
  [queues.ONCE]
  underlying_topic = "T"
  semantics = "at-most-once"
"""


def history_of(text: str, queue: str = "Q") -> QueueHistory:
    """Run a scenario and return what its log tells of a queue; folding in two parts must tell the same."""
    scenario = Scenario()
    scenario.run(DEFINITIONS + text)
    records = scenario.world.committed
    whole, parts = LogHistory(), LogHistory()
    whole.fold(records)
    half = len(records) // 2
    parts.fold(records[:half])
    # Those that are known, too.
    parts.fold(records)
    parts.fold(records)
    found, other = whole.queues[queue], parts.queues[queue]
    assert (found.removed, found.returned, seen(found.delivery_delay)) == (
        other.removed,
        other.returned,
        seen(other.delivery_delay),
    )
    assert durations(found) == durations(other)
    return found


def seen(histogram: Histogram) -> tuple[int, float]:
    """Return how many values it counted, and their sum."""
    return sum(histogram.counts), round(histogram.total, 3)


def durations(history: QueueHistory) -> dict[str, tuple[int, float]]:
    return {name: seen(each) for name, each in history.lease_duration.items()}


def test_a_lease_lasts_from_its_grant_to_its_proof() -> None:
    found = history_of("publish T 0..5\nplanner p Q/s\nnext p limit=4\nrows p\nwait 20s\nstart p\nend p\nwait 5s\nprove p")
    assert durations(found) == {"s": (1, 25.0)}
    assert (found.removed, found.returned) == ({"acknowledged": 4}, {})


def test_a_lease_of_which_everything_came_back_is_over() -> None:
    found = history_of("publish T 0..5\nplanner p Q/s\nnext p limit=4\nrows p\ntick 61s")
    assert durations(found) == {"s": (1, 61.0)}
    assert found.returned == {"lease_expired": 4}


def test_a_late_proof_of_a_lease_that_ended_counts_no_second_lease() -> None:
    found = history_of("publish T 0..5\nplanner p Q/s\nnext p limit=4\nrows p\nstart p\nend p\ntick 61s\nprove p")
    assert durations(found)["s"][0] == 1


def test_an_open_lease_is_not_counted_yet() -> None:
    assert durations(history_of("publish T 0..5\nplanner p Q/s\nnext p limit=4\nrows p\nwait 9s")) == {}


def test_leases_are_told_by_subscription() -> None:
    found = history_of(
        "publish T 0..5\nplanner p Q/s\nplanner r Q/t\nnext p limit=2\nrows p\nstart p\nend p\nwait 2s\nprove p\n"
        "next r limit=2\nrows r\nstart r\nend r\nwait 3s\nprove r"
    )
    assert durations(found) == {"s": (1, 2.0), "t": (1, 3.0)}


def test_a_delay_lasts_from_when_a_message_entered_to_its_first_lease() -> None:
    found = history_of("publish T 0..3\nwait 10s\npublish T 4..5\nwait 5s\nplanner p Q/s\nnext p limit=6\nrows p")
    # Four messages of 15 s, two of 5 s.
    assert seen(found.delivery_delay) == (6, 70.0)


def test_a_redelivery_is_no_first_lease() -> None:
    text = "publish T 0..3\nwait 1s\nplanner p Q/s\nnext p limit=4\nrows p\ntick 61s\nplanner r Q/t\nnext r limit=4"
    found = history_of(text + "\nrows r\nstart r\nend r\nprove r")
    assert (seen(found.delivery_delay), found.removed) == ((4, 4.0), {"acknowledged": 4})


def test_what_was_delivered_at_most_once_is_counted_and_its_lease_lasts_until_its_proof() -> None:
    found = history_of(
        "publish T 0..3\nwait 1s\nplanner p ONCE/s\nnext p limit=4\nrows p\nwait 4s\nstart p\nend p\nprove p", "ONCE"
    )
    assert (found.removed, durations(found), seen(found.delivery_delay)) == ({"delivered": 4}, {"s": (1, 4.0)}, (4, 4.0))


def test_a_queue_that_begins_anew_leases_for_the_first_time_again() -> None:
    again = DEFINITIONS.replace("define", "define reset=Q") + "wait 2s\nplanner r Q/s\nnext r limit=4"
    found = history_of("publish T 0..3\nwait 1s\nplanner p Q/s\nnext p limit=4\nrows p\nstart p\nend p\nprove p\n" + again)
    assert seen(found.delivery_delay) == (8, 16.0)
    assert found.removed["acknowledged"] == 4
