"""Traits of entering messages: when statistics suffice no file is read (DESIGN 15.17)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_queue.core.bitmaps.ranges import to_bitmap
from spark_queue.core.definitions import parsing
from spark_queue.core.message_files.segment import EntryTraits, Segment, TraitRequest
from spark_queue.errors import JournalError
from spark_queue.journal import message_file
from spark_queue.journal.publisher import publish
from spark_queue.journal.sql_types import INSTANT
from spark_queue.journal.traits import FileTraits
from tests.unit.journal.journal_on_disk import Disk

QUEUES = parsing.parse(
    {
        "message_types": {"order": {"columns": "id BIGINT", "topics": ["ORDERS", "RETURNS", "QUOTES"]}},
        "queues": {
            "ORDERS": {},
            "RETURNS": {},
            "QUOTES": {},
            "BOTH": {"underlying_topic": "^ORDERS|RETURNS$", "default_publish_target": "ORDERS"},
            "LETTERS": {"message_type": "order"},
            "WITH_LETTERS": {"underlying_topic": "QUOTES", "dead_letter_queue": "LETTERS"},
        },
    }
).queues


def segment(disk: Disk, topics: list[str], expires_ms: list[int | None] | None = None, **columns: list[Any]) -> Segment:
    expires = [None if at is None else at * 1000 for at in expires_ms or [None] * len(topics)]
    rows = pa.table({"id": range(len(topics)), **columns, "topic": topics, "expires_at": pa.array(expires, INSTANT)})
    publish(disk.plan(None), disk.journal_id, disk.definitions, rows)
    entry = list(disk.open().messages("order").tail(0))[-1]
    (added,) = entry.added
    values: dict[str, Any] = {name: getattr(added, name) for name in ("path", "topic_min", "topic_max", "expires_null_count")}
    values |= {"expires_min_ms": added.expires_min_ms, "expires_max_ms": added.expires_max_ms}
    first = 100
    return Segment(
        message_type="order",
        first=first,
        until=first + added.row_count,
        version=1,
        token=entry.token,
        entered_at_ms=0,
        published_at_ms=0,
        **values,
    )


def traits(disk: Disk, of: Segment, *names: str) -> dict[str, EntryTraits]:
    return dict(FileTraits(disk.store).traits(of, [TraitRequest(queue=QUEUES[name]) for name in names or QUEUES]))


def rows(found: dict[str, EntryTraits]) -> dict[str, list[int]]:
    return {name: list(traits.rows) for name, traits in found.items()}


def without_its_file(disk: Disk, of: Segment) -> Segment:
    (Path(disk.store.messages_uri("order")) / of.path).unlink()
    return of


def test_one_topic_needs_no_file(disk: Disk) -> None:
    of = without_its_file(disk, segment(disk, ["ORDERS"] * 3))
    expected = {"ORDERS": [100, 101, 102], "BOTH": [100, 101, 102], "RETURNS": [], "QUOTES": [], "LETTERS": [], "WITH_LETTERS": []}
    assert rows(traits(disk, of)) == expected


def test_topic_outside_the_statistics_needs_no_file(disk: Disk) -> None:
    of = without_its_file(disk, segment(disk, ["QUOTES", "RETURNS"]))
    assert rows(traits(disk, of, "ORDERS", "LETTERS")) == {"ORDERS": [], "LETTERS": []}


def test_mixed_topics_are_read_row_by_row(disk: Disk) -> None:
    """R61, R64: rows of several topics alternating in one publish keep their order."""
    of = segment(disk, ["ORDERS", "RETURNS", "QUOTES", "ORDERS"])
    found = rows(traits(disk, of))
    assert found == {
        "ORDERS": [100, 103],
        "RETURNS": [101],
        "QUOTES": [102],
        "WITH_LETTERS": [102],
        "BOTH": [100, 101, 103],
        "LETTERS": [],
    }


def test_pattern_that_takes_both_ends_still_reads_the_middle(disk: Disk) -> None:
    of = segment(disk, ["ORDERS", "QUOTES", "RETURNS"])
    assert rows(traits(disk, of, "BOTH")) == {"BOTH": [100, 102]}


def test_one_expiration_for_all_needs_no_file(disk: Disk) -> None:
    of = without_its_file(disk, segment(disk, ["ORDERS"] * 2, [7_000, 7_000]))
    found = traits(disk, of, "ORDERS", "RETURNS")
    assert {at: list(rows) for at, rows in found["ORDERS"].expires.items()} == {7_000: [100, 101]}
    assert found["RETURNS"].expires == {}


def test_expirations_are_grouped_by_time(disk: Disk) -> None:
    of = segment(disk, ["ORDERS", "RETURNS", "ORDERS", "ORDERS"], [9_000, 9_000, None, 8_000])
    found = traits(disk, of, "ORDERS", "RETURNS")
    assert {at: list(rows) for at, rows in found["ORDERS"].expires.items()} == {8_000: [103], 9_000: [100]}
    assert {at: list(rows) for at, rows in found["RETURNS"].expires.items()} == {9_000: [101]}


@pytest.mark.parametrize("damage", ["gone", "empty", "short"])
def test_file_that_is_needed_and_cannot_be_read_is_named(disk: Disk, damage: str) -> None:
    of = segment(disk, ["ORDERS", "RETURNS"])
    path = Path(disk.store.messages_uri("order")) / of.path
    match damage:
        case "gone":
            path.unlink()
        case "empty":
            path.write_bytes(b"")
        case _:
            other = segment(disk, ["ORDERS", "RETURNS", "QUOTES"])
            path.write_bytes((path.parent / other.path).read_bytes())
    code = "MISSING" if damage == "gone" else "CORRUPT"
    with pytest.raises(JournalError, match=rf"MESSAGE_FILE_{code}.*{of.path}"):
        traits(disk, of, "ORDERS")


EXPRESSIVE = parsing.parse(
    {
        "message_types": {"order": {"columns": "id BIGINT, item STRING, extra DOUBLE", "topics": ["ORDERS", "RETURNS"]}},
        "queues": {
            "DEAR": {"underlying_topic": "ORDERS", "filter": "10 / id < 5", "priority": "id"},
            "KEYED": {"underlying_topic": "ORDERS", "order_key": "item"},
            "PLAIN": {"underlying_topic": "ORDERS"},
        },
    }
).queues


def of_orders(disk: Disk) -> Segment:
    """Publish without column `extra`, which was appended to the type later."""
    return segment(disk, ["ORDERS"] * 5, [None, 7, None, None, 7], id=[2, 4, 0, None, 10], item=["a", None, "b", "a", "c"])


def test_r65_only_what_matches_the_filter_enters_the_queue(disk: Disk) -> None:
    found = FileTraits(disk.store).traits(of_orders(disk), [TraitRequest(queue=queue) for queue in EXPRESSIVE.values()])
    dear = found["DEAR"]
    assert list(dear.rows) == [101, 104]
    assert {at_ms: list(part) for at_ms, part in dear.expires.items()} == {7: [101, 104]}
    assert (dear.ranked.tolist(), dear.priorities.tolist()) == ([101, 104], [4, 10])
    assert list(dear.failed) == [102]
    assert list(found["PLAIN"].rows) == [100, 101, 102, 103, 104]
    assert (found["KEYED"].keyed.tolist(), list(found["KEYED"].failed)) == ([100, 102, 103, 104], [])
    assert len(set(found["KEYED"].keys.tolist())) == 3


def test_r49_filters_of_subscriptions_are_facts_of_what_entered(disk: Disk) -> None:
    filters = frozenset({"id > 5", "extra IS NULL", "1 / id > 0"})
    found = FileTraits(disk.store).traits(of_orders(disk), [TraitRequest(queue=EXPRESSIVE["DEAR"], filters=filters)])["DEAR"]
    matches = {text: list(rows) for text, rows in found.matches.items()}
    assert matches == {"id > 5": [104], "extra IS NULL": [101, 104], "1 / id > 0": [101, 104]}


def test_matches_looks_at_the_asked_messages_only(disk: Disk) -> None:
    of = of_orders(disk)
    columns = EXPRESSIVE["DEAR"].columns
    traits = FileTraits(disk.store)
    assert list(traits.matches([of], "id > 1", to_bitmap([(101, 104)]), columns=columns)) == [101]
    assert list(traits.matches([of], "true", to_bitmap([(101, 104)]), columns=columns)) == [101, 102, 103]
    gone = without_its_file(disk, of)
    assert not traits.matches([gone], "id > 1", to_bitmap([(0, 100)]), columns=columns)
    with pytest.raises(JournalError, match="MESSAGE_FILE_MISSING"):
        traits.matches([gone], "id > 1", to_bitmap([(101, 102)]), columns=columns)


def test_one_poison_message_fails_alone(disk: Disk) -> None:
    (queue,) = parsing.parse(
        {
            "message_types": {"order": {"columns": "id BIGINT, item STRING", "topics": ["ORDERS"]}},
            "queues": {"ORDERS": {"filter": "9223372036854775800 + id > 0", "priority": "10 / (id - 2)"}},
        }
    ).queues.values()
    of = segment(disk, ["ORDERS"] * 9)
    (found,) = FileTraits(disk.store).traits(of, [TraitRequest(queue=queue)]).values()
    assert list(found.rows) == [100, 101, 102, 103, 104, 105, 106, 107]
    assert found.ranked.tolist() == [103, 104, 105, 106, 107]
    assert list(found.failed) == [102, 108]


def test_a_file_of_many_row_groups_is_read_one_after_the_other(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, evaluated_rows: list[int]
) -> None:
    """What topics, filters and priorities say is of the right messages, and no more than a piece is in memory for it."""
    topics = ["ORDERS", "RETURNS", "ORDERS", "QUOTES", "ORDERS", "RETURNS", "ORDERS"]
    of = segment(disk, topics, id=[2, 4, 0, 1, 10, 3, 5], item=list("abcdefg"))
    path = Path(disk.store.messages_uri("order")) / of.path
    pq.write_table(pq.read_table(path), path, row_group_size=3)
    request = TraitRequest(queue=EXPRESSIVE["DEAR"], filters=frozenset({"id < 5", "true"}))
    monkeypatch.setattr(message_file, "PIECE_ROWS", 3)
    found = FileTraits(disk.store).traits(of, [request])["DEAR"]
    assert evaluated_rows == [3, 3, 1]
    assert (list(found.rows), list(found.failed)) == ([104, 106], [102])
    assert (found.ranked.tolist(), found.priorities.tolist()) == ([104, 106], [10, 5])
    assert {text: list(rows) for text, rows in found.matches.items()} == {"id < 5": [], "true": [104, 106]}
    assert rows(traits(disk, of, "RETURNS", "QUOTES")) == {"RETURNS": [101, 105], "QUOTES": [103]}
    matching = FileTraits(disk.store).matches([of], "id > 2", to_bitmap([(101, 107)]), columns=EXPRESSIVE["DEAR"].columns)
    assert list(matching) == [101, 104, 105, 106]


def test_filters_of_subscriptions_match_nothing_of_another_topic(disk: Disk) -> None:
    """Whoever takes the facts in asks for each of its filters, also of a file that holds nothing for its queue."""
    of = without_its_file(disk, segment(disk, ["ORDERS"] * 3))
    request = TraitRequest(queue=QUEUES["RETURNS"], filters=frozenset({"id > 1"}))
    found = FileTraits(disk.store).traits(of, [request])["RETURNS"]
    assert (list(found.rows), {text: list(rows) for text, rows in found.matches.items()}) == ([], {"id > 1": []})


def test_only_what_a_filter_admits_expires(disk: Disk) -> None:
    queue = replace(QUEUES["ORDERS"], filter="id <> 1 and id < 4")
    of = segment(disk, ["ORDERS"] * 6, expires_ms=[50, 50, None, 70, 90, 70])
    found = FileTraits(disk.store).traits(of, [TraitRequest(queue=queue)])["ORDERS"]
    assert list(found.rows) == [100, 102, 103]
    assert {at_ms: list(rows) for at_ms, rows in found.expires.items()} == {50: [100], 70: [103]}
