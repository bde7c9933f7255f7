"""The reference's table of values by way in, cell by cell: every way in is given every value (DESIGN 9)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_queue import Journal
from spark_queue.errors import CATALOGUE, SparkQueueError
from tests.unit.cli.sparkq import Terminal
from tests.ways_in import ARROW, CASES, CSV, DICTS, JSON, PANDAS, REFUSED, SPARK, Case, told

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The message type, topic and queue of each declaration.
NAMES = {declared: f"t{number}" for number, declared in enumerate(dict.fromkeys(case.declared for case in CASES))}
NAMES[None] = "json"

#: What Spark can write, one column for each.
WIDE = {
    f"c{number}": case
    for number, case in enumerate(CASES)
    if case.declared
    and SPARK in case.given
    and case.given[SPARK][-1:]
    and case.given[SPARK][-1].endswith(" AS it")
    and case.cell(SPARK) not in CATALOGUE.keys() | {REFUSED}
}

#: Publishes to a topic what a case gives, and gives how many rows that were.
Publish = Callable[[str, Any], int]


class Refused(Exception):
    """A way in refused, with a code."""


@pytest.fixture
def sparkq(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(monkeypatch=monkeypatch, capsys=capsys)


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    types: dict[str, Any] = {
        name: {"columns": f"n BIGINT, it {declared}", "topics": [name]} for declared, name in NAMES.items() if declared
    }
    types["wide"] = {"columns": ", ".join(f"{name} {case.declared}" for name, case in WIDE.items()), "topics": ["wide"]}
    types["json"] = {"topics": ["json"]}
    queues: dict[str, Any] = {name: {} for name in types}
    return Journal.create(str(tmp_path / "journal"), {"message_types": types, "queues": queues})


def table_of(way: str) -> dict[str, str]:
    """Return a column of the reference's table."""
    return {_name(case): case.cell(way) for case in CASES if way in case.given}


def outcomes(journal: Journal, way: str, publish: Publish) -> dict[str, str]:
    """Publish every case by one way in, and give the column of the table that comes of it."""
    return {_name(case): _outcome(journal, case, way, publish) for case in CASES if way in case.given}


def _name(case: Case) -> str:
    return f"{case.about} as {case.declared}"


def _outcome(journal: Journal, case: Case, way: str, publish: Publish) -> str:
    topic = NAMES[case.declared]
    try:
        count = publish(topic, case.given[way])
    except (SparkQueueError, Refused) as refusal:
        code = refusal.code if isinstance(refusal, SparkQueueError) else str(refusal)
        return REFUSED if code == "COLUMN_TYPE_MISMATCH" else code
    return " or ".join({told(value) for value in stored(journal, topic)[-count:]}) if count else "no row"


def stored(journal: Journal, topic: str) -> list[Any]:
    """Return the values in the queue of a topic, oldest first."""
    column = "value" if topic == "json" else "it"
    values: list[Any] = journal.view("messages", queue=topic, columns=[column]).column(column).to_pylist()
    return values


def test_dicts(journal: Journal) -> None:
    assert outcomes(journal, DICTS, lambda topic, rows: journal.publish(rows, topic=topic).rows) == table_of(DICTS)


def test_dicts_of_a_named_publisher(journal: Journal) -> None:
    with journal.publisher("p") as publisher:
        assert outcomes(journal, DICTS, lambda topic, rows: publisher.publish(rows, topic=topic).rows) == table_of(DICTS)


def test_pandas(journal: Journal) -> None:
    assert outcomes(journal, PANDAS, lambda topic, frame: journal.publish(frame, topic=topic).rows) == table_of(PANDAS)


@pytest.mark.drawn(1)
@pytest.mark.parametrize("form", [lambda table: table, lambda table: table.to_batches()[0], pa.Table.to_reader])
def test_arrow(journal: Journal, form: Callable[[pa.Table], Any]) -> None:
    assert outcomes(journal, ARROW, lambda topic, table: journal.publish(form(table), topic=topic).rows) == table_of(ARROW)


def write_parquet(file: Path, table: pa.Table) -> None:
    pq.write_table(table, file)


@pytest.mark.drawn(1)
@pytest.mark.parametrize(
    ("way", "ending", "write"),
    [(JSON, "jsonl", Path.write_text), (CSV, "csv", Path.write_text), (ARROW, "parquet", write_parquet)],
)
def test_files(sparkq: Terminal, journal: Journal, way: str, ending: str, write: Callable[[Path, Any], object]) -> None:
    file = Path(journal.path).with_name(f"rows.{ending}")

    def publish(topic: str, content: Any) -> int:
        write(file, content)
        answer = sparkq("publish", journal.path, file, "--topic", topic, "--json")
        if answer.code:
            raise Refused(json.loads(answer.err)["error"]["code"])
        return int(answer.json["rows"])

    expected = table_of(way)
    if ending == "parquet":
        # A file without columns does not say how many rows it has.
        expected["a row without columns, `{}` as STRING"] = "no row"
    assert outcomes(journal, way, publish) == expected


#: Writes the columns of a SELECT list, one row of them, to a topic.
Write = Callable[[list[str], str], None]


@pytest.fixture
def batch(spark: SparkSession, journal: Journal) -> Write:
    def write(select: list[str], topic: str) -> None:
        frame = spark.range(1).selectExpr(*select)
        frame.write.format("sparkqueue").option("topic", topic).mode("append").save(journal.path)

    return write


@pytest.fixture
def stream(spark: SparkSession, journal: Journal, tmp_path: Path) -> Write:
    folder, number = str(tmp_path / "one"), iter(range(1_000))
    spark.range(1).coalesce(1).write.parquet(folder)
    source = spark.readStream.schema("id BIGINT").parquet(folder)

    def write(select: list[str], topic: str) -> None:
        writer = source.selectExpr(*select).writeStream.format("sparkqueue").option("topic", topic)
        writer = writer.option("checkpointLocation", str(tmp_path / f"checkpoint-{next(number)}"))
        writer.trigger(availableNow=True).start(journal.path).awaitTermination()

    return write


# Each refusal takes a query of its own, and a stream's tasks write as those of a batch do.
@pytest.mark.parametrize("way", ["batch", pytest.param("stream", marks=pytest.mark.slow)])
def test_spark(journal: Journal, batch: Write, stream: Write, way: str) -> None:
    """What is stored goes into one wide row, since a write of Spark's takes long; what is refused goes by itself."""
    write = {"batch": batch, "stream": stream}[way]

    def publish(topic: str, select: list[str]) -> int:
        try:
            write(select, topic)
        except Exception as failure:
            codes = [code for code in re.findall(r"\[([A-Z_]+)\]", str(failure)) if code in CATALOGUE]
            if not codes:
                raise
            raise Refused(codes[-1]) from None
        return 1

    write([f"{case.given[SPARK][0].removesuffix(' AS it')} AS {name}" for name, case in WIDE.items()], "wide")
    [row] = journal.view("messages", queue="wide", columns=list(WIDE)).to_pylist()
    found = {_name(case): told(row[name]) for name, case in WIDE.items()}
    alone = [case for case in CASES if SPARK in case.given and case not in WIDE.values()]
    found |= {_name(case): _outcome(journal, case, SPARK, publish) for case in alone}
    assert found == table_of(SPARK)


def test_spark_refuses_what_no_reader_could_take(journal: Journal, batch: Write) -> None:
    """Spark has years of its own, and texts that are none."""
    for declared, expression in (("TIMESTAMP", "timestamp_micros(253402300800000000)"), ("STRING", "CAST(X'ff' AS STRING)")):
        with pytest.raises(Exception, match="COLUMN_TYPE_MISMATCH"):
            batch([f"{expression} AS it"], NAMES[declared])
        assert stored(journal, NAMES[declared]) == []
