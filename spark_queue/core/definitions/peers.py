"""Reads which instances a journal pulls from, and checks that its replicated queues can be (R102, R113, R115; DESIGN 17.2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from spark_queue.core.definitions.definition import (
    Definitions,
    JournalDefinition,
    PeerDefinition,
    QueueDefinition,
)
from spark_queue.core.definitions.keys import DISTRIBUTED, GROUP_LOCAL, LOCAL, PEER_KEYS
from spark_queue.core.definitions.tables import check_names, check_topic_entry, read_keys, read_tables
from spark_queue.errors import ConfigError, nearest


def parse_peers(stored: Mapping[str, Any], journal: JournalDefinition) -> dict[str, PeerDefinition]:
    """Return the peers of stored definitions, by name.

    Raises
    ------
    ConfigError
        UNKNOWN_KEY, BAD_VALUE, NAME_INVALID, CONTRADICTORY_SETTINGS.
    """
    tables = read_tables(stored, "peers")
    check_names("peer", tables)
    peers = {name: _parse_peer(name, read_keys(table, PEER_KEYS, f"[peers.{name}]"), journal) for name, table in tables.items()}
    for peer in peers.values():
        for entry in peer.topics:
            check_topic_entry(entry, "topics", f"[peers.{peer.name}]")
    return peers


def _parse_peer(name: str, values: Mapping[str, Any], journal: JournalDefinition) -> PeerDefinition:
    where = f"[peers.{name}]"
    if values["journal"] is None:
        raise ConfigError("BAD_VALUE", key="journal", where=where, value=None, expected="the path of the peer's journal")
    if journal.instance is None:
        reason = "an instance that pulls from others needs a name of its own."
        raise ConfigError("CONTRADICTORY_SETTINGS", where="[journal]", reason=reason, keys=f"instance, peers.{name}")
    if name == journal.instance:
        reason = "a journal cannot be its own peer."
        raise ConfigError("CONTRADICTORY_SETTINGS", where=where, reason=reason, keys=f"instance, peers.{name}")
    return PeerDefinition(name=name, **values)


def check_peers(definitions: Definitions) -> None:
    """Refuse peers by which a queue could not stay the same on all instances.

    Raises
    ------
    ConfigError
        LOCAL_QUEUE_REPLICATED, BAD_VALUE, CONTRADICTORY_SETTINGS.
    """
    journals: dict[str, str] = {}
    for peer in definitions.peers.values():
        other = journals.setdefault(peer.journal.rstrip("/"), peer.name)
        if other != peer.name:
            reason = f"it is the journal of peer '{other}', and a peer is one instance."
            raise ConfigError("CONTRADICTORY_SETTINGS", where=f"[peers.{peer.name}]", reason=reason, keys="journal")
        for name in peer.queues:
            if name not in definitions.queues:
                expected = f"queues of these definitions.{nearest(name, definitions.queues)}"
                raise ConfigError("BAD_VALUE", key="queues", where=f"[peers.{peer.name}]", value=name, expected=expected)
            queue = definitions.queues[name]
            if queue.ownership == LOCAL:
                raise ConfigError("LOCAL_QUEUE_REPLICATED", queue=name, peer=peer.name)
            for reason, keys in _contradictions(peer, queue, definitions):
                raise ConfigError("CONTRADICTORY_SETTINGS", where=f"[peers.{peer.name}]", reason=reason, keys=keys)


def _contradictions(peer: PeerDefinition, queue: QueueDefinition, definitions: Definitions) -> Iterator[tuple[str, str]]:
    """Yield why a queue cannot be pulled from a peer, and the keys that say so."""
    letters, topic = queue.dead_letter_queue, queue.underlying_topic
    if letters is not None and letters not in peer.queues:
        yield f"queue '{queue.name}' is pulled without '{letters}', which takes its dead letters.", "queues"
    source = definitions.source_of(queue.name)
    if source is not None and source not in peer.queues:
        yield f"queue '{queue.name}' is pulled without '{source}', whose dead letters it takes.", "queues"
    if topic is not None and not peer.pulls(topic):
        yield f"queue '{queue.name}' is pulled without the messages of its topic '{topic}' (R113).", "queues, topics"
    if queue.order_key is not None and queue.ownership == DISTRIBUTED:
        reason = f"queue '{queue.name}' has an order_key, and two owners cannot keep the order of one key. Use {GROUP_LOCAL}."
        yield reason, "queues, order_key, ownership"
