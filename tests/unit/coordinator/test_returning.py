"""When what is owned here may be delivered: others may have claimed it, or be about to (R108, R110, R130)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import pytest
from pyroaring import BitMap64

from spark_queue.coordinator.inbox import Call
from spark_queue.core import commands, replies
from spark_queue.core.deciding.instances.replicating import News, Pulled
from spark_queue.core.records import Kind, Replicated
from spark_queue.core.state.findings import alarms
from spark_queue.errors import CallerError
from spark_queue.protocol import wire
from spark_queue.replication.exchange import ApplyPulled, Heard, HeardPeer
from tests.no_peers import NoPeers
from tests.records import detail_of
from tests.unit.coordinator.loop_world import Planner, World
from tests.unit.coordinator.test_loop_pulls import PULLS, entered, pull


class Seen(NoPeers):
    """Pulls from peers as it is told."""

    told = Heard()
    peers: ClassVar[dict[str, HeardPeer]] = {}

    def heard(self) -> Heard:
        """Return what was told."""
        return replace(Seen.told, peers=Seen.peers)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> type[Seen]:
    """Let the loop hear what a test says: of an instance whose beacon is number 9, and was never missed."""
    monkeypatch.setattr(NoPeers, "heard", Seen.heard)
    monkeypatch.setattr(Seen, "told", Heard(own_number=9))
    monkeypatch.setattr(Seen, "peers", {"virginia": HeardPeer()})
    return Seen


def delivers(world: World) -> bool:
    """Return whether what is published is delivered in the next second."""
    planner = Planner(world)
    world.publish(1)
    world.clock.advance(1_000)
    call = planner.next_call()
    world.loop.step([call])
    assert isinstance(call.reply, replies.Granted)
    return call.reply.messages > 0


def returning(world: World) -> list[dict[str, Any]]:
    """Return what the log says of the return of the instance."""
    return [dict(detail_of(record)) for record in world.records() if record.kind == Kind.RETURNING]


def test_who_was_missed_for_less_than_two_thirds_of_the_time_goes_on_at_once(seen: type[Seen]) -> None:
    """R130; the default is 30 s."""
    seen.told = Heard(own_number=9, own_gaps_ms=(19_999,))
    world = World(PULLS)
    assert delivers(world)
    assert returning(world) == []


@pytest.mark.parametrize("gap_ms", [20_000, None])
def test_who_was_away_delivers_once_each_peer_knows_that_it_is_back_and_was_pulled_after_that(
    seen: type[Seen], gap_ms: int | None
) -> None:
    """R130: it stays returning over a restart; without a beacon nobody knows how long it was."""
    world = World(PULLS)
    pull(world, world.loop._engine.state.definitions, 7)
    seen.told = Heard(own_number=9, own_gaps_ms=(gap_ms,))
    world.loop, world.journal = world.reign()
    seen.peers = {"virginia": HeardPeer(seen_own=8)}
    assert not delivers(world)
    assert returning(world) == [{"on": True}]
    (alarm,) = alarms(world.loop._engine.state, world.loop._engine.state.queues["WORK"]).values()
    assert "sparkq return" in alarm.text
    seen.told = Heard(own_number=12)
    world.loop, world.journal = world.reign()
    seen.peers = {"virginia": HeardPeer(seen_own=11)}
    assert not delivers(world), "that was the number of the reign before"
    for level_age_ms in (1_000, 2_000):
        seen.peers = {"virginia": HeardPeer(seen_own=12, level_age_ms=level_age_ms)}
        assert not delivers(world), "it was pulled when the peer did not know yet"
    seen.peers = {"virginia": HeardPeer(seen_own=12, level_age_ms=None)}
    assert not delivers(world)
    seen.peers = {"virginia": HeardPeer(seen_own=12, level_age_ms=0)}
    assert delivers(world)
    assert returning(world) == [{"on": True}, {"on": False}]


def test_who_returns_does_not_wait_for_a_peer_that_does_not_run_but_for_its_log(seen: type[Seen]) -> None:
    """R130: its beacon is silent for three periods, and there is no time limit."""
    seen.told = Heard(own_number=9, own_gaps_ms=(3_600_000,))
    seen.peers = {"virginia": HeardPeer(is_readable=False, level_age_ms=None)}
    world = World(PULLS)
    world.loop.step([])
    for _ in range(100):
        world.clock.advance(9_000)
        world.loop.step([])
    assert not delivers(world)
    seen.peers = {"virginia": HeardPeer()}
    assert delivers(world)


def test_who_returns_does_not_wait_to_be_seen_by_a_peer_that_pulls_nothing_from_here(
    seen: type[Seen], monkeypatch: pytest.MonkeyPatch
) -> None:
    """R130: that one runs, and could not claim; an instance that joins is known to others later."""
    seen.told = Heard(own_number=9, own_gaps_ms=(3_600_000,))
    pulled_here: dict[str, int | None] = {"virginia": 3}
    monkeypatch.setattr(NoPeers, "pulled_here", lambda _: pulled_here)
    world = World(PULLS)
    for _ in range(2):
        assert not delivers(world)
    pulled_here = {"virginia": None}
    assert delivers(world)


def test_what_was_heard_does_not_count_where_the_own_beacon_was_silent_meanwhile(seen: type[Seen]) -> None:
    """R130: two of its periods are enough."""
    seen.told = Heard(own_number=9, own_gaps_ms=(3_600_000,))
    seen.peers = {"virginia": HeardPeer(seen_own=9, level_age_ms=5_000)}
    world = World(PULLS)
    assert not delivers(world)
    seen.told = Heard(own_number=9, own_age_ms=10_000, own_gaps_ms=(3_600_000,))
    seen.peers = {"virginia": HeardPeer(seen_own=9)}
    assert not delivers(world)
    seen.told = Heard(own_number=10, own_gaps_ms=(3_600_000, 10_000))
    assert not delivers(world), "it is to know of a newer one"
    seen.peers = {"virginia": HeardPeer(seen_own=10)}
    world.clock.advance(1_000)
    world.loop.step([])
    assert delivers(world)


def test_who_is_new_waits_for_those_alone_that_can_be_read(seen: type[Seen]) -> None:
    """R130: nobody can have claimed from who was not there."""
    seen.told = Heard(own_number=9, own_gaps_ms=(None,))
    seen.peers = {"virginia": HeardPeer(level_age_ms=None)}
    world = World(PULLS)
    assert not delivers(world)
    assert returning(world) == [{"on": True, "joins": True}]
    seen.peers = {"virginia": HeardPeer(level_age_ms=None, is_readable=False)}
    assert delivers(world)


def test_a_queue_that_is_put_back_waits_for_what_others_know_and_no_other_does(seen: type[Seen]) -> None:
    """R130: what it acknowledged before it was taken out stands in their logs."""
    queues = {name: {"underlying_topic": "ORDERS", "lease_period": "10s"} for name in ("WORK", "OTHER")}
    shared = {"virginia": PULLS["peers"]["virginia"] | {"queues": ["WORK", "OTHER"]}}
    both = PULLS | {"queues": queues, "peers": shared}
    world = World(both)
    world.publish(1)
    assert entered(world) == 1
    peers = {"virginia": PULLS["peers"]["virginia"] | {"queues": ["OTHER"]}}
    other = both | {"queues": {"OTHER": queues["OTHER"]}, "peers": peers}
    for definitions in (other, both):
        assert world.ask(commands.Apply, definitions=definitions) == replies.Done()
        seen.peers = {"virginia": HeardPeer(level_age_ms=None)}
    assert returning(world) == [{"on": True, "joins": True, "queues": ["WORK"]}]
    assert not delivers(world)
    state = world.loop._engine.state
    assert [len(alarms(state, state.queues[name])) for name in ("WORK", "OTHER")] == [1, 0]
    assert Planner(world, queue="OTHER").next().messages > 0
    seen.peers = {"virginia": HeardPeer(level_age_ms=0)}
    assert delivers(world)
    assert returning(world)[1:] == [{"on": False}]


def test_two_queues_that_begin_one_after_the_other_wait_both(seen: type[Seen]) -> None:
    """R130; an instance that was away lets all of them wait."""
    seen.peers = {"virginia": HeardPeer(level_age_ms=None)}
    world = World(PULLS)
    names = ["WORK", "A", "B"]
    for count in (2, 3):
        queues = {name: {"underlying_topic": "ORDERS"} for name in names[:count]}
        peers = {"virginia": PULLS["peers"]["virginia"] | {"queues": names[:count]}}
        assert world.ask(commands.Apply, definitions=PULLS | {"queues": queues, "peers": peers}) == replies.Done()
    seen.told = Heard(own_number=9, own_gaps_ms=(3_600_000,))
    world.clock.advance(1_000)
    world.loop.step([])
    assert [each.get("queues") for each in returning(world)] == [["A"], ["A", "B"], None]


def test_somebody_may_let_it_return_without_a_peer(seen: type[Seen]) -> None:
    """R130: that stands in the log, and so it does after a restart."""
    seen.told = Heard(own_number=9, own_gaps_ms=(3_600_000,))
    seen.peers = {name: HeardPeer(level_age_ms=None) for name in ("virginia", "tokyo")}
    world = World(PULLS | {"peers": PULLS["peers"] | {"tokyo": PULLS["peers"]["virginia"] | {"journal": "/tokyo"}}})
    assert not delivers(world)
    assert world.ask(commands.ReturnWithout, peer="virginia") == replies.Done()
    assert world.ask(commands.ReturnWithout, peer="virginia") == replies.Done()
    assert not delivers(world)
    world.loop, world.journal = world.reign()
    world.ask(commands.ReturnWithout, peer="tokyo")
    assert delivers(world)
    assert [each.get("excused_peers") for each in returning(world)] == [None, ["virginia"], ["tokyo", "virginia"], None]
    with pytest.raises(CallerError, match="it waits for no peer"):
        wire.raise_failed(world.ask(commands.ReturnWithout, peer="tokyo"))


def test_who_may_be_missed_grants_nothing_and_who_was_missed_returns(seen: type[Seen]) -> None:
    """R108: others claim what is owned here once its beacon was not written for long enough; the default is 30 s."""
    seen.told = Heard(own_age_ms=None)
    world = World(PULLS)
    assert not delivers(world), "its beacon is written first"
    for own_age_ms, is_seen in ((0, True), (19_999, True), (20_000, False), (5_000, True), (29_999, False), (0, True)):
        seen.told = Heard(own_number=9, own_age_ms=own_age_ms)
        assert delivers(world) is is_seen, own_age_ms
    seen.told = Heard(own_number=9, own_age_ms=30_000)
    assert not delivers(world)
    assert returning(world) == []
    seen.told = Heard(own_number=10, own_gaps_ms=(30_000,))
    assert not delivers(world), "others may have claimed what is owned here"
    assert returning(world) == [{"on": True}]
    seen.peers = {"virginia": HeardPeer(seen_own=10)}
    world.clock.advance(1_000)
    world.loop.step([])
    assert delivers(world)


def test_who_returns_takes_acknowledgements_and_lets_a_bounded_run_wait(seen: type[Seen]) -> None:
    """R130: it grants nothing; what was worked on is done, and a run until what is there is delivered is not over."""
    world = World(PULLS)
    planner = Planner(world)
    world.publish(2)
    assert entered(world) == 2
    assert planner.next(limit=1).messages == 1
    seen.told = Heard(own_number=9, own_gaps_ms=(3_600_000,))
    world.clock.advance(1_000)
    world.loop.step([])
    assert returning(world) == [{"on": True}]
    reply = planner.next()
    assert (reply.messages, reply.withheld, world.kinds()[-1]) == (0, True, "proven")
    seen.peers = {"virginia": HeardPeer(seen_own=9)}
    world.clock.advance(1_000)
    world.loop.step([])
    world.clock.advance(1)
    assert planner.next().messages == 1


def test_a_planner_that_begins_anew_takes_nothing_that_came_back_to_who_returns(seen: type[Seen]) -> None:
    """R130: others may have claimed it meanwhile."""
    world = World(PULLS)
    planner = Planner(world)
    world.publish(2)
    assert entered(world) == 2
    assert planner.next().messages == 2
    world.clock.advance(world.loop._engine.state.ledger("WORK").definition.lease_period_ms)
    world.loop.step([])
    assert world.kinds()[-1] == "returned"
    seen.told = Heard(own_number=9, own_gaps_ms=(3_600_000,))
    world.loop.step([])
    again = Planner(world)
    rows = world.ask(commands.Rows, lease=planner.lease, **again.planner())
    assert isinstance(rows, replies.RowsOf)
    assert world.loop._engine.state.ledger("WORK").leases[planner.lease].leased == BitMap64()


def test_a_claim_is_granted_by_a_look_that_began_after_its_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """R110: what was looked at before says nothing of an owner that has come back meanwhile."""
    look_age_ms, told = 0, list[bool]()
    monkeypatch.setattr(NoPeers, "heard", lambda _: Heard(look_age_ms=look_age_ms, peers={"virginia": HeardPeer()}))
    monkeypatch.setattr(NoPeers, "look_soon", lambda _: told.append(True))
    world = World(PULLS)
    world.publish(1)
    assert entered(world) == 1
    planner = Planner(world)
    news = News(
        queue="WORK", message_type="json", rows={world.journal_id: BitMap64([0])}, reason=Kind.TRANSFERRED,
        replicated=Replicated(peer="virginia", term=1, owner="virginia"),
    )  # fmt: skip
    pulled = Pulled(peer="virginia", journal="uuid", record=7, digest="", news=[news])
    world.loop.step([Call(ApplyPulled(pulled=pulled, definitions=world.loop._engine.state.definitions), lambda: False)])
    world.ask(commands.ProxiedTransfer, queue="WORK", on=True)
    for _ in range(32):
        world.clock.advance(1_000)
        world.loop.step([])
    waiting = planner.next_call(wait_ms=60_000)
    world.loop.step([waiting])
    assert detail_of(world.records()[-1])["awaits_look"]
    world.loop.step([])
    assert (world.kinds()[-1], told) == ("transferred", [True]), "its beacon is to be looked at now"
    world.clock.advance(1)
    look_age_ms = 1
    world.loop.step([])
    assert world.kinds()[-1] == "transferred"
    look_age_ms = 0
    world.loop.step([])
    assert world.kinds()[-2:] == ["claim_confirmed", "granted"]
    assert isinstance(waiting.reply, replies.Granted)
    assert waiting.reply.messages == 1


def test_who_names_no_peer_any_more_delivers_what_it_shared_only_while_others_see_that_it_lives(seen: type[Seen]) -> None:
    """R130: they may claim it as soon as its beacon is silent."""
    world = World(PULLS)
    world.publish(1)
    assert entered(world) == 1
    assert world.ask(commands.Apply, definitions={**PULLS, "peers": {}}) == replies.Done()
    seen.peers = {}
    seen.told = Heard(own_number=9, own_age_ms=20_000)
    assert not delivers(world)
    seen.told = Heard(own_number=9, own_age_ms=0)
    assert delivers(world)
