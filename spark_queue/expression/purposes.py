"""What an expression is for: which type it must have, and what its value becomes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from spark_queue.expression.casts import cast
from spark_queue.expression.kinds import BOOLEAN, DOUBLE, STRING, VOID
from spark_queue.expression.steps import Steps, Value
from spark_queue.expression.syntax import invalid, unsupported

#: Expressions of a condition: rows where it fails or is NULL do not match.
FILTER = "filter"
BARRIER = "barrier"
#: Any number, or a text that reads as one, as unsigned 64-bit: fractions are cut off, and what is larger is the largest. NULL,
#: NaN, negative numbers and other texts have none, and rank lowest (R66).
PRIORITY = "priority"
#: Any plain value; equal values give equal 64-bit hashes. NULL is no key.
ORDER_KEY = "order_key"


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


#: What becomes of the value, by purpose; NULL stands for no priority and no key.
PURPOSES: Mapping[str, Callable[[Steps, Value], str]] = {
    FILTER: _condition,
    BARRIER: _condition,
    PRIORITY: _priority,
    ORDER_KEY: _order_key,
}
