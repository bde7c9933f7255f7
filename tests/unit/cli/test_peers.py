"""``sparkq peers``: what is told of the instances that a journal pulls from, and what somebody says of them (DESIGN 17.7, 17.8)."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from spark_queue import Journal
from spark_queue.cli import doctor
from spark_queue.core import commands, replies
from spark_queue.protocol import wire
from spark_queue.protocol.endpoint import Endpoint
from tests.unit.cli.sparkq import Terminal
from tests.unit.cli.test_queue_verbs import Asked


def site(tmp_path: Path, name: str, *peers: str, **queue: Any) -> Journal:
    """Make an instance that pulls a queue from others."""
    definitions = {
        "journal": {"instance": name},
        "peers": {each: {"journal": str(tmp_path / each), "topics": ["T"], "queues": ["WORK"]} for each in peers},
        "message_types": {"json": {"topics": ["T"]}},
        "queues": {"WORK": {"underlying_topic": "T", **queue}},
    }
    return Journal.create(str(tmp_path / name), definitions)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    asked = Asked()
    monkeypatch.setattr("spark_queue.client.coordinator_client.call_once", asked)
    return asked


def test_doctor_says_when_nobody_pulls(tmp_path: Path, journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    here = site(tmp_path, "frankfurt", "virginia")
    found = doctor._peers(here)
    assert (found.result, found.found) == ("warning", "COORDINATOR_UNAVAILABLE")
    assert f"sparkq serve {here.path}" in found.advice
    assert doctor._peers(journal).found == "none"
    monkeypatch.setattr(doctor, "call_once", lambda *_, **__: wire.Pong(journal="j", epoch=1, pid=1, recovering=False))
    assert (doctor._peers(here).result, doctor._peers(here).found[:2]) == ("ok", "1,")


def test_a_check_that_finds_nothing_names_every_rule_and_whom_it_read(sparkq: Terminal, tmp_path: Path) -> None:
    here = site(tmp_path, "frankfurt", "virginia")
    site(tmp_path, "virginia", "frankfurt")
    said = sparkq("peers", "check", here.path)
    assert said.code == 0
    assert [rule for rule in ("R113.1", "R113.2", "R113.3", "R113.4", "R113.5") if rule not in said.out] == []
    assert "Read: frankfurt, virginia." in said.out
    assert here.check_peers().fits


def test_a_check_reads_the_peers_of_peers_and_tells_what_they_break(sparkq: Terminal, tmp_path: Path) -> None:
    """R113: also between two that this journal does not pull from."""
    here = site(tmp_path, "frankfurt", "virginia")
    site(tmp_path, "virginia", "frankfurt", "tokyo")
    site(tmp_path, "tokyo", "virginia", semantics="at-most-once")
    said = sparkq("peers", "check", here.path, "--json")
    assert said.code == 3
    assert said.json["read"] == ["frankfurt", "virginia", "tokyo"]
    assert [(each["rule"], each["instance"], each["peer"]) for each in said.json["broken"]] == [("R113.3", "virginia", "tokyo")]
    assert "semantics is 'at-least-once' here" in sparkq("peers", "check", here.path).out


def test_a_peer_that_cannot_be_read_is_told_and_nothing_fits(sparkq: Terminal, tmp_path: Path) -> None:
    here = site(tmp_path, "frankfurt", "virginia")
    said = sparkq("peers", "check", here.path)
    assert (said.code, "Not read: virginia. [PEER_AWAY]" in said.out) == (3, True)
    assert ("that its store is mounted" in said.out, "sparkq init" in said.out) == (True, False)
    site(tmp_path, "virginia", "frankfurt", "tokyo")
    said = sparkq("peers", "check", here.path)
    assert (said.code, "Not read: tokyo. [PEER_AWAY]" in said.out) == (0, True), "it is not pulled from here"


def test_two_peers_are_not_one_journal(sparkq: Terminal, tmp_path: Path) -> None:
    here = site(tmp_path, "frankfurt", "virginia", "tokyo")
    site(tmp_path, "virginia", "frankfurt")
    shutil.copytree(tmp_path / "virginia", tmp_path / "tokyo")
    said = sparkq("peers", "check", here.path, "--json")
    assert (said.code, list(said.json["unread"])) == (3, ["tokyo"])
    assert said.json["unread"]["tokyo"].endswith("is the journal of 'virginia', or a copy of it.")


def test_a_peer_goes_by_the_name_of_its_journal(sparkq: Terminal, tmp_path: Path) -> None:
    here = site(tmp_path, "frankfurt", "virginia")
    shutil.move(site(tmp_path, "tokyo").path, tmp_path / "virginia")
    assert sparkq("peers", "check", here.path, "--json").json["unread"]["virginia"].endswith("is instance 'tokyo'.")


@pytest.mark.parametrize("verb", ["check", "status"])
def test_a_journal_without_peers_has_nothing_to_tell(sparkq: Terminal, journal: Journal, verb: str) -> None:
    said = sparkq("peers", verb, journal.path)
    assert (said.code, "[NO_PEERS]" in said.err) == (1, True)


def test_without_a_coordinator_the_logs_tell_how_far_a_peer_is_pulled(sparkq: Terminal, tmp_path: Path) -> None:
    here = site(tmp_path, "frankfurt", "virginia")
    site(tmp_path, "virginia", "frankfurt")
    said = sparkq("peers", "status", here.path, "--json")
    (told,) = said.json
    assert (said.code, told["peer"], told["reachable"], told["bytes_copied"]) == (3, "virginia", None, None)
    assert (told["records_behind"], told["seconds_behind"] >= 0) == (2, True), "its journal was made, and defined"
    assert "virginia: no coordinator of this journal runs" in sparkq("peers", "status", here.path).out
    shutil.rmtree(tmp_path / "virginia")
    (told,) = sparkq("peers", "status", here.path, "--json").json
    assert told["records_behind"] is None


def test_status_says_what_to_do_where_the_store_of_a_peer_is_away(
    sparkq: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R112: to make a journal there would put a stranger in the place of the one that comes back."""
    monkeypatch.setattr("spark_queue.client.coordinator_client.call_once", lambda *_, **__: wire.PeersTold(peers={}))
    said = sparkq("peers", "status", site(tmp_path, "frankfurt", "virginia").path)
    assert (said.code, "virginia: [PEER_AWAY]" in said.out) == (3, True)
    assert ("sparkq proxied-transfer" in said.out, "sparkq init" in said.out) == (True, False)


@pytest.mark.parametrize(
    ("silent_ms", "trouble", "reachable", "code"),
    [(3_000, None, True, 0), (31_000, None, False, 3), (0, "[PEER_REPLACED] …", True, 3)],
)
def test_a_coordinator_tells_who_is_reachable_and_what_troubles_it(
    sparkq: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *,
    silent_ms: int, trouble: str | None, reachable: bool, code: int,
) -> None:  # fmt: skip
    def told(*_: object, **options: Any) -> wire.PeersTold:
        assert not options["start"]
        peer = wire.PeerTold(silent_ms=silent_ms, rows_copied=7, bytes_copied=900, trouble=trouble)
        return wire.PeersTold(peers={"virginia": peer})

    monkeypatch.setattr("spark_queue.client.coordinator_client.call_once", told)
    here = site(tmp_path, "frankfurt", "virginia")
    site(tmp_path, "virginia", "frankfurt")
    (found,) = here.peer_status()
    assert (found.reachable, found.rows_copied, found.bytes_copied, found.trouble) == (reachable, 7, 900, trouble)
    assert found.silent_seconds == silent_ms / 1_000
    said = sparkq("peers", "status", here.path)
    assert (said.code, "virginia: [PEER_REPLACED]" in said.out) == (code, trouble is not None)


def test_what_a_peer_lost_is_skipped(sparkq: Terminal, asked: Asked, journal: Journal) -> None:
    said = sparkq("peers", "skip", journal.path, "virginia", "--coordinator", "h:1")
    assert (asked.requests, asked.address) == ([commands.SkipLost(peer="virginia")], "h:1")
    assert "Pulling from peer 'virginia' resumes" in said.out
    assert sparkq("peers", "skip", journal.path, "virginia", "--json").json == {"peer": "virginia", "skipped": True}


def test_an_instance_returns_without_a_peer(sparkq: Terminal, asked: Asked, journal: Journal) -> None:
    """R130."""
    said = sparkq("return", journal.path, "--without", "virginia")
    assert asked.requests == [commands.ReturnWithout(peer="virginia")]
    assert "no longer waits for peer 'virginia'" in said.out
    assert sparkq("return", journal.path).code == 2


def test_a_peer_that_was_made_anew_is_reset(sparkq: Terminal, asked: Asked, journal: Journal) -> None:
    said = sparkq("peers", "reset", journal.path, "virginia")
    assert asked.requests == [commands.ResetPeer(peer="virginia")]
    assert "Peer 'virginia' is read from the beginning" in said.out


def test_a_journal_that_was_put_back_has_a_new_origin(sparkq: Terminal, journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked()
    monkeypatch.setattr("spark_queue.client.coordinator_client.call_once", asked)
    said = sparkq("mark-restored", journal.path, "--after", 7)
    (command,) = asked.requests
    assert isinstance(command, commands.Restored)
    assert (len(command.origin), command.after) == (36, 7)
    assert "come back from the peers" in said.out


def test_a_peer_that_is_gone_is_forgotten(sparkq: Terminal, asked: Asked, journal: Journal) -> None:
    asked.reply = replies.Forgotten(claimed=3, left={"ONCE": 2})
    said = sparkq("peers", "forget", journal.path, "virginia")
    assert asked.requests == [commands.ForgetPeer(peer="virginia")]
    assert "this instance now owns 3 messages of it. Left: 2 of queue 'ONCE'" in said.out
    told = {"peer": "virginia", "claimed": 3, "left": {"ONCE": 2}}
    assert sparkq("peers", "forget", journal.path, "virginia", "--json").json == told


def test_a_drain_ends_with_what_never_comes_to_the_peer(sparkq: Terminal, journal: Journal, asked: Asked) -> None:
    asked.reply = replies.Drained(transferred=0, left={"WORK": 2}, stuck={"WORK": "They stay."}, record=-1, is_pulled=False)
    said = sparkq("peers", "drain", journal.path, "virginia")
    stuck = "[DRAIN_STUCK] 0 messages were handed to peer 'virginia', and 2 of queue 'WORK' are still owned here: They stay."
    assert (said.code, stuck in said.err) == (1, True)


def test_a_drain_asks_until_the_peer_has_heard_of_the_last(
    sparkq: Terminal, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [
        replies.Drained(transferred=3, left={"WORK": 1}, record=-1, is_pulled=False),
        replies.Drained(transferred=1, left={}, record=-1, is_pulled=False),
        replies.Drained(transferred=0, left={}, record=9, is_pulled=False),
        replies.Drained(transferred=0, left={}, record=9, is_pulled=True),
    ]
    requests = list[object]()

    def call_once(_store: object, _journal_id: str, request: object, *, endpoint: Endpoint) -> object:
        requests.append(request)
        return answers[len(requests) - 1]

    monkeypatch.setattr("spark_queue.client.coordinator_client.call_once", call_once)
    monkeypatch.setattr("spark_queue.client.peer._PAUSE_S", 0.0)
    said = sparkq("peers", "drain", journal.path, "virginia")
    assert requests == [commands.DrainTo(peer="virginia", record=record) for record in (-1, -1, -1, 9)]
    assert "4 messages were handed to 'virginia'" in said.out
