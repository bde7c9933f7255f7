"""`sparkq publish --replicated-to`: it ends when peers have all of the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_queue.client.coordinator_client import CoordinatorClient
from tests.sites_on_disk import two_sites
from tests.unit.cli.sparkq import Terminal


def test_a_file_is_published_when_a_peer_has_all_of_it(sparkq: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frankfurt, virginia = two_sites(tmp_path)
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(f'{{"item": "i{number}"}}\n' for number in range(5)))

    def call(*_: object, **__: object) -> None:
        frankfurt.enter()
        virginia.pull("frankfurt")

    for name in ("nudge", "call"):
        monkeypatch.setattr(CoordinatorClient, name, lambda *_, **__: None)
    publish = ("publish", frankfurt.journal.path, rows, "--topic", "LINES", "--batch-rows", "2", "--timeout", "1s")
    late = sparkq(*publish, "--replicated-to", "1", "--publisher", "p")
    assert (late.code, "The 5 rows are published" in late.err.replace("\n", " ")) == (1, True)
    monkeypatch.setattr(CoordinatorClient, "call", call)
    done = sparkq(*publish, "--replicated-to", "1", "--publisher", "p", "--repeat", "--json")
    assert (done.code, done.json) == (0, {"rows": 0, "duplicates": 5})
    assert virginia.known.entered_until == 5
