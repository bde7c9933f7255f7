"""Casts that Arrow makes without a word, and that change what a caller said (STYLE: nothing is dropped or altered silently)."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from spark_queue.core.definitions import parsing
from spark_queue.errors import CallerError
from spark_queue.journal.rows import to_arrow
from spark_queue.journal.sql_types import INSTANT
from spark_queue.journal.stored_rows import cast_column

NAIVE = dt.datetime(2024, 5, 1)  # noqa: DTZ001  # That is the point.
AWARE = NAIVE.replace(tzinfo=dt.UTC)
MONEY = pa.decimal128(10, 2)
ONE = pa.array([1])
DEFINITIONS = parsing.parse(
    {
        "message_types": {
            "order": {
                "columns": "at TIMESTAMP, wall TIMESTAMP_NTZ, times ARRAY<TIMESTAMP>, "
                "part STRUCT<x: INT NOT NULL, y: TIMESTAMP>, by_name MAP<STRING, STRUCT<x: INT>>",
                "topics": ["T"],
            }
        }
    }
)


class OddZone(dt.tzinfo):
    """A time zone as anybody may write one."""

    def __init__(self, offset: Any) -> None:
        self._offset = offset

    def utcoffset(self, _: dt.datetime | None) -> dt.timedelta | None:
        offset: dt.timedelta | None = self._offset
        return offset

    def dst(self, _: dt.datetime | None) -> None:
        return None

    def tzname(self, _: dt.datetime | None) -> str:
        return "odd"


def struct(**kinds: pa.DataType) -> pa.DataType:
    return pa.struct(list(kinds.items()))


@pytest.mark.parametrize(
    ("column", "wanted", "reason"),
    [
        (pa.array([1.25, 1.239]), MONEY, "DOUBLE in row 1.*data loss"),
        (pa.array([{"price": 1.239}]), struct(price=MONEY), "data loss"),
        (pa.array([0, 5]), pa.bool_(), "row 1.*value: 5"),
        (pa.array([1e300]), pa.float32(), "stored as inf"),
        (pa.array([0.123456789]), pa.float32(), "0.123456789 would be stored as 0.12345679"),
        (pa.array(["1", "17850.0"]), pa.int64(), r"row 1.*'17850.0' is written as a float.*dtype=\"Int64\""),
        (pa.array(["x", "17850.0"]), pa.int64(), "row 0.*'x' is no whole number"),
        (pa.array(["1e400"]), pa.float64(), "1e400 would be stored as inf"),
        (pa.array(["1e-400"]), pa.float64(), "1e-400 would be stored as 0.0"),
        (pa.array(["9007199254740993"]), pa.float64(), "9007199254740992"),
        (pa.array([2**53 + 1]), pa.float64(), "9007199254740992"),
        (pa.array([Decimal("0.12345678901234567890")]), pa.float64(), "would be stored as 0.12345678901234568"),
        (pa.array([float("nan")]), MONEY, "nan"),
        (pa.array([float("nan")]), pa.bool_(), "nan"),
        (pa.array([1.5]), pa.string(), "written as text in several ways"),
        (pa.array([AWARE]), pa.string(), "written as text in several ways"),
        (pa.array([AWARE]), pa.int64(), "TIMESTAMP has no values of type whole numbers"),
        (pa.array([True]), pa.int64(), "BOOLEAN has no values of type whole numbers"),
        (pa.array([dt.time(8)]), pa.string(), "no values of type STRING"),
        (pa.array([1], pa.int32()), pa.date32(), "may count days"),
        (pa.array([None, NAIVE.replace(hour=8)]), pa.date32(), "row 1.*08:00:00 would be stored as 2024-05-01"),
        (pa.array([[1], [2, 2.5]]), pa.list_(pa.int32()), "row 1.*2.5"),
        (
            pa.array([[("a", 1)], None, [("b", 1), ("c", 2**40)]], pa.map_(pa.string(), pa.int64())),
            pa.map_(pa.string(), pa.int32()),
            "row 2",
        ),
        (pa.array([[(0.0, 1), (-0.0, 2)]], pa.map_(pa.float64(), pa.int64())), pa.map_(pa.float64(), pa.int64()), "is there twice"),
        (pa.array([1]), struct(x=pa.int64()), "declares fields here"),
        (pa.array([1]), pa.list_(pa.int64()), "declares an array here"),
        (pa.array([1]), pa.map_(pa.string(), pa.int64()), "declares a map here"),
        (pa.array([{"x": 1, "X": 2}]), struct(x=pa.int64()), "field 'x' is there twice"),
        (pa.StructArray.from_arrays([ONE, ONE], ["x", "x"]), struct(x=pa.int64()), "field 'x' is there twice"),
        (pa.array([0], pa.timestamp("us", "Mars/Phobos")), INSTANT, "Mars/Phobos"),
        (pa.DictionaryArray.from_arrays(pa.array([0, 5]), ONE, safe=False), pa.int64(), "out of bounds"),
        (pa.array([1_700_000_000]), INSTANT, "may count days"),
        (pa.array([NAIVE.date()]), INSTANT, "no time zone"),
        (pa.array([AWARE]), pa.timestamp("us"), "the value is an instant"),
        (pa.array([[NAIVE]]), pa.list_(INSTANT), "no time zone"),
        (pa.array([{"at": NAIVE}]), struct(at=INSTANT), "no time zone"),
        (pa.array([[("a", NAIVE)]], pa.map_(pa.string(), pa.timestamp("us"))), pa.map_(pa.string(), INSTANT), "no time zone"),
        (pa.array([{"x": 1, "typo": 2}]), struct(x=pa.int64()), "no field 'typo'"),
        (pa.array([[{"x": 1, "typo": 2}]]), pa.list_(struct(x=pa.int64())), "no field 'typo'"),
    ],
)
def test_cast_that_would_change_values_is_refused(column: pa.Array[Any], wanted: pa.DataType, reason: str) -> None:
    with pytest.raises(CallerError, match=f"COLUMN_TYPE_MISMATCH.*{reason}"):
        cast_column(column, pa.field("c", wanted), where="the rows")


@pytest.mark.parametrize(
    ("column", "wanted", "stored"),
    [
        (pa.array([Decimal("7.00")], pa.decimal32(5, 2)), pa.int64(), [7]),
        (pa.array([1.25, None]), MONEY, [Decimal("1.25"), None]),
        (pa.array([1, 0, None]), pa.bool_(), [True, False, None]),
        (pa.array([1, None]), MONEY, [Decimal("1.00"), None]),
        (pa.array([2**60, None]), pa.float64(), [float(2**60), None]),
        (pa.array([Decimal("0.3")]), pa.float64(), [0.3]),
        # As numpy.savetxt writes: more digits than a DOUBLE has, and all of them its own.
        (pa.array(["1.000000000000000056e-01", "-inf", "4.9406564584124654e-324"]), pa.float64(), [0.1, -float("inf"), 5e-324]),
        (pa.array(["1", None]).dictionary_encode(), pa.int64(), [1, None]),
        (pa.array([["1", None]], pa.list_(pa.string_view())), pa.list_(MONEY), [[Decimal("1.00"), None]]),
        (pa.array([float("nan"), None], from_pandas=True), INSTANT, [None, None]),
        (pa.array([NAIVE]), pa.date32(), [NAIVE.date()]),
        (pa.array([[1.0], None, []]).slice(1), pa.list_(pa.int32()), [None, []]),
        (pa.array([[1, 2]], pa.list_(pa.int64(), 2)), pa.list_(pa.int32()), [[1, 2]]),
        (pa.array([{"x": 1}, None]), struct(x=pa.int32()), [{"x": 1}, None]),
        (pa.array([0.1, float("inf")]), pa.float32(), [pytest.approx(0.1), float("inf")]),
        (pa.array([{"y": 1, "x": 2}]), struct(x=pa.int32(), y=pa.int64()), [{"x": 2, "y": 1}]),
        (pa.array([{"x": 1}]), struct(x=pa.int64(), y=pa.string()), [{"x": 1, "y": None}]),
        (pa.array([AWARE]).cast(pa.timestamp("ms", "Europe/Berlin")), INSTANT, [AWARE]),
        (pa.array([NAIVE.date()]), pa.timestamp("us"), [NAIVE]),
    ],
)
def test_cast_that_keeps_values_is_made(column: pa.Array[Any], wanted: pa.DataType, stored: list[Any]) -> None:
    assert cast_column(column, pa.field("c", wanted), where="the rows").to_pylist() == stored


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"times": [AWARE, NAIVE]}, "no time zone"),
        ({"part": {"x": 1, "typo": 2}}, "no field 'typo'"),
        ({"part": {"x": None}}, "NULL in field 'x'"),
        ({"part": {"x": 1, "y": NAIVE}}, "no time zone"),
        ({"by_name": {"a": {"x": 1, "typo": 2}}}, "no field 'typo'"),
        ({"by_name": [("a", {"x": 1, "typo": 2})]}, "no field 'typo'"),
        ({"at": 1_700_000_000}, "may count days"),
        ({"wall": AWARE}, "the value is an instant"),
        # A zone may know no offset, one that Arrow would cut off, or nothing at all.
        ({"at": NAIVE.replace(tzinfo=OddZone(None))}, "no time zone"),
        ({"at": NAIVE.replace(tzinfo=OddZone(dt.timedelta(hours=1, microseconds=7)))}, "not in whole seconds"),
        ({"at": NAIVE.replace(tzinfo=OddZone("far"))}, "gives no offset: TypeError"),
        ({"times": np.array(AWARE)}, "declares an array here"),
        ({"times": bytearray(b"ab")}, "declares an array here"),
    ],
)
def test_dict_that_would_lose_something_inside_is_refused(row: dict[str, Any], reason: str) -> None:
    with pytest.raises(CallerError, match=f"COLUMN_TYPE_MISMATCH.*{reason}"):
        to_arrow([row], DEFINITIONS, topic="T")


def test_naive_time_behind_an_aware_one_is_refused_too() -> None:
    """Arrow takes the zone of the first for all."""
    with pytest.raises(CallerError, match=r"COLUMN_TYPE_MISMATCH.*no time zone"):
        to_arrow([{"at": AWARE}, {"at": NAIVE}], DEFINITIONS, topic="T")


def test_missing_times_of_pandas_are_null() -> None:
    frame = pd.DataFrame({"at": pd.Series([AWARE, pd.NaT, np.nan, None], dtype="object")})
    assert to_arrow(frame, DEFINITIONS, topic="T")[1].column("at").to_pylist() == [AWARE, None, None, None]
