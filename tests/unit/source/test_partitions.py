"""Reading row ranges from message files, as executors do (DESIGN 7)."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_queue.errors import JournalError
from spark_queue.journal.store import Store
from spark_queue.source import partitions
from spark_queue.source.partitions import MessageReader
from spark_queue.source.planning import PARTITION_ROWS, cut

TIME = pa.timestamp("us", tz="UTC")
FIELDS: list[pa.Field[Any]] = [
    pa.field("id", pa.int64()),
    pa.field("item", pa.string()),
    pa.field("bookmark", pa.int64(), nullable=False),
    pa.field("topic", pa.string(), nullable=False),
    pa.field("delivery_count", pa.int32(), nullable=False),
    pa.field("cancel_count", pa.int32(), nullable=False),
    pa.field("lease", pa.int64(), nullable=False),
    pa.field("leased_until", TIME, nullable=False),
    pa.field("is_barrier", pa.bool_(), nullable=False),
]
SCHEMA = pa.schema(FIELDS)


def pieces_of(*rows: tuple[str, int, int, int, int]) -> pa.Table:
    """Make the pieces of a lease: path, first row, rows, bookmark, deliveries."""
    path, first, count, bookmark, deliveries = zip(*rows, strict=True) if rows else ([], [], [], [], [])
    return pa.table(
        {
            "path": pa.array(path, pa.string()),
            "first_row": pa.array(first, pa.int64()),
            "rows": pa.array(count, pa.int64()),
            "bookmark": pa.array(bookmark, pa.int64()),
            "delivery_count": pa.array(deliveries, pa.int32()),
            "cancel_count": pa.array([0] * len(rows), pa.int32()),
            "is_barrier": pa.array([False] * len(rows), pa.bool_()),
        }
    )


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Two message files of 100 and 10 rows, the first in row groups of 16, with ids that say where a row stands."""
    folder = tmp_path / "messages" / "json"
    folder.mkdir(parents=True)
    for name, rows, base in (("a.parquet", 100, 0), ("b.parquet", 10, 1_000)):
        data = pa.table(
            {
                "id": pa.array(range(base, base + rows), pa.int64()),
                "item": [f"item {base + row}" for row in range(rows)],
                "topic": ["ORDERS" if row % 2 == 0 else "OTHERS" for row in range(rows)],
            }
        )
        pq.write_table(data, folder / name, row_group_size=16)
    return folder


def reader_of(table: Path, schema: pa.Schema = SCHEMA, topic: str | None = None) -> MessageReader:
    return MessageReader(store=Store(str(table.parents[1])), message_type="json", schema=schema, topic=topic)


def read(reader: MessageReader, pieces: pa.Table, *, min_partitions: int | None = None, lease: int = 7) -> pa.Table:
    parts = cut(pieces, min_partitions=min_partitions, lease=lease, leased_until_ms=1_500)
    batches = [batch for part in parts for batch in reader.read(pickle.loads(pickle.dumps(part)))]
    return pa.Table.from_batches(batches, schema=reader.schema)


def test_reader_gives_exactly_the_named_rows_across_files_and_row_groups(table: Path) -> None:
    pieces = pieces_of(
        ("a.parquet", 3, 2, 103, 1), ("a.parquet", 14, 5, 114, 2), ("a.parquet", 99, 1, 199, 1), ("b.parquet", 0, 10, 200, 1)
    )
    got = read(reader_of(table), pieces)
    assert got.column("id").to_pylist() == [3, 4, 14, 15, 16, 17, 18, 99, *range(1_000, 1_010)]
    assert got.column("bookmark").to_pylist() == [103, 104, 114, 115, 116, 117, 118, 199, *range(200, 210)]
    assert got.column("delivery_count").to_pylist() == [1, 1, 2, 2, 2, 2, 2, *[1] * 11]
    assert set(got.column("lease").to_pylist()) == {7}
    assert got.column("leased_until").cast(pa.int64()).to_pylist() == [1_500_000] * 18


@pytest.mark.parametrize("seed", range(8))
def test_reader_agrees_with_a_plain_selection_when_pieces_and_partitions_are_random(table: Path, seed: int) -> None:
    random = np.random.default_rng(seed)
    taken = np.flatnonzero(random.random(100) < random.choice([0.05, 0.5, 0.95]))
    edges = np.flatnonzero(np.diff(taken) != 1) + 1
    runs = [run for run in np.split(taken, edges) if len(run)]
    pieces = pieces_of(*(("a.parquet", int(run[0]), len(run), int(run[0]) + 500, 1) for run in runs))
    for min_partitions in (1, 3, 100):
        got = read(reader_of(table), pieces, min_partitions=min_partitions)
        assert got.column("id").to_pylist() == taken.tolist()
        assert got.column("bookmark").to_pylist() == (taken + 500).tolist()


def test_reader_gives_batches_of_the_schema_that_spark_compares(table: Path) -> None:
    (part,) = cut(pieces_of(("a.parquet", 0, 100, 0, 1)), min_partitions=None)
    for batch in reader_of(table).read(part):
        assert batch.schema.equals(SCHEMA)


def test_reader_keeps_the_order_of_pieces_when_it_goes_back_in_a_file(table: Path) -> None:
    pieces = pieces_of(
        ("a.parquet", 50, 2, 50, 1), ("b.parquet", 0, 1, 100, 1), ("a.parquet", 10, 2, 10, 1), ("a.parquet", 4, 1, 4, 1)
    )
    assert read(reader_of(table), pieces).column("id").to_pylist() == [50, 51, 1_000, 10, 11, 4]


def test_reader_gives_null_for_a_column_that_the_file_does_not_have_yet(table: Path) -> None:
    schema = SCHEMA.append(pa.field("added", pa.list_(pa.field("element", pa.int32()))))
    got = read(reader_of(table, schema), pieces_of(("a.parquet", 0, 2, 0, 1)))
    assert got.column("added").to_pylist() == [None, None]


def test_reader_casts_by_name_when_the_schema_has_another_order_and_width(table: Path) -> None:
    fields: list[pa.Field[Any]] = [pa.field("item", pa.large_string()), pa.field("id", pa.float64())]
    schema = pa.schema(fields)
    got = read(reader_of(table, schema), pieces_of(("b.parquet", 1, 1, 0, 1)))
    assert got.to_pylist() == [{"item": "item 1001", "id": 1001.0}]


def test_reader_counts_rows_when_no_stored_column_is_asked_for(table: Path) -> None:
    schema = pa.schema([pa.field("bookmark", pa.int64(), nullable=False)])
    got = read(reader_of(table, schema), pieces_of(("a.parquet", 30, 3, 30, 1), ("a.parquet", 40, 1, 40, 1)))
    assert got.column("bookmark").to_pylist() == [30, 31, 32, 40]


def test_reader_of_a_topic_leaves_out_rows_of_others_and_keeps_their_bookmarks(table: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("bookmark", pa.int64(), nullable=False)])
    got = read(reader_of(table, schema, topic="OTHERS"), pieces_of(("a.parquet", 0, 6, 100, 1)))
    assert got.to_pylist() == [{"id": 1, "bookmark": 101}, {"id": 3, "bookmark": 103}, {"id": 5, "bookmark": 105}]


def test_reader_bounds_its_batches_by_bytes_when_payloads_are_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitions, "BATCH_BYTES", 10_000)
    payloads = [bytes([row]) * 4_000 for row in range(20)]
    table = tmp_path / "messages" / "json"
    table.mkdir(parents=True)
    pq.write_table(pa.table({"value": payloads}), table / "a.parquet", compression="none", use_dictionary=False)
    reader = reader_of(table, pa.schema([pa.field("value", pa.binary())]))
    (part,) = cut(pieces_of(("a.parquet", 0, 20, 0, 1)), min_partitions=None)
    batches = list(reader.read(part))
    assert [value for batch in batches for value in batch.column(0).to_pylist()] == payloads
    assert max(batch.num_rows for batch in batches) <= 4


def test_reader_joins_small_files_into_one_batch(table: Path) -> None:
    pieces = pieces_of(*(("b.parquet", row, 1, row, 1) for row in (9, 5, 7, 1)))
    (part,) = cut(pieces, min_partitions=None)
    assert [batch.num_rows for batch in reader_of(table).read(part)] == [4]


def test_small_batches_are_joined_until_they_are_of_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitions, "BATCH_ROWS", 4)
    batches = [pa.record_batch({"id": list(range(rows))}) for rows in (2, 1, 1, 9, 3)]
    assert [batch.num_rows for batch in partitions.join_small(batches)] == [4, 9, 3]
    assert list(partitions.join_small([])) == []


def test_reader_names_the_file_when_it_is_gone(table: Path) -> None:
    with pytest.raises(JournalError, match=r"MESSAGE_FILE_MISSING.*'gone.parquet'"):
        read(reader_of(table), pieces_of(("gone.parquet", 0, 1, 0, 1)))


@pytest.mark.parametrize("content", [b"", b"PAR1 but not really PAR1"])
def test_reader_names_the_file_when_it_is_torn(table: Path, content: bytes) -> None:
    (table / "torn.parquet").write_bytes(content)
    with pytest.raises(JournalError, match=r"MESSAGE_FILE_CORRUPT.*'torn.parquet'"):
        read(reader_of(table), pieces_of(("torn.parquet", 0, 1, 0, 1)))


def test_reader_names_the_file_when_it_is_shorter_than_the_journal_says(table: Path) -> None:
    with pytest.raises(JournalError, match=r"MESSAGE_FILE_CORRUPT.*10 rows instead of at least 12"):
        read(reader_of(table), pieces_of(("b.parquet", 8, 4, 0, 1)))


def test_executor_side_loads_nothing_but_what_reads_arrow_and_numpy() -> None:
    """DESIGN 11: every Python worker of a cluster loads this before its first row."""
    heavy = "pyarrow.compute deltalake obstore pyroaring msgspec re2 sqlglot duckdb typer rich pandas"
    code = f"import sys, spark_queue.source.partitions; print([name for name in '{heavy}'.split() if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


PLAN_AND_READ = """
import pickle, sys
import pyarrow as pa
from spark_queue.journal.store import Store
from spark_queue.source.partitions import MessageReader
from spark_queue.source.planning import cut
pieces, schema = (pa.ipc.open_stream(path) for path in sys.argv[1:3])
parts = cut(pieces.read_all(), min_partitions=3, lease=7, leased_until_ms=1_500)
reader = MessageReader(store=Store(sys.argv[3]), message_type="json", schema=schema.schema)
print(sum(batch.num_rows for part in pickle.loads(pickle.dumps(parts)) for batch in reader.read(part)))
print("pandas" in sys.modules)
"""


def test_neither_who_plans_a_lease_nor_who_reads_it_loads_pandas(table: Path, tmp_path: Path) -> None:
    """It is a quarter of what a Python of Spark takes to start, and 37 MiB of each; Arrow loads it for the first array it makes."""
    pieces = pieces_of(("a.parquet", 3, 2, 103, 1), ("b.parquet", 0, 10, 200, 1))
    pieces = pieces.append_column("origin", pa.array(["left", "right"])).append_column("origin_bookmark", pieces.column("bookmark"))
    pieces = pieces.append_column("keys", pa.array([[1, None], [5] * 10], pa.list_(pa.uint64())))
    fields = [*FIELDS, pa.field("origin", pa.string()), pa.field("origin_bookmark", pa.int64())]
    for name, rows in (("pieces", pieces), ("schema", pa.schema(fields).empty_table())):
        with pa.ipc.new_stream(str(tmp_path / name), rows.schema) as stream:
            stream.write_table(rows)
    asked = [PLAN_AND_READ, tmp_path / "pieces", tmp_path / "schema", table.parents[1]]
    done = subprocess.run([sys.executable, "-c", *map(str, asked)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["12", "False"]


@pytest.mark.parametrize(
    ("rows", "min_partitions", "sizes"),
    [
        ([10], None, [10]),
        ([10], 3, [3, 3, 4]),
        ([2], 5, [1, 1]),
        ([PARTITION_ROWS, PARTITION_ROWS], None, [PARTITION_ROWS, PARTITION_ROWS]),
        ([PARTITION_ROWS + 1], None, [PARTITION_ROWS // 2, PARTITION_ROWS // 2 + 1]),
        # Even would be 60 and 60; the cut moves to the end of the first file, which is near.
        ([70, 50], 2, [70, 50]),
        ([110, 10], 2, [60, 60]),
        # Near is a quarter of a partition, 15 rows here.
        ([75, 45], 2, [75, 45]),
        ([76, 44], 2, [60, 60]),
    ],
)
def test_cut_makes_even_partitions_and_prefers_ends_of_pieces(
    rows: list[int], min_partitions: int | None, sizes: list[int]
) -> None:
    pieces = pieces_of(*((f"{number}.parquet", 0, count, number * 1_000_000, 1) for number, count in enumerate(rows)))
    parts = cut(pieces, min_partitions=min_partitions)
    assert [sum(int(file.rows.sum()) for file in part.pieces) for part in parts] == sizes


def test_cut_gives_no_partition_when_there_are_no_rows() -> None:
    assert cut(pieces_of(), min_partitions=4) == []


@pytest.mark.parametrize("seed", range(8))
def test_all_rows_of_a_key_lie_in_one_partition_in_order_and_partitions_are_even(table: Path, seed: int) -> None:
    """DESIGN 8: whatever reads a partition meets the rows of a key in the order of their bookmarks."""
    random = np.random.default_rng(seed)
    taken = np.flatnonzero(random.random(100) < 0.8)
    runs = [run for run in np.split(taken, np.flatnonzero(np.diff(taken) != 1) + 1) if len(run)]
    pieces = pieces_of(*(("a.parquet", int(run[0]), len(run), int(run[0]) + 500, 1) for run in runs), ("b.parquet", 0, 10, 700, 1))
    keys = [None if draw == 0 else int(draw) * 7919 for draw in random.integers(0, 12, len(taken) + 10)]
    lengths = np.r_[0, np.cumsum(pieces.column("rows").to_numpy())].astype(np.int32)
    pieces = pieces.append_column("keys", pa.ListArray.from_arrays(pa.array(lengths), pa.array(keys, pa.uint64())))
    key_of = dict(zip([*(taken + 500).tolist(), *range(700, 710)], keys, strict=True))
    reader = reader_of(table)
    parts: list[list[pa.RecordBatch]] = [list(reader.read(part)) for part in cut(pieces, min_partitions=3, lease=7)]
    bookmarks: list[list[int]] = [[row for batch in part for row in batch.column("bookmark").to_numpy().tolist()] for part in parts]
    assert sorted(row for part in bookmarks for row in part) == sorted(key_of)
    assert all(part == sorted(part) for part in bookmarks)
    assert len(parts) == 3
    homes: dict[int, set[int]] = {}
    for number, part in enumerate(bookmarks):
        for row in part:
            if (key := key_of[row]) is not None:
                homes.setdefault(key, set()).add(number)
    assert all(len(home) == 1 for home in homes.values())
    assert max(map(len, parts)) - min(map(len, parts)) <= 12
    ids = {row: row - 500 if row < 700 else row + 300 for row in key_of}
    for batches in parts:
        for batch in batches:
            assert batch.column("id").to_pylist() == [ids[row] for row in batch.column("bookmark").to_numpy().tolist()]
    (whole,) = cut(pieces, min_partitions=None)
    assert whole.pieces[0].rows.tolist() == [len(run) for run in runs]
