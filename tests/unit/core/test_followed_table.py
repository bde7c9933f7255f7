"""The meaning of a commit of a followed table: which of its files enter, what passes, and what sets a message type aside."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from spark_queue.core.definitions.keys import KEEP, STOP
from spark_queue.core.message_files.followed_table import (
    RESTORE,
    SILENT_COMMITS,
    FollowedTable,
    Judged,
    RemovedFile,
    TableCommit,
    TableFile,
    TableMeaning,
    judge,
)
from spark_queue.core.message_files.message_type import MessageTypeState
from spark_queue.core.records import Followed, Passed, Record, Stopped
from spark_queue.errors import JournalError

COLUMNS = (("id", "col-1", "BIGINT"), ("at", "at", "TIMESTAMP"))
MEANING = TableMeaning(id="t", columns={"col-1": ("id", "BIGINT"), "at": ("at", "TIMESTAMP"), "x": ("x", None)})


def table(**changes: Any) -> FollowedTable:
    """Return a table that is followed behind version 5."""
    body = Followed(table="/lake/orders", id="t", version=5, token="five", committed=1_000, columns=COLUMNS)
    known = FollowedTable(body)
    for name, value in changes.items():
        setattr(known, name, value)
    return known


def file(path: str, rows: int | None = 3, **changes: Any) -> TableFile:
    """Return a file that a commit adds."""
    return replace(TableFile(path=path, row_count=rows, data_change=True, modified_ms=2_000, partition={}), **changes)


def gone(path: str, *, data_change: bool = True) -> RemovedFile:
    """Return a file that a commit removes."""
    return RemovedFile(path=path, data_change=data_change, removed_at_ms=3_000)


def commit(*added: TableFile, removed: tuple[RemovedFile, ...] = (), **changes: Any) -> TableCommit:
    """Return version 6."""
    made = TableCommit(version=6, token="six", operation="WRITE", committed_at_ms=3_000, added=added, removed=removed)
    return replace(made, **changes)


def judged(known: FollowedTable, found: TableCommit, on_change: str = STOP, recorded_version: int = 5) -> Judged:
    """Return the meaning of a commit to message type orders."""
    return judge(known, found, message_type="orders", on_change=on_change, recorded_version=recorded_version)


def entering(known: FollowedTable, found: TableCommit, on_change: str = STOP) -> list[str]:
    """Return the paths that enter."""
    return [each.path for each in judged(known, found, on_change).entering]


def test_an_append_enters_whole_and_in_its_order() -> None:
    """R144."""
    found = judged(table(), commit(file("b"), file("a"), file("empty", 0)))
    assert [each.path for each in found.entering] == ["b", "a"]
    assert found.passed is not None
    assert found.passed.added == ("empty",)
    assert judged(table(), commit(file("b"))).passed is None


@pytest.mark.parametrize(
    ("found", "known"),
    [
        pytest.param(commit(file("new", data_change=False), removed=(gone("a", data_change=False),)), table(), id="compaction"),
        pytest.param(commit(file("unknown", data_change=False)), table(), id="a backfill of row ids"),
        pytest.param(commit(file("a")), table(added={"a"}), id="an old path"),
        pytest.param(commit(file("a", was_there=True)), table(), id="a path from before"),
        pytest.param(commit(file("a"), operation=RESTORE), table(), id="a restore that only adds"),
        pytest.param(commit(file("a"), removed=(gone("a", data_change=False),)), table(), id="a new vector"),
    ],
)
def test_files_that_are_not_new_do_not_enter(found: TableCommit, known: FollowedTable) -> None:
    """R144, R145."""
    assert entering(known, found) == []


def test_a_change_stops_the_type_before_it() -> None:
    """R146."""
    found = commit(file("b"), removed=(gone("a"),), operation="UPDATE")
    with pytest.raises(JournalError, match=r"TABLE_CHANGED\] Version 6 .* is a UPDATE .* --from 7"):
        judged(table(), found)


def test_a_change_passes_without_a_row_where_messages_are_kept() -> None:
    """R146: nobody can tell new rows from old."""
    known = table(entered={"a": 0}, added={"a"})
    passed = judged(known, commit(file("b", 7), removed=(gone("a"), gone("elsewhere"))), KEEP).passed
    assert passed == Passed(
        version=6, token="six", what="change", operation="WRITE", id="t", rows=7, added=("b",), removed=(("a", 3_000),)
    )
    assert entering(known, commit(file("b", 7), removed=(gone("a"),)), KEEP) == []
    known.fold(Record(body=passed))
    assert (known.changes, known.changed_rows, known.removed) == (1, 7, {"a": 3_000})
    assert entering(known, commit(file("b", 7), file("c"))) == ["c"], "what was passed over is not new later"


def test_a_path_that_is_added_again_is_there_again() -> None:
    known = table(entered={"a": 0}, added={"a"}, removed={"a": 1})
    passed = judged(known, commit(file("a"), operation=RESTORE)).passed
    assert passed is not None
    known.fold(Record(body=passed))
    assert known.removed == {}


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"at": ("at", "TIMESTAMP")}, "column 'id' is gone"),
        ({"id": ("id", "BIGINT"), "at": ("at", "TIMESTAMP")}, "column 'id' is gone, or is another one of that name"),
        ({"col-1": ("id", "INT"), "at": ("at", "TIMESTAMP")}, "column 'id' is INT instead of BIGINT"),
        ({"col-1": ("id", None), "at": ("at", "TIMESTAMP")}, "column 'id' is of an unknown type instead of BIGINT"),
    ],
)
def test_a_column_of_ours_that_is_another_one_stops_the_type(columns: dict[str, Any], reason: str) -> None:
    """R147."""
    with pytest.raises(JournalError, match=f"TABLE_CHANGED.*{reason}"):
        judged(table(), commit(file("a"), meaning=replace(MEANING, columns=columns)), KEEP)


def test_a_partition_column_that_is_read_as_text_stays_one() -> None:
    """R147, R150: in a file it would have another text, and its values need no zone as long as the log has them."""
    body = Followed(table="/lake/orders", id="t", version=5, token="five", committed=1_000, columns=COLUMNS, texts=("at",))
    known = FollowedTable(body)
    parted = file("a", partition={"at": "2026-01-01 00:00:00"})
    assert entering(known, commit(parted, meaning=replace(MEANING, partition=("at",)))) == ["a"]
    with pytest.raises(JournalError, match="TABLE_CHANGED.*not partitioned by column 'at' any more"):
        judged(known, commit(file("b"), meaning=MEANING))
    with pytest.raises(JournalError, match="TABLE_UNSUPPORTED.*'2026-01-01 00:00:00' of column 'at' has no time zone"):
        judged(table(), commit(parted))
    assert entering(table(), commit(file("a", partition={"at": "2026-01-01T00:00:00Z"}), file("b", partition={"at": ""}))) == [
        "a", "b",
    ]  # fmt: skip


def test_a_column_that_is_renamed_or_added_passes_and_is_recorded() -> None:
    """R145: whoever takes a column in looks at the table as it was at the last version that left a record."""
    meaning = replace(MEANING, columns={**MEANING.columns, "col-1": ("number", "BIGINT"), "y": ("y", "STRING")})
    found = judged(table(), commit(meaning=meaning))
    assert (found.entering, found.passed and found.passed.what) == ((), "no rows")
    assert entering(table(), commit(file("a"), meaning=meaning)) == ["a"]


def test_a_new_id_is_recorded_beside_the_rows_that_enter() -> None:
    """R145: an empty table that is created anew has no `remove`."""
    found = judged(table(), commit(file("a"), meaning=replace(MEANING, id="other")))
    assert [each.path for each in found.entering] == ["a"]
    assert found.passed is not None
    assert found.passed.id == "other"


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (commit(unsupported="its readers have to know teleport."), "readers have to know teleport"),
        (commit(file("a", deleted=None)), "with a deletion vector"),
        (commit(file("a", partition={"at": "2026-01-01 00:00:00"})), "has no time zone"),
        (commit(file("a", partition={"at": "+10001-01-01T00:00:00Z"})), "'[+]10001-01-01T00:00:00Z' of column 'at' is no day"),
    ],
)
def test_what_cannot_be_read_sets_the_type_aside(found: TableCommit, reason: str) -> None:
    """R147."""
    with pytest.raises(JournalError, match=f"TABLE_UNSUPPORTED.*from version 6 on.*{reason}"):
        judged(table(), found)


def test_a_moment_with_its_zone_is_read() -> None:
    for value in ("2026-01-01T00:00:00Z", "2026-01-01 00:00:00+01:00", None, ""):
        assert entering(table(), commit(file("a", partition={"at": value}))) == ["a"]


def test_commits_without_news_are_recorded_now_and_then() -> None:
    assert judged(table(), commit(version=5 + SILENT_COMMITS - 1)).passed is None
    assert judged(table(), commit(version=5 + SILENT_COMMITS)).passed is not None


def followed_at(version: int, **changes: Any) -> Record:
    """Return the record that a type follows its table from behind a version."""
    body = Followed(table="/lake/orders", id="t", version=version, token=str(version), committed=1, columns=COLUMNS, **changes)
    return Record(body=body, message_type="orders")


def test_a_type_that_stopped_goes_on_where_a_record_says_so() -> None:
    """R147, R148."""
    state = MessageTypeState()
    state.fold(followed_at(5))
    assert (state.version, state.token) == (5, "5")
    facts: dict[str, int | str] = {
        "table": "/lake/orders",
        "message_type": "orders",
        "version": 6,
        "operation": "DELETE",
        "reason": "r",
        "next_step": "n",
    }
    state.fold(Record(body=Stopped(version=6, error="TABLE_CHANGED", facts=facts, since=1), message_type="orders"))
    assert state.followed is not None
    assert (state.followed.trouble and state.followed.trouble.code, state.version) == ("TABLE_CHANGED", 5)
    state.fold(followed_at(8, skipped=(6, 8)))
    assert (state.followed.trouble, state.version, state.token) == (None, 8, "8")


def test_files_of_the_beginning_enter_with_the_version_itself() -> None:
    """R143."""
    state = MessageTypeState()
    state.fold(followed_at(5, beginning=True))
    assert state.followed is not None
    assert (state.version, state.token, state.followed.begins_with_files) == (4, "", True)
    state.followed.enter("a", 0, 5, "5")
    assert not state.followed.begins_with_files
