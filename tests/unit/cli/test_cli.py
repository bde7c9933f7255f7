"""``sparkq`` without a coordinator: creating, publishing, looking, verifying, refusing (DESIGN 9)."""

from __future__ import annotations

import gzip
import io
import json
import re
import socket
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from spark_queue import Journal, session
from spark_queue.cli import doctor
from spark_queue.errors import ConfigError, JournalError
from spark_queue.settings.registry import key_rows, option_rows
from spark_queue.source.loading import describe
from tests.unit.cli.sparkq import Terminal

CSV = "item,amount,at\npear,1,2026-01-31T12:00:00Z\n007,2,2026-01-31T12:00:01+01:00\n,3,\n"


def bodies(journal: Journal, *columns: str) -> list[tuple[object, ...]]:
    table = journal.view("messages", queue="WORK", columns=columns)
    return [tuple(row[name] for name in columns) for row in table.to_pylist()]


def test_help_loads_nothing_that_is_slow() -> None:
    """DESIGN 9: --help within 300 ms, hence without Arrow, Delta and Spark."""
    code = "import sys, spark_queue.cli.app; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {"pyarrow", "deltalake", "obstore", "pyspark", "rich"}.isdisjoint(done.stdout.split())


def test_init_creates_a_journal_with_its_queues(sparkq: Terminal, tmp_path: Path, definitions: Path) -> None:
    answer = sparkq("init", tmp_path / "new", definitions, "--json")
    assert (answer.code, answer.json["queues"]) == (0, ["WORK"])
    assert answer.json["journal"] == Journal(str(tmp_path / "new")).journal_id()


def test_a_name_with_dots_is_no_journal(
    sparkq: Terminal, journal: Journal, tmp_path: Path, definitions: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    for words in (["init", "shop.v2", definitions], ["backup", journal.path, "shop.v2"], ["status", "shop.v2"]):
        answer = sparkq(*words)
        assert answer.code == 1
        assert "the directory of this name is './shop.v2'" in " ".join(answer.err.split())
    with pytest.raises(ConfigError, match=r"BAD_VALUE.*'\./shop\.v2'"):
        describe({"journal": "shop.v2", "view": "status"})
    peer = {"journal": {"instance": "a"}, "peers": {"b": {"journal": "main.shop"}}}
    known = tomllib.loads(definitions.read_text())
    for change in (lambda: journal.apply({**known, **peer}, dry_run=True), lambda: Journal.create(str(tmp_path / "a"), peer)):
        with pytest.raises(ConfigError, match=r"BAD_VALUE.*'journal' in \[peers\.b\] is 'main\.shop'"):
            change()
    assert sorted(tmp_path.iterdir()) == before


def test_init_refuses_a_place_that_is_taken_by_code_and_text(sparkq: Terminal, journal: Journal) -> None:
    answer = sparkq("init", journal.path)
    assert answer.code == 1
    assert "[JOURNAL_EXISTS]" in answer.err
    as_json = json.loads(sparkq("init", journal.path, "--json").err)
    assert as_json["error"]["code"] == "JOURNAL_EXISTS"


def test_wrong_usage_exits_with_2(sparkq: Terminal) -> None:
    answer = sparkq("statsu")
    assert answer.code == 2
    assert "statsu" in answer.err


def test_options_lists_the_whole_registry(sparkq: Terminal) -> None:
    found = sparkq("options", "--json").json
    assert [row["name"] for row in found["keys"]] == [row.name for row in key_rows()]
    assert [row["name"] for row in found["options"]] == [row.name for row in option_rows()]
    markdown = sparkq("options", "--markdown").out
    assert all(f"| `{row.name}` |" in markdown for row in (*key_rows(), *option_rows()))


def test_publish_reads_csv_by_the_message_types_columns(sparkq: Terminal, journal: Journal, tmp_path: Path) -> None:
    """A leading zero survives, because the type says what is a text; an empty field is NULL."""
    (tmp_path / "lines.csv").write_text(CSV)
    answer = sparkq("publish", journal.path, tmp_path / "lines.csv", "--topic", "LINES", "--json")
    assert answer.json == {"rows": 3, "duplicates": 0}
    assert bodies(journal, "item", "amount") == [("pear", 1), ("007", 2), (None, 3)]


def test_publish_reads_compressed_files_and_cuts_them_into_commits(sparkq: Terminal, journal: Journal, tmp_path: Path) -> None:
    (tmp_path / "lines.csv.gz").write_bytes(gzip.compress(CSV.encode()))
    sparkq("publish", journal.path, tmp_path / "lines.csv.gz", "--topic", "LINES", "--batch-rows", "2")
    assert len(list((Path(journal.path) / "messages" / "line").glob("*.parquet"))) == 2
    assert len(bodies(journal, "amount")) == 3


def test_publish_reads_json_lines_from_stdin(sparkq: Terminal, journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = b'{"item": "pear", "amount": 1}\n\n{"amount": 2}\n'
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines)))
    assert sparkq("publish", journal.path, "-", "--topic", "LINES", "--json").json["rows"] == 2
    assert bodies(journal, "item", "amount") == [("pear", 1), (None, 2)]


def test_publish_takes_a_json_line_as_the_body_of_type_json(sparkq: Terminal, journal: Journal, tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_text('{"a": 1.0}\n')
    assert sparkq("publish", journal.path, tmp_path / "events.jsonl", "--topic", "EVENTS", "--json").json["rows"] == 1


def test_publish_reads_parquet_with_a_topic_column(sparkq: Terminal, journal: Journal, tmp_path: Path) -> None:
    pq.write_table(pa.table({"topic": ["LINES", "LINES"], "amount": [1, 2]}), tmp_path / "lines.parquet")
    assert sparkq("publish", journal.path, tmp_path / "lines.parquet", "--json").json["rows"] == 2


def publish_lines(sparkq: Terminal, journal: Journal, path: Path, *more: object) -> Any:
    """Publish a file under the name p."""
    return sparkq("publish", journal.path, path, "--topic", "LINES", "--publisher", "p", "--batch-rows", 2, "--json", *more)


def test_publish_of_a_file_again_under_a_name_publishes_once(sparkq: Terminal, journal: Journal, tmp_path: Path) -> None:
    """R95: rows are numbered by their place in the file."""
    (tmp_path / "lines.csv").write_text(CSV)
    assert publish_lines(sparkq, journal, tmp_path / "lines.csv").json == {"rows": 3, "duplicates": 0}
    assert publish_lines(sparkq, journal, tmp_path / "lines.csv", "--repeat").json == {"rows": 0, "duplicates": 3}


def test_publish_of_another_file_under_a_used_name_drops_no_row_in_silence(
    sparkq: Terminal, journal: Journal, tmp_path: Path
) -> None:
    """R95: only the sender knows whether rows are the same; nothing is guessed."""
    (tmp_path / "lines.csv").write_text(CSV)
    (tmp_path / "more.csv").write_text("amount\n4\n5\n")
    publish_lines(sparkq, journal, tmp_path / "lines.csv")
    refused = publish_lines(sparkq, journal, tmp_path / "more.csv")
    assert refused.code == 1
    assert "SEQUENCE_MISSING" in refused.err
    assert "--append" in refused.err
    assert len(bodies(journal, "amount")) == 3
    assert publish_lines(sparkq, journal, tmp_path / "more.csv", "--append").json == {"rows": 2, "duplicates": 0}
    assert [amount for (amount,) in bodies(journal, "amount")] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("said", [("--publisher", "p", "--repeat", "--append"), ("--repeat",), ("--append",)])
def test_publish_refuses_to_number_rows_in_two_ways_or_for_nobody(
    sparkq: Terminal, journal: Journal, tmp_path: Path, said: tuple[str, ...]
) -> None:
    (tmp_path / "lines.csv").write_text(CSV)
    refused = sparkq("publish", journal.path, tmp_path / "lines.csv", "--topic", "LINES", *said)
    assert "[CONTRADICTORY_SETTINGS]" in refused.err
    assert bodies(journal, "amount") == []


def test_the_version_is_printed(sparkq: Terminal) -> None:
    assert sparkq("--version").out.startswith("sparkq ")


def test_options_are_shown_whole(sparkq: Terminal) -> None:
    assert "…" not in sparkq("options").out


def test_publish_refuses_bare_times_unless_their_zone_is_named(sparkq: Terminal, journal: Journal, tmp_path: Path) -> None:
    (tmp_path / "lines.csv").write_text("amount,at\n1,2026-07-31 12:00:00\n2,2026-07-31T12:00:00Z\n")
    arguments = ("publish", journal.path, tmp_path / "lines.csv", "--topic", "LINES")
    refused = sparkq(*arguments)
    assert refused.code == 1
    assert "[COLUMN_TYPE_MISMATCH]" in refused.err
    assert "as in --timezone Europe/Berlin" in refused.err.replace("\n", " ")
    assert sparkq(*arguments, "--timezone", "Europe/Berlin").code == 0
    assert [str(at) for (at,) in bodies(journal, "at")] == ["2026-07-31 10:00:00+00:00", "2026-07-31 12:00:00+00:00"]


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("lines.csv", b"amount\n1\nx,y,z\n", "FILE_UNREADABLE"),
        ("lines.parquet", b"PAR1", "FILE_UNREADABLE"),
        ("lines.csv.gz", b"no gzip", "FILE_UNREADABLE"),
        ("missing.csv", None, "FILE_UNREADABLE"),
        ("lines.jsonl", b'{"amount": 1}\n{"amount": \n', "ROWS_UNREADABLE"),
        ("lines.csv", b"amuont\n1\n", "UNKNOWN_COLUMN"),
        ("lines.txt", b"", "BAD_VALUE"),
    ],
)
def test_publish_refuses_a_file_that_it_cannot_read(
    sparkq: Terminal, journal: Journal, tmp_path: Path, *, name: str, content: bytes | None, code: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    answer = sparkq("publish", journal.path, tmp_path / name, "--topic", "LINES")
    assert answer.code == 1
    assert f"[{code}]" in answer.err
    assert bodies(journal, "amount") == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("publish", "lines.txt"), "'FILE' in the arguments is 'lines.txt'"),
        (
            ("serve", "--tls-key", "key.pem"),
            "'--tls-key' in the arguments is 'key.pem', but it must be given together with --tls-cert",
        ),
    ],
)
def test_what_is_missing_is_told_by_what_was_given(
    sparkq: Terminal, journal: Journal, arguments: tuple[str, ...], said: str
) -> None:
    verb, *more = arguments
    answer = sparkq(verb, journal.path, *more)
    assert answer.code == 1
    assert said in answer.err.replace("\n", " ")


def test_status_counts_what_was_published_and_starts_nothing(sparkq: Terminal, journal: Journal) -> None:
    journal.publish([{"amount": 1}], topic="LINES")
    (row,) = sparkq("status", journal.path, "--json").json
    assert (row["queue"], row["available"]) == ("WORK", 1)
    assert "WORK" in sparkq("status", journal.path).out
    assert not (Path(journal.path) / "coordinator.json").exists()


def test_peek_shows_messages_without_taking_them(sparkq: Terminal, journal: Journal) -> None:
    journal.publish([{"item": "[red]pear", "amount": 1}, {"amount": 2}], topic="LINES")
    assert sparkq("peek", journal.path, "WORK", "-n", 1, "--columns", "item,bookmark", "--json").json == [
        {"item": "[red]pear", "bookmark": 0}
    ]
    assert "[red]pear" in sparkq("peek", journal.path, "WORK").out
    assert "is empty" in sparkq("peek", journal.path, "WORK", "--view", "leases").out


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("WROK",), "UNKNOWN_QUEUE"),
        (("WORK", "--columns", "amuont"), "UNKNOWN_COLUMN"),
        (("WORK", "--view", "mesages"), "BAD_VALUE"),
        (("WORK", "--as-of", "2026-01-01T00:00:00"), "TIMESTAMP_AMBIGUOUS"),
        (("WORK", "--as-of", "yesterday"), "BAD_VALUE"),
        (("WORK", "--as-of", "99"), "RECORD_UNKNOWN"),
        (("WORK", "--as-of", "2999-01-01T00:00:00Z"), "BAD_VALUE"),
        (("WORK", "-o", "secret"), "BAD_VALUE"),
    ],
)
def test_peek_refuses_by_name_what_does_not_exist(
    sparkq: Terminal, journal: Journal, arguments: tuple[str, ...], code: str
) -> None:
    answer = sparkq("peek", journal.path, *arguments)
    assert answer.code == 1
    assert f"[{code}]" in answer.err
    assert "secret" not in answer.err


def test_verify_finds_nothing_wrong_with_a_sound_journal(sparkq: Terminal, journal: Journal) -> None:
    journal.publish([{"amount": 1}], topic="LINES")
    answer = sparkq("verify", journal.path, "--json")
    # No progress bar where nobody watches, and no blank line in its place.
    assert answer.err == ""
    assert (answer.code, answer.json["problems"]) == (0, [])


def test_verify_names_a_message_file_that_is_gone(sparkq: Terminal, journal: Journal) -> None:
    journal.publish([{"amount": 1}], topic="LINES")
    (file,) = (Path(journal.path) / "messages" / "line").glob("*.parquet")
    file.unlink()
    answer = sparkq("verify", journal.path, "--json")
    assert answer.code == 1
    assert "[MESSAGE_FILE_MISSING]" in answer.json["problems"][0]
    assert file.name in answer.json["problems"][0]


def test_verify_and_status_name_what_a_stranger_appended(sparkq: Terminal, journal: Journal) -> None:
    """DESIGN 15.9: such files have no bookmarks and enter no queue; everything else goes on."""
    journal.publish([{"amount": 1}], topic="LINES")
    table = DeltaTable(journal.store.messages_uri("line"))
    write_deltalake(table, table.to_pyarrow_table(), mode="append")
    assert "[JOURNAL_FOREIGN_APPEND]" in sparkq("verify", journal.path, "--json").json["problems"][0]
    assert "[JOURNAL_FOREIGN_APPEND]" in sparkq("status", journal.path).out
    assert bodies(journal, "amount") == [(1,)]


@pytest.mark.drawn(2)
@pytest.mark.parametrize("how", ["cut", "garbled", "empty"])
@pytest.mark.parametrize("table", ["control", "messages/line"])
def test_a_damaged_file_of_a_log_is_named_by_whoever_meets_it(sparkq: Terminal, tmp_path: Path, table: str, how: str) -> None:
    types = {"line": {"columns": "amount INT", "topics": ["LINES"]}}
    journal = Journal.create(
        str(tmp_path / "journal"), {"message_types": types, "queues": {"LINES": {"underlying_topic": "LINES"}}}
    )
    for number in range(4):
        journal.publish([{"amount": number}], topic="LINES")
        journal.queue("LINES").settle([number])
    sparkq("stop", journal.path)
    damaged = [f"{table}/_delta_log/{version:020d}.json" for version in (2, 3)]
    for name in damaged:
        path = Path(journal.path) / name
        path.write_bytes({"cut": path.read_bytes()[:-20], "garbled": b"\0garbage{", "empty": b""}[how])
    told = sparkq("verify", journal.path, "--json")
    assert told.code == 1
    assert all(any(name in each for each in told.json["problems"]) for name in damaged), told.json["problems"]
    assert f"'{journal.path}' is damaged: {damaged[0]} is not whole" in " ".join(sparkq("verify", journal.path).out.split())
    if (table, how) == ("messages/line", "empty"):
        # It has entered, and delta-rs takes it for a commit without files.
        return
    findings = sparkq("doctor", journal.path, "--json").json
    assert any(damaged[0] in each["advice"] for each in findings if each["result"] == "failed")
    # Doctor starts one, which can live with a damaged message log.
    sparkq("stop", journal.path)
    if how == "empty":
        # Who publishes reads no records but those of definitions.
        return
    # A handle that has published before reads neither again.
    with pytest.raises(JournalError, match=damaged[0]), journal.publisher("anew") as publisher:
        publisher.publish([{"amount": 9}], topic="LINES")


def test_an_entry_that_stands_twice_counts_once_and_is_told(sparkq: Terminal, journal: Journal) -> None:
    """PROTOCOL 2: as long as it stands in the log."""
    journal.publish([{"amount": 1}], topic="LINES")
    log = Path(journal.path) / "messages" / "line" / "_delta_log"
    copied = log / f"{2:020d}.json"
    copied.write_bytes((log / f"{1:020d}.json").read_bytes())
    answer = sparkq("verify", journal.path, "--json").json
    assert (answer["problems"], [each.split()[0] for each in answer["warnings"]]) == ([], ["[JOURNAL_ENTRY_REPEATED]"])
    found = doctor._queues(journal)
    assert (found.result, found.found) == ("warning", "entries of message logs that add files twice: version 2 of 'line'")
    assert bodies(journal, "amount") == [(1,)]
    copied.unlink()
    assert sparkq("verify", journal.path, "--json").json["warnings"] == []


def test_doctor_names_each_check_also_of_those_that_fail(sparkq: Terminal, tmp_path: Path) -> None:
    answer = sparkq("doctor", tmp_path, "--json")
    failed = {finding["check"]: finding["found"] for finding in answer.json if finding["result"] == "failed"}
    assert answer.code == 1
    assert failed == dict.fromkeys(
        ["store", "clock", "control log", "message files", "queues", "followed tables", "peers", "rights", "coordinator"],
        "NOT_A_JOURNAL",
    )


def test_doctor_warns_of_a_checkpoint_on_an_object_store_where_one_is_named(sparkq: Terminal, tmp_path: Path) -> None:
    def found(*arguments: str) -> dict[str, Any]:
        return {each["check"]: each for each in sparkq("doctor", tmp_path, "--json", *arguments).json}

    far = found("--checkpoint", "s3a://bucket/checkpoints/a")["checkpoint"]
    assert (far["result"], far["found"]) == ("warning", "s3a://bucket/checkpoints/a: an object store")
    assert "put its checkpoint on the driver's own disk" in far["advice"]
    near = found("--checkpoint", "/var/checkpoints/a")["checkpoint"]
    assert (near["result"], near["found"], near["advice"]) == ("ok", "/var/checkpoints/a", "")
    assert "checkpoint" not in found()


def test_doctor_tells_of_delta_jars_and_fetches_them_only_when_asked(
    sparkq: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def finding(*arguments: str) -> Any:
        return next(each for each in sparkq("doctor", tmp_path, "--json", *arguments).json if each["check"] == "delta jars")

    def fetch() -> list[Path]:
        session.directory().mkdir(parents=True)
        (session.directory() / "delta.jar").touch()
        return session.found()

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(session, "jars", fetch)
    missing = finding()
    assert (missing["result"], str(tmp_path) in missing["found"], "doctor --fetch" in missing["advice"]) == ("warning", True, True)
    assert not (tmp_path / "cache").exists()
    assert (
        finding("--fetch")
        == finding()
        == {"check": "delta jars", "result": "ok", "found": f"1 in {session.directory()}", "advice": ""}
    )


def test_a_place_without_a_journal_is_refused(sparkq: Terminal, tmp_path: Path) -> None:
    for verb in ("status", "verify", "stop"):
        answer = sparkq(verb, tmp_path)
        assert answer.code == 1
        assert "[NOT_A_JOURNAL]" in answer.err


def test_a_verb_runs_where_nobody_listens(tmp_path: Path) -> None:
    """A service manager may start it with its streams closed."""
    sparkq = f"exec {sys.executable} -m spark_queue.cli"
    for words, closed, code in (("doctor --help", "<&- >&-", 0), (f"publish {tmp_path} - --topic T", "<&-", 1)):
        ended = subprocess.run(["bash", "-c", f"{sparkq} {words} {closed}"], stderr=subprocess.PIPE, text=True, check=False)
        assert (ended.returncode, "Traceback" in ended.stderr) == (code, False), ended.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no file that is always full")
def test_who_prints_to_a_full_disk_is_told_so() -> None:
    for words in (["--version"], ["options"], ["doctor", "--help"]):
        command = [sys.executable, "-m", "spark_queue.cli", *words]
        with Path("/dev/full").open("w") as full:
            ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        assert (ended.returncode, ended.stderr.count("[OUTPUT_FAILED]"), "Traceback" in ended.stderr) == (1, 1, False), ended.stderr


def test_no_table_shows_a_value_as_python_writes_it(sparkq: Terminal) -> None:
    told = sparkq("options").out
    (line,) = [line for line in told.splitlines() if line.startswith("passthrough")]
    assert line.split()[1] == '["^.*"]'
    assert not re.search(r"\bNone\b|\bTrue\b|\bFalse\b|\('", told)


def test_to_stop_where_nobody_listens_is_as_without_an_address(
    sparkq: Terminal, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service that was stopped before is no failure; one that says nothing may run all the same."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        at = f"127.0.0.1:{silent.getsockname()[1]}"
    # Nobody listens there any more.
    for addresses in ([], ["--coordinator", at], ["--coordinator", f"{at},127.0.0.1:1"]):
        answer = sparkq("stop", journal.path, *addresses)
        assert (answer.code, answer.out) == (0, "No coordinator runs.\n"), answer.err
    monkeypatch.setattr("spark_queue.cli.stop.STOP_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("SPARKQ_COORDINATOR", f"127.0.0.1:{silent.getsockname()[1]}")
        answer = sparkq("stop", journal.path)
    assert (answer.code, "[COORDINATOR_UNAVAILABLE]" in answer.err) == (1, True)
