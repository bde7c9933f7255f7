"""What every journal promises (the ports), over the one in memory and the one on Delta."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import pytest

from spark_queue.core import folds
from spark_queue.core.engine import Engine
from spark_queue.core.message_files.message_type import MessageTypeState
from spark_queue.core.message_files.relocation import moved_record
from spark_queue.core.message_files.segment import EntryTraits, Segment, TraitRequest
from spark_queue.core.records import Kind, Record
from spark_queue.core.state.journal_state import JournalState
from spark_queue.errors import CoordinatorError, JournalError
from spark_queue.ports import ControlLog, JournalPort, MessageLogEntry
from spark_queue.verification.state_digest import digest
from tests import deciding
from tests.contract.journal_worlds import DeltaWorld, MemoryWorld, World
from tests.records import detail_of, record_of
from tests.scenario.traits import PublishedMessage


@pytest.fixture(params=["memory", "delta"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    return MemoryWorld() if request.param == "memory" else DeltaWorld(tmp_path / "journal")


def claim(control: ControlLog, epoch: int) -> int:
    """Load and claim a reign; returns the number of the next record."""
    record = len(control.load().records)
    control.append([record_of(kind=Kind.EPOCH_CLAIMED, record=record, epoch=epoch, detail={"host": "h"})], epoch=epoch)
    return record + 1


def paused(record: int, epoch: int) -> Record:
    return record_of(kind=Kind.LEFT, record=record, epoch=epoch, queue="ORDERS", subscription="s")


def segments(entries: Sequence[MessageLogEntry]) -> list[Segment]:
    files = [(entry, added) for entry in entries for added in entry.added]
    ends = list(accumulate(added.row_count for _, added in files))
    return [
        Segment(
            message_type="json",
            first=end - added.row_count,
            until=end,
            path=added.path,
            version=entry.version,
            token=entry.token,
            entered_at_ms=0,
            published_at_ms=0,
            topic_min=added.topic_min,
            topic_max=added.topic_max,
            expires_null_count=added.expires_null_count,
            expires_min_ms=added.expires_min_ms,
            expires_max_ms=added.expires_max_ms,
        )
        for (entry, added), end in zip(files, ends, strict=True)
    ]


def traits_of(world: World, journal: JournalPort) -> list[dict[str, EntryTraits]]:
    found = segments(list(journal.messages("json").tail(-1)))
    return [
        dict(journal.traits.traits(segment, [TraitRequest(queue=queue) for queue in world.definitions.queues.values()]))
        for segment in found
    ]


def test_load_gives_the_creation_first(world: World) -> None:
    created, applied = world.open().control.load().records
    assert (created.kind, created.record, detail_of(created)["journal"]) == (Kind.JOURNAL_CREATED, 0, world.journal_id)
    assert (applied.kind, applied.record) == (Kind.DEFINITIONS_APPLIED, 1)
    assert detail_of(applied)["definitions"] == world.definitions.stored


def test_append_gives_every_field_back_to_another_process(world: World) -> None:
    control = world.open().control
    number = claim(control, 1)
    records = [
        record_of(
            kind=Kind.GRANTED,
            record=number,
            epoch=1,
            at_ms=1_700_000_000_123,
            queue="ORDERS",
            subscription="s",
            lease=7,
            ranges=((0, 5), (9, 2**40)),
            due_at_ms=1_700_000_060_123,
            detail={"incarnation": [1, 2], "limit": 10, "request": "r"},
        ),
        record_of(
            kind=Kind.REMOVED,
            record=number + 1,
            epoch=1,
            at_ms=1_700_000_000_123,
            queue="ORDERS",
            ranges=((3, 4),),
            reason="acknowledged",
        ),
        record_of(
            kind="invented_later", record=number + 2, epoch=1, at_ms=1, message_type="json", detail={"x": {"y": [None, "ß"]}}
        ),
    ]
    control.append(records, epoch=1)
    assert list(world.open().control.load().records[number:]) == records


def test_append_by_the_older_of_two_coordinators_is_refused_after_a_newer_claim(world: World) -> None:
    """DESIGN 3.4: the newer reign wins, and the older one hears it at its next commit."""
    old, new = world.open().control, world.open().control
    number = claim(old, 1)
    claim(new, 2)
    with pytest.raises(CoordinatorError, match="COORDINATOR_DEPOSED"):
        old.append([paused(number, 1)], epoch=1)
    assert [record.kind for record in world.open().control.load().records[-2:]] == [Kind.EPOCH_CLAIMED, Kind.EPOCH_CLAIMED]


def test_check_of_the_older_of_two_coordinators_is_refused_after_a_newer_claim(world: World) -> None:
    """P7: a coordinator that was paused must not answer from memory."""
    old, new = world.open().control, world.open().control
    claim(old, 1)
    old.check(epoch=1)
    claim(new, 2)
    with pytest.raises(CoordinatorError, match="COORDINATOR_DEPOSED"):
        old.check(epoch=1)
    new.check(epoch=2)


def test_two_claims_on_one_head_have_one_winner(world: World) -> None:
    first, second = world.open().control, world.open().control
    number = len(first.load().records)
    second.load()
    first.append([record_of(kind=Kind.EPOCH_CLAIMED, record=number, epoch=1, detail={"host": "first"})], epoch=1)
    with pytest.raises(CoordinatorError, match="COORDINATOR_DEPOSED"):
        second.append([record_of(kind=Kind.EPOCH_CLAIMED, record=number, epoch=1, detail={"host": "second"})], epoch=1)
    assert [detail_of(record)["host"] for record in world.open().control.load().records[number:]] == ["first"]


def test_a_coordinator_that_refreshes_after_a_newer_claim_still_may_not_commit(world: World) -> None:
    """Delta compares no transaction versions (tried), so a refreshed handle could commit; the check stops it."""
    old, new = world.open().control, world.open().control
    claim(old, 1)
    number = claim(new, 2)
    old.load()
    with pytest.raises(CoordinatorError, match="COORDINATOR_DEPOSED"):
        old.check(epoch=1)
    new.append([paused(number, 2)], epoch=2)


def test_tail_gives_each_commit_once_in_order(world: World) -> None:
    log = world.open().messages("json")
    start = list(log.tail(-1))
    assert [entry.added for entry in start] == [()]
    for count in (3, 1, 2):
        world.publish([PublishedMessage(topic="ORDERS")] * count)
    found = list(log.tail(start[-1].version))
    assert [entry.version for entry in found] == [1, 2, 3]
    assert [[added.row_count for added in entry.added] for entry in found] == [[3], [1], [2]]
    assert len({entry.token for entry in found}) == 3
    assert list(log.tail(3)) == []
    assert [entry.version for entry in log.tail(1)] == [2, 3]


def test_recover_accepts_the_commit_that_entered_and_no_other(world: World) -> None:
    world.publish([PublishedMessage(topic="ORDERS")])
    log = world.open().messages("json")
    entry = next(log.tail(0))
    log.recover(version=-1, token="")
    log.recover(version=entry.version, token=entry.token)
    with pytest.raises(JournalError, match="JOURNAL_DAMAGED"):
        log.recover(version=entry.version, token="another")
    with pytest.raises(JournalError, match="JOURNAL_DAMAGED"):
        log.recover(version=entry.version + 1, token=entry.token)


def test_traits_follow_the_topic_of_each_row(world: World) -> None:
    """R6, R64: one publish feeds several queues; rows of several topics alternate and keep their places."""
    world.publish([PublishedMessage(topic=topic) for topic in ("ORDERS", "DIRECT_A", "ORDERS", "RETURNS", "DIRECT_B")])
    world.publish([PublishedMessage(topic="DIRECT_A")] * 2)
    journal = world.open()
    first, second = traits_of(world, journal)
    assert {name: list(traits.rows) for name, traits in first.items()} == {
        "ORDERS": [0, 2],
        "DIRECT": [1, 4],
        "ALL": [0, 1, 2, 3, 4],
    }
    assert {name: list(traits.rows) for name, traits in second.items()} == {"ORDERS": [], "DIRECT": [5, 6], "ALL": [5, 6]}


def test_traits_give_each_row_its_own_expiration(world: World) -> None:
    """R60, DESIGN 15.17."""
    world.publish(
        [
            PublishedMessage(topic="ORDERS", expires_at_ms=5_000),
            PublishedMessage(topic="ORDERS"),
            PublishedMessage(topic="DIRECT_A", expires_at_ms=5_000),
            PublishedMessage(topic="ORDERS", expires_at_ms=7_000),
        ]
    )
    world.publish([PublishedMessage(topic="ORDERS", expires_at_ms=9_000)] * 2)
    first, second = traits_of(world, world.open())
    expires = {name: {at: list(rows) for at, rows in traits.expires.items()} for name, traits in first.items()}
    assert expires == {"ORDERS": {5_000: [0], 7_000: [3]}, "DIRECT": {5_000: [2]}, "ALL": {5_000: [0, 2], 7_000: [3]}}
    assert {at: list(rows) for at, rows in second["ORDERS"].expires.items()} == {9_000: [4, 5]}


def test_create_message_table_makes_a_log_and_does_nothing_when_repeated(world: World) -> None:
    journal = world.open()
    journal.create_message_table("invoice", "id BIGINT")
    entries = list(journal.messages("invoice").tail(-1))
    journal.create_message_table("invoice", "id BIGINT")
    assert list(journal.messages("invoice").tail(-1)) == entries
    assert [entry.added for entry in entries] == [()]


def test_state_after_a_restart_is_the_fold_of_what_was_appended(world: World) -> None:
    """DESIGN 5: live and recovered state cannot differ."""
    journal = world.open()
    state = JournalState(journal.traits)
    folds.fold_all(state, journal.control.load().records)
    engine = Engine(state)
    deciding.claim(engine, epoch=1, host="h", address="a", pid=1, now_ms=1_000)
    journal.control.append(engine.drain_records(), epoch=1)
    world.publish([PublishedMessage(topic="ORDERS", expires_at_ms=90_000), PublishedMessage(topic="DIRECT_A")])
    engine.enter(segments(list(journal.messages("json").tail(-1))), now_ms=2_000)
    journal.control.append(engine.drain_records(), epoch=1)
    recovered = JournalState(world.open().traits)
    folds.fold_all(recovered, world.open().control.load().records)
    assert digest(recovered) == digest(state)
    entered = {name: list(ledger.entered) for name, ledger in recovered.queues.items()}
    assert entered == {"ORDERS": [0], "DIRECT": [1], "ALL": [0, 1]}


def test_merged_files_keep_bookmarks_and_facts(world: World) -> None:
    """DESIGN 4: an add without a change of data is moved by its mapping, never entered."""
    for topics in (["ORDERS", "RETURNS"], ["DIRECT_A"], ["RETURNS", "ORDERS", "ORDERS"]):
        world.publish([PublishedMessage(topic=topic, expires_at_ms=7_000 if topic == "ORDERS" else None) for topic in topics])
    journal = world.open()
    before = segments(list(journal.messages("json").tail(-1)))
    requests = [TraitRequest(queue=queue) for queue in world.definitions.queues.values()]
    wanted = [dict(journal.traits.traits(segment, requests)) for segment in before]
    version = before[-1].version
    world.merge(before)
    world.publish([PublishedMessage(topic="ORDERS")])
    *_, moved, later = journal.messages("json").tail(version)
    assert (moved.added, len(later.added)) == ((), 1)
    known = MessageTypeState()
    for segment in before:
        known.add(segment)
    (merged,) = moved.merged
    assert known.fits(merged)
    known.fold(moved_record("json", version=moved.version, token=moved.token, files=moved.merged))
    assert [(segment.path, segment.first_row) for segment in known.segments] == [(merged.path, row) for row in (0, 2, 3)]
    found = [dict(journal.traits.traits(segment, requests)) for segment in known.segments]
    for one, other in zip(found, wanted, strict=True):
        assert {name: (traits.rows, dict(traits.expires)) for name, traits in one.items()} == {
            name: (traits.rows, dict(traits.expires)) for name, traits in other.items()
        }
