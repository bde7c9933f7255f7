"""Reading files of rows piece by piece: CSV, JSON lines, Parquet, also compressed, also from stdin."""

from __future__ import annotations

import csv
import gzip
import io
import sys
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from spark_queue.cli.arguments import bad_argument
from spark_queue.cli.csv_rows import read_csv
from spark_queue.errors import CallerError, nearest

FORMATS = ("csv", "jsonl", "parquet")
_ENDINGS = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".parquet": "parquet"}

STDIN = "-"


class Source:
    """A file of rows, or stdin; a context manager.

    Parameters
    ----------
    name : str
        A path, or ``-``.
    file_format : str or None
        One of `FORMATS`; None goes by the name.
    """

    def __init__(self, name: str, file_format: str | None) -> None:
        self.name = name
        self.file_format = _format(name, file_format)
        self._raw: IO[bytes] = io.BytesIO()

    def __enter__(self) -> Self:
        try:
            self._raw = sys.stdin.buffer if self.name == STDIN else Path(self.name).open("rb")
        except OSError as reason:
            raise self._unreadable(reason) from None
        return self

    def __exit__(self, *_: object) -> None:
        if self.name != STDIN:
            self._raw.close()

    @property
    def size_bytes(self) -> int | None:
        """Size as stored; None when nobody knows."""
        return None if self.name == STDIN else Path(self.name).stat().st_size

    @property
    def read_bytes(self) -> int:
        """How much of it was read."""
        return 0 if self.name == STDIN else self._raw.tell()

    def batches(self, batch_rows: int) -> Iterator[pa.Table | list[bytes]]:
        """Yield the rows in batches of `batch_rows`, the last one shorter: tables, or for JSON lines the lines as they stand.

        A file that names columns but holds no row gives one empty table, so that its columns can be checked.

        Raises
        ------
        CallerError
            FILE_UNREADABLE.
        """
        file: Any = gzip.GzipFile(fileobj=self._raw) if self.name.endswith(".gz") else self._raw
        try:
            if self.file_format == "jsonl":
                while lines := list(islice(file, batch_rows)):
                    yield lines
            else:
                yield from _even(read_csv(file) if self.file_format == "csv" else _parquet(file, batch_rows), batch_rows)
        except (OSError, EOFError, ValueError, csv.Error, zlib.error, pa.ArrowException) as reason:
            raise self._unreadable(reason) from None

    def _unreadable(self, reason: Exception) -> CallerError:
        text = str(reason).split("\n", 1)[0]
        return CallerError("FILE_UNREADABLE", file=self.name, format=self.file_format, reason=f"{text.rstrip('.')}.")


def _format(name: str, given: str | None) -> str:
    if given is not None:
        if given not in FORMATS:
            raise bad_argument("--format", given, f"one of {', '.join(FORMATS)}.{nearest(given, FORMATS)}")
        return given
    if name == STDIN:
        return "jsonl"
    ending = Path(name.removesuffix(".gz")).suffix.lower()
    if ending not in _ENDINGS:
        expected = f"a name that ends in {', '.join(_ENDINGS)}, or come with --format, one of {', '.join(FORMATS)}"
        raise bad_argument("FILE", name, expected)
    return _ENDINGS[ending]


def _parquet(file: IO[bytes], batch_rows: int) -> Iterator[pa.Table]:
    """Read a table without rows, for its columns, and then the rows."""
    # Parquet begins at its end, which a pipe does not have.
    whole = file if file.seekable() else io.BytesIO(file.read())
    rows = pq.ParquetFile(whole)
    yield rows.schema_arrow.empty_table()
    for batch in rows.iter_batches(batch_rows):
        yield pa.Table.from_batches([batch])


def _even(tables: Iterator[pa.Table], batch_rows: int) -> Iterator[pa.Table]:
    waiting: list[pa.Table] = []
    given = False
    for table in tables:
        waiting.append(table)
        while sum(piece.num_rows for piece in waiting) >= batch_rows:
            together = pa.concat_tables(waiting, promote_options="permissive")
            yield together.slice(0, batch_rows)
            given = True
            waiting = [together.slice(batch_rows)]
    rest = pa.concat_tables(waiting, promote_options="permissive") if waiting else None
    if rest is not None and (rest.num_rows or not given):
        yield rest
