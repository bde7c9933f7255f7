"""Parquet files of a peer: what is null comes back as null, and what they do not have is refused (DESIGN 17.3)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_queue.replication.peer_files import OddFileError, PeerFile

TEXT = pa.field("text", pa.string())
REQUIRED = TEXT.with_nullable(nullable=False)
IN_STRUCT: Any = pa.struct([REQUIRED])

COLUMNS: dict[str, tuple[Any, list[Any]]] = {
    "texts": (pa.string(), ["a", None, ""]),
    "structs": (pa.struct([TEXT]), [{"text": "a"}, {"text": None}, None]),
    "structs of what is required, all null": (IN_STRUCT, [None, None]),
    "structs of what is required": (IN_STRUCT, [None, {"text": "a"}]),
    "structs of structs": (pa.struct([pa.field("in", IN_STRUCT, nullable=False)]), [None, None]),
    "lists of structs": (pa.list_(IN_STRUCT), [None, [], [None], [{"text": "a"}, None]]),
    "maps": (pa.map_(pa.string(), IN_STRUCT), [None, [], [("a", None)], [("b", {"text": "c"})]]),
}


def read(path: Path, rows: int) -> pa.Table:
    """Read a file as one in a bucket, and as one on a disk."""
    with path.open("rb") as file:
        found = pa.concat_tables(list(PeerFile(file, ["value"]).parts(0, rows, most_rows=2)))
    assert found == pa.concat_tables(list(PeerFile(str(path), ["value"]).parts(0, rows, most_rows=2)))
    return found


@pytest.mark.parametrize("case", COLUMNS)
def test_what_is_null_comes_back_as_null(tmp_path: Path, case: str) -> None:
    kind, values = COLUMNS[case]
    table = pa.table({"value": pa.array(values, kind)})
    pq.write_table(table, tmp_path / "file")
    assert read(tmp_path / "file", len(values)).equals(table)


def test_fewer_rows_than_are_wanted_are_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"value": ["a", "b"]}), tmp_path / "file")
    with pytest.raises(OddFileError, match="it has 2 rows where it should have 3"):
        read(tmp_path / "file", 3)


def test_a_part_that_is_no_utf_8_is_refused(tmp_path: Path) -> None:
    texts = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff"], pa.binary()).buffers())
    pq.write_table(pa.table({"value": texts}), tmp_path / "file")
    with pytest.raises(pa.ArrowInvalid, match="UTF"):
        read(tmp_path / "file", 1)
