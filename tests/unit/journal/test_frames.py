"""Frames of pandas: a name of the index is a column like the others, and what is missing is told from what is no number."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest

from spark_queue.core.definitions import parsing
from spark_queue.errors import CallerError
from spark_queue.journal.rows import to_arrow

DEFINITIONS = parsing.parse(
    {"message_types": {"sale": {"columns": "shop STRING, item STRING, amount BIGINT, price DECIMAL(8,2)", "topics": ["SALES"]}}}
)
SALES = pd.DataFrame({"shop": ["a", "a", "b"], "item": ["x", "y", "x"], "amount": [1, 2, 3]})


def published(frame: Any, topic: str | None = "SALES") -> list[dict[str, Any]]:
    return to_arrow(frame, DEFINITIONS, topic=topic)[1].to_pylist()


def refusal(frame: Any) -> CallerError:
    with pytest.raises(CallerError) as refused:
        published(frame)
    return refused.value


def test_names_of_the_index_are_columns() -> None:
    assert published(SALES.groupby("shop")[["amount"]].max()) == [{"shop": "a", "amount": 2}, {"shop": "b", "amount": 3}]
    both = published(SALES.groupby(["shop", "item"]).max())
    assert both == [{"shop": shop, "item": item, "amount": n} for shop, item, n in (("a", "x", 1), ("a", "y", 2), ("b", "x", 3))]
    by_category = SALES.astype({"shop": "category"}).groupby("shop", observed=True)[["amount"]].sum()
    assert published(by_category) == [{"shop": "a", "amount": 3}, {"shop": "b", "amount": 3}]


def test_a_frame_of_a_class_of_ones_own_is_one_of_pandas() -> None:
    """As a table of Arrow its objects would be guessed at: times would lose what no microsecond tells."""

    class Orders(pd.DataFrame):
        pass

    index = pd.RangeIndex(5, 7, name="amount")
    assert published(Orders({"shop": ["a", "b"]}, index=index)) == [{"shop": "a", "amount": 5}, {"shop": "b", "amount": 6}]
    nanoseconds = pd.Series([pd.Timestamp("2024-01-01T00:00:00.000000001Z")], dtype=object)
    assert "has nanoseconds" in str(refusal(Orders({"expires_at": nanoseconds})))


def test_topic_may_be_the_index() -> None:
    frame = SALES.assign(topic="SALES").set_index("topic")
    assert published(frame, topic=None)[0] == {"topic": "SALES", "shop": "a", "item": "x", "amount": 1}


def test_index_without_a_name_is_none_of_the_columns() -> None:
    assert published(SALES[1:]) == published(SALES)[1:]


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (SALES.rename_axis("day"), "UNKNOWN_COLUMN"),
        (SALES.rename_axis("Shop"), "COLUMN_TWICE"),
        (SALES.groupby(["shop", np.array([1, 1, 2])])[["amount"]].max(), "UNKNOWN_COLUMN"),
    ],
)
def test_index_that_is_no_column_is_refused_with_a_way_out(frame: Any, code: str) -> None:
    refused = refusal(frame)
    assert refused.code == code
    assert "reset_index(drop=True)" in refused.__notes__[0]
    assert published(frame.reset_index(drop=True))


def test_number_that_signals_that_it_is_none_is_refused() -> None:
    """Pandas asks whether a value is itself, which such a Decimal refuses to tell."""
    refused = refusal(pd.DataFrame({"price": [Decimal("1.50"), Decimal("sNaN")]}))
    assert (refused.code, refused.facts["row"]) == ("COLUMN_TYPE_MISMATCH", 1)
    assert published(pd.DataFrame({"price": [Decimal("1.50"), Decimal("NaN")]}))[1]["price"] is None


@pytest.mark.parametrize("edge", [pd.Timestamp.min, pd.Timestamp.max])
@pytest.mark.parametrize("zone", [None, "UTC", "Asia/Tokyo"])
@pytest.mark.parametrize("as_frame", [False, True])
def test_first_and_last_time_of_pandas_are_refused_for_their_nanoseconds(edge: Any, zone: str | None, as_frame: bool) -> None:
    definitions = parsing.parse({"message_types": {"t": {"columns": "at TIMESTAMP, wall TIMESTAMP_NTZ", "topics": ["T"]}}})
    row = {"wall" if zone is None else "at": edge.tz_localize("UTC").tz_convert(zone) if zone == "UTC" else edge}
    with pytest.raises(CallerError, match="COLUMN_TYPE_MISMATCH"):
        to_arrow(pd.DataFrame([row]) if as_frame else [row], definitions, topic="T")
