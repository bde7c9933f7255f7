"""Two journals on disk that pull from each other: what a late puller finds, and what it misses (DESIGN 17.3)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyroaring import BitMap64

from spark_queue.core import commands
from spark_queue.core.records import Kind
from spark_queue.core.state.lifecycle import State
from spark_queue.errors import ConfigError, JournalError
from spark_queue.journal import upkeep
from spark_queue.journal.message_compaction import worth_merging
from spark_queue.journal.store import log_key
from spark_queue.replication import peer_log, puller
from spark_queue.replication.exchange import ApplyPulled
from spark_queue.replication.peer_log import LISTING_LOOKS
from spark_queue.replication.puller import Puller
from tests.fake_clock import FakeClock
from tests.records import detail_of
from tests.sites_on_disk import LIMITS, Site, exchange, two_sites
from tests.unit.replication.sites import NAMES, definitions, three_sites
from tests.unit.replication.sites import Site as SiteWithLoop

HOUR_MS = 3600 * 1000
DAY_MS = 24 * HOUR_MS
MINUTE_MS = 60_000


def with_other(name: str) -> dict[str, Any]:
    """Return the definitions of an instance that shares another queue, too."""
    known = definitions(name)
    peers = {each: {**peer, "queues": [*peer["queues"], "OTHER"]} for each, peer in known["peers"].items() if each in NAMES[:2]}
    return {**known, "peers": peers, "queues": {**known["queues"], "OTHER": {"underlying_topic": "U"}}}


@pytest.fixture
def pair(tmp_path: Path, clock: FakeClock) -> tuple[Site, Site]:
    """Make two sites; the second lets messages go after an hour."""
    return two_sites(tmp_path, clock, journal={"retention": "1h"})


def consumed(site: Site, *values: str) -> None:
    """Publish messages that are soon done with, in a file of their own."""
    site.publish(*values)
    assert site.consume(len(values)) == list(values)


def retired_after(site: Site, passed_ms: int) -> int:
    """Return how many messages a site has let go when some time has passed."""
    site.clock.advance(passed_ms)
    site.tick()
    return site.known.retired_rows


def test_a_late_puller_finds_merged_files_in_a_log_that_was_cleaned_up(
    here: Site, there: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange(here, there)
    monkeypatch.setattr(upkeep, "CONTROL_CHECKPOINT_COMMITS", 3)
    monkeypatch.setattr(upkeep, "CONTROL_KEPT_COMMITS", 1)
    monkeypatch.setattr(upkeep, "CONTROL_KEPT_MS", -DAY_MS * 10_000)
    for number in range(6):
        there.publish(f"a{number}", f"b{number}")
        there.upkeep()
    there.upkeep()
    assert there.known.segments[0].merged
    assert not Path(there.store.path, "control", "_delta_log", f"{3:020d}.json").exists()
    for _ in range(LISTING_LOOKS):
        # Entries that are not there may be an end; the log is listed now and then only.
        here.pull("virginia")
    assert sorted(here.values().values()) == sorted(f"{letter}{number}" for letter in "ab" for number in range(6))
    assert here.in_state(State.REMOTE) == list(here.values().values())


def test_a_delay_is_the_same_at_each_site_and_goes_on_with_a_new_owner(here: Site, there: Site, clock: FakeClock) -> None:
    """R128: also of messages that stand in a merged file."""
    exchange(here, there)
    for delay_ms in (HOUR_MS, 2 * HOUR_MS, None):
        there.publish_rows(pa.table({"item": [f"{delay_ms}"]}), delay_ms=delay_ms)
    there.upkeep()
    there.admit()
    assert there.known.segments[0].merged
    exchange(here, there)
    due = [segment.due_at_ms for segment in there.known.segments]
    assert due == [segment.due_at_ms for segment in here.known.segments] == [clock.wall_ms() + HOUR_MS, due[1], None]
    there.decide(commands.DrainTo(peer="frankfurt"))
    exchange(here, there)
    assert here.in_state(State.DELAYED) == [f"{HOUR_MS}", f"{2 * HOUR_MS}"]
    assert here.consume(9) == ["None"]
    clock.advance(HOUR_MS)
    assert here.consume(9) == [f"{HOUR_MS}"]


def test_what_was_cancelled_with_a_delay_is_free_for_a_new_owner_and_for_the_old_one(
    here: Site, there: Site, clock: FakeClock
) -> None:
    """Only a publisher's delay is kept: of another the new owner knows nothing, and it would be asked for in vain."""
    there.publish("a")
    exchange(here, there)
    there.state.queues["WORK"].delivered.increment(BitMap64([0]))
    there.state.queues["WORK"].postpone(BitMap64([0]), clock.wall_ms() + HOUR_MS)
    there.decide(commands.DrainTo(peer="frankfurt"))
    exchange(here, there)
    assert here.in_state(State.AVAILABLE) == ["a"]
    here.decide(commands.DrainTo(peer="virginia"))
    exchange(here, there)
    assert there.in_state(State.AVAILABLE) == ["a"]
    assert there.state.queues["WORK"].not_before == {}


def test_a_delay_ends_with_the_life_of_its_message(here: Site, there: Site) -> None:
    there.publish_rows(pa.table({"item": ["late"]}), delay_ms=HOUR_MS)
    exchange(here, there)
    there.decide(commands.DrainTo(peer="frankfurt"))
    exchange(here, there)
    here.settle("expire", 0)
    exchange(here, there)
    assert here.state.queues["WORK"].not_before == there.state.queues["WORK"].not_before == {}
    here.decide(commands.Redrive(queue="WORK", ranges=((0, 1),)))
    exchange(here, there)
    here.decide(commands.DrainTo(peer="virginia"))
    exchange(here, there)
    assert there.in_state(State.AVAILABLE) == ["late"]


def test_messages_of_several_delays_are_merged_whole(there: Site) -> None:
    """What is merged again is whole files: of a part of one the other rows left the table, and a vacuum would take the file."""
    for number in range(6):
        there.publish_rows(pa.table({"item": [str(number)]}), delay_ms=(number + 1) * HOUR_MS)
        there.upkeep()
    there.admit()
    assert there.known.segments[0].merged
    paths = {segment.path for segment in there.known.segments}
    chosen = [file.path for run in worth_merging(there.known.segments, dict.fromkeys(paths, 1), LIMITS.merging) for file in run]
    assert len(set(chosen)) == len(chosen)
    table = DeltaTable(there.store.messages_uri("line"))
    assert sorted(map(str, table.to_pyarrow_table(columns=["item"]).column("item").to_pylist())) == list("012345")
    for version in range(table.version() + 1):
        entry = Path(there.store.uri(log_key("messages/line", version))).read_text().splitlines()
        removed = [action["remove"]["path"] for action in map(json.loads, entry) if "remove" in action]
        assert len(set(removed)) == len(removed)


@pytest.mark.parametrize("keys", [{}, {"target_queue_depth": 1_000}], ids=["", "target depth"])
def test_a_delay_goes_back_with_a_message(here: Site, there: Site, clock: FakeClock, keys: dict[str, Any]) -> None:
    """R128: who has held it as delayed, and gave it away, holds it so again; its turn comes first."""
    if keys:
        here.publish(*(["x"] * 1_000))
    for site in (here, there):
        queues = site.definitions.stored["queues"]
        site.define(queues={**queues, "WORK": {**queues["WORK"], **keys}})
    exchange(here, there)
    there.publish_rows(pa.table({"item": ["late"]}), delay_ms=HOUR_MS)
    exchange(here, there)
    there.decide(commands.DrainTo(peer="frankfurt"))
    exchange(here, there)
    assert here.in_state(State.INACTIVE if keys else State.DELAYED) == ["late"]
    assert here.consume(1_000) == ["x"] * (1_000 if keys else 0)
    assert here.in_state(State.DELAYED) == ["late"]
    here.decide(commands.DrainTo(peer="virginia"))
    exchange(here, there)
    assert there.in_state(State.DELAYED) == ["late"]
    assert there.consume(9) == []
    clock.advance(HOUR_MS)
    assert there.consume(9) == ["late"]


@pytest.mark.parametrize("aside", ["WORK", "FAILED"])
def test_a_queue_that_was_set_aside_hears_of_its_peers_what_it_missed(tmp_path: Path, clock: FakeClock, aside: str) -> None:
    """R122: meanwhile messages come, and are settled or redriven; queues that have nothing to do with it hear of theirs at once."""
    here, there = (SiteWithLoop(tmp_path / name, clock, with_other(name)) for name in NAMES[:2])
    there.publish(1, 2, 3, 7, 8)
    there.publish(4, 5, message_type="json")
    there.settle("expire", 3, 4)
    here.pull("virginia", there.path)
    here.engine.set_aside(aside, "a bug", now_ms=clock.wall_ms())
    there.publish(6)
    there.settle("acknowledge", 0)
    there.settle("expire", 1)
    there.ask(commands.Redrive, queue="WORK", ranges=((3, 4),))
    there.settle("acknowledge", 0, queue="OTHER")
    there.settle("acknowledge", 4, queue="FAILED")
    assert here.pull("virginia", there.path) is None
    assert here.told()["OTHER"] == {
        State.REMOTE: there.told()["OTHER"][State.AVAILABLE],
        State.REMOVED: [(there.state.journal_id, 0)],
    }
    here.begin()
    here.ask(commands.Revive, queue=aside)
    assert here.pull("virginia", there.path) is None
    told = {
        "WORK": {State.REMOTE: [2, 3, 5], State.REMOVED: [0, 4], State.DEAD: [1]},
        "FAILED": {State.REMOTE: [1], State.REMOVED: [3, 4]},
    }
    for queue, rows_in in told.items():
        assert here.told()[queue] == {state: [(there.state.journal_id, row) for row in rows] for state, rows in rows_in.items()}


def test_files_wait_for_a_peer_until_it_has_pulled_them(here: Site, there: Site) -> None:
    exchange(here, there)
    consumed(there, "a", "b")
    assert retired_after(there, 2 * HOUR_MS) == 0
    here.pull("virginia")
    assert retired_after(there, MINUTE_MS) == 0, "it has not heard yet that they were pulled"
    there.pull("frankfurt")
    assert retired_after(there, MINUTE_MS) == 2


def test_files_wait_for_a_peer_that_this_reign_has_not_read_yet(here: Site, there: Site) -> None:
    consumed(there, "a")
    exchange(here, there)
    there.begin()
    assert retired_after(there, 2 * HOUR_MS) == 0
    there.pull("frankfurt")
    assert retired_after(there, MINUTE_MS) == 1


def test_files_do_not_wait_for_who_pulls_nothing(tmp_path: Path, clock: FakeClock) -> None:
    Site(tmp_path, "frankfurt", [], clock)
    there = Site(tmp_path, "virginia", ["frankfurt"], clock, journal={"retention": "1h"})
    consumed(there, "a")
    there.pull("frankfurt")
    assert retired_after(there, 2 * HOUR_MS) == 1


def test_what_a_peer_let_go_in_the_end_is_told_and_somebody_may_skip_it(here: Site, there: Site) -> None:
    exchange(here, there)
    consumed(there, "a", "b")
    assert retired_after(there, 7 * DAY_MS + MINUTE_MS) == 2
    there.publish("c")
    with pytest.raises(JournalError, match=r"PEER_GAP.*2 messages.*bookmarks 0 to 1: .*sparkq peers skip .*virginia"):
        here.pull("virginia")
    assert here.values() == {}
    with pytest.raises(ConfigError, match=r"UNKNOWN_PEER.*virginia"):
        here.decide(commands.SkipLost(peer="virgina"))
    here.decide(commands.SkipLost(peer="virginia"))
    here.pull("virginia")
    assert here.values() == {0: "c"}
    assert lost(here) == 2
    assert here.state.peer_changes.skips == set(), "what is lost later is told again"


def lost(site: Site) -> int:
    return sum(detail_of(record).get("lost", 0) for record in site.records() if record.kind == Kind.PULLED)


def delete_retired(site: Site) -> None:
    """Delete the files of everything that was published, all of which is retired."""
    segments = site.known.segments
    assert all(each.retired for each in segments)
    for each in segments:
        Path(site.store.path, "messages", "line", each.path).unlink(missing_ok=True)


class DiedError(Exception):
    """The coordinator is no more."""


def pull_and_die(site: Site, peer: str, monkeypatch: pytest.MonkeyPatch, *, after: int) -> None:
    """Let a coordinator take so many parts of what a peer has, and die."""
    give, given = Puller._give, list[Any]()

    def dying(puller: Puller, read: Any) -> None:
        given.append(read)
        if len(given) > after:
            raise DiedError
        give(puller, read)

    with monkeypatch.context() as patched:
        patched.setattr(Puller, "_give", dying)
        with pytest.raises(DiedError):
            site.pull(peer)
    site.begin()


@pytest.mark.parametrize("dies", [False, True])
def test_who_skips_what_is_lost_skips_all_of_it(here: Site, there: Site, monkeypatch: pytest.MonkeyPatch, *, dies: bool) -> None:
    """Over chunks and crashes, up to where the peer was then; what it lets go later is told again."""
    exchange(here, there)
    consumed(there, "a", "b")
    consumed(there, "c", "d")
    assert retired_after(there, 7 * DAY_MS + MINUTE_MS) == 4
    delete_retired(there)
    monkeypatch.setattr(peer_log, "CHUNK_RECORDS", 2)
    with pytest.raises(JournalError, match=r"PEER_GAP.*bookmarks 0 to 1"):
        here.pull("virginia")
    here.decide(commands.SkipLost(peer="virginia"))
    if dies:
        pull_and_die(here, "virginia", monkeypatch, after=2)
        assert lost(here) == 2, "and two more are to be missed"
    here.pull("virginia")
    assert lost(here) == 4
    consumed(there, "e")
    assert retired_after(there, 7 * DAY_MS + MINUTE_MS) == 5
    delete_retired(there)
    with pytest.raises(JournalError, match=r"PEER_GAP.*bookmarks 4 to 4"):
        here.pull("virginia")


@pytest.mark.parametrize("dies", [False, True])
def test_what_was_gone_before_an_instance_joined_is_no_gap_also_for_the_next_coordinator(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, *, dies: bool
) -> None:
    there = Site(tmp_path, "virginia", [], clock, journal={"retention": "1h"})
    consumed(there, "a", "b")
    consumed(there, "c", "d")
    assert retired_after(there, 2 * HOUR_MS) == 4
    delete_retired(there)
    there.publish("e")
    here = Site(tmp_path, "frankfurt", ["virginia"], clock)
    if dies:
        monkeypatch.setattr(puller, "PART_ROWS", 1)
        pull_and_die(here, "virginia", monkeypatch, after=1)
    here.pull("virginia")
    assert here.values() == {0: "e"}


def test_what_comes_by_two_ways_at_once_stands_once(tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN 17.3: what was copied is compared once more with what is here by then."""
    here, virginia, tokyo = three_sites(tmp_path, clock).values()
    hand_over = here.hand_over

    def overtaken(pulled: ApplyPulled) -> bool:
        monkeypatch.setattr(here, "hand_over", hand_over)
        assert here.pull("tokyo", tokyo.path) is None
        return hand_over(pulled)

    monkeypatch.setattr(here, "hand_over", overtaken)
    assert here.pull("virginia", virginia.path) is None
    here.check()
