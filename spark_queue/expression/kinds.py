"""The types that expressions reckon with: Spark's, and how DuckDB holds them."""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa

#: Most digits of a decimal, in Spark as in DuckDB.
DIGITS_MAX = 38


class ValueKind(NamedTuple):
    """A Spark type."""

    name: str
    #: Of decimals: all digits, and those after the point.
    precision: int = 0
    scale: int = 0
    #: Fields of a struct by name; the element of an array, key and value of a map under names of their own.
    parts: tuple[tuple[str, ValueKind], ...] = ()

    def __str__(self) -> str:
        return f"DECIMAL({self.precision},{self.scale})" if self.name == "DECIMAL" else self.name

    @property
    def is_integer(self) -> bool:
        """Whether it holds whole numbers of fixed size."""
        return self.name in INTEGER_DIGITS

    @property
    def is_fraction(self) -> bool:
        """Whether it is binary floating point."""
        return self.name in ("FLOAT", "DOUBLE")

    @property
    def is_number(self) -> bool:
        """Whether one can reckon with it."""
        return self.is_integer or self.is_fraction or self.name == "DECIMAL"

    @property
    def is_nested(self) -> bool:
        """Whether it has parts."""
        return self.name in ("ARRAY", "MAP", "STRUCT")

    @property
    def duckdb(self) -> str:
        """The type that DuckDB holds it as. Instants are UTC without a zone there, since Spark's session zone is UTC here."""
        return _DUCKDB.get(self.name, str(self))


#: Digits that a whole number of each size may need, narrow to wide.
INTEGER_DIGITS = {"TINYINT": 3, "SMALLINT": 5, "INT": 10, "BIGINT": 20}

_DUCKDB = {"STRING": "VARCHAR", "BINARY": "BLOB", "INT": "INTEGER", "TIMESTAMP_NTZ": "TIMESTAMP", "VOID": "INTEGER"}

BOOLEAN = ValueKind("BOOLEAN")
INT = ValueKind("INT")
BIGINT = ValueKind("BIGINT")
DOUBLE = ValueKind("DOUBLE")
STRING = ValueKind("STRING")
DATE = ValueKind("DATE")
TIMESTAMP = ValueKind("TIMESTAMP")
#: The type of a bare NULL.
VOID = ValueKind("VOID")

_SIMPLE: dict[pa.DataType, ValueKind] = {
    pa.bool_(): BOOLEAN,
    pa.int8(): ValueKind("TINYINT"),
    pa.int16(): ValueKind("SMALLINT"),
    pa.int32(): INT,
    pa.int64(): BIGINT,
    pa.float32(): ValueKind("FLOAT"),
    pa.float64(): DOUBLE,
    pa.string(): STRING,
    pa.binary(): ValueKind("BINARY"),
    pa.date32(): DATE,
    pa.timestamp("us"): ValueKind("TIMESTAMP_NTZ"),
    pa.timestamp("us", tz="UTC"): TIMESTAMP,
}


def decimal(precision: int, scale: int) -> ValueKind:
    """Make a decimal type."""
    return ValueKind("DECIMAL", precision, scale)


def kind_of(found: Any) -> ValueKind:
    """Return the type of an Arrow column of a message."""
    if pa.types.is_decimal(found):
        return decimal(found.precision, found.scale)
    if pa.types.is_struct(found):
        return ValueKind("STRUCT", parts=tuple((field.name, kind_of(field.type)) for field in found))
    if pa.types.is_map(found):
        return ValueKind("MAP", parts=(("key", kind_of(found.key_type)), ("value", kind_of(found.item_type))))
    if pa.types.is_list(found):
        return ValueKind("ARRAY", parts=(("element", kind_of(found.value_type)),))
    return _SIMPLE[found]


def common(one: ValueKind, other: ValueKind) -> ValueKind | None:
    """Return the type in which Spark compares two values; None where it would convert texts, or cannot."""
    if other in (one, VOID):
        return one
    if one == VOID:
        return other
    if {one.name, other.name} == {"DATE", "TIMESTAMP"}:
        return TIMESTAMP
    if not (one.is_number and other.is_number):
        return None
    if one.is_integer and other.is_integer:
        return max(one, other, key=lambda kind: INTEGER_DIGITS[kind.name])
    if one.is_fraction or other.is_fraction:
        narrow = {"FLOAT", "TINYINT", "SMALLINT"}
        return ValueKind("FLOAT") if {one.name, other.name} <= narrow else DOUBLE
    one, other = as_decimal(one), as_decimal(other)
    scale = max(one.scale, other.scale)
    precision = max(one.precision - one.scale, other.precision - other.scale) + scale
    return decimal(precision, scale) if precision <= DIGITS_MAX else None


def as_decimal(kind: ValueKind) -> ValueKind:
    """Return the decimal type that holds a whole number or decimal."""
    return decimal(INTEGER_DIGITS[kind.name], 0) if kind.is_integer else kind
