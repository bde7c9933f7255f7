"""Expressions over one message type, translated once and evaluated together.

The purpose of an expression decides which type it must have and how its value is used.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from spark_queue.declared_types import declared_column
from spark_queue.errors import ConfigError
from spark_queue.expression import BARRIER, FILTER, ORDER_KEY, PRIORITY, Found, Wanted
from spark_queue.expression.casts import cast
from spark_queue.expression.steps import BOOLEAN, DOUBLE, STRING, VOID, Steps, Value, invalid, read, refusals, unsupported
from spark_queue.expression.translation import Translator


def _condition(steps: Steps, value: Value) -> str:
    if value.kind not in (BOOLEAN, VOID):
        raise invalid(None, f"it gives {value.kind}.", "A filter must be true or false: write a comparison.")
    return steps.add("coalesce(CAST({0} AS BOOLEAN), false)", value.sql)


def _priority(steps: Steps, value: Value) -> str:
    kind = value.kind
    if kind == VOID or not (kind.is_number or kind == STRING):
        raise invalid(None, f"it gives {kind}.", "A priority is a number, or a text that reads as one.")
    found = cast(steps, None, value, DOUBLE) if kind == STRING else value
    if found.kind.is_fraction:
        return steps.add(
            "CASE WHEN isnan({0}) OR {0} < 0 THEN NULL WHEN {0} >= 18446744073709551616::DOUBLE THEN 18446744073709551615::UBIGINT "
            "ELSE TRY_CAST(trunc({0}) AS UBIGINT) END",
            found.sql,
        )
    whole = "trunc({0})" if found.kind.scale else "{0}"
    limited = f"CASE WHEN {{0}} < 0 THEN NULL ELSE coalesce(TRY_CAST({whole} AS UBIGINT), 18446744073709551615::UBIGINT) END"
    return steps.add(f"CASE WHEN {{0}} IS NOT NULL THEN {limited} END", found.sql)


def _order_key(steps: Steps, value: Value) -> str:
    kind = value.kind
    if kind == VOID or kind.is_nested or kind.is_fraction:
        raise unsupported(None, f"{kind} has no stable text to hash.", "Use texts, whole numbers, decimals, dates or timestamps.")
    canonical = {"TIMESTAMP": "epoch_us({0})", "TIMESTAMP_NTZ": "epoch_us({0})", "BINARY": "hex({0})"}.get(kind.name, "{0}")
    return steps.add(f"md5_number_lower(CAST({canonical} AS VARCHAR))", value.sql)


#: Use of the value, by purpose; NULL stands for no priority and no key.
PURPOSES: Mapping[str, Callable[[Steps, Value], str]] = {
    FILTER: _condition,
    BARRIER: _condition,
    PRIORITY: _priority,
    ORDER_KEY: _order_key,
}


#: Processors that evaluate at once: a coordinator shares its host with a Spark driver.
WORKERS = min(4, os.cpu_count() or 1)

#: Most memory that is meant to be used at once, in bytes.
MEMORY_MOST_BYTES = 1 << 30

#: Fewer rows than this are evaluated sooner than shared out.
SHARE_ROWS_MIN = 16_384


class Program:
    """Several expressions over the columns of one message type; made by `translate`.

    Attributes
    ----------
    columns : tuple of str
        The columns that must be read to evaluate it.
    """

    def __init__(self, wanted: Iterable[Wanted], columns: pa.Schema) -> None:
        self.wanted = tuple(wanted)
        self._schema = columns
        steps = Steps()
        translator = Translator(steps, columns)
        outputs: dict[str, str] = {}
        self._query = ""
        for number, each in enumerate(self.wanted):
            with refusals(each.text, each.purpose):
                value = translator.translate(read(each.text))
                outputs |= {f"v{number}": PURPOSES[each.purpose](steps, value), f"f{number}": value.fails or "false"}
                if number == len(self.wanted) - 1:
                    self._query = steps.select(outputs)
        self._types = {name: columns.field(name).type for name in steps.columns}
        self.columns = tuple(self._types)
        self._steps, self._growth = len(steps), steps.growth
        self._written = sum(len(each.text) for each in self.wanted)
        if self.wanted:
            self._check()

    def run(self, rows: pa.Table) -> Mapping[Wanted, Found]:
        """Evaluate everything; a column that `rows` lacks was appended later, and is NULL (DESIGN 4)."""
        if self._is_too_large(rows):
            return self._run_apart(rows) if len(rows) == 1 else self._halves(rows)
        try:
            given = self._run(rows)
        except duckdb.Error as failure:
            if len(rows) == len(self.wanted) == 1 and isinstance(failure, duckdb.OutOfMemoryException):
                # Another host may have the memory, and all must find the same.
                raise MemoryError(f"expression '{self.wanted[0].text[:200]}' needs more than there is: {failure}") from None
            return self._run_apart(rows)
        return {each: _found(given, number) for number, each in enumerate(self.wanted)}

    def run_over(self, pieces: Iterable[pa.Table]) -> Mapping[Wanted, Found]:
        """Evaluate everything, piece by piece of the same messages, a large piece on several processors; see `run`."""
        parts: list[Mapping[Wanted, Found]] = []
        for piece in pieces:
            shares = _shares(piece)
            # Most commits are small, and no other thread is worth waiting for then.
            parts += map(self.run, shares) if len(shares) == 1 else _workers().map(self.run, shares)
        return self._together(parts)

    def _together(self, parts: Sequence[Mapping[Wanted, Found]]) -> Mapping[Wanted, Found]:
        columns = {each: zip(*[part[each] for part in parts], strict=True) for each in self.wanted}
        return {each: Found(*map(np.concatenate, found)) for each, found in columns.items()}

    def _run_apart(self, rows: pa.Table) -> Mapping[Wanted, Found]:
        """Find the cause where DuckDB fails, or one row is too large: first the expression, then the row, which is failed on."""
        if len(self.wanted) > 1:
            return {each: translate((each,), self._schema).run(rows)[each] for each in self.wanted}
        if len(rows) == 1:
            nothing = np.zeros(1, dtype=np.bool_)
            return {each: Found(values=nothing, valid=nothing, failed=~nothing) for each in self.wanted}
        return self._halves(rows)

    def _halves(self, rows: pa.Table) -> Mapping[Wanted, Found]:
        half = len(rows) // 2
        return self._together([self.run(rows.slice(0, half)), self.run(rows.slice(half))])

    def _is_too_large(self, rows: pa.Table) -> bool:
        """Return whether rows must not be evaluated at once; a single one only where the expression makes longer texts of it.

        Each step keeps its texts until the end, and nothing else bounds the texts that a few replacements make of one message.
        """
        longer = (rows.nbytes + len(rows) * self._written) * self._growth
        return longer + (rows.nbytes * self._steps if len(rows) > 1 else 0) > MEMORY_MOST_BYTES

    def given(self, rows: pa.Table) -> pa.Table:
        """Return rows with the columns that it reads, each of its declared type; those of several files can be put together."""
        return pa.table({name: _column(rows, name, kind) for name, kind in self._types.items()} or {"none": pa.nulls(len(rows))})

    def _run(self, rows: pa.Table) -> pa.Table:
        table = self.given(rows)
        # On a text that is no UTF-8 the engine ends, for all expressions; others than our publishers may have written the file.
        try:
            table.validate(full=True)
        except pa.ArrowInvalid as reason:
            raise duckdb.InvalidInputException(str(reason)) from None
        try:
            return self._answered(_engine(), table)
        except (duckdb.FatalException, duckdb.InternalException):
            # It has ended, by these rows or by a query of another thread: only an engine that nobody else asks can show which.
            _engine.cache_clear()
            return self._answered(_new_engine(), table)

    def _answered(self, engine: duckdb.DuckDBPyConnection, table: pa.Table) -> pa.Table:
        cursor = engine.cursor()
        try:
            cursor.register("rows", table)
            found: pa.Table = cursor.sql(self._query).to_arrow_table()
        finally:
            cursor.close()
        return found

    def _check(self) -> None:
        """Let DuckDB read it, over no rows: its refusal must be known now, not when messages enter."""
        with refusals(self.wanted[0].text, self.wanted[0].purpose):
            try:
                self._run(pa.schema([pa.field(name, kind) for name, kind in self._types.items()]).empty_table())
            except (duckdb.ProgrammingError, duckdb.DataError, duckdb.NotSupportedError) as failure:
                reason = str(failure).strip().split("\n")[0]
                raise unsupported(None, f"it cannot be run: {reason}.", "Write it in another way.") from None


def translate(wanted: tuple[Wanted, ...], columns: pa.Schema) -> Program:
    """Translate expressions over a message type's columns, once."""
    found = _translated(wanted, columns)
    if isinstance(found, ConfigError):
        raise ConfigError(found.code, **found.facts)
    return found


@functools.lru_cache(maxsize=1024)
def _translated(wanted: tuple[Wanted, ...], columns: pa.Schema) -> Program | ConfigError:
    """Translate on a thread of its own: how deep an expression may nest must not depend on how deep its caller stands."""
    # It is stored beside the message, but nothing that an expression may use.
    usable = pa.schema([field for field in columns if field.name != "expires_at"])
    with ThreadPoolExecutor(1, thread_name_prefix="translating") as alone:
        try:
            return alone.submit(Program, wanted, usable).result()
        except ConfigError as refusal:
            if refusal.__cause__ is not None:
                # Memory or a thread may have been short just then.
                raise
            return refusal.with_traceback(None)


def _found(given: pa.Table, number: int) -> Found:
    failed = given.column(f"f{number}").to_numpy().astype(np.bool_)
    column: Any = given.column(f"v{number}").combine_chunks()
    valid = column.is_valid().to_numpy(zero_copy_only=False) & ~failed
    values = column.fill_null(pa.scalar(0, pa.uint64()).cast(column.type)).to_numpy(zero_copy_only=False)
    return Found(values=values & valid if values.dtype == np.bool_ else values, valid=valid, failed=failed)


def _column(rows: pa.Table, name: str, kind: pa.DataType) -> Any:
    return declared_column(rows, name, _without_zone(kind))


def _without_zone(kind: Any) -> Any:
    """Return a type with instants in UTC that does not say so: DuckDB would show them in a session's zone."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us")
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _without_zone(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_without_zone(kind.key_type), _without_zone(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(_without_zone(kind.value_type))
    return kind


def _shares(rows: pa.Table) -> list[pa.Table]:
    """Cut rows into a share for each processor that is worth its while; DuckDB gives one processor all of a table this small."""
    count = max(1, min(WORKERS, len(rows) // SHARE_ROWS_MIN))
    cuts = [len(rows) * number // count for number in range(count + 1)]
    return [rows.slice(first, until - first) for first, until in pairwise(cuts)]


@functools.cache
def _workers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(WORKERS, thread_name_prefix="expressions")


@functools.cache
def _engine() -> duckdb.DuckDBPyConnection:
    """Return this process's engine."""
    return _new_engine()


def _new_engine() -> duckdb.DuckDBPyConnection:
    """Make an engine: it sees the rows that it is given, and neither files nor extensions."""
    engine = duckdb.connect(config={"enable_external_access": False, "autoinstall_known_extensions": False})
    for name, change in (("unicode_lower", str.lower), ("unicode_upper", str.upper)):
        engine.create_function(name, change, ["VARCHAR"], "VARCHAR")
    engine.execute("SET lock_configuration = true")
    return engine
