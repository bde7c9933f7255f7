"""``sparkq publish`` of files that end badly: what stands is told, and no row is doubled or lost."""

from __future__ import annotations

import gzip
import json
import struct
from datetime import date, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from spark_queue import Journal
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
    assert "No earlier commit of this run published anything." in refused.err
    assert amounts(journal) == []


def test_a_named_publisher_goes_on_with_the_mended_file(sparkq: Terminal, journal: Journal, file: Path) -> None:
    """R95: the rows that stand are dropped by their numbers, and the rest follows."""
    write(file, 1, 2, 3, "x", 5)
    refused = publish(sparkq, journal, file, "--batch-rows", 2, "--publisher", "p", "--json")
    told = json.loads(refused.err)["error"]
    assert told["code"] == "COLUMN_TYPE_MISMATCH"
    assert "The first 2 rows" in told["message"]
    assert "run the same command with --repeat: they are dropped" in told["message"]
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
        ("never", "Failed to parse string: 'never' as a scalar of type timestamp[us]. Correct"),
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
    assert "[COLUMN_TYPE_MISMATCH] Column 'at' of message type 'line' is string in row 2" in refused.err
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
        ('item,amount\nx,1\n"y,2\nz,3\n', "FILE_UNREADABLE", "the row that begins in line 3 has a quote that is not closed"),
        ('[{"amount": 1}, {"amount": 2}]', "ROWS_UNREADABLE", "one object per line, not an array of them"),
        ('[\n  {"amount": 1}\n]\n', "ROWS_UNREADABLE", "one object per line, as JSON"),
        ('{\n  "amount": 1\n}\n', "ROWS_UNREADABLE", "one object per line, as JSON"),
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
    assert "one object per line, as JSON" in publish(sparkq, journal, tmp_path / "a.json").err


def test_lines_of_csv_may_end_as_on_old_machines(sparkq: Terminal, journal: Journal, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"item,amount\rx,1\ry,2\r")
    assert publish(sparkq, journal, tmp_path / "a.csv").out == "Published 2 messages.\n"
    assert amounts(journal) == [1, 2]
