"""Values that a peer's files may bring, and Python does not have: they are shown, and hide no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_queue import Journal
from spark_queue.journal import casting
from tests.unit.cli.sparkq import Terminal

FAR: Any = pa.array([2**63 - 1, None], pa.timestamp("us", "UTC"))
COLUMNS = (
    "n BIGINT, at TIMESTAMP, wall TIMESTAMP_NTZ, day DATE, item STRING, times ARRAY<TIMESTAMP>, part STRUCT<at: TIMESTAMP>, "
    "by_name MAP<STRING, TIMESTAMP>"
)
OFFSETS: Any = pa.array([0, 1, 2], pa.int32())
ROWS: dict[str, Any] = {
    "n": pa.array([2**53 + 1, None]),
    "at": FAR,
    "wall": pa.array([253_402_300_800_000_000, None], pa.timestamp("us")),
    "day": pa.array([-719_163, None], pa.date32()),
    "item": pa.Array.from_buffers(
        pa.string(), 2, [None, *(pa.py_buffer(each) for each in (b"\0\0\0\0\1\0\0\0\2\0\0\0", b"\xffb"))]
    ),
    "times": pa.ListArray.from_arrays(OFFSETS, FAR),
    "part": pa.StructArray.from_arrays([FAR], ["at"]),
    "by_name": pa.MapArray.from_arrays(OFFSETS, pa.array(["a", "b"]), FAR),
}
TOLD = {
    "n": 2**53 + 1,
    "at": "294247-01-10T04:00:54.775807",
    "wall": "10000-01-01T00:00:00.000000",
    "day": "0000-12-31",
    "item": "\ufffd",
    "times": ["294247-01-10T04:00:54.775807"],
    "part": {"at": "294247-01-10T04:00:54.775807"},
    "by_name": [["a", "294247-01-10T04:00:54.775807"]],
}


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Journal:
    """Make a journal with such values, which a publish refuses."""
    types = {"t": {"columns": COLUMNS, "topics": ["T"]}}
    journal = Journal.create(str(tmp_path / "journal"), {"message_types": types, "queues": {"Q": {"underlying_topic": "T"}}})
    with monkeypatch.context() as unchecked:
        unchecked.setattr(casting, "check", lambda column: None)
        journal.publish(pa.table(ROWS), topic="T")
    return journal


@pytest.mark.parametrize("where", [[], ["--where", "n IS NULL OR at > TIMESTAMP '2026-01-31T08:00:00Z'"]])
def test_peek_tells_them(sparkq: Terminal, journal: Journal, where: list[str]) -> None:
    first, second = sparkq("peek", journal.path, "Q", "--json", *where).json
    assert {name: first[name] for name in TOLD} == TOLD
    assert second["item"] == "b"
    assert "294247-01-10" in sparkq("peek", journal.path, "Q", "--columns", "at", *where).out


def test_one_message_is_explained(sparkq: Terminal, journal: Journal) -> None:
    assert "published to topic 'T'" in sparkq("explain", journal.path, "Q", 0).out


def test_view_is_a_frame_with_every_digit(journal: Journal) -> None:
    frame = journal.view("messages", queue="Q", columns=["n", "at", "bookmark"]).to_pandas()
    assert frame["n"].dropna().tolist() == [2**53 + 1]
    assert (str(frame["n"].dtype), str(frame["bookmark"].dtype)) == ("Int64", "int64")
    assert "294247-01-10" in str(frame["at"])
