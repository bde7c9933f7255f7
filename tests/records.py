"""Records as a log says them: made of the facts of a detail, and taken apart again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from spark_queue.core.records import Record, Replicated, Unread
from spark_queue.core.state.ownership import MessageValue
from spark_queue.journal.record_table import read_body

#: Facts of a message file.
ENTERED: Mapping[str, Any] = {
    "path": f"{0:032x}.parquet", "rows": 1, "version": 1, "token": "t", "topics": ["T", "T"], "published": 0,
}  # fmt: skip

#: Facts that every record of a kind has, where a test does not care which.
_ANY: Mapping[str, Mapping[str, Any]] = {
    "entered": ENTERED,
    "transfer_requested": {"limit": 500_000},
    "prepared": {"table_id": "t", "exceptions": []},
    "epoch_claimed": {"host": "h", "address": "a", "pid": 1},
    "left": {"incarnation": [1, 1]},
    "renewed": {"incarnation": [1, 1]},
    "attached": {"incarnation": [1, 1], "call": 1},
    "claimed": {"incarnation": [1, 1], "call": 1},
    "granted": {"incarnation": [1, 1], "call": 1, "limit": 100},
    "resumed": {"incarnation": [1, 1], "call": 1, "counted": False, "vanished_runs": 0},
    "subscribed": {"ack_mode": "auto", "max_backlog": 100, "filter": None},
    "barrier_released": {"subscriptions": []},
    "expression_failed": {"messages": 1, "examples": []},
    "set_aside": {"error": "a bug"},
    "dead_lettered": {"source": "WORK", "deliveries": 1, "cancels": 0},
}


def record_of(*, kind: str, detail: Mapping[str, Any] | None = None, **envelope: Any) -> Record:
    """Make a record of the facts of its detail; what its kind needs and no test cares for is there."""
    text = msgspec.json.encode({"v": 1, **_ANY.get(kind, {}), **(detail or {})}).decode()
    body = read_body(str(kind), text, envelope.get("record", -1))
    # Only a kind that is known here is written anew.
    return Record(body=body, stored=text if isinstance(body, Unread) else "", **envelope)


def detail_of(record: Record) -> dict[str, Any]:
    """Return the facts of a record's body that are stored."""
    facts: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(record.body))
    return facts


def replaced(
    made: Record, *, kind: str | None = None, detail: Mapping[str, Any], number: int | None = None, **envelope: Any
) -> Record:
    """Return a record with another detail."""
    body = record_of(kind=kind or made.kind, detail=detail).body
    return replace(made, body=body, stored="", record=made.record if number is None else number, **envelope)


def value_told(value: MessageValue, *, peer: str = "virginia", **facts: Any) -> Replicated:
    """Return the record of a value by the word of a peer."""
    return Replicated(peer=peer, life=value.life, stage=int(value.stage), term=value.term, owner=value.owner, **facts)
