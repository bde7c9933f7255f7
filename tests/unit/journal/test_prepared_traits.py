"""Traits that are asked for before messages enter, and files that are not there when they are asked for again (DESIGN 10)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from pyroaring import BitMap64

from spark_queue.core import commands
from spark_queue.core.bitmaps.ranges import to_bitmap
from spark_queue.core.definitions import parsing
from spark_queue.core.message_files.segment import EntryTraits, Segment, TraitRequest, TraitSource
from spark_queue.errors import JournalError
from spark_queue.journal.entering import PreparedTraits
from spark_queue.journal.store import messages_key
from tests.unit.journal.journal_on_disk import DEFINITIONS, Disk
from tests.unit.journal.reign import NOW_MS, Reign

SEGMENT = Segment(
    message_type="json", first=0, until=4, path="f", version=1, token="t", entered_at_ms=1, published_at_ms=1,
    topic_min="A", topic_max="A", expires_null_count=4,
)  # fmt: skip


class Source(TraitSource):
    """Counts what it is asked."""

    def __init__(self) -> None:
        self.asked: list[TraitRequest] = []
        self.ahead_of: list[Segment] = []

    def ahead(self, segments: Iterable[Segment], requests: Iterable[TraitRequest]) -> Source:
        self.ahead_of = list(segments)
        return self

    def traits(self, segment: Segment, requests: Iterable[TraitRequest]) -> Mapping[str, EntryTraits]:
        requests = tuple(requests)
        self.asked.extend(requests)
        return {each.queue.name: EntryTraits(rows=to_bitmap([(segment.first, segment.until)])) for each in requests}

    def matches(
        self, segments: Iterable[Segment], expression: str, rows: BitMap64, *, columns: str, letters: object = None
    ) -> BitMap64:
        raise AssertionError("nobody asks")


def test_prepared_traits_answer_the_same_request_and_no_other() -> None:
    queues = parsing.parse(
        {"message_types": {"json": {"topics": ["A"]}}, "queues": {"A": {}, "B": {"underlying_topic": "A"}}}
    ).queues
    one, other = (TraitRequest(queue=queue, filters=frozenset({"value = 'x'"})) for queue in queues.values())
    source = Source()
    traits = PreparedTraits(source)
    traits.prepare([SEGMENT], [one, other])
    assert source.asked == [one, other]
    assert list(traits.traits(SEGMENT, [other])) == ["B"]
    assert source.asked == [one, other]
    assert list(traits.traits(SEGMENT, [replace(other, barriers=False)])) == ["B"]
    assert source.asked == [one, other]
    others = [
        # A subscription came, or went, or the queue was altered since.
        replace(one, filters=one.filters | {"topic = 'A'"}),
        replace(one, filters=frozenset()),
        replace(one, queue=replace(one.queue, filter="value IS NULL")),
    ]
    for each in others:
        source.asked.clear()
        assert list(traits.traits(SEGMENT, [other, each])) == ["B", "A"]
        assert source.asked == [other, each]
    traits.prepare([], [one])
    source.asked.clear()
    traits.traits(SEGMENT, [one])
    assert source.asked == [one]


def test_what_is_prepared_is_not_read_again_with_what_is_asked_for_next() -> None:
    """A file that is read inside a fold may have gone since."""
    (queue,) = parsing.parse({"message_types": {"json": {"topics": ["A"]}}, "queues": {"A": {}}}).queues.values()
    source, later, request = Source(), replace(SEGMENT, path="g", first=4, until=8), TraitRequest(queue=queue)
    traits = PreparedTraits(source)
    traits.prepare([SEGMENT], [request])
    source.asked.clear()
    ahead = traits.ahead([SEGMENT, later], [request])
    assert source.ahead_of == [later]
    assert list(ahead.traits(SEGMENT, [request])["A"].rows) == [0, 1, 2, 3]
    assert source.asked == []
    assert list(ahead.traits(later, [request])["A"].rows) == [4, 5, 6, 7]
    traits.ahead([SEGMENT, later], [replace(request, filters=frozenset({"value = 'x'"}))])
    assert source.ahead_of == [SEGMENT, later]


@pytest.mark.parametrize("subscribed", ["before", "after"], ids=lambda when: f"subscribed {when} it entered")
def test_a_queue_whose_filter_needs_a_missing_file_is_set_aside_until_it_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subscribed: str
) -> None:
    """Statistics tell that all of the file is of the queue's topic; only the subscription's filter must read it."""
    disk = Disk(tmp_path / "journal")
    first = Reign(disk, epoch=1)
    if subscribed == "before":
        first.subscribe("id > 2")
    disk.publish([1, 2, 3, 4])
    first.enter()
    if subscribed == "after":
        first.subscribe("id > 2")
    file = Path(disk.store.path) / messages_key("order") / first.segments[0].path
    kept = file.rename(tmp_path / "kept")

    second = Reign(disk, epoch=2)
    with pytest.raises(JournalError, match=f"MESSAGE_FILE_MISSING.*{file.name}"):
        second.state.ledger("WORK")
    assert second.state.message_types["order"].entered_until == 4
    assert not second.state.is_file_back()
    kept.rename(file)
    assert second.state.is_file_back()
    with monkeypatch.context() as broken:
        broken.setattr(second.state.traits, "traits", lambda *_: 1 // 0)
        assert second.state.is_file_back(), "what else is wrong with it a fold of the log tells"

    third = Reign(disk, epoch=3)
    assert list(third.state.ledger("WORK").selection.matches["id > 2"]) == [2, 3]


def test_a_file_that_enters_a_queue_with_barriers_and_a_filtered_subscription_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(tmp_path / "journal")
    reign = Reign(disk, epoch=1)
    queue = {**DEFINITIONS["queues"]["WORK"], "barrier": "id = 2"}
    reign.engine.decide(commands.Apply(definitions={**DEFINITIONS, "queues": {"WORK": queue}}), now_ms=NOW_MS)
    reign.subscribe("id > 2")
    read: list[str] = []
    traits = reign.journal.traits.traits

    def counted(segment: Segment, requests: Iterable[TraitRequest]) -> Mapping[str, EntryTraits]:
        read.append(segment.path)
        return traits(segment, requests)

    monkeypatch.setattr(reign.journal.traits, "traits", counted)
    disk.publish([1, 2, 3])
    reign.enter()
    ledger = reign.state.ledger("WORK")
    assert (list(ledger.barriers), list(ledger.selection.matches["id > 2"])) == ([1], [2])
    assert read == [reign.segments[0].path]


def test_barriers_that_a_record_tells_are_not_found_out_again(tmp_path: Path) -> None:
    """R75: not even its file is needed."""
    disk = Disk(tmp_path / "journal")
    first = Reign(disk, epoch=1)
    queue = {**DEFINITIONS["queues"]["WORK"], "barrier": "id = 2"}
    first.engine.decide(commands.Apply(definitions={**DEFINITIONS, "queues": {"WORK": queue}}), now_ms=NOW_MS)
    disk.publish([1, 2, 3])
    first.enter()
    (Path(disk.store.path) / messages_key("order") / first.segments[0].path).unlink()
    ledger = Reign(disk, epoch=2).state.ledger("WORK")
    assert (list(ledger.barriers), list(ledger.entered)) == ([1], [0, 1, 2])
