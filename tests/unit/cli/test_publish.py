"""``sparkq publish`` of files that end badly: what stands is told, and no row is doubled or lost."""

from __future__ import annotations

import gzip
import json
import os
import struct
import threading
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from spark_queue import Journal
from spark_queue.cli import reading
from spark_queue.cli.verb import COORDINATOR_VARIABLE
from spark_queue.client.coordinator_client import CoordinatorClient
from spark_queue.client.publisher import Publisher
from spark_queue.errors import JournalError
from spark_queue.journal.commit import Published
from tests.unit.cli.sparkq import Answer, Terminal

DEFINITIONS = {
    "message_types": {"line": {"columns": "item STRING, amount BIGINT", "topics": ["LINES"]}},
    "queues": {"WORK": {"underlying_topic": "LINES"}},
}


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal.create(str(tmp_path / "journal"), DEFINITIONS)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "lines.jsonl"


def amounts(journal: Journal) -> list[object]:
    return journal.view("messages", queue="WORK", columns=["amount"]).column("amount").to_pylist()


def write(file: Path, *amounts: object, then: str = "") -> None:
    file.write_text("".join(f"{json.dumps({'amount': amount})}\n" for amount in amounts) + then)


def publish(sparkq: Terminal, journal: Journal, file: Path, *more: object) -> Answer:
    return sparkq("publish", journal.path, file, "--topic", "LINES", *more)


def test_durations_are_the_publish_s_own(sparkq: Terminal, journal: Journal, file: Path) -> None:
    """R60, R128: how long its messages live, and how long they are kept back."""
    write(file, 1)
    assert publish(sparkq, journal, file, "--deliver-after", "1h", "--expires-after", "2h").code == 0
    (row,) = journal.view("messages", queue="WORK").to_pylist()
    assert row["state"] == "delayed"
    assert round((row["expires_at"] - row["due_at"]).total_seconds() / 3_600, 2) == 1
    refused = publish(sparkq, journal, file, "--deliver-after", "soon")
    assert (refused.code, amounts(journal)) == (1, [1])
    assert "[BAD_VALUE] 'deliver_after'" in refused.err


def test_a_refusal_after_commits_says_what_stands_and_what_is_left_to_publish(
    sparkq: Terminal, journal: Journal, file: Path
) -> None:
    write(file, 1, 2, 3, 4, then="no JSON\n")
    refused = publish(sparkq, journal, file, "--batch-rows", 2)
    assert (refused.code, amounts(journal)) == (1, [1, 2, 3, 4])
    assert "[ROWS_UNREADABLE]" in refused.err
    assert "line 5" in refused.err
    assert "Nothing of this commit was published." in refused.err
    assert f"The first 4 rows of '{file}' are in the journal." in refused.err
    assert "publish only those, because the whole file would double them" in refused.err


def test_a_refusal_of_the_first_commit_says_that_nothing_is_there(sparkq: Terminal, journal: Journal, file: Path) -> None:
    write(file, 1, "x")
    refused = publish(sparkq, journal, file)
    assert refused.err.rstrip().endswith("Nothing was published.")
    assert amounts(journal) == []


def test_a_pipe_may_be_named_as_a_file(sparkq: Terminal, journal: Journal, file: Path) -> None:
    """As by `<(command)` of a shell."""
    os.mkfifo(file)
    writing = threading.Thread(target=write, args=(file, 1, 2, 3), daemon=True)
    writing.start()
    told = publish(sparkq, journal, file, "--batch-rows", 2)
    writing.join()
    assert told.code == 0, told.err
    assert amounts(journal) == [1, 2, 3]


def test_a_named_publisher_goes_on_with_the_mended_file(sparkq: Terminal, journal: Journal, file: Path) -> None:
    """R95: the rows that stand are dropped by their numbers, and the rest follows."""
    write(file, 1, 2, 3, "x", 5)
    refused = publish(sparkq, journal, file, "--batch-rows", 2, "--publisher", "p", "--json")
    told = json.loads(refused.err)["error"]
    assert told["code"] == "COLUMN_TYPE_MISMATCH"
    assert "The first 2 rows" in told["message"]
    assert "run the same command with --repeat, which skips them" in told["message"]
    write(file, 1, 2, 3, 4, 5)
    again = publish(sparkq, journal, file, "--batch-rows", 2, "--publisher", "p", "--repeat", "--json")
    assert again.json == {"rows": 3, "duplicates": 2}
    assert amounts(journal) == [1, 2, 3, 4, 5]


def test_rows_that_were_there_before_count_among_those_that_stand(sparkq: Terminal, journal: Journal, file: Path) -> None:
    write(file, 1, 2)
    publish(sparkq, journal, file, "--batch-rows", 2, "--publisher", "p")
    write(file, 1, 2, 3, 4, "x")
    refused = publish(sparkq, journal, file, "--batch-rows", 2, "--publisher", "p", "--repeat")
    assert "The first 4 rows" in refused.err


def test_appended_rows_are_not_to_be_repeated(sparkq: Terminal, journal: Journal, file: Path) -> None:
    """A repeat is numbered from 1, where the publisher's earlier file stands."""
    write(file, 1, 2)
    publish(sparkq, journal, file, "--publisher", "p")
    write(file, 3, 4, "x")
    refused = publish(sparkq, journal, file, "--batch-rows", 2, "--publisher", "p", "--append")
    assert "The first 2 rows" in refused.err
    assert "publish only those, with --append again" in refused.err
    assert "--repeat" not in refused.err


def test_blank_lines_take_no_numbers_of_a_publisher(sparkq: Terminal, journal: Journal, file: Path) -> None:
    """R95: else a repeat with other commits would number the rows otherwise, and drop some that are new."""
    file.write_text('{"amount": 1}\n\n{"amount": 2}\n{"amount": 3}\n')
    publish(sparkq, journal, file, "--batch-rows", 2, "--publisher", "p")
    with file.open("a") as more:
        more.write('{"amount": 4}\n')
    again = publish(sparkq, journal, file, "--publisher", "p", "--repeat", "--json")
    assert again.json == {"rows": 1, "duplicates": 3}
    assert amounts(journal) == [1, 2, 3, 4]


def test_after_a_failure_of_the_store_more_may_stand(
    sparkq: Terminal, journal: Journal, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(file, 1, 2, 3)
    genuine = Publisher.publish

    def fails_later(self: Publisher, *rows: Any, first_sequence: int, **more: Any) -> Published:
        if first_sequence > 1:
            raise JournalError("STORE_FAILED", path="x", doing="publishing", reason="Gone.", next_step="Look.")
        return genuine(self, *rows, first_sequence=first_sequence, **more)

    monkeypatch.setattr(Publisher, "publish", fails_later)
    refused = publish(sparkq, journal, file, "--batch-rows", 2, "--publisher", "p")
    assert "[STORE_FAILED]" in refused.err
    assert "At least the first 2 rows" in refused.err


@pytest.mark.parametrize("content", ["kettle,2", "item,amuont\n", "item,amuont\n\n"])
def test_columns_are_checked_without_rows(sparkq: Terminal, journal: Journal, tmp_path: Path, content: str) -> None:
    """A file of one row and no header looks like a header without rows; its order must not vanish."""
    file = tmp_path / "lines.csv"
    file.write_text(content)
    refused = publish(sparkq, journal, file)
    assert refused.code == 1
    assert "[UNKNOWN_COLUMN]" in refused.err


def test_columns_of_parquet_are_checked_without_rows(sparkq: Terminal, journal: Journal, tmp_path: Path) -> None:
    file = tmp_path / "lines.parquet"
    pq.write_table(pa.table({"amuont": pa.array([], pa.int64())}), file)
    assert "[UNKNOWN_COLUMN]" in publish(sparkq, journal, file).err


@pytest.mark.parametrize(
    ("name", "content"), [("a.csv", ""), ("a.csv", "item,amount\n"), ("a.csv", "item,amount\n\n"), ("a.jsonl", "\n")]
)
def test_a_file_without_rows_is_warned_of(sparkq: Terminal, journal: Journal, tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    done = publish(sparkq, journal, tmp_path / name, "--json")
    assert (done.code, done.json["rows"]) == (0, 0)
    assert f"warning '{tmp_path / name}' holds no rows." in done.err


def test_rows_that_fill_their_commits_are_followed_by_no_empty_one(sparkq: Terminal, journal: Journal, tmp_path: Path) -> None:
    file = tmp_path / "lines.csv"
    file.write_text("amount\n1\n2\n3\n4\n")
    done = publish(sparkq, journal, file, "--batch-rows", 2)
    assert (done.out, done.err.strip()) == ("Published 4 messages.\n", "")


@pytest.mark.parametrize(
    ("at", "reason"),
    [
        ("never", "Failed to parse string: 'never' as a scalar of type TIMESTAMP_NTZ. Correct"),
        ("2026-10-25 02:30:00", "CEST == 2026-10-25 00:30:00.000000 UTC or 2026-10-25 02:30:00.000000 CET == "),
        ("2026-03-29 02:30:00", "is in a gap between 2026-03-29 02:00:00 CET and 2026-03-29 03:00:00 CEST"),
    ],
)
def test_times_that_a_zone_cannot_tell_are_refused_by_name(sparkq: Terminal, tmp_path: Path, at: str, reason: str) -> None:
    """The second one happens twice, when summer ends, and the third one not at all; no reason ends in mid-sentence."""
    types = {"line": {"columns": "amount BIGINT, at TIMESTAMP", "topics": ["LINES"]}}
    journal = Journal.create(str(tmp_path / "journal"), {"message_types": types})
    (tmp_path / "lines.csv").write_text(f"amount,at\n1,2026-01-31 08:00:00\n2,2026-01-31T08:00:00Z\n3,{at}\n")
    refused = publish(sparkq, journal, tmp_path / "lines.csv", "--timezone", "Europe/Berlin")
    assert "[COLUMN_TYPE_MISMATCH] Column 'at' of message type 'line' is STRING in row 2" in refused.err
    assert reason in refused.err
    assert f"Row 2 of this commit is row 3 of '{tmp_path / 'lines.csv'}'." in refused.err


def test_a_value_that_does_not_fit_is_told_with_its_line(sparkq: Terminal, journal: Journal, file: Path) -> None:
    write(file, 1, 2, 3)
    with file.open("a") as more:
        more.write('\n{"amount": 4}\n\n{"amount": "five"}\n')
    refused = publish(sparkq, journal, file, "--batch-rows", 4)
    assert f"Row 1 of this commit is line 7 of '{file}'." in refused.err


def test_a_body_that_is_no_json_is_told_with_its_line(sparkq: Terminal, tmp_path: Path) -> None:
    journal = Journal.create(str(tmp_path / "journal"), {"message_types": {"json": {"topics": ["LINES"]}}})
    (tmp_path / "a.jsonl").write_text('{"a": 1}\n\n{"a": \n')
    refused = publish(sparkq, journal, tmp_path / "a.jsonl")
    assert "[ROWS_UNREADABLE]" in refused.err
    assert "is line 3 of" in refused.err


def test_a_zone_that_is_none_is_refused_before_anything_is_read(sparkq: Terminal, journal: Journal, file: Path) -> None:
    assert "[BAD_VALUE] '--timezone'" in publish(sparkq, journal, file, "--timezone", "Mars/Olympus").err


@pytest.mark.parametrize("first", ['{"amount": 1}', "{}"])
def test_rows_without_columns_are_counted_and_never_doubled(sparkq: Terminal, journal: Journal, file: Path, first: str) -> None:
    """R95: a row that is left out of the count shifts the numbers of those behind it."""
    file.write_text(f"{first}\n{{}}\n{{}}\n")
    assert publish(sparkq, journal, file, "--publisher", "p").out == "Published 3 messages.\n"
    before = amounts(journal)
    again = publish(sparkq, journal, file, "--batch-rows", 2, "--publisher", "p", "--repeat", "--json")
    assert again.json == {"rows": 0, "duplicates": 3}
    assert amounts(journal) == before == [json.loads(first).get("amount"), None, None]


def test_a_quoted_empty_text_is_no_null(sparkq: Terminal, journal: Journal, tmp_path: Path) -> None:
    (tmp_path / "lines.csv").write_text('ITEM,Amount\n"",1\n,2\n')
    publish(sparkq, journal, tmp_path / "lines.csv")
    assert journal.view("messages", queue="WORK", columns=["item"]).column("item").to_pylist() == ["", None]


@pytest.mark.parametrize(
    ("content", "code", "text"),
    [
        ('item,amount\nx,1\n"y,2\nz,3\n', "FILE_UNREADABLE", "the row that begins in line 3 has an unclosed quote"),
        ('[{"amount": 1}, {"amount": 2}]', "ROWS_UNREADABLE", "a.json, line 1 is not a JSON object. If the file is one array"),
        ('[\n  {"amount": 1}\n]\n', "ROWS_UNREADABLE", "convert it: `jq -c '.[]'`."),
        (
            '{\n  "amount": 1\n}\n',
            "ROWS_UNREADABLE",
            "If an object has several lines, `jq -c .` joins them. Nothing was published.",
        ),
        ("7\n", "ROWS_UNREADABLE", "a.json, line 1 is not a JSON object."),
        ('{"amount": 1e5000}', "COLUMN_TYPE_MISMATCH", "'1E+5000' is no whole number"),
        ('{"amount": 1e999999999}', "COLUMN_TYPE_MISMATCH", "'1E+999999999' is no whole number"),
        ('{"amount": 1e99999999999999999999}', "ROWS_UNREADABLE", "the exponent of 1e99999999999999999999"),
        (f'{{"amount": {"1" * 5_000}}}', "ROWS_UNREADABLE", "a whole number of 5,000 digits"),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused_by_name(
    sparkq: Terminal, journal: Journal, content: str, code: str, text: str
) -> None:
    file = Path(journal.path).with_name("a.csv" if content.startswith("item") else "a.json")
    file.write_text(content)
    refused = publish(sparkq, journal, file)
    assert f"[{code}]" in refused.err
    assert text in refused.err
    assert amounts(journal) == []


def test_intervals_are_refused(sparkq: Terminal, journal: Journal, tmp_path: Path) -> None:
    """For Arrow they are bytes."""
    file = tmp_path / "intervals.parquet"
    duckdb.sql(f"COPY (SELECT INTERVAL 1 DAY AS amount) TO '{file}' (FORMAT parquet)")
    assert "column amount has intervals" in publish(sparkq, journal, file).err


def test_a_page_that_is_not_as_its_checksum_says_is_refused(sparkq: Terminal, journal: Journal, tmp_path: Path) -> None:
    file = tmp_path / "lines.parquet"
    rows = pa.table({"amount": list(range(1_000))})
    pq.write_table(rows, file, write_page_checksum=True, compression="none", use_dictionary=False)
    data = bytearray(file.read_bytes())
    data[500] ^= 1
    file.write_bytes(data)
    assert "[FILE_UNREADABLE]" in publish(sparkq, journal, file).err
    assert amounts(journal) == []


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize(("year", "nanoseconds"), [(9999, 0), (1, 0), (2024, 0), (2024, 5), (2400, 616)])
def test_old_times_of_parquet_are_stored_as_they_are_or_refused(
    sparkq: Terminal, tmp_path: Path, year: int, nanoseconds: int, *, nested: bool
) -> None:
    """INT96 counts days and nanoseconds of a day; as 64-bit nanoseconds they would wrap around."""
    columns = "at ARRAY<TIMESTAMP_NTZ>" if nested else "at TIMESTAMP_NTZ"
    journal = Journal.create(str(tmp_path / "journal"), {"message_types": {"line": {"columns": columns, "topics": ["LINES"]}}})
    at, file = datetime(year, 5, 1, 12, 30), tmp_path / "lines.parquet"  # noqa: DTZ001 - a reading of a clock
    times: pa.Array[Any] = pa.array([datetime(2024, 5, 1)], pa.timestamp("us"))  # noqa: DTZ001 - replaced below
    column: Any = pa.array([times.to_pylist()], pa.list_(pa.timestamp("us"))) if nested else times
    pq.write_table(
        pa.table({"at": column}), file, use_deprecated_int96_timestamps=True, compression="none", use_dictionary=False,
        write_statistics=False,
    )  # fmt: skip
    julian = 2_440_588
    old = struct.pack("<qi", 0, (date(2024, 5, 1) - date(1970, 1, 1)).days + julian)
    new = struct.pack("<qi", 45_000 * 10**9 + nanoseconds, (at.date() - date(1970, 1, 1)).days + julian)
    data = file.read_bytes()
    assert data.count(old) == 1
    file.write_bytes(data.replace(old, new))
    said = publish(sparkq, journal, file)
    stored = DeltaTable(journal.store.messages_uri("line")).to_pyarrow_table(columns=["at"]).column("at").to_pylist()
    assert stored == ([] if nanoseconds else [[at]] if nested else [at])
    assert ("has nanoseconds" in said.err) == bool(nanoseconds)


def test_a_damaged_archive_is_refused_by_name(sparkq: Terminal, journal: Journal, tmp_path: Path) -> None:
    damaged = bytearray(gzip.compress(b"item,amount\nx,1\n", mtime=0))
    damaged[10] ^= 0xFF
    (tmp_path / "a.csv.gz").write_bytes(damaged)
    assert "[FILE_UNREADABLE]" in publish(sparkq, journal, tmp_path / "a.csv.gz").err


def test_an_array_of_bodies_is_refused_with_a_way_out(sparkq: Terminal, tmp_path: Path) -> None:
    journal = Journal.create(str(tmp_path / "journal"), {"message_types": {"json": {"topics": ["LINES"]}}})
    (tmp_path / "a.json").write_text('[\n{"a": 1}\n]\n')
    assert "If the file is one array, convert it: `jq -c '.[]'`." in publish(sparkq, journal, tmp_path / "a.json").err


def test_lines_of_csv_may_end_as_on_old_machines(sparkq: Terminal, journal: Journal, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"item,amount\rx,1\ry,2\r")
    assert publish(sparkq, journal, tmp_path / "a.csv").out == "Published 2 messages.\n"
    assert amounts(journal) == [1, 2]


TIMES = {
    "message_types": {"time": {"columns": "id BIGINT, name STRING, at TIMESTAMP", "topics": ["TIMES"]}},
    "queues": {"TIMES": {}},
}


@pytest.fixture
def times(tmp_path: Path) -> Journal:
    return Journal.create(str(tmp_path / "times"), TIMES)


@pytest.fixture
def publish_times(sparkq: Terminal, times: Journal, tmp_path: Path) -> Callable[..., Answer]:
    """Publish what a file of a name has in it."""

    def publish(name: str, content: bytes, *words: str) -> Answer:
        (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return sparkq("publish", times.path, tmp_path / name, "--topic", "TIMES", *words)

    return publish


def names(times: Journal) -> list[tuple[int, str]]:
    table = times.view("messages", queue="TIMES", columns=["id", "name"])
    return [(row["id"], row["name"]) for row in table.to_pylist()]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("semi.csv", b'id;name\n1;"a;\nb"\n2;,\n', ["--separator", ";"]),
        ("tabs.csv", b'id\tname\r\n1\t"a;\nb"\r\n2\t,\r\n', ["--separator", "tab"]),
        ("tabs.csv", b'id\tname\n1\t"a;\nb"\n2\t,\n', ["--separator", "\\t"]),
        ("tabs.tsv", b'id\tname\n1\t"a;\nb"\n2\t,\n', []),
        ("index.csv", b',id,name\n0,1,"a;\nb"\n1,2,","\n', ["--drop-column", ""]),
        ("index.csv", b'"",id,"",name\n0,1,x,"a;\nb"\n1,2,y,","\n', ["--drop-column", ""]),
        ("more.csv", b'colour,id,name,Form\nred,1,"a;\nb",\n,2,",",\n', ["--drop-column", "Colour", "--drop-column", "form"]),
        ("more.jsonl", b'{"id":1,"name":"a;\\nb"}\n{"COLOUR":3,"id":2,"name":","}\n', ["--drop-column", "colour"]),
        ("utf16.csv", 'id,name\n1,"a;\nb"\n2,","\n'.encode("utf-16"), []),
        ("utf16.jsonl", '{"id":1,"name":"a;\\nb"}\n{"id":2,"name":","}\n'.encode("utf-16"), []),
        ("utf32.csv", 'id,name\n1,"a;\nb"\n2,","\n'.encode("utf-32"), []),
        ("utf16.csv.gz", 'id,name\n1,"a;\nb"\n2,","\n'.encode("utf-16"), []),
        ("utf16le.csv", 'id,name\n1,"a;\nb"\n2,","\n'.encode("utf-16-le"), ["--encoding", "UTF-16LE"]),
        ("mark.jsonl", b'\xef\xbb\xbf{"id":1,"name":"a;\\nb"}\n{"id":2,"name":","}\n', []),
    ],
)
def test_files_are_read_as_people_have_them(
    publish_times: Callable[..., Answer], times: Journal, name: str, content: bytes, words: list[str]
) -> None:
    assert publish_times(name, content, *words).code == 0
    assert names(times) == [(1, "a;\nb"), (2, ",")]


@pytest.mark.parametrize("block_bytes", [1, 2, 3, 4_096])
def test_another_encoding_is_read_whatever_a_block_ends_with(
    sparkq: Terminal, times: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block_bytes: int
) -> None:
    monkeypatch.setattr(reading, "_BLOCK_BYTES", block_bytes)
    file = tmp_path / "old.csv"
    for encoding in ("cp1252", "utf-16-be", "shift_jis"):
        text = "表" if encoding == "shift_jis" else "Müller"
        file.write_bytes(f"id,name\n1,{text}\n".encode(encoding))
        assert sparkq("publish", times.path, file, "--topic", "TIMES", "--encoding", encoding).code == 0
    assert names(times) == [(1, "Müller"), (1, "Müller"), (1, "表")]


@pytest.mark.parametrize(
    ("name", "content", "words", "text"),
    [
        ("semi.csv", b"id;name\n1;a\n", [], "add --separator ';'."),
        ("tabs.csv", b"id\tname\n1\ta\n", [], "add --separator tab."),
        ("comma.tsv", b"id,name;x\n1,a\n", [], "add --separator ';'."),
        ("index.csv", b",id\n0,1\n", [], "This is how pandas and R write the row index. Leave it out with --drop-column ''"),
        ("new.csv", b"id,colour\n1,red\n", [], "append it to `columns` of the message type, run `sparkq apply`"),
        ("new.jsonl", b'{"id":1}\n\n{"id":2,"colour":"red"}\n', [], "Row 1 of this commit is line 3 of"),
        ("twice.jsonl", b'{"id":1,"Name":"a"}\n{"name":"a","Name":"b"}\n', [], "Row 1 of this commit is line 2 of"),
        ("near.csv", b"id,nam\n1,a\n", [], "Did you mean 'name'?"),
        ("twice.csv", b"id,name,Name\n1,a,b\n", [], "Column 'Name' of the file is given twice, as 'name' and as 'Name'"),
        ("twice.csv", b"id,name,name\n", [], "[COLUMN_TWICE]"),
        ("old.csv", b"id,name\n1,a\n2,M\xfcller\n", [], "line 3 is not UTF-8, at byte 0xfc. Name its encoding, as in"),
        ("old.csv", b"id,nam\xe9\n", [], "line 1 is not UTF-8, at byte 0xe9."),
        ("old.jsonl", b'{"id":1}\n{"name":"M\xfcller"}\n', [], "old.jsonl, line 2 is not UTF-8"),
        ("bare.csv", "id,name\n1,a\n".encode("utf-16-le"), [], "it has NUL bytes and no byte order mark, as UTF-16 may."),
        ("any.csv", b"id\n1\n", ["--encoding", "klingon"], "the name of a text encoding"),
        ("any.csv", b"id\n1\n", ["--encoding", "base64"], "the name of a text encoding"),
        ("any.csv", b"id\n1\n", ["--separator", "::"], "one character of ASCII, such as ';', or tab"),
        ("any.csv", b"id\n1\n", ["--separator", '"'], "one character of ASCII, such as ';', or tab"),
        ("any.jsonl", b'{"id":1}\n', ["--separator", ";"], "only CSV has a separator"),
        ("any.csv", b"id\n1\n", ["--drop-column", "idd"], "no column 'idd' in the file. Did you mean 'id'?"),
        ("any.csv", b"id\n1\n", ["--epoch", "fortnights"], "seconds or milliseconds"),
        ("ms.jsonl", b'{"at":1706695200000}\n', [], "Name their unit since 1970 UTC: --epoch seconds or"),
        ("ms.csv", b"at\n1706695200000\n", [], "Name their unit since 1970 UTC: --epoch seconds or"),
        ("bare.csv", b"at\n2024-01-01T00:00:00\n", [], "Name the zone of such times, as in --timezone Europe/Berlin."),
    ],
)  # fmt: skip
def test_what_a_file_needs_is_told(
    publish_times: Callable[..., Answer], name: str, content: bytes, words: list[str], text: str
) -> None:
    refused = publish_times(name, content, *words)
    assert refused.code == 1
    assert text in refused.err
    # Of the others nothing lacks a zone.
    assert ("--timezone" in refused.err) == ("--timezone" in text)


def test_a_folder_is_published_with_spark(sparkq: Terminal, times: Journal, tmp_path: Path) -> None:
    for name in ("saved.parquet", "saved"):
        (tmp_path / name).mkdir()
        refused = sparkq("publish", times.path, tmp_path / name, "--topic", "TIMES")
        assert "it is a folder, as Spark saves a DataFrame. Publish it with Spark" in refused.err


EPOCH = datetime(2024, 1, 31, 10, tzinfo=UTC)


@pytest.mark.parametrize(
    ("unit", "name", "content"),
    [
        ("milliseconds", "ms.jsonl", b'{"at":1706695200000}\n{"at":1706695200000.0}\n{"at":"1706695200000"}\n{"at":null}\n'),
        ("seconds", "s.jsonl", b'{"at":1706695200}\n{"at":1706695200.000}\n{"at":"2024-01-31T11:00:00+01:00"}\n{"at":null}\n'),
        ("milliseconds", "ms.csv", b"id,at\n1,1706695200000\n2,1706695200000.000\n3,2024-01-31T10:00:00Z\n4,\n"),
        ("seconds", "s.csv", b"id,at\n1,1706695200\n2,1706695200.0\n3,2024-01-31T10:00:00.000000000Z\n4,\n"),
    ],
)
def test_numbers_are_times_where_the_call_says_what_they_count(
    publish_times: Callable[..., Answer], times: Journal, unit: str, name: str, content: bytes
) -> None:
    assert publish_times(name, content, "--epoch", unit).code == 0
    assert times.view("messages", queue="TIMES", columns=["at"]).column("at").to_pylist() == [EPOCH, EPOCH, EPOCH, None]


def test_numbers_of_parquet_are_times_too(sparkq: Terminal, times: Journal, tmp_path: Path) -> None:
    file = tmp_path / "numbers.parquet"
    for kind in (pa.int64(), pa.uint64(), pa.float64(), pa.decimal128(20, 3), pa.string()):
        text = pa.array(["1706695200.5" if kind in (pa.float64(), pa.decimal128(20, 3), pa.string()) else "1706695200"])
        pq.write_table(pa.table({"at": text.cast(kind)}), file)
        assert sparkq("publish", times.path, file, "--topic", "TIMES", "--epoch", "seconds").code == 0
    half = EPOCH + timedelta(seconds=0.5)
    found = times.view("messages", queue="TIMES", columns=["at"]).column("at").to_pylist()
    assert found == [EPOCH, EPOCH, half, half, half]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("1706695200.0000001", "1706695200.0000001 has a fraction of a microsecond"),
        ("99999999999999", "99999999999999 is outside of the years 1 to 9999"),
        ("9" * 30, "is outside of the years 1 to 9999"),
        ("true", "BOOLEAN"),
    ],
)
def test_a_number_that_is_no_time_is_refused(sparkq: Terminal, times: Journal, tmp_path: Path, value: str, text: str) -> None:
    (tmp_path / "s.jsonl").write_text(f'{{"at":1}}\n{{"at":{value}}}\n')
    refused = sparkq("publish", times.path, tmp_path / "s.jsonl", "--topic", "TIMES", "--epoch", "seconds")
    assert text in refused.err
    assert "line 2" in refused.err
    assert names(times) == []


def test_the_coordinator_that_is_named_hears_of_it(
    sparkq: Terminal, journal: Journal, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By an option, or by the environment for all verbs; one that nobody could ask is refused before anything is published."""
    nudged: list[str | None] = []
    monkeypatch.setattr(CoordinatorClient, "nudge", lambda self, *_: nudged.append(self._endpoint.addresses))
    write(file, 1)
    assert publish(sparkq, journal, file, "--coordinator", "127.0.0.1:7").code == 0
    monkeypatch.setenv(COORDINATOR_VARIABLE, "127.0.0.1:8")
    assert publish(sparkq, journal, file).code == 0
    assert nudged == ["127.0.0.1:7", "127.0.0.1:8"]
    answer = publish(sparkq, journal, file, "--coordinator", "127.0.0.1:7,")
    assert (answer.code, "BAD_VALUE" in answer.err, len(amounts(journal))) == (1, True, 2)
