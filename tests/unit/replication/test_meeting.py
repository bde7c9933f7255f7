"""Pullers that wait for each other before anything is taken, and what each of them has seen of the own journal (DESIGN 17.3)."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from spark_queue.core.deciding.instances.replicating import Pulled
from spark_queue.errors import JournalError
from spark_queue.replication import pullers
from spark_queue.replication.exchange import ApplyPulled, PullProgressQuery, PullState
from spark_queue.replication.pullers import Pullers
from tests.unit.replication.conftest import HandOver, Meet, Start, definitions, wait_until

BOTH = ("virginia", "tokyo")


def lost(peer: str) -> JournalError:
    return JournalError("JOURNAL_RESTORED", peer=peer, record="record 70", path="here", since=2)


def test_a_peer_that_answers_nothing_keeps_others_from_being_pulled_for_some_time_only(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store may hang for minutes before it fails."""
    monkeypatch.setattr(pullers, "HEARS_MS", 1_000)
    hangs, taken = threading.Event(), threading.Event()

    def step(peer: str, meet: Meet, _: object) -> None:
        if peer == "tokyo":
            hangs.wait(60)
        meet()
        taken.set()

    running = start(step, *BOTH)
    try:
        assert not taken.wait(0.1)
        assert taken.wait(60)
        assert not running.are_compared()
    finally:
        hangs.set()


def test_what_a_peer_shows_no_more_is_forgotten_before_anything_of_it_is_handed_over(start: Start) -> None:
    """The loop refuses what is handed over while anybody shows a loss: a peer that was put back, too, would be refused for ever."""
    shown, held = [lost("virginia")], list[JournalError | None]()
    running: list[Pullers] = []

    def step(peer: str, meet: Meet, _: object) -> None:
        if peer == "virginia" and shown:
            raise shown[0]
        meet()
        if peer == "virginia" and running:
            held.append(running[0].restored())

    running.append(start(step, *BOTH))
    wait_until(lambda: running[0].restored() is not None)
    shown.clear()
    wait_until(lambda: bool(held))
    assert held[0] is None


def test_who_is_refused_since_another_peer_shows_a_loss_shows_none(start: Start) -> None:
    refused = threading.Event()

    def step(peer: str, meet: Meet, _: object) -> None:
        meet()
        if peer == "virginia":
            refused.set()
            raise lost("tokyo")

    running = start(step, *BOTH)
    assert refused.wait(60)
    wait_until(lambda: running.reports()["virginia"].trouble is not None)
    assert running.restored() is None


def test_what_was_read_before_somebody_said_that_the_journal_was_restored_is_over(start: Start, tmp_path: Path) -> None:
    """It is in line already, and passed over what was lost."""
    asked: list[ApplyPulled] = []
    in_line, go_on = threading.Event(), threading.Event()
    pulled = Pulled(peer="virginia", journal="uuid", record=7, digest="")

    def ask(request: PullProgressQuery | ApplyPulled) -> PullState | bool:
        assert isinstance(request, ApplyPulled)
        asked.append(request)
        in_line.set()
        go_on.wait(60)
        return False

    def step(peer: str, _: object, hand_over: HandOver) -> None:
        if peer == "virginia" and not asked:
            hand_over(ApplyPulled(pulled=pulled, definitions=definitions(tmp_path, *BOTH)))

    running = start(step, *BOTH, ask=ask)
    try:
        assert in_line.wait(60)
        assert not asked[0].is_over()
        running.begin_anew()
        assert asked[0].is_over()
    finally:
        go_on.set()


def test_a_peer_may_show_no_more_while_it_is_asked(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop would end in doubt."""
    running = start(lambda *_: None, *BOTH)
    shown = [lost("tokyo"), None]
    for thread in running._threads.values():
        thread.end()
        thread.join()
    monkeypatch.setattr(pullers._PullThread, "restored", property(lambda _: shown.pop(0) if shown else None), raising=False)
    found = running.restored()
    assert found is None or found.facts["peer"] == "tokyo"
