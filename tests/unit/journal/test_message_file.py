"""Reading the columns of a segment, from a file of its own or from a merged one."""

from __future__ import annotations

import errno
import io
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from obstore.exceptions import GenericError

from spark_queue.core.message_files.segment import Segment
from spark_queue.errors import JournalError
from spark_queue.journal import message_file
from spark_queue.journal.message_file import MessageFiles
from spark_queue.journal.store import Store
from spark_queue.journal.store_files import ObjectSource


@pytest.fixture
def store(tmp_path: Path) -> Store:
    (tmp_path / "messages" / "order").mkdir(parents=True)
    pq.write_table(pa.table({"id": range(10), "topic": ["A"] * 10}), tmp_path / "messages" / "order" / "f")
    return Store(str(tmp_path))


def segment(first: int, until: int, *, first_row: int = 0, merged: bool = False) -> Segment:
    return Segment(
        message_type="order", first=first, until=until, path="f", version=1, token="", entered_at_ms=0, published_at_ms=0,
        topic_min="A", topic_max="A", expires_null_count=until - first, first_row=first_row, merged=merged,
    )  # fmt: skip


def ids(table: pa.Table) -> list[object]:
    return list(table.column("id").to_pylist())


def test_a_part_of_a_merged_file_is_its_rows_alone(store: Store) -> None:
    files = MessageFiles(store)
    parts = [
        segment(100, 103, merged=True),
        segment(103, 109, first_row=3, merged=True),
        segment(109, 110, first_row=9, merged=True),
    ]
    assert [ids(files.read(part, ["id"])) for part in parts] == [[0, 1, 2], [3, 4, 5, 6, 7, 8], [9]]


def test_a_merged_file_is_read_once_for_its_parts_and_then_forgotten(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    files, opened = MessageFiles(store), list[str]()
    open_object = Store.open

    def noted(self: Store, key: str) -> object:
        opened.append(key)
        return open_object(self, key)

    monkeypatch.setattr(Store, "open", noted)
    for first_row in range(10):
        files.read(segment(first_row, first_row + 1, first_row=first_row, merged=True), ["id"])
    assert len(opened) == 1
    files.read(segment(0, 10), ["topic"])
    assert len(opened) == 2


def test_a_column_that_the_file_does_not_have_yet_is_left_out(store: Store) -> None:
    assert MessageFiles(store).read(segment(0, 10), ["topic", "note"]).column_names == ["topic"]


@pytest.mark.parametrize("part", [segment(0, 9), segment(0, 11), segment(0, 5, first_row=6, merged=True)])
def test_a_file_of_another_length_is_not_what_was_published(store: Store, part: Segment) -> None:
    with pytest.raises(JournalError, match=r"MESSAGE_FILE_CORRUPT.*it has 10 rows instead of"):
        MessageFiles(store).read(part, ["id"])


@pytest.mark.parametrize("content", [b"", b"PAR1 not really", b"PAR1" + bytes(200) + b"PAR1"])
def test_a_file_that_cannot_be_decoded_is_named(store: Store, content: bytes) -> None:
    (Path(store.path) / "messages" / "order" / "f").write_bytes(content)
    with pytest.raises(JournalError, match="MESSAGE_FILE_CORRUPT"):
        MessageFiles(store).read(segment(0, 10), ["id"])


class _Reader:
    """An object that is there, in a store that goes away while it is read."""

    def __init__(self, failure: Exception) -> None:
        self._failure = failure

    def read(self, _size: int | None) -> bytes:
        raise self._failure

    def seek(self, offset: int, _whence: int) -> int:
        return offset

    def tell(self) -> int:
        return 5_000


@pytest.mark.parametrize("failure", [OSError(errno.EIO, "the disk"), GenericError("no route"), OSError("reset")])
def test_a_store_that_does_not_answer_is_no_missing_file(store: Store, monkeypatch: pytest.MonkeyPatch, failure: Exception) -> None:
    """Recovery then ends and is tried again, instead of going on without the queue."""
    monkeypatch.setattr(Store, "open", lambda _self, _key: ObjectSource(_Reader(failure)))
    with pytest.raises(JournalError, match="STORE_FAILED.*reading messages/order/f"):
        MessageFiles(store).read(segment(0, 10), ["id"])
    if isinstance(failure, GenericError):

        def refuse(_self: Store, _key: str) -> None:
            raise failure

        monkeypatch.setattr(Store, "open", refuse)
        with pytest.raises(JournalError, match="STORE_FAILED"):
            MessageFiles(store).read(replace(segment(0, 10)), ["id"])


class _Strict(io.BytesIO):
    """Knows no sizes below 0, as obstore's readers."""

    def read(self, size: int | None = None) -> bytes:
        assert size is None or size >= 0
        return super().read(size)


def test_an_object_is_read_as_far_as_asked() -> None:
    """pyarrow asks for the footer alone."""
    source = ObjectSource(_Strict(b"abcdef"))
    assert (source.read(2), source.tell(), source.read()) == (b"ab", 2, b"cdef")
    source.seek(1)
    assert (source.read(-1), source.seek(-2, io.SEEK_END), source.read(None)) == (b"bcdef", 4, b"ef")


def test_a_file_comes_by_some_of_its_row_groups_at_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    pq.write_table(pa.table({"id": range(10), "topic": ["A"] * 10}), Path(store.path) / "messages/order/f", row_group_size=4)
    files = MessageFiles(store)
    assert [ids(piece) for piece in files.pieces(segment(0, 10), ["id"])] == [list(range(10))]
    monkeypatch.setattr(message_file, "PIECE_ROWS", 8)
    assert [ids(piece) for piece in files.pieces(segment(0, 10), ["id"])] == [list(range(8)), [8, 9]]
    monkeypatch.setattr(message_file, "PIECE_BYTES", 1)
    assert [ids(piece) for piece in files.pieces(segment(0, 10), ["id"])] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert [(len(piece), piece.num_columns) for piece in files.pieces(segment(0, 10), ["note"])] == [(4, 0), (4, 0), (2, 0)]
    part = segment(3, 9, first_row=3, merged=True)
    assert [ids(piece) for piece in files.pieces(part, ["id"])] == [[3, 4, 5, 6, 7, 8]]
    with pytest.raises(JournalError, match=r"MESSAGE_FILE_CORRUPT.*it has 10 rows instead of 9"):
        list(files.pieces(segment(0, 9), ["id"]))
