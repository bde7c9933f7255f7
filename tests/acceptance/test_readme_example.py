"""What README and docs/ show is run as it stands: the ways in and out as one program, the others against queues of their own."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark_queue import Journal
from tests.acceptance.conftest import MakeJournal
from tests.acceptance.plain_consumer import consumer
from tests.docs import pages, ways
from tests.integration.source_journal import SourceJournal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DEFINITIONS = {
    "message_types": {"order": {"columns": "item STRING, quantity BIGINT", "topics": ["ORDERS"]}},
    "queues": {"WORK": {"underlying_topic": "ORDERS"}},
}


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Path]:
    """Yield the place of a journal whose coordinator, if one starts, ends with the test."""
    yield tmp_path / "shop"
    subprocess.run([sys.executable, "-m", "spark_queue.cli", "stop", str(tmp_path / "shop")], check=True, stdout=subprocess.DEVNULL)


@pytest.mark.delta
@pytest.mark.spark
def test_ways_in_and_out_lead_from_a_publish_and_a_table_to_the_next_table(shop: Path) -> None:
    folder = shop.parent
    ways.write_definitions(folder)
    assert _sparkq("init", folder).returncode == 0
    ways.write_world(folder)
    assert _sparkq("apply", folder).returncode == 0
    done = pages.run_file(ways.write_program(folder), folder=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(ways.PACKED)
    assert ways.SHIPPED in done.stdout
    assert done.stdout.endswith(f"{ways.REFUNDS}\n")
    assert "ERROR" not in done.stderr
    statuses = {name: Journal(str(shop)).queue(name).status() for name in ("WORK", "RETURNS")}
    assert {name: (status.acknowledged, status.queue_depth) for name, status in statuses.items()} == {
        "WORK": (3, 0),
        "RETURNS": (2, 0),
    }


def _sparkq(verb: str, folder: Path) -> subprocess.CompletedProcess[bytes]:
    """Run a verb on the journal and the definitions of a folder."""
    return subprocess.run([sys.executable, "-m", "spark_queue.cli", verb, "shop", "queues.toml"], cwd=folder, check=False)


def test_example_of_outcomes_settles_each_row_as_it_says(shop: Path, spark: SparkSession) -> None:
    journal = Journal.create(str(shop), DEFINITIONS)
    journal.publish([{"item": f"item {number}", "quantity": number % 3} for number in range(9)], topic="ORDERS")
    orders = spark.readStream.format("sparkqueue").option("queue", "WORK").option("subscription", "east").load(str(shop))
    inserted: list[int] = []
    names: dict[str, Any] = {"journal": journal, "orders": orders, "insert": _collect_into(inserted)}
    exec(pages.example("outcomes"), names)
    SourceJournal(journal, shop.parent, spark).run_out(names["writer"], left=3)
    status = journal.queue("WORK").status()
    assert (sorted(inserted), status.acknowledged, status.delayed, status.dead_letters) == ([1, 2, 4, 5, 7, 8], 6, 3, 0)


@pytest.mark.delta
def test_example_of_a_sink_appends_what_it_says_and_names_exceptions(shop: Path, spark: SparkSession) -> None:
    journal = Journal.create(str(shop), DEFINITIONS)
    journal.publish([{"item": f"item {number}", "quantity": number % 3} for number in range(9)], topic="ORDERS")
    orders = spark.readStream.format("sparkqueue").option("queue", "WORK").option("subscription", "east").load(str(shop))
    names: dict[str, Any] = {"journal": journal, "orders": orders, "table": str(shop.parent / "booked")}
    exec(pages.example("into"), names)
    writer = names["writer"].option("checkpointLocation", str(shop.parent / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    booked = spark.read.format("delta").load(names["table"])
    assert sorted(row["bookmark"] for row in booked.collect()) == [1, 2, 4, 5, 7, 8]
    status = journal.queue("WORK").status()
    assert (status.acknowledged, status.dead_letters) == (6, 3)


def test_example_of_a_barrier_closes_the_books_behind_what_was_before(
    make_journal: MakeJournal, spark: SparkSession, tmp_path: Path
) -> None:
    """R68 to R70."""
    journal = make_journal(tomllib.loads(pages.example("closing")))
    journal.publish([{"item": "kettle", "quantity": 1}] * 3, topic="WORK")
    happened: list[str] = []
    names: dict[str, Any] = {
        "journal": journal,
        "orders": spark.readStream.format("sparkqueue").option("queue", "WORK").option("subscription", "east").load(journal.path),
        "insert": lambda rows: happened.append(f"{rows.count()} booked"),
        "close_the_books": lambda day: happened.append(f"{day} closed"),
    }
    exec(pages.example("barrier"), names)
    journal.publish([{"item": "lamp", "quantity": 1}] * 2, topic="WORK")
    SourceJournal(journal, tmp_path, spark).run_out(names["writer"])
    assert happened == ["3 booked", "31 January closed", "2 booked"]


ORDERS = [
    {"item": "lamp", "customer": "A", "amount": 20.0, "country": "France"},
    {"item": "kettle", "customer": "A", "amount": 30.0, "country": "Norway"},
    {"item": "clock", "customer": "B", "amount": -5.0, "country": "France"},
    {"item": "table", "customer": "B", "amount": 90.0, "country": "France"},
]


def test_example_of_a_subscription_filter_gets_what_matches(make_journal: MakeJournal, spark: SparkSession, tmp_path: Path) -> None:
    """R49, R65."""
    journal = make_journal(tomllib.loads(pages.example("choosing")))
    journal.publish(ORDERS, topic="ORDERS")
    names: dict[str, Any] = {"journal": journal, "spark": spark}
    exec(pages.example("filter"), names)
    inserted: list[int] = []
    insert = _collect_into(inserted)
    writer = names["french"].writeStream.foreachBatch(lambda batch, _: insert(batch))
    writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start().awaitTermination()
    assert sorted(inserted) == [0, 3]


def test_example_of_bodies_parts_them_by_the_rule_of_the_publish(make_journal: MakeJournal, spark: SparkSession) -> None:
    journal = make_journal({"message_types": {"json": {"topics": ["B"]}}, "queues": {"B": {}}})
    texts = [
        '{"a":1} trailing',
        '{"a":1}{"b":2}',
        '{"a":"\\ud800"}',
        '{"a":' + "9" * 5_000 + "}",
        "{'a': 1}",
        '{"a": 1, "a": 2}',
        "7",
    ]
    names: dict[str, Any] = {"frame": spark.createDataFrame([(text,) for text in texts], "value STRING")}
    exec(pages.example("bodies"), names)

    def write(rows: DataFrame) -> None:
        rows.write.format("sparkqueue").option("topic", "B").mode("append").save(journal.path)

    write(names["good"])
    assert [row["value"] for row in journal.view("messages", queue="B").to_pylist()] == [texts[2], texts[3], "7"]
    assert [row.value for row in names["bad"].collect()] == [texts[0], texts[1], *texts[4:6]]
    with pytest.raises(Exception, match="ROWS_UNREADABLE"):
        write(names["bad"])
    assert journal.queue("B").status().entered == 3


def test_example_of_ordering_gives_the_dearest_first_or_those_of_each_customer_in_order(make_journal: MakeJournal) -> None:
    """R66."""
    journal = make_journal(tomllib.loads(pages.example("ordering")))
    journal.publish(ORDERS, topic="ORDERS")
    with consumer(journal, "DEAR_FIRST") as query:
        assert [row["item"] for row in query.drain(limit=1)] == ["table", "kettle", "lamp", "clock"]
    with consumer(journal, "BY_CUSTOMER") as query:
        taken = query.take()
        of_customers = [[row["item"] for row in taken if row["customer"] == customer] for customer in "AB"]
        assert of_customers == [["lamp", "kettle"], ["clock", "table"]]


def test_example_of_redriving_gives_back_what_its_filter_chooses(
    make_journal: MakeJournal, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = make_journal(tomllib.loads(pages.example("failing")))
    journal.publish([{"item": "lamp", "quantity": quantity} for quantity in range(3)], topic="ORDERS")
    settled = [{"bookmark": bookmark, "outcome": "expire", "error": "no price"} for bookmark in range(3)]
    journal.queue("WORK").settle(settled)
    exec(pages.example("redrive"), {"journal": journal})
    printed = capsys.readouterr().out
    assert "forced_expire  no price    3\n" in printed
    assert printed.endswith("2 went back, 0 were in somebody's hands\n")
    status = journal.queue("WORK").status()
    assert (status.available, status.dead_letters) == (2, 1)


def test_example_of_looking_back_tells_each_moment(make_journal: MakeJournal, capsys: pytest.CaptureFixture[str]) -> None:
    journal = make_journal(DEFINITIONS)
    journal.publish([{"item": "lamp", "quantity": 1}] * 3, topic="ORDERS")
    moments = [datetime.now(UTC)]
    journal.queue("WORK").settle([0], "expire")
    moments.append(datetime.now(UTC))
    names: dict[str, Any] = {"journal": journal, "moments": moments}
    exec(pages.example("past"), names)
    told = [line.split(" ", 1)[1] for line in capsys.readouterr().out.splitlines()]
    assert told == ["3 in the queue, 0 dead letters", "2 in the queue, 1 dead letters"]
    assert len(names["messages"]) == 3


def test_example_of_settling_by_hand_settles_what_it_names(make_journal: MakeJournal, capsys: pytest.CaptureFixture[str]) -> None:
    journal = make_journal(DEFINITIONS)
    journal.publish([{"item": "lamp", "quantity": -1 if number < 5 else 1} for number in range(20)], topic="ORDERS")
    exec(pages.example("settle"), {"journal": journal})
    assert capsys.readouterr().out == "5 would be expired\n5 expired\n"
    status = journal.queue("WORK").status()
    assert (status.available, status.acknowledged, status.dead_letters) == (13, 2, 5)


def test_example_of_pausing_purges_and_lets_the_queue_go_on(make_journal: MakeJournal, capsys: pytest.CaptureFixture[str]) -> None:
    journal = make_journal(DEFINITIONS)
    journal.publish([{"item": item, "quantity": 1} for item in ("lamp", "kettle", "lamp")], topic="ORDERS")
    exec(pages.example("pause"), {"journal": journal})
    assert capsys.readouterr().out == "2 purged, 0 still leased\n"
    status = journal.queue("WORK").status()
    assert (status.available, status.paused) == (1, False)


def test_example_of_writing_from_spark_publishes_a_frame_and_a_stream(
    make_journal: MakeJournal, spark: SparkSession, tmp_path: Path
) -> None:
    journal = make_journal(DEFINITIONS)
    arriving = tmp_path / "arriving"
    spark.createDataFrame([("kettle", 3)], "item STRING, quantity BIGINT").write.parquet(str(arriving))
    names: dict[str, Any] = {
        "frame": spark.createDataFrame([("lamp", 1), ("lamp", 2)], "item STRING, quantity BIGINT"),
        "stream": spark.readStream.schema("item STRING, quantity BIGINT").parquet(str(arriving)),
    }
    (query,) = _values_of("writing", names, {"shop": journal.path, "out": str(tmp_path / "out")})[1:]
    query.processAllAvailable()
    query.stop()
    for _ in range(2):
        # The second time is a repeat.
        _values_of("transaction", names, {"shop": journal.path})
    published = journal.view("messages", queue="WORK").to_pylist()
    expected = [("kettle", 3), ("lamp", 1), ("lamp", 1), ("lamp", 2), ("lamp", 2)]
    assert sorted((row["item"], row["quantity"]) for row in published) == expected


@pytest.mark.delta
def test_examples_of_looking_inside_and_of_replaying_read_what_there_is(
    make_journal: MakeJournal, spark: SparkSession, tmp_path: Path
) -> None:
    journal = make_journal(DEFINITIONS)
    journal.publish([{"item": "lamp", "quantity": 1}] * 3, topic="ORDERS")
    names: dict[str, Any] = {"journal": journal, "spark": spark}
    status, letters, history = _values_of("inside", names, {"shop": journal.path})
    # Nothing has made a coordinator enter the messages, and a look starts none (R119).
    assert (status.queue_depth, len(letters), history.count()) == (3, 0, 0)
    later, recent, stream, plain = _values_of("replay", names, {"shop": journal.path})
    assert (later.count(), recent.count(), plain.count()) == (0, 3, 3)
    query = stream.writeStream.format("memory").queryName("replayed").trigger(availableNow=True).start()
    query.awaitTermination()
    assert spark.table("replayed").count() == 3


def _values_of(name: str, names: dict[str, Any], places: dict[str, str]) -> list[Any]:
    """Run each statement of an example, with its places moved, and give what it is worth."""
    code = pages.example(name)
    for shown, place in places.items():
        code = code.replace(f'"{shown}', f'"{place}')
    return [
        eval(compile(ast.Expression(each.value), name, "eval"), names)
        for each in ast.parse(code).body
        if isinstance(each, ast.Expr)
    ]


def _collect_into(bookmarks: list[int]) -> Callable[[DataFrame], None]:
    def insert(rows: DataFrame) -> None:
        bookmarks.extend(row["bookmark"] for row in rows.collect())

    return insert
