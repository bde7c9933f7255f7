"""The page about copies and backups is done as it is written: a copy, what came after it, and the way back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_queue.errors import LeaseError
from tests.docs import pages
from tests.integration.coordinator_world import QUEUE, Planner, World
from tests.integration.sites import journal_of, peer, site, states
from tests.integration.source_journal import wait_until


@pytest.fixture
def made() -> Iterator[list[World]]:
    """Keep the journals of a test; their coordinators end with it."""
    worlds: list[World] = []
    yield worlds
    for world in worlds:
        world.end()


def done(name: str, place: Path) -> str:
    """Run commands of the page in the directory of the journal `shop`."""
    found = pages.run_commands(name, folder=place)
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout


def test_a_journal_is_put_back_from_its_copy(made: list[World], tmp_path: Path) -> None:
    world = World(tmp_path / "shop")
    made.append(world)
    world.publish(10)
    journal_of(world).queue(QUEUE).settle([0, 1, 2])
    done("copy_journal", tmp_path)

    world.publish(5)
    planner = Planner(world)
    wait_until(lambda: planner.next(limit=20).messages == 0 and journal_of(world).queue(QUEUE).status().acknowledged == 15)
    for file in (tmp_path / "shop" / "messages").rglob("*.parquet"):
        file.unlink()
    done("restore_journal", tmp_path)

    # What came after the copy is gone, and who knows of it is refused.
    status = journal_of(world).queue(QUEUE).status()
    assert (status.acknowledged, status.available) == (3, 7)
    restarted = Planner(world)
    restarted.lease = planner.lease
    with pytest.raises(LeaseError, match="CHECKPOINT_FOREIGN"):
        restarted.next()
    world.publish(5)
    # The refused one counts as a consumer for a while, and its share comes last.
    assert sorted(Planner(world, "with-an-empty-checkpoint").consume(limit=20)) == list(range(3, 15))


def test_an_instance_gets_back_from_its_peer_what_its_copy_does_not_have(made: list[World], tmp_path: Path) -> None:
    shop = site(str(tmp_path / "shop"), "frankfurt", {"virginia": peer(str(tmp_path / "other"))})
    other = site(str(tmp_path / "other"), "virginia", {"frankfurt": peer(str(tmp_path / "shop"))})
    made += [shop, other]
    shop.publish(4)
    shop.ping()
    other.ping()
    wait_until(lambda: states(other) == {"remote": 4})
    done("copy_journal", tmp_path)

    shop.ping()
    shop.publish(2)
    wait_until(lambda: states(other) == {"remote": 6})
    done("restore_journal", tmp_path)
    done("restore_instance", tmp_path)
    wait_until(lambda: states(shop).get("available") == 6)
