"""Children that are forked after a journal was used are told so by name, at the first call and by every way in (DESIGN 9)."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from spark_queue import Journal, Queue
from spark_queue.client.coordinator_client import CoordinatorClient
from spark_queue.protocol import wire
from tests.integration import forks_program
from tests.source_tree import ROOT

DEADLINE_S = 300


def run(program: str, path: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", forks_program.__name__, program, str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def stop(path: Path) -> None:
    journal = Journal(str(path))
    CoordinatorClient(journal.store, journal.journal_id(), start=False).call(wire.Stop())


def test_child_of_a_process_that_used_a_journal_is_told_so_at_its_first_call_and_its_parent_goes_on(tmp_path: Path) -> None:
    met = run("used", tmp_path / "shop")
    stop(tmp_path / "shop")
    assert {name: code for name, code in met["found"].items() if code != "JOURNAL_FORKED"} == {}
    assert met["raised"].startswith("CallerError: [JOURNAL_FORKED] Process ")
    assert "'spawn' or 'forkserver'" in met["raised"]
    # To let go of what is the parent's, and to end, neither aborts nor waits for ever.
    assert (met["left"], met["ended"]) == ("done", 0)
    assert (met["spawned"], met["goes on"], met["rows"]) == ("done", "done", [1, 2, 3, 4])


def test_child_that_is_forked_before_the_first_use_does_everything(tmp_path: Path) -> None:
    made = "from spark_queue import Journal; import sys, json; Journal.create(sys.argv[1], json.loads(sys.argv[2]))"
    path = tmp_path / "shop"
    subprocess.run([sys.executable, "-c", made, str(path), json.dumps(forks_program._DEFINITIONS)], cwd=ROOT, check=True)
    met = run("unused", path)
    stop(path)
    assert met == dict.fromkeys(["publish", "unpause", "view"], "done")


def test_a_library_that_was_used_before_the_fork_by_others_is_told_of_by_the_same_name(tmp_path: Path) -> None:
    Journal.create(str(tmp_path / "shop"), forks_program._DEFINITIONS)
    assert run("stranger", tmp_path / "shop") == {"publish": "JOURNAL_FORKED"}


@pytest.mark.parametrize("kind", [Journal, Queue])
def test_every_public_method_that_opens_something_is_tried_in_a_child(kind: type) -> None:
    opens_nothing = {"queue", "peer", "store", "endpoint", "decide"}
    public = {name for name, value in inspect.getmembers(kind) if not name.startswith("_") and callable(value)}
    tried = inspect.getsource(forks_program.calls)
    assert [name for name in sorted(public - opens_nothing) if f'"{name}"' not in tried] == []
