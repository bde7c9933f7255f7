"""What tells the rows of a write from others: whatever their order and their files, and whatever a repeat makes anew (R94)."""

from __future__ import annotations

import datetime as dt
import decimal
import random
import uuid
from typing import Any

import pyarrow as pa
import pytest

from spark_queue.journal.fingerprint import ColumnSums, fingerprints_of_rows

#: A day whose rows are staged.
NOW = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
NOW_MS = round(NOW.timestamp() * 1000)
UTC = pa.timestamp("us", tz="UTC")

#: Of the rows below, ever since.
STORED = (3383253776526334206, 6288532789556707381)

EVERY_TYPE = pa.table(
    {
        "i": pa.array([1, 2, None, 4], pa.int64()),
        "byte": pa.array([1, -1, None, 4], pa.int8()),
        "d": pa.array([1.5, 0.0, None, float("nan")]),
        "f": pa.array([1.5, -0.0, None, float("inf")], pa.float32()),
        "s": pa.array(["x", None, "ü", ""]),
        "b": pa.array([b"", b"x", None, b"z"]),
        "t": pa.array([1, 2, 3, None], UTC),
        "n": pa.array([1, 2, 3, None], pa.timestamp("us")),
        "day": pa.array([1, 2, 3, None], pa.date32()),
        "bool": pa.array([True, False, None, True]),
        "dec": pa.array([decimal.Decimal("1.10"), decimal.Decimal("-1.10"), None, decimal.Decimal(0)], pa.decimal128(38, 2)),
        "list": pa.array([[1], None, [], [2, 3]], pa.list_(pa.int64())),
        "struct": pa.array([{"a": 1}, None, {"a": 2}, {"a": None}]),
        "map": pa.array([[("k", NOW)], None, [], [("z", NOW)]], pa.map_(pa.string(), UTC)),
    }
)


def of(rows: pa.Table, *, files: int = 1, number: int = 0, exactly: bool = False) -> int:
    """Return the fingerprint of rows that stand in so many files."""
    staged = []
    size = -(-rows.num_rows // files)
    for first in range(0, rows.num_rows, size):
        sums = ColumnSums(NOW_MS)
        assert sum(table.num_rows for table in sums.watch([rows.slice(first, size)])) == min(size, rows.num_rows - first)
        staged.append(sums.columns)
    every, kept = fingerprints_of_rows(staged, rows.num_rows, number=number)
    return every if exactly else kept


def made(ids: list[int], **columns: Any) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), **columns})


def test_neither_order_nor_files_change_it() -> None:
    expected = of(EVERY_TYPE)
    for files in (2, 3, 4):
        order = random.Random(files).sample(range(4), 4)
        assert of(EVERY_TYPE.take(order), files=files) == expected


def test_it_is_the_same_for_ever() -> None:
    """It is stored, so another release has to find the same."""
    assert (of(EVERY_TYPE), of(EVERY_TYPE, exactly=True)) == STORED


@pytest.mark.parametrize("name", EVERY_TYPE.schema.names)
def test_each_value_of_each_type_counts(name: str) -> None:
    values = EVERY_TYPE.column(name)
    # A value that stands twice in place of NULL, and one that has become NULL.
    for order in ([0, 0, 2, 3], [2, 1, 2, 3], [0, 1, 1, 3]):
        taken = values.take([3 if values[row].as_py() is None and row != 2 else row for row in order])
        other = EVERY_TYPE.set_column(EVERY_TYPE.schema.get_field_index(name), name, taken)
        assert taken.to_pylist() == values.to_pylist() or of(other) != of(EVERY_TYPE)


def test_number_and_count_are_part_of_it() -> None:
    assert of(made([1, 2]), number=1) != of(made([1, 2]), number=2)
    assert of(made([1, 2])) != of(made([1, 2, 2]))
    assert of(pa.table({"x": [0.5, 0.5]})) != of(pa.table({"x": [0.5]})), "nothing else is left of these"


@pytest.mark.parametrize("files", [1, 3])
def test_what_a_repeat_makes_anew_is_left_out(files: int) -> None:
    def run(seed: int, at: dt.datetime) -> pa.Table:
        chance = random.Random(seed)
        ids = [str(uuid.UUID(int=chance.getrandbits(128), version=4)) for _ in range(6)]
        return made(list(range(6)), r=[chance.random() for _ in range(6)], at=pa.array([at] * 6, UTC), key=ids)

    first, again = run(1, NOW), run(2, NOW + dt.timedelta(hours=3))
    assert of(first) == of(again, files=files)
    assert of(first, exactly=True) == of(first, files=files, exactly=True) != of(again, exactly=True)
    assert of(first) != of(again.set_column(0, "id", pa.array([0, 1, 2, 3, 4, 6])), files=files)


@pytest.mark.parametrize(
    ("column", "other"),
    [
        ("times of events", pa.array([NOW, NOW - dt.timedelta(seconds=1)], UTC)),
        ("a time of long ago", pa.array([NOW - dt.timedelta(days=2)] * 2, UTC)),
        ("measures", pa.array([0.5, 21.5])),
        ("with NULL", pa.array([0.5, None])),
        ("texts", pa.array(["0", "1"])),
    ],
)
def test_what_no_repeat_makes_anew_counts(column: str, other: Any) -> None:
    before = pa.table({"x": other, "device": ["a", "b"]})
    values = [None if value is None else _changed(value) for value in other.to_pylist()]
    assert of(before) != of(pa.table({"x": pa.array(values, other.type), "device": ["a", "b"]})), column


def _changed(value: Any) -> Any:
    return (
        value + dt.timedelta(minutes=1) if isinstance(value, dt.datetime) else value + (value if isinstance(value, str) else 0.25)
    )


def test_ids_that_alone_tell_rows_apart_count() -> None:
    """They may have stood in the source, so other ids are other rows."""

    def rows(seed: int) -> pa.Table:
        chance = random.Random(seed)
        ids = [str(uuid.UUID(int=chance.getrandbits(128), version=4)) for _ in range(3)]
        return pa.table({"key": ids, "state": ["new"] * 3})

    assert of(rows(1)) == of(rows(1), files=2) != of(rows(2))
    numbered = [rows(seed).append_column("n", pa.array([1, 2, 3])) for seed in (1, 2)]
    assert of(numbered[0]) == of(numbered[1])
