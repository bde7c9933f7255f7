"""Proofs from a checkpoint, in whatever form Spark left it, and whoever else has one (R44)."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spark_queue import Journal
from spark_queue.client.proving import ProvenLease
from spark_queue.errors import LeaseError
from tests.integration.coordinator_world import DEADLINE_S, MakeWorld, Planner, World


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    """Give a journal whose subscription has proven lease 1 and holds two messages by lease 2."""
    world = make_world()
    world.publish(4)
    planner = Planner(world)
    assert [planner.next(limit=2).lease for _ in range(2)] == [1, 2]
    return world


def offset(world: World, **changed: Any) -> dict[str, Any]:
    return {"v": 1, "journal": world.journal_id, "queue": "WORK", "subscription": "s", "lease": 2, **changed}


def checkpoint(path: Path, *lines: str, committed: int = 10) -> str:
    """Make a checkpoint whose newest committed batch ends at some offsets, with a later one that is only planned."""
    for folder in ("commits", "offsets"):
        (path / folder).mkdir(parents=True)
        (path / folder / f".{committed}.crc").write_bytes(b"crc")
    for number in (9, committed):
        (path / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    text = "\n".join(["v1", '{"batchWatermarkMs":0,"conf":{}}', *lines])
    (path / "offsets" / str(committed)).write_text(text)
    (path / "offsets" / str(committed + 1)).write_text(text.replace('"lease": 2', '"lease": 3'))
    return str(path)


def prove(world: World, path: str) -> list[ProvenLease]:
    return Journal(world.store.path).prove(path)


@pytest.mark.parametrize("form", ["a line each", "a source by its id", "a text in a source's map"])
def test_the_newest_committed_batch_is_proven_once(world: World, tmp_path: Path, form: str) -> None:
    own = json.dumps(offset(world))
    lines = {
        "a line each": ("-", '{"logOffset":7}', own),
        "a source by its id": (f'{{"0":{{"logOffset":7}},"1":{own}}}',),
        "a text in a source's map": (json.dumps({"0": own}),),
    }[form]
    path = checkpoint(tmp_path / "checkpoint", *lines)
    expected = ProvenLease(queue="WORK", subscription="s", lease=2, messages=2)
    assert prove(world, path) == [expected]
    assert prove(world, path) == [replace(expected, messages=0, was_proven=True)]
    status = Journal(world.store.path).queue("WORK").status()
    assert (status.acknowledged, status.backlog) == (4, 0)


@pytest.mark.drawn(1)
@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"journal": "another"}, "a last committed batch, 10, which is not one of a queue of journal"),
        ({"lease": 3}, "lease 3"),
        ({"subscription": "t"}, "whose newest is 0"),
    ],
)
def test_a_checkpoint_of_something_else_proves_nothing(world: World, tmp_path: Path, changed: dict[str, Any], says: str) -> None:
    path = checkpoint(tmp_path / "checkpoint", json.dumps(offset(world, **changed)))
    with pytest.raises(LeaseError, match=f"CHECKPOINT_FOREIGN.*{says}"):
        prove(world, path)
    assert Journal(world.store.path).queue("WORK").status().acknowledged == 2


#: Lines of a file that Spark did not write.
ODD = ("-", "not json", '["lease"]', '{"journal":1,"queue":2,"subscription":3,"lease":"x"}')


@pytest.mark.parametrize("lines", [(), ("{" * 100_000,), ODD], ids=["nothing", "deep", "odd"])
def test_what_is_no_offset_of_a_queue_proves_nothing(world: World, tmp_path: Path, lines: tuple[str, ...]) -> None:
    with pytest.raises(LeaseError, match="CHECKPOINT_FOREIGN"):
        prove(world, checkpoint(tmp_path / "checkpoint", *lines))


def test_a_checkpoint_without_a_committed_batch_has_nothing_to_prove(world: World, tmp_path: Path) -> None:
    """Before the first start of its query there is not even a directory, and before the first commit no batch counts."""
    (tmp_path / "empty").mkdir()
    planned = checkpoint(tmp_path / "planned", json.dumps(offset(world)))
    for commit in (tmp_path / "planned" / "commits").iterdir():
        commit.unlink()
    for path in (str(tmp_path / "nowhere"), str(tmp_path / "empty"), planned):
        with pytest.raises(LeaseError, match=f"NOTHING_TO_PROVE.*'{path}' has no committed batch"):
            prove(world, path)


def test_a_later_lease_has_the_earlier_one_proven(world: World, tmp_path: Path) -> None:
    path = checkpoint(tmp_path / "checkpoint", json.dumps(offset(world, lease=1)))
    assert prove(world, path) == [ProvenLease(queue="WORK", subscription="s", lease=1, messages=0, was_proven=True)]


def taken_when_it_lapsed(planner: Planner, *, limit: int) -> int:
    """Poll until another one's lease has ended, and its messages are there again."""
    deadline_s = time.monotonic() + DEADLINE_S
    while not (messages := planner.next(limit=limit, wait_ms=500).messages):
        assert time.monotonic() < deadline_s, "the lease goes on"
    return messages


def test_a_lease_that_lapsed_is_proven_as_far_as_nobody_else_has_its_messages(make_world: MakeWorld, tmp_path: Path) -> None:
    """P5, R44: the end of a lease is no proof of it, whoever has its messages by then."""
    world = make_world(queue={"lease_period": "1s"})
    world.publish(2)
    assert Planner(world).next(limit=2).messages == 2
    assert taken_when_it_lapsed(Planner(world, "other"), limit=1) == 1
    path = checkpoint(tmp_path / "checkpoint", json.dumps(offset(world, lease=1)))
    expected = ProvenLease(queue="WORK", subscription="s", lease=1, messages=1)
    assert prove(world, path) == [expected]
    assert Journal(world.store.path).queue("WORK").status().acknowledged == 1
    assert prove(world, path) == [replace(expected, messages=0, was_proven=True)]


def test_what_others_have_by_now_is_proven_and_not_acknowledged(make_world: MakeWorld, tmp_path: Path) -> None:
    world = make_world(queue={"lease_period": "1s"})
    world.publish(1)
    assert Planner(world).next().messages == 1
    assert taken_when_it_lapsed(Planner(world, "other"), limit=1) == 1
    path = checkpoint(tmp_path / "checkpoint", json.dumps(offset(world, lease=1)))
    expected = ProvenLease(queue="WORK", subscription="s", lease=1, messages=0)
    assert prove(world, path) == [expected]
    assert Journal(world.store.path).queue("WORK").status().acknowledged == 0
    assert prove(world, path) == [replace(expected, was_proven=True)]


def test_a_barrier_is_proven_by_its_batch(make_world: MakeWorld, tmp_path: Path) -> None:
    """R44, R71: no lease holds a barrier, which is its subscription's until the proof."""
    world = make_world(queue={"barrier": "value IS NOT NULL"})
    world.publish(1)
    planner = Planner(world)
    planner.next()
    assert planner.bookmarks() == [0]
    path = checkpoint(tmp_path / "checkpoint", json.dumps(offset(world, lease=1)))
    expected = ProvenLease(queue="WORK", subscription="s", lease=1, messages=0, is_barrier=True)
    assert prove(world, path) == [expected]
    assert prove(world, path) == [replace(expected, is_barrier=False, was_proven=True)]
    assert not Planner(world).next().messages, "it is not delivered again"
