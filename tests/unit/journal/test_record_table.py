"""Records as rows and back."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given
from msgspec import inspect

from spark_queue import journal
from spark_queue.core.records import BODIES, Kind, PeerChanged, Proven, Record, SetAside
from spark_queue.journal.record_blocks import RecordBlock
from spark_queue.journal.record_table import CONTROL_SCHEMA, DetailError, to_records, to_table

TEXTS = st.text(max_size=5)
NUMBERS = st.integers(min_value=0, max_value=2**53)


def values(kind: inspect.Type) -> st.SearchStrategy[Any]:
    """Draw what a field may hold, by its type."""
    match kind:
        case inspect.IntType(ge=ge, gt=gt, le=le, lt=lt):
            low = ge if ge is not None else -(2**60) if gt is None else gt + 1
            return st.integers(low, le if le is not None else 2**60 if lt is None else lt - 1)
        case inspect.StrType(pattern=str(pattern)):
            return st.from_regex(pattern, fullmatch=True)
        case inspect.StrType(max_length=most):
            return st.text(max_size=min(20, most or 20))
        case inspect.BoolType():
            return st.booleans()
        case inspect.NoneType():
            return st.none()
        case inspect.AnyType():
            return TEXTS
        case inspect.UnionType(types=types):
            return st.one_of(*map(values, types))
        case inspect.TupleType(item_types=types):
            return st.tuples(*map(values, types))
        case inspect.VarTupleType(item_type=of):
            return st.lists(values(of), max_size=2).map(tuple)
        case inspect.DictType(key_type=key, value_type=of):
            return st.dictionaries(values(key), values(of), max_size=2)
        case inspect.StructType(cls=cls, fields=fields):
            return st.builds(cls, **{field.name: values(field.type) for field in fields})
    raise AssertionError(f"nothing draws {kind}")


BODIES_OF_ALL_KINDS = st.sampled_from(sorted(BODIES.values(), key=lambda each: each.kind)).flatmap(
    lambda each: values(inspect.type_info(each))
)
RECORDS = st.builds(
    Record,
    body=BODIES_OF_ALL_KINDS,
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
)


@given(st.lists(RECORDS, min_size=1, max_size=6))
def test_records_come_back_as_they_were(records: list[Record]) -> None:
    table = to_table(records)
    assert table.schema == CONTROL_SCHEMA
    assert list(to_records(table)) == records


@given(st.lists(RECORDS, min_size=2, max_size=6), st.data())
def test_a_part_of_a_table_is_the_records_of_that_part(records: list[Record], data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(records) - 1))
    count = data.draw(st.integers(0, len(records) - first))
    assert list(to_records(to_table(records).slice(first, count))) == records[first : first + count]


@pytest.mark.parametrize("first", [0, 1, 2])
def test_ranges_that_a_stranger_leaves_out_are_none_whatever_stands_behind_them(first: int) -> None:
    body = SetAside(error="")
    records = [Record(body=body, record=row, ranges=((row, row + 1), (row + 5, row + 9))) for row in range(4)]
    table = to_table(records)
    lists: Any = table.column("ranges").chunk(0)
    hidden: Any = pa.ListArray.from_arrays(lists.offsets, lists.values, type=lists.type, mask=pa.array([False, True, False, True]))
    table = table.set_column(table.column_names.index("ranges"), CONTROL_SCHEMA.field("ranges"), hidden)
    found = list(to_records(table.slice(first)))
    assert [each.ranges for each in found] == [records[0].ranges, (), records[2].ranges, ()][first:]


def test_a_detail_begins_with_its_version_and_whether_its_kind_must_be_known() -> None:
    table = to_table([Record(body=Proven()), Record(body=SetAside(error="a bug")), Record(body=PeerChanged(peer="virginia"))])
    assert table.column("detail").to_pylist() == [
        '{"v":1}', '{"v":1,"error":"a bug"}', '{"v":1,"critical":true,"peer":"virginia"}'
    ]  # fmt: skip


@pytest.mark.parametrize("detail", ['{"error":7,"v":1}', '{"v":1}', '{"error":"x"}', "[]", "{"])
def test_a_detail_that_is_none_of_its_kind_is_refused_by_its_record(detail: str) -> None:
    table = to_table([Record(body=SetAside(error="a bug"), record=7)])
    wrong = table.set_column(table.schema.get_field_index("detail"), CONTROL_SCHEMA.field("detail"), pa.array([detail]))
    with pytest.raises(DetailError) as refused:
        list(to_records(wrong))
    assert refused.value.record == "record 7 (set_aside)"


def test_the_protocol_describes_every_kind() -> None:
    text = (Path(journal.__file__).parent / "PROTOCOL.md").read_text(encoding="utf-8")
    described = " ".join(line.split(" | ", 1)[0] for line in text.splitlines() if line.startswith("| "))
    assert [str(kind) for kind in Kind if not re.search(rf"\b{kind}\b", described)] == []


def test_stats_tell_the_records_and_kinds_of_a_file() -> None:
    file = RecordBlock.new(4, 5, [Kind.PROVEN, Kind.GRANTED])
    found = file.stats()
    assert RecordBlock.of_add({"path": file.path, "stats": json.dumps(found)}) == file
    assert (found["minValues"], found["maxValues"]) == ({"record": 4, "kind": "granted"}, {"record": 5, "kind": "proven"})
