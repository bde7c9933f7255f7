"""Definitions in use: where a topic is at home, and what is said of names that nobody knows."""

from __future__ import annotations

import pytest

from spark_queue.core.definitions import definition
from spark_queue.core.definitions.parsing import parse
from spark_queue.errors import ConfigError
from tests.unit.core.test_parsing import with_letters, with_queue, with_types


def test_a_named_topic_is_looked_up_and_not_searched_for(monkeypatch: pytest.MonkeyPatch) -> None:
    definitions = parse(with_types(a=[f"T{number}" for number in range(1_000)], b=["^B.*"]))
    monkeypatch.setattr(definition, "topic_matches", None)
    assert definitions.route("T999")[1].name == "a"


def test_a_topic_listed_by_name_is_at_home_there_whatever_patterns_match() -> None:
    definitions = parse(with_types(a=["T1", "^T.*$"]))
    assert definitions.route("T1") == ("T1", definitions.message_type("a"))
    assert definitions.route("T2") == ("T2", definitions.message_type("a"))


def test_nothing_can_be_published_to_a_dead_letter_queue() -> None:
    with pytest.raises(ConfigError, match="QUEUE_TAKES_NO_PUBLISH.*'D' is a dead-letter queue"):
        parse(with_letters()).route("D")


@pytest.mark.parametrize(
    ("topic", "code"), [("TX", "TOPIC_AMBIGUOUS"), ("nobody", "UNKNOWN_TOPIC"), ("a b", "NAME_INVALID"), ("", "NAME_INVALID")]
)
def test_route_refuses_a_topic_without_one_home(topic: str, code: str) -> None:
    definitions = parse(with_types(a=["^T.*$"], b=["^.*X$"]))
    with pytest.raises(ConfigError, match=code):
        definitions.route(topic)


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    definitions = parse(with_queue())
    with pytest.raises(ConfigError, match="Did you mean 'json'"):
        definitions.message_type("jsn")
    with pytest.raises(ConfigError, match="Did you mean 'Q'"):
        definitions.queue("q")
