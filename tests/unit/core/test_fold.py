from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from spark_queue.core import folds
from spark_queue.core.bitmaps.ranges import to_bitmap
from spark_queue.core.message_files.relocation import foreign_record
from spark_queue.core.message_files.segment import Segment, from_record, to_record
from spark_queue.core.records import Foreign, Kind, Record
from spark_queue.core.state import done_requests
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.lifecycle import State
from spark_queue.errors import ConfigError, JournalError
from tests.records import record_of
from tests.scenario import run_scenario
from tests.scenario.traits import MemoryTraits, PublishedMessage

SEGMENT = Segment(
    message_type="json",
    first=7,
    until=10,
    path="a.parquet",
    version=4,
    token="t",
    entered_at_ms=1_000,
    published_at_ms=1_000,
    topic_min="A",
    topic_max="B",
    expires_null_count=1,
    expires_min_ms=5_000,
    expires_max_ms=6_000,
)


@pytest.mark.parametrize(
    "segment", [SEGMENT, replace(SEGMENT, expires_null_count=3, expires_min_ms=None, expires_max_ms=None)], ids=["expires", "plain"]
)
def test_a_segment_survives_its_record(segment: Segment) -> None:
    assert from_record(replace(to_record(segment), at_ms=1_000)) == segment


def applied(queues: dict[str, Any], resets: dict[str, int], record: int = 0) -> Record:
    definitions = {"message_types": {"json": {"topics": ["T"]}}, "queues": queues}
    return record_of(kind=Kind.DEFINITIONS_APPLIED, record=record, detail={"definitions": definitions, "resets": resets})


def test_fold_skips_an_unknown_kind_unless_it_is_marked_critical() -> None:
    state = JournalState(MemoryTraits())
    folds.fold(state, record_of(kind="teleported", record=0, queue="Q", detail={}))
    assert state.next_record == 1
    with pytest.raises(JournalError, match=r"\[PROTOCOL_NEWER\].*records of kind 'teleported'.*Upgrade spark_queue"):
        folds.fold(state, record_of(kind="teleported", record=1, detail={"critical": True}))
    assert state.next_record == 1


def test_fold_skips_a_kind_of_a_later_version_in_a_queue() -> None:
    state = JournalState(MemoryTraits())
    folds.fold(state, applied({"T": {}}, {"T": 0}))
    folds.fold(state, record_of(kind="teleported", record=1, queue="T", reason="user", detail={}))
    assert (state.next_record, state.queues["T"].paused) == (2, False)


def test_fold_skips_records_of_a_queue_that_is_gone() -> None:
    state = JournalState(MemoryTraits())
    folds.fold(state, record_of(kind=Kind.REMOVED, record=0, queue="GONE", ranges=((0, 5),), reason="acknowledged"))
    assert (state.queues, state.next_record) == ({}, 1)


def test_a_foreign_version_is_noted_and_gets_no_bookmarks() -> None:
    scenario = run_scenario('define\n  [message_types.json]\n  topics = ["T"]\n  [queues.T]\npublish T 0..1')
    world = scenario.world
    world.engine.note([foreign_record("json", version=1, paths=["x.parquet"], row_count=5)], now_ms=world.now_ms)
    scenario.run("publish T 2\ncrash\nstate T available 0..2")
    message_type = world.state.message_types["json"]
    assert message_type.foreign == {1: Foreign(version=1, paths=("x.parquet",), rows=5)}
    assert (message_type.version, message_type.entered_until) == (2, 3)


def test_a_bookmark_is_found_in_its_segment_and_by_the_time_it_entered() -> None:
    scenario = run_scenario(
        'define\n  [message_types.json]\n  topics = ["T"]\npublish T 0..4\nwait 1s\npublish T 5\nwait 1s\npublish T 6..9'
    )
    message_type, now_ms = scenario.world.state.message_types["json"], scenario.world.now_ms
    assert [message_type.segment_of(bookmark).first for bookmark in (0, 4, 5, 6, 9)] == [0, 0, 5, 6, 6]
    assert [message_type.entered_by(now_ms - age_ms) for age_ms in (2_001, 2_000, 1_500, 1_000, 0)] == [0, 5, 5, 6, 10]


def test_traits_before_the_recovery_point_do_not_enter() -> None:
    traits = MemoryTraits()
    traits.add("a.parquet", [PublishedMessage(topic="T", expires_at_ms=9_000)] * 3)
    state = JournalState(traits)
    folds.fold(state, applied({"T": {}}, {"T": 8}))
    folds.fold(state, replace(to_record(SEGMENT), record=1))
    ledger = state.queues["T"]
    assert ledger.entered == to_bitmap([(8, 10)])
    assert ledger.expires == {9_000: to_bitmap([(8, 10)])}


@pytest.mark.parametrize("found", [False, True], ids=["found now", "not found now"])
def test_what_is_a_barrier_is_what_the_record_says(*, found: bool) -> None:
    """R75: decided once; a fold never asks the expression again for a queue that was there."""
    traits = MemoryTraits()
    traits.add("a.parquet", [PublishedMessage(topic="T", attributes={"kind": "close" if found else "line"})] * 3)
    state = JournalState(traits)
    folds.fold(state, applied({"T": {"barrier": "kind = close"}}, {"T": 0}))
    folds.fold(state, replace(to_record(replace(SEGMENT, barriers={"T": ((8, 9),)})), record=1))
    assert state.queues["T"].rows[State.HELD] == state.queues["T"].barriers == to_bitmap([(8, 9)])
    assert state.queues["T"].rows[State.AVAILABLE] == to_bitmap([(7, 8), (9, 10)])


def test_an_unknown_queue_is_answered_with_the_nearest() -> None:
    state = JournalState(MemoryTraits())
    folds.fold(state, applied({"T": {}}, {"T": 0}))
    with pytest.raises(ConfigError, match="no queue 'TT'. Did you mean 'T'"):
        state.ledger("TT")


def test_requests_are_remembered_for_as_long_as_a_caller_may_ask_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(done_requests, "_KEPT", 2)
    state = JournalState(MemoryTraits())
    told = []
    for number, (request, at_s) in enumerate([("a", 0), ("b", 10), ("b", 10), ("c", 119), ("d", 121), ("e", 240), ("f", 242)]):
        detail, at_ms = {"request": request}, at_s * 1_000
        folds.fold(state, record_of(kind=Kind.LEFT, record=number, at_ms=at_ms, queue="gone", subscription="s", detail=detail))
        told.append("".join(each for each in "abcdef" if state.has_done(each)))
    assert told == ["a", "ab", "ab", "abc", "abcd", "abcde", "def"]
