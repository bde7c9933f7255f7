"""What expressions may use, for people: ``sparkq options`` and the reference."""

from __future__ import annotations

from spark_queue.expression.functions import FUNCTIONS


def accepted() -> dict[str, str]:
    """List what expressions may use, by part of speech."""
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
