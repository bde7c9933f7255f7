"""What a journal is configured to hold: message types, queues, peers, principals, and the journal's own settings.

The stored form (in `definitions_applied`) is the user's own: nested tables of the keys in `keys`, whose durations are strings
with units. `parsing.parse` reads it and checks every key and every relation between definitions before anything is touched.

What must hold between the definitions of instances that share queues, by rule (R106, R113, R116; DESIGN 17.7).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import re2

from spark_queue.core.definitions.keys import ADMINISTER, AT_MOST_ONCE, Backoff, valid_name
from spark_queue.errors import AccessError, ConfigError, nearest


class Rule(StrEnum):
    """A rule between the definitions of instances."""

    BOTH_WAYS = "R113.1"
    SAME_QUEUES = "R113.2"
    SAME_DEFINITION = "R113.3"
    TOPICS = "R113.4"
    PATHS = "R113.5"


#: What each rule asks for, in a sentence.
TEXTS = {
    Rule.BOTH_WAYS: "A queue that is pulled from a peer is pulled by that peer, too.",
    Rule.SAME_QUEUES: "A queue here is a queue there; a group_local one of the same domain (R116).",
    Rule.SAME_DEFINITION: "It has the same topic, filter, barrier, columns, semantics, ownership, initial owner, dead letters.",
    Rule.TOPICS: "Its topics are pulled with it. `sparkq apply` refuses definitions that break this.",
    Rule.PATHS: "What any instance publishes and settles reaches every other one, through whichever peers (R106).",
}

#: Where one of these is broken, news about the queue would mean something else here, so they wait.
WITHHOLDING = frozenset({Rule.SAME_QUEUES, Rule.SAME_DEFINITION})


@dataclass(frozen=True, slots=True, order=True)
class Disagreement:
    """How the definitions of two instances break a rule about a queue."""

    rule: str
    queue: str
    reason: str
    #: Since when it is known.
    since_ms: int = field(default=0, compare=False)


#: Column names that the journal or the reader adds (DESIGN 4).
RESERVED_COLUMNS = frozenset(
    "topic publisher sequence published_at expires_at bookmark delivery_count cancel_count lease leased_until is_barrier "
    "outcome retry_after error state reason priority".split()
)

#: Those that only an instance adds: in any other journal messages may have columns of these names.
INSTANCE_COLUMNS = frozenset({"origin", "origin_bookmark", "owner"})

#: Message types that exist without being declared: their one column as Spark DDL.
BUILT_IN_COLUMNS = {"json": "value STRING", "binary": "value BINARY"}


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalDefinition:
    """Settings of the whole journal."""

    durability: str
    #: None keeps everything.
    retention_ms: int | None
    coordinator_idle_ms: int
    #: Its name among instances; None for a journal that does not replicate.
    instance: str | None
    group: str | None

    @property
    def durable(self) -> bool:
        """Whether commits must survive power loss."""
        return self.durability == "fsync"


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerDefinition:
    """Another instance that this one pulls from. Fields are the keys of `PEER_KEYS`."""

    #: The name of the peer's instance.
    name: str
    journal: str
    topics: tuple[str, ...]
    queues: tuple[str, ...]
    passthrough: tuple[str, ...]
    pull_interval_ms: int

    def takes(self, topic: str) -> bool:
        """Return whether messages of `topic` are pulled."""
        return any(topic_matches(entry, topic) for entry in self.topics)

    def pulls(self, underlying_topic: str) -> bool:
        """Return whether all messages of a queue's topic are pulled; of a pattern that is told where it stands as it is."""
        return underlying_topic in self.topics if is_pattern(underlying_topic) else self.takes(underlying_topic)

    def passes(self, instance: str, group: str) -> bool:
        """Return whether messages of another instance, which is in a group, may come through this peer."""
        return any(topic_matches(entry, name) for entry in self.passthrough for name in (instance, group))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationDefinition:
    """What holds for all peers. Fields are the keys of `REPLICATION_KEYS`."""

    keep_ms: int
    transfer_after_ms: int
    unreachable_after_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Entitlement:
    """Some rights on some queues. Fields are the keys of `ENTITLEMENT_KEYS`."""

    #: A name, or a pattern.
    queues: str
    rights: tuple[str, ...]
    #: With `read`: what does not match is hidden.
    filter: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PrincipalDefinition:
    """Somebody who may call, told by a token, and what for (R12). Fields are the keys of `PRINCIPAL_KEYS`."""

    name: str
    token_hash: tuple[str, ...]
    rights: tuple[Entitlement, ...]
    #: None for never.
    expires_ms: int | None

    def may(self, right: str, name: str) -> bool:
        """Return whether it has a right on a queue, or on a name that is published to."""
        return any(right in each.rights and topic_matches(each.queues, name) for each in self.rights)

    def filters(self, queue: str) -> tuple[str, ...]:
        """Return the filters that hide messages of a queue from it: what it sees matches all of them, whichever else it may do."""
        found = {each.filter for each in self.rights if each.filter is not None and topic_matches(each.queues, queue)}
        return tuple(sorted(found))

    def expiry(self, now_ms: int) -> AccessError | None:
        """Return why its tokens count no more; None while they do."""
        if self.expires_ms is None or now_ms < self.expires_ms:
            return None
        expired_at = datetime.fromtimestamp(self.expires_ms / 1_000, UTC).isoformat()
        return AccessError("TOKEN_EXPIRED", principal=self.name, expired_at=expired_at)

    @property
    def administers(self) -> bool:
        """Whether it may administer the journal."""
        return any(ADMINISTER in each.rights for each in self.rights)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageTypeDefinition:
    """A named column list and the topics whose messages have it."""

    name: str
    #: Spark DDL.
    columns: str
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueDefinition:
    """One queue: a view over the topics of one message type (R1). Fields are the keys of `QUEUE_KEYS`, and `columns`."""

    name: str
    message_type: str
    #: The columns of its message type, in Spark DDL, which its expressions may use; no key, since the message type has it.
    columns: str
    #: None for a dead-letter queue, which messages enter only by reference.
    underlying_topic: str | None
    default_publish_target: str | None
    semantics: str
    lease_period_ms: int
    lease_renewal_limit_ms: int
    max_backlog: int
    max_per_subscription_backlog: int
    fairness: str
    fairness_window_ms: int
    expiration_ms: int | None
    max_deliveries: int
    max_cancels: int
    retry_backoff: Backoff | None
    leasing: str
    target_queue_depth: int
    deferred_ack_expiration_ms: int
    recovery_point: str
    subscription_retention_ms: int
    filter: str | None
    priority: str | None
    order_key: str | None
    #: Most messages of one key in a lease; 0 for no limit.
    order_key_run: int
    #: A filter; what matches it is a barrier (R67).
    barrier: str | None
    dead_letter_retention_ms: int | None
    dead_letter_queue: str | None
    ownership: str
    initial_owner: str | None
    group_local_domain: str | None

    @property
    def at_most_once(self) -> bool:
        """Whether messages are removed when they are granted (R16)."""
        return self.semantics == AT_MOST_ONCE

    def takes(self, topic: str) -> bool:
        """Return whether messages of `topic` enter this queue."""
        return self.underlying_topic is not None and topic_matches(self.underlying_topic, topic)


@dataclass(frozen=True, slots=True, kw_only=True)
class Definitions:
    """Everything that is defined in a journal."""

    journal: JournalDefinition
    message_types: Mapping[str, MessageTypeDefinition]
    queues: Mapping[str, QueueDefinition]
    peers: Mapping[str, PeerDefinition]
    replication: ReplicationDefinition
    #: Without any, the token of who runs the coordinator has every right.
    principals: Mapping[str, PrincipalDefinition]
    #: The form that is stored and that `parse` reads.
    stored: Mapping[str, Any]
    #: The message type of each topic that is named, and of each pattern: rows of many topics are routed one topic at a time.
    _named: dict[str, MessageTypeDefinition] = field(init=False, repr=False, compare=False)
    _patterns: dict[str, MessageTypeDefinition] = field(init=False, repr=False, compare=False)
    #: The queues with a target depth, which few have. One that loses it has no inactive messages from then on.
    with_target_depth: tuple[str, ...] = field(init=False, repr=False, compare=False)
    queues_of: dict[str, list[str]] = field(init=False, repr=False, compare=False)
    #: The queue whose dead letters come to each dead-letter queue.
    _sources: dict[str | None, str] = field(init=False, repr=False, compare=False)
    _replicated: frozenset[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        entries = [(entry, kind) for kind in self.message_types.values() for entry in kind.topics]
        object.__setattr__(self, "_named", {entry: kind for entry, kind in entries if not is_pattern(entry)})
        object.__setattr__(self, "_patterns", {entry: kind for entry, kind in entries if is_pattern(entry)})
        limited = (name for name, queue in self.queues.items() if queue.target_queue_depth)
        object.__setattr__(self, "with_target_depth", tuple(limited))
        object.__setattr__(self, "queues_of", {})
        for name, queue in self.queues.items():
            self.queues_of.setdefault(queue.message_type, []).append(name)
        object.__setattr__(self, "_sources", {each.dead_letter_queue: name for name, each in self.queues.items()})
        object.__setattr__(self, "_replicated", frozenset(name for peer in self.peers.values() for name in peer.queues))

    def queue(self, name: str) -> QueueDefinition:
        """Return a queue by name; UNKNOWN_QUEUE names the nearest."""
        if name not in self.queues:
            raise ConfigError("UNKNOWN_QUEUE", queue=name, nearest=nearest(name, self.queues))
        return self.queues[name]

    def is_replicated(self, queue: str) -> bool:
        """Return whether the messages of a queue are owned by one of several instances."""
        return queue in self._replicated

    def principal_with(self, token_hash: str) -> PrincipalDefinition | None:
        """Return the principal of a token, by its hash; None for a token that nobody has."""
        return next((each for each in self.principals.values() if token_hash in each.token_hash), None)

    def may(self, principal: str | None, right: str, queue: str) -> bool:
        """Return whether somebody has a right on a queue: everybody has, where there are no principals."""
        if not self.principals:
            return True
        known = self.principals.get(principal or "")
        return known is not None and known.may(right, queue)

    def hiding(self, principal: str | None, queue: str) -> tuple[str, ...]:
        """Return the filters that hide messages of a queue from a principal."""
        known = self.principals.get(principal or "")
        return () if known is None else known.filters(queue)

    def source_of(self, queue: str) -> str | None:
        """Return the queue whose dead letters come to a queue; None for one that is no dead-letter queue."""
        return self._sources.get(queue)

    def message_type(self, name: str) -> MessageTypeDefinition:
        """Return a message type by name; UNKNOWN_MESSAGE_TYPE names the nearest."""
        if name not in self.message_types:
            raise ConfigError("UNKNOWN_MESSAGE_TYPE", message_type=name, nearest=nearest(name, self.message_types))
        return self.message_types[name]

    def route(self, topic: str) -> tuple[str, MessageTypeDefinition]:
        """Return the topic that a publish to `topic` is written under, and its message type (R62, R63).

        A publish to a queue's own name goes to its `default_publish_target`.
        """
        queue = self.queues.get(topic)
        if queue is not None and queue.underlying_topic is None:
            raise ConfigError("QUEUE_TAKES_NO_PUBLISH", queue=topic)
        if queue is not None and queue.default_publish_target is not None:
            topic = queue.default_publish_target
        return topic, self._message_type_of(topic)

    def _message_type_of(self, topic: str) -> MessageTypeDefinition:
        if not valid_name(topic):
            raise ConfigError("NAME_INVALID", what="topic", name=topic)
        if topic in self._named:
            return self._named[topic]
        homes = {kind.name: kind for pattern, kind in self._patterns.items() if topic_matches(pattern, topic)}
        if not homes:
            raise ConfigError("UNKNOWN_TOPIC", topic=topic, nearest=nearest(topic, [*self._named, *self.queues]))
        if len(homes) > 1:
            raise ConfigError("TOPIC_AMBIGUOUS", topic=topic, message_types=", ".join(homes))
        return next(iter(homes.values()))


#: RE2 by itself also writes to stderr what is wrong with a pattern; the errors that users get say it.
QUIET = re2.Options()
QUIET.log_errors = False


def is_pattern(entry: str) -> bool:
    """Return whether a topic entry is an RE2 pattern (DESIGN 15.8)."""
    return entry.startswith("^")


def topic_matches(entry: str, topic: str) -> bool:
    """Return whether a topic entry, a name or a pattern, takes the whole of `topic`."""
    return bool(re2.fullmatch(entry, topic)) if is_pattern(entry) else entry == topic
