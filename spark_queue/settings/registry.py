"""The registry of Spark options: one row each, from which validation, help texts and the reference's tables come.

An option names the purposes it has a meaning for; two options that fill one field exclude one another.

The tables of options and keys that people read: ``sparkq options`` and the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any

from spark_queue.core.definitions.definition import TABLES, UNNAMED_TABLES, Entitlement
from spark_queue.core.definitions.keys import Key, keys_of, parse_duration_ms, valid_name
from spark_queue.errors import nearest
from spark_queue.settings.shown import shown
from spark_queue.settings.timestamps import parse_timestamp, to_ms
from spark_queue.settings.types import AUTO, EXPLICIT, VIEWS, Position, Purpose


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryRow:
    """One line of the tables that people read."""

    name: str
    default: str
    applies_to: str
    about: str


def option_rows() -> list[RegistryRow]:
    """List the Spark options for people, in the registry's order."""
    about = "Options of the object store, passed to every reader and writer."
    storage = RegistryRow(name="storage.*", default="none", applies_to="all", about=about)
    return [_option_row(option) for option in OPTIONS[:1]] + [storage] + [_option_row(option) for option in OPTIONS[1:]]


def _option_row(option: Option) -> RegistryRow:
    if isinstance(option.default, Mapping):
        default = ", ".join(f"{value} ({purpose})" for purpose, value in option.default.items())
    else:
        default = "required" if option.required else option.default or "none"
    purposes = [str(purpose) for purpose in Purpose if purpose in option.purposes]
    applies_to = "all" if len(purposes) == len(Purpose) else ", ".join(purposes)
    return RegistryRow(name=option.name, default=default, applies_to=applies_to, about=option.about)


def key_rows() -> list[RegistryRow]:
    """List the keys of a definition file for people, by table."""
    heads = {f"[{head}]" if head in UNNAMED_TABLES else f"[{head}.NAME]": kind for head, kind in TABLES.items()}
    heads["[[principals.NAME.rights]]"] = Entitlement
    return [_key_row(key, where) for where, kind in heads.items() for key in keys_of(kind)]


def _key_row(key: Key, where: str) -> RegistryRow:
    default = "none" if key.default in (None, (), {}) else shown(key.default)
    return RegistryRow(name=key.name, default=default, applies_to=where, about=key.about)


#: Most digits of a whole number of 63 bits.
_DIGITS = 19


@dataclass(frozen=True, slots=True)
class Option:
    """One Spark option."""

    #: As a user writes it; Spark hands it over in lower case.
    name: str
    purposes: Collection[Purpose]
    #: Turns the text into a value; raises ValueError with the expected form.
    parse: Callable[[str], Any]
    #: The text that stands for an absent option, by purpose where it differs; None where absence means none.
    default: str | Mapping[Purpose, str] | None
    about: str
    _: KW_ONLY
    #: Attribute of the typed options, where it is not the name; options that share one exclude one another.
    attribute: str | None = None
    required: bool = False

    @property
    def field(self) -> str:
        """Attribute of the typed options."""
        return self.attribute or "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in self.name)

    def default_for(self, purpose: Purpose) -> str | None:
        """Return the text that stands for an absent option."""
        return self.default.get(purpose) if isinstance(self.default, Mapping) else self.default


def _parse_bookmark(value: str) -> Position:
    lowered = value.strip().lower()
    if lowered == "earliest":
        return Position(kind="earliest")
    if lowered == "latest":
        return Position(kind="latest")
    try:
        return Position(kind="bookmark", value=_whole(0)(lowered))
    except ValueError as expected:
        raise ValueError(f"earliest, latest or a bookmark ({expected})") from None


def _parse_position_time(value: str) -> Position:
    return Position(kind="timestamp", value=to_ms(parse_timestamp(value)))


def _parse_text(value: str) -> str:
    if not value.strip():
        raise ValueError("a text that is not empty")
    return value.strip()


def _parse_name(value: str) -> str:
    if not valid_name(value):
        raise ValueError("a name: 1 to 249 characters of A-Z a-z 0-9 . _ -")
    return value


def _parse_columns(value: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in value.split(","))
    if not all(names):
        raise ValueError("column names separated by commas")
    return names


def _parse_compare(value: str) -> str:
    lowered = value.strip().lower()
    if lowered not in ("rows", "version"):
        raise ValueError("rows or version")
    return lowered


def _parse_boolean(value: str) -> bool:
    if value.strip().lower() not in ("true", "false"):
        raise ValueError("true or false")
    return value.strip().lower() == "true"


def _whole(least: int) -> Callable[[str], int]:
    def parse(value: str) -> int:
        # Python refuses to read thousands of digits, in words that are none of ours.
        if not value.strip().isdecimal() or len(value.strip()) > _DIGITS or not least <= int(value) < 2**63:
            raise ValueError(f"a whole number from {least}, of at most 63 bits")
        return int(value)

    return parse


def _one_of(*allowed: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if value.lower() not in allowed:
            raise ValueError(f"one of {', '.join(allowed)}.{nearest(value, allowed)}")
        return value.lower()

    return parse


_ALL = frozenset(Purpose)
_READS_OF_ROWS = frozenset({Purpose.QUEUE_STREAM, Purpose.TOPIC_STREAM, Purpose.TOPIC_BATCH})
_READS_OF_TOPICS = frozenset({Purpose.TOPIC_STREAM, Purpose.TOPIC_BATCH})
_WRITES = frozenset({Purpose.WRITE_BATCH, Purpose.WRITE_STREAM})
_STARTS = {Purpose.TOPIC_STREAM: "latest", Purpose.TOPIC_BATCH: "earliest"}

OPTIONS = (
    Option("journal", _ALL, _parse_text, None, "Path of the journal; also load(path), save(path), start(path).", required=True),
    Option(
        "coordinator",
        _ALL,
        _parse_text,
        None,
        "Addresses of coordinators on other hosts, such as a:7337,b:7337; default: found or started here.",
    ),
    Option(
        "tokenFile",
        _ALL,
        _parse_text,
        None,
        "File on the driver with the caller's token, read again when the token is refused; default: the environment's.",
    ),
    Option("queue", {Purpose.QUEUE_STREAM}, _parse_name, None, "The queue to consume.", required=True),
    Option("queue", {Purpose.VIEW_BATCH}, _parse_name, None, "The queue to look at; may be absent for history and status."),
    Option(
        "subscription",
        {Purpose.QUEUE_STREAM},
        _parse_name,
        None,
        "Name of this consumer; one for each running query.",
        required=True,
    ),
    Option(
        "ackMode",
        {Purpose.QUEUE_STREAM},
        _one_of(AUTO, EXPLICIT),
        AUTO,
        "auto: a finished micro-batch is acknowledged. explicit: rows are settled by hand.",
    ),
    Option(
        "maxBacklog",
        {Purpose.QUEUE_STREAM},
        _whole(0),
        "100000",
        "Most messages leased to this subscription at once, hence in one micro-batch (R24).",
    ),
    Option(
        "filter",
        {Purpose.QUEUE_STREAM},
        _parse_text,
        None,
        "SQL condition: only messages that match it are given to this subscription (R49); default: all.",
    ),
    Option("topic", _READS_OF_TOPICS, _parse_name, None, "The topic to replay, without leases (R8).", required=True),
    Option(
        "topic", _WRITES, _parse_name, None, "The topic, or a queue's name, to publish to; default: the rows' own column topic."
    ),
    Option("columns", _READS_OF_ROWS, _parse_columns, None, "Columns to read, separated by commas; default: all."),
    Option(
        "minPartitions",
        _READS_OF_ROWS,
        _whole(1),
        None,
        "Fewest partitions of a micro-batch; default: even pieces of at most 100,000 rows.",
    ),
    Option(
        "startingBookmark",
        _READS_OF_TOPICS,
        _parse_bookmark,
        _STARTS,
        "earliest, latest or a bookmark, inclusive.",
        attribute="starting",
    ),
    Option(
        "startingTimestamp",
        _READS_OF_TOPICS,
        _parse_position_time,
        None,
        "ISO-8601 time with offset; counts from when a message was published.",
        attribute="starting",
    ),
    Option(
        "endingBookmark",
        {Purpose.TOPIC_BATCH},
        _parse_bookmark,
        "latest",
        "earliest, latest or a bookmark, exclusive.",
        attribute="ending",
    ),
    Option(
        "endingTimestamp",
        {Purpose.TOPIC_BATCH},
        _parse_position_time,
        None,
        "ISO-8601 time with offset, exclusive; counts from when a message was published.",
        attribute="ending",
    ),
    Option(
        "failOnDataLoss",
        _READS_OF_TOPICS,
        _parse_boolean,
        "true",
        "Whether a read fails where retention has let messages go; false begins at the first kept one, with a warning.",
    ),
    Option("view", {Purpose.VIEW_BATCH}, _one_of(*VIEWS), "messages", f"One of {', '.join(VIEWS)}."),
    Option(
        "timestampAsOf",
        {Purpose.VIEW_BATCH},
        parse_timestamp,
        None,
        "State at a past moment: ISO-8601 time with offset; default: now.",
        attribute="as_of",
    ),
    Option(
        "recordAsOf", {Purpose.VIEW_BATCH}, _whole(0), None, "State right after a record of the control log.", attribute="as_of"
    ),
    Option("publisher", _WRITES, _parse_name, None, "Name of the publisher, for duplicates to be dropped (R95)."),
    Option("sequenceColumn", _WRITES, _parse_text, None, "BIGINT column that numbers the publisher's rows, ascending."),
    Option(
        "expiresAfter",
        _WRITES,
        parse_duration_ms,
        None,
        'Age at which the rows expire, such as "1h" (R60).',
        attribute="expires_after_ms",
    ),
    Option(
        "deliverAfter",
        _WRITES,
        parse_duration_ms,
        None,
        'Delay before any queue delivers the rows, such as "10m", from their commit on (R128).',
        attribute="deliver_after_ms",
    ),
    Option("txnAppId", {Purpose.WRITE_BATCH}, _parse_text, None, "With txnVersion: a repeated write is dropped."),
    Option(
        "txnVersion", {Purpose.WRITE_BATCH}, _whole(0), None, "With txnAppId: number of the write; rises, or one id has one write."
    ),
    Option(
        "txnCompare",
        {Purpose.WRITE_BATCH},
        _parse_compare,
        "rows",
        "Repeats must have the same rows, or (`version`) none is compared.",
    ),
)


def names_of(purpose: Purpose) -> frozenset[str]:
    """Return the options of a purpose, in lower case as Spark compares them."""
    return frozenset(option.name.lower() for option in OPTIONS if purpose in option.purposes)
