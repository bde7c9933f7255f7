"""How the time to pull grows: with messages, and with instances that all pull from each other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from spark_queue.core.state.lifecycle import State
from tests.benchmarks.curves import draw, growth
from tests.benchmarks.figure import Bench, Figure, median
from tests.benchmarks.instances import BenchInstance
from tests.benchmarks.journals import COMMIT_MESSAGES

PICTURE = Path(__file__).with_name("replication_curves.svg")

#: How many messages are pulled from one peer, and how many instances there are where each publishes 100,000.
_MESSAGES = (100_000, 1_000_000, 10_000_000)
_INSTANCES = (2, 3, 4, 6, 8)


def measure(bench: Bench) -> Iterator[Figure]:
    """Measure both curves; the time may grow as messages do, and as what is told: n logs tell of what all n have published."""
    messages = [(size, median(_messages_s(bench, size))) for size in _MESSAGES]
    yield growth("replication-curve-messages", "the time to pull with the number of messages", messages, unit="s")
    instances = [(count, median(_instances_s(bench, count))) for count in _INSTANCES]
    what = f"the time to pull all others, with the number of others, each of whom published {COMMIT_MESSAGES:,}"
    others = [(count - 1, seconds) for count, seconds in instances]
    yield growth("replication-curve-instances", what, others, unit="s", budget=2.0)
    draw({"messages": messages, "instances": instances}, PICTURE, ylabel="s to pull all")


def _messages_s(bench: Bench, size: int) -> Iterator[float]:
    """Yield how long it takes to pull so many messages of one peer, in seconds."""
    place = bench.place / f"messages-{size}"
    BenchInstance(place, "there").publish_numbers(size)
    for run in range(bench.runs):
        here = BenchInstance(place, f"here_{run}", ["there"])
        yield here.pull_s("there")
        assert here.count(State.REMOTE) == size


def _instances_s(bench: Bench, count: int) -> Iterator[float]:
    """Yield how long one instance of several takes to pull all others, who have pulled each other, in seconds."""
    place, names = bench.place / f"instances-{count}", [f"i{number}" for number in range(1, count)]
    world = [BenchInstance(place, name, [each for each in names if each != name]) for name in names]
    for instance in world:
        instance.publish_numbers(COMMIT_MESSAGES)
    for instance in world:
        for name in instance.definitions.peers:
            instance.pull(name)
    for run in range(bench.runs):
        here = BenchInstance(place, f"here_{run}", names)
        yield sum(here.pull_s(name) for name in names)
        assert here.count(State.REMOTE) == len(names) * COMMIT_MESSAGES
