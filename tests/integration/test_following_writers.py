"""Each writer of followed tables, and each operation on them, on messages that are done, leased, and waiting (R144 to R155)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from spark_queue import Journal
from spark_queue.clock import SystemClock
from spark_queue.core import commands
from spark_queue.core.definitions.keys import STOP
from spark_queue.core.message_files.followed_table import judge
from spark_queue.core.records import Removal
from spark_queue.core.state.lifecycle import State
from spark_queue.errors import JournalError
from spark_queue.journal.folder import of_table
from spark_queue.journal.followed_log import path_of
from spark_queue.journal.schema import schema_of
from spark_queue.journal.table_snapshot import adds_at
from spark_queue.journal.table_upkeep import LOOK_MS
from spark_queue.views.bodies import read_bodies
from tests.integration.coordinator_world import DEADLINE_S
from tests.integration.source_journal import end_coordinator
from tests.table_on_disk import LEASE_MS, TableWorld
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SCHEMA = schema_of(pa.field("id", pa.int64()), pa.field("item", pa.string()), pa.field("country", pa.string()))

#: The properties of each kind of table that Spark writes.
_OF_SPARK: Mapping[str, Mapping[str, str]] = {
    "plain": {},
    "row ids": {"delta.enableRowTracking": "true"},
    "vectors": {"delta.enableDeletionVectors": "true"},
    "mapping": {"delta.columnMapping.mode": "name"},
    "partitions": {},
}


class WrittenWorld(TableWorld):
    """A queue that reads each file, over a table of one writer, who does with it what people do; delta-rs here."""

    def __init__(self, home: Path, **keys: Any) -> None:
        super().__init__(home, type_keys={"relocate_after": "0s"}, filter="id >= 0", **keys)

    def update(self, number: int) -> None:
        DeltaTable(self.table).update(predicate=f"id = {number}", new_values={"item": "changed"})

    def merge(self, number: int) -> None:
        source = pa.table({"id": pa.array([number, number + 1_000], pa.int64()), "item": ["merged"] * 2, "country": ["NL"] * 2})
        merger = DeltaTable(self.table).merge(source, "t.id = s.id", source_alias="s", target_alias="t")
        merger.when_matched_update_all().when_not_matched_insert_all().execute()

    def overwrite(self) -> None:
        rows = pa.table({"id": pa.array([0], pa.int64()), "item": ["over"], "country": ["NL"]})
        write_deltalake(self.table, rows, mode="overwrite", partition_by=self.partition_by)

    def restore(self, version: int) -> None:
        DeltaTable(self.table).restore(version)

    def vacuum(self) -> None:
        """Delete every file that the table does not have, whatever features it has."""
        folder = of_table(self.store, self.table)
        standing = {path_of(str(add["path"])) for add in adds_at(folder, self.version)}
        for path in Path(self.table).rglob("*.parquet"):
            name = path.relative_to(self.table).as_posix()
            if not name.startswith("_") and name not in standing:
                path.unlink()

    # What there is.

    @property
    def version(self) -> int:
        return int(DeltaTable(self.table).version())

    def bodies(self, rows: list[int]) -> list[tuple[int, str, str]]:
        found = read_bodies(self.store, self.known, np.array(rows, dtype=np.int64), _SCHEMA)
        return [(row["id"], row["item"], row["country"]) for row in found.to_pylist()]

    def lost(self) -> list[int]:
        return sorted(row for letter in self.queue.dead_letters if letter.reason == Removal.LOST for row in letter.rows)


class SparkWorld(WrittenWorld):
    """The same with a table that Spark writes."""

    def __init__(self, home: Path, spark: SparkSession, kinds: tuple[str, ...]) -> None:
        self._spark, self._kinds, self._has_table = spark, kinds, False
        super().__init__(home)

    def sql(self, statement: str) -> None:
        self._spark.sql(statement.format(t=f"delta.`{self.table}`"))

    def append(self, first: int, count: int) -> None:
        if not self._has_table:
            keys = "".join(f", '{name}' = '{value}'" for kind in self._kinds for name, value in _OF_SPARK[kind].items())
            parted = "PARTITIONED BY (country)" if "partitions" in self._kinds else ""
            columns = "id BIGINT, item STRING, country STRING"
            self.sql(f"CREATE TABLE {{t}} ({columns}) USING delta {parted} TBLPROPERTIES ('of' = 'tests'{keys})")
            self._has_table = True
        rows = f"SELECT id, concat('item ', id), 'NL' FROM range({first}, {first + count}, 1, 1)"
        self.sql(f"INSERT INTO {{t}} {rows}")

    def optimize(self) -> None:
        self.sql("OPTIMIZE {t}")

    def delete(self, where: str) -> None:
        self.sql(f"DELETE FROM {{t}} WHERE {where}")

    def update(self, number: int) -> None:
        self.sql(f"UPDATE {{t}} SET item = 'changed' WHERE id = {number}")

    def merge(self, number: int) -> None:
        source = f"SELECT explode(array({number}, {number + 1_000})) AS id, 'merged' AS item, 'NL' AS country"
        self.sql(
            f"MERGE INTO {{t}} t USING ({source}) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )

    def overwrite(self) -> None:
        self.sql("INSERT OVERWRITE {t} VALUES (0, 'over', 'NL')")

    def restore(self, version: int) -> None:
        self.sql(f"RESTORE TABLE {{t}} TO VERSION AS OF {version}")

    def drop(self) -> None:
        super().drop()
        jvm: Any = self._spark._jvm
        # It would take the new table for the old one.
        jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
        self._has_table = False


#: What people do to a table whose rows `first` to `first + 2` were appended last, behind a version; and whether it is a change.
_OPERATIONS: Mapping[str, tuple[Callable[[WrittenWorld, int, int], None], bool]] = {
    "OPTIMIZE": (lambda world, first, before: world.optimize(), False),
    "DELETE": (lambda world, first, before: world.delete(f"id = {first + 1}"), True),
    "UPDATE": (lambda world, first, before: world.update(first + 2), True),
    "MERGE": (lambda world, first, before: world.merge(first), True),
    "RESTORE": (lambda world, first, before: world.restore(before), True),
    "overwrite": (lambda world, first, before: world.overwrite(), True),
}


def assert_messages_outlive_each_operation(world: WrittenWorld) -> None:
    """Look at three messages of each append, one of each kind, after each operation, and after a VACUUM that comes later."""
    assert world.enter() is None
    for number, (name, (operate, is_change)) in enumerate(_OPERATIONS.items()):
        first, before, bookmark = 100 * (number + 1), world.version, world.known.entered_until
        begin(world, first)
        operate(world, first, before)
        assert refuses_to_keep_on(world) is is_change, name
        assert world.enter() is None, name
        assert world.known.entered_until == bookmark + 3, f"{name} brings no message"
        assert (world.rows(State.LEASED), world.rows(State.AVAILABLE)) == ([bookmark + 1], [bookmark + 2]), name
        copy_due(world)
        world.vacuum()
        # As they were appended, wherever they stand by now.
        appended = [(each, f"item {each}", "NL") for each in (first + 1, first + 2)]
        assert world.bodies([bookmark + 1, bookmark + 2]) == appended, name
        world.begin()
        assert not world.state.troubles, name
        assert (world.rows(State.LEASED), world.rows(State.AVAILABLE)) == ([bookmark + 1], [bookmark + 2]), name
        world.now_ms += LEASE_MS + 1
        world.tick()
        assert drained(world) == [bookmark + 1, bookmark + 2], name
    assert world.lost() == []


def copy_due(world: WrittenWorld) -> None:
    """Have copied what the table has removed by now; its writers go by the real time."""
    world.now_ms = max(world.now_ms, SystemClock().wall_ms())
    world.wait(ms=1)


def begin(world: WrittenWorld, first: int) -> None:
    """Append three messages, and have the first one done and the second one leased."""
    world.append(first, 3)
    assert world.enter() is None
    done = world.take(1)
    assert done is not None
    world.prove(done)
    assert world.take(1) is not None


def drained(world: WrittenWorld) -> list[int]:
    """Take and acknowledge all that is there."""
    found = list[int]()
    while (lease := world.take()) is not None:
        found += lease.rows
        world.prove(lease)
    return sorted(found)


def refuses_to_keep_on(world: WrittenWorld) -> bool:
    """Return whether the newest commit would set a type aside that stops before changes."""
    known = world.known.followed
    assert known is not None
    entries = list(world.journal.messages("orders", known).tail(world.known.version))
    assert entries[-1].commit is not None
    try:
        judge(known, entries[-1].commit, message_type="orders", on_change=STOP, recorded_version=world.known.version)
    except JournalError as refusal:
        return refusal.code == "TABLE_CHANGED"
    return False


def assert_what_vacuum_takes_sooner_is_lost(world: WrittenWorld) -> None:
    """Look at what waits and what is leased, where a VACUUM comes before the copies, and where the table is made anew."""
    types = {"orders": {**world.definitions["message_types"]["orders"], "relocate_after": "3d"}}
    world.decide(commands.Apply, definitions={**world.definitions, "message_types": types})
    world.enter()
    bookmark = world.known.entered_until
    begin(world, 900)
    world.overwrite()
    assert world.enter() is None
    world.vacuum()
    world.wait(ms=1)
    assert (world.rows(State.LEASED), world.lost()) == ([bookmark + 1], [bookmark + 2])
    world.now_ms += LEASE_MS + 1
    world.tick()
    world.wait(ms=LOOK_MS)
    assert world.lost() == [bookmark + 1, bookmark + 2]
    assert drained(world) == []
    begin(world, 910)
    world.drop()
    world.append(920, 1)
    trouble = world.enter()
    assert trouble is not None
    assert trouble.code == "TABLE_REPLACED"
    world.now_ms += LEASE_MS + 1
    world.wait(ms=LOOK_MS)
    world.wait(ms=LOOK_MS)
    assert world.lost() == [bookmark + 1, bookmark + 2, bookmark + 4, bookmark + 5]


@pytest.mark.parametrize("partition_by", [None, ["country"]], ids=["plain", "partitions"])
def test_a_table_that_delta_rs_writes(tmp_path: Path, partition_by: list[str] | None) -> None:
    world = WrittenWorld(tmp_path, partition_by=partition_by)
    assert_messages_outlive_each_operation(world)
    assert_what_vacuum_takes_sooner_is_lost(world)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kinds",
    [
        pytest.param(("row ids", "vectors", "mapping", "partitions"), id="all features"),
        *(pytest.param((kind,), id=kind) for kind in _OF_SPARK),
    ],
)
def test_a_table_that_spark_writes(spark: SparkSession, tmp_path: Path, kinds: tuple[str, ...]) -> None:
    """A push has tables of delta-rs here, and streams over those of Spark; a night has the time for each feature."""
    world = SparkWorld(tmp_path, spark, kinds)
    assert_messages_outlive_each_operation(world)
    if kinds == ("plain",):
        # What becomes of a removed file is the same with each feature.
        assert_what_vacuum_takes_sooner_is_lost(world)


#: A writer that appends commits of three rows to a table, from a number on, until a file is there; it tells the number behind them.
_APPENDING = """
import pathlib, sys, time
import pyarrow as pa
from deltalake import write_deltalake
table, number, end = sys.argv[1], int(sys.argv[2]), pathlib.Path(sys.argv[3])
while not end.exists():
    write_deltalake(table, pa.table({"id": pa.array(range(number, number + 3), pa.int64())}), mode="append")
    number += 3
    time.sleep(0.05)
print(number)
"""


@pytest.mark.slow
def test_writers_commit_at_once_while_the_table_is_read(spark: SparkSession, tmp_path: Path) -> None:
    """R144: two processes of delta-rs and Spark beside them; each row enters once, those of a commit together."""
    path = str(tmp_path / "orders")
    spark.sql(f"CREATE TABLE delta.`{path}` (id BIGINT) USING delta")
    journal = Journal.create(
        str(tmp_path / "journal"),
        {"message_types": {"orders": {"table": path}}, "queues": {"SHIP": {"underlying_topic": "orders"}}},
    )
    end, firsts = tmp_path / "end", (0, 100_000, 200_000)
    writers = [
        subprocess.Popen([sys.executable, "-c", _APPENDING, path, str(first), str(end)], stdout=subprocess.PIPE, text=True)
        for first in firsts[:2]
    ]
    try:
        wait_until(lambda: DeltaTable(path).version() > 2)
        for number in range(firsts[2], firsts[2] + 12, 3):
            spark.sql(f"INSERT INTO delta.`{path}` SELECT /*+ COALESCE(1) */ id FROM range({number}, {number + 3})")
            assert journal.catch_up().troubles == {}
        end.touch()
        untils = [*(int(writer.communicate(timeout=DEADLINE_S)[0]) for writer in writers), firsts[2] + 12]
        assert journal.catch_up().troubles == {}
        found: list[int] = [row["id"] for row in journal.view("messages", queue="SHIP").to_pylist()]
        read = sorted(row["id"] for row in spark.read.format("delta").load(path).collect())
        by_delta_rs: list[Any] = DeltaTable(path).to_pyarrow_table().column("id").to_pylist()
        assert sorted(found) == read == sorted(by_delta_rs)
        assert read == [number for first, until in zip(firsts, untils, strict=True) for number in range(first, until)]
        in_commits = [found[at : at + 3] for at in range(0, len(found), 3)]
        assert all(rows == [rows[0], rows[0] + 1, rows[0] + 2] for rows in in_commits), "the rows of a commit stand together"
        stretches = [(found.index(first), found.index(until - 1)) for first, until in zip(firsts, untils, strict=True)]
        assert max(first for first, _ in stretches) < min(last for _, last in stretches), "they committed at once"
    finally:
        for writer in writers:
            writer.kill()
        end_coordinator(journal)
