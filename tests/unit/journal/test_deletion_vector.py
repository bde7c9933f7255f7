"""Deletion vectors of a table that is followed from its beginning: what they delete, and what none is (R156)."""

from __future__ import annotations

import json
import uuid
import zlib
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyroaring import BitMap64

from spark_queue.core.records import Kind
from spark_queue.core.state.lifecycle import State
from spark_queue.errors import JournalError
from spark_queue.journal.deletion_vector import VectorError, deleted_rows
from spark_queue.journal.folder import Folder, of_table
from spark_queue.journal.store import Store
from spark_queue.source.topic_log import TopicLog
from tests.table_on_disk import TableWorld
from tests.unit.journal.test_table_copies import assert_folds_alike

#: The rows 3, 4, 7, 11, 18 and 29.
INLINE = {
    "storageType": "i", "pathOrInlineDv": "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", "sizeInBytes": 44,
    "cardinality": 6,
}  # fmt: skip

DELETED = ((3, 5), (7, 8), (11, 12), (18, 19), (29, 30))

#: The name in Delta's specification, and the file that it means.
RELATIVE, FILE = "ab^-aqEH.-t@S}K{vb[*k^", "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    (tmp_path / "orders" / "_delta_log").mkdir(parents=True)
    return of_table(Store(str(tmp_path / "journal")), str(tmp_path / "orders"))


def written(folder: Folder, *rows: int, path: str = FILE, before: bytes = b"") -> dict[str, Any]:
    """Write a vector as Spark does, behind others in its file, and return its descriptor."""
    data = (1681511377).to_bytes(4, "little") + BitMap64(rows).serialize()
    content = b"\x01" + before + len(data).to_bytes(4, "big") + data + zlib.crc32(data).to_bytes(4, "big")
    place = Path(folder.uri, path)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content)
    return {
        "storageType": "u", "pathOrInlineDv": RELATIVE, "sizeInBytes": len(data), "cardinality": len(rows),
        "offset": 1 + len(before),
    }  # fmt: skip


def test_a_vector_in_the_log_is_read(folder: Folder) -> None:
    assert deleted_rows(folder, INLINE, row_count=30) == DELETED


def test_a_vector_in_a_file_is_read_where_it_stands_in_it(folder: Folder) -> None:
    assert deleted_rows(folder, written(folder, 1, 2, 5, before=b"others"), row_count=6) == ((1, 3), (5, 6))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"cardinality": 5}, "deletes 6 of 30 rows, and the log says 5"),
        ({"storageType": "p", "pathOrInlineDv": "/etc/passwd"}, "not in the table"),
        ({"storageType": "u", "pathOrInlineDv": RELATIVE}, "is not there"),
        ({"sizeInBytes": 20}, "Could not deserialize"),
        ({"pathOrInlineDv": "wi5b="}, "form is not known"),
        ({"pathOrInlineDv": "~~~~~"}, "base85"),
        ({"sizeInBytes": -1}, "sizeInBytes"),
        ({"cardinality": "six"}, "cardinality"),
    ],
)
def test_what_is_no_vector_is_refused(folder: Folder, changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(VectorError, match=reason):
        deleted_rows(folder, {**INLINE, **changes}, row_count=30)


def test_a_vector_of_more_rows_than_its_file_has_is_refused(folder: Folder) -> None:
    with pytest.raises(VectorError, match="deletes 6 of 29 rows"):
        deleted_rows(folder, INLINE, row_count=29)


@pytest.mark.parametrize("place", [0, 1, 9, -1])
def test_a_file_that_is_not_whole_is_refused(folder: Folder, place: int) -> None:
    vector = written(folder, 1, 2)
    path = Path(folder.uri, FILE)
    data = bytearray(path.read_bytes())
    data[place] ^= 255
    path.write_bytes(data)
    with pytest.raises(VectorError, match="is not whole"):
        deleted_rows(folder, vector, row_count=6)


def test_a_prefix_that_leads_out_of_the_table_is_refused(folder: Folder) -> None:
    """R156: as the path of a file with rows."""
    name = uuid.UUID("d2c639aa-8816-431a-aaf6-d3fe2512ff61")
    vector = written(folder, 1, path=f"../deletion_vector_{name}.bin")
    with pytest.raises(JournalError, match="MESSAGE_FILE_CORRUPT"):
        deleted_rows(folder, {**vector, "pathOrInlineDv": f"..{RELATIVE[2:]}"}, row_count=6)


class Marked(TableWorld):
    """A queue over a table from its beginning, of whose one file with 30 rows a vector deletes six."""

    def create(self) -> None:
        self.append(0, 30)
        (path,) = (each for each in DeltaTable(self.table).file_uris() if pq.read_metadata(each).num_rows == 30)
        name = str(Path(path).relative_to(self.table))
        stats = json.dumps({"numRecords": 30})
        add = {
            "path": name, "partitionValues": {}, "size": 1, "modificationTime": 5, "dataChange": True, "stats": stats,
            "deletionVector": INLINE,
        }  # fmt: skip
        remove = {"path": name, "dataChange": True, "deletionTimestamp": 5}
        actions = [{"commitInfo": {"operation": "DELETE", "timestamp": 5}}, {"remove": remove}, {"add": add}]
        entry = Path(self.table, "_delta_log", f"{2:020d}.json")
        entry.write_text("\n".join(map(json.dumps, actions)), encoding="utf-8")
        super().create()


@pytest.fixture
def marked(tmp_path: Path) -> Marked:
    made = Marked(tmp_path, type_keys={"from": "beginning", "relocate_after": "0s"}, filter="item <> 'item 5'")
    assert made.enter() is None
    return made


def test_deleted_rows_are_no_messages_of_a_table_from_its_beginning(marked: Marked) -> None:
    """R156: their bookmarks are of no message, whoever looks."""
    first = next(segment.first for segment in marked.known.segments if segment.row_count == 30)
    ids = [each for each in range(30) if each not in (3, 4, 5, 7, 11, 18, 29)]
    standing = [row for row in marked.rows(State.AVAILABLE) if first <= row < first + 30]
    assert marked.ids(standing) == ids
    assert marked.segment(first).absent == tuple((first + low, first + high) for low, high in DELETED)
    log = TopicLog(marked.store, marked.state.journal_id, "orders", "orders")
    pieces = log.pieces(first, first + 30)
    read = [row for piece in pieces.to_pylist() for row in range(piece["first_row"], piece["first_row"] + piece["rows"])]
    assert read == [each for each in range(30) if each not in (3, 4, 7, 11, 18, 29)]
    assert_folds_alike(marked)


def test_a_copy_has_no_more_messages_than_its_file_had(marked: Marked) -> None:
    """R152, R156."""
    before = marked.rows(State.AVAILABLE)
    path = next(segment.path for segment in marked.known.segments if segment.row_count == 30)
    remove = {"remove": {"path": path, "dataChange": False, "deletionTimestamp": 5}}
    entry = Path(marked.table, "_delta_log", f"{3:020d}.json")
    entry.write_text(
        "\n".join(map(json.dumps, [{"commitInfo": {"operation": "OPTIMIZE", "timestamp": 6}}, remove])), encoding="utf-8"
    )
    assert marked.enter() is None
    marked.wait(ms=1)
    Path(marked.table, path).unlink()
    assert len(marked.records(Kind.MOVED)) == 1
    lease = marked.take()
    assert lease is not None
    assert list(lease.rows) == before
    marked.apply(LATER={"underlying_topic": "orders", "recovery_point": "epoch"})
    assert marked.rows(State.AVAILABLE, "LATER") == before, "without what no queue needed, and what was no message"
    assert_folds_alike(marked)


def test_a_vector_that_cannot_be_read_is_refused_before_anything_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(INLINE, "cardinality", 5)
    with pytest.raises(JournalError, match=r"TABLE_UNSUPPORTED.*the deletion vector of file .* cannot be read: it deletes 6"):
        Marked(tmp_path, type_keys={"from": "beginning"})
    assert not (tmp_path / "journal").exists()
