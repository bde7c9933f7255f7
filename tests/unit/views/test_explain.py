"""`explain` tells the whole life of a message, and agrees with the fold of the whole log about where it is (R120, R121)."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from spark_queue.core import commands
from spark_queue.core.records import Outcome
from spark_queue.errors import CallerError, ConfigError, JournalError
from spark_queue.views import MessageHistory, explain, read_view
from spark_queue.views.explain import DELIVERIES_TOLD, RepeatedDeliveries
from tests.unit.views.views_world import DEFINITIONS, START_MS, ViewsWorld

MINUTE_MS = 60_000


@pytest.fixture
def world(tmp_path: Path) -> ViewsWorld:
    return ViewsWorld(tmp_path)


def life(world: ViewsWorld, bookmark: int, queue: str = "WORK", **more: Any) -> MessageHistory:
    """Commit what was decided, and explain a message from what is on disk."""
    world.commit()
    return explain(world.opened, queue, bookmark, **more)


def events(history: MessageHistory) -> list[str]:
    return [event.event for event in history.events]


def test_before_the_first_definitions_there_is_no_queue(world: ViewsWorld) -> None:
    world.publish(10)
    with pytest.raises(ConfigError, match="UNKNOWN_QUEUE"):
        life(world, 0, as_of=0)


def test_a_message_that_was_done_at_once(world: ViewsWorld) -> None:
    """R2, R4: publish, entering, lease and proof, each with its holder and time."""
    world.publish(10, 11)
    world.attach()
    world.next(2, now_ms=START_MS + 1_000)
    world.next(1, now_ms=START_MS + 3_000)
    told = life(world, 1)
    assert events(told) == ["published", "committed", "entered", "taken", "granted", "removed", "proven"]
    assert (told.state, told.topic, told.sequence, told.version, told.row) == ("removed", "LINES", 2, 1, 1)
    granted = told.events[4]
    assert (granted.subscription, granted.lease, granted.messages, granted.delivery) == ("s", 1, 2, 1)
    assert granted.due_at == datetime.fromtimestamp((START_MS + 1_000 + MINUTE_MS) / 1_000, UTC)
    assert (told.events[5].reason, told.events[5].at.timestamp() * 1_000) == ("acknowledged", START_MS + 3_000)


def test_the_proof_is_told_before_what_follows_from_it(world: ViewsWorld) -> None:
    world.publish(10, 11)
    world.attach()
    world.next(1)
    world.next(1, now_ms=START_MS + 1_000)
    told = life(world, 0)
    assert events(told)[-2:] == ["removed", "proven"], "in the order of their records"
    lines = str(told).splitlines()
    assert [line.split("Z  ")[1] for line in lines[-2:]] == [
        "Spark committed the batch of lease 1", "acknowledged: it left the queue",
    ]  # fmt: skip
    assert told._repr_html_().index("Spark committed") < told._repr_html_().index("acknowledged")


def test_a_message_that_came_back_and_died(world: ViewsWorld) -> None:
    """R52, R57: returns with reason and due time, the dead letter with its counts, and its part in the dead-letter queue."""
    world.publish(10, 11)
    world.attach()
    world.next(2)
    world.settle(Outcome.CANCEL, 0, due_at_ms=START_MS + 5_000, error="no price")
    delayed = life(world, 0)
    assert (delayed.state, delayed.cancel_count, delayed.delivery_count) == ("delayed", 1, 1)
    due_at = datetime.fromtimestamp(START_MS / 1_000 + 5, UTC)
    assert [(event.reason, event.due_at) for event in delayed.events if event.event == "returned"] == [("cancelled", due_at)]
    world.settle(Outcome.EXPIRE, 0, error="still no price")
    told = life(world, 0)
    assert (told.state, told.delivery_count, told.cancel_count) == ("dead", 1, 1)
    assert events(told)[-2:] == ["removed", "dead_lettered"]
    assert (told.events[-1].queue, told.events[-1].error) == ("FAILED", "still no price")
    assert "deliveries: 1, cancels: 1" in told.events[-2].text
    there = life(world, 0, "FAILED")
    assert (there.state, events(there)) == ("available", events(told))


def test_what_was_counted_of_a_dead_letter_stays_when_it_is_settled_in_its_queue(world: ViewsWorld) -> None:
    world.publish(10)
    world.attach()
    world.next(1)
    world.settle(Outcome.EXPIRE, 0)
    settled = commands.OutcomeRows(outcome=Outcome.ACKNOWLEDGE, ranges=((0, 1),))
    world.engine.decide(commands.Settle(queue="FAILED", outcomes=(settled,)), now_ms=START_MS)
    told = life(world, 0)
    assert events(told)[-1] == "removed"
    assert "no longer a dead letter: acknowledged in dead-letter queue 'FAILED'" in {event.text for event in told.events}
    assert told.delivery_count == 1


def test_a_redriven_message_tells_both_queues(world: ViewsWorld) -> None:
    world.publish(10)
    world.attach()
    world.next(1)
    world.settle(Outcome.EXPIRE, 0)
    world.engine.decide(commands.Redrive(queue="WORK", ranges=((0, 1),)), now_ms=START_MS)
    told = life(world, 0)
    assert [(event.event, event.queue) for event in told.events[-2:]] == [("redriven", "FAILED"), ("redriven", "WORK")]
    assert (told.state, told.delivery_count, life(world, 0, "FAILED").state) == ("available", 0, "removed")


def test_a_lease_that_ran_out_and_was_renewed(world: ViewsWorld) -> None:
    world.publish(10)
    world.attach()
    world.next(1)
    world.engine.decide(commands.Renew(**world.planner, call=0, lease=1), now_ms=START_MS + 30_000)
    world.engine.tick(now_ms=START_MS + 91_000)
    told = life(world, 0)
    assert events(told)[-3:] == ["granted", "renewed", "returned"]
    assert (told.events[-1].reason, told.state, told.delivery_count) == ("lease_expired", "available", 1)


def test_an_at_most_once_lease_keeps_its_part_of_the_backlog_until_it_runs_out(world: ViewsWorld) -> None:
    """R17, R31: the views show the same."""
    once = {**DEFINITIONS, "queues": {"WORK": {"underlying_topic": "LINES", "semantics": "at-most-once"}}}
    world.engine.decide(commands.Apply(definitions=once), now_ms=START_MS)
    world.publish(10, 11)
    world.attach()
    world.next(2)
    kept = [("leases", "messages"), ("subscriptions", "backlog")]
    assert [read_view(world.moment(), view, "WORK").column(name).to_pylist() for view, name in kept] == [[2]] * 2
    world.engine.tick(now_ms=START_MS + MINUTE_MS)
    assert [read_view(world.moment(), view, "WORK").column(name).to_pylist() for view, name in kept] == [[0]] * 2
    told = life(world, 1)
    assert events(told)[-3:] == ["granted", "removed", "lapsed"]
    assert (told.state, told.events[-1].text) == ("removed", "lease 1 ran out: it no longer counts in the backlog of 's'")


def test_another_message_of_the_lease_leaves_no_trace(world: ViewsWorld) -> None:
    world.publish(10, 11)
    world.attach()
    world.next(1)
    world.settle(Outcome.EXPIRE, 0)
    assert events(life(world, 1)) == ["published", "committed", "entered", "taken"]


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"filter": "amount > 100"}, "whose filter does not match it: amount > 100"),
        ({"underlying_topic": "OTHERS"}, "its topic is 'LINES'"),
        ({"recovery_point": "2"}, "begins at bookmark 2"),
    ],
)
def test_a_message_that_never_came_in_is_told_why(world: ViewsWorld, keys: dict[str, str], reason: str) -> None:
    """R65, R86."""
    types = {"line": {"columns": "item STRING, amount BIGINT", "topics": ["LINES", "OTHERS"]}}
    queues = {"WORK": {"underlying_topic": "LINES", **keys}}
    world.publish(1, 2, 3)
    world.engine.decide(commands.Apply(definitions={"message_types": types, "queues": queues}, reset=("WORK",)), now_ms=START_MS)
    world.publish(4)
    told = life(world, 0)
    assert (told.state, told.topic) == (None, "LINES")
    assert told.reason is not None
    assert reason in told.reason


def test_a_dead_letter_queue_takes_nothing_but_dead_letters(world: ViewsWorld) -> None:
    world.publish(1)
    assert "only as dead letters" in str(life(world, 0, "FAILED").reason)


def test_an_unknown_bookmark_is_refused_by_name(world: ViewsWorld) -> None:
    world.publish(1, 2)
    for bookmark, next_step in ((2, "It has 2"), (10**12, "It has 2"), (-1, "start at 0"), (2**64, "of 64 bits")):
        with pytest.raises(CallerError, match=rf"\[UNKNOWN_BOOKMARK\].*{next_step}"):
            life(world, bookmark)
    with pytest.raises(ConfigError, match=r"\[UNKNOWN_QUEUE\]"):
        life(world, 0, "WROK")


def test_what_no_coordinator_has_seen_is_there(world: ViewsWorld) -> None:
    world.publish(1)
    world.journal.publish([{"item": "x", "amount": 2}] * 2, topic="LINES")
    told = life(world, 2)
    assert (told.state, told.entered_at, told.row, events(told)) == ("available", None, 1, ["published", "committed"])


def test_a_past_record_tells_what_was_known_then(world: ViewsWorld) -> None:
    """R120."""
    world.publish(10)
    world.attach()
    before = world.moment().state.next_record - 1
    world.next(1)
    assert life(world, 0).state == "leased"
    past = life(world, 0, as_of=before)
    assert (past.state, events(past)[-1]) == ("available", "taken")
    assert life(world, 0, as_of=datetime.fromtimestamp(START_MS / 1_000, UTC)).state == "leased"


def test_priority_and_order_key_are_shown(world: ViewsWorld) -> None:
    """R66."""
    queues = {
        "WORK": {"underlying_topic": "LINES", "priority": "amount"},
        "OTHER": {"underlying_topic": "LINES", "order_key": "item"},
    }
    world.engine.decide(commands.Apply(definitions={**DEFINITIONS, "queues": queues}), now_ms=START_MS)
    world.publish(10, 11)
    assert (life(world, 1).priority, life(world, 1, "OTHER").order_key) == (11, "i11")


def test_beyond_the_target_depth_others_decide(world: ViewsWorld) -> None:
    """R79: whether a message is active depends on those before it."""
    queues = {"WORK": {"underlying_topic": "LINES", "target_queue_depth": 1_000}}
    world.engine.decide(commands.Apply(definitions={**DEFINITIONS, "queues": queues}), now_ms=START_MS)
    world.publish(*range(1_002))
    assert [life(world, bookmark).state for bookmark in (999, 1_000)] == ["available", "inactive"]


def test_a_queue_that_began_anew_says_so(world: ViewsWorld) -> None:
    world.publish(10)
    world.attach()
    world.next(1)
    world.next(1)
    world.engine.decide(commands.Apply(definitions=DEFINITIONS, reset=("WORK",)), now_ms=START_MS)
    assert events(life(world, 0))[-3:] == ["proven", "reset", "taken"]


def test_after_a_reset_to_another_type_only_its_own_message_is_told_of(world: ViewsWorld) -> None:
    """Subscriptions outlive it, and bookmarks mean other messages from then on (DESIGN 15.6)."""
    world.publish(10)
    world.attach()
    world.next(1)
    world.settle(Outcome.EXPIRE, 0, error="no price")
    world.next(1)
    world.engine.decide(commands.Pause(queue="WORK"), now_ms=START_MS)
    types = {**DEFINITIONS["message_types"], "size": {"columns": "size BIGINT", "topics": ["SIZES"]}}
    queues = {"WORK": {"underlying_topic": "SIZES"}}
    world.engine.decide(commands.Apply(definitions={"message_types": types, "queues": queues}, reset=("WORK",)), now_ms=START_MS)
    world.commit()
    world.opened.create_message_table("size", "size BIGINT")
    world.journal.publish([{"size": 1}], topic="SIZES")
    world.admit("size")
    assert "is paused" in str(life(world, 0).reason)
    world.engine.decide(commands.Unpause(queue="WORK"), now_ms=START_MS)
    world.next(1)
    told = life(world, 0)
    assert (told.trouble, told.message_type, told.state, told.subscription) == (None, "size", "leased", "s")
    assert events(told) == ["published", "committed", "entered", "taken", "granted"]


def test_a_barrier_tells_its_release_and_each_receipt(world: ViewsWorld) -> None:
    """R70, R71."""
    queues = {"WORK": {"underlying_topic": "LINES", "barrier": "amount = 0"}}
    world.engine.decide(commands.Apply(definitions={**DEFINITIONS, "queues": queues}), now_ms=START_MS)
    world.attach()
    world.publish(1, 0)
    world.next(5)
    assert life(world, 1).state == "held"
    world.next(5)
    world.next(5)
    told = life(world, 1)
    assert events(told)[2:] == ["entered", "taken", "barrier_released", "granted", "barrier_received", "proven"]
    assert (told.is_barrier, told.state) == (True, "removed")
    assert "holds it as a barrier" in told.events[3].text


def test_a_file_with_fewer_rows_than_the_log_says_is_damage(world: ViewsWorld) -> None:
    world.publish(10, 11, 12)
    (segment,) = world.moment().state.message_types["line"].segments
    path = Path(world.journal.path) / "messages" / "line" / segment.path
    pq.write_table(pq.read_table(path).slice(0, 2), path)
    with pytest.raises(JournalError, match=r"\[MESSAGE_FILE_CORRUPT\].*2 rows instead of at least 3"):
        read_view(world.moment(), "messages", "WORK")


def test_it_agrees_with_the_view_of_all_messages(world: ViewsWorld) -> None:
    """Folding a message alone, or with all others, gives one state."""
    world.publish(*range(40))
    world.attach(backlog=7)
    for step in range(6):
        lease = world.next(5, now_ms=START_MS + step * 1_000)
        assert lease is not None
        world.settle(Outcome.CANCEL, lease.rows.min(), due_at_ms=START_MS + 10**6, now_ms=START_MS + step * 1_000)
        world.settle(Outcome.EXPIRE, 39 - step, now_ms=START_MS + step * 1_000)
        moment = world.moment(START_MS + step * 1_000)
        seen = read_view(moment, "messages", "WORK").to_pylist()
        for row in seen:
            told = asdict(life(world, row["bookmark"], as_of=len(world.records) - 1))
            names = ("state", "subscription", "lease", "leased_until", "due_at", "delivery_count", "cancel_count")
            assert {name: told[name] for name in names} == {name: row[name] for name in names}


def test_it_reads_as_text_as_a_page_and_as_json(world: ViewsWorld) -> None:
    world.publish(10)
    world.attach()
    world.next(1)
    told = life(world, 0)
    text, page = str(told), told._repr_html_()
    assert "Message 0 of queue 'WORK'" in text
    assert "leased to 's' until" in text
    assert "<td>WORK</td>" in page
    assert "None" not in text + page
    assert json.loads(json.dumps(asdict(told), default=str))["events"][4]["event"] == "granted"


def test_many_deliveries_in_a_row_are_told_in_one_line(world: ViewsWorld) -> None:
    world.publish(10)
    world.attach()
    for number in range(37):
        world.retry(f"no price {number}", now_ms=START_MS + number * MINUTE_MS)
    told = life(world, 0)
    first, last = (datetime.fromtimestamp((START_MS + each * MINUTE_MS) / 1_000, UTC) for each in (0, 36))
    (repeated,) = [each for each in told.told() if isinstance(each, RepeatedDeliveries)]
    assert (repeated.deliveries, repeated.first_at, repeated.last_at) == (37, first, last)
    assert "delivered 37 times, first at 2096-10-02T07:06:40.000Z, last at 2096-10-02T07:42:40.000Z" in str(told)
    whole = told.as_text(shows_all=True)
    errors = [[number for number in range(37) if f"no price {number}\n" in f"{text}\n"] for text in (str(told), whole)]
    assert errors == [[0, 36], list(range(37))]
    assert "delivered 37 times" not in whole


def test_what_else_happens_between_deliveries_is_never_hidden(world: ViewsWorld) -> None:
    world.publish(10)
    world.attach()
    for number in range(20):
        world.retry("no price", now_ms=START_MS + number * MINUTE_MS)
    told = life(world, 0)
    begun = [index for index, event in enumerate(told.events) if event.event in ("granted", "resumed")]
    other = replace(told.events[begun[10]], event="redriven", text="redriven by somebody")
    two_lives = replace(told, events=(*told.events[: begun[10]], other, *told.events[begun[10] :]))
    repeated = [each.deliveries for each in two_lives.told() if isinstance(each, RepeatedDeliveries)]
    assert (repeated, "redriven by somebody" in str(two_lives)) == ([10, 10], True)
    few = replace(told, events=told.events[: begun[DELIVERIES_TOLD]])
    assert str(few) == few.as_text(shows_all=True)
