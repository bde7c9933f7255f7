"""Names of columns, as Spark has them: matched in any case, kept in the spelling with which the column was made.

All comparisons of names of columns are here: rows that are published, columns that are asked for, expressions, and what is
said of rows by hand or by a batch function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from spark_queue import errors
from spark_queue.errors import CallerError

#: Columns that stand beside the message type's own in a delivered row (DESIGN 4); no others are reserved.
RESERVED_COLUMNS = frozenset(
    "bookmark topic publisher sequence published_at expires_at delivery_count cancel_count lease leased_until is_barrier".split()
)

#: Those that only an instance adds: in any other journal messages may have columns of these names.
INSTANCE_COLUMNS = frozenset({"origin", "origin_bookmark"})

#: Names that an error lists at most; nobody reads three thousand.
_LISTED_MAX = 40


class ColumnNames:
    """The columns of something.

    A name in `renamed` (`rename` of a message type) means the column that is given there, and no other.
    """

    def __init__(self, names: Iterable[str], renamed: Mapping[str, str] = MappingProxyType({})) -> None:
        self._renamed = {name.lower(): column for name, column in renamed.items()}
        self._names = {name.lower(): name for name in names if name.lower() not in self._renamed}

    def __str__(self) -> str:
        names = list(self._names.values())
        rest = f" and {len(names) - _LISTED_MAX:,} more" if len(names) > _LISTED_MAX else ""
        return ", ".join(names[:_LISTED_MAX]) + rest

    def add(self, name: str) -> bool:
        """Add a column; returns whether there was none of that name."""
        if self.find(name) is not None:
            return False
        self._names[name.lower()] = name
        return True

    def find(self, name: str) -> str | None:
        """Return the column that a name means, in its own spelling; None where there is none."""
        return self._names.get(self._renamed.get(name.lower(), name).lower())

    def nearest(self, name: str) -> str:
        """Return the sentence that names the nearest column, or an empty text."""
        return errors.nearest(name, [*self._names.values(), *self._renamed])

    def resolve(self, names: Iterable[str], *, where: str, nearest: Callable[[str], str] | None = None) -> list[str]:
        """Return the column that each name means, in its own spelling; `nearest` makes a hint as the method of that name does."""
        meant: dict[str, str] = {}
        for name in names:
            column = self.find(name)
            if column is None:
                hint = (nearest or self.nearest)(name)
                raise CallerError("UNKNOWN_COLUMN", where=where, column=name, nearest=hint, columns=str(self))
            if column in meant:
                raise CallerError("COLUMN_TWICE", where=where, column=column, first=meant[column], second=name)
            meant[column] = name
        return list(meant)
