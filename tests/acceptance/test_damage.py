"""Damaged journals, from the front door: what is affected is refused by name, and delivery of everything else goes on."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from spark_queue import Journal
from spark_queue.core.records import Kind, Record
from spark_queue.errors import JournalError, SparkQueueError
from spark_queue.journal.control_log import DeltaControlLog
from spark_queue.journal.open import open_journal
from tests.acceptance.conftest import MakeJournal
from tests.acceptance.plain_consumer import PlainConsumer, consumer, ids
from tests.integration.coordinator_world import wait_for_end
from tests.integration.source_journal import wait_until
from tests.records import detail_of

#: Two message types; queues over one topic each, one over both, and one of the other type.
DEFINITIONS: dict[str, Any] = {
    "message_types": {
        "order": {"columns": "id BIGINT, item STRING", "topics": ["ORDERS", "RETURNS"]},
        "event": {"columns": "id BIGINT", "topics": ["EVENTS"]},
    },
    "queues": {
        "ORDERS": {},
        "RETURNS": {},
        "BOTH": {"underlying_topic": "^(ORDERS|RETURNS)$", "default_publish_target": "ORDERS"},
        "EVENTS": {},
    },
}


@pytest.fixture
def journal(make_journal: MakeJournal) -> Journal:
    return make_journal(DEFINITIONS)


def publish(journal: Journal, topic: str | None, *numbers: int, topics: list[str] | None = None) -> Path:
    """Publish rows in one commit, and give the message file that it made."""
    folder = Path(journal.path) / "messages" / ("event" if topic == "EVENTS" else "order")
    before = set(folder.glob("*.parquet"))
    rows: list[dict[str, Any]] = [{"id": number} for number in numbers]
    if topics is not None:
        rows = [{**row, "topic": each} for row, each in zip(rows, topics, strict=True)]
    journal.publish(rows, topic=topic)
    (made,) = set(folder.glob("*.parquet")) - before
    return made


def drain(journal: Journal, queue: str, subscription: str = "other") -> list[int]:
    with consumer(journal, queue, subscription) as query:
        return ids(query.drain())


def claims(journal: Journal) -> list[Record]:
    return [record for record in open_journal(journal.store).records() if record.kind == Kind.EPOCH_CLAIMED]


def kill_coordinator(journal: Journal) -> None:
    pid = int(detail_of(claims(journal)[-1])["pid"])
    os.kill(pid, signal.SIGKILL)
    wait_for_end(pid)


def halve(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def scribble(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4:60] = bytes(56)
    path.write_bytes(data)


def shorten(path: Path) -> None:
    pq.write_table(pq.read_table(path).slice(0, 1), path)


DAMAGES: dict[str, Callable[[Path], Any]] = {
    "missing": Path.unlink,
    "zero-length": lambda path: path.write_bytes(b""),
    "torn": halve,
    "corrupt": scribble,
    "shorter than announced": shorten,
}


@pytest.mark.drawn(2)
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_message_file_stops_only_the_batch_that_needs_it(journal: Journal, tmp_path: Path, damage: str) -> None:
    """Named to its reader; other subscriptions and queues go on; the file put back, nothing is lost and nothing came twice."""
    publish(journal, "ORDERS", 1, 2)
    file = publish(journal, "ORDERS", 3, 4)
    publish(journal, "ORDERS", 5, 6)
    publish(journal, "RETURNS", 7)
    publish(journal, "EVENTS", 8)
    copy = shutil.copy(file, tmp_path / "copy")
    DAMAGES[damage](file)
    code = "MISSING" if damage == "missing" else "CORRUPT"
    with consumer(journal, "ORDERS") as query:
        assert ids(query.take(2)) == [1, 2]
        for _ in range(2):
            with pytest.raises(JournalError, match=f"MESSAGE_FILE_{code}.*{file.name}"):
                query.take(2)
        assert drain(journal, "ORDERS") == [5, 6]
        assert drain(journal, "RETURNS") == [7]
        assert drain(journal, "EVENTS") == [8]
        shutil.copy(copy, file)
        assert ids(query.drain()) == [3, 4]
    assert journal.queue("ORDERS").status().acknowledged == 6


def test_a_file_that_entering_must_read_holds_back_its_own_type_and_nothing_else(journal: Journal, tmp_path: Path) -> None:
    publish(journal, "ORDERS", 1)
    file = publish(journal, None, 2, 3, topics=["ORDERS", "RETURNS"])
    publish(journal, "ORDERS", 4)
    publish(journal, "EVENTS", 5)
    kept = file.rename(tmp_path / "kept")
    with consumer(journal, "ORDERS") as query:
        assert ids(query.take()) == [1]
        with pytest.raises(JournalError, match=f"MESSAGE_FILE_MISSING.*{file.name}"):
            query.take()
        assert drain(journal, "EVENTS") == [5]
        kept.rename(file)
        assert ids(query.drain()) == [2, 4]
    assert drain(journal, "RETURNS") == [3]


def is_back(query: PlainConsumer) -> bool:
    """Return whether a queue is served again whose next message is 14."""
    with suppress(JournalError):
        return ids(query.take(1)) == [14]
    return False


def test_a_coordinator_starts_without_a_file_that_tells_what_a_queue_holds(journal: Journal, tmp_path: Path) -> None:
    """Queues that the file leaves untold are refused by name, now and in the next reigns, until the file is back; no other is."""
    publish(journal, "ORDERS", 1)
    file = publish(journal, None, *range(10, 20), topics=["ORDERS", "RETURNS"] * 5)
    publish(journal, "ORDERS", 2)
    publish(journal, "EVENTS", 3)
    missing = f"MESSAGE_FILE_MISSING.*{file.name}"
    with consumer(journal, "ORDERS") as query:
        assert ids(query.take(2)) == [1, 10]
        assert ids(query.take(1)) == [12]
        kept = file.rename(tmp_path / "kept")
        kill_coordinator(journal)
        with consumer(journal, "EVENTS") as other:
            assert ids(other.take()) == [3]
            for ask in (query.take, journal.queue("ORDERS").status):
                with pytest.raises(JournalError, match=missing):
                    ask()
            assert journal.queue("EVENTS").status().acknowledged == 0
            kept.rename(file)
            # The reign that could not tell takes the queue back in by itself, also while others keep it busy.
            wait_until(lambda: not other.take() and is_back(query))
        assert ids(query.drain()) == [16, 18, 2]
        assert len(claims(journal)) == 2
    assert sorted(drain(journal, "RETURNS")) == [11, 13, 15, 17, 19]
    assert sorted(drain(journal, "BOTH")) == [1, 2, *range(10, 20)]


@pytest.mark.parametrize("deed", ["optimize", "delete"])
def test_a_strangers_rewrite_ends_one_types_delivery_after_what_came_before_it(journal: Journal, deed: str) -> None:
    for number in (1, 2):
        publish(journal, "ORDERS", number)
    table = DeltaTable(journal.store.messages_uri("order"))
    if deed == "optimize":
        table.optimize.compact()
    else:
        table.delete("id = 2")
    version = table.version()
    publish(journal, "ORDERS", 3)
    publish(journal, "EVENTS", 4)
    with consumer(journal, "ORDERS") as query:
        assert ids(query.take()) == [1, 2]
        text = rf"JOURNAL_REWRITTEN.*Version {version} .*{deed.upper()}.*as of version {version - 1}"
        with pytest.raises(JournalError, match=text):
            query.take()
    assert drain(journal, "EVENTS") == [4]
    assert journal.queue("ORDERS").status().acknowledged == 2


def test_a_strangers_append_is_shown_and_enters_no_queue(journal: Journal) -> None:
    publish(journal, "ORDERS", 1)
    table = DeltaTable(journal.store.messages_uri("order"))
    write_deltalake(table, table.to_pyarrow_table(), mode="append")
    publish(journal, "ORDERS", 2)
    assert drain(journal, "ORDERS") == [1, 2]
    assert journal.queue("ORDERS").status().foreign_files == 1


def log_entries(journal: Journal, table: str) -> list[Path]:
    return sorted((Path(journal.path) / table / "_delta_log").glob("*.json"))


@pytest.mark.drawn(2)
@pytest.mark.parametrize(
    "content", [b"", b'{"commitInfo":{"timest', b"\0" * 512, b"not JSON at all\n"], ids=["empty", "torn", "zeros", "text"]
)
def test_a_damaged_entry_of_one_message_log_leaves_the_other_types_alone(journal: Journal, content: bytes) -> None:
    for number in (1, 2, 3):
        publish(journal, "ORDERS", number)
    publish(journal, "EVENTS", 4)
    entry = log_entries(journal, "messages/order")[2]
    whole = entry.read_bytes()
    entry.write_bytes(content)
    with consumer(journal, "ORDERS") as query:
        assert ids(query.take()) == [1]
        with pytest.raises(JournalError, match="JOURNAL_DAMAGED.*messages/order/_delta_log/00000000000000000002.json"):
            query.take()
        assert drain(journal, "EVENTS") == [4]
        entry.write_bytes(whole)
        assert ids(query.drain()) == [2, 3]


@pytest.mark.drawn(2)
@pytest.mark.parametrize("part", ["entry", "records"])
@pytest.mark.parametrize("damage", ["missing", "zero-length", "torn"])
def test_a_damaged_control_log_serves_nobody_and_says_why(journal: Journal, part: str, damage: str) -> None:
    """Not the newest commit, which a power loss may take: this is what no reader can do without."""
    publish(journal, "ORDERS", 1, 2)
    with consumer(journal, "ORDERS") as query:
        query.drain(limit=1)
    kill_coordinator(journal)
    control = DeltaControlLog(journal.store)
    control.load()
    control.flush(epoch=control._epoch, at_ms=0)
    victim = (
        log_entries(journal, "control")[2] if part == "entry" else sorted((Path(journal.path) / "control").glob("*.parquet"))[2]
    )
    whole = victim.read_bytes()
    DAMAGES[damage](victim)
    code = "LOG_GAP" if (part, damage) == ("entry", "missing") else "JOURNAL_DAMAGED"
    for ask in (lambda: journal.queue("ORDERS").status(), lambda: drain(journal, "ORDERS")):
        with pytest.raises(SparkQueueError, match=code):
            ask()
    victim.write_bytes(whole)
    assert journal.queue("ORDERS").status().acknowledged == 2
    assert drain(journal, "ORDERS") == []
