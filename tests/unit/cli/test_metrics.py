"""``sparkq metrics`` (DESIGN 18)."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from spark_queue import Journal
from tests.unit.cli.sparkq import Terminal
from tests.unit.metrics.exposed import value, values


def test_metrics_of_journals_are_printed(sparkq: Terminal, journal: Journal, tmp_path: Path) -> None:
    journal.publish([{"amount": 1}, {"amount": 2}], topic="LINES")
    other = Journal.create(str(tmp_path / "other"))
    said = sparkq("metrics", journal.path, other.path)
    assert said.code == 0
    text = said.out.encode()
    assert value(text, "sparkqueue_available_messages", journal=journal.path, queue="WORK") == 2
    assert value(text, "sparkqueue_journal_up", journal=other.path) == 1
    # Nobody was started for it.
    assert value(text, "sparkqueue_coordinator_last_seen_timestamp_seconds", journal=journal.path) == 0


def test_a_journal_that_is_named_twice_is_told_once(sparkq: Terminal, journal: Journal) -> None:
    """Prometheus refuses all of what has one series twice."""
    assert sparkq("metrics", journal.path, f"{journal.path}/").out.count("sparkqueue_queue_depth{") == 1


def test_a_textfile_is_replaced_at_once(
    sparkq: Terminal, journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "textfiles"
    folder.mkdir()
    file = folder / "shop.prom"
    assert sparkq("metrics", journal.path, "--textfile", file).code == 0
    first = file.read_bytes()
    held = file.open("rb")
    journal.publish([{"amount": 1}], topic="LINES")
    assert sparkq("metrics", journal.path, "--textfile", file).code == 0
    with held:
        assert held.read() == first, "who has it open reads the old one to its end"
    assert value(first, "sparkqueue_available_messages", queue="WORK") == 0
    assert value(file.read_bytes(), "sparkqueue_available_messages", queue="WORK") == 1
    whole = file.read_bytes()

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("prometheus_client.exposition.generate_latest", fail)
    said = sparkq("metrics", journal.path, "--textfile", file)
    assert (said.code, "No space left on device" in said.err) == (1, True)
    assert (file.read_bytes(), list(folder.iterdir())) == (whole, [file]), "the old one stands, and nothing is left behind"


def test_a_textfile_has_the_name_that_the_node_exporter_reads(sparkq: Terminal, journal: Journal, tmp_path: Path) -> None:
    said = sparkq("metrics", journal.path, "--textfile", tmp_path / "shop.txt")
    assert (said.code, "ends in .prom" in said.err, (tmp_path / "shop.txt").exists()) == (1, True, False)


def test_a_textfile_is_replaced_again_and_again_by_one_process(
    sparkq: Terminal, journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, told, waited = tmp_path / "shop.prom", list[bytes](), list[float]()

    def sleep(seconds: float) -> None:
        told.append(file.read_bytes())
        waited.append(seconds)
        if len(told) == 3:
            raise KeyboardInterrupt
        journal.publish([{"amount": 1}], topic="LINES")

    monkeypatch.setattr("spark_queue.cli.metrics.time.sleep", sleep)
    assert sparkq("metrics", journal.path, "--textfile", file, "--every", 15).code != 0
    assert [value(text, "sparkqueue_available_messages", queue="WORK") for text in told] == [0, 1, 2]
    assert waited == [15, 15, 15]
    moving = "timestamp_seconds", "age_seconds"
    once, kept = (
        {series: each for series, each in values(text).items() if not series[0].endswith(moving)}
        for text in (sparkq("metrics", journal.path).out.encode(), file.read_bytes())
    )
    assert kept == once


def test_only_a_textfile_can_be_kept(sparkq: Terminal, journal: Journal) -> None:
    said = sparkq("metrics", journal.path, "--every", 15)
    assert (said.code, "given together with --textfile" in said.err.replace("\n", " ")) == (1, True)


def test_a_missing_package_is_named(sparkq: Terminal, journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    said = sparkq("metrics", journal.path)
    assert (said.code, "spark-queue[metrics]" in said.err.replace("\n", " ")) == (1, True)


def test_an_address_is_loopback_unless_it_names_a_host(sparkq: Terminal, journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    listened = []

    def listen(_families: object, *, host: str, port: int) -> str:
        listened.append((host, port))
        raise SystemExit(3)

    monkeypatch.setattr("spark_queue.coordinator.metrics.listen", listen)
    for text in ("9464", ":9464", "localhost:9464", "[::1]:0"):
        assert sparkq("serve", journal.path, "--metrics", text).code == 3
    assert listened == [("127.0.0.1", 9464), ("127.0.0.1", 9464), ("localhost", 9464), ("::1", 0)]
    said = sparkq("serve", journal.path, "--metrics", "0.0.0.0:9464")
    assert (said.code, "[ADDRESS_UNSAFE] Serving on 0.0.0.0:9464" in said.err, "--metrics-token-file" in said.err) == (
        1,
        True,
        True,
    )
    said = sparkq("serve", journal.path, "--metrics-token-file", "token")
    assert "given together with --metrics." in said.err
    for text in ("here", "127.0.0.1:", "127.0.0.1:70000"):
        assert "PORT or HOST:PORT" in sparkq("serve", journal.path, "--metrics", text).err
    assert "text or json" in sparkq("serve", journal.path, "--log-format", "yaml").err


def test_a_port_that_is_taken_is_named(sparkq: Terminal, journal: Journal) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        said = sparkq("serve", journal.path, "--metrics", taken.getsockname()[1])
    assert (said.code, "ADDRESS_UNUSABLE" in said.err) == (1, True)
