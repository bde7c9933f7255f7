"""Which rows of a peer are taken over (DESIGN 17.3)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from spark_queue.core.bitmaps.ranges import to_bitmap
from spark_queue.core.definitions import parsing
from spark_queue.core.message_files.message_type import MessageTypeState
from spark_queue.core.message_files.origins import OriginRows
from spark_queue.core.message_files.segment import Segment, to_record
from spark_queue.journal.store import Store
from spark_queue.replication.copying import Copier
from spark_queue.replication.news import PeerFold

UUIDS = {"uuid-v": "virginia", "uuid-t": "tokyo", "uuid-f": "frankfurt"}


def copier_of(tmp_path: Path, rows: int, origins: tuple[OriginRows, ...], passthrough: list[str]) -> tuple[Copier, Segment]:
    """Return what copies for frankfurt from virginia, and a segment of it."""
    store = Store(str(tmp_path))
    definitions = parsing.parse(
        {
            "journal": {"instance": "frankfurt"},
            "peers": {"virginia": {"journal": "/virginia", "topics": ["T"], "passthrough": passthrough}},
            "message_types": {"json": {"topics": ["T"]}},
        }
    )
    fold = PeerFold("virginia")
    fold.journal_id, fold.instances = "uuid-v", dict(UUIDS)
    fold.message_types["json"] = MessageTypeState()
    segment = Segment(
        message_type="json", first=0, until=rows, path="x", version=1, token="", entered_at_ms=0, published_at_ms=0,
        topic_min="T", topic_max="T", expires_null_count=rows, origins=origins,
    )  # fmt: skip
    fold.message_types["json"].fold(to_record(segment))
    return Copier(store, store, definitions, definitions.peers["virginia"], fold), segment


def wanted(tmp_path: Path, origins: tuple[OriginRows, ...], held: dict[str, tuple[int, int]], passthrough: list[str]) -> list[int]:
    """Return which of ten rows of virginia frankfurt takes over, by row."""
    copier, segment = copier_of(tmp_path, 10, origins, passthrough)
    bitmaps = {origin: to_bitmap([each]) for origin, each in held.items()}
    rows = [int(row) for row in copier._wanted(segment, bitmaps).rows]
    assert list(copier.missing(segment, bitmaps)) == rows
    return rows


def test_what_is_held_is_not_taken_again(tmp_path: Path) -> None:
    held = {"uuid-v": (2, 5), "uuid-t": (100, 102), "uuid-f": (0, 50)}
    assert wanted(tmp_path, ((6, 3, "uuid-t", 100), (9, 1, "uuid-f", 7)), held, ["^.*"]) == [0, 1, 5, 8]


def test_what_may_not_come_through_a_peer_does_not_though_some_of_that_origin_is_held(tmp_path: Path) -> None:
    origins = ((6, 4, "uuid-t", 100),)
    assert wanted(tmp_path, origins, {}, []) == [0, 1, 2, 3, 4, 5]
    assert wanted(tmp_path, origins, {"uuid-t": (0, 10)}, []) == [0, 1, 2, 3, 4, 5]


def test_what_was_published_here_and_lost_comes_back_through_every_peer(tmp_path: Path) -> None:
    assert wanted(tmp_path, ((6, 3, "uuid-t", 100), (9, 1, "uuid-f", 7)), {}, []) == [0, 1, 2, 3, 4, 5, 9]


def test_how_many_messages_were_let_go_costs_no_memory_for_each(tmp_path: Path) -> None:
    """A log may say that it has let go more than anybody ever had."""
    copier, segment = copier_of(tmp_path, 2**34, ((2**33, 2**33, "uuid-t", 0),), [])
    missing = copier.missing(segment, {"uuid-v": to_bitmap([(0, 5)])})
    assert (missing.min(), len(missing)) == (5, 2**33 - 5)


def test_a_file_that_has_only_a_topic_that_is_not_pulled_is_not_looked_at(tmp_path: Path) -> None:
    copier, segment = copier_of(tmp_path, 10, (), [])
    assert copier._is_wanted(segment, {})
    assert copier._is_wanted(replace(segment, topic_max="U"), {})
    assert not copier._is_wanted(replace(segment, topic_min="U", topic_max="U"), {})
