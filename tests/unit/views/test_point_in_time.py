"""A moment of the journal is the same whether every record is folded, or only those after a snapshot (DESIGN 4)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyroaring import BitMap64

from spark_queue.core import commands, folds
from spark_queue.core.message_files.segment import EntryTraits, Segment, TraitRequest, TraitSource
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.log_history import LogHistory
from spark_queue.errors import ConfigError
from spark_queue.journal import snapshot
from spark_queue.journal.reader import list_blocks
from spark_queue.journal.state_codec import encode
from spark_queue.verification.state_digest import digest
from spark_queue.views import queue_status, state_at
from tests.unit.views.views_world import START_MS, ViewsWorld


@pytest.fixture
def world(tmp_path: Path) -> ViewsWorld:
    return ViewsWorld(tmp_path)


class Unread(TraitSource):
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
    world.next(2)
    world.publish(12, 13)
    world.next(1)
    if retires:
        world.engine.decide(commands.Purge(queue="OTHER"), now_ms=START_MS)
        world.commit()
        world.retire(0, 2)
    world.commit()
    records, store = world.records, world.journal.store
    moments = [None, *range(len(records))]
    expected = {as_of: state_at(world.opened, as_of) for as_of in moments}
    for number in (3, 6):
        state, history = JournalState(world.opened.traits), LogHistory()
        folds.fold_all(state, records[: number + 1])
        history.fold(records[: number + 1])
        snapshot.write(store, state, history, records[number])
    for as_of in moments:
        found = state_at(world.opened, as_of)
        assert digest(found.state) == digest(expected[as_of].state)
        assert encode(found.log_history()) == encode(expected[as_of].log_history())
    assert len(world.opened.tail().records) == len(records) - 7


def test_what_the_snapshot_has_is_not_read_again(world: ViewsWorld) -> None:
    world.publish(10, 11)
    world.attach()
    world.commit()
    snapshot.capture(world.journal.store, list_blocks(world.journal.store), world.opened.traits)
    world.next(1)
    world.commit()
    world.opened.traits = Unread()
    assert queue_status(state_at(world.opened), "WORK").backlog == 1
    assert queue_status(state_at(world.opened, len(world.records) - 1), "WORK").backlog == 1


def test_a_time_that_has_not_come_is_refused_with_the_newest_moment(world: ViewsWorld) -> None:
    # The journal's coordinator is far ahead of this host's clock, and what it has written is known.
    world.publish(10, now_ms=START_MS + 1_000)
    world.commit()
    newest = datetime.fromtimestamp(START_MS / 1_000 + 1, UTC)
    state_at(world.opened, newest)
    with pytest.raises(
        ConfigError, match=rf"\[BAD_VALUE\] 'as_of'.*{re.escape(newest.isoformat(timespec='milliseconds'))} at the latest"
    ):
        state_at(world.opened, newest + timedelta(milliseconds=1))
