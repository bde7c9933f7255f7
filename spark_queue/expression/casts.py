"""Casts with the results of Spark's ANSI mode: NULL only for NULL, a failure where the value does not fit."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime

from sqlglot import exp

from spark_queue.expression.steps import (
    BIGINT,
    BOOLEAN,
    DATE,
    DIGITS_MAX,
    DOUBLE,
    STRING,
    TIMESTAMP,
    Steps,
    Value,
    ValueKind,
    common,
    decimal,
    invalid,
    unsupported,
)

#: Characters that Spark strips from the ends of a text before it reads a number: white space and control characters.
_BLANK = " || ".join(f"chr({code})" for code in (*range(33), 127))
_BLANK_END = r"'^[\x00-\x20\x7f]|[\x00-\x20\x7f]$'"
_INTEGER = r"'[+-]?[0-9]+'"
_NUMBER = r"'[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?'"
_TARGETS = {
    "BOOLEAN": BOOLEAN, "TINYINT": ValueKind("TINYINT"), "SMALLINT": ValueKind("SMALLINT"), "INT": ValueKind("INT"),
    "BIGINT": BIGINT, "FLOAT": ValueKind("FLOAT"), "DOUBLE": DOUBLE, "TEXT": STRING, "VARCHAR": STRING, "DATE": DATE,
    "TIMESTAMPTZ": TIMESTAMP,
}  # fmt: skip


def target(node: exp.Cast) -> ValueKind:
    """Return the type that a cast names."""
    to = node.to
    if to.this == exp.DType.DECIMAL:
        written = [part.name for part in to.expressions]
        if not all(re.fullmatch("[0-9]{1,4}", each) for each in written):
            raise invalid(node, f"DECIMAL({','.join(written)[:40]}) is no type.", "Write two whole numbers, such as DECIMAL(10,2).")
        numbers = [int(each) for each in written]
        precision, scale = (*numbers, 10, 0)[:2] if len(numbers) != 1 else (numbers[0], 0)
        if not 1 <= precision <= DIGITS_MAX or not 0 <= scale <= precision:
            raise invalid(node, f"DECIMAL({precision},{scale}) is impossible.", f"At most {DIGITS_MAX} digits.")
        return decimal(precision, scale)
    if to.this.name not in _TARGETS or to.expressions:
        raise unsupported(node, f"a cast to {to.sql('spark')} is not accepted.", f"Accepted: {', '.join(_NAMES)}.")
    return _TARGETS[to.this.name]


_NAMES = (*dict.fromkeys(str(kind) for kind in _TARGETS.values()), "DECIMAL(p,s)")


def constant(node: exp.Cast, text: str, kind: ValueKind) -> Value | None:
    """Return a date or timestamp that is written as one; None for other types."""
    if kind not in (DATE, TIMESTAMP):
        return None
    try:
        if kind == DATE:
            return Value(kind=DATE, sql=f"DATE '{date.fromisoformat(text).isoformat()}'", literal=date.fromisoformat(text))
        time = datetime.fromisoformat(text)
        # Without an offset it is UTC, the session time zone of these expressions.
        time = time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except (ValueError, OverflowError):
        raise invalid(node, f"'{text}' is no {kind}.", "Write '2024-01-31', or '2024-01-31 23:59:59'.") from None
    return Value(kind=TIMESTAMP, sql=f"TIMESTAMP '{time.replace(tzinfo=None).isoformat(' ')}'", literal=time)


def widen(steps: Steps, value: Value, kind: ValueKind) -> Value:
    """Convert to a type that Spark converts to by itself, which never fails."""
    if value.kind == kind:
        return value
    sql = _DECIMAL_TO_DOUBLE if kind == DOUBLE and value.kind.name == "DECIMAL" else f"CAST({{0}} AS {kind.duckdb})"
    return Value(kind=kind, sql=steps.add(sql, value.sql), fails=value.fails)


def together(steps: Steps, node: exp.Expression, *values: Value) -> tuple[Value, ...]:
    """Convert values to the type that they have in common."""
    kind: ValueKind | None = values[0].kind
    for value in values[1:]:
        kind = None if kind is None else common(kind, value.kind)
    if kind is None or kind.is_nested:
        names = ", ".join(str(value.kind) for value in values)
        raise unsupported(node, f"it combines {names}, which need a conversion.", "Write the CAST that you mean.")
    return tuple(widen(steps, value, kind) for value in values)


def cast(steps: Steps, node: exp.Expression | None, value: Value, kind: ValueKind) -> Value:
    """Cast as `CAST` does."""
    if value.kind in (kind, STRING) and kind == STRING:
        return value
    sql = _template(value.kind, kind)
    if sql is None:
        raise unsupported(node, f"a cast from {value.kind} to {kind} may differ from Spark's.", _ADVICE)
    if value.kind == STRING:
        # A step of its own: most texts have no blanks at their ends, and to strip them is slow.
        value = steps.apply(
            STRING, f"CASE WHEN regexp_matches({{0}}, {_BLANK_END}) THEN trim({{0}}, {_BLANK}) ELSE {{0}} END", value
        )
    return steps.apply(kind, sql, value, may_fail=True)


_ADVICE = "Compare the value as it is, or use the functions of its type; `sparkq options` lists them."


def _template(found: ValueKind, wanted: ValueKind) -> str | None:
    """Return the SQL of a cast, NULL where it fails; None where it is not accepted."""
    if found == STRING:
        return _from_text(wanted)
    if found == wanted or found.name == "VOID":
        return f"CAST({{0}} AS {wanted.duckdb})"
    if wanted == STRING:
        return "CAST({0} AS VARCHAR)" if found.is_integer or found.name in ("DECIMAL", "BOOLEAN") else None
    if found == BOOLEAN:
        return f"CAST({{0}} AS {wanted.duckdb})" if wanted.is_integer or wanted.is_fraction else None
    if wanted == BOOLEAN:
        return "{0} <> 0" if found.is_number else None
    if (found, wanted) in ((DATE, TIMESTAMP), (TIMESTAMP, DATE)):
        return f"CAST({{0}} AS {wanted.duckdb})"
    if (found, wanted) == (TIMESTAMP, BIGINT):
        return _EPOCH
    return _between_numbers(found, wanted) if found.is_number and wanted.is_number else None


#: By its text: the nearest double of all, as in Java; DuckDB divides instead.
_DECIMAL_TO_DOUBLE = "CAST(CAST({0} AS VARCHAR) AS DOUBLE)"

#: Whole seconds, rounded down: `//` cuts off toward zero.
_EPOCH = "(epoch_us({0}) - ((epoch_us({0}) % 1000000) + 1000000) % 1000000) // 1000000"


def _between_numbers(found: ValueKind, wanted: ValueKind) -> str | None:
    if wanted.is_integer:
        if not found.is_fraction:
            return f"TRY_CAST({'trunc({0})' if found.scale else '{0}'} AS {wanted.duckdb})"
        cut = f"TRY_CAST(trunc({{0}}) AS {wanted.duckdb})"
        # 2^63 as a double is the nearest to the largest BIGINT, and is that to Spark.
        return f"CASE WHEN {{0}} = 9223372036854775808::DOUBLE THEN 9223372036854775807 ELSE {cut} END" if wanted == BIGINT else cut
    if wanted.name == "DECIMAL":
        return None if found.is_fraction else f"TRY_CAST({{0}} AS {wanted.duckdb})"
    if found.name == "DECIMAL":
        return _DECIMAL_TO_DOUBLE if wanted == DOUBLE else None
    return f"CAST({{0}} AS {wanted.duckdb})"


def _from_text(wanted: ValueKind) -> str | None:
    """Return the SQL that reads a text without blanks at its ends."""
    if wanted == BOOLEAN:
        return (
            "CASE WHEN lower({0}) IN ('t', 'true', 'y', 'yes', '1') THEN true "
            "WHEN lower({0}) IN ('f', 'false', 'n', 'no', '0') THEN false END"
        )
    if wanted == DATE:
        return _DATE_OF_TEXT
    if not (wanted.is_integer or wanted.name == "DECIMAL" or wanted == DOUBLE):
        return None
    form = _INTEGER if wanted.is_integer else _NUMBER
    besides = _JAVA_DOUBLE if wanted == DOUBLE else ""
    return f"CASE WHEN regexp_full_match({{0}}, {form}) THEN TRY_CAST({{0}} AS {wanted.duckdb}) {besides} END"


#: Further texts that Java reads as a double: a letter for the type, and values that are no numbers.
_JAVA_DOUBLE = (
    f"WHEN regexp_full_match({{0}}, {_NUMBER[:-1]}[fFdD]') THEN TRY_CAST(rtrim({{0}}, 'fFdD') AS DOUBLE) "
    "WHEN lower({0}) IN ('nan', 'inf', '+inf', '-inf', 'infinity', '+infinity', '-infinity') "
    "OR {0} IN ('+NaN', '-NaN') THEN TRY_CAST(ltrim({0}, '+') AS DOUBLE)"
)

#: Spark reads year, year-month and year-month-day, the last with anything after a blank or T.
_DATE_OF_TEXT = (
    "CASE WHEN regexp_full_match({0}, '[0-9]{{4}}(-[0-9]{{1,2}}(-[0-9]{{1,2}}([ T](.|\\n)*)?)?)?') THEN TRY(make_date("
    "CAST(left({0}, 4) AS INTEGER), "
    "CAST(coalesce(nullif(regexp_extract({0}, '^[0-9]{{4}}-([0-9]+)', 1), ''), '1') AS INTEGER), "
    "CAST(coalesce(nullif(regexp_extract({0}, '^[0-9]{{4}}-[0-9]+-([0-9]+)', 1), ''), '1') AS INTEGER))) END"
)

#: Most digits of a decimal that DuckDB holds in 64 bits.
NARROW_DIGITS = 18
