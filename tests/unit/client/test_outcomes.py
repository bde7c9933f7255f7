"""What users hand to `Queue.settle`, in every form, and what is refused (DESIGN 15.1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from spark_queue.client.outcome_table import outcome_columns
from spark_queue.client.outcomes import to_outcomes
from spark_queue.core.commands import OutcomeRows
from spark_queue.errors import CallerError, ConfigError


def test_rows_are_settled_by_the_leases_that_they_name() -> None:
    """A frame in which some rows have no lease holds floats."""
    rows = pd.DataFrame({"bookmark": [1, 2, 3], "lease": [5, None, 5]})
    found = list(to_outcomes("Q", rows, "acknowledge"))
    assert found == [
        OutcomeRows(outcome="acknowledge", ranges=((1, 2), (3, 4)), lease=5),
        OutcomeRows(outcome="acknowledge", ranges=((2, 3),), lease=None),
    ]
    assert [type(said.lease) for said in found] == [int, type(None)]


@pytest.mark.parametrize(
    "rows",
    [
        "abc",
        5,
        None,
        [{"bookmark": 1}, {"bookmark": "x"}],
        [1, "x"],
        [2**70],
        pd.DataFrame({"bookmark": [1, "x"]}),
        [{"bookmark": 1, "lease": 1.5}],
    ],
)
def test_rows_that_cannot_be_read_are_refused_by_name(rows: Any) -> None:
    with pytest.raises(CallerError, match=r"OUTCOME_INVALID.*Nothing was settled"):
        list(to_outcomes("Q", rows, "acknowledge"))


@pytest.mark.parametrize("form", [list, pd.DataFrame, pa.Table.from_pylist])
def test_rows_take_retry_after_as_a_key_does(form: Callable[[list[dict[str, Any]]], Any]) -> None:
    rows = form([{"bookmark": 1, "retry_after": "5m"}, {"bookmark": 2, "retry_after": None}])
    assert {said.retry_after_ms for said in to_outcomes("Q", rows, "cancel")} == {300_000, None}


@pytest.mark.parametrize("form", [list, pd.DataFrame, pa.Table.from_pylist])
def test_names_of_columns_are_told_in_any_case(form: Callable[[list[dict[str, Any]]], Any]) -> None:
    rows = form([{"Bookmark": 1, "OUTCOME": "expire", "Lease": 3}])
    assert list(to_outcomes("Q", rows, "acknowledge")) == [OutcomeRows(outcome="expire", ranges=((1, 2),), lease=3)]
    with pytest.raises(CallerError, match=r"OUTCOME_INVALID.*column 'outcome' twice; names are case-insensitive"):
        list(to_outcomes("Q", form([{"bookmark": 1, "outcome": "expire", "Outcome": "cancel"}]), "acknowledge"))


def test_dicts_may_each_spell_a_column_in_a_way_of_their_own() -> None:
    [said] = to_outcomes("Q", [{"bookmark": 1}, {"Bookmark": 2, "body": object()}], "acknowledge")
    assert said.ranges == ((1, 3),)


def test_a_pandas_frame_may_hold_further_columns_that_no_table_takes() -> None:
    rows = pd.DataFrame({"bookmark": [1, 2], "body": [object(), "x"]})
    assert [said.ranges for said in to_outcomes("Q", rows, "acknowledge")] == [((1, 3),)]


@pytest.mark.parametrize("form", [list, pd.DataFrame, pa.Table.from_pylist])
@pytest.mark.parametrize(
    ("name", "meant"),
    [("outcom", "outcome"), ("outcomes", "outcome"), ("retryAfter", "retry_after"), ("errors", "error"), ("leased", "lease")],
)
def test_a_misspelt_column_is_refused(form: Callable[[list[dict[str, Any]]], Any], name: str, meant: str) -> None:
    """Else the rows would be acknowledged, or lose what was said of them, in silence."""
    with pytest.raises(CallerError, match=rf"OUTCOME_INVALID.*'{name}'\. Did you mean '{meant}'\? Nothing was settled"):
        list(to_outcomes("Q", form([{"bookmark": 4, name: "expire"}]), "acknowledge"))


def test_further_columns_of_the_rows_may_come_along() -> None:
    """As in rows of a view, which have a lease, and so nothing that is misspelt."""
    rows = [{"bookmark": 4, "lease": 5, "leased_until": None, "leases": 1, "order": "x", "delivery_count": 1, "retries": 2}]
    assert list(to_outcomes("Q", rows, "expire")) == [OutcomeRows(outcome="expire", ranges=((4, 5),), lease=5)]


def test_an_error_is_for_rows_that_name_none_and_are_not_acknowledged() -> None:
    """R57: a dead letter keeps it."""
    (said,) = to_outcomes("Q", [1, 2], "expire", error="no price")
    assert (said.outcome, said.ranges, said.error) == ("expire", ((1, 3),), "no price")
    (said,) = to_outcomes("Q", [{"bookmark": 1, "error": "own"}], "expire", error="no price")
    assert said.error == "own"
    for rows, outcome in (([1], "acknowledge"), ([{"bookmark": 1, "outcome": "acknowledge"}], "expire")):
        with pytest.raises(CallerError, match=r"OUTCOME_INVALID.*an error has a meaning with 'cancel' and 'expire' only"):
            list(to_outcomes("Q", rows, outcome, error="no price"))
    not_text: Any = ValueError("no price")
    with pytest.raises(ConfigError, match=r"BAD_VALUE.*'error' in settle is ValueError.*must be a text"):
        list(to_outcomes("Q", [1], "expire", error=not_text))


def test_rows_may_differ_in_their_columns() -> None:
    rows = [{"bookmark": 1}, {"bookmark": 2, "outcome": "expire"}]
    with pytest.raises(CallerError, match=r"OUTCOME_INVALID"):
        list(to_outcomes("Q", rows, "acknowledge"))


ERRANDS = "errand STRING, outcome STRING, error STRING, retry_after STRING"


@pytest.mark.parametrize("form", [list, pd.DataFrame, pa.Table.from_pylist])
@pytest.mark.parametrize("name", ["outcome", "error", "retry_after"])
def test_what_a_message_says_is_not_taken_for_its_outcome(form: Callable[[list[dict[str, Any]]], Any], name: str) -> None:
    rows = form([{"bookmark": 4, "errand": "milk", name: "expire"}])
    with pytest.raises(CallerError, match=rf"OUTCOME_INVALID.*column '{name}' is also a column of the messages"):
        list(to_outcomes("Q", rows, "cancel", columns=lambda: ERRANDS))
    rows = form([{"bookmark": 4, "outcome": "expire", "error": "late", "lease": 1}])
    assert list(to_outcomes("Q", rows, "cancel", columns=lambda: ERRANDS)) == [
        OutcomeRows(outcome="expire", ranges=((4, 5),), error="late", lease=1)
    ]
    # Of a type without such columns there is nothing to mistake.
    rows = form([{"bookmark": 4, "errand": "milk", "error": "late"}])
    [said] = to_outcomes("Q", rows, "expire", columns=lambda: "errand STRING")
    assert said.error == "late"


def test_rows_of_a_view_have_columns_of_messages_by_other_names() -> None:
    rows = [{"bookmark": 4, "errand": "milk", "message_error": "own", "error": "late"}]
    [said] = to_outcomes("Q", rows, "expire", columns=lambda: ERRANDS)
    assert said.error == "late"


def test_a_batch_function_that_returns_its_rows_says_no_outcome() -> None:
    batch = ["errand", "outcome", "bookmark", "lease"]
    with pytest.raises(CallerError, match=r"OUTCOME_INVALID.*column 'outcome' is also a column of the messages.*Select"):
        outcome_columns("Q", batch, batch)
    assert outcome_columns("Q", ["bookmark", "Outcome"], batch) == {"bookmark": "bookmark", "Outcome": "outcome"}
