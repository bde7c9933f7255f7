"""A message file that is gone stops only the queues whose messages cannot be told without it (DESIGN 10)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from pyroaring import BitMap64

from spark_queue.core import commands, folds
from spark_queue.core.bitmaps.ranges import to_bitmap
from spark_queue.core.engine import Engine
from spark_queue.core.message_files.segment import EntryTraits, Segment, TraitRequest, TraitSource
from spark_queue.core.records import Kind
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.lifecycle import State
from spark_queue.errors import JournalError
from tests.deciding import claim, decide
from tests.records import record_of
from tests.scenario.traits import MemoryTraits, PublishedMessage
from tests.scenario.world import World

DEFINITIONS = {
    "message_types": {"json": {"topics": ["A", "B"]}},
    "queues": {"ONLY_A": {"underlying_topic": "A"}, "ONLY_B": {"underlying_topic": "B"}},
}


class Files(TraitSource):
    """Traits by topic; where `gone`, queue ONLY_A's cannot be told."""

    def __init__(self, code: str | None) -> None:
        self.code = code

    def traits(self, segment: Segment, requests: Iterable[TraitRequest]) -> Mapping[str, EntryTraits]:
        requests = tuple(requests)
        if self.code is not None and any(each.queue.name == "ONLY_A" for each in requests):
            raise JournalError(self.code, path="p", file=segment.path, reason="it is gone.", doing="reading", next_step="")
        rows = to_bitmap([(segment.first, segment.until)])
        return {each.queue.name: EntryTraits(rows=rows) for each in requests}

    def matches(
        self, segments: Iterable[Segment], expression: str, rows: BitMap64, *, columns: str, letters: object = None
    ) -> BitMap64:
        if self.code is not None:
            raise JournalError(self.code, path="p", file="f", reason="it is gone.", doing="reading", next_step="")
        return BitMap64(rows)


def recovered(code: str | None, *, then: Mapping[str, Any] = DEFINITIONS) -> JournalState:
    """Fold a log in which a segment entered, and other definitions came, with the file as `code` says."""
    engine = Engine(JournalState(Files(None)))
    folds.fold(engine.state, record_of(kind=Kind.JOURNAL_CREATED, record=0, detail={"journal": "J", "format": 1}))
    engine.decide(commands.Apply(definitions=DEFINITIONS), now_ms=1)
    segment = Segment(
        message_type="json", first=0, until=4, path="f", version=1, token="t", entered_at_ms=1, published_at_ms=1,
        topic_min="A", topic_max="B", expires_null_count=4,
    )  # fmt: skip
    engine.enter([segment], now_ms=1)
    engine.decide(commands.Apply(definitions={**then, "journal": {"coordinator_idle": "9s"}}), now_ms=2)
    state = JournalState(Files(code))
    folds.fold_all(
        state, [record_of(kind=Kind.JOURNAL_CREATED, record=0, detail={"journal": "J", "format": 1}), *engine.drain_records()]
    )
    return state


@pytest.mark.parametrize("code", ["MESSAGE_FILE_MISSING", "MESSAGE_FILE_CORRUPT"])
def test_recovery_sets_aside_only_the_queue_that_needs_a_file_which_is_not_whole(code: str) -> None:
    state = recovered(code)
    assert state.ledger("ONLY_B").depth == 4
    with pytest.raises(JournalError, match=rf"\[{code}\] Message file 'f'"):
        state.ledger("ONLY_A")


def test_definitions_cannot_change_while_a_queue_is_set_aside() -> None:
    engine = Engine(recovered("MESSAGE_FILE_MISSING"))
    with pytest.raises(JournalError, match="MESSAGE_FILE_MISSING"):
        engine.decide(commands.Apply(definitions=DEFINITIONS), now_ms=3)
    assert engine.drain_records() == []


def test_a_queue_that_was_dropped_keeps_no_definitions_from_changing() -> None:
    """And is put back only when the file is there, since nobody knows the numbers of its leases."""
    without = DEFINITIONS | {"queues": {"ONLY_B": {"underlying_topic": "B"}}}
    engine = Engine(recovered("MESSAGE_FILE_MISSING", then=without))
    assert (list(engine.state.troubles), engine.state.set_aside_queues()) == (["ONLY_A"], {})
    decide(engine, commands.Apply(definitions=without | {"journal": {"coordinator_idle": "7s"}}), now_ms=3)
    with pytest.raises(JournalError, match="MESSAGE_FILE_MISSING"):
        engine.decide(commands.Apply(definitions=DEFINITIONS), now_ms=3)


def test_recovery_fails_where_the_store_does() -> None:
    with pytest.raises(JournalError, match="STORE_FAILED"):
        recovered("STORE_FAILED")


def test_a_filter_that_cannot_be_evaluated_is_refused_and_its_queue_goes_on() -> None:
    engine = Engine(recovered("MESSAGE_FILE_MISSING"))
    claim(engine, epoch=1, host="h", address="a", pid=1, now_ms=3)
    engine.drain_records()
    drawn = decide(engine, commands.DrawIncarnation(queue="ONLY_B", subscription="s"), now_ms=4)
    planner: dict[str, Any] = {"queue": "ONLY_B", "subscription": "s", "incarnation": drawn.incarnation, "ack_mode": "auto"}
    with pytest.raises(JournalError, match="MESSAGE_FILE_MISSING"):
        engine.decide(commands.Attach(**planner, call=1, max_backlog=9, filter="price > 3"), now_ms=4)
    assert engine.drain_records() == []
    assert engine.state.ledger("ONLY_B").depth == 4
    engine.decide(commands.Attach(**planner, call=2, max_backlog=9), now_ms=5)


BARRIERS = {**DEFINITIONS, "queues": {"Q": {"underlying_topic": "A", "barrier": "kind = close"}}}


def test_a_barrier_that_comes_while_a_message_file_is_away_is_one_when_it_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """R75: and so is one that stood before the queue was defined, over a file that was away then."""
    world, read, away = World(), MemoryTraits.traits, set[str]()

    def traits(self: MemoryTraits, segment: Segment, requests: Iterable[TraitRequest]) -> Mapping[str, EntryTraits]:
        if segment.path in away:
            raise JournalError(
                "MESSAGE_FILE_MISSING", path="p", file=segment.path, reason="it is gone.", doing="reading", next_step=""
            )
        return read(self, segment, requests)

    def publish(*kinds: str) -> None:
        world.publish("json", [PublishedMessage(topic="A", attributes={"kind": kind}) for kind in kinds])
        world.commit()

    monkeypatch.setattr(MemoryTraits, "traits", traits)
    world.decide(commands.Apply(definitions={**BARRIERS, "queues": {}}))
    publish("other", "close")
    away.add(world.state.message_types["json"].segments[0].path)
    world.decide(commands.Apply(definitions=BARRIERS))
    assert world.state.troubles["Q"].code == "MESSAGE_FILE_MISSING"
    publish("close", "other")
    world.recover()
    publish("other", "close")
    assert set(world.state.troubles) == {"Q"}
    away.clear()
    world.begin_again()
    world.commit()
    rows, told = world.state.queues["Q"].rows, [each for each in world.committed if each.kind == Kind.BARRIERS_DECIDED]
    assert (rows[State.AVAILABLE], rows[State.HELD]) == (BitMap64([0, 3, 4]), BitMap64([1, 2, 5]))
    assert [to_bitmap(each.ranges) for each in told] == [rows[State.HELD], rows[State.AVAILABLE]]
    world.recover()
    assert [each for each in world.committed if each.kind == Kind.BARRIERS_DECIDED] == told, "it is said once"
    assert world.state.queues["Q"].rows == rows
