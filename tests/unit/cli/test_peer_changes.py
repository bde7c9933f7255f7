"""``sparkq peers``: what somebody says of an instance, as the coordinator is asked, and as it is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_queue import Journal
from spark_queue.core import commands, replies
from spark_queue.protocol.connection import Endpoint
from tests.unit.cli.sparkq import Terminal
from tests.unit.cli.test_queue_verbs import Asked


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    asked = Asked()
    monkeypatch.setattr("spark_queue.client.peers.call_once", asked)
    return asked


@pytest.fixture
def path(tmp_path: Path) -> str:
    return Journal.create(str(tmp_path / "journal")).path


def test_what_a_peer_lost_is_skipped(sparkq: Terminal, asked: Asked, path: str) -> None:
    said = sparkq("peers", "skip", path, "virginia", "--coordinator", "h:1")
    assert (asked.requests, asked.address) == ([commands.SkipLost(peer="virginia")], "h:1")
    assert "Peer 'virginia' is pulled on" in said.out
    assert sparkq("peers", "skip", path, "virginia", "--json").json == {"peer": "virginia", "skipped": True}


def test_an_instance_returns_without_a_peer(sparkq: Terminal, asked: Asked, path: str) -> None:
    """R130."""
    said = sparkq("return", path, "--without", "virginia")
    assert asked.requests == [commands.ReturnWithout(peer="virginia")]
    assert "waits for peer 'virginia' no more" in said.out
    assert sparkq("return", path).code == 2


def test_a_peer_that_was_made_anew_is_reset(sparkq: Terminal, asked: Asked, path: str) -> None:
    said = sparkq("peers", "reset", path, "virginia")
    assert asked.requests == [commands.ResetPeer(peer="virginia")]
    assert "Peer 'virginia' is read from the beginning" in said.out


@pytest.mark.parametrize("verb", ["mark-restored", "restored"])
def test_a_journal_that_was_put_back_has_a_new_origin(
    sparkq: Terminal, path: str, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    asked = Asked()
    monkeypatch.setattr("spark_queue.client.coordinator_client.call_once", asked)
    said = sparkq(verb, path, "--after", 7)
    (command,) = asked.requests
    assert isinstance(command, commands.Restored)
    assert (len(command.origin), command.after) == (36, 7)
    assert "comes back from the peers" in said.out


def test_a_peer_that_is_gone_is_forgotten(sparkq: Terminal, asked: Asked, path: str) -> None:
    asked.reply = replies.Forgotten(claimed=3, left={"ONCE": 2})
    said = sparkq("peers", "forget", path, "virginia")
    assert asked.requests == [commands.ForgetPeer(peer="virginia")]
    assert "3 messages that it owned are this instance's now. 2 of queue 'ONCE' are not" in said.out
    told = {"peer": "virginia", "claimed": 3, "left": {"ONCE": 2}}
    assert sparkq("peers", "forget", path, "virginia", "--json").json == told


def test_a_drain_ends_with_what_never_comes_to_the_peer(sparkq: Terminal, path: str, asked: Asked) -> None:
    asked.reply = replies.Drained(transferred=0, left={"WORK": 2}, stuck={"WORK": "They stay."}, record=-1, is_pulled=False)
    said = sparkq("peers", "drain", path, "virginia")
    assert said.code == 1
    assert (
        "[DRAIN_STUCK] 0 message(s) were handed to peer 'virginia', and 2 of queue 'WORK' are still owned here: They stay."
        in said.err
    )


def test_a_drain_asks_until_the_peer_has_heard_of_the_last(sparkq: Terminal, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [
        replies.Drained(transferred=3, left={"WORK": 1}, record=-1, is_pulled=False),
        replies.Drained(transferred=1, left={}, record=-1, is_pulled=False),
        replies.Drained(transferred=0, left={}, record=9, is_pulled=False),
        replies.Drained(transferred=0, left={}, record=9, is_pulled=True),
    ]
    requests: list[object] = []

    def call_once(_store: object, _journal_id: str, request: object, *, endpoint: Endpoint) -> object:
        requests.append(request)
        return answers[len(requests) - 1]

    monkeypatch.setattr("spark_queue.client.peers.call_once", call_once)
    monkeypatch.setattr("spark_queue.client.peers._PAUSE_S", 0.0)
    said = sparkq("peers", "drain", path, "virginia")
    assert requests == [commands.DrainTo(peer="virginia", record=record) for record in (-1, -1, -1, 9)]
    assert "4 messages were handed to 'virginia'" in said.out
