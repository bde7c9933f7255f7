"""Reading files of rows piece by piece: CSV, JSON lines, Parquet, also compressed, also from stdin.

CSV, read in blocks of whole rows: a value may be as long as a message may be, and each quote must be closed.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import sys
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from spark_queue.cli.arguments import bad_argument
from spark_queue.errors import CallerError, nearest
from spark_queue.journal.stored_rows import MESSAGE_LIMIT_BYTES

#: What is read at a time, in bytes; a longer row is read on until it ends.
_BLOCK_BYTES = 4 << 20

#: Longest row, in bytes: a quote that is never closed would be one with all of the file.
_ROW_LIMIT_BYTES = 2 * MESSAGE_LIMIT_BYTES

#: What keeps a row from being whole.
_QUOTE = "has a quote that is not closed, or text behind a closing one (a quote within a value is given twice; Spark: escape='\"')"

# A quote quotes at the beginning of a value only. Arrow takes what follows the closing one as a part of the value, which is then
# not what was given: nobody can tell what was meant.
_VALUE = rb'(?:"[^"]*+(?:""[^"]*+)*+"|(?!")[^,\r\n]*+)'
_ROW = rb"(?:%b(?:,%b)*+(?:\r\n|\r|\n))" % (_VALUE, _VALUE)
_FIRST_ROW, _ROWS = re.compile(_ROW), re.compile(_ROW + rb"*+")


def read_csv(file: IO[bytes]) -> Iterator[pa.Table]:
    """Yield texts: the message type, not a guess from the first rows, says what they are; nothing is NULL, and "" is empty.

    The first table has no rows, only the columns.

    Raises
    ------
    ValueError
        For a quote that is not closed or has text behind it, a row that is too long, and whatever Arrow refuses.
    """
    header: list[str] = []
    for block in _blocks(file):
        rows = block
        if not header:
            rows = block.removeprefix(codecs.BOM_UTF8).lstrip(b"\r\n")
            first = _FIRST_ROW.match(rows)
            if first is None:
                continue
            header = next(csv.reader(io.StringIO(first[0].decode(), newline="")))
            yield pa.schema([(name, pa.string()) for name in header]).empty_table()
            rows = rows[first.end() :]
        if rows.strip(b"\r\n"):
            yield _table(rows, header)


def _table(rows: bytes, header: list[str]) -> pa.Table:
    return pa.csv.read_csv(
        # Of marks at its beginning Arrow drops one, which may be a part of the first value.
        io.BytesIO(codecs.BOM_UTF8 + rows),
        read_options=pa.csv.ReadOptions(column_names=header, block_size=len(rows) + 8),
        parse_options=pa.csv.ParseOptions(newlines_in_values=True),
        convert_options=pa.csv.ConvertOptions(
            column_types=dict.fromkeys(header, pa.string()),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            null_values=[""],
        ),
    )


def _blocks(file: IO[bytes]) -> Iterator[bytes]:
    """Yield blocks of whole rows."""
    rest, line = b"", 1
    while piece := file.read(max(_BLOCK_BYTES, len(rest))):
        rest += piece
        end = _end_of_rows(rest)
        if end:
            yield rest[:end]
            line += _lines(rest[:end])
            rest = rest[end:]
        elif len(rest) > _ROW_LIMIT_BYTES:
            raise ValueError(f"the row that begins in line {line:,} is longer than {_ROW_LIMIT_BYTES:,} bytes, or {_QUOTE}")
    last = rest + b"\n"
    end = _end_of_rows(last)
    if end < len(last):
        raise ValueError(f"the row that begins in line {line + _lines(last[:end]):,} {_QUOTE}")
    yield last


def _end_of_rows(block: bytes) -> int:
    if b'"' not in block:
        return max(block.rfind(b"\n"), block.rfind(b"\r")) + 1
    rows = _ROWS.match(block)
    return 0 if rows is None else rows.end()


def _lines(rows: bytes) -> int:
    return rows.count(b"\n") or rows.count(b"\r")


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
    # As nanoseconds, which Arrow makes of them, times of INT96 would reach from 1677 to 2262.
    rows = pq.ParquetFile(whole, page_checksum_verification=True, coerce_int96_timestamp_unit="us")
    yield rows.schema_arrow.empty_table()
    columns = [rows.schema.column(index) for index in range(len(rows.schema))]
    intervals = [each.path for each in columns if each.converted_type == "INTERVAL"]
    if intervals:
        # Arrow takes them for bytes.
        raise ValueError(f"column {intervals[0]} has intervals, which no column stores")
    has_old_times = any(each.physical_type == "INT96" for each in columns)
    exact = pq.ParquetFile(whole).iter_batches(batch_rows) if has_old_times else None
    for batch in rows.iter_batches(batch_rows):
        for given, kept in zip(next(exact).columns, batch.columns, strict=True) if exact is not None else ():
            _refuse_nanoseconds(given, kept)
        yield pa.Table.from_batches([batch])


def _refuse_nanoseconds(given: Any, kept: Any) -> None:
    """Refuse times that were read as nanoseconds, and are kept as microseconds, where that is not the same, at any depth."""
    if given.type == kept.type:
        return
    if pa.types.is_nested(given.type):
        parts = (each.flatten() if pa.types.is_struct(each.type) else _elements(each) for each in (given, kept))
        for part in zip(*parts, strict=True):
            _refuse_nanoseconds(*part)
    else:
        # Nanoseconds of far times have wrapped around, as the product does.
        ticks = (each.cast(pa.int64()).fill_null(0).to_numpy().view(np.uint64) for each in (given, kept))
        exact, ours = ticks
        if (exact != ours * np.uint64(1_000)).any():
            raise ValueError("a time has nanoseconds, and microseconds are stored")


def _elements(column: Any) -> list[Any]:
    return [column.keys, column.items] if pa.types.is_map(column.type) else [column.flatten()]


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
