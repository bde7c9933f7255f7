"""Columns: Spark DDL to the Arrow and Delta schemas of a message table, and the envelope of every stored message.

The DDL is the subset that a Parquet file and a Delta table can hold: all atomic types, ARRAY, MAP and STRUCT, with NOT NULL
and COMMENT. Types keep Spark's meaning: TIMESTAMP is an instant (microseconds, UTC), TIMESTAMP_NTZ a wall-clock reading.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

import pyarrow as pa

from spark_queue.core.definitions.column_names import INSTANCE_COLUMNS, RESERVED_COLUMNS, ColumnNames
from spark_queue.errors import ConfigError
from spark_queue.journal.sql_types import ATOMIC, INSTANT, sql_type

Field: TypeAlias = "pa.Field[Any]"


def schema_of(*fields: Field) -> pa.Schema:
    """Make a schema."""
    return pa.schema(fields)


#: The columns of every stored message after the user's, in this order (DESIGN 15.3).
ENVELOPE = schema_of(
    pa.field("topic", pa.string(), nullable=False),
    pa.field("publisher", pa.string(), nullable=False),
    pa.field("sequence", pa.int64(), nullable=False),
    pa.field("published_at", INSTANT, nullable=False),
    pa.field("expires_at", INSTANT),
)

#: Where a message was first published, by which all instances know it: columns that a read of an instance adds.
ORIGIN = schema_of(
    pa.field("origin", pa.string(), nullable=False),
    pa.field("origin_bookmark", pa.int64(), nullable=False),
)

_DECIMAL_NAMES = frozenset({"DECIMAL", "DEC", "NUMERIC"})
_DECIMAL_DIGITS_MAX = 38

#: Most types that stand in each other: readers of Delta logs and of Arrow's schemas give up at twice as many.
_DEPTH_MAX = 24

_SUPPORTED = "Supported: " + ", ".join([*ATOMIC, "DECIMAL(p,s)", "ARRAY<…>", "MAP<…, …>", "STRUCT<…>"])

_TOKEN = re.compile(
    r"\s+|(?P<quoted>`(?:[^`]|``)+`)|(?P<text>'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.)*\")|(?P<word>\w+)|(?P<sign>[<>(),:])",
    re.UNICODE,
)


@functools.lru_cache(maxsize=256)
def user_schema(columns: str) -> pa.Schema:
    """Return the Arrow schema of a message type's own columns."""
    return _Parser(columns).parse()


@functools.lru_cache(maxsize=256)
def stored_schema(columns: str) -> pa.Schema:
    """Return the Arrow schema of a message file: the user's columns, then `ENVELOPE`."""
    return pa.schema([*user_schema(columns), *ENVELOPE])


def check_columns(message_type: str, columns: str, *, rename: Sequence[tuple[str, str]] = (), of_instance: bool = False) -> None:
    """Check a message type's DDL and `rename`, of a journal that is an instance or of any other."""
    reserved = ColumnNames(RESERVED_COLUMNS | INSTANCE_COLUMNS if of_instance else RESERVED_COLUMNS)
    declared = ColumnNames(user_schema(columns).names)
    for name in user_schema(columns).names:
        if reserved.find(name) is not None:
            facts = {"suggested": f"message_{name}", "reserved": ", ".join(sorted(str(reserved).split(", ")))}
            raise ConfigError("RESERVED_COLUMN", column=name, message_type=message_type, **facts)
    where, brought = f"[message_types.{message_type}]", ColumnNames([])
    for name, column in rename:
        reason = None
        if declared.find(column) is None:
            reason = f"column '{column}', which '{name}' is to be, is not declared.{declared.nearest(column)}"
        elif declared.find(name) is not None:
            reason = f"'{name}' is a column already."
        elif not brought.add(name):
            reason = f"'{name}' is renamed twice; names are case-insensitive."
        if reason is not None:
            raise ConfigError("CONTRADICTORY_SETTINGS", where=where, reason=reason, keys="columns, rename")


@functools.lru_cache(maxsize=256)
def shown_names(columns: str, facts: tuple[str, ...]) -> Mapping[str, str]:
    """Return the names of the columns of a message type beside facts about messages, which keep their names.

    A column that is called as a fact is shown as ``message_NAME``. Columns get their names in the order of their declaration, so
    one that is appended changes no other's.
    """
    taken, found = ColumnNames(facts), dict[str, str]()
    for column in user_schema(columns).names:
        name = column
        while not taken.add(name):
            name = f"message_{name}"
        found[column] = name
    return MappingProxyType(found)


def check_kept(message_type: str, before: str, columns: str) -> None:
    """Refuse to declare fewer columns than before: stored messages have them. A table may have more, of other instances."""
    names = ColumnNames(user_schema(columns).names)
    gone = next((name for name in user_schema(before).names if names.find(name) is None), None)
    if gone is not None:
        reason = f"column '{gone}' is no longer declared."
        raise ConfigError("MESSAGE_TYPE_CHANGED", message_type=message_type, reason=reason)


def of_others(message_type: str, peer: str, there: pa.Schema, known: pa.Schema) -> list[Field]:
    """Return the columns of a peer's file that a table lacks, and that it can have; refuse one that it has as another."""
    names, found = ColumnNames({*known.names, *RESERVED_COLUMNS, *INSTANCE_COLUMNS}), list[Field]()
    for field in there:
        name = names.find(field.name)
        if name is None and _is_declarable(field.type):
            names.add(field.name)
            found.append(pa.field(field.name, field.type))
        elif name is None or (name in known.names and (name != field.name or known.field(name).type != field.type)):
            facts = {"peer": peer, "column": field.name[:200], "found": sql_type(field.type)[:200]}
            raise ConfigError("MESSAGE_TYPE_DIFFERS", message_type=message_type, **facts)
    return found


def _is_declarable(kind: Any) -> bool:
    """Return whether some DDL gives a column this type."""
    if pa.types.is_list(kind):
        return _is_declarable(kind.value_type)
    if pa.types.is_map(kind):
        return _is_declarable(kind.key_type) and _is_declarable(kind.item_type)
    if pa.types.is_struct(kind):
        return all(_is_declarable(kind.field(number).type) for number in range(kind.num_fields))
    return pa.types.is_decimal128(kind) or kind in ATOMIC.values()


def appended_columns(message_type: str, stored: pa.Schema, declared: pa.Schema) -> list[Field]:
    """Return the fields that `declared` has beyond `stored`, which are appended to a table in use."""

    def refuse(reason: str) -> ConfigError:
        return ConfigError("MESSAGE_TYPE_CHANGED", message_type=message_type, reason=reason)

    names, there = ColumnNames(declared.names), set(stored.names)
    for field in stored:
        known = names.find(field.name)
        if known is None:
            # Another instance declares it.
            continue
        if known != field.name:
            raise refuse(f"column '{field.name}' is declared as '{known}', but a stored column keeps its spelling.")
        wanted = declared.field(field.name)
        if (wanted.type, wanted.nullable) != (field.type, field.nullable):
            raise refuse(f"column '{field.name}' is stored as {declared_as(field)}, but declared as {declared_as(wanted)}.")
    appended = [field for field in declared if field.name not in there]
    for field in appended:
        if not field.nullable:
            raise refuse(f"new column '{field.name}' is NOT NULL, but stored messages have no value for it.")
    return appended


def declared_as(field: Field) -> str:
    """Return a field's type as it is declared."""
    return f"{sql_type(field.type)}{'' if field.nullable else ' NOT NULL'}"


class _Parser:
    """A recursive descent over Spark's column list."""

    def __init__(self, ddl: str) -> None:
        # Text that is no UTF-8 is refused as it is written here, by its backslash.
        self._ddl = ddl.encode(errors="backslashreplace").decode()
        self._tokens = list(self._tokenize())
        self._at = 0
        self._depth = 0

    def parse(self) -> pa.Schema:
        fields = self._fields(closing="", separator=False)
        if self._peek():
            raise self._refuse(f"'{self._peek()}' is not expected there")
        return pa.schema(fields)

    def _tokenize(self) -> Iterator[str]:
        at = 0
        while at < len(self._ddl):
            match = _TOKEN.match(self._ddl, at)
            if match is None:
                raise self._refuse(f"'{self._ddl[at]}' cannot be read")
            at = match.end()
            if match.lastgroup is not None:
                yield match[0]

    def _fields(self, *, closing: str, separator: bool) -> list[Field]:
        fields: list[Field] = []
        names = ColumnNames([])
        while True:
            field = self._field(separator=separator)
            if not names.add(field.name):
                raise self._refuse(f"column '{field.name}' is named twice (names that differ only in case are one)")
            fields.append(field)
            if self._peek() != ",":
                break
            self._take()
        if closing:
            self._expect(closing)
        return fields

    def _field(self, *, separator: bool) -> Field:
        name = self._take()
        if not name or name[0] in "<>(),:'\"":
            raise self._refuse(f"a column name is expected instead of '{name}'" if name else "a column name is missing at the end")
        if name.startswith("`"):
            name = name[1:-1].replace("``", "`")
        if separator and self._peek() == ":":
            self._take()
        kind = self._type()
        nullable = True
        if self._peek().upper() == "NOT":
            self._take()
            self._expect("NULL")
            nullable = False
        if self._peek().upper() == "COMMENT":
            self._take()
            self._take()
        return pa.field(name, kind, nullable=nullable)

    def _type(self) -> pa.DataType:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise self._refuse(f"types may nest {_DEPTH_MAX} levels deep at most")
        kind = self._type_here()
        self._depth -= 1
        return kind

    def _type_here(self) -> pa.DataType:
        name = self._take().upper()
        if name in _DECIMAL_NAMES:
            return self._decimal()
        if name == "ARRAY":
            (element,) = self._arguments(1)
            return pa.list_(pa.field("element", element))
        if name == "MAP":
            key, value = self._arguments(2)
            return pa.map_(key, value)
        if name == "STRUCT":
            self._expect("<")
            return pa.struct(self._fields(closing=">", separator=True))
        if name not in ATOMIC:
            raise self._refuse(f"'{name or 'nothing'}' is not a supported type. {_SUPPORTED}")
        return ATOMIC[name]

    def _arguments(self, count: int) -> list[pa.DataType]:
        self._expect("<")
        kinds = [self._type()]
        while len(kinds) < count:
            self._expect(",")
            kinds.append(self._type())
        self._expect(">")
        return kinds

    def _decimal(self) -> pa.DataType:
        precision, scale = 10, 0
        if self._peek() == "(":
            self._take()
            precision = self._number()
            if self._peek() == ",":
                self._take()
                scale = self._number()
            self._expect(")")
        if not 1 <= precision <= _DECIMAL_DIGITS_MAX or scale > precision:
            raise self._refuse(
                f"DECIMAL({precision},{scale}) is impossible: at most {_DECIMAL_DIGITS_MAX} digits, of which the scale is a part"
            )
        return pa.decimal128(precision, scale)

    def _number(self) -> int:
        token = self._take()
        if not (token.isascii() and token.isdigit()):
            raise self._refuse(f"a number is expected instead of '{token}'")
        return int(token)

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self) -> str:
        token = self._peek()
        self._at += 1
        return token

    def _expect(self, wanted: str) -> None:
        token = self._take()
        if token.upper() != wanted:
            raise self._refuse(f"'{wanted}' is expected instead of '{token or 'the end'}'")

    def _refuse(self, reason: str) -> ConfigError:
        return ConfigError("BAD_VALUE", key="columns", where="the definitions", value=self._ddl, expected=f"Spark DDL: {reason}")
