"""The expression layer against real Spark: values, NULLs and failures, row by row."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from spark_queue.expression import Wanted, translate
from spark_queue.expression.purposes import PURPOSES
from tests.acceptance.expression_table import AGREED, COLUMNS, SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Stands for what Spark raises.
FAILED = "failed"

#: Expressions that are evaluated for all rows at once where nothing fails, so that Spark is not asked once per row and expression.
TABLE = pa.table(COLUMNS, schema=SCHEMA)


def plain(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if hasattr(value, "tzinfo"):
        return value.replace(tzinfo=None)
    return value


def by_layer(text: str, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    monkeypatch.setitem(PURPOSES, "value", lambda steps, value: value.sql)
    given = translate.__wrapped__((Wanted(text, "value"),), SCHEMA)._run(TABLE)
    values, failed = given.column("v0").to_pylist(), given.column("f0").to_pylist()
    return [FAILED if fails else plain(value) for value, fails in zip(values, failed, strict=True)]


def by_spark(spark: SparkSession, texts: list[str]) -> Mapping[str, list[Any]]:
    """Evaluate row by row only where Spark raises for the whole table."""
    rows = spark.createDataFrame(TABLE).coalesce(1).cache()
    frames = [spark.createDataFrame(TABLE.slice(number, 1)).coalesce(1).cache() for number in range(len(TABLE))]
    found: dict[str, list[Any]] = {}

    def evaluate(frame: Any, wanted: list[str]) -> list[list[Any]] | None:
        try:
            given = frame.selectExpr(*[f"({text}) AS v{number}" for number, text in enumerate(wanted)]).toArrow()
            return [[plain(value) for value in column.to_pylist()] for column in given.columns]
        except Exception:  # noqa: BLE001 - whatever Spark raises is a failure here
            return None

    for start in range(0, len(texts), 20):
        part = texts[start : start + 20]
        together = evaluate(rows, part)
        for number, text in enumerate(part):
            alone = None if together is not None else evaluate(rows, [text])
            if together is not None:
                found[text] = together[number]
            elif alone is not None:
                found[text] = alone[0]
            else:
                each = [evaluate(frame, [text]) for frame in frames]
                found[text] = [FAILED if row is None else row[0][0] for row in each]
    return found


@pytest.fixture(scope="module")
def answers(spark: SparkSession) -> Mapping[str, list[Any]]:
    assert spark.conf.get("spark.sql.ansi.enabled") == "true"
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    return by_spark(spark, AGREED)


def test_at_least_a_hundred_expressions_are_compared() -> None:
    assert len(set(AGREED)) == len(AGREED) > 200


@pytest.mark.spark
@pytest.mark.parametrize("text", AGREED)
def test_values_nulls_and_failures_are_those_of_spark(text: str, answers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert by_layer(text, monkeypatch) == answers[text]
