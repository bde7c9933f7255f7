"""The functions that expressions may use: one table, which checks, translates, and is shown to users.

Functions that choose among values: COALESCE, IF, CASE, GREATEST, and questions about NULL.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlglot import exp

from spark_queue.errors import nearest
from spark_queue.expression.casts import together, widen
from spark_queue.expression.operators import modulo
from spark_queue.expression.steps import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    STRING,
    VOID,
    Build,
    Steps,
    Value,
    ValueKind,
    contains_element,
    element,
    invalid,
    literal_of,
    size,
    unsupported,
)


def coalesce(steps: Steps, node: exp.Expression, *arguments: Value) -> Value:
    """Build COALESCE: nothing after the first value that is not NULL is evaluated."""
    values = together(steps, node, *arguments)
    parts = ", ".join(f"{{{number}}}" for number in range(len(values)))
    sql = steps.add(f"coalesce({parts})", *[value.sql for value in values])
    return Value(kind=values[0].kind, sql=sql, fails=steps.until("IS NOT NULL", values))


def extreme(steps: Steps, node: exp.Expression, *arguments: Value, name: str) -> Value:
    """Build GREATEST or LEAST, which pass over NULL, and for which NaN is the greatest."""
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
        raise unsupported(node, "nullif combines two types.", "Write the CAST that you mean.")
    return Value(kind=one.kind, sql=sql, fails=steps.strict([one, other]))


def is_null(steps: Steps, _: exp.Expression, value: Value, *, sql: str) -> Value:
    """Build a question about NULL, which is never NULL itself."""
    return Value(kind=BOOLEAN, sql=steps.add(sql, value.sql), fails=value.fails)


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """One function."""

    #: How it is called, for people.
    usage: str
    arguments: range
    build: Build


def text(value: str) -> str:
    """Write a text as a constant."""
    quoted = "'" + value.replace("'", "''") + "'"
    # DuckDB reads no NUL in a query.
    return "(" + quoted.replace("\0", "' || chr(0) || '") + ")" if "\0" in value else quoted


def call(steps: Steps, node: exp.Expression, name: str, arguments: list[Value]) -> Value:
    """Apply the function of that name."""
    function = FUNCTIONS.get(name.lower())
    if function is None:
        raise _unknown(node, name.lower())
    if len(arguments) not in function.arguments:
        raise invalid(node, f"{name} is called with {len(arguments)} argument(s).", f"Call it as {function.usage}.")
    return function.build(steps, node, *arguments)


def _unknown(node: exp.Expression, name: str) -> Exception:
    for names, reason in _REFUSED.items():
        if name in names.split():
            return unsupported(node, f"{name}: {reason}", "`sparkq options` lists the functions that expressions may use.")
    return unsupported(
        node, f"results of {name} are not known to agree with Spark's.{nearest(name, FUNCTIONS)}",
        "`sparkq options` lists them.",
    )  # fmt: skip


#: Functions that are asked for most, and why they are not there.
_REFUSED = {
    "rand randn random uuid shuffle monotonically_increasing_id spark_partition_id input_file_name": (
        "it is not deterministic, and traits are computed again after every restart."
    ),
    "now current_timestamp current_date curdate localtimestamp current_timezone unix_timestamp current_user user": (
        "it depends on when or by whom it is evaluated, and traits are computed again after every restart."
    ),
    "count sum avg min max first last any some every collect_list collect_set approx_count_distinct stddev variance": (
        "it aggregates, and an expression sees one message."
    ),
    "row_number rank dense_rank lag lead ntile": "it is a window function, and an expression sees one message.",
    "explode inline posexplode stack": "it makes rows, and an expression sees one message.",
    "exp ln log log2 log10 log1p pow power sin cos tan asin acos atan cbrt": (
        "its last digit, and its limits, differ between mathematical libraries."
    ),
    "round bround": "doubles are rounded by their decimal text in Spark, and by their binary value elsewhere.",
    "date_format to_timestamp to_date from_unixtime date_add date_sub": "formats, zones or types of results differ from Spark's.",
    "hash xxhash64 md5 sha sha1 sha2 crc32": "it is not needed here: `order_key` hashes by itself.",
    "from_json json_tuple parse_json variant_get schema_of_json": "use get_json_object and a CAST.",
    "regexp_extract regexp_replace regexp_extract_all split": "Java's and RE2's groups may differ; `rlike` is accepted.",
}


def _simple(result: ValueKind, sql: str, *kinds: ValueKind, **more: Any) -> Build:
    """Build a function of fixed types that is NULL where an argument is; `more` as for `Steps.apply`."""

    def build(steps: Steps, node: exp.Expression, *arguments: Value) -> Value:
        for value, kind in zip(arguments, kinds, strict=True):
            if value.kind not in (kind, VOID):
                raise unsupported(node, f"a {kind} is expected where {value.kind} is given.", "Write the CAST that you mean.")
        return steps.apply(result, sql, *arguments, **more)

    return build


def _in_case(name: str) -> Build:
    # DuckDB changes letters one by one; Java and Python know that ß becomes SS, and the two forms of a small sigma.
    return _simple(STRING, f"CASE WHEN length({{0}}) = strlen({{0}}) THEN {name}({{0}}) ELSE unicode_{name}({{0}}) END", STRING)


def _instr(steps: Steps, node: exp.Expression, value: Value, part: Value) -> Value:
    _searched_for(part, node)
    return _simple(INT, "CAST(instr({0}, {1}) AS INTEGER)", STRING, STRING)(steps, node, value, part)


def _searched_for(value: Value, node: exp.Expression) -> str:
    found = literal_of(value, str, node, "what is searched for")
    if found == "":
        raise unsupported(node, "the search text is empty.", "Search for something.")
    return found


#: How many times as long as both of its texts a replacement may make them, where the text put in is no literal.
_REPLACED_MOST = 16


def _replace(steps: Steps, node: exp.Expression, value: Value, part: Value, by: Value) -> Value:
    size, growth = len(_searched_for(part, node).encode()), steps.growth_of(value.sql)
    if isinstance(by.literal, str):
        growth *= -(-max(size, len(by.literal.encode())) // size)
        return _simple(STRING, "replace({0}, {1}, {2})", STRING, STRING, STRING, growth=growth)(steps, node, value, part, by)
    growth = _REPLACED_MOST * (growth + steps.growth_of(by.sql))
    # Otherwise it would grow with the square of the message.
    count = f"((strlen({{0}}) - strlen(replace({{0}}, {{1}}, ''))) // {size})"
    fits = f"{count} * strlen({{2}}) <= {_REPLACED_MOST - 1} * (strlen({{0}}) + strlen({{2}}))"
    limited = f"CASE WHEN {fits} THEN replace({{0}}, {{1}}, {{2}}) END"
    return _simple(STRING, limited, STRING, STRING, STRING, growth=growth, may_fail=True)(steps, node, value, part, by)


def _date_part(steps: Steps, node: exp.Expression, value: Value, *, sql: str) -> Value:
    if value.kind.name not in ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ"):
        raise unsupported(node, f"a date or timestamp is expected, not {value.kind}.", "Write the CAST that you mean.")
    return steps.apply(INT, f"CAST({sql} AS INTEGER)", value)


def _is_nan(steps: Steps, node: exp.Expression, value: Value) -> Value:
    if not value.kind.is_fraction:
        raise unsupported(node, f"isnan of {value.kind}.", "Only DOUBLE and FLOAT know NaN.")
    return Value(kind=BOOLEAN, sql=steps.add("coalesce(isnan({0}), false)", value.sql), fails=value.fails)


def _substring(steps: Steps, node: exp.Expression, value: Value, begin: Value, count: Value | None = None) -> Value:
    start = literal_of(begin, int, node, "the start of a substring")
    length = 2**31 - 1 if count is None else literal_of(count, int, node, "the length of a substring")
    if start < 0 or length < 0:
        raise unsupported(
            node, "positions from the end, and negative lengths, differ.", "Use right(text, length), or count from 1."
        )
    sql = f"substring({{0}}, {max(start, 1)}, {length})"
    return _simple(STRING, sql, STRING)(steps, node, value)


def _end_of_text(steps: Steps, node: exp.Expression, value: Value, count: Value, *, name: str) -> Value:
    length = literal_of(count, int, node, "the length")
    return _simple(STRING, f"{name}({{0}}, {max(length, 0)})", STRING)(steps, node, value)


def concat(steps: Steps, node: exp.Expression, *arguments: Value) -> Value:
    """Join texts; NULL where one is."""
    if any(value.kind not in (STRING, VOID) for value in arguments):
        raise unsupported(node, "it joins values that are not text.", "Write the CAST to STRING that you mean.")
    parts = " || ".join(f"CAST({{{number}}} AS VARCHAR)" for number in range(len(arguments)))
    growth = sum(steps.growth_of(value.sql) for value in arguments)
    sql = steps.add(f"({parts})", *[value.sql for value in arguments], growth=growth)
    # Spark evaluates every part, also after a NULL.
    return Value(kind=STRING, sql=sql, fails=steps.any(*[value.fails for value in arguments]))


#: A path whose meaning is the same everywhere: names, also with blanks inside, and numbers of elements. Spark passes over blanks
#: before a name, in quotes too.
_PATH = re.compile(r"\$(?:\.[A-Za-z_][A-Za-z0-9_]*(?: +[A-Za-z0-9_]+)*|\[[0-9]{1,9}\]|\['(?!\s)[^'\"\\\[\].*?]+'\])+")


def _json(steps: Steps, node: exp.Expression, value: Value, written: Value) -> Value:
    path = literal_of(written, str, node, "the path")
    if _PATH.fullmatch(path) is None:
        raise unsupported(node, f"the path '{path}' may mean something else here.", "Use names and numbers: $.a.b[0]['c d'].")
    path = re.sub(r"\['([^']+)'\]", r'."\1"', re.sub(r"\.(\w+(?: +\w+)+)", r'."\1"', path))
    # Text that is no JSON is NULL in Spark, and an error in DuckDB.
    return _simple(STRING, f"TRY(json_extract_string({{0}}, {text(path)}))", STRING)(steps, node, value)


def _absolute(steps: Steps, node: exp.Expression, value: Value) -> Value:
    if not value.kind.is_number:
        raise unsupported(node, f"abs of {value.kind}.", "Write the CAST that you mean.")
    return steps.apply(value.kind, "TRY(abs({0}))", value, may_fail=value.kind.is_integer)


def _whole(steps: Steps, node: exp.Expression, value: Value, *, name: str) -> Value:
    if value.kind.is_integer:
        return steps.apply(BIGINT, "CAST({0} AS BIGINT)", value)
    if not value.kind.is_fraction:
        raise unsupported(node, f"{name} of {value.kind} has another type in Spark.", "Cast to DOUBLE, or to BIGINT.")
    # A conversion of Java: NaN is 0, and a number that is too large is the largest.
    limited = (
        f"CASE WHEN isnan({{0}}) THEN 0 WHEN {{0}} >= 9223372036854775808::DOUBLE THEN 9223372036854775807 "
        f"WHEN {{0}} <= -9223372036854775808::DOUBLE THEN (-9223372036854775808)::BIGINT "
        f"ELSE TRY_CAST({name}({{0}}) AS BIGINT) END"
    )
    return steps.apply(BIGINT, limited, value)


def _root(steps: Steps, node: exp.Expression, value: Value) -> Value:
    if not value.kind.is_number:
        raise unsupported(node, f"sqrt of {value.kind}.", "Write the CAST that you mean.")
    value = widen(steps, value, DOUBLE)
    return steps.apply(DOUBLE, "CASE WHEN {0} < 0 THEN 'NaN'::DOUBLE ELSE sqrt({0}) END", value)


#: Most arguments of a function of any number of arguments.
_MOST = 100


def _function(usage: str, build: Build, **given: object) -> tuple[str, Function]:
    name, _, inside = usage.partition("(")
    count = inside.count(",") + 1
    arguments = range(count - 1, _MOST + 1) if "..." in inside else range(count - inside.count("["), count + 1)
    return name, Function(usage=usage, arguments=arguments, build=partial(build, **given))


FUNCTIONS: dict[str, Function] = dict((
    _function("get_json_object(json, '$.path')", _json),
    _function("coalesce(value, ...)", coalesce),
    _function("nvl(value, other)", coalesce),
    _function("ifnull(value, other)", coalesce),
    _function("nullif(value, other)", nullif),
    _function("if(condition, value, other)", when),
    _function("isnull(value)", is_null, sql="{0} IS NULL"),
    _function("isnotnull(value)", is_null, sql="{0} IS NOT NULL"),
    _function("isnan(number)", _is_nan),
    _function("greatest(value, value, ...)", extreme, name="greatest"),
    _function("least(value, value, ...)", extreme, name="least"),
    _function("abs(number)", _absolute),
    _function("floor(number)", _whole, name="floor"),
    _function("ceil(number)", _whole, name="ceil"),
    _function("ceiling(number)", _whole, name="ceil"),
    _function("sqrt(number)", _root),
    _function("mod(number, number)", modulo),
    _function("length(text)", _simple(INT, "CAST(length({0}) AS INTEGER)", STRING)),
    _function("char_length(text)", _simple(INT, "CAST(length({0}) AS INTEGER)", STRING)),
    _function("lower(text)", _in_case("lower")),
    _function("upper(text)", _in_case("upper")),
    _function("trim(text)", _simple(STRING, "trim({0}, ' ')", STRING)),
    _function("ltrim(text)", _simple(STRING, "ltrim({0}, ' ')", STRING)),
    _function("rtrim(text)", _simple(STRING, "rtrim({0}, ' ')", STRING)),
    _function("concat(text, ...)", concat),
    _function("substring(text, start[, length])", _substring),
    _function("substr(text, start[, length])", _substring),
    _function("left(text, length)", _end_of_text, name="left"),
    _function("right(text, length)", _end_of_text, name="right"),
    _function("startswith(text, start)", _simple(BOOLEAN, "starts_with({0}, {1})", STRING, STRING)),
    _function("endswith(text, end)", _simple(BOOLEAN, "ends_with({0}, {1})", STRING, STRING)),
    _function("contains(text, part)", _simple(BOOLEAN, "contains({0}, {1})", STRING, STRING)),
    _function("instr(text, 'part')", _instr),
    _function("replace(text, 'part', 'by')", _replace),
    _function("year(date)", _date_part, sql="year({0})"),
    _function("month(date)", _date_part, sql="month({0})"),
    _function("day(date)", _date_part, sql="day({0})"),
    _function("dayofmonth(date)", _date_part, sql="day({0})"),
    _function("dayofweek(date)", _date_part, sql="dayofweek({0}) + 1"),
    _function("hour(timestamp)", _date_part, sql="hour(CAST({0} AS TIMESTAMP))"),
    _function("minute(timestamp)", _date_part, sql="minute(CAST({0} AS TIMESTAMP))"),
    _function("second(timestamp)", _date_part, sql="second(CAST({0} AS TIMESTAMP))"),
    _function("datediff(end, start)", _simple(INT, "CAST({0} - {1} AS INTEGER)", DATE, DATE)),
    _function("size(array)", size),
    _function("array_contains(array, value)", contains_element),
    _function("element_at(array, number)", element, one_based=True),
))  # fmt: skip


def accepted() -> dict[str, str]:
    """List the words that expressions may use, by part of speech: for ``sparkq options`` and the reference."""
    return {
        "columns": "the message type's own, topic, publisher, sequence, published_at; column.field, array[number], map['key']",
        "literals": "1, 1L, 1.5 (decimal), 1e3 and 1.5D (double), 'text', r'text', true, NULL, DATE '2024-01-31', "
        "TIMESTAMP '2024-01-31 12:00:00'",
        "operators": "= == <> != < <= > >= <=> AND OR NOT ! + - * / % div ||",
        "conditions": "IS [NOT] NULL, IS [NOT] TRUE or FALSE, IS [NOT] DISTINCT FROM, [NOT] BETWEEN, [NOT] IN (literals), "
        "[NOT] LIKE 'pattern', [NOT] RLIKE 'pattern', CASE",
        "casts": "CAST, TRY_CAST and :: between numbers, from text to numbers, BOOLEAN and DATE, from whole numbers, decimals and "
        "booleans to STRING, between DATE and TIMESTAMP, from TIMESTAMP to BIGINT",
        "functions": ", ".join(function.usage for function in FUNCTIONS.values()),
    }
