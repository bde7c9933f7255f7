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
from spark_queue.core.state.status import queue_status
from spark_queue.errors import CallerError, ConfigError, JournalError, LeaseError
from spark_queue.verification.of_state import of_state
from spark_queue.verification.state_digest import digest
from tests.fake_clock import FakeClock
from tests.scenario.instances import QUEUES, Consumer, Instance, ask, exchange
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


def test_messages_of_a_lost_owner_wait_until_claims_are_allowed(pair: tuple[Instance, Instance], clock: FakeClock) -> None:
    """R107, R108, R109."""
    frankfurt, _ = pair
    allow(frankfurt)
    frankfurt.decide(commands.ProxiedTransfer(queue="WORK", on=False))
    consumer = Consumer(frankfurt)
    frankfurt.miss(LOST_MS)
    assert consumer.take() == []
    allow(frankfurt)
    assert consumer.take() == [0, 1, 2]
    assert frankfurt.ownership().claimed == 3


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


def test_the_figures_tell_whose_messages_are_and_how_they_came(pair: tuple[Instance, Instance], clock: FakeClock) -> None:
    """R108, R119."""
    frankfurt, virginia = pair
    consumer = Consumer(frankfurt)
    assert consumer.take(limit=1) == []
    frankfurt.miss(20_000)
    assert consumer.take(limit=1) == []
    exchange(*pair)
    given = queue_status(virginia.world.state, "WORK", now_ms=clock.wall_ms())
    assert (given.owned, given.remote, given.transferred_out) == (2, 1, 1)
    allow(frankfurt)
    assert consumer.take(limit=1) == [0]
    assert consumer.take(limit=1) == []
    frankfurt.miss(LOST_MS)
    assert consumer.take(limit=1) == [1]
    had = queue_status(frankfurt.world.state, "WORK", now_ms=clock.wall_ms())
    assert (had.owned, had.remote, had.transferred_in, had.proxied_transfer, had.proxied_transfer_allowed) == (1, 1, 1, 1, True)


def test_only_what_is_granted_is_claimed(pair: tuple[Instance, Instance], clock: FakeClock) -> None:
    """R110."""
    frankfurt, _ = pair
    allow(frankfurt)
    frankfurt.miss(LOST_MS)
    assert Consumer(frankfurt).take(limit=1) == [0]
    assert frankfurt.rows("remote") == [1, 2]


def test_an_owner_whose_beacon_rises_is_not_claimed_from(pair: tuple[Instance, Instance], clock: FakeClock) -> None:
    frankfurt, _ = pair
    allow(frankfurt)
    consumer = Consumer(frankfurt)
    frankfurt.miss(LOST_MS)
    frankfurt.look({"virginia": 7})
    assert consumer.take() == []
    frankfurt.miss(LOST_MS)
    frankfurt.look({"virginia": 7})
    assert consumer.take() == [0, 1, 2]


def test_nothing_is_claimed_before_others_were_pulled_once_more(pair: tuple[Instance, Instance]) -> None:
    frankfurt, _ = pair
    allow(frankfurt)
    consumer = Consumer(frankfurt)
    frankfurt.miss(LOST_MS, is_level=False)
    assert consumer.take() == [], "all of it was pulled, but before"
    frankfurt.look()
    assert consumer.take() == [0, 1, 2]


def test_who_has_not_looked_for_a_while_has_missed_nobody(pair: tuple[Instance, Instance], clock: FakeClock) -> None:
    frankfurt, _ = pair
    allow(frankfurt)
    consumer = Consumer(frankfurt)
    frankfurt.miss(LOST_MS - GAP_MS)
    clock.advance(2 * GAP_MS)
    frankfurt.look()
    assert consumer.take() == []
    frankfurt.miss(LOST_MS)
    assert consumer.take() == [0, 1, 2]


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


def test_what_was_claimed_in_a_queue_that_was_left_goes_back_when_it_is_put_back(pair: tuple[Instance, Instance]) -> None:
    """R110: nobody has looked meanwhile."""
    frankfurt, _ = pair
    allow(frankfurt)
    consumer = Consumer(frankfurt)
    frankfurt.miss(LOST_MS)
    assert consumer.take(looks=False) == []
    assert frankfurt.ownership().claimed_rows == BitMap64([0, 1, 2])
    frankfurt.define({}, pulled=[])
    frankfurt.crash()
    frankfurt.define(QUEUES)
    assert frankfurt.ownership().claims == {}
    assert frankfurt.value("WORK", 0).owner == "virginia"


def test_a_request_for_messages_of_a_lost_owner_lets_them_be_claimed_first(pair: tuple[Instance, Instance]) -> None:
    """R109: who asks again is given them, after another look."""
    frankfurt, _ = pair
    allow(frankfurt)
    frankfurt.miss(LOST_MS)
    asked = {"uuid-of-virginia": [0, 1, 2]}
    ask(frankfurt, asked, requester="tokyo", limit=2)
    assert frankfurt.ownership().claimed_rows == BitMap64([0, 1])
    frankfurt.look()
    ask(frankfurt, asked, requester="tokyo", limit=2)
    assert {row: frankfurt.value("WORK", row).owner for row in range(3)} == {0: "tokyo", 1: "tokyo", 2: "virginia"}


def test_whose_messages_may_be_claimed_is_said_by_name(clock: FakeClock) -> None:
    frankfurt = Instance("frankfurt", ["virginia", "tokyo"], clock)
    with pytest.raises(CallerError, match="only one may be lost.*--owner, one of tokyo, virginia"):
        frankfurt.decide(commands.ProxiedTransfer(queue="WORK", on=True))
    with pytest.raises(ConfigError, match="UNKNOWN_PEER.*Did you mean 'tokyo'"):
        frankfurt.decide(commands.ProxiedTransfer(queue="WORK", on=True, owner="tokio"))
    frankfurt.decide(commands.ProxiedTransfer(queue="WORK", on=True, owner="tokyo"))
    for origin in ("tokyo", "virginia"):
        site = Instance(origin, ["frankfurt"], clock)
        site.publish(1)
        frankfurt.pull(site)
    frankfurt.miss(LOST_MS)
    consumer = Consumer(frankfurt)
    assert (consumer.take(), frankfurt.rows("remote")) == ([0], [1])
    frankfurt.decide(commands.ProxiedTransfer(queue="WORK", on=True, owner="virginia"))
    frankfurt.decide(commands.ProxiedTransfer(queue="WORK", on=False, owner="virginia"))
    assert consumer.take() == []
    frankfurt.decide(commands.ProxiedTransfer(queue="WORK", on=False))
    assert frankfurt.ownership().claims_from == set()
    before = frankfurt.count("proxied_transfer")
    frankfurt.decide(commands.ProxiedTransfer(queue="WORK", on=False))
    assert frankfurt.count("proxied_transfer") == before == 4


def test_who_is_forgotten_leaves_what_was_claimed_of_it(pair: tuple[Instance, Instance]) -> None:
    frankfurt, _ = pair
    allow(frankfurt)
    frankfurt.miss(LOST_MS)
    consumer = Consumer(frankfurt)
    assert consumer.take(limit=1, looks=False) == []
    assert frankfurt.decide(commands.ForgetPeer(peer="virginia")).claimed == 3
    assert consumer.take() == [0, 1, 2]


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


def test_both_agree_when_the_owner_comes_back(pair: tuple[Instance, Instance], clock: FakeClock) -> None:
    """R111."""
    frankfurt, virginia = pair
    there = Consumer(virginia)
    assert there.take(limit=1) == [0]
    allow(frankfurt)
    consumer = Consumer(frankfurt)
    frankfurt.miss(LOST_MS)
    assert consumer.take() == [0, 1, 2], "what the lost owner had delivered comes again (R111)"
    virginia.pull(frankfurt)
    assert (virginia.rows("leased"), virginia.rows("remote")) == ([0], [1, 2])
    assert there.take() == []
    exchange(*pair)
    assert frankfurt.rows("removed") == virginia.rows("removed") == [0], "an acknowledgement counts, whoever owns it"
    consumer.take()
    exchange(*pair)
    assert frankfurt.rows("removed") == virginia.rows("removed") == [0, 1, 2]


def test_purging_by_hand_claims_what_it_touches(pair: tuple[Instance, Instance], clock: FakeClock) -> None:
    frankfurt, virginia = pair
    allow(frankfurt)
    assert frankfurt.decide(commands.Purge(queue="WORK")).purged == 0
    frankfurt.miss(LOST_MS)
    assert Consumer(frankfurt).take(looks=False) == [], "also what is claimed, and not granted yet"
    assert frankfurt.decide(commands.Purge(queue="WORK")).purged == 3
    exchange(*pair)
    assert virginia.rows("removed") == [0, 1, 2]


def test_a_queue_that_delivers_at_most_once_is_refused(clock: FakeClock) -> None:
    queues = {"ONCE": {"underlying_topic": "T", "semantics": "at-most-once"}}
    frankfurt = Instance("frankfurt", ["virginia"], clock, queues=queues)
    with pytest.raises(CallerError, match="at most once"):
        frankfurt.decide(commands.ProxiedTransfer(queue="ONCE", on=True))


def test_a_settlement_that_is_refused_claims_nothing(pair: tuple[Instance, Instance], clock: FakeClock) -> None:
    frankfurt, _ = pair
    allow(frankfurt)
    frankfurt.miss(LOST_MS)
    before = frankfurt.world.state.next_record
    with pytest.raises(LeaseError, match="never leased"):
        frankfurt.decide(commands.Settle(queue="WORK", outcomes=(commands.OutcomeRows(outcome="cancel", ranges=((0, 1),)),)))
    assert frankfurt.world.state.next_record == before
    frankfurt.decide(commands.Settle(queue="WORK", outcomes=(commands.OutcomeRows(outcome="expire", ranges=((1, 2),)),)))
    assert (frankfurt.rows("dead"), frankfurt.rows("remote")) == ([1], [0, 2])


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


def test_a_queue_that_is_changed_to_deliver_at_most_once_claims_nothing_more(clock: FakeClock) -> None:
    queues = {"WORK": {"underlying_topic": "T"}}
    frankfurt = Instance("frankfurt", ["virginia"], clock, queues=queues)
    virginia = Instance("virginia", ["frankfurt"], clock, queues=queues)
    virginia.publish(1)
    exchange(frankfurt, virginia)
    allow(frankfurt)
    frankfurt.define({"WORK": {"underlying_topic": "T", "semantics": "at-most-once"}})
    consumer = Consumer(frankfurt)
    frankfurt.miss(LOST_MS)
    assert consumer.take() == []


def test_what_comes_back_from_a_lease_belongs_to_who_claimed_it(pair: tuple[Instance, Instance], clock: FakeClock) -> None:
    frankfurt, virginia = pair
    Consumer(virginia).take(limit=1)
    allow(frankfurt)
    frankfurt.miss(LOST_MS)
    Consumer(frankfurt).take()
    virginia.pull(frankfurt)
    assert virginia.rows("leased") == [0]
    clock.advance(LOST_MS)
    virginia.tick()
    assert (virginia.rows("available"), virginia.rows("remote")) == ([], [0, 1, 2])


def test_a_late_proof_is_not_about_what_another_has_owned_since(pair: tuple[Instance, Instance], clock: FakeClock) -> None:
    """P5 across instances: who claimed it may have delivered it before it came back."""
    frankfurt, virginia = pair
    late = Consumer(virginia)
    late.take(limit=1)
    allow(frankfurt)
    consumer = Consumer(frankfurt)
    frankfurt.miss(LOST_MS)
    assert consumer.take(limit=1) == [0]
    virginia.pull(frankfurt)
    clock.advance(LOST_MS)
    virginia.tick()
    clock.advance(LOST_MS)
    frankfurt.tick()
    assert (virginia.rows("remote"), frankfurt.rows("available")) == ([0], [0])
    other = Consumer(virginia, "t")
    assert other.take() == [1, 2]
    assert other.take() == []
    clock.advance(20_000)
    assert other.take() == []
    exchange(*pair)
    assert virginia.rows("available") == [0]
    assert late.take() == [0]


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
