"""Files of messages and of sinks hide no NaN from readers that go by the bounds in them."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

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
        assert duckdb.execute(f"SELECT count(*) FROM read_parquet({files}) WHERE {where}").fetchall() == [(1,)]


def test_a_path_that_names_two_columns_is_that_of_the_floating_one() -> None:
    within = pa.struct([("b", pa.int64()), ("c", pa.int64())])
    schema = pa.schema([("a.b", pa.float64()), ("a", within), ("l", pa.list_(pa.float32()))])
    assert bounded_columns(schema) == ("a.c",)


def _bounds(home: Path, kind: str, *values: Any) -> dict[str, tuple[Any, Any]] | None:
    """Return the bounds in the log of a sink's file with such a column, and one of ids."""
    plan = SinkTable(str(home / "booked"), {}).plan([{"name": "id", "type": "long"}, {"name": "x", "type": kind}])
    rows = pa.Table.from_pylist([{"id": 1, "x": value} for value in values], schema=plan.schema)
    (text,) = next(plan.stage(["id", "x"], rows.to_batches())).column(0).to_pylist()
    stats = msgspec.json.decode(msgspec.json.decode(str(text), type=SinkFile).stats)
    return {name: (low, stats["maxValues"][name]) for name, low in stats["minValues"].items()} if "minValues" in stats else None


@pytest.mark.parametrize("value", [0.0, -0.0])
def test_both_zeros_are_within_the_bounds_of_either(tmp_path: Path, value: float) -> None:
    """Some readers order them, and would pass over a file of one that they look for as the other."""
    found = _bounds(tmp_path, "double", value)
    assert found is not None
    assert str(found["x"]) == "(-0.0, 0.0)"


LAST = datetime(9999, 12, 31, 23, 59, 59, 999_999)  # noqa: DTZ001 - a reading of a clock on the wall.


@pytest.mark.parametrize(
    ("kind", "values", "bounds"),
    [
        ("double", [float("inf"), 1.0, float("-inf")], ("-Infinity", "Infinity")),
        ("boolean", [True, False], (False, True)),
        ("timestamp_ntz", [LAST], ("9999-12-31T23:59:59.999", "9999-12-31T23:59:59.999999")),
        ("decimal(38,0)", [Decimal(-1), Decimal("9" * 15)], (-1, 999_999_999_999_999)),
    ],
)
def test_what_has_an_order_has_bounds(tmp_path: Path, kind: str, values: list[Any], bounds: tuple[Any, Any]) -> None:
    assert _bounds(tmp_path, kind, *values, None) == {"id": (1, 1), "x": bounds}


@pytest.mark.parametrize(("kind", "value"), [("double", NAN), ("decimal(38,0)", Decimal("9" * 16))])
def test_where_a_column_can_have_none_no_column_has_bounds(tmp_path: Path, kind: str, value: Any) -> None:
    """A dataset of delta-rs finds nothing by a column whose bounds are missing among others."""
    assert _bounds(tmp_path, kind, value) is None
    assert _bounds(tmp_path, kind, None) == {"id": (1, 1)}


def test_a_dataset_of_delta_rs_finds_messages_by_any_column(tmp_path: Path) -> None:
    """What the log says of a file is about its topics and expirations."""
    table = DeltaTable(str(_of_messages(tmp_path)))
    for where in (pc.field("n") == 7, pc.field("x") == 3.0, pc.field("topic") == "T", pc.field("x") == 1.0):
        assert table.to_pyarrow_dataset().to_table(filter=where).num_rows == table.to_pyarrow_table().filter(where).num_rows > 0
