"""The log of a followed table, read as it stands: order, gaps, another log in its place, and entries that somebody made up."""

from __future__ import annotations

import json
import shutil
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from spark_queue.core.definitions import parsing
from spark_queue.core.definitions.definition import MessageTypeDefinition
from spark_queue.core.message_files.followed_table import FollowedTable, TableCommit
from spark_queue.core.message_files.message_type import MessageTypeState
from spark_queue.core.message_files.segment import Segment
from spark_queue.core.records import Followed, Record, Stopped
from spark_queue.errors import ConfigError, JournalError
from spark_queue.journal import table_look
from spark_queue.journal.folder import of_table
from spark_queue.journal.followed_log import FollowedLog, token_of
from spark_queue.journal.log_looks import NEAR_SILENT_MS, SILENT_MS
from spark_queue.journal.message_file import MessageFiles
from spark_queue.journal.schema import user_schema
from spark_queue.journal.store import Store
from spark_queue.journal.table_look import completed, look, look_further
from spark_queue.journal.table_snapshot import adds_at, protocol_at


class Table:
    """A table on a disk, and a message type that follows it."""

    def __init__(self, home: Path) -> None:
        self.path = home / "orders"
        self.own = Store(str(home / "journal"))
        self.append(1)

    def append(self, *ids: int) -> None:
        write_deltalake(
            str(self.path), pa.table({"id": pa.array(ids, pa.int64()), "item": [str(each) for each in ids]}), mode="append"
        )

    def entry(self, version: int) -> Path:
        return self.path / "_delta_log" / f"{version:020d}.json"

    def write(self, version: int, *actions: dict[str, Any]) -> None:
        lines = [json.dumps(action) for action in ({"commitInfo": {"operation": "WRITE", "timestamp": 5}}, *actions)]
        self.entry(version).write_text("\n".join(lines), encoding="utf-8")

    def definition(self, **keys: Any) -> MessageTypeDefinition:
        found = parsing.parse({"message_types": {"orders": {"table": str(self.path), **keys}}})
        return completed(self.own, found).message_types["orders"]

    def followed(self, **keys: Any) -> Followed:
        found = look(self.own, self.definition(**keys), None, None)
        assert found is not None
        return found

    def log(self, **keys: Any) -> FollowedLog:
        return FollowedLog(of_table(self.own, str(self.path)), "orders", FollowedTable(self.followed(**keys)))

    def read(self, log: FollowedLog, after: int = 0) -> list[tuple[int, list[int | None]]]:
        found = []
        for entry in log.tail(after):
            assert entry.commit is not None
            found.append((entry.version, [file.row_count for file in entry.commit.added]))
        return found


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Return a table with one row at version 0."""
    return Table(tmp_path)


def add(path: str, **more: Any) -> dict[str, Any]:
    """Return an action that adds a file of two rows."""
    stats = json.dumps({"numRecords": 2})
    return {"add": {"path": path, "partitionValues": {}, "modificationTime": 9**15, "dataChange": True, "stats": stats, **more}}


def test_entries_come_in_order_and_the_log_is_read_on(table: Table) -> None:
    log = table.log()
    assert table.read(log) == []
    table.append(2, 3)
    table.append(4)
    assert table.read(log) == [(1, [2]), (2, [1])]
    table.append(5)
    assert table.read(log, after=2) == [(3, [1])]
    assert table.read(log, after=0) == [(1, [2]), (2, [1]), (3, [1])], "whoever knows less reads again"


def test_a_table_on_a_disk_is_looked_at_often_and_one_far_away_seldom(table: Table) -> None:
    """Nobody who writes it says so; R144."""
    known = FollowedTable(table.followed())
    assert FollowedLog(of_table(table.own, str(table.path)), "orders", known).silent_ms == NEAR_SILENT_MS
    assert FollowedLog(of_table(table.own, "s3://lake/orders"), "orders", known).silent_ms == SILENT_MS


def test_rows_without_statistics_are_counted_in_their_file(table: Table) -> None:
    log = table.log()
    table.append(2, 3)
    actions = [json.loads(line) for line in table.entry(1).read_text(encoding="utf-8").splitlines()]
    for action in actions:
        action.get("add", {}).pop("stats", None)
    table.entry(1).write_text("\n".join(map(json.dumps, actions)), encoding="utf-8")
    assert table.read(log) == [(1, [2])]


def test_a_missing_entry_before_another_is_a_gap_and_no_head(table: Table) -> None:
    log = table.log()
    table.append(2)
    table.append(3)
    table.entry(1).unlink()
    with pytest.raises(JournalError, match="LOG_GAP.*lacks version 1"):
        table.read(log)
    assert list(log.tail(0, finds_gaps=False)) == []


@pytest.mark.parametrize("appends", [0, 1], ids=["idle", "with news"])
def test_another_log_in_its_place_is_found_out_before_anything_of_it_is_given(table: Table, appends: int) -> None:
    log = table.log()
    shutil.rmtree(table.path)
    for number in range(1 + appends):
        table.append(number)
    with pytest.raises(JournalError, match="TABLE_REPLACED.*another commit"):
        table.read(log)


@pytest.mark.parametrize("is_old", [True, False], ids=["put back from a copy", "made anew"])
def test_a_log_that_ends_before_what_was_read_is_found_out_too(table: Table, tmp_path: Path, *, is_old: bool) -> None:
    """Its next versions would be taken for those that were read."""
    copy = shutil.copytree(table.path, tmp_path / "copy")
    table.append(2)
    table.append(3)
    log = table.log()
    shutil.rmtree(table.path)
    if is_old:
        copy.rename(table.path)
    else:
        table.append(9)
    with pytest.raises(JournalError, match="TABLE_REPLACED.*has no version after 0"):
        table.read(log, after=2)


def test_a_table_that_takes_its_place_between_two_looks_is_found_out(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """So the log is read on first, and looked back at then."""
    log, read_on = table.log(), FollowedLog._entries

    def replaced(log: FollowedLog, version: int) -> list[tuple[int, bytes]]:
        monkeypatch.undo()
        shutil.rmtree(table.path)
        table.append(8)
        table.append(9)
        return read_on(log, version)

    monkeypatch.setattr(FollowedLog, "_entries", replaced)
    with pytest.raises(JournalError, match="TABLE_REPLACED"):
        table.read(log)


def test_where_the_entry_was_cleaned_away_the_id_counts(table: Table, tmp_path: Path) -> None:
    log = table.log()
    table.append(2)
    DeltaTable(str(table.path)).create_checkpoint()
    table.append(3)
    table.entry(0).unlink()
    assert table.read(log) == [(1, [1]), (2, [1])]
    other = Table(tmp_path / "other")
    other.append(2)
    DeltaTable(str(other.path)).create_checkpoint()
    other.append(3)
    other.entry(0).unlink()
    shutil.rmtree(table.path)
    shutil.copytree(other.path, table.path)
    with pytest.raises(JournalError, match="TABLE_REPLACED.*cleaned away"):
        list(FollowedLog(of_table(table.own, str(table.path)), "orders", log.known).tail(0))


def test_a_table_that_is_away_is_no_other_table(table: Table, tmp_path: Path) -> None:
    log = table.log()
    table.path.rename(tmp_path / "away")
    with pytest.raises(JournalError, match="STORE_FAILED.*version 0 is not there"):
        table.read(log)


@pytest.mark.parametrize(
    "path",
    ["../secret.parquet", "/etc/passwd", "file:/etc/passwd", "s3://b/x.parquet", "a/../../x", "_delta_log/0.json",
     "a%2F..%2F..%2Fx", "a\u0001b", "", "a//b", "%2Fetc", "a\\b"],
)  # fmt: skip
def test_a_path_that_leads_out_of_the_table_sets_the_type_aside(table: Table, path: str) -> None:
    log = table.log()
    table.write(1, add(path))
    with pytest.raises(JournalError, match="TABLE_UNSUPPORTED.*no path of a file in the table"):
        table.read(log)


def test_a_path_is_decoded_once(table: Table) -> None:
    log = table.log()
    table.write(1, add("p=a%2520b%253A/x.parquet"))
    (entry,) = log.tail(0)
    assert isinstance(entry.commit, TableCommit)
    assert [file.path for file in entry.commit.added] == ["p=a%20b%3A/x.parquet"]


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        (add("a", stats='{"numRecords": -1}'), "wrong statistics"),
        (add("a", stats='{"numRecords": 2147483648}'), "wrong statistics"),
        (add("a", partitionValues={"p": 1}), "cannot be made out"),
        ({"add": {"dataChange": True}}, "cannot be made out"),
        ({"remove": {"path": 3}}, "cannot be made out"),
        ({"metaData": {"id": "x", "schemaString": "{", "configuration": {}}}, "cannot be made out"),
        (add("a", baseRowId=-1), "cannot be made out"),
    ],
)
def test_an_entry_that_is_made_up_sets_the_type_aside(table: Table, action: dict[str, Any], reason: str) -> None:
    log = table.log()
    table.write(1, action)
    with pytest.raises(JournalError, match=f"TABLE_UNSUPPORTED.*{reason}"):
        table.read(log)


@pytest.mark.parametrize(
    ("protocol", "configuration", "reason"),
    [
        ({"minReaderVersion": 3, "readerFeatures": ["catalogManaged"]}, {}, "readers have to know catalogManaged"),
        ({"minReaderVersion": 4}, {}, "reader version 4"),
        ({"minReaderVersion": 2}, {"delta.columnMapping.mode": "id"}, "mapped by id"),
    ],
)
def test_features_that_are_not_known_are_told_from_those_that_change_nothing(
    table: Table, protocol: dict[str, Any], configuration: dict[str, str], reason: str
) -> None:
    log, schema = table.log(), DeltaTable(str(table.path)).schema().to_json()
    table.write(1, {"protocol": {"minReaderVersion": 3, "readerFeatures": ["deletionVectors", "v2Checkpoint", "variantType"]}})
    table.write(2, {"protocol": protocol}, {"metaData": {"id": "x", "schemaString": schema, "configuration": configuration}})
    commits = [entry.commit for entry in log.tail(0) if entry.commit is not None]
    assert commits[0].unsupported is None
    assert reason in str(commits[1].unsupported)


def test_a_feature_that_only_a_checkpoint_of_json_tells_is_not_passed_over(table: Table) -> None:
    """R147: the entry that brought it was cleaned away, as a table does by itself."""
    actions = [json.loads(line) for line in table.entry(0).read_text(encoding="utf-8").splitlines()]
    known = [action for action in actions if "commitInfo" not in action]
    features = {
        "readerFeatures": ["v2Checkpoint", "vacuumProtocolCheck"],
        "writerFeatures": ["v2Checkpoint", "vacuumProtocolCheck"],
    }
    protocol = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}}
    whole = [{"checkpointMetadata": {"version": 0}}, protocol, *(action for action in known if "protocol" not in action)]
    checkpoint = table.entry(0).with_name(f"{0:020d}.checkpoint.{uuid.uuid4()}.json")
    checkpoint.write_text("\n".join(map(json.dumps, whole)), encoding="utf-8")
    table.write(1, {"txn": {"appId": "a", "version": 1}})
    table.entry(0).unlink()
    folder = of_table(table.own, str(table.path))
    assert protocol_at(folder, None) == protocol["protocol"]
    assert [add["path"] for add in adds_at(folder, 1)] == [action["add"]["path"] for action in known if "add" in action]


def test_a_link_out_of_the_table_is_not_followed(table: Table, tmp_path: Path) -> None:
    file = next(table.path.glob("*.parquet"))
    moved = file.rename(tmp_path / "elsewhere.parquet")
    file.symlink_to(moved)
    with pytest.raises(JournalError, match="MESSAGE_FILE_CORRUPT.*link"):
        of_table(table.own, str(table.path)).key_of(file.name)


@pytest.mark.parametrize(
    ("start", "version", "beginning"),
    [("now", 3, False), ("beginning", 3, True), (0, -1, False), (2, 1, False), (4, 3, False), ("1970-01-01T00:00:00Z", -1, False),
     ("2999-01-01T00:00:00Z", 3, False)],
)  # fmt: skip
def test_a_start_is_resolved_to_a_version_once(table: Table, start: Any, version: int, *, beginning: bool) -> None:
    """R143."""
    for number in (2, 3, 4):
        table.append(number)
    found = table.followed(**{"from": start})
    assert (found.version, found.beginning) == (version, beginning)
    assert found.token == ("" if version < 0 else token_of(table.entry(version).read_bytes()))


def test_files_of_the_beginning_come_by_their_time_with_that_version(table: Table) -> None:
    """R143."""
    table.append(2, 3)
    DeltaTable(str(table.path)).create_checkpoint()
    table.append(4, 5, 6)
    log = table.log(**{"from": "beginning"})
    table.append(7)
    assert table.read(log, after=1) == [(2, [1, 2, 3]), (3, [1])]


@pytest.mark.parametrize(
    ("columns", "found"),
    [
        ("id BIGINT", None), ("ID BIGINT", None), ("id DECIMAL(19,0)", None), ("id DECIMAL(18,0)", "without loss"),
        ("id DOUBLE", "without loss"), ("id STRING", "without loss"), ("itm STRING", "Did you mean 'item'"),
    ],
)  # fmt: skip
def test_columns_are_read_wider_where_nothing_is_lost(table: Table, columns: str, found: str | None) -> None:
    """R142."""
    if found is None:
        assert [each[1:] for each in table.followed(columns=columns).columns] == [("id", "BIGINT")]
        return
    with pytest.raises(ConfigError, match=f"TABLE_COLUMNS_DIFFER.*{found}"):
        table.followed(columns=columns)


@pytest.mark.parametrize(
    ("declared", "found"),
    [
        ("STRUCT<a: INT, b: STRING>", True),
        ("STRUCT<b: STRING>", True),
        ("STRUCT<a: BIGINT, b: STRING>", True),
        ("STRUCT<b: STRING, a: INT>", True),
        ("STRUCT<a: INT, c: STRING>", False),
        ("STRUCT<c: STRING>", False),
        ("STRUCT<A: INT>", False),
        ("STRUCT<a: SMALLINT>", False),
        ("STRUCT<a: INT NOT NULL>", False),
        ("INT", False),
    ],
)
@pytest.mark.parametrize("form", ["{}", "ARRAY<{}>", "MAP<STRING, {}>", "STRUCT<x: {}>", "MAP<STRING, ARRAY<STRUCT<x: {}>>>"])
def test_a_struct_of_the_table_has_the_declared_fields_and_maybe_others(form: str, declared: str, *, found: bool) -> None:
    """R142: wherever it stands in the type; they are found by their names."""
    there, wanted = (user_schema(f"c {form.format(each)}").field(0).type for each in ("STRUCT<a: INT, b: STRING>", declared))
    assert table_look._fits(there, wanted, may_lack=False) is found


@pytest.mark.parametrize(
    ("declared", "found", "found_later"),
    [
        ("STRUCT<a: INT>", False, False),
        ("STRUCT<b: STRING, a: BIGINT>", True, True),
        ("STRUCT<a: INT, b: STRING, z: INT>", False, True),
        ("STRUCT<a: INT, z: INT>", False, False),
        ("STRUCT<a: INT, b: STRING, z: INT NOT NULL>", False, False),
    ],
)
@pytest.mark.parametrize("form", ["MAP<{}, INT>", "ARRAY<MAP<ARRAY<{}>, INT>>", "MAP<STRUCT<x: {}>, MAP<STRING, INT>>"])
def test_a_struct_in_the_key_of_a_map_is_read_with_all_of_its_fields(
    form: str, declared: str, *, found: bool, found_later: bool
) -> None:
    """R142: without one of them two keys could be the same; one that the table gains later is NULL in files from before."""
    there, wanted = (user_schema(f"c {form.format(each)}").field(0).type for each in ("STRUCT<a: INT, b: STRING>", declared))
    assert table_look._fits(there, wanted, may_lack=False) is found
    assert table_look._fits(there, wanted, may_lack=True) is found_later


def test_what_a_type_follows_cannot_be_changed_but_for_columns(table: Table, tmp_path: Path) -> None:
    before = table.definition(columns="id BIGINT")
    known = FollowedTable(table.followed(columns="id BIGINT"))
    assert look(table.own, table.definition(columns="id BIGINT", on_change="keep"), known, before) is None
    wider = look(table.own, table.definition(columns="id BIGINT, item STRING"), known, before)
    assert wider is not None
    assert [name for name, _, _ in wider.columns] == ["id", "item"]
    with pytest.raises(ConfigError, match="MESSAGE_TYPE_CHANGED.*settled"):
        look(table.own, table.definition(columns="id BIGINT", **{"from": 0}), known, before)
    shutil.copytree(table.path, tmp_path / "copy")
    other = parsing.parse({"message_types": {"orders": {"table": str(tmp_path / "copy"), "columns": "id BIGINT"}}})
    with pytest.raises(ConfigError, match="MESSAGE_TYPE_CHANGED.*would follow"):
        look(table.own, other.message_types["orders"], known, before)
    with pytest.raises(ConfigError, match="SINK_IN_JOURNAL"):
        look(Store(str(table.path / "journal")), before, None, None)


def retype(table: Table) -> None:
    """Let the table have another type of `item` from its next version on, with new rows."""
    rows = pa.table({"id": [50], "item": [7]})
    write_deltalake(str(table.path), rows, mode="overwrite", schema_mode="overwrite")


def test_another_type_follows_from_the_very_version_that_changes_a_column(table: Table) -> None:
    """R143: it is the way on where a column cannot be read as it was declared."""
    retype(table)
    version = int(DeltaTable(str(table.path)).version())
    columns = {"columns": "id BIGINT, item BIGINT"}
    followed = table.followed(**columns, **{"from": version})
    assert (followed.version, [kind for _, _, kind in followed.columns]) == (version - 1, ["BIGINT", "BIGINT"])
    with pytest.raises(ConfigError, match="TABLE_COLUMNS_DIFFER.*'item' is STRING"):
        table.followed(**columns, **{"from": version - 1})


@pytest.mark.parametrize("what", ["retyped", "lost", "away", "gained"])
def test_a_table_that_changed_stops_no_other_definitions(table: Table, what: str) -> None:
    """Without `columns`, those that its type has hold as long as the table does not have all of them."""
    written = parsing.parse({"message_types": {"orders": {"table": str(table.path)}}})
    known = table_look.completed(table.own, written)
    declared = known.message_types["orders"].columns
    if what == "away":
        table.path.rename(table.path.with_name("elsewhere"))
    elif what == "retyped":
        retype(table)
    else:
        columns: dict[str, Any] = {"id": [1]} if what == "lost" else {"id": [1], "item": ["x"], "more": [1.5]}
        mode: Any = {"mode": "overwrite", "schema_mode": "overwrite"}
        write_deltalake(str(table.path), pa.table(columns), **mode)
    found = table_look.completed(table.own, written, known).message_types["orders"].columns
    assert found == (declared if what != "gained" else f"{declared}, `more` DOUBLE")


def test_a_type_goes_on_behind_what_is_skipped_only(table: Table) -> None:
    """R148."""
    definition, state = table.definition(), MessageTypeState()
    state.fold(Record(body=table.followed(), message_type="orders"))
    for number in (2, 3):
        table.append(number)
    assert state.followed is not None
    found = look_further(table.own, definition, state.followed, 2)
    assert (found.version, found.skipped) == (1, (1, 1))
    with pytest.raises(ConfigError, match="BAD_VALUE.*later ones are not there"):
        look_further(table.own, definition, state.followed, 9)
    facts: dict[str, int | str] = {"path": str(table.path), "version": 2, "next_step": ""}
    state.fold(Record(body=Stopped(version=2, error="LOG_GAP", facts=facts, since=1), message_type="orders"))
    with pytest.raises(ConfigError, match="BAD_VALUE.*from 2 to 3"):
        look_further(table.own, definition, state.followed, 1)


def test_a_type_goes_on_with_the_version_that_changes_its_columns_and_takes_in_a_key_that_a_table_has_gained(
    tmp_path: Path,
) -> None:
    """R142, R148: a field of a map's key is declared before it goes on; nothing is skipped."""
    table, maps = Table(tmp_path), "MAP<STRUCT<{}>, INT>"
    old, new = (maps.format(", ".join(f"`{name}`: INT" for name in names)) for names in ("ab", "zab"))

    def append(kind: str, **key: int) -> None:
        rows = pa.table({"m": pa.array([[(key, 1)]], user_schema(f"m {kind}").field(0).type)})
        write_deltalake(str(table.path), rows, mode="append", schema_mode="merge")

    append(old, a=1, b=2)
    before = table.definition(columns=f"m {old}")
    known = FollowedTable(table.followed(columns=f"m {old}"))
    append(new, z=3, a=1, b=2)
    with pytest.raises(ConfigError, match="TABLE_COLUMNS_DIFFER.*`z`: INT.*without loss. Correct the declaration"):
        look_further(table.own, before, known, 2)
    for declared in ("`a`: INT", "`a`: INT, `b`: INT, `y`: INT"):
        with pytest.raises(ConfigError, match="TABLE_COLUMNS_DIFFER.*without loss"):
            look(table.own, table.definition(columns=f"m {maps.format(declared)}"), known, before)
    wanted = table.definition(columns=f"m {new}")
    applied = look(table.own, wanted, known, before)
    assert applied is None, "files until then have the type that they had"
    found = look_further(table.own, wanted, known, 2)
    assert (found.version, found.skipped) == (1, None)
    assert found.columns == (("m", "m", maps.format("`a`: INT, `b`: INT, `z`: INT")),)


def test_a_file_of_another_number_of_rows_is_damaged(table: Table) -> None:
    """R150."""
    found, path = table.followed(), next(table.path.glob("*.parquet")).name
    known = FollowedTable(found)

    def segment(until: int, **partition: str) -> Segment:
        return Segment(
            message_type="orders", first=7, until=until, path=path, version=0, token="", entered_at_ms=0,
            published_at_ms=86_400_000, topic_min="orders", topic_max="orders", expires_null_count=1, table=known.columns,
            partition=partition,
        )  # fmt: skip

    files = MessageFiles(table.own)
    rows = files.read(segment(8), ["id", "topic", "sequence", "published_at", "expires_at", "gone"])
    assert rows.to_pylist() == [
        {"id": 1, "topic": "orders", "sequence": 7, "published_at": rows["published_at"][0].as_py(), "expires_at": None}
    ]
    assert rows["published_at"][0].as_py().isoformat() == "1970-01-02T00:00:00+00:00"
    # The log's value counts, also where the file has another.
    assert files.read(segment(8, item=""), ["item"]).to_pylist() == [{"item": None}]
    with pytest.raises(JournalError, match="MESSAGE_FILE_CORRUPT.*1 rows instead of 2"):
        files.read(segment(9), ["id"])
