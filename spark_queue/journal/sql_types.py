"""Names of types as users declare them: Spark DDL for the types of Arrow, in errors and beside the parser of declarations.

Runs on executors too, so it imports pyarrow and nothing heavier.
"""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
from pyarrow import types

INSTANT = pa.timestamp("us", tz="UTC")

#: The types without parts, by each of their names; the first one of a type is its own.
ATOMIC: dict[str, pa.DataType] = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "BYTE": pa.int8(),
    "SMALLINT": pa.int16(),
    "SHORT": pa.int16(),
    "INT": pa.int32(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "LONG": pa.int64(),
    "FLOAT": pa.float32(),
    "REAL": pa.float32(),
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMP": INSTANT,
    "TIMESTAMP_LTZ": INSTANT,
    "TIMESTAMP_NTZ": pa.timestamp("us"),
}

_NAMES = {kind: name for name, kind in reversed(ATOMIC.items())}

#: An Arrow error that ends with the type that was wanted.
_ENDING = re.compile(r"(?:(?<= to )|(?<= type ))[a-z]\w*(\[[^\]]*\])?(?=\.?$)")


def sql_type(kind: Any) -> str:
    """Return the name of a type in Spark DDL; Arrow's own where a column cannot be declared as such."""
    if kind in _NAMES:
        return _NAMES[kind]
    if types.is_dictionary(kind):
        return sql_type(kind.value_type)
    if types.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    if types.is_timestamp(kind):
        # In another unit, or of another zone, it is an instant or a reading all the same.
        return "TIMESTAMP_NTZ" if kind.tz is None else "TIMESTAMP"
    if types.is_struct(kind):
        fields = (kind.field(number) for number in range(kind.num_fields))
        return f"STRUCT<{', '.join(f'{field.name}: {sql_type(field.type)}' for field in fields)}>"
    if types.is_map(kind):
        return f"MAP<{sql_type(kind.key_type)}, {sql_type(kind.item_type)}>"
    if any(is_list(kind) for is_list in (types.is_list, types.is_large_list, types.is_fixed_size_list, types.is_list_view)):
        return f"ARRAY<{sql_type(kind.value_type)}>"
    return _ALIKE.get(str(kind), str(kind))


#: Arrow's names of types whose values a type of another name has as well.
_ALIKE = {
    "large_string": "STRING", "string_view": "STRING", "large_binary": "BINARY", "binary_view": "BINARY", "date64[ms]": "DATE",
    "null": "NULL",
}  # fmt: skip

_BY_TEXT = {str(kind): name for kind, name in _NAMES.items()}


def with_sql_type(reason: str) -> str:
    """Return an error of Arrow with the name in Spark DDL of the type at its end."""
    return _ENDING.sub(lambda found: _BY_TEXT.get(found[0], found[0]), reason)
