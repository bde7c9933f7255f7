"""What callers may hand over, and how it becomes stored rows (DESIGN 9, 15.3)."""

from __future__ import annotations

import datetime as dt
import zoneinfo
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from spark_queue import is_json
from spark_queue.core.definitions import parsing
from spark_queue.errors import SparkQueueError
from spark_queue.journal import stored_rows
from spark_queue.journal.publisher import make_plan
from spark_queue.journal.rows import from_json_lines, to_arrow
from spark_queue.journal.store import Store
from spark_queue.journal.stored_rows import Sequences

COLUMNS = (
    "id BIGINT NOT NULL, item STRING, at TIMESTAMP, local TIMESTAMP_NTZ, price DECIMAL(8,2), qty INT, ok BOOLEAN, raw BINARY, "
    "day DATE, digits DECIMAL(20,0), tags MAP<STRING, INT>, parts ARRAY<STRUCT<x: INT>>"
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
    """Return the rows as they would be stored, without what is NULL."""
    message_type, table = (from_json_lines if lines else to_arrow)(data, DEFINITIONS, topic=topic)
    plan = make_plan(Store("nowhere"), DEFINITIONS, message_type=message_type, topic=topic, expires_after_ms=None)
    sequences = Sequences(publisher="p", first=1)
    tables, rows = [], 0
    for batch in table.to_batches():
        tables.append(plan.shape.apply(batch, sequences=sequences, now_ms=0, first_row=rows))
        rows += batch.num_rows
    user = [name for name in plan.shape.schema.names if name not in ("publisher", "sequence", "published_at")]
    return [{name: row[name] for name in user if row[name] is not None} for part in tables for row in part.to_pylist()]


def refusal(data: Any, topic: str | None = "WIDE", *, lines: bool = False) -> SparkQueueError:
    with pytest.raises(SparkQueueError) as refused:
        stored(data, topic, lines=lines)
    return refused.value


def bodies(data: Any) -> list[str | None]:
    """Return the bodies of message type json as they would be stored."""
    return [row.get("value") for row in stored(data, "EVENTS")]


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
            "Column 'id' of message type 'wide' is DOUBLE in row 0, but the message type declares BIGINT NOT NULL, and values are",
        ),
        ({"id": 2**70}, "COLUMN_TYPE_MISMATCH", "1180591620717411303424"),
        ({"id": None}, "COLUMN_TYPE_MISMATCH", "NULL in row 0"),
        ({"item": "x"}, "COLUMN_TYPE_MISMATCH", "NULL in row 0"),
        ({"id": 1, "qty": 2**40}, "COLUMN_TYPE_MISMATCH", "'qty'"),
        ({"id": 1, "price": "1.234"}, "COLUMN_TYPE_MISMATCH", "'price'"),
        ({"id": 1, "at": dt.datetime(2024, 5, 1)}, "COLUMN_TYPE_MISMATCH", "no time zone"),  # noqa: DTZ001 - that is the point
        ({"id": 1, "at": "2024-05-01T12:00:00"}, "COLUMN_TYPE_MISMATCH", "zone offset"),
        ({"id": 1, "tags": {"a": "x"}}, "COLUMN_TYPE_MISMATCH", "'tags'"),
        ({"id": 1, "itm": "x"}, "UNKNOWN_COLUMN", "Did you mean 'item'?"),
        ({"id": 1, "sequence": 4}, "UNKNOWN_COLUMN", "no column 'sequence' in message type 'wide'"),
        ("text", "ROWS_UNREADABLE", "Row 0, of type str, is not a dict by column name."),
    ],
)
def test_row_that_does_not_fit_is_refused_by_name(row: Any, code: str, text: str) -> None:
    refused = refusal([row])
    assert refused.code == code
    assert text in str(refused)


@pytest.mark.parametrize("data", [{"id": 1}, "text", b"bytes", 5, pa.array([1]), pa.chunked_array([[1]]), pd.Series([1])])
def test_data_of_no_known_kind_is_refused(data: Any) -> None:
    assert refusal(data).code == "ROWS_UNREADABLE"


def test_rows_without_a_topic_are_refused() -> None:
    assert refusal([{"id": 1}], None).code == "TOPIC_MISSING"
    assert refusal([{"id": 1, "topic": "WIDE"}, {"id": 2, "topic": None}], None).facts["rows"] == 1
    assert refusal([], None).code == "TOPIC_MISSING"
    nothing: list[Any] = [pd.Series([None], dtype="string"), pd.Categorical([None]), [float("nan")], [pd.NA]]
    for topics in nothing:
        assert refusal(pd.DataFrame({"id": [1], "topic": topics}), None).code == "TOPIC_MISSING"
    assert refusal([{"id": 1, "topic": float("nan")}], None).code == "TOPIC_MISSING"
    assert refusal([{"id": 1}], "WIRE").code == "UNKNOWN_TOPIC"


@pytest.mark.parametrize("topic", [7, True, b"WIDE", ["WIDE"]])
def test_a_topic_that_is_no_text_is_refused_by_its_type(topic: Any) -> None:
    """It is there, and is not NULL."""
    for data in ([{"id": 1, "topic": topic}], pa.table({"id": [1], "topic": pa.array([topic])})):
        found = refusal(data, None)
        assert (found.code, found.facts["column"], found.facts["found"]) == ("COLUMN_TYPE_MISMATCH", "topic", type(topic).__name__)


def test_topics_of_any_type_that_arrow_has_for_texts_are_taken_or_refused_by_its_name() -> None:
    texts = pa.array(["WIDE", "WIDE"])
    for topics in (texts.cast(pa.large_string()), texts.cast(pa.string_view()), texts.dictionary_encode(), texts.cast(pa.json_())):
        _, table = to_arrow(pa.table({"id": [1, 2], "topic": topics}), DEFINITIONS)
        assert table.column("topic").unique().to_pylist() == ["WIDE"]
    encoded = pa.array(["WIDE", "WIDE"], pa.run_end_encoded(pa.int32(), pa.string()))
    assert refusal(pa.table({"id": [1, 2], "topic": encoded}), None).code == "COLUMN_TYPE_MISMATCH"


def test_json_takes_texts_or_dicts_as_bodies() -> None:
    assert bodies(['{"a":1}', " [2] ", "3"]) == ['{"a":1}', " [2] ", "3"]
    assert bodies([{"b": [1, {"ß": None}]}, {"at": NOON}, {}]) == ['{"b":[1,{"ß":null}]}', '{"at":"2024-05-01T12:00:00Z"}', "{}"]
    assert bodies([{"value": 1, "unit": "m"}, {"topic": "EVENTS"}]) == ['{"value":1,"unit":"m"}', '{"topic":"EVENTS"}']


def test_json_takes_dicts_with_a_value_as_rows_whatever_the_value_is() -> None:
    values = [{"value": '{"a": 1}'}, {"value": {"b": 2}}, {"value": [3]}, {"value": 4.5}, {"VALUE": True}, {"value": None}]
    assert bodies(values) == ['{"a": 1}', '{"b":2}', "[3]", "4.5", "true", None]
    data = [{"value": '{"a": 1}', "topic": "EVENTS"}, {"value": {"b": 2}, "topic": "EVENTS", "expires_at": NOON}]
    assert stored(data, None) == [
        {"value": '{"a": 1}', "topic": "EVENTS"},
        {"value": '{"b":2}', "topic": "EVENTS", "expires_at": NOON},
    ]


def test_json_takes_a_frame_s_values_as_dicts_have_them() -> None:
    assert bodies(pd.DataFrame({"value": ["1", {"a": 1}, None]})) == ["1", '{"a":1}', None]
    assert bodies(pd.DataFrame({"value": [1.5, np.nan]})) == ["1.5", None]


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        (["1", {"a": 1}], "Row 1, which is a dict that is a body behind a text"),
        ([{"a": 1}, {"b": 1}, {"value": 1}], "Row 2, which is a dict with 'value' behind a dict that is a body"),
        ([{"value": 1}, {}], "Row 1, which is a dict that is a body behind a dict with 'value'"),
    ],
)
def test_json_refuses_rows_of_several_forms(rows: list[Any], text: str) -> None:
    refused = refusal(rows, "EVENTS")
    assert (refused.code, refused.facts["row"]) == ("ROWS_UNREADABLE", rows.index(rows[-1]))
    assert text in str(refused)


@pytest.mark.parametrize("lines", [False, True])
@pytest.mark.parametrize("body", ['{"a": ', "{'a': 1}", "NaN", '{"a": -Infinity}', "tru", "[" * 100_000, '[{"a": 1, "a": 2}]'])
def test_json_refuses_texts_that_are_none(body: str, lines: bool) -> None:
    refused = refusal(["1", body], "EVENTS", lines=lines)
    assert (refused.code, refused.facts["row"]) == ("ROWS_UNREADABLE", 1)
    assert "Row 1 is not JSON (" in str(refused)


@pytest.mark.parametrize(
    ("body", "taken"),
    [
        ('{"a":1} trailing', False),
        ('{"a":1}{"b":2}', False),
        ('{"a":"\\ud800"}', True),
        ('{"a":' + "9" * 5_000 + "}", True),
        (' [1, 2.50, null, true, "x"]\n', True),
        ("[1,]", False),
        ("{'a': 1}", False),
        ("[NaN]", False),
        ('{"a": 1, "a": 1}', False),
        ('"tab\t"', False),
        ("", False),
        (None, True),
    ],
)
def test_a_body_is_json_where_a_publish_takes_it(body: str | None, taken: bool) -> None:
    assert is_json(body) is taken
    data = pa.table({"value": pa.array([body], pa.string())})
    if taken:
        assert bodies(data) == [body]
    else:
        assert refusal(data, "EVENTS").code == "ROWS_UNREADABLE"


def test_json_takes_numbers_of_any_length() -> None:
    assert bodies(["1" * 5_000]) == ["1" * 5_000]


_ODD_ZONE = dt.timezone(dt.timedelta(seconds=17))


@pytest.mark.parametrize(
    "row", [object(), 5, {"x": float("nan")}, {"x": object()}, {"x": dt.datetime(2024, 5, 1, tzinfo=_ODD_ZONE)}]
)
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


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ('{"id": ', "is not a JSON object (Expecting value"),
        (b'{"id": 1, "item": "\xff"}', "UTF-8"),
        ('{"id": 1, "item": NaN}', 'JSON has no NaN; for a DOUBLE write it as the text "NaN"'),
        ('{"id": 1, "id": 2}', "a key occurs twice in one object: id)"),
    ],
)
def test_json_line_that_is_none_is_named_by_its_number(line: str | bytes, text: str) -> None:
    refused = str(refusal(['{"id": 1}', "", line], lines=True))
    assert "line 3" in refused
    assert text in refused


def test_json_lines_keep_every_digit_of_their_numbers() -> None:
    assert stored(['{"id": 1e3, "price": 123456.70, "parts": [{"x": 2.0}]}'], lines=True) == [
        {"id": 1000, "price": Decimal("123456.70"), "parts": [{"x": 2}], "topic": "WIDE"}
    ]


def test_a_value_is_told_by_its_own_type_whatever_stands_beside_it() -> None:
    """Arrow would take one type for all: a date would cut the times behind it, and a text spoil the numbers."""
    rows = stored([{"id": 1}, {"id": "2"}, {"id": 3.0}, {"id": Decimal(4)}, {"id": np.int64(5)}])
    assert [row["id"] for row in rows] == [1, 2, 3, 4, 5]
    assert stored([{"id": 1, "digits": np.uint64(2**64 - 1)}])[0]["digits"] == 2**64 - 1
    days = stored([{"id": 1, "day": dt.date(2024, 5, 1)}, {"id": 2, "day": dt.datetime(2024, 5, 2)}])  # noqa: DTZ001 - midnight
    assert [row["day"] for row in days] == [dt.date(2024, 5, 1), dt.date(2024, 5, 2)]
    refused = refusal([{"id": 1, "day": dt.date(2024, 5, 1)}, {"id": 2, "day": dt.datetime(2024, 5, 2, 8)}])  # noqa: DTZ001 - as above
    assert refused.facts["row"] == 1


@pytest.mark.parametrize(
    ("value", "column", "text"),
    [
        ({"a": 1}, "item", "is dict in row 2, but the message type declares STRING"),
        (object(), "item", "is object in row 2"),
        ("\ud800", "item", "surrogates not allowed"),
        (1, "tags", "is int in row 2, but the message type declares MAP<STRING, INT>"),
        ([1], "tags", "a map is a dict, or pairs of a key and a value"),
        ([{"x": 1}, {"y": 1}], "parts", "is dict in row 2"),
        ({"x": 1}, "parts", "the message type declares an array here"),
        ([[1]], "parts", "the message type declares fields here"),
        (pd.Timestamp("2024-05-01T12:00:00.000000001Z"), "at", "has nanoseconds, but only microseconds are stored"),
        # A datetime of Python's in it has another year.
        (pd.Timestamp(np.datetime64("12000-02-03T04:05", "s"), tz="UTC"), "at", "outside of the years 1 to 9999"),
        (pd.Timestamp(np.datetime64("-0500-02-03T04:05", "s"), tz="UTC"), "expires_at", "outside of the years 1 to 9999"),
        ({1: 10, "1": 20}, "tags", "key '1' is there twice"),
        ([("a", 1), ("b", 2), ("a", 3)], "tags", "key 'a' is there twice"),
        ({pd.NA: 1}, "tags", "one of its keys is NULL"),
        (["ab", "cd"], "tags", "a map is a dict, or pairs of a key and a value"),
        (Decimal("sNaN"), "price", "is Decimal in row 2"),
        # NumPy takes them for whole numbers.
        (np.timedelta64(5, "ns"), "qty", "is duration[us] in row 2"),
        (np.timedelta64(5, "M"), "item", "is duration[us] in row 2"),
        (Decimal(1), "at", "is Decimal in row 2, but the message type declares TIMESTAMP"),
    ],
)
def test_value_that_does_not_fit_is_told_with_its_row(value: Any, column: str, text: str) -> None:
    refused = refusal([{"id": 1}, {"id": 2}, {"id": 3, column: value}])
    assert (refused.code, refused.facts["row"]) == ("COLUMN_TYPE_MISMATCH", 2)
    assert text in str(refused)


@pytest.mark.parametrize("kind", [pa.table, pd.DataFrame])
def test_columns_with_a_type_of_their_own_are_told_with_the_row_too(kind: Any) -> None:
    refused = refusal(kind({"id": [1, 2, 3], "qty": [1.0, 2.0, 2.5]}))
    assert "Column 'qty' of message type 'wide' is DOUBLE in row 2" in str(refused)
    tables = [pa.table({"id": [1, 2]}), pa.table({"id": [3, None]})]
    assert refusal(pa.concat_tables(tables)).facts["row"] == 3


def test_dicts_may_spell_a_column_in_any_case_though_not_one_in_two() -> None:
    assert stored([{"ID": 1}, {"id": 2, "Item": "x"}]) == [{"id": 1, "topic": "WIDE"}, {"id": 2, "item": "x", "topic": "WIDE"}]
    assert "is given twice, as 'ID' and as 'id'" in str(refusal([{"ID": 1}, {"id": 2, "ID": 3}]))
    assert stored([{"id": 1, "Topic": "ALSO"}], None) == [{"id": 1, "topic": "ALSO"}]
    assert stored(pa.table({"Id": [1], "TOPIC": ["ALSO"]}), None) == [{"id": 1, "topic": "ALSO"}]
    assert stored(pd.DataFrame({"Id": [1], "TOPIC": ["ALSO"]}), None) == [{"id": 1, "topic": "ALSO"}]
    assert refusal(pd.DataFrame([[1, 2]], columns=["id", "id"])).code == "COLUMN_TWICE"


def test_body_over_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_rows, "MESSAGE_LIMIT_BYTES", 1000)
    assert stored([b"x" * 1000], "BLOBS")
    refused = refusal([b"x", b"x" * 1001], "BLOBS")
    assert (refused.code, refused.facts["size"], refused.facts["limit"]) == ("MESSAGE_TOO_LARGE", 1001, 1000)


def test_sequences_count_on_over_batches(tmp_path: Path) -> None:
    sequences = Sequences(publisher="p", first=5)
    batches = pa.table({"id": [1, 2, 3]}).to_batches(max_chunksize=2)
    assert [sequences.take(batch).to_pylist() for batch in batches] == [[5, 6], [7]]


@pytest.mark.parametrize("end", ["Z", "+01:00", "-0130", ""])
@pytest.mark.parametrize("digits", ["123456000", "1234560", "000000000", "120000000000"])
def test_zeros_behind_the_microseconds_of_a_text_are_nothing_that_is_lost(digits: str, end: str) -> None:
    """As programs write them that count nanoseconds."""
    whole = dt.datetime.fromisoformat(f"2024-05-01T12:00:00.{digits[:6]}{end}")
    column, text = "at" if end else "local", f"2024-05-01T12:00:00.{digits}{end}"
    for data in ([{"id": 1, column: text}], pa.table({"id": [1], column: [text]}), pd.DataFrame({"id": [1], column: [text]})):
        assert stored(data)[0][column] == whole
    _, table = to_arrow([{"id": 1, "at": text}], DEFINITIONS, topic="WIDE", timezone="Asia/Kolkata")
    assert table.column("at")[0].as_py() == (whole if end else whole.replace(tzinfo=zoneinfo.ZoneInfo("Asia/Kolkata")))
    refused = refusal([{"id": 1, column: "2024-05-01T12:00:00Z"[: 19 + len(end[:1])]}, {"id": 2, column: text[:27] + "1" + end}])
    assert "has nanoseconds, but only microseconds are stored" in str(refused)
    assert refused.facts["row"] == 1


RENAMED = parsing.parse(
    {
        "message_types": {
            "note": {
                "columns": "subject STRING, term INT, due TIMESTAMP",
                "topics": ["NOTES"],
                "rename": {"Topic": "subject", "lease": "term", "": "due"},
            }
        }
    }
)


def renamed(data: Any, topic: str | None = "NOTES", *, lines: bool = False) -> list[dict[str, Any]]:
    message_type, table = (from_json_lines if lines else to_arrow)(data, RENAMED, topic=topic)
    plan = make_plan(Store("nowhere"), RENAMED, message_type=message_type, topic=topic, expires_after_ms=None)
    [batch] = table.to_batches()
    return plan.shape.apply(batch, sequences=Sequences(publisher="p", first=1), now_ms=0).to_pylist()


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        ([{"topic": "tea", "Lease": 3}], False),
        ([{"Subject": "tea", "term": 3}], False),
        (pa.table({"topic": ["tea"], "LEASE": [3]}), False),
        (pd.DataFrame({"TOPIC": ["tea"], "lease": [3]}), False),
        ([b'{"topic": "tea", "lease": 3}'], True),
    ],
)
def test_rows_may_bring_names_that_the_message_type_renames(data: Any, lines: bool) -> None:
    [row] = renamed(data, lines=lines)
    assert (row["subject"], row["term"], row["topic"]) == ("tea", 3, "NOTES")


def test_a_column_without_a_name_may_be_renamed() -> None:
    [row] = renamed(pa.table({"": pa.array([NOON])}))
    assert row["due"] == NOON


def test_a_renamed_column_is_given_once() -> None:
    with pytest.raises(SparkQueueError, match=r"COLUMN_TWICE.*'subject'.*as 'topic' and as 'subject'"):
        renamed([{"topic": "tea", "subject": "milk"}])
    with pytest.raises(SparkQueueError, match=r"UNKNOWN_COLUMN.*'leese'.*Did you mean 'lease'"):
        renamed([{"leese": 3}])


@pytest.mark.parametrize("form", [list, pa.Table.from_pylist, pd.DataFrame])
def test_rows_whose_column_topic_is_renamed_name_no_topic(form: Any) -> None:
    with pytest.raises(SparkQueueError, match="TOPIC_MISSING") as refused:
        renamed(form([{"topic": "NOTES"}]), None)
    assert "`rename` of message type 'note' makes column 'topic' column 'subject'" in refused.value.__notes__[0]


def test_sequences_of_a_column_are_found_by_the_name_that_rows_bring() -> None:
    plan = make_plan(Store("nowhere"), RENAMED, message_type="note", topic="NOTES", expires_after_ms=None)
    for name in ("LEASE", "term"):
        batch = pa.record_batch({"lease": [4, 5]})
        told = plan.shape.apply(batch, sequences=Sequences(publisher="p", column=name), now_ms=0)
        assert told.column("sequence").to_pylist() == [4, 5]
