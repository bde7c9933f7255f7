"""A computation in steps: each step is a column of one level of nested selects, so that nothing is computed twice.

A level hands on columns that a later one needs, and nothing else: how long DuckDB plans grows with the columns of all levels, and
it plans for every commit that enters.

Nothing in it ever raises. An error of Spark is a value: beside a column stands another that shows where it failed. So a
message on which an expression fails cannot disturb those that are evaluated with it.

Reading Spark SQL text into sqlglot's tree, and refusing with the place, the reason and a next step.
The types that expressions reckon with: Spark's, and how DuckDB holds them.
Functions of arrays and maps.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, ClassVar, NamedTuple, TypeAlias, TypeVar

import pyarrow as pa
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, SqlglotError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from spark_queue.errors import ConfigError, SparkQueueError

_SparkParser: Any = Spark.Parser


class _Dialect(Spark):
    """Spark's grammar, with functions left as they were written: the meaning of a name is decided here, not in sqlglot."""

    class Parser(_SparkParser):  # type: ignore[misc]  # sqlglot declares its parsers as variables.
        FUNCTIONS: ClassVar[dict[str, Any]] = {}
        FUNCTION_PARSERS: ClassVar = {
            name: parse for name, parse in _SparkParser.FUNCTION_PARSERS.items() if name in ("CAST", "TRY_CAST")
        }
        # Otherwise CAST is read as TRY_CAST, and a value that Spark fails on would be NULL.
        STRICT_CAST: ClassVar = True


_LENGTH_MAX = 10_000

#: How deep brackets may nest, and operators and functions in the tree that is read: far from where Python, or DuckDB, gives up.
_BRACKETS_MAX = 40
_DEPTH_MAX = 200

#: How much of an expression an error repeats, in characters.
_SHOWN = 800

_OPENING = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE)
_CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END)

_TOO_DEEP = "it nests too deeply."
_FLATTER = "Nest less, or put what it computes into a column."


class _RefusedError(Exception):
    """A part of an expression is not accepted, for code, node, reason and next step; `refusals` makes the error of the whole."""


def invalid(node: exp.Expression | None, reason: str, next_step: str) -> Exception:
    """Make the refusal of a part that Spark refuses, too."""
    return _RefusedError("EXPRESSION_INVALID", node, reason, next_step)


def unsupported(node: exp.Expression | None, reason: str, next_step: str) -> Exception:
    """Make the refusal of a part that would not give the same here as in Spark."""
    return _RefusedError("EXPRESSION_UNSUPPORTED", node, reason, next_step)


@contextmanager
def refusals(text: str, what: str) -> Iterator[None]:
    """Turn refusals of parts, and all other errors, into ones that name the expression and the place in it.

    Libraries raise any error for texts that nobody thought of; that is then the cause of ours.
    """
    try:
        yield
    except SparkQueueError:
        raise
    except Exception as raised:  # noqa: BLE001 - any error of a library
        refused, cause = raised, None
        if isinstance(raised, RecursionError):
            refused = unsupported(None, _TOO_DEEP, _FLATTER)
        elif not isinstance(raised, _RefusedError):
            reason = f"it cannot be translated ({type(raised).__name__}: {str(raised)[:200]})."
            refused, cause = unsupported(None, reason, "Write it in another way."), raised
        code, node, reason, next_step = refused.args
        said = {"text": _shortened(text), "reason": _shortened(reason), "place": f"at {_position(text, node)}"}
        raise ConfigError(code, what=what, next_step=next_step, **said) from cause


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def read(text: str) -> exp.Expression:
    """Parse one expression."""
    next_step = "Write one Spark SQL expression, such as \"topic = 'orders' AND sequence > 5\"."
    if not text.strip() or len(text) > _LENGTH_MAX:
        raise invalid(None, f"it is empty or longer than {_LENGTH_MAX:,} characters.", next_step)
    dialect = _Dialect()
    try:
        tokens = dialect.tokenize(text)
        # Counted before anything follows them down.
        if _nested(tokens) > _BRACKETS_MAX:
            raise unsupported(None, _TOO_DEEP, _FLATTER)
        tree = dialect.parser().parse(tokens, text)
    except ParseError as failure:
        first = failure.errors[0] if failure.errors else {}
        near = f" near '{first['highlight']}' (character {_offset(text, first)})" if first.get("highlight") else ""
        raise invalid(None, f"it cannot be read{near}: {_said(first)}.", next_step) from None
    except (TokenError, SqlglotError):
        raise invalid(None, "it cannot be read: a quote or parenthesis is left open.", next_step) from None
    if len(tree) != 1 or not isinstance(tree[0], exp.Expression):
        raise invalid(None, "it is not one expression.", next_step)
    if _depth(tree[0]) > _DEPTH_MAX:
        raise unsupported(None, _TOO_DEEP, _FLATTER)
    return tree[0]


def _nested(tokens: Iterable[Token]) -> int:
    """Return how deep brackets nest, and CASE with them."""
    steps = ((token.token_type in _OPENING) - (token.token_type in _CLOSING) for token in tokens)
    return max(accumulate(steps), default=0)


def _depth(tree: exp.Expression) -> int:
    """Return how deep a tree is, where conditions that AND or OR joins stand side by side."""
    deepest, waiting = 0, [(tree, 1)]
    while waiting:
        node, depth = waiting.pop()
        deepest = max(deepest, depth)
        waiting += [(each, depth + (not is_joined(node, each))) for each in node.iter_expressions()]
    return deepest


def is_joined(node: exp.Expression, part: exp.Expression) -> bool:
    """Return whether a part of AND or OR is the same operator again, so that both join one row of conditions."""
    return isinstance(node, exp.And | exp.Or) and type(part) is type(node)


def _said(first: dict[str, Any]) -> str:
    said = str(first.get("description", ""))
    return "something is missing there" if not said or "<class" in said else said.rstrip(".")


def _position(text: str, node: exp.Expression | None) -> str:
    """Return the place of a node: by the first name or literal under it with a known place in the text."""
    if node is not None:
        for part in node.walk():
            if "start" in part.meta:
                return f"character {part.meta['start'] + 1}"
        name = node.name if isinstance(node, exp.Anonymous | exp.Literal) else ""
        found = re.search(re.escape(name), text, re.IGNORECASE) if name else None
        if found:
            return f"character {found.start() + 1}"
    return "character 1"


def _offset(text: str, found: dict[str, Any]) -> int:
    line, column = int(found.get("line", 1)), int(found.get("col", 1))
    return sum(len(each) + 1 for each in text.split("\n")[: line - 1]) + column


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


def size(steps: Steps, node: exp.Expression, value: Value) -> Value:
    """Count the elements of an array or map."""
    if value.kind.name not in ("ARRAY", "MAP"):
        raise unsupported(node, f"the size of {value.kind}.", "Give an array or a map.")
    sql = "len({0})" if value.kind.name == "ARRAY" else "cardinality({0})"
    return steps.apply(INT, f"CAST({sql} AS INTEGER)", value)


def contains_element(steps: Steps, node: exp.Expression, array: Value, wanted: Value) -> Value:
    """Look for an element; where it is not found, a NULL in the array leaves it open."""
    if array.kind.name != "ARRAY" or common(array.kind.parts[0][1], wanted.kind) != array.kind.parts[0][1]:
        raise unsupported(node, "the array has elements of another type.", "Write the CAST that you mean.")
    if array.kind.parts[0][1].is_nested or wanted.kind == VOID:
        raise unsupported(node, "it looks for NULL, an array, a map or a struct.", "Look for a plain value.")
    found = "list_contains({0}, {1})"
    missing = "CASE WHEN list_count({0}) < len({0}) THEN NULL ELSE false END"
    sql = f"CASE WHEN {{0}} IS NOT NULL AND {{1}} IS NOT NULL THEN CASE WHEN {found} THEN true ELSE {missing} END END"
    return steps.apply(BOOLEAN, sql, array, wanted)


def element(steps: Steps, node: exp.Expression, whole: Value, key: Value, *, one_based: bool) -> Value:
    """Build an element of an array, where one out of range fails, or of a map, where a missing key is NULL.

    One-based, a negative number counts from the end.
    """
    if whole.kind.name == "MAP" and whole.kind.parts[0][1] == key.kind:
        return steps.apply(whole.kind.parts[1][1], "{0}[{1}]", whole, key)
    if whole.kind.name != "ARRAY" or key.kind not in (INT, BIGINT):
        raise unsupported(node, f"an element of {whole.kind} by {key.kind}.", "Take elements by INT, values by the key's type.")
    if one_based:
        outside = "{1} = 0 OR abs({1}::HUGEINT) > len({0})"
        found = "CASE WHEN {1} <> 0 THEN {0}[{1}] END"
    else:
        outside, found = "{1} < 0 OR {1} >= len({0})", "CASE WHEN {1} >= 0 AND {1} < len({0}) THEN {0}[{1} + 1] END"
    fails = steps.add(f"coalesce({outside}, false)", whole.sql, key.sql)
    value = steps.apply(whole.kind.parts[0][1], found, whole, key)
    return Value(kind=value.kind, sql=value.sql, fails=steps.any(value.fails, fails))


_STEPS_MAX = 2_000

#: Most levels, each of which needs a part of the stack of the evaluating thread, and columns of all levels together.
_LEVELS_MAX = 400
_COLUMNS_MAX = 3_000

_TOO_LONG = "it is too long."
_SHORTER = "Shorten it, or put what it computes into a column."


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """Part of an expression: its type, the column or constant that holds it, and where evaluating it would raise."""

    kind: ValueKind
    sql: str
    #: Column that is true where Spark would raise, never NULL; None where it never would.
    fails: str | None = None
    #: The value of a literal, where it was written as one.
    literal: object = None


#: Builds the value of a function from the steps, the node, and a value for each argument.
Build: TypeAlias = Callable[..., Value]

_Literal = TypeVar("_Literal")


class Steps:
    """Collects steps; the same step is added once, whichever expressions ask for it."""

    def __init__(self) -> None:
        #: Columns of the message that are read, each with the name of its step.
        self.columns: dict[str, str] = {}
        #: The steps of each level: names, computations, and the steps that these need.
        self._levels: list[dict[str, tuple[str, set[str]]]] = []
        self._level_of: dict[str, int] = {}
        self._names: dict[str, str] = {}
        #: How many times as long as the message the text of a step may be.
        self._growth: dict[str, int] = {}

    def column(self, name: str) -> str:
        """Return the step that holds a column of the message."""
        step = self.columns.setdefault(name, f"c{len(self.columns)}")
        self._level_of[step] = 0
        return step

    def __len__(self) -> int:
        return len(self._names)

    @property
    def growth(self) -> int:
        """How many times as long as the message the texts together may be that are longer than it; 0 without one."""
        return sum(growth for growth in self._growth.values() if growth > 1)

    def growth_of(self, part: str) -> int:
        """Return how many times as long as the message a step or constant may be."""
        return self._growth.get(part, 1)

    def add(self, template: str, *parts: str, growth: int | None = None) -> str:
        """Add a step: `template` with `parts`, which are steps or constants, in its braces; returns the step's name.

        Its text may be `growth` times as long as the message; without one, no longer than its parts.
        """
        sql = template.format(*parts)
        if sql not in self._names:
            if len(self._names) >= _STEPS_MAX:
                raise unsupported(None, _TOO_LONG, _SHORTER)
            level = 1 + max((self._level_of.get(part, 0) for part in parts), default=0)
            name = self._names[sql] = f"s{len(self._names)}"
            self._growth[name] = max(map(self.growth_of, parts), default=1) if growth is None else growth
            self._level_of[name] = level
            self._levels += [{} for _ in range(level - len(self._levels))]
            self._levels[level - 1][name] = (sql, self._steps_of(parts))
        return self._names[sql]

    def any(self, *fails: str | None) -> str | None:
        """Return where any of them fails."""
        known = [each for each in fails if each is not None]
        if len(known) < 2:
            return known[0] if known else None
        return self.add(" OR ".join(f"{{{number}}}" for number in range(len(known))), *known)

    def when(self, condition: str, fails: str | None, *parts: str) -> str | None:
        """Return where `fails` holds and the condition, a template over `parts`, is true: elsewhere Spark does not evaluate it."""
        if fails is None:
            return None
        last = f"{{{len(parts)}}}"
        return self.add(f"coalesce({condition}, false) AND {last}", *parts, fails, growth=1)

    def first(self, end: str, values: Sequence[Value]) -> str:
        """Return the number of the first value for which `end` holds, such as ``IS NULL``; how many there are without one."""
        cases = " ".join(f"WHEN {{{number}}} {end} THEN {number}" for number in range(len(values)))
        return self.add(f"CASE {cases} ELSE {len(values)} END", *[value.sql for value in values], growth=1)

    def until(self, end: str, values: Sequence[Value]) -> str | None:
        """Return where evaluating values one after the other fails; after the first for which `end` holds, none is evaluated."""
        if not any(value.fails for value in values[1:]):
            return values[0].fails
        last = self.first(end, values[:-1])
        reached = [self.when(f"{{0}} >= {number}", value.fails, last) for number, value in enumerate(values[1:], 1)]
        return self.any(values[0].fails, *reached)

    def strict(self, arguments: Sequence[Value]) -> str | None:
        """Return where evaluating arguments fails, from the first on: after a NULL, Spark evaluates no other."""
        return self.until("IS NULL", arguments)

    def apply(self, kind: ValueKind, template: str, *arguments: Value, may_fail: bool = False, growth: int | None = None) -> Value:
        """Apply a function that is NULL where an argument is; one that may fail must be NULL just there otherwise."""
        parts = [argument.sql for argument in arguments]
        sql = self.add(template, *parts, growth=growth if kind == STRING else 1)
        fails = self.strict(arguments)
        if may_fail:
            there = " AND ".join(f"{{{number}}} IS NOT NULL" for number in range(len(parts)))
            own = self.add(f"{there} AND {{{len(parts)}}} IS NULL", *parts, sql, growth=1)
            fails = self.any(fails, own)
        return Value(kind=kind, sql=sql, fails=fails)

    def select(self, outputs: Mapping[str, str]) -> str:
        """Return the whole query over a table named `rows`; each output is a step or a constant, by its name."""
        levels = [[f"{step} AS {name}" for name, step in outputs.items()]]
        needed = self._steps_of(outputs.values())
        for level in reversed(self._levels):
            made = [name for name in level if name in needed]
            needed -= level.keys()
            levels.append([*sorted(needed), *(f"{level[name][0]} AS {name}" for name in made)])
            needed = needed.union(*(level[name][1] for name in made))
        if len(levels) > _LEVELS_MAX or sum(map(len, levels)) > _COLUMNS_MAX:
            raise unsupported(None, _TOO_LONG, _SHORTER)
        base = [f'"{name.replace(chr(34), chr(34) * 2)}" AS {step}' for name, step in self.columns.items() if step in needed]
        query = "rows"
        for columns in (base, *reversed(levels)):
            # Nothing of a user's text is in it but quoted names and constants.
            query = f"SELECT {', '.join(columns) or 'NULL AS c'} FROM {query if query == 'rows' else f'({query})'}"  # noqa: S608
        return query

    def _steps_of(self, parts: Iterable[str]) -> set[str]:
        """Return those that are steps, and no constants."""
        return {part for part in parts if part in self._level_of}


def literal_of(value: Value, kind: type[_Literal], node: exp.Expression, what: str) -> _Literal:
    """Return the value of an argument that must be written as a literal."""
    if not isinstance(value.literal, kind) or isinstance(value.literal, bool):
        raise unsupported(node, f"{what} is no literal.", "Write it as a constant.")
    return value.literal
