"""What `apply`, its dry run and `sparkq log` say that new definitions change."""

from __future__ import annotations

from typing import Any

from spark_queue.client.changes import changes_between
from spark_queue.core.definitions import parsing

TYPES = {"a": {"columns": "x BIGINT", "topics": ["A", "WORK"]}, "b": {"columns": "y BIGINT", "topics": ["B"]}}


def lines(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    old, new = (parsing.parse({"message_types": TYPES, "queues": {"WORK": queue}}) for queue in (before, after))
    return [str(each).removeprefix("change [queues.WORK] ") for each in changes_between(old, new)]


def test_what_follows_from_other_keys_is_said_as_it_is() -> None:
    assert lines({"underlying_topic": "A"}, {"underlying_topic": "B"}) == [
        "message_type: 'a' -> 'b'", "underlying_topic: 'A' -> 'B'", "default_publish_target: 'A' -> 'B'",
    ]  # fmt: skip
    assert lines({"message_type": "a"}, {"underlying_topic": "A"}) == [
        "underlying_topic: 'WORK' -> 'A'", "default_publish_target: 'WORK' -> 'A'",
    ]  # fmt: skip
    assert lines({}, {"lease_period": "2h"}) == ["lease_period: '60s' -> '2h'", "lease_renewal_limit: '1h' -> '7200000ms'"]
    assert "fairness: 'proportional' -> 'round-robin'" in lines({"fairness": "proportional"}, {"semantics": "at-most-once"})


def test_what_the_user_wrote_is_shown_as_it_was_written() -> None:
    assert lines({"lease_period": "120s"}, {}) == ["lease_period: '120s' -> '60s'"]
    assert lines({"lease_period": "2m"}, {"lease_period": "120s"}) == []
    assert lines({"max_deliveries": 3}, {}) == ["max_deliveries: 3 -> 0"]


def test_a_value_with_parts_is_shown_as_a_definition_file_has_it() -> None:
    new = {**TYPES, "b": {**TYPES["b"], "topics": ["B", "C"]}}
    (change,) = changes_between(*(parsing.parse({"message_types": each}) for each in (TYPES, new)))
    assert str(change) == 'change [message_types.b] topics: ["B"] -> ["B", "C"]'
