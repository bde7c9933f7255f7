"""What users hand to `Queue.settle`, in every form, and what is refused (DESIGN 15.1)."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from spark_queue.coordinator.wire import HandOutcome
from spark_queue.errors import CallerError
from spark_queue.outcomes import to_outcomes


def test_rows_are_settled_by_the_leases_that_they_name() -> None:
    """A frame in which some rows have no lease holds floats."""
    rows = pd.DataFrame({"bookmark": [1, 2, 3], "lease": [5, None, 5]})
    found = list(to_outcomes("Q", rows, "acknowledge"))
    assert found == [
        HandOutcome(outcome="acknowledge", ranges=((1, 2), (3, 4)), lease=5),
        HandOutcome(outcome="acknowledge", ranges=((2, 3),), lease=None),
    ]
    assert [type(said.lease) for said in found] == [int, type(None)]


@pytest.mark.parametrize(
    "rows", ["abc", 5, None, [{"bookmark": 1}, {"bookmark": "x"}], [1, "x"], [2**70], [{"bookmark": 1, "lease": 1.5}]]
)
def test_rows_that_cannot_be_read_are_refused_by_name(rows: Any) -> None:
    with pytest.raises(CallerError, match=r"OUTCOME_INVALID.*Nothing was settled"):
        list(to_outcomes("Q", rows, "acknowledge"))
