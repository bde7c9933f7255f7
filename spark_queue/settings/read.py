"""Reading Spark options and definition files."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from spark_queue.core.definitions import parsing
from spark_queue.core.definitions.definition import Definitions
from spark_queue.errors import ConfigError, nearest, parsed
from spark_queue.settings.option import Option, options_of
from spark_queue.settings.types import TYPES, VIEWS_OF_ALL_QUEUES, Options, Purpose, TopicBatchOptions, ViewOptions

STORAGE_PREFIX = "storage."

#: Options that Spark itself adds: paths, and the properties of a table that it resolves.
_SPARKS_OWN = frozenset(
    {"path", "checkpointlocation", "queryname", "provider", "location", "owner", "comment", "external", "is_managed_location"}
    | {"table_type", "collation"}
)
_SPARKS_OWN_PREFIXES = ("option.", "spark.")


def read_purpose(options: Mapping[str, str], *, streaming: bool) -> Purpose:
    """Return the purpose of a read: a stream names exactly one of queue and topic; a batch of a queue is a view of it."""
    names = {name.lower() for name in options}
    if "topic" in names and names & {"queue", "view"}:
        reason = "a read has one source: a queue (leases), a topic (replay) or, in batch, a view of a queue."
        raise ConfigError("CONTRADICTORY_SETTINGS", where="the options", reason=reason, keys="topic, queue, view")
    if "topic" in names:
        return Purpose.TOPIC_STREAM if streaming else Purpose.TOPIC_BATCH
    if not names & {"queue", "view"}:
        raise ConfigError("MISSING_OPTION", option="queue", where="a read", reason="a read names a queue or a topic.")
    return Purpose.QUEUE_STREAM if streaming else Purpose.VIEW_BATCH


def read_options(options: Mapping[str, str], purpose: Purpose) -> Options:
    """Check Spark options and give them in the type that `TYPES` has for their purpose.

    Names are in any case; Spark's own options are let through, ``path`` stands for ``journal``, and ``storage.*`` is collected.
    """
    known = options_of(TYPES[purpose])
    given, storage = _sort_out(options, known, purpose)
    values: dict[str, Any] = {"storage": storage}
    for option in known:
        if option.name in given:
            values[option.field] = parsed(option.parse, given[option.name], key=option.name, where="the options")
        elif option.required:
            raise ConfigError("MISSING_OPTION", option=option.name, where=f"a {purpose}", reason=option.about)
    typed = TYPES[purpose](**values)
    _check_relations(given, typed, known, purpose)
    return typed


def _sort_out(options: Mapping[str, str], known: Iterable[Option], purpose: Purpose) -> tuple[dict[str, str], dict[str, str]]:
    """Part the options into ours, by their written name, and those of the store."""
    names = {option.name.lower(): option.name for option in known}
    given: dict[str, str] = {}
    storage: dict[str, str] = {}
    for name, value in options.items():
        lowered = name.lower()
        if lowered in names:
            given[names[lowered]] = value
        elif lowered.startswith(STORAGE_PREFIX):
            storage[lowered.removeprefix(STORAGE_PREFIX)] = value
        elif lowered == "paths":
            # So Spark hands over a list of paths, of which none may be left unread in silence.
            raise ConfigError("BAD_VALUE", key="path", where="the options", value=value, expected="the path of one journal")
        elif lowered not in _SPARKS_OWN and not lowered.startswith(_SPARKS_OWN_PREFIXES):
            # Without a view, and with the very option misspelt that a stream would be known by, it may be either.
            undecided = purpose is Purpose.VIEW_BATCH and "view" not in {each.lower() for each in options}
            where = "a read of a queue" if undecided else f"a {purpose}"
            raise ConfigError("UNKNOWN_OPTION", option=name, where=where, nearest=_advice(lowered, names.values()))
    path = next((value for name, value in options.items() if name.lower() == "path"), None)
    if path is not None and given.setdefault("journal", path) != path:
        reason = "the path and option 'journal' name two different journals."
        raise ConfigError("CONTRADICTORY_SETTINGS", where="the options", reason=reason, keys="path, journal")
    return given, storage


def _advice(lowered: str, names: Iterable[str]) -> str:
    every = {(purpose, option.name) for purpose, kind in TYPES.items() for option in options_of(kind)}
    elsewhere = sorted({str(purpose) for purpose, name in every if name.lower() == lowered})
    if elsewhere:
        return f" It belongs to: {', '.join(elsewhere)}."
    # The purpose follows from the names of the options, so a misspelt one may have led to the wrong purpose.
    return nearest(lowered, names) or nearest(lowered, sorted({name for _, name in every}))


def _check_relations(given: Mapping[str, str], typed: Options, known: Iterable[Option], purpose: Purpose) -> None:
    by_field: dict[str, str] = {}
    for option in known:
        if option.name in given and by_field.setdefault(option.field, option.name) != option.name:
            keys = f"{by_field[option.field]}, {option.name}"
            raise ConfigError("CONTRADICTORY_SETTINGS", where="the options", reason="both set the same thing.", keys=keys)
    if (
        isinstance(typed, TopicBatchOptions)
        and typed.starting.kind == typed.ending.kind
        and typed.starting.value > typed.ending.value
    ):
        keys = f"{by_field['starting']}, {by_field['ending']}"
        raise ConfigError("CONTRADICTORY_SETTINGS", where="the options", reason="the read ends before it starts.", keys=keys)
    if "sequenceColumn" in given and "publisher" not in given:
        reason = "sequences belong to a publisher, so sequenceColumn needs its name."
        raise ConfigError("MISSING_OPTION", option="publisher", where=f"a {purpose}", reason=reason)
    for one, other in (("txnAppId", "txnVersion"), ("txnVersion", "txnAppId"), ("txnCompare", "txnAppId")):
        if one in given and other not in given:
            raise ConfigError("MISSING_OPTION", option=other, where=f"a {purpose}", reason=f"{one} has no meaning without it.")
    if isinstance(typed, ViewOptions) and typed.queue is None and typed.view not in VIEWS_OF_ALL_QUEUES:
        reason = f"view '{typed.view}' needs a queue."
        raise ConfigError("MISSING_OPTION", option="queue", where=f"a {purpose}", reason=reason)


def load_definitions(source: str | Path | Mapping[str, Any]) -> Definitions:
    """Read and check definitions: a TOML file, or the same tables as a dict."""
    if isinstance(source, Mapping):
        return parsing.parse(source)
    try:
        stored = tomllib.loads(Path(source).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as reason:
        raise ConfigError("DEFINITIONS_UNREADABLE", path=str(source), reason=f"{reason}.") from None
    return parsing.parse(stored)
