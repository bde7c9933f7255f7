"""Structs, arrays and maps of their parts, and what names the row when a part cannot be made.

Runs on executors too, so it imports pyarrow and nothing heavier.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_queue.core.definitions.column_names import ColumnNames

Column: TypeAlias = "pa.Array[Any]"


class LossError(ValueError):
    """A value cannot be told in another type.

    Parameters
    ----------
    row : int
        The first such row.
    found : str
        What it is.
    reason : str
        What would be lost, as a sentence.
    """

    def __init__(self, row: int, found: str, reason: str) -> None:
        super().__init__(reason)
        self.row = row
        self.found = found
        self.reason = reason


def resolve_fields(names: Iterable[Any], wanted: Any, *, row: int, found: str) -> dict[str, str]:
    """Return the declared field of each name.

    Raises
    ------
    LossError
        For a name that no field has, and for two names of one field.
    """
    declared = ColumnNames(field.name for field in fields_of(wanted))
    resolved: dict[str, str] = {}
    for name in names:
        field = declared.find(str(name))
        if field is None:
            raise LossError(row, found, f"the message type has no field '{name}'.")
        if field in resolved.values():
            raise LossError(row, found, f"field '{field}' is there twice; names are told in any case.")
        resolved[name] = field
    return resolved


def struct_array(members: dict[str, Column], wanted: Any, *, nulls: Any) -> Column:
    """Make structs of their fields; those that are left out are NULL."""
    columns: list[Column] = []
    for field in fields_of(wanted):
        column = members.get(field.name)
        columns.append(pa.nulls(len(nulls), field.type) if column is None else column)
        if not field.nullable:
            row = first_row(pc.and_not(columns[-1].is_null(), nulls))
            if row is not None:
                raise LossError(row, f"NULL in field '{field.name}'", "there is no value to store.")
    made: Column = pa.StructArray.from_arrays(columns, fields=list(fields_of(wanted)), mask=nulls)
    return made


def list_array(lengths: Any, wanted: Any, elements: Callable[[], Column]) -> Column:
    """Make arrays of their lengths, NaN for NULL, and of all of their elements."""
    with_place = _OfRows(lengths)
    made: Column = pa.ListArray.from_arrays(with_place.offsets(), with_place.made(elements), type=wanted)
    return made


def map_array(lengths: Any, keys: Callable[[], Column], items: Callable[[], Column]) -> Column:
    """Make maps of their lengths, NaN for NULL, and of all of their keys and items."""
    with_place = _OfRows(lengths)
    made: Column = pa.MapArray.from_arrays(with_place.offsets(), with_place.made(keys), with_place.made(items))
    return made


class _OfRows:
    """Which elements belong to which row."""

    def __init__(self, lengths: Any) -> None:
        given: NDArray[np.float64] = np.asarray(lengths, dtype=np.float64)
        self._nulls = np.isnan(given)
        self._ends = np.cumsum(np.where(self._nulls, 0, given)).astype(np.int32)

    def offsets(self) -> Any:
        offsets = np.concatenate([np.zeros(1, np.int32), self._ends])
        return pa.array(offsets, mask=np.append(self._nulls, False))

    def made(self, elements: Callable[[], Column]) -> Column:
        """Make elements; what is lost in one is lost in its row."""
        try:
            return elements()
        except LossError as lost:
            row = int(np.searchsorted(self._ends, lost.row, side="right"))
            raise LossError(row, lost.found, lost.reason) from None


def first_row(mask: Any) -> int | None:
    """Return the first row where something holds; None where it never does."""
    row = int(pc.index(mask, pa.scalar(value=True)).as_py())
    return None if row < 0 else row


def fields_of(kind: Any) -> Iterator[Any]:
    """Return the fields of a struct."""
    return (kind.field(index) for index in range(kind.num_fields))
