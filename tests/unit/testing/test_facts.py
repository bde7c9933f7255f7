"""Facts of messages in memory: a file that is gone tells nothing any more, as on disk."""

from __future__ import annotations

import pytest

from spark_queue.core.definitions import parsing
from spark_queue.core.message_files.segment import FactRequest, Segment
from tests.scenario.facts import MemoryFacts, PublishedMessage

SEGMENT = Segment(
    message_type="json", first=0, until=1, path="f", version=1, token="t", entered_at_ms=1,
    topic_min="T", topic_max="T", expires_null_count=1,
)  # fmt: skip


def test_a_removed_file_answers_no_request_not_even_one_that_it_answered_before() -> None:
    facts = MemoryFacts()
    facts.add("f", [PublishedMessage(topic="T")])
    request = FactRequest(queue=parsing.parse({"message_types": {"json": {"topics": ["T"]}}, "queues": {"T": {}}}).queue("T"))
    assert list(facts.facts(SEGMENT, [request])["T"].rows) == [0]
    facts.remove("f")
    with pytest.raises(KeyError):
        facts.facts(SEGMENT, [request])
