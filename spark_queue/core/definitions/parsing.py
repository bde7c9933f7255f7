"""Reads definitions from their stored form, and checks every key and relation before anything is touched (DESIGN 15.7, 15.8).

Reads the principals, and checks that one of them can still change them (R12).
Reads which instances a journal pulls from, and checks that its replicated queues can be (R102, R113, R115; DESIGN 17.2).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import re2

from spark_queue.core.definitions.definition import (
    BUILT_IN_COLUMNS,
    QUIET,
    TABLES,
    Definitions,
    Entitlement,
    JournalDefinition,
    MessageTypeDefinition,
    PeerDefinition,
    PrincipalDefinition,
    QueueDefinition,
    ReplicationDefinition,
    is_pattern,
    topic_matches,
)
from spark_queue.core.definitions.keys import (
    ADMINISTER,
    AT_MOST_ONCE,
    DISTRIBUTED,
    GROUP_LOCAL,
    LOCAL,
    READ,
    ROUND_ROBIN,
    keys_of,
    valid_name,
)
from spark_queue.errors import AccessError, ConfigError, JournalError, nearest

#: The pattern of an entry that says nothing of queues.
_EVERY_QUEUE = "^.*"


def parse_principals(stored: Mapping[str, Any]) -> dict[str, PrincipalDefinition]:
    """Return the principals of stored definitions, by name."""
    tables = _read_tables(stored, "principals")
    _check_names("principal", tables)
    principals = {
        name: _parse_principal(name, _read_keys(table, PrincipalDefinition, f"[principals.{name}]"))
        for name, table in tables.items()
    }
    _check_principals(principals)
    return principals


def _parse_principal(name: str, values: Mapping[str, Any]) -> PrincipalDefinition:
    where = f"[principals.{name}]"
    return PrincipalDefinition(name=name, **{**values, "rights": tuple(_entitlement(each, where) for each in values["rights"])})


def _entitlement(table: Mapping[str, Any], where: str) -> Entitlement:
    where = f"rights of {where}"
    values = _read_keys(table, Entitlement, where)
    _check_topic_entry(values["queues"], "queues", where)
    found = Entitlement(**values)
    if found.filter is not None and READ not in found.rights:
        reason = "a filter limits what is read, but the entry does not give the right 'read'."
        raise ConfigError("CONTRADICTORY_SETTINGS", where=where, reason=reason, keys="filter, rights")
    if ADMINISTER in found.rights and found.queues != _EVERY_QUEUE:
        reason = f"{ADMINISTER} is for the whole journal, not for queues '{found.queues}'."
        raise ConfigError("CONTRADICTORY_SETTINGS", where=where, reason=reason, keys="queues, rights")
    return found


def _check_principals(principals: Mapping[str, PrincipalDefinition]) -> None:
    owners: dict[str, str] = {}
    for principal in principals.values():
        for token_hash in principal.token_hash:
            other = owners.setdefault(token_hash, principal.name)
            if other != principal.name:
                where = f"[principals.{principal.name}]"
                reason = f"its token is also that of '{other}', but a token identifies one caller."
                raise ConfigError("CONTRADICTORY_SETTINGS", where=where, reason=reason, keys="token_hash")
    # One that expires would lock everybody out later, when nobody applies anything.
    if principals and not any(each.administers and each.expires_ms is None for each in principals.values()):
        raise AccessError("NOBODY_ADMINISTERS", principals=", ".join(principals))


def parse_peers(stored: Mapping[str, Any], journal: JournalDefinition) -> dict[str, PeerDefinition]:
    """Return the peers of stored definitions, by name."""
    tables = _read_tables(stored, "peers")
    _check_names("peer", tables)
    peers = {
        name: _parse_peer(name, _read_keys(table, PeerDefinition, f"[peers.{name}]"), journal) for name, table in tables.items()
    }
    for peer in peers.values():
        for entry in peer.topics:
            _check_topic_entry(entry, "topics", f"[peers.{peer.name}]")
    return peers


def _parse_peer(name: str, values: Mapping[str, Any], journal: JournalDefinition) -> PeerDefinition:
    where = f"[peers.{name}]"
    if journal.instance is None:
        reason = "an instance that pulls from others needs a name of its own."
        raise ConfigError("CONTRADICTORY_SETTINGS", where="[journal]", reason=reason, keys=f"instance, peers.{name}")
    if name == journal.instance:
        reason = "a journal cannot be its own peer."
        raise ConfigError("CONTRADICTORY_SETTINGS", where=where, reason=reason, keys=f"instance, peers.{name}")
    return PeerDefinition(name=name, **values)


def check_peers(definitions: Definitions) -> None:
    """Refuse peers by which a queue could not stay the same on all instances."""
    journals: dict[str, str] = {}
    for peer in definitions.peers.values():
        other = journals.setdefault(peer.journal.rstrip("/"), peer.name)
        if other != peer.name:
            reason = f"it is also the journal of peer '{other}', but each peer is one instance."
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
        for message_type in definitions.message_types.values():
            if message_type.table is not None and peer.takes(message_type.topics[0]):
                reason = f"message type '{message_type.name}' follows a table, so its messages cannot be pulled from a peer (R149)."
                raise ConfigError("CONTRADICTORY_SETTINGS", where=f"[peers.{peer.name}]", reason=reason, keys="topics, table")


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
        reason = f"queue '{queue.name}' has an order_key, but two owners cannot keep the order of one key. Use {GROUP_LOCAL}."
        yield reason, "queues, order_key, ownership"


#: Keys that a dead-letter queue cannot have: nothing is published to it, and no expression is evaluated there.
_NO_DEAD_LETTER_KEYS = (
    "underlying_topic", "default_publish_target", "recovery_point", "dead_letter_queue", "expiration",
    "filter", "priority", "order_key", "order_key_run", "barrier",
)  # fmt: skip


def parse(stored: Mapping[str, Any]) -> Definitions:
    """Read definitions from their stored form and check every relation between them."""
    _check_keys(stored, TABLES, "the definitions")
    journal = JournalDefinition(**_read_keys(stored.get("journal", {}), JournalDefinition, "[journal]"))
    tables: dict[str, Mapping[str, Any]] = {name: {"columns": columns} for name, columns in BUILT_IN_COLUMNS.items()}
    for name, table in _read_tables(stored, "message_types").items():
        if name in BUILT_IN_COLUMNS:
            _check_keys(table, ("topics",), f"[message_types.{name}]")
        tables[name] = {**tables.get(name, {}), **table}
    message_types = {name: _parse_message_type(name, table) for name, table in tables.items()}
    _check_names("message type", message_types)
    _check_topics(message_types.values())
    queue_tables = _read_tables(stored, "queues")
    _check_names("queue", queue_tables)
    letters = Counter(each for table in queue_tables.values() if isinstance(each := table.get("dead_letter_queue"), str))
    _check_letters_exist(queue_tables)
    peers = parse_peers(stored, journal)
    replication = ReplicationDefinition(**_read_keys(stored.get("replication", {}), ReplicationDefinition, "[replication]"))
    without_queues = Definitions(
        journal=journal, message_types=message_types, queues={}, peers=peers, replication=replication,
        principals=parse_principals(stored), stored=stored,
    )  # fmt: skip
    queues = {
        name: _parse_queue(name, table, without_queues, is_dead_letter_queue=name in letters)
        for name, table in queue_tables.items()
    }
    definitions = replace(without_queues, queues=queues)
    for queue in queues.values():
        _check_dead_letters(queue, definitions, sources=letters)
        _check_owner(queue)
    if peers:
        check_peers(definitions)
    return definitions


def parse_recorded(stored: Mapping[str, Any], *, path: str) -> Definitions:
    """Read definitions that a journal's log says, which were checked when they were recorded."""
    try:
        return parse(stored)
    except ConfigError as reason:
        raise JournalError("PROTOCOL_NEWER", path=path, what=f"definitions with what is refused here ({reason.reason})") from reason


#: Keys that say how a table is followed.
_FOLLOWING_KEYS = ("table_name", "from", "on_change", "relocate_after")


def _parse_message_type(name: str, table: Mapping[str, Any]) -> MessageTypeDefinition:
    where = f"[message_types.{name}]"
    values = _read_keys(table, MessageTypeDefinition, where)
    for entry in values["topics"]:
        _check_topic_entry(entry, "topics", where)
    if values["table"] is not None:
        _complete_followed(name, values, where)
    else:
        given = [key for key in _FOLLOWING_KEYS if key in table]
        if given:
            reason = "it names no table that could be followed."
            raise ConfigError("CONTRADICTORY_SETTINGS", where=where, reason=reason, keys=", ".join(given))
        if values["columns"] is None:
            expected = 'Spark DDL, such as "id BIGINT, item STRING"'
            raise ConfigError("BAD_VALUE", key="columns", where=where, value=None, expected=expected)
    return MessageTypeDefinition(name=name, **values)


def _complete_followed(name: str, values: dict[str, Any], where: str) -> None:
    """Give a message type that follows a table its one topic; its columns stay unknown until somebody looks at the table (R141)."""
    topics = values["topics"] = values["topics"] or (name,)
    if len(topics) > 1 or is_pattern(topics[0]):
        expected = "one name: all rows of a followed table have the same topic"
        raise ConfigError("BAD_VALUE", key="topics", where=where, value=list(topics), expected=expected)
    values["columns"] = values["columns"] or ""


def _check_topics(message_types: Iterable[MessageTypeDefinition]) -> None:
    homes: dict[str, str] = {}
    for message_type in message_types:
        for entry in message_type.topics:
            if entry in homes:
                raise ConfigError("TOPIC_CLAIMED_TWICE", topic=entry, first=homes[entry], second=message_type.name)
            homes[entry] = message_type.name
    patterns = [(entry, home) for entry, home in homes.items() if is_pattern(entry)]
    for entry, home in homes.items():
        for pattern, other_home in patterns:
            if home != other_home and not is_pattern(entry) and topic_matches(pattern, entry):
                raise ConfigError("TOPIC_CLAIMED_TWICE", topic=entry, first=home, second=other_home)


def _parse_queue(name: str, table: Mapping[str, Any], known: Definitions, *, is_dead_letter_queue: bool) -> QueueDefinition:
    where = f"[queues.{name}]"
    values = _read_keys(table, QueueDefinition, where)
    values["lease_renewal_limit_ms"] = _renewal_limit_ms(table, values, where)
    if values["semantics"] == AT_MOST_ONCE:
        values["fairness"] = _at_most_once_fairness(table, where)
    if is_dead_letter_queue:
        _check_dead_letter_keys(table, where)
    else:
        topic = values["underlying_topic"] = values["underlying_topic"] or name
        _check_topic_entry(topic, "underlying_topic", where)
        values["default_publish_target"] = _publish_target(table, topic, where)
        _check_exclusions(values, where)
        if values["message_type"] is None:
            values["message_type"] = known.locate(values["default_publish_target"])[1].name
        home = known.locate(values["default_publish_target"])[1].name
        if home != values["message_type"]:
            keys = "message_type, underlying_topic"
            reason = f"topic '{values['default_publish_target']}' belongs to message type '{home}', not '{values['message_type']}'."
            raise ConfigError("CONTRADICTORY_SETTINGS", where=where, reason=reason, keys=keys)
    return QueueDefinition(name=name, columns=known.message_type(values["message_type"]).columns, **values)


def _renewal_limit_ms(table: Mapping[str, Any], values: Mapping[str, Any], where: str) -> int:
    """Return how long a lease may be renewed: not less than its first period; where nothing is said, as long as by default."""
    limit_ms, period_ms = int(values["lease_renewal_limit_ms"]), int(values["lease_period_ms"])
    if "lease_renewal_limit" in table and limit_ms < period_ms:
        reason = "a lease would have to end before its first period is over."
        raise ConfigError("CONTRADICTORY_SETTINGS", where=where, reason=reason, keys="lease_renewal_limit, lease_period")
    return max(limit_ms, period_ms)


def _at_most_once_fairness(table: Mapping[str, Any], where: str) -> str:
    """Return the one model that at-most-once queues have (R34)."""
    if table.get("fairness", ROUND_ROBIN) != ROUND_ROBIN:
        reason = f"an at-most-once queue is shared out by {ROUND_ROBIN} only (R34)."
        raise ConfigError("CONTRADICTORY_SETTINGS", where=where, reason=reason, keys="fairness, semantics")
    return ROUND_ROBIN


def _publish_target(table: Mapping[str, Any], topic: str, where: str) -> str:
    target = table.get("default_publish_target")
    if target is None:
        if is_pattern(topic):
            expected = "given, because underlying_topic is a pattern (R62)"
            raise ConfigError("BAD_VALUE", key="default_publish_target", where=where, value=None, expected=expected)
        return topic
    if not topic_matches(topic, target):
        raise ConfigError(
            "BAD_VALUE",
            key="default_publish_target",
            where=where,
            value=target,
            expected=f"one of the queue's own topics ({topic})",
        )
    return str(target)


def _check_exclusions(values: Mapping[str, Any], where: str) -> None:
    if values["priority"] is not None and values["order_key"] is not None:
        reason = "a message of high priority would overtake the older ones of its key."
        raise ConfigError("CONTRADICTORY_SETTINGS", where=where, reason=reason, keys="order_key, priority")
    for other in ("priority", "barrier"):
        if values["target_queue_depth"] and values.get(other) is not None:
            reason = f"the {other} of a message that is not active cannot be seen (R77)."
            raise ConfigError("CONTRADICTORY_SETTINGS", where=where, reason=reason, keys=f"target_queue_depth, {other}")


def _check_dead_letter_keys(table: Mapping[str, Any], where: str) -> None:
    for key in _NO_DEAD_LETTER_KEYS:
        if key in table:
            reason = f"messages enter a dead-letter queue by reference only, so '{key}' has no meaning there."
            raise ConfigError("CONTRADICTORY_SETTINGS", where=where, reason=reason, keys=key)
    if "message_type" not in table:
        raise ConfigError("BAD_VALUE", key="message_type", where=where, value=None, expected="given for a dead-letter queue")


def _check_letters_exist(tables: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse a dead-letter queue that is not defined, before the one that was meant passes for a queue of messages."""
    for name, table in tables.items():
        letters = table.get("dead_letter_queue")
        if isinstance(letters, str) and letters and letters not in tables:
            raise ConfigError(
                "BAD_VALUE",
                key="dead_letter_queue",
                where=f"[queues.{name}]",
                value=letters,
                expected=f"a queue of these definitions.{nearest(letters, tables)}",
            )


def _check_dead_letters(queue: QueueDefinition, definitions: Definitions, *, sources: Mapping[str, int]) -> None:
    where = f"[queues.{queue.name}]"
    for key, value in (("dead_letter_queue", queue.dead_letter_queue), ("dead_letter_retention", queue.dead_letter_retention_ms)):
        if queue.at_most_once and value is not None:
            reason = "an at-most-once queue has no dead letters (R16)."
            raise ConfigError("CONTRADICTORY_SETTINGS", where=where, reason=reason, keys=f"semantics, {key}")
    if queue.dead_letter_queue is None:
        return
    letters = definitions.queue(queue.dead_letter_queue)
    trouble = None
    if sources[letters.name] > 1:
        other = definitions.source_of(letters.name)
        trouble = f"'{letters.name}' already takes the dead letters of '{other}', and a dead-letter queue has one source."
    elif letters.message_type != queue.message_type:
        trouble = f"'{letters.name}' has message type '{letters.message_type}', this queue '{queue.message_type}'."
    if trouble is not None:
        raise ConfigError("CONTRADICTORY_SETTINGS", where=where, reason=trouble, keys="dead_letter_queue")


def _check_owner(queue: QueueDefinition) -> None:
    where = f"[queues.{queue.name}]"
    if (queue.ownership == GROUP_LOCAL) != (queue.initial_owner is not None):
        reason = f"ownership {GROUP_LOCAL} needs an initial owner, and no other has one (R115)."
        raise ConfigError("CONTRADICTORY_SETTINGS", where=where, reason=reason, keys="ownership, initial_owner")
    if queue.ownership != GROUP_LOCAL and queue.group_local_domain is not None:
        reason = f"only a queue of ownership {GROUP_LOCAL} has a domain (R116)."
        raise ConfigError("CONTRADICTORY_SETTINGS", where=where, reason=reason, keys="ownership, group_local_domain")


def _read_tables(stored: Mapping[str, Any], key: str) -> Mapping[str, Mapping[str, Any]]:
    """Return the named tables under `key`; anything but a table of tables is refused."""
    tables = stored.get(key, {})
    if not isinstance(tables, Mapping):
        raise ConfigError("BAD_VALUE", key=key, where="the definitions", value=tables, expected="tables of keys by name")
    for name, table in tables.items():
        if not isinstance(table, Mapping):
            raise ConfigError("BAD_VALUE", key=name, where=f"[{key}]", value=table, expected="a table of keys")
    return tables


def _read_keys(table: Mapping[str, Any], definition: type, where: str) -> dict[str, Any]:
    """Return the values of a table by the fields of its definition; unknown keys and unfit values are refused."""
    keys = keys_of(definition)
    _check_keys(table, [key.name for key in keys], where)
    values: dict[str, Any] = {}
    for key in keys:
        if key.name not in table:
            if key.required is not None:
                raise ConfigError("BAD_VALUE", key=key.name, where=where, value=None, expected=key.required)
            values[key.field] = key.value
            continue
        value = table[key.name]
        try:
            values[key.field] = key.parse(value)
        except ValueError as reason:
            raise ConfigError("BAD_VALUE", key=key.name, where=where, value=value, expected=str(reason)) from None
    return values


def _check_keys(table: Any, known: Iterable[str], where: str) -> None:
    """Refuse values that are no table, and unknown keys."""
    if not isinstance(table, Mapping):
        raise ConfigError("BAD_VALUE", key=where, where="the definitions", value=table, expected="a table of keys")
    known = tuple(known)
    for key in table:
        if key not in known:
            raise ConfigError("UNKNOWN_KEY", key=key, where=where, nearest=nearest(str(key), known))


def _check_names(what: str, names: Iterable[str]) -> None:
    """Refuse names that are not allowed, and two that differ only in case."""
    seen: dict[str, str] = {}
    for name in names:
        if not valid_name(name):
            raise ConfigError("NAME_INVALID", what=what, name=name)
        if name.lower() in seen:
            raise ConfigError("NAME_CASE_CLASH", what=what, name=name, other=seen[name.lower()])
        seen[name.lower()] = name


def _check_topic_entry(entry: str, key: str, where: str) -> None:
    """Refuse a topic entry that is neither a name nor a pattern of RE2."""
    if not is_pattern(entry):
        if not valid_name(entry):
            raise ConfigError("NAME_INVALID", what="topic", name=entry)
        return
    try:
        re2.compile(entry, QUIET)
    except re2.error as reason:
        raise ConfigError(
            "BAD_VALUE", key=key, where=where, value=entry, expected=f"a valid RE2 pattern ({_re2_text(reason)})"
        ) from None


def _re2_text(reason: Exception) -> str:
    text = reason.args[0] if reason.args else reason
    return text.decode() if isinstance(text, bytes) else str(text)
