"""Entries that no commit of messages makes: they set their type aside by name, and no other type's messages (DESIGN 4)."""

from __future__ import annotations

import copy
import json
import os
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_queue.core.bitmaps.ranges import to_bitmap
from spark_queue.core.engine import Engine
from spark_queue.core.state.journal_state import JournalState
from spark_queue.errors import JournalError, SparkQueueError
from spark_queue.journal.entering import PreparedTraits, Sequencer
from spark_queue.journal.folder import PATH
from spark_queue.journal.publisher import make_plan, publish
from spark_queue.journal.store import messages_key
from spark_queue.source.topic_log import TopicLog
from spark_queue.views import queue_status, state_at
from tests.unit.journal.journal_on_disk import Disk

ORDER = messages_key("order")
Lines = list[dict[str, Any]]
Change = Callable[[dict[str, Any], dict[str, Any]], object]


def lines_of(disk: Disk, version: int) -> Lines:
    return [json.loads(line) for line in disk.log_path(ORDER, version).read_text().splitlines()]


def write(disk: Disk, version: int, lines: Lines | str) -> None:
    text = lines if isinstance(lines, str) else "".join(json.dumps(line) + "\n" for line in lines)
    disk.log_path(ORDER, version).write_text(text)


def publish_other(disk: Disk, count: int) -> None:
    plan = make_plan(disk.store, disk.definitions, message_type="json", topic="EVENTS", expires_after_ms=None)
    publish(plan, disk.journal_id, disk.definitions, pa.table({"value": ["{}"] * count}))


def entrance(disk: Disk) -> Sequencer:
    journal = disk.open()
    state = state_at(journal).state
    assert isinstance(state, JournalState)
    return Sequencer(journal, Engine(state), PreparedTraits(journal.traits))


def entered(of: Sequencer, message_type: str) -> int:
    of.admit(message_type, now_ms=1)
    return of._engine.state.message_types[message_type].entered_until


def odd(disk: Disk, change: Change) -> SparkQueueError:
    """Let one message enter, then an entry that was changed, and give what keeps the type out; another type's messages enter."""
    disk.publish([1])
    of = entrance(disk)
    disk.publish([2])
    disk.publish([3])
    lines = lines_of(disk, 2)
    mark = next(line["commitInfo"] for line in lines if "commitInfo" in line)["sparkqueue"]
    change(next(line["add"] for line in lines if "add" in line), mark)
    write(disk, 2, lines)
    before = of._engine.state.message_types["order"].entered_until
    assert entered(of, "order") == before
    publish_other(disk, 5)
    assert entered(of, "json") == 5
    return of.trouble["order"]


def stats(**changes: Any) -> Change:
    return lambda add, _: add.update(stats=json.dumps(json.loads(add["stats"]) | changes))


_TOPIC = {"topic": "ORDERS"}

ODD: dict[str, Change] = {
    "no path": lambda add, _: add.pop("path"),
    "a number as path": lambda add, _: add.update(path=5),
    "another type's file": lambda add, _: add.update(path="../json/a.parquet"),
    "encoded": lambda add, _: add.update(path="%2E%2E/json/a.parquet"),
    "absolute": lambda add, _: add.update(path="/etc/passwd"),
    "a URL": lambda add, _: add.update(path="file:///etc/passwd"),
    "backslashes": lambda add, _: add.update(path="..\\json\\a.parquet"),
    "a NUL": lambda add, _: add.update(path="a\0.parquet"),
    "a line end": lambda add, _: add.update(path="a.parquet\n"),
    "its folder": lambda add, _: add.update(path=".."),
    "a long name": lambda add, _: add.update(path="a" * 5_000),
    "negative": stats(numRecords=-5),
    "text": stats(numRecords="x"),
    "a fraction": stats(numRecords=1.5),
    "a huge fraction": stats(numRecords=1e300),
    "30 digits": stats(numRecords=10**30),
    "beyond any file": stats(numRecords=2**31),
    "5,000 digits": lambda add, _: add.update(stats='{"numRecords":' + "9" * 5_000 + "}"),
    "more than the file has": stats(numRecords=2_000_000_000, nullCount={"expires_at": 2_000_000_000}),
    "only a count": lambda add, _: add.update(stats='{"numRecords":1}'),
    "no topic": stats(minValues={}),
    "topic is a number": stats(maxValues={"topic": 5}),
    "counts of no expiry": stats(nullCount={}),
    "more without an expiry than there are": stats(nullCount={"expires_at": 9}),
    "expiries without times": stats(nullCount={"expires_at": 0}),
    "a time that is none": stats(nullCount={"expires_at": 0}, minValues=_TOPIC | {"expires_at": "x"}, maxValues=_TOPIC),
    "deep statistics": lambda add, _: add.update(stats="[" * 100_000),
    "a token that is no text": lambda _, mark: mark.update(token=5),
    "a delay that is no number": lambda _, mark: mark.update(deliver_after_ms="1h"),
    "a delay of nothing": lambda _, mark: mark.update(deliver_after_ms=0),
    "a delay of ages": lambda _, mark: mark.update(deliver_after_ms=2**62),
    "origins of another form": lambda _, mark: mark.update(origin=5),
    "origins that are missing": lambda _, mark: mark.update(origin=[]),
    "origins beyond the file": lambda _, mark: mark.update(origin=[[[0, 10**9, "x", 0]]], instances={}),
    "names of another form": lambda _, mark: mark.update(instances={"a": 5}),
    "sequences of another form": lambda _, mark: mark.update(first_sequence="x", last_sequence=1),
    "sequences of 30 digits": lambda _, mark: mark.update(first_sequence=10**30, last_sequence=10**30),
}


@pytest.mark.parametrize("name", ODD)
def test_an_entry_that_no_commit_makes_sets_its_type_aside_by_name(disk: Disk, name: str) -> None:
    trouble = odd(disk, ODD[name])
    assert trouble.code in ("JOURNAL_DAMAGED", "MESSAGE_FILE_CORRUPT")
    assert trouble.code == "MESSAGE_FILE_CORRUPT" or f"messages/order/_delta_log/{2:020d}.json has content that no commit" in str(
        trouble
    )
    # Who reads without a coordinator is told the same.
    now = state_at(disk.open())
    alarm = queue_status(now, "WORK").alarm
    assert alarm is not None
    assert trouble.code in alarm


@pytest.mark.parametrize(
    "text",
    ['{"add":' * 5_000 + "1" + "}" * 5_000, '{"add":5}', '{"txn":{}}', '{"txn":{"appId":5,"version":1}}', '{"commitInfo":[]}',
     '{"txn":{"appId":"a","version":' + "9" * 30 + "}}", '{"remove":"x"}', '{"remove":{}}', '{"remove":{"path":[1]}}'],
)  # fmt: skip
def test_lines_that_are_no_actions_are_told_of_by_their_version(disk: Disk, text: str) -> None:
    disk.publish([1])
    write(disk, 2, text + "\n")
    of = entrance(disk)
    assert of._engine.state.message_types["order"].entered_until == 1
    entered(of, "order")
    assert re.search(f"ersion 2 of|{ORDER}/_delta_log/{2:020d}.json has", str(of.trouble["order"]))
    disk.open().messages("order").recover(version=1, token=next(iter(disk.open().messages("order").tail(0))).token)
    assert disk.log_path(ORDER, 2).read_text() == text + "\n", "it is no power loss's work, so nobody sets it aside"
    with pytest.raises(JournalError, match=f"ersion 2 of|{ORDER}/_delta_log/{2:020d}.json has"):
        TopicLog(disk.store, disk.journal_id, "order", "ORDERS").refresh()


@pytest.mark.parametrize("name", ["x" * 20 + ".json", "٢" * 20 + ".json", "1.json", "x.checkpoint.parquet", "9" * 19 + "x.json"])
def test_files_with_odd_names_beside_the_entries_are_passed_over(disk: Disk, name: str) -> None:
    disk.publish([1])
    disk.log_path(ORDER, 1).with_name(name).write_text("x")
    disk.open().messages("order").recover(version=-1, token="")
    assert entered(entrance(disk), "order") == 1


@pytest.mark.parametrize("hint", ['{"version":99999999,"size":1}', '{"version":"x"}', "[]", "[" * 100_000, '{"version":-5}', "\0"])
def test_a_hint_at_a_checkpoint_that_lies_keeps_nothing_out(disk: Disk, hint: str) -> None:
    disk.publish([1])
    disk.log_path(ORDER, 1).with_name("_last_checkpoint").write_text(hint)
    of = entrance(disk)
    of.recover()
    assert entered(of, "order") == 1


def test_a_link_to_a_file_elsewhere_is_not_read(disk: Disk, tmp_path: Path) -> None:
    disk.publish([1])
    (added,) = next(iter(disk.open().messages("order").tail(0))).added
    file = Path(disk.store.messages_uri("order")) / added.path
    os.rename(file, tmp_path / "elsewhere.parquet")  # noqa: PTH104 - as any user would
    file.symlink_to(tmp_path / "elsewhere.parquet")
    table = state_at(disk.open()).state.message_types["order"]
    with pytest.raises(JournalError, match=r"MESSAGE_FILE_CORRUPT.*a link to one elsewhere"):
        disk.open().traits.matches(table.segments, "id > 0", to_bitmap([(0, 1)]), columns="id BIGINT, item STRING")


_VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2**31, 2**63, 10**30, 1.5, 1e300, "", "x", "../x", "1", [], {}, [[]], [[[0, 1, "x", 0]]],
    {"topic": "A"}, "[" * 2_000, '{"numRecords":1}',
)  # fmt: skip


def _mutated(chance: random.Random, node: Any) -> Any:
    """Change one place of a JSON value, also of one that is written as text inside it."""
    if isinstance(node, dict) and node and chance.random() < 0.85:
        key = chance.choice(list(node))
        if chance.random() < 0.1:
            node.pop(key)
        elif key == "stats" and isinstance(node[key], str) and chance.random() < 0.7:
            node[key] = json.dumps(_mutated(chance, json.loads(node[key])))
        else:
            node[key] = _mutated(chance, node[key])
        return node
    if isinstance(node, list) and node and chance.random() < 0.85:
        index = chance.randrange(len(node))
        node[index] = _mutated(chance, node[index])
        return node
    # What is changed next may be in it.
    return copy.deepcopy(chance.choice(_VALUES))


@pytest.mark.drawn(2)
@pytest.mark.parametrize("seed", range(4))
def test_any_change_of_an_entry_lets_it_enter_right_or_sets_its_type_aside(disk: Disk, seed: int) -> None:
    chance = random.Random(seed)
    disk.publish([1])
    disk.publish([2])
    whole = lines_of(disk, 2)
    for count in range(1, 41):
        lines: Any = copy.deepcopy(whole)
        for _ in range(chance.randint(1, 2)):
            lines = _mutated(chance, lines)
        write(disk, 2, lines if isinstance(lines, list) else json.dumps(lines))
        of = entrance(disk)
        known = of._engine.state.message_types["order"]
        entered(of, "order")
        assert known.entered_until == 2 or "order" in of.trouble or known.foreign_files or known.version < 2, lines
        assert all(0 <= each.row_count < 2**31 and PATH.fullmatch(each.path) for each in known.segments), lines
        publish_other(disk, 1)
        assert entered(of, "json") == count
