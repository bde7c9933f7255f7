"""What the records of a peer mean, whatever they say, and which of its rows are taken over (DESIGN 17.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spark_queue.core.bitmaps.ranges import to_bitmap
from spark_queue.core.definitions import parsing
from spark_queue.core.message_files.segment import Segment, to_record
from spark_queue.core.records import Kind, OriginRows, Record, Removal, Replicated
from spark_queue.core.state.ownership import MessageValue, Stage
from spark_queue.errors import JournalError
from spark_queue.journal.store import Store
from spark_queue.replication.copying import Copier
from spark_queue.replication.news import PeerFold
from tests.records import ENTERED, record_of, replaced

DEFINITIONS: dict[str, dict[str, Any]] = {
    "message_types": {"json": {"topics": ["T"]}},
    "queues": {"WORK": {"underlying_topic": "T"}},
}


def peer(messages: int, origins: tuple[OriginRows, ...] = ()) -> PeerFold:
    """Return what is known of a peer with so many messages, some of them of other origins."""
    fold = PeerFold("virginia")
    fold.fold(record_of(kind=Kind.JOURNAL_CREATED, record=0, detail={"journal": "uuid-v", "format": 1}))
    fold.fold(record_of(kind=Kind.DEFINITIONS_APPLIED, record=1, detail={"definitions": DEFINITIONS, "resets": {}}))
    segment = Segment(
        message_type="json", first=0, until=messages, path=f"{0:032}.parquet", version=1, token="", entered_at_ms=0,
        published_at_ms=0, topic_min="T", topic_max="T", expires_null_count=messages, origins=origins,
        instances={"uuid-t": "tokyo", "uuid-f": "frankfurt"} if origins else {},
    )  # fmt: skip
    fold.fold(to_record(segment))
    return fold


@pytest.mark.parametrize(("said", "gone"), [((1, 3), [1, 2]), ((3, 10**6), [3, 4])], ids=["a range", "an absurd range"])
def test_an_acknowledgement_says_that_messages_are_gone_which_the_peer_has(said: tuple[int, int], gone: list[int]) -> None:
    news = peer(5).fold(record_of(kind=Kind.REMOVED, record=3, queue="WORK", ranges=(said,), reason=Removal.ACKNOWLEDGED))
    assert news is not None
    assert news.value == MessageValue(0, Stage.GONE)
    assert {origin: list(rows) for origin, rows in news.rows.items()} == {"uuid-v": gone}


def test_what_tells_others_nothing_is_no_news() -> None:
    detail = {"incarnation": [1, 1], "call": 2, "limit": 5}
    assert peer(5).fold(record_of(kind=Kind.GRANTED, record=3, queue="WORK", subscription="s", lease=1, detail=detail)) is None
    assert peer(5).fold(record_of(kind=Kind.REMOVED, record=3, queue="OTHER", ranges=((0, 1),), reason="acknowledged")) is None


def of_table(kind: Kind, record: int, **facts: Any) -> Record:
    """Return a record of messages of a table that the peer follows, if it is as its definitions say."""
    return record_of(kind=kind, record=record, message_type="sale", ranges=((0, 3),), **facts)


def test_messages_of_a_table_that_the_peer_follows_are_passed_over() -> None:
    """R149: nobody pulls them, and all else that the peer says counts."""
    types = {**DEFINITIONS["message_types"], "sale": {"table": "/lake/sales", "columns": "id BIGINT"}}
    queues = {"SALES": {"underlying_topic": "sale", "dead_letter_queue": "LATE"}, "LATE": {"message_type": "sale"}}
    table = {"message_types": types, "queues": {**DEFINITIONS["queues"], **queues}}
    fold = peer(5)
    fold.fold(record_of(kind=Kind.DEFINITIONS_APPLIED, record=3, detail={"definitions": table, "resets": {}}))
    file = {**ENTERED, "path": "country=NL/part-1.parquet", "rows": 3, "topics": ["sale", "sale"], "partition": {"country": "NL"}}
    copied = {
        "version": 2,
        "token": "t",
        "files": [{"path": "../x", "from": [["country=NL/part-1.parquet", 0, 3, 0]], "kept": [[0, 1]]}],
    }
    lost: dict[str, Any] = {"ranges": ((1, 3),), "reason": Removal.LOST}
    told = [
        of_table(Kind.ENTERED, 4, detail=file),
        of_table(Kind.MOVED, 5, detail=copied),
        of_table(Kind.RETIRED, 6),
        record_of(kind=Kind.REMOVED, record=7, queue="SALES", **lost),
        record_of(kind=Kind.REMOVED, record=8, queue="LATE", **lost),
    ]
    assert [fold.fold(record) for record in told] == [None] * 5
    assert fold.message_types["sale"].entered_until == 0
    assert (
        fold.fold(record_of(kind=Kind.REMOVED, record=9, queue="WORK", ranges=((1, 3),), reason=Removal.ACKNOWLEDGED)) is not None
    )


def test_a_file_in_a_table_that_no_definition_of_the_peer_follows_is_refused() -> None:
    file = {**ENTERED, "path": f"{1:032}.parquet", "partition": {}}
    with pytest.raises(JournalError, match=r"PEER_REFUSED.*record 3 \(entered\) is refused, because its file is in a table"):
        peer(5).fold(record_of(kind=Kind.ENTERED, record=3, message_type="json", ranges=((5, 6),), detail=file))


def test_what_is_in_no_queue_of_the_peer_is_told_by_its_origin() -> None:
    """A range that nobody could have asked for is refused."""
    detail = {"origins": {"uuid-t": [[7, 9]], "uuid-v": [[3, 5]]}, "life": 2}
    news = peer(5).fold(record_of(kind=Kind.NOT_IN_QUEUE, record=3, queue="WORK", detail=detail))
    assert news is not None
    assert (news.value, news.reason) == (MessageValue(2, Stage.GONE), Removal.PURGED)
    assert {origin: list(rows) for origin, rows in news.rows.items()} == {"uuid-t": [7, 8], "uuid-v": [3, 4]}
    absurd = {"origins": {"uuid-v": [[3, 2**52]]}}
    with pytest.raises(JournalError, match="PEER_REFUSED.*nobody asked for"):
        peer(5).fold(record_of(kind=Kind.NOT_IN_QUEUE, record=3, queue="WORK", detail=absurd))


def entered(number: int, **detail: Any) -> Record:
    """Return a record of one message of another journal, which is the next of a peer."""
    path, ranges = f"{number:032}.parquet", ((number, number + 1),)
    facts: dict[str, Any] = {"path": path, "rows": 1, "version": number, "token": "", "topics": ["T", "T"], "published": 0}
    told = {**facts, "origin": [[0, 1, "uuid-t", number]], **detail}
    return record_of(kind=Kind.ENTERED, record=number, message_type="json", ranges=ranges, detail=told)


def test_of_what_enters_only_that_is_kept_which_is_needed() -> None:
    """A peer may write as many records as it likes, with megabytes in each."""
    fold, strangers = peer(1), {f"uuid-{number}": "osaka" for number in range(50)}
    told = {"publishers": {"app": [0, 9]}, "clashes": [[0, 1, "app", 3]], "barriers": {"WORK": [[1, 2]]}}
    groups = {"tokyo": "asia", "osaka": "asia"}
    fold.fold(entered(1, **told, instances={"uuid-t": "tokyo", **strangers}, groups=groups))
    fold.fold(entered(2))
    assert fold.instances == {"uuid-v": "virginia", "uuid-t": "tokyo"}
    known = fold.message_types["json"]
    assert (known.publishers, known.origins.groups) == ({}, {"tokyo": "asia"})
    kept = known.segments[1]
    assert (kept.publishers, kept.clashes, kept.barriers, kept.instances) == ({}, (), {}, {"uuid-t": "tokyo"})


@pytest.mark.parametrize("name", ["names", "further"])
def test_what_a_record_says_beside_its_kind_is_nothing_to_anybody(name: str) -> None:
    fold = peer(1)
    fold.fold(entered(1, instances={"uuid-t": "tokyo"}, **{name: 5}))
    detail = {"names": [[0, 1, "uuid-t", 9]], "instances": {}, "groups": 5, "origin": 7}
    fold.fold(record_of(kind=Kind.NAMED, record=2, message_type="json", detail=detail))
    odd = {"deliveries": "many", "settled_in": {}, "error": 5, "source": []}
    news = fold.fold(record_of(kind=Kind.NOT_IN_QUEUE, record=3, queue="WORK", detail={"origins": {"uuid-t": [[7, 9]]}, **odd}))
    assert news is not None
    assert news.replicated == Replicated(peer="virginia", stage=2)


def test_what_is_dead_belongs_to_somebody() -> None:
    """Values are compared by owner, so no value may be without a name."""
    detail = {"deliveries": 1, "cancels": 0}
    dead = record_of(kind=Kind.REMOVED, record=3, queue="WORK", ranges=((0, 1),), reason=Removal.FORCED_EXPIRE, detail=detail)
    unnamed = peer(1).fold(replaced(dead, detail={**detail, "owner": ""}))
    assert unnamed is not None
    assert unnamed.value == MessageValue(0, Stage.DEAD, 0, "virginia")
    with pytest.raises(JournalError, match="PEER_REFUSED.*owner"):
        peer(1).fold(replaced(dead, detail={**detail, "owner": None}))


def test_whose_a_journal_is_tell_only_records_that_are_checked_for_it() -> None:
    fold = peer(1)
    fold.fold(entered(1, instances={"uuid-t": "tokyo"}))
    for instances in ({"uuid-t": "osaka"}, "tokyo"):
        fold.fold(record_of(kind=Kind.RETIRED, record=2, message_type="json", ranges=((0, 1),), detail={"instances": instances}))
    assert fold.instances["uuid-t"] == "tokyo"


def copier_of(tmp_path: Path, fold: PeerFold, passthrough: Sequence[str] = ()) -> tuple[Copier, Segment]:
    """Return what copies for frankfurt from virginia, and what virginia has."""
    peers = {"virginia": {"journal": "/virginia", "topics": ["T"], "passthrough": list(passthrough)}}
    here = parsing.parse({**DEFINITIONS, "journal": {"instance": "frankfurt"}, "peers": peers})
    store, [segment] = Store(str(tmp_path)), fold.message_types["json"].segments
    return Copier(store, store, here, here.peers["virginia"], fold), segment


BOTH_ORIGINS = ((6, 3, "uuid-t", 100), (9, 1, "uuid-f", 7))
OF_TOKYO = ((6, 4, "uuid-t", 100),)


@pytest.mark.parametrize(
    ("origins", "held", "passthrough", "taken"),
    [
        (BOTH_ORIGINS, {"uuid-v": (2, 5), "uuid-t": (100, 102), "uuid-f": (0, 50)}, ["^.*"], [0, 1, 5, 8]),
        (OF_TOKYO, {}, [], [0, 1, 2, 3, 4, 5]),
        (OF_TOKYO, {"uuid-t": (0, 10)}, [], [0, 1, 2, 3, 4, 5]),
        (BOTH_ORIGINS, {}, [], [0, 1, 2, 3, 4, 5, 9]),
    ],
    ids=["what is held", "what may not come through", "nor where some of it is held", "what was published here and lost"],
)
def test_what_is_held_or_may_not_come_through_a_peer_is_not_taken_and_what_was_published_here_and_lost_is(
    tmp_path: Path, origins: tuple[OriginRows, ...], held: dict[str, tuple[int, int]], passthrough: list[str], taken: list[int]
) -> None:
    copier, segment = copier_of(tmp_path, peer(10, origins), passthrough)
    bitmaps = {origin: to_bitmap([each]) for origin, each in held.items()}
    assert list(copier._wanted(segment, bitmaps).rows) == list(copier.missing(segment, bitmaps)) == taken


def test_how_many_messages_were_let_go_costs_no_memory_for_each(tmp_path: Path) -> None:
    """A log may say that it has let go more than anybody ever had."""
    copier, segment = copier_of(tmp_path, peer(2**34, ((2**33, 2**33, "uuid-t", 0),)))
    missing = copier.missing(segment, {"uuid-v": to_bitmap([(0, 5)])})
    assert (missing.min(), len(missing)) == (5, 2**33 - 5)


def test_a_file_that_has_only_a_topic_that_is_not_pulled_is_not_looked_at(tmp_path: Path) -> None:
    copier, segment = copier_of(tmp_path, peer(10))
    assert copier._is_wanted(segment, {})
    assert copier._is_wanted(replace(segment, topic_max="U"), {})
    assert not copier._is_wanted(replace(segment, topic_min="U", topic_max="U"), {})
