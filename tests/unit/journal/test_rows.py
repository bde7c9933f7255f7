"""What callers may hand over, and how it becomes stored rows (DESIGN 9, 15.3)."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from spark_queue.core import parsing
from spark_queue.errors import SparkQueueError
from spark_queue.journal import stored_rows
from spark_queue.journal.layout import Store
from spark_queue.journal.publisher import make_plan
from spark_queue.journal.rows import from_json_lines, to_arrow
from spark_queue.journal.stored_rows import Sequences

COLUMNS = (
    "id BIGINT NOT NULL, item STRING, at TIMESTAMP, local TIMESTAMP_NTZ, price DECIMAL(8,2), qty INT, ok BOOLEAN, raw BINARY, "
    "day DATE, tags MAP<STRING, INT>, parts ARRAY<STRUCT<x: INT>>"
)
DEFINITIONS = parsing.parse(
    {
        "message_types": {
            "wide": {"columns": COLUMNS, "topics": ["WIDE", "ALSO"]},
            "json": {"topics": ["EVENTS"]},
            "binary": {"topics": ["BLOBS"]},
        }
    }
)
NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)


def stored(data: Any, topic: str | None = "WIDE", *, lines: bool = False) -> list[dict[str, Any]]:
    """Give the rows as they would be stored, without what is NULL."""
    message_type, table = (from_json_lines if lines else to_arrow)(data, DEFINITIONS, topic=topic)
    plan = make_plan(Store("nowhere"), DEFINITIONS, message_type=message_type, topic=topic, expires_after_ms=None)
    sequences = Sequences(publisher="p", first=1)
    tables = [plan.shape.apply(batch, sequences=sequences, now_ms=0) for batch in table.to_batches()]
    user = [name for name in plan.shape.schema.names if name not in ("publisher", "sequence", "published_at")]
    return [{name: row[name] for name in user if row[name] is not None} for part in tables for row in part.to_pylist()]


def refusal(data: Any, topic: str | None = "WIDE", *, lines: bool = False) -> SparkQueueError:
    with pytest.raises(SparkQueueError) as refused:
        stored(data, topic, lines=lines)
    return refused.value


FULL = {
    "id": 1,
    "item": "ß",
    "at": NOON,
    "local": dt.datetime(2024, 5, 1, 12),  # noqa: DTZ001 - a wall-clock reading is meant
    "price": Decimal("12.30"),
    "qty": -5,
    "ok": True,
    "raw": b"\x00\xff",
    "day": dt.date(2024, 5, 1),
    "tags": [("a", 1)],
    "parts": [{"x": 1}, {"x": None}],
}


def test_dicts_are_rows_by_column_name() -> None:
    assert stored([{**FULL, "tags": {"a": 1}}, {"id": 2}]) == [{**FULL, "topic": "WIDE"}, {"id": 2, "topic": "WIDE"}]


def test_arrow_goes_by_column_name_whatever_the_order() -> None:
    table = pa.table({"item": ["x"], "id": pa.array([1], pa.int8())})
    for data in (table, table.to_batches()[0], pa.RecordBatchReader.from_batches(table.schema, table.to_batches())):
        assert stored(data) == [{"id": 1, "item": "x", "topic": "WIDE"}]


def test_pandas_goes_by_column_name_and_nan_is_null() -> None:
    frame = pd.DataFrame(
        {
            "id": [1.0, 2.0],
            "item": ["a", np.nan],
            "at": pd.to_datetime(pd.Series(["2024-05-01T12:00Z", None])),
            "qty": pd.array([None, 3], dtype="Int32"),
        }
    )
    assert stored(frame) == [{"id": 1, "item": "a", "at": NOON, "topic": "WIDE"}, {"id": 2, "qty": 3, "topic": "WIDE"}]


def test_texts_are_cast_where_nothing_is_lost() -> None:
    (row,) = stored([{"id": "7", "at": "2024-05-01T14:00:00+02:00", "price": "1.5", "ok": "true", "day": "2024-05-01"}])
    assert row == {"id": 7, "at": NOON, "price": Decimal("1.50"), "ok": True, "day": dt.date(2024, 5, 1), "topic": "WIDE"}


def test_topic_and_expiration_may_stand_in_the_rows() -> None:
    """R60."""
    rows = stored([{"id": 1, "topic": "ALSO", "expires_at": NOON}, {"id": 2, "topic": "WIDE"}], None)
    assert rows == [{"id": 1, "topic": "ALSO", "expires_at": NOON}, {"id": 2, "topic": "WIDE"}]


@pytest.mark.parametrize(
    ("row", "code", "text"),
    [
        (
            {"id": 1.5},
            "COLUMN_TYPE_MISMATCH",
            "Column 'id' of message type 'wide' is double, but the message type declares int64 NOT NULL",
        ),
        ({"id": 2**70}, "COLUMN_TYPE_MISMATCH", "too large"),
        ({"id": None}, "COLUMN_TYPE_MISMATCH", "NULL in 1 row"),
        ({"item": "x"}, "COLUMN_TYPE_MISMATCH", "NULL in 1 row"),
        ({"id": 1, "qty": 2**40}, "COLUMN_TYPE_MISMATCH", "'qty'"),
        ({"id": 1, "price": "1.234"}, "COLUMN_TYPE_MISMATCH", "'price'"),
        ({"id": 1, "at": dt.datetime(2024, 5, 1)}, "COLUMN_TYPE_MISMATCH", "no time zone"),  # noqa: DTZ001 - that is the point
        ({"id": 1, "at": "2024-05-01T12:00:00"}, "COLUMN_TYPE_MISMATCH", "zone offset"),
        ({"id": 1, "tags": {"a": "x"}}, "COLUMN_TYPE_MISMATCH", "'tags'"),
        ({"id": 1, "itm": "x"}, "UNKNOWN_COLUMN", "Did you mean 'item'?"),
        ({"id": 1, "sequence": 4}, "UNKNOWN_COLUMN", "has no column 'sequence'"),
        ("text", "ROWS_UNREADABLE", "row 0, a str"),
    ],
)
def test_row_that_does_not_fit_is_refused_by_name(row: Any, code: str, text: str) -> None:
    refused = refusal([row])
    assert refused.code == code
    assert text in str(refused)


@pytest.mark.parametrize("data", [{"id": 1}, "text", b"bytes", 5])
def test_data_of_no_known_kind_is_refused(data: Any) -> None:
    assert refusal(data).code == "ROWS_UNREADABLE"


def test_rows_without_a_topic_are_refused() -> None:
    assert refusal([{"id": 1}], None).code == "TOPIC_MISSING"
    assert refusal([{"id": 1, "topic": "WIDE"}, {"id": 2, "topic": None}], None).facts["rows"] == 1
    assert refusal([], None).code == "TOPIC_MISSING"
    assert refusal([{"id": 1}], "WIRE").code == "UNKNOWN_TOPIC"


def test_json_takes_texts_and_dicts_as_bodies() -> None:
    data = ['{"a":1}', {"b": [1, {"ß": None}]}, {"value": 3}, {"at": NOON}]
    bodies = [row["value"] for row in stored(data, "EVENTS")]
    assert bodies == ['{"a":1}', '{"b":[1,{"ß":null}]}', '{"value":3}', '{"at":"2024-05-01T12:00:00Z"}']


def test_json_takes_rows_with_a_value_of_text_or_dict() -> None:
    data = [{"value": '{"a": 1}', "topic": "EVENTS"}, {"value": {"b": 2}, "topic": "EVENTS", "expires_at": NOON}]
    assert stored(data, None) == [
        {"value": '{"a": 1}', "topic": "EVENTS"},
        {"value": '{"b":2}', "topic": "EVENTS", "expires_at": NOON},
    ]


@pytest.mark.parametrize("row", [object(), 5, {"x": float("nan")}, {"x": object()}])
def test_json_refuses_what_json_cannot_hold(row: Any) -> None:
    assert refusal([row], "EVENTS").code == "ROWS_UNREADABLE"


def test_binary_takes_bytes_of_any_length() -> None:
    assert stored([b"", b"\x00"], "BLOBS") == [{"value": b"", "topic": "BLOBS"}, {"value": b"\x00", "topic": "BLOBS"}]


def test_json_lines_are_rows_or_bodies_by_type() -> None:
    assert stored(['{"id": 1}', "", ' {"id": 2, "item": "x"}\n'], lines=True) == [
        {"id": 1, "topic": "WIDE"},
        {"id": 2, "item": "x", "topic": "WIDE"},
    ]
    assert [row["value"] for row in stored([b'{"a": 1}\n', b"[2]"], "EVENTS", lines=True)] == ['{"a": 1}', "[2]"]
    assert stored(['{"id": 3, "topic": "ALSO"}'], None, lines=True) == [{"id": 3, "topic": "ALSO"}]


def test_json_line_that_is_none_is_named_by_its_number() -> None:
    assert "line 3" in str(refusal(['{"id": 1}', "", '{"id": '], lines=True))


def test_body_over_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_rows, "MESSAGE_LIMIT_BYTES", 1000)
    assert stored([b"x" * 1000], "BLOBS")
    refused = refusal([b"x", b"x" * 1001], "BLOBS")
    assert (refused.code, refused.facts["size"], refused.facts["limit"]) == ("MESSAGE_TOO_LARGE", 1001, 1000)


def test_sequences_count_on_over_batches(tmp_path: Path) -> None:
    sequences = Sequences(publisher="p", first=5)
    batches = pa.table({"id": [1, 2, 3]}).to_batches(max_chunksize=2)
    assert [sequences.take(batch).to_pylist() for batch in batches] == [[5, 6], [7]]
