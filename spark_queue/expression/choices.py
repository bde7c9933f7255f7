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
    parts = ", ".join(f"{{{number}}}" for number in range(len(values)))
    sql = steps.add(f"coalesce({parts})", *[value.sql for value in values])
    return Value(kind=values[0].kind, sql=sql, fails=steps.until("IS NOT NULL", values))


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
    conditions, last = [condition for condition, _ in cases], len(cases)
    branches = " ".join(f"WHEN {{{number}}} THEN {{{last + number}}}" for number in range(last))
    parts = [value.sql for value in (*conditions, *results)]
    fails = [steps.until("IS TRUE", conditions)]
    if any(result.fails for result in results):
        taken = steps.first("IS TRUE", conditions)
        fails += [steps.when(f"{{0}} = {number}", result.fails, taken) for number, result in enumerate(results)]
    sql = steps.add(f"CASE {branches} ELSE {{{2 * last}}} END", *parts)
    return Value(kind=results[0].kind, sql=sql, fails=steps.any(*fails))


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
