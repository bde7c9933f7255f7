"""Whether the definitions of instances fit each other (R106, R113, R116; DESIGN 17.7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from spark_queue.core.definitions import parsing
from spark_queue.core.definitions.definition import Definitions
from spark_queue.replication import validation

WORK = {"underlying_topic": "T", "dead_letter_queue": "FAILED"}
QUEUES: dict[str, dict[str, Any]] = {"WORK": WORK, "FAILED": {"message_type": "note"}}
OWNED = {"ownership": "group_local", "initial_owner": "a"}


def defined(
    instance: str, peers: Sequence[str], *, work: dict[str, Any] | None = None, pulls: Sequence[str] = ("WORK", "FAILED"),
    passthrough: Sequence[str] = ("^.*",), columns: str = "text STRING, number BIGINT", **journal: str,
) -> Definitions:  # fmt: skip
    """Return definitions of an instance that pulls two queues from others."""
    peer = {"topics": ["T", "U", "FAILED"], "queues": list(pulls), "passthrough": list(passthrough)}
    return parsing.parse(
        {
            "journal": {"instance": instance, **journal},
            "peers": {each: {"journal": f"/{each}", **peer} for each in peers},
            "message_types": {"note": {"topics": ["T", "U", "FAILED"], "columns": columns}},
            "queues": {**QUEUES, "WORK": WORK | (work or {})},
        }
    )


def broken(*instances: Definitions) -> list[tuple[str, str]]:
    """Return the rules that are broken, and the queues."""
    found = validation.find({str(each.journal.instance): each for each in instances})
    return [(str(each.rule), each.queue) for each in found]


def test_definitions_that_agree_break_nothing() -> None:
    assert broken(defined("a", ["b"]), defined("b", ["a"])) == []
    assert broken(defined("a", ["b"], columns="number bigint, text STRING"), defined("b", ["a"])) == [], "the order says nothing"


def test_a_queue_is_pulled_in_both_directions() -> None:
    """R113: where one side does not pull, it takes what others settle for unprocessed (R106)."""
    one_way = broken(defined("a", ["b"]), defined("b", []))
    assert one_way == [("R113.1", "WORK"), ("R113.1", "FAILED"), ("R113.5", "WORK"), ("R113.5", "FAILED")]


@pytest.mark.parametrize(
    "work",
    [
        {"underlying_topic": "U"}, {"semantics": "at-most-once"}, {"dead_letter_queue": None},
    ],
)  # fmt: skip
def test_a_queue_has_one_definition_on_all_instances(work: dict[str, Any]) -> None:
    """R113: what differs would give one message two meanings. It is told once, though it differs from both sides."""
    if "semantics" in work:
        work = {**work, "dead_letter_queue": None}
    table = {key: value for key, value in (WORK | work).items() if value is not None}
    other = dict(defined("b", ["a"]).stored)
    other["queues"] = {**QUEUES, "WORK": table}
    found = broken(defined("a", ["b"]), parsing.parse(other))
    assert ("R113.3", "WORK") in found
    assert {rule for rule, _ in found} == {"R113.3"}


@pytest.mark.parametrize(
    ("columns", "rule"), [("number STRING", "R113.3"), ("Number BIGINT", "R113.3"), ("more STRING", "R113.6"), ("m FOO", "R113.3")]
)
def test_a_column_of_both_is_the_same(columns: str, rule: str) -> None:
    assert broken(defined("a", ["b"]), defined("b", ["a"], columns=columns)) == [(rule, "WORK"), (rule, "FAILED")]


@pytest.mark.parametrize("work", [{"filter": "number > 1"}, {"barrier": "number = 1"}, OWNED, OWNED | {"initial_owner": "b"}])
def test_what_an_origin_says_may_differ_and_is_told_to_who_asks_alone(work: dict[str, Any]) -> None:
    """R129: a coordinator has no alarm for it."""
    here, there = (
        defined("a", ["b"], work=OWNED if "initial_owner" in work else {}, group="eu"),
        defined("b", ["a"], work=work, group="eu"),
    )
    differs = work != OWNED
    assert broken(here, there) == ([("R113.6", "WORK")] if differs else [])
    assert validation.of_peer(here, here.peers["b"], {"b": there}) == []


def test_a_queue_here_is_a_queue_there() -> None:
    """R113: a queue on one instance is a queue on all."""
    other = dict(defined("b", ["a"], pulls=()).stored)
    other["queues"] = {"FAILED": QUEUES["FAILED"]}
    assert ("R113.2", "WORK") in broken(defined("a", ["b"]), parsing.parse(other))


@pytest.mark.parametrize(
    ("here", "there", "fits"),
    [
        ({}, {}, False),
        ({"group": "eu"}, {"group": "eu"}, True),
        ({"group": "eu"}, {"group": "us"}, False),
        ({"work": {"group_local_domain": "x"}}, {"work": {"group_local_domain": "x"}, "group": "us"}, True),
        ({"work": {"group_local_domain": "eu"}}, {"group": "eu"}, True),
    ],
)
def test_a_group_local_queue_is_told_by_its_name_and_its_domain_or_group(
    here: dict[str, Any], there: dict[str, Any], *, fits: bool
) -> None:
    """R116: without a domain its group stands for it, and an instance without a group is one of its own."""
    sides = [{**side, "work": OWNED | side.get("work", {})} for side in (here, there)]
    found = broken(defined("a", ["b"], **sides[0]), defined("b", ["a"], **sides[1]))
    assert found == ([] if fits else [("R113.2", "WORK")])


def test_outcomes_pass_through_to_who_pulls_from_a_third() -> None:
    """R106: one, two, three in a chain: what three settles reaches one through two, if it may pass."""
    ends = defined("a", ["b"]), defined("c", ["b"])
    assert broken(*ends, defined("b", ["a", "c"])) == []
    shut = defined("a", ["b"], passthrough=["b"])
    assert broken(shut, ends[1], defined("b", ["a", "c"])) == [("R113.5", "WORK"), ("R113.5", "FAILED")]


def test_what_is_not_known_counts_as_in_order() -> None:
    assert broken(defined("a", ["b"]), defined("c", ["b"])) == []


def test_a_coordinator_tells_of_each_peer_what_concerns_it() -> None:
    own, closed = defined("b", ["a", "c"]), defined("a", ["b"], passthrough=["b"])
    known = {"a": closed, "c": defined("c", ["b"])}
    told = {name: validation.of_peer(own, own.peers[name], known) for name in known}
    assert [each.rule for each in told["a"]] == ["R113.5", "R113.5"]
    assert "'c' publishes and settles reaches 'a' by no way" in told["a"][0].reason
    assert told["c"] == []


def test_a_reason_has_an_end() -> None:
    found = validation.find({"a": defined("a", ["b"], work={"filter": "number > 1 OR " * 90 + "TRUE"}), "b": defined("b", ["a"])})
    assert [len(each.reason) for each in found] == [500]
