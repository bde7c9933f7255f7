"""Many small message files are evaluated at once, and the traits are those of each alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_queue.core import commands, folds
from spark_queue.core.bitmaps.ranges import to_bitmap
from spark_queue.core.definitions import parsing
from spark_queue.core.message_files.segment import EntryTraits, Segment, TraitRequest, TraitSource
from spark_queue.core.state.journal_state import JournalState
from spark_queue.errors import JournalError
from spark_queue.expression.program import Program
from spark_queue.journal import entering, evaluation, message_log
from spark_queue.journal.log_entry import LogEntry
from spark_queue.journal.message_file import MessageFiles
from spark_queue.journal.publisher import publish
from spark_queue.journal.sql_types import INSTANT
from spark_queue.journal.store import messages_key
from spark_queue.journal.traits import FileTraits
from spark_queue.ports import MessageLogEntry, entered
from spark_queue.verification.state_digest import digest
from spark_queue.views.without_keys import TraitsWithoutKeys
from tests.unit.journal.journal_on_disk import DEFINITIONS, Disk
from tests.unit.journal.reign import NOW_MS, Reign

QUEUES = parsing.parse(
    {
        "message_types": {"order": {"columns": "id BIGINT, item STRING, extra DOUBLE", "topics": ["ORDERS", "RETURNS", "QUOTES"]}},
        "queues": {
            "DEAR": {"underlying_topic": "ORDERS", "filter": "10 / id < 6", "priority": "id"},
            "KEYED": {"underlying_topic": "^ORDERS|RETURNS$", "default_publish_target": "ORDERS", "order_key": "item"},
            "HELD": {"underlying_topic": "RETURNS", "barrier": "extra IS NULL and id > 3"},
        },
    }
).queues
REQUESTS = [TraitRequest(queue=each, filters=frozenset({"1 / (id - 3) > 0", "extra IS NULL"})) for each in QUEUES.values()]
COLUMNS = QUEUES["DEAR"].columns


class Files:
    """Small files of a journal, the traits of each alone, and how many rows were evaluated at once."""

    def __init__(self, disk: Disk, evaluated_rows: list[int]) -> None:
        self.disk, self._evaluated_rows = disk, evaluated_rows
        self.paths: list[Path] = []

    def publish(self, topics: Sequence[str], ids: Sequence[int | None], *, expires_ms: int | None = None, **columns: Any) -> None:
        expires = pa.array([None if expires_ms is None else expires_ms * 1000] * len(ids), INSTANT)
        items = [None if each is None else f"item {each % 3}" for each in ids]
        rows = pa.table({"id": pa.array(ids, pa.int64()), "item": items, **columns, "topic": topics, "expires_at": expires})
        publish(self.disk.plan(None), self.disk.journal_id, self.disk.definitions, rows)
        (added,) = list(self.disk.open().messages("order").tail(0))[-1].added
        self.paths.append(Path(self.disk.store.messages_uri("order")) / added.path)

    @property
    def segments(self) -> list[Segment]:
        found: list[Segment] = []
        for entry in self.disk.open().messages("order").tail(0):
            first = found[-1].until if found else 100
            found += [entered("order", entry, each, first=first, at_ms=0, since_ms=0) for each in entry.added]
        return found

    def evaluated(self) -> list[int]:
        """Return how many rows each query had since the last call."""
        counts = self._evaluated_rows[:]
        self._evaluated_rows.clear()
        return counts


@pytest.fixture
def files(disk: Disk, evaluated_rows: list[int]) -> Files:
    """Files of one to three messages, one of which has no topic of its own, and one of which fails."""
    made = Files(disk, evaluated_rows)
    made.publish(["ORDERS"], [2], expires_ms=70)
    made.publish(["ORDERS", "RETURNS", "ORDERS"], [0, 4, None])
    made.publish(["QUOTES"], [3])
    made.publish(["ORDERS"], [10])
    made.publish(["ORDERS", "ORDERS"], [5, 3], expires_ms=50)
    made.publish(["RETURNS"], [7])
    return made


def shown(traits: EntryTraits) -> dict[str, Any]:
    return {
        "rows": list(traits.rows),
        "expires": {at_ms: list(rows) for at_ms, rows in traits.expires.items()},
        "barriers": list(traits.barriers),
        "matches": {text: list(rows) for text, rows in traits.matches.items()},
        "ranked": [*zip(traits.ranked.tolist(), traits.priorities.tolist(), strict=True)],
        "keyed": [*zip(traits.keyed.tolist(), traits.keys.tolist(), strict=True)],
        "failed": list(traits.failed),
    }


def asked(source: TraitSource, segments: Sequence[Segment], requests: Sequence[TraitRequest] = REQUESTS) -> list[Any]:
    return [{name: shown(each) for name, each in source.traits(of, requests).items()} for of in segments]


def alone(disk: Disk, segments: Sequence[Segment], requests: Sequence[TraitRequest] = REQUESTS) -> list[Any]:
    return [found for of in segments for found in asked(FileTraits(disk.store), [of], requests)]


def test_traits_of_many_small_files_are_those_of_each_alone(disk: Disk, files: Files) -> None:
    segments = files.segments
    expected = alone(disk, segments)
    assert expected[1]["DEAR"]["failed"] == [101]
    assert expected[5]["HELD"]["barriers"] == [108]
    files.evaluated()
    assert asked(FileTraits(disk.store).ahead(segments, REQUESTS), segments) == expected
    # Those that are for one queue, for two and for all of them have other expressions; nobody takes the third file.
    assert sorted(files.evaluated()) == [1, 3, 4]


def test_questions_may_be_fewer_or_others_and_come_in_any_order(disk: Disk, files: Files) -> None:
    segments, traits = files.segments, FileTraits(disk.store)
    expected, some = alone(disk, segments), [REQUESTS[0]]
    ahead = traits.ahead(segments, REQUESTS)
    assert asked(ahead, segments[::-1]) == expected[::-1]
    assert asked(ahead, segments) == expected, "whatever was asked before"
    assert asked(traits.ahead(segments, REQUESTS), segments, some) == alone(disk, segments, some)
    assert asked(traits.ahead(segments, some), segments) == expected
    others = [replace(each, filters=each.filters | {"id > 4"}) for each in REQUESTS]
    assert asked(traits.ahead(segments, REQUESTS), segments, others) == alone(disk, segments, others)
    assert asked(traits.ahead(segments[:1], REQUESTS), segments) == expected


@pytest.mark.parametrize("damage", ["gone", "no file at all", "of another length"])
def test_a_file_that_cannot_be_read_is_named_and_keeps_no_other_from_being_read(disk: Disk, files: Files, damage: str) -> None:
    plain = [TraitRequest(queue=replace(QUEUES["DEAR"], underlying_topic="^.*"))]
    segments, bad = files.segments, files.paths[3]
    expected = alone(disk, segments, plain)
    match damage:
        case "gone":
            bad.unlink()
        case "no file at all":
            bad.write_bytes(b"no file")
        case _:
            bad.write_bytes(files.paths[4].read_bytes())
    files.evaluated()
    ahead = FileTraits(disk.store).ahead(segments, plain)
    assert asked(ahead, segments[:3], plain) == expected[:3]
    with pytest.raises(JournalError, match=rf"MESSAGE_FILE_(MISSING|CORRUPT).*{bad.name}"):
        asked(ahead, segments[3:4], plain)
    assert asked(ahead, segments[4:], plain) == expected[4:]
    assert files.evaluated() == [5, 3]
    with pytest.raises(JournalError, match=rf"MESSAGE_FILE_(MISSING|CORRUPT).*{bad.name}"):
        FileTraits(disk.store).matches(segments, "id > 4", to_bitmap([(100, 109)]), columns=COLUMNS)
    found = FileTraits(disk.store).matches(segments, "id > 3", to_bitmap([(100, 105), (106, 109)]), columns=COLUMNS)
    assert list(found) == [102, 106, 108]


@pytest.mark.parametrize(
    ("limit", "value", "evaluated"),
    [
        ("TOGETHER_ROWS", 4, [4, 4, 1]),
        ("TOGETHER_BYTES", 1, [1, 3, 1, 1, 2, 1]),
        ("SMALL_FILE_ROWS", 1, [3, 4, 2]),
        ("TOGETHER_ROWS", 100, [9]),
    ],
)
def test_no_more_is_in_memory_at_once_than_is_meant(
    files: Files, monkeypatch: pytest.MonkeyPatch, limit: str, value: int, evaluated: list[int]
) -> None:
    disk = files.disk
    plain = [TraitRequest(queue=replace(QUEUES["DEAR"], underlying_topic="^.*"))]
    segments = files.segments
    expected = alone(disk, segments, plain)
    files.evaluated()
    monkeypatch.setattr(evaluation, limit, value)
    assert asked(FileTraits(disk.store).ahead(segments, plain), segments, plain) == expected
    assert sorted(files.evaluated()) == sorted(evaluated)


def test_what_cannot_be_evaluated_together_is_evaluated_alone(disk: Disk, files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once: memory that is short for many is short for all but one of them, too."""
    segments = files.segments
    expected, run, sizes = alone(disk, segments), Program.run, list[int]()

    def short(program: Program, rows: pa.Table) -> Any:
        sizes.append(len(rows))
        if len(rows) > 3:
            raise MemoryError
        return run(program, rows)

    monkeypatch.setattr(Program, "run", short)
    assert asked(FileTraits(disk.store).ahead(segments, REQUESTS), segments) == expected
    assert sorted(sizes) == [1, 1, 1, 2, 3, 4]


def test_files_of_other_writers_have_columns_of_other_types(disk: Disk, files: Files) -> None:
    """And of the same column, others lack it, or have it in dictionaries, or as larger texts."""
    for path, kind in zip(files.paths, [pa.large_string(), pa.dictionary(pa.int8(), pa.string()), pa.string()], strict=False):
        rows = pq.read_table(path)
        pq.write_table(rows.set_column(rows.column_names.index("item"), "item", rows.column("item").cast(kind)), path)
    rows = pq.read_table(files.paths[4])
    pq.write_table(rows.drop_columns(["item"]), files.paths[4])
    segments = files.segments
    assert asked(FileTraits(disk.store).ahead(segments, REQUESTS), segments) == alone(disk, segments)


def test_files_of_an_object_store_are_read_beside_each_other(disk: Disk, files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    segments = files.segments
    expected = alone(disk, segments)
    monkeypatch.setattr(MessageFiles, "is_far", lambda *_: True)
    assert asked(FileTraits(disk.store).ahead(segments, REQUESTS), segments) == expected


def test_filters_over_many_small_files_may_ask_why_letters_died(disk: Disk, files: Files) -> None:
    traits, everything = FileTraits(disk.store), to_bitmap([(100, 109)])
    letters = [(to_bitmap([(101, 103), (105, 106)]), "expired", None), (to_bitmap([(107, 108)]), "failed", "no such item")]
    found = traits.matches(files.segments, "reason = 'expired' or error like '%item'", everything, columns=COLUMNS, letters=letters)
    assert list(found) == [101, 102, 105, 107]
    found = traits.matches(files.segments, "id > 3 and reason is null", everything, columns=COLUMNS, letters=letters)
    assert list(found) == [106, 108]
    assert files.evaluated() == [9, 9]


def test_expressions_that_need_no_column_read_no_file(disk: Disk, files: Files) -> None:
    plain = [TraitRequest(queue=replace(QUEUES["DEAR"], underlying_topic="^.*", filter="1 = 1", priority="7"))]
    segments = [segment for segment in files.segments if segment.topic_min == segment.topic_max]
    for path in files.paths:
        path.unlink()
    found = asked(FileTraits(disk.store).ahead(segments, plain), segments, plain)
    assert [len(each["DEAR"]["ranked"]) for each in found] == [1, 1, 1, 2, 1]


def test_a_start_evaluates_many_small_files_at_once(disk: Disk, evaluated_rows: list[int]) -> None:
    """And what is applied in between makes those that follow be evaluated by it."""
    reign = Reign(disk, epoch=1)
    for number in range(20):
        if number == 5:
            reign.subscribe("id % 4 = 1")
        disk.publish([number])
        reign.enter()
    expected = reign.state.ledger("WORK")
    evaluated_rows.clear()
    again = Reign(disk, epoch=2).state.ledger("WORK")
    assert (again.standing, again.selection.matches) == (expected.standing, expected.selection.matches)
    # The filter asks those that are there, and then those that come.
    assert evaluated_rows == [5, 15]


@pytest.fixture
def ranked(disk: Disk) -> Reign:
    """A reign whose queue needs the bodies of what enters."""
    reign = Reign(disk, epoch=1)
    reign.engine.decide(defined(priority="id % 3", filter="id <> 8"), now_ms=NOW_MS)
    reign.commit()
    return reign


def publish_each(disk: Disk, ids: Iterable[int]) -> None:
    for number in ids:
        disk.publish([number])


def commits(disk: Disk) -> list[MessageLogEntry]:
    return [entry for entry in disk.open().messages("order").tail(0) if entry.added]


def test_commits_that_are_read_together_are_evaluated_at_once(
    disk: Disk, ranked: Reign, evaluated_rows: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no message of them enters otherwise than alone."""
    publish_each(disk, range(12))
    ranked.enter()
    assert evaluated_rows == [12]
    # Once more in the log: what follows has other bookmarks than was foreseen.
    log, version = disk.log_path(messages_key("order"), 0).parent, ranked.entrance.read_until["order"]
    (log / f"{version + 1:020}.json").write_bytes((log / f"{version:020}.json").read_bytes())
    publish_each(disk, range(12, 15))
    evaluated_rows.clear()
    ranked.enter()
    assert evaluated_rows == [1, 1, 1]
    monkeypatch.setattr(entering, "FORESEEN_FILES", 4)
    publish_each(disk, range(15, 24))
    evaluated_rows.clear()
    ranked.enter()
    assert evaluated_rows == [4, 4, 1]
    ledger, again = ranked.state.ledger("WORK"), JournalState(disk.open().traits)
    assert len(ledger.entered) == 23
    folds.fold_all(again, disk.open().records())
    assert digest(again) == digest(ranked.state)


def test_a_file_that_is_gone_keeps_out_what_follows_and_nothing_before(disk: Disk, ranked: Reign) -> None:
    """Each look asks for it alone until it is back, however many commits wait behind it."""
    publish_each(disk, range(6))
    entry = commits(disk)[3]
    file = Path(disk.store.messages_uri("order")) / entry.added[0].path
    kept = file.rename(disk.log_path(messages_key("order"), 0).with_name("kept"))
    ranked.entrance.admit("order", now_ms=NOW_MS)
    assert "MESSAGE_FILE_MISSING" in str(ranked.entrance.trouble["order"])
    assert list(ranked.state.ledger("WORK").entered) == [0, 1, 2]
    read, understand = list[int](), message_log.understand

    def counted(of: LogEntry) -> MessageLogEntry:
        read.append(of.version)
        return understand(of)

    with pytest.MonkeyPatch.context() as counting:
        counting.setattr(message_log, "understand", counted)
        ranked.entrance.admit("order", now_ms=NOW_MS)
    assert read == [entry.version]
    kept.rename(file)
    ranked.enter()
    assert list(ranked.state.ledger("WORK").entered) == [0, 1, 2, 3, 4, 5]


def test_an_entry_that_is_not_whole_keeps_no_commit_out_that_was_read_with_it(disk: Disk, ranked: Reign) -> None:
    publish_each(disk, range(4))
    path = disk.log_path(messages_key("order"), commits(disk)[2].version)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    ranked.entrance.admit("order", now_ms=NOW_MS)
    assert "JOURNAL_DAMAGED" in str(ranked.entrance.trouble["order"])
    assert list(ranked.state.ledger("WORK").entered) == [0, 1]
    path.write_bytes(whole)
    ranked.enter()
    assert list(ranked.state.ledger("WORK").entered) == [0, 1, 2, 3]


def test_no_commit_behind_the_last_one_wanted_enters_before_the_next_look(disk: Disk, ranked: Reign) -> None:
    publish_each(disk, range(4))
    ranked.entrance.admit("order", now_ms=NOW_MS, until=commits(disk)[1].version)
    assert list(ranked.state.ledger("WORK").entered) == [0, 1]
    ranked.enter()
    assert list(ranked.state.ledger("WORK").entered) == [0, 1, 2, 3]


def defined(*, others: Mapping[str, Any] = MappingProxyType({}), **work: Any) -> commands.Apply:
    """Return the change of queue WORK, or of others beside it, in the definitions of the journal on disk."""
    return commands.Apply(definitions={**DEFINITIONS, "queues": {"WORK": {**DEFINITIONS["queues"]["WORK"], **work}, **others}})


@pytest.mark.parametrize(
    "change",
    [
        defined(priority="id % 3"),
        defined(others={"NEW": {"underlying_topic": "ORDERS", "filter": "id > 3", "recovery_point": "epoch"}}),
        # What is a barrier is found out for the record, and then the messages enter by it.
        defined(others={"NEW": {"underlying_topic": "ORDERS", "barrier": "id = 7", "recovery_point": "epoch"}}),
    ],
    ids=["priority", "filter", "barrier"],
)
def test_changed_definitions_evaluate_many_small_files_at_once(
    disk: Disk, evaluated_rows: list[int], change: commands.Apply
) -> None:
    reign = Reign(disk, epoch=1)
    for number in range(20):
        disk.publish([number])
        reign.enter()
    evaluated_rows.clear()
    reign.engine.decide(change, now_ms=NOW_MS)
    assert evaluated_rows == [20]
    reign.commit()
    known = JournalState(disk.open().traits)
    folds.fold_all(known, disk.open().records())
    assert digest(known) == digest(reign.state)


def test_a_count_asks_many_small_files_at_once_and_each_where_one_is_gone(disk: Disk, files: Files) -> None:
    """Those that can be read are counted, whatever became of others."""
    source, everything = TraitsWithoutKeys(FileTraits(disk.store)), to_bitmap([(100, 109)])
    assert list(source.matches(files.segments, "id > 3", everything, columns=COLUMNS)) == [102, 105, 106, 108]
    assert files.evaluated() == [9]
    files.paths[3].unlink()
    assert list(source.matches(files.segments, "id > 3", everything, columns=COLUMNS)) == [102, 106, 108]
