"""The real coordinator loop on the real journal, over an object store that misbehaves: fences, merges, retention, publishers.

A failure names the world's seed; keep it in `KEPT_SEEDS`.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection
from itertools import pairwise
from typing import Any

from spark_queue.core import folds
from spark_queue.core.bitmaps.ranges import to_bitmap
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.lifecycle import State
from spark_queue.journal.commit import OFFSETS_TXN, ROWS_TXN
from spark_queue.journal.traits import FileTraits
from spark_queue.verification.state_digest import of_ledger
from tests.second_model.problems import problems
from tests.simulation import promises
from tests.simulation.coordinator import QUEUE
from tests.simulation.disk_world import DiskWorld, simulated_delta
from tests.simulation.loop_world import TYPE
from tests.simulation.seeds import over_seeds

#: Seeds that once failed, and what was broken.
KEPT_SEEDS: dict[int, str] = {351: "a publisher's commit that lands late, right before the oldest entry, was taken for damage"}

#: One for each kind of queue, in turn; without expressions, which other tests evaluate.
QUEUES: tuple[dict[str, Any], ...] = (
    {"max_deliveries": 3, "max_cancels": 1, "dead_letter_queue": "FAILED"},
    {"semantics": "at-most-once"},
    {"max_backlog": 12, "fairness": "round-robin"},
)


def run(seed: int) -> DiskWorld:
    """Run a world to its end and drain it."""
    world = DiskWorld(seed, settings=QUEUES[seed % len(QUEUES)], journal={"retention": "3s"} if seed % 2 else {})
    for _ in range(500 if seed % 10 == 0 else 120):
        world.step()
    world.drain()
    return world


@over_seeds(every=25, kept=KEPT_SEEDS)
def test_a_troubled_journal_keeps_every_promise(seed: int) -> None:
    """R1, R5, R15, R16, R94, R95, R98, P7: nothing published is lost or doubled, whoever comes late or merges what."""
    with simulated_delta(random.Random(seed).getrandbits):
        world = run(seed)
        state = check_journal(world)
        assert promises.committed_after_disconnect(world) == []
        assert promises.removals_from_another_lease(world) == []
        ledger = state.queues[QUEUE]
        ended = ledger.rows[State.REMOVED] | ledger.rows[State.DEAD] | ledger.retired
        assert ended == to_bitmap([(0, len(world.order))])
        # What is retired does not enter again when the log is folded.
        assert ledger.retired or of_ledger(ledger) == of_ledger(world.reigning.queues[QUEUE])


def check_journal(world: DiskWorld) -> JournalState:
    """Check what any drained journal keeps; returns what the next coordinator would know."""
    assert world.is_empty(), "every message reaches an end"
    assert world.deposed_answers == []
    assert world.misread == []
    assert published_otherwise(world) == []
    assert transactions_that_go_back(world) == []
    state = folded(world)
    assert problems(state, world.log, {TYPE: world.message_log}) == []
    return state


def folded(world: DiskWorld) -> JournalState:
    """Return what the next coordinator would know without snapshots."""
    state = JournalState(FileTraits(world.way(None)))
    folds.fold_all(state, list(world.log))
    return state


def published_otherwise(world: DiskWorld, *, repeated: Collection[int] = ()) -> list[str]:
    """Return what the message log holds otherwise than its publishers were told (R94, R95, R98); some may stand there again."""
    times, place = Counter(world.order), {message: at for at, message in enumerate(world.order)}
    twice = {message: count for message, count in times.items() if count > 1 and message not in repeated}
    wrong = [f"message {message} stands {count} times in the log" for message, count in twice.items()]
    for publisher in world.publishers:
        app = publisher.application
        wrong += [f"message {message} of '{app.name}' was confirmed and is lost" for message in app.confirmed - place.keys()]
        if app.kind == "intervals":
            wrong += [
                f"message {each} of '{app.name}' is not there" for batch in app.batches for each in batch if each not in place
            ]
        if app.kind in ("named", "stream"):
            due = [message for batch in app.batches for message in batch]
            if [message for message in world.order if message in set(due)] != due:
                wrong.append(f"the messages of '{app.name}' are not all there in their order")
    return wrong


def transactions_that_go_back(world: DiskWorld) -> list[str]:
    """Return where somebody committed who had been overtaken: an older epoch, or an older holder of a name (R98, DESIGN 3.4)."""
    return [
        f"version {later.version} of {table} sets {name} back to {later.transactions[name]}"
        for table, states in world.bucket.tables.items()
        for earlier, later in pairwise(states)
        for name, version in earlier.transactions.items()
        # Fingerprints are in no order.
        if later.transactions[name] < version and not name.startswith((OFFSETS_TXN, ROWS_TXN))
    ]
