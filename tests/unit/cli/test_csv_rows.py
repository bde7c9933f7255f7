"""CSV is read as it is written: whole rows, values of any length, and no quote that is left open."""

from __future__ import annotations

import csv
import io
from random import Random
from typing import Any

import pytest

from spark_queue.cli import reading
from spark_queue.cli.reading import read_csv

PIECES = ["a", "é", "\ufeff", ",", '"', '""', "\n", "\r\n", "\r", " ", "1", "a longer piece of text"]


def rows(text: bytes) -> list[tuple[str | None, ...]]:
    """Return the header and the rows of a file."""
    first, *more = read_csv(io.BytesIO(text))
    columns = [
        [name, *(value for table in more for value in table.column(index).to_pylist())]
        for index, name in enumerate(first.schema.names)
    ]
    return list(zip(*columns, strict=True))


@pytest.mark.parametrize("seed", range(150))
@pytest.mark.parametrize("block_bytes", [1, 7, 4_096])
def test_what_python_writes_is_read(monkeypatch: pytest.MonkeyPatch, seed: int, block_bytes: int) -> None:
    monkeypatch.setattr(reading, "_BLOCK_BYTES", block_bytes)
    random = Random(seed)
    written = [["".join(random.choices(PIECES, k=random.randrange(6))) for _ in range(3)] for _ in range(random.randrange(8))]
    file = io.StringIO(newline="")
    # The writer quotes ends of lines only if they are its own.
    styles: list[dict[str, Any]] = [{"quoting": csv.QUOTE_ALL, "lineterminator": end} for end in ("\n", "\r\n", "\r")]
    style = random.choice([*styles, {"quoting": csv.QUOTE_MINIMAL, "lineterminator": "\r\n"}])
    csv.writer(file, **style).writerows([["x", 'y "z"', "two\nlines"], *written])
    mark = random.choice(("", "\ufeff"))
    found = rows((mark + file.getvalue()).encode())
    assert found[0] == ("x", 'y "z"', "two\nlines")
    # A value without quotes that is empty is NULL.
    assert [tuple(value or "" for value in row) for row in found[1:]] == [tuple(row) for row in written]


@pytest.mark.parametrize("ends", ["\n", ""])
def test_quote_that_is_not_closed_is_told_with_its_line(ends: str) -> None:
    text = f'x,y\n1,"two\nlines"\n3,"four\n5,6\n7,8{ends}'
    with pytest.raises(ValueError, match="row that begins in line 4 has an unclosed quote"):
        rows(text.encode())


def test_row_without_end_is_not_read_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_BLOCK_BYTES", 10)
    monkeypatch.setattr(reading, "_ROW_LIMIT_BYTES", 100)
    file = io.BytesIO(b'x\n"' + b"\n" * 1_000)
    with pytest.raises(ValueError, match="row that begins in line 2 is longer than 100 bytes"):
        list(read_csv(file))
    assert file.tell() < 500


def test_value_may_be_much_longer_than_a_block() -> None:
    long = "long " * 2_000_000
    assert rows(f'x,y\n1,{long}\n2,"{long}\n"\n'.encode()) == [("x", "y"), ("1", long), ("2", f"{long}\n")]


def test_quote_inside_of_a_value_is_a_letter() -> None:
    """As Arrow and Python read it: a pipe of five inches opens no quotation."""
    assert rows(b'x,y\n5" pipe,"a""b"\n3,4"\n') == [("x", "y"), ('5" pipe', 'a"b'), ("3", '4"')]


@pytest.mark.parametrize("text", ['"c"x,2', '1,"a"b"', '"a" ,2', '"a"\0,2'])
def test_text_behind_a_closing_quote_is_refused(text: str) -> None:
    """Arrow and Python would store one value of both."""
    with pytest.raises(ValueError, match="row that begins in line 3 has an unclosed quote, or text after a closing one"):
        rows(f"x,y\n1,2\n{text}\n3,4\n".encode())
