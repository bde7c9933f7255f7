"""A computation in steps: each step is a column of one level of nested selects, so that nothing is computed twice.

A level hands on what a later one needs, and nothing else: how long DuckDB plans grows with the columns of all levels, and it plans
for every commit that enters.

Nothing in it ever raises. What Spark would raise is a value: beside a column stands another that tells where it failed. So a
message on which an expression fails cannot disturb those that are evaluated with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from sqlglot import exp

from spark_queue.expression.kinds import STRING, ValueKind
from spark_queue.expression.syntax import unsupported

_STEPS_MAX = 2_000

#: Most levels, each of which takes a part of the stack of who evaluates, and columns of all levels together.
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


#: Builds the value of a function: takes the steps, the node, and a value for each argument.
Build: TypeAlias = Callable[..., Value]

_Literal = TypeVar("_Literal")


class Steps:
    """Collects steps; the same step is taken once, whichever expressions ask for it."""

    def __init__(self) -> None:
        #: Columns of the message that are read, each with the name of its step.
        self.columns: dict[str, str] = {}
        #: The steps of each level: names, what is computed, and the steps that it is computed from.
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
        """Take a step: `template` with `parts`, which are steps or constants, in its braces; returns the step's name.

        Parameters
        ----------
        growth : int or None
            How many times as long as the message its text may be; None for no longer than its parts.
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
