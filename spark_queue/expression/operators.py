"""Operators: arithmetic, comparisons, and the logic of three values, with Spark's order of evaluation."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from sqlglot import exp

from spark_queue.expression.casts import NARROW_DIGITS, together, widen
from spark_queue.expression.steps import (
    BIGINT,
    BOOLEAN,
    DIGITS_MAX,
    DOUBLE,
    INT,
    VOID,
    Steps,
    Value,
    as_decimal,
    decimal,
    invalid,
    unsupported,
)

COMPARISONS: dict[type[exp.Expression], str] = {exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}

_ARITHMETIC: dict[type[exp.Expression], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*"}


def compare(steps: Steps, node: exp.Expression, one: Value, other: Value, sign: str | None = None) -> Value:
    """Compare, as the node does where no sign is given; NULL where a side is NULL."""
    sign = sign or COMPARISONS[type(node)]
    one, other = together(steps, node, one, other)
    if one.kind.name == "BINARY" and sign not in ("=", "<>"):
        raise unsupported(node, "it orders BINARY values.", "Compare them for equality only.")
    return steps.apply(BOOLEAN, f"{{0}} {sign} {{1}}", one, other)


def same(steps: Steps, node: exp.Expression, one: Value, other: Value) -> Value:
    """Compare so that NULL equals NULL; Spark evaluates both sides."""
    one, other = together(steps, node, one, other)
    negation = "NOT " if isinstance(node, exp.NullSafeEQ) else ""
    sql = steps.add(f"{{0}} IS {negation}DISTINCT FROM {{1}}", one.sql, other.sql)
    return Value(kind=BOOLEAN, sql=sql, fails=steps.any(one.fails, other.fails))


def both(steps: Steps, node: exp.Expression, *values: Value) -> Value:
    """Build AND: conditions after a false one are not evaluated."""
    return _joined(steps, node, values, sign=" AND ", end="IS FALSE")


def either(steps: Steps, node: exp.Expression, *values: Value) -> Value:
    """Build OR: conditions after a true one are not evaluated."""
    return _joined(steps, node, values, sign=" OR ", end="IS TRUE")


def _joined(steps: Steps, node: exp.Expression, values: Sequence[Value], *, sign: str, end: str) -> Value:
    check_conditions(node, *values)
    parts = sign.join(f"{{{number}}}" for number in range(len(values)))
    return Value(kind=BOOLEAN, sql=steps.add(f"({parts})", *[value.sql for value in values]), fails=steps.until(end, values))


def calculate(steps: Steps, node: exp.Expression, one: Value, other: Value) -> Value:
    """Add, subtract or multiply; an overflow fails, except for doubles."""
    sign = _ARITHMETIC[type(node)]
    _check_numbers(node, one, other)
    if "DECIMAL" in (one.kind.name, other.kind.name) and not (one.kind.is_fraction or other.kind.is_fraction):
        return _calculate_decimals(steps, node, sign, one, other)
    one, other = together(steps, node, one, other)
    return steps.apply(one.kind, f"TRY({{0}} {sign} {{1}})", one, other, may_fail=one.kind.is_integer)


def _calculate_decimals(steps: Steps, node: exp.Expression, sign: str, one: Value, other: Value) -> Value:
    left, right = as_decimal(one.kind), as_decimal(other.kind)
    if sign == "*":
        kind = decimal(left.precision + right.precision + 1, left.scale + right.scale)
    else:
        scale = max(left.scale, right.scale)
        kind = decimal(max(left.precision - left.scale, right.precision - right.scale) + scale + 1, scale)
    if kind.precision > DIGITS_MAX:
        raise unsupported(
            node, f"{left} {sign} {right} may need more than {DIGITS_MAX} digits.", "Cast to smaller decimals, or to DOUBLE."
        )
    if sign == "*":
        # Its sides keep their own scales, which add up; two narrow sides would be multiplied as narrow numbers, and overflow.
        wide = decimal(max(left.precision, NARROW_DIGITS + 1), left.scale) if right.precision <= NARROW_DIGITS else left
        one, other = widen(steps, one, wide), widen(steps, other, right)
        return steps.apply(kind, f"CAST({{0}} * {{1}} AS {kind})", one, other)
    one, other = widen(steps, one, kind), widen(steps, other, kind)
    return steps.apply(kind, f"CAST({{0}} {sign} {{1}} AS {kind})", one, other)


def divide(steps: Steps, node: exp.Expression, one: Value, other: Value) -> Value:
    """Divide as doubles; a divisor of zero fails, and Spark looks at the divisor first."""
    _check_numbers(node, one, other)
    if "DECIMAL" in (one.kind.name, other.kind.name) and not (one.kind.is_fraction or other.kind.is_fraction):
        raise unsupported(node, "digits of a quotient of decimals are cut differently.", "Cast one side to DOUBLE.")
    one, other = widen(steps, one, DOUBLE), widen(steps, other, DOUBLE)
    return steps.apply(DOUBLE, "CASE WHEN {0} <> 0 THEN {1} / {0} END", other, one, may_fail=True)


def divide_whole(steps: Steps, node: exp.Expression, one: Value, other: Value) -> Value:
    """Divide and cut off toward zero."""
    if not (one.kind.is_integer and other.kind.is_integer):
        raise unsupported(node, f"div of {one.kind} and {other.kind}.", "Use div with whole numbers only.")
    one, other = widen(steps, one, BIGINT), widen(steps, other, BIGINT)
    return steps.apply(BIGINT, "CASE WHEN {0} <> 0 THEN TRY({1} // {0}) END", other, one, may_fail=True)


def modulo(steps: Steps, node: exp.Expression, one: Value, other: Value) -> Value:
    """Build the rest of a division, which has the sign of the dividend and fails for a divisor of zero."""
    dividend, divisor = together(steps, node, one, other)
    if not (dividend.kind.is_integer or dividend.kind == DOUBLE):
        raise unsupported(node, f"the remainder of a division of {dividend.kind}.", "Cast to BIGINT or DOUBLE.")
    # The smallest number divided by -1 overflows, though the rest is 0.
    sql = "CASE WHEN {0} = 0 THEN NULL WHEN {0} = -1 THEN {1} - {1} ELSE {1} % {0} END"
    if dividend.kind == DOUBLE:
        sql = "CASE WHEN {0} = 0 THEN NULL ELSE {1} % {0} END"
    return steps.apply(dividend.kind, sql, divisor, dividend, may_fail=True)


def negate(steps: Steps, node: exp.Expression, value: Value) -> Value:
    """Build the negative; that of the smallest whole number fails."""
    _check_numbers(node, value)
    # The cast keeps the type: DuckDB would widen some.
    return steps.apply(value.kind, f"TRY(CAST(-{{0}} AS {value.kind.duckdb}))", value, may_fail=value.kind.is_integer)


def check_conditions(node: exp.Expression, *values: Value) -> None:
    """Refuse a value that is no condition."""
    for value in values:
        if value.kind not in (BOOLEAN, VOID):
            raise unsupported(node, f"{value.kind} is used as a condition.", "Write a comparison.")


def _check_numbers(node: exp.Expression, *values: Value) -> None:
    for value in values:
        if not value.kind.is_number and value.kind != VOID:
            raise unsupported(node, f"it calculates with {value.kind}.", "Write the CAST to a number that you mean.")


#: A number as Spark reads it, without the letter of its type.
_NUMBER_KINDS = re.compile(r"-?(?:[0-9]+[.]?[0-9]*|[.][0-9]+)(?P<exponent>[eE][+-]?[0-9]+)?")


def number(node: exp.Expression, written: str) -> Value:
    """Return the value of a number as it is written."""
    found = _NUMBER_KINDS.fullmatch(written)
    if found is None:
        raise invalid(node, f"{written[:60]} is no number.", "Write one such as 5, 1.5 or 1e3.")
    if found["exponent"]:
        value = float(written)
        if math.isinf(value):
            raise invalid(node, f"{written[:60]} is too large for a DOUBLE.", "Write at most 1.7976931348623157e308.")
        return Value(kind=DOUBLE, sql=f"{value!r}::DOUBLE", literal=value)
    digits = written.lstrip("-").replace(".", "").lstrip("0")
    # Before it is reckoned with: Python refuses numbers of thousands of digits.
    if len(digits) <= DIGITS_MAX:
        if "." not in written and -(2**63) <= (whole := int(written)) < 2**63:
            kind = INT if -(2**31) <= whole < 2**31 else BIGINT
            return Value(kind=kind, sql=f"'{whole}'::{kind.duckdb}", literal=whole)
        scale = len(written.partition(".")[2])
        kind = decimal(max(len(digits), scale, 1), scale)
        if kind.precision <= DIGITS_MAX:
            return Value(kind=kind, sql=f"'{written}'::{kind}", literal=written)
    raise unsupported(node, f"{written[:60]} has too many digits.", f"Write at most {DIGITS_MAX}, or a DOUBLE such as 1e40.")
