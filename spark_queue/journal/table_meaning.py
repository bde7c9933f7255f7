"""The meaning of a Delta table to who reads some of its columns: their names and types, its partitions, and needed features.

Read from the log's own actions, since a table says it again in other words all the time (tried): identity columns at every append,
and whoever puts a version back.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from spark_queue.core.definitions.keys import DURATION_LIMIT_MS
from spark_queue.core.message_files.followed_table import TableMeaning

#: Delta's features of readers that change nothing for who reads files that a commit names: a vector comes with a `remove`.
KNOWN_FEATURES = frozenset(
    "columnMapping deletionVectors timestampNtz typeWidening typeWidening-preview v2Checkpoint vacuumProtocolCheck".split()
)

#: Those of types, which matter for columns of such a type alone: a file reads well without them (tried).
TYPE_FEATURES = frozenset(
    "geospatial geospatial-preview variantShredding variantShredding-preview variantType variantType-preview".split()
)

#: The newest version of a protocol that is known here, and the one in which only column mapping is new.
_READER_VERSION, _MAPPING_VERSION = 3, 2

_MODE_KEY, _PHYSICAL_KEY = "delta.columnMapping.mode", "delta.columnMapping.physicalName"

#: Delta's names of types, as Spark DDL has them.
_DDL = {
    "string": "STRING", "long": "BIGINT", "integer": "INT", "short": "SMALLINT", "byte": "TINYINT", "float": "FLOAT",
    "double": "DOUBLE", "boolean": "BOOLEAN", "binary": "BINARY", "date": "DATE", "timestamp": "TIMESTAMP",
    "timestamp_ntz": "TIMESTAMP_NTZ",
}  # fmt: skip
_DECIMAL = re.compile(r"decimal\((\d+), ?(\d+)\)")

_RETENTION_KEY, _RETENTION = "delta.deletedFileRetentionDuration", "interval 1 week"
_UNITS_S = {"millisecond": 0.001, "second": 1, "minute": 60, "hour": 3_600, "day": 86_400, "week": 7 * 86_400}

#: Most types that stand in each other, more than a declaration may have.
_DEPTH_MAX = 64


def unsupported_protocol(protocol: Mapping[str, Any]) -> str | None:
    """Return why a table of a protocol cannot be followed; None where it can."""
    version = protocol.get("minReaderVersion", 1)
    if not isinstance(version, int) or version > _READER_VERSION:
        return f"its protocol has reader version {version}, and {_READER_VERSION} is the newest that is known here."
    features = protocol.get("readerFeatures") or []
    unknown = sorted({str(each) for each in features} - KNOWN_FEATURES - TYPE_FEATURES)
    if unknown:
        return f"its readers have to know {', '.join(unknown)[:500]}."
    return None


def meaning_of(metadata: Mapping[str, Any]) -> TableMeaning | str:
    """Return what a table is by its metadata; the reason where it cannot be followed by them.

    Raises
    ------
    ValueError, KeyError, TypeError
        For what is no metadata.
    """
    configuration = metadata.get("configuration") or {}
    mode = str(configuration.get(_MODE_KEY, "none")).lower()
    if mode not in ("none", "name"):
        return f"its columns are mapped by {mode}; only mapping by name can be read."
    columns: dict[str, tuple[str, str | None]] = {}
    names: dict[str, str] = {}
    for field in json.loads(metadata["schemaString"])["fields"]:
        name = str(field["name"])
        physical = str(field["metadata"][_PHYSICAL_KEY]) if mode == "name" else name
        # The fields of a struct have names of their own in files, too.
        is_mapped = mode == "name" and "struct" in json.dumps(field["type"])
        columns[physical], names[name] = (name, None if is_mapped else ddl_of(field["type"])), physical
    partition = tuple(names[str(each)] for each in metadata.get("partitionColumns") or ())
    retention_ms = round(interval_seconds(str(configuration.get(_RETENTION_KEY, _RETENTION))) * 1_000)
    return TableMeaning(
        id=str(metadata["id"]), columns=columns, partition=partition, retention_ms=max(0, min(retention_ms, DURATION_LIMIT_MS))
    )


def interval_seconds(interval: str) -> float:
    """Return a duration of Delta's, such as ``interval 30 days``; one that says nothing is none."""
    parts = re.findall(r"(-?\d{1,15})\s*([a-z]+)", interval.lower().removeprefix("interval"))
    return sum(int(count) * _UNITS_S.get(unit.removesuffix("s"), 0) for count, unit in parts)


def ddl_of(kind: Any, depth: int = 0) -> str | None:
    """Return a type of Delta's as Spark DDL; None where a message type cannot have it."""
    if depth > _DEPTH_MAX:
        return None
    if isinstance(kind, str):
        decimal = _DECIMAL.fullmatch(kind)
        return f"DECIMAL({decimal[1]},{decimal[2]})" if decimal else _DDL.get(kind)
    match kind.get("type"):
        case "array":
            return _ddl("ARRAY<{}>", kind["elementType"], depth=depth)
        case "map":
            return _ddl("MAP<{}, {}>", kind["keyType"], kind["valueType"], depth=depth)
        case "struct":
            form = ", ".join(f"{quoted(str(each['name'])).replace('{', '{{').replace('}', '}}')}: {{}}" for each in kind["fields"])
            return _ddl(f"STRUCT<{form}>", *(each["type"] for each in kind["fields"]), depth=depth) if kind["fields"] else None
        case _:
            return None


def _ddl(form: str, *parts: Any, depth: int) -> str | None:
    found = [ddl_of(part, depth + 1) for part in parts]
    return None if None in found else form.format(*found)


def quoted(name: str) -> str:
    """Return a name as Spark DDL takes any."""
    return f"`{name.replace('`', '``')}`"
