"""Functions that choose among values: COALESCE, IF, CASE, GREATEST, and questions about NULL."""

from __future__ import annotations

from sqlglot import exp

from spark_queue.expression.casts import together
from spark_queue.expression.kinds import BOOLEAN, VOID
from spark_queue.expression.steps import Steps, Value
from spark_queue.expression.syntax import invalid, unsupported


def coalesce(steps: Steps, node: exp.Expression, *arguments: Value) -> Value:
    """Build COALESCE: nothing after the first value that is not NULL is evaluated."""
    values = together(steps, node, *arguments)
    fails: str | None = None
    for value in reversed(values):
        fails = steps.any(value.fails, steps.when("{0} IS NULL", fails, value.sql))
    parts = ", ".join(f"{{{number}}}" for number in range(len(values)))
    return Value(kind=values[0].kind, sql=steps.add(f"coalesce({parts})", *[value.sql for value in values]), fails=fails)


def extreme(steps: Steps, node: exp.Expression, *arguments: Value, name: str) -> Value:
    """Build GREATEST or LEAST, which pass over NULL, and take NaN for the greatest."""
    values = together(steps, node, *arguments)
    parts = ", ".join(f"{{{number}}}" for number in range(len(values)))
    sql = steps.add(f"{name}({parts})", *[value.sql for value in values])
    return Value(kind=values[0].kind, sql=sql, fails=steps.any(*[value.fails for value in values]))


def choose(steps: Steps, node: exp.Expression, cases: list[tuple[Value, Value]], default: Value) -> Value:
    """Build CASE: the first condition that is true decides, and nothing after it is evaluated."""
    for condition, _ in cases:
        if condition.kind not in (BOOLEAN, VOID):
            raise invalid(node, f"a condition has type {condition.kind}.", "Write a condition that is true or false.")
    results = together(steps, node, *[result for _, result in cases], default)
    sql, fails = results[-1].sql, results[-1].fails
    for (condition, _), result in zip(reversed(cases), reversed(results[:-1]), strict=True):
        sql = steps.add("CASE WHEN {0} THEN {1} ELSE {2} END", condition.sql, result.sql, sql)
        taken = steps.when("{0}", result.fails, condition.sql)
        fails = steps.any(condition.fails, taken, steps.when("{0} IS NOT TRUE", fails, condition.sql))
    return Value(kind=results[0].kind, sql=sql, fails=fails)


def when(steps: Steps, node: exp.Expression, condition: Value, positive: Value, negative: Value) -> Value:
    """Build IF."""
    return choose(steps, node, [(condition, positive)], negative)


def nullif(steps: Steps, node: exp.Expression, value: Value, other: Value) -> Value:
    """Build NULLIF."""
    one, other = together(steps, node, value, other)
    sql = steps.add("nullif({0}, {1})", one.sql, other.sql)
    if one.kind != value.kind:
        raise unsupported(node, "nullif brings together two types.", "Write the CAST that you mean.")
    return Value(kind=one.kind, sql=sql, fails=steps.strict([one, other]))


def is_null(steps: Steps, _: exp.Expression, value: Value, *, sql: str) -> Value:
    """Build a question about NULL, which is never NULL itself."""
    return Value(kind=BOOLEAN, sql=steps.add(sql, value.sql), fails=value.fails)
