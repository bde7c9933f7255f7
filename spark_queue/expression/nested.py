"""Functions of arrays and maps."""

from __future__ import annotations

from sqlglot import exp

from spark_queue.expression.kinds import BIGINT, BOOLEAN, INT, VOID, common
from spark_queue.expression.steps import Steps, Value
from spark_queue.expression.syntax import unsupported


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
    """Take an element of an array, where one out of range fails, or of a map, where a missing key is NULL.

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
