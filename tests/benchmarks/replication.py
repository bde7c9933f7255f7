"""Replicated queues: what it costs to pull, to be mirrored, and to remember what others said (DESIGN 17)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
from pyroaring import BitMap64

from order_file import ORDERS_CSV, read_lines
from spark_queue import Journal
from spark_queue.core import commands
from spark_queue.core.bitmaps.ranges import to_ranges
from spark_queue.core.deciding.instances.replicating import News, Pulled
from spark_queue.core.deciding.instances.transfers import NAMED_MOST
from spark_queue.core.records import TransferRequested
from spark_queue.core.state.lifecycle import State
from spark_queue.replication.exchange import ApplyPulled
from tests.benchmarks.core import EverythingEnters, lease_s
from tests.benchmarks.curves import draw, growth
from tests.benchmarks.figure import Bench, Figure, median, shown, spread
from tests.benchmarks.instances import BenchInstance, pulls_s
from tests.benchmarks.journals import COMMIT_MESSAGES, MANY_MESSAGES, QUEUE, kill, planner_of, serving
from tests.benchmarks.throughput import FILE_LINES, REPEATS, STORED

PICTURE = Path(__file__).with_name("replication_curves.svg")

#: How many messages are pulled from one peer, and how many instances there are where each publishes 100,000.
_SIZES = (100_000, 1_000_000, 10_000_000)
_INSTANCES = (2, 3, 4, 6, 8)

#: How often each of three peers publishes, and how many messages; half of them are acknowledged.
_ROUNDS, _ROUND_MESSAGES = 100, 2_000


def pulling(bench: Bench) -> Iterator[Figure]:
    """Pull 2.1 million real order lines in files of 50,000; the budget is 300,000 lines/s."""
    lines = pa.concat_tables([read_lines(ORDERS_CSV)] * REPEATS)
    there = BenchInstance(bench.place, "there", ["here"], columns=STORED)
    for first in range(0, lines.num_rows, FILE_LINES):
        there.publish_rows(lines.slice(first, FILE_LINES))
    rates = [lines.num_rows / time_s for time_s in pulls_s(bench, bench.place, ["there"], lines.num_rows, columns=STORED)]
    yield Figure(
        row="replication-pull", what="pulling real order lines", value=median(rates), unit="lines/s", budget=300_000, at_least=True,
        note=f"{spread(rates)}; files of {FILE_LINES:,} lines; read, written anew, committed and entered",
    )  # fmt: skip


def backlog(bench: Bench) -> Iterator[Figure]:
    """Pull 10 million messages of which half, drawn one by one, are acknowledged; the budget is 60 s."""
    there = BenchInstance(bench.place, "there", ["here"])
    there.publish_numbers(MANY_MESSAGES)
    for drawn in _halves():
        outcome = commands.OutcomeRows(outcome="acknowledge", ranges=tuple(to_ranges(drawn)))
        there.decide(commands.Settle(queue=QUEUE, outcomes=(outcome,)))
    times_s = pulls_s(bench, bench.place, ["there"], MANY_MESSAGES // 2)
    yield Figure(
        row="replication-backlog", what="pulling 10 M messages, half of them acknowledged at random", value=median(times_s),
        unit="s", budget=60, note=spread(times_s),
    )  # fmt: skip


def core(bench: Bench) -> Iterator[Figure]:
    """Grant and acknowledge some of 10 million, replicated against not, by turns; the budget is 10%."""
    for limit in (100_000, 100):
        pairs = [[lease_s(limit, EverythingEnters(), peer=peer) for peer in (None, "there")] for _ in range(bench.runs)]
        yield Figure(
            row=f"replication-core-{limit}", what=f"core: grant + acknowledge {limit:,} of 10 M, replicated against not",
            value=median(shared_s / alone_s for alone_s, shared_s in pairs), unit="x", budget=1.1,
            note=f"{spread([shared_s / alone_s for alone_s, shared_s in pairs])}; alone {shown(pairs[0][0] * 1e3)} ms",
        )  # fmt: skip


def memory(bench: Bench) -> Iterator[Figure]:
    """Hold 10 million mirrored messages, half of them transferred at random, against as many that nobody shares (1.25 times)."""
    alone = BenchInstance(bench.place, "alone", [])
    alone.publish_numbers(MANY_MESSAGES)
    # Who gives messages away shares the queue, too.
    there, here = (BenchInstance(bench.place, name, [other]) for name, other in (("there", "here"), ("here", "there")))
    there.publish_numbers(MANY_MESSAGES)
    for drawn in _halves():
        asked = TransferRequested(requester="here", owner="there", limit=NAMED_MOST)
        news = News(queue=QUEUE, message_type="json", rows={there.state.journal_id: drawn}, requested=asked)
        pulled = Pulled(peer="here", journal=here.state.journal_id, record=-1, digest="", news=[news])
        assert there.hand_over(ApplyPulled(pulled=pulled, definitions=there.state.definitions))
    here.pull("there")
    assert here.count(State.AVAILABLE) == MANY_MESSAGES // 2
    sizes = {name: [_recovered_mib(bench.place / name) for _ in range(bench.runs)] for name in ("alone", "here")}
    ratio = median(sizes["here"]) / median(sizes["alone"])
    yield Figure(
        row="replication-memory", what="coordinator memory, 10 M mirrored messages, half transferred at random, against unshared",
        value=ratio, unit="x", budget=1.25,
        note=f"RSS {shown(median(sizes['here']))} MiB against {shown(median(sizes['alone']))} MiB",
    )  # fmt: skip


def recovery(bench: Bench) -> Iterator[Figure]:
    """Fold a log with the news of three peers, against one of as many commits, messages and outcomes of its own (1.5 times)."""
    alone, others = BenchInstance(bench.place, "alone"), ["one", "two", "three"]
    peers, here = [BenchInstance(bench.place, name, ["here"]) for name in others], BenchInstance(bench.place, "here", others)
    for _ in range(_ROUNDS):
        for peer in peers:
            _live(peer)
            here.pull(peer.name)
            _live(alone)
    assert here.count(State.REMOTE) == alone.count(State.AVAILABLE) == _ROUNDS * len(peers) * _ROUND_MESSAGES // 2
    commits = {each.name: sum(1 for _ in each.path.glob("control/*.parquet")) for each in (alone, here)}
    times_s: dict[str, list[float]] = {"alone": [], "here": []}
    for _ in range(bench.runs):
        for each in (alone, here):
            times_s[each.name].append(each.begin_s())
    ratios = [here_s / alone_s for alone_s, here_s in zip(*times_s.values(), strict=True)]
    yield Figure(
        row="replication-recovery", what="recovery with the news of three peers, against as much that is its own",
        value=median(ratios), unit="x", budget=1.5,
        note=f"{spread(ratios)}; {shown(median(times_s['here']))} s for {commits['here']:,} commits against "
        f"{shown(median(times_s['alone']))} s for {commits['alone']:,}, no snapshot",
    )  # fmt: skip


def curves(bench: Bench) -> Iterator[Figure]:
    """Draw how the time to pull grows: as messages do, and as what is told, since n logs tell of what all n have published."""
    messages = [(size, median(_messages_s(bench, size))) for size in _SIZES]
    yield growth("replication-curve-messages", "the time to pull with the number of messages", messages, unit="s")
    instances = [(count, median(_instances_s(bench, count))) for count in _INSTANCES]
    what = f"the time to pull all others, with the number of others, each of whom published {COMMIT_MESSAGES:,}"
    others = [(count - 1, seconds) for count, seconds in instances]
    yield growth("replication-curve-instances", what, others, unit="s", budget=2.0)
    draw({"messages": messages, "instances": instances}, PICTURE, ylabel="s to pull all")


def _messages_s(bench: Bench, size: int) -> list[float]:
    """Return how long it takes to pull so many messages of one peer, for each run, in seconds."""
    place = bench.place / f"messages-{size}"
    BenchInstance(place, "there", ["here"]).publish_numbers(size)
    return pulls_s(bench, place, ["there"], size)


def _instances_s(bench: Bench, count: int) -> list[float]:
    """Return how long one instance of several takes to pull all others, who have pulled each other, for each run, in seconds."""
    place, names = bench.place / f"instances-{count}", [f"i{number}" for number in range(1, count)]
    others = {name: [each for each in names if each != name] for name in names}
    world = [BenchInstance(place, name, [*others[name], "here"]) for name in names]
    for instance in world:
        instance.publish_numbers(COMMIT_MESSAGES)
    for instance in world:
        for name in others[instance.name]:
            instance.pull(name)
    return pulls_s(bench, place, names, len(names) * COMMIT_MESSAGES)


def _halves() -> Iterator[BitMap64]:
    """Yield half of each 100,000 messages, drawn one by one."""
    chance = np.random.default_rng(1)
    for first in range(0, MANY_MESSAGES, COMMIT_MESSAGES):
        drawn = chance.permutation(COMMIT_MESSAGES)[: COMMIT_MESSAGES // 2]
        yield BitMap64((first + drawn).astype(np.uint64))


def _live(instance: BenchInstance) -> None:
    """Publish messages, and acknowledge every other hundred of them, in one commit."""
    begins = instance.known.entered_until
    instance.publish_numbers(_ROUND_MESSAGES, enters=False)
    instance.admit()
    ranges = tuple((first, first + 100) for first in range(begins, begins + _ROUND_MESSAGES, 200))
    outcomes = tuple(commands.OutcomeRows(outcome="acknowledge", ranges=(each,)) for each in ranges)
    instance.decide(commands.Settle(queue=QUEUE, outcomes=outcomes))


def _recovered_mib(place: Path) -> float:
    """Return the memory of a coordinator that has just recovered, and heard its peers, in MiB."""
    journal = Journal(str(place))
    pong = serving(journal.store, journal.journal_id())
    planner = planner_of(journal.store, journal.journal_id())
    try:
        # It grants nothing before it has heard its peers.
        while not planner.next(finished=0, limit=1, wait_ms=1_000).lease:
            continue
        return float(psutil.Process(pong.pid).memory_info().rss) / 2**20
    finally:
        planner.leave()
        kill(pong)
