"""Delta's table features: which of them a table's columns and properties use, and the protocol that lists them.

Up to writer version 6 a protocol implies its features. One of version 7 names them, also those that were implied before: Spark
opens no table that uses a feature which its protocol does not name. delta-rs names what it was asked for, and takes the place of
what was implied (tried), so the protocols of tables that are made or altered here come from here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from deltalake import DeltaTable, Schema

#: The versions of reader and writer from which on a protocol implies a feature.
_IMPLIED = {
    "appendOnly": (1, 2), "invariants": (1, 2), "checkConstraints": (1, 3), "changeDataFeed": (1, 4), "generatedColumns": (1, 4),
    "columnMapping": (2, 5), "identityColumns": (1, 6),
}  # fmt: skip

#: Those that a reader has to know, too.
_OF_READERS = frozenset({"columnMapping", "timestampNtz"})

#: Versions of reader and writer of a protocol that names its features.
_NAMING = (3, 7)

#: The features of a property that is true, of a column's metadata, and of each property that begins so.
_PROPERTIES = {"delta.appendOnly": "appendOnly", "delta.enableChangeDataFeed": "changeDataFeed"}
_COLUMN_KEYS = {
    "delta.invariants": "invariants", "delta.generationExpression": "generatedColumns", "delta.identity.start": "identityColumns",
}  # fmt: skip
_CONSTRAINTS = "delta.constraints."


def protocol(columns: Iterable[Mapping[str, Any]], properties: Mapping[str, str], before: Any = None) -> dict[str, Any]:
    """Return the protocol action of a table of these columns, as Delta's JSON has them, and these properties.

    `before` is delta-rs's form of the protocol that the table has, all of which is kept; None for a new one.
    """
    reader, writer = (1, 2) if before is None else (int(before.min_reader_version), int(before.min_writer_version))
    known, used = _known(reader, writer, before), used_features(columns, properties)
    if used <= known and writer < _NAMING[1]:
        return {"minReaderVersion": reader, "minWriterVersion": writer}
    named = known | used
    of_readers = named & (_OF_READERS | set((before and before.reader_features) or ()))
    if of_readers or reader >= _NAMING[0]:
        versions, features = _NAMING, {"readerFeatures": sorted(of_readers)}
    else:
        versions, features = (reader, _NAMING[1]), {}
    return {"minReaderVersion": versions[0], "minWriterVersion": versions[1], **features, "writerFeatures": sorted(named)}


def columns_of(schema: Schema) -> list[dict[str, Any]]:
    """Return a schema's columns as Delta's log has them."""
    columns: list[dict[str, Any]] = json.loads(schema.to_json())["fields"]
    return columns


def unnamed_features(table: DeltaTable) -> list[str]:
    """Return the features that a table uses and its protocol neither names nor implies: no Spark opens it."""
    found = table.protocol()
    known = _known(found.min_reader_version, found.min_writer_version, found)
    return sorted(used_features(columns_of(table.schema()), table.metadata().configuration) - known)


def used_features(columns: Iterable[Mapping[str, Any]], properties: Mapping[str, str]) -> set[str]:
    """Return the features that columns and properties use."""
    found = {feature for key, feature in _PROPERTIES.items() if properties.get(key, "false").lower() == "true"}
    if any(key.startswith(_CONSTRAINTS) for key in properties):
        found.add("checkConstraints")
    if properties.get("delta.columnMapping.mode", "none").lower() != "none":
        found.add("columnMapping")
    for field in _fields({"fields": columns}):
        found |= {feature for key, feature in _COLUMN_KEYS.items() if key in field.get("metadata", {})}
        if not field["nullable"]:
            found.add("invariants")
        if field["type"] == "timestamp_ntz":
            found.add("timestampNtz")
    return found


def _known(reader: int, writer: int, before: Any) -> set[str]:
    """Return the features that a protocol of these versions implies, or those that it names."""
    if writer < _NAMING[1]:
        return {name for name, least in _IMPLIED.items() if reader >= least[0] and writer >= least[1]}
    return {*(before.writer_features or ()), *(before.reader_features or ())}


def _fields(kind: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the fields within a type at every depth; elements, keys and values are fields without names."""
    if isinstance(kind, str):
        return
    parts = [{"type": kind[part], "nullable": True} for part in ("elementType", "keyType", "valueType") if part in kind]
    for field in (*kind.get("fields", ()), *parts):
        yield field
        yield from _fields(field["type"])
