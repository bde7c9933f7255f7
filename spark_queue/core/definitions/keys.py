"""The keys of a definition file, as one table: parsing, defaults and their meaning (DESIGN 15.7).

It feeds validation, `sparkq options`, the reference's tables and did-you-mean errors. Key names are stored for ever.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

AT_LEAST_ONCE = "at-least-once"
AT_MOST_ONCE = "at-most-once"

DISTRIBUTED = "distributed"
GROUP_LOCAL = "group_local"
LOCAL = "local"

FAST = "fast"
ROUND_ROBIN = "round-robin"
PROPORTIONAL = "proportional"

#: What a principal may do (R12): consume a queue; publish to its name; change what is in it; and everything about the journal.
READ, WRITE, CHANGE, ADMINISTER = RIGHTS = ("read", "write", "change", "administer")

#: Tokens that a principal has at once: one takes the other's place.
_TOKENS_MAX = 2

#: Longest duration: a century, so that no time stored with it can overflow.
DURATION_LIMIT_MS = 36_500 * 86_400_000

#: What every store and wire format holds as a number.
_LIMIT_MAX = 2**63 - 1

#: Smallest target depth of a queue: several seconds of traffic should fit in.
_DEPTH_MIN = 1_000

#: A topic, queue, message type, subscription, publisher or instance name.
NAME_PATTERN = re.compile(r"[A-Za-z0-9._-]{1,249}")

_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def valid_name(name: object) -> bool:
    """Return whether a name is a text that follows the topic grammar (DESIGN 4)."""
    return isinstance(name, str) and NAME_PATTERN.fullmatch(name) is not None and name not in {".", ".."}


def parse_duration_ms(value: Any) -> int:
    """Parse a duration such as ``"60s"``, ``"1.5h"`` or ``"250ms"`` into milliseconds."""
    match = re.fullmatch(r"\s*(\d{1,15}(?:\.\d+)?)\s*(ms|s|m|h|d)\s*", value) if isinstance(value, str) else None
    duration_ms = 0 if match is None else round(float(match[1]) * _UNIT_MS[match[2]])
    if not 1 <= duration_ms <= DURATION_LIMIT_MS:
        raise ValueError('a duration with a unit, such as "60s", "5m", "1h" or "7d", up to 36500d')
    return duration_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """How long a message waits after a cancel that names no delay: longer each time, up to a maximum."""

    first_ms: int
    max_ms: int
    factor: float

    def delay_ms(self, times: int) -> int:
        """Return the delay after `times` earlier ones, in milliseconds."""
        try:
            return min(self.max_ms, round(self.first_ms * self.factor**times))
        except OverflowError:
            return self.max_ms


#: Fastest growth of a backoff: beyond it, a factor is a slip.
_BACKOFF_FACTOR_MAX = 100


def parse_backoff(value: Any) -> Backoff:
    """Parse a backoff: ``"30s"`` for always the same, or ``"1s..5m x2"`` for 1 s, 2 s, 4 s and so on, 5 min at most."""
    wanted = ValueError('a delay such as "30s", or first..longest and a factor from 1 to 100, such as "1s..5m x2"')
    pattern = r"(\S+?)(?:\.\.(\S+)\s+x(\d{1,3}(?:\.\d{1,9})?))?"
    match = re.fullmatch(pattern, value.strip()) if isinstance(value, str) else None
    if match is None:
        raise wanted
    first, longest, factor = match.groups()
    try:
        first_ms = parse_duration_ms(first)
        max_ms = first_ms if longest is None else parse_duration_ms(longest)
    except ValueError:
        raise wanted from None
    backoff = Backoff(first_ms=first_ms, max_ms=max_ms, factor=float(factor or 1))
    if not (first_ms <= max_ms and 1 <= backoff.factor <= _BACKOFF_FACTOR_MAX):
        raise wanted
    return backoff


def _parse_limit(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _LIMIT_MAX:
        raise ValueError("a whole number, 0 for no limit, of at most 63 bits")
    return value


def _parse_name(value: Any) -> str:
    if not isinstance(value, str) or not valid_name(value):
        raise ValueError("a name of letters, digits, dots, underscores and hyphens")
    return value


def _parse_depth(value: Any) -> int:
    if (depth := _parse_limit(value)) and depth < _DEPTH_MIN:
        raise ValueError(f"{_DEPTH_MIN} or more, or 0 for no limit (R79)")
    return depth


def _parse_text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("a text")
    return value


def parse_timestamp_ms(value: str) -> int:
    """Parse an ISO-8601 time with an offset into milliseconds since 1970 UTC."""
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ValueError("an ISO-8601 time with an offset, such as 2011-12-09T12:50:00+00:00")
    return round(moment.timestamp() * 1000)


def _parse_recovery_point(value: Any) -> str:
    if value in ("epoch", "now", "creation") or (isinstance(value, str) and value.isdecimal()):
        return str(value)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return str(value)
    try:
        parse_timestamp_ms(_parse_text(value))
    except ValueError:
        raise ValueError("epoch, now, creation, a bookmark, or an ISO-8601 time with an offset") from None
    return str(value)


def _parse_texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(entry, str) and entry for entry in value):
        raise ValueError("a list of texts")
    return tuple(value)


def _parse_token_hashes(value: Any) -> tuple[str, ...]:
    hashes = (value,) if isinstance(value, str) else _parse_texts(value)
    if not 1 <= len(hashes) <= _TOKENS_MAX or not all(re.fullmatch(r"[0-9a-f]{64}", each) for each in hashes):
        raise ValueError("the hash that `sparkq token new` printed, or a list of two while one token takes the other's place")
    return hashes


def _parse_entitlements(value: Any) -> tuple[Mapping[str, Any], ...]:
    if not isinstance(value, list | tuple) or not value or not all(isinstance(entry, Mapping) for entry in value):
        raise ValueError('a list of tables, such as [{queues = "ORDERS", rights = ["read"]}]')
    return tuple(value)


def _parse_moment(value: Any) -> int:
    return parse_timestamp_ms(_parse_text(value))


def _parse_rights(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not value or not all(each in RIGHTS for each in value):
        raise ValueError(f"a list of {', '.join(RIGHTS)}")
    return tuple(value)


def _one_of(*allowed: str) -> Callable[[Any], str]:
    def parse(value: Any) -> str:
        if value not in allowed:
            raise ValueError(" or ".join(f'"{entry}"' for entry in allowed))
        return str(value)

    return parse


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key of a definition file."""

    name: str
    #: Attribute of the definition that holds the parsed value; durations carry their unit.
    field: str
    parse: Callable[[Any], Any]
    #: What stands in the file when the key is absent; None where absence means none.
    default: Any
    about: str
    #: The parsed default: thousands of queues leave most keys out.
    value: Any = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", None if self.default is None else self.parse(self.default))


def _key(name: str, parse: Callable[[Any], Any], default: Any, about: str) -> Key:
    return Key(name=name, field=f"{name}_ms" if parse is parse_duration_ms else name, parse=parse, default=default, about=about)


JOURNAL_KEYS = (
    _key("durability", _one_of("os", "fsync"), "os", "What a commit survives: kills (os), or power loss too (fsync)."),
    _key("retention", parse_duration_ms, None, "Age after which messages that no queue needs leave the journal; default: kept."),
    _key("coordinator_idle", parse_duration_ms, "60s", "A coordinator started on demand ends after this long without calls."),
    _key("instance", _parse_name, None, "Its name among the instances of replicated queues; never changes once it is set."),
    _key("group", _parse_name, None, "The group of instances that it belongs to; default: its own name."),
)

PEER_KEYS = (
    _key("journal", _parse_text, None, "Path of the peer's journal; it is read, and never written."),
    _key("topics", _parse_texts, (), "Topics and patterns whose messages are pulled."),
    _key("queues", _parse_texts, (), "Queues whose outcomes and ownership are pulled, too; none: only messages (R114)."),
    _key("passthrough", _parse_texts, ("^.*",), "Instances and groups whose messages may come through this peer."),
    _key("pull_interval", parse_duration_ms, "500ms", "How often its logs are read."),
)

REPLICATION_KEYS = (
    _key("keep", parse_duration_ms, "7d", "How long message files wait at most for peers that have not pulled them."),
    _key("transfer_after", parse_duration_ms, "10s", "Longest time that a message waits for its owner before it is asked for."),
    _key("unreachable_after", parse_duration_ms, "30s", "Silence after which an instance counts as not reachable."),
)

PRINCIPAL_KEYS = (
    _key("token_hash", _parse_token_hashes, None, "What `sparkq token new` printed; a list of two while one replaces the other."),
    _key("rights", _parse_entitlements, None, "What it may do: a list of tables with the keys below."),
    Key(
        name="expires", field="expires_ms", parse=_parse_moment, default=None,
        about="From this time on its tokens are refused, an ISO time; default: never.",
    ),
)  # fmt: skip

ENTITLEMENT_KEYS = (
    _key("queues", _parse_text, "^.*", "A queue, or a pattern that starts with ^; for write, of the names that are published to."),
    _key("rights", _parse_rights, None, "Of read, write, change and administer; the last is for the whole journal (R12)."),
    _key("filter", _parse_text, None, "With read: SQL expression; what does not match is hidden from the principal."),
)

MESSAGE_TYPE_KEYS = (
    _key("columns", _parse_text, None, "The columns, in Spark DDL. Fixed for json and binary."),
    _key("topics", _parse_texts, (), "Names, or RE2 patterns that start with ^ and match the whole topic."),
)

QUEUE_KEYS = (
    _key("message_type", _parse_text, None, "The message type; found by the underlying topic when absent."),
    _key("underlying_topic", _parse_text, None, "A topic, or a pattern that starts with ^; default: the queue's name (R61)."),
    _key("default_publish_target", _parse_text, None, "Where a publish to the queue's name goes; required with a pattern (R62)."),
    _key("semantics", _one_of(AT_LEAST_ONCE, AT_MOST_ONCE), AT_LEAST_ONCE, "Leased, then removed; or removed when granted (R14)."),
    _key("lease_period", parse_duration_ms, "60s", "How long a lease lasts unless it is renewed (R15)."),
    _key("lease_renewal_limit", parse_duration_ms, "1h", "How long a living reader may go on renewing one lease."),
    _key("max_backlog", _parse_limit, 0, "Most messages leased from the whole queue; 0 for no limit (R31)."),
    _key("max_per_subscription_backlog", _parse_limit, 0, "Most messages leased to one subscription; 0 for no limit (R24)."),
    _key("fairness", _one_of(FAST, ROUND_ROBIN, PROPORTIONAL), PROPORTIONAL, "Who is next (R32); at-most-once: round-robin (R34)."),
    _key("fairness_window", parse_duration_ms, "1s", "How long after its last poll a subscription's part waits for it."),
    _key("expiration", parse_duration_ms, None, "Age since it entered after which what is not leased is removed (R50, R51)."),
    _key("max_deliveries", _parse_limit, 0, "Deliveries after which a returned message is a dead letter; 0 for none (R54)."),
    _key("max_cancels", _parse_limit, 0, "Times that a message may be returned by cancel; 0 for no limit (R55)."),
    _key("retry_backoff", parse_backoff, None, 'Delay of a cancel that names none: "30s", or "1s..5m x2", growing by factor 2.'),
    _key("filter", _parse_text, None, "SQL expression: only messages that match it enter the queue (R65)."),
    _key("priority", _parse_text, None, "SQL expression: highest first, the oldest first within a value; NULL comes last (R66)."),
    _key("order_key", _parse_text, None, "SQL expression: the messages of one key go to one lease at a time, oldest first."),
    _key("order_key_run", _parse_limit, 0, "Most messages of one key in a lease; 0 for no limit, 1 for one at a time."),
    _key("leasing", _one_of("sublet", "strict"), "sublet", "Who may settle a leased message: anybody, or only its holder (R38)."),
    _key("target_queue_depth", _parse_depth, 0, "Most active messages, 1000 or more; younger ones wait, unseen. 0: all (R79)."),
    _key("deferred_ack_expiration", parse_duration_ms, "1d", "How long an acknowledge of an inactive message counts (R83)."),
    _key("recovery_point", _parse_recovery_point, "epoch", "Where it starts: epoch, now, creation, a bookmark, an ISO time (R90)."),
    _key("subscription_retention", parse_duration_ms, "7d", "How long a subscription without a running query is remembered."),
    _key("barrier", _parse_text, None, "A filter: what matches is held until all before it is gone, then goes to everybody (R67)."),
    _key("ownership", _one_of(DISTRIBUTED, GROUP_LOCAL, LOCAL), DISTRIBUTED, "Whose a message is where queues replicate (R102)."),
    _key("initial_owner", _parse_name, None, "With group_local: the instance that every message belongs to at first (R115)."),
    _key("group_local_domain", _parse_name, None, "With group_local: tells it from others of its name; default: its group (R116)."),
    _key("dead_letter_queue", _parse_text, None, "The queue that receives this queue's dead letters by reference."),
    _key("dead_letter_retention", parse_duration_ms, None, "Time after which a dead letter is removed for good; default: never."),
)  # fmt: skip
