"""How the keys of a definition file are read, and how a definition says of its fields which keys fill them (DESIGN 15.7)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from functools import cache
from typing import Any

AT_LEAST_ONCE = "at-least-once"
AT_MOST_ONCE = "at-most-once"

DISTRIBUTED = "distributed"
GROUP_LOCAL = "group_local"
LOCAL = "local"

#: What a commit that changes rows of a followed table does: the type stops before it, or it passes (R146).
STOP = "stop"
KEEP = "keep"

FAST = "fast"
ROUND_ROBIN = "round-robin"
PROPORTIONAL = "proportional"

#: The rights of a principal (R12): consume a queue; publish to its name; change its messages; and everything about the journal.
READ, WRITE, CHANGE, ADMINISTER = RIGHTS = ("read", "write", "change", "administer")

#: Tokens that a principal has at once, while one replaces the other.
_TOKENS_MAX = 2

#: How often an instance renews its beacon, and looks at those of its peers, in milliseconds.
BEACON_PERIOD_MS = 5_000

#: Three of them: one that comes late is no silence.
SILENCE_LEAST_MS = 3 * BEACON_PERIOD_MS

#: How long a coordinator awaits its first call at least, in milliseconds: its starter has to find it first.
IDLE_LEAST_MS = 1_000

#: Longest duration: a century, so that no time stored with it can overflow.
DURATION_LIMIT_MS = 36_500 * 86_400_000

#: The largest number that every store and wire format holds.
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


def parse_pause_ms(value: Any) -> int:
    """Parse a duration that may be none at all, ``"0s"``."""
    return 0 if value in ("0s", "0ms") else parse_duration_ms(value)


def parse_silence_ms(value: Any) -> int:
    """Parse a silence: a beacon may be late, or lost, without its writer being gone."""
    if (silence_ms := parse_duration_ms(value)) < SILENCE_LEAST_MS:
        raise ValueError(f'a duration of {SILENCE_LEAST_MS // 1_000} s at least, such as "30s"')
    return silence_ms


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


def parse_limit(value: Any) -> int:
    """Parse a limit, where 0 is none."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _LIMIT_MAX:
        raise ValueError("a whole number, 0 for no limit, of at most 63 bits")
    return value


def parse_name(value: Any) -> str:
    """Parse a name that follows the topic grammar."""
    if not isinstance(value, str) or not valid_name(value):
        raise ValueError("a name of letters, digits, dots, underscores and hyphens")
    return value


def parse_depth(value: Any) -> int:
    """Parse the target depth of a queue."""
    if (depth := parse_limit(value)) and depth < _DEPTH_MIN:
        raise ValueError(f"{_DEPTH_MIN} or more, or 0 for no limit (R79)")
    return depth


def parse_text(value: Any) -> str:
    """Parse a text that is not empty."""
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


def parse_recovery_point(value: Any) -> str:
    """Parse a recovery point, which is resolved once the queue begins (R90)."""
    if value in ("epoch", "now", "creation") or (isinstance(value, str) and value.isdecimal()):
        return str(value)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return str(value)
    try:
        parse_timestamp_ms(parse_text(value))
    except ValueError:
        raise ValueError("epoch, now, creation, a bookmark, or an ISO-8601 time with an offset") from None
    return str(value)


def parse_start(value: Any) -> str:
    """Parse where a followed table is followed from, which is resolved once the message type is applied (R143)."""
    if value == "beginning":
        return str(value)
    try:
        start = parse_recovery_point(value)
    except ValueError:
        start = ""
    if not start or start in ("epoch", "creation"):
        raise ValueError("now, beginning, a version, or an ISO-8601 time with an offset") from None
    return start


def parse_texts(value: Any) -> tuple[str, ...]:
    """Parse a list of texts."""
    if not isinstance(value, list | tuple) or not all(isinstance(entry, str) and entry for entry in value):
        raise ValueError("a list of texts")
    return tuple(value)


def parse_renaming(value: Any) -> tuple[tuple[str, str], ...]:
    """Parse the columns that names of incoming rows mean; a name may be empty, as in the header of a file."""
    if not isinstance(value, Mapping) or not all(isinstance(each, str) for pair in value.items() for each in pair):
        raise ValueError('a table of texts, such as {topic = "subject"}')
    return tuple(value.items())


def parse_token_hashes(value: Any) -> tuple[str, ...]:
    """Parse the hash of a token, or of two."""
    hashes = (value,) if isinstance(value, str) else parse_texts(value)
    if not 1 <= len(hashes) <= _TOKENS_MAX or not all(re.fullmatch(r"[0-9a-f]{64}", each) for each in hashes):
        raise ValueError("the hash that `sparkq token new` printed, or a list of two while one token takes the other's place")
    return hashes


def parse_entitlements(value: Any) -> tuple[Mapping[str, Any], ...]:
    """Parse a list of tables of rights, each of which is read by its own keys."""
    if not isinstance(value, list | tuple) or not value or not all(isinstance(entry, Mapping) for entry in value):
        raise ValueError('a list of tables, such as [{queues = "ORDERS", rights = ["read"]}]')
    return tuple(value)


def parse_expiry_ms(value: Any) -> int:
    """Parse a time as a file says it."""
    return parse_timestamp_ms(parse_text(value))


def parse_idle_ms(value: Any) -> int:
    """Parse how long a coordinator awaits a call, `IDLE_LEAST_MS` at least, into milliseconds."""
    idle_ms = parse_duration_ms(value)
    if idle_ms < IDLE_LEAST_MS:
        raise ValueError('a duration of "1s" or more')
    return idle_ms


def parse_rights(value: Any) -> tuple[str, ...]:
    """Parse a list of rights."""
    if not isinstance(value, list | tuple) or not value or not all(each in RIGHTS for each in value):
        raise ValueError(f"a list of {', '.join(RIGHTS)}")
    return tuple(value)


def one_of(*allowed: str) -> Callable[[Any], str]:
    """Return the parser of a text that is one of some."""

    def parse(value: Any) -> str:
        if value not in allowed:
            raise ValueError(" or ".join(f'"{entry}"' for entry in allowed))
        return str(value)

    return parse


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key of a definition file."""

    name: str
    #: Attribute of the definition that holds the parsed value; durations carry their unit, and a word of Python's an underscore.
    field: str
    parse: Callable[[Any], Any]
    #: The value of an absent key; None where absence means none.
    default: Any
    about: str
    #: A description of the value that must be given; None for a key that may be absent.
    required: str | None
    #: The parsed default: thousands of queues leave most keys out.
    value: Any


def key(parse: Callable[[Any], Any], default: Any, about: str, *, required: str | None = None) -> Any:
    """Return the field of a definition that a key of the file fills: how it is read, what absence means, and its meaning."""
    facts = {"parse": parse, "default": default, "about": about, "required": required}
    if required is not None:
        return field(metadata=facts)
    return field(default=None if default is None else parse(default), metadata=facts)


def duration(default: str | None, about: str) -> Any:
    """Return the field of a duration; it is named with its unit, and its key without."""
    return key(parse_duration_ms, default, about)


def silence(default: str, about: str) -> Any:
    """Return the field of how long a beacon may be silent, `SILENCE_LEAST_MS` at least."""
    return key(parse_silence_ms, default, about)


def text(about: str, *, required: str | None = None) -> Any:
    """Return the field of a text that is not empty."""
    return key(parse_text, None, about, required=required)


@cache
def keys_of(definition: type) -> tuple[Key, ...]:
    """Return the keys that fill the fields of a kind of definition, in their order."""
    return tuple(
        Key(name=each.name.removesuffix("_ms").removesuffix("_"), field=each.name, value=each.default, **each.metadata)
        for each in fields(definition)
        if each.metadata
    )
