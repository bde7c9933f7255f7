"""Columns that a message type gets while it is read: no message comes without a value that it has."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from spark_queue import Journal
from spark_queue.errors import CallerError
from spark_queue.source.spark_versions import ReadAllAvailable
from tests.integration.coordinator_world import DEADLINE_S
from tests.integration.source_journal import COLUMNS, MakeHome, SourceJournal, definitions, end_coordinator
from tests.unit.source.reading import read, stream
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BY_TOPIC = {"topic": "ORDERS", "startingBookmark": "earliest"}


def appended(added: str = "added STRING") -> dict[str, Any]:
    """Return the definitions with one more column."""
    known = definitions()
    known["message_types"]["order"]["columns"] = f"{COLUMNS}, {added}"
    return known


@pytest.fixture
def journal(tmp_path: Path, own_user: None) -> Any:
    """Make a journal with one message."""
    made = Journal.create(str(tmp_path / "journal"), definitions())
    made.publish([{"id": 0, "item": "first"}], topic="ORDERS")
    yield made
    end_coordinator(made)


def test_a_receiver_has_them_from_the_first_message_on_that_does(journal: Journal) -> None:
    """Rows that it has in hand stay as they were read; a batch of both has NULL where a message has no value."""
    with journal.queue("WORK").receive() as messages:
        first = messages.get(DEADLINE_S)
        assert first is not None
        journal.apply(appended())
        journal.publish([{"id": 1, "item": "second", "added": "new"}], topic="ORDERS")
        second = messages.get(DEADLINE_S)
        assert second is not None
        assert (first.value(), second.value()) == (
            {"id": 0, "item": "first"}, {"id": 1, "item": "second", "added": "new"},
        )  # fmt: skip
        for each in (first, second):
            each.cancel().result(DEADLINE_S)
        batch = next(messages.batches(2, linger="5s"))
        assert batch.table.select(["id", "added"]).to_pylist() == [{"id": 0, "added": None}, {"id": 1, "added": "new"}]
        batch.settle()


def test_a_stream_of_a_topic_ends_before_the_first_message_that_has_them(journal: Journal) -> None:
    every, some = stream(journal, **BY_TOPIC), stream(journal, columns="id, item", **BY_TOPIC)
    start = every.initialOffset()
    end: dict[str, Any] = every.latestOffset(start, ReadAllAvailable())
    assert some.latestOffset(start, ReadAllAvailable()) == end
    journal.apply(appended())
    # Nothing comes, and nothing is lacking.
    assert every.latestOffset(end, ReadAllAvailable()) == end
    journal.publish([{"id": 1, "item": "second", "added": "new"}], topic="ORDERS")
    with pytest.raises(CallerError, match=r"COLUMNS_APPENDED.*'order' has got 'added' since"):
        every.latestOffset(end, ReadAllAvailable())
    # Columns that were chosen stay as they are, and a new load gives those that there are.
    after = some.latestOffset(end, ReadAllAvailable())
    anew = stream(journal, **BY_TOPIC)
    assert anew.latestOffset(end, ReadAllAvailable()) == after != end
    assert read(anew, anew.partitions(start, after)).select(["id", "added"]).to_pylist() == [
        {"id": 0, "added": None}, {"id": 1, "added": "new"},
    ]  # fmt: skip


def test_a_stream_of_a_topic_whose_messages_are_rows_of_a_table_ends_as_well(tmp_path: Path, own_user: None) -> None:
    """The table's own log tells nothing of definitions."""
    table = str(tmp_path / "orders")
    write_deltalake(table, pa.table({"id": [0]}))
    known = {"message_types": {"orders": {"table": table, "from": "beginning"}}, "queues": {"SHIP": {"underlying_topic": "orders"}}}
    journal = Journal.create(str(tmp_path / "journal"), known)
    try:
        reader = stream(journal, topic="orders", startingBookmark="earliest")
        end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
        rows = pa.table({"id": [1], "added": ["new"]})
        write_deltalake(table, rows, mode="append", schema_mode="merge")
        # The declared columns are those of the table when they were declared, until somebody declares them anew.
        end = reader.latestOffset(end, ReadAllAvailable())
        assert end["bookmark"] == 2
        journal.apply(known)
        write_deltalake(table, rows, mode="append")
        with pytest.raises(CallerError, match=r"COLUMNS_APPENDED.*'orders' has got 'added' since"):
            reader.latestOffset(end, ReadAllAvailable())
    finally:
        end_coordinator(journal)


@pytest.mark.spark
def test_a_query_ends_before_the_first_message_that_has_them_and_one_that_is_loaded_anew_goes_on(make_home: MakeHome) -> None:
    """Also where its data frame was loaded before, and for a frame of chosen columns nothing changes."""
    home = make_home()
    rows: list[dict[str, Any]] = []

    def note(batch: DataFrame, batch_id: int) -> None:
        names = [name for name in batch.columns if name in ("id", "added", "delivery_count")]
        rows.extend(row.asDict() for row in batch.select(names).collect())

    home.publish(0, 1)
    frame, query = home.stream(), home.start(note)
    wait_until(lambda: home.figures() == (0, 0, 1))
    home.journal.apply(appended())
    home.journal.publish([{"id": 1, "item": "second", "added": "new"}], topic="ORDERS")
    ended(home, query)
    wrapped = home.wrapped(note)
    ended(home, frame.writeStream.foreachBatch(wrapped).option("checkpointLocation", home.checkpoint()).start())
    assert rows == [{"id": 0, "delivery_count": 1}]
    home.run(note)
    assert rows[1:] == [{"id": 1, "added": "new", "delivery_count": 1}]

    chosen = home.start(note, options={"columns": "id"})
    home.journal.apply(appended("added STRING, more STRING"))
    home.publish(2, 1)
    wait_until(lambda: home.figures() == (0, 0, 3))
    assert rows[2:] == [{"id": 2}]
    assert chosen.isActive
    chosen.stop()


def ended(home: SourceJournal, query: Any) -> None:
    """Wait until a query is over, as one that would leave out values."""
    wait_until(lambda: not query.isActive)
    assert "[COLUMNS_APPENDED] Message type 'order' has got 'added' since" in str(query.exception())
    wait_until(lambda: home.figures() == (1, 0, 1))
