"""Columns of messages in hand."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from spark_queue.receiver.bodies import BodyRows

#: The first day of the year 10001, which Python has no date for.
FAR_DAYS = 2_933_264


@pytest.mark.parametrize(
    ("column", "good"),
    [
        (pa.array([0, FAR_DAYS, None], pa.int32()).cast(pa.date32()), "1970-01-01"),
        (pa.array([0, FAR_DAYS * 86_400_000_000, None], pa.int64()).cast(pa.timestamp("us", "UTC")), "1970-01-01 00:00:00+00:00"),
        (pa.array([b"fine", b"a\xff", None], pa.binary()).view(pa.string()), "fine"),
    ],
    ids=["date", "timestamp", "text"],
)
def test_a_value_that_python_does_not_have_fails_its_own_message_alone(column: Any, good: str) -> None:
    rows = BodyRows(pa.table({"odd": column, "id": [1, 2, 3]}), ["odd", "id"], "order")
    assert (str(rows.value("odd", 0)), rows.value("odd", 2)) == (good, None)
    with pytest.raises((ValueError, OverflowError), match="range|decode"):
        rows.value("odd", 1)
    assert [rows.value("id", row) for row in range(3)] == [1, 2, 3]
