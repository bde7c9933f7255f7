"""A journal that was put back from a backup, or made anew: nobody takes new messages for lost ones (DESIGN 17.3)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spark_queue.core import commands, folds
from spark_queue.core.records import Kind, Record
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.lifecycle import State
from spark_queue.errors import CallerError, JournalError
from spark_queue.journal.store import Store
from spark_queue.replication import peer_log, restored
from spark_queue.replication.peer_log import LISTING_LOOKS
from spark_queue.replication.puller import Puller
from spark_queue.verification.state_digest import digest
from tests.deciding import started
from tests.fake_clock import FakeClock
from tests.records import record_of
from tests.sites_on_disk import Site, exchange, two_sites
from tests.unit.replication.test_changed_definitions import declare


@pytest.fixture
def pair(tmp_path: Path, clock: FakeClock) -> tuple[Site, Site]:
    """Make two sites, of which the second has published two messages and was backed up."""
    here, there = two_sites(tmp_path, clock)
    there.publish("a", "b")
    exchange(here, there)
    there.back_up()
    return here, there


def pull_often(site: Site, peer: str) -> None:
    """Look so often that the log is looked at whole: what ends earlier than before is no news for a while."""
    for _ in range(LISTING_LOOKS):
        site.pull(peer)


def lose(here: Site, there: Site, item: str = "lost") -> None:
    """Let a site publish what the other one pulls, and be put back from its backup."""
    there.publish(item)
    exchange(here, there)
    there.restore()


def say_restored(site: Site, peer: str, *, origin: str = "another-origin") -> None:
    """Let a site find out that it was restored, and say so."""
    with pytest.raises(JournalError, match=r"JOURNAL_RESTORED.*sparkq mark-restored") as told:
        site.pull(peer)
    site.engine.liveness.restored = told.value
    with pytest.raises(JournalError, match="JOURNAL_RESTORED"):
        site.consume(1)
    site.decide(commands.Restored(origin=origin))
    site.engine.liveness.restored = None


def folded(site: Site) -> JournalState:
    state = JournalState(site.opened.traits)
    folds.fold_all(state, site.records())
    return state


def test_what_a_restored_journal_lost_comes_back_and_nothing_new_is_taken_for_it(here: Site, there: Site) -> None:
    there.publish("lost")
    assert there.consume(1) == ["a"]
    exchange(here, there)
    there.restore()
    there.publish("new")
    with pytest.raises(JournalError, match=r"PEER_RESTORED.*sparkq mark-restored"):
        pull_often(here, "virginia")
    say_restored(there, "frankfurt")
    there.publish("newer")
    there.pull("frankfurt")
    assert there.in_state(State.AVAILABLE) == ["b", "new", "newer", "lost"], "what it had acknowledged is gone again"
    exchange(here, there)
    assert here.in_state(State.REMOTE) == ["b", "lost", "new", "newer"]
    there.begin()
    assert there.consume(3) == ["b", "new", "newer"]
    exchange(here, there)
    assert here.in_state(State.REMOTE) == ["lost"]
    here.publish("more")
    exchange(here, there)
    assert there.in_state(State.REMOTE) == ["more"]
    for site in (here, there):
        assert digest(folded(site)) == digest(site.state)


def test_who_is_to_read_all_of_a_peer_again_finds_out_that_it_was_restored(here: Site, there: Site) -> None:
    """Columns were altered here meanwhile: new messages of there have the names of lost ones."""
    there.publish("lost")
    exchange(here, there)
    declare(here, "item STRING, size INT")
    there.restore()
    there.publish("new")
    with pytest.raises(JournalError, match=r"PEER_RESTORED.*sparkq mark-restored"):
        here.pull("virginia")
    say_restored(there, "frankfurt")
    exchange(here, there)
    assert here.in_state(State.REMOTE) == ["a", "b", "lost", "new"]


@pytest.mark.parametrize("has_told_before", [False, True])
def test_who_died_before_it_said_what_it_had_copied_tells_all_the_same(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, *, has_told_before: bool
) -> None:
    here, there = two_sites(tmp_path, clock)
    there.publish("a", "b")
    if has_told_before:
        here.pull("virginia")
    there.back_up()
    there.publish("lost")
    with monkeypatch.context() as dying:
        dying.setattr(here.engine, "pull", lambda *_, **__: None)
        here.pull("virginia")
    there.pull("frankfurt")
    there.restore()
    there.publish("new", enters=False)
    with pytest.raises(JournalError, match="pulled message 2 of type 'line'"):
        there.pull("frankfurt")
    say_restored(there, "frankfurt")
    there.enter()
    here.begin()
    exchange(here, there)
    exchange(here, there)
    for site, state in ((here, State.REMOTE), (there, State.AVAILABLE)):
        # Of what had never been told to be pulled nobody knows what the copy had.
        found = site.in_state(state)
        assert sorted(found if has_told_before else set(found)) == ["a", "b", "lost", "new"]


def test_what_is_published_and_copied_while_a_peer_is_read_ahead_is_not_lost(
    here: Site, there: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The peer's log is newer than what was known here when the puller began."""
    listed = peer_log.scan
    copied: list[bool] = []

    def scan(store: Store, peer: str, *others: Any, **more: Any) -> Iterator[Record]:
        if peer == "frankfurt" and not copied:
            copied.append(True)
            there.publish("meanwhile")
            here.pull("virginia")
        return listed(store, peer, *others, **more)

    monkeypatch.setattr(restored, "scan", scan)
    there.begin()
    assert there.pull("frankfurt") is None
    assert copied


def test_a_third_instance_learns_of_the_new_origin_by_a_peer(here: Site, there: Site, tmp_path: Path, clock: FakeClock) -> None:
    lose(here, there)
    there.publish("new")
    say_restored(there, "frankfurt")
    exchange(here, there)
    third = Site(tmp_path, "tokyo", ["frankfurt", "virginia"], clock)
    third.pull("frankfurt")
    third.pull("virginia")
    assert sorted(third.in_state(State.REMOTE)) == ["a", "b", "lost", "new"]
    assert there.consume(9) == ["a", "b", "new", "lost"]
    exchange(here, there)
    third.pull("virginia")
    third.pull("frankfurt")
    assert third.in_state(State.REMOTE) == here.in_state(State.REMOTE) == []


def test_however_often_a_log_says_how_far_it_has_pulled_little_of_it_is_kept(here: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever may write there could fill the memory; and what only says that a log is read again is nobody's watermark."""
    said = {"v": 1, "peer": "frankfurt", "journal": here.state.journal_id, "digest": "f" * 64}
    records = [
        record_of(
            kind=Kind.PULLED, record=number, epoch=1, at_ms=number, detail={**said, "number": number if number < 9_999 else -1}
        )
        for number in range(10_000)
    ]
    monkeypatch.setattr(restored, "scan", lambda *_, **__: iter(records))
    told, _ = restored.told_ahead(here.store, "tokyo", here._look("virginia"))
    assert [record.record for record in told] == [9_998]


def test_it_is_said_once_also_before_the_peers_have_pulled_again(here: Site, there: Site) -> None:
    lose(here, there)
    say_restored(there, "frankfurt")
    there.begin()
    there.pull("frankfurt")
    assert there.consume(9) == ["a", "b", "lost"]


def test_what_was_published_after_a_restore_is_given_to_who_asks_and_not_called_gone(
    here: Site, there: Site, clock: FakeClock
) -> None:
    """Its origin is another one by now, and what has it is here all the same."""
    lose(here, there)
    say_restored(there, "frankfurt")
    there.publish("new")
    exchange(here, there)
    clock.advance(10_000)
    planner = started(here.engine, "WORK", "s", max_backlog=1_000, now_ms=here.now_ms)
    here.engine.ask_owners(commands.Next(**planner, call=2, finished=0, limit=10), now_ms=here.now_ms)
    here.commit()
    exchange(here, there)
    assert there.records("transferred")
    assert not there.records("not_in_queue")
    assert sorted(here.in_state(State.AVAILABLE)) == ["a", "b", "lost", "new"]


def test_a_journal_that_is_restored_twice_is_found_out_twice(here: Site, there: Site) -> None:
    lose(here, there)
    say_restored(there, "frankfurt")
    lose(here, there, "lost again")
    there.publish("new")
    say_restored(there, "frankfurt", origin="a-third-origin")
    pull_often(here, "virginia")
    exchange(here, there)
    assert sorted(there.in_state(State.AVAILABLE)) == ["a", "b", "lost", "lost again", "new"]
    assert sorted(here.in_state(State.REMOTE)) == ["a", "b", "lost", "lost again", "new"]


def test_a_journal_of_which_nothing_tells_that_it_was_restored_is_restored_by_the_record_that_its_puller_names(
    tmp_path: Path, clock: FakeClock
) -> None:
    there = Site(tmp_path, "virginia", [], clock)
    here = Site(tmp_path, "frankfurt", ["virginia"], clock)
    there.publish("a")
    here.pull("virginia")
    there.back_up()
    there.publish("lost")
    here.pull("virginia")
    there.restore()
    there.publish("new")
    with pytest.raises(CallerError, match=r"UNSUPPORTED_WRITE.*--after"):
        there.decide(commands.Restored(origin="another-origin"))
    with pytest.raises(JournalError, match=r"PEER_RESTORED.*--after \d+`") as told:
        here.pull("virginia")
    there.decide(commands.Restored(origin="another-origin", after=int(str(told.value.facts["common"]))))
    here.pull("virginia")
    assert list(here.values().values()) == ["a", "lost", "new"]


def test_what_is_put_back_while_it_is_read_is_read_anew(here: Site, there: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its log named files that are no more: no reason to refuse it, or to call it a peer that cannot be read."""
    there.publish("lost")
    copy, put_back = Puller._fetched, [there]

    def fetch(*given: Any, **named: Any) -> Any:
        while put_back:
            put_back.pop().restore()
        return copy(*given, **named)

    monkeypatch.setattr(Puller, "_fetched", fetch)
    here.pull("virginia")
    assert here.in_state(State.REMOTE) == ["a", "b"]
    there.publish("new")
    here.pull("virginia")
    assert here.in_state(State.REMOTE) == ["a", "b", "new"]


def test_a_journal_that_was_made_anew_is_read_once_somebody_says_so(
    here: Site, there: Site, tmp_path: Path, clock: FakeClock
) -> None:
    shutil.rmtree(tmp_path / "virginia")
    there = Site(tmp_path, "virginia", ["frankfurt"], clock)
    there.publish("new")
    with pytest.raises(JournalError, match=r"PEER_REPLACED.*sparkq peers reset .* virginia"):
        pull_often(here, "virginia")
    here.decide(commands.ResetPeer(peer="virginia"))
    exchange(here, there)
    assert here.in_state(State.REMOTE) == ["a", "b", "new"]
    assert there.in_state(State.AVAILABLE) == ["new", "a", "b"], "what its instance owned is its own again"
