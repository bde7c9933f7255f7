"""When an owner is gone: claims, as far as somebody allows them and somebody waits for what is claimed (R107 to R111)."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
from pyroaring import BitMap64

from spark_queue.core import commands
from spark_queue.core.deciding.instances.liveness import GAP_MS
from spark_queue.core.deciding.instances.transfers import OPEN_MS
from spark_queue.core.replies import Run
from spark_queue.core.state.ownership import MessageValue, Stage
from spark_queue.errors import JournalError, LeaseError
from spark_queue.verification.of_state import of_state
from spark_queue.verification.state_digest import digest
from tests.fake_clock import FakeClock
from tests.scenario.instances import Consumer, Instance, exchange
from tests.scenario.traits import PublishedMessage
from tests.second_model.problems import of_records

LOST_MS = 31_000


@pytest.fixture
def pair(pair: tuple[Instance, Instance]) -> tuple[Instance, Instance]:
    """Let virginia own three messages that frankfurt knows."""
    pair[1].publish(3)
    exchange(*pair)
    return pair


def allow(instance: Instance) -> None:
    instance.decide(commands.ProxiedTransfer(queue="WORK", on=True))


def test_what_is_delayed_is_claimed_once_it_is_due(pair: tuple[Instance, Instance], clock: FakeClock) -> None:
    """R110: only what is about to be delivered."""
    frankfurt, _ = pair
    frankfurt.world.state.queues["WORK"].delay(BitMap64([1]), clock.wall_ms() + 2 * LOST_MS)
    allow(frankfurt)
    consumer = Consumer(frankfurt)
    frankfurt.miss(LOST_MS)
    assert consumer.take() == [0, 2]
    consumer.take()
    assert frankfurt.rows("remote") == [1]
    frankfurt.miss(LOST_MS)
    assert consumer.take() == [1]


def test_one_that_failed_alone_is_claimed_like_any_other(pair: tuple[Instance, Instance], clock: FakeClock) -> None:
    """It waits for no time of its own at its new owner (R109)."""
    frankfurt, virginia = pair
    consumer = Consumer(virginia)
    assert consumer.take(limit=1) == [0]
    who: dict[str, Any] = {"queue": "WORK", "subscription": "s"}
    virginia.decide(commands.StartRun(**who))
    run = Run(incarnation=virginia.world.state.queues["WORK"].subscriptions["s"].incarnation, lease=1)
    virginia.decide(commands.EndRun(**who, run=run, error="boom", cancel=True))
    virginia.decide(commands.Prove(**who, run=run))
    virginia.decide(commands.Unsubscribe(**who))
    exchange(*pair)
    frankfurt.world.state.queues["WORK"].lone_failures.increment(BitMap64([0]))
    allow(frankfurt)
    claimer = Consumer(frankfurt)
    frankfurt.miss(LOST_MS)
    taken = [row for _ in range(3) for row in claimer.take()]
    assert sorted(taken) == [0, 1, 2]


@pytest.mark.parametrize("meanwhile", ["it lived", "nobody looked", "another reigns", "the loop slept"])
def test_what_was_claimed_goes_back_unless_another_look_finds_its_owner_silent(
    pair: tuple[Instance, Instance], clock: FakeClock, meanwhile: str
) -> None:
    """R110: a coordinator may stop, or sleep, between what it decides and its commit, and again before it grants."""
    frankfurt, virginia = pair
    allow(frankfurt)
    consumer = Consumer(frankfurt)
    frankfurt.miss(LOST_MS)
    assert consumer.take(limit=2, looks=False) == []
    assert (frankfurt.value("WORK", 0).owner, frankfurt.rows("remote")) == ("frankfurt", [0, 1, 2])
    assert consumer.take(looks=False) == [], "no more is claimed before another look"
    assert frankfurt.ownership().claimed_rows == BitMap64([0, 1])
    match meanwhile:
        case "it lived":
            frankfurt.look({"virginia": 7})
        case "nobody looked":
            clock.advance(2 * GAP_MS)
            frankfurt.look()
        case "another reigns":
            frankfurt.crash()
        case _:
            frankfurt.world.engine.take_over(now_ms=clock.wall_ms())
            frankfurt.world.commit()
    assert [frankfurt.value("WORK", row) for row in range(3)] == [
        MessageValue(term=2, owner="virginia"), MessageValue(term=2, owner="virginia"), MessageValue(owner="virginia")
    ]  # fmt: skip
    exchange(*pair)
    assert Consumer(virginia).take() == [0, 1, 2]
    assert virginia.world.state.queues["WORK"].delivered.of(0) == 1, "no delivery was counted before"
    assert (frankfurt.ownership().claimed, frankfurt.ownership().given_to) == (0, {})
    assert digest(frankfurt.world.folded()) == digest(frankfurt.world.state)


@pytest.mark.parametrize("missing", ["its peers", "that it was restored"])
def test_an_owner_that_was_away_gives_nothing_away_before_it_has_heard_what_was_claimed(
    pair: tuple[Instance, Instance], clock: FakeClock, missing: str
) -> None:
    frankfurt, virginia = pair
    waiting = Consumer(frankfurt)
    clock.advance(LOST_MS)
    waiting.take()
    reach = virginia.world.engine.liveness
    if missing == "its peers":
        virginia.world.engine.begin_return(joins=False, now_ms=clock.wall_ms())
    else:
        reach.restored = JournalError("JOURNAL_RESTORED", peer="tokyo", record="record 70", path="here", since=2)
    virginia.pull(frankfurt)
    assert virginia.rows("available") == [0, 1, 2], "tokyo may have claimed them, and given them to its consumers"
    reach.restored = None
    if missing == "its peers":
        virginia.world.engine.end_return(now_ms=clock.wall_ms())
    clock.advance(OPEN_MS)
    waiting.take()
    exchange(*pair)
    assert frankfurt.rows("available") == [0, 1, 2]


def test_a_log_is_sound_whose_messages_got_another_life_elsewhere(clock: FakeClock) -> None:
    frankfurt, virginia = Instance("frankfurt", ["virginia"], clock), Instance("virginia", ["frankfurt"], clock)
    frankfurt.publish(1)
    frankfurt.decide(commands.Settle(queue="WORK", outcomes=(commands.OutcomeRows(outcome="expire", ranges=((0, 1),)),)))
    exchange(frankfurt, virginia)
    virginia.decide(commands.ProxiedTransfer(queue="FAILED", on=True))
    assert virginia.decide(commands.FindDeadLetters(queue="WORK")).skipped == 1
    virginia.miss(LOST_MS)
    found = virginia.decide(commands.FindDeadLetters(queue="WORK"))
    assert (tuple(found.ranges), found.skipped) == (((0, 1),), 0), "who redrives asks first"
    assert virginia.decide(commands.Redrive(queue="WORK", ranges=found.ranges)).redriven == 1
    exchange(frankfurt, virginia)
    consumer = Consumer(frankfurt)
    clock.advance(2_000)
    consumer.take()
    exchange(frankfurt, virginia)
    assert consumer.take() == [0]
    for each in (frankfurt, virginia):
        assert of_records(each.world.committed) == []


@pytest.mark.parametrize("is_over", [False, True])
@pytest.mark.parametrize("outcome", ["acknowledge", "cancel", "expire"])
def test_what_waits_for_the_proof_of_a_batch_counts_as_far_as_its_lease_still_holds(
    pair: tuple[Instance, Instance], clock: FakeClock, *, outcome: str, is_over: bool
) -> None:
    """R83: while the lease is open an outcome is of its life; once it is over, the message is another's."""
    frankfurt, virginia = pair
    lost, consumer = Consumer(virginia), Consumer(frankfurt)
    assert lost.take(limit=1) == [0]
    said = commands.OutcomeRows(outcome=outcome, ranges=((0, 1),), lease=1)
    virginia.decide(commands.Settle(queue="WORK", outcomes=(said,)))
    for queue in ("WORK", "FAILED"):
        frankfurt.decide(commands.ProxiedTransfer(queue=queue, on=True))
    frankfurt.miss(LOST_MS)
    assert consumer.take(limit=1) == frankfurt.rows("leased") == [0], "it was claimed, and is worked on"
    if is_over:
        # What a batch said of its end holds, its acknowledgements do not.
        clock.advance(LOST_MS)
        virginia.pull(frankfurt)
        virginia.tick()
    exchange(*pair)
    lost.take(limit=1)
    exchange(*pair)
    if outcome == "acknowledge" and is_over:
        found = MessageValue(0, Stage.PRESENT, 1, "frankfurt")
    else:
        found = {
            "acknowledge": MessageValue(0, Stage.GONE),
            "cancel": MessageValue(0, Stage.PRESENT, 1, "frankfurt"),
            "expire": MessageValue(0, Stage.DEAD, 1, "frankfurt"),
        }[outcome]
    assert [each.value("WORK", 0) for each in pair] == [found, found]
    assert frankfurt.rows("leased") == ([0] if found.stage == Stage.PRESENT else [])
    assert [each.value("FAILED", 0).owner for each in pair] == ["virginia", "virginia"] if outcome == "expire" else True
    for each in pair:
        assert of_state(each.world.state) == []


@pytest.mark.parametrize("is_leased", [False, True])
@pytest.mark.parametrize(("outcome", "stage"), [("acknowledge", Stage.GONE), ("expire", Stage.DEAD)])
def test_somebody_may_end_what_a_living_owner_has(
    pair: tuple[Instance, Instance], *, outcome: str, stage: Stage, is_leased: bool
) -> None:
    """R109: that one hears of it, and what it was working on may be acknowledged still."""
    frankfurt, virginia = pair
    virginia.world.publish("json", [PublishedMessage(topic="T", attributes={"n": 1})] * 2)
    virginia.world.commit()
    exchange(*pair)
    working = Consumer(virginia)
    if is_leased:
        assert working.take() == [0, 1, 2, 3, 4]
    named = (commands.OutcomeRows(outcome=outcome, ranges=((0, 1),)),)
    with pytest.raises(LeaseError) if outcome == "expire" else nullcontext():
        settled = frankfurt.decide(commands.Settle(queue="WORK", outcomes=named))
        assert settled.acknowledged == 0
    assert frankfurt.rows("remote") == [0, 1, 2, 3, 4]
    frankfurt.decide(commands.Settle(queue="WORK", outcomes=named, of_owner=True))
    done = frankfurt.decide(commands.SettleWhere(queue="WORK", where="n = 2", outcome=outcome, of_owner=True))
    assert (done.acknowledged, done.expired) == (0, 0)
    assert frankfurt.rows("remote") == [1, 2, 3, 4]
    exchange(*pair)
    assert {each.value("WORK", 0).stage for each in pair} == {stage}
    assert virginia.rows("leased" if is_leased else "available") == [1, 2, 3, 4]
    cancel = (commands.OutcomeRows(outcome="cancel", ranges=((1, 2),)),)
    with pytest.raises(LeaseError):
        frankfurt.decide(commands.Settle(queue="WORK", outcomes=cancel, of_owner=True))
    done = frankfurt.decide(commands.SettleWhere(queue="WORK", where="n = 1", outcome=outcome, of_owner=True))
    assert done.acknowledged + done.expired == 2
    for each in pair:
        assert of_state(each.world.state) == []
