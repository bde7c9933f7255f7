"""A peer's files and log made to hurt, and what may be odd without harm (DESIGN 17.3)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_queue.core.definitions import parsing
from spark_queue.core.state.lifecycle import State
from spark_queue.journal.creation import create_journal
from spark_queue.journal.store import Store
from spark_queue.replication.peer_log import LISTING_LOOKS
from tests.unit.replication.sites import Attack, definitions


def rewritten(change: Callable[[pa.Table], pa.Table], **options: Any) -> Callable[[Path], None]:
    """Return a change of a message file's rows."""
    return lambda file: pq.write_table(change(pq.read_table(file)), file, **options)


def column(name: str, values: Any) -> Callable[[Path], None]:
    """Return a change of one column of a message file."""

    def change(rows: pa.Table) -> pa.Table:
        return rows.set_column(rows.column_names.index(name), name, values if isinstance(values, pa.Array) else pa.array(values))

    return rewritten(change)


def rows(count: int) -> Callable[[dict[str, Any]], None]:
    """Return a change of how many messages entered first of their type."""

    def change(row: dict[str, Any]) -> None:
        row["ranges"], row["detail"]["rows"] = [{"first": 0, "until": count}], count

    return change


def bomb(file: Path, name: str = "item") -> None:
    """Let rows become 30,000 of a megabyte each, in a file of some kilobytes that says of itself that it has texts."""
    rows = pq.read_table(file).slice(0, 1)
    many = pa.concat_tables([rows] * 30_000).combine_chunks()
    text = pa.DictionaryArray.from_arrays(pa.array([0] * len(many), pa.int32()), pa.array(["x" * 1_000_000]))
    pq.write_table(many.set_column(many.column_names.index(name), name, text), file, store_schema=False)
    assert pq.read_schema(file).field(name).type == rows.schema.field(name).type
    assert file.stat().st_size < 1_000_000


NO_UNICODE = pa.Array.from_buffers(pa.string(), 2, pa.array([b"\xff\xfe", b"\xff"], pa.binary()).buffers())

FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "no Parquet": (lambda file: file.write_bytes(b"PAR1 and then nothing PAR1"), "Parquet"),
    "an empty file": (lambda file: file.write_bytes(b""), "Parquet"),
    "cut off": (lambda file: file.write_bytes(file.read_bytes()[:-100]), "Parquet"),
    "fewer rows": (rewritten(lambda rows: rows.slice(0, 1)), "1 rows instead of 2"),
    "more rows": (rewritten(lambda rows: pa.concat_tables([rows, rows])), "4 rows instead of 2"),
    "no topics": (rewritten(lambda rows: rows.drop_columns(["topic"])), "topic"),
    "topics that are missing": (column("topic", pa.array(["T", None])), "topic"),
    "topics that are paths": (column("topic", ["T", "../../x"]), "no topic"),
    "no sequences": (rewritten(lambda rows: rows.drop_columns(["sequence"])), "sequence"),
    "sequences below 0": (column("sequence", [-5, 1]), "sequences"),
    "sequences beyond all numbers": (column("sequence", [1, 2**62]), "sequences"),
    "a publisher of megabytes": (column("publisher", ["x" * 1_000_000, "y"]), "publisher"),
    "texts that are none": (column("item", NO_UNICODE), "UTF"),
    "two columns of one name": (rewritten(lambda rows: rows.append_column("item", rows.column("item"))), "one name"),
    "a bomb": (bomb, "rows instead of 2"),
}  # fmt: skip


@pytest.mark.drawn(5)
@pytest.mark.parametrize("case", FILES)
def test_a_file_that_no_peer_may_write_is_refused(attack: Attack, case: str) -> None:
    change, says = FILES[case]
    number = attack.peer.number("entered", rows=2, message_type="order")
    change(attack.peer.orders())
    attack.pull("PEER_REFUSED", says)
    assert attack.here.state.pulled["virginia"].record == number - 1, "what came before it is taken"
    attack.heal()


def test_a_file_of_ever_more_publishers_is_refused(attack: Attack) -> None:
    number = attack.peer.number("entered", message_type="json")
    names = pa.array([f"{each:050}" for each in range(100_000)])
    rewritten(lambda found: found.take(pa.array([0] * len(names))))(attack.peer.message_file(number))
    column("publisher", names)(attack.peer.message_file(number))
    attack.peer.rewrite(number, rows(len(names)))
    attack.pull("PEER_REFUSED", "bytes for its publishers")
    attack.heal()


def test_a_missing_file_is_told_and_comes_back(attack: Attack) -> None:
    attack.peer.orders().unlink()
    attack.pull("MESSAGE_FILE_MISSING", "is not there")
    attack.heal()


def test_another_type_of_a_column_stops_that_message_type_alone(attack: Attack) -> None:
    number = attack.peer.number("entered", rows=2, message_type="order")
    column("id", ["1", "2"])(attack.peer.orders())
    attack.pull("MESSAGE_TYPE_DIFFERS", "'id'")
    attack.go_on()
    assert attack.here.state.message_types["json"].entered_until == 2, "others are pulled"
    assert attack.here.state.pulled["virginia"].record > number


def test_a_column_that_is_missing_there_reads_null(attack: Attack) -> None:
    rewritten(lambda rows: rows.drop_columns(["item"]))(attack.peer.orders())
    attack.pull(None)
    files = (attack.here.path / "messages" / "order").glob("*.parquet")
    rows = pa.concat_tables([pq.read_table(file, columns=["id", "item"]) for file in files]).to_pylist()
    assert {row["id"]: row["item"] for row in rows if row["id"] in (4, 5)} == {4: None, 5: None}
    attack.go_on()
    assert attack.here.told() == attack.unharmed


def added(change: Callable[[dict[str, Any]], Any]) -> Callable[[list[dict[str, Any]]], Any]:
    """Return a change of what an entry says of each file that it adds."""
    return lambda actions: [change(action["add"]) for action in actions if "add" in action]


def path(said: str) -> Callable[[list[dict[str, Any]]], Any]:
    return added(lambda add: add.update(path=said))


def statistics(name: str, number: Any) -> Callable[[list[dict[str, Any]]], Any]:
    def change(add: dict[str, Any]) -> None:
        found = json.loads(add["stats"])
        found[name]["record"] = number
        add["stats"] = json.dumps(found)

    return added(change)


def held(change: Callable[[dict[str, Any]], Any]) -> Callable[[list[dict[str, Any]]], Any]:
    """Return a change of each record that an entry holds."""
    return lambda actions: [change(row) for row in actions[0]["commitInfo"]["sparkqueue"]["records"]]


def holds(records: Any) -> Callable[[list[dict[str, Any]]], Any]:
    return lambda actions: actions[0]["commitInfo"]["sparkqueue"].update(records=records)


#: Of a commit with a data file.
ENTRIES: dict[str, Callable[[list[dict[str, Any]]], Any]] = {
    "a path out of the log": path("../messages/x.parquet"),
    "an absolute path": path("/etc/passwd"),
    "numbers of 2^60": statistics("maxValues", 2**60),
    "numbers below 0": statistics("minValues", -5),
    "numbers that are none": statistics("minValues", "x"),
    "more records than it has": statistics("maxValues", 10_000),
    "no statistics": added(lambda add: add.pop("stats")),
    "a file that is not there": path(f"{26:020d}-{'0' * 32}.parquet"),
    "actions that are none": lambda actions: [action.update(add=7) for action in actions if "add" in action],
    "information that is none": lambda actions: [action.update(commitInfo=[]) for action in actions if "commitInfo" in action],
}
#: Of one that holds its records.
HELD: dict[str, Callable[[list[dict[str, Any]]], Any]] = {
    "records that are a text": holds("x"),
    "records that are none": holds([7]),
    "a record without a number": held(lambda row: row.pop("record")),
    "a number of 2^60": held(lambda row: row.update(record=2**60)),
    "a number of 2^70": held(lambda row: row.update(record=2**70)),
    "a number below 0": held(lambda row: row.update(record=-5)),
    "a number that is a text": held(lambda row: row.update(record="5")),
    "an epoch below the one before": held(lambda row: row.update(epoch=0)),
    "a time beyond all": held(lambda row: row.update(at=2**62)),
    "a kind that is a number": held(lambda row: row.update(kind=5)),
    "a detail that is none": held(lambda row: row.update(detail={"v": 1})),
    "a detail that is no JSON": held(lambda row: row.update(detail="{")),
    "ranges of three": held(lambda row: row.update(ranges=[[1, 2, 3]])),
    "ranges of texts": held(lambda row: row.update(ranges=[["a", "b"]])),
    "records twice": lambda actions: actions[0]["commitInfo"]["sparkqueue"].update(
        records=2 * actions[0]["commitInfo"]["sparkqueue"]["records"]
    ),
    "records that are far away": held(lambda row: row.update(record=row["record"] + 7)),
}


@pytest.mark.drawn(6)
@pytest.mark.parametrize("follows", [False, True], ids=["at first", "later"])
@pytest.mark.parametrize("case", [*ENTRIES, *HELD])
def test_an_entry_that_lies_is_refused(attack: Attack, case: str, *, follows: bool) -> None:
    newest = attack.peer.use_a_file() if case in ENTRIES else attack.peer.entries()[-1]
    actions = [json.loads(line) for line in newest.read_text().splitlines()]
    if follows:
        newest.unlink()
        attack.pull(None)
    {**ENTRIES, **HELD}[case](actions)
    newest.write_text("\n".join(json.dumps(action) for action in actions) + "\n")
    refusal = attack.here.pull("virginia", attack.peer.path)
    assert refusal is not None or case == "information that is none"
    assert refusal is None or refusal.code in ("PEER_REFUSED", "JOURNAL_DAMAGED", "STORE_FAILED"), refusal
    attack.heal()


def test_a_journal_of_newer_software_is_refused(attack: Attack) -> None:
    attack.peer.rewrite(0, lambda row: row["detail"].update(format=2))
    attack.pull("PROTOCOL_NEWER", "format 2")
    attack.heal()


@pytest.mark.parametrize(("fact", "code"), [({"critical": True}, "PROTOCOL_NEWER"), ({"v": 9}, "PROTOCOL_NEWER"), ({}, None)])
def test_a_kind_of_newer_software_is_skipped_unless_it_is_critical(attack: Attack, fact: dict[str, Any], code: str | None) -> None:
    number = attack.peer.number("subscribed")
    attack.peer.rewrite(number, lambda row: row.update(kind="invented", detail={"v": 1, **fact}))
    attack.pull(code)
    attack.heal()


@pytest.mark.parametrize("detail", [{"v": 1, "critical": True}, {"v": 9}], ids=["critical", "newer"])
def test_what_a_peer_calls_a_kind_forges_no_line_of_a_log(attack: Attack, detail: dict[str, Any]) -> None:
    number = attack.peer.number("subscribed")
    attack.peer.rewrite(number, lambda row: row.update(kind="x\nCRITICAL forged\x1b[2J", detail=detail))
    attack.pull("PROTOCOL_NEWER", r"x\nCRITICAL forged\x1b[2J")
    attack.heal()


def test_ranges_of_2_60_mean_what_the_peer_has(attack: Attack) -> None:
    number = attack.peer.number("removed", reason="acknowledged")
    attack.peer.rewrite(number, lambda row: row.update(ranges=[{"first": 3, "until": 2**60}]))
    attack.pull(None)
    assert len(attack.here.state.queues["WORK"].rows[State.REMOVED]) <= 9


@pytest.mark.parametrize("year", ["1970-01-01", "9999-12-31"])
def test_times_decide_about_nothing(attack: Attack, year: str) -> None:
    at = datetime.fromisoformat(f"{year}T00:00:00+00:00")
    for row in attack.peer.rows():
        if row["kind"] in ("entered", "removed", "redriven", "transferred"):
            attack.peer.rewrite(row["record"], lambda row: row.update(at=at))
    attack.pull(None)
    attack.go_on()
    assert attack.here.told() == attack.unharmed


def test_what_may_not_come_through_a_peer_does_not(attack: Attack) -> None:
    definition = replace(attack.here.state.definitions.peers["virginia"], passthrough=())
    assert attack.here.pull("virginia", attack.peer.path, definition=definition) is None
    assert set(attack.here.state.message_types["order"].origins.held) == {attack.here.state.pulled["virginia"].journal}


def test_another_journal_in_its_place_is_refused(attack: Attack) -> None:
    attack.pull(None)
    shutil.rmtree(attack.peer.path)
    create_journal(Store(str(attack.peer.path)), parsing.parse(definitions("virginia")))
    for _ in range(LISTING_LOOKS - 1):
        attack.pull(None)
    attack.pull("PEER_REPLACED")
    attack.heal()


def test_a_backup_of_before_is_read_from_its_beginning(attack: Attack) -> None:
    log = attack.peer.path / "control" / "_delta_log"
    attack.pull(None)
    for entry in sorted(log.glob("*.json"))[-2:]:
        entry.unlink()
    attack.pull(None)
    attack.heal()
