"""Journals that replicate, each with a real coordinator: every message is delivered once in the world (R100 to R105, R114)."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from spark_queue.errors import ConfigError, JournalError
from spark_queue.protocol import user_files
from spark_queue.protocol.host import location_of
from tests.integration.coordinator_world import Planner, World
from tests.integration.sites import MakeSite, journal_of, owners, ping, received, states
from tests.integration.source_journal import wait_until


@pytest.fixture
def frankfurt(make_site: MakeSite) -> World:
    return make_site("frankfurt", "virginia")


@pytest.fixture
def virginia(make_site: MakeSite, frankfurt: World) -> World:
    """Make the other one; from now on they pull from each other."""
    made = make_site("virginia", "frankfurt")
    ping([frankfurt, made])
    return made


def test_each_message_is_delivered_once_in_the_world(frankfurt: World, virginia: World) -> None:
    frankfurt.publish(5)
    virginia.publish(3)
    wait_until(lambda: states(frankfurt) == {"available": 5, "remote": 3})
    wait_until(lambda: states(virginia) == {"available": 3, "remote": 5})
    planner = Planner(virginia)
    received = planner.consume()
    # On a busy machine it may have asked for the others, too.
    assert len(set(received)) == len(received) >= 3
    wait_until(lambda: sum(states(frankfurt).values()) == 8 - len(received))


@pytest.mark.usefixtures("coordinators_are_started", "readers_are_started")
def test_no_process_of_ours_loads_pandas(make_site: MakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a coordinator, nor what reads its peer, nor `sparkq`, which all make arrays; it is a third of their start."""
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")
    worlds = [make_site("frankfurt", "virginia"), make_site("virginia", "frankfurt")]
    ping(worlds)
    store = worlds[0].store
    worlds[1].publish(3)
    wait_until(lambda: states(worlds[0]) == {"remote": 3})
    command = [sys.executable, "-m", "spark_queue.cli", "status", store.path]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    said += user_files.log_path(journal_of(worlds[0]).journal_id(), location_of(store)).read_text(encoding="utf-8")
    assert said.count(" pyarrow.lib\n") >= 3
    assert "pandas.core" not in said


def test_a_coordinator_tells_how_its_peer_is_pulled_and_what_does_not_fit(frankfurt: World, virginia: World) -> None:
    """R113: what another queue of the name says waits, and comes when it is the same again."""
    here, there = journal_of(frankfurt), journal_of(virginia)
    virginia.publish(3)
    wait_until(lambda: states(frankfurt) == {"remote": 3})
    (told,) = here.peer_status()
    assert (told.reachable, told.rows_copied, told.remote, told.trouble) == (True, 3, 3, None)
    assert here.check_peers().fits
    stored = dict(there.definitions().stored)
    there.apply({**stored, "queues": {"WORK": stored["queues"]["WORK"] | {"semantics": "at-most-once"}}})
    wait_until(lambda: "break R113.3" in str(here.queue("WORK").status().alarm))
    there.queue("WORK").purge()
    wait_until(lambda: here.peer_status()[0].records_behind == 0)
    assert states(frankfurt) == {"remote": 3}
    there.apply(stored)
    wait_until(lambda: states(frankfurt) == {})
    assert here.queue("WORK").status().alarm is None


def test_owners_and_filters_are_altered_at_one_site_after_the_other(frankfurt: World, virginia: World) -> None:
    """R129: docs/operations/instances.md, "Alter a shared queue"; meanwhile each message is delivered at one site, and once."""
    first, numbers = "get_json_object(value, '$.n')", [next(each._numbers) for each in (frankfurt, virginia)]
    owned = {"ownership": "group_local", "initial_owner": "virginia", "group_local_domain": "eu"}
    owned["filter"] = f"{first} <> '{numbers[0] + 1}' AND {first} <> '{numbers[1] + 1}'"
    journals = [journal_of(each) for each in (frankfurt, virginia)]
    stored = [dict(each.definitions().stored) for each in journals]
    altered = [{**each, "queues": {"WORK": each["queues"]["WORK"] | owned}} for each in stored]
    journals[0].apply(altered[0])
    for each in (frankfurt, virginia):
        each.publish(2)
    # All are virginia's, which frankfurt says of its own; of those of virginia frankfurt's filter would leave one out.
    wait_until(lambda: states(virginia) == {"available": 3})
    wait_until(lambda: states(frankfurt) == {"remote": 3})
    check = journals[1].check_peers()
    assert ({each.rule for each in check.broken}, check.fits) == ({"R113.6"}, True)
    planner = Planner(virginia)
    wait_until(lambda: planner.next(wait_ms=1_000).messages == 3)
    planner.next()
    wait_until(lambda: states(frankfurt) == {})
    journals[1].apply(altered[1])
    wait_until(lambda: {each.rule for each in journals[0].check_peers().broken} == set())


def test_who_leaves_hands_over_what_it_owns(frankfurt: World, virginia: World) -> None:
    """Docs/operations/instances.md, "An instance leaves for good", step 2: once the other has it, however early it is asked."""
    frankfurt.publish(3)
    assert journal_of(frankfurt).peer("virginia").drain() == 3
    wait_until(lambda: states(virginia) == {"available": 3})


def test_a_queue_that_is_taken_out_and_put_back_delivers_nothing_again(frankfurt: World, virginia: World) -> None:
    """R130: docs/operations/instances.md, "An instance leaves a queue"; others know what became of its messages."""
    frankfurt.publish(4)
    virginia.publish(1)
    wait_until(lambda: states(virginia) == {"available": 1, "remote": 4})
    planner = Planner(frankfurt)
    wait_until(lambda: planner.next(limit=3, wait_ms=1_000).messages == 3)
    planner.next(limit=0)
    wait_until(lambda: states(virginia) == {"available": 1, "remote": 1})
    journal = journal_of(frankfurt)
    stored = dict(journal.definitions().stored)
    peers = {"virginia": {name: value for name, value in stored["peers"]["virginia"].items() if name != "queues"}}
    without = {**stored, "queues": {}, "peers": peers}
    with pytest.raises(
        ConfigError, match=r"1 message belongs to this instance.*sparkq peers drain.*leave=\['WORK'\], or --leave WORK"
    ):
        journal.apply(without, remove=["WORK"])
    journal.apply(without, leave=["WORK"])
    virginia.publish(1)
    wait_until(lambda: states(virginia) == {"available": 2, "remote": 1})
    journal.apply(stored)
    again = Planner(frankfurt)
    wait_until(lambda: again.next(wait_ms=1_000).messages > 0)
    assert again.bookmarks() == [3]
    wait_until(lambda: states(frankfurt) == {"leased": 1, "remote": 2})


def test_a_backlog_goes_to_who_waits_for_it(frankfurt: World, virginia: World) -> None:
    frankfurt.publish(5)
    planner = Planner(virginia)
    wait_until(lambda: planner.next(wait_ms=1_000).messages > 0)
    wait_until(lambda: states(frankfurt) == {"remote": 5})
    assert planner.bookmarks() == [0, 1, 2, 3, 4]


def test_a_lost_site_is_served_by_the_other_until_it_comes_back(frankfurt: World, virginia: World, tmp_path: Path) -> None:
    """R112: the steps of "A site is lost" in docs/operations/instances.md."""
    virginia.publish(4)
    wait_until(lambda: states(frankfurt) == {"remote": 4})
    virginia.end()
    (tmp_path / "virginia").rename(tmp_path / "lost")
    journal_of(frankfurt).queue("WORK").proxied_transfer(on=True)
    assert received(Planner(frankfurt), 4) == [0, 1, 2, 3]
    (tmp_path / "lost").rename(tmp_path / "virginia")
    virginia.ping()
    wait_until(lambda: states(virginia) == {})
    journal_of(frankfurt).queue("WORK").proxied_transfer(on=False)
    frankfurt.publish(2)
    wait_until(lambda: states(virginia) == {"remote": 2})
    back = Planner(virginia)
    wait_until(lambda: back.next(wait_ms=1_000).messages > 0)


@pytest.mark.drawn(1)
@pytest.mark.parametrize("other", ["runs", "does not run", "is lost"])
def test_a_site_that_comes_back_late_hears_the_other_first(frankfurt: World, virginia: World, tmp_path: Path, other: str) -> None:
    """R130: the steps of "An instance comes back late" in docs/operations/instances.md."""
    virginia.publish(4)
    wait_until(lambda: states(frankfurt) == {"remote": 4})
    virginia.end()
    beacon = tmp_path / "virginia" / "beacon.json"
    told = json.loads(beacon.read_text())
    beacon.write_text(json.dumps({**told, "number": told["number"] - 3_600}))
    if other != "runs":
        frankfurt.end()
    if other == "is lost":
        (tmp_path / "frankfurt").rename(tmp_path / "lost")
    planner, journal = Planner(virginia), journal_of(virginia)
    wait_until(lambda: "[RETURNING]" in str(journal.queue("WORK").status().alarm))
    if other == "is lost":
        assert planner.next(wait_ms=1_000).messages == 0
        assert "PEER_AWAY" in str(journal.peer_status()[0].trouble)
        assert "[RETURNING]" in str(journal.queue("WORK").explain(0).reason)
        journal.peer("frankfurt").return_without()
    wait_until(lambda: planner.next(wait_ms=1_000).messages > 0)
    assert planner.bookmarks() == [0, 1, 2, 3]
    # That a peer cannot be read is an alarm, too, once it has lasted.
    assert "RETURNING" not in str(journal.queue("WORK").status().alarm)
    if other == "is lost":
        (tmp_path / "lost").rename(tmp_path / "frankfurt")


def test_a_site_that_was_put_back_from_a_backup_gets_back_what_it_lost(frankfurt: World, virginia: World, tmp_path: Path) -> None:
    """The steps of "A journal was restored from a backup" in docs/operations/instances.md."""
    virginia.publish(4)
    wait_until(lambda: states(frankfurt) == {"remote": 4})
    virginia.end()
    shutil.copytree(tmp_path / "virginia", tmp_path / "copy")
    virginia.ping()
    virginia.publish(2)
    wait_until(lambda: states(frankfurt) == {"remote": 6})
    virginia.end()
    shutil.rmtree(tmp_path / "virginia")
    (tmp_path / "copy").rename(tmp_path / "virginia")
    planner = Planner(virginia)
    with pytest.raises(JournalError, match=r"JOURNAL_RESTORED.*sparkq mark-restored"):
        # Nothing is granted before the peer was searched.
        wait_until(lambda: planner.next(wait_ms=1_000).messages > 0)
    journal = journal_of(virginia)
    wait_until(lambda: "[JOURNAL_RESTORED]" in str(journal.queue("WORK").status().alarm))
    assert "sparkq mark-restored" in next(row["alarm"] for row in journal.view("status").to_pylist())
    wait_until(lambda: "[PEER_RESTORED]" in str(journal_of(frankfurt).queue("WORK").status().alarm))
    for verb in ("status", "doctor", "verify"):
        said = subprocess.run([sys.executable, "-m", "spark_queue.cli", verb, journal.path], capture_output=True, check=False)
        told = b" ".join((said.stdout + said.stderr).split())
        assert (said.returncode != 0, b"JOURNAL_RESTORED" in told, b"sparkq mark-restored" in told) == (True, True, True), told
    journal.mark_restored()
    virginia.publish(1)
    wait_until(lambda: states(virginia) == {"available": 7})
    wait_until(lambda: states(frankfurt) == {"remote": 7})


def test_a_publisher_goes_on_at_the_other_site_when_one_is_lost(frankfurt: World, virginia: World) -> None:
    rows = [{"value": f'{{"n": {number}}}'} for number in range(10)]
    there, here = (journal_of(each) for each in (virginia, frankfurt))
    there.publish(rows[:4], topic="ORDERS", publisher="app", first_sequence=1)
    wait_until(lambda: states(frankfurt) == {"remote": 4})
    virginia.end()
    there.publish(rows[4:7], topic="ORDERS", publisher="app", first_sequence=5)
    # What it did not hear an answer to it gives to the other site, too.
    assert here.publish(rows[:4], topic="ORDERS", publisher="app", first_sequence=1).rows == 0
    here.publish(rows[4:10], topic="ORDERS", publisher="app", first_sequence=5)
    virginia.ping()
    wait_until(lambda: sum(states(virginia).values()) == sum(states(frankfurt).values()) == 10)
    wait_until(lambda: states(frankfurt) == {"available": 3, "remote": 7})
    assert states(virginia) == {"available": 7, "remote": 3}


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
