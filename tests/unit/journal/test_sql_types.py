"""Types in errors have the names by which users declare them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from spark_queue.journal.conversion import sentence
from spark_queue.journal.schema import user_schema
from spark_queue.journal.sql_types import ATOMIC, INSTANT, sql_type


@pytest.mark.parametrize("name", ATOMIC)
def test_each_type_that_can_be_declared_is_said_as_it_is_declared(name: str) -> None:
    """Also in arrays, maps and structs; of two names of one type the first one is said."""
    declared = f"ARRAY<STRUCT<a: {name}, b: MAP<STRING, {name}>, c: DECIMAL(9,2)>>"
    kind = user_schema(f"x {declared}").field("x").type
    said = sql_type(kind)
    assert user_schema(f"x {said}").field("x").type == kind
    assert sql_type(ATOMIC[name]) == next(first for first, each in ATOMIC.items() if each == ATOMIC[name])


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (INSTANT, "TIMESTAMP"), (pa.timestamp("ns", "Europe/Berlin"), "TIMESTAMP"), (pa.timestamp("s"), "TIMESTAMP_NTZ"),
        (pa.large_string(), "STRING"), (pa.string_view(), "STRING"), (pa.dictionary(pa.int8(), pa.string()), "STRING"),
        (pa.date64(), "DATE"), (pa.large_list(pa.int16()), "ARRAY<SMALLINT>"), (pa.decimal32(5, 2), "DECIMAL(5,2)"),
        (pa.null(), "NULL"), (pa.uint64(), "uint64"), (pa.duration("us"), "duration[us]"),
    ],
)  # fmt: skip
def test_a_type_of_the_same_values_has_the_same_name_and_any_other_its_own(kind: Any, said: str) -> None:
    assert sql_type(kind) == said


def test_an_error_of_arrow_ends_with_the_name_that_was_declared() -> None:
    with pytest.raises(pa.ArrowInvalid) as refused:
        pa.array([1.5]).cast(pa.int64())
    assert sentence(refused.value) == "Float value 1.500000 was truncated converting to BIGINT."
    assert sentence("'to int64' as a scalar of type timestamp[us, tz=UTC]") == "'to int64' as a scalar of type TIMESTAMP."
    assert sentence("a text that goes to nowhere") == "a text that goes to nowhere."
