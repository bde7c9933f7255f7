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
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import IO, Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from spark_queue.cli.arguments import bad_argument
from spark_queue.core.definitions.column_names import ColumnNames
from spark_queue.errors import CallerError, ConfigError, SparkQueueError, nearest
from spark_queue.journal.conversion import EPOCHS, SEVERAL_INSTANTS, UNIT
from spark_queue.journal.stored_rows import MESSAGE_LIMIT_BYTES

#: The part that is read at a time, in bytes; a longer row is read on until it ends.
_BLOCK_BYTES = 4 << 20

#: Longest row, in bytes: a quote that is never closed would be one with all of the file.
_ROW_LIMIT_BYTES = 2 * MESSAGE_LIMIT_BYTES

#: The faults that keep a row from being whole.
_QUOTE = "has an unclosed quote, or text after a closing one (a quote within a value must be doubled; in Spark: escape='\"')"


class UnreadableError(ValueError):
    """A file has another form than it is read in, and a way out is known."""

    def __init__(self, reason: str, next_step: str) -> None:
        super().__init__(reason)
        self.next_step = next_step


@cache
def _patterns(separator: str) -> tuple[re.Pattern[bytes], re.Pattern[bytes]]:
    """Return the patterns of a row, and of rows."""
    # A quote quotes at the beginning of a value only. Arrow reads text behind the closing one as a part of the value, which is
    # then another than was given: its meaning is not certain.
    sign = re.escape(separator.encode())
    value = rb'(?:"[^"]*+(?:""[^"]*+)*+"|(?!")[^%b\r\n]*+)' % sign
    row = rb"(?:%b(?:%b%b)*+(?:\r\n|\r|\n))" % (value, sign, value)
    return re.compile(row), re.compile(row + rb"*+")


def read_csv(file: IO[bytes], *, separator: str = ",", dropped: Collection[str] = ()) -> Iterator[pa.Table]:
    """Yield texts: the message type, not a guess from the first rows, has their types; nothing is NULL, and "" is empty.

    The first table has no rows, only the columns.
    """
    header, kept = list[str](), dict[int, str]()
    for line, block in _blocks(file, separator):
        rows = block
        if not header:
            rows = block.removeprefix(codecs.BOM_UTF8).lstrip(b"\r\n")
            first = _patterns(separator)[0].match(rows)
            if first is None:
                continue
            header = next(csv.reader(io.StringIO(_decoded(first[0], line), newline=""), delimiter=separator))
            kept = kept_columns(header, dropped)
            yield pa.schema([(name, pa.string()) for name in kept.values()]).empty_table()
            rows = rows[first.end() :]
        if rows.strip(b"\r\n"):
            try:
                yield _table(rows, len(header), kept, separator)
            except pa.ArrowInvalid:
                _decoded(rows, line + _lines(block[: len(block) - len(rows)]))
                raise


def kept_columns(names: Sequence[str], dropped: Collection[str]) -> dict[int, str]:
    """Return the columns that are not left out, by their place; none may be there twice, and those left out have to be there."""
    there, left_out = ColumnNames([]), ColumnNames(dropped)
    kept = {place: name for place, name in enumerate(names) if left_out.find(name) is None}
    for name in kept.values():
        if not there.add(name):
            raise CallerError("COLUMN_TWICE", where="the file", column=name, first=there.find(name), second=name)
    ColumnNames(names).resolve(set(dropped), where="the file")
    return kept


def _decoded(text: bytes, line: int) -> str:
    """Return a text in UTF-8, which begins in a line."""
    try:
        return text.decode()
    except UnicodeDecodeError as reason:
        line += _lines(text[: reason.start])
        raise UnreadableError(f"line {line:,} is not UTF-8, at byte 0x{text[reason.start]:02x}", OTHER_ENCODING) from None


def _table(rows: bytes, width: int, kept: Mapping[int, str], separator: str) -> pa.Table:
    # Names of columns that are left out may be there twice.
    names = [str(place) for place in range(width)]
    found = pa.csv.read_csv(
        # Of marks at its beginning Arrow drops one, which may be a part of the first value.
        io.BytesIO(codecs.BOM_UTF8 + rows),
        read_options=pa.csv.ReadOptions(column_names=names, block_size=len(rows) + 8),
        parse_options=pa.csv.ParseOptions(delimiter=separator, newlines_in_values=True),
        convert_options=pa.csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            null_values=[""],
        ),
    )
    return found.select(list(kept)).rename_columns(list(kept.values()))


def _blocks(file: IO[bytes], separator: str) -> Iterator[tuple[int, bytes]]:
    """Yield blocks of whole rows, each with the number of its first line."""
    rest, line = b"", 1
    while piece := file.read(max(_BLOCK_BYTES, len(rest))):
        rest += piece
        end = _end_of_rows(rest, separator)
        if end:
            yield line, rest[:end]
            line += _lines(rest[:end])
            rest = rest[end:]
        elif len(rest) > _ROW_LIMIT_BYTES:
            raise ValueError(f"the row that begins in line {line:,} is longer than {_ROW_LIMIT_BYTES:,} bytes, or {_QUOTE}")
    last = rest + b"\n"
    end = _end_of_rows(last, separator)
    if end < len(last):
        raise ValueError(f"the row that begins in line {line + _lines(last[:end]):,} {_QUOTE}")
    yield line, last


def _end_of_rows(block: bytes, separator: str) -> int:
    if b'"' not in block:
        return max(block.rfind(b"\n"), block.rfind(b"\r")) + 1
    rows = _patterns(separator)[1].match(block)
    return 0 if rows is None else rows.end()


def _lines(rows: bytes) -> int:
    return rows.count(b"\n") or rows.count(b"\r")


class _Recoded(io.RawIOBase):
    """A text file as if it were written in UTF-8."""

    def __init__(self, file: IO[bytes], encoding: str) -> None:
        self._file = file
        self._decoder = codecs.getincrementaldecoder(encoding)()
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            piece = self._file.read(_BLOCK_BYTES)
            self._rest = self._decoder.decode(piece, final=not piece).encode()
            if not piece:
                break
        given = self._rest[: len(buffer)]
        buffer[: len(given)] = given
        self._rest = self._rest[len(given) :]
        return len(given)


#: The next step for a text that is not UTF-8.
OTHER_ENCODING = "Name its encoding, as in --encoding cp1252."

#: The length of the longest byte order mark.
_MARK_BYTES = 4


def _marked_encoding(start: bytes) -> str | None:
    """Return the encoding of a file by its byte order mark; None for UTF-8."""
    marks = {
        codecs.BOM_UTF32_LE: "utf-32",
        codecs.BOM_UTF32_BE: "utf-32",
        codecs.BOM_UTF16_LE: "utf-16",
        codecs.BOM_UTF16_BE: "utf-16",
    }
    found = next((encoding for mark, encoding in marks.items() if start.startswith(mark)), None)
    if found is None and b"\0" in start[:_MARK_BYTES]:
        raise UnreadableError(
            "it has NUL bytes and no byte order mark, as UTF-16 may", "Name its encoding, as in --encoding utf-16-le."
        )
    return found


FORMATS = ("csv", "jsonl", "parquet")
_ENDINGS = {
    ".csv": "csv", ".tsv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".parquet": "parquet",
}  # fmt: skip

STDIN = "-"


class Source:
    """A file of rows, or stdin; a context manager.

    A format or separator of None goes by the name; an encoding of None is that of a byte order mark, or UTF-8.
    """

    def __init__(
        self,
        name: str,
        file_format: str | None = None,
        *,
        separator: str | None = None,
        encoding: str | None = None,
        dropped: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.dropped = tuple(dropped)
        if name != STDIN and Path(name).is_dir():
            self.file_format = file_format or "a file of rows"
            next_step = (
                'Publish it with Spark, which reads all of its files: spark.read.parquet(…).write.format("sparkqueue")'
                '.option("topic", …).mode("append").save(JOURNAL).'
            )
            raise self._unreadable(UnreadableError("it is a folder, as Spark saves a DataFrame", next_step))
        self.file_format = _format(name, file_format)
        self.separator = _separator(name, self.file_format, separator)
        self._encoding = _encoding(self.file_format, encoding)
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
        """Size as stored; None when it is not known."""
        return None if self.name == STDIN else Path(self.name).stat().st_size

    @property
    def read_bytes(self) -> int:
        """The part of it that was read."""
        return self._raw.tell() if self.name != STDIN and self._raw.seekable() else 0

    def batches(self, batch_rows: int) -> Iterator[pa.Table | list[bytes]]:
        """Yield the rows in batches of `batch_rows`, the last one shorter: tables, or for JSON lines the lines as they stand.

        A file that names columns but holds no row gives one empty table, so that its columns can be checked.
        """
        file: Any = gzip.GzipFile(fileobj=self._raw) if self.name.endswith(".gz") else self._raw
        try:
            if self.file_format == "parquet":
                yield from _even(_without(_parquet(file, batch_rows), self.dropped), batch_rows)
                return
            # The object of stdin may be no file that lets its first bytes be looked at.
            file = file if hasattr(file, "peek") else io.BufferedReader(file)
            encoding = self._encoding or _marked_encoding(file.peek(_MARK_BYTES))
            text = file if encoding is None else io.BufferedReader(_Recoded(file, encoding))
            if self.file_format == "csv":
                yield from _even(read_csv(text, separator=self.separator, dropped=self.dropped), batch_rows)
                return
            while lines := list(islice(text, batch_rows)):
                yield lines
        except (OSError, EOFError, ValueError, csv.Error, zlib.error, pa.ArrowException) as reason:
            raise self._unreadable(reason) from None

    def _unreadable(self, reason: Exception) -> CallerError:
        text = str(reason).split("\n", 1)[0]
        next_step = reason.next_step if isinstance(reason, UnreadableError) else "Correct the file, or give --format."
        facts = {"format": self.file_format, "reason": f"{text.rstrip('.')}.", "next_step": next_step}
        return CallerError("FILE_UNREADABLE", file=self.name, **facts)


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


def _separator(name: str, file_format: str, given: str | None) -> str:
    if given is None:
        return "\t" if Path(name.removesuffix(".gz")).suffix.lower() == ".tsv" else ","
    _refuse_unless(file_format == "csv", "--separator", file_format, "only CSV has a separator.")
    separator = {"tab": "\t", "\\t": "\t"}.get(given.lower(), given)
    if len(separator) != 1 or not separator.isascii() or separator in '"\r\n\0':
        raise bad_argument("--separator", given, "one character of ASCII, such as ';', or tab")
    return separator


def _encoding(file_format: str, given: str | None) -> str | None:
    if given is None:
        return None
    _refuse_unless(file_format != "parquet", "--encoding", file_format, "Parquet has an encoding of its own.")
    try:
        codecs.getincrementaldecoder(given)
        "".encode(given)
    except (LookupError, ValueError):
        raise bad_argument("--encoding", given, "the name of a text encoding, such as cp1252, latin-1 or utf-16") from None
    return given


def _refuse_unless(fits: bool, option: str, file_format: str, reason: str) -> None:
    if not fits:
        keys = f"{option}, --format {file_format}"
        raise ConfigError("CONTRADICTORY_SETTINGS", where="the arguments", reason=reason, keys=keys)


def _without(tables: Iterator[pa.Table], dropped: Collection[str]) -> Iterator[pa.Table]:
    """Leave columns out of tables that have the same ones."""
    for table in tables:
        kept = kept_columns(table.column_names, dropped) if dropped else None
        yield table if kept is None else table.select(list(kept))


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
        # Arrow reads them as bytes.
        raise ValueError(f"column {intervals[0]} has intervals, which no column can store")
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
            raise ValueError("a time has nanoseconds, but only microseconds are stored")


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


#: Signs that separate values of other files than those of CSV, as the option names them.
_SEPARATORS = {";": "';'", "\t": "tab", "|": "'|'"}


def advise(refusal: SparkQueueError, source: Source) -> None:
    """Add the option of the verb that may help to a refusal of a file's rows, as a note."""
    note, facts = "", refusal.facts
    if refusal.code == "UNKNOWN_COLUMN":
        note = _about_column(str(facts["column"]), source, has_nearest=bool(facts["nearest"]))
    elif refusal.code == "COLUMN_TYPE_MISMATCH" and SEVERAL_INSTANTS in facts["reason"]:
        note = "Name the zone of such times, as in --timezone Europe/Berlin."
    elif refusal.code == "COLUMN_TYPE_MISMATCH" and UNIT in facts["reason"] and facts["expected"].split()[0] == "TIMESTAMP":
        note = f"Name their unit since 1970 UTC: --epoch {' or --epoch '.join(EPOCHS)}."
    if note:
        refusal.add_note(note)


def _about_column(column: str, source: Source, *, has_nearest: bool) -> str:
    sign = next((sign for sign in _SEPARATORS if sign in column and source.file_format == "csv" and sign != source.separator), None)
    if sign is not None:
        return (
            f"The header has no '{source.separator}' there: if values are separated otherwise, add --separator {_SEPARATORS[sign]}."
        )
    if not column:
        return (
            "This is how pandas and R write the row index. Leave it out with --drop-column '', or write the file without it "
            "(index=False; row.names=FALSE)."
        )
    if has_nearest:
        return f"To leave it out, add --drop-column '{column}'."
    return (
        "To keep it, append it to `columns` of the message type, run `sparkq apply`, and publish again; to leave it out, add "
        f"--drop-column '{column}'."
    )
