"""Casting where nothing is lost, at any depth: one rule for every way in (docs/reference/values.md)."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from spark_queue.journal.conversion import (
    Column,
    LossError,
    TypeKind,
    check,
    convert,
    fields_of,
    first_row,
    kind_of,
    list_array,
    map_array,
    refusal,
    resolve_fields,
    since_epoch,
    struct_array,
)
from spark_queue.journal.sql_types import sql_type


def cast(column: Column, wanted: Any, *, timezone: str | None = None, epoch: str | None = None) -> Column:
    """Cast a column; values stay the same, or it is refused.

    Where an instant is wanted, `timezone` is that of times without an offset, and `epoch`, one of `EPOCHS`, the unit of numbers;
    without them such values are refused.
    """
    column = _unwrapped(column)
    if column.null_count == len(column):
        nulls: Column = pa.nulls(len(column), wanted)
        return nulls
    if types.is_struct(wanted):
        return _cast_struct(column, wanted, timezone, epoch)
    if types.is_map(wanted):
        return _cast_map(column, wanted, timezone, epoch)
    if types.is_list(wanted):
        return _cast_list(column, wanted, timezone, epoch)
    if epoch is not None and kind_of(wanted) is TypeKind.INSTANT:
        column = since_epoch(column, epoch, others=lambda rest: cast(rest, wanted, timezone=timezone))
    reason = refusal(column.type, wanted, timezone=timezone)
    if reason is not None:
        raise _of_first(column, reason)
    check(column)
    return column if column.type == wanted else convert(column, wanted, timezone)


def _of_first(column: Any, reason: str) -> LossError:
    return LossError(first_row(column.is_valid()) or 0, sql_type(column.type), reason)


def _unwrapped(column: Any) -> Column:
    """Return the values of a column that stores each of them once, by reference, or whose type is a text by another name."""
    if types.is_dictionary(column.type):
        check(column)
        column = column.dictionary_decode()
    if types.is_string_view(column.type):
        # Arrow can do little with views.
        column = column.cast(pa.large_string())
    if isinstance(column.type, pa.BaseExtensionType) and kind_of(column.type.storage_type) is TypeKind.TEXT:
        column = column.storage
    unwrapped: Column = column
    return unwrapped


def _cast_struct(column: Any, wanted: Any, timezone: str | None, epoch: str | None) -> Column:
    if not types.is_struct(column.type):
        raise _of_first(column, "the message type declares fields here.")
    given = [field.name for field in fields_of(column.type)]
    names = resolve_fields(given, wanted, row=first_row(column.is_valid()) or 0, found=sql_type(column.type))
    parts = zip(given, column.flatten(), strict=True)
    members = {names[name]: cast(part, wanted.field(names[name]).type, timezone=timezone, epoch=epoch) for name, part in parts}
    return struct_array(members, wanted, nulls=column.is_null())


def _cast_list(column: Any, wanted: Any, timezone: str | None, epoch: str | None) -> Column:
    if not _is_list(column.type):
        raise _of_first(column, "the message type declares an array here.")
    lengths = pc.list_value_length(column).to_numpy(zero_copy_only=False)
    return list_array(lengths, wanted, lambda: cast(column.flatten(), wanted.value_type, timezone=timezone, epoch=epoch))


def _cast_map(column: Any, wanted: Any, timezone: str | None, epoch: str | None) -> Column:
    if not types.is_map(column.type):
        raise _of_first(column, "the message type declares a map here.")
    pairs = column.cast(pa.list_(pa.struct([column.type.key_field, column.type.item_field])))
    keys, items = pairs.flatten().flatten()
    lengths = pc.list_value_length(pairs).to_numpy(zero_copy_only=False)
    return map_array(
        lengths,
        lambda: cast(keys, wanted.key_type, timezone=timezone, epoch=epoch),
        lambda: cast(items, wanted.item_type, timezone=timezone, epoch=epoch),
    )


def _is_list(kind: pa.DataType) -> bool:
    return any(is_list(kind) for is_list in (types.is_list, types.is_large_list, types.is_fixed_size_list, types.is_list_view))
