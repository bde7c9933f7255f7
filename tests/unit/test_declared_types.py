"""A column as another type: structs by the names of their fields, at any depth, in slices and in parts, as Python would do it."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from spark_queue.declared_types import as_declared

_NAMES = "abcdef"


def _kinds(draw: random.Random, depth: int = 0, *, is_key: bool = False) -> tuple[Any, Any]:
    """Return a type of a file, and one as which it may be declared."""
    form = draw.random()
    if depth > 3 or form < 0.25:
        return draw.choice([(pa.int32(), pa.int64()), (pa.int32(), pa.int32()), (pa.string(), pa.string())])
    if form < 0.65:
        parts = {name: _kinds(draw, depth + 1, is_key=is_key) for name in _NAMES}
        names = [draw.sample(_NAMES, draw.randint(1, 4)) for _ in range(2)]
        stored, declared = (pa.struct([(name, parts[name][side]) for name in each]) for side, each in enumerate(names))
        return stored, declared
    if form < 0.8 or is_key:
        stored, declared = _kinds(draw, depth + 1, is_key=is_key)
        return pa.list_(stored) if draw.random() < 0.5 else pa.large_list(stored), pa.list_(declared)
    key, item = _kinds(draw, depth + 1, is_key=True), _kinds(draw, depth + 1)
    return pa.map_(key[0], item[0]), pa.map_(key[1], item[1])


def _value(draw: random.Random, kind: Any, *, is_key: bool = False) -> Any:
    if not is_key and draw.random() < 0.25:
        return None
    if pa.types.is_struct(kind):
        return {field.name: _value(draw, field.type) for field in kind}
    if pa.types.is_map(kind):
        count = draw.randrange(4)
        return [(_value(draw, kind.key_type, is_key=True), _value(draw, kind.item_type)) for _ in range(count)]
    if hasattr(kind, "value_type"):
        return [_value(draw, kind.value_type) for _ in range(draw.randrange(4))]
    return draw.choice("xyz") if pa.types.is_string(kind) else draw.randrange(100)


def _declared(value: Any, kind: Any) -> Any:
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: _declared(value.get(field.name), field.type) for field in kind}
    if pa.types.is_map(kind):
        return [(_declared(key, kind.key_type), _declared(item, kind.item_type)) for key, item in value]
    return [_declared(each, kind.value_type) for each in value] if pa.types.is_list(kind) else value


@pytest.mark.parametrize("seed", range(40))
def test_a_column_has_the_declared_fields_by_their_names(seed: int) -> None:
    """R142, R150: another field is left out, and one that is not there is NULL."""
    draw = random.Random(seed)
    for _ in range(10):
        stored, declared = _kinds(draw)
        values = [_value(draw, stored) for _ in range(12)]
        column, wanted = pa.array(values, stored), [_declared(each, declared) for each in values]
        in_parts = pa.chunked_array([column[1:5], column[5:5], column[7:]], stored)
        for given, expected in ((column, wanted), (column[3:9], wanted[3:9]), (in_parts, wanted[1:5] + wanted[7:])):
            found = as_declared(given, declared)
            found.validate(full=True)
            assert found.type == declared
            assert found.to_pylist() == expected
