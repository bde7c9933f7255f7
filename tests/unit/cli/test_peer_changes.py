"""``sparkq peers``: what somebody says of an instance, as the coordinator is asked, and as it is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_queue import Journal
from spark_queue.core import commands
from tests.unit.cli.sparkq import Terminal
from tests.unit.cli.test_queue_verbs import Asked


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    asked = Asked()
    monkeypatch.setattr("spark_queue.client.peer.call_once", asked)
    return asked


@pytest.fixture
def path(tmp_path: Path) -> str:
    return Journal.create(str(tmp_path / "journal")).path


def test_what_a_peer_lost_is_skipped(sparkq: Terminal, asked: Asked, path: str) -> None:
    said = sparkq("peers", "skip", path, "virginia", "--coordinator", "h:1")
    assert (asked.requests, asked.address) == ([commands.SkipLost(peer="virginia")], "h:1")
    assert "Peer 'virginia' is pulled on" in said.out
    assert sparkq("peers", "skip", path, "virginia", "--json").json == {"peer": "virginia", "skipped": True}


def test_a_peer_that_was_made_anew_is_reset(sparkq: Terminal, asked: Asked, path: str) -> None:
    said = sparkq("peers", "reset", path, "virginia")
    assert asked.requests == [commands.ResetPeer(peer="virginia")]
    assert "Peer 'virginia' is read from the beginning" in said.out


def test_a_journal_that_was_put_back_has_a_new_origin(sparkq: Terminal, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked()
    monkeypatch.setattr("spark_queue.client.coordinator_client.call_once", asked)
    said = sparkq("restored", path, "--after", 7)
    (command,) = asked.requests
    assert isinstance(command, commands.Restored)
    assert (len(command.origin), command.after) == (36, 7)
    assert "comes back from the peers" in said.out
