"""The configuration of a journal: message types, queues, peers, principals, and the journal's own settings.

The stored form (in `definitions_applied`) is the user's own: nested tables of keys, whose durations are strings with units.
`parsing.parse` reads it and checks every key and every relation between definitions before anything is touched. A field that
a key fills says how, and what it means, for `sparkq options`, the reference and the advice in errors. Keys are stored for ever.

Also the rules that definitions of instances with shared queues must keep between them (R106, R113, R116; DESIGN 17.7).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import msgspec
import re2

from spark_queue.core.definitions.keys import (
    ADMINISTER,
    AT_LEAST_ONCE,
    AT_MOST_ONCE,
    DISTRIBUTED,
    FAST,
    GROUP_LOCAL,
    KEEP,
    LOCAL,
    PROPORTIONAL,
    READ,
    ROUND_ROBIN,
    STOP,
    Backoff,
    duration,
    key,
    one_of,
    parse_backoff,
    parse_depth,
    parse_entitlements,
    parse_expiry_ms,
    parse_idle_ms,
    parse_limit,
    parse_name,
    parse_pause_ms,
    parse_recovery_point,
    parse_renaming,
    parse_rights,
    parse_start,
    parse_text,
    parse_texts,
    parse_token_hashes,
    silence,
    text,
    valid_name,
)
from spark_queue.errors import AccessError, ConfigError, nearest


class Rule(StrEnum):
    """A rule between the definitions of instances."""

    BOTH_WAYS = "R113.1"
    SAME_QUEUES = "R113.2"
    SAME_DEFINITION = "R113.3"
    TOPICS = "R113.4"
    PATHS = "R113.5"
    SAME_MEMBERS = "R113.6"


#: Each rule in a sentence.
TEXTS = {
    Rule.BOTH_WAYS: "A queue that is pulled from a peer is pulled by that peer, too.",
    Rule.SAME_QUEUES: "A queue here is a queue there; a group_local one of the same domain (R116).",
    Rule.SAME_DEFINITION: "It has the same topic, semantics and dead-letter queue; a column of both is the same.",
    Rule.TOPICS: "Its topics are pulled with it. `sparkq apply` refuses definitions that break this.",
    Rule.PATHS: "What one instance publishes and settles reaches every other one, through whichever peers (R106).",
    Rule.SAME_MEMBERS: (
        "It has the same columns, filter, barrier and owners. They may differ: each says what enters from there (R129), and a "
        "message keeps all columns that it was published with."
    ),
}

#: Where one of these is broken, news about the queue would mean something else here, so they wait.
WITHHOLDING = frozenset({Rule.SAME_QUEUES, Rule.SAME_DEFINITION})

#: Where they are broken, the peer does not take over messages that are handed over to it.
_HINDERING = WITHHOLDING | {Rule.BOTH_WAYS}


@dataclass(frozen=True, slots=True, order=True)
class Disagreement:
    """How the definitions of two instances break a rule about a queue."""

    rule: str
    queue: str
    reason: str
    #: Since when it is known.
    since_ms: int = field(default=0, compare=False)

    def hinders(self, queue: str) -> bool:
        """Return whether messages of a queue that are given to the peer may not be taken over there."""
        return self.queue == queue and self.rule in _HINDERING


#: Message types that exist without being declared: their one column as Spark DDL.
BUILT_IN_COLUMNS = {"json": "value STRING", "binary": "value BINARY"}


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalDefinition:
    """Settings of the whole journal."""

    durability: str = key(one_of("os", "fsync"), "os", "What a commit survives: kills (os), or power loss too (fsync).")
    retention_ms: int | None = duration(None, "Age after which messages that no queue needs leave the journal; default: kept.")
    coordinator_idle_ms: int = key(
        parse_idle_ms, "60s", "A coordinator started on demand ends after this long without calls; 1s or more."
    )
    instance: str | None = key(
        parse_name, None, "Its name among the instances of replicated queues; cannot be changed once it is set."
    )
    group: str | None = key(parse_name, None, "The group of instances that it belongs to; default: its own name.")

    @property
    def durable(self) -> bool:
        """Whether commits must survive power loss."""
        return self.durability == "fsync"


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerDefinition:
    """Another instance that this one pulls from."""

    #: The name of the peer's instance.
    name: str
    journal: str = text("Path of the peer's journal; it is read, and never written.", required="the path of the peer's journal")
    topics: tuple[str, ...] = key(parse_texts, (), "Topics and patterns whose messages are pulled.")
    queues: tuple[str, ...] = key(
        parse_texts, (), "Queues whose outcomes and ownership are pulled, too; none: only messages (R114)."
    )
    passthrough: tuple[str, ...] = key(parse_texts, ("^.*",), "Instances and groups whose messages may come through this peer.")
    pull_interval_ms: int = duration("500ms", "How often its logs are read.")

    def takes(self, topic: str) -> bool:
        """Return whether messages of `topic` are pulled."""
        return any(topic_matches(entry, topic) for entry in self.topics)

    def pulls(self, underlying_topic: str) -> bool:
        """Return whether all messages of a queue's topic are pulled; a pattern is known where the peer lists it as it is."""
        return underlying_topic in self.topics if is_pattern(underlying_topic) else self.takes(underlying_topic)

    def passes(self, instance: str, group: str) -> bool:
        """Return whether messages of another instance, which is in a group, may come through this peer."""
        return any(topic_matches(entry, name) for entry in self.passthrough for name in (instance, group))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationDefinition:
    """Settings for all peers."""

    keep_ms: int = duration("7d", "How long message files wait at most for peers that have not pulled them.")
    transfer_after_ms: int = duration("10s", "Longest time that a message waits for its owner before it is asked for.")
    unreachable_after_ms: int = silence("30s", "Silence after which an instance counts as not reachable; 15s at least.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entitlement:
    """Some rights on some queues."""

    queues: str = key(parse_text, "^.*", "A queue, or a pattern that starts with ^; for write, of the names that are published to.")
    rights: tuple[str, ...] = key(
        parse_rights, None, "Of read, write, change and administer; the last is for the whole journal (R12).",
        required="a list of rights",
    )  # fmt: skip
    filter: str | None = text("With read: SQL expression; what does not match is hidden from the principal.")


@dataclass(frozen=True, slots=True, kw_only=True)
class PrincipalDefinition:
    """A caller that a token identifies, and its rights (R12)."""

    name: str
    token_hash: tuple[str, ...] = key(
        parse_token_hashes, None, "What `sparkq token new` printed; a list of two while one replaces the other.",
        required="the hash that `sparkq token new` prints",
    )  # fmt: skip
    #: As parsed; `parsing` makes entitlements of the tables.
    rights: tuple[Entitlement, ...] = key(
        parse_entitlements, None, "What it may do: a list of tables with the keys below.", required="a list of tables of rights"
    )
    expires_ms: int | None = key(parse_expiry_ms, None, "From this time on its tokens are refused, an ISO time; default: never.")

    def may(self, right: str, name: str) -> bool:
        """Return whether it has a right on a queue, or on a name that is published to."""
        return any(right in each.rights and topic_matches(each.queues, name) for each in self.rights)

    def filters(self, queue: str) -> tuple[str, ...]:
        """Return the filters that hide messages of a queue from it: the messages that it sees match all of them."""
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
    #: Of a followed table empty as long as nobody has looked at it: then all of its columns are meant.
    columns: str = key(
        parse_text,
        None,
        "The columns, in Spark DDL; required without `table`, whose columns are the default. Fixed for json and binary.",
    )
    topics: tuple[str, ...] = key(
        parse_texts,
        (),
        "Names, or RE2 patterns that start with ^ and match the whole topic; with `table` one name, default: the type's.",
    )
    #: Pairs of a name that rows bring and the column that it means.
    rename: tuple[tuple[str, str], ...] = key(
        parse_renaming, {}, 'Column names of published rows, and the columns that they mean, such as {topic = "subject"}.'
    )
    table: str | None = text("Path or URL of a Delta table that others write: the rows that they append are the messages (R141).")
    table_name: str | None = text(
        "With `table`, its name in a catalog, by which its location was found; kept where `table` was such a name, and then it is "
        "not asked for again."
    )
    from_: str = key(parse_start, "now", "With `table`, where it is followed from: now, beginning, a version, an ISO time (R143).")
    relocate_after_ms: int | None = key(
        parse_pause_ms, None,
        "With `table`, how long after a file was removed from it its messages are copied, or let go where no queue needs them; "
        "default: a third of the time for which the table keeps it (R151, R152).",
    )  # fmt: skip
    on_change: str = key(
        one_of(STOP, KEEP), STOP, "With `table`, what a commit does that takes rows away or rewrites them: stop, or keep (R146)."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueDefinition:
    """One queue: a view over the topics of one message type (R1)."""

    name: str
    #: The columns of its message type, in Spark DDL, which its expressions may use; no key, since the message type has it.
    columns: str
    message_type: str = text("The message type; found by the underlying topic when absent.")
    #: None for a dead-letter queue, which messages enter only by reference.
    underlying_topic: str | None = text("A topic, or a pattern that starts with ^; default: the queue's name (R61).")
    default_publish_target: str | None = text("Where a publish to the queue's name goes; required with a pattern (R62).")
    semantics: str = key(one_of(AT_LEAST_ONCE, AT_MOST_ONCE), AT_LEAST_ONCE, "Leased, then removed; or removed when granted (R14).")
    lease_period_ms: int = duration("60s", "How long a lease lasts unless it is renewed (R15).")
    lease_renewal_limit_ms: int = duration("1h", "How long a living reader may go on renewing one lease.")
    max_backlog: int = key(parse_limit, 0, "Most messages leased from the whole queue; 0 for no limit (R31).")
    max_per_subscription_backlog: int = key(parse_limit, 0, "Most messages leased to one subscription; 0 for no limit (R24).")
    fairness: str = key(
        one_of(FAST, ROUND_ROBIN, PROPORTIONAL), PROPORTIONAL, "Who is next (R32); at-most-once: round-robin (R34)."
    )
    fairness_window_ms: int = duration("1s", "How long after its last poll a subscription's part waits for it.")
    expiration_ms: int | None = duration(None, "Age since it entered after which what is not leased is removed (R50, R51).")
    max_deliveries: int = key(parse_limit, 0, "Deliveries after which a returned message is a dead letter; 0 for none (R54).")
    max_cancels: int = key(parse_limit, 0, "Times that a message may be returned by cancel; 0 for no limit (R55).")
    retry_backoff: Backoff | None = key(  # noqa: RUF009 - it gives a field.
        parse_backoff,
        None,
        'Delay of a cancel that names none: "30s", or "1s..5m x2", growing by factor 2. Without it there is none, and what fails '
        "alone waits as by 1s..5m x2.",
    )
    filter: str | None = text("SQL expression: only messages that match it enter the queue (R65).")
    priority: str | None = text("SQL expression: highest first, the oldest first within a value; NULL comes last (R66).")
    order_key: str | None = text("SQL expression: the messages of one key go to one lease at a time, oldest first.")
    order_key_run: int = key(parse_limit, 0, "Most messages of one key in a lease; 0 for no limit, 1 for one at a time.")
    leasing: str = key(one_of("sublet", "strict"), "sublet", "Who may settle a leased message: anyone, or only its holder (R38).")
    target_queue_depth: int = key(parse_depth, 0, "Most active messages, 1000 or more; younger ones are inactive. 0: all (R79).")
    deferred_ack_expiration_ms: int = duration("1d", "How long an acknowledge of an inactive message counts (R83).")
    recovery_point: str = key(
        parse_recovery_point, "epoch", "Where it starts: epoch, now, creation, a bookmark, an ISO time (R90)."
    )
    subscription_retention_ms: int = duration("7d", "How long a subscription without a running query is remembered.")
    barrier: str | None = text("A filter: what matches is held until all before it is gone, then goes to every subscription (R67).")
    ownership: str = key(
        one_of(DISTRIBUTED, GROUP_LOCAL, LOCAL), DISTRIBUTED, "Which instance owns a message where queues replicate (R102)."
    )
    initial_owner: str | None = key(
        parse_name, None, "With group_local: the instance that every message belongs to at first (R115)."
    )
    group_local_domain: str | None = key(
        parse_name, None, "With group_local: tells it from others of its name; default: its group (R116)."
    )
    dead_letter_queue: str | None = text("The queue that receives this queue's dead letters by reference.")
    dead_letter_retention_ms: int | None = duration(None, "Time after which a dead letter is removed for good; default: never.")

    @property
    def at_most_once(self) -> bool:
        """Whether messages are removed when they are granted (R16)."""
        return self.semantics == AT_MOST_ONCE

    def takes(self, topic: str) -> bool:
        """Return whether messages of `topic` enter this queue."""
        return self.underlying_topic is not None and topic_matches(self.underlying_topic, topic)


#: Tables of a definition file by their heads; of journal and replication there is one, of others one for each name.
TABLES: Mapping[str, type] = {
    "journal": JournalDefinition, "message_types": MessageTypeDefinition, "queues": QueueDefinition, "peers": PeerDefinition,
    "replication": ReplicationDefinition, "principals": PrincipalDefinition,
}  # fmt: skip
UNNAMED_TABLES = ("journal", "replication")


@dataclass(frozen=True, slots=True, kw_only=True)
class Definitions:
    """Everything that is defined in a journal."""

    journal: JournalDefinition
    message_types: Mapping[str, MessageTypeDefinition]
    queues: Mapping[str, QueueDefinition]
    peers: Mapping[str, PeerDefinition]
    replication: ReplicationDefinition
    #: Without any, the token of the user who runs the coordinator has every right.
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
    replicated: frozenset[str] = field(init=False, repr=False, compare=False)

    @property
    def digest(self) -> str:
        """A text that tells these definitions from any others."""
        return hashlib.sha256(msgspec.json.encode(self.stored, order="sorted")).hexdigest()

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
        object.__setattr__(self, "replicated", frozenset(name for peer in self.peers.values() for name in peer.queues))

    def queue(self, name: str) -> QueueDefinition:
        """Return a queue by name; UNKNOWN_QUEUE names the nearest."""
        if name not in self.queues:
            raise ConfigError("UNKNOWN_QUEUE", queue=name, nearest=nearest(name, self.queues))
        return self.queues[name]

    def is_replicated(self, queue: str) -> bool:
        """Return whether the messages of a queue are owned by one of several instances."""
        return queue in self.replicated

    def first_owner(self, queue: QueueDefinition, origin: str) -> str:
        """Return the first owner of messages of a replicated queue that were published to `origin` (R102, R115).

        One that nobody hears of here could never get them: then it is the origin.
        """
        is_near = queue.initial_owner in self.peers or queue.initial_owner == self.journal.instance
        return queue.initial_owner if queue.initial_owner is not None and is_near else origin

    def principal_with(self, token_hash: str) -> PrincipalDefinition | None:
        """Return the principal of a token, by its hash; None for a token that nobody has."""
        return next((each for each in self.principals.values() if token_hash in each.token_hash), None)

    def may(self, principal: str | None, right: str, queue: str) -> bool:
        """Return whether somebody has a right on a queue: everybody has, where there are no principals."""
        if not self.principals:
            return True
        known = self.principals.get(principal or "")
        return known is not None and known.may(right, queue)

    def may_consume(self, principal: str | None, queue: QueueDefinition) -> bool:
        """Return whether somebody may be given messages of a queue, be it that some are hidden."""
        # No filter is evaluated in a dead-letter queue, so nothing of it could be hidden.
        hides = queue.underlying_topic is None and bool(self.row_filters(principal, queue.name))
        return self.may(principal, READ, queue.name) and not hides

    def row_filters(self, principal: str | None, queue: str) -> tuple[str, ...]:
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

    @property
    def published_types(self) -> tuple[str, ...]:
        """Names of the message types whose messages are published: those of the others are rows of tables that they follow."""
        return tuple(name for name, each in self.message_types.items() if each.table is None)

    def route(self, topic: str) -> tuple[str, MessageTypeDefinition]:
        """Return the topic that a publish to `topic` is written under, and its message type (R62, R63).

        A publish to a queue's own name goes to its `default_publish_target`; to a followed table nobody publishes (R149).
        """
        topic, found = self.locate(topic)
        if found.table is not None:
            raise ConfigError("TOPIC_FOLLOWED", topic=topic, message_type=found.name, table=found.table)
        return topic, found

    def locate(self, topic: str) -> tuple[str, MessageTypeDefinition]:
        """Return the topic that a name means, a queue's or its own, and its message type."""
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


#: RE2 by itself also writes the fault of a pattern to stderr; the errors that users get say it.
QUIET = re2.Options()
QUIET.log_errors = False


def is_pattern(entry: str) -> bool:
    """Return whether a topic entry is an RE2 pattern (DESIGN 15.8)."""
    return entry.startswith("^")


def topic_matches(entry: str, topic: str) -> bool:
    """Return whether a topic entry, a name or a pattern, matches the whole of `topic`."""
    return bool(re2.fullmatch(entry, topic)) if is_pattern(entry) else entry == topic
