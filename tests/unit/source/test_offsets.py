"""Offsets: one text for one place, and refused by name when they are about something else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from spark_queue.errors import LeaseError
from spark_queue.source.offsets import QueueOffset, TopicOffset

QUEUE = QueueOffset(journal="j-1", queue="ORDER_WORK", subscription="billing", lease=42)
TOPIC = TopicOffset(journal="j-1", message_type="order_line", topic="ORDERS", bookmark=7)


def test_queue_offset_has_one_key_order_because_spark_compares_text() -> None:
    text = '{"v": 1, "journal": "j-1", "queue": "ORDER_WORK", "subscription": "billing", "lease": 42}'
    assert json.dumps(QUEUE.to_json()) == text


def test_topic_offset_has_one_key_order_because_spark_compares_text() -> None:
    text = '{"v": 1, "journal": "j-1", "message_type": "order_line", "topic": "ORDERS", "bookmark": 7}'
    assert json.dumps(TOPIC.to_json()) == text


def test_first_offsets_are_constant() -> None:
    assert QueueOffset(journal="j", queue="q", subscription="s").lease == 0
    assert TopicOffset(journal="j", message_type="m", topic="t").bookmark == -1


@pytest.mark.parametrize("offset", [QUEUE, TOPIC])
def test_offset_reads_back(offset: QueueOffset | TopicOffset) -> None:
    assert offset.check(json.loads(json.dumps(offset.to_json()))) == offset


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"journal": "j-2"}, "journal 'j-2'.*journal 'j-1'"),
        ({"queue": "OTHER"}, "queue 'OTHER'.*queue 'ORDER_WORK'"),
        ({"subscription": "other"}, "subscription 'other'.*subscription 'billing'"),
        ({"v": 2}, "offset version 2"),
        ({"lease": "42"}, "offset "),
        ({"lease": True}, "offset "),
        ({"extra": 1}, "offset "),
    ],
)
def test_offset_of_something_else_is_refused_by_name(change: dict[str, Any], names: str) -> None:
    with pytest.raises(LeaseError, match=f"CHECKPOINT_FOREIGN.*{names}"):
        QUEUE.check({**QUEUE.to_json(), **change})


def test_offset_of_another_kind_is_refused_by_name() -> None:
    with pytest.raises(LeaseError, match="CHECKPOINT_FOREIGN"):
        QUEUE.check(TOPIC.to_json())
