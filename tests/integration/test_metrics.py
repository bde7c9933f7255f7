"""A real `sparkq serve --metrics`, scraped over HTTP (DESIGN 18)."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from spark_queue import Journal
from spark_queue.errors import CallerError
from spark_queue.metrics import exposition
from tests.unit.metrics.exposed import value, values

TOML = '[message_types.line]\ncolumns = "amount BIGINT"\ntopics = ["LINES"]\n[queues.LINES]\n'
WAIT_S = 60.0


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    (tmp_path / "queues.toml").write_text(TOML)
    return Journal.create(str(tmp_path / "journal"), tmp_path / "queues.toml")


@contextmanager
def serving(journal: Journal, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run `sparkq serve --metrics` on a free port; gives its process and where it is scraped."""
    command = [sys.executable, "-m", "spark_queue.cli", "serve", journal.path, "--metrics", "127.0.0.1:0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            found = re.search(r"http://127\.0\.0\.1:\d+/metrics", process.stderr.readline())
            assert found is not None
            yield process, found[0]
        finally:
            process.kill()


def scrape(address: str) -> bytes:
    with urllib.request.urlopen(address, timeout=WAIT_S) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=")
        return bytes(answer.read())


def scrape_until(address: str, name: str, wanted: float, **labels: str) -> bytes:
    """Scrape until a series has a value: the coordinator recovers, enters and folds by itself."""
    text = b""
    for _ in range(1_000):
        text = scrape(address)
        if value(text, name, **labels) == wanted:
            return text
    raise AssertionError(f"{name} never became {wanted}")


def test_a_serving_coordinator_is_scraped_and_says_what_the_log_says(journal: Journal) -> None:
    journal.publish([{"amount": amount} for amount in range(5)], topic="LINES")
    with serving(journal) as (process, address):
        scrape_until(address, "sparkqueue_entered_messages_total", 5, queue="LINES")
        journal.queue("LINES").settle([0, 1], "expire", error="not wanted")
        with pytest.raises(CallerError):
            journal.queue("LINES").settle([99], "expire")
        told = scrape_until(address, "sparkqueue_removed_messages_total", 2, queue="LINES", reason="forced_expire")
        seen = exposition([journal])
        moving = {"sparkqueue_observed_timestamp_seconds", "sparkqueue_oldest_message_age_seconds",
                  "sparkqueue_coordinator_last_seen_timestamp_seconds"}  # fmt: skip
        of_log = {series: each for series, each in values(seen).items() if series[0] not in moving}
        of_process = {series: each for series, each in values(told).items() if series in of_log}
        assert of_process == of_log, "both say the same of the journal"
        assert value(told, "sparkqueue_coordinator_serving") == 1
        assert value(told, "sparkqueue_refusals_total", code="UNKNOWN_BOOKMARK") == 1
        assert (value(told, "sparkqueue_commit_duration_seconds_count") or 0) >= 2
        assert (value(seen, "sparkqueue_coordinator_last_seen_timestamp_seconds") or 0) > 0
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 0
    assert value(exposition([journal]), "sparkqueue_coordinator_last_seen_timestamp_seconds") == 0, "it said goodbye"


def test_who_stands_by_is_scraped_too_and_takes_over(journal: Journal) -> None:
    with serving(journal) as (first, address):
        scrape_until(address, "sparkqueue_coordinator_serving", 1)
        with serving(journal, "--log-format", "json") as (second, other):
            told = scrape(other)
            assert value(told, "sparkqueue_coordinator_serving") == 0
            assert value(told, "sparkqueue_journal_up") is None
            first.send_signal(signal.SIGTERM)
            assert first.wait(WAIT_S) == 0
            scrape_until(other, "sparkqueue_coordinator_epoch", 2)
            second.send_signal(signal.SIGTERM)
            assert second.wait(WAIT_S) == 0
