"""Whatever is given by whatever way is stored as it is, or refused by name: never as another value (docs/reference/values.md)."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from spark_queue.cli.reading import Source
from spark_queue.core.definitions import parsing
from spark_queue.errors import CallerError
from spark_queue.journal.publisher import make_plan
from spark_queue.journal.rows import from_json_lines, to_arrow
from spark_queue.journal.store import Store
from spark_queue.journal.stored_rows import Sequences
from tests.any_value import EDGES, TYPES, is_kept, is_missing, must_be_stored, value

COUNT = 40
#: A message type for each declaration, and its topic.
NAMES = {declared: f"t{number}" for number, declared in enumerate(TYPES)}
DEFINITIONS = parsing.parse({"message_types": {name: {"columns": f"it {it}", "topics": [name]} for it, name in NAMES.items()}})

#: One value in the form of a way; None where the way cannot say it.
Form = Callable[[Any], Any]


def staged(message_type: str, rows: pa.Table) -> list[Any]:
    """Return what is stored of rows, as all ways end, also on executors."""
    plan = make_plan(Store("nowhere"), DEFINITIONS, message_type=message_type, topic="T", expires_after_ms=None)
    stored = [plan.shape.apply(each, sequences=Sequences(publisher="p", first=1), now_ms=0) for each in rows.to_batches()]
    return [kept for each in stored for kept in each.column("it").to_pylist()]


def dicts(given: list[Any], declared: str) -> list[Any]:
    return staged(*to_arrow([{"it": each} for each in given], DEFINITIONS, topic=NAMES[declared]))


def nested(given: list[Any], declared: str) -> list[Any]:
    definitions = parsing.parse({"message_types": {"t": {"columns": f"it ARRAY<STRUCT<x: {declared}>>", "topics": ["T"]}}})
    rows = to_arrow([{"it": [{"x": each}]} for each in given], definitions, topic="T")[1]
    kept: Any = rows.column("it").to_pylist()
    return [each[0]["x"] for each in kept]


def frames(given: list[Any], declared: str) -> list[Any]:
    return staged(*to_arrow(pd.DataFrame({"it": given}), DEFINITIONS, topic=NAMES[declared]))


def tables(given: list[Any], declared: str) -> list[Any]:
    return staged(*to_arrow(pa.table({"it": array(given)}), DEFINITIONS, topic=NAMES[declared]))


def tables_in_a_zone(given: list[Any], declared: str) -> list[Any]:
    return staged(*to_arrow(pa.table({"it": array(given)}), DEFINITIONS, topic=NAMES[declared], timezone="UTC"))


def executors(given: list[Any], declared: str) -> list[Any]:
    return staged(NAMES[declared], pa.table({"it": array(given)}))


def lines(given: list[Any], declared: str) -> list[Any]:
    return staged(*from_json_lines([f'{{"it": {in_json(each)}}}' for each in given], DEFINITIONS, topic=NAMES[declared]))


def array(given: Any) -> Any:
    if isinstance(given, pa.ChunkedArray):
        return given
    large = [each for each in given if isinstance(each, int) and not isinstance(each, bool) and abs(each) >= 2**63]
    return pa.array([Decimal(each) for each in given] if large else given)


def in_json(given: Any) -> str:
    return str(given) if isinstance(given, Decimal) else json.dumps(given)


def can_say(way: Callable[..., Any], given: Any) -> bool:
    """Return whether a way has a form for a value."""
    if way is lines:
        is_finite = given.is_finite() if isinstance(given, Decimal) else isinstance(given, float) and math.isfinite(given)
        return given is None or isinstance(given, bool | str) or (isinstance(given, int) and abs(given) < 10**1000) or is_finite
    make: Any = pd.Series if way is frames else list if way in (dicts, nested) else array
    try:
        make([given])
    except (pa.ArrowException, ValueError, ArithmeticError, TypeError):
        return False
    return True


WAYS = [(way, declared) for way in (dicts, nested, frames, tables, executors, lines) for declared in TYPES]


def outcome(way: Callable[..., list[Any]], *given: Any) -> Any:
    """Return what is stored of one value, or the code of its refusal in a tuple."""
    try:
        [kept] = way(*given)
    except CallerError as refusal:
        return (refusal.code,)
    return kept


@pytest.mark.drawn(24)
@pytest.mark.parametrize(("way", "declared"), [*WAYS, (tables_in_a_zone, "TIMESTAMP")])
def test_value_is_stored_as_it_is_or_refused_by_name(way: Callable[[list[Any], str], list[Any]], declared: str) -> None:
    random = Random(f"{way.__name__} {declared}")
    taken: list[Any] = []
    for given in [*EDGES, *(value(random) for _ in range(COUNT))]:
        if not can_say(way, given):
            continue
        kept = outcome(way, [given], declared)
        if isinstance(kept, tuple):
            assert kept[0] in ("COLUMN_TYPE_MISMATCH", "ROWS_UNREADABLE")
            assert not must_be_stored(given, declared), f"{given!r} is refused"
            continue
        if way is lines and isinstance(given, float):
            # A text, which says what it says.
            given = Decimal(repr(given))
        if not (kept is None and way is frames and is_missing(given)):
            assert is_kept(given, kept, declared, in_utc=way is tables_in_a_zone), f"{given!r} is stored as {kept!r}"
        taken.append(given)
    assert len(taken) > 1
    if way in (dicts, lines, nested):
        told = way(taken, declared)
        assert all(is_kept(given, kept, declared) for given, kept in zip(taken, told, strict=True)), "one beside the others"


@pytest.mark.parametrize("declared", TYPES)
def test_text_of_a_csv_file_is_stored_as_it_is_or_refused_by_name(tmp_path: Path, declared: str) -> None:
    random = Random(declared)
    given = [*EDGES, *(value(random) for _ in range(4 * COUNT))]
    texts = [each for each in given if isinstance(each, str) and "\ud800" not in each]
    with (tmp_path / "f.csv").open("w", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows([["it"], *([text] for text in texts)])
    with Source(str(tmp_path / "f.csv"), None) as source:
        rows: Any = next(source.batches(10_000))
    assert rows.column("it").to_pylist() == texts
    for row, text in enumerate(texts):
        kept = outcome(tables, rows.slice(row, 1).column("it"), declared)
        if isinstance(kept, tuple):
            assert kept == ("COLUMN_TYPE_MISMATCH",)
            assert not must_be_stored(text, declared), f"{text!r} is refused"
        else:
            assert is_kept(text, kept, declared), f"{text!r} is stored as {kept!r}"


#: What Arrow holds, and Python does not; a column of such a type is handed over as it is.
_NO_TEXT = [None, pa.py_buffer(np.array([0, 1], np.int32).tobytes()), pa.py_buffer(b"\xff")]
UNSOUND = (
    (pa.array([2**63 - 1], pa.timestamp("us", "UTC")), "TIMESTAMP"),
    (pa.array([-(2**63)], pa.timestamp("us")), "TIMESTAMP_NTZ"),
    (pa.array([2**31 - 1], pa.date32()), "DATE"),
    (pa.array([2**62], pa.date64()), "DATE"),
    (pa.array([2**62], pa.timestamp("s", "UTC")), "TIMESTAMP"),
    (pa.array([253_402_300_800_000], pa.timestamp("ms", "Asia/Tokyo")), "TIMESTAMP"),
    (pa.array([-719_163], pa.date32()), "TIMESTAMP_NTZ"),
    (pa.Array.from_buffers(pa.string(), 1, _NO_TEXT), "STRING"),
    (pa.Array.from_buffers(pa.decimal128(8, 2), 1, [None, pa.py_buffer(np.array([10**18, 0]).tobytes())]), "DECIMAL(8,2)"),
)


@pytest.mark.parametrize(("column", "declared"), UNSOUND)
@pytest.mark.parametrize("depth", ["itself", "in a list", "in a struct"])
def test_value_that_no_reader_could_take_is_refused(column: Any, declared: str, depth: str) -> None:
    if depth == "in a list":
        column, declared = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), column), f"ARRAY<{declared}>"
    elif depth == "in a struct":
        column, declared = pa.StructArray.from_arrays([column], ["x"]), f"STRUCT<x: {declared}>"
    definitions = parsing.parse({"message_types": {"t": {"columns": f"it {declared}", "topics": ["T"]}}})
    plan = make_plan(Store("nowhere"), definitions, message_type="t", topic="T", expires_after_ms=None)
    with pytest.raises(CallerError, match="COLUMN_TYPE_MISMATCH"):
        plan.shape.apply(pa.record_batch({"it": column}), sequences=Sequences(publisher="p", first=1), now_ms=0)
