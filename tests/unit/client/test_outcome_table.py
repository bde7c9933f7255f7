"""What a batch function may say of its rows (DESIGN 7, foreachBatch)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from spark_queue.client.outcome_table import outcome_columns, read_outcomes
from spark_queue.core.commands import OutcomeRows
from spark_queue.errors import CallerError

BATCH = ["InvoiceNo", "bookmark", "topic"]


def said(**columns: Any) -> set[OutcomeRows]:
    return set(read_outcomes("ORDER_WORK", pa.table(columns)))


def test_outcomes_become_ranges_by_what_is_said() -> None:
    got = said(
        bookmark=[7, 3, 4, 5, 9, 8],
        outcome=["expire", "cancel", "cancel", "cancel", "expire", "expire"],
        error=["no price", None, None, None, "no price", "no customer"],
    )
    assert got == {
        OutcomeRows(outcome="cancel", ranges=((3, 6),)),
        OutcomeRows(outcome="expire", ranges=((7, 8), (9, 10)), error="no price"),
        OutcomeRows(outcome="expire", ranges=((8, 9),), error="no customer"),
    }


@pytest.mark.parametrize(
    "retry_after",
    [
        pa.array([timedelta(seconds=1.5), None], pa.duration("us")),
        pa.array([1.5, None], pa.float64()),
        pa.array([pa.scalar("1.500").cast(pa.decimal128(5, 3)).as_py(), None], pa.decimal128(5, 3)),
        pa.array(["1.5s", None]),
        pa.array(["1500ms", None], pa.large_string()),
        pa.array(["1.5s", None]).dictionary_encode(),
    ],
    ids=["interval", "seconds", "decimal seconds", "text", "large text", "category"],
)
def test_retry_after_is_an_interval_or_seconds_or_text_as_keys_take_it(retry_after: Any) -> None:
    """DESIGN 15.13."""
    got = said(bookmark=[1, 2], outcome=["cancel", "cancel"], retry_after=retry_after)
    assert got == {
        OutcomeRows(outcome="cancel", ranges=((1, 2),), retry_after_ms=1_500),
        OutcomeRows(outcome="cancel", ranges=((2, 3),)),
    }


def test_a_row_said_twice_in_the_same_words_counts_once() -> None:
    assert said(bookmark=[1, 1], outcome=["expire", "expire"]) == {OutcomeRows(outcome="expire", ranges=((1, 2),))}


def test_nothing_said_is_no_outcome() -> None:
    assert said(bookmark=pa.array([], pa.int64()), outcome=pa.array([], pa.string())) == set()


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"bookmark": [1, 1], "outcome": ["expire", "cancel"]}, "bookmark 1 has two outcomes"),
        ({"bookmark": [1, 1], "outcome": ["expire", "expire"], "error": ["a", "b"]}, "bookmark 1 has two outcomes"),
        ({"bookmark": [1], "outcome": ["acknowlege"]}, "'acknowlege' is no outcome. Did you mean 'acknowledge'"),
        ({"bookmark": [1, 2], "outcome": ["expire", None]}, r"column 'outcome' has 1 NULL"),
        ({"bookmark": [1, None], "outcome": ["expire", "expire"]}, r"column 'bookmark' has 1 NULL"),
        ({"bookmark": ["x"], "outcome": ["expire"]}, "column 'bookmark' is STRING"),
        ({"bookmark": [1], "outcome": ["expire"], "retry_after": [1.0]}, "retry_after has a meaning with 'cancel' only"),
        ({"bookmark": [1], "outcome": ["cancel"], "retry_after": [-1.0]}, "retry_after is negative"),
        ({"bookmark": [1], "outcome": ["cancel"], "retry_after": [4e9]}, "retry_after is longer than a century"),
        (
            {"bookmark": [1], "outcome": ["cancel"], "retry_after": ["soon"]},
            "retry_after is 'soon', but it must be a duration with",
        ),
        ({"bookmark": [1], "outcome": ["cancel"], "retry_after": ["30"]}, "retry_after is '30', but it must be a duration with"),
        ({"bookmark": [1], "outcome": ["cancel"], "retry_after": [True]}, "column 'retry_after' is bool"),
        ({"bookmark": [1], "outcome": ["cancel"], "retry_after": [float("nan")]}, "retry_after is no number of seconds"),
        ({"bookmark": [1], "outcome": ["cancel"], "retry_after": [1e300]}, "retry_after is no number of seconds"),
        (
            {"bookmark": [1], "outcome": ["cancel"], "retry_after": pa.array([2**62], pa.duration("s"))},
            "retry_after is too long",
        ),
    ],
)
def test_misspoken_outcomes_are_refused_by_name(columns: dict[str, Any], reason: str) -> None:
    with pytest.raises(CallerError, match=f"OUTCOME_INVALID.*ORDER_WORK.*{reason}.*Nothing was settled"):
        said(**columns)


def test_columns_of_the_batch_may_come_along_unused() -> None:
    columns = outcome_columns("q", ["InvoiceNo", "Outcome", "bookmark", "error"], BATCH)
    assert columns == {"Outcome": "outcome", "bookmark": "bookmark", "error": "error"}


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (["bookmark"], "no column 'outcome'"),
        (["outcome", "error"], "no column 'bookmark'"),
        (["bookmark", "outcome", "Bookmark"], "column 'bookmark' twice; names are case-insensitive"),
        (["bookmark", "outcome", "retry_aftr"], "column 'retry_aftr' has no meaning here. Did you mean 'retry_after'"),
    ],
)
def test_missing_and_meaningless_columns_are_refused_by_name(found: list[str], reason: str) -> None:
    with pytest.raises(CallerError, match=f"OUTCOME_INVALID.*{reason}"):
        outcome_columns("q", found, BATCH)
