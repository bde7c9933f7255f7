"""What becomes of values by the way in which they are published: the table of the reference, and what its test hands over.

Each case is one row of the table: a value in the form that each way has for it, and what is stored then. A way that cannot say
the value has no form for it.
"""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa

#: The columns of the table: ways that know the same types are one.
WAYS = ("dicts", "pandas", "Arrow, Parquet", "JSON lines", "CSV", "Spark")
DICTS, PANDAS, ARROW, JSON, CSV, SPARK = WAYS

#: What a refusal is called in the table: of COLUMN_TYPE_MISMATCH, which most are, and of a way that cannot say the value.
REFUSED, UNSAYABLE = "refused", "–"

_UNREADABLE = "ROWS_UNREADABLE"


@dataclass(frozen=True, kw_only=True)
class Case:
    """One row of the table."""

    #: What is handed over, for people.
    about: str
    #: What the message type declares for column ``it``, in Spark DDL; None for message type ``json``.
    declared: str | None
    #: What each way is given: rows, a frame, a table, lines, the text of a file, a SELECT list.
    given: Mapping[str, Any]
    #: What is stored, and where it differs: a value as `told` tells it, `REFUSED`, or a code.
    becomes: str
    but: Mapping[str, str] = field(default_factory=dict)

    def cell(self, way: str) -> str:
        """Return what is stored by one way."""
        return self.but.get(way, self.becomes) if way in self.given else UNSAYABLE


def told(value: Any) -> str:
    """Return a stored value as the table tells it."""
    if value is None:
        return "NULL"
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity"
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, str):
        return f"'{value}'"
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    if isinstance(value, dt.datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, list):
        return f"[{', '.join(map(told, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name}: {told(part)}' for name, part in value.items())}}}"
    return str(value)


def _case(
    about: str,
    declared: str,
    becomes: str,
    *,
    value: Any = UNSAYABLE,
    arrow: Any = None,
    pandas: Any = None,
    json: str | None = None,
    csv: str | None = None,
    spark: str | None = None,
    but: Mapping[str, str] | None = None,
) -> Case:
    """Make a case of one value: `arrow` and `pandas` are a column of it, where dicts have another form; the others its text."""
    given: dict[str, Any] = {}
    if value is not UNSAYABLE:
        given[DICTS] = [{"it": value}]
        pandas, arrow = [value] if pandas is None else pandas, [value] if arrow is None else arrow
    if pandas is not None:
        given[PANDAS] = pd.DataFrame({"it": pandas})
    if arrow is not None:
        given[ARROW] = pa.table({"it": arrow})
    if json is not None:
        given[JSON] = f'{{"it": {json}}}\n'
    if csv is not None:
        given[CSV] = f"n,it\n,{csv}\n"
    if spark is not None:
        given[SPARK] = [f"{spark} AS it"]
    return Case(about=about, declared=declared, given=given, becomes=becomes, but=but or {})


def _text(text: str, declared: str, becomes: str) -> Case:
    """Make a case of a text, which every way can say."""
    return _case(f"the text `{text}`", declared, becomes, value=text, json=f'"{text}"', csv=text, spark=f"'{text}'")


def _number(number: float, declared: str, becomes: str, *, about: str = "", in_csv: str = "") -> Case:
    """Make a case of a number; CSV knows it as a text only."""
    spark = f"{number}L" if isinstance(number, int) else f"{number}D"
    but = {CSV: in_csv} if in_csv else {}
    return _case(about or str(number), declared, becomes, value=number, json=str(number), csv=str(number), spark=spark, but=but)


def _no_number(word: str, declared: str, becomes: str, *, but: Mapping[str, str] | None = None) -> Case:
    """Make a case of a DOUBLE that is no number, which JSON does not have."""
    but = {**(but or {}), JSON: _UNREADABLE}
    return _case(word, declared, becomes, value=float(word), json=word, csv=word, spark=f"DOUBLE('{word}')", but=but)


def _decimal_nan(declared: str, becomes: str) -> Case:
    nan = Decimal("NaN")
    given = {DICTS: [{"it": nan}], PANDAS: pd.DataFrame({"it": [nan]})}
    return Case(about="Decimal('NaN')", declared=declared, given=given, becomes=becomes, but={PANDAS: "NULL"})


def _exact(number: str, declared: str, becomes: str) -> Case:
    """Make a case of a DECIMAL."""
    return _case(number, declared, becomes, value=Decimal(number), json=number, csv=number, spark=f"{number}BD")


def _columns(row: Mapping[str, Any], *spark: str) -> dict[str, Any]:
    """Return one row of several columns to every way; `spark` is its SELECT list."""
    return {
        DICTS: [row],
        PANDAS: pd.DataFrame([row]),
        ARROW: pa.table({name: [value] for name, value in row.items()}),
        JSON: f"{json.dumps(row)}\n",
        CSV: f"{','.join(row)}\n{','.join(map(str, row.values()))}\n",
        SPARK: list(spark),
    }


def _body(text: str) -> dict[str, Any]:
    """Give a body of message type json to every way, as a text."""
    quoted = text.replace('"', '""')
    given = {DICTS: [text], PANDAS: pd.DataFrame({"value": [text]}), ARROW: pa.table({"value": [text]}), JSON: f"{text}\n"}
    return {**given, CSV: f'value\n"{quoted}"\n', SPARK: [f"'{text}' AS value"]}


_EIGHT = dt.datetime(2026, 1, 31, 8, tzinfo=dt.UTC)
_WALL = _EIGHT.replace(tzinfo=None)
_FINE = pd.Timestamp("2026-01-31T08:00:00.000000001Z")
_NO_COLUMNS = pa.table({"n": [1]}).select([])

CASES = (
    # What is not there.
    Case(about="a column that is left out", declared="STRING", given=_columns({"n": 1}, "1 AS n"), becomes="NULL"),
    Case(
        about="a row without columns, `{}`",
        declared="STRING",
        given={DICTS: [{}], PANDAS: pd.DataFrame(index=[7]), ARROW: _NO_COLUMNS, JSON: "{}\n", SPARK: []},
        becomes="NULL",
        but={SPARK: "UNSUPPORTED_WRITE"},
    ),
    _case("None, null; in CSV nothing", "STRING", "NULL", value=None, json="null", csv="", spark="NULL"),
    _case("None, null; in CSV nothing", "TIMESTAMP", "NULL", value=None, json="null", csv="", spark="NULL"),
    _case('an empty text, `""`', "STRING", "''", value="", json='""', csv='""', spark="''"),
    _case('an empty text, `""`', "BIGINT", REFUSED, value="", json='""', csv='""', spark="''"),
    # Texts.
    _text("7", "BIGINT", "7"),
    _text("7.0", "BIGINT", REFUSED),
    _text("1.50", "DECIMAL(8,2)", "1.50"),
    _text("1.505", "DECIMAL(8,2)", REFUSED),
    _text("NaN", "DOUBLE", "NaN"),
    _text("1e400", "DOUBLE", REFUSED),
    _text("true", "BOOLEAN", "TRUE"),
    _text("é", "BINARY", "X'c3a9'"),
    _text("2026-01-31", "DATE", "2026-01-31"),
    _text("2026-01-31T09:00:00+01:00", "TIMESTAMP", "2026-01-31T08:00:00Z"),
    _text("2026-01-31T08:00:00", "TIMESTAMP", REFUSED),
    _text("2026-01-31T08:00:00", "TIMESTAMP_NTZ", "2026-01-31T08:00:00"),
    _text("2026-01-31T08:00:00Z", "TIMESTAMP_NTZ", REFUSED),
    _text("2026-01-31T08:00:00.000000000Z", "TIMESTAMP", "2026-01-31T08:00:00Z"),
    _text("2026-01-31T08:00:00.123456000", "TIMESTAMP_NTZ", "2026-01-31T08:00:00.123456"),
    _text("2026-01-31T08:00:00.000000001Z", "TIMESTAMP", REFUSED),
    # Whole numbers.
    _number(7, "BIGINT", "7"),
    _number(7, "DOUBLE", "7.0"),
    _number(7, "DECIMAL(8,2)", "7.00"),
    _number(7, "STRING", "'7'"),
    _number(7, "BOOLEAN", REFUSED),
    _number(1, "BOOLEAN", "TRUE"),
    _number(7, "DATE", REFUSED),
    _number(1769846400, "TIMESTAMP", REFUSED),
    _number(2**40, "INT", REFUSED, about="2^40"),
    _case(
        "2^63",
        "BIGINT",
        REFUSED,
        value=2**63,
        arrow=pa.array([2**63], pa.uint64()),
        json=str(2**63),
        csv=str(2**63),
        spark=f"CAST('{2**63}' AS DECIMAL(20,0))",
    ),
    _number(2**53 + 1, "DOUBLE", REFUSED, about="2^53 + 1"),
    # Numbers with a point.
    _number(7.0, "BIGINT", "7", in_csv=REFUSED),
    _number(7.5, "BIGINT", REFUSED),
    _number(1.5, "DECIMAL(8,2)", "1.50"),
    _number(1.505, "DECIMAL(8,2)", REFUSED),
    _number(0.1, "FLOAT", "0.10000000149011612", about="0.1, which FLOAT tells with its 24 bits"),
    _number(0.123456789, "FLOAT", REFUSED),
    _number(1e300, "FLOAT", REFUSED),
    _number(7.5, "STRING", REFUSED, in_csv="'7.5'"),
    _case("Decimal 0.1", "DOUBLE", "0.1", value=Decimal("0.1"), spark="0.1BD"),
    _case("Decimal 7.00", "BIGINT", "7", value=Decimal("7.00"), spark="7.00BD"),
    _exact("0.12345678901234567890", "DOUBLE", REFUSED),
    _exact("12345678901234567.89", "DECIMAL(38,2)", "12345678901234567.89"),
    # What is no number.
    _no_number("NaN", "DOUBLE", "NaN", but={PANDAS: "NULL"}),
    _no_number("NaN", "BIGINT", REFUSED, but={PANDAS: "NULL"}),
    _no_number("NaN", "STRING", REFUSED, but={PANDAS: "NULL", CSV: "'NaN'"}),
    _no_number("Infinity", "DOUBLE", "Infinity"),
    _decimal_nan("DOUBLE", "NaN"),
    _decimal_nan("DECIMAL(8,2)", REFUSED),
    Case(
        about="NaT, pandas.NA",
        declared="TIMESTAMP",
        given={DICTS: [{"it": pd.NaT}, {"it": pd.NA}], PANDAS: pd.DataFrame({"it": [pd.NaT]})},
        becomes="NULL",
    ),
    # Other kinds.
    _case("TRUE", "STRING", "'true'", value=True, json="true", csv="true", spark="TRUE"),
    _case("TRUE", "BIGINT", REFUSED, value=True, json="true", csv="true", spark="TRUE"),
    _case("bytes `C3 A9`", "STRING", "'é'", value=b"\xc3\xa9", spark="X'c3a9'"),
    _case("bytes that are no UTF-8", "STRING", REFUSED, value=b"\xff", spark="X'ff'"),
    _case("a date", "DATE", "2026-01-31", value=_WALL.date(), spark="DATE '2026-01-31'"),
    _case("a date", "TIMESTAMP", REFUSED, value=_WALL.date(), spark="DATE '2026-01-31'"),
    _case("a date", "TIMESTAMP_NTZ", "2026-01-31T00:00:00", value=_WALL.date(), spark="DATE '2026-01-31'"),
    _case("a date", "STRING", "'2026-01-31'", value=_WALL.date(), spark="DATE '2026-01-31'"),
    _case("a time with a zone", "TIMESTAMP", "2026-01-31T08:00:00Z", value=_EIGHT, spark="TIMESTAMP '2026-01-31 08:00:00Z'"),
    _case("a time without a zone", "TIMESTAMP", REFUSED, value=_WALL, spark="TIMESTAMP_NTZ '2026-01-31 08:00:00'"),
    _case("a time with a zone", "TIMESTAMP_NTZ", REFUSED, value=_EIGHT, spark="TIMESTAMP '2026-01-31 08:00:00Z'"),
    _case(
        "a time without a zone",
        "TIMESTAMP_NTZ",
        "2026-01-31T08:00:00",
        value=_WALL,
        spark="TIMESTAMP_NTZ '2026-01-31 08:00:00'",
    ),
    _case("a time of day 8:00", "DATE", REFUSED, value=_WALL, spark="TIMESTAMP_NTZ '2026-01-31 08:00:00'"),
    _case("a time with a zone", "BIGINT", REFUSED, value=_EIGHT, spark="TIMESTAMP '2026-01-31 08:00:00Z'"),
    _case("a time with a zone", "STRING", REFUSED, value=_EIGHT, spark="TIMESTAMP '2026-01-31 08:00:00Z'"),
    _case("a time with nanoseconds", "TIMESTAMP", REFUSED, value=_FINE, arrow=pa.array([1], pa.timestamp("ns", "UTC"))),
    # Inside of arrays, structs and maps the same holds.
    _case(
        "`[1, NaN, null]`",
        "ARRAY<DOUBLE>",
        "[1.0, NaN, NULL]",
        value=[1.0, float("nan"), None],
        spark="array(1D, DOUBLE('NaN'), NULL)",
    ),
    _case("`[7.5]`", "ARRAY<INT>", REFUSED, value=[7.5], json="[7.5]", csv="[7.5]", spark="array(7.5D)"),
    _case("`{x: 7.0}`", "STRUCT<x: INT, y: INT>", "{x: 7, y: NULL}", value={"x": 7.0}, json='{"x": 7.0}', spark="struct(7D AS x)"),
    _case("`{X: 7}`", "STRUCT<x: INT>", "{x: 7}", value={"X": 7}, json='{"X": 7}', spark="struct(7 AS X)"),
    _case(
        "`{x: 7, z: 1}`", "STRUCT<x: INT>", REFUSED, value={"x": 7, "z": 1}, json='{"x": 7, "z": 1}', spark="struct(7 AS x, 1 AS z)"
    ),
    # Names of columns.
    Case(about="column `IT`", declared="STRING", given=_columns({"IT": "a"}, "'a' AS IT"), becomes="'a'"),
    Case(
        about="columns `it` and `IT`",
        declared="STRING",
        given=_columns({"it": "a", "IT": "b"}, "'a' AS it", "'b' AS IT"),
        becomes="COLUMN_TWICE",
    ),
    Case(about="column `its`", declared="STRING", given=_columns({"its": "a"}, "'a' AS its"), becomes="UNKNOWN_COLUMN"),
    # Message type json.
    Case(about='the text `{"a": 1.0}`', declared=None, given=_body('{"a": 1.0}'), becomes="'{\"a\": 1.0}'"),
    Case(about='the text `{"a": `', declared=None, given=_body('{"a": '), becomes=_UNREADABLE),
    Case(about='the text `{"a": NaN}`', declared=None, given=_body('{"a": NaN}'), becomes=_UNREADABLE),
    Case(about="the dict `{'a': 1.0}`", declared=None, given={DICTS: [{"a": 1.0}]}, becomes="'{\"a\":1.0}'"),
    Case(about="the dict `{'a': NaN}`", declared=None, given={DICTS: [{"a": float("nan")}]}, becomes=_UNREADABLE),
    Case(about="the dict `{'value': None}`", declared=None, given={DICTS: [{"value": None}]}, becomes="NULL"),
    Case(about="the dict `{'value': {'a': 1}}`", declared=None, given={DICTS: [{"value": {"a": 1}}]}, becomes="'{\"a\":1}'"),
    Case(about="a text and a dict", declared=None, given={DICTS: ["1", {"a": 1}]}, becomes=_UNREADABLE),
    Case(about="`{'a': 1}` and `{'value': 1}`", declared=None, given={DICTS: [{"a": 1}, {"value": 1}]}, becomes=_UNREADABLE),
)


def to_markdown() -> str:
    """Return the table of the reference."""
    rows = [(case.about, _type(case.declared), *(_shown(case.cell(way)) for way in WAYS)) for case in CASES]
    return "".join(f"| {' | '.join(row)} |\n" for row in [("Value", "Declared", *WAYS), ("---",) * (len(WAYS) + 2), *rows])


def _type(declared: str | None) -> str:
    return "type `json`" if declared is None else declared.replace("<", "&lt;")


def _shown(cell: str) -> str:
    return cell if cell in (REFUSED, UNSAYABLE) else f"`{cell}`"
