"""Definitions of peers: what cannot be replicated is refused by name (R102, R115)."""

from __future__ import annotations

from typing import Any

import pytest

from spark_queue.core import commands
from spark_queue.core.definitions.parsing import parse
from spark_queue.errors import ConfigError
from tests.fake_clock import FakeClock
from tests.scenario.instances import Instance

PEER = {"journal": "/there", "topics": ["T"], "queues": ["WORK"]}


def definitions(*, peer: dict[str, Any] | None = None, journal: dict[str, Any] | None = None, **queue: Any) -> dict[str, Any]:
    letters = {"FAILED": {"message_type": "json"}} if "dead_letter_queue" in queue else {}
    return {
        "journal": {"instance": "here"} if journal is None else journal,
        "peers": {"there": PEER | (peer or {})},
        "message_types": {"json": {"topics": ["T", "U"]}},
        "queues": {"WORK": {"underlying_topic": "T", **queue}} | letters,
    }


def test_a_peer_is_read_with_its_defaults() -> None:
    found = parse(definitions())
    assert found.is_replicated("WORK")
    assert found.peers["there"].pull_interval_ms == 500
    assert found.peers["there"].passes("anybody", "any group")
    assert found.queues["WORK"].ownership == "distributed"


def test_a_peer_without_queues_is_an_archive_of_its_messages() -> None:
    assert not parse(definitions(peer={"queues": []}, ownership="local")).is_replicated("WORK")


@pytest.mark.parametrize(
    ("wrong", "code", "says"),
    [
        (definitions(ownership="local"), "LOCAL_QUEUE_REPLICATED", "WORK"),
        (definitions(journal={}), "CONTRADICTORY_SETTINGS", "a name of its own"),
        (definitions(journal={"instance": "there"}), "CONTRADICTORY_SETTINGS", "its own peer"),
        (definitions(peer={"journal": None}), "BAD_VALUE", "journal"),
        (definitions(peer={"queues": ["WROK"]}), "BAD_VALUE", "WORK"),
        (definitions(peer={"topics": ["U"]}), "CONTRADICTORY_SETTINGS", "messages of its topic"),
        (definitions(peer={"topics": ["^["]}), "BAD_VALUE", "RE2"),
        (definitions(dead_letter_queue="FAILED"), "CONTRADICTORY_SETTINGS", "FAILED"),
        (definitions(ownership="group_local"), "CONTRADICTORY_SETTINGS", "initial owner"),
        (definitions(initial_owner="here"), "CONTRADICTORY_SETTINGS", "initial owner"),
        (definitions(group_local_domain="eu"), "CONTRADICTORY_SETTINGS", "has a domain"),
        (definitions(order_key="topic"), "CONTRADICTORY_SETTINGS", "order_key"),
        (
            definitions() | {"peers": {"there": PEER, "elsewhere": PEER | {"journal": "/there/"}}},
            "CONTRADICTORY_SETTINGS",
            "journal of peer 'there'",
        ),
    ],
)
def test_what_cannot_be_replicated_is_refused(wrong: dict[str, Any], code: str, says: str) -> None:
    """R102, R115: a local queue stays local, and only a group-local one has a configured owner."""
    with pytest.raises(ConfigError, match=says) as refused:
        parse(wrong)
    assert refused.value.code == code


@pytest.mark.parametrize(
    ("changed", "reset", "says"),
    [
        ({"journal": {"instance": "tokyo"}}, (), "Keep its name"),
        ({"journal": {}, "peers": {}}, (), "Keep its name"),
        ({}, ("WORK",), "other instances keep what they know of its messages"),
        ({"peers": {}}, ("WORK",), "other instances keep what they know of its messages"),
    ],
)
def test_what_replicates_cannot_be_changed_so(changed: dict[str, Any], reset: tuple[str, ...], says: str) -> None:
    """R101, R102: owners are told by the names of instances, and a queue that began anew would own what others have finished."""
    instance = Instance("here", ["there"], FakeClock())
    stored = dict(instance.world.state.definitions.stored)
    with pytest.raises(ConfigError, match=says) as refused:
        instance.decide(commands.Apply(definitions=stored | changed, reset=reset))
    assert refused.value.code == "DEFINITION_IN_USE"


def test_a_key_keeps_its_order_where_one_instance_owns_it() -> None:
    found = parse(definitions(ownership="group_local", initial_owner="here", order_key="topic"))
    assert found.queues["WORK"].initial_owner == "here"
