"""The expression layer against real Spark: values, NULLs and failures, row by row."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from spark_queue.expression import Wanted
from spark_queue.expression.program import PURPOSES, Program
from tests.acceptance.expression_table import AGREED, COLUMNS, SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Stands for what Spark raises.
FAILED = "failed"

#: From Spark 4.3 on these fail where the result is no BIGINT; before, and here, it is the nearest one.
FAIL_BEYOND_BIGINT = frozenset({"floor(x)", "ceil(x)", "ceiling(x)"})

#: Expressions of one Spark job; it is compiled into one method, whose size Java limits.
TOGETHER = 40

TABLE = pa.table(COLUMNS, schema=SCHEMA)


def plain(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if hasattr(value, "tzinfo"):
        return value.replace(tzinfo=None)
    return value


def by_layer(texts: list[str], monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Any]]:
    monkeypatch.setitem(PURPOSES, "value", lambda steps, value: value.sql)
    found: dict[str, list[Any]] = {}
    for text in texts:
        given = Program((Wanted(text, "value"),), SCHEMA)._run(TABLE)
        values, failed = given.column("v0").to_pylist(), given.column("f0").to_pylist()
        found[text] = [FAILED if fails else plain(value) for value, fails in zip(values, failed, strict=True)]
    return found


class RealSpark:
    """Evaluates expressions by the row: many in one job where nothing fails, and alone what does."""

    def __init__(self, spark: SparkSession) -> None:
        self._rows = spark.createDataFrame(TABLE.append_column("row", pa.array(range(len(TABLE))))).coalesce(1).cache()
        # Spark's optimizer evaluates what is selected of a local row by itself: no job, and no code is compiled.
        self._each = [spark.createDataFrame(TABLE.slice(number, 1)) for number in range(len(TABLE))]

    def evaluate(self, expected: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
        """Evaluate expressions; what is `expected` saves looking for the rows that fail, and decides nothing."""
        selected = [self._where_it_works(text, values) for text, values in expected.items()]
        try:
            given = self._rows.selectExpr(*selected).toArrow()
        except Exception:  # noqa: BLE001 - whatever Spark raises is a failure here
            if len(expected) == 1:
                return {text: [self._alone(text, row) for row in range(len(TABLE))] for text in expected}
            half = len(expected) // 2
            parts = [dict(list(expected.items())[part]) for part in (slice(half), slice(half, None))]
            return {text: values for part in parts for text, values in self.evaluate(part).items()}
        return {
            text: [
                self._alone(text, row) if value is FAILED else plain(found)
                for row, (value, found) in enumerate(zip(values, column.to_pylist(), strict=True))
            ]
            for (text, values), column in zip(expected.items(), given.columns, strict=True)
        }

    def _where_it_works(self, text: str, values: list[Any]) -> str:
        failing = ", ".join(str(row) for row, value in enumerate(values) if value is FAILED)
        return f"CASE WHEN row NOT IN ({failing}) THEN ({text}) END" if failing else f"({text})"

    def _alone(self, text: str, row: int) -> Any:
        try:
            return plain(self._each[row].selectExpr(f"({text}) AS v").collect()[0][0])
        except Exception:  # noqa: BLE001 - whatever Spark raises is a failure here
            return FAILED


@pytest.fixture(scope="module")
def texts(request: pytest.FixtureRequest) -> list[str]:
    """Return the expressions of this run."""
    compared = [item for item in request.session.items if isinstance(item, pytest.Function) and "answers" in item.fixturenames]
    return [str(item.callspec.params["text"]) for item in compared]


@pytest.fixture(scope="module")
def layer(texts: list[str]) -> Mapping[str, list[Any]]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        return by_layer(texts, monkeypatch)


@pytest.fixture(scope="module")
def answers(spark: SparkSession, texts: list[str], layer: Mapping[str, list[Any]]) -> Mapping[str, list[Any]]:
    assert spark.conf.get("spark.sql.ansi.enabled") == "true"
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    real = RealSpark(spark)
    found: dict[str, list[Any]] = {}
    for start in range(0, len(texts), TOGETHER):
        found |= real.evaluate({text: layer[text] for text in texts[start : start + TOGETHER]})
    return found


def test_at_least_a_hundred_expressions_are_compared() -> None:
    assert len(set(AGREED)) == len(AGREED) > 200


@pytest.mark.spark
@pytest.mark.drawn(80)
@pytest.mark.parametrize("text", AGREED)
def test_values_nulls_and_failures_are_those_of_spark(spark: SparkSession, text: str, layer: Any, answers: Any) -> None:
    pairs = list(zip(layer[text], answers[text], strict=True))
    if text in FAIL_BEYOND_BIGINT and not spark.version.startswith(("4.0", "4.1", "4.2")):
        assert FAILED in answers[text], "nothing is to be left out any more"
        pairs = [(ours, theirs) for ours, theirs in pairs if theirs != FAILED]
    assert [ours for ours, _ in pairs] == [theirs for _, theirs in pairs]
