"""More than two instances, each with a real coordinator: a chain, a triangle, and an archive (R100, R114)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.integration.coordinator_world import Planner, World
from tests.integration.sites import MakeSite, owners, ping, received, states
from tests.integration.source_journal import wait_until


def all_say(worlds: Sequence[World], what: Callable[[World], dict[str, int]], expected: dict[str, int]) -> None:
    """Wait until each journal says the same of its messages."""
    wait_until(lambda: all(what(world) == expected for world in worlds))


def test_along_a_chain_messages_outcomes_and_ownership_reach_the_other_end(make_site: MakeSite) -> None:
    """Frankfurt and tokyo do not know each other: what one says reaches the other through virginia (R100)."""
    chain = [make_site("frankfurt", "virginia"), make_site("virginia", "frankfurt", "tokyo"), make_site("tokyo", "virginia")]
    ping(chain)
    frankfurt, virginia, tokyo = chain
    frankfurt.publish(4)
    all_say(chain, owners, {"frankfurt": 4})
    middle = Planner(virginia)
    wait_until(lambda: middle.next(wait_ms=1_000).messages > 0)
    all_say(chain, owners, {"virginia": 4})
    assert middle.bookmarks() == [0, 1, 2, 3]
    middle.next()
    all_say(chain, owners, {})
    tokyo.publish(2)
    all_say(chain, owners, {"tokyo": 2})
    received(Planner(tokyo), 2)
    all_say(chain, states, {})


def test_what_may_not_pass_through_a_peer_stays_there(make_site: MakeSite) -> None:
    frankfurt, virginia = make_site("frankfurt", "virginia"), make_site("virginia", "frankfurt")
    tokyo = make_site("tokyo", "virginia", passthrough=[])
    ping([frankfurt, virginia, tokyo])
    frankfurt.publish(4)
    wait_until(lambda: owners(virginia) == {"frankfurt": 4})
    virginia.publish(3)
    wait_until(lambda: owners(tokyo) == {"virginia": 3})
    planner = Planner(frankfurt)
    wait_until(lambda: planner.next(limit=4, wait_ms=1_000).messages == 4)
    # Who has no room asks for none of virginia's.
    planner.next(limit=0)
    wait_until(lambda: states(virginia) == {"available": 3})
    virginia.publish(1)
    wait_until(lambda: owners(tokyo) == {"virginia": 4})
    assert states(tokyo) == {"remote": 4}


def test_in_a_triangle_each_message_comes_once_and_is_delivered_once(make_site: MakeSite) -> None:
    names = ("frankfurt", "virginia", "tokyo")
    triangle = [make_site(name, *(other for other in names if other != name)) for name in names]
    ping(triangle)
    for number, world in enumerate(triangle):
        world.publish(2 + number)
    all_say(triangle, owners, {"frankfurt": 2, "virginia": 3, "tokyo": 4})
    planners, count = [Planner(world) for world in triangle], 0
    while any(states(world) for world in triangle):
        count += sum(planner.next(wait_ms=300).messages for planner in planners)
    assert count == 9


def test_an_archive_pulls_messages_alone(make_site: MakeSite) -> None:
    """It has no outcomes and no owners: its queue, if it has one, is its own, and nobody need pull from it (R114)."""
    frankfurt, archive = worlds = [make_site("frankfurt"), make_site("archive", "frankfurt", queues=[])]
    ping(worlds)
    frankfurt.publish(5)
    wait_until(lambda: states(archive) == {"available": 5})
    assert received(Planner(frankfurt), 5) == list(range(5))
    frankfurt.publish(1)
    wait_until(lambda: states(archive) == {"available": 6})
    assert received(Planner(archive), 6) == list(range(6))
    assert states(frankfurt) == {"available": 1}
