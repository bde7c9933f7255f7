"""Files of messages and of sinks hide no NaN from readers that go by the bounds in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_queue import Journal
from spark_queue.journal.parquet_bounds import bounded_columns
from spark_queue.sinks.staging import SinkFile
from spark_queue.sinks.table import SinkTable
from tests.unit.journal.reign import Reign

NAN = float("nan")
VALUES: list[dict[str, Any]] = [{"x": x, "y": x, "part": {"z": x, "n": 7}, "n": 7} for x in (1.0, NAN, -0.0, 3.0)]
COLUMNS = "x DOUBLE, y FLOAT, part STRUCT<z: DOUBLE, n: INT>, n BIGINT"
_PART = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in (("z", "double"), ("n", "integer"))]
FIELDS: list[dict[str, Any]] = [
    {"name": "x", "type": "double"},
    {"name": "y", "type": "float"},
    {"name": "part", "type": {"type": "struct", "fields": _PART}},
    {"name": "n", "type": "long"},
]


def _published(home: Path) -> Journal:
    """Return a journal with a file of values and NaN, and three of a value each."""
    definitions = {"message_types": {"order": {"columns": COLUMNS, "topics": ["T"]}}, "queues": {"WORK": {"underlying_topic": "T"}}}
    journal = Journal.create(str(home / "journal"), definitions)
    for rows in (VALUES, VALUES[:1], VALUES[2:3], VALUES[3:]):
        journal.publish(rows, topic="T")
    return journal


def _of_messages(home: Path) -> Path:
    return Path(_published(home).path) / "messages" / "order"


def _of_merged_messages(home: Path) -> Path:
    journal = _published(home)
    reign: Any = Reign(journal, epoch=1)  # type: ignore[arg-type]  # It reads the store alone.
    reign.enter()
    reign.upkeep()
    folder = Path(journal.path) / "messages" / "order"
    reign.enter()
    for path in folder.glob("*.parquet"):
        if path.name != reign.segments[0].path:
            path.unlink()
    return folder


def _of_a_sink(home: Path) -> Path:
    plan = SinkTable(str(home / "booked"), {}).plan(FIELDS)
    rows = pa.Table.from_pylist(VALUES + VALUES[:1] + VALUES[2:], schema=plan.schema)
    told: list[Any] = next(plan.stage(rows.column_names, rows.to_batches())).column(0).to_pylist()
    assert [msgspec.json.decode(text, type=SinkFile).row_count for text in told] == [7]
    return home / "booked"


@pytest.mark.parametrize("written", [_of_messages, _of_merged_messages, _of_a_sink])
def test_who_goes_by_bounds_finds_each_nan(tmp_path: Path, written: Any) -> None:
    folder = written(tmp_path)
    files = sorted(map(str, folder.glob("*.parquet")))
    for path in files:
        group = pq.read_metadata(path).row_group(0)
        bounded = {group.column(at).path_in_schema: group.column(at).is_stats_set for at in range(group.num_columns)}
        assert not any(bounded[name] for name in ("x", "y", "part.z"))
        assert all(bounded[name] for name in ("n", "part.n"))
    # NaN is above all numbers.
    for where in ("x > 100", "x = 'NaN'::DOUBLE", "y > 100", "part.z > 100"):
        assert duckdb.sql(f"SELECT count(*) FROM read_parquet({files}) WHERE {where}").fetchall() == [(1,)]


def test_a_path_that_names_two_columns_is_that_of_the_floating_one() -> None:
    within = pa.struct([("b", pa.int64()), ("c", pa.int64())])
    schema = pa.schema([("a.b", pa.float64()), ("a", within), ("l", pa.list_(pa.float32()))])
    assert bounded_columns(schema) == ("a.c",)


def test_both_zeros_are_within_the_bounds_of_either(tmp_path: Path) -> None:
    """Some readers order them, and would pass over a file of one that they look for as the other."""
    sink = SinkTable(str(tmp_path / "booked"), {})
    plan = sink.plan([{"name": "x", "type": "double"}])
    for value in (0.0, -0.0):
        rows = pa.table({"x": [value]})
        (text,) = next(plan.stage(["x"], rows.to_batches())).column(0).to_pylist()
        stats = msgspec.json.decode(msgspec.json.decode(str(text), type=SinkFile).stats)
        assert (str(stats["minValues"]["x"]), str(stats["maxValues"]["x"])) == ("-0.0", "0.0")
