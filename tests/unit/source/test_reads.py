"""Every kind of read from its options to its rows, over a journal on disk, as Spark calls it and without a JVM.

What Spark ships is pickled here as well, since executors get nothing else.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition

from spark_queue import Journal
from spark_queue.clock import SystemClock
from spark_queue.core import folds
from spark_queue.core.definitions.column_names import INSTANCE_COLUMNS, RESERVED_COLUMNS
from spark_queue.core.engine import Engine
from spark_queue.core.state.journal_state import JournalState
from spark_queue.errors import SparkQueueError
from spark_queue.journal.control_log import DeltaControlLog
from spark_queue.journal.entering import PreparedTraits, Sequencer
from spark_queue.journal.log_looks import SILENT_MS
from spark_queue.journal.open import open_journal
from spark_queue.settings.types import QueueStreamOptions
from spark_queue.source import planner, topic_following, topic_log, view_reader
from spark_queue.source.columns import read_columns
from spark_queue.source.partitions import MessagePartition
from spark_queue.source.spark_versions import ReadAllAvailable, ReadMaxRows, SupportsTriggerAvailableNow
from tests.commit_times import date_commit, newest_entry
from tests.deciding import claim
from tests.unit.source.reading import batch, between, ids, read, source, stream
from tests.unit.source.topic_ranges import over_ranges

TYPES = {"line": {"columns": "id BIGINT, item STRING", "topics": ["LINES", "RETURNS", "EMPTY"]}}
QUEUES = {"WORK": {"underlying_topic": "LINES"}}
YEAR_2096_MS = 4_000_000_000_000


def rows(first: int, until: int, **more: Any) -> list[dict[str, Any]]:
    return [{"id": number, "item": f"item {number}", **more} for number in range(first, until)]


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    """Make a journal of a mixed file, and one of a single topic."""
    journal = Journal.create(str(tmp_path / "journal"), {"message_types": TYPES, "queues": QUEUES})
    journal.publish([{**row, "topic": "RETURNS" if row["id"] % 3 == 0 else "LINES"} for row in rows(0, 9)])
    journal.publish(rows(9, 12), topic="LINES")
    return journal


class Pauses:
    """Stands in for the time that an idle stream waits, and for the clock that it looks at."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.waited_s: list[float] = []
        #: What happens while it waits.
        self.meanwhile: Callable[[], object] = int

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return SystemClock().wall_ms()

    def wait(self, timeout_s: float) -> None:
        self.waited_s.append(timeout_s)
        self.now_ms += round(timeout_s * 1_000)
        self.meanwhile()


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> Pauses:
    found = Pauses()
    monkeypatch.setattr(topic_following, "threading", SimpleNamespace(Event=lambda: found))
    monkeypatch.setattr(topic_following, "SystemClock", lambda: found)
    return found


def test_a_topic_is_read_with_its_bookmarks_and_without_rows_of_other_topics(journal: Journal) -> None:
    """R8, R96."""
    reader = batch(journal, topic="LINES")
    table = read(reader, reader.partitions())
    assert table.column("bookmark").to_pylist() == table.column("id").to_pylist() == [1, 2, 4, 5, 7, 8, 9, 10, 11]
    assert set(table.column("topic").to_pylist()) == {"LINES"}
    assert "lease" not in table.column_names


def test_reserved_is_what_stands_beside_the_columns_of_a_row_and_nothing_else() -> None:
    for of_instance, beside in ((False, RESERVED_COLUMNS), (True, RESERVED_COLUMNS | INSTANCE_COLUMNS)):
        assert set(read_columns("id INT", leased=True, of_instance=of_instance).names) == {"id"} | beside


@over_ranges
def test_a_batch_read_of_a_topic_keeps_to_its_range(journal: Journal, options: dict[str, str], expected: list[int]) -> None:
    assert ids(batch(journal, topic="LINES", **options)) == expected


def test_a_topic_is_read_from_files_that_hold_it_only(journal: Journal) -> None:
    """A file whose topics are all before or all after it is not opened."""
    for topic, expected in (("LINES", 2), ("RETURNS", 1), ("EMPTY", 0)):
        partitions = [each for each in batch(journal, topic=topic).partitions() if isinstance(each, MessagePartition)]
        assert len({piece.path for each in partitions for piece in each.pieces}) == expected


def test_columns_are_chosen_and_partitions_are_as_many_as_asked_for(journal: Journal) -> None:
    reader = batch(journal, topic="LINES", columns="bookmark, item", minPartitions="3")
    assert len(reader.partitions()) == 3
    assert read(reader, reader.partitions()).column_names == ["bookmark", "item"]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"topic": "LINSE"}, "UNKNOWN_TOPIC.*Did you mean 'LINES'"),
        ({"queue": "WRK"}, "UNKNOWN_QUEUE.*Did you mean 'WORK'"),
        ({"queue": "WRK", "subscription": "s"}, "UNKNOWN_QUEUE.*Did you mean 'WORK'"),
        ({"topic": "LINES", "columns": "id,itm"}, "UNKNOWN_COLUMN.*message type 'line'.*Did you mean 'item'"),
        ({"topic": "LINES", "columns": "lease"}, "UNKNOWN_COLUMN"),
        ({"topic": "LINES", "storage.aws_region": "eu-1"}, "STORAGE_OPTION_UNSUPPORTED.*aws_region"),
        ({"queue": "WORK", "view": "leases", "storage.aws_region": "eu-1"}, "STORAGE_OPTION_UNSUPPORTED.*aws_region"),
        ({"topic": "LINES", "coordinator": "queue-a:7337,"}, "BAD_VALUE.*'coordinator'"),
        ({"queue": "WORK", "view": "leases", "tokenFile": "/nowhere/token"}, "BAD_VALUE.*/nowhere/token"),
        ({"queue": "WORK", "subscription": "s", "coordinator": "grpc://there:1"}, "BAD_VALUE.*'coordinator'.*without TLS"),
        ({}, "MISSING_OPTION.*queue"),
        ({"queue": "WORK", "ackMode": "explicit"}, "MISSING_OPTION.*'subscription'"),
        ({"queue": "WORK", "FILTER": "id > 3"}, "MISSING_OPTION.*'subscription'"),
    ],
)
def test_a_wrong_read_is_refused_as_soon_as_spark_asks_for_its_columns(
    journal: Journal, options: dict[str, str], reason: str
) -> None:
    with pytest.raises(SparkQueueError, match=reason):
        source(journal, **options).schema()


def test_a_stream_of_a_topic_is_cut_into_as_many_partitions_as_asked_for(journal: Journal) -> None:
    reader = stream(journal, topic="LINES", startingBookmark="earliest", minPartitions="3")
    start = reader.initialOffset()
    assert len(reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))) == 3


def test_an_idle_stream_of_a_topic_looks_the_less_the_longer_nothing_comes(
    journal: Journal, pauses: Pauses, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a coordinator; each call gives other sources of its query their turn."""
    reader = stream(journal, topic="LINES", startingBookmark="earliest")
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    began_ms, calls, looks = pauses.now_ms, 0, list[int]()
    refresh = topic_log.TopicLog.refresh

    def count(log: topic_log.TopicLog, *, finds_gaps: bool = True) -> bool:
        looks.append(pauses.now_ms)
        return refresh(log, finds_gaps=finds_gaps)

    monkeypatch.setattr(topic_log.TopicLog, "refresh", count)
    while pauses.now_ms < began_ms + 60_000:
        assert reader.latestOffset(end, ReadAllAvailable()) is end
        calls += 1
    assert max(pauses.waited_s) <= topic_following.WAIT_MS / 1_000
    assert calls >= 60_000 // topic_following.WAIT_MS
    apart = [later - earlier for earlier, later in pairwise(looks)]
    assert (apart, apart[-1]) == (sorted(apart), SILENT_MS)
    journal.publish(rows(12, 14), topic="LINES")
    published_ms = pauses.now_ms
    while (found := reader.latestOffset(end, ReadAllAvailable())) is end:
        assert pauses.now_ms <= published_ms + SILENT_MS
    assert found["bookmark"] == 14


def test_a_stream_of_a_topic_that_has_more_to_read_waits_for_nothing(journal: Journal, pauses: Pauses) -> None:
    reader = stream(journal, topic="LINES", startingBookmark="earliest")
    assert reader.latestOffset(reader.initialOffset(), ReadAllAvailable())["bookmark"] == 12
    pauses.meanwhile = lambda: journal.publish(rows(12, 14), topic="LINES")
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert (end["bookmark"], pauses.waited_s) == (12, [])
    assert reader.latestOffset(end, ReadAllAvailable())["bookmark"] == 14
    assert len(pauses.waited_s) == 1


def test_a_view_shows_the_moment_that_is_asked_for(journal: Journal) -> None:
    def records(**options: str) -> int:
        reader = batch(journal, view="history", **options)
        return read(reader, reader.partitions()).num_rows

    assert records(recordAsOf="0") == 1
    assert records() > 1


def test_a_stream_of_a_topic_begins_where_its_options_say_and_counts_on(journal: Journal) -> None:
    """R7, R8, DESIGN 15.15: also over messages that no coordinator has entered."""
    reader = stream(journal, topic="LINES", startingBookmark="4")
    start = reader.initialOffset()
    first = reader.latestOffset(start, ReadAllAvailable())
    assert first == {**start, "bookmark": 12}
    assert between(reader, start, first) == [4, 5, 7, 8, 9, 10, 11]
    assert reader.latestOffset(first, ReadAllAvailable()) is first
    journal.publish(rows(12, 14), topic="LINES")
    second = reader.latestOffset(first, ReadAllAvailable())
    assert between(reader, first, second) == [12, 13]


def test_a_stream_of_a_topic_begins_at_its_end_unless_told_otherwise(journal: Journal) -> None:
    reader = stream(journal, topic="LINES")
    start = reader.initialOffset()
    first = reader.latestOffset(start, ReadAllAvailable())
    assert between(reader, start, first) == []
    journal.publish(rows(12, 14), topic="LINES")
    # Begun anew from its checkpoint, it has all that came after it.
    again = stream(journal, topic="LINES")
    assert between(again, first, again.latestOffset(first, ReadAllAvailable())) == [12, 13]


def test_a_run_of_what_is_there_now_reads_no_later_message(journal: Journal) -> None:
    reader = stream(journal, topic="LINES", startingBookmark="earliest")
    start = reader.initialOffset()
    assert isinstance(reader, SupportsTriggerAvailableNow)
    reader.prepareForTriggerAvailableNow()
    journal.publish(rows(12, 14), topic="LINES")
    end = reader.latestOffset(start, ReadAllAvailable())
    assert end["bookmark"] == 12
    assert reader.latestOffset(end, ReadAllAvailable()) is end


def test_time_counts_from_the_commit_whatever_entered_beside_it(tmp_path: Path) -> None:
    """A message is as old as its commit, and other message types have bookmarks of their own."""
    types = {**TYPES, "note": {"columns": "id BIGINT", "topics": ["NOTES"]}}
    journal = Journal.create(str(tmp_path / "journal"), {"message_types": types, "queues": QUEUES})
    journal.publish(rows(0, 2), topic="LINES")
    journal.publish([{"id": number} for number in range(100, 105)], topic="NOTES")
    for message_type in ("line", "note"):
        date_commit(newest_entry(journal.path, message_type), YEAR_2096_MS)
    opened = open_journal(journal.store)
    control, traits = DeltaControlLog(journal.store), PreparedTraits(opened.traits)
    engine = Engine(JournalState(traits))
    folds.fold_all(engine.state, control.load().records)
    claim(engine, epoch=1, host="h", address="a", pid=1, now_ms=YEAR_2096_MS)
    entrance = Sequencer(opened, engine, traits)
    for message_type in ("line", "note"):
        entrance.admit(message_type, now_ms=YEAR_2096_MS)
    control.append(engine.drain_records(), epoch=1)
    assert ids(batch(journal, topic="LINES", startingTimestamp="2090-01-01T00:00:00Z")) == [0, 1]
    assert ids(batch(journal, topic="NOTES", endingTimestamp="2090-01-01T00:00:00Z")) == []
    reader = stream(journal, topic="LINES")
    assert reader.latestOffset(reader.initialOffset(), ReadAllAvailable())["bookmark"] == 2


def test_an_offset_of_another_topic_is_refused(journal: Journal) -> None:
    of_returns = stream(journal, topic="RETURNS").initialOffset()
    reader = stream(journal, topic="LINES")
    with pytest.raises(SparkQueueError, match="CHECKPOINT_FOREIGN.*'RETURNS'.*'LINES'"):
        reader.latestOffset(of_returns, ReadAllAvailable())
    for start, end in ((of_returns, reader.initialOffset()), (reader.initialOffset(), of_returns)):
        with pytest.raises(SparkQueueError, match="CHECKPOINT_FOREIGN"):
            reader.partitions(start, end)


@pytest.mark.parametrize("options", [{"topic": "LINES"}, {"queue": "WORK"}])
def test_a_read_that_was_planned_on_another_journal_is_refused(journal: Journal, tmp_path: Path, options: dict[str, str]) -> None:
    """A journal may be deleted and made anew under a running session."""
    reader = batch(journal, **options)
    moved = tmp_path / "moved"
    Path(journal.path).rename(moved)
    Journal.create(journal.path, {"message_types": TYPES, "queues": QUEUES})
    with pytest.raises(SparkQueueError, match="JOURNAL_MISMATCH"):
        reader.partitions()


def test_a_view_is_read_in_parts_of_a_bounded_size(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view_reader, "PARTITION_ROWS", 4)
    reader = batch(journal, queue="WORK", view="messages")
    partitions = reader.partitions()
    assert [len(read(reader, [partition])) for partition in partitions] == [4, 4, 1]
    assert ids(reader) == [1, 2, 4, 5, 7, 8, 9, 10, 11]
    assert list(pickle.loads(pickle.dumps(reader)).read(InputPartition(None))) == []


def test_a_schema_of_the_users_own_is_given_in_its_order(journal: Journal) -> None:
    """Then Spark does not ask for the columns before it asks for the reader."""
    whole = source(journal, topic="LINES").schema()
    wanted = type(whole)([whole["item"], whole["bookmark"]])
    for reader in (source(journal, topic="LINES").reader(wanted), source(journal, queue="WORK").reader(wanted)):
        table = read(reader, reader.partitions())
        assert (table.column_names, table.num_rows) == (["item", "bookmark"], 9)


class Planner:
    """Notes what it was made of."""

    made: list[tuple[QueueStreamOptions, str, str | None, bool]]

    def __init__(self, options: QueueStreamOptions, journal_id: str, *, columns: str | None, available_now: bool) -> None:
        self.made.append((options, journal_id, columns, available_now))

    def leave(self) -> None:
        pass


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[tuple[QueueStreamOptions, str, str | None, bool]]:
    Planner.made = []
    monkeypatch.setattr(planner, "QueuePlanner", Planner)
    return Planner.made


@pytest.mark.parametrize("available_now", [False, True])
def test_a_stream_of_a_queue_takes_the_seat_that_its_options_name(
    journal: Journal, made: list[tuple[QueueStreamOptions, str, str | None, bool]], *, available_now: bool
) -> None:
    reader = stream(
        journal, queue="WORK", subscription="billing", maxBacklog="7", ackMode="explicit", filter="id > 3",
        coordinator="grpc://127.0.0.1:9",
    )  # fmt: skip
    assert isinstance(reader, SupportsTriggerAvailableNow)
    if available_now:
        reader.prepareForTriggerAvailableNow()
    offset = reader.initialOffset()
    limit = reader.getDefaultReadLimit()
    reader.stop()
    ((options, journal_id, _, was_available_now),) = made
    assert (options.queue, options.subscription, options.max_backlog, options.filter) == ("WORK", "billing", 7, "id > 3")
    assert (options.ack_mode, options.coordinator, options.journal) == ("explicit", "grpc://127.0.0.1:9", journal.path)
    assert journal_id == journal.journal_id()
    assert offset == {"v": 1, "journal": journal_id, "queue": "WORK", "subscription": "billing", "lease": 0}
    assert was_available_now is available_now
    assert isinstance(limit, ReadMaxRows)
    assert limit.max_rows == 7


def test_a_stream_of_a_queue_knows_the_columns_by_which_it_was_loaded_unless_some_were_chosen(
    journal: Journal, made: list[tuple[QueueStreamOptions, str, str | None, bool]]
) -> None:
    of_queue = {"queue": "WORK", "subscription": "billing"}
    schema = source(journal, **of_queue).schema()
    own: Any = source(journal, **of_queue).streamReader(type(schema)([schema["item"], schema["bookmark"]]))
    for reader in (stream(journal, **of_queue), stream(journal, columns="id, item", **of_queue), own):
        reader.initialOffset()
        reader.stop()
    assert [columns for _, _, columns, _ in made] == ["id BIGINT, item STRING", None, None]


def test_the_columns_of_a_queue_are_those_of_its_messages_and_of_their_lease(journal: Journal) -> None:
    schema = source(journal, queue="WORK", subscription="s").schema()
    assert schema.names[:3] == ["id", "item", "bookmark"]
    assert {"topic", "published_at", "delivery_count", "cancel_count", "lease", "leased_until", "is_barrier"} < set(schema.names)
    assert source(journal, queue="WORK", subscription="s", columns="lease, id").schema().names == ["lease", "id"]


def test_what_a_stream_of_a_queue_ships_reads_the_files_of_its_journal(
    journal: Journal, made: list[tuple[QueueStreamOptions, str, bool]]
) -> None:
    """A queue may hold messages of several topics, so that nothing is left out by topic."""
    of_topic = batch(journal, topic="LINES").partitions()
    reader = stream(journal, queue="WORK", subscription="s", columns="id, topic")
    assert read(reader, of_topic).column("id").to_pylist() == list(range(12))
    assert made == []
