"""Where messages were first published, as reads of an instance tell it: the key of a sink that several instances write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_queue import Journal
from spark_queue.coordinator.commands import Commands
from spark_queue.core import commands
from spark_queue.core.records import Outcome
from spark_queue.errors import ConfigError
from spark_queue.journal.pieces import KEYS, PIECES
from spark_queue.journal.schema import ORIGIN
from spark_queue.source.planning import cut
from tests.sites_on_disk import Site, exchange, two_sites
from tests.unit.source.reading import batch, read, stream


@pytest.fixture
def sites(tmp_path: Path) -> tuple[Site, Site]:
    """Make two instances that have each other's messages, each among its own."""
    frankfurt, virginia = two_sites(tmp_path)
    frankfurt.publish("f0", "f1")
    virginia.publish("v0", "v1", "v2")
    exchange(frankfurt, virginia)
    frankfurt.publish("f2")
    virginia.publish("v3")
    exchange(frankfurt, virginia)
    return frankfurt, virginia


def told(table: pa.Table) -> dict[str, tuple[str, int]]:
    return {row["item"]: (row["origin"], row["origin_bookmark"]) for row in table.to_pylist()}


#: Bookmarks at frankfurt: f0 f1 v0 v1 v2 f2 v3; at virginia: v0 v1 v2 f0 f1 v3 f2.
ORIGINS = {
    "f0": ("frankfurt", 0), "f1": ("frankfurt", 1), "f2": ("frankfurt", 5),
    "v0": ("virginia", 0), "v1": ("virginia", 1), "v2": ("virginia", 2), "v3": ("virginia", 5),
}  # fmt: skip


def test_a_topic_tells_of_each_message_where_it_was_first_published(sites: tuple[Site, Site]) -> None:
    for site in sites:
        for partitions in ("1", "3"):
            reader = batch(site.journal, topic="LINES", minPartitions=partitions)
            assert told(read(reader, reader.partitions())) == ORIGINS


def test_a_lease_tells_of_each_message_where_it_was_first_published(sites: tuple[Site, Site]) -> None:
    frankfurt, _ = sites
    who: dict[str, Any] = {"queue": "WORK", "subscription": "s"}
    who["incarnation"] = frankfurt.decide(commands.DrawIncarnation(**who)).incarnation
    frankfurt.decide(commands.Attach(**who, call=1, ack_mode="auto", max_backlog=100, filter=None, available_now=False))
    lease = frankfurt.decide(commands.Next(**who, call=2, finished=0, limit=100)).lease
    of_coordinator = Commands(frankfurt.engine, frankfurt.opened, {})
    answer = of_coordinator.run(commands.Rows(**who, call=3, lease=lease), now_ms=frankfurt.now_ms)
    assert answer is not None
    assert answer.pieces is not None
    reader = stream(frankfurt.journal, queue="WORK", subscription="s")
    assert answer.pieces.num_rows == 2, "a piece for each part of a file that is of one origin, and not for each message"
    assert told(read(reader, cut(answer.pieces, min_partitions=2))) == {item: ORIGINS[item] for item in ("f0", "f1", "f2")}


@pytest.mark.parametrize("keyed", [False, True])
def test_partitions_that_begin_within_a_piece_know_where_its_rows_were_published(*, keyed: bool) -> None:
    pieces = pa.table(
        {
            "path": ["a", "a"], "first_row": [0, 10], "rows": [10, 10], "bookmark": [100, 110], "delivery_count": [1, 1],
            "cancel_count": [0, 0], "is_barrier": [False, False], "origin": ["frankfurt", "virginia"], "origin_bookmark": [100, 7],
            **({"keys": [list(range(10)), list(range(10))]} if keyed else {}),
        },
        schema=pa.schema([*PIECES, *ORIGIN, *([KEYS] if keyed else [])]),
    )  # fmt: skip
    told = {
        int(of_file.bookmark[piece] + row): (partition.origins[of_file.origin[piece]], int(of_file.origin_bookmark[piece] + row))
        for partition in cut(pieces, min_partitions=3)
        for of_file in partition.pieces
        for piece, rows in enumerate(of_file.rows)
        for row in range(rows)
    }
    here = {bookmark: ("frankfurt", bookmark) for bookmark in range(100, 110)}
    assert told == here | {bookmark: ("virginia", bookmark - 103) for bookmark in range(110, 120)}


def test_views_tell_origin_and_owner(sites: tuple[Site, Site]) -> None:
    for site in sites:
        found = site.journal.view("messages", queue="WORK")
        assert told(found) == ORIGINS
        assert {row["item"]: row["owner"] for row in found.to_pylist()} == {item: origin for item, (origin, _) in ORIGINS.items()}


def test_a_dead_letter_has_the_origin_of_its_message_and_the_owner_of_the_letter(sites: tuple[Site, Site]) -> None:
    frankfurt, virginia = sites
    frankfurt.decide(commands.Settle(queue="WORK", outcomes=(commands.OutcomeRows(outcome=Outcome.EXPIRE, ranges=((5, 6),)),)))
    exchange(frankfurt, virginia)
    for site in sites:
        for queue in ("WORK", "FAILED"):
            (letter,) = site.journal.view("dead_letters", queue=queue).to_pylist()
            told_of_it = (letter["item"], letter["origin"], letter["origin_bookmark"], letter["owner"])
            assert told_of_it == ("f2", "frankfurt", 5, "frankfurt")


def test_a_journal_that_is_no_instance_has_none_of_it_and_may_have_such_columns_of_its_own(tmp_path: Path) -> None:
    types = {"flight": {"columns": "origin STRING, owner STRING", "topics": ["FLIGHTS"]}}
    journal = Journal.create(str(tmp_path / "journal"), {"message_types": types, "queues": {"FLIGHTS": {}}})
    journal.publish([{"origin": "FRA", "owner": "LH"}], topic="FLIGHTS")
    reader = batch(journal, topic="FLIGHTS")
    table = read(reader, reader.partitions())
    assert (table.column("origin").to_pylist(), "origin_bookmark" in table.column_names) == (["FRA"], False)
    (row,) = journal.view("messages", queue="FLIGHTS").to_pylist()
    assert (row["origin"], row["owner"]) == ("FRA", "LH")
    with pytest.raises(ConfigError, match=r"RESERVED_COLUMN.*'origin'"):
        Journal.create(str(tmp_path / "other"), {"journal": {"instance": "frankfurt"}, "message_types": types})
    with pytest.raises(ConfigError, match="RESERVED_COLUMN"):
        journal.apply({"journal": {"instance": "frankfurt"}, "message_types": types, "queues": {"FLIGHTS": {}}})
