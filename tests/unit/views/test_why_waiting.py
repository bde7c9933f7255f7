"""Why a message that waits in a queue is given to nobody (`explain`)."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyroaring import BitMap64

from spark_queue.core import commands, folds
from spark_queue.core.definitions.definition import Entitlement, PrincipalDefinition
from spark_queue.core.records import Outcome, Record
from spark_queue.core.state.alarm import Alarm
from spark_queue.core.state.journal_state import JournalState
from spark_queue.journal import snapshot
from spark_queue.journal.open import DeltaJournal, open_journal
from spark_queue.journal.reader import list_blocks
from spark_queue.views import explain
from spark_queue.views.journal_view import whole_state
from spark_queue.views.why_waiting import why_it_waits
from tests.deciding import started
from tests.unit.dashboard.dashboard_world import DashboardWorld
from tests.unit.views.views_world import DEFINITIONS, START_MS, ViewsWorld


@pytest.fixture
def world(tmp_path: Path) -> DashboardWorld:
    made = DashboardWorld(tmp_path)
    made.publish(10, 1)
    return made


def why(world: DashboardWorld, bookmark: int, queue: str = "BILLING") -> str | None:
    world.commit()
    told = world.journal.queue(queue).explain(bookmark)
    assert told.reason is None or told.reason in str(told)
    return told.reason


def test_nobody_consumes(world: DashboardWorld) -> None:
    assert "queue 'BILLING' has no consumer now" in str(why(world, 3))
    world.attach("BILLING", "east", 2)
    world.decide(commands.Leave(**_planner(world)), 3)
    assert "queue 'BILLING' has no consumer now" in str(why(world, 3))


def test_the_queue_is_paused(world: DashboardWorld) -> None:
    world.attach("BILLING", "east", 2)
    world.decide(commands.Pause(queue="BILLING"), 3)
    assert "queue 'BILLING' is paused, and grants nothing until `sparkq unpause`." in str(why(world, 3))
    world.decide(commands.Unpause(queue="BILLING"), 4)
    assert "paused" not in str(why(world, 3))


def test_no_filter_matches(world: DashboardWorld) -> None:
    started(world.engine, "BILLING", "large", max_backlog=5, filter_sql="amount > 6", now_ms=world.at(2))
    assert "no subscription's filter matches it. 'large': amount > 6" in str(why(world, 3))
    assert "8 of the messages that may be given out are older" in str(why(world, 8))


def test_consumers_have_as_much_in_hand_as_they_may(world: DashboardWorld) -> None:
    world.attach("BILLING", "east", 2, backlog=4)
    world.work("BILLING", 4, 2.1)
    assert why(world, 0) is None, "it is leased"
    assert "each consumer has as many messages in hand as it may: 'east' has 4 in hand" in str(why(world, 7))


def test_it_is_not_its_turn(world: DashboardWorld) -> None:
    world.attach("BILLING", "east", 2)
    world.work("BILLING", 4, 2.1)
    told = str(why(world, 7))
    assert (
        "waits for its turn: 3 of the messages that may be given out are older. Consumers that may take it were last heard: 'east' "
        in told
    )


def test_it_was_cancelled_with_a_delay(world: DashboardWorld) -> None:
    world.attach("BILLING", "east", 2)
    world.work("BILLING", 4, 179.9)
    cancelled = commands.OutcomeRows(outcome=Outcome.CANCEL, ranges=((1, 2),), retry_after_ms=3_600_000)
    world.decide(commands.Settle(queue="BILLING", outcomes=(cancelled,)), 179.95)
    assert "it was cancelled with a delay" in str(why(world, 1))


def test_what_left_waits_for_nothing(world: DashboardWorld) -> None:
    world.expire("SHIPPING", range(5, 6), "no such address", 2)
    assert why(world, 5, "SHIPPING") is None


def test_an_alarm_is_why_only_where_it_stops_who_may_take_it(world: DashboardWorld) -> None:
    world.attach("BILLING", "east", 2)
    [east] = world.engine.state.ledger("BILLING").subscriptions.values()
    for probe_at_ms, told in (
        (None, "waits for its turn"),
        (world.at(9), "after an alarm its consumers try one message at a time. 'east': boom"),
    ):
        east.alarm = Alarm(error="boom", since_ms=world.at(2), probe_at_ms=probe_at_ms)
        assert told in str(why_it_waits(world.engine.state, "BILLING", 3, now_ms=world.at(3), heard={}))
    east.left = True
    assert "has no consumer" in str(why_it_waits(world.engine.state, "BILLING", 3, now_ms=world.at(3), heard={}))


def test_who_attached_has_no_right_to_read_any_more(world: DashboardWorld) -> None:
    """R12: it is given nothing, however often it asks."""
    world.attach("BILLING", "east", 2)
    state, definitions = world.engine.state, world.engine.state.definitions
    [east] = state.ledger("BILLING").subscriptions.values()

    def told(**readers: Entitlement) -> str:
        principals = {name: PrincipalDefinition(name=name, token_hash=(), rights=(each,)) for name, each in readers.items()}
        state.definitions = replace(definitions, principals=principals)
        return str(why_it_waits(state, "BILLING", 3, now_ms=world.at(3), heard={}))

    here, elsewhere = (Entitlement(queues=name, rights=("read",)) for name in ("BILLING", "SHIPPING"))
    assert "for its turn" in told()
    assert "no longer have the right to read queue 'BILLING': 'east' (no principal)." in told(clerk=here)
    east.principal = "clerk"
    assert "for its turn" in told(clerk=here)
    assert "It waits: its consumers no longer have the right to read queue 'BILLING': 'east' (principal 'clerk')." in told(
        clerk=elsewhere
    )
    state.ledger("BILLING").subscriptions["west"] = replace(east, name="west", principal="chief")
    both = told(clerk=elsewhere, chief=here)
    assert ("'west' " in both, "'east' " in both) == (True, False), "only who may be given it is named"


def test_a_barrier_stands_before_it(tmp_path: Path) -> None:
    """R69, R71."""
    world = ViewsWorld(tmp_path)
    queues = {"WORK": {"underlying_topic": "LINES", "barrier": "amount = 0"}}
    world.engine.decide(commands.Apply(definitions={**DEFINITIONS, "queues": queues}), now_ms=START_MS)
    world.attach()
    world.publish(1, 0, 2)

    def told(bookmark: int) -> str:
        return str(why_it_waits(world.engine.state, "WORK", bookmark, now_ms=START_MS, heard={}))

    assert "for its turn" in told(0)
    assert "it is a barrier" in told(1)
    assert "given out when all before it are settled: 1 are not, and the oldest is message 0." in told(1)
    assert "It waits behind barrier 1, which is given out when all before it are settled: 1 are not, and the" in told(2)
    world.next(5)
    world.next(5)
    assert "It waits behind barrier 1, which each consumer is given first." in told(2)


def test_what_failed_alone_was_not_published_with_a_delay(tmp_path: Path) -> None:
    """Such a try counts no delivery, and there was none before it."""
    world = ViewsWorld(tmp_path)
    world.publish(1)
    world.engine.state.ledger("WORK").delay(BitMap64([0]), START_MS + 1_000)
    told = why_it_waits(world.engine.state, "WORK", 0, now_ms=START_MS, heard={})
    assert "it was cancelled with a delay (retry_after or retry_backoff)" in str(told)


def test_the_message_of_its_key_that_comes_first_is_named(tmp_path: Path) -> None:
    world = ViewsWorld(tmp_path)
    queues = {"WORK": {"underlying_topic": "LINES", "order_key": "item"}}
    world.engine.decide(commands.Apply(definitions={**DEFINITIONS, "queues": queues}), now_ms=START_MS)
    world.attach()
    for _ in range(2):
        world.publish(1, 2)

    def told(bookmark: int) -> str:
        return str(why_it_waits(world.engine.state, "WORK", bookmark, now_ms=START_MS, heard={}))

    assert "It waits behind message 0 of its order_key, which is available." in told(2)
    world.next(1)
    assert "It waits behind message 0 of its order_key, which 's' has in hand." in told(2)
    assert "It waits behind message 1 of its order_key, which is available." in told(3)


def test_only_what_came_after_the_newest_snapshot_is_folded(world: DashboardWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world.attach("BILLING", "east", 2)
    world.commit()
    opened = open_journal(world.journal.store)
    snapshot.capture(opened.store, list_blocks(opened.store), opened.traits)
    world.decide(commands.Pause(queue="BILLING"), 3)
    folded, fold = list[str](), folds.fold

    def noted(state: JournalState, record: Record) -> None:
        folded.append(str(record.kind))
        fold(state, record)

    monkeypatch.setattr(folds, "fold", noted)
    # Who reads every record reads for a second at ten million messages.
    monkeypatch.setattr(DeltaJournal, "records", None)
    world.commit()
    with whole_state(opened, None, None, 0) as state:
        assert state.ledger("BILLING").paused
        assert "is paused" in str(why_it_waits(state, "BILLING", 3, now_ms=world.at(4), heard={}))
    assert folded == ["paused"]


def test_who_follows_the_log_and_is_behind_is_not_believed(world: DashboardWorld) -> None:
    world.commit()
    opened = open_journal(world.journal.store)
    behind = JournalState(opened.traits)
    told = explain(opened, "BILLING", 3, state_now=lambda: nullcontext(behind))
    assert "has no consumer" in str(told.reason)


def _planner(world: DashboardWorld) -> dict[str, Any]:
    return world._planners["BILLING"]
