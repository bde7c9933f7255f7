"""A queue that is set aside, from the front door: who shows it, and what brings it back (R122)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from spark_queue.client.journal import Journal
from spark_queue.clock import SystemClock
from spark_queue.coordinator.election import Candidate, elect, election_ports
from spark_queue.coordinator.recovery import take_over
from spark_queue.errors import JournalError
from spark_queue.following.follower import JournalFollower
from spark_queue.journal.entering import PreparedTraits
from spark_queue.journal.open import open_journal
from spark_queue.metrics.samples import figures_at
from spark_queue.views import state_at
from tests.integration.coordinator_world import MakeWorld

QUEUE = "WORK"


def set_aside(journal: Journal) -> None:
    """Record what a coordinator records that met a fault, as one that is gone by now."""
    stored = open_journal(journal.store)
    candidate = Candidate(journal_id=journal.journal_id(), path=journal.path, host="h", address="grpc://127.0.0.1:1", pid=1)
    reign = elect(stored.control, candidate, election_ports(journal.store, journal.journal_id(), SystemClock()))
    engine = take_over(reign, PreparedTraits(stored.traits))
    engine.set_aside(QUEUE, "ZeroDivisionError: a bug", now_ms=reign.clock.now_ms())
    stored.control.append(engine.drain_records(), epoch=reign.epoch)


def sparkq(*words: str) -> subprocess.CompletedProcess[str]:
    asked = [sys.executable, "-m", "spark_queue.cli", *words]
    return subprocess.run(asked, capture_output=True, text=True, env=os.environ | {"COLUMNS": "200"}, check=False)


def test_everybody_shows_it_and_reviving_brings_all_of_it_back(make_world: MakeWorld) -> None:
    world = make_world()
    journal = Journal(world.store.path)
    world.publish(3)
    set_aside(journal)
    world.publish(2)
    with pytest.raises(JournalError, match=r"QUEUE_SET_ASIDE.*a bug"):
        journal.queue(QUEUE).status()
    rows: list[dict[str, Any]] = json.loads(sparkq("status", journal.path, "--json").stdout)
    assert "sparkq revive" in rows[0]["alarm"]
    doctor = sparkq("doctor", journal.path, "--json")
    findings = {each["check"]: each for each in json.loads(doctor.stdout)}
    assert (findings["queues"]["result"], findings["queues"]["found"]) == ("failed", f"set aside: {QUEUE}")
    figures = figures_at(state_at(open_journal(journal.store)))
    assert figures.set_aside == [QUEUE]
    follower = JournalFollower("j", journal.store)
    follower.refresh()
    with follower.look() as look:
        assert look is not None
        assert list(look.state.troubles) == [QUEUE]
    refused = sparkq("pause", journal.path, QUEUE)
    assert (refused.returncode, "QUEUE_SET_ASIDE" in refused.stderr) == (1, True)
    assert sparkq("revive", journal.path, QUEUE).stdout.startswith(f"Queue '{QUEUE}' is back")
    assert journal.queue(QUEUE).status().queue_depth == 5
    follower.refresh()
    follower.refresh()
    with follower.look() as look:
        assert look is not None
        assert len(look.state.queues[QUEUE].entered) == 5
    again = sparkq("revive", journal.path, QUEUE)
    assert (again.returncode, "not set aside" in again.stderr) == (1, True)
