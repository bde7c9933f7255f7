"""Records as rows and back."""

from __future__ import annotations

import json
from typing import Any

import hypothesis.strategies as st
from hypothesis import given

from spark_queue.core.records import Kind, Record
from spark_queue.journal.control_files import ControlFile
from spark_queue.journal.record_table import CONTROL_SCHEMA, to_records, to_table

TEXTS = st.text(max_size=5)
NUMBERS = st.integers(min_value=0, max_value=2**53)
DETAILS: st.SearchStrategy[dict[str, Any]] = st.dictionaries(
    TEXTS.filter(lambda key: key != "v"), st.one_of(st.none(), NUMBERS, TEXTS, st.lists(NUMBERS, max_size=3)), max_size=3
)
RECORDS = st.builds(
    Record,
    kind=st.sampled_from(list(Kind)).map(str) | TEXTS,
    record=NUMBERS,
    epoch=NUMBERS,
    at_ms=st.integers(min_value=0, max_value=2**45),
    message_type=st.none() | TEXTS,
    queue=st.none() | TEXTS,
    subscription=st.none() | TEXTS,
    lease=st.none() | NUMBERS,
    ranges=st.lists(st.tuples(NUMBERS, NUMBERS), max_size=4).map(tuple),
    reason=st.none() | TEXTS,
    due_at_ms=st.none() | st.integers(min_value=0, max_value=2**45),
    detail=DETAILS,
)


@given(st.lists(RECORDS, min_size=1, max_size=6))
def test_records_come_back_as_they_were(records: list[Record]) -> None:
    table = to_table(records)
    assert table.schema == CONTROL_SCHEMA
    assert list(to_records(table)) == records


def test_details_are_stored_with_their_version() -> None:
    table = to_table([Record(kind=Kind.LEFT, record=0, detail={"a": 1})])
    assert table.column("detail").to_pylist() == ['{"v":1,"a":1}']


def test_stats_tell_the_records_and_kinds_of_a_file() -> None:
    file = ControlFile.new(4, 5, [Kind.PROVEN, Kind.GRANTED])
    found = file.stats()
    assert ControlFile.of_add({"path": file.path, "stats": json.dumps(found)}) == file
    assert (found["minValues"], found["maxValues"]) == ({"record": 4, "kind": "granted"}, {"record": 5, "kind": "proven"})
