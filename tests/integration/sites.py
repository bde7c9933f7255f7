"""Journals that pull from each other, each with real coordinators, and what they say of their messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from spark_queue import Journal
from spark_queue.journal.open import open_journal
from spark_queue.views import state_at
from tests.integration.coordinator_world import QUEUE, TOPIC, Planner, World

#: Makes a journal of a name that pulls from others by name.
MakeSite = Callable[..., World]

#: Short, so that a test need not wait long for a lost site.
UNREACHABLE_AFTER = "15s"


def peer(path: str, *, queues: Sequence[str] = (QUEUE,), **keys: Any) -> dict[str, Any]:
    """Return what is pulled from the journal at a path."""
    return {"journal": path, "topics": [TOPIC], "queues": list(queues), "pull_interval": "100ms", **keys}


def site(path: str, name: str, peers: Mapping[str, Mapping[str, Any]], **options: Any) -> World:
    """Make the journal of an instance; a coordinator starts with the first caller."""
    replication = {"unreachable_after": UNREACHABLE_AFTER}
    return World(path, journal={"instance": name}, peers=dict(peers), replication=replication, **options)


def ping(worlds: Sequence[World]) -> None:
    """Have a coordinator of each: only these pull."""
    for world in worlds:
        world.ping()


def received(planner: Planner, count: int) -> list[int]:
    """Take leases until so many messages have come."""
    bookmarks: list[int] = []
    while len(bookmarks) < count:
        bookmarks += planner.bookmarks() if planner.next(wait_ms=1_000).messages else []
    planner.next()
    return bookmarks


def journal_of(world: World) -> Journal:
    """Return a journal as a user has it."""
    return Journal(world.store.path, storage_options=dict(world.store.storage_options))


def states(world: World) -> dict[str, int]:
    """Return how many messages of the queue are in each state."""
    found = journal_of(world).view("messages", queue=QUEUE)
    counts = found.group_by("state").aggregate([("state", "count")]).to_pylist()
    return {row["state"]: row["state_count"] for row in counts}


def owners(world: World) -> dict[str, int]:
    """Return how many messages of the queue each instance owns, as a journal says."""
    ledger = state_at(open_journal(world.store)).state.ledger(QUEUE)
    found: Counter[str] = Counter()
    for _, owner, rows in ledger.ownership.by_owner(ledger.standing):
        found[owner] += len(rows)
    return dict(found)
