"""Principals in definitions: what is accepted, and what is refused by name (R12)."""

from __future__ import annotations

from typing import Any

import pytest

from spark_queue.core.definitions import parsing
from spark_queue.errors import SparkQueueError

HASH, OTHER = "a" * 64, "b" * 64
ADMIN = {"token_hash": HASH, "rights": [{"rights": ["administer"]}]}


def parse(**principals: Any) -> Any:
    return parsing.parse({"principals": {"admin": ADMIN, **principals}})


def of(*rights: Any, **more: Any) -> dict[str, Any]:
    return {"token_hash": OTHER, "rights": list(rights), **more}


def test_rights_are_on_queues_by_name_or_pattern() -> None:
    definitions = parse(ann=of({"queues": "ORDERS", "rights": ["read"]}, {"queues": "^T.*", "rights": ["write", "change"]}))
    may = {(right, queue) for right in ("read", "write", "change") for queue in ("ORDERS", "TO", "X", "AT")
           if definitions.may("ann", right, queue)}  # fmt: skip
    assert may == {("read", "ORDERS"), ("write", "TO"), ("change", "TO")}
    assert not definitions.may("nobody", "read", "ORDERS")
    assert not definitions.may(None, "read", "ORDERS")
    assert not definitions.may("admin", "read", "ORDERS"), "to administer is no right on messages"


def test_every_filter_that_names_a_queue_hides_something_of_it() -> None:
    """A second entry gives more rights, and takes no filter away."""
    definitions = parse(
        ann=of(
            {"queues": "^.*", "rights": ["read"]},
            {"queues": "^S.*", "rights": ["read"], "filter": "a > 1"},
            {"queues": "SECRET", "rights": ["read", "change"], "filter": "b > 1"},
        )
    )
    assert definitions.row_filters("ann", "SECRET") == ("a > 1", "b > 1")
    assert definitions.row_filters("ann", "SOME") == ("a > 1",)
    assert definitions.row_filters("ann", "OTHER") == ()


def test_without_principals_everybody_may() -> None:
    assert parsing.parse({}).may(None, "read", "ORDERS")


@pytest.mark.parametrize(
    ("principal", "code", "named"),
    [
        ({"rights": [{"rights": ["read"]}]}, "BAD_VALUE", "token_hash"),
        ({"token_hash": OTHER}, "BAD_VALUE", "rights"),
        (of({"rights": ["own"]}), "BAD_VALUE", "read, write, change, administer"),
        (of({"queues": "A"}), "BAD_VALUE", "a list of rights"),
        (of(), "BAD_VALUE", "a list of tables"),
        (of("read"), "BAD_VALUE", "a list of tables"),
        (of({"right": ["read"]}), "UNKNOWN_KEY", "Did you mean 'rights'"),
        (of({"queues": "^(", "rights": ["read"]}), "BAD_VALUE", "RE2"),
        (of({"queues": "no name", "rights": ["read"]}), "NAME_INVALID", "no name"),
        (of({"rights": ["write"], "filter": "a > 1"}), "CONTRADICTORY_SETTINGS", "filter limits what is read"),
        (of({"queues": "A", "rights": ["administer"]}), "CONTRADICTORY_SETTINGS", "whole journal"),
        (of({"rights": ["read"]}, expires="tomorrow"), "BAD_VALUE", "ISO-8601"),
        ({"token_hash": "the token itself", "rights": [{"rights": ["read"]}]}, "BAD_VALUE", "sparkq token new"),
        ({"token_hash": [OTHER, "c" * 64, "d" * 64], "rights": [{"rights": ["read"]}]}, "BAD_VALUE", "a list of two"),
        ({"token_hash": HASH, "rights": [{"rights": ["read"]}]}, "CONTRADICTORY_SETTINGS", "that of 'admin'"),
    ],
)
def test_what_cannot_be_is_refused_by_name(principal: Any, code: str, named: str) -> None:
    with pytest.raises(SparkQueueError) as refused:
        parse(ann=principal)
    assert refused.value.code == code
    assert named in str(refused.value)


def test_somebody_must_be_left_who_may_change_the_principals() -> None:
    for principals in ({"ann": of({"rights": ["read", "write", "change"]})}, {"ann": {**ADMIN, "expires": "2999-01-01T00:00:00Z"}}):
        with pytest.raises(SparkQueueError, match="NOBODY_ADMINISTERS.*ann"):
            parsing.parse({"principals": principals})
