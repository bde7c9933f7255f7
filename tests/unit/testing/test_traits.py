"""Traits of messages in memory: a file that is gone tells nothing any more, as on disk."""

from __future__ import annotations

import pytest

from spark_queue.core.definitions import parsing
from spark_queue.core.message_files.segment import Segment, TraitRequest
from tests.scenario.traits import MemoryTraits, PublishedMessage

SEGMENT = Segment(
    message_type="json", first=0, until=1, path="f", version=1, token="t", entered_at_ms=1, published_at_ms=1,
    topic_min="T", topic_max="T", expires_null_count=1,
)  # fmt: skip


def test_a_removed_file_answers_no_request_not_even_one_that_it_answered_before() -> None:
    traits = MemoryTraits()
    traits.add("f", [PublishedMessage(topic="T")])
    request = TraitRequest(queue=parsing.parse({"message_types": {"json": {"topics": ["T"]}}, "queues": {"T": {}}}).queue("T"))
    assert list(traits.traits(SEGMENT, [request])["T"].rows) == [0]
    traits.remove("f")
    with pytest.raises(KeyError):
        traits.traits(SEGMENT, [request])
