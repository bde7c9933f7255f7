"""What is written here, read by others: tables of messages and of sinks answer as Spark's own of the same rows (DESIGN 15.18).

A row with an edge value of each type is looked for by all of its values at once, from below and from above: one bound of a
file or row group that does not hold it, in Delta's log or in a footer, hides the row. DuckDB goes by footers, delta-rs by the log.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from chispa import assert_df_equality
from deltalake import DeltaTable, Schema

from spark_queue import Journal
from spark_queue.core.definitions import parsing
from spark_queue.errors import CallerError
from spark_queue.journal import control_compaction
from spark_queue.journal.control_log import DeltaControlLog
from spark_queue.journal.open import open_journal
from spark_queue.journal.publisher import make_plan, publish
from spark_queue.journal.record_table import to_table
from spark_queue.journal.schema import user_schema
from spark_queue.journal.store import CONTROL, messages_key
from spark_queue.journal.table_features import columns_of, unnamed_features
from spark_queue.sinks.sink import Fate
from spark_queue.sinks.staging import SinkFile
from spark_queue.sinks.table import SinkTable
from spark_queue.source import spark_table
from spark_queue.source.spark_table import SparkTable
from tests.golden import FOLDER
from tests.unit.journal.journal_on_disk import Disk, checkpoint, claim, left
from tests.unit.journal.reign import Reign

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.delta

NAN, INF = float("nan"), float("inf")
#: The last character that there is.
LAST = "\U0010ffff"


def _local(text: str) -> datetime:
    return datetime.fromisoformat(text)


_MOMENTS = ["0001-01-01 00:00:00", "1969-12-31 23:59:59.999999", "2024-05-01 12:00:00.000001", "9999-12-31 23:59:59.999999"]

#: Columns whose values have an order: name, type, and edge values, each of a row of its own. The rows behind them have NULL.
ORDERED: list[tuple[str, str, list[Any]]] = [
    ("yes", "BOOLEAN", [False, True]),
    ("tiny", "TINYINT", [-128, 127]),
    ("small", "SMALLINT", [-(2**15), 2**15 - 1]),
    ("whole", "INT", [-(2**31), 2**31 - 1]),
    ("large", "BIGINT", [-(2**63), 2**53 + 1, 2**63 - 1]),
    ("single", "FLOAT", [NAN, -0.0, 0.0, INF, -INF, 1.5, 3.4028234663852886e38]),
    ("real", "DOUBLE", [-0.0, NAN, INF, 0.0, 1.7976931348623157e308, -INF, 5e-324]),
    ("digits", "DECIMAL(38,0)", [Decimal("-" + "9" * 38), Decimal("9" * 38), Decimal(12345678901234567890123456789012345678)]),
    ("fraction", "DECIMAL(38,37)", [Decimal("-9." + "9" * 37), Decimal("0." + "0" * 36 + "1")]),
    ("price", "DECIMAL(9,2)", [Decimal("-9999999.99"), Decimal("0.10")]),
    ("text", "STRING", ["a", "", "a" * 40 + "z", "a" * 32, "é" * 5000, "z" * 5000, f"x{LAST}" * 20, LAST * 40]),
    ("bytes", "BINARY", [b"\0", b"", b"\xff\0", b"z" * 5000]),
    ("day", "DATE", [date(1, 1, 1), date(1582, 10, 10), date(9999, 12, 31)]),
    ("moment", "TIMESTAMP", [_local(text).replace(tzinfo=UTC) for text in _MOMENTS]),
    ("wall_clock", "TIMESTAMP_NTZ", [_local(text) for text in _MOMENTS]),
]
NESTED = "parts STRUCT<real: DOUBLE, deep: STRUCT<wall_clock: TIMESTAMP_NTZ>>, list ARRAY<FLOAT>, pairs MAP<STRING, DOUBLE>"
DDL = ", ".join(["n INT", *(f"{name} {kind}" for name, kind, _ in ORDERED), NESTED])
COUNT = max(len(values) for _, _, values in ORDERED) + 1
#: Not by what has no form in Delta's log, nor by texts, which Spark has in names of folders; delta-rs takes no negative decimal.
PARTITIONS = ["yes", "tiny", "small", "whole", "large", "single", "day", "moment", "wall_clock"]


def _row(n: int) -> dict[str, Any]:
    found = {name: values[n] if n < len(values) else None for name, _, values in ORDERED}
    real = found["real"]
    parts = None if n == COUNT - 1 else {"real": real, "deep": {"wall_clock": found["wall_clock"]}}
    return {"n": n, **found, "parts": parts, "list": [real, 1.0][: n + 1], "pairs": [("a", real)]}


ROWS = pa.Table.from_pylist([_row(n) for n in range(COUNT)], schema=user_schema(DDL))
#: Each row by itself. What is sliced instead brings all of its values along.
SINGLES = [ROWS.take([n]) for n in range(COUNT)]

#: Writes rows, each element into a file of its own, and returns the table.
Write = Callable[["SparkSession", Path, list[pa.Table]], str]

#: Each row that was looked for, with one that was found.
Found = list[tuple[int, int]]

#: Tells what is found in a table of so many files.
ToBeFound = Callable[[int], Found]


def _journal(home: Path, columns: str = DDL) -> Journal:
    types = {"order": {"columns": columns, "topics": ["T"]}}
    return Journal.create(str(home / "journal"), {"message_types": types, "queues": {"WORK": {"underlying_topic": "T"}}})


def _messages(_: SparkSession, home: Path, parts: list[pa.Table]) -> str:
    journal = _journal(home)
    for part in parts:
        journal.publish(part, topic="T")
    return journal.store.messages_uri("order")


def _messages_of_appended_columns(_: SparkSession, home: Path, parts: list[pa.Table]) -> str:
    journal = _journal(home, "n INT")
    open_journal(journal.store).create_message_table("order", DDL)
    definitions = parsing.parse({"message_types": {"order": {"columns": DDL, "topics": ["T"]}}})
    plan = make_plan(journal.store, definitions, message_type="order", topic="T", expires_after_ms=None)
    for part in parts:
        publish(plan, journal.journal_id(), definitions, part)
    return journal.store.messages_uri("order")


def _merged_messages(spark: SparkSession, home: Path, parts: list[pa.Table]) -> str:
    path = _messages(spark, home, parts)
    reign = Reign(Journal(str(home / "journal")), epoch=1)  # type: ignore[arg-type]  # It reads the store alone.
    reign.enter()
    reign.upkeep()
    DeltaTable(path).create_checkpoint()
    assert len(DeltaTable(path).file_uris()) == 1
    return path


def _into(_: SparkSession, home: Path, parts: list[pa.Table], *, partition_by: list[str] | None = None) -> str:
    path = str(home / "booked")
    sink = SinkTable(path, {})
    for part in parts:
        plan = sink.plan(columns_of(Schema.from_arrow(part.schema)), partition_by=partition_by, merges_schema=True)
        told: list[Any] = next(plan.stage(part.column_names, part.to_batches())).column(0).to_pylist()
        files = [msgspec.json.decode(text, type=SinkFile) for text in told]
        attempt = sink.transaction_version("t") // 2 + 1
        assert sink.append(plan, files, transaction="t", attempt=attempt).fate is Fate.LANDED
    return path


def _into_partitions(spark: SparkSession, home: Path, parts: list[pa.Table]) -> str:
    return _into(spark, home, parts, partition_by=PARTITIONS)


def _into_a_table_of(columns: str, properties: str) -> Write:
    """Return what appends to a table of Spark's own, and adds the columns that it lacks."""

    def write(spark: SparkSession, home: Path, parts: list[pa.Table]) -> str:
        spark.sql(f"CREATE TABLE delta.`{home / 'booked'}` ({columns}) USING delta {properties}")
        return _into(spark, home, parts)

    return write


def _by_spark(spark: SparkSession, home: Path, parts: list[pa.Table]) -> str:
    """Let Spark append to a table that is made here."""
    path = str(home / "booked")
    table = SparkTable(path, {})
    for part in parts:
        rows = spark.createDataFrame(part)
        plan = table.plan(rows.schema.jsonValue()["fields"])
        attempt = table.transaction_version("t") // 2 + 1
        files = table.stage(rows, plan, spark, messages=1)
        assert table.append(plan, files, transaction="t", attempt=attempt).fate is Fate.LANDED
    return path


SINKS: dict[str, tuple[Write, list[pa.Table]]] = {
    "a table that is made": (_into, [ROWS]),
    "files of a row each": (_into, SINGLES),
    "partitions": (_into_partitions, [ROWS]),
    "NOT NULL": (_into_a_table_of("n INT NOT NULL", ""), [ROWS]),
    "appendOnly": (_into_a_table_of("n INT", "TBLPROPERTIES ('delta.appendOnly' = 'true')"), [ROWS]),
    "change data feed": (_into_a_table_of("n INT", "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"), [ROWS]),
    "Spark writes": (_by_spark, [ROWS]),
}
MESSAGES: dict[str, tuple[Write, list[pa.Table]]] = {
    "messages": (_messages, [ROWS]),
    "messages of a row each": (_messages, SINGLES),
    "messages of appended columns": (_messages_of_appended_columns, [ROWS]),
    "merged messages": (_merged_messages, SINGLES),
}


@pytest.fixture(scope="module", autouse=True)
def types_of_spark(spark: SparkSession) -> Iterator[None]:
    """Let Spark write the very types: times without a zone as such, and instants in a form that has all years."""
    types = {"spark.sql.timestampType": "TIMESTAMP_NTZ", "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}
    for key, value in types.items():
        spark.conf.set(key, value)
    yield
    for key in types:
        spark.conf.unset(key)


@pytest.fixture(scope="module")
def own(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a table that Spark wrote from the rows, in one file."""
    path = str(tmp_path_factory.mktemp("own") / "t")
    spark.createDataFrame(ROWS).coalesce(1).write.format("delta").save(path)
    return path


@pytest.fixture(scope="module")
def to_be_found(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> ToBeFound:
    """Return what tells which rows Spark finds in a table of its own that has as many files: one, or one for each row.

    In the latter, made for who asks, it misses the day 1582-10-10, which the calendar of its footers' filters does not have.
    """

    @cache
    def in_singles() -> Found:
        path = str(tmp_path_factory.mktemp("singles") / "t")
        spark.createDataFrame(ROWS).coalesce(1).write.format("delta").option("maxRecordsPerFile", 1).save(path)
        assert len(DeltaTable(path).file_uris()) == COUNT
        return _found(spark, path)

    return lambda files: in_singles() if files == COUNT else [(n, n) for n in range(COUNT)]


def _literal(kind: str, value: Any) -> str:
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    if isinstance(value, datetime):
        return f"{kind} '{value.replace(tzinfo=None).isoformat(sep=' ')}{'Z' if value.tzinfo else ''}'"
    return f"CAST('{value}' AS {kind})"


def _looked_for(n: int) -> str:
    """Return the condition that holds for a row alone."""
    found = ["list IS NOT NULL"]
    for name, kind, values in ORDERED:
        if n >= len(values):
            found.append(f"{name} IS NULL")
        else:
            literal = _literal(kind, values[n])
            found.append(f"{name} >= {literal} AND {name} <= {literal}")
            if name == "real":
                found.append(f"parts.real >= {literal} AND parts.real <= {literal}")
                found += ["parts.real > double('Infinity')"] if values[n] != values[n] else []
    return " AND ".join(found if n < COUNT - 1 else [*found, "parts IS NULL", "parts.real IS NULL"])


def _found(spark: SparkSession, path: str) -> Found:
    """Return which rows Spark finds as it looks for each."""
    spark.read.format("delta").load(path).createOrReplaceTempView("looked_into")
    looks = (f"SELECT {n} AS wanted, n FROM looked_into WHERE {_looked_for(n)}" for n in range(COUNT))
    return sorted((row["wanted"], row["n"]) for row in spark.sql(" UNION ALL ".join(looks)).collect())


def _rows(spark: SparkSession, path: str) -> str:
    # By Arrow: Python's rows have instants in the zone of the host, which may have no year 1.
    rows: Any = spark.read.format("delta").load(path).select(*ROWS.column_names).orderBy("n").toArrow()
    return str(rows.cast(ROWS.schema).to_pylist())


def _check_others(path: str, *, has_own_log: bool = True) -> None:
    """Check that delta-rs reads the rows, that DuckDB finds each by the footers, and Arrow by the log where that is ours.

    By bounds of Spark's, delta-rs misses rows with infinities and long decimals.
    """
    table = DeltaTable(path)
    read: Any = table.to_pyarrow_table().select(ROWS.column_names).sort_by("n")
    assert str(read.cast(ROWS.schema).to_pylist()) == str(ROWS.to_pylist())
    dataset, files = table.to_pyarrow_dataset(), [uri.removeprefix("file://") for uri in table.file_uris()]
    by_log = [name for name, kind, _ in ORDERED if kind not in ("FLOAT", "DOUBLE")]
    by_footers = [name for name, *_ in ORDERED if name not in table.metadata().partition_columns]
    with duckdb.connect() as engine:
        engine.execute("SET TimeZone = 'UTC'")
        for n in range(COUNT):
            wanted = {name: values[n] for name, _, values in ORDERED if n < len(values)}
            found = dataset.to_table(columns=["n"], filter=_condition({name: wanted[name] for name in by_log if name in wanted}))
            assert n in found.column("n").to_pylist() or not has_own_log
            asked = [name for name in by_footers if name in wanted]
            where = " AND ".join(["true", *(f'"{name}" >= ? AND "{name}" <= ?' for name in asked)])
            given = [wanted[name] for name in asked for _ in range(2)]
            assert (n,) in engine.execute(f"SELECT n FROM read_parquet(?) WHERE {where}", [files, *given]).fetchall()


def _condition(wanted: Mapping[str, Any]) -> Any:
    condition: Any = pc.field("n").is_valid()
    for name, value in wanted.items():
        scalar = pa.scalar(value, ROWS.schema.field(name).type)
        condition &= (pc.field(name) >= scalar) & (pc.field(name) <= scalar)
    return condition


#: Each row costs a batch of its own.
_LONG = "files of a row each"


@pytest.mark.drawn(1)
@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=[pytest.mark.slow] if way == _LONG else []) for way in [*MESSAGES, *SINKS]]
)
def test_a_table_answers_as_one_of_sparks_own(
    spark: SparkSession, tmp_path: Path, own: str, *, to_be_found: ToBeFound, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To a table of a sink Spark then appends, and a batch after it."""
    # One driver, in which commits of Spark's exclude each other.
    monkeypatch.setattr(spark_table, "_UNSAFE_SCHEMES", frozenset())
    write, parts = (MESSAGES | SINKS)[way]
    path = write(spark, tmp_path, parts)
    assert unnamed_features(DeltaTable(path)) == []
    assert _rows(spark, path) == _rows(spark, own)
    assert _found(spark, path) == to_be_found(len(DeltaTable(path).file_uris()))
    _check_others(path, has_own_log=write is not _by_spark)
    if way in SINKS:
        spark.createDataFrame(SINGLES[0]).write.format("delta").mode("append").save(path)
        _into(spark, tmp_path, SINGLES[1:2])
        both = sorted([*range(COUNT), 0, 1])
        assert [row["n"] for row in spark.read.format("delta").load(path).select("n").orderBy("n").collect()] == both
        read: list[Any] = DeltaTable(path).to_pyarrow_table().column("n").to_pylist()
        assert sorted(read) == both


@pytest.mark.slow
def test_a_table_of_sparks_own_answers_so(spark: SparkSession, own: str) -> None:
    """What is asked of the others is what a table that Spark wrote gives; that changes with Spark alone."""
    assert _found(spark, own) == [(n, n) for n in range(COUNT)]


def test_partitions_by_texts_and_by_zeros(spark: SparkSession, tmp_path: Path) -> None:
    """In Delta's log an empty text is NULL, and the two zeros are one number."""
    values: dict[str, Any] = {"text": ["", "a", None, "b"], "real": [0.0, -0.0, NAN, None], "n": [0, 1, 2, 3]}
    rows = pa.table(values)
    path, own = _into(spark, tmp_path, [rows], partition_by=["text", "real"]), str(tmp_path / "own")
    spark.createDataFrame(rows).write.format("delta").partitionBy("text", "real").save(own)
    read = [spark.read.format("delta").load(each) for each in (path, own)]
    zeros, nan = ("real = 0.0D", "real = -0.0D", "real >= 0.0D AND real < 1.0D"), "real = double('NaN')"
    for where in ("true", "text IS NULL", "text = 'a'", nan, *zeros):
        found, wanted = ([row["n"] for row in each.where(where).orderBy("n").collect()] for each in read)
        assert (where, found) == (where, wanted)
    table = DeltaTable(path)
    assert table.to_pyarrow_table().sort_by("n").column("text").to_pylist() == [None, "a", None, "b"]
    zero: list[Any] = table.to_pyarrow_dataset().to_table(filter=pc.field("real") == 0.0).column("n").to_pylist()
    assert sorted(zero) == [0, 1]


def test_an_empty_text_in_a_partition_that_is_never_null_fails_its_batch(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "booked")
    spark.sql(f"CREATE TABLE delta.`{path}` (text STRING NOT NULL, n BIGINT) USING delta PARTITIONED BY (text)")
    _into(spark, tmp_path, [pa.table({"text": ["a"], "n": [1]})])
    with pytest.raises(CallerError, match=r"SINK_SCHEMA_DIFFERS.*column 'text' is empty in a row"):
        _into(spark, tmp_path, [pa.table({"text": [""], "n": [2]})])


def test_the_control_log(spark: SparkSession, tmp_path: Path) -> None:
    """Every record once, in files, after flushes, merges, a checkpoint of ours and clean-up; a stream of it sees each once, too."""
    disk = Disk(tmp_path / "journal")
    control, at, merge = DeltaControlLog(disk.store), disk.store.uri(CONTROL), None
    number = claim(control)
    for turn in range(12):
        for _ in range(3):
            control.append([left(number)], epoch=1)
            number += 1
        control.flush(merge if turn % 3 == 2 else None, epoch=1, at_ms=turn)
        merge = control_compaction.stage(disk.store, control.table.blocks, at_ms=turn) if turn % 3 == 1 else None
    seen = spark.readStream.format("delta").load(at).select("record").writeStream.format("memory").queryName("control_log")
    seen.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start().awaitTermination()
    assert sorted(row.record for row in spark.table("control_log").collect()) == list(range(number))
    checkpoint(control)
    for version in range(control.version):
        disk.log_path(CONTROL, version).unlink()
    control.append([left(number)], epoch=1)
    control.flush(epoch=1, at_ms=99)
    want = to_table(disk.open().records())
    assert want.num_rows == number + 1
    found = spark.read.format("delta").load(at).orderBy("record")
    rows: list[Any] = want.to_pylist()
    assert_df_equality(found, spark.createDataFrame(rows, found.schema), ignore_nullable=True)
    assert DeltaTable(at).to_pyarrow_table().sort_by("record").cast(want.schema) == want
    assert {row.operation for row in spark.sql(f"DESCRIBE HISTORY delta.`{at}`").collect()} == {"WRITE", "OPTIMIZE"}


def test_the_golden_journal(spark: SparkSession, tmp_path: Path) -> None:
    """Spark finds in the tables of version 1 what delta-rs finds there: what is stored is frozen for other readers, too."""
    journal = shutil.copytree(FOLDER / "journal", tmp_path / "journal")
    for table, key in ((CONTROL, "record"), (messages_key("line"), "published_at, publisher, sequence")):
        at = str(journal / table)
        found = spark.read.format("delta").load(at).orderBy(*key.split(", ")).toArrow()
        want = DeltaTable(at).to_pyarrow_table().sort_by([(name, "ascending") for name in key.split(", ")])
        assert want.num_rows > 1
        assert found.to_pylist() == want.to_pylist()
