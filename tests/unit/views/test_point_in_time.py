"""A moment of the journal is the same whether every record is folded, or only those after a snapshot (DESIGN 4)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyroaring import BitMap64

from spark_queue.core.message_files.segment import EntryTraits, Segment, TraitRequest, retired_record
from spark_queue.core.records import Kind
from spark_queue.core.state.journal_state import JournalState
from spark_queue.errors import ConfigError
from spark_queue.journal import snapshot
from spark_queue.verification.instances import digest
from spark_queue.views import point_in_time
from tests.unit.views.views_world import START_MS, ViewsWorld


@pytest.fixture
def world(tmp_path: Path) -> ViewsWorld:
    return ViewsWorld(tmp_path)


class Unread:
    """Traits of files that nobody needs to read."""

    def traits(self, segment: Segment, requests: Iterable[TraitRequest]) -> Mapping[str, EntryTraits]:
        raise AssertionError(f"{segment.path} was read, and its facts were in the snapshot")

    def matches(
        self, segments: Iterable[Segment], expression: str, rows: BitMap64, *, columns: str, letters: object = None
    ) -> BitMap64:
        raise AssertionError(f"{expression} was asked anew")


@pytest.mark.parametrize("retires", [False, True])
def test_a_moment_is_the_same_from_the_newest_snapshot_before_it(world: ViewsWorld, *, retires: bool) -> None:
    world.publish(10, 11)
    world.attach()
    world.next(1)
    world.publish(12, 13)
    world.next(2)
    records, store = list(world.moment().records), world.journal.store
    if retires:
        records.append(replace(retired_record("line", ((0, 2),)), record=len(records), epoch=1, at_ms=START_MS))
    for number in (3, 6):
        state = JournalState(world.opened.traits)
        state.fold_all(records[: number + 1])
        snapshot.write(store, state, records[number])
    for as_of in (None, *range(len(records))):
        expected = point_in_time(records, world.opened.traits, as_of=as_of, now_ms=START_MS)
        found = point_in_time(records, world.opened.traits, as_of=as_of, now_ms=START_MS, store=store)
        assert digest(found.state) == digest(expected.state)
        assert (found.now_ms, found.records) == (expected.now_ms, expected.records)
    entered = max(record.record for record in records if record.kind == Kind.ENTERED)
    state = JournalState(world.opened.traits)
    state.fold_all(records[: entered + 1])
    snapshot.write(store, state, records[entered])
    if not retires:
        point_in_time(records, Unread(), as_of=None, now_ms=START_MS, store=store)


def test_a_time_that_has_not_come_is_refused_with_the_newest_moment(world: ViewsWorld) -> None:
    records = world.moment().records
    newest = datetime.fromtimestamp(START_MS / 1_000 + 1, UTC)
    point_in_time(records, world.opened.traits, as_of=newest, now_ms=START_MS + 1_000)
    with pytest.raises(
        ConfigError, match=rf"\[BAD_VALUE\] 'as_of'.*{re.escape(newest.isoformat(timespec='milliseconds'))} at the latest"
    ):
        point_in_time(records, world.opened.traits, as_of=newest + timedelta(milliseconds=1), now_ms=START_MS + 1_000)
    # A coordinator whose clock is ahead has written what is known already.
    ahead = [replace(record, at_ms=START_MS + 9_000) for record in records]
    point_in_time(ahead, world.opened.traits, as_of=newest + timedelta(seconds=8), now_ms=START_MS + 1_000)
