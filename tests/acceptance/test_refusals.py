"""Bad input from the front door, each refused by its code, and extreme input that is none; nothing here needs a JVM."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_queue import Journal
from spark_queue.errors import JournalError, SparkQueueError
from spark_queue.source.datasource import SparkQueueDataSource
from tests.acceptance.conftest import MakeJournal
from tests.acceptance.plain_consumer import consumer, ids
from tests.integration.source_journal import end_coordinator

DEFINITIONS: dict[str, Any] = {
    "message_types": {
        "order": {"columns": "id BIGINT, item STRING", "topics": ["ORDERS"]},
        "binary": {"topics": ["BLOBS"]},
        # Nearly as wide as a pattern can be: only the grammar of names stands between a topic and a path.
        "json": {"topics": ["^([^BO].*)?$"]},
    },
    "queues": {"WORK": {"underlying_topic": "ORDERS"}, "BLOBS": {}, "TEXTS": {}},
}


@pytest.fixture
def journal(make_journal: MakeJournal) -> Journal:
    return make_journal(DEFINITIONS)


def everything_below(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"queue": "WROK", "subscription": "s"}, "UNKNOWN_QUEUE.*'WROK'.*Did you mean 'WORK'"),
        ({"queue": "WORK", "subscribtion": "s"}, "UNKNOWN_OPTION.*'subscribtion'.*Did you mean 'subscription'"),
        ({"queue": "WORK", "subscription": "s", "columns": "id,itme"}, "UNKNOWN_COLUMN.*'itme'.*Did you mean 'item'"),
        ({"queue": "WORK", "subscription": "s", "ackMode": "manual"}, "BAD_VALUE.*'ackMode'.*'manual'.*explicit"),
        ({"queue": "WORK", "subscription": "s", "maxBacklog": "-1"}, "BAD_VALUE.*'maxBacklog'.*'-1'"),
        ({"queue": "WORK", "subscription": "../s"}, "BAD_VALUE.*'subscription'.*'../s'"),
        ({"queue": "../WORK", "subscription": "s"}, "BAD_VALUE.*'queue'.*'../WORK'"),
    ],
)
def test_a_queue_stream_with_a_wrong_option_is_refused_at_load(journal: Journal, options: dict[str, str], reason: str) -> None:
    """DESIGN 10: bad configuration stops before anything starts."""
    with pytest.raises(SparkQueueError, match=reason):
        SparkQueueDataSource({"path": journal.path, **options}).schema()
    assert not (Path(journal.path) / "coordinator.json").exists()


@pytest.mark.parametrize("name", ["../x", "..", ".", "a/b", "a\\b", "", "a b", "é", "x" * 250, "a\0b"])
def test_a_topic_that_is_no_name_is_refused_though_a_pattern_matches_it(journal: Journal, name: str, tmp_path: Path) -> None:
    before = everything_below(tmp_path)
    for rows, topic in (([{"a": 1}], name), ([{"value": "{}", "topic": name}], None)):
        with pytest.raises(SparkQueueError, match="NAME_INVALID"):
            journal.publish(rows, topic=topic)
    assert everything_below(tmp_path) == before


@pytest.mark.parametrize(
    "added",
    [
        {"message_types": {"../x": {"columns": "id BIGINT", "topics": ["T"]}}},
        {"message_types": {"t": {"columns": "id BIGINT", "topics": ["../x"]}}},
        {"queues": {"../x": {"underlying_topic": "ORDERS"}}},
        {"queues": {"Q": {"underlying_topic": "../x", "message_type": "order"}}},
    ],
)
def test_a_definition_that_would_lead_out_of_the_journal_is_refused(
    journal: Journal, added: dict[str, Any], tmp_path: Path
) -> None:
    before = everything_below(tmp_path)
    definitions = {part: {**DEFINITIONS[part], **added.get(part, {})} for part in DEFINITIONS}
    with pytest.raises(SparkQueueError, match="NAME_INVALID.*'../x'"):
        journal.apply(definitions)
    with pytest.raises(SparkQueueError, match="NAME_INVALID.*'../x'"):
        Journal.create(str(tmp_path / "another"), definitions)
    assert everything_below(tmp_path) == before


@pytest.mark.parametrize("kind", ["nothing", "directory", "file", "delta table"])
def test_a_place_that_is_no_journal_is_refused_by_whatever_is_asked(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "place"
    match kind:
        case "directory":
            path.mkdir()
        case "file":
            path.write_text("hello")
        case "delta table":
            from deltalake import write_deltalake

            write_deltalake(path, pa.table({"id": [1]}))
    before = everything_below(tmp_path)
    journal = Journal(str(path))
    asks: list[Callable[[], Any]] = [
        journal.journal_id,
        lambda: journal.publish([{"id": 1}], topic="ORDERS"),
        lambda: journal.queue("WORK").status(),
        lambda: journal.view("history"),
        lambda: journal.apply({}),
        SparkQueueDataSource({"path": str(path), "queue": "WORK", "subscription": "s"}).schema,
    ]
    for ask in asks:
        with pytest.raises(JournalError, match="NOT_A_JOURNAL|STORE_FAILED" if kind == "file" else "NOT_A_JOURNAL"):
            ask()
    assert everything_below(tmp_path) == before


def test_payloads_of_no_byte_and_of_64_megabytes_arrive_as_they_were(journal: Journal) -> None:
    size_bytes = 64 * 1024 * 1024
    large = os.urandom(1024) * (size_bytes // 1024)
    journal.publish([b"", large, b"small"], topic="BLOBS")
    with consumer(journal, "BLOBS") as query:
        blobs = [row["value"] for row in query.drain()]
    assert [len(blob) for blob in blobs] == [0, size_bytes, 5]
    assert blobs[1] == large
    journal.publish(['""', f'"{"x" * (size_bytes - 2)}"', '{"n": 1}'], topic="TEXTS")
    with consumer(journal, "TEXTS") as query:
        texts = [row["value"] for row in query.drain()]
    assert [len(text) for text in texts] == [2, size_bytes, 8]
    view = journal.view("messages", queue="TEXTS", columns=["bookmark", "state"])
    assert set(view.column("state").to_pylist()) <= {"removed"}


@pytest.mark.drawn(1)
@pytest.mark.parametrize("listed", [True, False], ids=["listed by name", "by one pattern"])
def test_ten_thousand_topics_are_published_routed_and_consumed(make_journal: MakeJournal, listed: bool) -> None:
    names = [f"T{number:05d}" for number in range(10_000)]
    journal = make_journal(
        {
            "message_types": {"order": {"columns": "id BIGINT", "topics": names if listed else ["^T[0-9]{5}$"]}},
            "queues": {
                "ALL": {"underlying_topic": "^T.*$", "default_publish_target": names[0]},
                "EVEN": {"underlying_topic": "^T[0-9]*[02468]$", "default_publish_target": names[0]},
                names[77]: {},
            },
        }
    )
    journal.publish(pa.table({"id": range(10_000), "topic": names}))
    with pytest.raises(SparkQueueError, match="UNKNOWN_TOPIC.*'U00001'"):
        journal.publish([{"id": 1}], topic="U00001")
    for queue, expected in {"ALL": range(10_000), "EVEN": range(0, 10_000, 2), names[77]: [77]}.items():
        with consumer(journal, queue) as query:
            assert ids(query.drain()) == list(expected)
            assert journal.queue(queue).status().available == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Yield a disk of 4 MB of its own."""
    mount, umount = shutil.which("mount"), shutil.which("umount")
    disk = tmp_path / "disk"
    disk.mkdir()
    if mount is None or umount is None or os.geteuid() != 0:
        pytest.skip("mounting a small disk needs Linux and root; test_publishing_processes fills one by a limit everywhere")
    made = subprocess.run([mount, "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        pytest.skip(f"this machine does not let root mount a disk: {made.stderr.strip()}")
    yield disk
    subprocess.run([umount, "--lazy", str(disk)], check=True)


def fill(disk: Path) -> Path:
    """Fill a disk to its last byte."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return filler


def test_a_full_disk_refuses_by_name_and_goes_on_when_there_is_room(small_disk: Path, make_journal: MakeJournal) -> None:
    journal = make_journal(DEFINITIONS, small_disk / "journal")
    journal.publish([{"id": number} for number in range(10)], topic="ORDERS")
    with consumer(journal, "WORK") as query:
        assert ids(query.take(4)) == [0, 1, 2, 3]
        filler = fill(small_disk)
        with pytest.raises(SparkQueueError, match="STORE_FAILED.*while"):
            journal.publish([{"id": 99}], topic="ORDERS")
        with pytest.raises(SparkQueueError, match="STORE_FAILED|COORDINATOR_UNAVAILABLE"):
            query.take(4)
        assert journal.queue("WORK").status().acknowledged == 0
        filler.unlink()
        assert ids(query.drain(4)) == list(range(4, 10))
    journal.publish([{"id": 10}], topic="ORDERS")
    with consumer(journal, "WORK") as query:
        assert ids(query.drain()) == [10]
    assert journal.queue("WORK").status().acknowledged == 11


def test_a_read_only_journal_is_looked_at_and_changed_by_nobody(small_disk: Path, make_journal: MakeJournal) -> None:
    journal = make_journal(DEFINITIONS, small_disk / "journal")
    journal.publish([{"id": number} for number in range(10)], topic="ORDERS")
    with consumer(journal, "WORK") as query:
        assert ids(query.take(4)) == [0, 1, 2, 3]
    end_coordinator(journal)
    remount = ["mount", "-o", "remount,ro", str(small_disk)]
    subprocess.run(remount, check=True)
    status = journal.queue("WORK").status()
    assert (status.entered, status.acknowledged) == (10, 0)
    assert journal.view("messages", queue="WORK").num_rows == 10
    with pytest.raises(SparkQueueError, match="STORE_FAILED.*[Rr]ead-only"):
        journal.publish([{"id": 99}], topic="ORDERS")
    with pytest.raises(SparkQueueError, match="STORE_FAILED"), consumer(journal, "WORK") as query:
        query.take()
    remount[2] = "remount,rw"
    subprocess.run(remount, check=True)
    with consumer(journal, "WORK") as query:
        assert sorted(ids(query.drain())) == list(range(10))
