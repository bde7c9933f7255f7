from __future__ import annotations

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from pyroaring import BitMap64

from spark_queue.core.order_key import OrderKeys


class OrderKeysMachine(RuleBasedStateMachine):
    """Compares chains of arrays with a dictionary of sets."""

    def __init__(self) -> None:
        super().__init__()
        self.order_keys = OrderKeys()
        self.keys: dict[int, int] = {}
        self.present: set[int] = set()
        self.leased: set[int] = set()
        self.next = 0

    @rule(keys=st.lists(st.one_of(st.none(), st.integers(0, 6), st.sampled_from([2**64 - 1, 2**63])), max_size=12))
    def add(self, keys: list[int | None]) -> None:
        added = {self.next + place: key for place, key in enumerate(keys) if key is not None}
        self.next += len(keys)
        self.keys |= added
        self.present |= set(added)
        self.order_keys.add(np.array(list(added), dtype=np.int64), np.array(list(added.values()), dtype=np.uint64))

    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        rows = data.draw(st.sets(st.integers(0, self.next + 3), max_size=10))
        self.order_keys.leave(BitMap64(rows))
        self.present -= rows
        self.leased -= rows

    @precondition(lambda self: self.keys.keys() - self.present)
    @rule(data=st.data())
    def come_back(self, data: st.DataObject) -> None:
        rows = data.draw(st.sets(st.sampled_from(sorted(self.keys.keys() - self.present)), max_size=5))
        self.order_keys.come_back(BitMap64(rows))
        self.present |= rows

    @rule(data=st.data())
    def lease(self, data: st.DataObject) -> None:
        free = sorted(self.present - set(self.order_keys.behind) - set(self.order_keys.blocked(BitMap64(self.leased))))
        if free:
            self.leased |= {data.draw(st.sampled_from(free))}

    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        gone = data.draw(st.sets(st.sampled_from(sorted(self.keys.keys() - self.present) or [-1]), max_size=5))
        self.keys = {row: key for row, key in self.keys.items() if row not in gone}
        self.order_keys = self.order_keys.kept(BitMap64(self.keys))

    @invariant()
    def waits_behind_the_oldest(self) -> None:
        oldest = {
            key: min(row for row in self.present if self.keys[row] == key) for key in {self.keys[row] for row in self.present}
        }
        assert set(self.order_keys.behind) == {row for row in self.present if oldest[self.keys[row]] != row}
        late = {self.keys[row] for row in self.leased if oldest[self.keys[row]] != row}
        assert set(self.order_keys.blocked(BitMap64(self.leased))) == {oldest[key] for key in late}
        taken = [self.keys[row] for row in self.leased]
        assert len(taken) == len(set(taken))

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
