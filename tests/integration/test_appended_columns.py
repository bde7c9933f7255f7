"""Columns that a message type gets while it is read: no message comes without a value that it has."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from spark_queue import Journal
from spark_queue.core import commands, folds
from spark_queue.core.definitions.parsing import parse
from spark_queue.core.engine import Engine
from spark_queue.core.state.journal_state import JournalState
from spark_queue.errors import CallerError
from spark_queue.journal import control_log
from spark_queue.journal.open import open_journal
from spark_queue.journal.store import Store
from spark_queue.source.spark_versions import ReadAllAvailable, ReadMaxRows
from spark_queue.source.topic_log import TopicLog
from tests.deciding import claim
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


def newer(reader: Any, start: dict[str, Any]) -> dict[str, Any]:
    """Return the offset of something that was published: one call waits for a while only, and a host may be busy for longer."""
    found = [start]

    def has_come() -> bool:
        found[0] = reader.latestOffset(start, ReadAllAvailable())
        return found[0] != start

    wait_until(has_come)
    return found[0]


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
    # Nothing comes, and so nothing is lacking.
    assert every.latestOffset(end, ReadAllAvailable()) == end
    journal.publish([{"id": 1, "item": "second", "added": "new"}], topic="ORDERS")
    with pytest.raises(CallerError, match=r"COLUMNS_APPENDED.*'order' was given 'added' after"):
        newer(every, end)
    # Columns that were chosen stay as they are, and a new load gives those that there are.
    after = newer(some, end)
    anew = stream(journal, **BY_TOPIC)
    assert newer(anew, end) == after
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
        end = newer(reader, end)
        assert end["bookmark"] == 2
        journal.apply(known)
        write_deltalake(table, rows, mode="append")
        with pytest.raises(CallerError, match=r"COLUMNS_APPENDED.*'orders' was given 'added' after"):
            newer(reader, end)
    finally:
        end_coordinator(journal)


def test_a_batch_that_was_planned_with_them_is_not_read_without_them(journal: Journal) -> None:
    """A data frame is used again, and begins at a checkpoint whose last batch is not committed."""
    before = stream(journal, **BY_TOPIC)
    journal.apply(appended())
    journal.publish([{"id": 1, "item": "second", "added": "new"}], topic="ORDERS")
    anew = stream(journal, **BY_TOPIC)
    start = anew.initialOffset()
    end = anew.latestOffset(start, ReadAllAvailable())
    with pytest.raises(CallerError, match="COLUMNS_APPENDED"):
        before.partitions(start, end)


def test_a_stream_of_a_topic_goes_by_the_definitions_that_no_log_tells_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator dies between the commit of the definitions and the word of it in the log, and a publisher begins there."""
    journal = Journal.create(str(tmp_path / "journal"), definitions())
    journal.publish([{"id": 0, "item": "first"}], topic="ORDERS")
    reader = stream(journal, **BY_TOPIC)
    end: dict[str, Any] = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    opened = open_journal(journal.store)
    engine = Engine(JournalState(opened.traits))
    folds.fold_all(engine.state, opened.control.load().records)
    claim(engine, epoch=1, host="h", address="a", pid=1, now_ms=1)
    opened.create_message_table("order", f"{COLUMNS}, added STRING")
    engine.decide(commands.Apply(definitions=dict(parse(appended()).stored), request="r"), now_ms=2)
    monkeypatch.setattr(control_log, "announce", lambda *_, **__: None)
    opened.control.append(engine.drain_records(), epoch=1)
    Journal(journal.path).publish([{"id": 1, "item": "second", "added": "new"}], topic="ORDERS")
    with pytest.raises(CallerError, match="COLUMNS_APPENDED"):
        reader.latestOffset(end, ReadAllAvailable())


def test_a_stream_over_a_table_goes_by_the_definitions_of_after_its_look(
    tmp_path: Path, own_user: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are applied, and rows appended, while it reads the table's log; what it asks for beside that are a few entries."""
    table = str(tmp_path / "orders")
    write_deltalake(table, pa.table({"id": [0]}))
    known = {"message_types": {"orders": {"table": table, "from": "beginning"}}, "queues": {"SHIP": {"underlying_topic": "orders"}}}
    journal = Journal.create(str(tmp_path / "journal"), known)
    counted: list[Any] = []

    def count_on(log: TopicLog, entry: Any) -> None:
        of_product(log, entry)
        if not counted:
            counted.append(entry)
            write_deltalake(table, pa.table({"id": [2], "added": ["x"]}), mode="append", schema_mode="merge")
            journal.apply(known)
            write_deltalake(table, pa.table({"id": [3], "added": ["new"]}), mode="append")

    try:
        with journal.queue("SHIP").receive() as messages:
            for number in range(20):
                message = messages.get(DEADLINE_S)
                assert message is not None
                message.acknowledge().result(DEADLINE_S)
                write_deltalake(table, pa.table({"id": [number]}), mode="append")
        reader = stream(journal, topic="orders", startingBookmark="earliest")
        end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
        write_deltalake(table, pa.table({"id": [1]}), mode="append")
        reads: list[str] = []
        of_store = Store.read

        def noted(store: Store, key: str, **more: Any) -> Any:
            reads.append(key)
            return of_store(store, key, **more)

        monkeypatch.setattr(Store, "read", noted)
        end = reader.latestOffset(end, ReadAllAvailable())
        assert len([key for key in reads if key.startswith("control/")]) < 6
        of_product = TopicLog._count_on
        monkeypatch.setattr(TopicLog, "_count_on", count_on)
        write_deltalake(table, pa.table({"id": [1]}), mode="append")
        with pytest.raises(CallerError, match="COLUMNS_APPENDED"):
            newer(reader, end)
    finally:
        end_coordinator(journal)


def test_a_batch_has_the_types_that_hold_when_the_last_of_its_messages_comes(tmp_path: Path, own_user: None) -> None:
    """Columns of a followed table may be declared wider while its messages are consumed."""
    table = str(tmp_path / "orders")
    write_deltalake(table, pa.table({"id": [0], "v": [1]}))

    def of(kind: str) -> dict[str, Any]:
        orders = {"table": table, "from": "beginning", "columns": f"id BIGINT, v {kind}"}
        return {"message_types": {"orders": orders}, "queues": {"SHIP": {"underlying_topic": "orders"}}}

    journal = Journal.create(str(tmp_path / "journal"), of("BIGINT"))
    try:
        with journal.queue("SHIP").receive() as messages:
            wait_until(lambda: messages.status.waiting == 1)
            journal.apply(of("DECIMAL(20,0)"))
            write_deltalake(table, pa.table({"id": [1], "v": [2]}), mode="append")
            wait_until(lambda: messages.status.waiting == 2)
            batch = next(messages.batches(2))
            assert batch.table.column("v").to_pylist() == [Decimal(1), Decimal(2)]
            for each in batch.settle():
                each.result(DEADLINE_S)
    finally:
        end_coordinator(journal)


@pytest.mark.parametrize("keys", [{}, {"order_key": "item"}])
def test_nothing_is_granted_to_a_stream_that_was_loaded_without_them(tmp_path: Path, own_user: None, keys: dict[str, Any]) -> None:
    """At most once a grant is the delivery: it could not be taken back."""
    keys = {"semantics": "at-most-once", **keys}
    journal = Journal.create(str(tmp_path / "journal"), definitions(**keys))
    of_queue = {"queue": "WORK", "subscription": "s"}
    try:
        before = stream(journal, **of_queue)
        start: dict[str, Any] = before.initialOffset()
        changed = appended()
        journal.apply({**changed, "queues": {"WORK": {**changed["queues"]["WORK"], **keys}}})
        journal.publish([{"id": 1, "item": "first", "added": "new"}], topic="ORDERS")
        with pytest.raises(CallerError, match="COLUMNS_APPENDED"):
            before.latestOffset(start, ReadMaxRows(10))
        before.stop()
        assert not [row for row in journal.view("history").to_pylist() if row["kind"] == "granted"]
        anew = stream(journal, **of_queue)
        end = anew.latestOffset(start, ReadMaxRows(10))
        assert read(anew, anew.partitions(start, end)).column("added").to_pylist() == ["new"]
        anew.stop()
    finally:
        end_coordinator(journal)


@pytest.mark.spark
def test_a_query_ends_and_one_that_is_loaded_anew_goes_on(make_home: MakeHome) -> None:
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
    assert "[COLUMNS_APPENDED] Message type 'order' was given 'added' after" in str(query.exception())
    wait_until(lambda: home.figures() == (1, 0, 1))
