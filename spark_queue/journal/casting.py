"""Casting where nothing is lost, at any depth: one rule for every way in (docs/reference/values.md).

Pairs of types are allowed one by one (`kinds`), and each value is compared with what it became (`conversion`), since Arrow refuses
little: numbers lose their digits, times their hours, instants their meaning.

Runs on executors too, so it imports pyarrow and nothing heavier.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from spark_queue.journal.conversion import TypeKind, check, convert, kind_of, refusal
from spark_queue.journal.nested import Column, LossError, fields_of, first_row, list_array, map_array, resolve_fields, struct_array


def cast(column: Column, wanted: Any, *, timezone: str | None = None) -> Column:
    """Cast a column; values stay what they are, or it is refused.

    Parameters
    ----------
    column
        Of any type.
    wanted
        A type that Spark DDL can declare.
    timezone
        Zone of times that carry no offset; None refuses them where an instant is wanted.

    Raises
    ------
    LossError
        Of the first row whose value would not be what it was.
    """
    column = _unwrapped(column)
    if column.null_count == len(column):
        nulls: Column = pa.nulls(len(column), wanted)
        return nulls
    if types.is_struct(wanted):
        return _cast_struct(column, wanted, timezone)
    if types.is_map(wanted):
        return _cast_map(column, wanted, timezone)
    if types.is_list(wanted):
        return _cast_list(column, wanted, timezone)
    reason = refusal(column.type, wanted, timezone=timezone)
    if reason is not None:
        raise _of_first(column, reason)
    check(column)
    return column if column.type == wanted else convert(column, wanted, timezone)


def _of_first(column: Any, reason: str) -> LossError:
    return LossError(first_row(column.is_valid()) or 0, str(column.type), reason)


def _unwrapped(column: Any) -> Column:
    """Return the values of a column that stores each of them once, or whose type is a text by another name."""
    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if isinstance(column.type, pa.BaseExtensionType) and kind_of(column.type.storage_type) is TypeKind.TEXT:
        column = column.storage
    unwrapped: Column = column
    return unwrapped


def _cast_struct(column: Any, wanted: Any, timezone: str | None) -> Column:
    if not types.is_struct(column.type):
        raise _of_first(column, "the message type declares fields here.")
    parts = dict(zip([field.name for field in fields_of(column.type)], column.flatten(), strict=True))
    names = resolve_fields(parts, wanted, row=first_row(column.is_valid()) or 0, found=str(column.type))
    members = {names[name]: cast(part, wanted.field(names[name]).type, timezone=timezone) for name, part in parts.items()}
    return struct_array(members, wanted, nulls=column.is_null())


def _cast_list(column: Any, wanted: Any, timezone: str | None) -> Column:
    if not _is_list(column.type):
        raise _of_first(column, "the message type declares an array here.")
    lengths = pc.list_value_length(column).to_numpy(zero_copy_only=False)
    return list_array(lengths, wanted, lambda: cast(column.flatten(), wanted.value_type, timezone=timezone))


def _cast_map(column: Any, wanted: Any, timezone: str | None) -> Column:
    if not types.is_map(column.type):
        raise _of_first(column, "the message type declares a map here.")
    pairs = column.cast(pa.list_(pa.struct([column.type.key_field, column.type.item_field])))
    keys, items = pairs.flatten().flatten()
    lengths = pc.list_value_length(pairs).to_numpy(zero_copy_only=False)
    return map_array(
        lengths,
        lambda: cast(keys, wanted.key_type, timezone=timezone),
        lambda: cast(items, wanted.item_type, timezone=timezone),
    )


def _is_list(kind: pa.DataType) -> bool:
    return any(is_list(kind) for is_list in (types.is_list, types.is_large_list, types.is_fixed_size_list, types.is_list_view))
