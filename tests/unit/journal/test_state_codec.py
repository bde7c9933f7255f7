"""States as bytes: every attribute of every class of the core, and nothing else."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from pyroaring import BitMap64

from spark_queue.core import folds
from spark_queue.core.records import EpochClaimed, Kind
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.lease import Lease
from spark_queue.journal import state_codec
from spark_queue.verification.state_digest import digest
from tests.scenario import run_scenario
from tests.scenario.traits import MemoryTraits


def through(state: JournalState) -> JournalState:
    return state_codec.decode(state_codec.encode(state))


def with_value(value: object) -> JournalState:
    """Return a state with an attribute that is made up."""
    state = JournalState(MemoryTraits())
    state.made_up = value  # type: ignore[attr-defined]  # made up
    return state


def value_of(state: JournalState) -> Any:
    return state.made_up  # type: ignore[attr-defined]  # made up


@pytest.mark.parametrize(
    "value",
    [
        None, True, -1, 2**64 - 1, 0.5, "text", b"bytes", [], (), {}, set(), frozenset({1}), [1, [2, (3,)]], {(1, "a"): {2: None}},
        [Kind.GRANTED, "granted"], EpochClaimed(host="h", address="a", pid=1, by={"user": "u"}),
        BitMap64([1, 2**40]), [BitMap64(), None], {Kind.LEFT: BitMap64([1])},
    ],
    ids=repr,
)  # fmt: skip
def test_value_comes_back_as_it_was(value: object) -> None:
    found = value_of(through(with_value(value)))
    assert found == value
    assert type(found) is type(value)
    assert repr(found) == repr(value)


@pytest.mark.parametrize("dtype", ["int64", "uint64", "int32", "bool", "float64"])
def test_array_comes_back_as_it_was_and_can_be_written_to(dtype: str) -> None:
    found = value_of(through(with_value(np.array([0, 1, 1], dtype=dtype))))
    assert (found.dtype, found.tolist()) == (np.dtype(dtype), np.array([0, 1, 1], dtype=dtype).tolist())
    found[0] = 1


def test_attribute_that_a_class_gains_is_stored_without_being_named() -> None:
    state = JournalState(MemoryTraits())
    state.of_tomorrow = BitMap64([7])  # type: ignore[attr-defined]  # made up
    assert through(state).of_tomorrow == BitMap64([7])  # type: ignore[attr-defined]  # made up
    assert not hasattr(through(state), "facts"), "where facts come from is no part of the state"


def test_what_is_restored_shares_nothing() -> None:
    state = with_value([BitMap64([1])])
    value_of(through(state))[0].add(2)
    assert value_of(state) == [BitMap64([1])]


class Stranger:
    """No class of the core."""


@pytest.mark.parametrize("value", [Stranger(), lambda: 1, np.int64(3), 2**70, object], ids=lambda value: type(value).__name__)
def test_what_is_not_known_is_refused_by_name(value: object) -> None:
    """A field of a type that snapshots do not know must be noticed when it is made, not when it is missed."""
    with pytest.raises(TypeError, match=r"cannot be stored|too large"):
        state_codec.encode(with_value(value))


@pytest.mark.parametrize(
    "packed",
    [
        None, [], ["objects"], ["objects", "lease:Lease", ["number"], [["plain", [1]]]], ["enum", "records:Kind", "granted"],
        ["objects", "lease:Incarnation", [], []], ["objects", "..settings.read:Settings", [], []],
        ["objects", "records.record:dataclass", [], []], ["objects", "state.journal_state:parsing", [], []],
    ],
    ids=repr,
)  # fmt: skip
def test_bytes_that_are_no_state_are_refused(packed: object) -> None:
    """Only classes that the core itself defines are made, whatever the bytes say."""
    with pytest.raises(ValueError, match=r"no state|no class|holds"):
        state_codec.decode(msgspec.msgpack.encode(packed))


@pytest.mark.parametrize(
    "name", ["records.record:dataclass", "state.journal_state:parsing", "state.ledger:Counter", "message_files.segment:stretches"]
)
@pytest.mark.parametrize("packed", [["objects", "", [], []], ["enum", "", "of"]], ids=lambda packed: packed[0])
def test_what_the_core_only_imports_or_is_no_class_is_refused_before_it_is_used(packed: list[Any], name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is no class of the core"):
        state_codec.decode(msgspec.msgpack.encode([packed[0], name, *packed[2:]]))


def test_objects_of_one_class_are_stored_as_columns() -> None:
    rows = BitMap64([1])
    leases = [
        Lease(
            number=number, subscription="s", rows=rows, leased=rows, recoverable=rows, granted_at_ms=1, begun_at_ms=1, due_at_ms=2,
            incarnation=(1, 1), limit=1,
        )
        for number in range(100)
    ]  # fmt: skip
    data = state_codec.encode(with_value(leases))
    assert data.count(b"granted_at_ms") == 1
    assert value_of(state_codec.decode(data)) == leases


def test_what_is_more_than_a_list_or_dict_of_its_own_is_refused() -> None:
    """Only its attributes would be stored, and its members lost."""
    odd = type("Odd", (dict,), {"__module__": "spark_queue.core.odd"})
    with pytest.raises(TypeError, match=r"a spark_queue\.core\.odd\.Odd cannot be stored"):
        state_codec.encode(with_value(odd(lost=1)))


def test_what_was_prepared_for_a_record_is_gone_with_it() -> None:
    """A filter's matches of long ago would be taken for those of a subscription that begins after the snapshot."""
    scenario = run_scenario(
        """
define
  [message_types.json]
  topics = ["T"]
  [queues.Q]
  underlying_topic = "T"
publish T 0 kind=red
planner p1 Q/s1 filter="kind = red"
unsubscribe Q/s1
"""
    )
    world = scenario.world
    stored, known = state_codec.encode(world.state), len(world.committed)
    scenario.run('publish T 1 kind=red\nplanner p2 Q/s1 filter="kind = red"')
    state = state_codec.decode(stored)
    state.traits = world.state.traits
    folds.fold_all(state, world.committed[known:])
    assert digest(state) == digest(world.state)
