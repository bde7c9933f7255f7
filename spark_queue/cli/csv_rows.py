"""CSV, read in blocks of whole rows: a value may be as long as a message may be, and each quote must be closed."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from typing import IO

import pyarrow as pa
import pyarrow.csv

from spark_queue.journal.stored_rows import MESSAGE_LIMIT_BYTES

#: What is read at a time, in bytes; a longer row is read on until it ends.
_BLOCK_BYTES = 4 << 20

#: Longest row, in bytes: a quote that is never closed would be one with all of the file.
_ROW_LIMIT_BYTES = 2 * MESSAGE_LIMIT_BYTES

# As Arrow reads it: a quote quotes at the beginning of a value only, and what follows the closing one is plain.
_VALUE = rb'(?:"[^"]*+(?:""[^"]*+)*+"[^,\r\n]*+|(?!")[^,\r\n]*+)'
_ROW = rb"(?:%b(?:,%b)*+(?:\r\n|\r|\n))" % (_VALUE, _VALUE)
_FIRST_ROW, _ROWS = re.compile(_ROW), re.compile(_ROW + rb"*+")


def read_csv(file: IO[bytes]) -> Iterator[pa.Table]:
    """Yield texts: the message type, not a guess from the first rows, says what they are; nothing is NULL, and "" is empty.

    The first table has no rows, only the columns.

    Raises
    ------
    ValueError
        For a quote that is not closed, a row that is too long, and whatever Arrow refuses.
    """
    header: list[str] = []
    for block in _blocks(file):
        rows = block
        if not header:
            rows = block.removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n")
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
        io.BytesIO(rows),
        read_options=pa.csv.ReadOptions(column_names=header, block_size=len(rows) + 1),
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
            raise ValueError(
                f"the row that begins in line {line:,} is longer than {_ROW_LIMIT_BYTES:,} bytes; is a quote not closed?"
            )
    last = rest + b"\n"
    end = _end_of_rows(last)
    if end < len(last):
        raise ValueError(f"the row that begins in line {line + _lines(last[:end]):,} has a quote that is not closed")
    yield last


def _end_of_rows(block: bytes) -> int:
    if b'"' not in block:
        return max(block.rfind(b"\n"), block.rfind(b"\r")) + 1
    rows = _ROWS.match(block)
    return 0 if rows is None else rows.end()


def _lines(rows: bytes) -> int:
    return rows.count(b"\n") or rows.count(b"\r")
