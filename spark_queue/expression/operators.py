"""Operators: arithmetic, comparisons, and the logic of three values, with Spark's order of evaluation.

Patterns of LIKE and RLIKE, rewritten or refused so that RE2 decides as Java does.
Casts that give what Spark's ANSI mode gives: NULL only for NULL, a failure where the value does not fit.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import UTC, date, datetime

import re2
from sqlglot import exp

from spark_queue.core.definitions.definition import QUIET
from spark_queue.expression.steps import (
    BIGINT,
    BOOLEAN,
    DATE,
    DIGITS_MAX,
    DOUBLE,
    INT,
    STRING,
    TIMESTAMP,
    VOID,
    Steps,
    Value,
    ValueKind,
    as_decimal,
    common,
    decimal,
    invalid,
    unsupported,
)

#: Java's line ends, which its dot does not match.
_DOT = r"[^\n\r\x{85}\x{2028}\x{2029}]"
_PATTERN_BLANK = r" \t\n\x0B\f\r"
#: Java's `$` also matches before a line end that closes the text.
_END = r"(?:\r\n|[\n\r\x{85}\x{2028}\x{2029}])?\z"
_TOKEN = re.compile(
    r"(?P<escape>\\(?:[dDwW.*+?^$|(){}\[\]\\/\-&~#@!%,;:=<>\"' _]|[tnrf]))|(?P<blank>\\s)|"
    r"(?P<class>\[\^?(?:\\[dws\]\[\\^.\-+*?$|(){}/tnrf]|[^\\\[\]&])+\])"
    r"|(?P<dot>\.)|(?P<end>\$)|(?P<start>\^)|(?P<group>\((?:\?:)?(?!\?)|\)|\|)"
    r"|(?P<times>(?:[*+?]|\{\d{1,3}(?:,\d{0,3})?\})\??(?![*+?{]))|(?P<plain>[^\\\[\](){}.*+?^$|])",
    re.DOTALL,
)


def like(node: exp.Expression, pattern: str) -> str:
    """Check a LIKE pattern: Spark refuses an escape before anything but `_`, `%` or itself."""
    if re.fullmatch(r"(?:[^\\]|\\[_%\\])*", pattern, re.DOTALL) is None:
        raise invalid(node, f"'\\' escapes nothing in the pattern '{pattern}'.", "Escape only _, % and \\.")
    return pattern


def regular(node: exp.Expression, pattern: str) -> str:
    """Rewrite a Java regular expression for RE2."""
    out: list[str] = []
    at = 0
    while at < len(pattern):
        token = _TOKEN.match(pattern, at)
        if token is None or (token.lastgroup == "end" and token.end() < len(pattern)):
            raise unsupported(
                node,
                f"Java and RE2 may disagree about '{pattern[at : at + 8]}' in the pattern '{pattern}'.",
                "Use plain characters, . [ ] ( ) | * + ? {n,m} ^, \\d \\w \\s, and $ at the very end.",
            )
        out.append(_rewritten(token))
        at = token.end()
    rewritten = "".join(out)
    try:
        re2.compile(rewritten, QUIET)
    except re2.error:
        raise invalid(node, f"'{pattern}' is no regular expression.", "Correct it.") from None
    return rewritten


def _rewritten(token: re.Match[str]) -> str:
    match token.lastgroup:
        case "dot":
            return _DOT
        case "end":
            return _END
        case "blank":
            return f"[{_PATTERN_BLANK}]"
        case "class":
            return token[0].replace("\\s", _PATTERN_BLANK)
        case "escape":
            return token[0] if token[0][1] in "dDwWtnrf" else f"\\x{{{ord(token[0][1]):x}}}"
        case _:
            return token[0]


#: Characters that Spark takes off the ends of a text before it reads a number: white space and control characters.
_BLANK = " || ".join(f"chr({code})" for code in (*range(33), 127))
_BLANK_END = r"'^[\x00-\x20\x7f]|[\x00-\x20\x7f]$'"
_INTEGER = r"'[+-]?[0-9]+'"
_NUMBER = r"'[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?'"
_TARGETS = {
    "BOOLEAN": BOOLEAN, "TINYINT": ValueKind("TINYINT"), "SMALLINT": ValueKind("SMALLINT"), "INT": ValueKind("INT"),
    "BIGINT": BIGINT, "FLOAT": ValueKind("FLOAT"), "DOUBLE": DOUBLE, "TEXT": STRING, "VARCHAR": STRING, "DATE": DATE,
    "TIMESTAMPTZ": TIMESTAMP,
}  # fmt: skip


def target(node: exp.Cast) -> ValueKind:
    """Return the type that a cast names."""
    to = node.to
    if to.this == exp.DType.DECIMAL:
        written = [part.name for part in to.expressions]
        if not all(re.fullmatch("[0-9]{1,4}", each) for each in written):
            raise invalid(node, f"DECIMAL({','.join(written)[:40]}) is no type.", "Write two whole numbers, such as DECIMAL(10,2).")
        numbers = [int(each) for each in written]
        precision, scale = (*numbers, 10, 0)[:2] if len(numbers) != 1 else (numbers[0], 0)
        if not 1 <= precision <= DIGITS_MAX or not 0 <= scale <= precision:
            raise invalid(node, f"DECIMAL({precision},{scale}) is impossible.", f"At most {DIGITS_MAX} digits.")
        return decimal(precision, scale)
    if to.this.name not in _TARGETS or to.expressions:
        raise unsupported(node, f"a cast to {to.sql('spark')} is not accepted.", f"Accepted: {', '.join(_NAMES)}.")
    return _TARGETS[to.this.name]


_NAMES = (*dict.fromkeys(str(kind) for kind in _TARGETS.values()), "DECIMAL(p,s)")


def constant(node: exp.Cast, text: str, kind: ValueKind) -> Value | None:
    """Return a date or timestamp that is written as one; None for other types."""
    if kind not in (DATE, TIMESTAMP):
        return None
    try:
        if kind == DATE:
            return Value(kind=DATE, sql=f"DATE '{date.fromisoformat(text).isoformat()}'", literal=date.fromisoformat(text))
        time = datetime.fromisoformat(text)
        # Without an offset it is UTC, the session time zone of these expressions.
        time = time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except (ValueError, OverflowError):
        raise invalid(node, f"'{text}' is no {kind}.", "Write '2024-01-31', or '2024-01-31 23:59:59'.") from None
    return Value(kind=TIMESTAMP, sql=f"TIMESTAMP '{time.replace(tzinfo=None).isoformat(' ')}'", literal=time)


def widen(steps: Steps, value: Value, kind: ValueKind) -> Value:
    """Convert to a type that Spark converts to by itself, which never fails."""
    if value.kind == kind:
        return value
    sql = _DECIMAL_TO_DOUBLE if kind == DOUBLE and value.kind.name == "DECIMAL" else f"CAST({{0}} AS {kind.duckdb})"
    return Value(kind=kind, sql=steps.add(sql, value.sql), fails=value.fails)


def together(steps: Steps, node: exp.Expression, *values: Value) -> tuple[Value, ...]:
    """Convert values to the type that they have in common."""
    kind: ValueKind | None = values[0].kind
    for value in values[1:]:
        kind = None if kind is None else common(kind, value.kind)
    if kind is None or kind.is_nested:
        names = ", ".join(str(value.kind) for value in values)
        raise unsupported(node, f"it brings together {names}, which need a conversion.", "Write the CAST that you mean.")
    return tuple(widen(steps, value, kind) for value in values)


def cast(steps: Steps, node: exp.Expression | None, value: Value, kind: ValueKind) -> Value:
    """Cast as `CAST` does."""
    if value.kind in (kind, STRING) and kind == STRING:
        return value
    sql = _template(value.kind, kind)
    if sql is None:
        raise unsupported(node, f"a cast from {value.kind} to {kind} may differ from Spark's.", _ADVICE)
    if value.kind == STRING:
        # A step of its own: most texts have no blanks at their ends, and to take them off is slow.
        value = steps.apply(
            STRING, f"CASE WHEN regexp_matches({{0}}, {_BLANK_END}) THEN trim({{0}}, {_BLANK}) ELSE {{0}} END", value
        )
    return steps.apply(kind, sql, value, may_fail=True)


_ADVICE = "Compare the value as it is, or use the functions of its type; `sparkq options` lists them."


def _template(found: ValueKind, wanted: ValueKind) -> str | None:
    """Return the SQL of a cast, NULL where it fails; None where it is not accepted."""
    if found == STRING:
        return _from_text(wanted)
    if found == wanted or found.name == "VOID":
        return f"CAST({{0}} AS {wanted.duckdb})"
    if wanted == STRING:
        return "CAST({0} AS VARCHAR)" if found.is_integer or found.name in ("DECIMAL", "BOOLEAN") else None
    if found == BOOLEAN:
        return f"CAST({{0}} AS {wanted.duckdb})" if wanted.is_integer or wanted.is_fraction else None
    if wanted == BOOLEAN:
        return "{0} <> 0" if found.is_number else None
    if (found, wanted) in ((DATE, TIMESTAMP), (TIMESTAMP, DATE)):
        return f"CAST({{0}} AS {wanted.duckdb})"
    if (found, wanted) == (TIMESTAMP, BIGINT):
        return _EPOCH
    return _between_numbers(found, wanted) if found.is_number and wanted.is_number else None


#: By its text: the nearest double of all, as in Java; DuckDB divides instead.
_DECIMAL_TO_DOUBLE = "CAST(CAST({0} AS VARCHAR) AS DOUBLE)"

#: Whole seconds, rounded down: `//` cuts off toward zero.
_EPOCH = "(epoch_us({0}) - ((epoch_us({0}) % 1000000) + 1000000) % 1000000) // 1000000"


def _between_numbers(found: ValueKind, wanted: ValueKind) -> str | None:
    if wanted.is_integer:
        if not found.is_fraction:
            return f"TRY_CAST({'trunc({0})' if found.scale else '{0}'} AS {wanted.duckdb})"
        cut = f"TRY_CAST(trunc({{0}}) AS {wanted.duckdb})"
        # 2^63 as a double is the nearest to the largest BIGINT, and Spark takes it for that.
        return f"CASE WHEN {{0}} = 9223372036854775808::DOUBLE THEN 9223372036854775807 ELSE {cut} END" if wanted == BIGINT else cut
    if wanted.name == "DECIMAL":
        return None if found.is_fraction else f"TRY_CAST({{0}} AS {wanted.duckdb})"
    if found.name == "DECIMAL":
        return _DECIMAL_TO_DOUBLE if wanted == DOUBLE else None
    return f"CAST({{0}} AS {wanted.duckdb})"


def _from_text(wanted: ValueKind) -> str | None:
    """Return the SQL that reads a text without blanks at its ends."""
    if wanted == BOOLEAN:
        return (
            "CASE WHEN lower({0}) IN ('t', 'true', 'y', 'yes', '1') THEN true "
            "WHEN lower({0}) IN ('f', 'false', 'n', 'no', '0') THEN false END"
        )
    if wanted == DATE:
        return _DATE_OF_TEXT
    if not (wanted.is_integer or wanted.name == "DECIMAL" or wanted == DOUBLE):
        return None
    form = _INTEGER if wanted.is_integer else _NUMBER
    besides = _JAVA_DOUBLE if wanted == DOUBLE else ""
    return f"CASE WHEN regexp_full_match({{0}}, {form}) THEN TRY_CAST({{0}} AS {wanted.duckdb}) {besides} END"


#: Further texts that Java reads as a double: a letter for the type, and values that are no numbers.
_JAVA_DOUBLE = (
    f"WHEN regexp_full_match({{0}}, {_NUMBER[:-1]}[fFdD]') THEN TRY_CAST(rtrim({{0}}, 'fFdD') AS DOUBLE) "
    "WHEN lower({0}) IN ('nan', 'inf', '+inf', '-inf', 'infinity', '+infinity', '-infinity') "
    "OR {0} IN ('+NaN', '-NaN') THEN TRY_CAST(ltrim({0}, '+') AS DOUBLE)"
)

#: Spark reads year, year-month and year-month-day, the last with anything after a blank or T.
_DATE_OF_TEXT = (
    "CASE WHEN regexp_full_match({0}, '[0-9]{{4}}(-[0-9]{{1,2}}(-[0-9]{{1,2}}([ T](.|\\n)*)?)?)?') THEN TRY(make_date("
    "CAST(left({0}, 4) AS INTEGER), "
    "CAST(coalesce(nullif(regexp_extract({0}, '^[0-9]{{4}}-([0-9]+)', 1), ''), '1') AS INTEGER), "
    "CAST(coalesce(nullif(regexp_extract({0}, '^[0-9]{{4}}-[0-9]+-([0-9]+)', 1), ''), '1') AS INTEGER))) END"
)


#: Most digits of a decimal that DuckDB holds in 64 bits.
_NARROW_DIGITS = 18

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
    """Build AND: what follows a false condition is not evaluated."""
    return _joined(steps, node, values, sign=" AND ", end="IS FALSE")


def either(steps: Steps, node: exp.Expression, *values: Value) -> Value:
    """Build OR: what follows a true condition is not evaluated."""
    return _joined(steps, node, values, sign=" OR ", end="IS TRUE")


def _joined(steps: Steps, node: exp.Expression, values: Sequence[Value], *, sign: str, end: str) -> Value:
    check_conditions(node, *values)
    parts = sign.join(f"{{{number}}}" for number in range(len(values)))
    return Value(kind=BOOLEAN, sql=steps.add(f"({parts})", *[value.sql for value in values]), fails=steps.until(end, values))


def calculate(steps: Steps, node: exp.Expression, one: Value, other: Value) -> Value:
    """Add, subtract or multiply; what overflows fails, except for doubles."""
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
        wide = decimal(max(left.precision, _NARROW_DIGITS + 1), left.scale) if right.precision <= _NARROW_DIGITS else left
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
    """Take the rest of a division, which has the sign of the dividend and fails for a divisor of zero."""
    dividend, divisor = together(steps, node, one, other)
    if not (dividend.kind.is_integer or dividend.kind == DOUBLE):
        raise unsupported(node, f"the rest of a division of {dividend.kind}.", "Cast to BIGINT or DOUBLE.")
    # The smallest number divided by -1 overflows, though the rest is 0.
    sql = "CASE WHEN {0} = 0 THEN NULL WHEN {0} = -1 THEN {1} - {1} ELSE {1} % {0} END"
    if dividend.kind == DOUBLE:
        sql = "CASE WHEN {0} = 0 THEN NULL ELSE {1} % {0} END"
    return steps.apply(dividend.kind, sql, divisor, dividend, may_fail=True)


def negate(steps: Steps, node: exp.Expression, value: Value) -> Value:
    """Take the negative; that of the smallest whole number fails."""
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
            raise unsupported(node, f"it reckons with {value.kind}.", "Write the CAST to a number that you mean.")


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
            raise invalid(node, f"{written[:60]} is beyond what a DOUBLE holds.", "Write at most 1.7976931348623157e308.")
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
