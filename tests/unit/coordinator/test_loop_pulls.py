"""What the loop takes over of what was pulled from a peer, and what it refuses (DESIGN 17.3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from spark_queue.coordinator.inbox import Call
from spark_queue.core import commands, engine, records, replies
from spark_queue.core.deciding.instances.replicating import Pulled
from spark_queue.core.definitions.definition import Definitions, Disagreement
from spark_queue.core.records import Emit
from spark_queue.core.state.findings import QueueFinding, alarms
from spark_queue.core.state.sparkq_command import SparkqCommand
from spark_queue.core.state.status import queue_status
from spark_queue.errors import CoordinatorError, JournalError
from spark_queue.ports import PulledFile, PulledFiles
from spark_queue.protocol import wire
from spark_queue.replication.exchange import HEARS_MS, ApplyPulled, PullProgressQuery, PullReport, PullState
from tests.no_peers import NoPeers
from tests.records import detail_of
from tests.scenario.traits import PublishedMessage
from tests.source_tree import ROOT
from tests.unit.coordinator.loop_world import DEFINITIONS, Planner, World

PULLS: dict[str, Any] = DEFINITIONS | {
    "journal": {"instance": "frankfurt"},
    "peers": {"virginia": {"journal": "/virginia", "topics": ["ORDERS"], "queues": ["WORK"]}},
}


def pull(
    world: World, definitions: Definitions, number: int, told: list[Disagreement] | None = None, *, is_over: bool = False
) -> Call:
    """Hand over that the peer is pulled up to a record."""
    pulled = Pulled(peer="virginia", journal="uuid", record=number, digest=f"of {number}", disagreements=told)
    call = Call(ApplyPulled(pulled=pulled, definitions=definitions, is_over=lambda: is_over), lambda: False)
    world.loop.step([call])
    return call


def watermark(world: World) -> int | None:
    """Return how far the peer is pulled."""
    call = Call(PullProgressQuery("virginia"), lambda: False)
    world.loop.step([call])
    assert isinstance(call.pulled, PullState)
    return None if call.pulled.watermark is None else call.pulled.watermark.record


def test_what_was_read_by_earlier_definitions_is_not_taken() -> None:
    world = World(PULLS)
    before = world.loop._engine.state.definitions
    assert pull(world, before, 7).pulled is True
    more = {"virginia": PULLS["peers"]["virginia"] | {"topics": ["ORDERS", "OTHERS"]}}
    world.ask(commands.Apply, definitions=PULLS | {"peers": more})
    assert watermark(world) == -1, "more is pulled than before, so its log is read again"
    assert pull(world, before, 8).pulled is None
    assert watermark(world) == -1
    assert pull(world, world.loop._engine.state.definitions, 3).pulled is True
    assert watermark(world) == 3
    assert pull(world, world.loop._engine.state.definitions, 9, is_over=True).pulled is None
    assert watermark(world) == 3, "its puller was told to end while it was in line"


def test_a_coordinator_tells_how_its_peers_are_pulled(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(PULLS)
    peers, report = world.loop._peers, PullReport(trouble=JournalError("PEER_AWAY", peer="virginia", path="/virginia"))
    path = PulledFile(path="a", size_bytes=900, stats={}, origins=((0, 5, "u", 0), (5, 2, "v", 0)))
    pulled = Pulled(peer="virginia", journal="uuid", record=7, digest="")
    files = [PulledFiles(message_type="json", files=(path,), instances={})]
    report.count(ApplyPulled(pulled=pulled, definitions=world.loop._engine.state.definitions, files=files))
    monkeypatch.setattr(peers._pullers, "reports", lambda: {"virginia": report})
    world.loop.step([])
    for passed_ms, silent_ms in ((1_000, 1_000), (4_000, 5_000)):
        world.clock.advance(passed_ms)
        (told,) = world.ask(wire.AskPeers).peers.values()
        assert (told.silent_ms, told.rows_copied, told.bytes_copied) == (silent_ms, 7, 900), "nothing was heard since it began"
        assert told.trouble.startswith("[PEER_AWAY]")


def test_a_coordinator_with_peers_does_not_end_idle() -> None:
    """Others count on its answers, and who lost its caller must not stop pulling."""
    for definitions, ends in ((PULLS, False), (DEFINITIONS, True)):
        world = World(definitions)
        world.clock.advance(3_600_000)
        world.loop.step([])
        assert world.loop.is_over() == ends


@pytest.mark.parametrize("remembers", ["what it pulled", "what it said", "nothing"])
def test_who_shares_messages_shows_that_it_lives_also_where_it_names_no_peer(
    monkeypatch: pytest.MonkeyPatch, remembers: str
) -> None:
    """R130: what it owns would be claimed, and it would be forgotten; also where its queue is no more."""
    told: list[bool] = []
    monkeypatch.setattr(NoPeers, "keep", lambda *_, shows_life: told.append(shows_life))
    world = World(PULLS)
    if remembers == "what it pulled":
        pull(world, world.loop._engine.state.definitions, 7)
    elif remembers == "what it said":
        world.publish(1)
        assert entered(world) == 1
    world.clock.advance(1_000)
    world.loop.step([])
    assert told.pop()
    assert world.ask(commands.Apply, definitions=PULLS | {"queues": {}, "peers": {}}) == replies.Done()
    world.clock.advance(3_600_000)
    world.loop.step([])
    shares = remembers != "nothing"
    assert (told.pop(), world.loop.is_over()) == (shares, not shares)


def test_messages_that_enter_uncompared_are_told_as_an_alarm_until_they_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """A journal that was put back, and cannot be compared with the peer that knows, does not know that it was."""
    report, are_compared = PullReport(is_compared=False), False
    monkeypatch.setattr(NoPeers, "reports", lambda _: {"virginia": report})
    monkeypatch.setattr(NoPeers, "are_compared", lambda _: are_compared)
    world = World(PULLS)

    def alarm_after(milliseconds: int) -> str:
        world.clock.advance(milliseconds)
        world.loop.step([])
        return str(queue_status(world.loop._engine.state, "WORK", now_ms=world.loop._clock.now_ms()).alarm)

    assert alarm_after(1_000) == "None", "nothing enters yet"
    report.trouble = JournalError("PEER_AWAY", peer="virginia", path="there")
    assert alarm_after(1_000) == "None"
    are_compared = True
    assert "JOURNAL_UNCOMPARED" in alarm_after(1_000), "it cannot be read, so that what is published enters"
    report.trouble = None
    report.is_compared = True
    assert alarm_after(1_000) == "None"
    report.is_compared = False
    report.trouble = JournalError("PEER_AWAY", peer="virginia", path="there")
    assert alarm_after(1_000) == "None", "it was compared in this reign"
    world.loop, world.journal = world.reign()
    report.trouble, are_compared = None, False
    assert "JOURNAL_UNCOMPARED" in alarm_after(HEARS_MS), "its store hangs"


def test_the_guide_says_how_long_a_coordinator_waits_for_peers_that_it_cannot_read() -> None:
    text = (ROOT / "docs/operations/instances.md").read_text(encoding="utf-8")
    assert f"After {HEARS_MS // 1_000} s at the latest its coordinator goes on without a peer that it cannot read" in text


def test_a_peer_is_no_copy_of_another_one() -> None:
    world = World(PULLS | {"peers": PULLS["peers"] | {"tokyo": PULLS["peers"]["virginia"] | {"journal": "/tokyo"}}})
    definitions = world.loop._engine.state.definitions
    pull(world, definitions, 7)
    copy = Call(
        ApplyPulled(pulled=Pulled(peer="tokyo", journal="uuid", record=7, digest=""), definitions=definitions), lambda: False
    )
    world.loop.step([copy])
    assert copy.reply is not None
    with pytest.raises(JournalError, match=r"PEER_MISNAMED.*'tokyo' is the journal of peer 'virginia'"):
        wire.raise_failed(copy.reply)


def test_what_breaks_a_rule_is_an_alarm_by_peer_and_rule() -> None:
    """R113."""
    world = World(PULLS)
    state = world.loop._engine.state
    told = [Disagreement(rule, "WORK", f"{rule} is broken.") for rule in ("R113.1", "R113.3", "R113.3")]
    pull(world, state.definitions, 7, told)
    since_ms = world.clock.wall_ms()
    world.clock.advance(5_000)
    pull(world, state.definitions, 8, told[1:])
    pull(world, state.definitions, 9)
    assert alarms(state, state.queues["WORK"]) == {
        "R113.3 and peer 'virginia'": QueueFinding(
            text="its definition and that of peer 'virginia' break R113.3: R113.3 is broken. R113.3 is broken",
            since_ms=since_ms,
            command=SparkqCommand("peers check"),
        )
    }
    (shown,) = (queue_status(state, "WORK", now_ms=since_ms).alarm,)
    assert "break R113.3" in str(shown)
    pull(world, state.definitions, 10, [])
    assert alarms(state, state.queues["WORK"]) == {}


@pytest.mark.parametrize(("rule", "read_again"), [("R113.1", False), ("R113.2", True), ("R113.3", True)])
def test_new_definitions_let_a_peer_be_read_again_whose_news_waited(rule: str, *, read_again: bool) -> None:
    world = World(PULLS)
    pull(world, world.loop._engine.state.definitions, 7, [Disagreement(rule, "WORK", "it is broken.")])
    world.ask(commands.Apply, definitions=PULLS | {"replication": {"keep": "1d"}})
    assert watermark(world) == (-1 if read_again else 7)
    world.ask(commands.Apply, definitions=PULLS | {"peers": {}})
    assert world.loop._engine.state.disagreements == {}


def test_a_peer_is_pulled_on_while_a_queue_is_set_aside_and_read_again_for_it() -> None:
    """R122: the record says what the queue has missed, and the reign that has it again begins that peer anew."""
    world = World(PULLS)
    world.loop._engine.set_aside("WORK", "a bug", now_ms=world.clock.wall_ms())
    assert pull(world, world.loop._engine.state.definitions, 7).pulled is True
    assert watermark(world) == 7
    world.ask(commands.Revive, queue="WORK")
    assert watermark(world) == -1


def refusing(world: World, monkeypatch: pytest.MonkeyPatch, *, after: int) -> Call:
    """Hand over what raises in the core after so many records of it."""

    def raises(_state: object, _pulled: object, emit: Emit, _work_on: object) -> None:
        for _ in range(after):
            emit(records.Pulled(peer="virginia", journal="uuid", number=1, digest=""))
        raise KeyError("a bug")

    monkeypatch.setattr(engine, "apply_pulled", raises)
    return pull(world, world.loop._engine.state.definitions, 7)


def test_a_bug_in_taking_over_is_the_trouble_of_that_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(PULLS)
    call = refusing(world, monkeypatch, after=0)
    assert call.reply is not None
    with pytest.raises(JournalError, match=r"PEER_REFUSED.*virginia.*a bug"):
        wire.raise_failed(call.reply)
    monkeypatch.undo()
    assert watermark(world) is None
    assert pull(world, world.loop._engine.state.definitions, 7).pulled is True


def test_of_a_bug_half_way_nothing_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(PULLS)
    call = refusing(world, monkeypatch, after=1)
    assert call.reply is not None
    with pytest.raises(CoordinatorError, match=r"INTERNAL.*a bug"):
        wire.raise_failed(call.reply)
    monkeypatch.undo()
    assert watermark(world) is None
    assert pull(world, world.loop._engine.state.definitions, 7).pulled is True


def test_other_columns_let_a_peer_be_read_again() -> None:
    order = {"order": {"columns": "id BIGINT", "topics": ["T"]}}
    world = World(PULLS | {"message_types": PULLS["message_types"] | order})
    assert pull(world, world.loop._engine.state.definitions, 7).pulled is True
    wider = {"order": {"columns": "id BIGINT, item STRING", "topics": ["T"]}}
    world.ask(commands.Apply, definitions=PULLS | {"message_types": PULLS["message_types"] | wider})
    assert watermark(world) == -1


def entered(world: World) -> int:
    """Return how many messages have entered once somebody says that there are some."""
    world.clock.advance(1_000)
    world.ask(wire.Nudge, message_type="json")
    return world.loop._engine.state.message_types["json"].entered_until


def test_messages_enter_once_the_peers_were_searched_for_what_is_lost_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """What enters a restored journal before that would have the bookmarks of lost messages, which its peers hold."""
    are_compared = False
    monkeypatch.setattr(NoPeers, "are_compared", lambda _: are_compared)
    world = World(PULLS)
    world.publish(2)
    assert entered(world) == 0
    are_compared = True
    assert entered(world) == 2
    alone = World(DEFINITIONS)
    alone.publish(2)
    are_compared = False
    assert entered(alone) == 2, "who has no peers waits for none"


def test_nothing_is_delivered_before_the_peers_were_searched_for_what_is_lost_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """R130: a backup of a moment ago has a beacon of a moment ago, and lost what became of its messages."""
    world = World(PULLS)
    world.publish(1)
    assert entered(world) == 1
    are_compared = False
    monkeypatch.setattr(NoPeers, "are_compared", lambda _: are_compared)
    world.loop, world.journal = world.reign()
    planner = Planner(world)
    assert planner.next().messages == 0
    are_compared = True
    assert planner.next().messages == 1


def test_who_fixes_a_place_in_the_log_asks_again_until_messages_may_enter(monkeypatch: pytest.MonkeyPatch) -> None:
    """A query that takes what is there, and ends, would else end without what was published before it."""
    are_compared, told = False, list[JournalError]()
    monkeypatch.setattr(NoPeers, "are_compared", lambda _: are_compared)
    monkeypatch.setattr(NoPeers, "restored", lambda _: told[0] if told else None)
    world = World(PULLS)
    world.publish(2)
    asked: dict[str, Any] = {"queue": "WORK", "subscription": "s"}
    asked["incarnation"] = world.ask(commands.DrawIncarnation, **asked).incarnation
    places: list[Callable[[], Any]] = [
        lambda: world.ask(commands.Attach, ack_mode="auto", max_backlog=100, call=1, available_now=True, **asked),
        lambda: world.ask(commands.Apply, definitions=PULLS),
    ]
    for fix in places:
        with pytest.raises(CoordinatorError, match="COORDINATOR_RECOVERING"):
            wire.raise_failed(fix())
    are_compared = True
    assert places[0]() == replies.Done()
    assert detail_of(world.records()[-1])["until"] == 2
    told.append(JournalError("JOURNAL_RESTORED", peer="virginia", record="record 70", path="here", since=2))
    world.publish(2)
    assert places[1]() == replies.Done(), "who takes a peer out of the definitions does not wait for it"
    assert entered(world) == 2


def test_messages_enter_also_where_a_peer_answers_nothing_for_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NoPeers, "are_compared", lambda _: False)
    world = World(PULLS)
    world.publish(2)
    world.clock.advance(HEARS_MS - 1_001)
    assert entered(world) == 0
    assert entered(world) == 2


def test_what_is_shared_with_nobody_goes_on_in_a_journal_that_was_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    told = JournalError("JOURNAL_RESTORED", peer="virginia", record="record 70", path="here", since=2)
    monkeypatch.setattr(NoPeers, "restored", lambda _: told)
    kinds = {name: {"columns": "n INT", "topics": [topic]} for name, topic in (("own", "OWN"), ("any", "^A.*"))}
    own = {"message_types": PULLS["message_types"] | kinds}
    world = World(PULLS | own | {"queues": {**PULLS["queues"], "MINE": {"underlying_topic": "OWN"}}})
    for message_type, topic in (("own", "OWN"), ("any", "A"), ("json", "ORDERS")):
        world.storage.publish(message_type, [PublishedMessage(topic=topic)])
    assert entered(world) == 0
    known = world.loop._engine.state.message_types
    assert {name: known[name].entered_until for name in ("own", "any", "json")} == {"own": 1, "any": 0, "json": 0}
    assert Planner(world, queue="MINE").next().messages == 1


def test_what_keeps_a_peer_from_being_pulled_is_an_alarm_of_its_queues_for_whoever_reads_the_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What may be over soon is none before it has lasted; the default is 30 s."""
    report = PullReport()
    monkeypatch.setattr(NoPeers, "reports", lambda _: {"virginia": report})
    world = World(PULLS)

    def alarm_after(seconds: int) -> str:
        world.clock.advance(1_000 * seconds)
        world.loop.step([])
        return str(queue_status(world.loop._engine.state, "WORK", now_ms=world.loop._clock.now_ms()).alarm)

    assert alarm_after(1) == "None"
    restored = {"peer": "virginia", "record": "record 70", "path": "here", "since": 2}
    report.trouble = JournalError("JOURNAL_RESTORED", **restored)
    assert "[JOURNAL_RESTORED] Peer 'virginia' has pulled record 70" in alarm_after(1)
    report.trouble = JournalError("JOURNAL_RESTORED", **restored | {"record": "record 71"})
    alarm_after(1)
    assert world.kinds().count("peer_changed") == 1, "it is the same, in other words"
    report.trouble = JournalError("PEER_AWAY", peer="virginia", path="there")
    assert "JOURNAL_RESTORED" in alarm_after(1)
    assert "JOURNAL_RESTORED" in alarm_after(29)
    assert "PEER_AWAY" in alarm_after(1)
    report.trouble = OSError("the disk")
    assert "PEER_AWAY" in alarm_after(1)
    assert "[INTERNAL] Peer 'virginia' is not pulled: OSError('the disk')" in alarm_after(30)
    report.trouble = None
    assert alarm_after(1) == "None"
    report.trouble = JournalError("JOURNAL_RESTORED", **restored)
    assert alarm_after(1) != "None"
    world.ask(commands.Apply, definitions={**PULLS, "peers": {}})
    assert alarm_after(1) == "None"


def test_nothing_is_taken_over_while_nobody_has_said_that_the_journal_was_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was published since stands before what is pulled, and would enter with it; nor is it forgotten by a new puller."""
    told: list[JournalError] = [JournalError("JOURNAL_RESTORED", peer="virginia", record="record 70", path="here", since=2)]
    are_compared = True
    monkeypatch.setattr(NoPeers, "restored", lambda _: told[0] if told else None)
    monkeypatch.setattr(NoPeers, "are_compared", lambda _: are_compared)
    world = World(PULLS)
    call = pull(world, world.loop._engine.state.definitions, 7)
    assert call.reply is not None
    with pytest.raises(JournalError, match=r"JOURNAL_RESTORED.*sparkq mark-restored"):
        wire.raise_failed(call.reply)
    assert watermark(world) is None
    told.clear()
    are_compared = False
    world.publish(2)
    assert entered(world) == 0
    assert world.loop._engine.liveness.restored is not None, "who begins anew to pull has seen nothing yet"
    are_compared = True
    assert entered(world) == 2
    assert world.loop._engine.liveness.restored is None


def test_a_journal_that_was_restored_grants_nothing_and_takes_nothing_in_until_somebody_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[JournalError] = [JournalError("JOURNAL_RESTORED", peer="virginia", record="record 70", path="here", since=2)]
    begun: list[bool] = []
    monkeypatch.setattr(NoPeers, "restored", lambda _: told[0] if told else None)
    monkeypatch.setattr(NoPeers, "begin_anew", lambda _: begun.append(True))
    is_searched = True
    monkeypatch.setattr(NoPeers, "are_compared", lambda _: is_searched)
    world = World(PULLS)
    planner = {"queue": "WORK", "subscription": "s", "incarnation": (1, 1)}
    is_searched = False
    for early in (world.ask(commands.Restored, origin="another-origin"), world.ask(commands.DrainTo, peer="virginia")):
        with pytest.raises(CoordinatorError, match="COORDINATOR_RECOVERING"):
            wire.raise_failed(early)
    is_searched = True
    late = world.ask(commands.Next, **planner, call=2, finished=0, limit=1), world.ask(commands.DrainTo, peer="virginia")
    for refused in late:
        with pytest.raises(JournalError, match=r"JOURNAL_RESTORED.*sparkq mark-restored"):
            wire.raise_failed(refused)
    world.publish(2)
    world.clock.advance(1_000)
    world.loop.step([])
    assert world.loop._engine.state.message_types["json"].entered_until == 0
    assert world.ask(commands.Restored, origin="another-origin") == replies.Done()
    told.clear()
    assert begun == [True]
    for _ in range(2):
        # They are heard once they have seen that it is back.
        world.clock.advance(1_000)
        world.loop.step([])
    assert Planner(world).next().messages == 2
