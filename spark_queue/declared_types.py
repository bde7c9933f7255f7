"""A column of a file as its message type declares it: fields of structs by their names, wherever these stand (R142, R150).

This module imports pyarrow only, because every Python worker of a cluster loads it before its first row.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa


def declared_column(rows: pa.Table, name: str, kind: Any) -> Any:
    """Return a column of rows as another type; NULL in each of them where they do not have it."""
    return as_declared(rows.column(name), kind) if rows.schema.get_all_field_indices(name) else pa.nulls(len(rows), kind)


def as_declared(column: Any, kind: Any) -> Any:
    """Return a column as another type: structs with the fields of that type, in its order, NULL where the column has none.

    pyarrow alone casts no key of a map to other fields, and not each version that is supported finds fields in another order.
    """
    if column.type == kind:
        return column
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([as_declared(chunk, kind) for chunk in column.chunks], kind)
    if pa.types.is_struct(kind) and pa.types.is_struct(column.type):
        return _struct(column, kind)
    if pa.types.is_map(kind) and pa.types.is_map(column.type):
        keys, items = as_declared(column.keys, kind.key_type), as_declared(column.items, kind.item_type)
        # This counts them, too: older versions of pyarrow take keys for NULL that nobody has counted.
        assert keys.null_count == 0, "no map has a key that is NULL"
        return _around(column, kind, pa.StructArray.from_arrays([keys, items], fields=[kind.key_field, kind.item_field]))
    if pa.types.is_list(kind) and pa.types.is_list(column.type):
        return _around(column, kind, as_declared(column.values, kind.value_type))
    if pa.types.is_list(kind) and hasattr(column.type, "value_field"):
        # Some writers keep lists in another layout.
        return as_declared(column.cast(pa.list_(column.type.value_field)), kind)
    return column.cast(kind)


def _struct(column: Any, kind: Any) -> Any:
    places = [(field, column.type.get_field_index(field.name)) for field in kind]
    parts = [
        pa.nulls(len(column), field.type) if place < 0 else as_declared(column.field(place), field.type) for field, place in places
    ]
    return pa.StructArray.from_arrays(parts, fields=list(kind), mask=column.is_null())


def _around(column: Any, kind: pa.DataType, inner: pa.Array[Any]) -> Any:
    """Return lists or maps with other elements at the same places; a slice of them has all elements of the whole."""
    validity, offsets = column.buffers()[:2]
    return pa.Array.from_buffers(kind, len(column), [validity, offsets], column.null_count, column.offset, [inner])
