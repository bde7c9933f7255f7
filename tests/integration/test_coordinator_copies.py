"""A copied journal is a journal of its own: its hint and its last claim lead to the original, and nobody must act there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from spark_queue import Journal
from spark_queue.client.coordinator_client import call_once
from spark_queue.core import replies
from spark_queue.errors import CoordinatorError
from spark_queue.protocol import wire
from tests.integration.coordinator_world import DEADLINE_S, QUEUE, World, request_id, wait_for_end
from tests.records import detail_of


@contextmanager
def coordinators_end(*journals: Journal) -> Iterator[None]:
    """Stop what the block started."""
    try:
        yield
    finally:
        for journal in journals:
            with suppress(CoordinatorError):
                pid = ping(journal).pid
                call_once(journal.store, journal.journal_id(), wire.Stop(), start=False)
                wait_for_end(pid)


def ping(journal: Journal) -> wire.Pong:
    reply = call_once(journal.store, journal.journal_id(), wire.Ping(), endpoint=journal.endpoint, start=False)
    assert isinstance(reply, wire.Pong)
    return reply


def depth(journal: Journal) -> object:
    return journal.queue(QUEUE).status().queue_depth


def pid_at_rest(world: World) -> int:
    """Have a coordinator that has recovered and written all that there is to write: its files can be taken from under it."""
    nudge = wire.Nudge(journal=world.journal_id, request=request_id(), message_type="json")
    assert isinstance(world.client().call(nudge, timeout_s=DEADLINE_S), replies.Done)
    return world.ping().pid


def test_a_copy_made_while_a_coordinator_serves_the_original_acts_on_itself_alone(world: World, tmp_path: Path) -> None:
    world.publish(3)
    original_pid = pid_at_rest(world)
    copied = shutil.copytree(world.store.path, tmp_path / "copy")
    original, copy = Journal(world.store.path), Journal(str(copied))
    with coordinators_end(copy, original):
        with pytest.raises(CoordinatorError, match="COORDINATOR_UNAVAILABLE.*none is running"):
            ping(copy)
        assert copy.queue(QUEUE).purge().purged == 3
        assert (depth(copy), depth(original)) == (0, 3)
        # Both go on side by side, with the user's one token and one log.
        assert ping(original).pid == original_pid
        assert ping(copy).pid != original_pid
        assert len(world.claims()) == 1
        assert original.queue(QUEUE).purge().purged == 3


def test_a_coordinator_that_is_named_for_a_copy_is_refused_when_it_serves_the_original(world: World, tmp_path: Path) -> None:
    world.publish(3)
    pid_at_rest(world)
    address = str(detail_of(world.claims()[-1])["address"])
    copied = shutil.copytree(world.store.path, tmp_path / "copy")
    with coordinators_end(Journal(world.store.path)):
        with pytest.raises(CoordinatorError, match="COORDINATOR_UNAVAILABLE.*is elsewhere"):
            ping(Journal(str(copied), coordinator=address))
        assert ping(Journal(world.store.path, coordinator=address)).epoch == 1


def test_a_link_to_a_journal_leads_to_its_coordinator(world: World, tmp_path: Path) -> None:
    pid = world.ping().pid
    link = tmp_path / "link"
    link.symlink_to(world.store.path)
    with coordinators_end(Journal(world.store.path)):
        assert ping(Journal(str(link))).pid == pid


def test_a_copy_that_took_the_originals_path_has_its_coordinator_too(world: World, tmp_path: Path) -> None:
    """The coordinator works by path, so it is asked where that leads now."""
    world.publish(3)
    pid = pid_at_rest(world)
    moved = tmp_path / "moved"
    os.rename(world.store.path, moved)  # noqa: PTH104  # Says what it is about.
    shutil.copytree(moved, world.store.path)
    here, there = Journal(world.store.path), Journal(str(moved))
    with coordinators_end(here, there):
        assert there.queue(QUEUE).purge().purged == 3
        assert (depth(there), depth(here)) == (0, 3)
        assert ping(here).pid == pid
