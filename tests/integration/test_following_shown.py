"""What people see of a followed table: figures, notices, the view of what was passed over, metrics, the page."""

from __future__ import annotations

import json
import re
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, WriterProperties

from spark_queue import Journal
from spark_queue.client import previews
from spark_queue.coordinator.metrics import ProcessMetrics
from spark_queue.following import follower
from spark_queue.following.follower import families_of
from spark_queue.journal import message_file
from spark_queue.journal.open import open_journal
from spark_queue.journal.store import Store, StoredObject
from spark_queue.metrics import exposition
from spark_queue.metrics.prometheus import render
from tests.docs import pages
from tests.integration.source_journal import end_coordinator
from tests.integration.test_following import Followed, followed
from tests.unit.cli.sparkq import Terminal
from tests.unit.dashboard.asking import asker_of, following
from tests.unit.metrics.exposed import value
from tests.unit.views.test_readers_agree import Reign

__all__ = ["followed"]

pytestmark = pytest.mark.usefixtures("own_user")


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    """Give a terminal."""
    return Terminal(monkeypatch=monkeypatch, capsys=capsys)


def vacuum(followed: Followed) -> None:
    """Commit what Spark's VACUUM commits: it says that it begins and ends, and names no file."""
    for step in ("START", "END"):
        version = DeltaTable(followed.table).version() + 1
        said = {"commitInfo": {"operation": f"VACUUM {step}", "timestamp": 1}}
        (Path(followed.table) / "_delta_log" / f"{version:020d}.json").write_text(f"{json.dumps(said)}\n", encoding="utf-8")


def test_status_tells_the_table_and_how_far_it_was_read(followed: Followed, terminal: Terminal) -> None:
    """R146: what passes over is counted, and people find where to look."""
    journal = followed.create()
    followed.append(10, 2)
    status = followed.queue.status()
    assert (status.table, status.table_version, status.table_versions_behind) == (followed.table, 1, 0)
    assert (status.table_changes, status.table_rows_passed, status.table_set_aside) == (0, 0, False)
    # Two commits that leave no record.
    vacuum(followed)
    assert followed.queue.status().table_version == 3
    [row] = terminal("status", journal.path, "--json").json
    assert (row["table"], row["table_version"]) == (followed.table, 3)
    told = " ".join(terminal("status", journal.path).out.split())
    assert f"Message type 'orders' follows table '{followed.table}' and has read it up to version 3, the newest." in told


def test_a_type_that_is_set_aside_shows_how_far_it_is_behind_and_the_way_on(
    followed: Followed, terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R147, R148."""
    journal = followed.create()
    vacuum(followed)
    DeltaTable(followed.table).delete("id = 1")
    followed.append(20, 2)
    followed.append(30, 2)
    assert followed.ids_before("TABLE_CHANGED") == []
    status = followed.queue.status()
    assert (status.table_version, status.table_versions_behind, status.table_set_aside) == (2, 3, True)
    told = " ".join(terminal("status", journal.path).out.split())
    assert "version 2, 3 behind the newest, and is set aside" in told
    assert f"`sparkq follow {journal.path} orders --from 4`" in told
    journal.follow("orders", version=4)
    assert followed.ids() == [20, 21, 30, 31]
    status = followed.queue.status()
    assert (status.table_version, status.table_versions_behind, status.table_set_aside) == (5, 0, False)
    [skipped] = journal.view("table_changes").to_pylist()
    assert (skipped["kind"], skipped["version"], skipped["last_version"], skipped["rows"]) == ("skipped", 3, 3, None)
    followed.append(40, 2)
    DeltaTable(followed.table).delete("id = 2")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "shipper.py").write_text("def ship(message):\n    assert message['id'] != 41, 'heavy'\n")
    worked = terminal("work", journal.path, "SHIP", "shipper:ship", "--until-empty")
    assert worked.code == 1
    told = " ".join(worked.err.split())
    assert "[TABLE_CHANGED]" in told
    assert f"`sparkq follow {journal.path} orders --from 8`" in told
    assert (
        "Before that: 1 acknowledged, 1 cancelled, 0 expired, 0 lost. Failed: 1 message, first 5 (AssertionError: heavy)." in told
    )


def test_a_queue_over_published_messages_shows_no_table(followed: Followed, terminal: Terminal) -> None:
    followed.keys = {}
    followed.create()
    definitions = followed.definitions()
    definitions["queues"]["JSON"] = {"message_type": "json", "underlying_topic": "JSON"}
    definitions["message_types"]["json"] = {"topics": ["JSON"]}
    assert followed.journal is not None
    followed.journal.apply(definitions)
    status = followed.journal.queue("JSON").status()
    assert (status.table, status.table_version, status.table_versions_behind) == (None, None, None)
    assert followed.journal.view("table_changes", queue="JSON").num_rows == 0
    assert terminal("status", followed.path, "JSON").out.count("follows table") == 0


def test_the_view_of_changes_has_a_row_for_each_commit_that_was_passed_over(followed: Followed) -> None:
    """R145, R146."""
    followed.keys = {"on_change": "keep"}
    journal = followed.create()
    followed.append(10, 3)
    DeltaTable(followed.table).delete("id = 11")
    followed.append(20, 1)
    DeltaTable(followed.table).optimize.compact()
    assert sorted(followed.ids()) == [10, 11, 12, 20]
    found = journal.view("table_changes", columns=["message_type", "table", "version", "kind", "operation", "rows"]).to_pylist()
    told = {"message_type": "orders", "table": followed.table}
    assert found == [
        {**told, "version": 4, "kind": "old rows", "operation": "OPTIMIZE", "rows": 0},
        {**told, "version": 2, "kind": "change", "operation": "DELETE", "rows": 2},
    ]
    assert journal.view("table_changes", queue="SHIP", limit=1).column("version").to_pylist() == [4]
    names: dict[str, Any] = {"journal": journal}
    exec(pages.example("passed_over"), names)
    assert (list(names["passed"]["version"]), "by its version 1" in names["told"]) == ([4, 2], True)
    status = followed.queue.status()
    assert (status.table_changes, status.table_rows_passed) == (1, 2)


def test_the_view_of_changes_has_what_status_counts_before_anybody_recorded_it(followed: Followed, terminal: Terminal) -> None:
    """R146: without a number, and without a time; for all queues it needs no name of one."""
    followed.keys = {"on_change": "keep"}
    journal = followed.create()
    followed.append(10, 2)
    DeltaTable(followed.table).delete("id = 10")
    columns = ["version", "kind", "rows", "record"]

    def shown(**of: Any) -> list[dict[str, Any]]:
        assert followed.queue.status().table_changes == 1
        rows: list[dict[str, Any]] = journal.view("table_changes", columns=columns, **of).to_pylist()
        return rows

    ahead = [{"version": 2, "kind": "change", "rows": 1, "record": None}]
    assert shown() == shown(queue="SHIP") == shown(as_of=datetime.now(UTC)) == ahead
    assert followed.ids() == [10, 11]
    [recorded] = shown()
    assert recorded["record"] is not None
    assert {**recorded, "record": None} == ahead[0]
    [row] = terminal("peek", journal.path, "--view", "table_changes", "--json").json
    assert (row["version"], row["operation"]) == (2, "DELETE")
    assert "the name of a queue" in terminal("peek", journal.path).err
    followed.append(30, 1)
    assert f"`sparkq peek {journal.path} --view table_changes" in " ".join(terminal("status", journal.path).out.split())


@pytest.mark.parametrize("on_change", ["stop", "keep"])
def test_looks_from_outside_a_coordinator_and_the_page_tell_the_same_of_a_table(
    followed: Followed, monkeypatch: pytest.MonkeyPatch, on_change: str
) -> None:
    followed.keys = {"on_change": on_change}
    journal = followed.create()
    followed.append(10, 3)
    DeltaTable(followed.table).delete("id = 11")
    followed.append(20, 1)
    names = [
        f"sparkqueue_table_{each}" for each in ("version", "versions_behind", "changes_total", "passed_rows_total", "set_aside")
    ]
    expected = {"stop": [1, 2, 0, 0, 1], "keep": [3, 0, 1, 2, 0]}[on_change]

    def told(text: bytes) -> list[float | None]:
        return [value(text, name, queue="SHIP") for name in names]

    assert told(exposition([journal])) == expected
    monkeypatch.setattr(follower, "FILES_MS", 0)
    page = following(journal)
    assert told(render(families_of([page]))) == expected
    metrics = ProcessMetrics(journal.store, journal.journal_id(), per_subscription=False)
    metrics.serves(open_journal(journal.store), Reign(journal))  # type: ignore[arg-type]  # it answers as an inbox does
    # A scrape chooses the queue, the next one looks at its table.
    for _ in range(2):
        metrics.families()
    assert told(render(metrics.families())) == expected
    # This one reads no further, so it falls behind.
    followed.append(30, 1)
    metrics.families()
    behind = told(render(metrics.families()))[1]
    assert behind == expected[1] + 1


def test_the_page_of_a_journal_shows_its_tables(followed: Followed) -> None:
    """R146, R147: also what was set aside, with the way on."""
    journal = followed.create()
    followed.append(10, 2)
    page = asker_of([following(journal)]).get("/j/journal/journal").text
    section = page[page.index('id="tables"') : page.index('id="sizes"')]
    assert [followed.table in section, ">followed<" in section, "set aside" in section] == [True, True, False]
    DeltaTable(followed.table).delete("id = 1")
    followed.append(20, 2)
    page = asker_of([following(journal)]).get("/j/journal/journal").text
    section = page[page.index('id="tables"') : page.index('id="sizes"')]
    cells = re.findall(r'<td class="num">(.*?)</td>', section)
    assert cells == ["1", "2", "0", "0", "1"]
    assert "sparkq follow JOURNAL orders --from 3" in section.replace("<code>", "").replace("</code>", "")


def test_explain_tells_the_version_and_the_file_of_the_table(followed: Followed) -> None:
    followed.create()
    followed.append(10, 2)
    assert followed.ids() == [10, 11]
    told = followed.queue.explain(1)
    assert (told.table, told.version, told.row) == (followed.table, 1, 1)
    added = next(json.loads(line)["add"]["path"] for line in entry(followed, 1) if '"add"' in line)
    assert told.file == added
    assert f"appended to table '{followed.table}' by its version 1, in file {added}" in str(told)
    assert f"entered the journal from version 1 of the table of orders, file {added}" in str(told)
    assert "published to topic" not in str(told)


def test_explain_says_of_rows_from_before_the_beginning_only_that_they_were_there(followed: Followed) -> None:
    """Any version up to that one may have appended them."""
    followed.append(10, 1)
    followed.append(20, 1)
    followed.keys["from"] = "beginning"
    followed.create()
    followed.append(30, 1)
    assert followed.ids() == [0, 1, 2, 10, 20, 30]
    texts = [str(followed.queue.explain(bookmark)) for bookmark in range(3, 6)]
    assert [f"already in table '{followed.table}' at its version 2, in file" in text for text in texts] == [True, True, False]
    assert ["by its version" in text for text in texts] == [False, False, True]


def test_explain_reads_the_row_of_its_message_from_the_table(followed: Followed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Expressions of a queue are evaluated for one message, which is a part of a file of the table, in any of its row groups."""
    journal = followed.create(filter="id % 2 = 0", priority="sequence * 10")
    followed.append(10, 6, writer_properties=WriterProperties(max_row_group_size=2))
    assert sorted(followed.ids()) == [10, 12, 14]
    for piece_rows in (message_file.PIECE_ROWS, 1):
        monkeypatch.setattr(message_file, "PIECE_ROWS", piece_rows)
        told = [followed.queue.explain(bookmark) for bookmark in range(6)]
        assert [each.delivery_count for each in told] == [1, 0, 1, 0, 1, 0]
        assert ["whose filter does not match it" in str(each) for each in told] == [False, True, False, True, False, True]
        assert [each.priority for each in told if each.priority is not None] == [0, 20, 40]
        assert not any("CORRUPT" in str(each) for each in told)
    # The dry run of a queue asks for the newest messages of a file.
    changed = followed.definitions(filter="id > 13", priority="id")
    monkeypatch.setattr(previews, "_MESSAGES", 3)
    [trial] = [each.trial for each in journal.apply(changed, dry_run=True) if each.trial is not None]
    assert (trial.messages, trial.matched, trial.failed) == (3, 2, 0)


def entry(followed: Followed, version: int) -> list[str]:
    """Return the lines of an entry of the table's log."""
    return (Path(followed.table) / "_delta_log" / f"{version:020d}.json").read_text().splitlines()


def checked(terminal: Terminal, journal: Journal) -> dict[str, str]:
    """Return the finding of doctor about followed tables."""
    found = terminal("doctor", journal.path, "--json").json
    return next(each for each in found if each["check"] == "followed tables")


def test_doctor_reads_the_tables_and_judges_how_they_are_kept(followed: Followed, terminal: Terminal) -> None:
    """Statistics that are missing, and a retention that is shorter than batches may last."""
    journal = followed.create()
    assert checked(terminal, journal) == {
        "check": "followed tables", "result": "ok", "found": "1 can be listed and read", "advice": ""
    }  # fmt: skip
    table = DeltaTable(followed.table)
    table.alter.set_table_properties(
        {"delta.deletedFileRetentionDuration": "interval 2 hours", "delta.dataSkippingNumIndexedCols": "0"}
    )
    # A writer that collects no statistics leaves the field out.
    path = Path(followed.table) / "_delta_log" / f"{table.version():020d}.json"
    bare = {"add": {"path": "x.parquet", "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}}
    path.with_name(f"{table.version() + 1:020d}.json").write_text(f"{json.dumps(bare)}\n", encoding="utf-8")
    found = checked(terminal, journal)
    assert found["result"] == "warning"
    assert "1 of the 2 files that were added last have no count of their rows" in found["advice"]
    assert "for 2 h 0 min, and a batch may read one for up to 1 h 0 min" in found["advice"]
    assert "delta.deletedFileRetentionDuration to 3 h 0 min at least" in found["advice"]


def test_doctor_fails_where_readers_of_a_table_have_to_know_what_is_unknown_here(followed: Followed, terminal: Terminal) -> None:
    journal = followed.create()
    versions = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["oneOfTomorrow"],
        "writerFeatures": ["oneOfTomorrow"],
    }
    path = Path(followed.table) / "_delta_log" / f"{1:020d}.json"
    path.write_text(f"{json.dumps({'protocol': versions})}\n", encoding="utf-8")
    found = checked(terminal, journal)
    assert (found["result"], "TABLE_UNSUPPORTED" in found["advice"], "oneOfTomorrow" in found["advice"]) == ("failed", True, True)


def test_doctor_fails_where_a_table_cannot_be_listed(
    followed: Followed, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, listed = followed.create(), Store.list

    def forbidden(store: Store, prefix: str, *, after: str | None = None) -> list[StoredObject]:
        if prefix == "orders/_delta_log":
            with store.failures(f"listing {prefix}"):
                raise PermissionError("403 Forbidden")
        return listed(store, prefix, after=after)

    monkeypatch.setattr(Store, "list", forbidden)
    found = checked(terminal, journal)
    assert (found["result"], found["found"]) == ("failed", "cannot be read: that of orders")
    assert "403 Forbidden" in found["advice"]
    assert "says that what is missing is forbidden" in found["advice"]


def test_a_queue_that_begins_is_told_how_many_messages_it_misses(followed: Followed) -> None:
    """R151: those that no queue needed when their file was removed from the table."""
    followed.keys = {"on_change": "keep", "relocate_after": "0s"}
    journal = followed.create()
    followed.append(10, 2)
    followed.append(20, 1)
    assert followed.ids() == [10, 11, 20]
    DeltaTable(followed.table).optimize.compact()
    followed.append(30, 1)
    for _ in range(2):
        end_coordinator(journal)
        assert followed.ids() in ([30], [])
    definitions = followed.definitions()
    definitions["queues"] |= {
        "LATE": {"underlying_topic": "orders"},
        "LATER": {"underlying_topic": "orders", "recovery_point": "1"},
        "NEWS": {"underlying_topic": "orders", "recovery_point": "now"},
    }
    told = {each.where: each.warning for each in journal.apply(definitions, dry_run=True)}
    assert str(told["[queues.LATE]"]).startswith("3 messages will not be in it that it would have from there on")
    assert str(told["[queues.LATER]"]).startswith("2 messages will not be in it")
    assert told["[queues.NEWS]"] is None
    [reset] = journal.apply(followed.definitions(), dry_run=True, reset=["SHIP"])
    assert "Warning: 3 messages will not be in it" in str(reset)


def test_verify_finds_an_entry_of_a_table_that_was_passed_over_and_is_another_one_now(
    followed: Followed, terminal: Terminal
) -> None:
    followed.keys = {"on_change": "keep"}
    followed.create()
    DeltaTable(followed.table).delete("id = 1")
    followed.append(10, 2)
    assert followed.ids() == [10, 11]
    assert terminal("verify", followed.path).code == 0
    path = Path(followed.table) / "_delta_log" / f"{1:020d}.json"
    path.write_text(path.read_text() + "\n", encoding="utf-8")
    answer = terminal("verify", followed.path)
    assert (answer.code, "TABLE_REPLACED" in answer.out, "version 1" in answer.out) == (1, True, True)


def test_verify_judges_the_table_that_took_the_place_of_another_by_itself(followed: Followed, terminal: Terminal) -> None:
    """R148: once somebody let the message type go on there."""
    journal = followed.create()
    followed.append(10, 2)
    assert followed.ids() == [10, 11]
    shutil.rmtree(followed.table)
    for first in (0, 30, 40, 50):
        followed.append(first, 1)
    assert followed.ids_before("TABLE_REPLACED") == []
    assert "TABLE_REPLACED" in terminal("verify", followed.path).out
    # Version 1 is of one log and of the other, and of the second one nobody has read it.
    journal.follow("orders", version=3)
    assert followed.ids() == [50]
    # The rows that the first table had are gone, and settled; their files are looked for all the same.
    assert "TABLE_REPLACED" not in terminal("verify", followed.path).out


def test_a_backup_says_which_tables_it_leaves_where_they_are(followed: Followed, terminal: Terminal, tmp_path: Path) -> None:
    """The copy reads the same table, and what was appended since enters there by itself, under the same bookmarks."""
    journal = followed.create()
    followed.append(10, 2)
    assert followed.ids() == [10, 11]
    copy = str(tmp_path / "copy")
    answer = terminal("backup", journal.path, copy, "--json")
    assert answer.json["tables"] == [followed.table]
    assert f"Not copied: {followed.table}." in terminal("backup", journal.path, str(tmp_path / "another")).out
    assert not list(Path(copy).rglob("*orders*"))
    followed.append(20, 1)
    assert followed.receive()[0]["bookmark"] == 2
    assert terminal("verify", copy).code == 0
    restored = Journal(copy)
    shown = restored.view("messages", queue="SHIP").to_pylist()
    assert [(row["bookmark"], row["id"]) for row in shown] == [(2, 20)]
