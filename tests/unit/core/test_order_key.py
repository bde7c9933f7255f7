from __future__ import annotations

from unittest import mock

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from pyroaring import BitMap64

from spark_queue.core.bitmaps import order_key
from spark_queue.core.bitmaps.order_key import OrderKeys


class OrderKeysMachine(RuleBasedStateMachine):
    """Compares chains of arrays with a dictionary of sets."""

    def __init__(self) -> None:
        super().__init__()
        self.order_keys = OrderKeys()
        self.keys: dict[int, int] = {}
        self.present: set[int] = set()
        self.held: set[int] = set()
        self.next = 0

    @rule(keys=st.lists(st.one_of(st.none(), st.integers(0, 6), st.sampled_from([2**64 - 1, 2**63])), max_size=12))
    def add(self, keys: list[int | None]) -> None:
        added = {self.next + place: key for place, key in enumerate(keys) if key is not None}
        self.next += len(keys)
        self.keys |= added
        self.present |= set(added)
        self.order_keys = self.order_keys.joined(
            np.array(list(added), dtype=np.int64), np.array(list(added.values()), dtype=np.uint64)
        )

    @precondition(lambda self: self.next > len(self.keys))
    @rule(data=st.data())
    def come_late(self, data: st.DataObject) -> None:
        """Let what was passed over join, behind and before others of its key."""
        rows = data.draw(st.sets(st.sampled_from(sorted(set(range(self.next)) - self.keys.keys())), max_size=5))
        added = {row: data.draw(st.integers(0, 6)) for row in sorted(rows)}
        self.keys |= added
        self.present |= rows
        late = np.array(list(added), dtype=np.int64), np.array(list(added.values()), dtype=np.uint64)
        self.order_keys = self.order_keys.joined(*late)

    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        rows = data.draw(st.sets(st.integers(0, self.next + 3), max_size=10))
        self.order_keys.leave(BitMap64(rows))
        self.present -= rows
        self.held -= rows

    @precondition(lambda self: self.keys.keys() - self.present)
    @rule(data=st.data())
    def come_back(self, data: st.DataObject) -> None:
        rows = data.draw(st.sets(st.sampled_from(sorted(self.keys.keys() - self.present)), max_size=5))
        self.order_keys.come_back(BitMap64(rows))
        self.present |= rows

    @rule(data=st.data(), count=st.integers(1, 12), longest=st.integers(0, 3))
    def take(self, data: st.DataObject, count: int, longest: int) -> None:
        """Hold runs: the oldest of some free keys, and what follows them as far as it is there."""
        keyless = set(range(self.next)) - self.keys.keys()
        there = data.draw(st.sets(st.sampled_from(sorted(self.present | keyless) or [self.next]))) | {*list(self.present)[:2]}
        heads = there - set(self.order_keys.behind)
        heads = data.draw(st.sets(st.sampled_from(sorted(heads)))) if heads else set()
        wanted = set(heads)
        for head in heads & self.keys.keys():
            run = [row for row in sorted(self.present) if self.keys[row] == self.keys[head]]
            gap = next((place for place, row in enumerate(run) if row not in there), len(run))
            wanted |= set(run[: min(gap, longest or gap)])
        with mock.patch.object(order_key, "_FIRST_WINDOW", data.draw(st.sampled_from([1, 4096]))):
            found = self.order_keys.runs(BitMap64(heads), BitMap64(there), count=count, longest=longest)
        assert list(found) == sorted(wanted)[:count]
        self.order_keys.hold(found)
        self.held |= set(found) & self.keys.keys()

    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        rows = data.draw(st.sets(st.integers(0, self.next + 3), max_size=10))
        self.order_keys.release(BitMap64(rows))
        self.held -= rows

    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        gone = data.draw(st.sets(st.sampled_from(sorted(self.keys.keys() - self.present) or [-1]), max_size=5))
        self.keys = {row: key for row, key in self.keys.items() if row not in gone}
        self.order_keys = self.order_keys.kept(BitMap64(self.keys))

    @rule(data=st.data())
    def ask(self, data: st.DataObject) -> None:
        """What may be leased beside what is held, and what stands behind something."""
        rows = data.draw(st.sets(st.sampled_from(sorted(self.present) or [self.next])))
        mine = data.draw(st.sets(st.sampled_from(sorted(self.held) or [self.next])))
        together = {
            row
            for row in rows
            if row not in self.keys
            or all(
                (other in rows | mine if other <= row else other not in self.held - mine)
                and (other not in self.held or other in mine)
                for other in self.present
                if self.keys[other] == self.keys[row]
            )
        }
        assert set(self.order_keys.together(BitMap64(rows), BitMap64(mine))) == together
        leaders = mine & self.keys.keys()
        behind = {
            row for row in rows & self.keys.keys() if any(self.keys[row] == self.keys[each] for each in leaders if each < row)
        }
        assert set(self.order_keys.followers(BitMap64(mine), BitMap64(rows))) == behind

    @invariant()
    def waits_behind_the_oldest(self) -> None:
        oldest = {
            key: min(row for row in self.present if self.keys[row] == key) for key in {self.keys[row] for row in self.present}
        }
        held_keys = {self.keys[row] for row in self.held}
        assert set(self.order_keys.behind) == {
            row for row in self.present if oldest[self.keys[row]] != row or self.keys[row] in held_keys
        }
        assert set(self.order_keys.under_lease) == self.held

    @invariant()
    def knows_every_key(self) -> None:
        bookmarks, keys = self.order_keys.keys_of(BitMap64(range(self.next)))
        assert dict(zip(bookmarks.tolist(), keys.tolist(), strict=True)) == self.keys


TestOrderKeys = OrderKeysMachine.TestCase
TestOrderKeys.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)


def test_a_million_keys_that_crowd_one_slot_are_told_apart() -> None:
    order_keys = OrderKeys()
    keys = np.arange(300_000, dtype=np.uint64) << np.uint64(32)
    order_keys.add(np.arange(300_000), keys)
    assert not order_keys.behind
    order_keys.add(np.arange(300_000, 600_000), keys)
    assert len(order_keys.behind) == 300_000
    order_keys.leave(BitMap64(range(0, 300_000, 2)))
    assert len(order_keys.behind) == 150_000


def test_one_hot_key_costs_no_step_for_each_message() -> None:
    order_keys = OrderKeys()
    order_keys.add(np.arange(1_000_000), np.zeros(1_000_000, dtype=np.uint64))
    order_keys.leave(BitMap64(range(1, 999_999)))
    assert list(order_keys.behind) == [999_999]
    order_keys.leave(BitMap64([0]))
    assert not order_keys.behind


def test_a_run_is_followed_beyond_the_first_window() -> None:
    order_keys = OrderKeys()
    order_keys.add(np.arange(12, dtype=np.int64), np.array([7, *range(20, 30), 7], dtype=np.uint64))
    with mock.patch.object(order_key, "_FIRST_WINDOW", 1):
        assert list(order_keys.runs(BitMap64([0]), BitMap64(range(12)), count=2, longest=0)) == [0, 11]
